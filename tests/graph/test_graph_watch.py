"""Watching a training: nested, twice, and with a listener that fails."""

from __future__ import annotations

import pytest

import weft
from weft.autograd.engine import WATCHERS
from weft.autograd.steps import STEPS
from weft.core.modes import MODES
from weft.utils.checkpoint import checkpoint


def step(x, k):
    (x.exp() if k else x.sin()).sum().backward()


def test_a_watch_entered_twice_counts_once():
    x = weft.ones(2, requires_grad=True)
    w = weft.graph.watch()
    with w:
        with w:
            step(x, 0)
        step(x, 0)
    step(x, 0)
    assert w.steps == 2 and w not in WATCHERS
    with w:
        w.stop()
        step(x, 0)
    assert w.steps == 2
    with w:
        step(x, 0)
    assert w.steps == 3 and w not in WATCHERS


def test_a_listener_that_fails_leaves_recording_on():
    x = weft.ones(2, requires_grad=True)

    def tell(change):
        raise KeyError("mine")

    with weft.graph.watch(tell=tell):
        step(x, 0)
        with pytest.raises(KeyError):
            step(x, 1)
    assert weft.is_grad_enabled() and MODES.now.backward is None
    assert (x * 2).requires_grad


def test_watch_rules_and_record_together():
    x = weft.ones(2, requires_grad=True)
    with (
        weft.graph.watch() as w,
        weft.graph.rules().replace("tanh", op="relu") as rules,
        weft.graph.record(values=True, profile=True) as g,
    ):
        for _ in range(3):
            y = x * 2
            y.relu_()
            y.sum().backward()
    assert w.steps == 3 and not w.changes and "3 uses" in repr(rules)
    assert len(g.find(op="tanh")) == 3 and not g.find(op="relu")
    assert weft.allclose(x.grad, 3 * 2 * (1 - weft.full((2,), 2.0).tanh() ** 2))


def test_a_pass_inside_a_pass_is_no_step():
    x = weft.ones(2, requires_grad=True)
    first = STEPS.ended
    with weft.graph.watch() as w:
        for _ in range(3):
            checkpoint(lambda t: t.sin().exp(), x, use_reentrant=True).sum().backward()
    assert w.steps == 3 and STEPS.ended == first + 3


def test_a_block_that_fails_leaves_its_record():
    x = weft.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError):
        with weft.graph.record(values=True) as g:
            y = x * 2
            y.add_(weft.ones(3))
    assert [n.name for n in g] == ["x", "mul"] and g.run().tolist() == [2.0, 2.0]
    assert MODES.now.recorders == ()


def test_blocks_that_overlap():
    x = weft.ones(2)
    first, second = weft.graph.record(), weft.graph.record()
    one = first.__enter__()
    x * 2
    two = second.__enter__()
    x * 3
    first.__exit__(None, None, None)
    x * 4
    second.__exit__(None, None, None)
    assert [len(g.find(op="mul")) for g in (one, two)] == [2, 2]
    assert MODES.now.recorders == ()
