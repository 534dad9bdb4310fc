"""Shape inference rules: shapes and dtypes of results from those of inputs.

A rule stands in the op's block as ``shape=`` and is an ordinary function. The names of its
parameters say what it needs: an input's name its ``ShapeDtype`` (None or the number itself where
that was given), ``inputs`` those of all inputs, ``rest`` of those beyond the names, anything else
an attribute of the op. It gives a ``ShapeDtype`` for each result, or just a shape where the dtype
is that of the first input. Inputs come promoted, as the reference gets them. Sizes are ints or
``Dim`` expressions, so a rule does arithmetic on them and asks as little as it can.

``"elementwise"`` is the rule of ops that broadcast their inputs; their dtype is that in which they
compute, or found by running the reference on single elements. An op without a rule has results
whose shape depends on values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core import dtype as dt
from weft.core import meta, quiet
from weft.core.meta import MetaArray
from weft.core.modes import MODES
from weft.core.promotion import promoted
from weft.core.symbols import differ, product
from weft.native.memory.layout import (
    channels_wanted,
    geometry,
    is_last,
    last_of,
    rows_of,
    strides_of_result,
)

if TYPE_CHECKING:
    from weft.core.dispatch import Op

ndarray = np.ndarray
Shape = tuple[Any, ...]
REAL = {np.dtype(np.float32), np.dtype(np.float64)}


class ShapeDtype:
    """What is known of an array without its values: shape, dtype, and strides where they matter.

    ``steps`` are strides in elements; None stands for row-major order.
    """

    __slots__ = ("dtype", "shape", "steps")

    def __init__(self, shape: Any, dtype: Any, steps: Any = None) -> None:
        self.shape: Shape = tuple(shape)
        self.dtype: np.dtype = np.dtype(dtype)
        self.steps: tuple[int, ...] | None = steps

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """The number of elements."""
        return product(self.shape)

    def of(self, dtype: Any) -> ShapeDtype:
        """The same shape with another dtype, in row-major order."""
        return ShapeDtype(self.shape, dtype)

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def broadcast(*shapes: Shape) -> Shape:
    """The shape that shapes are broadcast to."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Any] = [1] * rank
    for shape in shapes:
        for at, size in enumerate(shape, rank - len(shape)):
            held = result[at]
            if held == 1:
                result[at] = size
            elif size != 1 and differ(size, held):
                raise RuntimeError(_mismatch(held, size, at, shapes))
    return tuple(result)


def _mismatch(a: Any, b: Any, dim: int, shapes: Any) -> str:
    texts = " and ".join(str(list(s)) for s in shapes)
    return (
        f"The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton "
        f"dimension {dim}; shapes {texts} do not broadcast. Reshape one with unsqueeze() or "
        "expand()"
    )


def infer(op: Op, args: Any, attrs: dict[str, Any]) -> tuple[ShapeDtype, ...]:
    """The results of an op, for inputs that are ``ShapeDtype``, numbers or None."""
    singles, final = _promoted(op, args)
    if op.shape is None:
        raise meta.NoValues(meta.BY_VALUE)
    if op.shape == "elementwise":
        found = _elementwise(op, args, singles, attrs)
    else:
        known = [
            ShapeDtype(x.shape, single.dtype, x.steps) if isinstance(x, ShapeDtype) else x
            for x, single in zip(args, singles, strict=True)
        ]
        found = _by_rule(op, known, attrs)
    if final is not None:
        found = [ShapeDtype(o.shape, final, o.steps) if o.dtype == dt.F32 else o for o in found]
    return tuple(found)


def _promoted(op: Op, args: Any) -> tuple[Any, np.dtype | None]:
    """One element for each input, in the type that the op computes in."""
    singles = [np.ones((1,) * x.ndim, x.dtype) if isinstance(x, ShapeDtype) else x for x in args]
    if op.promote is None:
        return singles, None
    return promoted(op, singles)


def _elementwise(op: Op, args: Any, singles: Any, attrs: dict[str, Any]) -> list[ShapeDtype]:
    shape = broadcast(*(x.shape for x in args if isinstance(x, ShapeDtype)))
    kinds = {single.dtype for single in singles if isinstance(single, ndarray)}
    floating = op.promote == "float" or (op.differentiable and "i" in op.refuses)
    plain = len(singles) == len(op.names) and not op.multiple
    if floating and plain and len(kinds) == 1 and kinds <= REAL:
        # What they compute in is what they give. References would have to be run, and some be
        # imported, which takes longer than all else.
        return [ShapeDtype(shape, *kinds)]
    token = quiet.SET(quiet.SILENT)
    try:
        out = op.reference(*singles, **attrs)
    finally:
        quiet.RESET(token)
    outs = out if op.multiple else (out,)
    return [ShapeDtype(shape, np.asarray(o).dtype) for o in outs]


def _check_dims(op: Op, known: list[Any], attrs: dict[str, Any]) -> None:
    """Refuse dimensions that neither an input nor the result has."""
    rank = max((x.ndim for x in known if isinstance(x, ShapeDtype)), default=0)
    rank = max(rank + (op.name in ("stack", "unsqueeze")), len(attrs.get("shape", ())), 1)
    for name in ("dim", "dims", "dim0", "dim1", "dim2"):
        given = attrs.get(name)
        for dim in given if isinstance(given, (tuple, list)) else (given,):
            if dim is not None and not -rank <= dim < rank:
                raise IndexError(
                    f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], "
                    f"but got {dim})"
                )


def _by_rule(op: Op, known: list[Any], attrs: dict[str, Any]) -> list[ShapeDtype]:
    rule: Any = op.shape
    _check_dims(op, known, attrs)
    given: dict[str, Any] = {}
    for name, parameter in _parameters(rule).items():
        if name == "inputs":
            given[name] = known
        elif name == "rest":
            given[name] = known[len(op.names) :]
        elif name in op.names:
            at = op.names.index(name)
            given[name] = known[at] if at < len(known) else None
        elif name in attrs:
            given[name] = attrs[name]
        elif parameter.default is inspect.Parameter.empty:
            raise TypeError(f"{op.name}: its shape rule needs the attribute {name!r}")
    out = rule(**given)
    first = next((x.dtype for x in known if isinstance(x, ShapeDtype)), None)
    outs = out if op.multiple else (out,)
    return [o if isinstance(o, ShapeDtype) else ShapeDtype(o, first) for o in outs]


def _parameters(rule: Callable) -> Any:
    found = _KNOWN.get(rule)
    if found is None:
        found = _KNOWN[rule] = inspect.signature(rule).parameters
    return found


_KNOWN: dict[Any, Any] = {}


# --- meta arrays -----------------------------------------------------------------------

# Ops that take an index, or values to write, from another device than that of their first input.
FROM_ELSEWHERE = frozenset(
    (
        *("copy", "fill", "index", "index_put", "index_backward", "index_select", "index_add"),
        *("index_copy", "index_fill", "embedding"),
    )
)


def compute(op: Op, args: Any, attrs: dict[str, Any]) -> Any:
    """The op on meta arrays: meta arrays of the shapes, dtypes and strides of its results."""
    if any(isinstance(x, MetaArray) and x.is_batch for x in args):
        raise RuntimeError(
            f"{op.name}: a tensor of a vmap is used outside of the vmap that made it; let the "
            "mapped function return it"
        )
    _check_devices(op, args)
    if op.view:
        return op.reference(*args, **attrs)
    known = [
        ShapeDtype(x.shape, meta.plain(x.dtype), geometry(x)[1]) if isinstance(x, ndarray) else x
        for x in args
    ]
    outs = [
        meta.empty(o.shape, o.dtype, o.steps if o.steps is not None else _steps(op, o, args))
        for o in infer(op, known, attrs)
    ]
    return tuple(outs) if op.multiple else outs[0]


def _check_devices(op: Op, args: Any) -> None:
    if MODES.now.backward is not None:
        return  # derivative rules have constants of their own, as arrays
    first = args[0].__class__
    for x in args:
        if x.__class__ is ndarray and (x.ndim or (first is not MetaArray and x is args[0])):
            if op.name in FROM_ELSEWHERE:
                if first is ndarray:
                    raise NotImplementedError(meta.NO_DATA)
                continue
            if not x.ndim:
                continue
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                "cpu and meta! Move one with .to('meta'); only numbers may come from the CPU"
            )


def _steps(op: Op, out: ShapeDtype, args: Any) -> tuple[int, ...]:
    """The strides in elements that a result has on the CPU."""
    rule, shape = op.layout_rule, out.shape
    if op.shape == "elementwise" and not rule:
        rule = "operands"  # NumPy's own order
    arrays = [x for x in args if isinstance(x, ndarray)]
    if rule in ("operands", "first") and len(shape) > 1 and 0 not in shape:
        chosen = arrays if rule == "operands" else arrays[:1]
        if not all(x.flags.c_contiguous for x in chosen):
            return strides_of_result(shape, tuple(map(geometry, chosen)))
    elif rule.startswith("image") and len(shape) > 3 and 0 not in shape:
        asked = channels_wanted(arrays[0]) or (rule == "images" and channels_wanted(arrays[1]))
        fits = len(shape) == 4 or (
            rule != "image 2d" and (rule == "image" or out.dtype.itemsize < 8)
        )
        if asked and fits:
            return last_of(shape)
    elif rule == "rows or last" and len(shape) in (4, 5) and 0 not in shape:
        alike = [x for x in arrays if x.ndim == len(shape)]
        if alike and all(is_last(x) for x in alike):
            return last_of(shape)
    elif rule == "rows or stacked last" and arrays[0].ndim == len(shape) and 0 not in shape:
        if all(map(channels_wanted, arrays)):
            return last_of(shape)
    return rows_of(shape)


__all__ = [
    *("Dim", "Shape", "ShapeDtype", "broadcast", "compute", "infer", "is_symbolic", "product"),
]
