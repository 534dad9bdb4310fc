"""Memory from NumPy: read when the program asks for it, and copied only if others can reach it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft.compiler import matching, whole_calls
from weft.core.gate import EXPORTS, is_exported, reclaims

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


LATER = ("the tensor's array", "a view of the tensor", "dlpack", "storage")


@pytest.mark.parametrize("own", (False, True))
@pytest.mark.parametrize("holder", LATER)
def test_memory_that_is_let_out_later(holder: str, own: bool) -> None:
    """Of a tensor, or of an optimizer's state, whose memory nobody could reach until then."""
    hold, write = HOLDERS[holder]

    def outcome(compile: Callable) -> list[Any]:
        torch.manual_seed(0)
        array = np.arange(1, 5, dtype=np.float32)
        x = torch.randn(4) if own else torch.from_numpy(array)
        del array
        w, v = torch.full((4,), 2.0, requires_grad=True), torch.ones(4, requires_grad=True)
        optimizer = torch.optim.SGD([w, v], lr=0.1, momentum=0.9)
        kept: list[Any] = []
        seen: list[Any] = []

        def step() -> Any:
            y = x * w
            if kept:
                write(kept[0])
            z = torch.add(x, w)
            (y * z * v).sum().backward()
            if len(kept) > 1:
                write(kept[1])
            optimizer.step()
            optimizer.zero_grad()
            return y, z

        run = compile(step)
        for k in range(CALLS):
            if k == 4:
                kept.append(hold(None, x))
            if k == 6:
                kept.append(hold(None, optimizer.state[v]["momentum_buffer"]))
            seen += [t.tolist() for t in (*run(), w, v)]
        return seen

    found, wanted = outcome(torch.compile), outcome(lambda f: f)
    assert np.allclose(found, wanted, rtol=1e-5)


def test_data_from_numpy_leaves_what_is_known_of_others() -> None:
    """Arrays that come and results that go in every step: parameters are not looked at anew."""
    w = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)

    def step(x: Any) -> Any:
        loss = (x * w).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    compiled = torch.compile(step)
    for k in range(8):
        before = EXPORTS[0]
        loss = compiled(torch.from_numpy(np.full(4, k, np.float32)))
        assert loss.detach().numpy() is not None
        assert EXPORTS[0] == before
    w.detach().numpy()
    assert EXPORTS[0] == before + 1


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


def test_who_holds_an_array_is_no_other_course() -> None:
    w, held = torch.ones(4), np.ones(4, np.float32)
    compiled = torch.compile(lambda x: (x * w).sum() + x.sum(), fullgraph=True)
    for k in range(8):
        x = torch.from_numpy(held if k in (3, 6) else np.ones(4, np.float32))
        assert compiled(x).item() == 8


def test_a_flag_is_taken_back_only_where_the_tensor_is_alone() -> None:
    def make() -> tuple[Any, Any]:
        array = np.ones(4, np.float32)
        return array, torch.from_numpy(array)

    array, tensor = make()
    assert is_exported(tensor._a) and not reclaims(tensor)
    del array
    assert reclaims(tensor) and not is_exported(tensor._a)
    shown = tensor.numpy()
    assert is_exported(tensor._a) and not reclaims(tensor)
    del shown
    assert reclaims(tensor)
    alias = tensor.detach()
    tensor.numpy()
    assert not reclaims(tensor) and alias is not None
    own = torch.ones(4) * 2  # in memory that weft has made
    shown = own.numpy()
    assert is_exported(own._a) and not reclaims(own)
    del shown
    assert reclaims(own) and not is_exported(own._a)
    assert not reclaims(torch.from_numpy(on_object(np.ones(2, np.float32))))


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


def test_steps_at_new_sizes_reach_parameters_in_memory_that_numpy_was_given() -> None:
    def course(how: Callable) -> list[Any]:
        w = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=1.0)

        def step(x: Any, last: bool) -> None:
            (x * w).sum().backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()

        run, found = how(step), []
        for k in range(8):
            if k == 4:
                w.detach().numpy()[:] = 5.0
            run(torch.full((4 if k % 2 else 6, 3), k + 1.0), bool(k % 2))
            found.append(w.tolist())
        return found

    assert course(torch.compile) == course(lambda step: step)


@pytest.mark.parametrize("whole", [False, True], ids=["ops", "functions"])
def test_memory_that_no_flag_tells_of(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared with a file: copied when it is read, though the tensor is a new one in every call."""
    if not whole:
        monkeypatch.setattr(whole_calls, "compiled", lambda: None)
    path = tmp_path / "numbers"
    np.ones(4, np.float32).tofile(path)
    numbers = np.memmap(path, np.float32)

    def step(x: Any) -> Any:
        y = torch.nn.functional.relu(x) * 2
        numbers[:] += 1
        return y

    compiled = torch.compile(step)
    shared = lambda: torch.from_file(str(path), shared=True, size=4)
    for make in (lambda: torch.ones(4), shared):
        for _ in range(CALLS):
            x = make()
            expected = (x * 2).tolist()
            assert compiled(x).tolist() == expected
