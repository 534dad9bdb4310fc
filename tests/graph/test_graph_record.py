"""Looking at what ran: records, the graph behind a tensor, names, queries, replays."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from graph_programs import same
from weft import nn
from weft.core.modes import MODES
from weft.graph import recording


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.BatchNorm1d(2 * width)

    def forward(self, x):
        return x + self.fc2(F.relu(self.norm(self.fc1(x))))


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layers = nn.ModuleList([Block(width), Block(width)])
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


@pytest.fixture
def trained():
    weft.manual_seed(0)
    net = Net()
    optimizer = weft.optim.Adam(net.parameters(), lr=0.01)
    x, y = weft.randn(5, 4), weft.randn(5, 1)
    with weft.graph.record() as graph:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
    return net, graph, loss


def test_names_come_from_modules_ops_and_variables(trained):
    _, g, _ = trained
    assert "layers.0.relu" in g and "layers.1.fc2.linear" in g
    assert {n.name for n in g.inputs} == {"x", "y"}
    assert "layers.0.fc1.weight" in {n.name for n in g.parameters}
    assert g["layers.0.norm.running_mean"].kind == "constant"
    assert g.modules["layers.0.fc1"] == "Linear" and g.modules["layers.1"] == "Block"


def test_a_second_use_gets_a_number():
    fc, x = nn.Linear(3, 3), weft.randn(2, 3)
    holder = nn.Sequential()
    holder.add_module("fc", fc)
    with weft.graph.record() as g:
        holder(holder(x))
    assert [n.name for n in g.find(op="linear")] == ["fc.linear", "fc.linear:2"]
    assert g["fc.linear:2"].inputs[0] == g["fc.linear"]


def test_forward_backward_and_optimizer_are_linked(trained):
    net, g, _ = trained
    relu = g["layers.0.relu"]
    assert [n.op for n in relu.backward] == ["ReluBackward0"]
    assert relu.backward[0].forward == relu
    weight = g["layers.0.fc1.weight"]
    (update,) = weight.optimizer
    assert update.kind == "optimizer" and update.op == "Adam" and update.forward == weight
    assert update.inputs[:2] == (weight, g["layers.0.fc1.weight.grad"])
    assert [n.name for n in update.inputs[2:]] == [
        f"layers.0.fc1.weight.{name}" for name in ("exp_avg", "exp_avg_sq", "step")
    ]
    assert {n.kind for n in update.inputs[2:]} == {"state"}
    assert update.attrs["lr"] == 0.01
    assert len(g.find(kind="optimizer")) == len(list(net.parameters()))
    back = g["layers.0.fc2.linear.backward"]
    assert back.inputs[0] == g["layers.0.add.backward"]
    assert g["layers.0.fc1.weight.grad"].inputs == (g["layers.0.fc1.linear.backward"],)


def test_what_a_node_tells(trained):
    _, g, _ = trained
    node = g["layers.0.fc1.linear"]
    assert (
        node.op == "linear_with_bias" and node.kind == "forward" and node.module == "layers.0.fc1"
    )
    assert tuple(node.shape) == (5, 8) and node.dtype is weft.float32
    assert node.bytes == 5 * 8 * 4 and node.flops == 2 * 5 * 8 * 4
    assert "test_graph_record.py" in node.source and "self.fc1(x)" in node.source
    norm = "layers.0.norm.batch_norm"
    assert [n.name for n in node.users] == [norm, f"{norm}.backward"]  # which saved it
    assert node.time is None and repr(node) == "<layers.0.fc1.linear float32[5, 8]>"


def test_find(trained):
    _, g, _ = trained
    assert [n.name for n in g.find(op="relu")] == ["layers.0.relu", "layers.1.relu"]
    assert [n.name for n in g.find(op="relu", module="layers.1")] == ["layers.1.relu"]
    assert {n.module for n in g.find(op="linear*", module="layers.*.fc1")} == {
        "layers.0.fc1",
        "layers.1.fc1",
    }
    big = g.find(kind="forward", where=lambda n: n.bytes >= 160)
    assert big and all(n.bytes >= 160 for n in big)
    with pytest.raises(KeyError, match=r"no node .*layers.0.rel.*layers.0.relu"):
        g["layers.0.rel"]


def test_the_table_folds_by_module(trained):
    _, g, _ = trained
    folded, full = g.table(depth=1), g.table(depth=9, width=400)
    assert "layers.*" in folded and "layers.0.fc1.*" not in folded
    assert len(folded.splitlines()) < 30 < len(full.splitlines())
    assert "layers.0.relu" in repr(g) and "122 nodes, modules folded below depth" in repr(g)
    assert full.splitlines()[-1] == "122 nodes"
    head = full.splitlines()[0].split()
    assert head == ["name", "op", "result", "bytes", "from", "module", "line"]


def test_ancestors_descendants_and_slices(trained):
    _, g, _ = trained
    names = {n.name for n in g.ancestors("layers.0.relu")}
    assert names == {
        "x", "layers.0.fc1.weight", "layers.0.fc1.bias", "layers.0.fc1.linear",
        "layers.0.norm.weight", "layers.0.norm.bias", "layers.0.norm.batch_norm",
    }  # fmt: skip
    assert "mse_loss" in {n.name for n in g.descendants("layers.1.relu")}
    part = g.slice_to("layers.0.relu")
    assert [n.name for n in part.outputs] == ["layers.0.relu"] and len(part) == 8
    assert part["layers.0.relu"].users == ()


def test_a_subgraph_is_a_function(trained):
    net, g, _ = trained
    part = g.subgraph("layers.0.add", "out.linear")
    x = weft.randn(3, 4)
    assert same(part(x), net.out(net.layers[1](x)))
    assert same(part.run({"layers.0.add": x}), part(x))
    with pytest.raises(ValueError, match=r"depend on \['x'\]"):
        g.subgraph("layers.0.relu", "layers.0.add")
    with pytest.raises(ValueError, match="not given"):
        part.run()
    with pytest.raises(TypeError, match="has 1 inputs"):
        part(x, x)


def test_a_replay_gives_the_loss_and_trains(trained):
    net, g, loss = trained
    again = g.run()
    net.zero_grad()
    again.backward()
    grads = [p.grad.clone() for p in net.parameters()]
    x, y = g["x"].value, g["y"].value
    net.zero_grad()
    direct = F.mse_loss(net(x), y)
    direct.backward()
    assert same(again, direct)
    assert all(same(a, p.grad) for a, p in zip(grads, net.parameters(), strict=True))
    assert not same(again, loss)  # parameters are read as they are now, after the step


def test_running_statistics_move_only_when_asked(trained):
    net, g, _ = trained
    norm = net.layers[0].norm
    before = norm.running_mean.clone()
    g.run()
    assert same(norm.running_mean, before)
    g.run(update=True)
    assert not same(norm.running_mean, before)


def test_other_inputs(trained):
    net, g, _ = trained
    x, y = weft.randn(5, 4), weft.randn(5, 1)
    assert same(g.run(x=x, y=y), F.mse_loss(net(x), y))
    assert same(g.run({"out.linear": y}, y=y), weft.tensor(0.0))
    with pytest.raises(weft.graph.GraphError, match="is float32 in this graph, not float64"):
        g.run(x=x.double())
    with pytest.raises(KeyError, match="no node 'z'"):
        g.run(z=x)


# --- writes become values --------------------------------------------------------------


def in_place_chain(x):
    y = x * 2
    row = y[0]
    row.add_(1)
    y[1:3] = 5.0
    return y + row


def through_detach(x):
    total = weft.zeros(3)
    total += x[0]
    total.mul_(2)
    total.detach().add_(1)
    return total * 1


def through_data(x):
    y = x.exp()
    y.data.mul_(3)
    return y.sum(0)


def views_of_views(x):
    y = x.clone()
    columns = y.t()
    columns[0, 0] = 7.0
    part = columns[1:]
    part[0].mul_(3)
    return y.sum(0) + columns.sum(1) + part.sum()


def reshaped_in_place(x):
    y = x.clone()
    y.unsqueeze_(0)
    y.relu_()
    y.squeeze_()
    y.transpose_(0, 1)
    return y.sum(1)


def large_in_place(x):
    y = x.repeat(64, 512)
    y.neg_()
    y.exp_()
    return y.mean(1)


def by_out(x):
    out = weft.empty(4, 3)
    weft.add(x, x, out=out)
    return out * 2


def masked(x):
    y = x.clone()
    y[y > 0] = -1.0
    y[weft.tensor([0, 2])] += 10.0
    return y[y < 0].sum() + y.sum()


def casts(x):
    whole = weft.zeros(4, 3, dtype=weft.float64)
    whole.copy_(x)
    whole.add_(x)
    return whole.float() + whole.sum()


def filled(x):
    y = weft.empty(4, 3)
    y.zero_()
    y.fill_(2)
    y[0].copy_(x[1])
    return y * x


def drawn(x):
    noise = weft.empty(4, 3).normal_()
    return F.dropout(x, 0.5) * noise + weft.rand(4, 3)


def unknown_writer(x):
    y = x.clone()
    y.apply_(lambda v: v * 2)
    return y + 1


def several_results(x):
    a, b = x.split(2)
    values, places = x.max(1)
    return a.sum() + b[0] + values.sum() + places.sum()


PROGRAMS = [
    in_place_chain, through_detach, through_data, views_of_views, reshaped_in_place,
    large_in_place, by_out, masked, casts, filled, drawn, unknown_writer, several_results,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_writes_replay(program):
    weft.manual_seed(1)
    x = weft.randn(4, 3)
    start = x.clone()
    with weft.graph.record() as g:
        out = program(x)
    again = g.run()
    assert same(again[0] if isinstance(again, tuple) else again, out)
    assert same(x, start)  # and a replay writes nowhere
    assert all(g.value(n) is not None for n in g if n.kind == "forward")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_writes_replay_on_other_values(program):
    if program in (drawn, unknown_writer):
        pytest.skip("what was drawn, or written by Python, is a constant of the record")
    x, z = weft.randn(4, 3), weft.randn(4, 3)
    with weft.graph.record() as g:
        program(x)
    assert [n.name for n in g.inputs] == ["x"]
    again = g.run(x=z)
    again = again[0] if isinstance(again, tuple) else again
    assert same(again, program(z))


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize(
    "program",
    [in_place_chain, large_in_place, views_of_views, masked, several_results],
    ids=lambda f: f.__name__,
)
def test_gradients_of_a_replay(program, values):
    w = weft.randn(4, 3, requires_grad=True)
    with weft.graph.record(values=values) as g:
        program(w * 1).sum()
    g.run().backward()
    mine, w.grad = w.grad, None
    program(w * 1).sum().backward()
    assert same(mine, w.grad)


def test_kept_values_are_those_of_their_time():
    x = weft.tensor([1.0, 2.0])
    with weft.graph.record(values=True) as g:
        y = x * 2
        y.add_(10)
        y[0] = 0.0
    assert g["mul"].value.tolist() == [2.0, 4.0]
    assert g["add"].value.tolist() == [12.0, 14.0]
    assert y.tolist() == [0.0, 14.0]


def test_kept_values_do_not_follow_the_parameters():
    w = weft.ones(2, requires_grad=True)
    optimizer = weft.optim.SGD([w], lr=1.0)
    with weft.graph.record(values=True) as g:
        y = w * 3
        y.add_(1)
        y[0] = 7.0
        y.sum().backward()
        optimizer.step()
    assert w.tolist() != [1.0, 1.0]
    assert g["mul"].value.tolist() == [3.0, 3.0] and g["add"].value.tolist() == [4.0, 4.0]
    assert g["copy_slices"].value.tolist() == [7.0, 4.0]
    assert g["sum"].value.item() == 11.0 != g.run().item()


def test_detach_and_no_grad_stay_what_they_were():
    w = weft.randn(3, requires_grad=True)
    with weft.graph.record() as g:
        with weft.no_grad():
            scale = w * 2
        loss = (w * scale + w.detach() * 5).sum()
    g.run().backward()
    mine, w.grad = w.grad, None
    loss.backward()
    assert same(mine, w.grad)


def test_a_gradient_is_a_value_like_any_other():
    x, w = weft.randn(4, 3), weft.randn(3, 2, requires_grad=True)

    def sgd(x):
        (x @ w).pow(2).sum().backward()
        with weft.no_grad():
            moved = w - 0.1 * w.grad
        w.grad = None
        return (x @ moved).sum()

    with weft.graph.record() as g:
        out = sgd(x)
    assert g["mul"].inputs[0] == g["w.grad"]
    assert same(g.run()[-1], out)
    z = weft.randn(4, 3)
    assert same(g.run(x=z)[-1], sgd(z))


def test_double_backward_is_recorded_as_ops():
    x, w = weft.randn(4, 3), weft.randn(3, 2, requires_grad=True)

    def penalty(x):
        (g,) = weft.autograd.grad((x @ w).pow(3).sum(), w, create_graph=True)
        return (g * g).sum()

    with weft.graph.record() as g:
        out = penalty(x)
    assert same(g.run(), out)
    g.run().backward()
    mine, w.grad = w.grad, None
    penalty(x).backward()
    assert np.allclose(mine.numpy(), w.grad.numpy(), rtol=1e-6)


def test_autograd_grad_gives_values():
    x, w = weft.randn(4, 3), weft.randn(3, 2, requires_grad=True)
    with weft.graph.record() as g:
        (grad,) = weft.autograd.grad((x @ w).pow(3).sum(), w)
        out = (grad * grad).sum()
    z = weft.randn(4, 3)
    assert same(g.run(), out)
    (grad,) = weft.autograd.grad((z @ w).pow(3).sum(), w)
    assert same(g.run(x=z), (grad * grad).sum())


def test_a_custom_function_keeps_its_own_backward():
    class Passing(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x > 0).float()

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    w = weft.tensor([1.0, -1.0], requires_grad=True)
    with weft.graph.record() as g:
        (Passing.apply(w) * 2).sum()
    assert g["Passing"].inputs[0] == g["w"]
    g.run().backward()
    assert w.grad.tolist() == [6.0, 6.0]


def test_modules_with_cells_and_attention():
    lstm, attention = nn.LSTM(3, 5, 2), nn.MultiheadAttention(4, 2)
    x, q = weft.randn(6, 2, 3), weft.randn(3, 2, 4)
    with weft.graph.record() as g:
        y = lstm(x)[0]
        z = attention(q, q, q)[0]
    outs = g.run()
    assert any(same(o, y) for o in outs) and any(same(o, z) for o in outs)
    assert "attention.out_proj.weight" in g and "lstm.weight_ih_l1" in g


# --- what a record costs and holds -----------------------------------------------------


def test_values_are_not_kept_unless_asked():
    x = weft.randn(50, 50)
    with weft.graph.record() as g:
        y = x * 2
        gone = weakref.ref(y._a)
        y = y + 1
        del y
    gc.collect()
    assert gone() is None and not g._kept
    with weft.graph.record(values=True) as g:
        y = x * 2
        held = weakref.ref(y._a)
        del y
    assert held() is not None and same(g["mul"].value, x * 2)
    g.release()
    assert held() is None and len(g) == 0 and repr(g) == "<a released graph>"


def test_release_frees_what_autograd_saved():
    w = weft.randn(50, 50, requires_grad=True)
    with weft.graph.record(values=True) as g:
        loss = (w.exp() * 2).sum()
    saved = weakref.ref(loss._node.inputs[0].inputs[0].saved[0])
    g.release()
    gc.collect()
    assert saved() is None
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("kind", ["record", "of"])
def test_release_destroys_a_live_graph(kind):
    w = weft.randn(50, 50, requires_grad=True)
    with weft.graph.record() as g:
        loss = (w.exp() * 2).sum()
    if kind == "of":
        g = weft.graph.of(loss)
    saved = weakref.ref(loss._node.inputs[0].inputs[0].saved[0])
    assert saved() is not None
    g.release()
    assert saved() is None
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_profile_takes_times():
    x = weft.randn(30, 30, requires_grad=True)
    with weft.graph.record(profile=True) as g:
        (x @ x).sum().backward()
    assert g["mm"].time > 0 and g["mm"].backward[0].time > 0


def test_kept_gradients():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with weft.graph.record(values=True) as g:
        (x.exp() * 3).sum().backward()
    assert g["exp"].grad.tolist() == [3.0, 3.0]
    assert same(g["x"].grad, x.grad)
    with weft.graph.record() as g:
        (x.exp() * 3).sum().backward()
    assert g["exp"].grad.tolist() == [3.0, 3.0]  # computed again


def test_an_error_in_the_block_leaves_nothing_on():
    mode = MODES.now.mode
    with pytest.raises(ZeroDivisionError), weft.graph.record() as g:
        weft.ones(2) * 2
        raise ZeroDivisionError
    assert MODES.now.mode is mode and MODES.now.recorders == ()
    assert "mul" in g


def test_other_threads_are_not_recorded():
    x = weft.ones(2)
    with weft.graph.record() as g:
        worker = threading.Thread(target=lambda: x * 3)
        worker.start()
        worker.join()
        x + 1
    assert [n.op for n in g.find(kind="forward")] == ["add"]


def test_records_nest():
    x = weft.ones(2)
    with weft.graph.record() as outer:
        x + 1
        with weft.graph.record() as inner:
            x * 2
    assert [n.op for n in outer.find(kind="forward")] == ["add", "mul"]
    assert [n.op for n in inner.find(kind="forward")] == ["mul"]


def test_an_empty_block_and_zero_sizes():
    with weft.graph.record() as g:
        pass
    assert len(g) == 0 and repr(g) == "<an empty graph>" and g.outputs == ()
    x = weft.zeros(0, 3)
    with weft.graph.record(values=True) as g:
        y = (x * 2).sum()
    assert same(g.run(), y) and g["mul"].bytes == 0


def test_a_closure_of_the_optimizer_is_recorded():
    w = weft.ones(2, requires_grad=True)
    optimizer = weft.optim.LBFGS([w], lr=0.1, max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with weft.graph.record() as g:
        optimizer.step(closure)
    assert len(g.find(op="mul")) >= 2
    assert [n.op for n in g.find(kind="optimizer")] == ["LBFGS"]


# --- the graph behind a tensor ---------------------------------------------------------


def test_of_names_leaves_and_runs():
    net, x, y = Net(), weft.randn(5, 4), weft.randn(5, 1)
    loss = F.mse_loss(net(x), y)
    g = weft.graph.of(loss)
    assert {"x", "y", "layers.0.fc1.weight", "layers.1.relu"} <= set(g._names().values())
    assert same(g.run(), loss)
    named = weft.graph.of(loss, model=net)
    assert {n.name for n in named.parameters} == {n for n, _ in net.named_parameters()}


def test_of_holds_leaves_weakly_and_says_when_they_are_gone():
    x = weft.randn(3, requires_grad=True)
    loss = (x + weft.ones(3)).sum()
    g = weft.graph.of(loss)
    with pytest.raises(weft.graph.GraphError, match="'constant' is gone"):
        g.run()
    assert same(g.run({"constant": weft.ones(3)}), loss)
    recovered = weft.graph.of((x * weft.full((3,), 2.0)).sum())
    assert same(recovered.run(), (x * 2).sum())  # backward had saved the constant


def test_of_refuses_what_was_not_recorded():
    with pytest.raises(RuntimeError, match=r"was not recorded.*record\(\)"):
        weft.graph.of(weft.ones(2) * 2)


def test_of_a_leaf_and_of_several():
    x = weft.ones(2, requires_grad=True)
    assert [n.name for n in weft.graph.of(x)] == ["x"]
    a, b = x.exp(), x.sin()
    g = weft.graph.of(a, b)
    assert [n.name for n in g.outputs] == ["exp", "sin"]
    assert all(same(p, q) for p, q in zip(g.run(), (a, b), strict=True))


def test_a_chain_of_many_nodes():
    x = y = weft.ones(2, requires_grad=True)
    for _ in range(20_000):
        y = y * 1.0
    g = weft.graph.of(y.sum())
    assert len(g) == 20_002 and len(g.ancestors(g.outputs[0])) == 20_001
    assert same(g.run(), x.sum())
    assert len(g.remove("mul:5000")) == 20_001


# --- what others read ------------------------------------------------------------------


def test_the_document(trained):
    import json

    _, g, _ = trained
    found = weft.graph.document(g, title="t")
    json.dumps(found, allow_nan=False)
    assert found["weft_graph"] == 1 and found["title"] == "t"
    (step,) = found["steps"]
    by_name = {n["name"]: n for n in step["nodes"]}
    node = by_name["layers.0.fc1.linear"]
    assert node["shape"] == [5, 8] and node["dtype"] == "float32" and node["kind"] == "forward"
    assert [i for i, _ in node["inputs"]] == [
        by_name[k]["id"] for k in ("x", "layers.0.fc1.weight", "layers.0.fc1.bias")
    ]
    weight = by_name["layers.0.fc1.weight"]
    assert sum(weight["stats"]["hist"]) == 32 and weight["grad_norm"] > 0
    update = by_name["layers.0.fc1.weight.adam"]
    assert update["forward"] == weight["id"]
    assert step["outputs"] == [by_name["mse_loss"]["id"]]
    assert step["modules"]["layers.0.fc1"] == "Linear"
    ids = {n["id"] for n in step["nodes"]}
    assert all(i in ids for n in step["nodes"] for i, _ in n["inputs"])


def test_stats_of_what_is_not_finite():
    x = weft.tensor([float("nan"), float("inf"), 1.0, 3.0])
    with weft.graph.record() as g:
        x * 2
    node = weft.graph.document(g)["steps"][0]["nodes"][0]
    assert node["stats"]["nan"] == 1 and node["stats"]["inf"] == 1 and node["stats"]["max"] == 3.0


def test_mermaid_and_dot(trained):
    _, g, _ = trained
    text = g.to_mermaid()
    assert text.startswith("flowchart TD") and 'subgraph "layers.0.fc1"' in text
    assert text.count("subgraph") == text.count("  end")
    dot = g.to_dot(backward=True)
    assert dot.count("{") == dot.count("}") and 'subgraph "cluster_layers.0"' in dot
    one, two = g["x"].id, g["layers.0.fc1.linear"].id
    assert f"n{one} --> n{two}" in text and f"n{one} -> n{two};" in dot


def test_detach_of_a_value_that_a_write_to_a_view_gave_a_history():
    w = weft.arange(9.0).reshape(3, 3).requires_grad_()
    memory = weft.zeros(3, 3)
    with weft.graph.record() as g:
        v = weft.ones(3, 3) * 1.0
        v.t()[2].mul_((w * 2)[:, 0])
        memory.add_(v.detach(), alpha=0.1)
        ((v + memory) ** 2).sum().backward()
    expected, w.grad = w.grad, None
    g.run().backward()
    assert same(w.grad, expected)


def test_containers_that_change_while_they_are_looked_through():
    """As those that another thread fills."""

    class Key:
        def __repr__(self):
            batch[len(batch)] = 1
            return "key"

    batch = {Key(): k for k in range(3)}
    x = weft.ones(2)
    with weft.graph.record() as g:
        (weft.ones(2) + x).sum()
    assert [n.name for n in g if n.kind == "input"] == ["x"] and len(batch) > 3


# ------------------------------------------------------------------ garbage


def step_of_training(hooked: bool = False, fails: bool = False) -> Callable[[], None]:
    model = weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.ReLU(), weft.nn.Linear(4, 1))
    optimizer, x = weft.optim.Adam(model.parameters()), weft.ones(2, 3)
    if hooked:
        model[0].weight.register_hook(lambda g: g * 2)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        if fails:
            raise KeyError("on the way")
        optimizer.step()

    return step


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_record_dies_with_its_last_reference(hooked: bool, fails: bool) -> None:
    step = step_of_training(hooked, fails)

    def run() -> Any:
        with contextlib.suppress(KeyError), weft.graph.record() as g:
            step()
        return weakref.ref(g)

    run()
    gc.collect()
    gc.disable()
    try:
        assert run()() is None
    finally:
        gc.enable()


def test_garbage_collection_waits_for_the_end_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    with weft.graph.record():
        seen.append(gc.isenabled())
        with weft.graph.record():
            seen.append(gc.isenabled())
        seen.append(gc.isenabled())
    assert seen == [False] * 3 and gc.isenabled()
    with pytest.raises(KeyError), weft.graph.record():
        step_of_training(fails=True)()
    assert gc.isenabled()
    gc.disable()  # the program's own decision stands
    try:
        with weft.graph.record():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    monkeypatch.setattr(recording, "LONG", 10)
    with weft.graph.record() as g:
        x = weft.ones(2)
        for _ in range(20):
            x = x * 2
        assert gc.isenabled()  # a long block leaves no garbage to its end
    assert len(g) > 20
