"""Questions to a graph, and the answers: what values were, what a block gave, why a gradient."""

from __future__ import annotations

import functools
from collections import deque

import pytest

import owners_module
import weft
import weft.nn.functional as F
from weft import nn
from weft.graph import GraphError, diff, first_bad, why


@pytest.fixture
def training():
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = weft.optim.SGD(net.parameters(), lr=0.1)
    x = weft.randn(8, 2)

    def step(values=True):
        with weft.graph.record(values=values) as g:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
            optimizer.step()
        return g, loss

    return net, step


# --- values ----------------------------------------------------------------------------


def test_a_record_shows_parameters_as_they_were_when_they_were_read(training):
    net, step = training
    before = {name: t.detach().clone() for name, t in net.state_dict().items()}
    g, _ = step()
    after = net.state_dict()
    for name in ("0.weight", "3.bias", "1.running_mean", "1.num_batches_tracked"):
        assert weft.equal(g[name].value, before[name]), name
        assert not weft.equal(before[name], after[name]), name
    assert weft.equal(g["0.linear"].value, F.linear(g["x"].value, *(
        before[f"0.{n}"] for n in ("weight", "bias"))))  # fmt: skip
    assert weft.equal(g.run(), net(g["x"].value).square().mean())  # a run has those of today


def test_two_steps_part_at_the_first_parameter(training):
    _, step = training
    a, b = step()[0], step()[0]
    assert [n.name for n in diff(a, b).parting[:2]] == ["0.weight", "0.weight"]
    assert not diff(a, a)


def test_gradients_are_compared_too():
    x = weft.ones(3, requires_grad=True)

    def step(seed, scale=1.0):
        x.grad = None
        with weft.graph.record(values=True) as g:
            y = x * 2
            y.sum().backward(weft.tensor(seed))
        return g

    found = diff(step(1.0), step(2.0))
    assert found.parting[0].name == "sum" and "gradients part at sum" in repr(found)
    assert not diff(step(2.0), step(2.0))
    first = step(1.0)
    handle = x.register_hook(lambda g: g * 3)
    found = diff(first, step(1.0))
    handle.remove()
    assert found.parting[0].name == "x" and "up to 4" in repr(found)


# --- what a block gave -----------------------------------------------------------------


def test_clipped_gradients_are_no_outputs(training):
    _, step = training
    g, loss = step(values=False)
    assert [n.name for n in g.outputs] == ["mean"]
    assert g.run().shape == loss.shape


def test_a_gradient_that_a_variable_holds_is_an_output():
    w = weft.ones(2, requires_grad=True)
    with weft.graph.record() as g:
        (w * w).sum().backward()
        scaled = w.grad.mul_(0.5)
    assert [n.op for n in g.outputs] == ["sum", "mul"]
    assert weft.equal(g.run()[1], scaled)


def test_outputs_are_the_oldest_first():
    w = weft.ones(2, requires_grad=True)
    with weft.graph.record() as g:
        first = (w * 3).sum()
        loss = w.exp().sum()
        last = w.sin()
        loss.backward()
    assert [n.id for n in g.outputs] == sorted(n.id for n in g.outputs)
    for found, expected in zip(g.run(), (first, loss, last), strict=True):
        assert weft.equal(found, expected)


# --- why -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["detach", "data"])
def test_why_names_the_line_of_detach(how):
    w, other = weft.ones(3, requires_grad=True), weft.ones(3, requires_grad=True)
    with weft.graph.record() as g:
        h = w * 2
        cut = h.detach() if how == "detach" else h.data  # this is the line
        moved = cut + 1
        (moved * other).sum().backward()
    found = why(w, g)
    assert found.verdict == "none" and "this is the line" in found.node.source


def test_why_does_not_call_a_sum_of_softmax_saturated():
    x = weft.zeros(4, requires_grad=True)
    loss = x.softmax(0).sum()
    loss.backward(retain_graph=True)
    found = why(x, loss)
    assert found.verdict == "zero" and found.node.op == "softmax"
    assert "sums to one" in found.text and "saturated" not in found.text
    x = weft.tensor([100.0, -100.0, -100.0], requires_grad=True)
    loss = (x.softmax(0) * weft.arange(3.0)).sum()
    loss.backward(retain_graph=True)
    assert "saturated" in why(x, loss).text


def test_why_finds_a_gradient_that_vanishes():
    x = weft.ones(4, requires_grad=True)
    loss = (x.sin() * 1e-25).sum()
    loss.backward(retain_graph=True)
    found = why(x, loss)
    assert found.verdict == "tiny" and found.node.op == "mul" and "1e-25" in found.text
    x.grad = None
    loss = x.sin().sum() * 1e-3
    loss.backward(retain_graph=True)
    assert why(x, loss).verdict == "fine"


def test_constants_that_play_no_part_may_be_gone():
    x = weft.tensor([1.0, -1.0], requires_grad=True)
    loss = (x.log() + weft.ones(2)).sum()
    loss.backward()
    found = first_bad(loss)
    assert found.node.op == "log" and found.what == "NaN"
    x = weft.tensor([1.0, 0.0], requires_grad=True)
    loss = (x.sqrt() + weft.ones(2)).sum()
    loss.backward()
    found = why(x, loss)
    assert found.verdict == "inf" and found.node.op == "sqrt"


def test_constants_that_take_part_are_said_to_be_gone():
    x = weft.tensor([1.0, 0.0], requires_grad=True)
    loss = (x.sqrt() * weft.zeros(2)).sum()
    loss.backward()
    found = why(x, loss)
    assert found.verdict == "nan" and "can't be named" in found.text and found.node is None
    loss = (x + weft.full((2,), float("inf"))).sum()
    loss.backward()
    with pytest.raises(GraphError, match=r"first_bad can't run 'constant'.* gone"):
        first_bad(loss)


# --- owners ----------------------------------------------------------------------------


class Slotted:
    __slots__ = ("last",)


def test_owners_look_into_everything():
    net = nn.Linear(10, 10)

    def loss():
        return net(weft.ones(5, 10)).exp().sum()

    def made():
        kept = [loss(), loss()]
        return lambda: kept

    recent = deque([loss(), loss()], maxlen=3)
    slotted = Slotted()
    slotted.last = loss()
    closed = made()
    partial = functools.partial(print, loss())

    def defaulted(x=loss()):
        return x

    owners_module.cache = [loss(), loss()]
    found = weft.memory.owners()
    owners_module.cache = []
    assert recent and closed and partial and defaulted
    for name in (
        *("recent[1]", "slotted.last", "closed.kept[0]", "partial.args[0]"),
        *("defaulted.__defaults__[0]", "owners_module.cache[1]"),
    ):
        assert found[name].nodes == 3, name
    leaks = "\n".join(found.leaks)
    assert "`recent` holds 2" in leaks and "`owners_module.cache` holds 2" in leaks
    with pytest.raises(KeyError) as error:
        found["nothing"]
    assert str(error.value).startswith("no name 'nothing' keeps")


def test_owners_say_what_they_take():
    with pytest.raises(TypeError, match=r"must be an int, not Tensor; owners\(\) lists every name"):
        weft.memory.owners(weft.ones(3))


def test_owners_find_a_sum_that_grows():
    net = nn.Linear(10, 10)
    total, mean = weft.zeros(()), 0.0
    for _ in range(4):
        loss = net(weft.ones(5, 10)).exp().sum()
        loss.backward()
        total = total + loss
        mean += loss.item()
    leaks = weft.memory.owners().leaks
    assert [text for text in leaks if text.startswith("`total` drags the graphs of 5 steps")]
    assert not [text for text in leaks if text.startswith(("`loss`", "`mean`"))]


# --- errors ----------------------------------------------------------------------------


def test_a_missing_node_is_told_in_lines():
    with weft.graph.record() as g:
        weft.ones(2).exp()
    with pytest.raises(KeyError) as error:
        g["nope"]
    assert "\n  at " in str(error.value) and "\\n" not in str(error.value)


def test_an_error_of_a_run_names_the_node_and_its_line():
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU())
    x = weft.ones(3, 2)
    with weft.graph.record() as g:
        net(x)  # the line of the program
    with pytest.raises(RuntimeError) as error:
        g.run(x=weft.ones(3, 5))
    assert "in node '0.linear' of the graph" in str(error.value)
    assert "the line of the program" in str(error.value)


def test_a_tensor_given_to_run_without_a_name_is_told_how():
    x = weft.ones(3)
    with weft.graph.record() as g:
        (x * 2).sum()
    with pytest.raises(TypeError, match=r"by name, as run\(x=.*inputs are \['x'\]"):
        g.run(weft.ones(3))
