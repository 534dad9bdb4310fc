"""Averaging the weights of a model over its training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Literal

import numpy as np

from weft import nn
from weft.core import errors
from weft.core.devices import host
from weft.core.dtype import float32, float64
from weft.core.modes import no_grad
from weft.core.tensor import Tensor, wrap
from weft.optim._schedule import LRScheduler, _format_param
from weft.optim.optimizer import Optimizer, check_range

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _check_decay(decay: float) -> None:
    check_range(
        0.0 <= decay <= 1.0,
        f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.",
    )


def _blends(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable:
    """A function that updates a list of exponential moving averages in place."""
    _check_decay(decay)

    @no_grad()
    def ema_update(averages: Any, current: Any, _: Any) -> None:
        for average, value in zip(averages, current, strict=True):
            if _blends(average):
                average.lerp_(value, 1 - decay)
            else:
                average.copy_(average * decay + value * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable:
    """A function that updates a list of equally weighted averages in place."""

    @no_grad()
    def swa_update(averages: Any, current: Any, num_averaged: Any) -> None:
        # From a tensor the weight is a tensor, so that a recorded update can be repeated.
        count = num_averaged.double() if isinstance(num_averaged, Tensor) else num_averaged
        weight = 1 / (count + 1)
        for average, value in zip(averages, current, strict=True):
            if average.dtype in (float32, float64) and isinstance(weight, Tensor):
                average.lerp_(value, weight.to(average.dtype))
            elif _blends(average):
                average.lerp_(value, float(weight))
            else:
                share = weight.float() if isinstance(weight, Tensor) else weight
                average.copy_(average + (value - average) * share)

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable:
    """A function that gives the next exponential moving average of one tensor."""
    _check_decay(decay)

    @no_grad()
    def ema_update(average: Any, current: Any, num_averaged: Any) -> Any:
        return decay * average + (1 - decay) * current

    return ema_update


def get_swa_avg_fn() -> Callable:
    """A function that gives the next equally weighted average of one tensor."""

    @no_grad()
    def swa_update(average: Any, current: Any, num_averaged: Any) -> Any:
        return average + (current - average) / (num_averaged + 1)

    return swa_update


class AveragedModel(nn.Module):
    """A copy of a model whose parameters are averages of the model's over time."""

    n_averaged: Any
    module: Any

    def __init__(
        self,
        model: Any,
        device: Any = None,
        avg_fn: Callable | None = None,
        multi_avg_fn: Callable | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError(
                f"Only one of avg_fn and multi_avg_fn should be provided\n  at {errors.here()}"
            )
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", wrap(np.array(0, np.int64)))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged model gives."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Any) -> None:
        """Take the model's current parameters into the average."""
        pairs = _pairs(self.module, model, self.use_buffers)
        if not host(self.n_averaged) > 0:
            # Read where a recorder hears it: a repeat of this step would copy again.
            self.n_averaged.item()
            for average, value in pairs:
                average.copy_(value)
        elif self.avg_fn is not None:
            for average, value in pairs:
                average.copy_(self.avg_fn(average, value, self.n_averaged))
        else:
            _update_together(pairs, self.multi_avg_fn, self.n_averaged)
        if not self.use_buffers:
            buffers = zip(self.module.buffers(), model.buffers(), strict=True)
            for own, other in buffers:
                own.detach().copy_(other.detach())
        self.n_averaged += 1


def _pairs(own: Any, other: Any, use_buffers: bool) -> list[tuple[Any, Any]]:
    """The detached tensors of the average and of the model, side by side."""

    def tensors(module: Any) -> Iterable[Any]:
        if use_buffers:
            return itertools.chain(module.parameters(), module.buffers())
        return module.parameters()

    both = zip(tensors(own), tensors(other), strict=False)
    return [(average.detach(), value.detach()) for average, value in both]


def _update_together(pairs: list[tuple[Any, Any]], update: Callable | None, count: Any) -> None:
    """Call the update once for the tensors of each dtype."""
    by_dtype: dict[Any, list[tuple[Any, Any]]] = {}
    for average, value in pairs:
        by_dtype.setdefault(average.dtype, []).append((average, value))
    update = update or get_swa_multi_avg_fn()
    for group in by_dtype.values():
        update([average for average, _ in group], [value for _, value in group], count)


@no_grad()
def update_bn(loader: Iterable[Any], model: Any, device: Any = None) -> None:
    """Recompute the running statistics of a model's batch norms over the given data."""
    from weft.nn.normalization import _BatchNorm

    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        # Without a momentum the running statistics are plain means over all batches.
        norm.momentum = None
    training = model.training
    model.train()
    for batch in loader:
        inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(inputs if device is None else inputs.to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(training)


class SWALR(LRScheduler):
    """Leads the rate to a constant one, at which weights are averaged."""

    _unsaved = ("optimizer", "anneal_func")

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float,
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = _format_param("swa_lr", optimizer, swa_lr)
        for rate, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        check_range(
            anneal_strategy in ("cos", "linear"),
            f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}",
        )
        self._anneal_strategy = anneal_strategy
        check_range(
            isinstance(anneal_epochs, int) and anneal_epochs >= 0,
            f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}",
        )
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """How much of the way to the last rate is done after a fraction of the epochs."""
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        """The rates of this epoch."""
        self._note_call()
        step, length = self._step_count - 1, max(1, self.anneal_epochs)
        if self.anneal_epochs == 0:
            step = max(1, step)
        before = self.anneal_func(max(0, min(1, (step - 1) / length)))
        now = self.anneal_func(max(0, min(1, step / length)))
        rates = []
        for group in self.optimizer.param_groups:
            last = group["swa_lr"]
            first = last if before == 1 else (group["lr"] - before * last) / (1 - before)
            rates.append(last * now + first * (1 - now))
        return rates
