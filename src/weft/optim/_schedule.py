"""What all schedules of the learning rate share."""

from __future__ import annotations

import functools
import warnings
import weakref
from typing import Any

from weft.core import errors
from weft.core.modes import no_grad
from weft.core.tensor import Tensor
from weft.optim.optimizer import Optimizer, _to_scalar, check_range

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
        owner: Any = held()
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
