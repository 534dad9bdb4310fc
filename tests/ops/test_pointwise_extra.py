"""Pointwise behaviour that no table of samples shows: ties, NaN, what is kept for backward."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")

F, TF = weft.nn.functional, torch.nn.functional
VALUES = (-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, math.inf, -math.inf, math.nan)


def gradients(lib: Any, function: Any, *values: Any) -> list[np.ndarray]:
    leaves = [lib.tensor(v, dtype=lib.float64, requires_grad=True) for v in values]
    out = function(lib, *leaves)
    return [g.numpy() for g in lib.autograd.grad(out.sum(), leaves)]


@pytest.mark.parametrize(
    "function",
    [
        lambda lib, a, b: lib.maximum(a, b),
        lambda lib, a, b: lib.minimum(a, b),
        lambda lib, a, b: lib.fmax(a, b),
        lambda lib, a, b: lib.fmin(a, b),
        lambda lib, a, b: lib.clamp(a, min=b),
        lambda lib, a, b: lib.clamp(a, max=b),
        lambda lib, a, b: lib.clamp(a, b, -b),
        lambda lib, a, b: lib.atan2(a, b),
        lambda lib, a, b: lib.copysign(a, b),
        lambda lib, a, b: lib.xlogy(a, b),
        lambda lib, a, b: lib.nextafter(a, b),
    ],
)
def test_gradients_at_ties_zeros_and_nan(function: Any) -> None:
    a = [x for x in VALUES for _ in VALUES]
    b = list(VALUES) * len(VALUES)
    for ours, theirs in zip(
        gradients(weft, function, a, b), gradients(torch, function, a, b), strict=True
    ):
        np.testing.assert_allclose(ours, theirs)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("relu", {}),
        ("relu6", {}),
        ("leaky_relu", {}),
        ("elu", {"alpha": 0.7}),
        ("selu", {}),
        ("celu", {"alpha": 1.5}),
        ("hardtanh", {"min_val": -1.0, "max_val": 0.5}),
        ("hardsigmoid", {}),
        ("hardswish", {}),
        ("hardshrink", {}),
        ("softshrink", {}),
        ("softplus", {"beta": 2.0}),
        ("threshold", {"threshold": 0.5, "value": 3.0}),
        ("logsigmoid", {}),
        ("gelu", {}),
        ("silu", {}),
        ("mish", {}),
    ],
)
def test_activations_at_their_corners(name: str, settings: dict[str, float]) -> None:
    points = [*(v for v in VALUES if not math.isinf(v)), -3.0, 3.0, 6.0, 50.0, -50.0]
    ours = weft.tensor(points, dtype=weft.float64, requires_grad=True)
    theirs = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    y, expected = getattr(F, name)(ours, **settings), getattr(TF, name)(theirs, **settings)
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), atol=1e-12)
    y.sum().backward()
    expected.sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        lambda f, x: f.relu(x, inplace=True),
        lambda f, x: f.leaky_relu(x, 0.1, inplace=True),
        lambda f, x: f.elu(x, inplace=True),
        lambda f, x: f.hardtanh(x, inplace=True),
        lambda f, x: f.silu(x, inplace=True),
        lambda f, x: f.hardswish(x, inplace=True),
        lambda f, x: x.sin_(),
        lambda f, x: x.clamp_(-0.5, 0.7),
        lambda f, x: x.mul_(x.detach().clone()),
    ],
)
def test_in_place_forms_differentiate_as_the_others(change: Any) -> None:
    found = []
    for lib, f in ((weft, F), (torch, TF)):
        x = lib.tensor([-1.5, -0.3, 0.0, 0.4, 2.0], dtype=lib.float64, requires_grad=True)
        y = x * 1.5
        assert change(f, y) is y
        (y * y).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(*found)


@pytest.mark.parametrize("name", ["leaky_relu", "elu", "silu", "gelu", "softplus", "hardtanh"])
def test_a_result_may_be_changed_where_backward_needs_the_input(name: str) -> None:
    x = weft.tensor([-1.0, 0.5], requires_grad=True)
    y = getattr(F, name)(x)
    y += 1
    y.sum().backward()
    assert x.grad is not None


def test_rrelu_draws_as_torch_does() -> None:
    x = np.linspace(-2, 2, 101)
    weft.manual_seed(3)
    torch.manual_seed(3)
    ours = F.rrelu(weft.tensor(x), training=True)
    np.testing.assert_array_equal(ours.numpy(), TF.rrelu(torch.tensor(x), training=True).numpy())


def test_a_missing_derivative_is_an_error() -> None:
    a = weft.tensor([0.5, 2.0], requires_grad=True)
    with pytest.raises(NotImplementedError, match="igamma"):
        weft.igamma(a, weft.ones(2)).sum().backward()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_nextafter_steps_in_the_tensors_own_type(dtype: str) -> None:
    ours = weft.nextafter(
        weft.ones(1, dtype=getattr(weft, dtype)), weft.zeros(1, dtype=getattr(weft, dtype))
    )
    theirs = torch.nextafter(
        torch.ones(1, dtype=getattr(torch, dtype)), torch.zeros(1, dtype=getattr(torch, dtype))
    )
    assert ours.item() == theirs.item() < 1


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
@pytest.mark.parametrize("code", ["bce(x)", "F.elu(x)", "F.selu(x)", "F.celu(x, 0.5)"])
def test_second_derivatives_far_from_zero_are_zero(code: str, dtype: weft.dtype) -> None:
    F = weft.nn.functional
    x = weft.tensor([-1000.0, -800.0, 800.0, 1000.0], dtype=dtype, requires_grad=True)

    def bce(x):
        return F.binary_cross_entropy_with_logits(x, weft.full_like(x, 0.25))

    value = eval(code, {"F": F, "bce": bce, "x": x}).sum()
    (first,) = weft.autograd.grad(value, x, create_graph=True)
    (second,) = weft.autograd.grad(first.sum(), x)
    assert second.tolist() == [0.0] * 4


def test_derivatives_of_log_ndtr_far_out() -> None:
    x = weft.tensor([-1e10, -1e4, -50.1, -49.9, 0.0, 38.0, 300.0], dtype=weft.float64)
    x.requires_grad_()
    (slope,) = weft.autograd.grad(weft.special.log_ndtr(x).sum(), x, create_graph=True)
    (second,) = weft.autograd.grad(slope.sum(), x, create_graph=True)
    (third,) = weft.autograd.grad(second.sum(), x)
    # The series of the inverse Mills ratio, and its derivative: -1 + 1/x**2 - 6/x**4 + ...
    for k, a in enumerate((1e10, 1e4, 50.1, 49.9)):
        terms = 1 - a**-2 + 6 * a**-4 - 50 * a**-6 + 518 * a**-8
        assert second[k].item() == pytest.approx(-terms, rel=1e-12)
        terms = 2 * a**-3 - 24 * a**-5 + 300 * a**-7 - 4144 * a**-9
        assert third[k].item() == pytest.approx(terms, rel=1e-6)
    assert second[4].item() == pytest.approx(-2 / np.pi, rel=1e-14)
    assert second[5:].tolist() == third[5:].tolist() == [0, 0]
