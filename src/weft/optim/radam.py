"""RAdam."""

from __future__ import annotations

import math
from typing import Any

from weft.core.tensor import Tensor
from weft.optim import rules
from weft.optim._functional import take_steps
from weft.optim.adam import adaptive_defaults, decay_of
from weft.optim.elementwise import Elementwise
from weft.optim.optimizer import ParamsT

__all__ = ["RAdam", "radam"]


class RAdam(Elementwise):
    """Adam whose first steps are plain, until the second moment can be trusted."""

    rule = staticmethod(rules.radam)
    _late_defaults = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            **adaptive_defaults(lr, betas, eps, weight_decay),
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    @staticmethod
    def _rectification(beta2: float, step: float) -> float:
        """How much the adaptive step is held back; 0 while there is too little to go by."""
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / (1 - beta2**step)
        if length <= 5.0:
            return 0.0
        return math.sqrt(
            (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        )

    def _coefficients(self, group: dict[str, Any], step: float, scalars: Any) -> Any:
        beta1, beta2 = group["betas"]
        lr, decay, shrink = decay_of(group)
        rectified = self._rectification(beta2, step)
        size = lr / (1 - beta1**step)
        if rectified:
            size *= rules.root(1 - beta2**step) * rectified
        flags = (decay != 0, group["decoupled_weight_decay"], group["maximize"], rectified != 0)
        return flags, (decay, shrink, 1 - beta1, beta2, 1 - beta2, group["eps"], size)


def radam(
    params: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor], decoupled_weight_decay: bool = False, foreach: bool | None = None,
    differentiable: bool = False, capturable: bool = False, has_complex: bool = False,
    maximize: bool = False, *, beta1: float, beta2: float, lr: float, weight_decay: float,
    eps: float,
) -> None:  # fmt: skip
    """A step of RAdam for each parameter."""
    given = locals()
    state = {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "step": state_steps}
    take_steps(RAdam, given, state)
