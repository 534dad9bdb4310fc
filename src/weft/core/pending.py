"""Pending tensors: tensors whose values have not been computed yet.

While a compiled region is followed (``weft.compiler``), an op that was expected returns an ordinary
``Tensor`` whose slots ``_a``, ``_node``, ``_base`` and ``_view`` are unset, and whose ``_stamp``
has its region, its number, and its kind. Reading one of these slots ends up in
``Tensor.__getattr__``, which computes everything pending and returns the real value. So no code in
weft needs to know about pending tensors to be correct.

Code that reads only shapes and dtypes does not trigger computing: it gets an ``Outline``. Such code
is recognised by its bytecode (``looks_at_kinds``). An outline has no values to read, so a mistake
there would fail loudly.
"""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any

import numpy as np

from weft.core.node import GraphNode

SLOTS = frozenset(("_a", "_base", "_node", "_view"))

# By code object: whether a function reads no values of its tensors, only their kinds.
METADATA: dict[CodeType, bool] = {}

# The attributes that may be read of an array that does not exist yet.
KNOWN = frozenset(("dtype", "itemsize", "nbytes", "ndim", "shape", "size", "strides"))
KNOWN_FLAGS = frozenset(("c_contiguous", "f_contiguous"))


class OutlineFlags:
    """The part of an array's flags that follows from shape and strides."""

    __slots__ = ("c_contiguous", "f_contiguous", "writeable")

    def __init__(self, model: np.ndarray) -> None:
        flags = model.flags
        self.c_contiguous, self.f_contiguous = flags.c_contiguous, flags.f_contiguous
        self.writeable = True


class Outline:
    """The known attributes of an array that does not exist yet."""

    __slots__ = ("base", "dtype", "flags", "itemsize", "nbytes", "ndim", "shape", "size", "strides")

    def __init__(self, model: np.ndarray) -> None:
        self.shape, self.strides, self.dtype = model.shape, model.strides, model.dtype
        self.ndim, self.size, self.itemsize = model.ndim, model.size, model.itemsize
        self.nbytes = model.nbytes
        self.flags = OutlineFlags(model)
        self.base = None if model.base is None else ...  # only whether there is one


def reads_metadata(*functions: Any) -> None:
    """Mark functions and properties that read kinds of tensors, never values."""
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
    # Other reads of a slot (``getattr(x, "_a")``, ``attrgetter``) can't be seen here.
    if SLOTS.isdisjoint(code.co_names) or not SLOTS.isdisjoint(map(str, code.co_consts)):
        return False
    steps: list[Any] = [
        s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "EXTENDED_ARG")
    ]
    steps += [_END] * 3
    names: set[Any] = set()  # of local variables that hold arrays
    for k, step in enumerate(steps[:-3]):
        if step.argval in SLOTS and step.opname.endswith(("_ATTR", "_METHOD")):
            if step.opname != "LOAD_ATTR":
                return False
            if step.argval != "_a":
                if not _tests_none(steps, k + 1):
                    return False
            elif steps[k + 1].opname == "STORE_FAST":
                names.add(steps[k + 1].argval)
            elif not _reads_kind(steps, k + 1):
                return False
    for k, step in enumerate(steps[:-3]):
        if step.argval in names and step.opname.endswith(("_FAST", "_CLOSURE", "_DEREF")):
            kept = step.opname == "STORE_FAST" and steps[k - 1].argval == "_a"
            if not kept and not (step.opname == "LOAD_FAST" and _reads_kind(steps, k + 1)):
                return False
    return True


def _reads_kind(steps: list[Any], k: int) -> bool:
    """Whether only the kind of the loaded array is read."""
    step = steps[k]
    if step.opname != "LOAD_ATTR":
        return False
    return step.argval in KNOWN or (step.argval == "flags" and steps[k + 1].argval in KNOWN_FLAGS)


def _tests_none(steps: list[Any], k: int) -> bool:
    """Whether the loaded value is only compared with None."""
    if steps[k].opname.endswith(("_IF_NONE", "_IF_NOT_NONE")):
        return True
    none = steps[k].opname == "LOAD_CONST" and steps[k].argval is None
    return none and steps[k + 1].opname == "IS_OP"


class _END:
    opname, argval = "", None


def model_of(tensor: Any) -> np.ndarray:
    """The tensor's array; for a pending tensor one of its shape, strides and dtype, never to be
    read: it has memory for one element only.
    """
    try:
        return object.__getattribute__(tensor, "_a")
    except AttributeError:
        kind = tensor._a  # an outline, since this function may have that
        return np.lib.stride_tricks.as_strided(np.empty(1, kind.dtype), kind.shape, kind.strides)


METADATA[model_of.__code__] = True


def region_of(tensor: Any) -> Any:
    """The region that a pending tensor belongs to; None for one that has its values."""
    try:
        object.__getattribute__(tensor, "_a")
    except AttributeError:
        try:
            return object.__getattribute__(tensor, "_stamp")[0]
        except (AttributeError, TypeError):
            return None
    return None


def same_memory(tensor: Any, target: Any) -> bool:
    """Whether a tensor has the memory of one that is about to be written; it has values then."""
    make_views(target)
    region = region_of(tensor)
    if region is not None and region.may_share(tensor, target):
        tensor._a.size  # noqa: B018 - computes what is pending
    return tensor._vc is target._vc


def make_views(*tensors: Any) -> None:
    """Compute pending views: from then on their version cells show whose memory they share."""
    for tensor in tensors:
        region = region_of(tensor)
        if region is not None and not region.owns(tensor):
            tensor._a.size  # noqa: B018 - computes what is pending


METADATA[same_memory.__code__] = METADATA[make_views.__code__] = False


def slot_of(tensor: Any, name: str, frame: Any) -> Any:
    """The value of an unset slot, as a frame reads it: for a pending tensor, once all that is
    pending was computed.
    """
    try:
        region, _, kind = object.__getattribute__(tensor, "_stamp")
    except (AttributeError, TypeError):
        raise AttributeError(f"'Tensor' object has no attribute {name!r}") from None
    code = frame.f_code
    if METADATA[code] if code in METADATA else looks_at_kinds(code):
        if name == "_a":
            return kind.outline
        if name == "_node":
            return PENDING if kind.requires else None
        if not region.is_late_view:  # which has a base that is there
            return None
    region.read(frame)
    late = region_of(tensor)
    if late is not None:  # a view, which is created when it is read
        late.read(frame)
    return object.__getattribute__(tensor, name)


class _Pending(GraphNode):
    """Replaces the node of a pending tensor where only its existence matters."""

    __slots__ = ()


PENDING = _Pending()
PENDING.extras = None
