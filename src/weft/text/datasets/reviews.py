"""Reviews in folders: a file for each, in a folder for each class."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from weft.text import data
from weft.text.datasets.files import CACHE, LineDataset, find, places, split_wise

_LABELS = {"neg": 1, "pos": 2}


def _texts(folder: str, label: str) -> Iterator[str]:
    """The first line of each file, in the order of names."""
    inside = os.path.join(folder, label)
    for name in sorted(os.listdir(inside)):
        if name.endswith(".txt"):
            with open(os.path.join(inside, name), encoding="utf-8") as file:
                yield file.readline()


class IMDB(data.Dataset):
    """Film reviews in the folders ``train`` and ``test``, each with ``pos`` and ``neg``.

    ``IMDB.splits(TEXT, LABEL)`` makes datasets of examples with ``text`` and ``label``;
    ``IMDB(root, split="train")`` gives pairs of a label (1 negative, 2 positive) and a text.
    """

    name = "imdb"
    dirname = "aclImdb"

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        old = len(args) >= 3 or "text_field" in kwargs
        return super().__new__(cls) if old else _pairs(*args, **kwargs)

    @staticmethod
    def sort_key(ex: Any) -> int:
        """The number of tokens."""
        return len(ex.text)

    def __init__(self, path: str, text_field: Any, label_field: Any, **kwargs: Any) -> None:
        fields = [("text", text_field), ("label", label_field)]
        examples = [
            data.Example.fromlist([text, label], fields)
            for label in ("pos", "neg")
            for text in _texts(path, label)
        ]
        super().__init__(examples, fields, **kwargs)

    @classmethod
    def splits(  # type: ignore[override]
        cls,
        text_field: Any,
        label_field: Any,
        root: str = ".data",
        train: str | None = "train",
        test: str | None = "test",
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Datasets of training and test below ``path`` or ``root``/imdb/aclImdb."""
        return super().splits(
            root=root,
            text_field=text_field,
            label_field=label_field,
            train=train,
            test=test,
            **kwargs,
        )

    @classmethod
    def iters(
        cls,
        batch_size: int = 32,
        device: Any = None,
        root: str = ".data",
        vectors: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Iterators over training and test with fields and vocabularies of their own."""
        text, label = data.Field(), data.Field(sequential=False)
        parts = cls.splits(text, label, root=root, **kwargs)
        text.build_vocab(parts[0], vectors=vectors)
        label.build_vocab(parts[0])
        return data.BucketIterator.splits(parts, batch_size=batch_size, device=device)


def _labelled(folder: str) -> Iterator[tuple[int, str]]:
    for label, number in _LABELS.items():
        for text in _texts(folder, label):
            yield number, text.rstrip("\n")


def _pairs(root: str = CACHE, split: str | Sequence[str] = ("train", "test")) -> Any:
    def made(name: str) -> LineDataset:
        inner = [os.path.join(part, name) for part in ("aclImdb", "aclImdb_v1", "")]
        folder = find("IMDB", places(root, "IMDB"), inner, folder=True)
        return LineDataset(f"IMDB {name}", functools.partial(_labelled, folder))

    return split_wise(made, split, ("train", "test"))
