"""Printing for people at a terminal, and plain lines for everyone else."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

STYLES = {"bold": "1", "soft": "2", "good": "32", "bad": "31", "accent": "34"}


class Terminal:
    """Where the demo prints. Colours and a moving bar are for terminals alone."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = sys.stdout if out is None else out
        self.moving = self.out.isatty() and os.environ.get("TERM") != "dumb"
        self.coloured = self.moving and "NO_COLOR" not in os.environ
        plain = (getattr(self.out, "encoding", None) or "utf-8").lower() not in ("utf-8", "utf8")
        self.marks = ("#", "-") if plain else ("━", "─")
        self._open = False  # whether a bar stands on the last line

    def style(self, words: str, name: str) -> str:
        return f"\x1b[{STYLES[name]}m{words}\x1b[0m" if self.coloured else words

    def line(self, words: str = "", style: str | None = None) -> None:
        """Print a line, after the bar if there is one."""
        self.end_bar()
        print(self.style(words, style) if style else words, file=self.out, flush=True)

    def heading(self, words: str) -> None:
        """Begin a part."""
        self.line()
        self.line(words, "bold")

    def block(self, words: object, style: str | None = None) -> None:
        """Print several lines, set in a little."""
        for words_of_line in str(words).splitlines():
            self.line(f"    {words_of_line}", style)

    def bar(self, share: float, words: str) -> None:
        """Redraw the bar in place."""
        if not self.moving:
            return
        columns = shutil.get_terminal_size().columns
        width = max(min(28, columns - len(words) - 6), 0)
        done = round(width * share)
        full, empty = self.marks[0] * done, self.marks[1] * (width - done)
        line = f"  {self.style(full, 'accent')}{self.style(empty, 'soft')}  "
        print(f"\r\x1b[K{line}{words[: max(columns - width - 5, 0)]}", end="", file=self.out)
        self.out.flush()
        self._open = True

    def end_bar(self) -> None:
        """Leave the bar as it is and continue below it."""
        if self._open:
            self._open = False
            print(file=self.out)


class TerminalProgress:
    """How far a training is: a bar at a terminal, and a line for each epoch elsewhere."""

    def __init__(self, terminal: Terminal, epochs: int) -> None:
        self.terminal, self.epochs = terminal, epochs
        self._spent, self._steps, self._since = 0.0, 0, time.perf_counter()
        self._accuracy: float | None = None

    def go_on(self) -> None:
        """Training continues after an interruption whose time does not count."""
        self._since = time.perf_counter()

    def step(self, epoch: int, batch: int, batches: int, loss: float) -> None:
        """A step has ended."""
        now = time.perf_counter()
        self._spent, self._since = self._spent + now - self._since, now
        self._steps += 1
        self._draw(((epoch - 1) * batches + batch) / (self.epochs * batches), epoch, loss)

    def _draw(self, share: float, epoch: int, loss: float) -> None:
        rate = self._steps / self._spent if self._spent else 0.0
        left = self._spent * (1 - share) / share
        words = f"epoch {epoch:>2}/{self.epochs}  loss {loss:.4f}"
        if self._accuracy is not None:
            words += f"  test {self._accuracy:.1%}"
        self.terminal.bar(share, f"{words}  {rate:.0f} steps/s  {left:.0f} s left")

    def epoch(self, epoch: int, loss: float, accuracy: float) -> None:
        """An epoch has ended."""
        self._accuracy = accuracy
        if self.terminal.moving:
            self._draw(epoch / self.epochs, epoch, loss)
        else:
            self.terminal.line(
                f"  epoch {epoch:>2} of {self.epochs}  loss {loss:.4f}  "
                f"test accuracy {accuracy:.2%}"
            )
