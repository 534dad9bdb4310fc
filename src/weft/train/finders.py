"""Settings found by trying: a learning rate, and a batch size that fits into memory."""

from __future__ import annotations

import copy
import itertools
import math
import os
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from weft import memory
from weft.core import errors
from weft.native.memory import pool
from weft.train.averages import number
from weft.utils._random_state import random_state, set_random_state
from weft.utils.data import default_collate

__all__ = ["LearningRates", "find_batch_size", "find_lr"]

_MEMORY = 0.95  # how much of the mean before a step is kept


@contextmanager
def _trying(trainer: Any, data: Any = None) -> Iterator[None]:
    """A block after which model, optimizer, data and random states are as they were."""
    parts = [trainer.model, trainer.optimizer, trainer.scaler]
    if hasattr(data, "load_state_dict"):
        parts.append(data)
    states = [copy.deepcopy(part.state_dict()) for part in parts]
    grads = [(p, p.grad) for p in trainer.model.parameters()]
    training = [(m, m.training) for m in trainer.model.modules()]
    random = random_state()
    try:
        trainer.model.train()
        yield
    finally:
        for part, state in zip(parts, states, strict=True):
            part.load_state_dict(state)
        for p, grad in grads:
            p.grad = grad
        for m, mode in training:
            m.training = mode
        set_random_state(random)


class LearningRates:
    """Learning rates that were tried, and the loss that each led to."""

    def __init__(self, rates: list[float], losses: list[float]) -> None:
        self.rates, self.losses = rates, losses

    @property
    def smooth(self) -> list[float]:
        """The losses as a running mean, without the bias of its start."""
        found, mean = [], 0.0
        for k, loss in enumerate(self.losses, 1):
            mean = _MEMORY * mean + (1 - _MEMORY) * loss
            found.append(mean / (1 - _MEMORY**k))
        return found

    @property
    def suggestion(self) -> float:
        """The rate at which the loss falls most steeply before it is lowest.

        The first losses differ by chance more than by their rates, so they do not count.
        """
        smooth, rates = self.smooth, self.rates
        begin, reach = len(rates) // 10, max(1, len(rates) // 20)
        lowest = min(range(begin, len(smooth)), key=smooth.__getitem__)
        slopes = {
            k: (smooth[k + reach] - smooth[k - reach])
            / math.log(rates[k + reach] / rates[k - reach])
            for k in range(max(begin, reach), lowest - reach)
        }
        if not slopes:
            return rates[lowest] / 10
        return rates[min(slopes, key=slopes.__getitem__)]

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw loss over learning rate into an SVG file."""
        from weft.train._svg import curve

        text = curve(self.rates, self.smooth, "learning rate", "loss", self.suggestion)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def __repr__(self) -> str:
        return (
            f"<learning rates {self.rates[0]:.1e} to {self.rates[-1]:.1e}, "
            f"suggestion {self.suggestion:.1e}>"
        )


def find_lr(
    trainer: Any,
    data: Iterable[Any],
    *,
    low: float = 1e-6,
    high: float = 1.0,
    steps: int = 100,
    diverged: float = 4.0,
) -> LearningRates:
    """Train for some steps with a rate that grows from ``low`` to ``high``, and note the losses.

    It ends early when the loss is ``diverged`` times the best one. The training itself is not
    touched: all states are put back.
    """
    if not 0 < low < high or steps < 2:
        raise ValueError(
            f"find_lr: needs 0 < low < high and at least 2 steps, not low={low!r}, high={high!r}, "
            f"steps={steps!r}\n  at {errors.here()}"
        )
    rates: list[float] = []
    losses: list[float] = []
    with _trying(trainer, data):
        endless = itertools.chain.from_iterable(itertools.repeat(data))
        for k, batch in enumerate(itertools.islice(endless, steps)):
            rate = low * (high / low) ** (k / (steps - 1))
            for group in trainer.optimizer.param_groups:
                group["lr"] = rate
            loss = _train_on(trainer, batch)
            if not math.isfinite(loss):
                break
            rates.append(rate)
            losses.append(loss)
            smooth = LearningRates(rates, losses).smooth
            if k > 10 and smooth[-1] > diverged * min(smooth):
                break
    if len(rates) < 2:
        raise ValueError(
            "find_lr: the loss is not finite from the beginning, or data has no batches"
            f"\n  at {errors.here()}"
        )
    return LearningRates(rates, losses)


def _train_on(trainer: Any, batch: Any) -> float:
    trainer.optimizer.zero_grad()
    loss, _ = trainer._loss(batch)
    value = number(loss)
    loss.backward()
    trainer._clip()
    trainer.optimizer.step()
    return value


def find_batch_size(
    trainer: Any,
    dataset: Any,
    *,
    largest: int | None = None,
    budget: int | None = None,
    collate: Any = None,
) -> int:
    """The largest batch, as a power of two, with which a training step fits into memory.

    ``budget`` is in bytes; by default four fifths of what the machine has free. Sizes are
    doubled, and one that the growth so far says will not fit is not tried, since a system that
    runs out of memory kills programs. All states are put back.
    """
    if not len(dataset):
        raise ValueError(f"find_batch_size: the dataset is empty\n  at {errors.here()}")
    most = min(largest or len(dataset), len(dataset))
    allowed = budget if budget is not None else int(0.8 * _free_bytes())
    size, used = 0, 0
    trying, before = 1, _used_bytes()
    # What was held before does not grow with the batch.
    while trying <= most and (not size or 2 * used - before <= allowed):
        needed = _bytes_of_step(trainer, dataset, trying, collate)
        if needed is None or needed > allowed:
            break
        size, used, trying = trying, needed, 2 * trying
    if not size:
        raise MemoryError(
            "find_batch_size: not even one sample fits into "
            f"{errors.in_bytes(allowed)}\n  at {errors.here()}"
        )
    return size


def _bytes_of_step(trainer: Any, dataset: Any, size: int, collate: Any) -> int | None:
    """The memory that a step takes at its height; None if it can't be had."""
    samples = [dataset[k] for k in range(size)]
    batch = (collate or default_collate)(samples)
    peak = _Peak()
    try:
        with _trying(trainer), peak:
            _train_on(trainer, batch)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            return None
        raise
    finally:
        memory.empty_cache()
    return peak.bytes


class _Peak:
    """Sees how much memory tensors take at most in a block."""

    bytes = 0

    def __enter__(self) -> _Peak:
        found = _pool()
        self.words = None if found is None else found.words
        if self.words is not None:
            self.before = self.words[pool.PEAK]
            self.words[pool.PEAK] = self.words[pool.USED]
        else:
            tracemalloc.start()  # slower, and sees all that Python and NumPy allocate
        return self

    def __exit__(self, *exc: object) -> None:
        if self.words is not None:
            self.bytes = int(memory.stats()["peak_used_bytes"])
            self.words[pool.PEAK] = max(self.before, self.bytes)
        else:
            self.bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()


def _pool() -> Any:
    return pool.pool()


def _used_bytes() -> int:
    """What tensors hold now, where that counts for a peak."""
    found = _pool()
    return 0 if found is None else int(found.words[pool.USED])


def _free_bytes() -> int:
    """What the system says can be had without pushing anything out."""
    limit = 2 * pool.memory_limit()
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return min(limit, int(lines["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError, ValueError, IndexError):
        return limit // 2
