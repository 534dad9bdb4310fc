"""Horizontal batching: products of many inputs with one weight become one product.

A cell reads each of its inputs, and a tree joins the children of a level, by independent products
with the same weight. Their inputs are stacked, and the results are rows of one result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.compiler.ir import Value, WorkNode, links
from weft.compiler.ops import OpWork, op_of
from weft.core.dispatch import REGISTRY

CAT, SPLIT, RESHAPE = REGISTRY["cat"], REGISTRY["split"], REGISTRY["reshape"]
# By op: the dimension of the weight that becomes the result's.
PRODUCTS = {REGISTRY["linear"]: 0, REGISTRY["linear_with_bias"]: 0, REGISTRY["mm"]: 1}
TYPES = (np.dtype(np.float32), np.dtype(np.float64))
FEWEST = 4  # products for which this pays
ROWS = 1024  # at most, for one product, since all of its results exist at the same time
WEIGHTS = 32  # that are looked at

Batch = list[WorkNode]


def batched(nodes: Sequence[WorkNode]) -> list[WorkNode]:
    """The nodes, with independent products with one weight as one product."""
    counts: dict[Any, int] = {}
    for node in nodes:
        if (key := _key(node)) is not None:
            counts[key] = counts.get(key, 0) + 1
    found = list(nodes)
    for key in [key for key, count in counts.items() if count >= FEWEST][:WEIGHTS]:
        pieces = [piece for level in _levels(found, key) for piece in _pieces(level)]
        batches = [piece for piece in pieces if len(piece) >= FEWEST]
        if batches:
            found = _together(found, batches)
    return found


def _key(node: WorkNode) -> Any:
    """A key that is equal for products that can be combined: the weight, and everything but the
    input.

    None if it is not such a product, or if copying its rows takes longer than reading the weight.
    """
    op = op_of(node)
    if op not in PRODUCTS:
        return None
    x, weight = node.args[:2]
    if len(x.shape) not in (1, 2) or len(weight.shape) != 2 or x.dtype not in TYPES:
        return None
    if any(v.dtype != x.dtype for v in node.inputs()):
        return None
    (y,) = node.results
    rows, k, n = _rows(node), x.shape[-1], weight.shape[PRODUCTS[op]]
    fits = y.shape == (*x.shape[:-1], n)
    return (op, node.args[1:]) if fits and 0 < rows * (n + k) <= n * k else None


def _rows(node: WorkNode) -> int:
    x: Value = node.args[0]
    return x.shape[0] if len(x.shape) == 2 else 1


def _levels(nodes: Iterable[WorkNode], key: Any) -> Iterable[Batch]:
    """The products of a key, grouped so that those of a group are independent.

    A product is one level above the highest that it depends on, directly or indirectly.
    """
    height: dict[Value, int] = {}
    levels: dict[int, Batch] = {}
    last = 0  # for nodes with side effects, which keep their order
    for node in nodes:
        here = max((height.get(x, 0) for x in node.inputs()), default=0)
        if not node.work.pure:
            here = last = max(here, last)
        if _key(node) == key:
            here += 1
            levels.setdefault(here, []).append(node)
        height.update(dict.fromkeys(node.results, here))
    return levels.values()


def _pieces(level: Batch) -> Iterator[Batch]:
    """The products of a level, in batches with a limited number of rows."""
    piece: Batch = []
    rows = 0
    for node in level:
        if piece and rows + _rows(node) > ROWS:
            yield piece
            piece, rows = [], 0
        piece.append(node)
        rows += _rows(node)
    yield piece


def _together(nodes: Sequence[WorkNode], batches: list[Batch]) -> list[WorkNode]:
    """The nodes with each batch as one product, placed after everything it reads."""
    unit = {node: [node] for node in nodes}
    for batch in batches:
        unit.update(dict.fromkeys(batch, batch))
    maker, _ = links(nodes)
    before: dict[WorkNode, WorkNode] = {}
    impure = [node for node in nodes if not node.work.pure]
    before.update(zip(impure[1:], impure, strict=False))
    done: set[int] = set()
    found: list[WorkNode] = []
    for start in nodes:
        stack = [unit[start]]
        while stack:
            group = stack[-1]
            if id(group) in done:
                stack.pop()
                continue
            needed = [maker[x] for node in group for x in node.inputs() if x in maker]
            needed += [before[node] for node in group if node in before]
            if waits := [unit[node] for node in needed if id(unit[node]) not in done]:
                stack += waits
                continue
            stack.pop()
            done.add(id(group))
            found += group if len(group) == 1 else _product(group)
    return found


def _product(batch: Batch) -> list[WorkNode]:
    """The nodes of one product, which compute the results of all."""
    first = batch[0]
    made: list[WorkNode] = []

    def node(work: Any, args: Any, *results: Value) -> tuple[Value, ...]:
        made.append(WorkNode(work, args, results, first.spec))
        return results

    def shaped(x: Value, shape: tuple[int, ...]) -> Value:
        if x.shape == shape:
            return x
        return node(OpWork(RESHAPE, {"shape": shape}), (x,), Value(shape, x.dtype))[0]

    (y,) = first.results
    rows, (k, n) = [_rows(one) for one in batch], (first.args[0].shape[-1], y.shape[-1])
    inputs = [shaped(one.args[0], (m, k)) for one, m in zip(batch, rows, strict=True)]
    x = node(OpWork(CAT, {"dim": 0}), inputs, Value((sum(rows), k), y.dtype))
    whole = node(first.work, (*x, *first.args[1:]), Value((sum(rows), n), y.dtype))
    results = [one.results[0] for one in batch]
    parts = [r if len(r.shape) == 2 else Value((1, n), r.dtype) for r in results]
    node(OpWork(SPLIT, {"sizes": tuple(rows), "dim": 0}), whole, *parts)
    for part, result in zip(parts, results, strict=True):
        if part is not result:
            node(OpWork(RESHAPE, {"shape": result.shape}), (part,), result)
    return made
