"""Gradients under max pooling: a convolution's are computed from the selected elements alone.

The gradient of a pooling's input is zero except for one element of each window. The gradients of
the convolution before it read the values and their indices directly from the pooling's backward, so
nothing of the size of the input is written, read and multiplied by zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.compiler.ir import Value, Work, WorkNode, links
from weft.compiler.ops import OpWork, op_of
from weft.compiler.passes.cropping import CroppedGradient
from weft.core import planning
from weft.core.dispatch import REGISTRY
from weft.native.conv import pooled
from weft.native.conv.pooled import Pooled
from weft.native.memory.buffers import Unplannable

SCATTER = REGISTRY["plane_scatter"]
POOLS = {REGISTRY["max_pool_with_indices"], REGISTRY["adaptive_max_pool"]}
TRANSPOSE, WEIGHT = REGISTRY["conv_transpose"], REGISTRY["conv_weight"]
F32 = np.dtype(np.float32)


class ChosenGradient(Work):
    """A gradient of a convolution from values and their indices, instead of scattered values."""

    def __init__(self, scatter: WorkNode, gradient: WorkNode, case: Pooled) -> None:
        self.members = [scatter, gradient]
        self.name = f"{scatter.work.name}+{gradient.work.name}"
        self.case, self.of_weight = case, _whole(gradient).op is WEIGHT

    def native(self, *args: Any) -> Any:
        function = pooled.weight_grad if self.of_weight else pooled.transposed
        g, places, other = map(planning.bare, args)
        made = function(g, places, other, self.case)
        if made is None:
            raise Unplannable("arrays of an unsupported layout")
        return (made,)

    def key(self) -> Any:
        return "chosen", self.case, self.of_weight

    def parts(self) -> Sequence[WorkNode]:
        return self.members


def chosen(nodes: Sequence[WorkNode], ends: Iterable[Any]) -> list[WorkNode]:
    """The nodes, with gradients of convolutions before max pooling that need no scattered
    values.
    """
    if not any(op_of(node) is SCATTER for node in nodes):
        return list(nodes)
    maker, _ = links(nodes)
    found = []
    for node in nodes:
        scatter = _scatter(node, maker)
        case = None if scatter is None else _case(scatter, node)
        if scatter is not None and case is not None:
            args = (*scatter.args, node.args[1])
            node = WorkNode(ChosenGradient(scatter, node, case), args, node.results, node.spec)
        found.append(node)
    return found


def _whole(node: WorkNode) -> OpWork:
    """The op of a gradient, which may be cropped."""
    work = node.work.whole if isinstance(node.work, CroppedGradient) else node.work
    assert isinstance(work, OpWork)
    return work


def _scatter(node: WorkNode, maker: dict[Value, WorkNode]) -> WorkNode | None:
    """The node that scatters the values that a convolution's gradient reads, to elements selected
    by the pooling.
    """
    if not isinstance(node.work, (OpWork, CroppedGradient)):
        return None
    if _whole(node).op not in (TRANSPOSE, WEIGHT) or any(x is not None for x in node.args[2:]):
        return None
    g, other = node.args[:2]
    scatter = maker.get(g)
    if scatter is None or op_of(scatter) is not SCATTER or other is g:
        return None
    values, places = scatter.args
    pool = maker.get(places)
    if pool is None or op_of(pool) not in POOLS or pool.results[1] is not places:
        return None
    if pool.args[0].shape != g.shape or values.shape != places.shape:
        return None
    return scatter if {x.dtype for x in (g, values, other)} == {F32} else None


def _case(scatter: WorkNode, gradient: WorkNode) -> Pooled | None:
    """The shapes of the convolution, if it is one for which this pays."""
    whole, (g, other, *_) = _whole(gradient), gradient.args
    attrs, of_weight = whole.attrs, whole.op is WEIGHT
    shape = tuple(attrs["shape"])
    x, w = (other.shape, shape) if of_weight else (shape, other.shape)
    window = tuple(attrs["stride"]), tuple(attrs["padding"])
    case = Pooled(tuple(x), tuple(w), g.shape, scatter.args[0].shape, *window)
    rest = tuple(attrs["dilation"]), attrs["groups"]
    return case if pooled.pays(case, *rest, of_weight) else None
