"""The gate that every write to a tensor's memory passes, and the flag of externally shared memory.

Code that changes memory which a tensor may show (an in-place op, ``out=``, an optimizer, a storage,
loading a file into parameters) announces it here before writing the first byte. Components that
depend on unchanged memory listen: a compiled region with pending ops that still have to read it,
hooks that keep saved tensors. Without listeners, an announcement is one check of an empty list.

Memory that code outside weft can reach (arrays taken from NumPy or passed to it, DLPack, shared
memory) can change without any announcement, so it is flagged as exported. Code that defers reading
a tensor (``weft.compiler``) takes a copy of such memory first.
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
    """Notify all listeners that the memory of an array is about to change.

    Fast paths check ``if LISTENERS`` first.
    """
    for listener in tuple(LISTENERS):
        listener(array, target)


def exchange(target: Any, array: Any) -> None:
    """Replace a tensor's array; listeners are notified of the old one first."""
    if LISTENERS:
        announce(target._a, target)
    if array is not target._a:  # as it is after `x.data += 1`
        for recorder in MODES.now.recorders:
            recorder.exchanges(target)
    target._a = array


# The owners of exported memory, by identity; the references remove themselves.
_owners: dict[int, weakref.ref[np.ndarray]] = {}

# How often memory was flagged that a trace remembers by a weak reference to its owner: while this
# is unchanged, memory remembered as not exported is still not exported.
EXPORTS = [0]


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array that holds the memory of another."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def mark_exported(array: np.ndarray) -> None:
    """Flag the memory of an array as exported: other code is about to reference it and may change
    it.
    """
    if LISTENERS:
        announce(array)
    owner = owner_of(array)
    number = id(owner)
    if number not in _owners:
        EXPORTS[0] += bool(weakref.getweakrefcount(owner))
        _owners[number] = weakref.ref(owner, lambda _: _owners.pop(number, None))


def is_exported(array: np.ndarray) -> bool:
    """Whether the memory of an array is exported."""
    owner = owner_of(array)
    return id(owner) in _owners or not owner.flags.owndata


def is_flagged(tensor: Any) -> bool:
    """Whether a tensor is in exported memory of the CPU."""
    return tensor._a.__class__ is np.ndarray and is_exported(tensor._a)


def remembered(tensor: Any) -> tuple[Any, Any]:
    """Weak references to a tensor's array and to the owner of its memory: see ``EXPORTS``."""
    return weakref.ref(tensor._a), weakref.ref(owner_of(tensor._a))


def reclaims(tensor: Any) -> bool:
    """Whether only a tensor still references its exported memory: then the flag is removed.

    This is the case for arrays that a program creates, passes to ``from_numpy`` and drops.
    References to the array, or to a view or buffer of it, count, and so do weak references, which
    could be dereferenced.
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


# The reference counts there, where two variables and the call itself hold references.
_ALONE, _ALONE_AS_VIEW = (4, 4), (3, 3)


def span_of(tensor: Any) -> tuple[int, int] | None:
    """The addresses between which a tensor's elements are; None without any, and on a device."""
    array = tensor._a
    if not isinstance(array, np.ndarray) or not array.size:
        return None
    return np.lib.array_utils.byte_bounds(array)
