"""Rows that are written to a leaf in place, such as those of a key/value cache.

``cache.index_copy_(2, place, row)`` and ``cache[:, k] = row`` are ops that copy the cache, and
their result is copied back when the run has succeeded: the time of a token would grow with the
length of the cache. If the old value of the leaf is not read any more, its rows are swapped in
place instead. The old ones are kept during the run, and restored if it fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from weft.compiler.ir import Value, WorkNode
from weft.compiler.ops import op_of
from weft.core.dispatch import REGISTRY

ndarray = np.ndarray
INDEX_COPY = REGISTRY["index_copy"]


def written_rows(
    nodes: Sequence[WorkNode],
    wanted: Collection[Any],
    writes: Mapping[int, Any],
    leaves: Mapping[int, Any],
) -> dict[WorkNode, int]:
    """The nodes that can write rows to a leaf, with the number of that leaf.

    ``wanted`` are the values that the program returns, ``writes`` those that leaves take.
    """
    readers = Counter(name for node in nodes for name in set(map(_name, node.inputs())))
    readers.update(_name(x) for x in wanted if isinstance(x, Value))
    home: dict[Value, int] = {}  # values that would share a leaf's memory
    chains: dict[int, list[WorkNode]] = {}
    for node in nodes:
        if op_of(node) is not INDEX_COPY or not isinstance(base := node.args[0], Value):
            continue
        leaf = home.get(base) if base.leaf is None else base.leaf
        if leaf is None or leaf not in writes or not _has_memory(leaves.get(leaf), node):
            continue
        others = [x for x in node.inputs() if _name(x) == _name(base)]
        passed_on = any(x is base for x in writes.values())
        if readers[_name(base)] == 1 == len(others) and not passed_on:
            home[node.results[0]] = leaf
            chains.setdefault(leaf, []).append(node)
    return {
        node: leaf
        for leaf, chain in chains.items()
        if chain[-1].results[0] is writes[leaf]
        for node in chain
    }


def _name(value: Value) -> Any:
    """A key that is equal for values that are the same leaf."""
    return value if value.leaf is None else value.leaf


def _has_memory(array: Any, node: WorkNode) -> bool:
    """Whether a leaf is a contiguous array, and there are rows to write."""
    return (
        isinstance(array, ndarray)
        and array.flags.c_contiguous
        and all(0 not in x.shape for x in node.inputs())
    )
