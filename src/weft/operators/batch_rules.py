"""Batching rules that several ops share: see ``weft.core.batching``.

A rule says how an op on every example of a batch is one op on all of them; it stands in the op's
block as ``batch=``. Elementwise ops have theirs from ``core.batching`` and need not name it. An
op without a rule runs once for each example.
"""

from __future__ import annotations

from typing import Any

from weft.core.batching import BatchedCall, each, elementwise
from weft.core.tensor import Tensor

__all__ = ["along", "elementwise", "folded", "images", "leading"]

# Attributes that name a dimension, or several.
_DIMS = frozenset(("dim", "dim0", "dim1", "dim2", "dims"))


def _behind(value: Any) -> Any:
    return tuple(d + 1 for d in value) if isinstance(value, (tuple, list)) else value + 1


def _shifted(b: BatchedCall) -> dict[str, Any]:
    """The attributes with every dimension one further, and shapes with the batch in front."""
    attrs = dict(b.attrs)
    for name, value in b.attrs.items():
        if name in _DIMS and value is not None:
            attrs[name] = _behind(value)
        elif name in ("shape", "size") and isinstance(value, tuple):
            attrs[name] = (b.size, *value)
    return attrs


def along(b: BatchedCall) -> Any:
    """Ops along dimensions that are named by attributes; all operands have the same rank."""
    ranks = {x._a.ndim for x in b.logical if isinstance(x, Tensor)}
    if len(ranks) > 1:
        return each(b)
    args, attrs = b.leads(), _shifted(b)
    if 0 in ranks and "dims" not in attrs and "shape" not in attrs and not b.op.view:
        return _along_single(b, args, attrs)
    return b.run(*args, **attrs)


def _along_single(b: BatchedCall, args: list[Any], attrs: dict[str, Any]) -> Any:
    """The same for a single number, which has a dimension 0 to ask for and no more."""
    args = [x.unsqueeze(1) if isinstance(x, Tensor) and x._a.ndim == 1 else x for x in args]
    out = b.run(*args, **attrs)
    flat = [o.reshape(b.size) for o in (out if b.op.multiple else (out,))]
    return tuple(flat) if b.op.multiple else flat[0]


def leading(b: BatchedCall) -> Any:
    """Ops on the last dimensions, to which any before them are a batch."""
    return b.run(*b.leads(), **b.attrs)


def images(b: BatchedCall) -> Any:
    """Ops on (N, C, ...) arrays: the batch and N are one dimension."""
    return folded(b) if all(b.on) else each(b)


def folded(b: BatchedCall) -> Any:
    """The same where only some operands have the batch: the others serve every example."""
    counts = {x._a.shape[0] for x, on in zip(b.logical, b.on, strict=True) if on}
    count = counts.pop()
    if counts or not b.size or not count:
        return each(b)
    args = [b.fold(x) if on else x for x, on in zip(b.args, b.on, strict=True)]
    attrs = dict(b.attrs)
    if "shape" in attrs:
        attrs["shape"] = (b.size * count, *attrs["shape"][1:])
    out = b.run(*args, **attrs)
    return tuple(b.unfold(o, count) for o in out) if b.op.multiple else b.unfold(out, count)
