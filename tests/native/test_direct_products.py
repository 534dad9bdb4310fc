"""Products of small matrices without panels: values, memory, and which products of programs."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft as torch
from weft.core import selection
from weft.native import contract, threads
from weft.native.codegen import jit
from weft.native.gemm import direct, products
from weft.native.memory import buffers

selection.start()
pytestmark = pytest.mark.skipif(
    jit.why_not() is not None or not direct.available(), reason="no code that reads through masks"
)

# The error of a sum in another order, against the sum of absolute products in float64.
ACCURACY = 4 * 2.0**-23
LAYOUTS = 6
SIZES = st.one_of(st.integers(1, 20), st.integers(1, 140))


def laid(rng: np.random.Generator, rows: int, columns: int, how: int) -> np.ndarray:
    """A matrix by rows, by columns, in part of a larger one, backwards, or of one repeated row."""
    if how == 1:
        return rng.standard_normal((columns, rows)).astype("f4").T
    if how == 2:
        return rng.standard_normal((rows, columns + 3)).astype("f4")[:, 1 : columns + 1]
    if how == 3:
        return rng.standard_normal((2 * rows, 2 * columns)).astype("f4")[::2, ::2]
    if how == 4:
        return rng.standard_normal((rows, columns)).astype("f4")[::-1, ::-1]
    if how == 5:
        return np.broadcast_to(rng.standard_normal(columns).astype("f4"), (rows, columns))
    return rng.standard_normal((rows, columns)).astype("f4")


@settings(max_examples=250, deadline=None)
@given(SIZES, SIZES, SIZES, *[st.integers(0, LAYOUTS - 1)] * 2, st.booleans(), st.integers(1, 3))
def test_values(m: int, n: int, k: int, a: int, b: int, biased: bool, count: int) -> None:
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    left, right = laid(rng, m, k, a), laid(rng, k, n, b)
    bias = rng.standard_normal(n).astype("f4") if biased else None
    want = left.astype("f8") @ right + (0 if bias is None else bias)
    bound = np.abs(left).astype("f8") @ np.abs(right) + np.abs(want)
    before, found = threads.count(), []
    try:
        for each in (count, 1):
            threads.set_count(each)
            found.append(direct.matmul(left, right, np.full((m, n), np.nan, "f4"), bias))
    finally:
        threads.set_count(before)
    assert (np.abs(found[0] - want) <= ACCURACY * bound).all()
    assert (found[0] == found[1]).all()  # on any number of threads


@pytest.mark.parametrize("m, n, k", [(5, 3, 40), (40, 3, 5), (33, 40, 17), (1, 50, 64), (9, 9, 1)])
@pytest.mark.parametrize("transposed", [False, True])
def test_what_is_not_finite_stays_where_it_belongs(
    m: int, n: int, k: int, transposed: bool
) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k)).astype("f4")
    b = laid(rng, k, n, int(transposed))
    a[m // 2, k // 2] = np.nan
    b[:, n - 1] = np.inf
    with np.errstate(invalid="ignore"):
        want = a @ b
    found = direct.matmul(a, b, np.empty((m, n), "f4"))
    assert (np.isnan(found) == np.isnan(want)).all()
    finite = ~np.isnan(want)
    assert np.allclose(found[finite], want[finite], rtol=1e-4, atol=1e-4)


GUARDED = """
import numpy as np, guard
from weft.core import selection
from weft.native.gemm import direct
selection.start()
rng = np.random.default_rng(1)
for seed in range(150):
    m, n, k = (int(x) for x in rng.integers(1, 40, 3))
    a = rng.standard_normal((m, k)).astype("f4")
    b = rng.standard_normal((k, n)).astype("f4")
    if seed % 2:
        a = np.asfortranarray(a)
    if seed // 2 % 2:
        b = np.asfortranarray(b)
    place = guard.before if seed // 4 % 2 else guard.after
    bias = place(np.ones(n, "f4"))
    out = place(np.empty((m, n), "f4"))
    direct.matmul(place(a), place(b), out, bias)
    assert np.allclose(out, a @ b + 1, rtol=1e-3, atol=1e-3), (m, n, k)
print("fine")
"""


def test_nothing_beyond_the_arrays_is_touched() -> None:
    here = Path(__file__).resolve().parents[1]
    places = os.pathsep.join((str(Path(torch.__file__).parents[1]), str(here)))
    done = subprocess.run(
        [sys.executable, "-c", GUARDED],
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr


def called(function: Any, *arrays: np.ndarray) -> list[str]:
    return [call.name for call in contract.plan(function, arrays).calls]


def test_small_products_of_plans_are_direct_and_eager_ones_are_not() -> None:
    x, w, b = np.ones((20, 8), "f4"), np.ones((6, 8), "f4"), np.ones(6, "f4")
    assert called(products.linear_with_bias, x, w, b) == ["transpose_columns", "direct"]
    assert called(products.mm, x, w[:, :].T.copy()) == ["direct"]
    assert called(products.mm, x.astype("f8"), w.T.astype("f8")) == ["dgemm"]
    large = np.ones((300, 300), "f4")
    assert "direct" not in called(products.mm, large, large)
    assert products.mm(x, w.T) is None  # NumPy's


@pytest.mark.parametrize("shape", [(1, 1, 64), (2, 3, 64), (3, 1, 2, 64)])
def test_planned_layers_of_stacks_are_direct(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype("f4") for s in (shape, (50, 64), (50,)))
    for arrays, bias in (((x, w), 0.0), ((x, w, b), b)):
        function = products.linear if len(arrays) == 2 else products.linear_with_bias
        job = contract.plan(function, arrays)
        assert {call.name for call in job.calls} <= {"transpose_columns", "direct", "by_dots"}
        assert np.allclose(job(*arrays), x.astype("f8") @ w.T + bias, rtol=1e-5, atol=1e-5)
    apart = np.asfortranarray(x)
    try:
        found = contract.plan(products.linear, (apart, w))(apart, w)
    except buffers.Unplannable:
        return
    assert np.allclose(found, x.astype("f8") @ w.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes, batch", [((2, 10, 1), 100), ((32, 64, 64, 10), 16), ((7, 3), 1)])
def test_steps_agree_with_eager_ones(sizes: tuple[int, ...], batch: int) -> None:
    def losses(compiled: bool) -> list[float]:
        torch.manual_seed(0)
        layers: list[Any] = []
        for n, m in itertools.pairwise(sizes):
            layers += [torch.nn.Linear(n, m), torch.nn.Tanh()]
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        x, y = torch.randn(batch, sizes[0]), torch.randn(batch, sizes[-1])

        def step() -> Any:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(step, static=True) if compiled else step
        return [run().item() for _ in range(20)]

    assert np.allclose(losses(True), losses(False), rtol=1e-4, atol=1e-6)
