"""``PYTHONPATH=tests python -m libraries [names]``: run the programs and compare with torch.

It is run in an environment with weft, ``weft torch install`` and the libraries of
``requirements.txt``, and writes the table of ``docs/libraries.md``. With ``--store`` it is run in
one that has PyTorch and the same libraries, and stores what PyTorch prints.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from pathlib import Path

import libraries
from weft.compat import distribution

TABLE = libraries.HERE.parent.parent / "docs" / "libraries.md"
_BEGIN, _END = "<!-- table -->\n", "<!-- end -->\n"


def main() -> int:
    parser = argparse.ArgumentParser("python -m libraries", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs to run, all by default")
    parser.add_argument("--store", action="store_true", help="store the numbers of PyTorch")
    options = parser.parse_args()
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


def write(rows: dict[str, list[str]], path: Path = TABLE) -> None:
    """Put rows into the table of the document, in place of those that were run again."""
    before, _, rest = path.read_text().partition(_BEGIN)
    old, _, after = rest.partition(_END)
    kept = {}
    for line in old.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        kept[cells[0].strip("`")] = cells[1:]
    known = {program.name for program in libraries.programs()}
    merged = {name: cells for name, cells in {**kept, **rows}.items() if name in known}
    head = ["program", "library", "what it does", "torch's numbers", "difference or reason"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| `{name}` | {' | '.join(merged[name])} |" for name in sorted(merged)]
    path.write_text(before + _BEGIN + "\n".join(lines) + "\n" + _END + after)


if __name__ == "__main__":
    sys.exit(main())
