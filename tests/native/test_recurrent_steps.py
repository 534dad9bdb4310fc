"""All steps of a recurrent layer in one native call: against NumPy, on several numbers of threads,
and in the corners of sizes, values and processes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.core.selection import ready
from weft.references import recurrent as reference

pytestmark = pytest.mark.skipif(not ready(), reason="there is no native code here")
PARTS = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
TOLERANCE = {"float64": 1e-11, "float32": 3e-5}
Result = list[np.ndarray]


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = weft.get_num_threads()
    yield
    weft.set_num_threads(before)


def layer(
    cell: str,
    features: int,
    size: int,
    rows: int,
    dtype: str,
    projection: int = 0,
    spread: float = 1,
) -> dict[str, Any]:
    """Arrays of a layer, for the functions of a table."""
    rng = np.random.default_rng(size + 7 * rows)
    draw = lambda *s: (spread * rng.standard_normal(s)).astype(dtype)
    out, gates = projection or size, PARTS[cell] * size
    scale = np.sqrt(size)
    given: dict[str, Any] = {"h0": draw(rows, out)}
    if cell == "lstm":
        given["c0"] = draw(rows, size)
    given |= {"w_ih": draw(gates, features) / scale, "w_hh": draw(gates, out) / scale}
    given |= {"b_ih": draw(gates), "b_hh": draw(gates)}
    given = {k: v.astype(dtype) for k, v in given.items()}
    if cell == "lstm":
        given["w_hr"] = draw(projection, size) / np.asarray(scale, dtype) if projection else None
    return given


def run(
    table: Any, cell: str, x: np.ndarray, given: dict[str, Any], sizes: Any, reverse: bool
) -> Result:
    """All results and all gradients of a layer on the functions of a table."""
    name = cell if cell in ("lstm", "gru") else "rnn"
    more = {"activation": cell} if name == "rnn" else {}
    found = getattr(reference, name)(x, **given, sizes=sizes, reverse=reverse, cells=table, **more)
    states = 3 if name == "lstm" else 2
    rng = np.random.default_rng(1)
    g = [rng.standard_normal(r.shape).astype(x.dtype) for r in found[:states]]
    kept = {k: v for k, v in given.items() if k not in ("b_ih", "b_hh")}
    names = {
        "lstm": ("gates", "cells", "tanh_c", "full"),
        "gru": ("gates", "inner"),
        "rnn": (),
    }[name]
    kept |= dict(zip(names, found[states:], strict=True)) | {"y": found[0]}
    needs = [True] * 7 + [given.get("w_hr") is not None]
    rule = getattr(reference, f"{name}_rule")
    grads = rule(g, x, **kept, needs=needs, sizes=sizes, reverse=reverse, table=table, **more)
    return [a.copy() for a in (*found[:states], *grads) if a is not None]


def native_table() -> Any:
    """Native steps, with products by NumPy: those of libraries depend on the number of threads."""
    from weft.native.layers.recurrent import CELLS

    return CELLS | {"gemm": reference.gemm}


def same(found: Result, expected: Result, dtype: str) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        scale = 1 + np.abs(b[np.isfinite(b)]).max(initial=0)
        tolerance = TOLERANCE[dtype]
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


def draw(dtype: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("cell", PARTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "steps, rows, features, size",
    [(9, 5, 3, 7), (20, 1, 4, 33), (3, 32, 17, 16), (5, 13, 1, 1), (4, 7, 40, 300), (2, 9, 0, 20)],
)
def test_all_steps_give_what_numpy_gives(
    cell: str, dtype: str, reverse: bool, steps: int, rows: int, features: int, size: int
) -> None:
    given, x = layer(cell, features, size, rows, dtype), draw(dtype, steps, rows, features)
    expected = run(reference.CELLS, cell, x, given, None, reverse)
    same(run(native_table(), cell, x, given, None, reverse), expected, dtype)


@pytest.mark.parametrize("cell", PARTS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_sequences_that_end_early(cell: str, reverse: bool, count: int) -> None:
    weft.set_num_threads(count)
    sizes = (21, 21, 20, 14, 14, 7, 1, 1)
    given, x = layer(cell, 6, 70, 21, "float32"), draw("float32", sum(sizes), 6)
    expected = run(reference.CELLS, cell, x, given, sizes, reverse)
    same(run(native_table(), cell, x, given, sizes, reverse), expected, "float32")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [None, (11, 8, 8, 2)], ids=str)
@pytest.mark.parametrize("size, projection", [(40, 9), (200, 33), (17, 16)])
@pytest.mark.parametrize("count", [1, 2])
def test_projections(dtype: str, sizes: Any, size: int, projection: int, count: int) -> None:
    weft.set_num_threads(count)
    given = layer("lstm", 5, size, 11, dtype, projection)
    x = draw(dtype, 6, 11, 5) if sizes is None else draw(dtype, sum(sizes), 5)
    for reverse in (False, True):
        expected = run(reference.CELLS, "lstm", x, given, sizes, reverse)
        same(run(native_table(), "lstm", x, given, sizes, reverse), expected, dtype)


@pytest.mark.parametrize("cell", PARTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "steps, rows, size", [(40, 32, 96), (40, 1, 256), (40, 3, 250), (6, 70, 90)]
)
def test_the_number_of_threads_changes_no_bit(
    cell: str, dtype: str, steps: int, rows: int, size: int
) -> None:
    given, x = layer(cell, 8, size, rows, dtype), draw(dtype, steps, rows, 8)
    runs = []
    for count in (1, 2, 3, 5):
        weft.set_num_threads(count)
        runs.append(run(native_table(), cell, x, given, None, False))
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_other_samples_change_no_bit() -> None:
    """A row's result does not depend on which rows it is computed with."""
    given, x = layer("lstm", 8, 64, 13, "float32"), draw("float32", 20, 13, 8)
    whole = run(native_table(), "lstm", x, given, None, False)[0]
    for rows in (slice(0, 1), slice(4, 9), slice(6, 13)):
        some = given | {"h0": given["h0"][rows], "c0": given["c0"][rows]}
        part = run(native_table(), "lstm", np.ascontiguousarray(x[:, rows]), some, None, False)[0]
        np.testing.assert_array_equal(part, whole[:, rows])


@pytest.mark.parametrize("cell", PARTS)
def test_work_is_divided_as_the_threads_allow(cell: str) -> None:
    from weft.native.layers.recurrent import LayerSteps

    w_hh = np.zeros((PARTS[cell] * 256, 256), np.float32)
    cuts = {}
    for rows, sizes in ((32, (32,) * 64), (1, (1,) * 64), (32, (32, *(16,) * 63))):
        for count in (1, 2, 4):
            weft.set_num_threads(count)
            way = LayerSteps(
                native_table(), reference.SequenceSteps(sizes, False), w_hh, None, PARTS[cell]
            )
            cuts[rows, sizes[-1], count] = way.cut[1:]
    assert {cuts[k] for k in cuts if k[2] == 1} == {(1, 1)}
    assert cuts[32, 32, 2] == (2, 1)  # whole samples: no thread waits
    assert cuts[32, 16, 2] == (1, 2)  # samples that end early: units are divided
    assert all(a * b <= count for (_, _, count), (a, b) in cuts.items())


@pytest.mark.parametrize("cell", PARTS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinities_stay_in_their_sample(cell: str, value: float) -> None:
    given, x = layer(cell, 6, 40, 9, "float32"), draw("float32", 12, 9, 6)
    x[3, 4, 2] = value
    with np.errstate(all="ignore"):
        expected = run(reference.CELLS, cell, x, given, None, False)
        found = run(native_table(), cell, x, given, None, False)
    states = 3 if cell == "lstm" else 2
    for a, b in zip(found[: states + 2], expected[: states + 2], strict=True):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    same(found[:1], expected[:1], "float32")
    if np.isnan(value):
        assert np.isnan(found[0][3:, 4]).all() and not np.isnan(np.delete(found[0], 4, 1)).any()


def test_an_infinite_weight_spoils_its_unit_alone_in_the_first_step() -> None:
    given, x = layer("tanh", 4, 40, 30, "float32"), draw("float32", 1, 30, 4)
    given["w_hh"][39, 3] = np.nan
    found = run(native_table(), "tanh", x, given, None, False)[0]
    assert np.isnan(found[0, :, 39]).all() and not np.isnan(found[0, :, :39]).any()


@pytest.mark.parametrize("cell", PARTS)
def test_a_long_sequence(cell: str) -> None:
    given, x = layer(cell, 2, 12, 2, "float64", spread=0.3), draw("float64", 3000, 2, 2)
    expected = run(reference.CELLS, cell, x, given, None, True)
    same(run(native_table(), cell, x, given, None, True), expected, "float64")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("shape", [(5, 0, 64), (64, 0, 64)], ids=str)
def test_an_empty_batch(kind: str, shape: tuple[int, ...]) -> None:
    module = getattr(weft.nn, kind)(64, 64)
    x = weft.zeros(*shape, requires_grad=True)
    output, _ = module(x)
    output.sum().backward()
    assert output.shape == shape and x.grad.shape == shape
    assert all(p.grad.abs().sum().item() == 0 for p in module.parameters())


def test_gradients_that_lie_otherwise_are_taken() -> None:
    """That of a sum is one number seen from all places, that of a turned result is turned."""
    module, x = weft.nn.GRU(16, 48), weft.randn(12, 10, 16)
    found = []
    for way in (lambda y: y.sum(), lambda y: (y.transpose(0, 2) * 1.0).contiguous().sum()):
        module.zero_grad()
        way(module(x)[0]).backward()
        found.append([p.grad.clone() for p in module.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.parametrize("rows", [1, 32])
def test_a_forked_child_gives_the_same_bits(rows: int) -> None:
    """Also where the threads of the parent had to wait for each other."""
    weft.set_num_threads(2)
    given, x = layer("lstm", 8, 256, rows, "float32"), draw("float32", 40, rows, 8)
    expected = run(native_table(), "lstm", x, given, None, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's advice on threads and forks
        child = os.fork()
    if not child:
        right = False
        try:
            found = run(native_table(), "lstm", x, given, None, False)
            right = all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
        finally:
            os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_single_unit_in_numpy_alone() -> None:
    """Its gates are columns with others between them."""
    given, x = layer("lstm", 3, 1, 13, "float32"), draw("float32", 1, 13, 3)
    gates = reference.lstm(x, **given, sizes=None, reverse=False)[3]
    wide = {k: None if v is None else v.astype(np.float64) for k, v in given.items()}
    share = x[0] @ wide["w_ih"].T + wide["h0"] @ wide["w_hh"].T + wide["b_ih"] + wide["b_hh"]
    expected = np.where(np.arange(4) == 2, np.tanh(share), 1 / (1 + np.exp(-share)))
    np.testing.assert_allclose(gates, expected, rtol=1e-5)
