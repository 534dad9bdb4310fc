"""Compiled programs that do what programs rarely do, against the same programs run eagerly."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.compiler import Compiled

CALLS = 6


@pytest.mark.parametrize("automatic", [False, True])
def test_leaves_of_a_call_that_no_trace_can_say_do_not_shift_others(automatic: bool) -> None:
    def function(x: Any, first: Any, second: Any) -> Any:
        x * np.int64(3)  # a number of a class that tokens do not know
        doubled = first * 2
        return doubled, second * 3 + x

    compiled = function if automatic else Compiled(function)
    with torch.compiler.auto(automatic):
        for k in range(CALLS):
            tensors = [torch.full((2,), float(k + n)) for n in range(3)]
            a, b = compiled(*tensors)
            assert a.tolist() == [2 * (k + 1)] * 2
            assert b.tolist() == [3 * (k + 2) + k] * 2


def test_automatic_compiling_holds_nothing_of_calls_that_it_can_not_learn() -> None:
    with torch.compiler.auto() as automatic:
        for _ in range(20):
            (torch.ones(3) * np.int64(2)).tolist()
            assert len(automatic.region.leaves) < 3


@pytest.mark.parametrize(
    "read", [lambda t: t.sum().item(), lambda t: t.detach().numpy(), lambda t: bool(t.sum() > 0)]
)
def test_a_loop_that_reads_values_is_learned_once_and_holds_one_round(read: Any) -> None:
    with torch.compiler.auto() as automatic:
        for k in range(12):
            read(torch.ones(3) * k + 1)
            assert len(automatic.region.handles) < 8
        assert automatic.region.learned.runs > 5


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(2, 2), 3.0

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.scale


def test_hooks_of_a_compiled_module_are_called() -> None:
    compiled, seen = torch.compile(Scaled()), []
    compiled.register_forward_pre_hook(lambda *_: seen.append("before"))
    handle = compiled.register_forward_hook(lambda *_: seen.append("after"))
    compiled.register_full_backward_hook(lambda *_: seen.append("backward"))
    for _ in range(CALLS):
        seen.clear()
        compiled(torch.ones(1, 2, requires_grad=True)).sum().backward()
        assert seen == ["before", "after", "backward"]
    handle.remove()
    seen.clear()
    compiled(torch.ones(1, 2))
    assert seen == ["before"]


def test_attributes_of_a_compiled_module_are_those_of_the_module() -> None:
    model = Scaled()
    compiled = torch.compile(model)
    model.eval()
    assert not compiled.training
    compiled.train()
    assert model.training and model.layer.training
    compiled.training = False
    assert not model.training and model.layer.training
    compiled.scale = 5.0
    assert model.scale == 5.0 and "scale" in dir(compiled)
    del compiled.scale
    assert not hasattr(model, "scale")
    assert compiled and not torch.compile(nn.Sequential())
    assert len(torch.compile(nn.Sequential(nn.ReLU(), nn.ReLU()))) == 2


@torch.compile
def doubled(x: Any) -> Any:
    return x * 2


def test_decorated_functions_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    by_parts = pickle.loads(pickle.dumps(Compiled(pickle.dumps, fullgraph=True)))
    assert by_parts.function is pickle.dumps and by_parts.fullgraph
