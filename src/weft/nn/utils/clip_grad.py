"""Keeping gradients small."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from weft.core.modes import no_grad
from weft.core.tensor import Tensor
from weft.operators import api


def _listed(parameters: Any) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        return [parameters]
    given = list(parameters)
    if isinstance(parameters, Iterable) and iter(parameters) is parameters and not given:
        warnings.warn(
            "`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3
        )
    return given


def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of several tensors as if they were one vector."""
    held = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not held:
        return api.FUNCTIONS["tensor"](0.0)
    vector_norm = api.NAMESPACES["linalg"]["vector_norm"]
    with no_grad():
        norms = [vector_norm(t, norm_type) for t in held]
        total = vector_norm(api.FUNCTIONS["stack"](norms), norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients whose norm is known to be ``total_norm`` down to ``max_norm``."""
    grads = [p.grad for p in _listed(parameters) if p.grad is not None]
    if not grads:
        return
    with no_grad():
        # No comparison: norms that are not finite must show in the gradients, as in PyTorch.
        factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(factor)


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their common norm is at most ``max_norm``; gives the norm.

    >>> w = torch.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> nn.utils.clip_grad_norm_([w], max_norm=1.0)
    tensor(10.)
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    held = _listed(parameters)
    grads = [p.grad for p in held if p.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(held, max_norm, total, foreach)
    return total


def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """The old name of ``clip_grad_norm_``."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(*args, **kwargs)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Keep every element of the gradients between ``-clip_value`` and ``clip_value``."""
    clip_value = float(clip_value)
    held = [parameters] if isinstance(parameters, Tensor) else parameters
    with no_grad():
        for parameter in held:
            if parameter.grad is not None:
                parameter.grad.clamp_(min=-clip_value, max=clip_value)
