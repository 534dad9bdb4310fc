"""Adadelta."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.optim import rules
from weft.optim._functional import take_steps
from weft.optim.elementwise import Elementwise
from weft.optim.optimizer import ParamsT, check_lr, check_range

__all__ = ["Adadelta", "adadelta"]


class Adadelta(Elementwise):
    """Steps in the units of past steps, so that no learning rate has to be found.

    >>> model = nn.Linear(2, 1)
    >>> optimizer = torch.optim.Adadelta(model.parameters())
    >>> model(torch.ones(4, 2)).sum().backward()
    >>> optimizer.step()
    """

    rule = staticmethod(rules.adadelta)
    _late_defaults = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range(0.0 <= rho <= 1.0, f"Invalid rho value: {rho}")
        check_range(eps >= 0.0, f"Invalid epsilon value: {eps}")
        check_range(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("square_avg", "acc_delta")

    def _coefficients(self, group: dict[str, Any], step: float, scalars: Any) -> Any:
        decay, rho = group["weight_decay"], group["rho"]
        values = (decay, rho, 1 - rho, group["eps"], group["lr"])
        return (decay != 0, group["maximize"]), values


def adadelta(
    params: list[Tensor], grads: list[Tensor], square_avgs: list[Tensor], acc_deltas: list[Tensor],
    state_steps: list[Tensor], capturable: bool = False, foreach: bool | None = None,
    differentiable: bool = False, has_complex: bool = False, *, lr: float, rho: float, eps: float,
    weight_decay: float, maximize: bool,
) -> None:  # fmt: skip
    """A step of Adadelta for each parameter."""
    given = locals()
    state = {"square_avg": square_avgs, "acc_delta": acc_deltas, "step": state_steps}
    take_steps(Adadelta, given, state)
