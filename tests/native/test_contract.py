"""Every kernel of the registry against the reference, in all layouts, and as a planned job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from weft.core import planning, selection
from weft.core.dispatch import REGISTRY, Op
from weft.native import contract
from weft.native.codegen import jit
from weft.native.memory import buffers
from weft.operators.build import Make, Sample

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()

NATIVE = sorted(name for name, op in REGISTRY.items() if op.native or op.traced)
# Kernels whose steps depend on values, or that ask others for memory; each with its reason.
UNPLANNED = {
    "nms": "which boxes remain decides what is compared",
}


def cases(op: Op, dtype: str, seed: int) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """The op's own samples in a type; the same seed gives the same values."""
    found: Iterator[Sample] = op.samples(Make(seed)) if op.samples else iter(())
    for sample in found:
        yield (
            [
                a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype == np.float64 else a
                for a in sample.args
            ],
            sample.attrs,
        )


def plan(op: Op, args: list[Any], attrs: dict[str, Any]) -> contract.Job:
    """The job of an op's kernel; numbers among the operands belong to the plan."""

    def kernel(*arrays: Any) -> Any:
        given = iter(arrays)
        whole = [next(given) if isinstance(a, np.ndarray) else a for a in args]
        return selection.forward(op, whole, attrs)

    return contract.plan(kernel, arrays_of(args))


def arrays_of(args: list[Any]) -> tuple[np.ndarray, ...]:
    return tuple(a for a in args if isinstance(a, np.ndarray))


def agree(op: Op, found: Any, want: Any, exact: Any, dtype: str) -> None:
    """As close to what float64 gives as the reference's own type allows."""
    many = [x if isinstance(x, tuple) else (x,) for x in (found, want, exact)]
    for k, (a, b, c) in enumerate(zip(*many, strict=True)):
        if k in op.inner_outputs or b is None:
            continue
        b, c = np.asarray(b), np.asarray(c)
        assert a.shape == b.shape and a.dtype == b.dtype
        if a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        unit = np.finfo(dtype).eps
        size = np.abs(np.nan_to_num(c)).max(initial=1.0)
        np.testing.assert_allclose(a, c, rtol=64 * unit, atol=64 * unit * size)


def laid(x: Any, layout: str) -> Any:
    """The same values, lying otherwise in memory."""
    if not isinstance(x, np.ndarray) or not x.size or layout == "rows":
        return x
    if layout == "columns":
        return np.asfortranarray(x) if x.ndim > 1 else x
    wide = np.zeros((*x.shape, 2), x.dtype)
    wide[..., 1] = x
    return wide[..., 1]


# Ops whose samples no kernel takes, with the reason.
LEFT = {
    "scaled_dot_product_attention": "its samples are too small to be cut among threads",
}
KERNELS = sorted(name for name, op in REGISTRY.items() if op.native and op.samples)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "ANY_SIZE", [True])
    op, taken = REGISTRY[name], 0
    for (args, attrs), (wide, _) in zip(cases(op, dtype, 0), cases(op, "f8", 0), strict=True):
        with np.errstate(all="ignore"):
            want = op.compute(args, attrs) if op.promote else op.reference(*args, **attrs)
            exact = op.compute(wide, attrs) if op.promote else op.reference(*wide, **attrs)
            for layout in ("rows", "columns", "apart"):
                found = selection.forward(op, [laid(a, layout) for a in args], attrs)
                if found is not None:
                    agree(op, found, want, exact, dtype)
                    taken += 1
    if not taken and (name in LEFT or dtype == "f8"):
        pytest.skip(LEFT.get(name, "not for float64"))
    assert taken, "no kernel took any sample: it is not tested here"


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", NATIVE)
def test_jobs(name: str, dtype: str) -> None:
    op, planned, refused = REGISTRY[name], 0, []
    pairs = zip(cases(op, dtype, 0), cases(op, dtype, 1), cases(op, "f8", 1), strict=True)
    for (first, attrs), (second, _), (wide, _) in pairs:
        try:
            job = plan(op, first, attrs)
        except contract.Unplannable as error:
            refused.append(str(error))
            continue
        alike = zip(first, second, strict=True)
        fits = all(a.strides == b.strides for a, b in alike if isinstance(a, np.ndarray))
        numbers = [a == b for a, b in zip(first, second, strict=True) if np.isscalar(a)]
        if not fits or not all(numbers):
            continue
        with np.errstate(all="ignore"):
            found = job(*arrays_of(second))
            want = op.compute(second, attrs) if op.promote else op.reference(*second, **attrs)
            exact = op.compute(wide, attrs) if op.promote else op.reference(*wide, **attrs)
        assert found is not None, "a flag of the job is set"
        agree(op, found, want, exact, dtype)
        planned += 1
    if name in UNPLANNED:
        assert not planned, f"{name} can be planned: take it from the list"
    elif not planned:
        pytest.skip("; ".join(sorted(set(refused))) or "no samples")


RULES = sorted(name for name, op in REGISTRY.items() if op.native_rules)


def gradients(op: Op, args: list[Any], attrs: dict[str, Any], seed: int) -> Any:
    """What a backward step takes: its plan, a gradient for each result, and saved values."""
    count = len(args)
    tensors = sum(1 << i for i, a in enumerate(args) if isinstance(a, np.ndarray))
    floats = [isinstance(a, np.ndarray) and a.dtype.kind == "f" for a in args]
    needs = sum(1 << i for i, wanted in enumerate(floats) if wanted)
    rule = op.plan_for(needs, tensors, count, False)
    results = op.reference(*args, **attrs)
    results = results if op.multiple else (results,)
    rng = np.random.default_rng(seed)
    given = [
        np.asarray(rng.standard_normal(y.shape), y.dtype) if y.dtype.kind == "f" else None
        for y in map(np.asarray, results)
    ]
    saved, _ = rule.pack(args, tuple(map(np.asarray, results)), [[0]] * count, [[0]] * len(given))
    return rule, given if op.multiple else given[0], saved, tuple(floats)


@pytest.mark.parametrize("name", RULES)
def test_jobs_of_derivatives(name: str) -> None:
    op, planned, refused = REGISTRY[name], 0, []
    pairs = zip(cases(op, "f4", 0), cases(op, "f4", 1), cases(op, "f8", 1), strict=True)
    for (first, attrs), (second, _), (wide, _) in pairs:
        rule, g, saved, needs = gradients(op, first, attrs, 0)
        _, other_g, other, _ = gradients(op, second, attrs, 1)
        if rule.large is None:
            continue

        def step(*arrays: Any, rule=rule, g=g, saved=saved, needs=needs, attrs=attrs) -> Any:
            given = iter(arrays)
            taken = lambda x: next(given) if isinstance(x, np.ndarray) else x
            each = tuple(map(taken, g)) if isinstance(g, list) else taken(g)
            found = rule.large(each, tuple(map(taken, saved)), attrs, needs)
            return tuple(x for x in found if x is not None)

        flat = lambda g, saved: arrays_of([*(g if isinstance(g, list) else [g]), *saved])
        try:
            job = contract.plan(step, flat(g, saved))
        except contract.Unplannable as error:
            refused.append(str(error))
            continue
        alike = zip(flat(g, saved), flat(other_g, other), strict=True)
        if any(a.shape != b.shape or a.strides != b.strides for a, b in alike):
            continue
        with np.errstate(all="ignore"):
            found = job(*flat(other_g, other))
            wide_rule, _, wide_saved, _ = gradients(op, wide, attrs, 1)
            wide_g = [None if x is None else x.astype("f8") for x in other_g] if isinstance(
                other_g, list) else other_g.astype("f8")  # fmt: skip
            exact = wide_rule.vjp(wide_g, wide_saved, attrs, needs)
        assert found is not None
        exact = tuple(x for x in exact if x is not None)
        agree(op, found, tuple(x.astype("f4") for x in exact), exact, "f4")
        planned += 1
    if name in UNPLANNED:
        assert not planned, f"{name} can be planned: take it from the list"
    elif not planned:
        pytest.skip("; ".join(sorted(set(refused))) or "no samples")


SPREADS = {
    "sum": lambda x: x - np.add.reduce(x, axis=(0, 1), keepdims=True),
    "mean": lambda x: x - x.mean(keepdims=True),
    "rows": lambda x: np.add.reduce(x, axis=1),
    "columns": lambda x: np.add.reduce(x, axis=0),
    "greatest": lambda x: x - np.maximum.reduce(x, axis=(0, 1), keepdims=True),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (40, 300), (300, 40)])
@pytest.mark.parametrize("name", SPREADS)
def test_reductions_of_expanded_arrays(name: str, shape: tuple[int, ...], dtype: str) -> None:
    """What stands for many elements is summed as such: NumPy knows no values of a plan."""
    rng = np.random.default_rng(0)
    for one in ((1, shape[1]), (shape[0], 1), (1, 1)):
        x = np.broadcast_to(rng.standard_normal(one).astype(dtype), shape)
        job = planning.job(SPREADS[name], [x])
        x = np.broadcast_to(rng.standard_normal(one).astype(dtype), shape)
        found = job(x)
        want = SPREADS[name](x.astype("f8"))
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-4)


def test_what_numpy_makes_of_an_array_without_values_is_refused() -> None:
    for size in (1, 5, 10_000):
        x = np.ones((2, size), np.float32)
        for function in (
            lambda x: x - np.ndarray.sum(planning.bare(x)),
            lambda x: x - np.ndarray.sum(planning.bare(x * 2.0)),
        ):
            with np.errstate(all="ignore"), pytest.raises(contract.Unplannable):
                planning.job(function, [x])
