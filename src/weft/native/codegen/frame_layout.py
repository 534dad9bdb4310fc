"""Where CPython keeps its frames, for compiled code that looks at them.

A frame object is made only when somebody asks for one; what the interpreter has instead is a
structure that differs between versions. The layouts of 3.11 to 3.13 are tried out on running frames
before they are used; elsewhere there is none, and what would use it takes the slower way in Python.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import types
from dataclasses import dataclass

from weft.native.codegen.emit import HEAD, NULL, Emitter, LLVMValue

FRAME_OF = HEAD + 8  # of a frame object: where it names the structure that it stands for
BETWEEN = 3  # the owner of a structure with which the interpreter begins a loop, and of no code

word = ctypes.c_size_t.from_address
byte = ctypes.c_uint8.from_address


@dataclass(frozen=True)
class FrameLayout:
    """Offsets in a thread's state, in a frame as the interpreter has it, and in code objects."""

    running: tuple[int, ...]  # from the state of a thread to the frame that runs, step by step
    code: int  # of a frame, as are those up to ``locals``
    previous: int
    owner: int | None  # None where all frames run code
    object: int
    instruction: int
    locals: int
    stack: int | None  # where a frame keeps its height; None where a hook may leave frames behind
    ahead: int  # bytes from the instruction that a frame keeps to the one that runs next
    traced: tuple[int, ...]  # of a thread's state: words that are set under a tracer or profiler
    filename: int  # of a code object
    first: int  # where its instructions begin

    def current(self, write: Emitter) -> LLVMValue:
        """The frame that runs in this thread."""
        found = write.call("PyThreadState_Get")
        for offset in self.running:
            found = write.load(found, offset)
        return found

    def caller(self, write: Emitter, frame: LLVMValue) -> LLVMValue:
        """The frame that called another, or null."""
        found = write.load(frame, self.previous)
        if self.owner is None:
            return found
        place, head, between, done = write.variable("ptr", found), *(write.label() for _ in "123")
        write.go(head)
        write.here(head)
        found = write.load(place)
        write.leave_if(write.test("eq", found, NULL), done)
        write.branch(write.test("eq", write.byte(found, self.owner), BETWEEN), between, done)
        write.here(between)
        write.store(write.load(found, self.previous), place)
        write.go(head)
        write.here(done)
        return write.load(place)


# By version: as in ``FrameLayout``, up to ``traced``.
_KNOWN = {
    (3, 11): ((56, 8), 32, 48, None, 40, 56, 72, None, 0, ()),
    (3, 12): ((56, 0), 0, 8, 70, 48, 56, 72, 64, 2, (64, 72)),
    (3, 13): ((72,), 0, 8, 70, 48, 56, 72, 64, 0, (80, 88)),
}


def frame_layout() -> FrameLayout | None:
    """Where things are in this version of Python, if they are found there."""
    known = _KNOWN.get(sys.version_info[:2])
    # Debug builds and those without the global lock have other objects.
    if known is None or hasattr(sys, "gettotalrefcount") or object.__basicsize__ != 16:
        return None
    running, code, previous, owner, kept, instruction, *_, traced = known
    thread = ctypes.pythonapi.PyThreadState_Get
    thread.restype = ctypes.c_void_p

    def caller(inner: int) -> int:
        inner = word(inner + previous).value
        while inner and owner is not None and byte(inner + owner).value == BETWEEN:
            inner = word(inner + previous).value
        return inner

    def inside() -> FrameLayout | None:
        # A frame that knew itself by a variable would be a cycle, and would keep alive all that
        # its callers hold.
        inner = word(id(sys._getframe()) + FRAME_OF).value
        found = thread()
        for offset in running[:-1]:
            found = word(found + offset).value
        if word(found + running[-1]).value != inner:
            return None
        watchers = sys.getprofile(), sys.gettrace()
        for offset, watcher in zip(traced, watchers, strict=False):
            if bool(word(thread() + offset).value) != (watcher is not None):
                return None
        # Its own instruction moves on while it is looked at; those of its callers stand still.
        inner, step = caller(inner), sys._getframe().f_back
        if step is None:
            return None
        start = word(inner + instruction).value - step.f_lasti - id(step.f_code)
        filename = word(id(types.CodeType.__dict__["co_filename"]) + HEAD + 24).value
        name = word(filename + 16).value
        while step is not None:
            made = step.f_code
            if (
                word(inner + code).value != id(made)
                or word(inner + kept).value not in (0, id(step))
                or word(inner + instruction).value - id(made) - start != step.f_lasti
                or word(id(made) + name).value != id(made.co_filename)
            ):
                return None
            inner, step = caller(inner), step.f_back
        return FrameLayout(*known, name, start)

    # Behind some other frames, so that there are some to look at; one is called by way of C.
    return (lambda: functools.partial(inside)())()
