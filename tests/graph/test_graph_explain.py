"""Why a gradient is what it is, where a NaN came from, and who keeps memory alive."""

from __future__ import annotations

import sys
import threading
import weakref

import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.autograd import steps
from weft.autograd.steps import STEPS
from weft.core.modes import MODES
from weft.core.node import next_sequence
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


def test_first_bad_reads_what_backward_saved():
    x = leaf(1.0, 2.0)
    loss = (x - weft.full((2,), 3.0)).log().sum()  # log saved its input; the constant is gone
    found = first_bad(loss)
    assert found.node.op == "log" and "min -2, max -1" in found.inputs[0][1]
    loss = ((x + 1) * (x - 5)).log().sum()
    with weft.no_grad():
        x.fill_(7.0)  # a parameter that has moved on, to where all is well
    found = first_bad(loss)
    assert found.node.op == "log" and "min -9, max -8" in found.inputs[0][1]


def test_first_bad_leaves_no_trace():
    x = leaf(1.0, -2.0)
    net = nn.Sequential(nn.Tanh())
    with weft.no_grad():
        x.sub_(1.0)
    loss = (net(x) - 5).log().sum()
    assert first_bad(loss).node.op == "log"
    assert MODES.now.scope == "" and (x * 2).grad_fn.scope == ""


def test_first_bad_says_when_it_can_not_look():
    x = leaf(1.0, 2.0)
    loss = (x - weft.full((2,), float("nan"))).sum()
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
    losses = [loss.item() for loss in losses]
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


def test_leaves_and_gradients_that_a_record_holds():
    def program():
        data, w = weft.zeros(1000), weft.ones(1000, requires_grad=True)
        with weft.graph.record(values=True) as graph:
            (data * w).sum().backward()
        return graph, weft.graph.of((data * w).sum())

    record, live = program()
    found = owners()
    assert found["record['data']"].bytes == 4000 and found["record['mul'].grad"].bytes == 4000
    assert record and live and not [o for o in found if o.name.startswith("live")]  # holds nothing


def test_the_step_that_made_what_is_kept():
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 10))
    first = STEPS.ended
    losses = []
    for _ in range(5):
        loss = net(weft.randn(100, 30)).exp().mean()
        losses.append(loss)
        loss.backward(retain_graph=True)
    found = weft.memory.owners()
    owner = found["losses[3]"]
    # Five ops; kept are the input, what tanh and exp gave, and the loss. Weights are the net's.
    assert owner.nodes == 5 and owner.bytes == 4 * (100 * (30 + 40 + 10) + 1)
    assert owner.steps == range(first + 3, first + 4)
    assert f"`losses[3]` keeps 32.0 kB: 5 nodes of step {first + 3}" in repr(owner)
    (leak,) = [text for text in found.leaks if "`losses`" in text]
    assert f"5 tensors with their graphs (160.0 kB, 25 nodes of steps {first} to" in leak
    assert found["loss"] is found["losses[4]"] and found["loss"].name == "loss"


def test_after_backward_a_kept_loss_keeps_nodes_and_no_values():
    first = STEPS.ended
    w = weft.ones(1000, requires_grad=True)
    losses = []
    for _ in range(3):
        losses.append((w.exp() * 2).sum())
        losses[-1].backward()
    owner = owners()["losses[1]"]
    assert owner.nodes == 3 and owner.bytes == 4 and owner.steps[0] == first + 1


def test_a_state_that_is_never_detached_reaches_back_over_steps():
    first = STEPS.ended
    cell = nn.Linear(4, 4)
    state = weft.zeros(2, 4)
    for _ in range(4):
        state = cell(state).tanh()
        state.sum().backward(retain_graph=True)
    owner = owners()["state"]
    assert owner.nodes == 8 and owner.steps == range(first, first + 4)
    assert f"8 nodes of steps {first} to {first + 3}" in repr(owner)


def test_what_ends_a_step():
    first = STEPS.ended
    x = leaf(1.0, 2.0)
    weft.autograd.grad((x * x).sum(), x)
    with pytest.raises(RuntimeError):
        (x * x).backward()
    broken = x * x
    broken.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        broken.sum().backward()
    assert STEPS.ended == first
    (x * x).sum().backward()
    assert STEPS.ended == first + 1


def test_very_many_steps_are_known_less_exactly(monkeypatch):
    monkeypatch.setattr(steps, "MOST", 8)
    counted = steps.StepBoundaries()
    made = []
    for _ in range(100):
        made.append(next_sequence())
        counted.end()
    assert len(counted._notes) < 8
    for k, sequence in enumerate(made):
        assert k in counted.of(sequence) and len(counted.of(sequence)) == 16
    assert steps.StepBoundaries().of(made[0]) == range(1)


def test_threads_that_step_at_once_lose_no_step():
    first = STEPS.ended

    def train():
        x = leaf(1.0, 2.0)
        for _ in range(50):
            (x * x).sum().backward()

    threads = [threading.Thread(target=train) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert STEPS.ended == first + 200
    assert list(STEPS._notes) == sorted(STEPS._notes)


def test_values_that_functions_and_hooks_saved_are_counted():
    class Twice(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x * 1)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    w = weft.ones(1000, requires_grad=True)
    held = {"custom": Twice.apply(w).sum()}
    with weft.autograd.graph.saved_tensors_hooks(lambda t: ("kept", t * 1), lambda p: p[1]):
        held["packed"] = w.exp().sum()
    found = owners()
    assert found["held['custom']"].saved == 4000 and found["held['packed']"].saved == 4000


# --- what a stranger may run into -------------------------------------------------------


def test_looking_keeps_nothing_alive():
    def by_owners(x):
        big = weft.zeros(100)
        held = weakref.ref(big)
        owners()
        del big
        return held() is None

    def by_record(x):
        big = weft.zeros(100)
        held = weakref.ref(big)
        with weft.graph.record():
            x * 2
        del big
        return held() is None

    def by_why(x):
        big = weft.zeros(100)
        held = weakref.ref(big)
        why(x, (x * 2).sum())
        del big
        return held() is None

    x = leaf(1.0, 2.0)
    assert by_owners(x) and by_record(x) and by_why(x)


def test_what_a_program_asked_for_itself_stays():
    mine = locals()
    value = weft.ones(2)
    owners()
    assert value is mine["value"]


def test_the_variables_that_a_debugger_looks_at_stay():
    seen = []

    def trace(frame, event, _):
        if frame.f_code is debugged.__code__ and event == "line":
            owners()
        return trace

    def debugged():
        value = weft.ones(2)
        seen.append(value)
        return value

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = debugged()
    finally:
        sys.settrace(before)
    assert found is seen[0]


def test_an_empty_gradient_is_no_riddle():
    x = weft.zeros(0, 3, requires_grad=True)
    loss = (x * 2).sum()
    loss.backward()
    assert why(x, loss).verdict == "fine" and "no elements" in why(x, loss).text


def test_complex_gradients():
    x = weft.tensor([1 + 2j, 3j], requires_grad=True)
    loss = (x * 1e9).abs().sum()
    loss.backward()
    assert why(x, loss).verdict == "huge" and why(x, loss).node.op == "mul"


def test_a_loss_without_a_graph_has_an_answer():
    x = leaf(1.0, 2.0)
    with weft.no_grad():
        loss = (x * 2).sum()
    assert "the loss has no graph" in why(x, loss).text


def test_nan_that_came_with_the_data():
    x, data = leaf(1.0, 2.0), weft.tensor([float("nan"), 1.0])
    loss = (x * data).sum()
    loss.backward()
    assert "data made the first" in why(x, loss).text
    x = weft.ones(2, dtype=weft.bfloat16, requires_grad=True)
    loss = ((x - 2).sqrt() * x).sum()
    loss.backward()
    assert "the forward pass has NaN already: sqrt" in why(x, loss).text


@pytest.mark.parametrize(
    ("factor", "verdict", "reason"),
    [(3.0, "huge", "by a factor of 3\n"), (0.1, "tiny", "to 0.1 of its size; 24 nodes")],
)
def test_what_others_pass_to_a_shared_value_is_not_a_nodes_doing(factor, verdict, reason):
    x = weft.ones(2, requires_grad=True)
    y = x
    for _ in range(24):
        y = y * factor
    loss = (y + x * 0).sum()
    loss.backward(retain_graph=True)
    answer = why(x, loss)
    # Each of the others does as much; the one that passes zeros has no part in it.
    assert answer.verdict == verdict and reason in str(answer)


def test_a_finite_gradient_is_not_blamed_for_the_infinite_one_of_another_reader():
    x = weft.zeros(2, requires_grad=True)
    loss = (x.sqrt() + x * 2).sum()
    loss.backward(retain_graph=True)
    assert why(x, loss).node.op == "sqrt"
