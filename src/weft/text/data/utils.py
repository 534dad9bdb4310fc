"""Helpers: tokenisers by name, n-grams, joint sort keys, shuffling with a state of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from weft.text.tokenizers.basic import get_tokenizer

__all__ = ["RandomShuffler", "get_tokenizer", "interleave_keys", "ngrams_iterator"]

T = TypeVar("T")


def ngrams_iterator(token_list: Sequence[str], ngrams: int) -> Iterator[str]:
    """The tokens, then pairs, triples and so on up to ``ngrams``, each joined by spaces.

    >>> list(ngrams_iterator(["here", "we", "are"], 2))
    ['here', 'we', 'are', 'here we', 'we are']
    """
    tokens = list(token_list)
    for n in range(1, max(ngrams, 1) + 1):
        for i in range(len(tokens) - n + 1):
            yield " ".join(tokens[i : i + n])


def interleave_keys(a: int, b: int) -> int:
    """A sort key whose bits are those of two keys in turn, so that both are alike in neighbours.

    >>> interleave_keys(1, 2)
    6
    """
    bits = zip(format(a, "016b"), format(b, "016b"), strict=False)
    return int("".join(x + y for x, y in bits), base=2)


class RandomShuffler:
    """Shuffles by Python's random numbers, from a state of its own on.

    It begins with the state that ``random`` has when it is made, and leaves that alone.
    """

    def __init__(self, random_state: Any = None) -> None:
        self._random = random.Random()
        self.random_state = random.getstate() if random_state is None else random_state

    @property
    def random_state(self) -> Any:
        """The state, as ``random.getstate()`` gives it."""
        return self._random.getstate()

    @random_state.setter
    def random_state(self, state: Any) -> None:
        self._random.setstate(state)

    def __call__(self, data: Sequence[T]) -> list[T]:
        return self._random.sample(data, len(data))
