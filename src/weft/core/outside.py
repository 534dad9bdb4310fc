"""Memory that something outside of weft can reach: arrays taken from NumPy or handed to it.

Such memory can change without any op. Code that reads a tensor later than the program asked for it
(``weft.compiler``) takes a copy first.
"""

from __future__ import annotations

import weakref

import numpy as np

# The owners of such memory, by identity, as weak references that remove themselves.
_owners: dict[int, weakref.ref[np.ndarray]] = {}

# How often memory was let out: while this stands still, memory that was not outside is not now.
LET_OUT = [0]


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array that holds the memory of another."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def let_out(array: np.ndarray) -> None:
    """Note that somebody else holds the memory of an array."""
    owner = owner_of(array)
    number = id(owner)
    if number not in _owners:
        _owners[number] = weakref.ref(owner, lambda _: _owners.pop(number, None))
        LET_OUT[0] += 1


def is_outside(array: np.ndarray) -> bool:
    """Whether somebody else may hold the memory of an array."""
    owner = owner_of(array)
    return id(owner) in _owners or not owner.flags.owndata
