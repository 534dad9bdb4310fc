"""A direct call of a registered op gives a result or an error, whatever it is called with."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest

import direct_calls
import weft
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit
from weft.native.memory import layout

pytestmark = [
    pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not())),
    pytest.mark.skipif(sys.platform != "linux", reason="guarded memory is made for Linux"),
]


def real(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def whole(*shape: int, value: int = 0) -> np.ndarray:
    return np.full(shape, value)


WINDOW = {"stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1}
MEANS = {"ceil_mode": False, "count_include_pad": True, "divisor_override": None}
STEPS = {"sizes": None, "reverse": False}

# Operands that do not fit each other: the public functions let none of these through.
UNFIT: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("index_add", (real(9, 40), real(2, 3), whole(9)), {"dim": 0, "alpha": 1}),
    ("index_copy", (real(9, 40), real(2, 3), whole(9)), {"dim": 0}),
    ("plane_gather", (real(1, 2, 9), whole(5, 40, 9)), {}),
    ("plane_scatter", (real(1, 2, 9), whole(1, 1, 2)), {"shape": (1, 2, 9)}),
    ("plane_scatter", (real(1, 2, 9), whole(1, 2, 9)), {"shape": (4, 9, 9)}),
    ("scatter_add", (real(9, 9), real(2, 3), whole(9, 9)), {"dim": 0}),
    ("gather_backward", (real(2, 3), whole(9, 9)), {"shape": (9, 9), "dim": 0}),
    ("take_along", (real(0, 9), whole(9, 9)), {"dim": 0, "unique": False}),
    ("native_batch_norm", (real(9, 40), real(3), real(40)), {"eps": 1e-5}),
    ("batch_norm_fixed", (real(9, 40), None, None, real(3), real(40)), {"eps": 1e-5}),
    (
        "embedding_dense_backward",
        (real(2, 3), whole(9, 9)),
        {"count": 5, "padding_idx": -1, "by_freq": False},
    ),
    (
        "rnn_layer",
        (real(3, 2, 5), real(2, 7), real(4, 5), real(4, 4), None, None),
        {**STEPS, "activation": "tanh"},
    ),
    ("gru_layer", (real(3, 2, 5), real(2, 4), real(12, 6), real(12, 4), None, None), STEPS),
    (
        "lstm_layer",
        (real(9, 5), real(2, 4), real(2, 4), real(16, 5), real(16, 4), None, None, None),
        {"sizes": (40, 2, 1), "reverse": False},
    ),
    (
        "avg_pool_backward",
        (real(1, 2, 40),),
        {"shape": (1, 2, 6), "kernel": (3,), "stride": (2,), "padding": (1,), **MEANS},
    ),
    ("conv_weight", (real(1, 3, 40), real(1, 2, 5)), {**WINDOW, "shape": (3, 2, 3)}),
    ("conv_transpose", (real(1, 3, 40), real(3, 2, 3), None), {**WINDOW, "shape": (1, 2, 5)}),
    ("convolution", (real(1, 2, 9), real(3, 2, 3), real(1)), WINDOW),
    (
        "nll_loss",
        (real(9, 40), whole(9, value=39), real(3)),
        {"reduction": "mean", "ignore_index": -100},
    ),
    ("log1p", (real(9), real(9)), {}),
]  # fmt: skip


def test_the_limits_that_the_long_run_lowers_are_there() -> None:
    """Else only the blocks of calls that leave them alone would run, and these are the first."""
    for module, limits in direct_calls.LIMITS.items():
        held = importlib.import_module(f"weft.native.{module}")
        assert all(isinstance(getattr(held, name), int) for name in limits), module


@pytest.mark.parametrize("block", [1, 7])  # at the end and at the beginning of readable memory
def test_operands_that_do_not_fit_are_refused(block: int) -> None:
    calls = [
        (name, route, (list(args), attrs), [])
        for name, args, attrs in UNFIT
        for route in ("compute", "record", "graph")
    ]
    found, fatal, said = direct_calls.run_calls(calls, block)
    assert fatal is None, f"{calls[fatal][:2]}: {said}"
    results = {c[0] for c, outcome in zip(calls, found, strict=True) if outcome == "result"}
    assert results <= {"plane_scatter", "avg_pool_backward"}  # NumPy makes something of those


@pytest.mark.parametrize("block", range(4))
def test_damaged_calls_are_results_or_errors(block: int) -> None:
    fatal = list(direct_calls.check(block * direct_calls.BLOCK, 60))
    assert not fatal, "\n".join(f"{direct_calls.describe(c)}\n{said}" for _, c, said in fatal)


@pytest.mark.deep
@pytest.mark.parametrize("block", range(50))
def test_fifty_thousand_damaged_calls_are_results_or_errors(block: int) -> None:
    fatal = list(direct_calls.check(block * direct_calls.BLOCK, direct_calls.BLOCK))
    assert not fatal, "\n".join(f"{direct_calls.describe(c)}\n{said}" for _, c, said in fatal)


def test_one_more_operand_is_not_written_to() -> None:
    out = np.zeros(3, np.float32)
    with pytest.raises(TypeError, match="expected 1 operands, got 2"):
        REGISTRY["expm1"](real(3), out)
    with pytest.raises(TypeError, match="where"):
        REGISTRY["expm1"](real(3), where=np.zeros(3, bool))
    assert not out.any()
    assert weft.log1p(weft.ones(2)).shape == (2,)


@pytest.mark.parametrize(
    ("name", "operands", "attrs"),
    [
        ("bincount", ([2**63 - 1, 0],), {"minlength": 3}),
        ("bincount", ([2**63 - 1, 0], [1.0, 1.0]), {"minlength": 3}),
        ("linalg_ldl_factor_ex", ([[1.0], [2.0], [3.0]],), {"hermitian": False}),
        ("erf", ([0.5], [0.5]), {}),
        ("special_ndtri", ([0.5], [0.5]), {}),
    ],
)
def test_what_libraries_below_do_not_refuse(name: str, operands: Any, attrs: Any) -> None:
    arrays = [np.array(x) for x in operands]
    before = [x.copy() for x in arrays]
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        REGISTRY[name](*arrays, **attrs)
    assert all(np.array_equal(x, y) for x, y in zip(arrays, before, strict=True))


def test_a_scalar_of_numpy_is_an_array_to_native_code() -> None:
    """It has flags, a shape and a dtype, but an array's memory is not where kernels look."""
    made = layout.plain(np.int64(3))
    assert type(made) is np.ndarray and made.shape == () and made == 3
    wide = np.ones((2, 3))
    assert layout.plain(wide) is wide
