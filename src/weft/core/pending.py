"""Tensors whose values have not been computed yet: how they look to the code around them.

While a compiled region is followed (``weft.compiler``), an op that was expected gives back an
ordinary ``Tensor`` whose slots ``_a``, ``_node``, ``_base`` and ``_view`` are unset, and whose
``_stamp`` says which region it belongs to and under which number. Whoever reads one of these slots
ends up in ``Tensor.__getattr__``, which computes all that is pending and goes on with the real
thing. So nothing in weft has to know of pending tensors to be right.

Code that looks at shapes and dtypes only need not wait for values: it is answered with an
``Outline``. Which code that is, its instructions tell (``looks_at_kinds``). An outline has no values
to read, so a mistake there would fail loudly.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import Any

import numpy as np

SLOTS = frozenset(("_a", "_base", "_node", "_view"))

# Whether a function's code reads no values of the tensors it is given, only what kind they are.
METADATA: dict[CodeType, bool] = {}

# What may be read of an array that does not exist yet.
KNOWN = frozenset(("dtype", "itemsize", "nbytes", "ndim", "shape", "size", "strides"))
KNOWN_FLAGS = frozenset(("c_contiguous", "f_contiguous"))


class Flags:
    """The part of an array's flags that follows from shape and strides."""

    __slots__ = ("c_contiguous", "f_contiguous", "writeable")

    def __init__(self, model: np.ndarray) -> None:
        flags = model.flags
        self.c_contiguous, self.f_contiguous = flags.c_contiguous, flags.f_contiguous
        self.writeable = True


class Outline:
    """What is known of an array that does not exist yet."""

    __slots__ = ("dtype", "flags", "itemsize", "nbytes", "ndim", "shape", "size", "strides")
    base = None

    def __init__(self, model: np.ndarray) -> None:
        self.shape, self.strides, self.dtype = model.shape, model.strides, model.dtype
        self.ndim, self.size, self.itemsize = model.ndim, model.size, model.itemsize
        self.nbytes = model.nbytes
        self.flags = Flags(model)


def reads_metadata(*functions: Any) -> None:
    """Say of functions and properties that they look at kinds of tensors, never at values."""
    for function in functions:
        if isinstance(function, property):
            function = function.fget
        METADATA[function.__code__] = True


def looks_at_kinds(code: CodeType) -> bool:
    """Whether all that a function's code reads of arrays is their shape, dtype and the like.

    Each ``x._a`` in it must be followed by one of these, as in ``x._a.shape``, and each ``x._node``
    and ``x._base`` by a comparison with None.
    """
    found = METADATA.get(code)
    if found is None:
        found = METADATA[code] = _looks_at_kinds(code)
    return found


def _looks_at_kinds(code: CodeType) -> bool:
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "EXTENDED_ARG")]
    after = [*steps[1:], None, None, None]
    for k, step in enumerate(steps):
        if step.argval not in SLOTS or not step.opname.endswith(("_ATTR", "_METHOD")):
            continue
        follows: Any = after[k]
        if step.opname != "LOAD_ATTR" or follows is None:
            return False
        if step.argval == "_a":
            flag: Any = after[k + 1]
            known = follows.argval in KNOWN or (
                follows.argval == "flags" and flag.argval in KNOWN_FLAGS
            )
            if not known or not follows.opname.startswith("LOAD_ATTR"):
                return False
        elif not (
            follows.opname.endswith(("_IF_NONE", "_IF_NOT_NONE"))
            or (follows.opname == "LOAD_CONST" and follows.argval is None
                and after[k + 1].opname == "IS_OP")  # type: ignore[union-attr]
        ):  # fmt: skip
            return False
    return True


def slot_of(tensor: Any, name: str) -> Any:
    """The value of an unset slot: for a pending tensor, once all that is pending was computed."""
    try:
        region, number = object.__getattribute__(tensor, "_stamp")
    except (AttributeError, TypeError):
        raise AttributeError(f"'Tensor' object has no attribute {name!r}") from None
    if looks_at_kinds(sys._getframe(2).f_code):
        return region.outline(number, name)
    region.read(sys._getframe(2))
    return object.__getattribute__(tensor, name)
