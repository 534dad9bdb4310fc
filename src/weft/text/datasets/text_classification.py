"""Texts with classes in CSV files: the class (from 1 on), then one or more cells of text."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import weft
from weft.text.data.utils import get_tokenizer, ngrams_iterator
from weft.text.datasets.files import CACHE, LineDataset, find, open_text, places, split_wise
from weft.text.vocab import Vocab
from weft.utils.data import Dataset

_SPLITS = ("train", "test")


def read_csv(path: str) -> Iterator[tuple[int, str]]:
    """The class and the text of each line."""
    with open_text(path, newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            try:
                label = int(row[0])
            except (IndexError, ValueError):
                raise ValueError(f"{path!r}, row {number}: begins with no class: {row}") from None
            yield label, " ".join(row[1:])


class TextClassificationDataset(Dataset):
    """Pairs of a class (from 0 on) and a tensor of token numbers, as in torchtext 0.4 to 0.6."""

    def __init__(self, vocab: Vocab, data: list[tuple[int, weft.Tensor]], labels: set[int]) -> None:
        self._vocab = vocab
        self._data = data
        self._labels = labels

    def __getitem__(self, i: int) -> tuple[int, weft.Tensor]:
        return self._data[i]

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[tuple[int, weft.Tensor]]:
        return iter(self._data)

    def get_labels(self) -> set[int]:
        """The classes."""
        return self._labels

    def get_vocab(self) -> Vocab:
        """The vocabulary."""
        return self._vocab


def _paths(name: str, root: str) -> list[str]:
    return [find(name, places(root, name), [f"{split}.csv"]) for split in _SPLITS]


def with_vocab(
    name: str,
    root: str = ".data",
    ngrams: int = 1,
    vocab: Vocab | None = None,
    include_unk: bool = False,
) -> tuple[TextClassificationDataset, TextClassificationDataset]:
    """The training and the test set of ``name`` as numbers of words and n-grams.

    The vocabulary is that of the training set unless one is given. ``include_unk`` is there for
    old programs: unknown tokens are always kept, as torchtext does too.
    """
    tokenize = get_tokenizer("basic_english")
    texts = [
        [(label, list(ngrams_iterator(tokenize(text), ngrams))) for label, text in read_csv(path)]
        for path in _paths(name, root)
    ]
    if vocab is None:
        from collections import Counter

        counter = Counter[str]()
        for _, tokens in texts[0]:
            counter.update(tokens)
        vocab = Vocab(counter)
    elif not isinstance(vocab, Vocab):
        raise TypeError("Passed vocabulary is not of type Vocab")
    train, test = ([(label - 1, weft.tensor(vocab(t))) for label, t in part] for part in texts)
    labels = [{label for label, _ in part} for part in (train, test)]
    if labels[0] != labels[1]:
        raise ValueError(f"Training and test labels don't match: {labels[0]} and {labels[1]}")
    return (
        TextClassificationDataset(vocab, train, labels[0]),
        TextClassificationDataset(vocab, test, labels[1]),
    )


def _pairs(name: str, root: str = CACHE, split: str | Sequence[str] = _SPLITS) -> Any:
    def made(part: str) -> LineDataset:
        path = find(name, places(root, name), [f"{part}.csv"])
        return LineDataset(f"{name} {part}", functools.partial(read_csv, path))

    return split_wise(made, split, _SPLITS)


def _reader(name: str) -> Callable[..., Any]:
    def read(*args: Any, **kwargs: Any) -> Any:
        old = {"ngrams", "vocab", "include_unk"} & kwargs.keys()
        return (with_vocab if old else _pairs)(name, *args, **kwargs)

    read.__name__ = read.__qualname__ = name
    read.__doc__ = (
        f"{name} from ``train.csv`` and ``test.csv`` of a folder: pairs of class and text for a "
        "``split``; with ``ngrams=`` or ``vocab=`` pairs of class and numbers, as in torchtext 0.6."
    )
    return read


AG_NEWS = _reader("AG_NEWS")
SogouNews = _reader("SogouNews")
DBpedia = _reader("DBpedia")
YelpReviewPolarity = _reader("YelpReviewPolarity")
YelpReviewFull = _reader("YelpReviewFull")
YahooAnswers = _reader("YahooAnswers")
AmazonReviewPolarity = _reader("AmazonReviewPolarity")
AmazonReviewFull = _reader("AmazonReviewFull")

# By name, with the signature of torchtext 0.6.
DATASETS: dict[str, Callable[..., Any]] = {
    name: functools.partial(with_vocab, name)
    for name in (
        "AG_NEWS",
        "SogouNews",
        "DBpedia",
        "YelpReviewPolarity",
        "YelpReviewFull",
        "YahooAnswers",
        "AmazonReviewPolarity",
        "AmazonReviewFull",
    )
}
