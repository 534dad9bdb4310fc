"""Functions at extreme values against PyTorch: a part of the sweep, and what it has found."""

from __future__ import annotations

import pytest

from side_by_side import agree, lines, needs_torch

pytest.importorskip("torch", reason="parity tests need torch==2.13.0")
import edge_values

EVERY = 101  # of the sweep's cases, so that one run takes some seconds


def sampled() -> list[edge_values.Case]:
    """Some cases of every expression, dtype and layout."""
    found = list(edge_values.cases())
    return [case for case in found[::EVERY] if edge_values.known(case) is None]


def test_a_part_of_the_sweep() -> None:
    found = {str(case): edge_values.compare(case) for case in sampled()}
    wrong = [f"{case}: {text}" for case, text in found.items() if text]
    assert not wrong, "\n".join(wrong)
    assert len(found) > 100


# Each line was wrong once. ``h`` stands for float16, ``b`` for bfloat16.
FOUND = """
torch.full((17,), 16, dtype=torch.uint8).sum(dtype=torch.uint8)
torch.arange(100, dtype=torch.int32).sum(0, dtype=torch.int32)
torch.arange(100, dtype=torch.int8).cumsum(0, dtype=torch.int16)
torch.full((9,), 3, dtype=torch.int32).cumprod(0, dtype=torch.int32)
torch.tensor([1, 0, 2]).sum(dtype=torch.bool)
torch.tensor([1.0, 2.0]).cumsum(0, dtype=torch.bool)
torch.tensor([1.0, 2.0]).nanmean(dtype=torch.int32)
torch.lerp(h([-5e4]), h([5e4]), 1.0)
torch.lerp(b([1.0, 2.0]), b([3.0, 0.1]), 0.3)
torch.ldexp(h([2.0**-10]), torch.tensor([20]))
torch.nn.functional.hardshrink(b([0.3]), 0.3)
torch.div(b([9.0]), 0.1, rounding_mode='trunc')
torch.div(b([3.0, 9.0]), b([0.3, 0.1]), rounding_mode='trunc')
torch.div(h([1.001]), h([0.001]), rounding_mode='floor')
b([-10.5, 1.0]) // b([0.1, 0.3])
h([-0.3]) + 0.3
h([-0.3]) == -0.3
h([1.0, 2.0]) % 0.1
b([2.0]) ** 0.3
b([2.0]) ** torch.tensor(0.3)
torch.add(h([-1.0] * 32), h([0.3] * 32), alpha=3)
torch.addcmul(h([-1.57]), h([-1.57]), h([-1.57]))
torch.addcmul(torch.tensor([3e38]), torch.tensor([3e38]), torch.tensor([0.0]), value=2)
torch.addcdiv(torch.tensor([1.0]), torch.tensor([3e38]), torch.tensor([torch.inf]), value=2)
torch.tensor([2]).int().addcmul(torch.tensor([2]).int(), torch.tensor([3]).int(), value=1.5)
torch.pow(h([2.0]), 70000.0)
torch.add(h([1.0]), h([1.0]), alpha=70000.0)
torch.add(torch.tensor([1.0]), 1, alpha=True)
torch.sub(torch.tensor([1]), 1, alpha=1.0)
torch.tensor([3.0]).add(torch.tensor([1.0]), alpha=torch.tensor(2.0))
torch.tensor([3.0]).add(torch.tensor([1.0]), alpha=torch.tensor(2.0, requires_grad=True))
torch.add(1, 2), torch.sub(1.5, 2), torch.mul(2, True), torch.div(1, 2)
torch.add(2.5, torch.tensor([1]))
torch.tensor([1, 2]).pow_(-1)
torch.tensor([True]) ** torch.tensor([True])
torch.log1p(torch.tensor([1e-10 + 1e-10j, 0.3 - 0.2j, -2 + 1j]))
torch.logcumsumexp(torch.tensor([-torch.inf + 4j, 1.2 + 2.1j, torch.inf + 0j, torch.inf + 1j]), 0)
torch.isreal(torch.tensor([torch.nan]))
torch.signbit(torch.erfinv(torch.tensor([-0.0])))
torch.tensor([1e30, 2e30, 0.0]).std(), torch.tensor([[1e-30, 2e-30, 0.0]]).std(1)
torch.cat([torch.zeros(40000), torch.full((40000,), 1e30)]).std(0)
torch.nn.functional.layer_norm(torch.tensor([1e30, 2e30, 0.0]), (3,))
torch.nn.functional.layer_norm(torch.tensor([[1e30, 0.0] * 40] * 300), (80,))[:2, :2]
torch.nn.functional.group_norm(torch.tensor([[1e20, 0.0] * 8]), 2)
torch.nn.functional.rms_norm(torch.tensor([1e30, 2e30, 0.0]), (3,))
torch.tensor([2.0, 3e38, 0.0]).cumprod(0)
h([2.0, 65504.0, 0.0]).prod(), b([2.0, 3e38, 0.0]).cumprod(0)
torch.nn.functional.leaky_relu(torch.tensor([torch.inf]), 0.0)
torch.nn.BCEWithLogitsLoss()(torch.tensor([torch.inf, 1.0]), torch.tensor([0.0, 1.0]))
torch.nn.functional.threshold(torch.tensor([0, 1]), -0.3, 20)
torch.renorm(h([[0.0, 65504.0, 65504.0]]), 2, 0, 1.0)
torch.trapezoid(torch.tensor([0.0, 0.0, torch.inf]))
torch.pdist(torch.tensor([[torch.nan, 0.0], [0.0, 1.0], [0.0, 2.0]]), 0)
torch.histc(torch.tensor([-2.0**127] * 3), 4), torch.histc(torch.tensor([2.0**24] * 2), 4)
torch.unique(torch.tensor([[torch.nan, 0.0], [1.0, torch.nan], [0.0, 1.0]]), dim=0)
torch.unique(b([2.0, torch.nan, -3e38, 1.0]), return_inverse=True)
torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0]).kthvalue(2)
torch.tensor([[0.0, torch.nan, torch.nan], [0.0, torch.nan, 0.0]]).mode(1)
torch.index_reduce(h([1.0, 2.0]), 0, torch.tensor([0, 0, 1]), h([0.1, 0.3, 0.7]), 'mean')
torch.scatter_reduce(b([1.0, 2.0]), 0, torch.tensor([0, 0, 1]), b([0.1, 0.3, 0.7]), 'mean')
torch.nonzero_static(torch.tensor([8]), size=-2)
~torch.zeros(2)
torch.randn(3, 2).topk(1, True)
torch.histogram(torch.rand(3), torch.rand(3, dtype=torch.float64))
torch.histogram(torch.rand(3), 2, weight=torch.rand(2))
torch.histogram(torch.rand(3), 2, range=(1, 0))
torch.histogram(torch.rand(3), torch.tensor([0.0, 1.0]), range=(0, 1))
torch.histogramdd(torch.rand(5, 0), [])
torch.heaviside(torch.tensor([1j]), torch.tensor([1j]))
torch.cumulative_trapezoid(torch.rand(3), torch.rand(3), dx=2)
torch.cumulative_trapezoid(torch.rand(3), dx=1j)
torch.nn.functional.softshrink(torch.ones(2), torch.inf)
torch.nn.functional.huber_loss(torch.ones(2), torch.ones(2), delta=torch.nan)
torch.nn.functional.gelu(torch.arange(3)), torch.nn.functional.logsigmoid(torch.arange(3))
torch.special.erfcx(h([1.0]))
torch.sign(torch.tensor([1j]))
torch.gradient(torch.arange(4, dtype=torch.uint8))
torch.nn.functional.kl_div(torch.arange(3), torch.arange(3))
"""


@needs_torch
@pytest.mark.parametrize("code", lines(FOUND))
def test_what_the_sweep_has_found(code: str) -> None:
    half = "h = lambda v: torch.tensor(v, dtype=torch.float16)\n"
    brain = "b = lambda v: torch.tensor(v, dtype=torch.bfloat16)\n"
    agree(half + brain + code)


# Gradients where formulas divide by zero or lose their digits, in double and single precision.
SLOPES = """
2 ** x
torch.sinc(x)
torch.acosh(x)
torch.special.i1(x)
x ** 0.5
x.sqrt()
x.norm()
torch.polar(x, x)
torch.atan2(x, x)
x.clamp(0, 1)
torch.div(x, 3, rounding_mode='floor')
torch.special.i1e(x)
x.std()
"""


@needs_torch
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("code", lines(SLOPES))
def test_slopes_at_special_points(code: str, dtype: str) -> None:
    values = "[0.0, 1.0, -1.0, 1e-25, -1e-40, 2.5, -3.0, 1e-3]"
    if "polar" in code:
        # With AVX-512 PyTorch divides complex denormal numbers by a length that is zero.
        values = values.replace("-1e-40", "-1e-30")
    agree(
        f"x = torch.tensor({values}, dtype=torch.{dtype}, requires_grad=True)\n"
        f"y = {code}\ny.backward(torch.ones_like(y))\n[round(v, 5) for v in x.grad.tolist()]"
    )


@needs_torch
def test_floor_divide_has_no_derivative() -> None:
    agree("(torch.ones(2, requires_grad=True) // 2).sum().backward()")


@needs_torch
def test_a_half_tensor_over_a_large_number_has_a_gradient() -> None:
    agree(
        "x = torch.ones(2, dtype=torch.float16, requires_grad=True)\n"
        "(x / 70000.0).sum().backward()\nx.grad"
    )


@needs_torch
@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_too_few_degrees_of_freedom_warn(name: str) -> None:
    import weft

    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        getattr(weft, name)(weft.ones(2, 3), dim=1, correction=3)
