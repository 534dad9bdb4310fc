"""What programs say of themselves: kernels, times, memory, and what Python has to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_program import leaves_of

import weft
from weft import nn
from weft.compiler.program import lower
from weft.core import selection
from weft.native.codegen import jit

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()


def step_of(seed: int = 0) -> Any:
    weft.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = weft.optim.Adam(model.parameters())
    x, y = weft.randn(7, 3), weft.randn(7, 1)

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def test_timed_runs_are_steps_like_others() -> None:
    timed, plain = (weft.compile(step_of(), static=True) for _ in range(2))
    for _ in range(3):
        assert timed().item() == plain().item()
    (step,) = timed.steps.values()
    assert "us (" not in timed.explain()
    with timed.timing() as runs:
        losses = [timed().item() for _ in range(2)]
    assert losses == [plain().item() for _ in range(2)]
    assert len(runs) == 2
    for run in runs:
        assert [title for title, _ in run] == step.program.kernels()
        assert all(seconds >= 0 for _, seconds in run)
    assert timed().item() == plain().item() and len(runs) == 2
    told = timed.explain()
    assert "% ) in" in told.replace("%)", "% )") and "Adam of 4 parameters" in told
    assert "bytes pass through the arena" in told


def test_what_python_runs_is_told_with_its_line() -> None:
    x = weft.randn(4, 4)
    with weft.graph.record() as graph:
        y = weft.linalg.qr(x)[0] + 1.0
    made = lower(list(graph._specs.values()), leaves_of(graph), graph._outputs)
    notes = [line for line in made.explain() if "runs in Python" in line]
    assert len(notes) == 1 and "test_explain.py" in notes[0], made.explain()
    del y


@pytest.mark.parametrize("name", ["all", "any"])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_masks_are_reduced_natively(name: str, dim: int, keepdim: bool) -> None:
    rng = np.random.default_rng(0)
    x = weft.from_numpy(rng.random((3, 4, 5)) < 0.6)
    x[0] = True
    x[1, 1] = False
    with weft.graph.record() as graph:
        y = getattr(x.clone(), name)(dim, keepdim=keepdim)
    made = lower(list(graph._specs.values()), leaves_of(graph), graph._outputs)
    assert not any("Python" in line for line in made.explain()), made.explain()
    (found,) = made.run([x._a for _ in made.leaves]) or ()
    np.testing.assert_array_equal(found, y.numpy())
