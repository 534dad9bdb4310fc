"""Starting a function in several processes at once, and learning how each of them ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from weft.core import tracebacks

__all__ = [
    "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException",
    "SpawnContext", "spawn", "start_processes",
]  # fmt: skip


class ProcessException(Exception):
    """A process did not end well."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """The function raised an error in a process; the message has its traceback."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A process was killed, or ended with an exit code of its own."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int,
        signal_name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)
        return type(self), given


def _run(fn: Callable, index: int, args: tuple[Any, ...], report: Any) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent has it as well, and says so
    except Exception as error:
        report.send(tracebacks.text(error))
        sys.exit(1)


class ProcessContext:
    """The processes that were started together."""

    def __init__(self, processes: list[Any], reports: list[Any]) -> None:
        self.processes, self.reports = processes, reports
        self.sentinels = {p.sentinel: i for i, p in enumerate(processes)}

    def pids(self) -> list[int]:
        """The process numbers."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until a process ends; True once all have ended well.

        If one has failed, the others are ended, after a time of grace if one is given, and an
        exception says how it failed.
        """
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(self.sentinels.keys(), timeout)
        failed = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)  # type: ignore[arg-type]
            process = self.processes[index]
            process.join()
            if process.exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        self._end_all(grace_period)
        raise self._reason(failed)

    def _end_all(self, grace_period: float | None) -> None:
        deadline = time.monotonic() + (grace_period or 0.0)
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        for end, patience in (("terminate", 30.0), ("kill", None)):
            for process in self.processes:
                if process.is_alive():
                    getattr(process, end)()
            for process in self.processes:
                process.join(patience)

    def _reason(self, index: int) -> ProcessException:
        process, code = self.processes[index], self.processes[index].exitcode
        text = None
        with contextlib.suppress(EOFError, OSError):
            if self.reports[index].poll():
                text = self.reports[index].recv()
        if text is not None:
            start = f"\n\n-- Process {index} terminated with the following error:\n"
            return ProcessRaisedException(start + text, index, process.pid)
        name = None
        how = f"exit code {code}"
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"<Unknown signal {-code}>"
            how = f"signal {name}"
        return ProcessExitedException(
            f"process {index} terminated with {how}", index, process.pid, code, name
        )


class SpawnContext(ProcessContext):
    """The processes that ``spawn`` started."""


def start_processes(
    fn: Callable,
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run ``fn(i, *args)`` in ``nprocs`` processes, and wait for them unless told not to."""
    context = multiprocessing.get_context(start_method)
    processes, reports = [], []
    for index in range(nprocs):
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, index, args, theirs), daemon=daemon)
        process.start()
        theirs.close()
        processes.append(process)
        reports.append(mine)
    kind = SpawnContext if start_method == "spawn" else ProcessContext
    made = kind(processes, reports)
    if not join:
        return made
    while not made.join():
        pass
    return None


def spawn(
    fn: Callable,
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """Run ``fn(i, *args)`` in ``nprocs`` new processes; a failure of one ends all and is raised.

    >>> torch.multiprocessing.spawn(abs, nprocs=1)  # abs(0) in a new process
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)
