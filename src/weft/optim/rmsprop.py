"""RMSprop."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.optim import rules
from weft.optim._functional import take_steps
from weft.optim.elementwise import Elementwise
from weft.optim.optimizer import ParamsT, check_lr, check_range

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(Elementwise):
    """Steps divided by the running root mean square of the gradient."""

    rule = staticmethod(rules.rmsprop)
    _late_defaults = {
        "momentum": 0,
        "centered": False,
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range(eps >= 0.0, f"Invalid epsilon value: {eps}")
        check_range(momentum >= 0.0, f"Invalid momentum value: {momentum}")
        check_range(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        check_range(alpha >= 0.0, f"Invalid alpha value: {alpha}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        momentum = ("momentum_buffer",) if group["momentum"] > 0 else ()
        centered = ("grad_avg",) if group["centered"] else ()
        return ("square_avg", *momentum, *centered)

    def _coefficients(self, group: dict[str, Any], step: float, scalars: Any) -> Any:
        decay, alpha, momentum = group["weight_decay"], group["alpha"], group["momentum"]
        flags = (decay != 0, group["maximize"], momentum > 0, group["centered"])
        return flags, (decay, alpha, 1 - alpha, group["eps"], momentum, group["lr"])


def rmsprop(
    params: list[Tensor], grads: list[Tensor], square_avgs: list[Tensor], grad_avgs: list[Tensor],
    momentum_buffer_list: list[Tensor], state_steps: list[Tensor], foreach: bool | None = None,
    maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    has_complex: bool = False, *, lr: float, alpha: float, eps: float, weight_decay: float,
    momentum: float, centered: bool,
) -> None:  # fmt: skip
    """A step of RMSprop for each parameter."""
    given = locals()
    state = {
        "square_avg": square_avgs,
        "grad_avg": grad_avgs if centered else [],
        "momentum_buffer": momentum_buffer_list if momentum > 0 else [],
        "step": state_steps,
    }
    take_steps(RMSprop, given, state)
