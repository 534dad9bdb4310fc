"""Constant folding: small values that are the same in every run are computed once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft.compiler.ir import WorkNode
from weft.compiler.ops import OpWork

LARGEST = 16  # elements; expanded constants are views, which cost nothing


def folded(nodes: Sequence[WorkNode]) -> list[WorkNode]:
    """The remaining nodes after nodes that depend only on constants have become constants."""
    left = []
    for node in nodes:
        if not (_is_constant(node) and _fold(node)):
            left.append(node)
    return left


def _is_constant(node: WorkNode) -> bool:
    """Whether an op reads only constants, and returns few elements."""
    inputs = node.inputs()
    for x in inputs:
        if x.constant is None:
            return False
    small = all(math.prod(r.shape) <= LARGEST for r in node.results)
    return bool(inputs) and small and isinstance(node.work, OpWork)


def _fold(node: WorkNode) -> bool:
    args = [getattr(x, "constant", x) for x in node.args]
    try:
        found = node.work.python(*args)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return False  # errors are left to the run
    for value, array in zip(node.results, found, strict=True):
        if array.shape != value.shape or array.dtype != value.dtype:
            return False
    for value, array in zip(node.results, found, strict=True):
        value.constant = np.array(array)
    return True
