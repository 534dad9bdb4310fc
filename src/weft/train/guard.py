"""Losses and gradients that are not finite: noticed at once, and explained."""

from __future__ import annotations

import math
import warnings
from typing import Any

from weft.autograd.anomaly import detect_anomaly
from weft.graph.faults import first_bad

__all__ = ["Guard", "NonFiniteError"]

_WAYS_OUT = (
    "A lower learning rate, clip_norm, or a look at the data usually helps; guard='skip' leaves "
    "such updates out. The parameters are as they were before this update."
)


class NonFiniteError(FloatingPointError):
    """A loss or a gradient is NaN or infinite."""


class Guard:
    """Raises, or asks for the update to be left out, or does not look at all."""

    def __init__(self, action: str | None) -> None:
        self.action = action
        self.skipped = 0

    def loss_is_fine(self, trainer: Any, loss: Any, shown: dict[str, float]) -> bool:
        """Whether the loss is finite; if it is to raise, it says which op made it so."""
        value = shown["loss"]
        if self.action is None or math.isfinite(value):
            return True
        if self.action == "skip":
            return self._skip(trainer, f"the loss is {value}")
        raise NonFiniteError(
            f"the loss of update {trainer.updates + 1} (epoch {trainer.epoch + 1}) is {value}\n"
            f"{_indented(_explained(loss))}\n{_WAYS_OUT}"
        )

    def gradients_are_fine(self, trainer: Any, norm: float, group: list[Any]) -> bool:
        """Whether the gradients are finite. With float16 the scaler sees to that by itself."""
        if self.action is None or math.isfinite(norm) or trainer.scaler.is_enabled():
            return True
        if self.action == "skip":
            return self._skip(trainer, f"the norm of the gradients is {norm}")
        raise NonFiniteError(
            f"the gradients of update {trainer.updates + 1} (epoch {trainer.epoch + 1}) have the "
            f"norm {norm}, though the loss is finite\n"
            f"{_indented(_explained_backward(trainer, group))}\n{_WAYS_OUT}"
        )

    def _skip(self, trainer: Any, reason: str) -> bool:
        self.skipped += 1
        trainer.progress.say(f"warning: update {trainer.updates + 1} is left out: {reason}")
        return False


def _explained(loss: Any) -> str:
    try:
        found = first_bad(loss)
    except Exception as error:  # the loss matters more than why it can't be explained
        return f"where it came from can't be said: {error}"
    return "no op made it: it was there from the beginning" if found is None else repr(found)


def _explained_backward(trainer: Any, group: list[Any]) -> str:
    """Do the batches again, with a look at every step of the backward pass."""
    bad = [
        name
        for name, p in trainer.model.named_parameters()
        if p.grad is not None and not bool(p.grad.isfinite().all())
    ]
    told = f"parameters with such gradients: {', '.join(bad[:5])}{', ...' if len(bad) > 5 else ''}"
    buffers = {name: b.clone() for name, b in trainer.model.named_buffers()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error says it all
            with detect_anomaly(check_nan=True):
                for batch in group:
                    trainer._loss(batch)[0].backward()
    except RuntimeError as error:
        # The traceback at its end is of the trainer; the line that matters is named before.
        lines = str(error).partition(" was recorded here:")[0].splitlines()
        return "\n".join([told, *(lines[:-1] or lines)])
    except Exception as error:
        return f"{told}\nwhere it came from can't be said: {error}"
    finally:
        trainer.optimizer.zero_grad()
        for name, b in trainer.model.named_buffers():
            b.copy_(buffers[name])
    return f"{told}\na second run of the same batches was finite: it depends on random numbers"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
