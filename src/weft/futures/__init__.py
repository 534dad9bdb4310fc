"""Results that come later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")


class Future(Generic[T]):
    """A value that some thread will set.

    >>> future = torch.futures.Future()
    >>> doubled = future.then(lambda done: 2 * done.value())
    >>> future.set_result(4)
    >>> doubled.wait()
    8
    """

    def __init__(self, *, devices: Any = None) -> None:
        self._changed = threading.Condition()
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable] = []

    def done(self) -> bool:
        """Whether there is a value, or an error."""
        return self._done

    def wait(self) -> T:
        """The value, once it is there; raises the error if there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._done)
        return self.value()

    def value(self) -> T:
        """The value, which must be there already."""
        if not self._done:
            raise RuntimeError("Future has no value yet: call wait(), or value() in a callback")
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, result: T) -> None:
        """Set the value, once, and run the callbacks."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an exception, which is raised when the value is requested."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._finish(None, result)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        with self._changed:
            if self._done:
                raise RuntimeError("Future can only be set once: it has its value already")
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call a function with this future when it is done, or at once if it is."""
        with self._changed:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """The future result of a function of this one."""
        following: Future = Future()

        def run(done: Future) -> None:
            try:
                result = callback(done)
            except Exception as error:
                following.set_exception(error)
            else:
                following.set_result(result)

        self.add_done_callback(run)
        return following


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """A future that is done, with the list of them, when all of these are."""
    together: Future = Future()
    left, lock = len(futures), threading.Lock()
    if not left:
        together.set_result([])

    def one_more(done: Future) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = not left
        if last:
            together.set_result(futures)

    for future in futures:
        future.add_done_callback(one_more)
    return together


def wait_all(futures: list[Future]) -> list[Any]:
    """The values of all of them, once they are there."""
    return [future.wait() for future in collect_all(futures).wait()]
