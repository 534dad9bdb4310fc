"""DLPack capsules of dtypes that NumPy does not export or import.

NumPy hands the memory over as integers of the same width; the dtype in the capsule is then
rewritten. The consumer of a capsule owns what it points to, so it may be changed.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from weft.core import dtype as dt

UNSIGNED = 1
# The type codes of DLPack's header.
CODES = {
    "bfloat16": 4, "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12,
    "float8_e5m2fnuz": 13, "float8_e8m0fnu": 14,
}  # fmt: skip
NAMES = {code: name for name, code in CODES.items()}


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)


def _type_in(capsule: Any) -> _DataType | None:
    """The dtype in a capsule that has not been consumed, or None."""
    name = _name(capsule)
    address = None if name is None or name.startswith(b"used") else _pointer(capsule, name)
    if address is None:
        return None
    if name == b"dltensor_versioned":
        return ctypes.cast(address, ctypes.POINTER(_Versioned)).contents.tensor.dtype
    return ctypes.cast(address, ctypes.POINTER(_Tensor)).contents.dtype


def exported(array: np.ndarray, **options: Any) -> Any:
    """A capsule with an array's memory."""
    code = CODES.get(array.dtype.name)
    if code is None:
        return array.__dlpack__(**options)
    capsule = array.view(f"u{array.itemsize}").__dlpack__(**options)
    kind = _type_in(capsule)
    assert kind is not None
    kind.code = code
    return capsule


class _Writable:
    """The memory of an array that NumPy takes for read-only, since old capsules don't say."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


class Importer:
    """What ``np.from_dlpack`` asks for a capsule; notes the dtype that NumPy can't know."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.found: np.dtype | None = None
        self.unversioned = False

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.source
        if hasattr(capsule, "__dlpack__"):
            try:
                capsule = capsule.__dlpack__(**options)
            except TypeError:  # a library from before these options
                capsule = capsule.__dlpack__()
        self.unversioned = _name(capsule) == b"dltensor"
        kind = _type_in(capsule)
        if kind is not None and kind.code in NAMES:
            self.found = dt.BY_NAME[NAMES[kind.code]].np
            kind.code = UNSIGNED
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        where = getattr(self.source, "__dlpack_device__", None)
        return (1, 0) if where is None else where()

    def array(self, copy: bool | None) -> np.ndarray:
        """An array on the capsule's memory."""
        made = np.from_dlpack(self) if copy is None else np.from_dlpack(self, copy=copy)  # type: ignore[arg-type]
        if not made.flags.writeable and self.unversioned:
            made = np.asarray(_Writable(made))
        return made if self.found is None else made.view(self.found)
