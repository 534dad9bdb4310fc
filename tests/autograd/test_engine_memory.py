"""What backward keeps, frees, takes over and never shares."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import weft as torch
from weft.autograd import engine


def test_gradients_of_two_leaves_never_share_memory() -> None:
    a = torch.ones(3, requires_grad=True)
    b = torch.ones(3, requires_grad=True)
    (a + b).backward(torch.ones(3))
    assert a.grad is not None and b.grad is not None
    assert not np.shares_memory(a.grad.numpy(), b.grad.numpy())
    a.grad.add_(1)
    assert b.grad.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_a_gradient_given_by_the_user_stays_the_users(scale: float) -> None:
    x = torch.ones(3, requires_grad=True)
    given = torch.ones(3)
    (x * scale if scale != 1.0 else x.view(3)).backward(given)
    assert x.grad is not None
    assert not np.shares_memory(x.grad.numpy(), given.numpy())
    x.grad.zero_()
    assert given.tolist() == [1.0, 1.0, 1.0]


def test_saved_results_are_not_handed_out_as_gradients() -> None:
    x = torch.zeros(3, requires_grad=True)
    y = x.exp()
    y.backward(torch.ones(3), retain_graph=True)
    assert x.grad is not None
    x.grad.mul_(5)
    assert y.tolist() == [1.0, 1.0, 1.0]


def test_a_leaf_takes_over_the_memory_of_its_gradient() -> None:
    x = torch.ones(1_000_000, requires_grad=True)
    y, given = x * 3.0, torch.ones(1_000_000)
    tracemalloc.start()
    try:
        y.backward(given)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * x.nbytes  # the gradient itself, and no copy of it


def test_saved_values_die_as_backward_uses_them() -> None:
    x = torch.ones(1000, requires_grad=True)
    y = x.exp()
    kept = weakref.ref(y._a)
    z = y.sum()
    del y
    gc.collect()
    assert kept() is not None
    z.backward()
    assert kept() is None


def test_a_graph_dies_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        x = torch.ones(10, requires_grad=True)
        a, b = (x * 2).split(5)
        values, _ = a.max(0)
        loss = (values + b.sum()) * 2
        node = weakref.ref(loss.grad_fn)
        loss.backward(retain_graph=True)
        del a, b, values, loss
        assert node() is None
    finally:
        gc.enable()


def test_an_intermediate_is_not_kept_by_the_graph() -> None:
    x = torch.ones(1000, requires_grad=True)
    y = x + 1
    array = weakref.ref(y._a)
    z = y + 2
    del y
    assert array() is None
    z.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0] * 1000


def test_constants_are_not_kept_by_the_graph() -> None:
    x = torch.ones(3, requires_grad=True)
    c = torch.ones(3)
    y = x + c
    held = weakref.ref(c)
    del c
    assert held() is None
    y.sum().backward()


def test_a_chain_of_100000_nodes_builds_runs_and_dies() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y + 0.5
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 1.0]
    assert len(torch.graph.of(y)) == 100_001
    del y


def test_threads_run_forward_and_backward_side_by_side() -> None:
    shared = torch.ones(50, requires_grad=True)
    own: dict[int, list[float]] = {}

    def work(k: int) -> None:
        x = torch.full((50,), float(k), requires_grad=True)
        for _ in range(40):
            x.grad = None
            (x * x * shared).sum().backward()
            with torch.no_grad():
                assert not (x * 2).requires_grad
            assert (x * 2).requires_grad
        assert x.grad is not None
        own[k] = x.grad.tolist()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(1, 7):
        assert own[k] == [2.0 * k] * 50
    assert shared.grad is not None
    assert shared.grad.tolist() == [40.0 * sum(k * k for k in range(1, 7))] * 50


def test_results_of_grad_are_nobody_elses() -> None:
    x = torch.ones(50, requires_grad=True)
    given = torch.ones(50)
    for wanted, y in (([x], x * 1.0 + 0), ([x, x], x * 2.0), ([x], x.view(50))):
        results = torch.autograd.grad(y, wanted, given)
        memory = {r.data_ptr() for r in results} | {given.data_ptr(), x.data_ptr()}
        assert len(memory) == len(results) + 2
        for r in results:
            r.add_(1)
        assert given.sum() == 50
    y = x + x  # one array for both ways
    (a,) = torch.autograd.grad(y, [x], given, create_graph=True)
    (b,) = torch.autograd.grad(y, [x], given)
    assert a.data_ptr() != b.data_ptr() and (a == 2).all() and (b == 2).all()


def test_an_input_asked_for_twice_has_its_history_twice() -> None:
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    for g in torch.autograd.grad((x**3).sum(), [x, x], create_graph=True):
        (second,) = torch.autograd.grad(g.sum(), x, retain_graph=True)
        assert second.tolist() == [12.0, 18.0]


def test_grad_copies_nothing_that_it_made_itself() -> None:
    x = torch.ones(1 << 16, requires_grad=True)
    y = x.relu()
    g = torch.ones(1 << 16)
    torch.autograd.grad(y, [x], g, retain_graph=True)
    made = []
    original, engine.np.array = engine.np.array, lambda *a, **k: made.append(a) or original(*a, **k)
    try:
        torch.autograd.grad(y, [x], g, retain_graph=True)
    finally:
        engine.np.array = original
    assert not made


def test_a_gradient_is_written_over_only_if_nobody_else_holds_it() -> None:
    size = 1 << 16
    x = torch.randn(size, requires_grad=True)
    given = torch.randn(size)
    kept = given.clone()
    (x.relu() * 1.0).backward(given)
    x.tanh().backward(given)  # straight from the caller
    assert torch.equal(given, kept)
    seen = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g))
    z = y.relu()
    z.retain_grad()
    z.sigmoid().sum().backward(retain_graph=True)
    first, held = seen[0].clone(), z.grad.clone()
    z.sigmoid().sum().backward()
    assert torch.equal(seen[0], first) and torch.equal(z.grad, 2 * held)
    # Both sides of a sum get one array.
    a = torch.randn(size, requires_grad=True)
    b = torch.randn(size, requires_grad=True)
    (a.relu() + b.tanh() + a.exp()).sum().backward()
    expected = (a > 0).float() + a.detach().exp()
    assert torch.allclose(a.grad, expected)
    assert torch.allclose(b.grad, 1 - b.detach().tanh() ** 2, atol=1e-6)


def test_a_step_backward_needs_no_second_array() -> None:
    size = 1 << 20
    x = torch.randn(size, requires_grad=True)
    y = x.relu().tanh().sigmoid()
    loss = y.sum()
    loss.backward()
    x.grad = None
    before = torch.memory.stats()["used_bytes"]
    y = x.relu().tanh().sigmoid()
    loss = y.sum()
    held = torch.memory.stats()["used_bytes"] - before
    assert held <= 3.5 * 4 * size
    loss.backward()
    torch.memory.empty_cache()
    assert torch.memory.stats()["used_bytes"] - before <= 2.5 * 4 * size  # y and x.grad
