"""Fusion into convolutions: 2x2 max pooling is applied to the sums before they are stored.

For a convolution that only a pooling reads, only the maxima are written, or their relu if that is
the only reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.compiler.ir import Value, Work, WorkNode, links
from weft.compiler.ops import OpWork, op_of
from weft.core import planning
from weft.core.dispatch import REGISTRY
from weft.native.conv import pooled
from weft.native.conv.pooled import Pooled
from weft.native.memory.buffers import Unplannable

CONVOLUTION, POOL = REGISTRY["convolution"], REGISTRY["max_pool_with_indices"]
RELU = REGISTRY["relu"]
F32 = np.dtype(np.float32)
TWO = (2, 2)


class PooledConvolution(Work):
    """A convolution and the pooling that is its only reader, and possibly a relu after that."""

    def __init__(self, members: list[WorkNode], case: Pooled) -> None:
        self.members, self.case = members, case
        self.name = "+".join(node.work.name for node in members)

    def native(self, *args: Any) -> Any:
        x, w = map(planning.bare, args[:2])
        bias = None if args[2] is None else planning.bare(args[2])
        made = pooled.largest(x, w, bias, self.case, len(self.members) > 2)
        if made is None:
            raise Unplannable("arrays of an unsupported layout")
        return made

    def key(self) -> Any:
        return "squares", self.case, len(self.members)

    def parts(self) -> Sequence[WorkNode]:
        return self.members


def squares(nodes: Sequence[WorkNode], ends: Iterable[Any]) -> list[WorkNode]:
    """The nodes, with 2x2 poolings fused into convolutions that have no other reader."""
    if not any(op_of(node) is POOL for node in nodes):
        return list(nodes)
    maker, readers = links(nodes)
    wanted = {x for x in ends if isinstance(x, Value)}
    instead: dict[WorkNode, list[WorkNode]] = {}
    for node in nodes:
        convolution = maker.get(node.args[0]) if op_of(node) is POOL else None
        if convolution is None or op_of(convolution) is not CONVOLUTION:
            continue
        (y,) = convolution.results
        case = _case(convolution, node)
        if case is not None and readers[y] == [node] and y not in wanted:
            relu = _relu(node, readers, wanted)
            largest, places = node.results
            members, results = [convolution, node], (largest, places)
            if relu is not None:
                members, results = [*members, relu], (relu.results[0], places)
            instead |= {member: [] for member in members}
            work = PooledConvolution(members, case)
            instead[node] = [WorkNode(work, convolution.args, results, node.spec)]
    return [new for node in nodes for new in instead.get(node, [node])]


def _relu(
    pool: WorkNode, readers: dict[Value, list[WorkNode]], wanted: set[Value]
) -> WorkNode | None:
    """The relu that is the only reader of the maxima."""
    largest = pool.results[0]
    found = readers.get(largest, [])
    if largest in wanted or len(found) != 1 or op_of(found[0]) is not RELU:
        return None
    return found[0]


def _case(convolution: WorkNode, pool: WorkNode) -> Pooled | None:
    """The shapes of both, if fusing them pays."""
    assert isinstance(convolution.work, OpWork) and isinstance(pool.work, OpWork)
    attrs, window = convolution.work.attrs, pool.work.attrs
    sides = tuple(tuple(window[name]) for name in ("kernel", "stride", "padding", "dilation"))
    if sides != (TWO, TWO, (0, 0), (1, 1)):
        return None
    x, w, *_ = convolution.args
    if any(v.dtype != F32 for v in convolution.inputs()):
        return None
    y, largest = convolution.results[0], pool.results[0]
    steps = tuple(attrs["stride"]), tuple(attrs["padding"])
    case = Pooled(x.shape, w.shape, y.shape, largest.shape, *steps)
    rest = tuple(attrs["dilation"]), attrs["groups"]
    return case if pooled.pays_in_squares(case, *rest) else None
