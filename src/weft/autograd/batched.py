"""Gradients inside ``vmap``: examples don't depend on each other, so one pass serves them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core import errors
from weft.core.batching import has_level, is_batched, put_in, taken_out
from weft.core.modes import MODES
from weft.core.tensor import Tensor


def levels_of(tensors: Any) -> list[int]:
    """The batches that some of the tensors belong to, innermost first."""
    if not any(map(is_batched, tensors)):
        return []
    running = range(len(MODES.now.batches), 0, -1)
    return [level for level in running if any(has_level(t, level) for t in tensors)]


def grad(
    plain: Callable, outputs: Any, inputs: Any, seeds: Any, levels: list[int], more: tuple[Any, ...]
) -> tuple[Any, ...]:
    """``autograd.grad`` of batched tensors, by way of their physical tensors.

    The batches of outputs and inputs become dimensions; gradients may have further batches, as
    rows of a Jacobian do.
    """
    seeds = [*seeds, *(None,) * (len(outputs) - len(seeds))]
    seeds = [
        o.new_ones(o.shape) if s is None and isinstance(o, Tensor) and o.numel() == 1 else s
        for o, s in zip(outputs, seeds, strict=True)
    ]
    inside: list[list[int]] = [[] for _ in inputs]
    outputs, inputs = list(outputs), list(inputs)
    for level in levels:
        size = MODES.now.batches[level - 1][0]
        batched = [has_level(o, level) for o in outputs]
        for k, x in enumerate(inputs):
            if has_level(x, level):
                inside[k].append(level)
                inputs[k] = taken_out(x, level)
            elif any(batched):
                raise _shared(k)
        for k, s in enumerate(seeds):
            if not batched[k]:
                continue
            outputs[k] = taken_out(outputs[k], level)
            if has_level(s, level):
                seeds[k] = taken_out(s, level)
            elif isinstance(s, Tensor):
                seeds[k] = s.unsqueeze(0).expand(size, *s._a.shape)
    found = list(plain(outputs, inputs, seeds, *more))
    for k, levels_inside in enumerate(inside):
        for level in reversed(levels_inside):
            if found[k] is not None:
                found[k] = put_in(found[k], level)
    return tuple(found)


def _shared(k: int) -> RuntimeError:
    return RuntimeError(
        f"grad(): inside vmap input {k} is shared by all examples, so its gradient for each of "
        "them is not known. Use torch.func.grad, which gives every example its own, or pass the "
        f"tensor through vmap with in_dims=None and expand it\n  at {errors.here()}"
    )
