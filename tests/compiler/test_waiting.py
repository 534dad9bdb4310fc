"""What need not end a stretch: functions that look at kinds of tensors, and new random values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as torch
import weft.nn.functional as F
from weft.compiler import Compiled

CALLS = 5
PAIRS = torch.tensor([[0, 1, 2, 3, 1], [1, 3, 0, 3, 2]])
WAITING: dict[str, Callable] = {
    "randn_like": lambda x, m: x + torch.randn_like(x),
    "rand_like": lambda x, m: x * torch.rand_like(x),
    "randint_like": lambda x, m: x + torch.randint_like(x, 9),
    "zeros_like": lambda x, m: x + torch.zeros_like(x, device="cpu"),
    "exponential_": lambda x, m: x / torch.empty_like(x).exponential_(),
    "normal_": lambda x, m: x + torch.empty(4).normal_(1.0, 2.0),
    "gumbel_softmax": lambda x, m: F.gumbel_softmax(x, hard=True),
    "cosine_similarity": lambda x, m: F.cosine_similarity(x, m, dim=-1),
    "dot": lambda x, m: x[0].dot(m[1]) + torch.vdot(x[1], x[2]),
    "inner": torch.inner,
    "addr": lambda x, m: torch.addr(x, m[0], x[1]),
    "nextafter": lambda x, m: torch.nextafter(x.detach(), m),
    "subtracted": lambda x, m: torch.sub(x, m, alpha=2),
    "index_add": lambda x, m: m.index_add(0, (PAIRS * 1)[1], x[PAIRS[0]], alpha=2),
    "index_copy": lambda x, m: m.index_copy(1, (PAIRS * 1)[1], x[:, PAIRS[0]]),
    "index_fill": lambda x, m: x.index_fill(0, (PAIRS * 1)[1] - 4, 0.5),
    "index_reduce": lambda x, m: m.index_reduce(0, (PAIRS * 1)[1], x[PAIRS[0]], "amax"),
    "one_hot": lambda x, m: x * F.one_hot((PAIRS * 1)[0], 4)[:4],
    "pad": lambda x, m: F.pad(x[None], (1, 2), mode="reflect") * F.pad(m[None], (2, 1), "circular"),
    "masked_fill_": lambda x, m: (x * 2).masked_fill_(m > 0, -1.0).exp(),
    "in_a_format": lambda x, m: x.to(torch.float32, memory_format=torch.contiguous_format),
}


def results(run: Callable) -> list[Any]:
    torch.manual_seed(0)
    m, w = torch.randn(4, 4).double(), torch.randn(4, 4).double().requires_grad_()
    found = []
    for _ in range(CALLS):
        w.grad = None
        made = run(w, m)
        if made.requires_grad:
            made.sum().backward()
            found.append(w.grad.numpy().copy())
        found.append(made.detach().numpy())
    return found


@pytest.mark.parametrize("name", WAITING)
def test_what_reads_no_values_waits(name: str) -> None:
    function = WAITING[name]
    compiled = Compiled(lambda w, m: function(w * 2, m))
    for made, expected in zip(results(compiled), results(compiled.function), strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-12, atol=1e-12)
    told = compiled.explain()
    assert "value was read" not in told and "in earlier calls" not in told, told
    assert compiled.learned.diverged == 1


@pytest.mark.parametrize("kind", ["leaf", "result", "view", "part"])
@pytest.mark.parametrize("automatic", [False, True])
def test_random_values_in_tensors_that_were_read_before(kind: str, automatic: bool) -> None:
    noise = torch.zeros(4, 4)
    part = noise[1]

    def function(w: Any) -> Any:
        before = noise * w
        target = {"leaf": noise, "result": before, "view": noise[2], "part": part}[kind]
        with torch.no_grad():
            target.normal_()
        return before + noise, noise * 3

    def course(run: Callable) -> list[Any]:
        noise.zero_()
        torch.manual_seed(0)
        return [[t.tolist() for t in run(torch.full((4, 4), k + 1.0))] for k in range(CALLS)]

    expected = course(function)
    with torch.compiler.auto(automatic):
        assert course(function if automatic else Compiled(function)) == expected


BY_INDEX: dict[str, Callable] = {
    "index_add": lambda x, index: x.index_add(0, index, x[:3]),
    "index_copy": lambda x, index: x.index_copy(0, index, x[:3]),
    "index_fill": lambda x, index: x.index_fill(0, index, 3.0),
    "index_reduce": lambda x, index: x.index_reduce(0, index, x[:3], "prod"),
    "one_hot": lambda x, index: x[:3] * F.one_hot(index, 5),
}


@pytest.mark.parametrize("name", BY_INDEX)
def test_a_bad_index_is_refused_where_its_call_stands(name: str) -> None:
    function, state = BY_INDEX[name], torch.zeros(5, 5)

    def step(index: Any) -> Any:
        state.add_(1)
        made = function(state * 2, (index * 1)[0])
        state.mul_(2)
        return made + 1

    def course(run: Callable) -> list[Any]:
        state.zero_()
        found = []
        for k in (0, 1, 2, 3, -7, 1, 5, 2, 4):
            try:
                found.append(run(torch.tensor([[0, k, 2]])).tolist())
            except (IndexError, RuntimeError) as error:
                lines = [s for s in str(error).splitlines() if not s.startswith("  inputs")]
                found.append((type(error), lines))
            found.append(state.tolist())
        return found

    assert course(Compiled(step)) == course(step)


def test_batch_norm_with_a_plain_average_is_one_course() -> None:
    mine, theirs = (torch.nn.BatchNorm1d(4, momentum=None).double() for _ in range(2))
    compiled = Compiled(lambda x: mine(x * 2) + 1)
    for _ in range(6):
        x = torch.randn(8, 4).double()
        assert torch.allclose(compiled(x), theirs(x * 2) + 1)
        assert torch.allclose(mine.running_var, theirs.running_var, rtol=1e-12)
    assert compiled.learned.diverged == 2  # the count of batches is read in between


def test_a_fill_over_what_backward_needs_is_refused() -> None:
    def step(w: Any) -> Any:
        made = (w * 2).exp()
        made.masked_fill_(w > 0, -1.0)
        made.sum().backward()

    compiled, w = Compiled(step), torch.randn(4, 4).requires_grad_()
    for _ in range(CALLS):
        with pytest.raises(
            RuntimeError, match=r"exp.*masked_fill|modified by an inplace|in.?place"
        ):
            compiled(w)
        assert w.grad is None
