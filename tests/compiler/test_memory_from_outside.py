"""Memory from NumPy: read when the program asks for it, and copied only if others can reach it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft.compiler import matching, whole_calls
from weft.core.gate import is_outside, takes_back

CALLS = 8


def on_object(array: np.ndarray) -> Any:
    """An array in memory of another object."""
    return np.frombuffer(bytearray(array.tobytes()), np.float32)


# What a program may keep of an array whose tensor it uses, and how it writes to that.
HOLDERS: dict[str, tuple[Callable, Callable]] = {
    "array": (lambda a, t: a, lambda h: h.__setitem__(0, 9.0)),
    "view": (lambda a, t: a[1:], lambda h: h.__setitem__(0, 9.0)),
    "reshaped": (lambda a, t: a.reshape(2, 2), lambda h: h.__setitem__((0, 0), 9.0)),
    "memoryview": (lambda a, t: memoryview(a), lambda h: h.__setitem__(0, 9.0)),
    "iterator": (lambda a, t: a.flat, lambda h: h.__setitem__(0, 9.0)),
    "weak reference": (
        lambda a, t: weakref.ref(a),
        lambda h: None if h() is None else h().__setitem__(0, 9.0),
    ),
    "another tensor's array": (
        lambda a, t: torch.from_numpy(a).numpy(),
        lambda h: h.__setitem__(0, 9.0),
    ),
    "the tensor's array": (lambda a, t: t.numpy(), lambda h: h.__setitem__(0, 9.0)),
    "a view of the tensor": (lambda a, t: t[1:].numpy(), lambda h: h.__setitem__(0, 9.0)),
    "dlpack": (lambda a, t: np.from_dlpack(t), lambda h: t_write(h)),
    "storage": (lambda a, t: t.untyped_storage(), lambda h: h.fill_(0)),
    "pointer": (lambda a, t: a.ctypes, lambda h: h.data_as(FLOATS).__setitem__(0, 9.0)),
    "nobody": (lambda a, t: None, lambda h: None),
}
SOURCES: dict[str, Callable] = {
    "its own": lambda a: a,
    "a part": lambda a: np.concatenate([a, a])[:4],
    "of an object": on_object,
}


def _floats() -> Any:
    import ctypes

    return ctypes.POINTER(ctypes.c_float)


FLOATS = _floats()


def t_write(array: Any) -> None:
    if array.flags.writeable:
        array[0] = 9.0


@pytest.mark.parametrize("fresh", (False, True))
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("holder", HOLDERS)
def test_writes_by_whoever_holds_the_array(holder: str, source: str, fresh: bool) -> None:
    """A value that was asked for before a write does not see it."""
    hold, write = HOLDERS[holder]

    def outcome(compile: Callable) -> list[Any]:
        kept: list[Any] = []
        seen: list[Any] = []
        w = torch.full((4,), 2.0)

        def make(k: int) -> Any:
            array = SOURCES[source](np.arange(4, dtype=np.float32) + k)
            tensor = torch.from_numpy(array)
            kept[:] = [hold(array, tensor) if k % 4 > 1 else None]
            return tensor

        def step(x: Any) -> Any:
            y = x * w + 1
            if kept[0] is not None:
                write(kept[0])
            z = torch.add(x, w) * 3
            return y, z

        run, x = compile(step), make(2)
        for k in range(CALLS):
            x = make(k) if fresh else x
            seen.append([t.tolist() for t in run(x)])
        return seen

    assert outcome(torch.compile) == outcome(lambda f: f)


def test_an_array_that_nobody_holds_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Any] = []

    def noting(array: np.ndarray) -> np.ndarray:
        copied.append(array)
        return matching.aside(array)

    monkeypatch.setattr(whole_calls, "aside", noting)
    monkeypatch.setitem(matching.NAMES, "aside", noting)
    w = torch.ones(4, requires_grad=True)
    compiled = torch.compile(lambda x: (x * w).sum() + (x + w).sum())
    held = np.ones(4, np.float32)
    for k in range(6):
        compiled(torch.from_numpy(np.full(4, k, np.float32)))
        assert not copied
    for _ in range(4):
        compiled(torch.from_numpy(held))
    assert copied


def test_a_flag_is_taken_back_only_where_the_tensor_is_alone() -> None:
    def make() -> tuple[Any, Any]:
        array = np.ones(4, np.float32)
        return array, torch.from_numpy(array)

    array, tensor = make()
    assert is_outside(tensor._a) and not takes_back(tensor)
    del array
    assert takes_back(tensor) and not is_outside(tensor._a)
    shown = tensor.numpy()
    assert is_outside(tensor._a) and not takes_back(tensor)
    del shown
    assert takes_back(tensor)
    alias = tensor.detach()
    tensor.numpy()
    assert not takes_back(tensor) and alias is not None
    own = torch.ones(4) * 2  # in memory that weft has made
    shown = own.numpy()
    assert is_outside(own._a) and not takes_back(own)
    del shown
    assert takes_back(own) and not is_outside(own._a)
    assert not takes_back(torch.from_numpy(on_object(np.ones(2, np.float32))))


def test_sizes_that_are_new_are_derived() -> None:
    """Batches of changing sizes from arrays that the program forgets, or keeps."""
    w = torch.ones(3)
    for keeps in (False, True):
        compiled, kept = torch.compile(lambda x: (x * w).sum(1)), []
        for size in (2, 3, 2, 3, 2, 3, 4, 5, 6, 7, 4, 2):
            array = np.full((size, 3), size, np.float32)
            kept.append(array if keeps else None)
            x = torch.from_numpy(array)
            del array
            assert compiled(x).tolist() == [3.0 * size] * size
        assert compiled.learned.resized >= 3
