"""Adam."""

from __future__ import annotations

from typing import Any

from weft.core import errors
from weft.core.tensor import Tensor
from weft.optim import rules
from weft.optim._functional import take_steps
from weft.optim.elementwise import Elementwise
from weft.optim.optimizer import (
    ParamsT,
    _to_scalar,
    check_betas,
    check_fused,
    check_lr,
    check_range,
)

__all__ = ["Adam", "adam"]


class Adam(Elementwise):
    """Steps by running means of the gradient and of its square.

    >>> w = torch.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = torch.optim.Adam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    rule = staticmethod(rules.adam)
    _late_defaults = {
        "amsgrad": False,
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
        "fused": None,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        self._check_tensors(lr, betas, bool(foreach) and not capturable)
        check_lr(lr)
        check_range(eps >= 0.0, f"Invalid epsilon value: {eps}")
        check_betas(betas)
        check_range(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        check_fused(fused, foreach, differentiable)
        defaults = {
            "lr": lr,
            "betas": tuple(_to_scalar(beta) for beta in betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    @staticmethod
    def _check_tensors(lr: Any, betas: Any, numbers_only: bool) -> None:
        named = {"lr": lr, "betas[0]": betas[0], "betas[1]": betas[1]}
        for name, value in named.items():
            if not isinstance(value, Tensor):
                continue
            if numbers_only:
                raise ValueError(
                    f"{name} as a Tensor is not supported for capturable=False and foreach=True\n"
                    f"  at {errors.here()}"
                )
            if value.numel() != 1:
                raise ValueError(f"Tensor {name} must be 1-element\n  at {errors.here()}")
        kinds = {Tensor if isinstance(beta, Tensor) else type(beta) for beta in betas}
        if kinds not in ({float}, {Tensor}):
            raise ValueError(
                f"betas must be either both floats or both Tensors\n  at {errors.here()}"
            )

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        if group["amsgrad"]:
            return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
        return ("exp_avg", "exp_avg_sq")

    def _coefficients(self, group: dict[str, Any], step: float, scalars: Any) -> Any:
        beta1, beta2 = group["betas"]
        lr, eps, decay = group["lr"], group["eps"], group["weight_decay"]
        root = rules.root(1 - beta2**step)
        flags = (
            decay != 0,
            group["decoupled_weight_decay"],
            group["maximize"],
            group["amsgrad"],
        )
        size = lr * root / (1 - beta1**step)
        return flags, (decay, 1 - lr * decay, 1 - beta1, beta2, 1 - beta2, eps * root, size)


def adaptive_defaults(lr: Any, betas: Any, eps: Any, weight_decay: Any) -> dict[str, Any]:
    """The settings that Adam's relatives share, checked."""
    check_lr(lr)
    check_range(eps >= 0.0, f"Invalid epsilon value: {eps}")
    check_betas(betas)
    check_range(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
    return {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}


def decay_of(group: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Learning rate, weight decay, and the factor of decoupled weight decay."""
    lr, decay = group["lr"], group["weight_decay"]
    return lr, decay, 1 - lr * decay


def adam(
    params: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor], state_steps: list[Tensor], foreach: bool | None = None,
    capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, has_complex: bool = False,
    decoupled_weight_decay: bool = False, *, amsgrad: bool, beta1: float | Tensor,
    beta2: float | Tensor, lr: float | Tensor, weight_decay: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    """A step of Adam for each parameter."""
    given = locals()
    state = {
        "exp_avg": exp_avgs,
        "exp_avg_sq": exp_avg_sqs,
        "max_exp_avg_sq": max_exp_avg_sqs if amsgrad else [],
        "step": state_steps,
    }
    take_steps(Adam, given, state)
