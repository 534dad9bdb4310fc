"""Tables of the documentation that are made from weft itself."""

from __future__ import annotations

import pathlib
import re
from collections import defaultdict
from collections.abc import Callable

import api_coverage as coverage
import site_api

# Names that a row of the table of missing ones shows.
SHOWN = 12
ROOT = pathlib.Path(__file__).resolve().parent.parent


def coverage_table() -> str:
    """How many of the names that programs use are there, by where they are."""
    left_out = coverage.outside()
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name in coverage.read(coverage.TABLE):
        if coverage.is_outside(name.name, left_out):
            continue
        there = coverage.present(name.name)
        for row in (_home(name.name), "all"):
            for i, count in enumerate((there, 1, there * name.files, name.files)):
                rows[row][i] += count
    lines = ["| | names | of | weighted by use |", "|---|---|---|---|"]
    total = rows.pop("all")
    ordered = sorted(rows.items(), key=lambda item: -item[1][3])
    main = [item for item in ordered if item[1][1] >= 5]
    for title, (there, count, weight, whole) in [*main, ("**all**", total)]:
        lines.append(f"| {title} | {there} | {count} | {weight / whole:.1%} |")
    note = (
        "\n\nCounted are the names of PyTorch that occur in a collection of public programs "
        "(`tools/api_frequency.csv`), without those that concern GPUs or a compiler "
        "(`tools/api_outside.csv`); the weight of a name is the number of files that use it. A "
        "name that is there only to raise an error counts as missing. "
        "`python tools/api_coverage.py` prints the same."
    )
    return "\n".join(lines) + note


def _home(name: str) -> str:
    parts = name.split(".")
    if parts[0] != "torch":
        return f"`{parts[0]}` methods"
    return "`torch`" if len(parts) == 2 else f"`torch.{parts[1]}`"


def missing_table() -> str:
    """The names that programs use and weft lacks, by where they are."""
    left_out = coverage.outside()
    found: dict[str, list[str]] = defaultdict(list)
    raising: dict[str, int] = defaultdict(int)
    for name in sorted(coverage.read(coverage.TABLE), key=lambda n: (-n.files, n.name)):
        if coverage.is_outside(name.name, left_out) or coverage.present(name.name):
            continue
        home = _home(name.name)
        found[home].append(name.name)
        raising[home] += coverage.refused(name.name)
    lines = ["| in | missing | of these raise | most used first |", "|---|---|---|---|"]
    for home, names in sorted(found.items(), key=lambda item: -len(item[1])):
        short = [f"`{_short(name)}`" for name in names[:SHOWN]]
        more = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
        shown = ", ".join([*short, *more])
        lines.append(f"| {home} | {len(names)} | {raising[home]} | {shown} |")
    note = (
        '\n\nNames that "raise" can be imported and mentioned, and raise an error when they are '
        "called. `python tools/api_coverage.py --missing 500` lists all."
    )
    return "\n".join(lines) + note


def _short(name: str) -> str:
    """A name without the module that its row names."""
    parts = name.split(".")
    return ".".join(parts[1:] if parts[0] != "torch" or len(parts) == 2 else parts[2:])


def differences_list() -> str:
    """The section of the roadmap on deliberate differences."""
    text = (ROOT / "ROADMAP.md").read_text()
    found = re.search(
        r"^## Where weft and PyTorch differ on purpose\n(.*?)(?=^## |\Z)", text, re.S | re.M
    )
    if found is None:
        raise ValueError("ROADMAP.md has no section on deliberate differences")
    return found[1].strip()


def reference_list() -> str:
    """The pages of the reference, with how many names each has."""
    lines = ["| module | what | names |", "|---|---|---|"]
    for name, title in site_api.titles().items():
        entries = site_api.entries(name)
        meaning = site_api.meaning(name)
        lines.append(f"| [{title}](api/{name}.md) | {meaning} | {len(entries)} |")
    return "\n".join(lines)


MADE: dict[str, Callable[[], str]] = {
    "coverage": coverage_table,
    "missing": missing_table,
    "differences": differences_list,
    "reference": reference_list,
}


def table(name: str) -> str:
    """A table by its name."""
    return MADE[name]()
