"""Half types in compiled loops: widened when read, computed in float32, rounded once."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_native_loops import TRACED, arguments, attributes, values

import weft
from weft.core import plan, selection
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit, trace

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))

selection.start()
HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def readable(name: str) -> np.dtype:
    if not trace.stored(HALVES[name]):
        pytest.skip("this processor does not convert float16")
    return HALVES[name]


def same(found: np.ndarray, want: np.ndarray) -> None:
    assert found.dtype == want.dtype and found.shape == want.shape
    a, b = (np.asarray(x, "f4") if x.dtype != bool else x for x in (found, want))
    assert np.array_equal(a, b, equal_nan=a.dtype != bool)
    if a.dtype != bool:
        number = ~np.isnan(a)
        assert np.array_equal(np.signbit(a)[number], np.signbit(b)[number])


def narrowed(given: list, dtype: np.dtype) -> tuple[list, list]:
    """Arguments of a half type, and the same values in float32."""
    with np.errstate(over="ignore"):
        half = [g if g.dtype == bool else g.astype(dtype) for g in given]
    return half, [g if g.dtype == bool else g.astype("f4") for g in half]


def rounded(x: Any, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(dtype) if x.dtype == np.float32 else x


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", [n for n in TRACED if REGISTRY[n].halves])
def test_small_calls_are_those_of_the_reference(
    name: str, half: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op, dtype = REGISTRY[name], readable(half)
    monkeypatch.setattr(selection, "TRIES", 3)
    selection.open_entries()
    if attributes(op) or name == "binary_cross_entropy":
        pytest.skip("entry points are for ops without attributes; that one checks its values")
    order = np.random.default_rng(5)
    for shape in ((4, 4), (1,), (3, 5, 2)):
        given, _ = narrowed(arguments(op, order, shape, "f4"), dtype)
        flat = given[0].reshape(-1)
        few = [0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, 1e-40, 65504.0, -1.0]
        with np.errstate(all="ignore"):
            flat[: len(few)] = np.array(few, "f4").astype(dtype)[: flat.size]
        tensors = [weft.tensor(0) for _ in given]
        for t, array in zip(tensors, given, strict=True):
            t._a = array
        for _ in range(6):
            found = op(*tensors)._a
        weft.backends.native.set("numpy")
        try:
            want = op(*tensors)._a
        finally:
            weft.backends.native.set("native")
        same(found, want)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", TRACED)
def test_forward(name: str, half: str) -> None:
    op, dtype, attrs = REGISTRY[name], readable(half), attributes(REGISTRY[name])
    given, wide = narrowed(arguments(op, np.random.default_rng(0), (37, 21), "f4"), dtype)
    with np.errstate(all="ignore"):
        found, want = (selection.forward(op, args, attrs) for args in (given, wide))
    if want is None:
        pytest.skip("not traced: NumPy runs it")
    same(found, rounded(want, dtype))
    turned = [np.asfortranarray(g) for g in given[:1]] + given[1:]
    with np.errstate(all="ignore"):
        same(
            np.ascontiguousarray(selection.forward(op, turned, attrs)), np.ascontiguousarray(found)
        )


def loops_of_rules(name: str) -> list[tuple[trace.Loop, int]]:
    """The derivative rules of an op that are functions of arrays, and how many those are."""
    op, found = REGISTRY[name], []
    attrs = attributes(op)
    for rule in op.rules or ():
        names = plan.parameters(rule) if rule is not None else ()
        own = {n: attrs[n] for n in names[1:] if n in attrs}
        given = [n for n in names[1:] if n not in own]
        if given and set(given) <= {*op.names, *op.outputs}:
            found.append((trace.Loop(f"{name}_rule", partial(rule, **own)), len(given)))
    return found


RULES = [n for n in TRACED if REGISTRY[n].diagonal and loops_of_rules(n)]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", RULES)
def test_backward(name: str, half: str) -> None:
    dtype, rng = readable(half), np.random.default_rng(1)
    for loop, count in loops_of_rules(name):
        made = [values(rng, (37, 21), "f4") for _ in range(count + 1)]
        given, wide = narrowed(made, dtype)
        want = loop(*wide)
        if want is None:
            pytest.skip("not traced: NumPy runs it")
        same(loop(*given), rounded(want, dtype))


@pytest.mark.parametrize("half", HALVES)
def test_broadcasting_numbers_masks_and_comparisons(half: str) -> None:
    dtype = readable(half)
    kind = getattr(weft, half)
    a, b = (weft.randn(s).to(kind) for s in ((64, 1, 96), (80, 1)))
    limit = 64 * 80 * 96
    assert limit > REGISTRY["add"].limit
    for got, want in (
        (a + b, a.float() + b.float()),
        (a * 0.3, a.float() * 0.3),
        (weft.where(a > 0, a, b), weft.where(a > 0, a.float(), b.float())),
        (
            a.expand(64, 80, 96).transpose(0, 2).exp(),
            a.expand(64, 80, 96).transpose(0, 2).float().exp(),
        ),
    ):
        assert got.dtype is kind
        same(got.numpy() if half == "float16" else got._a, rounded(want._a, dtype))
    assert (a > b).dtype is weft.bool and weft.equal(a > b, a.float() > b.float())
    assert (a + 1).dtype is kind and (a + a.float()).dtype is weft.float32


@pytest.mark.parametrize("half", HALVES)
def test_training_in_a_half_type(half: str) -> None:
    """Gradients of a large computation are those of float32, to the half type's accuracy."""
    kind, eps = getattr(weft, half), {"float16": 2**-10, "bfloat16": 2**-7}[half]
    weft.manual_seed(0)
    x, w = weft.randn(256, 128), weft.randn(128, 128) / 12
    found = []
    for to in (kind, weft.float32):
        a, b = (t.to(kind).to(to).requires_grad_() for t in (x, w))
        y = weft.nn.functional.gelu(a @ b).sigmoid() * a
        y.sum().backward()
        assert a.grad.dtype is to
        found.append((y.detach().float(), a.grad.float(), b.grad.float()))
    for a, b in zip(*found, strict=True):
        assert (a - b).abs().max() <= 8 * eps * b.abs().max()


def test_rounding_to_bfloat16_is_that_of_the_reference() -> None:
    words = np.random.default_rng(0).integers(0, 1 << 32, 200_000, np.uint64).astype(np.uint32)
    words[:4] = 0x7F7FFFFF, 0xFF7FFFFF, 0x00000001, 0x3F808000  # largest, lowest, least, a tie
    x = words.view("f4")
    with np.errstate(all="ignore"):
        want = x.astype(ml_dtypes.bfloat16)
    found = selection.cast(x, HALVES["bfloat16"])
    number = ~np.isnan(x)
    assert np.array_equal(found.view("u2")[number], want.view("u2")[number])
    assert np.isnan(found[~number].astype("f4")).all()
    assert np.array_equal(selection.cast(found, np.dtype("f4"))[number], found.astype("f4")[number])
