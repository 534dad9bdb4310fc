"""Adafactor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors, quiet
from weft.core.devices import changed_on_host, host
from weft.core.gate import announce
from weft.core.inplace import bump
from weft.core.meta import filled
from weft.core.tensor import Tensor, wrap
from weft.graph import steps
from weft.optim.elementwise import Scratch
from weft.optim.optimizer import (
    Optimizer,
    ParamsT,
    check_gradients,
    check_lr,
    check_range,
    count_step,
    number,
    run_closure,
    scalar,
)
from weft.references import optimizers as kernels

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Adaptive steps with little memory: a matrix's second moment is a row times a column."""

    _scalars = ("step",)
    _late_defaults = {"foreach": None}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_lr(lr, "Learning rate should be >= 0 but is")
        check_range(beta2_decay <= 0.0, f"beta2_decay should be <= 0 but is: {beta2_decay}")
        check_range(eps[0] is None or eps[0] >= 0.0, f"epsilon1 should be >= 0 but is: {eps[0]}")
        check_range(eps[1] >= 0.0, f"epsilon2 should be >= 0 but is: {eps[1]}")
        check_range(d >= 1.0, f"Clipping threshold d should be >= 1 but is: {d}")
        check_range(weight_decay >= 0.0, f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _state_of(self, p: Tensor) -> dict[str, Any]:
        own = self.state[p]
        if not own:
            shape, dtype = p._a.shape, p._a.dtype
            own["step"] = scalar(0.0)
            if len(shape) > 1:
                own["row_var"] = wrap(filled(np.zeros, (*shape[:-1], 1), dtype))
                own["col_var"] = wrap(filled(np.zeros, (*shape[:-2], 1, shape[-1]), dtype))
            else:
                own["variance"] = wrap(filled(np.zeros, shape, dtype))
        return own

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once; a closure recomputes the loss, which is returned."""
        loss = run_closure(closure)
        check_gradients(self.param_groups)
        token = quiet.enter()
        try:
            for group in self.param_groups:
                for p in group["params"]:
                    if p._grad is not None:
                        self._update(p, group)
        finally:
            quiet.leave(token)
        return loss

    def _update(self, p: Tensor, group: dict[str, Any]) -> None:
        if p.is_complex():
            raise RuntimeError(
                f"Adafactor does not support complex parameters\n  at {errors.here()}"
            )
        own = self._state_of(p)
        count_step(own["step"])
        if p.is_meta:
            bump(p, "Adafactor")
            return
        states = [own[name] for name in self._names_of(p, group)]
        for target in (p, *states):
            announce(target._a, target)
        with changed_on_host(p, *states) as (value, *kept):
            self._change(group, value, host(p._grad), kept, own["step"].item())
        for target in (p, *states):
            bump(target, "Adafactor")

    def _names_of(self, p: Tensor, group: dict[str, Any]) -> tuple[str, ...]:
        return ("row_var", "col_var") if p._a.ndim > 1 else ("variance",)

    @classmethod
    def updated(
        cls, group: dict[str, Any], p: Any, g: Any, states: list[Any], counters: list[Any]
    ) -> list[np.ndarray]:
        """One step of one parameter as a function of arrays: parameter, states and counters."""
        value, *kept, step = [np.array(host(x)) for x in (p, *states, *counters)]
        step += 1
        token = quiet.enter()
        try:
            cls.__new__(cls)._change(group, value, host(g), kept, step.item())
        finally:
            quiet.leave(token)
        return [value, *kept, step]

    def _change(
        self, group: dict[str, Any], array: np.ndarray, grad: Any, kept: list[Any], step: float
    ) -> None:
        """The rule, on arrays that it writes to."""
        lr = number(group["lr"])
        eps1, eps2 = group["eps"]
        value, states = array, kept
        half = array.dtype in dt.HALF
        if half:
            value, grad = array.astype(np.float32), grad.astype(np.float32)
            states = [x.astype(np.float32) for x in kept]
        work, means = self._work(value)
        kernels.adafactor(
            value,
            grad,
            *(states if value.ndim > 1 else (None, None)),
            *((None,) if value.ndim > 1 else states),
            work=work,
            means=means,
            weight=step ** group["beta2_decay"],
            rho=min(lr, step**-0.5),
            shrink=1 - lr * group["weight_decay"],
            eps1=dt.finfo(dt.of_numpy(array.dtype)).eps if eps1 is None else eps1,
            eps2=eps2,
            clip=group["d"],
            maximize=group["maximize"],
        )
        if half:
            array[...] = value
            for old, new in zip(kept, states, strict=True):
                old[...] = new

    def _work(self, value: np.ndarray) -> tuple[Any, Any]:
        """Arrays to compute in: two like the parameter, and one for each mean."""
        pool = self.__dict__.setdefault("_pool", Scratch())
        shape, dtype = value.shape, value.dtype
        work = tuple(pool.take(role, dtype, value.size).reshape(shape) for role in ("s", "u"))
        if value.ndim < 2:
            return work, ()
        lead, row, column = shape[:-2], shape[-2], shape[-1]
        shapes = [(*lead, row, 1), (*lead, 1, column), (*lead, 1, 1)]
        return work, tuple(
            pool.take(f"mean {i}", dtype, int(np.prod(s))).reshape(s) for i, s in enumerate(shapes)
        )


steps.RULES["Adafactor"] = Adafactor
