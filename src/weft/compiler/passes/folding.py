"""Constant folding: small values that are the same in every run are computed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler.ir import Node
from weft.compiler.ops import OpWork

LARGEST = 16  # elements; repeated constants are views, which cost nothing


def folded(nodes: Sequence[Node]) -> list[Node]:
    """The nodes that are left when those of constants alone have become constants."""
    left = []
    for node in nodes:
        inputs = list(node.inputs())
        fits = inputs and all(x.constant is not None for x in inputs)
        small = all(np.prod(r.shape, dtype=np.int64) <= LARGEST for r in node.results)
        if not (fits and small and isinstance(node.work, OpWork) and _fold(node)):
            left.append(node)
    return left


def _fold(node: Node) -> bool:
    args = [getattr(x, "constant", x) for x in node.args]
    try:
        found = node.work.python(*args)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return False  # it is left for a run to fail
    for value, array in zip(node.results, found, strict=True):
        if array.shape != value.shape or array.dtype != value.dtype:
            return False
    for value, array in zip(node.results, found, strict=True):
        value.constant = np.array(array)
    return True
