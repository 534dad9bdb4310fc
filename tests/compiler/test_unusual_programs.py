"""Compiled programs that do what programs rarely do, against the same programs run eagerly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as torch
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
