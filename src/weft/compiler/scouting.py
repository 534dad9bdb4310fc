"""Compiling the kernels of a backward pass while its forward pass runs for the first time.

The kernels of an op's derivative rules are known once the op has run. So while a region learns, the
rules are planned on arrays without values, and the kernels that the plan names are compiled by
background threads (``native/codegen/ahead.py``). The plan itself is discarded: running the rules
later selects kernels independently of it.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from weft.autograd.engine import fill_missing
from weft.core import planning, quiet, selection
from weft.core.node import GraphNode, OpNode, Output
from weft.core.saved import PackedGuard
from weft.native.codegen import jit
from weft.native.memory.buffers import Unplannable

ndarray = np.ndarray
_scouted: set[Any] = set()


def look_ahead(node: Any) -> None:
    """Compile the kernels of a node's derivative rules in the background, if they are not compiled
    yet.
    """
    if not jit.compiles_ahead():
        return
    node = node.node if node.__class__ is Output else node
    if not isinstance(node, OpNode) or node.guard.__class__ is PackedGuard:
        return
    plan, saved, several = node.plan, node.saved, node.op.multiple
    if not all(map(_is_plain, saved)):
        return
    shapes = zip(node.shape, node.dtype, strict=True) if several else ((node.shape, node.dtype),)
    g: Any = [np.empty(shape, dtype) for shape, dtype in shapes]
    if several and not plan.op.view:  # usually the first of a layer's results is used
        g = fill_missing(node, [g[0], *[None] * (len(g) - 1)])
    limit = plan.op.limit if plan.op.limit < selection.NEVER else selection.BEGIN
    if not selection.large((*g, *saved), limit):
        return  # eager mode leaves these to NumPy, and a program may fuse them
    key = plan, tuple(map(_lies, (*g, *saved))), repr(node.attrs)
    if key in _scouted:
        return
    _scouted.add(key)
    needs = tuple(isinstance(e, GraphNode) for e in node.inputs) if plan.joint else None
    kinds = [_kind(node.inputs[i]) for i in plan.targets]
    # If a plan fails, the kernels found so far are being compiled.
    failures = Unplannable, NotImplementedError, MemoryError, jit.BeingCompiled
    given, token = tuple(g) if several else g[0], quiet.enter()
    try:
        with jit.scouting(), contextlib.suppress(*failures):
            planning.gradient_job(plan, given, saved, node.attrs, needs, kinds)
    finally:
        quiet.leave(token)


def _is_plain(x: Any) -> bool:
    if x.__class__ is tuple:
        return all(map(_is_plain, x))
    return x is None or x.__class__ in (ndarray, bool, int, float, str)


def _lies(x: Any) -> Any:
    if x.__class__ is tuple:
        return tuple(map(_lies, x))
    return (x.shape, x.strides, x.dtype) if x.__class__ is ndarray else repr(x)


def _kind(edge: Any) -> Any:
    known = isinstance(edge, GraphNode) and edge.shape is not None
    return (edge.shape, edge.dtype) if known else None
