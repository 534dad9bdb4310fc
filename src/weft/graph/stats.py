"""Summary statistics of an array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

BINS = 32


def summary(array: np.ndarray) -> dict[str, Any] | None:
    """Extremes, mean, spread, counts of NaN and infinity, and a histogram of the rest."""
    if not array.size or array.dtype.kind not in "fiubcV":
        return None
    values = np.abs(array) if array.dtype.kind == "c" else array
    values = np.asarray(values).astype(np.float64).ravel()
    finite = values[np.isfinite(values)]
    nan = int(np.isnan(values).sum())
    found: dict[str, Any] = {"nan": nan, "inf": int(values.size - finite.size - nan)}
    if not finite.size:
        return {**found, **dict.fromkeys(("min", "max", "mean", "std", "lo", "hi")), "hist": []}
    low, high = float(finite.min()), float(finite.max())
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = float(finite.mean()), float(finite.std())
    found.update(min=low, max=high, mean=number(mean), std=number(spread), lo=low, hi=high)
    found["hist"] = _histogram(finite, low, high)
    return found


def _histogram(finite: np.ndarray, low: float, high: float) -> list[int]:
    """How many values lie in each part of their range; nothing if it has no such parts."""
    if low == high:
        middle = BINS // 2
        return [0] * middle + [finite.size] + [0] * (BINS - middle - 1)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.histogram(finite, BINS, (low, high))[0].tolist()
    except ValueError:  # too wide to be divided, or too narrow
        return []


def number(x: float) -> float | None:
    """A number that JSON can hold, or None."""
    return x if math.isfinite(x) else None


def describe(array: np.ndarray) -> str:
    """The summary as words: ``min -1.2, max 3.4, mean 0.1, 1 zero, 2 NaN``."""
    found = summary(array)
    if found is None:
        return "no values"
    parts = []
    if found["min"] is not None:
        parts += [f"min {found['min']:.4g}", f"max {found['max']:.4g}"]
        if found["mean"] is not None:
            parts.append(f"mean {found['mean']:.4g}")
    zeros = int(array.size - np.count_nonzero(array))
    if zeros:
        parts.append(f"{zeros} zero{'s' if zeros > 1 else ''}")
    parts += [f"{found[key]} {shown}" for key, shown in (("nan", "NaN"), ("inf", "inf"))
              if found[key]]  # fmt: skip
    return ", ".join(parts)
