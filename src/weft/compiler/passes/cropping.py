"""Convolutions before max pooling: the last elements, which no pooling window reads, are cropped.

Of 13x13 elements, 2x2 windows read 12x12. The others need no value, and their gradients are zero.
Zero times a non-finite number would be NaN: if the other factor of such a gradient is not finite,
the program abandons its run, as Winograd convolutions do, and everything is computed eagerly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.ir import Value, Work, WorkNode, links
from weft.compiler.ops import OpWork, op_of
from weft.core import planning
from weft.core.dispatch import REGISTRY
from weft.native.once import module

ndarray = np.ndarray
Ints = tuple[int, ...]
CONVOLUTION, POOL = REGISTRY["convolution"], REGISTRY["max_pool_with_indices"]
SCATTER = REGISTRY["plane_scatter"]
GRADIENTS = {REGISTRY["conv_transpose"], REGISTRY["conv_weight"]}
TYPES = (np.dtype(np.float32), np.dtype(np.float64))


class CroppedGradient(Work):
    """A gradient of a convolution, from that of its result without the last elements, which are
    zero.
    """

    def __init__(self, whole: OpWork, extent: Ints) -> None:
        self.whole, self.extent, self.name = whole, extent, whole.name

    def native(self, *args: Any) -> Any:
        module("weft.native.conv.convolutions").require_finite(planning.bare(args[1]))
        return self.whole.native(*args)

    def python(self, *args: Any) -> Any:
        g = args[0]
        zeros = [(0, n - m) for n, m in zip(self.extent, g.shape[2:], strict=True)]
        return self.whole.python(np.pad(g, [(0, 0), (0, 0), *zeros]), *args[1:])

    def key(self) -> Any:
        inner = self.whole.key()
        return None if inner is None else (CroppedGradient, self.extent, inner)


class _Pooled(NamedTuple):
    """A convolution that only a pooling reads, and the nodes that pass gradients to it."""

    convolution: WorkNode
    pool: WorkNode
    scatters: list[WorkNode]
    gradients: list[WorkNode]


def cropped(nodes: Sequence[WorkNode], ends: Iterable[Any]) -> list[WorkNode]:
    """The nodes, with convolutions cropped to the elements that a pooling reads."""
    if not any(op_of(node) is POOL for node in nodes):
        return list(nodes)
    maker, readers = links(nodes)
    wanted = {x for x in ends if isinstance(x, Value)}
    instead: dict[WorkNode, WorkNode] = {}
    for node in nodes:
        found = _pooled(node, maker, readers, wanted) if op_of(node) is POOL else None
        if found is not None:
            _crop(found, instead)
    return [instead.get(node, node) for node in nodes]


def _pooled(
    pool: WorkNode,
    maker: dict[Value, WorkNode],
    readers: dict[Value, list[WorkNode]],
    wanted: set[Value],
) -> _Pooled | None:
    y, places = pool.args[0], pool.results[1]
    convolution = maker.get(y)
    if convolution is None or op_of(convolution) is not CONVOLUTION or y.dtype not in TYPES:
        return None
    if readers[y] != [pool] or read_extent(pool) in (None, y.shape[2:]):
        return None
    scatters = readers.get(places, [])
    gradients = [node for s in scatters for node in readers.get(s.results[0], [])]
    inside = {y, places, *(s.results[0] for s in scatters)}
    if any(op_of(s) is not SCATTER or s.args[0] in inside for s in scatters):
        return None
    if any(op_of(n) not in GRADIENTS or not inside.isdisjoint(n.args[1:]) for n in gradients):
        return None
    if any(n.args[1].dtype != y.dtype for n in gradients) or not inside.isdisjoint(wanted):
        return None
    return _Pooled(convolution, pool, scatters, gradients)


def read_extent(pool: WorkNode) -> Ints | None:
    """The extent that windows read, from the first element on; None if they reach beyond the
    image.
    """
    assert isinstance(pool.work, OpWork)
    attrs, shape, out = pool.work.attrs, pool.args[0].shape[2:], pool.results[0].shape[2:]
    if any(attrs["padding"]) or 0 in pool.results[0].shape:
        return None
    axes = zip(out, attrs["kernel"], attrs["stride"], attrs["dilation"], strict=True)
    read = tuple((m - 1) * s + d * (k - 1) + 1 for m, k, s, d in axes)
    return None if any(r > n for r, n in zip(read, shape, strict=True)) else read


def _crop(found: _Pooled, instead: dict[WorkNode, WorkNode]) -> None:
    convolution, pool, scatters, gradients = found
    whole = pool.args[0]
    extent = read_extent(pool)
    assert extent is not None
    y = Value((*whole.shape[:2], *extent), whole.dtype)
    instead[convolution] = _changed(convolution, convolution.args, y, extent=extent)
    instead[pool] = WorkNode(pool.work, (y, *pool.args[1:]), pool.results, pool.spec)
    smaller: dict[Value, Value] = {}
    for node in scatters:
        g = smaller[node.results[0]] = Value(y.shape, node.results[0].dtype)
        instead[node] = _changed(node, node.args, g, shape=y.shape)
    for node in gradients:
        assert isinstance(node.work, OpWork)
        work = CroppedGradient(node.work, whole.shape[2:])
        args = (smaller[node.args[0]], *node.args[1:])
        instead[node] = WorkNode(work, args, node.results, node.spec)


def _changed(node: WorkNode, args: Any, result: Value, **attrs: Any) -> WorkNode:
    """A node of the same op with different attributes, and a different result."""
    assert isinstance(node.work, OpWork)
    work = OpWork(node.work.op, {**node.work.attrs, **attrs})
    return WorkNode(work, args, (result,), node.spec)
