"""Rewriting the work of a program, one purpose at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.compiler.ir import WorkNode
from weft.compiler.passes.batching import batched
from weft.compiler.passes.chosen import chosen
from weft.compiler.passes.common import without_repeats
from weft.compiler.passes.cropping import cropped
from weft.compiler.passes.dead import without_dead
from weft.compiler.passes.folding import folded
from weft.compiler.passes.fusion import fused
from weft.compiler.passes.pooling import pooled_first
from weft.compiler.passes.products import rectified
from weft.compiler.passes.rows import rows_fused
from weft.compiler.passes.squares import squares
from weft.compiler.passes.sums import products_joined


def optimized(nodes: Sequence[WorkNode], ends: Sequence[Any]) -> tuple[list[WorkNode], list[Any]]:
    """The remaining nodes to run for some values, and the values that replace these."""
    nodes = without_dead(nodes, ends)
    nodes = without_dead(products_joined(folded(nodes), ends), ends)
    nodes, ends = without_repeats(nodes, ends)
    nodes = cropped(pooled_first(batched(nodes), ends), ends)
    nodes = without_dead(squares(chosen(nodes, ends), ends), ends)
    return rows_fused(fused(rectified(nodes, ends), ends), ends), ends
