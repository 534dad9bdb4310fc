"""Rprop."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.meta import filled
from weft.core.tensor import Tensor, wrap
from weft.optim import rules
from weft.optim._functional import take_steps
from weft.optim.elementwise import Elementwise, zeros_like
from weft.optim.optimizer import ParamsT, check_lr, check_range, number, scalar

__all__ = ["Rprop", "rprop"]


class Rprop(Elementwise):
    """Steps whose sizes grow while the sign of the gradient stays and shrink when it turns."""

    rule = staticmethod(rules.rprop)
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
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range(0.0 < etas[0] < 1.0 < etas[1], f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("prev", "step_size")

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        lr = number(group["lr"])
        # The parts of a complex number are two independent real ones.
        value = complex(lr, lr) if p.is_complex() else lr
        size = filled(lambda shape, d: np.full(shape, value, d), p._a.shape, p._a.dtype)
        return {"step": scalar(0.0), "prev": zeros_like(p), "step_size": wrap(size)}

    def _coefficients(self, group: dict[str, Any], step: float, scalars: Any) -> Any:
        (shrink, grow), (smallest, largest) = group["etas"], group["step_sizes"]
        return (group["maximize"],), (grow, shrink, smallest, largest, 0.0)


def rprop(
    params: list[Tensor], grads: list[Tensor], prevs: list[Tensor], step_sizes: list[Tensor],
    state_steps: list[Tensor], foreach: bool | None = None, capturable: bool = False,
    maximize: bool = False, differentiable: bool = False, has_complex: bool = False, *,
    step_size_min: float, step_size_max: float, etaminus: float, etaplus: float,
) -> None:  # fmt: skip
    """A step of Rprop for each parameter."""
    given = locals()
    state = {"prev": prevs, "step_size": step_sizes, "step": state_steps}
    take_steps(
        Rprop, given, state, etas=(etaminus, etaplus), step_sizes=(step_size_min, step_size_max)
    )
