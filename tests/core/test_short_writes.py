"""In-place writes that skip the general path: the same values, versions, history and errors."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.core import gate, inplace, making, selection
from weft.operators import casting, creation, random

SHORT = ("written_over", "copied_over", "filled_over")
COMPILED = ("overwrite", "create")


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled writes from the first call on."""
    if selection.ready():
        for name, function in zip(COMPILED, making._short_functions(), strict=True):
            monkeypatch.setattr(making, name, function)


def switch_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave every write to the general path, which is the specification."""
    for name in COMPILED:
        monkeypatch.setattr(making, name, lambda *_: None)
    for module, name in itertools.product((inplace, casting, random), SHORT):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, lambda *_: False)


def read_only() -> weft.Tensor:
    x = weft.ones(2, 3)
    x._a.flags.writeable = False
    return x


def stale() -> weft.Tensor:
    base = weft.ones(3, 3, requires_grad=True) * 1
    part = base[:2]
    base.mul_(2)
    return part


def made_in(mode: Callable[[], Any]) -> weft.Tensor:
    with mode():
        return weft.ones(2, 3)


TARGETS: dict[str, Callable[[], weft.Tensor]] = {
    "plain": lambda: weft.ones(2, 3),
    "double": lambda: weft.ones(2, 3).double(),
    "half": lambda: weft.ones(2, 3).half(),
    "brain half": lambda: weft.ones(2, 3).bfloat16(),
    "whole": lambda: weft.ones(2, 3).long(),
    "bool": lambda: weft.ones(2, 3).bool(),
    "leaf": lambda: weft.ones(2, 3, requires_grad=True),
    "parameter": lambda: weft.nn.Parameter(weft.ones(2, 3)),
    "made": lambda: weft.ones(2, 3, requires_grad=True) * 2,
    "view": lambda: weft.ones(3, 3)[:2],
    "view of made": lambda: (weft.ones(3, 3, requires_grad=True) * 2)[:2],
    "stale view": stale,
    "transposed": lambda: weft.ones(3, 2).t(),
    "expanded": lambda: weft.ones(1, 3).expand(2, 3),
    "read-only": read_only,
    "inference": lambda: made_in(weft.inference_mode),
    "meta": lambda: weft.ones(2, 3, device="meta"),
    "empty": lambda: weft.ones(0, 3),
    "of another's memory": lambda: weft.from_numpy(np.ones((3, 3), np.float32)[1:]),
    "sixteen": lambda: weft.ones(4, 4),
    "many": lambda: weft.ones(40, 40),
    "number": lambda: weft.tensor(1.0),
}
SOURCES: dict[str, Callable[[weft.Tensor], Any]] = {
    "plain": lambda x: weft.arange(6.0).view(2, 3),
    "row": lambda x: weft.arange(3.0),
    "double": lambda x: weft.arange(6.0).view(2, 3).double(),
    "leaf": lambda x: weft.arange(6.0).view(2, 3).requires_grad_(),
    "made": lambda x: weft.ones(2, 3, requires_grad=True) * 3,
    "view of made": lambda x: (weft.ones(3, 3, requires_grad=True) * 3)[1:],
    "transposed": lambda x: weft.arange(6.0).view(3, 2).t(),
    "itself": lambda x: x,
    "its memory": lambda x: x.detach() * 0 if x.is_meta else x.view_as(x),
    "half its memory": lambda x: x._base[1:] if x._is_view() and x._base.ndim > 1 else x,
    "too large": lambda x: weft.ones(4, 5),
    "array": lambda x: np.ones((2, 3), np.float32),
}
NUMBERS = [0, 0.0, -0.0, 1, 0.1, -3, 2**24, 2**24 + 1, 2**70, 1e30, 1e300, float("inf"), True]
NUMBERS += [float("nan"), 1j, (1 << 54) + (1 << 30) + 1]  # the last would be rounded twice
CALLS: dict[str, Callable[[weft.Tensor], Any]] = {
    **{f"copy {k}": lambda x, s=s: x.copy_(s(x)) for k, s in SOURCES.items()},
    **{f"fill {n}": lambda x, n=n: x.fill_(n) for n in NUMBERS},
    "fill tensor": lambda x: x.fill_(weft.tensor(2.0)),
    "zero": lambda x: x.zero_(),
    "normal": lambda x: x.normal_(),
    "uniform": lambda x: x.uniform_(),
    "scaled": lambda x: x.uniform_(2.0, 3.0).normal_(1.0, 2.0),
    "copy sixteen": lambda x: x.copy_(weft.arange(16.0).view(4, 4)),
    "copy of detached": lambda x: x.copy_(x.detach()),
    "copy half": lambda x: x.copy_(weft.arange(6.0).view(2, 3).half()),
    "copy brain half": lambda x: x.copy_(weft.arange(6.0).view(2, 3).bfloat16()),
    "copy number": lambda x: x.copy_(2.5),
    "many changes": lambda x: [x.fill_(k) for k in range(12)][-1],
    "random": lambda x: x.random_(5),
}
MODES = {"plain": weft.enable_grad, "no_grad": weft.no_grad, "inference": weft.inference_mode}


def told(target: str, call: str, mode: str, listened: bool) -> Any:
    """All that can be seen of a call afterwards."""
    weft.manual_seed(3)
    weft.rand(8), weft.randn(16)  # so that some numbers are ready
    heard: list[Any] = []
    x = TARGETS[target]()
    if listened:
        gate.LISTENERS.append(lambda array, tensor: heard.append((array.shape, tensor is x)))
    try:
        with MODES[mode]():
            same = [CALLS[call](x) is x for _ in range(2)]
    except Exception as error:
        return type(error).__name__, str(error).partition("\n  at")[0], list.__getitem__(x._vc, 0)
    finally:
        if listened:
            gate.LISTENERS.pop()
    changes = [(c[0], c[1], c[2], c[3]) for c in list(list.__iter__(x._vc))[1:]]
    history = x.grad_fn.name() if x.grad_fn is not None else None
    values = None if x.is_meta else x.detach()._a.tobytes()
    rest = weft.get_rng_state()._a.tobytes()
    return same, values, list.__getitem__(x._vc, 0), changes, history, x.requires_grad, heard, rest


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", TARGETS)
def test_short_writes_do_what_the_general_path_does(
    target: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = list(itertools.product(CALLS, (False, True)))
    short = {case: told(target, case[0], mode, case[1]) for case in cases}
    switch_off(monkeypatch)
    for call, listened in cases:
        assert short[call, listened] == told(target, call, mode, listened), (call, listened)


def test_plain_writes_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def general(*_: Any) -> Any:
        raise AssertionError("the general path was taken")

    for module in (casting, random):
        monkeypatch.setattr(module, "apply_inplace", general)
    x = weft.ones(2, 3)
    for y in (x, x.double()):
        y.copy_(y.clone()).fill_(2.5).fill_(-3).zero_().normal_().uniform_()


# ------------------------------------------------------------------ by compiled code

SIZES: list[Any] = [
    (4, 4), (0, 3), (), ((2, 3),), ([2, 3],), (weft.Size((2, 3)),), ((),), (1, 1, 1, 1, 1),
    (1,) * 9, (True, 2), (np.int64(2), 3), (2.0,), (-1, 2), ((2, -1),), ("ab",), (2, (3,)),
    (33, 32), (1 << 62,), (1 << 64,), (weft.tensor(2), 3), (None,), (16,), (128,), (129,),
]  # fmt: skip
TYPES = [None, weft.float32, weft.float64, weft.int64, weft.bool, weft.int32, weft.bfloat16, 3]
VALUES: list[Any] = [*NUMBERS, False, 2.5, -1e9, 3.4028235e38, 3.5e38, 2**53, 2**53 + 1, 2**63]
VALUES += [-(2**63), -float("inf"), None, "1", np.float32(2), weft.tensor(2.0), 16777217]
MODELS: dict[str, Callable[[], Any]] = {
    **{k: v for k, v in TARGETS.items() if k != "many"},
    "four": lambda: weft.ones(2, 1, 2, 2),
    "steps": lambda: weft.ones(4, 4)[:, ::2],
    "none": lambda: None,
    "array": lambda: np.ones(3),
}
WHOLE = [(10,), (0, 10), (-5, 5), (5, 5), (7, 3), (1 << 27,), (1 << 28,), (2**62, 2**62 + 9)]
WHOLE += [(2**63 - 4, 2**63), (2**63 - 4, 2**63 + 1), (3.0,), (True, 3), (weft.tensor(5),)]
CREATED: dict[str, Callable[[], Any]] = {
    **{
        f"{name} {size} {d}": lambda name=name, size=size, d=d: getattr(weft, name)(*size, dtype=d)
        for name in ("zeros", "ones", "rand", "randn")
        for size in SIZES
        for d in TYPES
    },
    **{
        f"full {value} {d}": lambda value=value, d=d: weft.full((2, 3), value, dtype=d)
        for value in VALUES
        for d in TYPES
    },
    **{f"full {size}": lambda size=size: weft.full(*size, 0.5) for size in SIZES if len(size) == 1},
    **{
        f"{name} {model} {d}": lambda name=name, model=model, d=d: getattr(weft, name)(
            MODELS[model](), dtype=d
        )
        for name in ("zeros_like", "ones_like")
        for model in MODELS
        for d in TYPES
    },
    **{
        f"randint {span} {size}": lambda span=span, size=size: weft.randint(*span, *size)
        for span in WHOLE
        for size in [((4,),), ([2, 2],), (4,), ((),), ((0,),), ((130,),), ((2, -1),), ()]
    },
    "leaf": lambda: weft.zeros(3, requires_grad=True),
    "whole leaf": lambda: weft.zeros(3, requires_grad=True, dtype=weft.int64),
    "meta": lambda: weft.zeros(3, device="meta"),
    "like on meta": lambda: weft.ones_like(weft.ones(2), device="meta"),
    "size": lambda: weft.ones(size=(2, 3)),
    "no size": lambda: weft.ones(),
    "layout": lambda: weft.ones(2, layout=3),
    "out": lambda: weft.ones(2, out=weft.zeros(2)),
    "format": lambda: weft.ones(1, 2, 3, 4, memory_format=weft.channels_last),
    "kept format": lambda: weft.ones_like(weft.ones(2), memory_format=weft.preserve_format),
    "named": lambda: weft.randint(high=3, size=(2,)),
    "bad generator": lambda: weft.rand(3, generator=4),
}


def made(call: str) -> Any:
    """All that can be seen of a new tensor, or the error."""
    weft.manual_seed(3)
    weft.rand(8), weft.randn(16)
    try:
        x = [CREATED[call]() for _ in range(2)][-1]
    except Exception as error:
        return (
            type(error).__name__,
            str(error).partition("\n  at")[0],
            weft.get_rng_state().tolist(),
        )
    values = None if x.is_meta else x.detach()._a.tobytes()
    where = x.device.type, type(x), x.shape, x.stride(), x.dtype, x.requires_grad, x.is_leaf
    version = list.__getitem__(x._vc, 0), list.__len__(x._vc)
    cell = type(x._vc), version, x._base, x._view, x._grad, x._x
    flags = x._a.flags.writeable, x.untyped_storage().nbytes()
    return values, where, cell, flags, weft.get_rng_state().tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", ["plain", "no_grad", "inference", "recorded", "double", "meta"])
def test_new_tensors_are_those_of_the_general_path(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = {**MODES, "recorded": weft.graph.record, "meta": lambda: weft.device("meta")}

    def all_of_them() -> dict[str, Any]:
        if where != "double":
            with contexts[where]():
                return {call: made(call) for call in CREATED}
        weft.set_default_dtype(weft.float64)
        try:
            return {call: made(call) for call in CREATED}
        finally:
            weft.set_default_dtype(weft.float32)

    short = all_of_them()
    switch_off(monkeypatch)
    for call, expected in all_of_them().items():
        assert short[call] == expected, call


def test_plain_calls_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    if not selection.ready():
        pytest.skip("no native code here")

    def general(*_: Any) -> Any:
        raise AssertionError("the general path was taken")

    x, y, n = weft.ones(4, 4), weft.zeros(4, 4), weft.arange(3)
    calls: list[Callable[[], Any]] = [
        lambda: x.zero_(), lambda: x.copy_(y), lambda: n.fill_(3), lambda: x.uniform_(),
        lambda: weft.rand(2, 2), lambda: weft.zeros(3), lambda: weft.full((2,), -1e9),
        lambda: weft.ones_like(n), lambda: weft.randint(9, (3,)), lambda: weft.empty(2, 3),
        lambda: x.normal_(), lambda: weft.randn(16), lambda: x.bool().zero_(),
    ]  # fmt: skip
    for call in calls:
        weft.manual_seed(0)
        call()  # makes numbers ready
        with monkeypatch.context() as patch:
            for module, names in (
                (casting, ("copied_over", "filled_over")),
                (random, ("fill", "build")),
                (creation, ("build", "like_array")),
            ):
                for name in names:
                    patch.setattr(module, name, general)
            call()


def test_references_of_compiled_writes_are_exact() -> None:
    if not selection.ready():
        pytest.skip("no native code here")
    x, y, row = weft.ones(4, 4), weft.zeros(4, 4), np.ones(64, np.float32)
    words, name, size = np.arange(64, dtype=np.uint32), "a name", (4, 4)
    over, create = making._short_functions()
    f32, i64 = np.dtype(np.float32), np.dtype(np.int64)

    def called(function: Callable) -> Callable:  # from a function, whose caller is the user's
        return lambda: [function() for _ in range(1)]

    calls = [
        lambda: over(x, name, 0), lambda: over(x, name, y), lambda: over(x, name, row, 3, 1),
        lambda: over(x, name, row, 60, 1), lambda: over(x, name, "no"), lambda: over(x, name, x),
        lambda: over(3, name, 0), lambda: create(size, f32, 0.5), lambda: create((size,), i64, 3),
        lambda: create(size, f32, row, 3, 16), lambda: create(size, i64, words, 0, 7, 2),
        lambda: create(size, i64, 0.5), lambda: create((4, "a"), f32, 1),
        lambda: create(x._a, f32, 1), lambda: create(size, f32, None),
        lambda: create(size, f32, row, 60, 16),
    ]  # fmt: skip
    x.fill_(1)  # so that this file is known
    held = [
        x,
        y,
        x._a,
        y._a,
        x._vc,
        row,
        words,
        name,
        size,
        f32,
        i64,
        None,
        True,
        0,
        1,
        weft.Tensor,
    ]
    for k, call in enumerate(calls):
        call = called(call)
        for _ in range(100):
            call()
        for _ in range(2):  # other code of the process may let go of something meanwhile
            gc.collect()
            before = [sys.getrefcount(thing) for thing in held]
            for _ in range(5000):
                call()
            gc.collect()
            moved = [sys.getrefcount(thing) - n for thing, n in zip(held, before, strict=True)]
            if max(map(abs, moved)) < 100:
                break
        else:
            raise AssertionError((k, moved))


def test_collections_at_every_allocation_of_writes() -> None:
    wanted = told("sixteen", "many changes", "plain", False), made("rand (4, 4) None")
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        found = told("sixteen", "many changes", "plain", False), made("rand (4, 4) None")
    finally:
        gc.set_threshold(*before)
    assert found == wanted
