"""Each comparison that a followed call rests on: left out, one of these gives a wrong result."""

from __future__ import annotations

from typing import Any

import weft as torch
from weft import nn


def same(function: Any, calls: list[tuple[Any, ...]]) -> None:
    compiled = torch.compile(function)
    for args in calls:
        expected, found = function(*args), compiled(*args)
        assert torch.equal(found, expected), args


def test_which_result_is_read() -> None:
    def function(x: Any, first: bool) -> Any:
        a, b = x * 2, x * 3
        return (a if first else b) + 1

    x = torch.ones(2)
    same(function, [(x, k % 3 == 0) for k in range(8)])


def test_which_leaf_is_read_again() -> None:
    def function(x: Any, y: Any, first: bool) -> Any:
        return x * 2 + y * 3 + (x if first else y) * 5

    same(function, [(torch.ones(2), torch.zeros(2), k % 3 == 0) for k in range(8)])


def test_leaves_that_are_one_tensor() -> None:
    def function(x: Any, y: Any) -> Any:
        x.grad = y.grad = None
        (x * y).sum().backward()
        return x.grad + y.grad

    a, b = (torch.full((3,), v, requires_grad=True) for v in (2.0, 5.0))
    same(function, [(a, b)] * 3 + [(a, a)] * 3 + [(a, b), (b, b)])


def test_attributes_numbers_and_modes() -> None:
    square = torch.arange(9.0).reshape(3, 3)
    same(lambda x, d: (x * 1).sum(d), [(square, k % 2) for k in range(6)])
    same(lambda x, n: x * n + n, [(square, n) for n in (2.0, 3.0, 3, 2, 0.5, 2.0)])

    def recorded(x: Any, on: bool) -> Any:
        with torch.set_grad_enabled(on):
            return torch.tensor((x * 2).requires_grad)

    x = torch.ones(2, requires_grad=True)
    same(recorded, [(x, k % 2 == 0) for k in range(6)])


def test_memory_that_was_let_out_between_two_calls() -> None:
    p = nn.Parameter(torch.ones(3))
    memory: list[Any] = []

    @torch.compile
    def function() -> Any:
        doubled = p.detach() * 1 + p * 2
        for array in memory:
            array[:] = 100.0
        return doubled

    for _ in range(4):
        assert function().tolist() == [3.0, 3.0, 3.0]
    memory.append(p.detach().numpy())
    assert function().tolist() == [3.0, 3.0, 3.0]
    assert p.tolist() == [100.0, 100.0, 100.0]
