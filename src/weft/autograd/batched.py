"""Gradients inside ``vmap``: examples don't depend on each other, so one pass serves them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from weft.core import errors
from weft.core.batching import (
    batched,
    has_level,
    highest,
    is_batched,
    level_of,
    physical_of,
    put_in,
    repeated,
    taken_out,
)
from weft.core.dispatch import REGISTRY
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
        mapped = [has_level(o, level) for o in outputs]
        for k, x in enumerate(inputs):
            if has_level(x, level):
                inside[k].append(level)
                inputs[k] = taken_out(x, level)
            elif any(mapped):
                raise _shared(k)
        for k, s in enumerate(seeds):
            if not mapped[k]:
                continue
            outputs[k] = taken_out(outputs[k], level)
            if has_level(s, level):
                seeds[k] = taken_out(s, level)
            elif isinstance(s, Tensor):
                seeds[k] = repeated(s, size)
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


class VmapInfo(NamedTuple):
    """The batch information passed to a ``vmap`` staticmethod."""

    batch_size: int
    randomness: str


def call_batched(cls: Any, base: Any, args: tuple[Any, ...]) -> Any:
    """A custom Function on a batch: by its own ``vmap``, or on one example after the other."""
    name, own = cls.__name__, cls.vmap is not base.vmap
    if cls.setup_context is base.setup_context:
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, "
            f"jacrev, ...), it must override the setup_context staticmethod: {name} does not\n"
            f"  at {errors.here()}"
        )
    if own and cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {name}, but it has both generate_vmap_rule=True and an "
            f"overridden vmap staticmethod. Please set generate_vmap_rule=False or delete the "
            f"overridden vmap staticmethod\n  at {errors.here()}"
        )
    if not own and not cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {name}, but it does not have vmap support. Please override "
            "and implement the vmap staticmethod or set generate_vmap_rule=True\n"
            f"  at {errors.here()}"
        )
    level = highest(args)
    size, randomness = MODES.now.batches[level - 1]
    inside = [physical_of(x) if level_of(x) == level else x for x in args]
    dims = tuple(0 if level_of(x) == level else None for x in args)
    if own:
        out, places = cls.vmap(VmapInfo(size, randomness), dims, *inside)
        many = isinstance(out, tuple)
        places = places if isinstance(places, tuple) else (places,) * (len(out) if many else 1)
    else:
        pairs = list(zip(inside, dims, strict=True))
        rows = [
            cls.apply(*(x if d is None else x.select(0, i) for x, d in pairs)) for i in range(size)
        ]
        many = isinstance(rows[0], tuple)
        stack = REGISTRY["stack"]
        columns = zip(*rows, strict=True) if many else (rows,)
        out = tuple(stack(*column, dim=0) for column in columns)
        out, places = (out if many else out[0]), (0,) * len(out)
    results = tuple(
        o if d is None else batched(o.movedim(d, 0), level)
        for o, d in zip(out if many else (out,), places, strict=True)
    )
    return results if many else results[0]
