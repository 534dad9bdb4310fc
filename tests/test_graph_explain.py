"""Why a gradient is what it is, where a NaN came from, and who keeps memory alive."""

from __future__ import annotations

import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.graph import GraphError, first_bad, owners, why


def leaf(*values):
    return weft.tensor(list(values), requires_grad=True)


def test_none_because_not_wanted_not_kept_or_not_reached():
    assert "does not require one" in why(weft.ones(2)).text
    x = leaf(1.0, 2.0)
    y = x * 2
    assert "retain_grad()" in why(y).text
    assert "no backward() reached it" in why(x).text
    answer = why(x, (y * 3).sum())
    assert "has not run yet" in answer.text
    assert [n.name for n in answer.path] == ["x", "mul", "mul:2", "sum"]
    other = leaf(1.0, 2.0)
    assert "does not depend on it" in why(other, y.sum()).text


def test_none_because_cut_off():
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    loss = (a * b.detach()).sum()
    assert "used by mul, but as a constant" in why(b, loss).text
    with weft.graph.record() as g:
        hidden = b.detach() * 2
        (hidden + a).sum().backward()
    answer = why(b, g)
    assert "cut off by detach()" in answer.text and answer.node.op == "detach"
    with weft.graph.record() as g:
        with weft.no_grad():
            scale = b * 2
        (scale + a).sum().backward()
    assert "mul ran inside no_grad" in why(b, g).text
    with weft.graph.record() as g:
        ((b > 3).float() * a).sum().backward()
    assert "gt has no derivative" in why(b, g).text
    assert why(a, g).verdict == "fine"


def test_zero():
    x = leaf(-1.0, -2.0)
    loss = (x * 3).relu().sum()
    loss.backward()
    answer = why(x, loss)
    assert answer.verdict == "zero" and answer.node.name == "relu"
    assert "every input is negative (min -6, max -3" in answer.text
    assert "path: x -> mul -> relu -> sum" in repr(answer)
    x = leaf(500.0, 400.0)
    loss = x.sigmoid().sum()
    loss.backward()
    assert "saturated" in why(x, loss).text
    assert "Give the loss" in why(x).text


def test_nan_and_inf():
    x = leaf(0.0, 2.0)
    loss = (x.sqrt() * weft.zeros(2)).sum()
    loss.backward(retain_graph=True)
    answer = why(x, loss)
    assert answer.verdict == "nan" and answer.node.op == "sqrt" and "infinite at 0" in answer.text
    x = leaf(0.0, 2.0)
    loss = x.log().sum()
    loss.backward()
    assert why(x, loss).verdict == "inf" and "log is infinite at 0" in why(x, loss).text
    x = leaf(-1.0, 1.0)
    loss = x.sqrt().sum()
    loss.backward()
    assert "the forward pass has NaN already: sqrt" in why(x, loss).text


def test_huge():
    x = leaf(3.0, 4.0)
    big = weft.full((2,), 1e6)
    loss = ((x * 2).sin() * big).sum()
    loss.backward()
    answer = why(x, loss)
    assert answer.verdict == "huge" and answer.node.name == "mul:2"
    assert "by a factor of 1e+06" in answer.text


def test_values_that_are_gone_are_admitted():
    x = leaf(0.0, 2.0)
    loss = (x.sqrt() * weft.zeros(2)).sum()
    loss.backward()  # frees what backward had saved of the constant
    answer = why(x, loss)
    assert answer.verdict == "nan" and "values are gone" in answer.text and answer.path


def test_first_bad():
    x, w = leaf(1.0, 0.0, -3.0), leaf(2.0, 2.0, 2.0)
    loss = (w * (x + 0.5).log()).sum()
    found = first_bad(loss)
    assert found.node.op == "log" and found.what == "NaN"
    assert "(x + 0.5).log()" in found.node.source
    ((name, text),) = found.inputs
    assert name == "add" and "float32[3]" in text and "min -2.5" in text
    assert repr(found).startswith("log made the first NaN")
    assert first_bad((w * x).sum()) is None


def test_first_bad_of_a_record_and_of_inputs():
    x = weft.tensor([1.0, float("nan")])
    w = leaf(1.0, 1.0)
    with weft.graph.record(values=True) as g:
        (w * x).sum()
    assert first_bad(g).node.name == "x"
    with weft.graph.record() as g:
        ((w - 1.0).reciprocal() * 2).sum()
    found = first_bad(g)
    assert found.node.op == "reciprocal" and found.what == "infinity"


def test_infinities_that_are_meant_or_swallowed_are_no_harm():
    x = weft.randn(3, 3, requires_grad=True)
    mask = weft.ones(3, 3).triu(1).bool()
    loss = F.softmax(x.masked_fill(mask, float("-inf")), 1).sum()
    assert first_bad(loss) is None
    constant = weft.full((3, 3), float("-inf")).triu(1)
    y = weft.exp(x + constant.nan_to_num(0.0, neginf=-1e30))
    assert first_bad(y.sum()) is None
    bad = (x.masked_fill(mask, float("-inf")).sum() * 0).sin()
    assert first_bad(bad).node.op == "mul"


def test_first_bad_says_when_it_can_not_look():
    x = leaf(1.0, 2.0)
    loss = (x - weft.full((2,), 3.0)).log().sum()
    with pytest.raises(GraphError, match=r"first_bad can't run .* gone"):
        first_bad(loss)


# --- owners ----------------------------------------------------------------------------


def test_a_list_of_losses_is_found():
    net = nn.Linear(100, 100)
    losses = []
    for _ in range(4):
        losses.append(net(weft.randn(50, 100)).exp().sum())
    found = owners()
    owner = found["losses[2]"]
    assert owner.nodes == 3 and owner.saved >= 2 * 50 * 100 * 4
    assert "the last from" in repr(owner) and "exp().sum()" in repr(owner)
    (leak,) = [text for text in found.leaks if "`losses`" in text]
    assert "4 tensors with their graphs" in leak and ".item()" in leak
    losses = [float(loss) for loss in losses]
    assert not [text for text in owners().leaks if "`losses`" in text]


def test_names_of_modules_dicts_and_gradients():
    net = nn.Sequential(nn.Linear(10, 10))
    cache = {"hidden": weft.zeros(1000)}
    net(weft.ones(1, 10)).sum().backward()
    found = owners()
    assert cache and found["cache['hidden']"].bytes == 4000
    assert found["net.0.weight"].bytes == 400 and found["net.0.weight.grad"].bytes == 400
    assert found.total >= 4800
    sizes = [o.bytes for o in found]
    assert sizes == sorted(sizes, reverse=True)
    assert all(o.bytes >= 4000 for o in owners(smallest=4000))
    with pytest.raises(KeyError, match=r"no name .*nothing"):
        found["nothing"]


def test_values_that_a_graph_keeps_have_a_name():
    x = weft.zeros(1000)
    with weft.graph.record(values=True) as kept:
        x * 2
    assert len(kept) == 2 and owners()["kept['mul'].value"].bytes == 4000
