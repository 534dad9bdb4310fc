"""The namespaces of devices that are not there, row by row of their table."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest

import weft
from weft.compat import absent

ROWS = [
    (space, kind, name)
    for space, kinds in absent.TABLE.items()
    for kind, names in kinds.items()
    for name in names.split()
]
# Where PyTorch without such a device fails, programs get an answer.
LENIENT = {
    *(("accelerator", name) for name in absent.TABLE["accelerator"]["zero"].split()[1:]),
}


def test_modules_are_found_below_weft() -> None:
    for name in ("cuda", "cuda.amp", "cpu.amp", "xpu", "mps", "accelerator", "_dynamo", "ops"):
        module = importlib.import_module(f"weft.{name}")
        assert module.__name__ == f"weft.{name}"
    assert weft.cuda is importlib.import_module("weft.cuda")


@pytest.mark.parametrize(("space", "kind", "name"), ROWS)
def test_row(space: str, kind: str, name: str) -> None:
    function = getattr(getattr(weft, space), name)
    assert function.__module__ == f"weft.{space}" and function.__name__ == name
    if kind != "refused":
        assert not function()
        return
    error, _ = absent.ERRORS[space]
    with pytest.raises(error, match=rf"torch\.{space}\.is_available"):
        function()


@pytest.mark.parametrize(
    ("space", "name"),
    [(s, n) for s, kind, n in ROWS if kind not in ("refused", "ignored") and (s, n) not in LENIENT],
)
def test_answers_are_those_of_torch(space: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        theirs: Any = getattr(getattr(torch, space), name)()
    mine = getattr(getattr(weft, space), name)()
    assert mine == theirs and type(mine) is type(theirs)
