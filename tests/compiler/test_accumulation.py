"""Backward passes into gradients that are there already, as parts of a stretch."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

import weft as torch
from weft import nn
from weft.compiler import Compiled
from weft.nn import functional as F

CALLS = 7


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, check_stride=True)


def agree(make, calls=CALLS):
    """Run a step of a program eagerly and compiled; results, gradients and versions must agree."""
    (eager, theirs), (step, mine) = make(), make()
    compiled = Compiled(step)
    for k in range(calls):
        outcomes = []
        for run in (eager, compiled):
            try:
                outcomes.append(run(k))
            except RuntimeError as error:
                outcomes.append(str(error).partition(":")[0])
        if isinstance(outcomes[0], str):
            assert outcomes[0] == outcomes[1]
        else:
            close(outcomes[1], outcomes[0])
        for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
            if p.grad is not None:
                close(p.grad, q.grad)
                assert p.grad._version == q.grad._version
            assert p._version == q._version
            close(p, q)
    return compiled.learned


def batches():
    torch.manual_seed(1)
    return [(torch.randn(6, 4), torch.randn(6, 2)) for _ in range(3)]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_step_of_several_batches_is_one_program(set_to_none):
    def make():
        net, data = model(), batches()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(k):
            optimizer.zero_grad(set_to_none=set_to_none)
            losses = []
            for x, y in data:
                loss = F.mse_loss(net(x), y) / len(data)
                loss.backward()
                losses.append(loss.detach())
            optimizer.step()
            return losses

        return step, net

    learned = agree(make)
    assert set(learned.reasons) == {"an optimizer's step"}
    assert not learned.refused
    assert learned.diverged == (1 if set_to_none else 2)


def one_batch(around=None):
    """A function that adds the gradients of one batch, with something around it."""

    def make():
        net, data = model(), batches()
        state = around(net) if around else None

        def step(k):
            if k == 4:
                net.zero_grad()
            loss = F.mse_loss(net(data[0][0]), data[0][1])
            loss.backward()
            return loss.detach(), *(state() if state else ())

        return step, net

    return make


def test_gradients_that_grow_from_call_to_call():
    learned = agree(one_batch())
    assert set(learned.reasons) == {"the region ended"}
    assert learned.diverged == 2, "once without gradients, once with them"


def flat(net):
    """Gradients that are views of one tensor."""
    whole = torch.zeros(sum(p.numel() for p in net.parameters()))
    parts = whole.split([p.numel() for p in net.parameters()])
    for p, part in zip(net.parameters(), parts, strict=True):
        p.grad = part.view(p.shape)
    return lambda: (whole * 1,)


def with_history(net):
    """Gradients that can be differentiated themselves."""
    for p in net.parameters():
        p.grad = p.detach().clone().requires_grad_() * 2
    return lambda: [p.grad.detach() * 1 for p in net.parameters()]


def aliased(alias):
    def around(net):
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        others = [alias(p.grad) for p in net.parameters()]
        return lambda: [torch.as_tensor(other) * 1 for other in others]

    return around


@pytest.mark.parametrize(
    "around",
    [
        flat,
        with_history,
        aliased(lambda g: g),
        aliased(lambda g: g.detach()),
        aliased(lambda g: g.view(-1)),
        aliased(lambda g: g.numpy()),
        aliased(lambda g: torch.empty(0).set_(g.untyped_storage(), 0, (2,))),
    ],
)
def test_whoever_shares_memory_with_a_gradient_sees_it_grow(around):
    agree(one_batch(around))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.ones(3) * k) for k in (2, 3))


@pytest.mark.parametrize("shared", [True, False])
def test_two_leaves_with_one_gradient_or_with_one_at_a_time(shared):
    def make():
        net = Pair()
        if shared:
            net.first.grad = net.second.grad = torch.zeros(3)

        def step(k):
            if not shared:
                one, other = (net.first, net.second)[:: 1 if k // 3 % 2 else -1]
                one.grad, other.grad = None, torch.ones(3)
            (net.first * net.second * 2).sum().backward()
            return net.first.grad * 1, net.second.grad * 1

        return step, net

    agree(make, calls=12)


def test_numpy_sees_a_gradient_grow_at_once():
    net, data = model(), batches()
    F.mse_loss(net(data[0][0]), data[0][1]).backward()
    array, seen = net[0].bias.grad.numpy(), []

    def step():
        F.mse_loss(net(data[0][0]), data[0][1]).backward()
        seen.append(array.copy())

    compiled, first = Compiled(step), array.copy()
    for k in range(CALLS):
        compiled()
        close(torch.from_numpy(seen[-1]), torch.from_numpy((k + 2) * first))


def test_another_thread_reads_a_gradient_that_is_about_to_grow():
    def around(net):
        found = []

        def look():
            reader = threading.Thread(target=lambda: found.append(net[0].bias.grad.sum()))
            reader.start()
            reader.join()
            return (found[-1],)

        return look

    agree(one_batch(around))


def test_an_exception_after_the_pass_leaves_grown_gradients():
    def around(net):
        def fail():
            raise RuntimeError("stopped: here")

        return fail

    agree(one_batch(around))


def test_another_course_after_the_pass_counts_once():
    def around(net):
        calls = []

        def look():
            calls.append(None)
            return (net[0].bias.grad.sin() if len(calls) % 3 else net[0].bias.grad.exp(),)

        return look

    agree(one_batch(around), calls=9)


def test_hooks_that_come_and_go():
    def around(net):
        calls, handles = [], []

        def look():
            calls.append(None)
            if len(calls) % 3 == 0:
                handles.append(net[0].bias.register_hook(lambda g: g * 2))
            elif handles:
                handles.pop().remove()
            return ()

        return look

    agree(one_batch(around), calls=12)


def second(first, then):
    """A step that keeps a result over a backward pass, and then does something with it."""

    def make():
        net = model()
        torch.manual_seed(2)
        x = torch.randn(3, 4)

        def step(k):
            net.zero_grad()
            kept = first(net, x)
            kept.sum().backward()
            return then(net, kept, x)

        return step, net

    return make


FIRST = {
    "nothing saved": lambda net, x: net[0].bias + 1,
    "a product": lambda net, x: net[0](x),
    "nothing saved before a product": lambda net, x: (net[0].bias + 1) * net[0].bias.detach(),
}
THEN = {
    "kept": lambda net, kept, x: kept,
    "again": lambda net, kept, x: (kept.sum().backward(), kept.detach())[1],
    "more of it": lambda net, kept, x: (kept * 2).sum(),
    "more of it, back": lambda net, kept, x: ((kept * kept).sum().backward(), kept.detach())[1],
    "something else": lambda net, kept, x: net[2](net[0](x).tanh()).sum(),
    "its gradients": lambda net, kept, x: (net[0].bias.grad * net[0].bias).sum(),
}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("then", THEN)
def test_results_with_a_history_after_a_pass(first, then):
    def outside(run, net):
        def step(k):
            found = run(k)
            if not found.requires_grad:
                return found
            before = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
            try:
                found.sum().backward()
            except RuntimeError as error:
                assert "second time" in str(error)
                return found.detach(), None
            return found.detach(), before

        return step

    (eager, theirs), (step, mine) = (
        second(FIRST[first], THEN[then])(),
        second(FIRST[first], THEN[then])(),
    )
    runs = [(outside(eager, theirs), theirs), (outside(Compiled(step), mine), mine)]
    for k in range(4):
        found = []
        for run, net in runs:
            try:
                found.append((run(k), [p.grad for p in net.parameters()]))
            except RuntimeError as error:
                assert "second time" in str(error)
                found.append(([None], [p.grad for p in net.parameters()]))
        assert str(found[0]) == str(found[1])


def test_what_keeps_nothing_is_compiled_after_a_pass():
    w = torch.randn(3, requires_grad=True)

    @Compiled
    def step():
        w.grad = None
        y = w + 1
        y.sum().backward()
        return y

    for _ in range(4):
        step().sum().backward()
        assert w.grad.tolist() == [2.0, 2.0, 2.0]
    assert not step.learned.refused


def test_a_pass_after_one_that_failed():
    def make():
        net = Pair()

        def step(k):
            made = net.first * net.second
            try:
                (net.second * 2).backward()  # not a scalar
            except RuntimeError:
                made.backward(torch.ones(3))
            return made.detach()

        return step, net

    agree(make)


def test_a_pass_that_failed_is_forgotten_when_the_function_is_called_again() -> None:
    def run() -> Any:
        x = torch.tensor([[1.0, 2.0]], requires_grad=True)
        x.backward(torch.ones(1, 2))  # nothing is pending: it is done at once
        y = torch.tensor([2.0], requires_grad=True).detach() * 2
        with contextlib.suppress(RuntimeError):
            (y + 1).sum().backward()  # nothing requires a gradient
        return x.grad

    compiled = torch.compile(run)
    for _ in range(6):
        assert compiled().tolist() == [[1.0, 1.0]]
