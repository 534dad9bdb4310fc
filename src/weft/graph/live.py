"""A thread's training as a source for the page: its steps as they end, its pauses, its edits.

Nothing is recorded while no client is connected. With a client, a step is recorded occasionally, so
that the page takes a fixed share of the program's time, however short the steps are.
"""

from __future__ import annotations

import contextlib
import importlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from weft.autograd.engine import WATCHERS
from weft.core.devices import host
from weft.core.dispatch import Op
from weft.core.modes import MODES
from weft.graph.export import step as write_down
from weft.graph.graph import Graph
from weft.graph.listen import Listener
from weft.graph.recording import Recorder
from weft.graph.ruling import Rules
from weft.graph.run import GraphError
from weft.operators.random import default_generator

__all__ = ["Live"]

KEPT_STEPS = 30
READER_LEFT = 2.0  # seconds without a request after which no client is assumed
SHARE = 0.2  # of the program's time, at most, goes into writing steps down
AT_LEAST = 0.2  # seconds between two steps that are written down
NOTICE = 0.2  # seconds within which a paused program sees an interrupt
MOST_POINTS = 1000  # of the loss curve; from there on every second one goes
PATIENCE = 10.0  # seconds that an edit waits for the end of a step before it says so


class Layer(Rules):
    """One edit. Each sees what the edits before it made of the program, as the reader did."""

    _by_call = False  # a step is what its record holds

    def __init__(self, said: str) -> None:
        super().__init__()
        self.said = said
        self.failed = ""

    def went_back(self, work: Any, roots: Any) -> None:
        """Names are counted over a whole step, as in its record."""

    def restart(self) -> None:
        """A new step begins."""
        self._counts.clear()

    def used(self) -> int:
        """How often the edit has acted."""
        return sum(rule.uses for rule in self._rules)

    def before(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        """Act on an op; an edit that fails is dropped, and the program goes on without it."""
        try:
            return super().before(op, args, attrs)
        except Exception as error:
            self.failed = str(error).partition("\n")[0]
            self.clear()
            return None


class Curve:
    """The loss by step: all of a training in a bounded number of points, evenly spread."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []
        self._every = 1
        self._sum, self._count = 0.0, 0

    def add(self, value: float) -> None:
        """One loss of the step that runs; a step of several backward passes has their mean."""
        self._sum, self._count = self._sum + value, self._count + 1

    def end(self, step: int) -> None:
        """The step is over."""
        if self._count and step % self._every == 0:
            self.points.append((step, self._sum / self._count))
            if len(self.points) >= MOST_POINTS:
                self._every *= 2
                self.points = [point for point in self.points if point[0] % self._every == 0]
        self._sum, self._count = 0.0, 0

    def document(self) -> list[list[Any]]:
        """The points as plain data."""
        return [list(point) for point in list(self.points)]


class _Asked:
    """An edit that waits for the end of a step."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.answer: dict[str, Any] | None = None
        self.done = threading.Event()


class Live(Listener):
    """Follows the thread that starts it. Other threads ask for documents and send edits."""

    def __init__(self, title: str = "Training", values: bool = False) -> None:
        self.title, self.values = title, values
        self.ended = 0  # steps, also those that were not watched
        self.loss = Curve()
        self._counting: Any = None
        self._written: deque[dict[str, Any]] = deque(maxlen=KEPT_STEPS)
        self._graph: Graph | None = None
        self._recorder: Recorder | None = None
        self._layers: list[Layer] = []
        self._placed: tuple[Any, ...] = ()  # what of ours listens now
        self._asked: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self._version = 1
        self._read_at = float("-inf")
        self._due = float("-inf")
        self._awake = self._closed = self._paused = False
        self._go_on = threading.Condition()
        self._pause_after: int | None = None  # how many more steps to run
        self._note = ""
        self._thread = 0

    # --- for the reader, from other threads ---

    def document(self) -> dict[str, Any]:
        """The steps that were written down, newest last."""
        self._read_at = time.monotonic()
        return {
            "weft_graph": 1,
            "title": self.title,
            "steps": list(self._written),
            "ended": self.ended,
            "loss": self.loss.document(),
            "paused": self._paused,
            "edits": [layer.said for layer in list(self._layers)],
            "note": self._note,
        }

    def version(self) -> int:
        """Grows with every change of the document."""
        self._read_at = time.monotonic()
        return self._version

    def edit(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what the page asks; edits of the graph are made at the end of a step."""
        kind = request["edit"]
        if self._closed:
            return {"error": "the program is no longer followed"}
        if kind in ("pause", "resume", "step"):
            with self._go_on:
                self._pause_after = {"pause": 0, "resume": None, "step": 1}[kind]
                self._go_on.notify_all()
            return {"ok": True}
        asked = _Asked(request)
        self._asked.put(asked)
        with self._go_on:
            self._go_on.notify_all()
        if not asked.done.wait(PATIENCE):
            return {"ok": True, "waiting": True}
        return asked.answer or {"error": "the program has ended"}

    @property
    def read_at(self) -> float:
        """The time of the last request, by ``time.monotonic``; minus infinity if there was none."""
        return self._read_at

    # --- the program's thread ---

    def start(self) -> None:
        """Follow this thread from now on."""
        self._thread = threading.get_ident()
        WATCHERS.append(self)
        optim = importlib.import_module("weft.optim.optimizer")
        self._counting = optim.register_optimizer_step_post_hook(self._count)
        self._wake()  # what comes before the first step is setting up, and no part of it

    def close(self) -> None:
        """Detach from the program; a pause ends, edits no longer act."""
        with self._go_on:
            self._closed = True
            self._go_on.notify_all()
        for asked in self._waiting():
            asked.done.set()
        self._stop_counting()
        if threading.get_ident() == self._thread:
            self._leave()

    def abandon(self) -> None:
        """In a forked child: the reader and the edits belong to the parent."""
        self._closed = True
        self._go_on = threading.Condition()
        self._stop_counting()
        self._leave()

    def _stop_counting(self) -> None:
        if self in WATCHERS:
            WATCHERS.remove(self)
        if self._counting is not None:
            self._counting.remove()

    def step(self) -> None:
        """End a step by hand, in a program whose updates are not an optimizer's."""
        if threading.get_ident() == self._thread and not self._closed:
            self._count()
            self._end_step()

    def _count(self, *about: Any) -> None:
        """A step is over, watched or not."""
        if threading.get_ident() == self._thread:
            self.ended += 1
            self.loss.end(self.ended)

    def goes_back(self, work: Any, roots: Any) -> None:
        """A backward pass begins: where it begins is the loss."""
        if threading.get_ident() == self._thread and work.ends_step:
            losses = [t for t in work.tensors if t.numel() == 1]
            if losses:
                self.loss.add(sum(float(host(t).reshape(())) for t in losses))

    def went_back(self, work: Any, roots: Any) -> None:
        """A backward pass has ended: whether any client wants to see the next step."""
        if not self._awake and threading.get_ident() == self._thread and self._wanted():
            self._wake()

    def step_ended(self, optimizer: Any) -> None:
        """An optimizer has stepped: the step is over."""
        if self._closed:
            self._leave()
        else:
            self._end_step()

    def _wanted(self) -> bool:
        now = time.monotonic()
        reading = now - self._read_at < READER_LEFT or not self._written
        asked = self._pause_after is not None or not self._asked.empty()
        return asked or (reading and now >= self._due)

    def _wake(self) -> None:
        """Listen for the end of the step, so that the next one can be recorded whole."""
        self._awake = True
        self._settle()

    def _record(self) -> None:
        self._recorder = Recorder(values=self.values, profile=True, home=None)
        self._recorder.__enter__()
        self._wake()

    def _end_step(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.__exit__()
            self._show(recorder.graph)
        self._drop_failed()
        self._answer_all()
        if recorder is not None:
            self._pause()
        for layer in self._layers:
            layer.restart()
        if self._closed:
            self._leave()
        elif self._wanted():
            self._record()
        else:
            self._awake = bool(self._layers)
            self._settle()

    def _show(self, graph: Graph) -> None:
        """Write a step down, and say when the next may be."""
        started = time.monotonic()
        self._written.append(write_down(graph, self.ended))
        # The graph stays, to try edits on; the values were for the statistics.
        graph._kept.clear()
        graph._grads.clear()
        self._graph = graph
        ended = time.monotonic()
        self._due = ended + max(AT_LEAST, (ended - started) / SHARE)
        self._changed()

    def _changed(self) -> None:
        self._version += 1

    def _settle(self) -> None:
        """Put our listeners where they belong: edits first, so that all others see their work."""
        now = MODES.now
        others = [r for r in now.recorders if r not in self._placed and r is not self._recorder]
        last = (*filter(None, [self._recorder]), self) if self._awake else ()
        self._placed = (*self._layers, *last)
        now.recorders = (*self._layers, *others, *last)
        now.update()

    def _leave(self) -> None:
        self._layers, self._recorder, self._awake = [], None, False
        self._settle()

    # --- pauses ---

    def _pause(self) -> None:
        """Hold the program while the reader wants it held; edits are made meanwhile."""
        with self._go_on:
            if self._pause_after:
                self._pause_after -= 1
            if self._pause_after != 0 or self._closed:
                return
            self._paused = True
            self._changed()
            try:
                while self._pause_after == 0 and not self._closed:
                    # Not forever: an interrupt just before would go unnoticed.
                    self._go_on.wait(NOTICE)
                    self._answer_all()
            finally:
                self._paused = False
                self._changed()

    # --- edits ---

    def _answer_all(self) -> None:
        for asked in self._waiting():
            try:
                asked.answer = self._make(asked.request)
            except GraphError as error:
                asked.answer = {"error": str(error).partition("\n  at ")[0]}
            except Exception as error:
                asked.answer = {"error": f"{type(error).__name__}: {error}"}
            self._changed()
            asked.done.set()

    def _waiting(self) -> Iterator[_Asked]:
        """Take the edits that wait, one by one; two threads may do so at once."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._asked.get_nowait()

    def _make(self, request: dict[str, Any]) -> dict[str, Any]:
        kind = request["edit"]
        if kind == "undo":
            if not self._layers:
                return {"error": "there is no edit to take back"}
            self._layers.pop()
            return {"ok": True}
        node, op = request["node"], request.get("op")
        if self._graph is None:
            return {"error": "no step has been recorded yet"}
        if node not in self._graph:
            return {"error": f"the last step has no node {node!r}"}
        self._check(self._graph, kind, node, op)
        layer = Layer(" ".join(filter(None, (kind, node, op))))
        if kind == "remove":
            layer.remove(name=node)
        else:
            {"replace": layer.replace, "insert": layer.insert_after}[kind](op, name=node)
        self._layers.append(layer)
        self._note = ""
        return {"ok": True}

    @staticmethod
    def _check(graph: Graph, kind: str, node: str, op: str | None) -> None:
        """Try the edit on the last step: what breaks shapes or dtypes raises."""
        edits: dict[str, Callable[[], Graph]] = {
            "replace": lambda: graph.replace(node, op),
            "insert": lambda: graph.insert_after(node, op),
            "remove": lambda: graph.remove(node),
        }
        # Trying out may draw random numbers; the program must not notice.
        state = default_generator.get_state()
        try:
            edits[kind]()
        finally:
            default_generator.set_state(state)

    def _drop_failed(self) -> None:
        """Remove edits that failed, or that matched nothing in the step that has ended."""
        for layer in [*self._layers]:
            reason = layer.failed or ("" if layer.used() else "it met nothing in this step")
            if reason:
                self._layers.remove(layer)
                self._note = f"{layer.said}: taken back, {reason}"
                self._changed()
