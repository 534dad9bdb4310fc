"""What loaders of other libraries take of the insides of PyTorch's worker processes."""

from __future__ import annotations

import os
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
