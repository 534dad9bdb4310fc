"""Padding and bucketing for ``DataLoader``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.nn.utils.rnn import pad_sequence
from weft.utils.data import Sampler


class BucketBatchSampler(Sampler):
    """Batches of places of items of like length, in random order.

    Within chunks of ``pool_size`` batches items are sorted by length; a batch holds ``batch_size``
    items, or as many as padded take no more than ``max_tokens`` places.

    >>> sampler = BucketBatchSampler([5, 1, 4, 2], batch_size=2, shuffle=False)
    >>> list(sampler)
    [[1, 3], [2, 0]]
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int = 32,
        shuffle: bool = True,
        max_tokens: int | None = None,
        pool_size: int = 100,
        drop_last: bool = False,
        generator: weft.Generator | None = None,
    ) -> None:
        if batch_size < 1 or (max_tokens is not None and max_tokens < 1):
            raise ValueError(f"batch_size {batch_size} and max_tokens {max_tokens} are at least 1")
        self.lengths = list(lengths)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.max_tokens = max_tokens
        self.pool_size = pool_size
        self.drop_last = drop_last
        self.generator = generator

    def _order(self, count: int) -> list[int]:
        return weft.randperm(count, generator=self.generator).tolist()

    def _cut(self, places: list[int]) -> Iterator[list[int]]:
        """Sorted places as batches; the last one is the longest, so it says what padding takes."""
        now: list[int] = []
        for place in places:
            padded = (len(now) + 1) * self.lengths[place]
            full = len(now) == self.batch_size
            if now and (full or (self.max_tokens is not None and padded > self.max_tokens)):
                yield now
                now = []
            now.append(place)
        if now and (not self.drop_last or len(now) == self.batch_size):
            yield now

    def __iter__(self) -> Iterator[list[int]]:
        count = len(self.lengths)
        places = self._order(count) if self.shuffle else list(range(count))
        chunk = self.batch_size * self.pool_size
        for start in range(0, count, chunk):
            some = sorted(places[start : start + chunk], key=self.lengths.__getitem__)
            batches = list(self._cut(some))
            order = self._order(len(batches)) if self.shuffle else range(len(batches))
            yield from (batches[i] for i in order)

    def __len__(self) -> int:
        if self.max_tokens is not None:
            raise TypeError("with max_tokens the number of batches is not known before")
        whole, rest = divmod(len(self.lengths), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


class PadCollate:
    """A ``collate_fn`` that pads sequences; other columns become tensors.

    An item is a sequence of numbers, or a tuple of sequences and single numbers. With
    ``with_lengths`` a padded column is followed by a tensor of lengths.

    >>> PadCollate(padding_value=9)([([1, 2], 0), ([3], 1)])
    (tensor([[1, 2],
            [3, 9]]), tensor([0, 1]))
    """

    def __init__(
        self,
        padding_value: float = 0,
        batch_first: bool = True,
        with_lengths: bool = False,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self.padding_value = padding_value
        self.batch_first = batch_first
        self.with_lengths = with_lengths
        self.transform = transform

    def __call__(self, items: Sequence[Any]) -> Any:
        if self.transform is not None:
            items = [self.transform(item) for item in items]
        if not isinstance(items[0], tuple):
            column = self._column(items)
            return column[0] if len(column) == 1 else tuple(column)
        made: list[Tensor] = []
        for values in zip(*items, strict=True):
            made += self._column(values)
        return tuple(made)

    def _column(self, values: Sequence[Any]) -> list[Tensor]:
        rows = [weft.as_tensor(value) for value in values]
        if rows[0].ndim == 0:
            return [weft.stack(rows)]
        padded = pad_sequence(rows, batch_first=self.batch_first, padding_value=self.padding_value)
        return [padded, weft.tensor([len(r) for r in rows])] if self.with_lengths else [padded]
