"""Row fusion: elementwise work that one reduction, softmax or norm reads becomes part of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.compiler.fused import FusedWork
from weft.compiler.ir import Value, WorkNode, links
from weft.compiler.ops import op_of
from weft.compiler.row_fused import RowFusedWork
from weft.operators.native import KERNELS

# Ops whose kernels are row programs, by their modules.
FILES = ("loops.reduce", "loops.softmax", "loops.normalize", "loops.losses")
ROWS = {name for name, (_, path, *_) in KERNELS.items() if path.startswith(FILES)}
# A row program may read its input in several passes, so it should not read many arrays instead.
ARRAYS = 2


def rows_fused(nodes: Sequence[WorkNode], ends: Iterable[Any]) -> list[WorkNode]:
    """The nodes, with loops fused into row programs that are the only readers of one of their
    results.
    """
    maker, readers = links(nodes)
    wanted = {x for x in ends if isinstance(x, Value)}
    instead: dict[WorkNode, list[WorkNode]] = {}
    for node in nodes:
        op = op_of(node)
        if op is None or op.name not in ROWS:
            continue
        for x in dict.fromkeys(node.inputs()):
            loop = maker.get(x)
            if loop is None or loop in instead or not isinstance(loop.work, FusedWork):
                continue
            if x in wanted or readers[x] != [node] or node.args.count(x) != 1:
                continue
            halves = _divided(loop.work, x)
            if halves is not None:
                rest, own = halves
                work = RowFusedWork(own, node)
                instead[loop] = [] if rest is None else [_node(rest)]
                instead[node] = [WorkNode(work, work.inputs(), node.results, node.spec)]
                break
    return [new for node in nodes for new in instead.get(node, [node])]


def _node(work: FusedWork) -> WorkNode:
    return WorkNode(work, work.inputs, work.results, work.members[-1].spec)


def _divided(loop: FusedWork, x: Value) -> tuple[FusedWork | None, FusedWork] | None:
    """The nodes that the other results of a loop need, and those that only ``x`` needs; None if
    ``x`` has too few of its own, or shares too many with the others.
    """
    others = [r for r in loop.results if r is not x]
    needed = set(others)
    rest = []
    for node in reversed(loop.members):
        if needed.intersection(node.results):
            rest.append(node)
            needed.update(node.inputs())
    if x in needed:
        return None
    rest.reverse()
    own = [node for node in loop.members if node not in rest]
    made = {r for node in own for r in node.results}
    inputs = list(dict.fromkeys(v for node in own for v in node.inputs() if v not in made))
    known = {*loop.inputs, *others}
    if not all(v in known for v in inputs) or sum(bool(v.shape) for v in inputs) > ARRAYS:
        return None
    mine = FusedWork(own, inputs, [x])
    if not rest:
        return None, mine
    read = {v for node in rest for v in node.inputs()}
    return FusedWork(rest, [v for v in loop.inputs if v in read], others), mine
