"""Something that is no tensor where a tensor belongs: TypeError, and which argument it was."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Any

import numpy as np
import pytest

import weft
from side_by_side import needs_torch
from weft.core import errors, foreign, overrides

BLOCKS = 4
pytestmark = pytest.mark.skipif(
    foreign.HANDLER is None,
    reason="handlers beside the code were tested with Python 3.11 to 3.13 only",
)


@needs_torch
@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_function_raises_what_torch_raises(block: int) -> None:
    import foreign_arguments

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ops = list(foreign_arguments.ops())[block::BLOCKS]
        assert not [text for op in ops for text in foreign_arguments.differences(op)]


CALLS = {
    "weft.std([1.0, 2.0])": "std(): argument 'input' (position 1) must be Tensor, not list",
    "weft.bmm(x, None)": "bmm(): argument 'mat2' (position 2) must be Tensor, not NoneType",
    "weft.linalg.matrix_norm('a')": "argument 'A' (position 1) must be Tensor, not str",
    "weft.meshgrid([x[0], 3.0])": "element 1 of argument 'tensors' (position 1) must be Tensor",
    "weft.matmul(x, other=np.ones(2))": "argument 'other' must be Tensor, not numpy.ndarray",
    "x.index_select(0, [0])": "index_select(): argument 'index' (position 3) must be Tensor",
    "weft.floor_divide(x, None)": "argument 'other' (position 2) must be Tensor, not NoneType",
    "weft.div(x, None, rounding_mode='trunc')": "argument 'other' (position 2) must be Tensor",
    "weft.nn.functional.fold([1.0], 2, 1)": "fold(): argument 'input' (position 1) must be Tensor",
}


@pytest.mark.parametrize("call", CALLS)
def test_the_argument_is_named(call: str) -> None:
    with pytest.raises(TypeError) as raised:
        eval(call, {"weft": weft, "np": np, "x": weft.ones(2, 2)})
    assert CALLS[call] in str(raised.value)
    assert raised.value.__cause__ is None and raised.value.__suppress_context__


@pytest.mark.parametrize("name", ["fmod_", "remainder_", "floor_divide_", "__imod__"])
def test_in_place_division_by_nothing(name: str) -> None:
    x = weft.ones(2)
    with pytest.raises(TypeError, match="expected Tensor, not NoneType"):
        getattr(x, name)(None)
    assert x.tolist() == [1.0, 1.0] and x._version == 0


def test_the_argument_is_named_where_types_have_a_say() -> None:
    overrides.switch_on()
    for call in CALLS:
        test_the_argument_is_named(call)


def test_the_way_out_and_the_line_are_named() -> None:
    with pytest.raises(TypeError, match=r"torch\.tensor\(") as raised:
        weft.std([1.0, 2.0])
    assert "test_foreign_arguments.py" in str(raised.value)
    with pytest.raises(TypeError, match="from_numpy"):
        weft.std(np.ones(2))


def test_other_errors_are_left_alone() -> None:
    class Odd:
        def __iter__(self) -> Any:
            raise AttributeError("mine")

    with pytest.raises(AttributeError, match="mine"):
        weft.stack(Odd())
    x = weft.ones(2, requires_grad=True)
    x.register_hook(lambda g: x.missing._a)
    x.missing = None
    with pytest.raises(AttributeError, match="NoneType"):
        (x * 2).sum().backward()
    with pytest.raises(AttributeError, match="no_such_name"):
        weft.ones(2).no_such_name  # noqa: B018


def test_nothing_is_left_behind() -> None:
    for _ in range(3):
        with pytest.raises(TypeError):
            weft.std([1.0])
    assert sys.exc_info() == (None, None, None)
    try:
        raise ValueError("outer")
    except ValueError as outer:
        with pytest.raises(TypeError):
            weft.std([1.0])
        assert sys.exc_info()[1] is outer


def inner(a: Any, b: Any = None, *rest: Any, c: Any = None, **more: Any) -> Any:
    try:
        if a is None:
            raise KeyError("kept")
    except KeyError:
        return "handled"
    with memoryview(b"x"):
        for value in (b, *rest, c, *more.values()):
            value is None or value._a  # noqa: B018
    return a._a


@pytest.mark.parametrize(
    ("args", "named", "said"),
    [
        (("a",), {}, "'a' (position 1)"),
        ((2.0, "a"), {}, "'b' (position 2)"),
        ((2.0, None, "a"), {}, "argument 3 must be Tensor"),
        ((2.0,), {"c": "a"}, "'c'"),
        ((2.0,), {"d": "a"}, "'d'"),
    ],
)
def test_a_guarded_function(args: Any, named: Any, said: str) -> None:
    guarded = foreign_twin()
    with pytest.raises(TypeError) as raised:
        guarded(*args, **named)
    assert "twin(): argument" in str(raised.value) and said in str(raised.value)
    lines = [f.lineno for f in traceback.extract_tb(raised.value.__traceback__)]
    assert None not in lines


def foreign_twin() -> Any:
    from weft.core.overrides import twin

    guarded = twin(inner)
    guarded.__code__ = inner.__code__.replace(co_filename=errors.ROOT + "inner.py")
    foreign.guard(guarded, "twin")
    return guarded


def test_a_guarded_function_does_what_it_did() -> None:
    guarded = foreign_twin()
    assert foreign.HANDLER is not None
    assert guarded.__code__ is not inner.__code__
    assert guarded(None) == "handled"
    x = weft.ones(2)
    assert guarded(x, x, x, c=x, d=x) is x._a
