"""What can be added to a training from outside."""

from __future__ import annotations

import math
from typing import Any

from weft.core.modes import no_grad
from weft.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

__all__ = ["Callback", "EarlyStopping", "LayerStats", "WeightAverage"]


class Callback:
    """Callbacks of a trainer. Override the methods you need; states are saved with the training."""

    def on_fit_start(self, trainer: Any) -> None:
        """The training begins or resumes."""

    def on_epoch_start(self, trainer: Any) -> None:
        """An epoch begins or resumes."""

    def on_update_start(self, trainer: Any) -> None:
        """The batches of an update are there."""

    def on_before_step(self, trainer: Any) -> None:
        """The gradients are there, clipped; the optimizer has not stepped yet."""

    def on_update_end(self, trainer: Any) -> None:
        """The optimizer has stepped."""

    def on_epoch_end(self, trainer: Any, metrics: dict[str, float]) -> None:
        """An epoch is over and evaluated; it is saved after this."""

    def on_fit_end(self, trainer: Any) -> None:
        """The training is over."""

    def state_dict(self) -> dict[str, Any]:
        """What is to be saved, as plain data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what was saved."""


class EarlyStopping(Callback):
    """Ends the training when a metric has not become better for ``patience`` epochs.

    >>> stop = EarlyStopping("val_loss", patience=2)
    """

    def __init__(
        self, monitor: str = "val_loss", patience: int = 5, mode: str = "min", delta: float = 0.0
    ) -> None:
        if mode not in ("min", "max") or patience < 1:
            raise ValueError(
                f"EarlyStopping: mode is 'min' or 'max' and patience at least 1, not {mode!r} and "
                f"{patience!r}"
            )
        self.monitor, self.patience, self.mode, self.delta = monitor, patience, mode, delta
        self.best = math.inf
        self.bad = 0

    def on_epoch_end(self, trainer: Any, metrics: dict[str, float]) -> None:
        """Count the epochs without progress; a NaN is none."""
        if self.monitor not in metrics:
            raise KeyError(
                f"EarlyStopping: {self.monitor!r} is not among the metrics of an epoch, which are "
                f"{', '.join(metrics)}"
            )
        value = metrics[self.monitor] * (1 if self.mode == "min" else -1)
        if value < self.best - self.delta:
            self.best, self.bad = value, 0
            return
        self.bad += 1
        if self.bad >= self.patience:
            trainer.should_stop = True
            trainer.progress.say(
                f"stopped early: {self.monitor} has not improved for {self.bad} epochs"
            )

    def state_dict(self) -> dict[str, Any]:
        """The best value and how long ago it was."""
        return {"best": self.best, "bad": self.bad}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take these up."""
        self.best, self.bad = state["best"], state["bad"]


class WeightAverage(Callback):
    """Keeps an exponential moving average of the weights (EMA), which often test better.

    ``model`` is the averaged model, a copy of its own; ``use(trainer)`` puts its weights into the
    model that was trained.

    >>> average = WeightAverage(decay=0.99)
    """

    def __init__(self, decay: float = 0.999, every: int = 1) -> None:
        if not 0 <= decay < 1 or every < 1:
            raise ValueError(
                "WeightAverage: decay is at least 0 and below 1, and every at least 1, not "
                f"{decay!r} and {every!r}"
            )
        self.decay, self.every = decay, every
        self.average: AveragedModel | None = None
        self._saved: dict[str, Any] | None = None

    @property
    def model(self) -> Any:
        """The model with the averaged weights."""
        if self.average is None:
            raise RuntimeError("WeightAverage: there is no average before a training has begun")
        return self.average.module

    def on_fit_start(self, trainer: Any) -> None:
        """Begin with the weights as they are, or with those that were saved."""
        blend = get_ema_multi_avg_fn(self.decay)
        self.average = AveragedModel(trainer.model, multi_avg_fn=blend, use_buffers=True)
        if self._saved is not None:
            self.average.load_state_dict(self._saved)
            self._saved = None

    def on_update_end(self, trainer: Any) -> None:
        """Take the new weights in."""
        if trainer.updates % self.every == 0:
            assert self.average is not None
            self.average.update_parameters(trainer.model)

    def use(self, trainer: Any) -> None:
        """Let the trained model have the averaged weights."""
        trainer.model.load_state_dict(self.model.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """The averaged weights."""
        return {} if self.average is None else dict(self.average.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take these up, when the training begins."""
        self._saved = state or None


class LayerStats(Callback):
    """Logs the norm of the gradient of each layer, and how much of its weights a step changes.

    A ratio of about 1e-3 is healthy: far less and a layer learns nothing, far more and it is
    overwritten.
    """

    def __init__(self, every: int = 50) -> None:
        self.every = every
        self._before: dict[str, list[Any]] = {}

    def on_before_step(self, trainer: Any) -> None:
        """Remember the weights, now and then."""
        self._before = {}
        if trainer.updates % self.every == 0:
            with no_grad():
                self._norms = {
                    f"grad_norm/{name}": _norm([p.grad for p in ps if p.grad is not None])
                    for name, ps in layers(trainer.model).items()
                }
                self._before = {
                    name: [p.detach().clone() for p in ps]
                    for name, ps in layers(trainer.model).items()
                }

    def on_update_end(self, trainer: Any) -> None:
        """Compare."""
        if not self._before:
            return
        ratios = {}
        with no_grad():
            for name, ps in layers(trainer.model).items():
                before = self._before[name]
                change = _norm([p - b for p, b in zip(ps, before, strict=True)])
                ratios[f"update_ratio/{name}"] = change / max(_norm(before), 1e-12)
        self._before = {}
        trainer.log(self._norms | ratios)


def layers(model: Any) -> dict[str, list[Any]]:
    """The modules that have parameters of their own that learn, by name."""
    found = {
        name or type(model).__name__: [p for p in m.parameters(recurse=False) if p.requires_grad]
        for name, m in model.named_modules()
    }
    return {name: ps for name, ps in found.items() if ps}


def _norm(tensors: list[Any]) -> float:
    return math.sqrt(sum(float(t.detach().float().square().sum().item()) for t in tensors))
