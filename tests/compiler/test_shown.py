"""``weft.graph.of`` a compiled function: the work of its program as a graph."""

from __future__ import annotations

import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.graph.verify import verify


def called(compiled, *args):
    """A function that was called until it had a program."""
    for _ in range(5):
        out = compiled(*args)
        str(out)
    return out


def test_a_fused_loop_is_one_part_that_opens_into_its_ops():
    @weft.compile
    def gate(x):
        return (x.sigmoid() * x.tanh() + 1).relu().sum()

    x = weft.randn(64, 64)
    with weft.no_grad():
        expected = called(gate, x)
    g = weft.graph.of(gate)
    ((path, kind),) = [(p, k) for p, k in g.modules.items() if k.startswith("fused loop")]
    inside = [node.op for node in g if node.module == path]
    assert kind == "fused loop of 6" and inside == ["sigmoid", "tanh", "mul", "add", "relu", "sum"]
    # Numbers of the program are given anew in every run.
    assert [node.name for node in g if node.module != path] == ["input", "number0"]
    assert weft.allclose(g.run(input=x, number0=1.0), expected)
    assert "fused loop of 6" in g.to_html() and len(g.module(path).nodes) == 6


def test_what_the_passes_took_out_is_not_there():
    @weft.compile
    def twice(x):
        unused = x.exp() @ x  # noqa: F841
        return (x @ x).sum() + (x @ x).sum()

    with weft.no_grad():
        called(twice, weft.randn(8, 8))
    ops = [node.op for node in weft.graph.of(twice)]
    assert ops.count("mm") == 1 and "exp" not in ops


def test_a_module_and_its_training_step():
    net = weft.compile(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    x = weft.randn(16, 4)
    with weft.no_grad():
        expected = called(net, x)
    g = weft.graph.of(net)
    assert {"_orig_mod.0", "_orig_mod.2"} <= {node.module for node in g}
    assert [n.shape for n in g.outputs] == [expected.shape]

    @weft.compile
    def step(x, y, weight):
        loss = F.mse_loss(F.linear(x, weight).tanh(), y)
        loss.backward()
        return loss

    weight = weft.randn(2, 4, requires_grad=True)
    for _ in range(5):
        weight.grad = None
        float(step(x, weft.zeros(16, 2), weight).detach())
    g = weft.graph.of(step)
    # The loss and the gradient, which leave the step.
    assert {n.shape for n in g.outputs} == {(), (2, 4)}
    verify(g)
    assert str(g) and str(g.summary())


def test_before_there_is_a_program_it_says_so():
    compiled = weft.compile(lambda x: x * 2)
    with pytest.raises(RuntimeError, match="has no program yet"):
        weft.graph.of(compiled)


def test_parameters_and_states_have_their_names():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = weft.optim.Adam(model.parameters())
    x = weft.randn(5, 4)

    @weft.compile
    def step():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    called(step)
    g = weft.graph.of(step)
    for name, p in model.named_parameters():
        assert g[name].kind == "parameter" and g[name].shape == p.shape
        assert {i.name for i in g[f"{name}.adam"].inputs} >= {name, f"{name}.exp_avg_sq"}
        assert g[f"{name}.exp_avg"].module == g[name].module == name.split(".")[0]
    infer = weft.compile(model.forward)
    with weft.no_grad():
        expected = called(infer, x)
    assert weft.allclose(weft.graph.of(infer).run(input=x), expected)
