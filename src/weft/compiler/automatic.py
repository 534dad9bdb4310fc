"""Automatic compiling: repeating segments of a program are found as it runs.

A segment begins with the first op after something that a trace can't contain (a value that was
read, an optimizer's step), and is identified by the place in the program where that op was called.
Once a place has been reached often enough, the ops that follow it are learned and from then on
followed, exactly as in a compiled function.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from weft.compiler.following import Region
from weft.compiler.segment import TraceMemory
from weft.compiler.trace import LEAF, RESULT, Point
from weft.core import dtype as dt
from weft.core import frames, selection
from weft.core.dispatch import Op
from weft.core.modes import MODES
from weft.core.tensor import Tensor

PATIENCE = 2  # how often a place is reached before the ops after it are learned
PLACES = 4096  # that are remembered
TRIES = 16  # divergences before a place is given up


class SegmentStart:
    """The start of a segment, and its history."""

    __slots__ = ("diverged", "passed", "point", "ran")

    def __init__(self, point: Point) -> None:
        self.point = point
        self.passed = self.ran = self.diverged = 0

    @property
    def promising(self) -> bool:
        """Whether it pays to follow the segment that begins here."""
        return self.passed > PATIENCE and (self.diverged < TRIES or self.ran > 4 * self.diverged)


class Automatic(Region):
    """Listens to a thread until it is stopped: see ``auto``."""

    puts_off = False  # it never ends at a place known to the program
    longest = 2000  # a loop that reads no value must not grow

    def __init__(self) -> None:
        self.places: dict[Any, SegmentStart] = {}
        self.place: SegmentStart | None = None
        super().__init__(TraceMemory("automatic"))
        self.idle = True  # between two segments

    def go_on(self, point: Point) -> None:
        if self.place is not None:
            self.place.ran += 1
        self.unhook()
        self.start(Point())  # a point at which nothing is ever learned
        self.idle, self.place = True, None

    def asked(self, tensor: Tensor) -> None:
        """A value was read: learning ends here, since following will end here.

        Otherwise it would continue through the iterations of a loop, keeping all of their results.
        """
        if self.learning and self.ids.get(id(tensor), (LEAF,))[0] == RESULT:
            self.cut("a value was read")

    def written_to(self, array: Any, target: Any) -> None:
        if self.learning and target is None:  # the memory is passed to NumPy, for example
            for tensor in [t for t in self.handles if t is not None and t._a is array]:
                self.asked(tensor)
        super().written_to(array, target)

    def begins(self) -> bool:
        """Whether the op being called begins a segment that is worth following."""
        frame = frames.caller(sys._getframe(2))
        default = dt._default
        key = frame.f_code, frame.f_lasti, default
        place = self.places.get(key)
        if place is None:
            if len(self.places) >= PLACES:
                return False
            place = self.places[key] = SegmentStart(Point())
            self.learned.roots[key] = place.point
        place.passed += 1
        if not place.promising or not selection.enabled():
            return False
        self.start(place.point)
        self.idle, self.place, self.default = False, place, default
        if place.ran:
            self.hook()
        return True

    def before(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        if len(self.path) >= self.reach and self.is_full():
            self.cut("the limit of pending ops was reached")
        if self.idle and (self.refuses(op) or MODES.now.backward is not None or not self.begins()):
            return None
        return super().before(op, args, attrs)

    def overwriting(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        return None if self.idle else super().overwriting(op, args, attrs)

    def takes_on(self, target: Tensor, result: Tensor, name: str) -> bool:
        return not self.idle and super().takes_on(target, result, name)

    def detaching(self, tensor: Tensor) -> Any:
        return None if self.idle else super().detaching(tensor)

    def backs(self, tensors: Any, gradients: Any, options: tuple[Any, ...]) -> bool:
        return not self.idle and super().backs(tensors, gradients, options)

    def refuses(self, op: Any) -> bool:
        if self.idle:
            self.default = dt._default
        return super().refuses(op)

    def diverge(self, why: str) -> None:
        if self.place is not None and self.place.point.next:
            self.place.diverged += 1
        super().diverge(why)

    def start_over(self) -> None:
        """An exception was raised while a call was recorded, perhaps by a signal handler.

        Everything before it is executed, as in eager mode; what follows is a new segment.
        """
        if not self.idle and not self.busy:
            self.abandon()
            self.go_on(self.at)

    def stop(self) -> None:
        """Compute what is pending, and let the program run eagerly again."""
        if self in MODES.now.recorders:
            try:
                self.cut("automatic compiling was stopped")
            finally:
                self.__exit__()

    def explain(self) -> str:
        """A report of which segments were found, what runs natively, what does not, and why."""
        from weft.compiler import explained

        found = sum(1 for place in self.places.values() if place.ran)
        given_up = sum(1 for p in self.places.values() if p.passed > PATIENCE and not p.promising)
        counts = f"{len(self.places)} start points were seen, {found} begin a compiled segment"
        return f"{explained(self.learned)}\n  {counts}, {given_up} were given up"


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a region that is not enclosed by a compiled function: an error must not leave a
    half-recorded call.
    """

    @functools.wraps(method)
    def call(self: Automatic, *args: Any) -> Any:
        try:
            return method(self, *args)
        except BaseException:
            self.start_over()
            raise

    return call


for _name in (
    *("before", "saw", "overwriting", "takes_on", "writing", "detaching", "backs", "went_back"),
    *("steps", "calls", "read", "written_to"),
):
    setattr(Automatic, _name, _guarded(getattr(Automatic, _name)))


def listening_here() -> Automatic | None:
    """The automatic region of this thread."""
    return next((r for r in MODES.now.recorders if isinstance(r, Automatic)), None)


class auto:
    """Compile repeating segments in this thread, from now on or for a block; ``auto(False)`` stops
    it.

    Segments end where values are read and where an optimizer has stepped. Code that does not repeat
    runs eagerly, with a few microseconds of overhead for each op.

    >>> with torch.compiler.auto() as automatic:
    ...     for _ in range(5):
    ...         y = (torch.ones(3) * 2).sum().item()
    >>> y
    6.0
    """

    def __init__(self, on: bool = True) -> None:
        self.before = listening_here()
        self.region = self.before or Automatic()
        if on and self.before is None:
            self.region.__enter__()
        elif not on and self.before is not None:
            self.before.stop()

    def __enter__(self) -> auto:
        return self

    def __exit__(self, *exc: object) -> None:
        now = listening_here()
        if self.before is None and now is not None:
            now.stop()
        elif self.before is not None and now is None:
            self.before.__enter__()

    def explain(self) -> str:
        """A report of which segments were found, what runs natively, what does not, and why."""
        return self.region.explain()


def _before_fork() -> None:
    for region in tuple(MODES.now.recorders):
        if isinstance(region, Region):
            region.cut("a fork")


def _in_child() -> None:
    """A child process is another program: nothing of it repeats here."""
    for region in tuple(MODES.now.recorders):
        if isinstance(region, Automatic):
            region.stop()


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
