"""Differences of graphs, and following a training for changes of structure."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
import weft.nn.functional as F
from weft import nn
from weft.autograd.engine import WATCHERS
from weft.graph.comparing import _shortest_edit, align


def longest(a, b):
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            best = max(table[i, j + 1], table[i + 1, j])
            table[i + 1, j + 1] = table[i, j] + 1 if x == y else best
    return int(table[-1, -1])


words = st.lists(st.integers(0, 3), max_size=14)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(words, words)
def test_alignments_rise_and_agree(a, b):
    for pairs in (align(a, b), _shortest_edit(a, b, 0, len(a), 0, len(b))):
        assert all(a[i] == b[j] for i, j in pairs)
        assert all(p < q and r < s for (p, r), (q, s) in pairwise(pairs))
    assert len(pairs) == longest(a, b)
    assert align(a, a).tolist() == [[k, k] for k in range(len(a))]


def recorded(net, x, **options):
    with weft.graph.record(**options) as g:
        net(x)
    return g


@pytest.fixture
def net():
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


def test_a_graph_has_no_difference_to_itself(net):
    x = weft.randn(3, 4)
    a, b = recorded(net, x, values=True), recorded(net, x, values=True)
    found = weft.graph.diff(a, b)
    assert not found and found.first is None and len(found.pairs) == 12
    assert "no difference" in repr(found)


def test_insertions_removals_and_changes_are_told_apart(net):
    x = weft.randn(3, 4)
    a = recorded(net, x)
    b = a.insert_after("1.relu", lambda t: t.sin()).remove("3.relu").replace("4.linear", F.linear)
    found = weft.graph.diff(a, b)
    assert [n.op for n in found.added] == ["sin"]
    assert [n.name for n in found.removed] == ["3.relu"]
    assert found.first.op == "sin"
    text = repr(found)
    assert text.startswith("first divergence: added 1.sin") and "- 3.relu" in text
    changed = weft.graph.diff(a, a.replace("1.relu", F.gelu))
    (change,) = changed.changed
    assert change.before.name == "1.relu" and "op relu -> gelu" in repr(change)
    assert not changed.added and not changed.removed


def test_a_layer_that_moved_is_not_a_new_one():
    x = weft.randn(3, 4)
    short = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    long = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Tanh(), nn.Linear(8, 1))
    found = weft.graph.diff(recorded(short, x), recorded(long, x))
    assert [n.name for n in found.added] == ["2.tanh"] and not found.removed
    assert ["module 2 -> 3"] in [c.reasons for c in found.changed]


def test_other_settings_shapes_and_wiring_are_changes():
    x, y = weft.randn(3, 3), weft.randn(3, 3)
    with weft.graph.record() as g:
        (x.softmax(1) + y.exp() * x).sum()
    (change,) = weft.graph.diff(g, g.set_attrs("softmax", dim=0)).changed
    assert change.reasons == ["dim 1 -> 0"]
    (change,) = weft.graph.diff(g, g.rewire("mul", 1, "y")).changed
    assert change.reasons == ["input 1 x -> y"]
    with weft.graph.record() as h:
        x, y = weft.randn(5, 3), weft.randn(5, 3)
        (x.softmax(1) + y.exp() * x).sum()
    reasons = [r for c in weft.graph.diff(g, h).changed for r in c.reasons]
    assert "float32[3, 3] -> float32[5, 3]" in reasons


def test_values_part_at_the_first_node_that_differs(net):
    x = weft.randn(3, 4)
    a = recorded(net, x, values=True)
    with weft.no_grad():
        net[2].weight[0, 0] += 0.1
    b = recorded(net, x, values=True)
    found = weft.graph.diff(a, b)
    assert not found.added and not found.removed and not found.changed
    before, after, text = found.parting
    assert before.name == after.name == "2.linear" and "differ by up to" in text
    assert not weft.graph.diff(a, b, atol=10.0)
    assert not weft.graph.diff(recorded(net, x), recorded(net, x), values=True)


def test_a_diff_of_long_graphs_finds_one_node():
    def chain(at):
        x = y = weft.ones(2, requires_grad=True)
        for k in range(3000):
            y = (y * 1.0).sin() if k in at else y * 1.0
        return weft.graph.of((y + x).sum())

    found = weft.graph.diff(chain(()), chain((700, 2500)))
    assert [n.name for n in found.added] == ["sin", "sin:2"] and not found.removed
    assert found.first.name == "sin"


# --- watching --------------------------------------------------------------------------


def test_values_are_computed_in_one_run(monkeypatch):
    x, runs = weft.randn(3, 4), []

    class Counted(weft.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            runs.append(1)
            return a.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad

    graphs = []
    for scale in (1.0, 1.5):
        with weft.graph.record() as g:
            y = Counted.apply(x)
            for k in range(20):
                y = (y * scale if k == 11 else y * 1.0).sin()
        graphs.append(g)
    runs.clear()
    found = weft.graph.diff(*graphs, values=True)
    assert len(runs) == 2 and found.parting[0].name == "mul:12"
    monkeypatch.setattr("weft.graph.comparing._LOT", 200)  # few values at a time: the same answer
    assert weft.graph.diff(*graphs, values=True).parting[0].name == "mul:12"
    assert len(runs) > 4


def test_a_diff_in_bfloat16_names_the_first_node_that_is_off(net):
    x = weft.randn(3, 4)
    a = recorded(net, x, values=True)
    low = nn.Sequential(*(type(m)(*shape) for m, shape in zip(net, SHAPES, strict=True)))
    low.load_state_dict(net.state_dict())
    b = recorded(low.bfloat16(), x.bfloat16(), values=True)
    found = weft.graph.diff(a, b, rtol=0.05, atol=0.05)
    assert not found.parting and all("bfloat16" in repr(c) for c in found.changed)
    with weft.no_grad():
        low[2].bias[3] += 4.0
    b = recorded(low, x.bfloat16(), values=True)
    found = weft.graph.diff(a, b, rtol=0.05, atol=0.05)
    assert found.parting[0].name == "2.bias" and "differ by up to 3.99" in found.parting[2]


SHAPES = ((4, 8), (), (8, 8), (), (8, 1))


def test_values_that_are_nan_inf_or_complex_are_told():
    a, b = weft.tensor([1.0, float("nan")]), weft.tensor([3.0, float("nan")])
    z = weft.tensor([1.0 + 1j])
    graphs = []
    for t, factor in ((a, 1j), (b, 2j)):
        with weft.graph.record(values=True) as g:
            t * 1.0, z * factor
        graphs.append(g)
    first, second = graphs
    assert not weft.graph.diff(first, first)
    assert "differ by up to 2 " in repr(weft.graph.diff(first, second))
    assert weft.graph.diff(first.slice_to("mul:2"), second.slice_to("mul:2")).parting is not None


def test_another_result_of_the_same_node_is_a_change():
    x = weft.randn(4, 2)
    graphs = []
    for k in (0, 1):
        with weft.graph.record() as g:
            parts = x.split(2)
            parts[k] * 2
        graphs.append(g)
    (change,) = weft.graph.diff(*graphs).changed
    assert change.reasons == ["input 0 split -> split[1]"]


def test_a_long_difference_is_told_in_part():
    x = weft.randn(2)
    graphs = []
    for op in ("sin", "cos"):
        with weft.graph.record() as g:
            y = x
            for _ in range(300):
                y = getattr(y, op)()
        graphs.append(g)
    found = weft.graph.diff(*graphs)
    assert len(found.changed) == 300
    text = repr(found)
    assert "~ ... and 240 more" in text and len(text.splitlines()) < 70
    assert "300 changed" in text


def test_only_graphs_are_compared(net):
    g = recorded(net, weft.randn(3, 4))
    with pytest.raises(TypeError, match=r"compares graphs, not Tensor; weft.graph.of\(tensor\)"):
        weft.graph.diff(g, weft.ones(2))


def test_watch_tells_when_and_where(net):
    x = weft.randn(3, 4)
    told = []
    with weft.graph.watch(tell=told.append) as w:
        for k in range(6):
            y = net(x)
            y = y.tanh() if k == 3 else y
            y.sum().backward()
    assert w.steps == 6 and [c.step for c in w.changes] == [3, 4] == [c.step for c in told]
    (node,) = w.changes[0].difference.added
    assert node.op == "tanh" and "k == 3" in node.source
    assert "step 3 is not like step 2" in repr(w) and "first divergence: added tanh" in repr(w)
    assert w not in WATCHERS


def test_watch_sees_shapes_and_settings_but_not_values():
    w = weft.ones(4, 4, requires_grad=True)
    with weft.graph.watch() as watch:
        for rows in (2, 2, 3, 3):
            (weft.randn(rows, 4) @ w * float(np.random.rand())).softmax(1).sum().backward()
    assert [c.step for c in watch.changes] == [2]
    with weft.graph.watch() as watch:
        for dim in (0, 0, 1):
            (w * 1.0).softmax(dim).sum().backward()
    assert [c.step for c in watch.changes] == [2]


def test_watch_holds_no_tensors_and_only_this_thread(net):
    import gc
    import weakref

    x = weft.randn(3, 4)
    with weft.graph.watch() as w:
        y = net(x)
        held = weakref.ref(y)
        saved = weakref.ref(y._node.inputs[0])
        y.sum().backward()
        del y
        gc.collect()
        assert held() is None and saved() is None
        worker = threading.Thread(target=lambda: (x.requires_grad_() * 2).sum().backward())
        worker.start()
        worker.join()
    assert w.steps == 1


def test_watch_remembers_structures_that_return(net):
    x = weft.randn(3, 4)
    with weft.graph.watch(keep=3) as w:
        for k in range(20):
            (net(x).tanh() if k % 2 else net(x)).sum().backward()
    assert len(w._known) == 2 and len(w.changes) == 3
    assert all(c.difference is not None for c in w.changes)
