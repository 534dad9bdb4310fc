"""Optimizers as functions of lists: parameters, gradients, and the state of each parameter."""

from __future__ import annotations

import inspect
from typing import Any

from weft.core import errors
from weft.core.modes import enable_grad
from weft.core.tensor import Tensor
from weft.optim.elementwise import Elementwise


def take_steps(
    kind: type[Elementwise], given: dict[str, Any], state: dict[str, Any], **settings: Any
) -> None:
    """One step of an optimizer for each parameter, on the state that the lists hold.

    ``given`` is all that the function was called with; what the optimizer has as a setting of the
    same name is passed on to it.
    """
    if given.get("grad_scale") is not None or given.get("found_inf") is not None:
        raise AssertionError(
            "Expected grad_scale and found_inf to be None: unscale the gradients first\n"
            f"  at {errors.here()}"
        )
    params, grads, *_ = given.values()
    if "beta1" in given:
        settings["betas"] = (given["beta1"], given["beta2"])
    known = inspect.signature(kind).parameters.keys() - {"params"}
    settings = {name: value for name, value in given.items() if name in known} | settings
    for i, (p, grad) in enumerate(zip(params, grads, strict=True)):
        _step(kind, p, grad, {n: v for n, v in state.items() if v}, i, settings)


def _step(
    kind: type[Elementwise], p: Tensor, grad: Tensor, state: dict[str, Any], i: int,
    settings: dict[str, Any],
) -> None:  # fmt: skip
    differentiable = settings.get("differentiable")
    # What stands in shares the memory and the version, and leaves the user's .grad alone.
    target = p if differentiable else p.detach()
    kept, target._grad = target._grad, grad
    try:
        optimizer = kind([target], **settings)
        own = {name: values[i] for name, values in state.items()}
        optimizer.state[target] = {n: v for n, v in own.items() if v is not None}
        group = optimizer.param_groups[0]
        if differentiable:
            with enable_grad():
                optimizer._step_by_ops(group)
        else:
            if group.get("capturable"):
                optimizer._refuse_capturable(group)
            optimizer._step_group(0, group)
    finally:
        target._grad = kept
    for name in own:
        state[name][i] = optimizer.state[target].get(name)
