"""Modules as units, graphs as modules and as code, selectors, selective records, checks in CI."""

from __future__ import annotations

import copy

import pytest

import weft
import weft.nn.functional as F
from graph_programs import same
from weft import nn
from weft.core.dispatch import Op
from weft.core.modes import MODES
from weft.graph import GraphError, assert_unchanged, record, select


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(x + self.attn(x, x, x)[0]))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(Block(), Block())
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


@pytest.fixture
def recorded():
    weft.manual_seed(0)
    net, x = Net().eval(), weft.randn(2, 3, 8)
    with record() as g:
        y = net(x)
    return net, x, y, g


@pytest.fixture
def small():
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    return net, weft.randn(3, 2)


# --- modules as units ------------------------------------------------------------------


def test_a_module_is_a_unit(recorded):
    net, _, _, g = recorded
    unit = g.module("encoder.0.attn")
    assert [n.name for n in unit.inputs] == ["x"] and len(unit.outputs) == 1
    assert {n.name for n in unit.parameters} == {
        f"encoder.0.attn.{name}" for name, _ in net.encoder[0].attn.named_parameters()
    }
    assert all(n.module.startswith("encoder.0.attn") for n in unit.nodes)
    assert "MultiheadAttention" in repr(unit)
    other = weft.randn(2, 3, 8)
    assert same(unit.subgraph()(other), net.encoder[0].attn(other, other, other)[0])
    with pytest.raises(KeyError, match=r"no module 'encoder.7' ran"):
        g.module("encoder.7")


def test_a_module_is_replaced_as_a_whole(recorded):
    net, x, y, g = recorded
    other = nn.Linear(8, 8)
    edited = g.module("encoder.0.attn").replace(other)
    block = net.encoder[0]
    assert same(edited.run(), net.head(net.encoder[1](block.norm(x + other(x)))))
    assert edited.history == ["replace encoder.0.attn by Linear"]
    assert not edited.find(op="softmax", module="encoder.0") and edited.find(op="softmax")
    edited.run().sum().backward()
    assert other.weight.grad is not None and block.attn.in_proj_weight.grad is None
    assert same(g.run(), y)
    with pytest.raises(GraphError, match="1 results and the function gives 2"):
        g.module("encoder.0.attn").replace(lambda t: (t, t))


def test_a_module_is_removed_as_a_whole(recorded):
    net, x, _, g = recorded
    edited = g.module("encoder.1").remove()
    assert same(edited.run(), net.head(net.encoder[0](x)))
    assert not edited.find(module="encoder.1", kind="forward")


def test_a_module_that_runs_twice(small):
    net, x = small
    relu = net[1]

    def run():
        return net[2](relu(net[0](x))) + relu(x).sum()

    with record() as g:
        run()
    unit = g.module("1")
    assert len(unit.calls) == 2
    assert same(unit.replace(F.tanh).run(), net[2](F.tanh(net[0](x))) + F.tanh(x).sum())
    with pytest.raises(GraphError, match="called 2 times"):
        unit.subgraph()


def test_what_a_module_wrote_goes_with_it():
    net, x = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), weft.randn(4, 2)
    with record() as g:
        y = net(x)
    edited = g.module("1").remove()
    assert same(edited.run(), net[0](x)) and not edited.find(module="1", kind="forward")
    assert y.shape == (4, 3)


# --- a graph as a module, and as code --------------------------------------------------


def rebuilt(g):
    space = {}
    exec(g.code, space)
    made = space["Recorded"]()
    made.load_state_dict(g.to_module().state_dict())
    return made


def test_a_graph_is_a_module(recorded):
    net, x, y, g = recorded
    module = g.to_module()
    assert same(module(x), y) and same(module(x=x), y)
    other = weft.randn(2, 3, 8)
    assert same(module(other), net(other))
    assert module.state_dict().keys() == net.state_dict().keys()
    assert module.get_parameter("head.weight") is net.head.weight
    with pytest.raises(TypeError, match=r"has the inputs \['x'\]"):
        module()
    mine = copy.deepcopy(module)
    with weft.no_grad():
        mine.get_parameter("head.bias").add_(1.0)
    assert weft.allclose(mine(x), y + 1) and same(module(x), y)


def test_a_copy_of_a_graph_has_the_same_ops(recorded):
    *_, g = recorded
    twin = copy.deepcopy(g.to_module()).graph
    pairs = zip(g._specs.values(), twin._specs.values(), strict=True)
    ops = [(a.op, b.op) for a, b in pairs if isinstance(a.op, Op)]
    assert ops and all(a is b for a, b in ops)


def test_a_graph_trains_as_a_module(small):
    net, x = small
    twin, y = copy.deepcopy(net), weft.randn(3, 1)
    with record() as g:
        F.mse_loss(net(x), y)
    module = g.module("1").replace(F.tanh).to_module()
    optimizer = weft.optim.Adam(module.parameters(), lr=0.01)
    other = weft.optim.Adam(twin.parameters(), lr=0.01)
    for _ in range(5):
        loss = module(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected = F.mse_loss(twin[4](F.relu(twin[2](F.tanh(twin[0](x))))), y)
        other.zero_grad()
        expected.backward()
        other.step()
        assert same(loss, expected)
    assert all(same(a, b) for a, b in zip(net.parameters(), twin.parameters(), strict=True))


def test_a_module_of_a_graph_draws_and_writes_as_the_model():
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
    twin, x = copy.deepcopy(net), weft.randn(8, 2)
    with record() as g:
        net(x)
    net.load_state_dict(twin.state_dict())
    module = g.to_module()
    code = rebuilt(g)
    for seed in range(3):
        found = []
        for each in (module, code, twin):
            weft.manual_seed(seed)
            found.append(each(x))
        assert same(found[0], found[2]) and same(found[1], found[2])
    assert same(module.state_dict()["1.running_mean"], twin[1].running_mean)
    assert same(code.state_dict()["1.running_var"], twin[1].running_var)


@pytest.mark.parametrize("name", ["attention", "convolution", "writes", "recurrent", "several"])
def test_code_gives_the_same_numbers(name, recorded):
    net, x = recorded[:2]
    lstm, conv = nn.LSTM(8, 5), nn.Conv2d(1, 2, 3, padding=1)

    def writes():
        made = x.clone()
        made[:, 1] = made[:, 0] * 2
        made[made > 1] = float(2)
        return made.masked_fill(made < 0, float("-inf")).softmax(-1).to(weft.float64)

    program = {
        "attention": lambda: net(x),
        "convolution": lambda: F.max_pool2d(conv(x[:, None]).relu(), 2).flatten(1),
        "writes": writes,
        "recurrent": lambda: lstm(x)[0],
        "several": lambda: (x.topk(2, -1)[0].sum(), x.detach().exp()[..., 0:4:2].mean(0)),
    }[name]
    with record() as g:
        expected = program()
    made = rebuilt(g)
    found = made(x)
    if name == "several":
        assert all(same(a, b) for a, b in zip(found, expected, strict=True))
    else:
        assert same(found, expected)
    assert "def forward(self, x):" in g.code


def test_code_refuses_what_it_can_not_write():
    class Double(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = weft.ones(2, requires_grad=True)
    with record() as g:
        Double.apply(x)
    with pytest.raises(GraphError, match="Python function 'Double'"):
        _ = g.code


# --- selectors and selective records ---------------------------------------------------


def test_selectors_combine(small):
    net, x = small
    with record() as g:
        net(x)
    linear, first = select(op="linear"), select(module="0")

    def names(chosen):
        return [n.name for n in g.find(chosen)]

    assert names(linear & ~first) == ["2.linear", "4.linear"]
    assert names(select(op="relu") | select(name="x")) == ["x", "1.relu", "3.relu"]
    assert names(linear & select(where=lambda n: n.shape[-1] == 1)) == ["4.linear"]
    assert [n.name for n in g.find(linear, module="2")] == ["2.linear"]
    assert [n.name for n in g.find(linear, where=lambda n: n.module == "0")] == ["0.linear"]
    assert repr(linear & ~first) == "(select(op='linear') & ~select(module='0'))"
    with weft.graph.rules().replace(F.tanh, where=select(op="relu") & ~select(module="1")) as rules:
        net(x)
    assert "1 uses" in repr(rules)
    with pytest.raises(TypeError, match="combines with selectors"):
        _ = linear & "relu"


@pytest.mark.parametrize("chosen", ["*.relu", ["1.relu", "3.relu"], select(op="relu")])
def test_a_record_keeps_what_is_named(small, chosen):
    net, x = small
    with record(values=chosen) as g:
        net(x).sum().backward()
    assert [g._names()[k] for k in g._kept] == ["1.relu", "3.relu"]
    assert {g._names()[k] for k in g._grads} == {"1.relu", "3.relu"}
    assert same(g["1.relu"].value, F.relu(net[0](x)))
    assert same(g["2.linear"].value, net[2](F.relu(net[0](x))))  # computed again


def test_names_count_in_a_selective_record():
    x = weft.ones(2)
    with record(values="exp:2") as g:
        x.exp().exp().exp()
    assert [g._names()[k] for k in g._kept] == ["exp:2"]


def test_a_record_stops_early(small):
    net, x = small
    ran = []
    net[4].register_forward_hook(lambda *_: ran.append(True))
    with record(values="1.relu", stop="3.relu") as g:
        net(x)
        ran.append(True)
    assert not ran and [n.name for n in g.outputs] == ["3.relu"]
    assert same(g.run(), F.relu(net[2](F.relu(net[0](x)))))
    assert MODES.now.recorders == () and MODES.now.scope == ""
    with record(stop="mul") as g:
        y = x.clone()
        y.mul_(2)
        y.add_(1)
    assert same(g.run(), x * 2)
    with record(stop="nothing.like.it") as g:
        out = net(x)
    assert ran and same(g.run(), out)


def test_a_record_is_not_chosen_by_anything(small):
    with pytest.raises(TypeError, match="chosen by a name"):
        record(values=3)


# --- a check for CI --------------------------------------------------------------------


def test_assert_unchanged(tmp_path, small, monkeypatch):
    net, x = small
    path = tmp_path / "net.graph"

    def graph(model=net, given=x):
        with record() as g:
            out = model(given)
        assert out is not None
        return g

    with pytest.raises(AssertionError, match=r"no graph in .* to compare with; update=True"):
        assert_unchanged(graph(), path)
    assert_unchanged(graph(), path, update=True)
    assert_unchanged(graph(), path)
    assert "1.relu: relu(0.linear) -> float32[3, 4]" in path.read_text().splitlines()
    net[1] = nn.Tanh()
    with pytest.raises(AssertionError) as error:
        assert_unchanged(graph(), path)
    told = str(error.value)
    assert "-1.relu: relu(0.linear) -> float32[3, 4]" in told
    assert "+1.tanh: tanh(0.linear) -> float32[3, 4]" in told and "WEFT_UPDATE_GRAPHS=1" in told
    monkeypatch.setenv("WEFT_UPDATE_GRAPHS", "1")
    assert_unchanged(graph(), path)
    monkeypatch.delenv("WEFT_UPDATE_GRAPHS")
    assert_unchanged(graph(), path)
    with pytest.raises(AssertionError, match=r"float32\[5, 4\]"):
        assert_unchanged(graph(given=weft.ones(5, 2)), path)
    with pytest.raises(TypeError, match="takes a graph"):
        assert_unchanged(x, path)
    assert [p.name for p in tmp_path.iterdir()] == ["net.graph"]


def test_a_module_behind_an_op_with_several_results_is_a_graph():
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x = weft.randn(2, 3, 8)
    with weft.graph.record() as g:
        out = net(x)
    assert weft.equal(g.module("layers.1").subgraph()(net.layers[0](x)), out)


def test_an_input_is_the_one_result_that_is_read():
    x = weft.randn(5)
    with weft.graph.record() as g:
        values, places = x.topk(2)
        out = places + 1
    part = g.subgraph("topk", "add")
    assert weft.equal(part(weft.tensor([3, 4])), weft.tensor([4, 5]))
    with weft.graph.record() as g:
        values, places = x.topk(2)
        out = places + values
    with pytest.raises(ValueError, match="the results \\[0, 1\\] of 'topk' are read"):
        g.subgraph("topk", "add")
    assert out.shape == (2,)
