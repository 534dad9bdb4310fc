"""Ops as work: how an op runs by kernels alone, whatever the size of its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compiler.ir import Work
from weft.core import dtype as dt
from weft.core import quiet, selection
from weft.core.dispatch import REGISTRY, Op
from weft.core.promotion import promoted
from weft.native.contract import Unplannable
from weft.native.memory import buffers

ndarray = np.ndarray
TO_COPY = REGISTRY["to_copy"]


class OpWork(Work):
    """An op under attributes, laid out as dispatch does it."""

    def __init__(self, op: Op, attrs: dict[str, Any]) -> None:
        self.op, self.attrs, self.name = op, attrs, op.name

    def native(self, *args: Any) -> Any:
        return self._laid(computed(self.op, args, self.attrs), args)

    def python(self, *args: Any) -> Any:
        token = quiet.enter()
        try:
            return self._laid(self.op.compute(args, self.attrs), args)
        finally:
            quiet.leave(token)

    def _laid(self, out: Any, args: Any) -> Any:
        op = self.op
        outs = tuple(map(np.asanyarray, out)) if op.multiple else (np.asanyarray(out),)
        if op.layout is not None:
            outs = tuple(op.layout(o, args) for o in outs)
        return outs

    def key(self) -> Any:
        try:
            found = (self.op.name, tuple(sorted(self.attrs.items(), key=lambda item: item[0])))
            hash(found)
        except TypeError:
            return None
        return found


def computed(op: Op, args: Any, attrs: dict[str, Any]) -> Any:
    """What ``Op.compute`` gives, by kernels alone."""
    if op.view and op.native is None:
        return op.reference(*args, **attrs)
    args, final = _promoted(op, args)
    out = selection.forward(op, args, attrs)
    if out is None and any(x.__class__ in (int, float) for x in args):
        out = selection.forward(op, [_constant(x, args) for x in args], attrs)
    if out is None:
        if not op.view:
            raise Unplannable("no kernel takes these arrays")
        out = op.reference(*args, **attrs)
    if final is None:
        return out
    if op.multiple:
        return tuple(converted(o, final) if o.dtype == dt.F32 else o for o in out)
    return converted(out, final) if out.dtype == dt.F32 else out


def converted(x: ndarray, dtype: np.dtype) -> ndarray:
    """An array in another type, by a kernel."""
    if x.dtype == dtype:
        return x
    out = selection.forward(TO_COPY, (x,), {"dtype": dtype})
    if out is None:
        raise Unplannable(f"no kernel converts {x.dtype} to {dtype}")
    return out


def _constant(x: Any, args: Any) -> Any:
    """A number as an array of the type of the others."""
    if x.__class__ not in (int, float):
        return x
    kind = next((a.dtype for a in args if a.__class__ is ndarray), None)
    made = np.array(x, kind)
    buffers.constant(made)
    return made


def _promoted(op: Op, args: Any) -> tuple[list[Any], np.dtype | None]:
    """Operands in the type in which the op computes; and for half types that to go back to.

    The types are those that promotion gives to single elements.
    """
    if op.promote is None:
        return list(args), None
    arrays = [x for x in args if x.__class__ is ndarray]
    kinds = {x.dtype for x in arrays}
    if op.halves and len(kinds) == 1 and kinds <= dt.HALF and op.traced:
        half = arrays[0].dtype
        return [
            float(half.type(x)) if x.__class__ in (int, float) and i not in op.wide else x
            for i, x in enumerate(args)
        ], None
    single = [np.ones((1,) * x.ndim, x.dtype) if x.__class__ is ndarray else x for x in args]
    found, final = promoted(op, single)
    given: list[Any] = []
    for x, like in zip(args, found, strict=True):
        if x.__class__ is ndarray:
            given.append(converted(x, like.dtype))
        elif x.__class__ in (int, float) and like.__class__ is ndarray:
            given.append(float(like) if like.dtype.kind == "f" else x)
        else:
            given.append(x)
    return given, final
