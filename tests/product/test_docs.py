"""The code in the documents runs and does what they say."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The walk-through defines ops that weft has: they are taken out first, in a process of their own.
WALK = """
import re, sys
sys.path.insert(0, {tests!r})
import weft
from weft.core.dispatch import REGISTRY
text = open({path!r}).read()
blocks = re.findall(r"```python\\n(.*?)```", text, re.S)
names = re.findall(r'(?:elementwise|linear|general|constant)\\(\\s*"(\\w+)"', "\\n".join(blocks))
assert names == ["exp2", "cumsum"], names
for name in names:
    REGISTRY.pop(name)
scope = {{}}
for block in blocks:
    exec(compile(block, {path!r}, "exec"), scope)
from core import test_registry as checks
for name in names:
    checks.test_reference_takes_any_layout_and_leaves_its_inputs_alone(name)
    checks.test_vjp_matches_finite_differences_for_every_subset_of_inputs(name)
    for leaves in (False, True):
        checks.test_jvp_matches_finite_differences(name, leaves)
    checks.test_second_derivative_matches_finite_differences_of_the_first(name)
print("walked through", names)
"""


def test_the_walk_through_of_adding_an_op_runs() -> None:
    path = ROOT / "docs" / "adding_an_op.md"
    code = WALK.format(tests=str(ROOT / "tests"), path=str(path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "walked through ['exp2', 'cumsum']" in done.stdout


@pytest.mark.parametrize("number, name", [(0, "example"), (1, "edit")])
def test_the_programs_of_the_readme_print_what_it_shows(
    number: int, name: str, tmp_path: pathlib.Path
) -> None:
    shown = re.findall(
        r"```python\n(.*?)```\n\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    assert len(shown) == 2
    code, output = shown[number]
    (tmp_path / f"{name}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, f"{name}.py"], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100"},  # tables are as wide as the terminal
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # How far rounding moves the outputs of a resized network depends on the machine.
    exact = lambda text: re.sub(r"moved by \S+,", "moved by little,", text)
    printed = [line.rstrip() for line in exact(done.stdout).splitlines()]
    assert printed == exact(output).splitlines()


def test_the_readme_shows_an_error_as_it_is_shown(tmp_path: pathlib.Path) -> None:
    shown = re.search(r"```text\n(Traceback.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert shown
    program = "import weft as torch\n\nmodel = torch.nn.Linear(512, 10)\n\n\n"
    program += "images = torch.randn(64, 784)\n\n\nmodel(images)\n"
    (tmp_path / "train.py").write_text(program)
    environment = {k: v for k, v in os.environ.items() if k != "WEFT_TRACEBACK"}
    done = subprocess.run(
        [sys.executable, "train.py"], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.stderr.replace(f"{tmp_path}{os.sep}", "") == shown[1]


def test_the_benchmark_table_of_the_readme_is_that_of_the_roadmap() -> None:
    rows = lambda name, width: {
        cells[0]: re.findall(r"\d\.\d\d", cells[1])
        for line in (ROOT / name).read_text().splitlines()
        if len(cells := [c.strip() for c in line.strip("|").split("|")]) == width
        and re.fullmatch(r"0\.\d\d to 0\.\d\d(, once 0\.\d\d)?", cells[1])
    }
    readme, roadmap = rows("README.md", 2), rows("ROADMAP.md", 4)
    assert len(readme) == 8
    for case, (low, high) in readme.items():
        assert (low, high) == (roadmap[case][0], roadmap[case][-1])


def test_the_page_of_the_command_line_names_every_command_and_exit_code() -> None:
    from weft_command import COMMANDS, exits

    text = (ROOT / "docs" / "command_line.md").read_text()
    assert {name for name in COMMANDS if f"`weft {name}" in text} == set(COMMANDS)
    codes = dict(re.findall(r"^ +(\d+) +(.*)$", exits.EXPLAINED, re.M))
    assert dict(re.findall(r"^\| (\d+) \| (.*) \|$", text, re.M)) == codes


def test_pages_link_to_files_that_are_there() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.S)
        for link in re.findall(r"\]\(([^)#:]+)\)", prose):
            assert (page.parent / link).exists(), (page.name, link)


@pytest.mark.parametrize(
    "module",
    [
        "weft.viz",
        "weft.viz.images",
        "weft.viz.pages",
    ],
)
def test_examples_in_docstrings(module: str) -> None:
    import doctest
    import importlib

    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted and not results.failed
