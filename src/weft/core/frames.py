"""Who called an op: the innermost frame that is the user's own."""

from __future__ import annotations

from typing import Any

from weft.core.errors import is_own

# The code that called an op last; a loop asks once whether it is the user's own.
last_caller: list[Any] = [None]

# Of each file whose code was met: whether it is weft's own.
OWN_FILES: dict[str, bool] = {}


def caller(frame: Any) -> Any:
    """The user's frame at or below a frame, remembered for the next op on the same line."""
    last = last_caller[0]
    while frame is not None:
        code = frame.f_code
        if code is last:
            return frame
        name = code.co_filename
        own = OWN_FILES.get(name)
        if own is None:
            own = OWN_FILES[name] = is_own(name)
        if not own:
            last_caller[0] = code
            return frame
        frame = frame.f_back
    return NO_FRAME


class NO_FRAME:
    """The caller of an op that was not called by Python code of the user."""

    f_code = None
    f_lasti = 0
