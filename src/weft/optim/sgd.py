"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.optim import rules
from weft.optim._functional import take_steps
from weft.optim.elementwise import Elementwise, zeros_like
from weft.optim.optimizer import ParamsT, check_fused, check_lr, check_range

__all__ = ["SGD", "sgd"]


class SGD(Elementwise):
    """Gradient descent, with momentum if wanted.

    >>> w = torch.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    >>> w
    tensor([ 0.4600, -0.9200], requires_grad=True)
    """

    rule = staticmethod(rules.sgd)
    _scalars = ()
    _late_defaults = {
        "nesterov": False,
        "maximize": False,
        "foreach": None,
        "differentiable": False,
        "fused": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_range(momentum >= 0.0, f"Invalid momentum value: {momentum}")
        check_range(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        check_range(
            not nesterov or (momentum > 0 and dampening == 0),
            "Nesterov momentum requires a momentum and zero dampening",
        )
        check_fused(fused, foreach, differentiable)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] != 0 else ()

    def _state_of(self, p: Tensor, group: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        if group["momentum"] == 0:
            return {}, False
        own = self.state[p]
        fresh = own.get("momentum_buffer") is None
        if fresh:
            own["momentum_buffer"] = zeros_like(p)
        return own, fresh

    def _coefficients(self, group: dict[str, Any], step: float, scalars: Any) -> Any:
        decay, momentum = group["weight_decay"], group["momentum"]
        # The first gradient enters the buffer undamped.
        enters = 1.0 if step else 1 - group["dampening"]
        flags = (decay != 0, group["maximize"], enters != 1, group["nesterov"])
        return flags, (group["lr"], decay, momentum, enters)

    def _by_ops(
        self, p: Tensor, g: Tensor, states: tuple[Tensor, ...], c: Any, flags: Any, step: Any
    ) -> Any:
        if not (step and states):
            return rules.sgd(p, g, states, c, flags)
        # As in PyTorch: the first buffer is a constant, through which no gradient flows.
        lr, decay, momentum, _ = c
        decays, maximize, _, nesterov = flags
        g = rules.slope(p, g, decay, decays, maximize)
        buffer = g.detach().clone()
        return p - (g + buffer * momentum if nesterov else buffer) * lr, (buffer,)


def sgd(
    params: list[Tensor], d_p_list: list[Tensor], momentum_buffer_list: list[Tensor | None],
    has_sparse_grad: bool = False, foreach: bool | None = None, fused: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, *, weight_decay: float,
    momentum: float, lr: float, dampening: float, nesterov: bool, maximize: bool,
) -> None:  # fmt: skip
    """A step of gradient descent for each parameter."""
    given = locals()
    state = {"momentum_buffer": momentum_buffer_list if momentum else []}
    take_steps(SGD, given, state)
