"""Muon."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import errors, quiet
from weft.core.devices import changed_on_host, host
from weft.core.gate import announce
from weft.core.inplace import bump
from weft.core.tensor import Tensor
from weft.graph import steps
from weft.optim.elementwise import zeros_like
from weft.optim.optimizer import (
    Optimizer,
    ParamsT,
    check_gradients,
    check_lr,
    check_range,
    number,
    run_closure,
)
from weft.references import optimizers as kernels

__all__ = ["Muon"]


class Muon(Optimizer):
    """Momentum whose matrix is made orthogonal before each step; for matrices only."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_lr(lr, "Learning rate should be >= 0 but is")
        check_range(momentum >= 0.0, f"momentum should be >= 0 but is: {momentum}")
        check_range(weight_decay >= 0.0, f"weight decay should be >= 0 but is: {weight_decay}")
        check_range(
            adjust_lr_fn in (None, "original", "match_rms_adamw"),
            f"Adjust learning rate function {adjust_lr_fn} is not supported",
        )
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                check_range(
                    p.ndim == 2,
                    "Muon only supports 2D parameters whereas we found a parameter with size: "
                    f"{p.size()}",
                )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once; a closure recomputes the loss, which is returned."""
        loss = run_closure(closure)
        check_gradients(self.param_groups)
        token = quiet.enter()
        try:
            for group in self.param_groups:
                check_range(
                    group["ns_steps"] < 100,
                    "Number of steps must be less than 100 for computational efficiency",
                )
                check_range(
                    len(group["ns_coefficients"]) == 3,
                    "Coefficients must be a tuple of exactly 3 values",
                )
                for p in group["params"]:
                    if p._grad is not None:
                        self._update(p, group)
        finally:
            quiet.leave(token)
        return loss

    def _update(self, p: Tensor, group: dict[str, Any]) -> None:
        if p.is_complex():
            raise RuntimeError(f"Muon does not support complex parameters\n  at {errors.here()}")
        own = self.state[p]
        if "momentum_buffer" not in own:
            own["momentum_buffer"] = zeros_like(p)
        if p.is_meta:
            bump(p, "Muon")
            return
        buffer = own["momentum_buffer"]
        announce(p._a, p)
        announce(buffer._a)
        with changed_on_host(p, buffer) as (value, momentum):
            self._change(group, value, host(p._grad), momentum)
        bump(p, "Muon")
        bump(own["momentum_buffer"], "Muon")

    def _names_of(self, p: Tensor, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",)

    @classmethod
    def updated(
        cls, group: dict[str, Any], p: Any, g: Any, states: list[Any], counters: list[Any]
    ) -> list[np.ndarray]:
        """One step of one parameter as a function of arrays: the parameter and its momentum."""
        value, buffer = np.array(host(p)), np.array(host(states[0]))
        token = quiet.enter()
        try:
            cls._change(group, value, host(g), buffer)
        finally:
            quiet.leave(token)
        return [value, buffer]

    @classmethod
    def _change(
        cls, group: dict[str, Any], value: np.ndarray, grad: np.ndarray, buffer: np.ndarray
    ) -> None:
        """The rule, on arrays that it writes to."""
        kind, momentum = buffer.dtype.type, group["momentum"]
        buffer += (grad - buffer) * kind(1 - momentum)
        update = grad + (buffer - grad) * kind(momentum) if group["nesterov"] else buffer
        update = kernels.orthogonalized(
            update, group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        lr = number(group["lr"])
        value *= value.dtype.type(1 - lr * group["weight_decay"])
        step = np.float32(lr * cls._ratio(group["adjust_lr_fn"], *value.shape))
        value -= (update * step).astype(value.dtype)

    @staticmethod
    def _ratio(rule: str | None, rows: int, columns: int) -> float:
        """What the learning rate is multiplied by, for a matrix of this shape."""
        if rule == "match_rms_adamw":
            return 0.2 * math.sqrt(max(rows, columns))
        return math.sqrt(max(1, rows / columns))


steps.RULES["Muon"] = Muon
