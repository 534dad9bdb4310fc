"""Fusion into products: the relu after a layer is applied to the sums before they are stored.

Other readers of the rectified values, such as the mask of the gradient, are then not part of a loop
of the forward pass, and elementwise fusion puts them where their result is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.compiler.ir import Value, Work, WorkNode, links
from weft.compiler.ops import op_of
from weft.core import planning
from weft.core.dispatch import REGISTRY
from weft.native.gemm import products
from weft.native.memory.buffers import Unplannable

RELU = REGISTRY["relu"]
LAYERS = {REGISTRY["linear"], REGISTRY["linear_with_bias"]}
F32 = np.dtype(np.float32)


class FusedReluWork(Work):
    """A layer and the relu that is its only reader."""

    def __init__(self, layer: WorkNode, relu: WorkNode) -> None:
        self.members = [layer, relu]
        self.name = f"{layer.work.name}+{relu.work.name}"

    def native(self, *args: Any) -> Any:
        made = products.relu_of_linear(*map(planning.bare, args))
        if made is None:
            raise Unplannable("a product without a fused relu")
        return (made,)

    def key(self) -> Any:
        found = self.members[0].work.key()
        return None if found is None else ("rectified", found)

    def parts(self) -> Sequence[WorkNode]:
        return self.members


def rectified(nodes: Sequence[WorkNode], ends: Iterable[Any]) -> list[WorkNode]:
    """The nodes, with each small layer fused with a relu that is the only reader of its result."""
    _, readers = links(nodes)
    wanted = {x for x in ends if isinstance(x, Value)}
    instead: dict[WorkNode, list[WorkNode]] = {}
    for node in nodes:
        if op_of(node) not in LAYERS or not _is_small(node):
            continue
        (y,) = node.results
        relu = readers.get(y, [])
        if y not in wanted and len(relu) == 1 and op_of(relu[0]) is RELU:
            work = FusedReluWork(node, relu[0])
            instead[node] = []
            instead[relu[0]] = [WorkNode(work, node.args, relu[0].results, relu[0].spec)]
    return [new for node in nodes for new in instead.get(node, [node])]


def _is_small(node: WorkNode) -> bool:
    """Whether the product of a layer supports a fused relu."""
    if not all(isinstance(x, Value) and x.dtype == F32 for x in node.args):
        return False
    x, weight, *_ = node.args
    return products.supports_fused_relu(x.shape, weight.shape)
