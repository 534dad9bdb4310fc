"""Each comparison that a followed call rests on: left out, one of these gives a wrong result."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import weft as torch
from weft import nn
from weft.compiler import matching


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


@pytest.mark.parametrize("count", range(2, 7))
def test_many_leaves_of_which_two_are_one_tensor(count: int) -> None:
    def function(*leaves: Any) -> Any:
        for x in leaves:
            x.grad = None
        (torch.stack(leaves) * torch.arange(1.0, 1 + count)[:, None]).sum().backward()
        return torch.stack([x.grad for x in leaves])

    own = [torch.full((3,), float(k), requires_grad=True) for k in range(count)]
    calls = [own] * 3
    for j, k in itertools.combinations(range(count), 2):
        calls.append([own[j] if i == k else x for i, x in enumerate(own)])
    same(function, [*map(tuple, calls)])


def test_the_code_of_a_step_grows_with_its_parameters_and_not_with_their_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []

    def noted(text: str) -> Any:
        compiled.append(text)
        return compile(text, "<token>", "exec")

    monkeypatch.setattr(matching, "_code", noted)

    def longest(count: int) -> int:
        params = [nn.Parameter(torch.ones(2)) for _ in range(count)]
        optimizer = torch.optim.Adam(params)

        @torch.compile
        def step() -> None:
            optimizer.zero_grad()
            torch.stack(params).sum().backward()
            optimizer.step()

        compiled.clear()
        step()
        return max(map(len, compiled))

    few, many = longest(10), longest(100)
    assert 1000 < few < many < 15 * few


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
