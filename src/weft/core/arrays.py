"""The array types of tensors: NumPy's, and those of other devices."""

from __future__ import annotations

from typing import Any

import numpy as np


class ForeignArray:
    """The base of arrays that are not NumPy's: see ``core.devices``."""

    __slots__ = ()
    dtype: np.dtype
    ndim: int


ARRAYS: Any = (np.ndarray, ForeignArray)
