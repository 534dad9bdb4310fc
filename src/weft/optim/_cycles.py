"""Schedules that rise and fall: cycles and warm restarts."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any, Literal

from weft.optim._schedule import LRScheduler, Rates, _format_param, _need_optimizer, _set
from weft.optim.optimizer import Optimizer, check_range


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that restarts, after ever longer periods if ``T_mult`` is above 1."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        check_range(
            isinstance(T_0, int) and T_0 > 0, f"Expected positive integer T_0, but got {T_0}"
        )
        check_range(
            isinstance(T_mult, int) and T_mult >= 1,
            f"Expected integer T_mult >= 1, but got {T_mult}",
        )
        check_range(
            isinstance(eta_min, (float, int)),
            f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}",
        )
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min = T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of this epoch."""
        self._note_call()
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (rate - self.eta_min) * height / 2 for rate in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Begin the next epoch, or go to the given one, which may be a fraction."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            check_range(epoch >= 0, f"Expected non-negative epoch, but got {epoch}")
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        self._get_lr_called_within_step = True
        try:
            rates = self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set_rates(rates)

    def _go_to(self, epoch: float) -> None:
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            ratio = self.T_mult
            n = int(math.log(epoch / self.T_0 * (ratio - 1) + 1, ratio))
            self.T_cur = epoch - self.T_0 * (ratio**n - 1) / (ratio - 1)
            self.T_i = self.T_0 * ratio**n


class _Cycling(LRScheduler):
    """What schedules share that move the momentum against the rate."""

    cycle_momentum: bool
    use_beta1: bool

    def _start_momentum(self, smallest: Any, largest: Any, last_epoch: int) -> tuple[Rates, Rates]:
        optimizer = self.optimizer
        check_range(
            "momentum" in optimizer.defaults or "betas" in optimizer.defaults,
            "optimizer must support momentum or beta1 with `cycle_momentum` option enabled",
        )
        self.use_beta1 = "betas" in optimizer.defaults
        low = _format_param("base_momentum", optimizer, smallest)
        high = _format_param("max_momentum", optimizer, largest)
        if last_epoch == -1:
            for group, base, top in zip(optimizer.param_groups, low, high, strict=True):
                self._set_momentum(group, top)
                group["max_momentum"], group["base_momentum"] = top, base
        return low, high

    def _set_momentum(self, group: dict[str, Any], value: Any) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_Cycling):
    """Lets the rate go up and down between two bounds."""

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        _need_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = _format_param("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for rate, group in zip(base_lrs, optimizer.param_groups, strict=True):
                _set(group, "lr", rate)
        self.max_lrs = _format_param("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        down = up if step_size_down is None else float(step_size_down)
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        check_range(
            mode in ("triangular", "triangular2", "exp_range") or scale_fn is not None,
            "mode is invalid and scale_fn is None",
        )
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom, self.scale_mode = scale_fn, scale_mode
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = self._start_momentum(
                base_momentum, max_momentum, last_epoch
            )
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _init_scale_fn(self) -> None:
        if self._scale_fn_custom is None:
            self.scale_mode = "iterations" if self.mode == "exp_range" else "cycle"

    def scale_fn(self, x: float) -> float:
        """How high a cycle (or an iteration) reaches, as a fraction."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        if self.mode == "triangular2":
            return 1 / (2.0 ** (x - 1))
        return self.gamma**x

    def get_lr(self) -> Rates:
        """The rates of this epoch; sets the momentum too."""
        self._note_call()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        ratio = self.step_ratio
        height = x / ratio if x <= ratio else (x - 1) / (ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (low, high) in zip(self.optimizer.param_groups, bounds, strict=True):
                self._set_momentum(group, high - (high - low) * height * scale)
        return [
            low + (high - low) * height * scale
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule knows; a custom scale is saved only if it is an object."""
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom")
        plain = custom is None or isinstance(custom, types.FunctionType)
        state["_scale_fn_custom"] = None if plain else vars(custom).copy()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        saved = state_dict.get("_scale_fn_custom")
        rest = {k: v for k, v in state_dict.items() if k != "_scale_fn_custom"}
        super().load_state_dict(rest)
        if saved is not None:
            vars(self._scale_fn_custom).update(saved)
        self._init_scale_fn()


def _cosine_between(start: Any, end: Any, fraction: float) -> Any:
    return end + (start - end) / 2.0 * (math.cos(math.pi * fraction) + 1)


def _line_between(start: Any, end: Any, fraction: float) -> Any:
    return (end - start) * fraction + start


class OneCycleLR(_Cycling):
    """One rise of the rate and one long fall, over a number of steps known beforehand."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        _need_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = self._count(total_steps, epochs, steps_per_epoch)
        check_range(
            isinstance(pct_start, float) and 0 <= pct_start <= 1,
            f"Expected float between 0 and 1 pct_start, but got {pct_start}",
        )
        self._schedule_phases = self._phases(self.total_steps, pct_start, three_phase)
        check_range(
            anneal_strategy in ("cos", "linear"),
            f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}",
        )
        self._anneal_func_type = anneal_strategy
        max_lrs = _format_param("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, max_lrs, strict=True):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _count(total_steps: Any, epochs: Any, steps_per_epoch: Any) -> int:
        if total_steps is not None:
            wanted = {"total_steps": total_steps}
        else:
            check_range(
                epochs is not None and steps_per_epoch is not None,
                "You must define either total_steps OR (epochs AND steps_per_epoch)",
            )
            wanted = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        for name, value in wanted.items():
            check_range(
                isinstance(value, int) and value > 0,
                f"Expected positive integer {name}, but got {value}",
            )
        return math.prod(wanted.values())

    @staticmethod
    def _phases(total: int, rising: float, three: bool) -> list[dict[str, Any]]:
        """For each phase its last step, and the names of the settings at its two ends."""
        low, high = "base_momentum", "max_momentum"
        plan: list[tuple[float, str, str, str, str]]
        plan = [(float(rising * total) - 1, "initial_lr", "max_lr", high, low)]
        if three:
            plan.append((float(2 * rising * total) - 2, "max_lr", "initial_lr", low, high))
            plan.append((total - 1, "initial_lr", "min_lr", high, high))
        else:
            plan.append((total - 1, "max_lr", "min_lr", low, high))
        keys = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
        return [dict(zip(keys, phase, strict=True)) for phase in plan]

    def get_lr(self) -> Rates:
        """The rates of this step; sets the momentum too."""
        self._note_call()
        step = self.last_epoch
        check_range(
            step <= self.total_steps,
            f"Tried to step {step} times. The specified number of total steps is "
            f"{self.total_steps}",
        )
        start, phases = 0.0, self._schedule_phases
        for phase in phases:
            if step <= phase["end_step"] or phase is phases[-1]:
                break
            start = phase["end_step"]
        fraction = (step - start) / (phase["end_step"] - start)
        between = _cosine_between if self._anneal_func_type == "cos" else _line_between
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(between(group[phase["start_lr"]], group[phase["end_lr"]], fraction))
            if self.cycle_momentum:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, between(*ends, fraction))
        return rates
