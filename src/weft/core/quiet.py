"""Silence NumPy's floating-point warnings inside weft only: inf and NaN are ordinary values here.

The fast path through dispatch does not silence warnings: a filter drops the warnings that start
in weft's own files, and where the user has turned warnings into errors, the op runs again, quietly.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

try:
    # Entering np.errstate costs more than a small op; setting its variable does not.
    from numpy._core.umath import (
        _extobj_contextvar,
        _make_extobj,
    )

    _SILENT = _make_extobj(all="ignore")

    def enter() -> Any:
        """Switch the warnings off; give what ``leave`` needs."""
        return _extobj_contextvar.set(_SILENT)

    leave = _extobj_contextvar.reset
    SET, RESET = _extobj_contextvar.set, _extobj_contextvar.reset
    SILENT: Any = _SILENT
    VARIABLE: Any = _extobj_contextvar
except ImportError:  # pragma: no cover - another NumPy's internals

    def enter() -> Any:
        """Switch the warnings off; give what ``leave`` needs."""
        return np.seterr(all="ignore")

    def leave(previous: Any) -> None:
        """Restore what ``enter`` found."""
        np.seterr(**previous)

    def SET(_: Any) -> Any:
        return enter()

    RESET, SILENT, VARIABLE = leave, None, None


warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"weft\.")
