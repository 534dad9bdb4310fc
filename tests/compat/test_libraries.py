"""Libraries around PyTorch, where they are installed, give PyTorch's numbers on weft."""

from __future__ import annotations

import importlib.metadata
import math
import sys

import pytest

import libraries
from libraries import __main__ as command

ON_WEFT = (sys.executable, "-m", "weft", "run", "--no-check")


@pytest.mark.parametrize("program", libraries.programs(), ids=lambda program: program.name)
def test_a_library(program: libraries.Program) -> None:
    known = libraries.stored().get(program.name)
    if known is None:
        pytest.skip("PyTorch's numbers are not stored; docs/libraries.md says why")
    try:
        versions = program.versions()
    except importlib.metadata.PackageNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed: tests/libraries/requirements.txt")
    if versions.items() - known["versions"].items():
        pytest.skip(f"PyTorch's numbers are of {known['versions']}, installed are {versions}")
    if program.name in libraries.KNOWN:
        pytest.xfail(libraries.KNOWN[program.name])
    failed, output, errors = libraries.run(program, *ON_WEFT)
    assert failed == 0, errors
    worst, first = libraries.difference(output, "\n".join(known["output"]))
    assert worst <= libraries.TOLERANCE, first


def test_every_program_names_its_libraries_and_they_are_pinned() -> None:
    lines = (libraries.HERE / "requirements.txt").read_text().split()
    pinned = dict(line.split("==") for line in lines)
    for program in libraries.programs():
        assert program.about.endswith("."), program.name
        known = libraries.stored().get(program.name, {}).get("versions", {})
        for name in program.needs:
            assert known.get(name, pinned[name]) == pinned[name]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("loss 1.0\n", "loss 1.0\n", 0.0),
        ("loss 1.0001", "loss 1.0", 1e-4),
        ("a 1e-9 1.0", "a -1e-9 1.0", 2e-6),
        ("loss 1.0", "lost 1.0", math.inf),
        ("loss nan", "loss 1.0", math.inf),
        ("loss 1.0 2.0", "loss 1.0", math.inf),
        ("loss 1.0\nmore", "loss 1.0", math.inf),
        ("7 -0.5 inf", "7 -0.5 inf", 0.0),
    ],
)
def test_differences_between_outputs(ours: str, theirs: str, expected: float) -> None:
    found, _ = libraries.difference(ours, theirs)
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_table_keeps_rows_that_were_not_run_again(tmp_path) -> None:
    first, second = (p.name for p in libraries.programs()[:2])
    path = tmp_path / "table.md"
    path.write_text("before\n<!-- table -->\n<!-- end -->\nafter\n")
    command.write({first: ["a 1", "does.", "yes", "equal"], "gone": ["x"]}, path=path)
    command.write({second: ["b 2", "does.", "no", "why"]}, path=path)
    text = path.read_text()
    assert f"| `{first}` | a 1 | does. | yes | equal |\n| `{second}` | b 2 |" in text
    assert text.startswith("before\n") and text.endswith("after\n") and "gone" not in text


def test_the_table_of_checks_has_a_row_for_a_library(tmp_path) -> None:
    path = tmp_path / "table.md"
    path.write_text("<!-- table -->\n<!-- end -->\nbetween\n<!-- check -->\n<!-- end -->\n")
    command.write({"einops": ["12", "0", "0", "1", ""]}, "check", path)
    command.write({"timm": ["99", "1", "0", "1", "`torch.x`"]}, "check", path)
    text = path.read_text()
    assert "| `einops` | 12 | 0 | 0 | 1 |  |\n| `timm` | 99 | 1 | 0 | 1 | `torch.x` |\n" in text
    assert text.startswith("<!-- table -->\n<!-- end -->\nbetween\n")
    assert command.pinned(["einops"]) == ["einops"] and len(command.pinned([])) > 35
    assert command.checked("no-such-library") is None
