"""Compiling ahead: background threads compile code that is going to be needed.

Nearly all of a cold start is LLVM's time, and the code that is needed next is often known: what
every compiled function needs, the kernels of a program that is being planned, those of a backward
pass. Such code is submitted here. A thread that needs it takes the finished code, or takes the task
out of the queue and compiles it itself. So what runs, and its bits, do not depend on these threads,
and neither do errors: where they fail, the code is compiled again by the thread that needs it.

A thread ends when nothing is left to compile or when the program has ended, and a fork waits for
what is being compiled: a child has no such threads, and compiles in place.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from weft.native import threads
from weft.native.once import LOCK

Work = Callable[[], bytes]
MOST = 4  # threads, however many processors there are


def wanted_threads() -> int:
    """How many threads compile ahead: ``WEFT_COMPILE_THREADS``, or one less than processors."""
    given = os.environ.get("WEFT_COMPILE_THREADS", "")
    return min(int(given) if given.isdecimal() else threads.cores() - 1, MOST)


class CompileQueue:
    """A queue of code to be compiled, in the order in which it was submitted."""

    def __init__(self, most: int) -> None:
        self.most, self.count, self.paused = most, 0, False  # of threads
        self.changed = threading.Condition()
        self.waiting: dict[bytes, Work] = {}
        self.running: set[bytes] = set()
        self.done: dict[bytes, bytes] = {}

    def submit(self, key: bytes, work: Work) -> None:
        """Have code compiled soon, unless it is known already."""
        with self.changed:
            if key in self.waiting or key in self.running or key in self.done:
                return
            self.waiting[key] = work
            if self.count >= self.most:
                return
            self.count += 1
        try:
            threading.Thread(target=self._compile_all, name="weft-compile").start()
        except RuntimeError:  # no more threads, or the interpreter is about to end
            with self.changed:
                self.count -= 1

    def take(self, key: bytes) -> bytes | None:
        """Compiled code, which is waited for; None if it is for the caller to compile."""
        while True:
            with self.changed:
                if self.waiting.pop(key, None) is not None:
                    return None
                if key not in self.running:
                    return self.done.pop(key, None)
                other = self._next()
                if other is None:
                    self.changed.wait()
                    continue
            self._compile(*other)  # rather than to wait

    def _next(self) -> tuple[bytes, Work] | None:
        if not self.waiting:
            return None
        key = next(iter(self.waiting))
        self.running.add(key)
        return key, self.waiting.pop(key)

    def _compile(self, key: bytes, work: Work) -> None:
        code = None
        try:
            code = work()
        except Exception:  # the thread that needs the code gets this error again
            pass
        finally:
            with self.changed:
                self.running.discard(key)
                if code is not None:
                    self.done[key] = code
                self.changed.notify_all()

    def _compile_all(self) -> None:
        """What a thread does."""
        main = threading.main_thread()
        while True:
            with self.changed:
                while self.paused:
                    self.changed.wait()
                found = self._next() if main.is_alive() else None
                if found is None:
                    self.count -= 1
                    return
            self._compile(*found)

    # --- forks ---

    def pause(self) -> None:
        """Wait for what is being compiled, and let nothing more begin."""
        LOCK.acquire()  # first, as in threads that take code
        self.changed.acquire()
        self.paused = True
        while self.running:
            self.changed.wait()

    def resume(self) -> None:
        self.paused = False
        self.changed.notify_all()
        self.changed.release()
        LOCK.release()

    def resume_in_child(self) -> None:
        """The threads belong to the parent, and so does their queue."""
        self.most, self.count, self.paused = 0, 0, False
        self.changed = threading.Condition()
        self.waiting.clear()
        LOCK.release()


QUEUE = CompileQueue(wanted_threads())

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=QUEUE.pause,
        after_in_parent=QUEUE.resume,
        after_in_child=QUEUE.resume_in_child,
    )
