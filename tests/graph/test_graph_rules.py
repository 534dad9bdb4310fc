"""Rules act on every later step while it is being built."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
import weft.nn.functional as F
from graph_programs import play, programs, same
from weft import nn
from weft.core.modes import MODES
from weft.graph import GraphError


@pytest.fixture
def net():
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


def test_each_kind_of_rule(net):
    x = weft.randn(3, 4)
    one, two, three = net[0], net[2], net[4]
    cases = [
        (lambda r: r.replace(F.gelu, op="relu", module="1"), three(F.relu(two(F.gelu(one(x)))))),
        (lambda r: r.replace("gelu", op="relu"), three(F.gelu(two(F.gelu(one(x)))))),
        (lambda r: r.remove(op="relu"), three(two(one(x)))),
        (
            lambda r: r.insert_after(lambda t: t * 2, op="linear", module="2"),
            three(F.relu(two(F.relu(one(x))) * 2)),
        ),
        (
            lambda r: r.insert_before(lambda t: t * 0, op="linear", module="4"),
            three(F.relu(two(F.relu(one(x)))) * 0),
        ),
        (lambda r: r.replace(F.tanh, name="3.relu"), three(F.tanh(two(F.relu(one(x)))))),
        (
            lambda r: r.replace(F.tanh, where=lambda u: u.op == "relu" and u.module == "1"),
            three(F.relu(two(F.tanh(one(x))))),
        ),
    ]
    plain = net(x)
    for give, expected in cases:
        with give(weft.graph.rules()) as rules:
            assert same(net(x), expected), rules
        assert same(net(x), plain)
    assert MODES.now.recorders == ()


def test_patterns_match_while_the_program_runs(net):
    x = weft.randn(3, 4)
    expected = net[4](F.gelu(net[2](F.gelu(net[0](x)))))
    rules = weft.graph.rules().rewrite(
        lambda x, w, b: F.relu(F.linear(x, w, b)), lambda x, w, b: F.gelu(F.linear(x, w, b))
    )
    with rules:
        assert same(net(x), expected)
        assert "2 uses" in repr(rules)
        assert not rules._made  # what a pattern may look back at goes with its tensors


def test_data_dependent_control_flow():
    def program(x):
        count = 0
        while x.norm() > 1 and count < 20:
            x = (x / 2).relu() if count % 2 else x * 0.9
            count += 1
        return x

    def expected(x):
        count = 0
        while x.norm() > 1 and count < 20:
            x = (x / 2).tanh() if count % 2 else x * 0.9
            count += 1
        return x

    with weft.graph.rules().replace("tanh", op="relu"):
        found = [program(weft.full((3,), float(k))) for k in range(6)]
    assert all(same(f, expected(weft.full((3,), float(k)))) for k, f in enumerate(found))


def test_rules_in_training_change_gradients_too(net):
    x, y = weft.randn(8, 4), weft.randn(8, 1)
    with weft.graph.rules().replace(F.gelu, op="relu"):
        F.mse_loss(net(x), y).backward()
    mine = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    F.mse_loss(net[4](F.gelu(net[2](F.gelu(net[0](x))))), y).backward()
    assert all(same(g, p.grad) for g, p in zip(mine, net.parameters(), strict=True))


def test_names_are_counted_in_each_step():
    x = weft.ones(2, requires_grad=True)
    with weft.graph.rules().replace(lambda a: a * 0, name="relu:2") as rules:
        for _ in range(3):
            y = x.relu() + x.relu() + x.relu()
            y.sum().backward()
            assert y.tolist() == [2.0, 2.0]
    assert "3 uses" in repr(rules)


def test_rules_come_and_go(net):
    x = weft.randn(3, 4)
    plain = net(x)
    with weft.graph.rules() as rules:
        assert same(net(x), plain)
        rules.remove(op="relu")
        assert not same(net(x), plain)
        rules.undo()
        assert same(net(x), plain) and len(rules) == 0


def test_a_record_sees_what_a_rule_ran(net):
    x = weft.randn(3, 4)
    with weft.graph.record() as g, weft.graph.rules().replace(F.gelu, op="relu"):
        y = net(x)
    assert not g.find(op="relu") and len(g.find(op="gelu")) == 2
    assert same(g.run(), y)


def test_wrong_rules_are_refused():
    with pytest.raises(GraphError, match="of what"):
        weft.graph.rules().remove()
    with weft.graph.rules().replace(lambda a: 3, op="relu"):
        with pytest.raises(GraphError, match="returned a int instead of relu"):
            weft.ones(2).relu()
    with pytest.raises(GraphError, match=r"takes \['z'\]"):
        weft.graph.rules().rewrite(lambda x: x.relu(), lambda z: z)
    assert MODES.now.recorders == ()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs(writes=True, longest=10), st.integers(0, 99))
def test_a_rule_is_the_same_edit_in_python(steps, seed):
    rng = np.random.default_rng(seed)
    x = weft.tensor(rng.standard_normal((3, 3)))
    w = weft.tensor(rng.standard_normal((3, 3)), requires_grad=True)
    edits = {
        k: (lambda step, values, given: F.gelu(given[0])) if name == "relu"
        else (lambda step, values, given: (given[0] * 2).sin() + 1)
        for k, (name, _, _) in enumerate(steps) if name in ("relu", "sin")
    }  # fmt: skip
    rules = weft.graph.rules().replace(F.gelu, op="relu")
    rules.insert_before(lambda t: t * 2, op="sin").insert_after(lambda t: t + 1, op="sin")
    with rules:
        found = play(steps, x, w)
    assert same(found, play(steps, x, w, edits))
