"""Sentences in two languages: two files with a sentence on each line."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from weft.text import data
from weft.text.datasets.files import CACHE, LineDataset, find, open_text, places, split_wise


class TranslationDataset(data.Dataset):
    """Examples with ``src`` and ``trg`` from the files ``path + ext`` of both languages.

    Gzipped files (``.gz`` behind the name) are read too.
    """

    @staticmethod
    def sort_key(ex: Any) -> int:
        """Alike for pairs that are alike in both lengths."""
        return data.interleave_keys(len(ex.src), len(ex.trg))

    def __init__(self, path: str, exts: Sequence[str], fields: Any, **kwargs: Any) -> None:
        if not isinstance(fields[0], (tuple, list)):
            fields = [("src", fields[0]), ("trg", fields[1])]
        folder, prefix = os.path.split(os.path.expanduser(path))
        files = [find(type(self).__name__, [folder], [prefix + ext]) for ext in exts]
        examples = [
            data.Example.fromlist(list(pair), fields)
            for pair in _pairs(files, strip=True)
            if all(pair)
        ]
        super().__init__(examples, fields, **kwargs)

    @classmethod
    def splits(  # type: ignore[override]
        cls,
        exts: Sequence[str],
        fields: Any,
        path: str | None = None,
        root: str = ".data",
        train: str | None = "train",
        validation: str | None = "val",
        test: str | None = "test",
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """A dataset for each prefix of file names, below ``path`` or ``root``/name."""
        options = {"train": train, "validation": validation, "test": test}
        return super().splits(path, root, exts=exts, fields=fields, **options, **kwargs)


def _pairs(files: Sequence[str], strip: bool) -> Iterator[tuple[str, ...]]:
    first, second = files
    with open_text(first) as a, open_text(second) as b:
        for pair in zip(a, b, strict=False):
            yield tuple(line.strip() if strip else line.rstrip("\n") for line in pair)


_PREFIXES = {
    "train": ["train"],
    "valid": ["val"],
    "test": ["test", "test2016", "test_2016_flickr"],
}


class Multi30k(TranslationDataset):
    """Captions of pictures in English and German: 29,000 pairs and two smaller sets.

    ``Multi30k.splits(exts=(".de", ".en"), fields=(SRC, TRG))`` makes datasets of examples;
    ``Multi30k(root, split="train")`` gives pairs of strings.
    """

    name = "multi30k"

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        old = len(args) >= 3 or "fields" in kwargs
        return super().__new__(cls) if old else _multi30k(*args, **kwargs)

    @classmethod
    def splits(  # type: ignore[override]
        cls,
        exts: Sequence[str],
        fields: Any,
        root: str = ".data",
        train: str | None = "train",
        validation: str | None = "val",
        test: str | None = "test2016",
        path: str | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Datasets of training, validation and test, below ``path`` or ``root``/multi30k."""
        return super().splits(exts, fields, path, root, train, validation, test, **kwargs)


def _multi30k(
    root: str = CACHE,
    split: str | Sequence[str] = ("train", "valid", "test"),
    language_pair: Sequence[str] = ("de", "en"),
) -> Any:
    if sorted(language_pair) != ["de", "en"]:
        raise AssertionError(
            f"language_pair must be either ('de','en') or ('en', 'de'), not {language_pair!r}"
        )

    def made(name: str) -> LineDataset:
        folders = places(root, "Multi30k")
        files = [
            find("Multi30k", folders, [f"{prefix}.{ext}" for prefix in _PREFIXES[name]])
            for ext in language_pair
        ]
        return LineDataset(f"Multi30k {name}", functools.partial(_pairs, files, strip=False))

    return split_wise(made, split, list(_PREFIXES))
