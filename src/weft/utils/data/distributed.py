"""Sampling for several processes that each train on a part of the data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from weft.operators.random import Generator, randperm
from weft.utils.data.sampler import Sampler


class DistributedSampler(Sampler):
    """The part of a dataset that one of several replicas takes in an epoch.

    >>> DistributedSampler = torch.utils.data.DistributedSampler
    >>> list(DistributedSampler(range(6), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 5]
    """

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None,
        shuffle: bool = True, seed: int = 0, drop_last: bool = False,
    ) -> None:  # fmt: skip
        if num_replicas is None or rank is None:
            raise RuntimeError(
                "Requires distributed package to be available: weft has no process groups, so "
                "give DistributedSampler both num_replicas and rank"
            )
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        size = len(dataset)
        self.num_samples = size // num_replicas if drop_last else math.ceil(size / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[Any]:
        size = len(self.dataset)
        order: Any = range(size)
        if self.shuffle:
            generator = Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = randperm(size, generator=generator).tolist()
        # Samples from the start fill up the last round, so that all replicas get equally many.
        whole = itertools.islice(itertools.cycle(order), self.total_size)
        return itertools.islice(whole, self.rank, None, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch it is, so that each has an order of its own."""
        self.epoch = epoch
