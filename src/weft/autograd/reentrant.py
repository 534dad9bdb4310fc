"""A backward inside a backward inside a backward: beyond some depth on a stack of its own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

from weft.core.modes import MODES

# Each pass inside a pass needs about a dozen of Python's frames, and a thread has a thousand.
DEEPEST = 30


def on_own_stack(function: Callable[[], None]) -> None:
    """Call a function in a new thread, which stands in for this one until it returns."""
    state, context = dict(vars(MODES)), contextvars.copy_context()
    raised: list[BaseException] = []

    def work() -> None:
        vars(MODES).update(state)
        try:
            context.run(function)
        except BaseException as error:  # handed to the thread that waits
            raised.append(error)

    thread = threading.Thread(target=work, name="weft-backward")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
