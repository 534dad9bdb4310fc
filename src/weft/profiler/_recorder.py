"""Listens to the ops, backward nodes and optimizer steps of a thread, and times them."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from weft.core import errors
from weft.core.modes import MODES
from weft.core.node import OpNode
from weft.core.scopes import path_of
from weft.core.tensor import Tensor
from weft.graph.cost import forward_flops
from weft.graph.listen import Listener
from weft.native.memory import pool
from weft.profiler._events import FunctionEvent


def now_us() -> float:
    """The time in microseconds."""
    return time.perf_counter_ns() / 1e3


class EventRecorder(Listener):
    """The events of the thread in which it is switched on."""

    def __init__(
        self, shapes: bool = False, memory: bool = False, stack: bool = False, flops: bool = False
    ) -> None:
        self.shapes, self.memory, self.stack, self.flops = shapes, memory, stack, flops
        self.used: list[tuple[float, int]] = []  # when, and how much memory was in use then
        known = pool.pool() if memory else None
        self._words = None if known is None else known.words
        self.events: list[FunctionEvent] = []
        self.open: list[FunctionEvent] = []
        self.op: FunctionEvent | None = None  # the op that runs now
        self.thread = threading.get_native_id()

    def begin(self, name: str) -> FunctionEvent:
        """Something begins; what begins before it ends is inside it."""
        parent = self.open[-1] if self.open else None
        scope = path_of(MODES.now.scope)
        event = FunctionEvent(len(self.events), name, self.thread, scope=scope, parent=parent)
        self.events.append(event)
        self.open.append(event)
        if self.stack:
            event.stack = [errors.here()]
        event.time_range.start = now_us()
        return event

    def end(self, event: FunctionEvent) -> None:
        """It ends, and with it whatever an error left open inside it."""
        event.time_range.end = end = now_us()
        while self.open:
            last = self.open.pop()
            if last is event:
                break
            last.time_range.end = end
        if event.cpu_parent is not None:
            event.cpu_parent.cpu_children.append(event)
        if self._words is not None:
            self.used.append((end, int(self._words[pool.USED])))

    # --- what is heard ---

    def before(self, op: Any, args: Any, attrs: dict[str, Any]) -> None:
        self._begin_op(f"aten::{op.name}", args)

    def _begin_op(self, name: str, args: Any) -> None:
        self._end_op()  # ops do not nest: one that is still open has failed
        self.op = event = self.begin(name)
        if self.shapes:
            event.input_shapes = _shapes(args)
            event.time_range.start = now_us()

    def _end_op(self) -> FunctionEvent | None:
        event, self.op = self.op, None
        if event is not None and event in self.open:
            self.end(event)
        return event

    def saw(self, op: Any, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
        event = self._end_op()
        if event is None:
            return
        if self.memory and not op.view:
            event.cpu_memory_usage = sum(r._a.nbytes for r in results)
        if self.flops and not op.view and results:
            shapes = [x._a.shape for x in args if isinstance(x, Tensor)]
            event.flops = forward_flops(op.name, results[0]._a.shape, shapes)

    def overwriting(self, op: Any, args: Any, attrs: dict[str, Any]) -> None:
        self._begin_op(f"aten::{op.name}_", args)

    def changed(self, op: Any, args: Any, attrs: dict[str, Any]) -> None:
        self._end_op()

    def goes_back(self, work: Any, roots: Any) -> None:
        self.begin("backward")
        if work.create:
            return  # its ops are heard one by one
        work.seen, step = True, work.step

        def timed(node: Any) -> None:
            event = self.begin(node.named().name())
            if isinstance(node, OpNode):  # it belongs to where its forward op stood
                event.scope = path_of(node.scope)
                if self.stack:
                    event.stack = [errors.describe_position(node.code, node.instruction)]
                    event.time_range.start = now_us()
            try:
                step(node)
            finally:
                self.end(event)

        work.step = timed

    def went_back(self, work: Any, roots: Any) -> None:
        self._end_named("backward")

    def step_begins(self, optimizer: Any) -> None:
        self.begin(_step_name(optimizer))

    def step_ended(self, optimizer: Any) -> None:
        self._end_named(_step_name(optimizer))

    def calls(self, function: Any, args: tuple[Any, ...]) -> Any:
        event = self.begin(function.__name__)
        try:
            return super().calls(function, args)
        finally:
            self.end(event)

    def _end_named(self, name: str) -> None:
        for event in reversed(self.open):
            if event.name == name:
                self.end(event)
                return


def _step_name(optimizer: Any) -> str:
    return f"Optimizer.step#{type(optimizer).__name__}.step"


def _shapes(args: Any) -> list[Any]:
    return [list(x._a.shape) if isinstance(x, Tensor) else [] for x in args]


def is_on() -> bool:
    """Whether a profiler listens in this thread."""
    return any(isinstance(r, EventRecorder) for r in MODES.now.recorders)


class record_function:
    """A block, or a function that it decorates, as one event of the profiles around it.

    >>> with record_function("my part"):
    ...     pass
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._open: list[list[tuple[EventRecorder, FunctionEvent]]] = []

    def __enter__(self) -> record_function:
        heard = [r for r in MODES.now.recorders if isinstance(r, EventRecorder)]
        self._open.append([(r, r.begin(self.name)) for r in heard])
        return self

    def __exit__(self, *exc: object) -> None:
        for recorder, event in self._open.pop():
            recorder.end(event)

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return wrapped
