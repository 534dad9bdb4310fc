"""Adamax."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.optim import rules
from weft.optim._functional import take_steps
from weft.optim.adam import adaptive_defaults
from weft.optim.elementwise import Elementwise
from weft.optim.optimizer import ParamsT

__all__ = ["Adamax", "adamax"]


class Adamax(Elementwise):
    """Adam with the infinity norm of past gradients instead of their mean square."""

    rule = staticmethod(rules.adamax)
    _late_defaults = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = {
            **adaptive_defaults(lr, betas, eps, weight_decay),
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_inf")

    def _coefficients(self, group: dict[str, Any], step: float, scalars: Any) -> Any:
        beta1, beta2 = group["betas"]
        decay = group["weight_decay"]
        size = group["lr"] / (1 - beta1**step)
        flags = (decay != 0, group["maximize"])
        return flags, (decay, 1 - beta1, beta2, group["eps"], size)


def adamax(
    params: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_infs: list[Tensor],
    state_steps: list[Tensor], foreach: bool | None = None, maximize: bool = False,
    differentiable: bool = False, capturable: bool = False, has_complex: bool = False, *,
    eps: float, beta1: float, beta2: float, lr: float, weight_decay: float,
) -> None:  # fmt: skip
    """A step of Adamax for each parameter."""
    given = locals()
    state = {"exp_avg": exp_avgs, "exp_inf": exp_infs, "step": state_steps}
    take_steps(Adamax, given, state)
