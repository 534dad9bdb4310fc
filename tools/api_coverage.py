"""How much of PyTorch's API, as programs use it, weft has.

    python tools/api_coverage.py [names.csv]

The table has the columns name, count and files: a name (``torch.x.y``, or ``Tensor.x``,
``Module.x`` and ``Optimizer.x`` for members) and the number of files that use it, which is its
weight here. A name that is there only to raise when it is called counts as missing, and is counted
apart. Names in api_outside.csv, each with its reason, are left out: they concern no CPU.
"""

from __future__ import annotations

import argparse
import csv
import functools
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import weft
from weft.compat.names import Missing, RefusedName, look_up

OUTSIDE = pathlib.Path(__file__).with_name("api_outside.csv")
TABLE = pathlib.Path(__file__).with_name("api_frequency.csv")


@dataclass(frozen=True)
class Name:
    """A name and the number of files that use it."""

    name: str
    files: int


def read(path: str | pathlib.Path) -> list[Name]:
    """The names of a table."""
    with open(path, newline="") as file:
        return [Name(row["name"], int(row["files"])) for row in csv.DictReader(file)]


def outside(path: pathlib.Path = OUTSIDE) -> dict[str, str]:
    """Names that are left out, with the reason; ``torch.x.*`` stands for all below it."""
    with open(path, newline="") as file:
        return {row["name"]: row["reason"] for row in csv.DictReader(file)}


def is_outside(name: str, left_out: Iterable[str]) -> bool:
    """Whether a name is on the list of those left out."""
    return any(
        name == entry or (entry.endswith(".*") and f"{name}.".startswith(entry[:-1]))
        for entry in left_out
    )


@functools.cache
def _owners() -> dict[str, Any]:
    module = weft.nn.Linear(1, 1)
    owners = {"Tensor": weft.ones(1), "Module": module}
    owners["Optimizer"] = weft.optim.SGD(module.parameters(), lr=0.1)
    return owners


def present(name: str) -> bool:
    """Whether weft has a name."""
    owner, _, member = name.partition(".")
    if owner != "torch":
        return hasattr(type(_owners()[owner]), member) or hasattr(_owners()[owner], member)
    try:
        look_up(name)
    except Missing:
        return False
    return True


def refused(name: str) -> bool:
    """Whether a name is there for programs to mention, and raises when it is called."""
    try:
        look_up(name if name.startswith("torch.") else f"torch.{name}")
    except RefusedName:
        return True
    except Missing:
        pass
    return False


def main() -> None:
    """Print the rate and the heaviest names that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", nargs="?", default=TABLE)
    parser.add_argument("--missing", type=int, default=40, help="how many missing names to print")
    options = parser.parse_args()
    left_out = outside()
    everything = read(options.table)
    names = [n for n in everything if not is_outside(n.name, left_out)]
    lacking = sorted((n for n in names if not present(n.name)), key=lambda n: -n.files)
    weight, lost = sum(n.files for n in names), sum(n.files for n in lacking)
    print(f"names in the table           {len(everything)}")
    print(f"left out, concern no CPU     {len(everything) - len(names)}")
    print(f"present                      {len(names) - len(lacking)} of {len(names)}")
    print(f"present, weighted by files   {weight - lost} of {weight} = {1 - lost / weight:.2%}")
    raising = sum(n.files for n in lacking if refused(n.name))
    print(f"only raise when called       {raising} of {weight} = {raising / weight:.2%}")
    for n in lacking[: options.missing]:
        print(f"{n.files:6d}  {n.name}")


if __name__ == "__main__":
    main()
