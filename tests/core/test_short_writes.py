"""In-place writes that skip the general path: the same values, versions, history and errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.core import gate, inplace
from weft.operators import casting, random

SHORT = ("written_over", "copied_over", "filled_over")


def switch_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave every write to the general path, which is the specification."""
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
    "uniform": lambda x: x.uniform_(2.0, 3.0),
    "random": lambda x: x.random_(5),
}
MODES = {"plain": weft.enable_grad, "no_grad": weft.no_grad, "inference": weft.inference_mode}


def told(target: str, call: str, mode: str) -> Any:
    """All that can be seen of a call afterwards."""
    weft.manual_seed(3)
    heard: list[Any] = []
    x = TARGETS[target]()
    gate.LISTENERS.append(lambda array, tensor: heard.append((array.shape, tensor is x)))
    try:
        with MODES[mode]():
            same = CALLS[call](x) is x
    except Exception as error:
        return type(error).__name__, str(error).partition("\n  at")[0], list.__getitem__(x._vc, 0)
    finally:
        gate.LISTENERS.pop()
    changes = [(c[0], c[1], c[2].co_name) for c in list(list.__iter__(x._vc))[1:]]
    history = x.grad_fn.name() if x.grad_fn is not None else None
    values = None if x.is_meta else x.detach()._a.tobytes()
    return same, values, list.__getitem__(x._vc, 0), changes, history, x.requires_grad, heard


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", TARGETS)
def test_short_writes_do_what_the_general_path_does(
    target: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {call: told(target, call, mode) for call in CALLS}
    switch_off(monkeypatch)
    for call in CALLS:
        assert short[call] == told(target, call, mode), call


def test_plain_writes_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def general(*_: Any) -> Any:
        raise AssertionError("the general path was taken")

    for module in (casting, random):
        monkeypatch.setattr(module, "apply_inplace", general)
    x = weft.ones(2, 3)
    for y in (x, x.double()):
        y.copy_(y.clone()).fill_(2.5).fill_(-3).zero_().normal_().uniform_()
