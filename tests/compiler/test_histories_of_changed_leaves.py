"""Derivatives of compiled results whose leaves have changed since: of the values as they were."""

from __future__ import annotations

from typing import Any

import pytest

import weft as torch
from weft import nn
from weft.compiler import Compiled

CALLS = 4


def buffer_changed_and_detached(x: Any, w: Any) -> Any:
    scale = torch.ones(6, dtype=torch.float64)
    scale.mul_(2)
    return x * scale.detach()


def buffer_changed_twice(x: Any, w: Any) -> Any:
    scale = w.detach().clone()
    scale.mul_(2)
    scale.add_(w.detach())
    return (x * scale).sin()


def view_of_a_changed_buffer(x: Any, w: Any) -> Any:
    scale = torch.ones(6, dtype=torch.float64)
    scale.mul_(2)
    return x * scale.view(2, 3).view(6) * x


def batch_norm_by_statistics_just_taken(x: Any, w: Any) -> Any:
    mean, var = (torch.zeros(6, dtype=torch.float64) for _ in range(2))
    first = nn.functional.batch_norm(x, mean, var, w * 3, training=True)
    return first * nn.functional.batch_norm(x, mean, var, w * 2)


def parameter_changed_in_the_region(x: Any, w: Any) -> Any:
    y = (w + 3).pow(2) * x
    with torch.no_grad():
        w.mul_(2)
    return y


PROGRAMS = [
    buffer_changed_and_detached,
    buffer_changed_twice,
    view_of_a_changed_buffer,
    batch_norm_by_statistics_just_taken,
    parameter_changed_in_the_region,
    lambda x, w: (w + 3).pow(2) * x,  # saves what it computed of ``w``, not ``w``
    lambda x, w: (w + 3).exp() * x,
    lambda x, w: (w + 3)[None].expand(4, 6) * x,
    lambda x, w: (w + 3).view(2, 3).t().exp().sum() * x,
    lambda x, w: nn.functional.dropout((w + 3) * x, 0.5) * x,
]


def derivatives(function: Any, seed: int, order: int) -> list[Any]:
    """Gradients up to some order, taken after the parameter has changed."""
    torch.manual_seed(seed)
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    w = torch.randn(6, dtype=torch.float64, requires_grad=True)
    y = function(x, w)
    with torch.no_grad():
        w.mul_(3)
    found = [y]
    for k in range(order):
        options = {"create_graph": k + 1 < order, "allow_unused": True, "materialize_grads": True}
        (gradient, other) = torch.autograd.grad(found[-1].sin().sum(), (x, w), **options)
        found += [other, gradient]
    return [t.detach() for t in found]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("function", PROGRAMS)
def test_derivatives_are_taken_at_the_values_of_the_call(function: Any, order: int) -> None:
    compiled = Compiled(function)
    for seed in range(CALLS):
        expected = derivatives(function, seed, order)
        found = derivatives(compiled, seed, order)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("create", [False, True])
def test_a_buffer_that_changes_in_the_region_and_after_it_was_saved_is_an_error(
    create: bool,
) -> None:
    def function(x: Any, scale: Any) -> Any:
        scale.mul_(1.5)
        return (x * scale).sum()

    compiled = Compiled(function)
    for _ in range(CALLS):
        x, scale = torch.ones(3, requires_grad=True), torch.ones(3)
        loss = compiled(x, scale)
        scale.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(loss, [x], create_graph=create)
