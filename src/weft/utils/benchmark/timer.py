"""Timing a piece of code."""

from __future__ import annotations

import enum
import textwrap
import timeit
from collections.abc import Callable
from time import perf_counter as timer
from typing import Any, NoReturn

from weft.utils.benchmark.measurement import Measurement, TaskSpec, set_torch_threads

__all__ = ["Language", "Timer", "timer"]


class Language(enum.Enum):
    """What the code is written in; only Python can be timed."""

    PYTHON, CPP = range(2)


class Timer:
    """Times a statement, with a given number of threads (default: one).

    >>> timer = torch.utils.benchmark.Timer("x + 1", globals={"x": torch.ones(2)})
    >>> timer.timeit(10).mean < 1.0
    True
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language not in (Language.PYTHON, "py", "python"):
            raise ValueError(f"only Python can be timed, not {language}")
        if global_setup:
            raise ValueError("global_setup is for C++; Python takes setup")
        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip()
        # A statement that uses torch should not have to import it.
        found = {**_library(), **(globals or {})}
        self._timer = timeit.Timer(stmt=stmt, setup=setup, timer=timer, globals=found)
        self._task_spec = TaskSpec(
            stmt, setup, global_setup, label, sub_label, description, env, num_threads
        )

    def _run(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One run of so many executions, after a short one to warm up."""
        with set_torch_threads(self._task_spec.num_threads):
            self._run(max(number // 100, 2))
            return self._made(number, [self._run(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        """Not offered, as in PyTorch: ``blocked_autorange`` repeats."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Any = None) -> NoReturn:
        """Not offered, as in PyTorch: ``blocked_autorange`` finds the number."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Runs, each long enough to be measured well, until they took so many seconds."""
        with set_torch_threads(self._task_spec.num_threads):
            number = self._number_per_run(min_run_time)
            times = self._repeated(number, min_run_time, callback)
            return self._made(number, times)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Runs until the spread of their times is small, or the time is up."""
        with set_torch_threads(self._task_spec.num_threads):
            number = self._number_per_run(min_run_time)
            times: list[float] = []
            while sum(times) < max_run_time:
                times += self._repeated(number, min_run_time, callback)
                found = self._made(number, times)
                if len(times) >= 4 and found.meets_confidence(threshold):
                    break
            return self._made(number, times)

    def _number_per_run(self, min_run_time: float) -> int:
        """So many executions that the clock itself costs next to nothing."""
        overhead = min(self._clock() for _ in range(5))
        number = 1
        while True:
            elapsed = self._run(number)
            if overhead <= elapsed * 1e-4 and elapsed >= min_run_time / 1000:
                return number
            if elapsed > min_run_time:
                return number
            number *= 10

    def _clock(self) -> float:
        clock = self._timer.timer  # type: ignore[attr-defined]
        start = clock()
        return max(clock() - start, 0.0)

    def _repeated(self, number: int, seconds: float, callback: Any) -> list[float]:
        times: list[float] = []
        while sum(times) < seconds or not times:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
        return times

    def _made(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, list(times), self._task_spec)

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises: instructions are not counted here."""
        raise RuntimeError("counting instructions needs PyTorch's build for Valgrind")


def _library() -> dict[str, Any]:
    import weft

    return {"torch": weft}
