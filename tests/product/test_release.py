"""One version in one place, and a wheel that works in an empty environment."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

import weft

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import release  # noqa: E402


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"] and project["project"]["dynamic"] == ["version"]
    found = project["tool"]["hatch"]["version"]
    text = (ROOT / found["path"]).read_text()
    assert re.search(found["pattern"], text, re.M)["version"] == weft.version.weft  # type: ignore[index]
    assert release.version() == weft.version.weft


def test_the_changelog_begins_with_this_version() -> None:
    assert release.check_changelog(weft.version.weft).startswith(f"## {weft.version.weft}")
    headings = re.findall(r"^## (\S+?),", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == weft.version.weft
    with pytest.raises(release.Failed, match="says nothing of 99"):
        release.check_changelog("99.0.0")


def test_a_failing_step_shows_what_it_printed() -> None:
    with pytest.raises(release.Failed, match="no such luck"):
        release.run(sys.executable, "-c", "raise SystemExit('no such luck')")


def test_nothing_of_this_environment_reaches_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    printed = release.run(sys.executable, "-c", "import os; print(os.environ.get('PYTHONPATH'))")
    assert printed.strip() == "None"


@pytest.mark.deep
def test_the_wheel_works_in_an_empty_environment() -> None:
    command = [sys.executable, str(ROOT / "tools" / "release.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "dist/ is ready to be published" in done.stdout
