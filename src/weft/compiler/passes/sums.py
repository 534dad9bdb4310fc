"""Sums of products: the weight gradient of a layer that is applied repeatedly is one product.

Each application adds the product of a gradient and an input to the gradient of the weight, which is
as large as the weight however few rows the two have. The sum of these products is the product of
all stacked gradients and inputs; so the weight's gradient is written once. The bias's gradient is
the sum over all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.ir import Value, WorkNode, links
from weft.compiler.ops import OpWork, op_of
from weft.core.dispatch import REGISTRY

ADD, CAT, MM, SUM = REGISTRY["add"], REGISTRY["cat"], REGISTRY["mm"], REGISTRY["sum"]
TRANSPOSE, PERMUTE, RESHAPE = REGISTRY["transpose"], REGISTRY["permute"], REGISTRY["reshape"]
TYPES = (np.dtype(np.float32), np.dtype(np.float64))
FEWEST = 4  # terms of a sum for which this pays
ROWS = 1024  # that are stacked at most, since they stay alive until then


class _Product(NamedTuple):
    """A term ``g.T @ x`` of a sum, or one that is the sum of the rows of g."""

    node: WorkNode
    g: Value
    x: Value | None


class _Uses:
    """The nodes by the values that they compute and read, and their order."""

    def __init__(self, nodes: Sequence[WorkNode], ends: Iterable[Any]) -> None:
        self.maker, self.readers = links(nodes)
        self.wanted = {x for x in ends if isinstance(x, Value)}
        self.place = {node: k for k, node in enumerate(nodes)}

    def is_read_once(self, value: Value) -> bool:
        """Whether exactly one node reads a value, as one of its operands."""
        own = self.readers.get(value, [])
        return len(own) == 1 and own[0].args.count(value) == 1 and value not in self.wanted

    def made_by(self, value: Value, op: Any) -> WorkNode | None:
        """The node that computes a value, if it is of a certain op."""
        node = self.maker.get(value)
        return node if node is not None and op_of(node) is op else None


def products_joined(nodes: Sequence[WorkNode], ends: Iterable[Any]) -> list[WorkNode]:
    """The nodes, with sums of products as one product; unused nodes become dead code."""
    if sum(op_of(node) is ADD for node in nodes) < FEWEST - 1:
        return list(nodes)
    known = _Uses(nodes, ends)
    behind: dict[WorkNode, list[WorkNode]] = {}
    instead: dict[WorkNode, list[WorkNode]] = {}
    sums = {n: _terms(n, known) for n in nodes if _is_sum(n) and _is_whole(n, known)}
    joined: set[tuple[Value, ...]] = set()
    for read in (_product, _summed_rows):
        for root, terms in sums.items():
            found = [read(v, known) for v in terms]
            products = [p for p in found if p is not None]
            of = tuple(p.g for p in products)
            if root in instead or not (_pays(products) if read is _product else of in joined):
                continue
            joined.add(of)
            rest = [v for v, p in zip(terms, found, strict=True) if p is None]
            instead[root] = _joined(root, rest, products, known, behind)
    changed = [new for n in nodes for new in (*instead.get(n, [n]), *behind.get(n, ()))]
    return changed if instead else list(nodes)


def _is_sum(node: WorkNode) -> bool:
    """Whether a node adds two arrays of the shape and dtype of its result."""
    if op_of(node) is not ADD or len(node.inputs()) != 2:
        return False
    (y,) = node.results
    return y.dtype in TYPES and all(x.shape == y.shape and x.dtype == y.dtype for x in node.args)


def _is_whole(node: WorkNode, known: _Uses) -> bool:
    """Whether a sum is not a part of another one."""
    (y,) = node.results
    return not (known.is_read_once(y) and _is_sum(known.readers[y][0]))


def _terms(root: WorkNode, known: _Uses) -> list[Value]:
    """The terms of a sum, from the first on; a repeated term is listed twice."""
    found: list[Value] = []
    stack: list[Value] = list(root.args[::-1])
    while stack:
        value = stack.pop()
        node = known.maker.get(value)
        if node is not None and _is_sum(node) and known.is_read_once(value):
            stack += node.args[::-1]
        else:
            found.append(value)
    return found


def _transposed(value: Value, known: _Uses) -> Value | None:
    """The matrix of which a value is the transpose, if it is one."""
    node = known.maker.get(value)
    if node is None or len(value.shape) != 2 or op_of(node) not in (TRANSPOSE, PERMUTE):
        return None
    attrs = node.work.attrs  # type: ignore[attr-defined]
    dims = attrs["dims"] if op_of(node) is PERMUTE else (attrs["dim1"], attrs["dim0"])
    order = [d % 2 for d in dims]
    return (
        node.args[0] if order == [1, 0] or (order == [0, 1] and op_of(node) is TRANSPOSE) else None
    )


def _product(value: Value, known: _Uses) -> _Product | None:
    """A term as a product of a transposed matrix, if it has no other reader."""
    outer = _transposed(value, known)  # (x.T @ g).T is g.T @ x
    inner = value if outer is None else outer
    node = known.made_by(inner, MM)
    if node is None or not (known.is_read_once(value) and known.is_read_once(inner)):
        return None
    left, right = node.args
    source = _transposed(left, known)
    if source is None or not (source.dtype == right.dtype == value.dtype):
        return None
    return _Product(node, *((source, right) if outer is None else (right, source)))


def _summed_rows(value: Value, known: _Uses) -> _Product | None:
    """A term as the sum of all rows of a matrix."""
    same = known.made_by(value, RESHAPE)
    if same is not None and same.args[0].shape == value.shape:
        (value,) = same.inputs()
    node = known.made_by(value, SUM)
    if node is None or len(node.args[0].shape) != 2 or node.args[0].dtype != value.dtype:
        return None
    attrs = node.work.attrs  # type: ignore[attr-defined]
    plain = attrs["dim"] == (0,) and not attrs["keepdim"]
    return _Product(node, node.args[0], None) if plain else None


def _pays(products: Any) -> bool:
    """Whether stacking the matrices takes less time than adding up the products."""
    sizes = [(*p.g.shape, p.x.shape[1]) for p in products]
    return len(sizes) >= FEWEST and all(0 < rows * (n + k) <= n * k for rows, n, k in sizes)


def _pieces(products: Iterable[_Product]) -> Iterator[list[_Product]]:
    """The products, in batches with a limited number of rows."""
    piece: list[_Product] = []
    rows = 0
    for p in products:
        if piece and rows + p.g.shape[0] > ROWS:
            yield piece
            piece, rows = [], 0
        piece.append(p)
        rows += p.g.shape[0]
    yield piece


def _joined(
    root: WorkNode,
    rest: list[Value],
    products: list[_Product],
    known: _Uses,
    behind: dict[WorkNode, list[WorkNode]],
) -> list[WorkNode]:
    """The sum of a few large products and the rest of the terms, which replaces a sum.

    Each product is placed after the last of those that it replaces.
    """
    for piece in _pieces(products):
        last = max((p.node for p in piece), key=known.place.__getitem__)
        made = _one(piece, root)
        behind.setdefault(last, []).extend(made)
        rest.append(made[-1].results[0])
    if len(rest) == 1:
        behind[last][-1].results = root.results
        return []
    found, value = [], rest[0]
    for term in rest[1:]:
        found.append(_op(ADD, (value, term), value.shape, root))
        (value,) = found[-1].results
    found[-1].results = root.results
    return found


def _one(piece: list[_Product], root: WorkNode) -> list[WorkNode]:
    """Several products as one."""
    g = _together([p.g for p in piece], root)
    (left,) = g.results
    inputs = [p.x for p in piece if p.x is not None]
    if not inputs:
        return [g, WorkNode(piece[0].node.work, (left,), [_like(root)], root.spec)]
    x = _together(inputs, root)
    transposed = _op(TRANSPOSE, (left,), left.shape[::-1], root, dim0=0, dim1=1)
    args = (*transposed.results, *x.results)
    return [g, x, transposed, _op(MM, args, root.results[0].shape, root)]


def _like(root: WorkNode) -> Value:
    return Value(root.results[0].shape, root.results[0].dtype)


def _op(op: Any, args: Any, shape: Any, root: WorkNode, **attrs: Any) -> WorkNode:
    """A node for one op, with the dtype of a sum."""
    return WorkNode(OpWork(op, attrs), args, [Value(shape, root.results[0].dtype)], root.spec)


def _together(values: Sequence[Value], root: WorkNode) -> WorkNode:
    """The rows of all matrices as one matrix."""
    shape = (sum(v.shape[0] for v in values), values[0].shape[1])
    return _op(CAT, values, shape, root, dim=0)
