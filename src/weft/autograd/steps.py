"""The step of a training in which a node was created.

A step ends with a backward pass. Nodes are numbered as they are made, so the number that stands
next when a pass ends is all that has to be noted: ops pay nothing.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect

from weft.core.node import next_sequence

MOST = 1 << 16  # notes; then every second one goes, and steps are known less exactly


class StepBoundaries:
    """The ends of steps, as numbers of nodes."""

    def __init__(self) -> None:
        self.ended = 0
        self._every = 1  # how many steps lie between two notes
        self._notes = array("q")
        self._lock = threading.Lock()

    def end(self) -> None:
        """A step has ended: nodes made from now on belong to the next."""
        with self._lock:
            self.ended += 1
            if self.ended % self._every == 0:
                self._notes.append(next_sequence())
                if len(self._notes) >= MOST:
                    self._notes = self._notes[1::2]
                    self._every *= 2

    def of(self, sequence: int) -> range:
        """The step that made a node, from 0; several where it is known less exactly."""
        first = bisect(self._notes, sequence) * self._every
        return range(first, first + self._every)


STEPS = StepBoundaries()
