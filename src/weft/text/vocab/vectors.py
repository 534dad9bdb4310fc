"""Pretrained word vectors in text files: a word and its numbers on each line."""

from __future__ import annotations

import functools
import gzip
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import numpy as np

import weft
from weft.core.tensor import Tensor


class Vectors:
    """Word vectors of a local file in the format of GloVe, fastText or word2vec (text), or gzipped.

    The file is ``name``, or ``name`` in the folder ``cache``. Nothing is downloaded.
    """

    itos: list[str]
    stoi: dict[str, int]
    vectors: Tensor
    dim: int

    def __init__(
        self,
        name: str,
        cache: str | None = None,
        url: str | None = None,
        unk_init: Callable[[Tensor], Tensor] | None = None,
        max_vectors: int | None = None,
    ) -> None:
        self.unk_init = Tensor.zero_ if unk_init is None else unk_init
        cached = os.path.join(".vector_cache" if cache is None else cache, name)
        path = next((p for p in (name, cached) if os.path.isfile(p)), None)
        if path is None:
            source = f"; its source is {url}" if url else ""
            raise FileNotFoundError(
                f"no vectors at {name!r} or {cached!r}, and weft.text downloads nothing: "
                f"put the text file there{source}"
            )
        opened = gzip.open if path.endswith(".gz") else open
        with cast(BinaryIO, opened(path, "rb")) as file:
            self._read(path, _rows(path, file), max_vectors)

    def _read(self, path: str, rows: Iterator[tuple[str, np.ndarray]], limit: int | None) -> None:
        self.itos, found = [], []
        for word, row in rows:
            self.itos.append(word)
            found.append(row)
            if limit and len(found) >= limit:
                break
        if not found:
            raise ValueError(f"{path!r} holds no word vectors")
        self.dim = len(found[0])
        self.stoi = {word: i for i, word in enumerate(self.itos)}
        self.vectors = weft.from_numpy(np.stack(found))

    def __len__(self) -> int:
        return len(self.itos)

    def __getitem__(self, token: str) -> Tensor:
        if token in self.stoi:
            return self.vectors[self.stoi[token]]
        return self.unk_init(weft.zeros(self.dim))

    def get_vecs_by_tokens(
        self, tokens: str | list[str], lower_case_backup: bool = False
    ) -> Tensor:
        """The vector of a token, or those of several as rows.

        With ``lower_case_backup`` an unknown token is looked up in lower case too.
        """
        if isinstance(tokens, str):
            return self.get_vecs_by_tokens([tokens], lower_case_backup)[0]
        if lower_case_backup:
            tokens = [token if token in self.stoi else token.lower() for token in tokens]
        return weft.stack([self[token] for token in tokens])


def _rows(path: str, file: BinaryIO) -> Iterator[tuple[str, np.ndarray]]:
    """The words and vectors of a file, without a header of counts and words that are not UTF-8."""
    dim = None
    for number, line in enumerate(file, 1):
        # Only spaces part the numbers: a word may hold other white space.
        word, *entries = line.rstrip().split(b" ")
        if len(entries) <= 1:
            continue
        try:
            row = np.array([float(entry) for entry in entries], np.float32)
            text = word.decode()
        except UnicodeDecodeError:
            continue
        except ValueError:
            raise ValueError(f"{path!r}, line {number}: not a word and its numbers") from None
        if dim is not None and len(row) != dim:
            raise RuntimeError(
                f"{path!r}, line {number}: the vector of {text!r} has {len(row)} dimensions, those "
                f"before have {dim}"
            )
        dim = len(row)
        yield text, row


class GloVe(Vectors):
    """Vectors of the file ``glove.{name}.{dim}d.txt``."""

    def __init__(self, name: str = "840B", dim: int | str = 300, **options: Any) -> None:
        super().__init__(f"glove.{name}.{dim}d.txt", **options)


class FastText(Vectors):
    """Vectors of the file ``wiki.{language}.vec``."""

    def __init__(self, language: str = "en", **options: Any) -> None:
        super().__init__(f"wiki.{language}.vec", **options)


class CharNGram(Vectors):
    """Vectors of words as means of those of their character n-grams, in ``charNgram.txt``."""

    def __init__(self, **options: Any) -> None:
        super().__init__("charNgram.txt", **options)

    def __getitem__(self, token: str) -> Tensor:
        empty = weft.zeros(1, self.dim)
        if token == "<unk>":
            return self.unk_init(empty)
        parts = ["#BEGIN#", *token, "#END#"]
        grams = [
            f"{n}gram-" + "".join(parts[i : i + n])
            for n in (2, 3, 4)
            for i in range(len(parts) - n + 1)
        ]
        found = [self.vectors[self.stoi[gram]] for gram in grams if gram in self.stoi]
        return weft.stack(found).mean(0, keepdim=True) if found else self.unk_init(empty)


pretrained_aliases: dict[str, Callable[..., Vectors]] = {
    "charngram.100d": CharNGram,
    "fasttext.en.300d": functools.partial(FastText, language="en"),
    "fasttext.simple.300d": functools.partial(FastText, language="simple"),
    **{
        f"glove.{name}.{dim}d": functools.partial(GloVe, name=name, dim=dim)
        for name, dims in (
            ("42B", (300,)),
            ("840B", (300,)),
            ("twitter.27B", (25, 50, 100, 200)),
            ("6B", (50, 100, 200, 300)),
        )
        for dim in dims
    },
}
