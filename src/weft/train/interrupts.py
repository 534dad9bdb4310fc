"""Ctrl-C and the end of a batch job: finish the update, save, and stop."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import Any


class Interrupts:
    """Notes the first interrupt for the end of the update; a second one acts at once."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # What a program has set up of its own is left alone.
                standard = (signal.SIG_DFL, signal.default_int_handler)
                if signal.getsignal(number) in standard:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            with contextlib.suppress(ValueError, TypeError):
                signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: Any) -> None:
        if self.asked is not None:
            self._end()
        self.asked = number

    def end(self, trainer: Any) -> None:
        """Stop the program as the signal would have done, after saying where it can go on."""
        place = f"epoch {trainer.epoch + 1}, update {trainer.updates}"
        saved = trainer.checkpoints.saved
        how = f"saved to {saved}; fit(..., resume=True) goes on" if saved else "nothing was saved"
        trainer.progress.say(f"interrupted at {place}: {how}")
        self._end()

    def _end(self) -> None:
        if self.asked == getattr(signal, "SIGTERM", None):
            sys.exit(128 + signal.SIGTERM)
        raise KeyboardInterrupt
