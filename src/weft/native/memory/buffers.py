"""Memory that kernels allocate: results, scratch, and constants.

Kernels get memory here and nowhere else, so that a plan (``weft.native.contract``) sees each piece
of it and can put another in its place.
"""

from __future__ import annotations

from threading import get_ident
from typing import Any, Protocol

import numpy as np

ndarray = np.ndarray


class Unplannable(Exception):
    """A kernel does something that a list of native calls can't reproduce."""


class Planner(Protocol):
    """The interface that is notified of memory while a plan is made."""

    def allocated(self, array: ndarray, zeroed: bool) -> None: ...
    def constant(self, array: ndarray) -> None: ...
    def moved(self, to: ndarray, source: Any) -> None: ...
    def checked(self, flag: ndarray) -> None: ...
    def keep(self, value: Any) -> None: ...
    def may_alias(self, result: ndarray, source: ndarray) -> None: ...
    def place(self, value: Any) -> Any: ...
    def holds(self, array: ndarray) -> bool: ...
    def raw(self, name: str, function: int, *words: Any) -> None: ...


MOST_POISONED = 4096  # elements that are filled
# Not empty: kernels take arrays of any size, for tests.
ANY_SIZE: list[bool] = []
# The plans being made, by thread. Nearly always there are none, which makes the check cheap.
PLANNERS: dict[int, Planner] = {}


def planner() -> Planner | None:
    """The recorder of this thread's plan, if it makes one."""
    return PLANNERS.get(get_ident()) if PLANNERS else None


def read(array: ndarray) -> None:
    """Report that values are read; in a plan there are none."""
    watching = planner()
    if watching is not None and watching.holds(array):
        raise Unplannable(f"dtype {array.dtype}, which no kernel supports")


def known(made: ndarray) -> ndarray:
    """Report a newly allocated array of undefined values to the plan."""
    if PLANNERS and (plan := planner()) is not None:
        if made.dtype.kind in "fc":
            poison(made)
        plan.allocated(made, False)
        made.flags.writeable = False  # a write by NumPy would not be part of the plan
    return made


def poison(made: ndarray) -> None:
    """Fill a float array without values with NaN, by which plans know what NumPy made of it.

    A large array gets some at its ends: reductions read those too, and the rest would take time.
    """
    if made.size <= MOST_POISONED:
        made.fill(np.nan)
    else:
        ends = slice(16), slice(-16, None)
        for end in ends:
            made[(end,) * made.ndim] = np.nan


def empty(shape: Any, dtype: Any = np.float64) -> ndarray:
    """A new array of undefined values."""
    return known(np.empty(shape, dtype))


def zeros(shape: Any, dtype: Any = np.float64) -> ndarray:
    """A new array of zeros."""
    if PLANNERS and (plan := planner()) is not None:
        made = np.empty(shape, dtype)
        plan.allocated(made, True)
        made.flags.writeable = False
        return made
    return np.zeros(shape, dtype)


def empty_like(model: ndarray, dtype: Any = None) -> ndarray:
    """A new array of undefined values with the shape and memory order of another."""
    return known(np.empty_like(model, dtype))


def constant(*arrays: ndarray | None) -> None:
    """Declare that arrays are the same in every run of a plan: index tables, for example."""
    if PLANNERS and (plan := planner()) is not None:
        for array in arrays:
            if array is not None:
                plan.constant(array)


def may_alias(results: Any, sources: Any) -> None:
    """Declare that each result may be written over its source: elementwise, each element read
    before it is written.
    """
    if PLANNERS and (plan := planner()) is not None:
        for result, source in zip(results, sources, strict=True):
            plan.may_alias(result, source)


def move(to: ndarray, source: Any) -> None:
    """Write an array or a number over another, which may be a view, with broadcasting."""
    if PLANNERS and (plan := planner()) is not None:
        plan.moved(to, source)
    else:
        to[...] = source


def copied(x: ndarray) -> ndarray:
    """A copy in row-major order."""
    if planner() is None:
        return np.array(x, order="C")
    made = empty(x.shape, x.dtype)
    move(made, x)
    return made


def wrong(flag: ndarray) -> bool:
    """Whether a kernel has set its flags: then its results are invalid."""
    plan = planner()
    if plan is None:
        return bool(flag.any())
    plan.checked(flag)
    return False


def small(size: int, bound: int) -> bool:
    """Whether something is too small for a kernel to pay. A plan is for any size but none."""
    if size >= bound or size < 1:
        return size < bound
    return not (ANY_SIZE or (PLANNERS and planner() is not None))


def any_size() -> bool:
    """Whether kernels are to take arrays however small they are."""
    return bool(ANY_SIZE) or planner() is not None
