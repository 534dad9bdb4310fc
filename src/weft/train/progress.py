"""How far a training is: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from typing import Any

_QUIET = 30.0  # seconds between two lines within an epoch, where there is no terminal
_FEW = 4  # metrics in the bar
# A terminal that is gone, or a log on a full disk: no reason to end a training.
_UNWRITABLE = contextlib.suppress(OSError, ValueError)


class Progress:
    """Shows loss, speed and remaining time on stderr."""

    def __init__(self, shown: bool = True) -> None:
        self.shown = shown
        self._bar: Any = None
        self._began = self._said = time.monotonic()
        self._seen = 0
        self._total: int | None = None

    def __enter__(self) -> Progress:
        self._seconds, self._finished = 0.0, 0
        return self

    def __exit__(self, *exc: object) -> None:
        self._close_bar()

    def _close_bar(self) -> None:
        if self._bar is not None:
            with _UNWRITABLE:
                self._bar.close()
            self._bar = None

    def begin_epoch(self, trainer: Any, data: Any, first: int) -> None:
        """An epoch begins, or resumes after so many batches."""
        self._total = None
        with contextlib.suppress(TypeError, NotImplementedError):
            self._total = len(data)
        self._began = self._said = time.monotonic()
        self._seen, self._first = trainer.samples, first
        if self.shown and _has_terminal():
            from tqdm import tqdm

            title = f"epoch {trainer.epoch + 1}/{trainer.epochs}"
            # The line of the epoch takes the place of its bar.
            with _UNWRITABLE:
                self._bar = tqdm(
                    total=self._total, initial=first, desc=title, file=sys.stderr, leave=False
                )

    def update(self, trainer: Any) -> None:
        """An update is done."""
        self._samples = trainer.samples - self._seen
        if not self.shown:
            return
        if self._bar is not None:
            means = list(trainer.averages.means().items())[:_FEW]
            shown = {k: f"{v:.4g}" for k, v in means}
            if trainer.epoch + 1 < trainer.epochs:  # tqdm tells what is left of the epoch
                shown["left"] = self._remaining(trainer, ended=False)
            with _UNWRITABLE:
                self._bar.set_postfix(shown, refresh=False)
                self._bar.update(trainer.batch - self._bar.n)
        elif time.monotonic() - self._said >= _QUIET:
            self._said = time.monotonic()
            self.say(self._line(trainer, trainer.averages.means()))

    def begin_evaluation(self, trainer: Any) -> None:
        """The batches of an epoch are done; it is evaluated."""
        if self._bar is not None:
            with _UNWRITABLE:
                self._bar.set_description(f"epoch {trainer.epoch + 1}/{trainer.epochs}, evaluating")

    def end_epoch(self, trainer: Any, metrics: dict[str, float]) -> None:
        """An epoch is over: its metrics in one line, the same in a terminal and in a file."""
        self._seconds += time.monotonic() - self._began
        self._finished += 1
        self._close_bar()
        if self.shown:
            self.say(self._line(trainer, metrics, ended=True))

    def rate(self) -> float:
        """Samples a second in this epoch."""
        taken = time.monotonic() - self._began
        return getattr(self, "_samples", 0) / taken if taken > 0 else 0.0

    def _line(self, trainer: Any, metrics: dict[str, float], ended: bool = False) -> str:
        epoch = trainer.epoch if ended else trainer.epoch + 1
        place = f"epoch {epoch}/{trainer.epochs}"
        if not ended:
            place += f" batch {trainer.batch}" + (f"/{self._total}" if self._total else "")
        told = [f"{k} {v:.4g}" for k, v in metrics.items() if k != "samples_per_second"]
        speed = f"{self.rate():.0f} samples/s"
        left = self._remaining(trainer, ended)
        return "  ".join([place, *told, speed, *([f"{left} left"] if left else [])])

    def _remaining(self, trainer: Any, ended: bool) -> str:
        if ended:
            each = self._seconds / self._finished
            return _clock(each * (trainer.epochs - trainer.epoch)) if each else ""
        done = trainer.batch - self._first
        if not self._total or not done:
            return ""
        each = (time.monotonic() - self._began) / done
        batches = self._total - trainer.batch + self._total * (trainer.epochs - trainer.epoch - 1)
        return _clock(each * batches)

    def say(self, text: str) -> None:
        """Print a line without disturbing the bar."""
        with _UNWRITABLE:
            if self._bar is not None:
                self._bar.write(text, file=sys.stderr)
            else:
                print(text, file=sys.stderr, flush=True)


def _has_terminal() -> bool:
    terminal = getattr(sys.stderr, "isatty", None)
    return bool(terminal and terminal()) and importlib.util.find_spec("tqdm") is not None


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
