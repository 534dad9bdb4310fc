"""``PYTHONPATH=tests python -m libraries [names]``: run the programs and compare with torch.

It is run in an environment with weft, ``weft torch install`` and the libraries of
``requirements.txt``, and writes the table of ``docs/libraries.md``. With ``--check`` it writes the
other table there, of what ``weft check`` finds in each library. With ``--store`` it is run in an
environment that has PyTorch and the same libraries, and stores what PyTorch prints.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from pathlib import Path

import libraries
from weft.compat import check, distribution

TABLE = libraries.HERE.parent.parent / "docs" / "libraries.md"
HEADS = {
    "table": ["program", "library", "what it does", "torch's numbers", "difference or reason"],
    "check": ["library", "names of torch", "missing", "asked for first", "only named", "first"],
}
_END = "<!-- end -->\n"


def main() -> int:
    parser = argparse.ArgumentParser("python -m libraries", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs to run, all by default")
    parser.add_argument("--store", action="store_true", help="store the numbers of PyTorch")
    parser.add_argument("--check", action="store_true", help="run weft check over the libraries")
    options = parser.parse_args()
    if options.check:
        write({name: cells for name in pinned(options.names) if (cells := checked(name))}, "check")
        return 0
    chosen = [p for p in libraries.programs() if not options.names or p.name in options.names]
    if options.store:
        return store(chosen)
    if distribution.active().kind != "weft":
        print(f"{distribution.active()}; run `weft torch install` first", file=sys.stderr)
        return 1
    rows = {program.name: row(program) for program in chosen}
    failed = [name for name, cells in rows.items() if cells[2] != "yes"]
    write(rows)
    print(f"{len(rows) - len(failed)} of {len(rows)} run with torch's numbers", *failed, sep="\n")
    return 1 if set(failed) - set(libraries.KNOWN) else 0


def store(chosen: list[libraries.Program]) -> int:
    """Keep what PyTorch prints, with the versions that printed it."""
    import torch

    kept, code = libraries.stored(), 0
    for program in chosen:
        failed, output, errors = libraries.run(program)
        if failed:
            said = errors.strip().splitlines() or [f"exit code {failed}"]
            print(f"{program.name}: {said[-1]}", file=sys.stderr)
            code = 1
            continue
        versions = {"torch": torch.__version__, **program.versions()}
        kept[program.name] = {"versions": versions, "output": output.splitlines()}
        text = json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False)
        libraries.NUMBERS.write_text(text + "\n")
    return code


def row(program: libraries.Program) -> list[str]:
    """What the table says of one program."""
    try:
        versions = program.versions()
    except importlib.metadata.PackageNotFoundError as missing:
        return [", ".join(program.needs), program.about, "not run", f"{missing.name} not installed"]
    library = ", ".join(f"{name} {version}" for name, version in versions.items())
    failed, output, errors = libraries.run(program)
    reason = libraries.KNOWN.get(program.name, "")
    if failed:
        said = [line for line in errors.strip().splitlines() if "Error" in line[:80]]
        reason = reason or (said or ["failed"])[-1][:160].replace("|", "/")
        return [library, program.about, "no", reason]
    known = libraries.stored().get(program.name)
    if known is None:
        return [library, program.about, "runs", "PyTorch's numbers are not stored"]
    worst, first = libraries.difference(output, "\n".join(known["output"]))
    if worst > libraries.TOLERANCE:
        return [library, program.about, "no", reason or first.replace("|", "/")]
    return [library, program.about, "yes", f"{worst:.0e}" if worst else "equal"]


def pinned(chosen: list[str]) -> list[str]:
    """The libraries of the requirements file, or those of them that were asked for."""
    lines = (libraries.HERE / "requirements.txt").read_text().split()
    return [n for line in lines if (n := line.partition("==")[0]) in chosen or not chosen]


def checked(library: str) -> list[str] | None:
    """What the second table says of one library; None if it is not installed."""
    try:
        report = check.check(library)
    except check.NotFound:
        print(f"{library} is not installed", file=sys.stderr)
        return None
    by_status = {s: [r.name for r in report.rows if r.status == s] for s in check.STATUSES}
    counts = [str(len(names)) for names in by_status.values()]
    first = ", ".join(f"`{name}`" for name in by_status[check.MISSING][:4])
    print(library, *counts, flush=True)
    return [str(report.names), *counts, first]


def write(rows: dict[str, list[str]], which: str = "table", path: Path = TABLE) -> None:
    """Put rows into a table of the document, in place of those that were made again."""
    begin, head = f"<!-- {which} -->\n", HEADS[which]
    before, _, rest = path.read_text().partition(begin)
    old, _, after = rest.partition(_END)
    kept = {}
    for line in old.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip().removesuffix("|").strip("|").split(" | ")]
        kept[cells[0].strip("`")] = cells[1:]
    known = {p.name for p in libraries.programs()} if which == "table" else set(pinned([]))
    merged = {name: cells for name, cells in {**kept, **rows}.items() if name in known}
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| `{name}` | {' | '.join(merged[name])} |" for name in sorted(merged)]
    path.write_text(before + begin + "\n".join(lines) + "\n" + _END + after)


if __name__ == "__main__":
    sys.exit(main())
