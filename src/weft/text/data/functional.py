"""Small functions on iterators of text."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft.utils.data import Dataset


def custom_replace(
    replace_pattern: Sequence[tuple[str, str]],
) -> Callable[[Iterable[str]], Iterator[str]]:
    """A function that replaces patterns, one after the other, in each line.

    >>> list(custom_replace([("S", "s"), (r"\\s+", " ")])(["aS  is"]))
    ['as is']
    """
    patterns = [(re.compile(pattern), text) for pattern, text in replace_pattern]

    def replaced(lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            for pattern, text in patterns:
                line = pattern.sub(text, line)
            yield line

    return replaced


def simple_space_split(iterator: Iterable[str]) -> Iterator[list[str]]:
    """The words of each line."""
    for line in iterator:
        yield line.split()


def numericalize_tokens_from_iterator(
    vocab: Mapping[str, int] | Any,
    iterator: Iterable[Iterable[str]],
    removed_tokens: Container[str] | None = None,
) -> Iterator[Iterator[int]]:
    """The numbers of the tokens of each line, without some tokens if asked."""
    for tokens in iterator:
        yield iter([vocab[t] for t in tokens if removed_tokens is None or t not in removed_tokens])


class _Listed(Dataset):
    def __init__(self, items: Iterable[Any]) -> None:
        self._data = list(items)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        return self._data[index]


def to_map_style_dataset(iter_data: Iterable[Any]) -> Dataset:
    """All that an iterable gives, as a dataset with a length and places."""
    return _Listed(iter_data)
