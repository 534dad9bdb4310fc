"""Builds wheel and sdist, and tries the wheel out in an empty environment.

    python tools/release.py              # build into dist/ and check
    python tools/release.py --keep       # leave the environment for a look

Nothing is published: what is in dist/ afterwards is ready for that. The wheel is built from the
sdist, so both are known to be whole.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


class Failed(Exception):
    """A step of the release did not do what it should."""


def run(*command: Any, cwd: pathlib.Path | None = None) -> str:
    """Run a command; its output, or an error that shows it."""
    # Nothing of the environment that this runs in may reach the one that is tried out.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, capture_output=True, text=True, env=clean
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    """The version, from the one place where it stands."""
    found = re.search(r'^weft = "([^"]+)"$', (ROOT / "src/weft/version.py").read_text(), re.M)
    if found is None:
        raise Failed('src/weft/version.py has no line `weft = "..."`')
    return found[1]


def check_changelog(number: str) -> str:
    """The heading of this version in the changelog."""
    text = (ROOT / "CHANGELOG.md").read_text()
    found = re.search(rf"^## {re.escape(number)}\b.*$", text, re.M)
    if found is None:
        raise Failed(f"CHANGELOG.md says nothing of {number}")
    return found[0]


def build(number: str, work: pathlib.Path) -> pathlib.Path:
    """Wheel and sdist; the path of the wheel."""
    tools = environment(work / "build-tools")
    run(tools, "-m", "pip", "install", "--quiet", "build")
    shutil.rmtree(DIST, ignore_errors=True)
    run(tools, "-m", "build", "--outdir", DIST, ROOT)
    wheel, sdist = DIST / f"weft-{number}-py3-none-any.whl", DIST / f"weft-{number}.tar.gz"
    for path in (wheel, sdist):
        if not path.exists():
            raise Failed(f"{path.name} was not built; dist/ has {sorted(map(str, DIST.iterdir()))}")
    return wheel


def environment(folder: pathlib.Path) -> pathlib.Path:
    """A new virtual environment; its Python."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def first_program() -> tuple[str, str]:
    """The program of the README, and what it prints."""
    text = (ROOT / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S)
    shown = re.search(r"```\n(tensor.*?)```", text, re.S)
    if code is None or shown is None:
        raise Failed("README.md has no first program")
    return code[1], shown[1]


def try_out(wheel: pathlib.Path, number: str, work: pathlib.Path) -> None:
    """Install the wheel alone and use it as somebody would who has just got it."""
    python = environment(work / "empty")
    weft = python.with_name("weft" + python.suffix)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    inside = work / "inside"
    inside.mkdir()

    def must(have: str, found: str, what: str) -> None:
        if have not in found:
            raise Failed(f"{what}: {have!r} is not in\n{found}")
        print(f"  {what}")

    say = "import weft, importlib.metadata as m; print(weft.__file__, m.version('weft'))"
    must("site-packages", run(python, "-c", say, cwd=inside), "imported from the wheel")
    must(number, run(python, "-c", say, cwd=inside), f"its version is {number}")
    code, shown = first_program()
    (inside / "example.py").write_text(code)
    printed = [line.rstrip() for line in run(python, "example.py", cwd=inside).splitlines()]
    must(shown.strip(), "\n".join(printed), "the program of the README prints what it shows")
    must("threads", run(weft, "doctor", cwd=inside), "weft doctor")
    must("--live", run(weft, "demo", "--help", cwd=inside), "weft demo --help")
    must("py.typed", "\n".join(p.name for p in _package(python).iterdir()), "py.typed is there")


def _package(python: pathlib.Path) -> pathlib.Path:
    where = run(python, "-c", "import weft, os; print(os.path.dirname(weft.__file__))")
    return pathlib.Path(where.strip())


def main() -> int:
    """Build and check; what is wrong goes to the error stream."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="leave the environments for a look")
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="weft-release-"))
    try:
        number = version()
        print(f"weft {number}; CHANGELOG.md: {check_changelog(number)}")
        wheel = build(number, work)
        for path in sorted(DIST.iterdir()):
            print(f"  {path.name}  {path.stat().st_size / 1e6:.1f} MB")
        try_out(wheel, number, work)
    except Failed as error:
        print(f"release failed: {error}", file=sys.stderr)
        return 1
    finally:
        if options.keep:
            print(f"environments are in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    print("dist/ is ready to be published")
    return 0


if __name__ == "__main__":
    sys.exit(main())
