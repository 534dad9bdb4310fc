"""Errors that name the op, the inputs, the user's own line, and how to fix it."""

from __future__ import annotations

import itertools
import linecache
import math
import os
import re
import sys
import warnings
from types import CodeType, FrameType
from typing import Any

import numpy as np

from weft.core.arrays import ARRAYS
from weft.native.memory import pool

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
EXAMPLES = os.path.join(ROOT, "demo", "")  # programs that come with weft are users of it


def is_own(filename: str) -> bool:
    """Whether code is weft's own, and no line of a program that uses it."""
    return filename.startswith(ROOT) and not filename.startswith(EXAMPLES)


_WORKERS = ("multiprocessing.process", "threading")  # where the lines of a worker begin


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is not weft's own."""
    while frame is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def position(code: CodeType | None, instruction: int) -> tuple[str, int] | None:
    """File and line of an instruction; computed only on request."""
    if code is None:
        return None
    line = None
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
    return code.co_filename, line if line is not None else code.co_firstlineno


def describe_position(code: CodeType | None, instruction: int) -> str:
    """``file.py:12: loss = (a - b).sum()`` for people."""
    found = position(code, instruction)
    if found is None:
        return "<unknown line>"
    name, line = found
    text = linecache.getline(name, line).strip()
    return f"{shown_file(name)}:{line}" + (f": {text}" if text else "")


def shown_file(name: str) -> str:
    """A file's path relative to the current folder, if it is below it."""
    shown = os.path.relpath(name) if os.path.isabs(name) and os.path.exists(name) else name
    return name if shown.startswith("..") else shown


def here() -> str:
    """The user's line that is running now."""
    frame = user_frame(sys._getframe(1))
    if frame is None:
        return "<unknown line>"
    if frame.f_code.co_name == "run" and frame.f_globals.get("__name__") in _WORKERS:
        return "<a worker, outside the lines of the program>"
    return describe_position(frame.f_code, frame.f_lasti)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning that names the user's line, however deep in weft it arises."""
    frame = user_frame(sys._getframe(1))
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


_said: set[str] = set()


def warn_once(message: str) -> None:
    """A warning that a process gives once, or always if ``set_warn_always`` says so."""
    if WARNINGS.always or message not in _said:
        _said.add(message)
        warn(message)


class WARNINGS:
    """Whether warnings that are given once are given every time."""

    always = False


def warn_of_cycle() -> None:
    """For ``backward(create_graph=True)``."""
    warn_once(
        "Using backward() with create_graph=True will create a reference cycle between the "
        "parameter and its gradient which can cause a memory leak. We recommend using "
        "autograd.grad when creating the graph to avoid this. If you have to use this "
        "function, make sure to reset the .grad fields of your parameters to None after use "
        "to break the cycle and avoid the leak."
    )


def describe(value: Any) -> str:
    """``float32[2, 3]`` for arrays and tensors, the value itself for numbers."""
    array = value if isinstance(value, ARRAYS) else getattr(value, "_a", None)
    if array is not None:
        return f"{array.dtype}{list(array.shape)}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(describe(v) for v in value) + "]"
    text = repr(value)
    return text if len(text) < 40 else text[:37] + "..."


# Ops that a user knows under another name.
_KNOWN_AS = {"linear_with_bias": "linear", "max_pool_with_indices": "max_pool"}


def explain(error: BaseException, name: str, args: Any, attrs: dict[str, Any]) -> BaseException:
    """The same kind of error, with the op, its inputs and the user's line added."""
    message = str(error.args[0]) if error.args else str(error)
    kind = type(error)
    if isinstance(error, MemoryError):
        kind, message = RuntimeError, no_memory(error)
    if kind is OverflowError and message.startswith("int too "):
        pass  # a number that no float can represent; PyTorch raises the same error
    elif kind in (ValueError, np.linalg.LinAlgError, OverflowError) or kind.__module__ == "numpy":
        kind = RuntimeError
    if kind.__name__ == "AxisError" or isinstance(error, IndexError):
        kind = IndexError
    if isinstance(error, TypeError) and "not supported for the input types" in message:
        kind = NotImplementedError  # NumPy has no kernel for the dtype, as PyTorch has none
        message = f"not implemented for {', '.join(describe(a) for a in args)}"
    if message.startswith(_OF_INDEXING):
        message = _in_pytorch_words(message)
    elif "could not be broadcast" in message or "shape mismatch" in message:
        message = _broadcast_message(args) or message
    lines = [f"{_KNOWN_AS.get(name, name)}: {message}"]
    settings = "".join(f", {k}={describe(v)}" for k, v in attrs.items() if v is not None)
    lines.append(f"  inputs: {', '.join(describe(a) for a in args)}{settings}")
    lines.append(f"  at {here()}")
    try:
        return kind("\n".join(lines))
    except TypeError:
        return RuntimeError("\n".join(lines))


def in_bytes(count: int) -> str:
    """A number of bytes for people: ``128 TiB``."""
    size, units = float(count), iter(("bytes", "KiB", "MiB", "GiB", "TiB", "PiB"))
    for unit in units:
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} EiB"


def no_memory(error: MemoryError) -> str:
    """The requested memory that could not be allocated, and the memory that is available."""
    dtype, shape = getattr(error, "dtype", None), getattr(error, "shape", None)
    text = "DefaultCPUAllocator: can't allocate memory"
    if dtype is not None and shape is not None:
        count = math.prod(shape) * dtype.itemsize
        text += f": you tried to allocate {count} bytes ({in_bytes(count)}, {dtype}{list(shape)})"
    if pool.current() is not None:  # which has released all that it cached before it failed
        text += f". weft has {in_bytes(pool.any_stats()['used_bytes'])} in use"
    return text


def too_large(shape: tuple[int, ...], itemsize: int) -> str:
    """The error message for an array of more bytes than there are addresses."""
    count = math.prod(shape) * itemsize
    return (
        f"Storage size calculation overflowed with sizes={list(shape)}: that would be {count} "
        f"bytes ({in_bytes(count)})"
    )


# How NumPy begins what it says about indices, and PyTorch's words for it.
_OF_INDEXING = (
    *("index ", "too many indices", "cannot do a non-empty take", "shape mismatch: indexing"),
    *("shape mismatch: value", "The expanded"),
)
_INDEXING_WORDS = (
    (r"for axis (\d+) with size", r"for dimension \1 with size"),
    (
        r"too many indices for array: array is (\d+)-dimensional, but (\d+) were indexed",
        r"too many indices for tensor of dimension \1: \2 were given",
    ),
    (
        r"cannot do a non-empty take from an empty axes.",
        "index is out of bounds for dimension with size 0",
    ),
    (r"indexing arrays", "indexing tensors"),
    (
        r"value array of shape (\S+) could not be broadcast",
        r"value tensor of shape \1 cannot be broadcast",
    ),
)


def _in_pytorch_words(message: str) -> str:
    for pattern, words in _INDEXING_WORDS:
        message = re.sub(pattern, words, message)
    # Shapes as lists; NumPy writes (7,) and (2,3), several with spaces between them.
    return re.sub(r"\((\d[\d,]*|)\)", _as_list, message).strip().replace("] [", "], [")


def _as_list(shape: re.Match[str]) -> str:
    return "[" + ", ".join(n for n in shape[1].split(",") if n) + "]"


def _broadcast_message(args: Any) -> str | None:
    shapes = [a.shape for a in args if isinstance(a, ARRAYS)]
    for first, second in itertools.pairwise(shapes):
        rank = max(len(first), len(second))
        left = (1,) * (rank - len(first)) + first
        right = (1,) * (rank - len(second)) + second
        for dim, (m, n) in enumerate(zip(left, right, strict=True)):
            if m != n and m != 1 and n != 1:
                return (
                    f"The size of tensor a ({m}) must match the size of tensor b ({n}) at "
                    f"non-singleton dimension {dim}; shapes {list(first)} and {list(second)} "
                    "do not broadcast. Reshape one with unsqueeze() or expand()"
                )
    return None
