"""Ctrl-C, the end of a batch job, a lost terminal: finish the update, save, and stop."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import Any

_NUMBERS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class Interrupts:
    """Notes the first interrupt for the end of the update; a second one acts at once."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self._refused = False  # a first Ctrl-C, since nothing could be saved
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _NUMBERS:
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
        at_once = self.asked is not None or self._refused
        self.asked = number
        if at_once:
            self._end()

    def end(self, trainer: Any, saved: bool) -> None:
        """Stop the program as the signal would have done, after reporting where it can resume.

        A Ctrl-C that would lose work, because the checkpoint can't be written, does not stop it.
        """
        place = f"epoch {trainer.epoch + 1}, update {trainer.updates}"
        checkpoints = trainer.checkpoints
        if saved:
            how = f"saved to {checkpoints.saved}; fit(..., resume=True) resumes it"
        elif checkpoints.folder is None:
            how = "nothing was saved"
        elif self.asked == signal.SIGINT:
            trainer.progress.say(
                f"not interrupted at {place}: it could not be saved. A second Ctrl-C ends the "
                "training without saving"
            )
            self.asked, self._refused = None, True
            return
        else:
            how = f"it could not be saved; {checkpoints.older(checkpoints.folder / 'last.pt')}"
        trainer.progress.say(f"interrupted at {place}: {how}")
        self._end()

    def _end(self) -> None:
        if self.asked is not None and self.asked != signal.SIGINT:
            sys.exit(128 + self.asked)
        raise KeyboardInterrupt
