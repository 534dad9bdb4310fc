"""One long text, for language models."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from weft.text import data
from weft.text.datasets.files import CACHE, LineDataset, find, open_text, places, split_wise


class LanguageModelingDataset(data.Dataset):
    """One example with the tokens of a whole file as ``text``, with ``<eos>`` at line ends."""

    def __init__(
        self,
        path: str,
        text_field: Any,
        newline_eos: bool = True,
        encoding: str = "utf-8",
        **kwargs: Any,
    ) -> None:
        tokens: list[str] = []
        with open(path, encoding=encoding) as file:
            for line in file:
                tokens += text_field.preprocess(line)
                if newline_eos:
                    tokens.append("<eos>")
        fields = [("text", text_field)]
        super().__init__([data.Example.fromlist([tokens], fields)], fields, **kwargs)


def _lines(path: str) -> Iterator[str]:
    with open_text(path) as file:
        yield from file


class _Known(LanguageModelingDataset):
    """A published text of three files; with ``split`` its lines, else datasets of tokens."""

    files: dict[str, str]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        old = "text_field" in kwargs or (len(args) > 1 and hasattr(args[1], "preprocess"))
        return super().__new__(cls) if old else cls._split_lines(*args, **kwargs)

    @classmethod
    def _split_lines(
        cls, root: str = CACHE, split: str | Sequence[str] = ("train", "valid", "test")
    ) -> Any:
        def made(name: str) -> LineDataset:
            file = cls.files[name]
            names = [os.path.join(cls.dirname, file), file]
            folders = [*places(root, cls.__name__), *places(root, cls.name)]
            path = find(cls.__name__, folders, names)
            return LineDataset(f"{cls.__name__} {name}", functools.partial(_lines, path))

        return split_wise(made, split, list(cls.files))

    @classmethod
    def splits(  # type: ignore[override]
        cls,
        text_field: Any,
        root: str = ".data",
        train: str | None = "",
        validation: str | None = "",
        test: str | None = "",
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Datasets of training, validation and test; None leaves one out."""
        asked = {"train": train, "valid": validation, "test": test}
        names = {k: (cls.files[k] if v == "" else v) for k, v in asked.items()}
        return super().splits(
            root=root,
            train=names["train"],
            validation=names["valid"],
            test=names["test"],
            text_field=text_field,
            **kwargs,
        )

    @classmethod
    def iters(
        cls,
        batch_size: int = 32,
        bptt_len: int = 35,
        device: Any = None,
        root: str = ".data",
        vectors: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Iterators over segments of the three texts."""
        text = data.Field()
        parts = cls.splits(text, root=root, **kwargs)
        text.build_vocab(parts[0], vectors=vectors)
        return data.BPTTIterator.splits(
            parts, batch_size=batch_size, bptt_len=bptt_len, device=device
        )


class WikiText2(_Known):
    """Two million words of Wikipedia, in ``wikitext-2/wiki.train.tokens`` and so on."""

    name = dirname = "wikitext-2"
    files = {split: f"wiki.{split}.tokens" for split in ("train", "valid", "test")}


class WikiText103(_Known):
    """A hundred million words of Wikipedia, in ``wikitext-103/wiki.train.tokens`` and so on."""

    name = dirname = "wikitext-103"
    files = {split: f"wiki.{split}.tokens" for split in ("train", "valid", "test")}


class PennTreebank(_Known):
    """A million words of the Wall Street Journal, in ``penn-treebank/ptb.train.txt`` and so on."""

    name = "penn-treebank"
    files = {split: f"ptb.{split}.txt" for split in ("train", "valid", "test")}
