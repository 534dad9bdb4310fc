"""Schedules of the learning rate."""

from __future__ import annotations

import functools
import math
import types
import warnings
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from weft.core import errors
from weft.core.modes import no_grad
from weft.core.tensor import Tensor
from weft.optim.optimizer import Optimizer, _to_scalar, check_range

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

Rates = list[Any]

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
    "epoch is different from None, the closed form is used instead of the new chainable form, "
    "where available."
)
ORDER_PAGE = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _values(optimizer: Optimizer, key: str) -> Rates:
    """A setting of every group; tensors are copied, so that they stay as they are now."""
    return [_copy(group[key]) for group in optimizer.param_groups]


def _set(group: dict[str, Any], key: str, value: Any) -> None:
    """Change a setting; a tensor stays the same object."""
    if isinstance(group[key], Tensor):
        with no_grad():
            group[key].fill_(_to_scalar(value))
    else:
        group[key] = value


def _format_param(name: str, optimizer: Optimizer, param: Any) -> Rates:
    """One value for each group, from one for all or from a list."""
    count = len(optimizer.param_groups)
    if not isinstance(param, (list, tuple)):
        return [_copy(param) for _ in range(count)]
    check_range(
        len(param) == count,
        f"{name} must have the same length as optimizer.param_groups. "
        f"{name} has {len(param)} values, param_groups has {count}.",
    )
    return [_copy(value) for value in param]


def _need_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer\n  at {errors.here()}")


def _watch_steps(optimizer: Any) -> None:
    """Let the optimizer note that its ``step`` was called."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    # The wrapper hangs on the optimizer, so it must not keep the optimizer alive.
    held, function = weakref.ref(optimizer), optimizer.step.__func__

    @functools.wraps(function)
    def step(*args: Any, **kwargs: Any) -> Any:
        owner = held()
        owner._opt_called = True
        return function(owner, *args, **kwargs)

    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = step


class LRScheduler:
    """Sets the learning rates of an optimizer; call ``step`` after the optimizer's own.

    A subclass gives ``get_lr``, the rates of the next epoch from those of the last one; it may
    also give ``_get_closed_form_lr``, which gets them from the number of the epoch alone.
    """

    _get_lr_called_within_step: bool = False
    _is_initial: bool = False
    # What ``state_dict`` leaves out.
    _unsaved: tuple[str, ...] = ("optimizer",)

    optimizer: Any
    base_lrs: Rates
    last_epoch: int
    _last_lr: Rates

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        _need_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copy(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                    "scheduler with last_epoch >= 0. Load the optimizer's state first, or start "
                    f"with last_epoch=-1\n  at {errors.here()}"
                )
        self.base_lrs = _values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _watch_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule knows, except the optimizer."""
        return {key: value for key, value in vars(self).items() if key not in self._unsaved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> Rates:
        """The learning rates that were set last, one for each group."""
        return self._last_lr

    def get_lr(self) -> Rates:
        """The rates of the epoch that ``step`` has just begun."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Begin the next epoch, or the given one."""
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _check_order(self) -> None:
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                "initialization. Please, make sure to call `optimizer.step()` before "
                f"`lr_scheduler.step()`. See more details at {ORDER_PAGE}",
                UserWarning,
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. You should "
                "call them in the opposite order: `optimizer.step()` before "
                "`lr_scheduler.step()`. Failure to do this will result in skipping the first "
                f"value of the learning rate schedule. See more details at {ORDER_PAGE}",
                UserWarning,
                stacklevel=3,
            )

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                rates = self.get_lr()
            else:
                self.last_epoch = epoch
                closed_form = getattr(self, "_get_closed_form_lr", self.get_lr)
                rates = closed_form()
        finally:
            self._get_lr_called_within_step = False
        self._set_rates(rates)

    def _set_rates(self, rates: Rates) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            _set(group, "lr", rate)
        self._last_lr = _values(self.optimizer, "lr")

    def _note_call(self) -> None:
        """Warn users who mean ``get_last_lr``."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use "
                "`get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def _same(self) -> Rates:
        return _values(self.optimizer, "lr")

    def _times(self, factor: float) -> Rates:
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _base_times(self, factor: float) -> Rates:
        return [rate * factor for rate in self.base_lrs]


class _LRScheduler(LRScheduler):
    """The name that the base class had once."""


class _ByFunction(LRScheduler):
    """What schedules by functions share: their functions are saved only if they are objects."""

    _unsaved = ("optimizer", "lr_lambdas")

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        count = len(optimizer.param_groups)
        several = isinstance(lr_lambda, (list, tuple))
        check_range(
            not several or len(lr_lambda) == count,
            f"Expected {count} lr_lambdas, but got {len(lr_lambda) if several else 1}",
        )
        self.lr_lambdas: list[Callable] = list(lr_lambda) if several else [lr_lambda] * count
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule knows; of functions only callable objects are saved."""
        state = super().state_dict()
        state["lr_lambdas"] = [
            None if isinstance(f, types.FunctionType) else vars(f).copy() for f in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        for function, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=False):
            if saved is not None:
                function.__dict__.update(saved)
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})


class LambdaLR(_ByFunction):
    """The initial rate times a function of the epoch."""

    def get_lr(self) -> Rates:
        """The rates of this epoch."""
        self._note_call()
        return [
            rate * function(self.last_epoch)
            for function, rate in zip(self.lr_lambdas, self.base_lrs, strict=True)
        ]


class MultiplicativeLR(_ByFunction):
    """The last rate times a function of the epoch."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        for function in lr_lambda if isinstance(lr_lambda, (list, tuple)) else [lr_lambda]:
            if not callable(function):
                raise TypeError(
                    f"lr_lambda should be a function, but got {type(function).__name__}\n"
                    f"  at {errors.here()}"
                )
        super().__init__(optimizer, lr_lambda, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of this epoch."""
        self._note_call()
        if self._is_initial:
            return self._same()
        return [
            group["lr"] * function(self.last_epoch)
            for function, group in zip(self.lr_lambdas, self.optimizer.param_groups, strict=True)
        ]


class StepLR(LRScheduler):
    """Multiplies the rate by ``gamma`` every ``step_size`` epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of this epoch."""
        self._note_call()
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._same()
        return self._times(self.gamma)

    def _get_closed_form_lr(self) -> Rates:
        return self._base_times(self.gamma ** (self.last_epoch // self.step_size))


class MultiStepLR(LRScheduler):
    """Multiplies the rate by ``gamma`` at each milestone."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of this epoch."""
        self._note_call()
        if self.last_epoch not in self.milestones:
            return self._same()
        return self._times(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> Rates:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return self._base_times(self.gamma**passed)


class ConstantLR(LRScheduler):
    """A fraction of the rate for the first ``total_iters`` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        check_range(
            0 <= factor <= 1.0, "Constant multiplicative factor expected to be between 0 and 1."
        )
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of this epoch."""
        self._note_call()
        if self.last_epoch == 0:
            return self._times(self.factor)
        if self.last_epoch != self.total_iters:
            return self._same()
        return self._times(1.0 / self.factor)

    def _get_closed_form_lr(self) -> Rates:
        over = self.last_epoch >= self.total_iters
        return self._base_times(self.factor + over * (1 - self.factor))


class LinearLR(LRScheduler):
    """A fraction of the rate that changes linearly over the first ``total_iters`` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        check_range(
            0 < start_factor <= 1.0,
            "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.",
        )
        check_range(
            0 <= end_factor <= 1.0, "Ending multiplicative factor expected to be between 0 and 1."
        )
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of this epoch."""
        self._note_call()
        if self.last_epoch == 0:
            return self._times(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._same()
        rise = self.end_factor - self.start_factor
        reached = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return self._times(1.0 + rise / reached)

    def _get_closed_form_lr(self) -> Rates:
        rise = self.end_factor - self.start_factor
        done = min(self.total_iters, self.last_epoch)
        return self._base_times(self.start_factor + rise * done / self.total_iters)


class ExponentialLR(LRScheduler):
    """Multiplies the rate by ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of this epoch."""
        self._note_call()
        return self._same() if self._is_initial else self._times(self.gamma)

    def _get_closed_form_lr(self) -> Rates:
        return self._base_times(self.gamma**self.last_epoch)


class PolynomialLR(LRScheduler):
    """Lets the rate fall to zero along a power of the epochs that are left."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of this epoch."""
        self._note_call()
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._same()
        left = 1.0 - self.last_epoch / self.total_iters
        left_before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return self._times((left / left_before) ** self.power)

    def _get_closed_form_lr(self) -> Rates:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return self._base_times((1.0 - done) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """Lets the rate swing between its start and ``eta_min`` along a cosine."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Rates:
        """The rates of this epoch."""
        self._note_call()
        if self._is_initial:
            return self._same()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        groups = self.optimizer.param_groups
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # The rate has reached the bottom, from which no factor leads up again.
            rise = 1 - math.cos(math.pi / self.T_max)
            return [
                group["lr"] + (rate - self.eta_min) * rise / 2
                for rate, group in zip(self.base_lrs, groups, strict=True)
            ]
        now = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        before = 1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        return [now / before * (group["lr"] - self.eta_min) + self.eta_min for group in groups]

    def _get_closed_form_lr(self) -> Rates:
        height = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        return [self.eta_min + (rate - self.eta_min) * height / 2 for rate in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that starts anew, after ever longer periods if ``T_mult`` is above 1."""

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


class _Composite(LRScheduler):
    """What schedules made of others share."""

    _unsaved = ("optimizer", "_schedulers")
    _schedulers: Sequence[LRScheduler]

    def _check(self, optimizer: Any, schedulers: Sequence[Any]) -> None:
        name = type(self).__name__
        for i, other in enumerate(schedulers):
            if not hasattr(other, "optimizer"):
                raise TypeError(
                    f"{name} at index {i} should have `optimizer` as its attribute.\n"
                    f"  at {errors.here()}"
                )
            check_range(
                not isinstance(other, ReduceLROnPlateau),
                f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional "
                f"kwargs to be specified when calling `step`, but got one at index {i} in the "
                "given schedulers sequence.",
            )
            check_range(
                optimizer is other.optimizer,
                f"{name} expects all schedulers to belong to the same optimizer, but got "
                f"scheduler {type(other).__name__} at index {i} has {other.optimizer}, which is "
                f"different from {type(optimizer).__name__}.",
            )

    def state_dict(self) -> dict[str, Any]:
        """All that this and its parts know."""
        state = super().state_dict()
        state["_schedulers"] = [other.state_dict() for other in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for other, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            other.load_state_dict(saved)


class SequentialLR(_Composite):
    """One schedule after another, changing at the milestones."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        check_range(
            len(schedulers) >= 1,
            f"{type(self).__name__} expects at least one scheduler, but got no scheduler.",
        )
        self._check(optimizer, schedulers)
        check_range(
            len(milestones) == len(schedulers) - 1,
            "Sequential Schedulers expects number of schedulers provided to be one more than the "
            f"number of milestone points, but got number of schedulers {len(schedulers)} and the "
            f"number of milestones to be equal to {len(milestones)}",
        )
        self._schedulers, self._milestones = schedulers, milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # The parts have all made their first step, but only one of them should have.
        for group in optimizer.param_groups:
            _set(group, "lr", group["initial_lr"])
        self.recursive_undo()
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Take back the first step of all parts."""
        sched = self if sched is None else sched
        if hasattr(sched, "_schedulers"):
            for other in sched._schedulers:
                self.recursive_undo(other)
        elif hasattr(sched, "last_epoch"):
            sched.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Begin the next epoch."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        current = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            current._update_lr(0)
        else:
            current.step()
        self._last_lr = current.get_last_lr()


class ChainedScheduler(_Composite):
    """Several schedules at once, each working on what the one before has set."""

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        check_range(
            len(schedulers) >= 1,
            f"{type(self).__name__} expects at least one scheduler to be chained, but got no "
            "scheduler.",
        )
        optimizer = optimizer or schedulers[0].optimizer
        self._check(optimizer, schedulers)
        self._schedulers, self.optimizer = schedulers, optimizer
        self._last_lr = self._same()

    def step(self) -> None:  # type: ignore[override]
        """Begin the next epoch of all."""
        for other in self._schedulers:
            other.step()
        self._last_lr = self._same()


class ReduceLROnPlateau(LRScheduler):
    """Reduces the rate when a metric has stopped getting better."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        check_range(factor < 1.0, "Factor should be < 1.0.")
        self.factor = factor
        _need_optimizer(optimizer)
        self.optimizer = optimizer
        count = len(optimizer.param_groups)
        self.default_min_lr: float | None
        if isinstance(min_lr, (list, tuple)):
            check_range(len(min_lr) == count, f"expected {count} min_lrs, got {len(min_lr)}")
            self.default_min_lr, self.min_lrs = None, list(min_lr)
        else:
            self.default_min_lr, self.min_lrs = min_lr, [min_lr] * count
        self.patience, self.cooldown, self.eps = patience, cooldown, eps
        self.last_epoch = 0
        self._last_lr = self._same()
        self._init_is_better(mode, threshold, threshold_mode)
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = self.num_bad_epochs = 0

    def _init_is_better(self, mode: str, threshold: float, threshold_mode: str) -> None:
        check_range(mode in ("min", "max"), f"mode {mode} is unknown!")
        check_range(
            threshold_mode in ("rel", "abs"), f"threshold mode {threshold_mode} is unknown!"
        )
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Look at the metric of an epoch, and reduce the rate if it has been bad for too long."""
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(epoch)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._same()

    def _reduce_lr(self, epoch: int) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from "
                    f"when `ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due "
                    "to a new param group being added to the optimizer. Please modify the "
                    "`min_lrs` field to match the length of the `optimizer` param groups.\n"
                    f"  at {errors.here()}"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, smallest in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, smallest)
            if old - new > self.eps:
                _set(group, "lr", new)

    @property
    def in_cooldown(self) -> bool:
        """Whether a reduction is so recent that bad epochs don't count."""
        return self.cooldown_counter > 0

    def _is_better(self, a: float, best: float) -> bool:
        if self.threshold_mode == "rel":
            if self.mode == "min":
                return a < best * (1.0 - self.threshold)
            return a > best * (self.threshold + 1.0)
        return a < best - self.threshold if self.mode == "min" else a > best + self.threshold

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        super().load_state_dict(state_dict)
        self._init_is_better(self.mode, self.threshold, self.threshold_mode)


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
            "anneal_strategy must be one of 'cos' or 'linear', instead got "
            f"{anneal_strategy}",
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
