"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.devices import changed_on_host, host
from weft.core.tensor import Tensor
from weft.optim import rules
from weft.optim._functional import take_steps
from weft.optim.elementwise import Elementwise, zeros_like
from weft.optim.optimizer import ParamsT, check_lr, check_range, number, scalar

__all__ = ["ASGD", "asgd"]


class ASGD(Elementwise):
    """Gradient descent that also keeps the average of the parameters in its state."""

    rule = staticmethod(rules.asgd)
    _scalars = ("step", "eta", "mu")
    _by_step_alone = False
    _late_defaults = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("ax",)

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {
            "step": scalar(0.0),
            "eta": scalar(number(group["lr"])),
            "mu": scalar(1.0),
            "ax": zeros_like(p),
        }

    @staticmethod
    def _advance(group: dict[str, Any], step: float, eta: np.ndarray, mu: np.ndarray) -> None:
        """Set the rates of the next step, rounded as PyTorch rounds them."""
        lr = number(group["lr"])
        eta[...] = host(scalar(lr / (1 + group["lambd"] * lr * step) ** group["alpha"]))
        mu[...] = host(scalar(1 / max(1, step - group["t0"])))

    def _coefficients(self, group: dict[str, Any], step: float, scalars: Any) -> Any:
        if isinstance(scalars[0], Tensor):
            with changed_on_host(*scalars) as arrays:
                return self._coefficients(group, step, arrays)
        _, eta, mu = scalars
        decay, rate, weight = group["weight_decay"], eta.item(0), mu.item(0)
        self._advance(group, step, eta, mu)
        flags = (decay != 0, group["maximize"], weight != 1)
        return flags, (decay, 1 - group["lambd"] * rate, rate, weight)


def asgd(
    params: list[Tensor], grads: list[Tensor], axs: list[Tensor], mus: list[Tensor],
    etas: list[Tensor], state_steps: list[Tensor], foreach: bool | None = None,
    maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    has_complex: bool = False, *, lambd: float, lr: float, t0: float, alpha: float,
    weight_decay: float,
) -> None:  # fmt: skip
    """A step of ASGD for each parameter."""
    given = locals()
    state = {"ax": axs, "mu": mus, "eta": etas, "step": state_steps}
    take_steps(ASGD, given, state)
