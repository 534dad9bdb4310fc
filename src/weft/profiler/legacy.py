"""``torch.autograd.profiler``: the older way to ask for a profile."""

from __future__ import annotations

from typing import Any

from weft.profiler import profile as _profile
from weft.profiler._events import EventList, FunctionEvent, FunctionEventAvg
from weft.profiler._recorder import record_function

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]


class profile(_profile):
    """Measures the ops of this thread in a block."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        **more: Any,
    ) -> None:
        super().__init__(
            record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack,
            with_flops=with_flops,
        )  # fmt: skip
        self.enabled = enabled

    def start(self) -> None:
        """Begin, unless it was made with ``enabled=False``."""
        if self.enabled:
            super().start()

    @property
    def function_events(self) -> EventList:
        """All events."""
        return self.events()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, each counted once."""
        return self.events().self_cpu_time_total

    def total_average(self) -> FunctionEventAvg:
        """All events as one sum."""
        return self.events().total_average()

    def table(self, sort_by: str | None = None, row_limit: int = 100, **more: Any) -> str:
        """The events as text."""
        return self.events().table(sort_by, row_limit, **more)

    def __str__(self) -> str:
        return self.table()
