"""The shapes and dtypes of a graph's values, found by running it."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
from weft.core.tensor import Tensor
from weft.fx.interpreter import Interpreter
from weft.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values."""

    shape: weft.Size
    dtype: weft.dtype
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool = False
    qparams: Any = None


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    form = next(
        (
            f
            for f in (weft.contiguous_format, weft.channels_last, weft.channels_last_3d)
            if include_contiguity and result.is_contiguous(memory_format=f)
        ),
        None,
    )
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), form)


class ShapeProp(Interpreter):
    """Runs a graph, and puts ``tensor_meta`` and ``type`` into each node's ``meta``."""

    def run_node(self, n: Node) -> Any:
        """Run a node and note what its result is."""
        result = super().run_node(n)
        found: list[Tensor] = []

        def extract(value: Any) -> Any:
            if isinstance(value, Tensor):
                found.append(value)
                return _extract_tensor_metadata(value)
            return value

        meta = map_aggregate(result, extract)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on these arguments."""
        return super().run(*args)
