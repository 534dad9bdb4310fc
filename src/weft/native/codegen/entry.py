"""Entry points from Python: built-in functions created at run time.

Python calls kernels as it calls its own built-ins: a compiled function reads the memory addresses
of arrays and the values of numbers directly from the objects, which takes a tenth of the time of a
foreign function interface. It gets the addresses of Python's and NumPy's functions from a table,
the function's ``self``, so that the code is the same in every process and can be cached on disk.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

import ml_dtypes
import numpy as np

from weft.native import threads
from weft.native.once import once

_HEAD = object.__basicsize__  # then an object's own fields begin; the last before is its type
_TYPE = _HEAD - 8
# Offsets in an array object: address, rank, shape, strides, element type, flags.
DATA, RANK, SHAPE, STRIDES, DESCR, FLAGS = (_HEAD + k for k in (0, 8, 16, 24, 40, 48))
PLAIN = 0x0101  # the flags of an array in row-major order at an aligned address
WRITEABLE = 0x0400
_BYTES = bytes.__basicsize__ - 1  # where the content of a bytes object begins
TUPLE = tuple.__basicsize__  # where the items of a tuple begin
_NEW_FROM_DESCR, _NEW_COPY = 94, 85  # their numbers in NumPy's table of functions
_FASTCALL = 0x0080

_NAMES = (
    *("ndarray", "float", "int", "None", "TypeError", "threads", "watched", "tell"),
    *("PyLong_AsLongLong", "PyFloat_AsDouble", "PyErr_Occurred", "PyErr_SetString"),
    *("PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef", "Py_DecRef", "NewFromDescr"),
    *("PyTuple_New", "f32", "f64", "b1", "i64", "f16", "bf16", "NewCopy"),
)
PLACES = {name: k for k, name in enumerate(_NAMES)}
_DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "b1": np.bool_,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}
LLVM = {"f32": "float", "f64": "double", "i64": "i64", "i32": "i32"}

# While this is not zero, kernels report each call instead of running it, if their thread has a
# listener (``weft.native.contract``), and functions that are whole ops decline, so that every step
# of an op is a reported call.
WATCHED = ctypes.c_int64(0)
LISTENERS: dict[int, Callable[[int, list[Any]], None]] = {}
_OBJECTS = ctypes.POINTER(ctypes.py_object)


def _told(key: int, given: int, count: int) -> int:
    listener = LISTENERS.get(get_ident())
    if listener is None:
        return 0
    listener(key, ctypes.cast(given, _OBJECTS)[:count])
    return 1


_TELL = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(_told)


def _of_numpy(number: int) -> int:
    """The address of a function in NumPy's table of these."""
    capsule = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return ctypes.cast(get(capsule, None), ctypes.POINTER(ctypes.c_void_p))[number] or 0


def new_from_descr() -> int:
    """The address of NumPy's function that makes an array."""
    return _of_numpy(_NEW_FROM_DESCR)


@once
def _table() -> bytes:
    api = ctypes.pythonapi
    known: dict[str, Any] = {
        "ndarray": id(np.ndarray),
        "float": id(float),
        "int": id(int),
        "None": id(None),
        "TypeError": id(TypeError),
        "threads": ctypes.addressof(threads.CELL),
        "watched": ctypes.addressof(WATCHED),
        "tell": ctypes.cast(_TELL, ctypes.c_void_p).value,
        "NewFromDescr": new_from_descr(),
        "NewCopy": _of_numpy(_NEW_COPY),
        **{name: id(np.dtype(kind)) for name, kind in _DTYPES.items()},
    }
    for name in _NAMES:
        if name not in known:
            known[name] = ctypes.cast(getattr(api, name), ctypes.c_void_p).value
    return struct.pack(f"{len(_NAMES)}Q", *(known[name] for name in _NAMES))


@once
def why_not() -> str | None:
    """Why objects can't be read here, if so: another Python, or another NumPy."""
    word, number = ctypes.c_size_t.from_address, ctypes.c_int.from_address
    for probe in (np.empty(3), np.empty((4, 4), np.float32)[1:, ::-2], np.empty((2, 1, 5), bool)):
        at = id(probe)
        flags = probe.flags
        plain = flags.c_contiguous and flags.aligned
        if not (
            word(at + _TYPE).value == id(np.ndarray)
            and word(at + DATA).value == probe.ctypes.data
            and number(at + RANK).value == probe.ndim
            and ctypes.c_ssize_t.from_address(word(at + SHAPE).value).value == probe.shape[0]
            and ctypes.c_ssize_t.from_address(word(at + STRIDES).value).value == probe.strides[0]
            and word(at + DESCR).value == id(probe.dtype)
            and (number(at + FLAGS).value & PLAIN == PLAIN) == plain
        ):
            return "unsupported NumPy ABI: ndarray layout differs"  # pragma: no cover
    return None


class MethodDefinition(ctypes.Structure):
    """Python's ``PyMethodDef``: what a built-in function is made from."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def function(name: str, address: int) -> Callable:
    """The built-in function whose code is at an address."""
    return bound(name, address, _table())


def bound(name: str, address: int, own: Any) -> Callable:
    """The same with another object as its ``self``."""
    return built_in(definition(name, address), own)


def definition(name: str, address: int) -> MethodDefinition:
    """What functions whose code is at an address are made from."""
    made = MethodDefinition(name.encode(), address, _FASTCALL, None)
    # A function reads its definition when the garbage collector visits it and when it is freed,
    # which may be after Python has taken this module apart: the definition outlives everything.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made


def built_in(made_from: MethodDefinition, own: Any) -> Callable:
    """The built-in function of a definition, with an object as its ``self``."""
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.POINTER(MethodDefinition), ctypes.py_object, ctypes.c_void_p)
    return new(made_from, own, None)


HELPERS = f"""
define private ptr @known(ptr %self, i64 %which) {{
  %table = getelementptr i8, ptr %self, i64 {_BYTES}
  %place = getelementptr ptr, ptr %table, i64 %which
  %value = load ptr, ptr %place
  ret ptr %value
}}
define private i1 @is(ptr %self, ptr %object, i64 %which) {{
  %at = getelementptr i8, ptr %object, i64 {_TYPE}
  %type = load ptr, ptr %at
  %wanted = call ptr @known(ptr %self, i64 %which)
  %same = icmp eq ptr %type, %wanted
  ret i1 %same
}}
define private i1 @failed(ptr %self) {{
  %occurred = call ptr @known(ptr %self, i64 {PLACES["PyErr_Occurred"]})
  %error = call ptr %occurred()
  %bad = icmp ne ptr %error, null
  ret i1 %bad
}}
; Objects other than Python's own numbers may run code of the user's to become one, which must
; not happen once an argument before has failed.
define private i1 @may_ask(ptr %self, ptr %object) {{
  %int = call i1 @is(ptr %self, ptr %object, i64 {PLACES["int"]})
  br i1 %int, label %yes, label %look
yes:
  ret i1 true
look:
  %bad = call i1 @failed(ptr %self)
  %fine = xor i1 %bad, true
  ret i1 %fine
}}
define private i64 @integer(ptr %self, ptr %object) {{
  %may = call i1 @may_ask(ptr %self, ptr %object)
  br i1 %may, label %ask, label %give_up
give_up:
  ret i64 0
ask:
  %convert = call ptr @known(ptr %self, i64 {PLACES["PyLong_AsLongLong"]})
  %value = call i64 %convert(ptr %object)
  ret i64 %value
}}
define private ptr @address(ptr %self, ptr %object) {{
  %array = call i1 @is(ptr %self, ptr %object, i64 {PLACES["ndarray"]})
  br i1 %array, label %read, label %convert
read:
  %at = getelementptr i8, ptr %object, i64 {DATA}
  %data = load ptr, ptr %at
  ret ptr %data
convert:
  %none = call ptr @known(ptr %self, i64 {PLACES["None"]})
  %absent = icmp eq ptr %object, %none
  br i1 %absent, label %nothing, label %ask
nothing:
  ret ptr null
ask:
  %number = call i64 @integer(ptr %self, ptr %object)
  %given = inttoptr i64 %number to ptr
  ret ptr %given
}}
define private double @number(ptr %self, ptr %object) {{
  %float = call i1 @is(ptr %self, ptr %object, i64 {PLACES["float"]})
  br i1 %float, label %read, label %convert
read:
  %at = getelementptr i8, ptr %object, i64 {_HEAD}
  %value = load double, ptr %at
  ret double %value
convert:
  %may = call i1 @may_ask(ptr %self, ptr %object)
  br i1 %may, label %ask, label %give_up
give_up:
  ret double 0.0
ask:
  %as = call ptr @known(ptr %self, i64 {PLACES["PyFloat_AsDouble"]})
  %converted = call double %as(ptr %object)
  ret double %converted
}}
define private i1 @watched(ptr %self) {{
  %cell = call ptr @known(ptr %self, i64 {PLACES["watched"]})
  %value = load i64, ptr %cell
  %on = icmp ne i64 %value, 0
  ret i1 %on
}}
define private ptr @none(ptr %self) {{
  %hold = call ptr @known(ptr %self, i64 {PLACES["Py_IncRef"]})
  %none = call ptr @known(ptr %self, i64 {PLACES["None"]})
  call void %hold(ptr %none)
  ret ptr %none
}}
define private ptr @leave(ptr %self) {{
  %save = call ptr @known(ptr %self, i64 {PLACES["PyEval_SaveThread"]})
  %state = call ptr %save()
  ret ptr %state
}}
define private void @come_back(ptr %self, ptr %state) {{
  %restore = call ptr @known(ptr %self, i64 {PLACES["PyEval_RestoreThread"]})
  call void %restore(ptr %state)
  ret void
}}
"""

# The same for code that gets few passes.
INLINED = HELPERS.replace(") {\n", ") alwaysinline {\n")

# A kernel as a function of Python: it takes arrays, addresses or None, and numbers, of the kinds
# that stand behind the table in ``self``. One function serves all kernels: to compile it for each
# takes as long as to compile a small kernel.
_FIELDS = _BYTES + 8 * len(_NAMES)  # where these begin: count, key, address, kinds, message
_KINDS = ("*", "f64", "f32", "i64", "i32")
CALL = f"""
define ptr @kernel_call(ptr %self, ptr %given, i64 %count) {{
entry:
  %fields = getelementptr i8, ptr %self, i64 {_FIELDS}
  %wanted = load i64, ptr %fields
  %kinds = getelementptr i8, ptr %fields, i64 24
  %right = icmp eq i64 %count, %wanted
  br i1 %right, label %start, label %wrong
wrong:
  %say = call ptr @known(ptr %self, i64 {PLACES["PyErr_SetString"]})
  %error = call ptr @known(ptr %self, i64 {PLACES["TypeError"]})
  %message = getelementptr i8, ptr %kinds, i64 %wanted
  call void %say(ptr %error, ptr %message)
  ret ptr null
start:
  %words = alloca i64, i64 %count
  br label %next
next:
  %i = phi i64 [ 0, %start ], [ %i1, %stored ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %argument, label %all
argument:
  %from = getelementptr ptr, ptr %given, i64 %i
  %object = load ptr, ptr %from
  %to = getelementptr i64, ptr %words, i64 %i
  %at = getelementptr i8, ptr %kinds, i64 %i
  %kind = load i8, ptr %at
  switch i8 %kind, label %pointer [ i8 1, label %double i8 2, label %float
                                    i8 3, label %long i8 4, label %int ]
pointer:
  %address = call ptr @address(ptr %self, ptr %object)
  store ptr %address, ptr %to
  br label %stored
double:
  %d = call double @number(ptr %self, ptr %object)
  store double %d, ptr %to
  br label %stored
float:
  %wide = call double @number(ptr %self, ptr %object)
  %f = fptrunc double %wide to float
  store float %f, ptr %to
  br label %stored
long:
  %l = call i64 @integer(ptr %self, ptr %object)
  store i64 %l, ptr %to
  br label %stored
int:
  %long_int = call i64 @integer(ptr %self, ptr %object)
  %short = trunc i64 %long_int to i32
  store i32 %short, ptr %to
  br label %stored
stored:
  %i1 = add i64 %i, 1
  br label %next
all:
  %bad = call i1 @failed(ptr %self)
  br i1 %bad, label %fails, label %look
fails:
  ret ptr null
look:
  %reported = call i1 @watched(ptr %self)
  br i1 %reported, label %report, label %run
report:
  %tell = call ptr @known(ptr %self, i64 {PLACES["tell"]})
  %key_at = getelementptr i64, ptr %fields, i64 1
  %key = load i64, ptr %key_at
  %taken = call i64 %tell(i64 %key, ptr %given, i64 %count)
  %noted = icmp ne i64 %taken, 0
  br i1 %noted, label %end, label %run
run:
  %packed_at = getelementptr i64, ptr %fields, i64 2
  %packed = load ptr, ptr %packed_at
  %state = call ptr @leave(ptr %self)
  call void %packed(ptr %words)
  call void @come_back(ptr %self, ptr %state)
  br label %end
end:
  %done = call ptr @none(ptr %self)
  ret ptr %done
}}
"""


def kernel_call(name: str, code: int, kinds: Sequence[str], key: int, packed: int) -> Callable:
    """A kernel as a function of Python, by the code of ``CALL``; ``packed`` is the address of its
    own, ``key`` what it reports itself as while calls are watched.
    """
    fields = struct.pack("=3Q", len(kinds), key, packed)
    sorts = bytes(_KINDS.index("*" if kind.endswith("*") else kind) for kind in kinds)
    message = f"{name}: {len(kinds)} arguments expected\0".encode()
    return bound(name, code, _table() + fields + sorts + message)


def read(i: int, kind: str) -> list[str]:
    """LLVM IR that gets one argument out of its object."""
    lines = [
        f"  %p{i} = getelementptr ptr, ptr %given, i64 {i}",
        f"  %o{i} = load ptr, ptr %p{i}",
    ]
    if kind.endswith("*"):
        lines.append(f"  %a{i} = call ptr @address(ptr %self, ptr %o{i})")
    elif kind in ("f32", "f64"):
        exact = kind == "f64"
        name = f"%a{i}" if exact else f"%w{i}"
        lines.append(f"  {name} = call double @number(ptr %self, ptr %o{i})")
        if not exact:
            lines.append(f"  %a{i} = fptrunc double %w{i} to float")
    else:
        exact = kind == "i64"
        name = f"%a{i}" if exact else f"%w{i}"
        lines.append(f"  {name} = call i64 @integer(ptr %self, ptr %o{i})")
        if not exact:
            lines.append(f"  %a{i} = trunc i64 %w{i} to {LLVM[kind]}")
    return lines


def passed(kinds: list[str]) -> str:
    types = ["ptr" if k.endswith("*") else LLVM[k] for k in kinds]
    return ", ".join(f"{t} %a{i}" for i, t in enumerate(types))
