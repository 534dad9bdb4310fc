"""Streams and events of the CPU, on which everything is done when a call returns."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

import weft
from weft.core import errors


def _on_the_cpu(device: Any) -> weft.device:
    found = weft.device("cpu" if device is None else device)
    if found.type != "cpu":
        raise RuntimeError(
            f"PyTorch is not linked with support for {found.type} devices: weft runs on the CPU"
            f"\n  at {errors.here()}"
        )
    return found


def _no_events() -> NoReturn:
    raise RuntimeError(
        "cpu backend doesn't support events. Time CPU code with time.perf_counter()"
        f"\n  at {errors.here()}"
    )


class Stream(contextlib.AbstractContextManager):
    """The CPU's only stream; ops run in order."""

    def __init__(self, device: Any = None, *, priority: int = 0, **kwargs: Any) -> None:
        self.device, self.stream_id = _on_the_cpu(device), 0

    def __repr__(self) -> str:
        return "torch.Stream device_type=cpu, device_index=-1, stream_id=0"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return hash("cpu stream")

    def __exit__(self, *exc: object) -> None:
        return None

    def query(self) -> bool:
        """Whether all is done: always."""
        return True

    def synchronize(self) -> None:
        """All is done."""

    def wait_event(self, event: Any) -> None:
        """There is nothing to wait for."""

    def wait_stream(self, stream: Any) -> NoReturn:
        """Refused: it waits for an event, and a CPU has none."""
        _no_events()

    def record_event(self, event: Any = None) -> NoReturn:
        """Refused: a CPU has no events."""
        _no_events()


class Event:
    """A mark in a stream, which can be asked about and not set on a CPU."""

    def __init__(
        self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, **_: Any
    ) -> None:
        self.device, self.event_id, self._timed = _on_the_cpu(device), 0, enable_timing

    def __repr__(self) -> str:
        timed = int(self._timed)
        return f"torch.Event device_type=cpu, device_index=-1, event_flag={timed}, event_id=0"

    def query(self) -> bool:
        """Whether what the event marks is done: always."""
        return True

    def synchronize(self) -> None:
        """All is done."""

    def wait(self, stream: Any = None) -> None:
        """There is nothing to wait for."""

    def record(self, stream: Any = None) -> NoReturn:
        """Refused: a CPU has no events."""
        _no_events()

    def elapsed_time(self, other: Any) -> NoReturn:
        """Refused: a CPU has no events."""
        if not self._timed:
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        _no_events()


class StreamContext(contextlib.AbstractContextManager):
    """A block on a device's stream, of which None is the only one there can be."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __exit__(self, *exc: object) -> None:
        return None


class emit_nvtx(contextlib.AbstractContextManager):
    """A block whose ops are marked for NVIDIA's profiler; here it can only be switched off."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> emit_nvtx:
        if self.enabled:
            raise RuntimeError(
                f"torch.autograd.profiler.{type(self).__name__}: weft runs on the CPU and has no "
                "marks for other profilers. Use torch.profiler.profile, or enabled=False"
                f"\n  at {errors.here()}"
            )
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class emit_itt(emit_nvtx):
    """A block whose ops are marked for Intel's profiler; here it can only be switched off."""
