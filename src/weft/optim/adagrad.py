"""Adagrad."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.meta import filled
from weft.core.tensor import Tensor, wrap
from weft.optim import rules
from weft.optim._functional import take_steps
from weft.optim.elementwise import Elementwise
from weft.optim.optimizer import ParamsT, check_fused, check_lr, check_range, scalar

__all__ = ["Adagrad", "adagrad"]


class Adagrad(Elementwise):
    """Steps divided by the root of the sum of all squared gradients."""

    rule = staticmethod(rules.adagrad)
    _late_defaults = {"foreach": None, "maximize": False, "differentiable": False, "fused": None}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_range(lr_decay >= 0.0, f"Invalid lr_decay value: {lr_decay}")
        check_range(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        check_range(
            initial_accumulator_value >= 0.0,
            f"Invalid initial_accumulator_value value: {initial_accumulator_value}",
        )
        check_range(eps >= 0.0, f"Invalid epsilon value: {eps}")
        check_fused(fused, foreach, differentiable)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                self._state_of(p, group)

    def share_memory(self) -> None:
        """For PyTorch's callers: memory is not shared between processes here."""

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("sum",)

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        start = self.defaults["initial_accumulator_value"]
        value = complex(start, start) if p.is_complex() else start
        total = filled(lambda shape, d: np.full(shape, value, d), p._a.shape, p._a.dtype)
        return {"step": scalar(0.0, group.get("fused")), "sum": wrap(total)}

    def _coefficients(self, group: dict[str, Any], step: float, scalars: Any) -> Any:
        decay = group["weight_decay"]
        size = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        return (decay != 0, group["maximize"]), (decay, group["eps"], size)


def adagrad(
    params: list[Tensor], grads: list[Tensor], state_sums: list[Tensor], state_steps: list[Tensor],
    fused: bool | None = None, grad_scale: Tensor | None = None, found_inf: Tensor | None = None,
    has_sparse_grad: bool = False, foreach: bool | None = None, differentiable: bool = False,
    has_complex: bool = False, *, lr: float, weight_decay: float, lr_decay: float, eps: float,
    maximize: bool,
) -> None:  # fmt: skip
    """A step of Adagrad for each parameter."""
    given = locals()
    state = {"sum": state_sums, "step": state_steps}
    take_steps(Adagrad, given, state)
