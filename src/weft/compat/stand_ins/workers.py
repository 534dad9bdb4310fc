"""What loaders of other libraries take of the insides of PyTorch's worker processes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.utils.data._utils.worker import seeds_for_numpy

HAS_NUMPY = True
MP_STATUS_CHECK_INTERVAL = 5.0  # seconds
python_exit_status = False


@dataclass(frozen=True)
class _IterableDatasetStopIteration:
    """Says that a worker's part of a stream is at its end."""

    worker_id: int


@dataclass(frozen=True)
class _ResumeIteration:
    """Says that a worker is to begin another epoch."""

    seed: int | None = None


class ManagerWatchdog:
    """Tells a worker whether the process that started it is there."""

    def __init__(self) -> None:
        self.manager_pid = os.getppid()
        self.manager_dead = False

    def is_alive(self) -> bool:
        """Whether the parent is still this process's parent."""
        self.manager_dead = self.manager_dead or os.getppid() != self.manager_pid
        return not self.manager_dead


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """The seeds of NumPy's generator in a worker."""
    return seeds_for_numpy(base_seed, worker_id)


def pin_memory(data: Any, device: Any = None) -> Any:
    """What is to be copied to a GPU soon; there is none, so it stays where it is."""
    return data


class _BaseDatasetFetcher:
    """Gets the samples of a batch from a dataset, and collates them."""

    def __init__(
        self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool
    ) -> None:
        self.dataset, self.auto_collation = dataset, auto_collation
        self.collate_fn, self.drop_last = collate_fn, drop_last

    def fetch(self, possibly_batched_index: Any) -> Any:
        """What belongs to an index, or to a list of them."""
        raise NotImplementedError


class _MapDatasetFetcher(_BaseDatasetFetcher):
    """For datasets that give a sample for an index."""

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The sample of an index, or the batch of a list of indices."""
        if not self.auto_collation:
            return self.collate_fn(self.dataset[possibly_batched_index])
        many = getattr(self.dataset, "__getitems__", None)
        if many:
            return self.collate_fn(many(possibly_batched_index))
        return self.collate_fn([self.dataset[i] for i in possibly_batched_index])


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """For datasets that give one sample after the other."""

    def __init__(
        self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool
    ) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter, self.ended = iter(dataset), False

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The next sample, or a batch of as many as there are indices."""
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        wanted = len(possibly_batched_index)
        found = list(itertools.islice(self.dataset_iter, wanted))
        self.ended = len(found) < wanted
        if not found or (self.drop_last and self.ended):
            raise StopIteration
        return self.collate_fn(found)
