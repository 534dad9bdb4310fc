"""SparseAdam, of which only the interface exists here."""

from __future__ import annotations

from typing import Any

from weft.core import errors
from weft.core.tensor import Tensor
from weft.optim.optimizer import (
    Optimizer,
    ParamsT,
    check_betas,
    check_lr,
    check_range,
    run_closure,
)

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients; weft's gradients are dense, so its steps refuse them."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_lr(lr)
        check_range(lr > 0.0, f"Invalid learning rate: {lr}")
        check_range(eps > 0.0, f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        complex_params = [
            [i, k]
            for i, group in enumerate(self.param_groups)
            for k, p in enumerate(group["params"])
            if p.is_complex()
        ]
        check_range(
            not complex_params,
            f"Complex params at indices {complex_params}: SparseAdam does not support complex "
            "parameters",
        )

    def step(self, closure: Any = None) -> Any:
        """Refuse dense gradients, as PyTorch does."""
        loss = run_closure(closure)
        for group in self.param_groups:
            if any(p.grad is not None for p in group["params"]):
                raise RuntimeError(
                    "SparseAdam does not support dense gradients, please consider Adam instead\n"
                    f"  at {errors.here()}"
                )
        return loss
