"""Datasets, samplers, and loaders that make batches of them, in worker processes if wanted."""

from __future__ import annotations

from weft.utils.data._utils.collate import default_collate, default_convert
from weft.utils.data._utils.worker import WorkerInfo, get_worker_info
from weft.utils.data.dataloader import DataLoader
from weft.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from weft.utils.data.distributed import DistributedSampler
from weft.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
    "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "WorkerInfo",
    "default_collate", "default_convert", "get_worker_info", "random_split",
]  # fmt: skip
