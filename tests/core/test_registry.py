"""Tests that every op gets from its own block: nothing here names an op."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import weft
from weft.autograd import forward_ad
from weft.core.dispatch import REGISTRY, Op
from weft.core.meta import like
from weft.core.symbols import Undecided, substitute, symbol
from weft.core.tensor import Tensor, wrap
from weft.operators.build import Make, Sample

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


# --- shapes ----------------------------------------------------------------------------

# The shape of these results is a matter of the values: how many are chosen, or are different.
BY_VALUE = {
    *("masked_select", "nonzero", "unique_dim", "unique_consecutive", "bincount"),
    *("ctc_loss", "ctc_loss_backward", "nms"),
}
RULED = [name for name in SAMPLED if name not in BY_VALUE]


def test_every_op_has_a_shape_rule_unless_values_decide() -> None:
    assert {name for name, op in REGISTRY.items() if op.shape is None} == BY_VALUE


def known(x: Any) -> Any:
    return (x.shape, x.dtype) if isinstance(x, np.ndarray) else x


@pytest.mark.parametrize("name", RULED)
def test_shapes_and_dtypes_are_known_without_the_values(name: str) -> None:
    op = REGISTRY[name]
    for sample in samples(name):
        inferred = op.infer(*map(known, sample.args), **sample.attrs)
        found = outputs(op, sample.args, sample.attrs)
        assert inferred == tuple((o.shape, o.dtype) for o in found), sample.attrs


# Attributes in which a size stands for that of an input, beside other numbers.
SIZES = ("shape", "extent", "sizes")
# Rules that compare sizes with numbers, where a symbol can't tell: what they are asked for.
NUMBERS_NEEDED = {
    "avg_pool": "whether ceil_mode leaves a window inside the padding",
    "convolution": "whether a number of groups divides the channels",
    "max_pool_with_indices": "whether ceil_mode leaves a window inside the padding",
    "unbind": "how many results there are",
    "unbind_copy": "how many results there are",
}


def with_symbols(args: Any, attrs: Any) -> tuple[list[Any], dict[str, Any], dict[str, int]]:
    """Inputs and attributes with a symbol for each size above one, and what they stand for."""
    sizes = sorted({n for x in args if isinstance(x, np.ndarray) for n in x.shape if n > 1})
    named = {n: symbol(f"n{n}") for n in sizes}

    def replaced(shape: Any) -> Any:
        return tuple(named.get(n, n) if isinstance(n, int) else n for n in shape)

    inputs = [(replaced(x.shape), x.dtype) if isinstance(x, np.ndarray) else x for x in args]
    changed = {
        k: replaced(v) if k in SIZES and isinstance(v, tuple) else v for k, v in attrs.items()
    }
    return inputs, changed, {f"n{n}": n for n in sizes}


@pytest.mark.parametrize("name", RULED)
def test_shape_rules_take_symbols(name: str) -> None:
    op = REGISTRY[name]
    for sample in samples(name):
        inputs, attrs, sizes = with_symbols(sample.args, sample.attrs)
        try:
            inferred = op.infer(*inputs, **attrs)
        except Undecided:
            assert name in NUMBERS_NEEDED, f"{name} {sample.attrs}"
            continue
        found = outputs(op, sample.args, sample.attrs)
        numbers = tuple((substitute(shape, sizes), d) for shape, d in inferred)
        assert numbers == tuple((o.shape, o.dtype) for o in found), (inferred, sample.attrs)


def geometry(x: Tensor) -> Any:
    """Shape, dtype and strides, of which those of single elements tell nothing."""
    steps = tuple(s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1 and x.numel())
    return x.shape, x.dtype, steps


def forward_and_back(op: Op, sample: Sample, meta: bool) -> tuple[list[Tensor], list[Any]]:
    smooth = smooth_inputs(op, sample) if op.differentiable else []
    tensors = as_tensors(op, sample, ())
    for i, x in enumerate(tensors):
        if isinstance(x, Tensor):
            tensors[i] = wrap(like(x._a)) if meta else x
            tensors[i].requires_grad_(i in smooth)
    results = results_of(op, tensors, sample.attrs)
    live = [y for y in results if y.requires_grad]
    if not live:
        return results, []
    seeds = [weft.empty_like(y) for y in live]
    for seed in seeds:
        seed.zero_()
    wanted = [tensors[i] for i in smooth]
    return results, list(weft.autograd.grad(live, wanted, seeds, allow_unused=True))


# References whose result is a part of memory that no tensor gets to see.
REPEATED = ("copy", "fill", "pad_by_backward")


@pytest.mark.parametrize("name", RULED)
def test_meta_tensors_are_like_those_of_the_cpu(name: str) -> None:
    op = REGISTRY[name]
    for sample in samples(name):
        expected = forward_and_back(op, sample, meta=False)
        found = forward_and_back(op, sample, meta=True)
        for e, f in zip(expected[0] + expected[1], found[0] + found[1], strict=True):
            assert (e is None) == (f is None)
            if e is None:
                continue
            assert f.is_meta and f.requires_grad == e.requires_grad
            if name in REPEATED:
                assert geometry(f)[:2] == geometry(e)[:2]
            else:
                assert geometry(f) == geometry(e), (sample.attrs, [known(x) for x in sample.args])


def layouts(x: np.ndarray) -> list[np.ndarray]:
    """The same values in other orders in memory: columns, channels innermost, with gaps."""
    found = [np.ascontiguousarray(x.T).T]
    if x.ndim == 4:
        found.append(np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1))
    spread = np.zeros((*x.shape, 2), x.dtype)
    spread[..., 0] = x
    return [*found, spread[..., 0]]


# NumPy leaves these results in an order of its own.
OWN_ORDER = (*REPEATED, "cdist", "linalg_qr", "scaled_softmax_backward", "take", "take_along")


@pytest.mark.parametrize("name", [name for name in RULED if name not in OWN_ORDER])
def test_meta_tensors_lie_in_memory_as_those_of_the_cpu(name: str) -> None:
    op = REGISTRY[name]
    for sample in samples(name):
        if name.startswith("as_strided"):
            continue
        for k in range(3):
            arrays = [
                layouts(x)[min(k, len(layouts(x)) - 1)] if isinstance(x, np.ndarray) else x
                for x in sample.args
            ]
            tensors = [wrap(x) if isinstance(x, np.ndarray) else x for x in arrays]
            without = [wrap(like(x)) if isinstance(x, np.ndarray) else x for x in arrays]
            expected = results_of(op, tensors, sample.attrs)
            for e, f in zip(expected, results_of(op, without, sample.attrs), strict=True):
                assert geometry(f) == geometry(e), (sample.attrs, [x.stride() for x in without])


# --- derivatives -----------------------------------------------------------------------


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


# A joint rule is told what is needed, and may compute it in another order.
@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if REGISTRY[n].joint is None])
def test_a_gradient_that_is_asked_for_alone_has_the_bits_it_has_among_all(name: str) -> None:
    op = REGISTRY[name]
    for sample in samples(name):
        wanted = smooth_inputs(op, sample)
        tensors = as_tensors(op, sample, wanted)
        results = results_of(op, tensors, sample.attrs)
        chosen = [results[k] for k in smooth_outputs(op, results) if results[k].requires_grad]
        seeds = [
            wrap(direction_like(r._a, np.random.default_rng(2)).astype(r._a.dtype)) for r in chosen
        ]
        if len(wanted) < 2 or not chosen:
            continue
        options: dict[str, Any] = {"retain_graph": True, "allow_unused": True}
        given = [tensors[i] for i in wanted]
        every = weft.autograd.grad(chosen, given, seeds, **options)
        for x, whole in zip(given, every, strict=True):
            (alone,) = weft.autograd.grad(chosen, [x], seeds, **options)
            assert (alone is None) == (whole is None)
            if whole is not None:
                assert alone._a.tobytes() == whole._a.tobytes(), name


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("create", [False, True], ids=["bare", "recorded"])
def test_the_gradient_of_some_inputs_is_their_part_of_the_gradient(name: str, create: bool) -> None:
    op = REGISTRY[name]
    rng = np.random.default_rng(3)
    for sample in samples(name):
        smooth = smooth_inputs(op, sample)
        if len(smooth) < 2:
            continue
        tensors = as_tensors(op, sample, smooth)
        results = results_of(op, tensors, sample.attrs)
        chosen = [k for k in smooth_outputs(op, results) if results[k].requires_grad]
        if not chosen:
            continue
        weights = [wrap(w) for w in weights_like([results[k]._a for k in chosen], rng)]
        gradients = functools.partial(
            weft.autograd.grad,
            [results[k] for k in chosen],
            grad_outputs=weights,
            retain_graph=True,
            create_graph=create,
            allow_unused=True,
        )
        whole = dict(zip(smooth, gradients([tensors[i] for i in smooth]), strict=True))
        for size in range(1, len(smooth)):
            for subset in itertools.combinations(smooth, size):
                some = gradients([tensors[i] for i in subset])
                for i, g in zip(subset, some, strict=True):
                    assert (g is None) == (whole[i] is None)
                    if g is not None:
                        np.testing.assert_allclose(g._a, whole[i]._a, 1e-12, 1e-14)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("leaves", [False, True], ids=["plain", "unrecorded leaves"])
def test_jvp_matches_finite_differences(name: str, leaves: bool) -> None:
    op = REGISTRY[name]
    rng = np.random.default_rng(2)
    for sample in samples(name):
        smooth = smooth_inputs(op, sample)
        if not smooth:
            continue
        direction = {i: direction_like(sample.args[i], rng) for i in smooth}
        change = slope(op, sample, direction)
        tensors = as_tensors(op, sample, smooth if leaves else ())
        with weft.set_grad_enabled(not leaves), forward_ad.dual_level():
            for i in smooth:
                tensors[i] = forward_ad.make_dual(tensors[i], wrap(direction[i]))
            results = results_of(op, tensors, sample.attrs)
            for k in smooth_outputs(op, results):
                tangent = forward_ad.unpack_dual(results[k]).tangent
                found = np.zeros_like(change[k]) if tangent is None else tangent._a
                close(found, change[k], op, f"jvp of output {k}, {sample.attrs}")
                assert tangent is None or not tangent.requires_grad


def tangents(op: Op, sample: Sample, along: dict[int, np.ndarray], *given: Tensor) -> Any:
    """The tangents of an op's outputs, where some inputs are given and move along a direction."""

    def results(*chosen: Tensor) -> tuple[Any, ...]:
        inputs = as_tensors(op, sample, ())
        for i, x in zip(along, chosen, strict=True):
            inputs[i] = x
        values = results_of(op, inputs, sample.attrs)
        return tuple(values[k] for k in smooth_outputs(op, values))

    return weft.func.jvp(results, given, tuple(wrap(np.array(d)) for d in along.values()))[1]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_tangent_of_a_tangent_matches_finite_differences_of_the_tangent(name: str) -> None:
    op = REGISTRY[name]
    rng = np.random.default_rng(6)
    for sample in samples(name):
        smooth = smooth_inputs(op, sample)
        if not smooth:
            continue
        first, second = ({i: direction_like(sample.args[i], rng) for i in smooth} for _ in range(2))
        of = functools.partial(tangents, op, sample, first)
        given = tuple(wrap(np.array(sample.args[i])) for i in smooth)
        found = weft.func.jvp(of, given, tuple(wrap(d) for d in second.values()))[1]
        ends = []
        for step in (STEP, -STEP):
            args = moved(sample.args, second, step)
            ends.append([t._a for t in of(*(wrap(args[i]) for i in smooth))])
        for k, (above, below) in enumerate(zip(*ends, strict=True)):
            expected = (above - below) / (2 * STEP)
            close(found[k]._a, expected, op, f"second tangent of output {k}, {sample.attrs}")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_tangent_of_a_gradient_is_the_gradient_of_the_slope(name: str) -> None:
    op = REGISTRY[name]
    rng = np.random.default_rng(7)
    for sample in samples(name):
        smooth = smooth_inputs(op, sample)
        if not smooth or any(sample.args[i].dtype.kind == "c" for i in smooth):
            continue
        along = tuple(wrap(direction_like(sample.args[i], rng)) for i in smooth)

        def loss(*given: Tensor, sample: Sample = sample, smooth: Any = smooth) -> Any:
            inputs = as_tensors(op, sample, ())
            for i, x in zip(smooth, given, strict=True):
                inputs[i] = x
            values = results_of(op, inputs, sample.attrs)
            chosen = [values[k] for k in smooth_outputs(op, values)]
            # Of a square, so that the gradient given to the rule depends on the result.
            return sum((v.abs() ** 2).sum() for v in chosen) / 2 + sum(x.sum() for x in given)

        given = tuple(wrap(np.array(sample.args[i])) for i in smooth)
        gradient = weft.func.grad(loss, argnums=tuple(range(len(given))))
        found = weft.func.jvp(gradient, given, along)[1]
        expected = weft.func.vjp(gradient, *given)[1](along)
        for f, e in zip(found, expected, strict=True):
            close(f._a, e._a, op, f"tangent of the gradient, {sample.attrs}")


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
