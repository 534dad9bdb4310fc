"""Pickles of arrays, lists and text, read without running what they name.

The names that a pickle of NumPy arrays needs stand for inert objects here, which only keep what
they are given; every other name is refused.
"""

from __future__ import annotations

import io
import os
import pickle
from typing import Any

import numpy as np


class _Dtype:
    def __init__(self, name: Any = None, *rest: Any) -> None:
        self.name, self.order = name, "|"

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    def made(self) -> np.dtype:
        if not isinstance(self.name, str) or self.name[:1] not in "uifb":
            raise pickle.UnpicklingError(f"an array of {self.name!r} is not read")
        found = np.dtype(self.name)
        return found.newbyteorder(">") if self.order == ">" else found


class _Array:
    state: Any = None

    def __init__(self, *given: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def made(self) -> np.ndarray:
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            raise pickle.UnpicklingError("an array without its memory")
        _, shape, dtype, by_columns, data = self.state
        if isinstance(data, str):  # as Python 2 wrote bytes
            data = data.encode("latin1")
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array of something else than numbers")
        array = np.frombuffer(data, dtype.made())
        return array.reshape(tuple(shape), order="F" if by_columns else "C")


class _Name:
    """Stands for a class that is only named as an argument."""


_KNOWN: dict[str, Any] = {
    "_reconstruct": _Array,
    "ndarray": _Name,
    "dtype": _Dtype,
}
_MODULES = (
    *("numpy", "numpy.core.multiarray", "numpy._core.multiarray"),
    *("numpy.core.numeric", "numpy._core.numeric"),
)


class _ArrayUnpickler(pickle._Unpickler):  # type: ignore[name-defined]
    def find_class(self, module: str, name: str) -> Any:
        found = _KNOWN.get(name) if module in _MODULES else None
        if module == "_codecs" and name == "encode":
            return _encoded
        if found is None:
            raise pickle.UnpicklingError(
                f"the file asks for {module}.{name}, which is not data and was not loaded"
            )
        return found


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError("bytes that are not written as latin1 text")
    return text.encode("latin1")


def _plain(value: Any, depth: int = 0) -> Any:
    """Containers with placeholders replaced by arrays."""
    if depth > 20:
        raise pickle.UnpicklingError("the pickle is nested too deeply")
    if isinstance(value, _Array):
        return value.made()
    if isinstance(value, dict):
        return {_text(k): _plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        if not any(isinstance(v, (_Array, dict, list, tuple)) for v in value):
            return value
        return type(value)(_plain(v, depth + 1) for v in value)
    return value


def _text(key: Any) -> Any:
    return key.decode("latin1") if isinstance(key, bytes) else key


def read_pickle(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The dictionary in a pickle of arrays, lists and text."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        found = _plain(_ArrayUnpickler(io.BytesIO(data), encoding="latin1").load())
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(f"{path}: {error}") from None
    except Exception as error:
        raise pickle.UnpicklingError(
            f"{path}: the pickle is damaged: {type(error).__name__}: {error}"
        ) from None
    if not isinstance(found, dict):
        raise pickle.UnpicklingError(f"{path} holds {type(found).__name__}, not a dictionary")
    return found
