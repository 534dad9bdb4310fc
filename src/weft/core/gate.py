"""The gate that every write to a tensor's memory passes, and the flag of externally shared memory.

Whoever changes memory that a tensor may show (an op in place, ``out=``, an optimizer, a storage,
a file that is loaded over parameters) announces it here before the first byte. Those who rest on
memory as it is listen: a compiled region with work that is still to read it, hooks that keep
what was saved. While nobody listens, an announcement is one look at an empty list.

Memory that something outside of weft can reach (arrays taken from NumPy or handed to it, DLPack,
shared memory) can change without any announcement, so it is flagged. Code that reads a tensor
later than the program asked for it (``weft.compiler``) takes a copy of such memory first.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from weft.core.modes import MODES

# Called with the array that is about to be written, and the tensor on it if there is one at hand.
LISTENERS: list[Callable[[Any, Any], None]] = []


def announce(array: Any, target: Any = None) -> None:
    """Tell all who listen that the memory of an array is about to change.

    Paths that must be short ask ``if LISTENERS`` first.
    """
    for listener in tuple(LISTENERS):
        listener(array, target)


def exchange(target: Any, array: Any) -> None:
    """Give a tensor another array; those who rest on the one that it has are told first."""
    if LISTENERS:
        announce(target._a, target)
    if array is not target._a:  # as it is after `x.data += 1`
        for recorder in MODES.now.recorders:
            recorder.exchanges(target)
    target._a = array


# The owners of memory that somebody else holds, by identity; the references remove themselves.
_owners: dict[int, weakref.ref[np.ndarray]] = {}

# How often memory was flagged that somebody remembers, by a weak reference to the array that owns
# it: while this stands still, what was remembered without a flag has none.
LET_OUT = [0]


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array that holds the memory of another."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def let_out(array: np.ndarray) -> None:
    """Flag the memory of an array, which somebody else is about to hold and may change."""
    if LISTENERS:
        announce(array)
    owner = owner_of(array)
    number = id(owner)
    if number not in _owners:
        LET_OUT[0] += bool(weakref.getweakrefcount(owner))
        _owners[number] = weakref.ref(owner, lambda _: _owners.pop(number, None))


def is_outside(array: np.ndarray) -> bool:
    """Whether somebody else may hold the memory of an array."""
    owner = owner_of(array)
    return id(owner) in _owners or not owner.flags.owndata


def is_flagged(tensor: Any) -> bool:
    """Whether a tensor is in flagged memory of the CPU."""
    return tensor._a.__class__ is np.ndarray and is_outside(tensor._a)


def remembered(tensor: Any) -> tuple[Any, Any]:
    """Weak references to a tensor's array and to the owner of its memory: see ``LET_OUT``."""
    return weakref.ref(tensor._a), weakref.ref(owner_of(tensor._a))


def takes_back(tensor: Any) -> bool:
    """Whether nobody but a tensor holds its flagged memory any more: then the flag is removed.

    So it is with arrays that a program makes, gives to ``from_numpy`` and forgets. Whoever holds
    the array, or a view or buffer of it, counts; weak references could give it to somebody.
    """
    array = tensor._a
    owner = owner_of(array)
    if not owner.flags.owndata or weakref.getweakrefcount(owner) > (id(owner) in _owners):
        return False
    if array is not owner and (array.base is not owner or weakref.getweakrefcount(array)):
        return False
    if (getrefcount(array), getrefcount(owner)) != (_ALONE if array is owner else _ALONE_AS_VIEW):
        return False
    _owners.pop(id(owner), None)
    return True


# The counts there, where each of two variables and the call itself are holders.
_ALONE, _ALONE_AS_VIEW = (4, 4), (3, 3)
