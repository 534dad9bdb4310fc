"""Programs with several models, evaluation without backward, and where names come from."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.graph import GraphError


def net(last):
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, last))


@pytest.fixture
def pair():
    weft.manual_seed(0)
    return net(2), net(1)


def test_two_models_have_names_of_their_own(pair):
    G, D = pair
    z = weft.randn(3, 2)
    with weft.graph.record() as g:
        out = D(G(z)).mean()
    for graph in (g, weft.graph.of(out)):
        assert {"G.1.relu", "D.1.relu", "G.0.weight", "D.2.bias"} <= {n.name for n in graph}
        assert [n.name for n in graph.find(op="relu", module="G")] == ["G.1.relu"]
        assert graph.modules["G"] == "Sequential" and graph.modules["D.1"] == "ReLU"
        assert graph["D.0.weight"].value is not None
    changed = g.replace("D.1.relu", F.tanh)
    assert weft.equal(changed.run(), D[2](F.tanh(D[0](G(z)))).mean())


def test_one_model_has_plain_names(pair):
    G, _ = pair
    criterion = nn.MSELoss()
    with weft.graph.record() as g:
        loss = criterion(G(weft.ones(3, 2)), weft.zeros(3, 2))
    assert [n.name for n in g.find(kind="forward")] == [
        *("0.linear", "1.relu", "2.linear", "mse_loss")
    ]
    assert [n.name for n in weft.graph.of(loss).find(op="relu")] == ["1.relu"]


def test_models_without_a_variable_go_by_their_class(pair):
    held = [*pair, copy.deepcopy(pair[0])]
    with weft.graph.record() as g:
        for k in range(3):
            held[k](weft.ones(3, 2))
    names = [n.name for n in g.find(op="relu")]
    assert names == ["Sequential.1.relu", "Sequential_2.1.relu", "Sequential_3.1.relu"]


def test_a_model_that_an_object_holds(pair):
    class Trainer:
        def __init__(self):
            self.generator, self.critic = pair

        def step(self):
            return self.critic(self.generator(weft.ones(3, 2)))

    trainer = Trainer()
    with weft.graph.record() as g:
        trainer.step()
    assert [n.name for n in g.find(op="relu")] == ["generator.1.relu", "critic.1.relu"]


def test_a_rule_is_for_one_model(pair):
    G, D = pair
    z = weft.randn(3, 2)
    expected = D(G[2](F.tanh(G[0](z))))
    for select in ({"module": "G.1"}, {"name": "G.1.relu"}):
        with weft.graph.rules().replace("tanh", **select) as rules:
            assert weft.equal(D(G(z)), expected)
        assert "1 uses" in repr(rules)
    with weft.graph.rules().replace("tanh", op="relu", module="*.1") as rules:
        D(G(z))
    assert "2 uses" in repr(rules)
    for select in ({"op": "relu", "module": "1"}, {"name": "1.relu"}):
        with weft.graph.rules().replace("tanh", **select):
            with pytest.raises(GraphError, match=r"fits in two models, 'G' and 'D'"):
                D(G(z))


def test_an_unchanging_gan_does_not_change(pair):
    G, D = pair
    z = weft.randn(3, 2)
    with weft.graph.watch() as watch:
        for k in range(6):
            fake = G(z)
            (D(fake.detach()) - D(z)).mean().backward()
            out = D(fake)
            (out.abs() if k == 4 else out).mean().backward()
    assert watch.steps == 12
    assert [(c.step, c.before) for c in watch.changes] == [(9, 7), (11, 9)]
    assert [n.name for n in watch.changes[0].difference.added] == ["abs"]


def test_a_model_made_anew_is_no_change():
    with weft.graph.watch() as watch:
        for _ in range(3):
            model = net(1)
            model(weft.ones(3, 2)).mean().backward()
    assert watch.steps == 3 and not watch.changes


@pytest.mark.parametrize("mode", ["no_grad", "eval", "dropped"])
def test_names_are_counted_in_each_batch_where_there_is_no_backward(mode):
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    with weft.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.zero_()
    batches = [weft.tensor([[3.1]])] * 3
    model.train(mode != "eval")
    with weft.set_grad_enabled(mode != "no_grad"):
        with weft.graph.rules().replace(lambda t: t * 0, name="1.relu"):
            if mode == "dropped":
                assert [model(x).item() for x in batches] == [0, 0, 0]
            else:
                held = [model(x) for x in batches]
                assert [h.item() for h in held] == [0, 0, 0]


def test_two_runs_of_a_model_in_one_step_have_two_names():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    x = weft.ones(1, 2)
    with weft.graph.rules().replace(lambda t: t * 0, name="1.relu:2") as rules:
        for _ in range(3):
            first, second = model(x), model(x)
            (first + second).sum().backward()
            assert weft.equal(first, F.relu(model[0](x))) and not second.any()
    assert "3 uses" in repr(rules)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(self.self_attn(x, x, x)[0])


def test_parameters_have_their_own_names():
    model = Block()
    found = weft.graph.of(model(weft.ones(2, 3, 8)).sum())
    names = {n.name for n in found.find(kind="parameter")}
    assert names == {name for name, _ in model.named_parameters()}
    for name, p in model.named_parameters():
        assert found[name].spec.leaf.tensor is p
    assert found.modules["self_attn"] == "MultiheadAttention"


def test_no_name_is_made_up():
    def made():
        model = Block()
        kept.append(list(model.parameters()))
        return model(weft.ones(2, 3, 8)).sum()

    kept = []
    loss = made()
    names = [n.name for n in weft.graph.of(loss).find(kind="parameter")]
    assert all(name.startswith("kept[0][") for name in names), names
    kept = iter(kept.pop())  # out of sight, but alive
    names = [n.name for n in weft.graph.of(loss).find(kind="parameter")]
    assert names[0] == "self_attn.parameter"


def test_a_part_that_is_called_directly():
    model = Block()
    names = [n.name for n in weft.graph.of(model.norm(weft.ones(2, 8)).sum())]
    assert {"norm.weight", "norm.bias", "norm.layer_norm"} <= set(names)


@pytest.mark.parametrize("kind", ["dict", "list", "nested", "namespace"])
def test_a_batch_is_an_input(kind):
    x, w = weft.ones(2, 2), weft.ones(2, 2, requires_grad=True)
    batch, name = {
        "dict": ({"x": x}, "batch['x']"),
        "list": ([x], "batch[0]"),
        "nested": ({"data": (x, 1)}, "batch['data'][0]"),
        "namespace": (SimpleNamespace(x=x), "batch.x"),
    }[kind]
    del x
    get = {
        "dict": lambda: batch["x"],
        "list": lambda: batch[0],
        "nested": lambda: batch["data"][0],
        "namespace": lambda: batch.x,
    }[kind]
    with weft.graph.record() as g:
        loss = (get() * w).sum()
    for graph in (g, weft.graph.of(loss)):
        assert graph[name].kind == "input"
        assert graph.run({name: weft.zeros(2, 2)}).item() == 0
