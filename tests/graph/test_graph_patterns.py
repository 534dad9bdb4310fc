"""Patterns are matched on a graph's own shapes; edits by name, by op and with modules."""

from __future__ import annotations

import random

import pytest

import weft
import weft.nn.functional as F
from graph_programs import same
from weft import nn
from weft.graph import GraphError


def close(a, b):
    return weft.allclose(a, b, rtol=1e-4, atol=1e-5)


def residual(x, w, b, r):
    return F.relu(F.conv2d(x, w, b, padding=1) + r)


def folded(x, w, b, mean, var, gamma, beta):
    scale = gamma / (var + 1e-5).sqrt()
    return F.conv2d(x, w * scale[:, None, None, None], (b - mean) * scale + beta, padding=1)


def normed(x, w, b, mean, var, gamma, beta):
    return F.batch_norm(F.conv2d(x, w, b, padding=1), mean, var, gamma, beta)


def attended(q, k, v, mask):
    scores = (q @ k.transpose(-2, -1)) / 8**0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def fused(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.fixture
def parts():
    weft.manual_seed(0)
    conv, norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
    norm(weft.randn(4, 3, 5, 5) * 2 + 1)  # statistics that matter
    return conv, norm.eval(), weft.randn(2, 3, 5, 5)


def cases(conv, norm, image):
    q, k, v = (weft.randn(2, 2, 4, 8) for _ in range(3))
    mask = weft.ones(4, 4).tril().bool()
    layer = nn.LayerNorm(8)
    return {
        "residual": (
            lambda: F.relu(conv(image) + image), residual,
            lambda x, w, b, r: F.relu(F.conv2d(x, w, b, padding=1)) + r * 0,
            lambda: F.relu(conv(image)),
        ),
        "folding": (lambda: norm(conv(image)), normed, folded, lambda: norm(conv(image))),
        "attention": (lambda: attended(q, k, v, mask), attended, fused,
                      lambda: attended(q, k, v, mask)),
        "layer_norm": (
            lambda: layer(q), lambda x, w, b: F.layer_norm(x, (8,), w, b),
            lambda x, w, b: F.rms_norm(x, (8,), w) + b, lambda: F.rms_norm(q, (8,)),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["residual", "folding", "attention", "layer_norm"])
def test_a_pattern_fits_on_the_shapes_of_the_graph(parts, name):
    run, pattern, replacement, other = cases(*parts)[name]
    expected = other()
    with weft.graph.record() as g:
        out = run()
    edited = g.rewrite(pattern, replacement)
    assert edited.history == [f"rewrite {pattern.__name__} in 1 place"]
    assert close(edited.run(), expected)
    rules = weft.graph.rules().rewrite(pattern, replacement)
    with rules:
        assert close(run(), expected) and close(run(), expected)
    assert "2 uses" in repr(rules)
    assert same(run(), out)


def test_a_pattern_that_the_graph_has_not_changes_nothing(parts):
    conv, _, image = parts
    with weft.graph.record() as g:
        F.relu(conv(image))
    assert g.rewrite(residual, residual) is g
    with weft.graph.record() as g:
        weft.ones(3).exp()
    assert g.rewrite(residual, residual) is g  # no image anywhere


def test_one_pattern_fits_on_several_shapes():
    w, b = weft.randn(4, 4), weft.randn(4)
    flat, deep = weft.randn(3, 4), weft.randn(2, 3, 4)
    with weft.graph.record() as g:
        y = F.linear(flat, w, b).relu().sum() + F.linear(deep, w, b).relu().sum()
    h = g.rewrite(lambda x, w, b: F.linear(x, w, b).relu(), lambda x, w, b: F.linear(x, w, b).exp())
    assert h.history == ["rewrite <lambda> in 2 places"]
    assert close(h.run(), F.linear(flat, w, b).exp().sum() + F.linear(deep, w, b).exp().sum())
    assert same(g.run(), y)


def test_a_norm_can_be_taken_out():
    norm, x = nn.BatchNorm2d(3), weft.randn(2, 3, 5, 5)
    with weft.graph.rules().remove(op="batch_norm"):
        assert weft.equal(norm(x), x)
    with weft.graph.record() as g:
        norm(x)
    assert weft.equal(g.remove("batch_norm").run(), x)
    with weft.graph.rules().remove(op="split"):
        with pytest.raises(GraphError, match="use replace"):
            x.split(1)


@pytest.mark.parametrize("name", ["rleu", "rleu_", "linaer", "relu[x]"])
def test_a_misspelt_op_is_refused(name):
    with pytest.raises(GraphError, match="no op has that name"):
        weft.graph.rules().replace("gelu", op=name)
    with pytest.raises(GraphError, match=r"close to it: .*'relu'"):
        weft.graph.rules().remove(op="rleu")


@pytest.mark.parametrize("name", ["relu", "relu_", "linear", "conv*", "batch_norm", "add_"])
def test_names_that_ops_have(name):
    assert len(weft.graph.rules().remove(op=name)) == 1


def test_a_module_takes_the_place_of_one_with_weights():
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    x, other = weft.randn(3, 4), nn.Linear(4, 8)
    expected = net[2](F.relu(other(x)))
    with weft.graph.record() as g:
        net(x)
    h = g.replace("0.linear", other)
    assert same(h.run(), expected)
    h.run().sum().backward()
    assert other.weight.grad is not None and net[0].weight.grad is None
    with weft.graph.rules().replace(other, op="linear", module="0"):
        assert same(net(x), expected)


def test_a_module_takes_the_place_of_one_with_computed_weights():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 8))
    x, other = weft.randn(3, 4), nn.Linear(4, 8)
    with weft.graph.record() as g:
        layer(x)
    assert same(g.replace(g.find(op="linear")[0], other).run(), other(x))


@pytest.mark.parametrize("wants", [False, True])
def test_masked_attention_with_and_without_gradients(wants):
    q, k, v = (weft.randn(2, 3, 4, requires_grad=wants) for _ in range(3))
    mask = weft.ones(3, 3).tril().bool()
    with weft.graph.record() as g:
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    h = g.rewrite(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        lambda v, q: v * 2 + q,
    )
    assert same(h.run(), v * 2 + q)


@pytest.mark.parametrize("seed", range(12))
def test_every_place_of_a_random_program_is_rewritten(seed):
    """Against the program itself with the other function in its place, gradients included."""
    chance = random.Random(seed)
    plan = [(chance.choice(["sin", "mul", "add", "sin"]), chance.random(), chance.random())
            for _ in range(30)]  # fmt: skip
    instead = chance.choice([lambda a: a.cos() * 2, lambda a: a, lambda a: a + a.sin()])

    def program(x, sin):
        values = [x]
        for op, i, j in plan:
            a, b = (values[int(k * len(values))] for k in (i, j))
            values.append(sin(a) if op == "sin" else a * b if op == "mul" else a + b)
        return values[-1].sum(), values[-2].mean()

    x = weft.linspace(-0.5, 0.5, 4, dtype=weft.float64).requires_grad_()
    with weft.graph.record() as g:
        outs = program(x, lambda a: a.sin())
        (outs[0] + outs[1]).backward()
    changed = g.rewrite(lambda a: a.sin(), instead)
    expected = program(x, instead)
    for name, wanted in (("sum", expected[0]), ("mean", expected[1])):
        found = [n for n in changed if n.name == name]
        assert weft.allclose(changed.slice_to(found[0]).run(), wanted, rtol=1e-12)
    (wanted,) = weft.autograd.grad(expected[0] + expected[1], x)
    x.grad = None
    changed.run(update=True)
    assert weft.allclose(x.grad, wanted, rtol=1e-10)
