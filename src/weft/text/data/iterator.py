"""Iterators over batches of a dataset of examples."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Iterator as Iterating
from typing import Any

from weft.text.data.batch import Batch
from weft.text.data.dataset import Dataset
from weft.text.data.utils import RandomShuffler

Size = Callable[[Any, int, int], int]


class Iterator:
    """Batches of a dataset.

    ``shuffle`` and ``sort`` default to ``train`` and ``not train``. ``batch_size_fn(new, count,
    so_far)`` says how large a batch is with one more example, for batches of as many tokens.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        sort_key: Callable[[Any], Any] | None = None,
        device: Any = None,
        batch_size_fn: Size | None = None,
        train: bool = True,
        repeat: bool = False,
        shuffle: bool | None = None,
        sort: bool | None = None,
        sort_within_batch: bool | None = None,
    ) -> None:
        self.dataset, self.batch_size, self.train = dataset, batch_size, train
        self.batch_size_fn = batch_size_fn
        self.repeat = repeat
        self.shuffle = train if shuffle is None else shuffle
        self.sort = not train if sort is None else sort
        self.sort_within_batch = self.sort if sort_within_batch is None else sort_within_batch
        self.sort_key = dataset.sort_key if sort_key is None else sort_key
        # Numbers of devices are from before torch.device; -1 meant the CPU.
        self.device = None if isinstance(device, int) else device
        self.random_shuffler = RandomShuffler()
        self.iterations = 0
        self.batches: Iterable[list[Any]] = ()
        self._iterations_this_epoch = 0
        self._random_state_this_epoch: Any = None
        self._restored_from_state = False

    @classmethod
    def splits(
        cls, datasets: Sequence[Any], batch_sizes: Sequence[int] | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """An iterator for each dataset; the first is for training."""
        if batch_sizes is None:
            batch_sizes = [kwargs.pop("batch_size")] * len(datasets)
        return tuple(
            cls(dataset, batch_size=size, train=i == 0, **kwargs)
            for i, (dataset, size) in enumerate(zip(datasets, batch_sizes, strict=False))
        )

    def data(self) -> Any:
        """The examples in the order of this epoch."""
        if self.sort:
            self._check_key()
            return sorted(self.dataset, key=self.sort_key)
        if self.shuffle:
            return [self.dataset[i] for i in self.random_shuffler(range(len(self.dataset)))]
        return self.dataset

    def _check_key(self) -> None:
        if self.sort_key is None:
            raise ValueError(
                f"{type(self).__name__} sorts examples by sort_key, which neither it nor the "
                "dataset has: sort_key=lambda x: len(x.text), or sort=False"
            )

    def init_epoch(self) -> None:
        """Make the batches of a new epoch, or of the one whose state was loaded."""
        if self._restored_from_state:
            self.random_shuffler.random_state = self._random_state_this_epoch
        else:
            self._random_state_this_epoch = self.random_shuffler.random_state
        self.create_batches()
        if self._restored_from_state:
            self._restored_from_state = False
        else:
            self._iterations_this_epoch = 0
        if not self.repeat:
            self.iterations = 0

    def create_batches(self) -> None:
        """Lists of examples."""
        self.batches = batch(self.data(), self.batch_size, self.batch_size_fn)

    @property
    def epoch(self) -> int:
        """How many epochs are over."""
        return self.iterations // len(self)

    def __len__(self) -> int:
        if self.batch_size_fn is not None:
            raise NotImplementedError(
                "with batch_size_fn the number of batches is not known before"
            )
        return math.ceil(len(self.dataset) / self.batch_size)

    def __iter__(self) -> Iterating[Batch]:
        while True:
            self.init_epoch()
            for i, examples in enumerate(self.batches):
                if i < self._iterations_this_epoch:  # passed before the state was saved
                    continue
                self.iterations += 1
                self._iterations_this_epoch += 1
                yield Batch(self._ordered(examples), self.dataset, self.device)
            if not self.repeat:
                return

    def _ordered(self, examples: list[Any]) -> list[Any]:
        """The longest first, as packed sequences want it, if asked."""
        if not self.sort_within_batch:
            return examples
        if self.sort:
            return examples[::-1]
        self._check_key()
        return sorted(examples, key=self.sort_key, reverse=True)

    def state_dict(self) -> dict[str, Any]:
        """Where the iterator is."""
        return {
            "iterations": self.iterations,
            "iterations_this_epoch": self._iterations_this_epoch,
            "random_state_this_epoch": self._random_state_this_epoch,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where a state says."""
        self.iterations = state_dict["iterations"]
        self._iterations_this_epoch = state_dict["iterations_this_epoch"]
        self._random_state_this_epoch = state_dict["random_state_this_epoch"]
        self._restored_from_state = True


class BucketIterator(Iterator):
    """Batches of examples of like length, shuffled; see ``pool``.

    As in torchtext 0.6, batches are of like length only with ``sort_within_batch=True``.
    """

    def create_batches(self) -> None:
        """Lists of examples."""
        if self.sort:
            super().create_batches()
            return
        if self.sort_within_batch:
            self._check_key()
        self.batches = pool(
            self.data(),
            self.batch_size,
            self.sort_key,
            self.batch_size_fn,
            random_shuffler=self.random_shuffler,
            shuffle=self.shuffle,
            sort_within_batch=self.sort_within_batch,
        )


class BPTTIterator(Iterator):
    """Stretches of one long text in ``batch_size`` columns; the target is one token later.

    The dataset has one example with the column ``text``.
    """

    def __init__(self, dataset: Any, batch_size: int, bptt_len: int, **kwargs: Any) -> None:
        self.bptt_len = bptt_len
        super().__init__(dataset, batch_size, **kwargs)

    def __len__(self) -> int:
        return math.ceil((len(self.dataset[0].text) / self.batch_size - 1) / self.bptt_len)

    def __iter__(self) -> Iterating[Batch]:
        text, field = self.dataset[0].text, self.dataset.fields["text"]
        field.eos_token = None
        text = text + [field.pad_token] * (-len(text) % self.batch_size)
        data = field.numericalize([text], device=self.device)
        data = data.view(self.batch_size, -1).t().contiguous()
        pair = Dataset(self.dataset.examples, [("text", field), ("target", field)])
        while True:
            for i in range(0, len(self) * self.bptt_len, self.bptt_len):
                self.iterations += 1
                count = min(self.bptt_len, len(data) - i - 1)
                now, later = data[i : i + count], data[i + 1 : i + 1 + count]
                if field.batch_first:
                    now, later = now.t().contiguous(), later.t().contiguous()
                yield Batch.fromvars(pair, self.batch_size, text=now, target=later)
            if not self.repeat:
                return


def batch(
    data: Iterable[Any], batch_size: int, batch_size_fn: Size | None = None
) -> Iterating[list[Any]]:
    """Lists of examples, each as large as fits into ``batch_size``.

    >>> list(batch([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    examples: list[Any] = []
    size = 0
    for example in data:
        examples.append(example)
        count = len(examples)
        size = count if batch_size_fn is None else batch_size_fn(example, count, size)
        if size == batch_size:
            yield examples
            examples, size = [], 0
        elif size > batch_size:
            yield examples[:-1]
            examples = examples[-1:]
            size = 1 if batch_size_fn is None else batch_size_fn(example, 1, 0)
    if examples:
        yield examples


def _shuffled(batches: list[Any]) -> list[Any]:
    return random.sample(batches, len(batches))


def pool(
    data: Iterable[Any],
    batch_size: int,
    key: Callable[[Any], Any] | None,
    batch_size_fn: Size | None = None,
    random_shuffler: Callable[[list[Any]], list[Any]] | None = None,
    shuffle: bool = False,
    sort_within_batch: bool = False,
) -> Iterating[list[Any]]:
    """Batches of a hundred batches' examples at a time, sorted by ``key`` and shuffled if asked."""
    for chunk in batch(data, batch_size * 100, batch_size_fn):
        if sort_within_batch:
            chunk = sorted(chunk, key=key)
        batches = list(batch(chunk, batch_size, batch_size_fn))
        yield from (random_shuffler or _shuffled)(batches) if shuffle else batches
