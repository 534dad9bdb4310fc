"""Finding and reading the local files of datasets."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO, cast

from weft.utils.data import IterableDataset

CACHE = os.path.join("~", ".cache", "torch", "text")


def find(what: str, folders: Sequence[str], names: Sequence[str], folder: bool = False) -> str:
    """The first of some names that is in one of some folders, as such or gzipped."""
    there = os.path.isdir if folder else os.path.isfile
    for place in folders:
        for name in names:
            path = os.path.join(os.path.expanduser(place), name)
            for found in (path, f"{path}.gz"):
                if there(found):
                    return found
    raise FileNotFoundError(
        f"{what}: found none of {', '.join(map(repr, names))} (or with .gz) in "
        f"{', '.join(map(repr, folders))}; weft.text downloads nothing, so put the files there"
    )


def places(root: str, name: str) -> list[str]:
    """Where torchtext's releases put a dataset below ``root``."""
    names = dict.fromkeys(
        [os.path.join("datasets", name), name, name.lower(), f"{name.lower()}_csv"]
    )
    return [os.path.join(root, part) for part in names] + [root]


def open_text(path: str, newline: str | None = None) -> TextIO:
    """A text file, gzipped or not."""
    if path.endswith(".gz"):
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8", newline=newline))
    return open(path, encoding="utf-8", newline=newline)


class LineDataset(IterableDataset):
    """Items read from files again for each pass."""

    def __init__(self, name: str, read: Callable[[], Iterable[Any]]) -> None:
        self.name = name
        self._read = read
        self._count: int | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read())

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(1 for _ in self._read())
        return self._count

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


def split_wise(
    make: Callable[[str], LineDataset], split: str | Sequence[str], known: Sequence[str]
) -> Any:
    """The dataset of a split, or a tuple of those of several."""
    asked = [split] if isinstance(split, str) else list(split)
    for name in asked:
        if name not in known:
            raise ValueError(f"split is one or several of {tuple(known)}, not {name!r}")
    made = [make(name) for name in asked]
    return made[0] if isinstance(split, str) else tuple(made)
