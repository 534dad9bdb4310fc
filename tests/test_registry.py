"""Tests that every op gets from its own block: nothing here names an op."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import weft
from weft.autograd import forward_ad
from weft.core.dispatch import REGISTRY, Op
from weft.core.tensor import Tensor, wrap
from weft.ops.build import Make, Sample

SAMPLED = sorted(name for name, op in REGISTRY.items() if op.samples is not None)
DIFFERENTIABLE = sorted(name for name in SAMPLED if REGISTRY[name].differentiable)

# A central difference with this step is good to about 1e-9 on well-scaled functions.
STEP = 1e-5
TOLERANCE = 2e-6


def samples(name: str) -> list[Sample]:
    return list(REGISTRY[name].samples(Make(0)))  # type: ignore[misc]


def is_smooth(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in "fc"


def smooth_inputs(op: Op, sample: Sample) -> list[int]:
    """Inputs that a gradient is defined for."""
    return [
        i
        for i, x in enumerate(sample.args)
        if is_smooth(x) and (op.rules is None or (i < len(op.rules) and op.rules[i] is not None))
    ]


def outputs(op: Op, args: Any, attrs: Any) -> list[np.ndarray]:
    out = op.compute([np.array(a) if isinstance(a, np.ndarray) else a for a in args], attrs)
    return [np.asarray(o) for o in (out if op.multiple else (out,))]


def smooth_outputs(op: Op, values: list[Any]) -> list[int]:
    return [
        k
        for k, v in enumerate(values)
        if k not in op.constant_outputs and np.asarray(getattr(v, "_a", v)).dtype.kind in "fc"
    ]


def weights_like(values: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    return [direction_like(v, rng) for v in values]


def direction_like(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    d = rng.standard_normal(x.shape)
    return d + 1j * rng.standard_normal(x.shape) if x.dtype.kind == "c" else d


def inner(a: Any, b: Any) -> float:
    """The real inner product, which is what gradients of real losses are about."""
    return float(np.sum(np.real(np.conj(np.asarray(a)) * np.asarray(b))))


def moved(args: Any, direction: dict[int, np.ndarray], step: float) -> list[Any]:
    return [
        np.asarray(a + step * direction[i]) if i in direction else a for i, a in enumerate(args)
    ]


def slope(op: Op, sample: Sample, direction: dict[int, np.ndarray]) -> list[np.ndarray]:
    """The change of the outputs along a direction, by central differences."""
    above = outputs(op, moved(sample.args, direction, STEP), sample.attrs)
    below = outputs(op, moved(sample.args, direction, -STEP), sample.attrs)
    return [(a - b) / (2 * STEP) for a, b in zip(above, below, strict=True)]


def as_tensors(op: Op, sample: Sample, wanted: Any) -> list[Any]:
    made = []
    for i, x in enumerate(sample.args):
        if isinstance(x, np.ndarray):
            x = wrap(np.array(x))
            if i in wanted:
                x.requires_grad_()
        made.append(x)
    return made


def close(found: Any, expected: Any, op: Op, what: str) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    np.testing.assert_allclose(
        found,
        expected,
        rtol=0,
        atol=TOLERANCE * op.tolerance * scale,
        err_msg=f"{op.name}: {what}",
        equal_nan=False,
    )


def results_of(op: Op, tensors: Any, attrs: Any) -> list[Tensor]:
    out = op(*tensors, **attrs)
    return list(out) if op.multiple else [out]


@pytest.mark.parametrize("name", SAMPLED)
def test_reference_takes_any_layout_and_leaves_its_inputs_alone(name: str) -> None:
    op = REGISTRY[name]
    for sample in samples(name):
        plain = outputs(op, sample.args, sample.attrs)
        spread = []
        for x in sample.args:
            if isinstance(x, np.ndarray) and x.ndim and not op.name.startswith("as_strided"):
                wide = np.repeat(x, 2, axis=-1)
                spread.append(wide[..., ::2])
            else:
                spread.append(x)
        before = [np.array(x) for x in spread]
        again = op.compute(spread, sample.attrs)
        again = [np.asarray(o) for o in (again if op.multiple else (again,))]
        for a, b in zip(plain, again, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        for x, kept in zip(spread, before, strict=True):
            np.testing.assert_array_equal(np.asarray(x), kept)


# The shape of these results is a matter of the values: how many are chosen.
BY_VALUE = ("masked_place", "masked_select")


@pytest.mark.parametrize("name", [name for name in SAMPLED if name not in BY_VALUE])
def test_shapes_and_dtypes_are_known_without_the_values(name: str) -> None:
    op = REGISTRY[name]
    for sample in samples(name):
        known = [(x.shape, x.dtype) if isinstance(x, np.ndarray) else x for x in sample.args]
        try:
            inferred = op.infer(*known, **sample.attrs)
        except (RuntimeError, np.linalg.LinAlgError) as error:
            assert "singular" in str(error).lower() or "positive" in str(error), error
            continue  # zeros are no valid matrix to factor
        found = outputs(op, sample.args, sample.attrs)
        assert inferred == tuple((o.shape, o.dtype) for o in found), sample.attrs


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_vjp_matches_finite_differences_for_every_subset_of_inputs(name: str) -> None:
    op = REGISTRY[name]
    rng = np.random.default_rng(1)
    for sample in samples(name):
        smooth = smooth_inputs(op, sample)
        for size in range(1, len(smooth) + 1):
            for subset in itertools.combinations(smooth, size):
                tensors = as_tensors(op, sample, subset)
                results = results_of(op, tensors, sample.attrs)
                chosen = [k for k in smooth_outputs(op, results) if results[k].requires_grad]
                if not chosen:
                    continue
                weights = weights_like([results[k]._a for k in chosen], rng)
                grads = weft.autograd.grad(
                    [results[k] for k in chosen],
                    [tensors[i] for i in subset],
                    [wrap(w) for w in weights],
                    allow_unused=True,
                )
                direction = {i: direction_like(sample.args[i], rng) for i in subset}
                change = slope(op, sample, direction)
                expected = sum(inner(w, change[k]) for k, w in zip(chosen, weights, strict=True))
                got = sum(
                    inner(g._a, direction[i])
                    for i, g in zip(subset, grads, strict=True)
                    if g is not None
                )
                close(got, expected, op, f"vjp for inputs {subset}, {sample.attrs}")
                for i, g in zip(subset, grads, strict=True):
                    assert g is None or g._a.shape == sample.args[i].shape


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_jvp_matches_finite_differences(name: str) -> None:
    op = REGISTRY[name]
    rng = np.random.default_rng(2)
    for sample in samples(name):
        smooth = smooth_inputs(op, sample)
        if not smooth:
            continue
        direction = {i: direction_like(sample.args[i], rng) for i in smooth}
        change = slope(op, sample, direction)
        tensors = as_tensors(op, sample, ())
        with forward_ad.dual_level():
            for i in smooth:
                tensors[i] = forward_ad.make_dual(tensors[i], wrap(direction[i]))
            results = results_of(op, tensors, sample.attrs)
            for k in smooth_outputs(op, results):
                tangent = forward_ad.unpack_dual(results[k]).tangent
                found = np.zeros_like(change[k]) if tangent is None else tangent._a
                close(found, change[k], op, f"jvp of output {k}, {sample.attrs}")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_second_derivative_matches_finite_differences_of_the_first(name: str) -> None:
    op = REGISTRY[name]
    rng = np.random.default_rng(3)
    for sample in samples(name):
        smooth = smooth_inputs(op, sample)

        def first(args: Any, create: bool, sample: Sample = sample, smooth: Any = smooth) -> Any:
            tensors = as_tensors(op, Sample(tuple(args), sample.attrs), smooth)
            results = results_of(op, tensors, sample.attrs)
            chosen = [k for k in smooth_outputs(op, results) if results[k].requires_grad]
            if not chosen:
                return None
            state = np.random.default_rng(4)
            weights = [wrap(w) for w in weights_like([results[k]._a for k in chosen], state)]
            if create:
                weights = [w.requires_grad_() for w in weights]
            grads = weft.autograd.grad(
                [results[k] for k in chosen],
                [tensors[i] for i in smooth],
                weights,
                create_graph=create,
                allow_unused=True,
            )
            return tensors, weights, grads

        if not smooth:
            continue
        made = first(sample.args, True)
        if made is None:
            continue
        tensors, _, grads = made
        live = [k for k, g in enumerate(grads) if g is not None and g.requires_grad]
        seeds = {k: direction_like(grads[k]._a, rng) for k in live}
        second = (
            weft.autograd.grad(
                [grads[k] for k in live],
                [tensors[i] for i in smooth],
                [wrap(seeds[k]) for k in live],
                allow_unused=True,
            )
            if live
            else [None] * len(smooth)
        )
        direction = {i: direction_like(sample.args[i], rng) for i in smooth}
        above = first(moved(sample.args, direction, STEP), False)[2]
        below = first(moved(sample.args, direction, -STEP), False)[2]
        expected = sum(inner(seeds[k], (above[k]._a - below[k]._a) / (2 * STEP)) for k in live)
        got = sum(
            inner(g._a, direction[i]) for i, g in zip(smooth, second, strict=True) if g is not None
        )
        close(got, expected, op, f"second derivative, {sample.attrs}")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("dtype", [weft.float32, weft.bfloat16, weft.float16], ids=str)
def test_gradients_have_the_type_of_their_inputs(name: str, dtype: weft.dtype) -> None:
    op = REGISTRY[name]
    for sample in samples(name):
        if any(isinstance(x, np.ndarray) and x.dtype.kind == "c" for x in sample.args):
            continue
        if any(isinstance(v, np.dtype) for v in sample.attrs.values()):
            continue
        smooth = smooth_inputs(op, sample)
        args = [x.astype(dtype.np) if is_smooth(x) else x for x in sample.args]
        tensors = as_tensors(op, Sample(tuple(args), sample.attrs), smooth)
        try:
            results = results_of(op, tensors, sample.attrs)
        except (RuntimeError, TypeError):
            if dtype is weft.float32:
                raise
            continue  # an op may refuse half types, as PyTorch's do
        chosen = [k for k in smooth_outputs(op, results) if results[k].requires_grad]
        if not chosen:
            continue
        grads = weft.autograd.grad(
            [results[k] for k in chosen],
            [tensors[i] for i in smooth],
            [wrap(np.ones(results[k]._a.shape, results[k]._a.dtype)) for k in chosen],
            allow_unused=True,
        )
        for i, g in zip(smooth, grads, strict=True):
            assert g is None or (g.dtype is dtype and g._a.shape == args[i].shape), op.name
