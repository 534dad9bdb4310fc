"""NAdam."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.optim import rules
from weft.optim._functional import take_steps
from weft.optim.adam import adaptive_defaults, decay_of
from weft.optim.elementwise import Elementwise
from weft.optim.optimizer import ParamsT, check_range, scalar

__all__ = ["NAdam", "nadam"]


class NAdam(Elementwise):
    """Adam with Nesterov momentum."""

    rule = staticmethod(rules.nadam)
    _scalars = ("step", "mu_product")
    _by_step_alone = False
    _late_defaults = {
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = adaptive_defaults(lr, betas, eps, weight_decay)
        check_range(momentum_decay >= 0.0, f"Invalid momentum_decay value: {momentum_decay}")
        defaults |= {
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        made = super()._new_state(p, group)
        made["mu_product"] = scalar(1.0)
        return made

    @staticmethod
    def _momentum(group: dict[str, Any], step: float) -> tuple[float, float]:
        """The momentum of this step and of the next."""
        beta1, rate = group["betas"][0], group["momentum_decay"]
        mu, following = (beta1 * (1.0 - 0.5 * 0.96 ** (t * rate)) for t in (step, step + 1))
        return mu, following

    def _coefficients(self, group: dict[str, Any], step: float, scalars: Any) -> Any:
        beta1, beta2 = group["betas"]
        lr, decay, shrink = decay_of(group)
        mu, following = self._momentum(group, step)
        product = scalars[1]
        if isinstance(product, Tensor):
            past = product.copy_(product * mu).double()
        else:
            np.multiply(product, mu, product)
            past = product.item(0)
        flags = (decay != 0, group["decoupled_weight_decay"], group["maximize"])
        values = (
            *(decay, shrink, 1 - beta1, beta2, 1 - beta2, 1 - beta2**step, group["eps"]),
            lr * (1.0 - mu) / (1.0 - past),
            lr * following / (1.0 - past * following),
        )
        return flags, values


def nadam(
    params: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
    mu_products: list[Tensor], state_steps: list[Tensor], decoupled_weight_decay: bool = False,
    foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
    has_complex: bool = False, maximize: bool = False, *, beta1: float, beta2: float, lr: float,
    weight_decay: float, momentum_decay: float, eps: float,
) -> None:  # fmt: skip
    """A step of NAdam for each parameter."""
    given = locals()
    state = {
        "exp_avg": exp_avgs,
        "exp_avg_sq": exp_avg_sqs,
        "mu_product": mu_products,
        "step": state_steps,
    }
    take_steps(NAdam, given, state)
