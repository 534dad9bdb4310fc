"""``weft check``: which names of torch a package uses that weft lacks, from its source alone."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from weft.compat import scan
from weft.compat.names import COMPANIONS

MISSING, GUARDED, REFUSED = "missing", "missing, asked for first", "raises when called"
STATUSES = (MISSING, GUARDED, REFUSED)


@dataclass
class Row:
    """A name of PyTorch's that weft lacks or only names."""

    name: str
    status: str
    uses: int
    first: str
    reason: str = ""


@dataclass
class UsageReport:
    """What a package uses of PyTorch."""

    target: str
    version: str = ""
    files: int = 0
    names: int = 0
    rows: list[Row] = field(default_factory=list)

    @property
    def sure(self) -> list[Row]:
        """The names without which some of the package fails."""
        return [row for row in self.rows if row.status == MISSING]


class NotFound(Exception):
    """Says what was looked for."""


def check(target: str) -> UsageReport:
    """Read the source of an installed package, a folder or a file."""
    root, version = _find(target)
    paths = sorted(_sources(root))
    names, uses = scan.uses_in_files(paths)
    # torchvision and its like are packages of their own; the table is about torch.
    names = {n for n in names if n.partition(".")[0] not in COMPANIONS}
    found: dict[str, list[scan.NameUse]] = {}
    for use in sorted(uses):
        if use.name.partition(".")[0] not in COMPANIONS:
            found.setdefault(use.name, []).append(use)
    base = os.path.dirname(root)
    rows = [_row(name, places, base) for name, places in found.items()]
    rows.sort(key=lambda row: (STATUSES.index(row.status), -row.uses, row.name))
    return UsageReport(target, version, len(paths), len(names), rows)


def _row(name: str, uses: list[scan.NameUse], base: str) -> Row:
    plain = [use for use in uses if not use.guarded]
    first = (plain or uses)[0]
    status = REFUSED if first.refused else MISSING if plain else GUARDED
    place = f"{os.path.relpath(first.path, base)}:{first.line}"
    return Row(name, status, len(uses), place, first.reason)


def _find(target: str) -> tuple[str, str]:
    """The folder or file of a target, and its version if it is an installed package."""
    if os.sep in target or target.endswith(".py") or os.path.isdir(target):
        if not os.path.exists(target):
            raise NotFound(f"there is no file or folder {target}")
        return os.path.abspath(target), ""
    module, version = _module_of(target)
    spec = importlib.machinery.PathFinder.find_spec(module)
    if spec is None or spec.origin is None:
        raise NotFound(
            f"no package named {target} is installed, and there is no folder of that name. "
            f"Install it with pip; `weft torch install` first keeps pip from pulling PyTorch"
        )
    origin = os.path.abspath(spec.origin)
    return os.path.dirname(origin) if spec.submodule_search_locations else origin, version


def _module_of(target: str) -> tuple[str, str]:
    """The module of a package by the name that pip or import knows, and its version."""
    owners = importlib.metadata.packages_distributions()
    name = target.replace("-", "_")
    if name in owners:
        return name, importlib.metadata.version(owners[name][0])
    for module, distributions in owners.items():
        if any(d.replace("-", "_").lower() == name.lower() for d in distributions):
            return module, importlib.metadata.version(distributions[0])
    return name, ""


def _sources(root: str) -> Iterator[str]:
    if os.path.isfile(root):
        yield root
    for folder, inner, files in os.walk(root):
        inner[:] = [name for name in inner if not name.startswith((".", "__pycache__"))]
        yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))


def table(report: UsageReport) -> str:
    """The report as text."""
    title = f"{report.target} {report.version}".rstrip()
    head = f"{title}: {report.names} names of torch in {report.files} files"
    if not report.rows:
        return f"{head}, and weft has them all"
    lines = [f"{head}; of these weft lacks {_count(report)}", ""]
    columns = [("name", "uses", "", "first use")]
    columns += [(row.name, str(row.uses), row.status, row.first) for row in report.rows]
    widths = [max(len(line[i]) for line in columns) for i in range(3)]
    for name, uses, status, first in columns:
        text = f"{name:<{widths[0]}}  {uses:>{widths[1]}}  {status:<{widths[2]}}  {first}"
        lines.append(text.rstrip())
    return "\n".join(lines)


def _count(report: UsageReport) -> str:
    by_status = {s: [r for r in report.rows if r.status == s] for s in STATUSES}
    refusing = len(by_status[REFUSED])
    return (
        f"{len(by_status[MISSING])}, and {len(by_status[GUARDED])} that the code asks for first; "
        f"{refusing} raise{'s' * (refusing == 1)} when called"
    )


def main(target: str, as_json: bool = False) -> int:
    """Print the report; the exit code is 1 if names are missing, 2 if the target is."""
    try:
        report = check(target)
    except NotFound as error:
        print(f"weft check: {error}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(report), indent=1) if as_json else table(report))
    return 1 if report.sure else 0
