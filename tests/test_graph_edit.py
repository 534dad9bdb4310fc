"""Edits give new, checked graphs; random programs with random edits are compared with Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
import weft.nn.functional as F
from graph_programs import BINARY, act, begin, play, programs, same
from weft import nn
from weft.graph import GraphError

quick = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def inputs(seed):
    rng = np.random.default_rng(seed)
    x = weft.tensor(rng.standard_normal((3, 3)))
    return x, weft.tensor(rng.standard_normal((3, 3)), requires_grad=True)


def only(found):
    return found[-1] if isinstance(found, tuple) else found


def fingerprint(graph):
    """All that an edit of another graph must leave alone."""
    return repr(graph), [repr(n.inputs) for n in graph], graph._outputs, dict(graph._specs)


def recorded(steps, x, w, values=False):
    """The graph, its result, and for each step the node that made its value."""
    recorder = weft.graph.record(values=values)
    made = []
    with recorder as g:
        values = begin(x, w)
        for step in steps:
            values.append(act(step, values))
            made.append(recorder.ref(values[-1]))
        out = values[-1]
    return g, out, made


# --- properties ------------------------------------------------------------------------


@quick
@given(programs(writes=True), st.integers(0, 99), st.booleans())
def test_a_replay_is_the_program(steps, seed, values):
    x, w = inputs(seed)
    g, out, made = recorded(steps, x, w, values)
    value = g.slice_to(g._node(made[-1].node)) if made[-1].node in g._specs else g
    results = value.run()
    found = results[made[-1].index] if isinstance(results, tuple) else results
    assert same(found, out)
    z, _ = inputs(seed + 1)
    results = value.run({n.name: z for n in value.inputs if n.name == "x"})
    found = results[made[-1].index] if isinstance(results, tuple) else results
    assert same(found, play(steps, z, w))


@quick
@given(programs(writes=True), st.integers(0, 99), st.booleans())
def test_a_replay_has_the_gradients_of_the_program(steps, seed, values):
    x, w = inputs(seed)
    g, out, _ = recorded([*steps, ("mul", len(steps) + 1, 1)], x, w, values)
    if not out.requires_grad:
        return
    try:
        out.sum().backward()
    except RuntimeError as error:
        # The program overwrote what backward needs; its replay writes nowhere, and can.
        assert "modified by an inplace operation" in str(error)
        only(g.run()).sum().backward()
        return
    mine, w.grad = w.grad, None
    only(g.run()).sum().backward()
    assert same(mine, w.grad)


SHAPE_KEEPING = {
    "gelu": F.gelu,
    "double": lambda a: a * 2.0,
    "twisted": lambda a: (a.t() @ a).tanh(),
    "stopped": lambda a: a.detach().cos(),
    "written": lambda a: a.clone().add_(1.0),
}


@quick
@given(programs(), st.integers(0, 99), st.data())
def test_an_edit_is_the_same_edit_in_python(steps, seed, data):
    x, w = inputs(seed)
    steps = [*steps, ("mm", len(steps) + 1, 1)]
    g, out, made = recorded(steps, x, w, data.draw(st.booleans()))
    before = fingerprint(g)
    k = data.draw(st.integers(0, len(steps) - 1))
    name = data.draw(st.sampled_from(sorted(SHAPE_KEEPING)))
    kind = data.draw(st.sampled_from(["after", "replace", "remove"]))
    change = SHAPE_KEEPING[name]
    node, step = g._node(made[k].node), steps[k]
    single = step[0] in BINARY and step[0] != "where"
    if node.kind != "forward" or node.spec.several or (kind != "after" and not single):
        kind = "after"
    if node.kind != "forward" or node.spec.several or node.id in {m.node for m in made[:k]}:
        return  # the step gave back what was there already
    if kind == "after":
        edited = g.insert_after(node, change)
        edit = lambda step, values, given: change(act(step, values))
    elif kind == "replace":
        edited = g.replace(node, lambda a, b: change(b) - a)
        edit = lambda step, values, given: change(given[1]) - given[0]
    else:
        edited = g.remove(node)
        edit = lambda step, values, given: given[0]
    assert fingerprint(g) == before and edited.undo() is g and edited.history
    expected = play(steps, x, w, {k: edit})
    result = only(edited.run())
    assert same(result, expected)
    if expected.requires_grad:
        result.sum().backward()
        mine, w.grad = w.grad, None
        expected.sum().backward()
        assert same(mine, w.grad)
    assert same(only(edited.undo().run()), out)


@quick
@given(programs(), st.integers(0, 99), st.data())
def test_edits_follow_one_another(steps, seed, data):
    x, w = inputs(seed)
    g, out, _ = recorded(steps, x, w)
    versions = [g]
    for _ in range(4):
        nodes = [n for n in versions[-1] if n.kind == "forward" and not n.spec.several]
        if not nodes:
            return
        node = nodes[data.draw(st.integers(0, len(nodes) - 1))]
        versions.append(versions[-1].insert_after(node, lambda a: a * 1.0))
    values = [only(v.run()) for v in versions]
    assert all(same(v, out) for v in values)
    assert len(versions[-1].history) == len(versions) - 1
    back = versions[-1]
    for version in reversed(versions[:-1]):
        back = back.undo()
        assert back is version
    with pytest.raises(GraphError, match="nothing was edited"):
        back.undo()


BROKEN = {
    "shape": lambda g, n: g.replace(n, lambda *a: a[0][:2, :1].sum(1)),
    "dtype": lambda g, n: g.replace(n, lambda *a: a[0] > 0),
    "no tensor": lambda g, n: g.replace(n, lambda *a: 3),
    "raises": lambda g, n: g.replace(n, lambda *a: 1 / 0),
    "cycle": lambda g, n: g.rewire(n, 0, g.outputs[0]),
    "attribute": lambda g, n: g.set_attrs(n, nonsense=1),
    "input": lambda g, n: g.insert_before(n, F.relu, input=7),
    "several": lambda g, n: g.replace(n, lambda *a: (a[0], a[0])),
}


@quick
@given(programs(), st.integers(0, 99), st.data())
def test_an_invalid_edit_changes_nothing(steps, seed, data):
    x, w = inputs(seed)
    g, out, _ = recorded([*steps, ("mm", len(steps) + 1, 1)], x, w)
    nodes = [n for n in g if n.kind == "forward" and not n.spec.several]
    node = nodes[data.draw(st.integers(0, len(nodes) - 1))]
    kind = data.draw(st.sampled_from(sorted(BROKEN)))
    before = fingerprint(g)
    try:
        edited = BROKEN[kind](g, node)
    except GraphError as error:
        assert "test_graph_edit.py" in str(error)
    else:
        # Some of these are fine at some nodes; then the new graph must hold together.
        assert kind in ("shape", "dtype", "cycle")
        edited.run()
    assert fingerprint(g) == before
    assert same(only(g.run()), out)


@quick
@given(programs(writes=True), st.integers(0, 99))
def test_saved_and_loaded_it_gives_the_same_bits(tmp_path_factory, steps, seed):
    x, w = inputs(seed)
    g, _, _ = recorded(steps, x, w)
    path = tmp_path_factory.mktemp("graph") / "g.weft"
    g.save(path)
    again = weft.graph.load(path)
    mine, theirs = g.run(), again.run()
    mine, theirs = (v if isinstance(v, tuple) else (v,) for v in (mine, theirs))
    assert len(mine) == len(theirs) and all(map(same, mine, theirs))
    assert [n.name for n in again] == [n.name for n in g]
    assert not weft.graph.diff(g, again)


# --- each edit, by example -------------------------------------------------------------


@pytest.fixture
def net():
    weft.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


@pytest.fixture
def graph(net):
    x = weft.randn(5, 4)
    with weft.graph.record() as g:
        y = net(x)
    assert same(g.run(), y)
    return g


def test_replace_by_name_op_function_and_module(net, graph):
    x = graph["x"].value
    expected = net[4](net[3](net[2](F.gelu(net[0](x)))))
    for given_ in ("gelu", F.gelu, nn.GELU(), weft.core.dispatch.REGISTRY["gelu"]):
        assert same(graph.replace("1.relu", given_).run(), expected)
    linear = nn.Linear(8, 8)
    edited = graph.replace("1.relu", linear)
    edited.run().sum().backward()
    assert linear.weight.grad is not None and net[0].weight.grad is not None
    with pytest.raises(GraphError, match="no function or op is called 'nope'"):
        graph.replace("1.relu", "nope")
    with pytest.raises(TypeError, match="takes a function"):
        graph.replace("1.relu", 3)


def test_insert_before_one_input(net, graph):
    edited = graph.insert_before("2.linear", lambda w: w * 0.0, input="weight")
    assert edited["2.mul"].users == (edited["2.linear"],)
    x = graph["x"].value
    expected = net[4](net[3](F.linear(net[1](net[0](x)), net[2].weight * 0.0, net[2].bias)))
    assert same(edited.run(), expected)


def test_remove_and_rewire(net, graph):
    x = graph["x"].value
    assert same(graph.remove("3.relu").run(), net[4](net[2](net[1](net[0](x)))))
    skipped = graph.rewire("4.linear", 0, "1.relu")
    assert same(skipped.run(), net[4](net[1](net[0](x))))
    assert "2.linear" not in skipped  # nothing needs it any more
    fixed = graph.rewire("4.linear", 0, weft.ones(5, 8))
    assert same(fixed.run(), net[4](weft.ones(5, 8)))
    with pytest.raises(GraphError, match=r"'1.relu' would read its own result"):
        graph.rewire("1.relu", 0, "3.relu")
    with pytest.raises(GraphError, match=r"'2.linear'.*does not take float32\[5, 4\]"):
        graph.remove("0.linear")


def test_set_attrs():
    x = weft.randn(3, 3)
    with weft.graph.record() as g:
        x.softmax(1)
    assert same(g.set_attrs("softmax", dim=0).run(), x.softmax(0))
    with pytest.raises(GraphError, match=r"no setting 'dims'; it has \['dim'\]"):
        g.set_attrs("softmax", dims=0)
    with pytest.raises(GraphError, match="softmax"):
        g.set_attrs("softmax", dim=5)


def test_a_change_of_shape_is_carried_on():
    x, w = weft.randn(4, 6), weft.randn(6, 2)
    with weft.graph.record() as g:
        y = (x.relu() @ w).sum(1)
    assert y.shape == (4,)
    narrower = g.replace("relu", lambda a: a[:2])
    assert tuple(narrower["mm"].shape) == (2, 2) and tuple(narrower["sum"].shape) == (2,)
    assert same(narrower.run(), (x[:2] @ w).sum(1))
    with pytest.raises(
        GraphError, match=r"'mm' .*\(x.relu\(\) @ w\).*does not take float32\[4, 3\]"
    ):
        g.replace("relu", lambda a: a[:, :3])
    with pytest.raises(GraphError, match="reads float64 beside float32, and mm does not mix"):
        g.replace("relu", lambda a: a.double())


def test_splice(net, graph):
    x = weft.randn(5, 8)
    other = nn.Sequential(nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 8))
    with weft.graph.record() as part:
        other(x)
    part = part.subgraph("x", part.outputs)
    edited = graph.splice(part, {"x": "1.relu"}, {"2.linear": "2.linear"})
    inner = graph["x"].value
    assert same(edited.run(), net[4](net[3](other(net[1](net[0](inner))))))
    edited.run().sum().backward()
    assert other[0].weight.grad is not None
    with pytest.raises(GraphError, match=r"its inputs \['x'\] are not given"):
        graph.splice(part, {}, {"2.linear": "2.linear"})


def test_leaves_and_backward_nodes_are_refused(net):
    x = weft.randn(5, 4)
    with weft.graph.record() as g:
        net(x).sum().backward()
    with pytest.raises(GraphError, match="'x' is a leaf"):
        g.remove("x")
    with pytest.raises(GraphError, match=r"'1\.relu\.backward' is a backward node; edit the"):
        g.replace("1.relu.backward", F.gelu)
    edited = g.replace("1.relu", F.gelu)
    assert not edited.find(kind="backward")
    doubled = g.insert_after("x", lambda a: a * 2)
    assert same(doubled.run(), net(x * 2).sum())


def test_nodes_of_an_older_version_still_mean_the_same(graph):
    node = graph["3.relu"]
    edited = graph.replace("1.relu", F.gelu)
    assert edited.replace(node, F.tanh).find(op="relu") == []
    with weft.graph.record() as other:
        weft.ones(2).relu()
    with pytest.raises(KeyError, match="no node of this graph"):
        other.replace(node, F.gelu)


def test_only_what_changed_runs_where_values_are_kept(net):
    x = weft.randn(5, 4)
    with weft.graph.record(values=True) as g:
        net(x)
    edited = g.replace("3.relu", F.gelu)
    with weft.graph.record() as again:
        out = edited.run()
    assert [n.op for n in again.find(kind="forward")] == ["gelu", "linear_with_bias"]
    out.sum().backward()
    assert net[0].weight.grad is not None  # and the history goes all the way
    with weft.no_grad():
        net[0].weight.mul_(2)
    with weft.graph.record() as again:
        assert same(edited.run(), net[4](F.gelu(net[2](net[1](net[0](x))))))
    assert len(again.find(op="linear*")) == 6


def test_training_goes_on_from_an_edited_graph(net, graph):
    edited = graph.replace("1.relu", F.gelu).replace("3.relu", F.gelu)
    target = weft.randn(5, 1)
    optimizer = weft.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.mse_loss(edited.run(), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


# --- patterns --------------------------------------------------------------------------


def test_rewrite(net, graph):
    x = graph["x"].value
    edited = graph.rewrite(
        lambda x, w, b: F.relu(F.linear(x, w, b)), lambda x, w, b: F.gelu(F.linear(x, w, b))
    )
    assert edited.history == ["rewrite <lambda> in 2 places"]
    assert same(edited.run(), net[4](F.gelu(net[2](F.gelu(net[0](x))))))
    assert graph.rewrite(lambda x: x.sigmoid(), lambda x: x) is graph


def test_rewrite_minds_settings_numbers_and_repeats():
    x, y = weft.randn(3, 4), weft.randn(3, 4)
    with weft.graph.record() as g:
        (x.softmax(-1) * 2 + x.softmax(0) * 3 + y * y + x * y).sum()
    changed = g.rewrite(lambda t: t.softmax(-1) * 2, lambda t: t.tanh())
    assert [n.op for n in changed.find(op="softmax")] == ["softmax"]
    assert changed["softmax"].attrs["dim"] == 0
    any_factor = g.rewrite(lambda t, k: t.softmax(-1) * k, lambda t, k: t * k)
    assert any_factor.history == ["rewrite <lambda> in 1 places"]
    assert same(any_factor.run(), (x * 2 + x.softmax(0) * 3 + y * y + x * y).sum())
    squares = g.rewrite(lambda t: t * t, lambda t: t.square())
    assert len(squares.find(op="square")) == 1 and squares["square"].inputs[0].name == "y"


def test_rewrite_refuses_what_it_can_not_do(graph):
    with pytest.raises(GraphError, match=r"takes \['z'\], which the pattern has not"):
        graph.rewrite(lambda x: x.relu(), lambda x, z: x)
    with pytest.raises(GraphError, match="could not be run"):
        graph.rewrite(lambda x: x.no_such_method(), lambda x: x)
    with pytest.raises(GraphError, match="needs a placeholder"):
        graph.rewrite(lambda: weft.ones(2), lambda: weft.ones(2))
