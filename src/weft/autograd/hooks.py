"""What hooks on gradients may return: PyTorch's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.core import dtype as dt
from weft.core.node import GraphNode, OpNode
from weft.core.tensor import Tensor


def replacement(
    hook: Callable, found: Any, given: Sequence[Any], node: GraphNode
) -> tuple[Any, ...]:
    """The return value of a hook, if it can replace the gradients."""
    hook = getattr(hook, "__wrapped__", hook)  # a tensor's, which takes and gives one gradient
    name = getattr(hook, "__name__", "<unknown>")
    place = f"\n  on {node.name()}"
    place += f", recorded at {node.source}" if isinstance(node, OpNode) else ""
    if not isinstance(found, tuple):
        raise TypeError(f"expected tuple, but hook returned {type(found).__name__!r}{place}")
    if len(found) != len(given):
        raise RuntimeError(
            f"hook {name!r} has returned an incorrect number of values (got {len(found)}, but "
            f"expected {len(given)}){place}"
        )
    for new, old in zip(found, given, strict=True):
        if new is None:
            continue
        if not isinstance(new, Tensor):
            raise TypeError(f"expected Variable, but hook returned {type(new).__name__!r}{place}")
        if old is None:
            raise RuntimeError(
                f"can't replace a None gradient with a non-None value: hook {name!r}{place}"
            )
        if new._a.shape != old._a.shape:
            raise RuntimeError(
                f"hook {name!r} has changed the size of value (was {list(old.shape)} got "
                f"{list(new.shape)}){place}"
            )
        if new._a.dtype != old._a.dtype:
            was, got = (f"torch.{dt.TYPE_NAMES[x.dtype.name]}Tensor" for x in (old, new))
            raise RuntimeError(
                f"hook {name!r} has changed the type of value (was {was} got {got}){place}"
            )
    return found
