"""The states of all random sources that a program may draw from, as plain data."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np

from weft.core.tensor import Tensor, wrap
from weft.operators.random import default_generator


def random_state() -> dict[str, Any]:
    """The states of weft's default generator, Python's ``random`` and ``numpy.random``."""
    version, words, gauss = random.getstate()
    return {
        "weft": default_generator.get_state(),
        "python": [version, wrap(np.array(words, np.int64)), gauss],
        "numpy": _plain(np.random.get_state(legacy=False)),
    }


# NumPy's generator: its words and its position. To copy these is 50 times as fast as to ask for
# the state, which has besides a normal number that waits for the next call.
_MT19937_BYTES = 625 * 4


def _numpy_fingerprint() -> Any:
    source = np.random.get_bit_generator()
    if type(source) is not np.random.MT19937:
        return repr(np.random.get_state(legacy=False))
    words = ctypes.string_at(source.ctypes.state_address, _MT19937_BYTES)
    if words == _last_numpy[0] and not _last_numpy[1]:
        return tuple(_last_numpy)
    # A waiting number can be taken without a trace in the words, so then it is asked for.
    state: Any = np.random.get_state(legacy=False)
    _last_numpy[:] = words, state["has_gauss"], state["gauss"]
    return words, state["has_gauss"], state["gauss"]


_last_numpy: list[Any] = [b"", 0, 0.0]


class Fingerprint:
    """Differs from an earlier one if anything was drawn; cheaper than the states themselves."""

    def __init__(self) -> None:
        own = default_generator
        # The generator has a new buffer for every block and a new engine for every seed. Both are
        # held here, so that no later one can have the same place in memory.
        self._held = own._buffer, own.__dict__.get("_engine")
        self._own = own._pos, own._initial_seed, own._next_normal, own._next_float_normal
        self._others = random.getstate(), _numpy_fingerprint()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Fingerprint)
            and all(a is b for a, b in zip(self._held, other._held, strict=True))
            and (self._own, self._others) == (other._own, other._others)
        )

    __hash__ = None  # type: ignore[assignment]


def set_random_state(state: dict[str, Any]) -> None:
    """Put all sources back into the states that ``random_state`` gave."""
    default_generator.set_state(state["weft"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    np.random.set_state(_arrays(state["numpy"]))


def _plain(value: Any) -> Any:
    """Arrays as tensors of int64, which any reader of checkpoints knows; keys may be unsigned."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return wrap(value.astype(np.int64))
    return value.item() if isinstance(value, np.generic) else value


def _arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _arrays(part) for name, part in value.items()}
    return value.numpy().astype(np.uint64) if isinstance(value, Tensor) else value
