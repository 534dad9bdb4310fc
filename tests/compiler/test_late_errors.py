"""Errors by value that show when values are computed: the state is what eager mode leaves."""

from __future__ import annotations

from typing import Any

import pytest

import weft as torch
from weft import nn
from weft.compiler import Compiled
from weft.nn import functional as F

CALLS = 14
BAD = {4, 6, 7, 11}  # calls with an index that is out of range


def indices(k: int) -> Any:
    return torch.tensor([0, 7 if k in BAD else k % 5, 2])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.norm, self.layer = nn.Embedding(5, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)
        self.double()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, index: Any) -> Any:
        return self.layer(self.norm(self.table(index))).tanh()


def whole_step(model: Any, optimizer: Any, index: Any) -> Any:
    optimizer.zero_grad()
    loss = model(index).sum()
    loss.backward()
    optimizer.step()
    return loss


def gradients_that_grow(model: Any, optimizer: Any, index: Any) -> Any:
    model.layer(torch.ones(2, 3, dtype=torch.float64)).pow(2).sum().backward()
    model.count.add_(1)
    loss = model(index).sum()
    model.count.mul_(2)
    loss.backward()
    model.count.add_(1)
    model(torch.tensor([1, 2])).sum().backward()
    return loss


def caught_inside(model: Any, optimizer: Any, index: Any) -> Any:
    optimizer.zero_grad()
    try:
        loss = model(index).sum()
        loss.backward()
        loss.item()
    except IndexError:
        model.count.add_(10)
        loss = model.layer(torch.ones(2, 3, dtype=torch.float64)).sum()
        loss.backward()
    optimizer.step()
    return loss * 2


def seen(model: Any, optimizer: Any) -> list[Any]:
    found = [(p.tolist(), p._version) for p in (*model.parameters(), *model.buffers())]
    found += [p.grad if p.grad is None else p.grad.tolist() for p in model.parameters()]
    states = [optimizer.state.get(p, {}) for p in model.parameters()]
    return found + [{k: torch.as_tensor(v).tolist() for k, v in s.items()} for s in states]


def run(step: Any) -> list[Any]:
    """What is seen after each call."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found: list[Any] = []
    for k in range(CALLS):
        try:
            found.append(step(model, optimizer, indices(k)).item())
        except IndexError:
            found.append("IndexError")
        found += seen(model, optimizer)
    return found


@pytest.mark.parametrize("automatic", [False, True])
@pytest.mark.parametrize("step", [whole_step, gradients_that_grow, caught_inside])
def test_a_call_that_fails_leaves_what_eager_mode_leaves(step: Any, automatic: bool) -> None:
    expected = run(step)
    with torch.compiler.auto(automatic):
        found = run(step if automatic else Compiled(step))
    assert same(found, expected)


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == pytest.approx(theirs, rel=1e-9) if isinstance(ours, float) else ours == theirs


def test_what_was_never_computed_says_why() -> None:
    kept = []

    @torch.compile
    def function(index: Any, table: Any) -> Any:
        rows = F.embedding(index, table)  # this line
        kept.append(rows * 2)
        return rows.sum()

    table = torch.ones(5, 3)
    for k in range(4):
        function(indices(k), table)
    with pytest.raises(IndexError, match=r"rows = F.embedding.*# this line"):
        function(indices(4), table)
    assert kept[-1].shape == (3, 3)
    with pytest.raises(RuntimeError, match=r"never computed.*index out of range"):
        kept[-1].sum().item()
    assert function(indices(5), table).item() == 9
