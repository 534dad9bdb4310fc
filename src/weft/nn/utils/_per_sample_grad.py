"""Gradients for each example of a batch, left at the parameters by an ordinary backward pass.

A module is called with ``ExpandedWeight`` objects instead of its parameters. The functions of
layers that know how to treat one run once for the whole batch, as always; their backward pulls the
gradient back through the same function for each example, by ``vmap``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import weft.nn.functional as F
from weft.autograd.function import Function
from weft.core import overrides
from weft.core.errors import here
from weft.core.tensor import Tensor
from weft.func import functional_call, vjp, vmap
from weft.nn.module import Module
from weft.utils import _pytree

__all__ = ["call_for_per_sample_grads"]

# The least rank of a batch, where the function also takes a single example.
_RANKS = {
    F.linear: 2, F.embedding: 2, F.conv1d: 3, F.conv2d: 4, F.conv3d: 5, F.layer_norm: 1,
    F.group_norm: 2, F.instance_norm: 2,
}  # fmt: skip


class ExpandedWeight(Tensor):
    """A parameter whose gradient is to be kept for each example of a batch."""

    def __new__(cls, orig_weight: Tensor, batch_size: int, loss_reduction: str) -> ExpandedWeight:
        if not isinstance(orig_weight, Tensor):
            raise RuntimeError(
                "Can only make Expanded Weights of Tensors, got "
                f"{type(orig_weight).__name__}\n  at {here()}"
            )
        if not orig_weight.requires_grad:
            raise RuntimeError(
                "Can only build ExpandedWeights objects of tensors that requires_grad\n"
                f"  at {here()}"
            )
        return Tensor._make_subclass(cls, orig_weight, True)

    def __init__(self, orig_weight: Tensor, batch_size: int, loss_reduction: str) -> None:
        self.orig_weight = orig_weight
        self.batch_size = batch_size
        self.loss_reduction = loss_reduction

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a layer's function; all others are refused, since their batch is not known."""
        name = getattr(func, "__name__", str(func))
        if func in _RANKS:
            return _call(func, args, kwargs or {})
        if name == "__get__":
            with overrides.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise RuntimeError(
            f"Expanded Weights encountered but cannot handle function {name}\n  at {here()}"
        )


# Classes of weft's own do not switch it on by being defined.
overrides.switch_on()


def _call(func: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bound = inspect.signature(func).bind(*args, **kwargs)
    given = bound.arguments
    names = [name for name, value in given.items() if isinstance(value, ExpandedWeight)]
    weights = [given.pop(name) for name in names]
    batch = next(iter(given.values()), None)
    _check(func, batch, given, weights)

    def run(x: Tensor, *values: Tensor, **changed: Any) -> Tensor:
        first = next(iter(given))
        return func(**{**given, **dict(zip(names, values, strict=True)), **changed, first: x})

    return _PerSample.apply(run, weights, _unchanging(func, given), batch, *_originals(weights))


def _originals(weights: list[ExpandedWeight]) -> list[Tensor]:
    return [weight.orig_weight for weight in weights]


def _unchanging(func: Callable, given: dict[str, Any]) -> dict[str, Any]:
    """What a function is given when it runs for its gradient, so that it changes nothing else."""
    if func is F.embedding:
        # As in PyTorch the gradient for each example knows nothing of padding and frequencies.
        return {"padding_idx": None, "max_norm": None, "scale_grad_by_freq": False}
    if func is F.instance_norm and given.get("use_input_stats", True):
        return {"running_mean": None, "running_var": None}
    return {}


def _check(func: Any, batch: Any, given: dict[str, Any], weights: list[ExpandedWeight]) -> None:
    name = func.__name__
    if not isinstance(batch, Tensor):
        raise RuntimeError(
            "Expanded Weights requires a Tensor as the first input to get the batch dimension, "
            f"got {type(batch).__name__} in function {name}\n  at {here()}"
        )
    least = _RANKS[func]
    if func is F.layer_norm:
        least = len(given["normalized_shape"]) + 1
    if batch.ndim < least:
        raise RuntimeError(
            f"Expanded Weights needs an input with a batch dimension: {name} got one of rank "
            f"{batch.ndim}, expected at least {least}\n  at {here()}"
        )
    if batch.shape[0] == 0:
        raise RuntimeError(
            f"0 is not a valid batch size for Expanded Weights, in function {name}\n  at {here()}"
        )
    for weight in weights:
        if weight.batch_size != batch.shape[0]:
            raise RuntimeError(
                "Expected ExpandedWeights to have batch size matching input but got input batch "
                f"size of {batch.shape[0]} with ExpandedWeight of batch size {weight.batch_size}\n"
                f"  at {here()}"
            )


class _PerSample(Function):
    """A layer's function, with the gradient of each example for its parameters."""

    @staticmethod
    def forward(
        ctx: Any, run: Callable, weights: Any, unchanging: Any, batch: Tensor, *originals: Tensor
    ) -> Tensor:
        ctx.run = functools.partial(run, **unchanging)
        ctx.weights = weights
        ctx.save_for_backward(batch, *originals)
        return run(batch, *originals)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        batch, *originals = ctx.saved_tensors
        found = None
        if ctx.needs_input_grad[3]:
            _, pull = vjp(lambda x: ctx.run(x, *originals), batch)
            (found,) = pull(grad)

        def one(example: Tensor, seed: Tensor) -> tuple[Tensor, ...]:
            _, pull = vjp(lambda *w: ctx.run(example.unsqueeze(0), *w), *originals)
            return pull(seed.unsqueeze(0))

        for weight, samples in zip(ctx.weights, vmap(one)(batch, grad), strict=True):
            _add(weight, samples)
        return (None, None, None, found, *(None for _ in originals))


def _add(weight: ExpandedWeight, samples: Tensor) -> None:
    if weight.loss_reduction == "mean":
        samples = samples * weight.batch_size
    target: Any = weight.orig_weight
    before = getattr(target, "grad_sample", None)
    target.grad_sample = samples if before is None else before + samples


def call_for_per_sample_grads(
    module: Any,
    *,
    batch_size: int | None = None,
    loss_reduction: str = "sum",
    batch_first: bool = True,
) -> Callable:
    """The module as a function whose backward fills ``grad_sample`` of its parameters.

    Their ``grad`` stays as it is. With ``loss_reduction="mean"`` what an example adds is taken
    times the batch size, since the loss has divided by it.

    >>> import weft as torch
    >>> from weft.nn.utils._per_sample_grad import call_for_per_sample_grads
    >>> layer = torch.nn.Linear(4, 3)
    >>> call_for_per_sample_grads(layer)(torch.ones(5, 4)).sum().backward()
    >>> layer.weight.grad_sample.shape, layer.weight.grad
    (torch.Size([5, 3, 4]), None)
    """
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(
            f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}\n"
            f"  at {here()}"
        )
    if not isinstance(module, Module):
        raise RuntimeError(
            f"Module passed must be nn.Module, got {type(module).__name__}\n  at {here()}"
        )
    if not (batch_size is None or isinstance(batch_size, int)):
        raise RuntimeError(
            "Batch size passed must be None or an integer, got "
            f"{type(batch_size).__name__}\n  at {here()}"
        )
    if batch_size is not None and batch_size < 1:
        raise RuntimeError(f"Batch size must be positive, got {batch_size}\n  at {here()}")
    for name, weight in module.named_parameters():
        if getattr(weight, "grad_sample", None) is not None:
            raise RuntimeError(
                f"{name} has a grad_sample already, and gradients of several calls would be added "
                f"up: set it to None first\n  at {here()}"
            )

    @functools.wraps(module.forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        size = batch_size if batch_size is not None else _size(args, kwargs, batch_first)
        expanded: dict[str, Tensor] = {
            name: ExpandedWeight(value, size, loss_reduction) if value.requires_grad else value
            for name, value in module.named_parameters()
        }
        return functional_call(module, expanded, args, kwargs)

    return call


def _size(args: Any, kwargs: Any, batch_first: bool) -> int:
    tensors = [x for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    sizes = {x.shape[0 if batch_first else 1] for x in tensors}
    if len(sizes) == 1:
        return sizes.pop()
    problem = f"found the sizes {sorted(sizes)}" if sizes else "unable to find a tensor"
    raise RuntimeError(
        f"When computing batch size, {problem} in the passed args and kwargs: pass batch_size to "
        f"call_for_per_sample_grads\n  at {here()}"
    )
