"""The training loop, and what every training needs around it."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft import memory
from weft.amp import GradScaler, autocast
from weft.core import dtype as dtypes
from weft.core import errors
from weft.core.modes import no_grad
from weft.core.tensor import Tensor
from weft.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm
from weft.optim.lr_scheduler import ReduceLROnPlateau
from weft.train import checks
from weft.train.averages import Averages, number, samples_in
from weft.train.callbacks import Callback
from weft.train.guard import Guard
from weft.train.interrupts import Interrupts
from weft.train.loggers import Loggers
from weft.train.progress import Progress
from weft.train.saving import Checkpoints
from weft.train.seeding import seed_everything

__all__ = ["Trainer"]

Metrics = dict[str, float]


class Trainer:
    """Trains a model. Everything in it could be written by hand; this is the loop written once.

    ``model(x)`` and ``loss(output, target)`` are what a step computes for a batch ``(x, target)``.
    Other kinds of batches and losses: give ``step``, a function of the model and a batch that
    returns the loss, or a dict of numbers with the key ``loss``; or give the model a method
    ``training_step(batch)`` that does. ``metrics`` are functions of output and target, by name,
    for evaluation; ``eval_step`` and ``validation_step`` take the place of loss and metrics there.

    With a ``folder``, the state of everything is saved after each epoch (and after every
    ``save_every`` updates) as ``last.pt``, and as ``best.pt`` when ``monitor`` is the best so far.
    A training that was stopped for any reason resumes from there with identical bits.
    """

    def __init__(
        self,
        model: Any,
        loss: Callable[[Any, Any], Tensor] | None = None,
        optimizer: Any = None,
        *,
        step: Callable[[Any, Any], Any] | None = None,
        eval_step: Callable[[Any, Any], Any] | None = None,
        metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
        scheduler: Any = None,
        schedule: str = "epoch",
        accumulate: int = 1,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        precision: str = "float32",
        seed: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        monitor: str | None = None,
        mode: str = "min",
        save_every: int | None = None,
        guard: str | None = "raise",
        loggers: Sequence[Any] = (),
        log_every: int = 10,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
    ) -> None:
        checks.arguments(locals())
        self.model, self.optimizer = model, optimizer
        self.loss, self.metrics = loss, dict(metrics or {})
        self.step_function = step or getattr(type(model), "training_step", None)
        self.eval_function = eval_step or getattr(type(model), "validation_step", None)
        self.scheduler, self.schedule = scheduler, schedule
        self.accumulate, self.clip_norm, self.clip_value = accumulate, clip_norm, clip_value
        self.dtype = {"float32": None, "bfloat16": dtypes.bfloat16, "float16": dtypes.float16}[
            precision
        ]
        self.scaler = GradScaler("cpu", enabled=precision == "float16")
        self.seed, self.monitor, self.mode = seed, monitor, mode
        self.save_every, self.log_every = save_every, log_every
        self.guard = Guard(guard)
        self.callbacks, self.progress = list(callbacks), Progress(progress)
        self.loggers = Loggers(loggers, folder)
        self.checkpoints = Checkpoints(folder)
        self.epoch = self.updates = self.samples = 0  # what was done so far
        self.history: list[Metrics] = []  # the metrics of each epoch
        self.best: float | None = None
        self.should_stop = False  # a callback sets it to end the training after this epoch
        self.trained = False  # whether all of this epoch is done but its evaluation
        self.averages = Averages()
        self.data: Any = None

    # --- the loop ------------------------------------------------------------------------

    def fit(
        self,
        data: Iterable[Any],
        val_data: Iterable[Any] | None = None,
        *,
        epochs: int,
        resume: bool | str | os.PathLike[str] | None = None,
    ) -> list[Metrics]:
        """Train until ``epochs`` epochs are done; gives the metrics of each.

        ``resume=True`` goes on with what is in the folder, if there is anything; a path goes on
        with that file; ``resume=False`` starts over. None does so too, but refuses to where that
        would write over an earlier training.
        """
        checks.fit_arguments(self, data, val_data, epochs)
        self.data, self.epochs, self.should_stop = data, epochs, False
        first = self._begin(resume)
        with Interrupts() as self.interrupts, self.progress, self.loggers:
            self._tell("on_fit_start")
            if self.epoch >= epochs or self.should_stop:
                self.progress.say(f"nothing to do: the training ended after epoch {self.epoch}")
            while self.epoch < epochs and not self.should_stop:
                if not self.trained:
                    self._tell("on_epoch_start")
                    self._train_epoch(data, first)
                self._end_epoch(val_data)
                first = 0
            self.checkpoints.finish(self)
            self._tell("on_fit_end")
        return self.history

    def _train_epoch(self, data: Iterable[Any], first: int) -> None:
        self.model.train()
        self.progress.begin_epoch(self, data, first)
        for group in self._groups(data, first):
            self._update(group)
            self._after_update()
        checks.some_batches("data", self.batch)
        self.trained = True

    def _groups(self, data: Iterable[Any], first: int) -> Iterator[list[Any]]:
        """The batches, as many at a time as make one update."""
        batches = iter(data)
        if first and not self.checkpoints.resumes_within(data):
            # The iterable does not know where it was, so what was seen is passed over.
            for _ in itertools.islice(batches, first):
                pass
            self.checkpoints.restore_random()
        self.batch = first
        while group := list(itertools.islice(batches, self.accumulate)):
            self.batch += len(group)
            yield group

    def _update(self, group: list[Any]) -> None:
        """One update of the parameters, from one or several batches."""
        self._tell("on_update_start")
        self.optimizer.zero_grad()
        for batch in group:
            loss, shown = self._loss(batch)
            if not self.guard.loss_is_fine(self, loss, shown):
                return self._skip()
            self.scaler.scale(loss / len(group)).backward()
            self.averages.add(shown, samples_in(batch))
            self.samples += samples_in(batch)
        self.scaler.unscale_(self.optimizer)
        norm = self._clip()
        if not self.guard.gradients_are_fine(self, norm, group):
            return self._skip()
        self.grad_norm = norm
        self._tell("on_before_step")
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scheduler is not None and self.schedule == "step":
            self.scheduler.step()
        self.updates += 1
        self._tell("on_update_end")
        return None

    def _loss(self, batch: Any) -> tuple[Tensor, Metrics]:
        """The loss of a batch, and the numbers to show of it."""
        with autocast("cpu", self.dtype, enabled=self.dtype is not None):
            if self.step_function is not None:
                found = self.step_function(self.model, batch)
                parts = dict(found) if isinstance(found, Mapping) else {"loss": found}
            else:
                x, target = checks.pair(batch)
                parts = {"loss": self.loss(self.model(x), target)}  # type: ignore[misc]
        loss = checks.loss(parts)
        return loss, {name: number(value) for name, value in parts.items()}

    def _clip(self) -> float:
        """Clip the gradients; gives their norm before that."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        if self.clip_norm is not None:
            norm = clip_grad_norm_(parameters, self.clip_norm)
        else:
            norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
        if self.clip_value is not None:
            clip_grad_value_(parameters, self.clip_value)
        return norm.item()

    def _skip(self) -> None:
        """Leave an update out: the gradients go, the parameters stay."""
        self.optimizer.zero_grad()
        self.updates += 1

    def _after_update(self) -> None:
        """Show, log and save what is due; this is where an interrupt takes effect."""
        self.progress.update(self)
        if self.updates % self.log_every == 0:
            self.log(self._state_of_step())
        due = self.save_every is not None and self.updates % self.save_every == 0
        if self.interrupts.asked:
            self.interrupts.end(self, self.checkpoints.save(self, "last.pt"))
        elif due:
            self.checkpoints.save(self, "last.pt")

    def _end_epoch(self, val_data: Iterable[Any] | None) -> None:
        rate, found = self.progress.rate(), {}
        if val_data is not None:
            found = self._evaluate_epoch(val_data)
        metrics = self.averages.take() | {f"val_{k}": v for k, v in found.items()}
        metrics["lr"] = self.optimizer.param_groups[0]["lr"]
        metrics["samples_per_second"] = rate
        self.epoch += 1
        self.batch, self.trained = 0, False
        self._step_scheduler(metrics)
        self.history.append(metrics)
        self.log({f"epoch/{k}": v for k, v in metrics.items()} | {"epoch": self.epoch})
        self._tell("on_epoch_end", metrics)
        better = self._is_best(metrics)
        self.progress.end_epoch(self, metrics)
        if better:
            self.checkpoints.save(self, "best.pt")
        saved = self.checkpoints.save(self, "last.pt")
        if self.interrupts.asked:
            self.interrupts.end(self, saved)

    def _evaluate_epoch(self, val_data: Iterable[Any]) -> Metrics:
        """Evaluate; that may fail, be stopped or be killed, so what was trained is saved before."""
        saved = self.checkpoints.save(self, "last.pt")
        self.progress.begin_evaluation(self)

        def batches() -> Iterator[Any]:
            for batch in val_data:
                if self.interrupts.asked:
                    self.interrupts.end(self, saved)
                yield batch

        found = self.evaluate(batches())
        checks.some_batches("val_data", found)
        return found

    def _step_scheduler(self, metrics: Metrics) -> None:
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(self._monitored(metrics))
        elif self.scheduler is not None and self.schedule == "epoch":
            self.scheduler.step()

    def _monitored(self, metrics: Metrics) -> float:
        """What the best epoch is chosen by."""
        name = self.monitor or ("val_loss" if "val_loss" in metrics else "loss")
        if name not in metrics:
            raise KeyError(
                f"Trainer: monitor={name!r} is not among the metrics of an epoch, which are "
                f"{', '.join(metrics)}"
            )
        return metrics[name]

    def _is_best(self, metrics: Metrics) -> bool:
        value = self._monitored(metrics)
        better = not math.isnan(value) and (
            self.best is None or (value < self.best if self.mode == "min" else value > self.best)
        )
        if better:
            self.best = value
        return better

    # --- evaluation ----------------------------------------------------------------------

    def evaluate(self, data: Iterable[Any]) -> Metrics:
        """The loss and the metrics on some data, averaged over its samples."""
        averages = Averages()
        with self._evaluating():
            for batch in data:
                averages.add(self._evaluate_batch(batch), samples_in(batch))
        return averages.take()

    def _evaluate_batch(self, batch: Any) -> Metrics:
        with autocast("cpu", self.dtype, enabled=self.dtype is not None):
            if self.eval_function is not None:
                found = self.eval_function(self.model, batch)
                parts = dict(found) if isinstance(found, Mapping) else {"loss": found}
            elif self.loss is None:
                parts = self._loss(batch)[1]
            else:
                x, target = checks.pair(batch)
                output = self.model(x)
                parts = {"loss": self.loss(output, target)}
                parts |= {name: metric(output, target) for name, metric in self.metrics.items()}
        return {name: number(value) for name, value in parts.items()}

    def predict(self, data: Iterable[Any]) -> list[Any]:
        """The model's outputs, batch by batch; of pairs the first part is the input."""
        with self._evaluating(), autocast("cpu", self.dtype, enabled=self.dtype is not None):
            return [self.model(b[0] if isinstance(b, (list, tuple)) else b) for b in data]

    def _evaluating(self) -> Any:
        return checks.evaluation_mode(self.model, no_grad())

    # --- around it -----------------------------------------------------------------------

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Give numbers to all loggers; callbacks may call it too."""
        self.loggers.log({name: number(value) for name, value in metrics.items()}, self.updates)

    def _state_of_step(self) -> Metrics:
        found = {**self.averages.last, "lr": self.optimizer.param_groups[0]["lr"]}
        found |= {"grad_norm": self.grad_norm, "samples_per_second": self.progress.rate()}
        return found | {"memory": memory.stats()["used_bytes"]}

    def load_best(self) -> None:
        """Put the model into the state that was best by ``monitor``."""
        self.checkpoints.load_model(self, "best.pt")

    def find_lr(self, data: Iterable[Any], **options: Any) -> Any:
        """Try learning rates; see :func:`weft.train.find_lr`."""
        from weft.train.finders import find_lr

        return find_lr(self, data, **options)

    def find_batch_size(self, dataset: Any, **options: Any) -> int:
        """The largest batch that fits; see :func:`weft.train.find_batch_size`."""
        from weft.train.finders import find_batch_size

        return find_batch_size(self, dataset, **options)

    def _begin(self, resume: Any) -> int:
        """Seed, or take up what was saved; gives the batches of the epoch that are done."""
        self.batch, self.grad_norm = 0, 0.0
        first = self.checkpoints.begin(self, resume)
        if first is None:
            self.epoch = self.updates = self.samples = 0
            self.history, self.best, self.trained = [], None, False
            self.averages = Averages()
            if self.seed is not None:
                seed_everything(self.seed)
            return 0
        self.loggers.resume_at(self.updates)
        return first

    def _tell(self, event: str, *more: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *more)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the states of model, optimizer, scheduler and data."""
        return {
            "epoch": self.epoch, "batch": self.batch, "updates": self.updates,
            "samples": self.samples, "best": self.best, "history": self.history,
            "averages": self.averages.state_dict(), "grad_norm": self.grad_norm,
            "should_stop": self.should_stop, "trained": self.trained,
            "callbacks": [c.state_dict() for c in self.callbacks],
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what ``state_dict`` gave."""
        if len(state["callbacks"]) != len(self.callbacks):
            raise ValueError(
                f"Trainer: the checkpoint is of a training with {len(state['callbacks'])} "
                f"callbacks, and this one has {len(self.callbacks)}: make it as it was made before"
                f"\n  at {errors.here()}"
            )
        names = ("epoch", "batch", "updates", "samples", "best", "history", "grad_norm")
        for name in (*names, "should_stop"):
            setattr(self, name, state[name])
        self.trained = state.get("trained", False)
        self.averages.load_state_dict(state["averages"])
        for callback, saved in zip(self.callbacks, state["callbacks"], strict=True):
            callback.load_state_dict(saved)
