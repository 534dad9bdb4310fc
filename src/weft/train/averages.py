"""Means over the samples of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.core.tensor import Tensor


class Averages:
    """Sums up the metrics of batches, each counted by its samples."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.last: dict[str, float] = {}

    def add(self, metrics: Mapping[str, float], samples: int) -> None:
        """Count a batch in."""
        self.last = dict(metrics)
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * samples
            self.counts[name] = self.counts.get(name, 0) + samples

    def means(self) -> dict[str, float]:
        """The means so far."""
        return {name: total / max(self.counts[name], 1) for name, total in self.sums.items()}

    def take(self) -> dict[str, float]:
        """The means; the sums start over."""
        found = self.means()
        self.sums, self.counts = {}, {}
        return found

    def state_dict(self) -> dict[str, Any]:
        """The sums as plain data."""
        return {"sums": self.sums, "counts": self.counts, "last": self.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with saved sums."""
        self.sums, self.counts, self.last = state["sums"], state["counts"], state["last"]


def number(value: Any) -> float:
    """A number of a tensor, an array or a number."""
    item = getattr(value, "item", None)
    return float(item() if callable(item) else value)


def samples_in(batch: Any) -> int:
    """How many samples a batch has: the first size of the first tensor in it."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.ndim else 1
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        found = next((x for x in batch if isinstance(x, (Tensor, list, tuple, dict))), None)
        return 1 if found is None else samples_in(found)
    shape = getattr(batch, "shape", ())
    return int(shape[0]) if len(shape) else 1
