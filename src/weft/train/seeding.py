"""One seed for every random source."""

from __future__ import annotations

import random

import numpy as np

from weft.operators.random import manual_seed

__all__ = ["seed_everything"]


def seed_everything(seed: int) -> int:
    """Seed weft, Python's ``random`` and ``numpy.random``; gives the seed back.

    >>> seed_everything(3)
    3
    """
    manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    return seed
