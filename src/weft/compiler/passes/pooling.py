"""Pooling: work on all elements of an image is done on the selected ones if the result is the same.

The maximum of rectified values is the rectified maximum. A window whose maximum is not positive may
select a different element then, but passes no gradient in either order. And the sum of a plane of
scattered values is the sum of these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from weft.compiler.ir import Value, WorkNode, links
from weft.compiler.ops import OpWork, op_of
from weft.core.dispatch import REGISTRY

RELU, SCATTER, KEEP = REGISTRY["relu"], REGISTRY["plane_scatter"], REGISTRY["keep"]
NOT_ABOVE, NOT, SUM = REGISTRY["le"], REGISTRY["bitwise_not"], REGISTRY["sum"]
POOLS = {REGISTRY["max_pool_with_indices"], REGISTRY["adaptive_max_pool"]}


class _PooledRelu(NamedTuple):
    """A relu and the pooling that is its only reader, with the gradients that pass through both."""

    relu: WorkNode
    pool: WorkNode
    mask: list[WorkNode]  # the mask of the relu's gradient: a comparison and its negation
    gradients: list[
        tuple[WorkNode, WorkNode]
    ]  # scattered to the selected elements, and kept where the mask is true


def pooled_first(nodes: Sequence[WorkNode], ends: Iterable[Any]) -> list[WorkNode]:
    """The nodes, with relu after pooling, and sums of scattered values before scattering."""
    if {op_of(node) for node in nodes}.isdisjoint((*POOLS, SCATTER)):
        return list(nodes)
    maker, readers = links(nodes)
    wanted = {x for x in ends if isinstance(x, Value)}
    instead: dict[WorkNode, list[WorkNode]] = {}
    for node in nodes:
        pair = _pair(node, maker, readers, wanted) if op_of(node) in POOLS else None
        if pair is not None:
            _exchange(pair, instead)
    return _summed([new for node in nodes for new in instead.get(node, [node])])


def _pair(
    pool: WorkNode,
    maker: dict[Value, WorkNode],
    readers: dict[Value, list[WorkNode]],
    wanted: set[Value],
) -> _PooledRelu | None:
    y = pool.args[0]
    relu = maker.get(y)
    if relu is None or op_of(relu) is not RELU:
        return None
    places = pool.results[1]
    mask = [node for node in readers[y] if node is not pool]
    if len(mask) > 1 or (mask and (op_of(mask[0]) is not NOT_ABOVE or mask[0].args[1:] != (0,))):
        return None
    passing: list[WorkNode] = []
    if mask:
        mask += readers.get(mask[0].results[0], [])
        if len(mask) != 2 or op_of(mask[1]) is not NOT:
            return None
        passing = readers.get(mask[1].results[0], [])
    gradients: list[tuple[WorkNode, WorkNode]] = []
    for scatter in readers.get(places, []):
        after = readers.get(scatter.results[0], [])
        if op_of(scatter) is not SCATTER or len(after) != 1 or after[0] not in passing:
            return None
        if op_of(after[0]) is not KEEP or after[0].args[1] is not mask[1].results[0]:
            return None
        gradients.append((scatter, after[0]))
    inside = [y, places, *(r for n in (*mask, *(s for s, _ in gradients)) for r in n.results)]
    if len(gradients) != len(passing) or any(x in wanted for x in inside):
        return None
    return _PooledRelu(relu, pool, mask, gradients)


def _exchange(pair: _PooledRelu, instead: dict[WorkNode, list[WorkNode]]) -> None:
    relu, pool, mask, gradients = pair
    y, places = pool.results
    largest = Value(y.shape, y.dtype)
    instead[relu] = []
    instead[pool] = [
        WorkNode(pool.work, (relu.args[0], *pool.args[1:]), (largest, places), pool.spec),
        WorkNode(relu.work, (largest,), (y,), relu.spec),
    ]
    for node in mask:
        instead[node] = []
    for scatter, keep in gradients:
        negative, positive = (Value(y.shape, n.results[0].dtype) for n in mask)
        kept = Value(y.shape, y.dtype)
        instead[scatter] = []
        instead[keep] = [
            WorkNode(mask[0].work, (y, *mask[0].args[1:]), (negative,), mask[0].spec),
            WorkNode(mask[1].work, (negative,), (positive,), mask[1].spec),
            WorkNode(keep.work, (scatter.args[0], positive), (kept,), keep.spec),
            WorkNode(scatter.work, (kept, *scatter.args[1:]), keep.results, scatter.spec),
        ]


def _summed(nodes: list[WorkNode]) -> list[WorkNode]:
    """The nodes, with sums over whole planes of scattered values computed from the values."""
    scattered = {n.results[0]: n.args[0] for n in nodes if op_of(n) is SCATTER}
    found = []
    for node in nodes:
        if op_of(node) is SUM and node.args[0] in scattered and _whole(node):
            node = WorkNode(node.work, (scattered[node.args[0]],), node.results, node.spec)
        found.append(node)
    return found


def _whole(node: WorkNode) -> bool:
    """Whether a sum is over all elements of each plane, for images with batch and channels."""
    work, rank = node.work, len(node.args[0].shape)
    assert isinstance(work, OpWork)
    dims = work.attrs["dim"]
    return dims is None or set(range(2, rank)) <= {d % rank for d in dims}
