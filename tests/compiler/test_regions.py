"""Compiled functions: whatever Python decides happens, with eager mode's results."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.compiler import Compiled
from weft.nn import functional as F

CALLS = 5


def models():
    """Two equal models."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return model, copy.deepcopy(model)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def agree(make, calls=CALLS):
    """Run a program eagerly and compiled, step by step; what it gives must agree.

    ``make`` gives a function of the number of the step, with a state of its own.
    """
    torch.manual_seed(0)
    eager = make()
    torch.manual_seed(0)
    followed = Compiled(make())
    for k in range(calls):
        torch.manual_seed(k)
        expected = eager(k)
        torch.manual_seed(k)
        close(followed(k), expected)
    return followed.learned


def trainer(optimizer=torch.optim.Adam, **more):
    """A training step; all of it is one function."""

    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 2))
        step_of = optimizer(model.parameters(), **more)
        x, y = torch.randn(6, 4), torch.randn(6, 2)

        def step(k):
            step_of.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            step_of.step()
            return [loss, *(p.detach().clone() for p in model.parameters())]

        return step

    return make


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.Adam, {"lr": 0.01}),
        (torch.optim.AdamW, {"lr": 0.01}),
        (torch.optim.RMSprop, {}),
    ],
)
def test_a_training_step_is_followed(optimizer, settings):
    learned = agree(trainer(optimizer, **settings))
    assert learned.diverged == 1, "learned once, followed from then on"
    assert not learned.refused
    assert learned.compiled >= 1


def test_pending_tensors_are_tensors_and_tell_their_kind_without_being_computed():
    seen = []

    @torch.compile
    def f(x):
        y = (x * 2).t()
        assert type(y) is torch.Tensor
        seen.append((y.shape, y.dtype, y.stride(), y.requires_grad, y.is_leaf, len(y), y.device))
        return y.sum()

    x = torch.randn(2, 3, requires_grad=True)
    for _ in range(4):
        f(x)
    assert all(s == seen[0] for s in seen)
    assert set(f.learned.reasons) == {"the region ended"}


def test_nothing_is_frozen():
    """Globals, attributes, closures and learning rates act in every step."""

    class Box:
        scale = 1.0

    def make():
        box, count = Box(), [0]
        x = torch.arange(4.0)

        def step(k):
            count[0] += 1
            box.scale = 1.0 + k
            return x * box.scale + count[0]

        return step

    learned = agree(make, 6)
    assert learned.compiled == 1, "numbers are inputs of the program"


def test_branches_on_values_and_on_python():
    def make():
        x = torch.randn(5)

        def step(k):
            y = x * (k - 2)
            y = y + 100 if y.sum() > 0 else y - 100
            return y.exp2() if k % 2 else y.abs()

        return step

    agree(make, 12)


def test_what_escapes_exists():
    kept = []

    def make():
        x = torch.randn(5)

        def step(k):
            y = x * 2
            if k == 3:
                kept.append(y)
            return (y + 1).sum()

        return step

    agree(make, 6)
    close(kept[0], kept[1])


def test_outputs_are_not_overwritten_by_later_calls():
    @torch.compile
    def f(x):
        return (x * 2 + 1) * 3

    given = [torch.full((3,), float(k)) for k in range(6)]
    found = [f(x) for x in given]
    for x, y in zip(given, found, strict=True):
        close(y, (x * 2 + 1) * 3)


def test_views_share_memory_as_eagerly():
    @torch.compile
    def f(x):
        y = x * 2
        return y, y[0], x[1]

    for _ in range(4):
        x = torch.randn(2, 3)
        y, row, mine = f(x)
        row.zero_()
        mine.fill_(7)
        assert y[0].tolist() == [0, 0, 0]
        assert x[1].tolist() == [7, 7, 7]


def test_changes_in_place():
    def make():
        x, total = torch.randn(4), torch.zeros(4)

        def step(k):
            y = x * (k + 1)
            y.mul_(2).add_(1)
            y[0] = 5
            total.add_(y)
            return [y, total.clone(), torch.tensor(total._version)]

        return step

    agree(make)


def test_batch_norm_statistics_move_once_a_step():
    def make():
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(3)
        x = torch.randn(8, 3)

        def step(k):
            norm.train(k % 3 != 2)
            y = norm(x * (k + 1))
            return [y.sum(), norm.running_mean, norm.running_var, norm.num_batches_tracked.clone()]

        return step

    agree(make, 9)


def test_random_numbers_come_from_the_same_stream():
    def make():
        x = torch.ones(100)

        def step(k):
            return F.dropout(x * 2, 0.5) + torch.rand(100)

        return step

    agree(make)


def test_memory_that_numpy_can_reach():
    def make():
        buffer = np.ones(4, np.float32)
        x = torch.from_numpy(buffer)

        def step(k):
            y = x * 2
            buffer[:] = k
            return y + x

        return step

    agree(make)


def test_an_exception_leaves_everything_as_eager_mode_would():
    def make():
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, count = torch.randn(4, 3), torch.zeros(1)

        def step(k):
            optimizer.zero_grad()
            count.add_(1)
            loss = model(x).pow(2).sum()
            loss.backward()
            if k == 3:
                raise KeyError("in the middle of a step")
            optimizer.step()
            return loss

        def outer(k):
            return step(k)

        return outer, model, count

    eager, theirs, counted = make()
    function, mine, count = make()
    followed = Compiled(function)
    for k in range(6):
        if k == 3:
            for run in (eager, followed):
                with pytest.raises(KeyError):
                    run(k)
        else:
            close(followed(k), eager(k))
        close(mine.weight, theirs.weight)
        close(mine.weight.grad, theirs.weight.grad)
        close(count, counted)


def test_errors_of_values_are_raised():
    table = torch.randn(5, 3)

    @torch.compile
    def f(index):
        return F.embedding(index, table).sum()

    good = torch.tensor([0, 4])
    for _ in range(3):
        f(good)
    with pytest.raises(IndexError):
        f(torch.tensor([0, 5]))
    close(f(good), F.embedding(good, table).sum())


def test_failures_of_factorisations_can_be_caught():
    def make():
        good = torch.eye(3)

        def step(k):
            matrix = good * (1 - 2 * (k % 2))
            try:
                return torch.linalg.cholesky(matrix)
            except RuntimeError:
                return matrix * 0

        return step

    agree(make, 6)


def test_shapes_that_change():
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))

        def step(k):
            return model(torch.full((1 + k % 3, 4), 0.5)).view(1 + k % 3, -1).sum(1)

        return step

    agree(make, 9)


def test_gradients_that_add_up():
    def make():
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        x = torch.randn(4, 3)

        def step(k):
            if k % 3 == 0:
                model.zero_grad()
            loss = (model(x) * (k + 1)).pow(2).sum()
            loss.backward()
            return [loss, model.weight.grad.clone()]

        return step

    agree(make, 9)


def test_hooks_see_every_gradient():
    def make():
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        x, log = torch.randn(4, 3), []
        model.weight.register_hook(lambda g: log.append(g.clone()) or g * 2)

        def step(k):
            model.zero_grad()
            h = model(x)
            h.register_hook(lambda g: log.append(g.clone()))
            h.pow(2).sum().backward()
            return [*log, model.weight.grad.clone()]

        return step

    agree(make)


def test_a_module_has_one_call_forward_and_one_backward():
    plain, other = models()
    compiled = torch.compile(other)
    assert next(iter(compiled.state_dict())) == "_orig_mod.0.weight"
    assert compiled._orig_mod is other
    for _ in range(4):
        x = torch.randn(3, 4, requires_grad=True)
        for model in (plain, compiled):
            model.zero_grad()
            x.grad = None
            loss = model(x).pow(2).sum()
            loss.backward()
            if model is plain:
                expected = [loss.detach(), x.grad, *(p.grad for p in plain.parameters())]
        close([loss.detach(), x.grad, *(p.grad for p in other.parameters())], expected)
    assert loss.grad_fn.next_functions  # an ordinary op on what the region gave


def test_second_derivatives():
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
        inner = torch.compile(model)

        def step(k):
            x = torch.full((2, 3), 0.1 * k, requires_grad=True)
            (g,) = torch.autograd.grad(inner(x).sum(), x, create_graph=True)
            model.zero_grad()
            g.pow(2).sum().backward()
            return [g.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

        return step

    eager, compiled = make(), make()
    for k in range(4):
        with torch.compiler.set_stance("force_eager"):
            expected = eager(k)
        close(compiled(k), expected)


def test_weights_that_are_loaded_replaced_frozen_or_added_between_steps():
    plain, other = models()
    compiled = torch.compile(other)
    x = torch.randn(3, 4)

    def both(change):
        for model in (plain, other):
            torch.manual_seed(1)
            change(model)
        for _ in range(3):
            for model, call in ((plain, plain), (other, compiled)):
                model.zero_grad()
                out = call(x)
                if out.requires_grad:
                    out.sum().backward()
            close(compiled(x), plain(x))
            for p, q in zip(plain.parameters(), other.parameters(), strict=True):
                close(q.grad, p.grad) if p.grad is not None else None

    both(lambda m: None)
    both(lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}))
    both(lambda m: setattr(m[0].weight, "data", torch.randn(8, 4)))
    both(lambda m: m[0].weight.requires_grad_(False))
    both(lambda m: setattr(m[2], "weight", nn.Parameter(torch.randn(2, 8))))
    both(lambda m: m.append(nn.Linear(2, 2)))
    both(lambda m: m.requires_grad_(False))


def test_autocast_and_no_grad():
    def make():
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        x = torch.randn(2, 4)

        def step(k):
            with torch.autocast("cpu", torch.bfloat16, enabled=k % 2 == 0), torch.no_grad():
                return model(x).float()

        return step

    agree(make, 8)


def test_a_method_shared_between_instances():
    class Scaled(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        @torch.compile
        def double(self, x):
            return x * self.factor + self.factor

    a, b = Scaled(2.0), Scaled(3.0)
    x = torch.ones(3)
    for _ in range(4):
        assert a.double(x).tolist() == [4.0] * 3
        assert b.double(x).tolist() == [6.0] * 3


def test_two_threads():
    def f(x):
        return (x * 2).sin().sum()

    compiled = torch.compile(f)
    wrong = []

    def work(seed):
        x = torch.randn(50) + seed
        for _ in range(50):
            if abs(compiled(x).item() - f(x).item()) > 1e-4:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_disable_synchronize_and_stances():
    seen = []

    @torch.compiler.disable
    def look(x):
        seen.append(x.tolist())
        return x + 1

    @torch.compile
    def f(x):
        y = x * 2
        torch.compiler.synchronize()
        return look(y) * 2

    for _ in range(4):
        assert f(torch.ones(2)).tolist() == [6.0, 6.0]
    assert seen == [[2.0, 2.0]] * 4
    assert "calls" in f.explain()
    with torch.compiler.set_stance("force_eager"):
        calls = f.learned.calls
        f(torch.ones(2))
        assert f.learned.calls == calls
    torch.compiler.reset()
    assert not f.learned.calls


def test_fullgraph_refuses_another_course():
    @torch.compile(fullgraph=True)
    def f(x, flag):
        return x.exp() if flag else x.log()

    for _ in range(3):
        f(torch.ones(2), True)
    with pytest.raises(RuntimeError, match="different execution path"):
        f(torch.ones(2), False)
    f(torch.ones(2), True)


def test_copies_and_pickles():
    model, _ = models()
    compiled = torch.compile(model)
    x = torch.randn(2, 4)
    compiled(x)
    twin = copy.deepcopy(compiled)
    assert twin._orig_mod is not model
    for _ in range(3):
        close(twin(x), model(x))


def test_a_region_by_name():
    x = torch.randn(3)
    for _ in range(4):
        with torch.compiler.region("tripled"):
            y = x * 3
        close(y, x * 3)
    assert "tripled" in torch.compiler.explain("tripled")


def test_recording_inside_a_compiled_function_falls_back():
    @torch.compile
    def f(x):
        return (x * 2).sum()

    x = torch.randn(3, requires_grad=True)
    for _ in range(3):
        f(x)
    with torch.graph.record() as graph:
        f(x)
    assert [node.op for node in graph if node.op in ("mul", "sum")] == ["mul", "sum"]


def test_bad_arguments():
    with pytest.raises(TypeError, match="a function or a module"):
        torch.compile(3)
    with pytest.raises(RuntimeError, match="unknown backend"):
        torch.compile(lambda: None, backend="nothing")


def test_an_error_that_shows_late_changes_nothing_twice():
    table, count = torch.randn(5, 3), torch.zeros(1)

    @torch.compile
    def f(index):
        count.add_(1)
        return F.embedding(index, table).sum()

    for _ in range(3):
        f(torch.tensor([0, 4]))
    with pytest.raises(IndexError):
        f(torch.tensor([0, 5]))
    assert count.item() == 4


def test_attributes_that_are_equal_but_not_the_same():
    from weft.compiler.trace import same_attributes

    pairs = [({"p": 1}, {"p": 1.0}), ({"p": 0.0}, {"p": -0.0}), ({"p": (1, 2)}, {"p": (1, 2.0)})]
    pairs += [({"p": True}, {"p": 1}), ({"p": 1}, {"q": 1}), ({}, {"p": None})]
    for a, b in pairs:
        assert not same_attributes(a, b)
        assert same_attributes(a, dict(a))


def test_many_parameters_are_told_apart():
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(3)) for _ in range(4)]

    @torch.compile
    def f(order):
        total = weights[order[0]] * 2
        for k in order[1:]:
            total = total + weights[k]
        return total

    orders = [
        (0, 1, 2, 3),
        (0, 1, 2, 3),
        (3, 1, 2, 0),
        (0, 0, 1, 1),
        (0, 1, 2, 3),
        (3, 1, 2, 0),
    ] * 3
    for order in orders:
        expected = weights[order[0]] * 2 + sum(weights[k] for k in order[1:])
        close(f(order), expected)


def test_another_default_dtype():
    def make():
        x = torch.tensor([1, 2, 3])
        return lambda k: (x * 1.5).sin()

    agree(make)
    torch.set_default_dtype(torch.float64)
    try:
        agree(make)
        eager, followed = make(), Compiled(make())
        for dtype in (torch.float32, torch.float64) * 3:
            torch.set_default_dtype(dtype)
            found = followed(0)
            assert found.dtype is dtype
            close(found, eager(0))
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_thread_that_reads_what_is_pending():
    def f(x):
        y = x * 2
        found = []
        reader = threading.Thread(target=lambda: found.append(y.sum().item()))
        reader.start()
        z = y
        for _ in range(50):
            z = z + 1
        reader.join()
        return z, torch.tensor(found[0])

    x = torch.arange(4.0)
    compiled = torch.compile(f)
    for _ in range(20):
        close(compiled(x), f(x))


def test_without_native_code_everything_is_eager():
    @torch.compile
    def f(x):
        return (x * 2).exp()

    x = torch.randn(3)
    f(x), f(x)
    torch.backends.native.set("numpy")
    try:
        calls = f.learned.calls
        close(f(x), (x * 2).exp())
        assert f.learned.calls == calls
    finally:
        torch.backends.native.set("native")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_changes_in_place_of_what_has_a_history():
    def make():
        torch.manual_seed(0)
        w, x = torch.randn(4, requires_grad=True), torch.randn(4)
        total = torch.zeros(4)

        def step(k):
            w.grad = None
            h = Doubled.apply(w)  # a tensor from outside of the trace
            h.relu_()
            first = (h * x).sum()
            y = w * x
            with torch.no_grad():
                y.mul_(2)  # its history stays as it was
            buffer = total.clone()
            buffer.add_(w)
            (first + (h * 3).sum() + (y * 5).sum() + buffer.sum()).backward()
            return [first.detach(), h.detach(), y.detach(), w.grad.clone()]

        return step

    agree(make, 7)


def test_a_buffer_that_gets_a_history():
    def make():
        torch.manual_seed(0)
        w = torch.randn(4, requires_grad=True)

        def step(k):
            w.grad = None
            kept = torch.ones(4)
            kept.mul_(2)
            kept.mul_(w)
            kept.exp_()
            kept.sum().backward()
            return [kept.detach(), w.grad.clone()]

        return step

    agree(make, 6)


def test_results_on_memory_that_only_their_function_knows_are_no_views():
    """``pixel_shuffle`` ends in a view of a copy; to its user it is a tensor of its own."""

    def function(x):
        y = nn.functional.pixel_shuffle(x, 2)
        return y, x.reshape(-1)

    compiled = torch.compile(function)
    x = torch.randn(1, 4, 2, 2)
    for _ in range(4):
        (y, flat), (other, view) = compiled(x), function(x)
        assert (y._is_view(), flat._is_view()) == (other._is_view(), view._is_view())
        assert torch.equal(y, other)
        flat.mul_(2)
        assert torch.equal(x.reshape(-1), flat)
    assert not any("apart" in why for why in compiled.learned.reasons)


def test_values_that_are_read_by_name_are_values():
    """Only code whose instructions show what it reads may look at a pending tensor's outline."""
    from operator import attrgetter

    read = (lambda t: getattr(t, "_a"), attrgetter("_a"))  # noqa: B009

    @torch.compile
    def function(x, reads):
        return reads(x * 2).sum()

    for reads in read:
        for _ in range(4):
            assert function(torch.ones(3), reads) == 6
    masked = torch.compile(lambda x: x[x > 0])
    for _ in range(4):
        assert masked(torch.tensor([1.0, -1.0])).tolist() == [1.0]


def test_dropout_of_a_view_draws_as_eagerly():
    """PyTorch draws in the order of memory, so that it matters whether the input is a view."""

    def function(x, k):
        torch.manual_seed(k)
        return F.dropout((x * 1).transpose(0, 1), 0.5)

    compiled, x = torch.compile(function), torch.ones(4, 6)
    for k in range(4):
        assert torch.equal(compiled(x, k), function(x, k))
    assert compiled.learned.diverged == 1
