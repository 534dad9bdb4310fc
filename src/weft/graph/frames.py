"""The variables of running functions, read so that nothing is kept alive by the reading."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import Any

from weft.core.errors import is_own

# Before Python 3.13 a frame keeps the dict that it gave out, and all the values in it, until its
# function returns. From then on it gives out a view of the variables themselves.
_KEPT = sys.version_info < (3, 13)
_OURS = 3  # references to such a dict while it is read here: the frame, a name, and the call


def locals_of(frame: FrameType | Any, mine: bool = True) -> Mapping[str, Any]:
    """A frame's variables, to be read at once; ``mine`` says that it is of this thread."""
    held = getattr(frame, "f_locals", None)
    if held is None:
        return {}
    if not (_KEPT and mine and frame.f_code.co_flags & CO_OPTIMIZED):
        return held
    # A debugger writes such a dict back, and the program itself may have asked for it.
    if sys.gettrace() is not None or frame.f_trace is not None or sys.getrefcount(held) > _OURS:
        return held
    found = held.copy()
    held.clear()
    return found


_DEEPEST = 8  # callers of a line that are kept
_FAR = 60  # frames that are looked at for them
_own: dict[str, bool] = {}  # by file: whether it is weft's


def callers(frame: FrameType | Any) -> tuple[tuple[Any, int], ...]:
    """Where the callers of a user's frame stand, innermost first, without weft's own."""
    found: list[tuple[Any, int]] = []
    frame = getattr(frame, "f_back", None)
    for _ in range(_FAR):
        if frame is None or len(found) == _DEEPEST:
            break
        code = frame.f_code
        own = _own.get(code.co_filename)
        if own is None:
            own = _own[code.co_filename] = is_own(code.co_filename)
        if not own:
            found.append((code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)
