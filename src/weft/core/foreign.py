"""TypeErrors for arguments that are not tensors, at no cost to calls that succeed.

A function that is given a list where it wants a tensor fails when it asks the list for something
that only tensors have: an AttributeError. ``guard`` puts an exception handler around the whole
code of a function, which turns that error into PyTorch's TypeError. Since Python 3.11 a handler is
an entry in a table beside the code, so a call that raises nothing does not meet it.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from opcode import opmap
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.tensor import Tensor

# The code of an exception handler, with a constant instead of the function that it calls. Python's
# own compiler makes it, so that it fits the version that runs.
_TEMPLATE = """
def template():
    try:
        template
    except:
        "called"()
        raise
"""
_COMPLETE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


Entry = tuple[int, int, int, int]  # start, length and target in code units, depth of the stack


def _entries(table: bytes) -> list[Entry]:
    """An exception table: numbers of six bits a byte, the highest first; sorted, no overlaps."""
    numbers, value = [], 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            numbers.append(value)
            value = 0
    fields = iter(numbers)
    return list(zip(fields, fields, fields, fields, strict=True))


def _encoded(entry: Entry) -> bytes:
    found = bytearray()
    for value in entry:
        digits = [value & 63]
        while value := value >> 6:
            digits.append(value & 63 | 64)
        found += bytes(reversed(digits))
    found[0] |= 128
    return bytes(found)


def _handler() -> tuple[bytes, int, list[Entry], int] | None:
    """The handler's code, where it names its constant, its own table, and the stack it needs."""
    scope: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(compile(_TEMPLATE, "<handler>", "exec"), scope)
    code: CodeType = scope["template"].__code__
    entries = list(_entries(code.co_exceptiontable))
    begin = entries[0][2]
    body = code.co_code[2 * begin :]
    mark = bytes((opmap["LOAD_CONST"], code.co_consts.index("called")))
    places = [i for i in range(0, len(body), 2) if body[i : i + 2] == mark]
    if len(places) != 1:
        return None
    own = [(s - begin, n, t - begin, d) for s, n, t, d in entries if s >= begin]
    return body, places[0] + 1, own, code.co_stacksize


# The layout of code objects is Python's own business and changes between its versions: functions
# get a handler only where that was tested. Elsewhere they raise AttributeError, as they are.
HANDLER = _handler() if (3, 11) <= sys.version_info[:2] <= (3, 13) else None


def _guarded(code: CodeType, called: Any) -> CodeType | None:
    """The same code with a handler around all of it that calls a function and raises again."""
    number = len(code.co_consts)
    if HANDLER is None or number > 255 or code.co_flags & _COMPLETE:
        return None
    body, place, _, stack = HANDLER
    return code.replace(
        co_code=code.co_code + body[:place] + bytes([number]) + body[place + 1 :],
        co_consts=(*code.co_consts, called),
        co_exceptiontable=_guarded_table(code.co_exceptiontable, len(code.co_code) // 2),
        co_linetable=code.co_linetable + LINES,
        co_stacksize=max(code.co_stacksize, stack),
    )


@functools.cache
def _guarded_table(table: bytes, end: int) -> bytes:
    """An exception table with the handler behind the code for all that had none."""
    parts, at = [], 0
    for entry in _entries(table):
        if entry[0] > at:
            parts.append(_encoded((at, entry[0] - at, end, 0)))
        parts.append(_encoded(entry))
        at = entry[0] + entry[1]
    if at < end:
        parts.append(_encoded((at, end - at, end, 0)))
    own = HANDLER[2] if HANDLER else []
    return b"".join((*parts, *(_encoded((s + end, n, t + end, d)) for s, n, t, d in own)))


def _no_lines(units: int) -> bytes:
    """Entries of a line table that say of code that it stands on the line of what is before it."""
    found = b""
    while units:
        size = min(units, 8)
        found += bytes((0x80 | 13 << 3 | size - 1, 0))
        units -= size
    return found


LINES = b"" if HANDLER is None else _no_lines(len(HANDLER[0]) // 2)


class Complaint:
    """What a function's handler calls: it raises TypeError for an argument that is not a tensor."""

    __slots__ = ("function", "name")

    def __init__(self, function: FunctionType, name: str) -> None:
        self.function, self.name = function, name

    def __call__(self) -> None:
        error = sys.exc_info()[1]
        if type(error) is AttributeError:
            value = error.obj
            name = error.name or ""
            if isinstance(value, Tensor) or not (hasattr(Tensor, name) or name in dir(np.ndarray)):
                return
            if not _raised_by_weft(error):
                return  # by a hook, say, or another function of the user's
        elif type(error) is TypeError and hasattr(error, "no_tensor"):
            value = error.no_tensor  # raised further in, where the argument has another name
        else:
            return
        frame = sys._getframe(1)
        place = self.place_of(value, frame.f_code, frame.f_locals)
        if place is None:
            return
        raise _marked(f"{self.name}(): {place}, not {_kind(value)}", value) from None

    def place_of(self, value: Any, code: CodeType, given: dict[str, Any]) -> str | None:
        """Which argument a value is, in words; None if it is none that should be a tensor.

        The code is that of the frame: the function may have got other code (``overrides``).
        """
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        optional = self.optional(code)  # several may be None, and those first that should not be
        found = None
        for i, name in enumerate(names):
            if name not in optional:
                found = found or self.place_at(i, code, value, given)
        if found is None and code.co_flags & inspect.CO_VARARGS:
            found = self.place_in_rest(value, code, given)
        for i, name in enumerate(names):
            if name in optional:
                found = found or self.place_at(i, code, value, given)
        return found

    def place_at(self, i: int, code: CodeType, value: Any, given: dict[str, Any]) -> str | None:
        """The same for one argument with a name."""
        name = code.co_varnames[i]
        found, hint = given.get(name), str(self.function.__annotations__.get(name, "Any"))
        if found is value and ("Tensor" in hint or "Any" in hint):
            where = f" (position {i + 1})" if i < code.co_argcount else ""
            return f"argument {name!r}{where} must be Tensor"
        if isinstance(found, (list, tuple)):
            for k, element in enumerate(found):
                if element is value:
                    return f"element {k} of argument {name!r} must be Tensor"
        return None

    def optional(self, code: CodeType) -> set[str]:
        """The arguments that are None if they are left out."""
        function = self.function
        defaults = function.__defaults__ or ()
        last = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        pairs = (*zip(last, defaults, strict=True), *(function.__kwdefaults__ or {}).items())
        return {name for name, default in pairs if default is None}

    def place_in_rest(self, value: Any, code: CodeType, given: dict[str, Any]) -> str | None:
        """The same for what a function takes as ``*args`` and ``**kwargs``."""
        count = code.co_argcount + code.co_kwonlyargcount
        known = list(inspect.signature(self.function).parameters)
        if code.co_argcount:
            known = known[: code.co_argcount]
        rest = given.get(code.co_varnames[count], ())
        for k, element in enumerate(rest, code.co_argcount):
            name = f" {known[k]!r} (position {k + 1})" if k < len(known) else f" {k + 1}"
            if element is value:
                return f"argument{name} must be Tensor"
            if isinstance(element, (list, tuple)):
                for i, inner in enumerate(element):
                    if inner is value:
                        return f"element {i} of argument{name} must be Tensor"
        if code.co_flags & inspect.CO_VARKEYWORDS:
            for name, element in given.get(code.co_varnames[count + 1], {}).items():
                if element is value:
                    return f"argument {name!r} must be Tensor"
        return None


def _raised_by_weft(error: BaseException) -> bool:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and errors.is_own(at.tb_frame.f_code.co_filename)


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _marked(message: str, value: Any) -> TypeError:
    """The error, with the value for functions further out, where it may have another name."""
    error = TypeError(f"{message}{_way_out(value)}\n  at {errors.here()}")
    error.no_tensor = value  # type: ignore[attr-defined]
    return error


def refuse(*values: Any) -> None:
    """Refuse what is neither tensor nor number; the public function adds the argument's name."""
    for value in values:
        if value is None or isinstance(value, (list, tuple, str, bytes, dict, set)):
            raise _marked(f"expected Tensor, not {_kind(value)}", value)


def _way_out(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return ". torch.from_numpy(array) makes a tensor on its memory, torch.tensor(array) a copy"
    if isinstance(value, (list, tuple, int, float, complex)):
        return ". Make a tensor of it with torch.tensor(...)"
    return ""


def guard(function: FunctionType, name: str) -> None:
    """Let a function name the argument that is not a tensor."""
    code = _guarded(function.__code__, Complaint(function, name))
    if code is not None:
        function.__code__ = code
