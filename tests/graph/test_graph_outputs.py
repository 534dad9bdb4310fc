"""What a record takes for the outputs of a block, and what it measures."""

from __future__ import annotations

import copy
import pickle

import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.graph import GraphError

both = pytest.mark.parametrize("values", [False, True])


def outputs(graph):
    return [node.name for node in graph.outputs]


@both
def test_the_loss_alone(values):
    net, x, y = nn.Linear(3, 2), weft.randn(4, 3), weft.randn(4, 2)
    with weft.graph.record(values=values) as g:
        loss = F.mse_loss(net(x), y)
    assert outputs(g) == ["mse_loss"] and weft.equal(g.run(), loss)


@both
def test_a_deep_network_has_one_output(values):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net, x = nn.TransformerEncoder(layer, 12), weft.randn(2, 3, 8)
    net.eval()
    with weft.graph.record(values=values) as g:
        out = net(x)
    assert len(g._outputs) == 1 and weft.equal(g.run(), out)
    with weft.graph.record(values=values) as g:
        net(x)
    assert len(g._outputs) == 1 and weft.equal(g.run(), out)


@both
def test_the_loss_and_not_the_logits(values):
    net, x, y = nn.Linear(3, 2), weft.randn(4, 3), weft.tensor([0, 1, 0, 1])
    with weft.graph.record(values=values) as g:
        logits = net(x)
        loss = F.cross_entropy(logits, y)
    assert weft.equal(g.run(), loss)
    (wanted,) = weft.autograd.grad(loss, logits)
    assert weft.allclose(g["linear"].grad, wanted)


@both
def test_a_value_that_a_loop_looks_at(values):
    a = weft.tensor([3.0, 4.0])
    with weft.graph.record(values=values) as g:
        while a.norm() > 1:
            a = a * 0.7
    assert weft.equal(g.run(), a)


@both
def test_without_gradients_and_from_a_function(values):
    def two(x):
        hidden = x.relu()
        return hidden, hidden.sum()

    x = weft.tensor([1.0, -2.0])
    with weft.no_grad(), weft.graph.record(values=values) as g:
        hidden, total = two(x)
    assert outputs(g) == ["sum"] and hidden.sum() == total
    with weft.no_grad(), weft.graph.record(values=values) as g:
        low, high = two(x)[0].min(), x.max()
    assert outputs(g) == ["min", "max"]
    first, second = g.run()
    assert weft.equal(first, low) and weft.equal(second, high)


@both
def test_a_training_step_gives_its_loss(values):
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    optimizer = weft.optim.SGD(net.parameters(), lr=0.1)
    x, total = weft.randn(4, 3), weft.zeros(())
    with weft.graph.record(values=values) as g:
        optimizer.zero_grad()
        out = net(x)
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        largest = out.max()
    assert outputs(g) == ["mean", "max"] and largest.item() >= out.min().item()


@both
def test_what_only_weft_holds_is_no_output(values):
    w = weft.ones(3, requires_grad=True)

    class Square(weft.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return t * t

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0]

    with weft.graph.record(values=values) as g:
        view = (w * 3)[:2]
        out = Square.apply(w * 2).sum()
    assert outputs(g) == ["slice", "sum"] and view.shape == (2,) and out.item() == 12.0


@both
def test_a_tensor_that_the_block_wrote(values):
    x, y = weft.tensor([1.0, 2.0, 3.0]), weft.ones(3)
    with weft.graph.record(values=values) as g:
        summed = weft.empty(3)
        weft.add(x, y, out=summed)
    assert weft.equal(g.run(), summed)
    with weft.graph.record(values=values) as g:
        filled = weft.zeros(3)
        filled[0] = 5
        filled += x
        part = filled[1:]
        filled *= 2
    whole, rest = g.run()
    assert weft.equal(whole, filled) and weft.equal(rest, part)


def test_times_need_a_profile():
    w = weft.ones(3, requires_grad=True)
    for profile in (False, True):
        with weft.graph.record(values=True, profile=profile) as g:
            (w * 2).sum().backward()
        timed = [n for n in g if n.time is not None]
        assert {n.kind for n in timed} == ({"forward", "backward"} if profile else set())


def test_a_number_is_never_taken_for_a_setting():
    x = weft.tensor([1.0, -2.0])
    with weft.graph.record() as g:
        y = x * 3
    for name in ("relu", F.relu, F.softmax):
        with pytest.raises(GraphError, match="mul reads as its input 1, for its setting"):
            g.replace("mul", name)
    assert weft.equal(g.replace("mul", lambda t, *_: F.relu(t)).run(), x.relu())
    assert weft.equal(g.replace("mul", "add").run(), x + 3) and y.shape == (2,)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 3)
        self.tied = self.fc1
        self.layers = nn.ModuleList([self.fc1, nn.Linear(3, 3)])

    def forward(self, x):
        return self.layers[1](self.tied(x))


def test_a_module_goes_by_its_first_name():
    def ops(net):
        with weft.graph.record() as g:
            net(weft.ones(1, 3))
        return [n.name for n in g.find(op="linear")]

    net = Tied()
    for made in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        made.later = made.fc1
        made.fc1 = made.fc1
        assert ops(made) == ["fc1.linear", "layers.1.linear"]
        del made.fc1
        assert ops(made) == ["tied.linear", "layers.1.linear"]


def test_a_module_that_moved_has_its_new_name():
    old, new, part = nn.Module(), nn.Module(), nn.Linear(1, 1)
    old.a = part
    new.b = part
    assert part._scope_name == "a"
    old.a = nn.Linear(1, 1)
    assert part._scope_name == "b"
