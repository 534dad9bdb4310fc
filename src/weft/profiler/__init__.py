"""Where the time goes: by op, by backward node, by optimizer step, by block of yours.

>>> import weft as torch
>>> with torch.profiler.profile() as measured:
...     with torch.profiler.record_function("forward"):
...         y = torch.ones(8, 8).exp().sum()
>>> sorted(row.key for row in measured.key_averages())
['aten::exp', 'aten::sum', 'forward']

``print(measured.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))`` prints a
table.
"""

from __future__ import annotations

import enum
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from weft.profiler import _exports
from weft.profiler._events import EventList, FunctionEvent, FunctionEventAvg
from weft.profiler._recorder import EventRecorder, record_function

__all__ = [
    "DeviceType", "EventList", "FunctionEvent", "FunctionEventAvg", "ProfilerAction",
    "ProfilerActivity", "kineto_available", "profile", "record_function", "schedule",
    "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip


class ProfilerActivity(enum.Enum):
    """What can be measured; here there is a CPU."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class DeviceType(enum.Enum):
    """Where an event took place."""

    CPU, CUDA = range(2)


class ProfilerAction(enum.Enum):
    """What a profile does in a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


def kineto_available() -> bool:
    """Whether PyTorch's own measuring library is in use: it is not."""
    return False


def supported_activities() -> set[ProfilerActivity]:
    """What can be measured here."""
    return {ProfilerActivity.CPU}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:  # fmt: skip
    """Steps to skip, and then rounds of steps to wait, to warm up and to record."""
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(
            "Invalid profiler schedule arguments: active must be positive, the others not negative"
        )
    if not warmup:
        warnings.warn(
            "Profiler won't be using warmup, this can skew profiler results", stacklevel=2
        )
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        if repeat and step >= repeat * length:
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == length - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def _always(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """A function for ``on_trace_ready`` that writes each trace to a file in a folder."""

    def write(measured: Any) -> None:
        os.makedirs(dir_name, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".pt.trace.json" + (".gz" if use_gzip else "")
        path = os.path.join(dir_name, f"{name}.{time.time_ns()}{ending}")
        measured.export_chrome_trace(path)

    return write


class profile:
    """Measures the ops of this thread in a block, or between ``start`` and ``stop``.

    >>> with torch.profiler.profile() as prof:
    ...     _ = torch.ones(4, 4) @ torch.ones(4, 4)
    >>> len(prof.key_averages()) > 0
    True
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        self.activities = set(activities) if activities is not None else supported_activities()
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        self.schedule = schedule or _always
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.with_stack = record_shapes, with_stack
        self.profile_memory, self.with_flops = profile_memory, with_flops
        self.acc_events = acc_events
        self.step_num = 0
        self._scheduled = schedule is not None
        self.current_action = self.schedule(0)
        self._recorder: EventRecorder | None = None
        self._events: list[FunctionEvent] = []
        self._used: list[tuple[float, int]] = []
        self._step: record_function | None = None
        self._metadata: dict[str, Any] = {}

    # --- when it measures ---

    def start(self) -> None:
        """Begin with the first step."""
        self._enter(self.current_action)

    def stop(self) -> None:
        """End; if something was recorded and not handed over yet, do it now."""
        recording = self._recorder is not None
        self._leave()
        if recording and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """The next step of the program begins."""
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._leave()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        elif self._step is not None:
            self._end_step()
        self._enter(self.current_action)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _enter(self, action: ProfilerAction) -> None:
        wanted = action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if wanted and self._recorder is None:
            if not self.acc_events:
                self._events, self._used = [], []
            self._recorder = EventRecorder(
                self.record_shapes, self.profile_memory, self.with_stack, self.with_flops
            )
            self._recorder.__enter__()
        elif not wanted and self._recorder is not None:
            self._leave()
        if wanted and self._scheduled:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _leave(self) -> None:
        if self._step is not None:
            self._end_step()
        if self._recorder is not None:
            self._recorder.__exit__()
            for event in reversed(self._recorder.open):
                self._recorder.end(event)
            self._events += self._recorder.events
            self._used += self._recorder.used
            self._recorder = None

    def _end_step(self) -> None:
        assert self._step is not None
        self._step.__exit__()
        self._step = None

    # --- what it measured ---

    def events(self) -> EventList:
        """All events, in the order in which they began."""
        current = self._recorder.events if self._recorder is not None else []
        return EventList([*self._events, *current], self.profile_memory)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, **more: Any
    ) -> EventList:
        """The events summed up by name."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def by_module(self) -> EventList:
        """The time by module, forward and backward together."""
        return self.events().by_module()

    def by_line(self) -> EventList:
        """The time by line of the program; needs ``with_stack=True``."""
        return self.events().by_line()

    def memory_timeline(self) -> list[tuple[float, int]]:
        """When (in microseconds) how many bytes were in use, in arrays of more than 32 kB."""
        if not self.profile_memory:
            raise RuntimeError("the memory timeline needs profile_memory=True")
        return [*self._used, *(self._recorder.used if self._recorder is not None else [])]

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write the memory in use over time: ``.json`` (``[times, bytes]``), ``.html`` or ``.svg``.

        ``.gz`` after the name compresses.
        """
        _exports.memory_timeline(self.memory_timeline(), path)

    def export_chrome_trace(self, path: str) -> None:
        """Write a file for the trace viewers of browsers, with the memory in use if measured."""
        used = self.memory_timeline() if self.profile_memory else []
        _exports.chrome_trace(self.events(), path, used, self._metadata)

    def export_speedscope(self, path: str, name: str = "weft") -> None:
        """Write a file for the flame graphs of speedscope: modules, then ops, then lines."""
        self.events().export_speedscope(path, name)

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text into the trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Put something that is JSON text into the trace."""
        self._metadata[key] = json.loads(value)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write the lines that called ops, each with its time, for flame graphs."""
        if not self.with_stack:
            raise RuntimeError("export_stacks() needs the profile to be made with with_stack=True")
        totals: dict[str, float] = {}
        for event in self.events():
            place = ";".join(part.replace(" ", "_") for part in [*event.stack, event.name])
            totals[place] = totals.get(place, 0.0) + getattr(event, metric)
        with open(path, "w") as file:
            file.writelines(f"{place} {int(value)}\n" for place, value in totals.items() if value)
