"""Backward inside backward, nodes called by hand, and gradients that never come."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft
from agreement import agree, double, trial

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


def nested(T):
    """A function whose backward runs a backward of its own, as deep as its input is large."""

    class Deep(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with T.enable_grad():
                ctx.x = x.detach().requires_grad_() - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx, g):
            if ctx.x < 0:
                return g
            with T.enable_grad():
                Deep.apply(ctx.x).sum().backward()
            return g

    return Deep


@pytest.mark.parametrize("depth", [20, 700])
def test_a_backward_deep_inside_backwards(depth):
    x = weft.tensor(float(depth), requires_grad=True)
    leaf = weft.ones(1, requires_grad=True)

    (nested(weft).apply(x) * leaf).sum().backward()
    assert x.grad.item() == 1.0 and leaf.grad.item() == depth - 1.0


def test_errors_and_switches_cross_the_depths():
    class Fails(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx, g):
            seen.append((weft.is_grad_enabled(), weft.is_autocast_enabled("cpu")))
            if not ctx.depth:
                raise KeyError("at the bottom")
            with weft.enable_grad():
                inner = weft.ones(1, requires_grad=True)
                Fails.apply(inner, ctx.depth - 1).sum().backward()
            return g, None

    seen = []
    x = weft.ones(1, requires_grad=True)
    with weft.autocast("cpu"), pytest.raises(KeyError, match="at the bottom"):
        Fails.apply(x, 100).sum().backward()
    assert seen == [(False, True)] * 101
    assert weft.is_grad_enabled() and not weft.is_autocast_enabled("cpu")
    (x * 2).sum().backward()
    assert x.grad.item() == 2.0


@scenario
def callbacks_at_the_end(T):
    order = []
    engine = T.autograd.Variable._execution_engine

    class Calls(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx, g):
            order.append(("backward", ctx.depth))

            def last():
                order.append(("last", ctx.depth))

            def first():
                order.append(("first", ctx.depth, T.is_grad_enabled()))
                engine.queue_callback(last)

            engine.queue_callback(first)
            if ctx.depth:
                with T.enable_grad():
                    inner = double(T, 1.0)
                    Calls.apply(inner, ctx.depth - 1).sum().backward()
            return g, None

    x = double(T, 1.0)
    x.register_hook(lambda g: order.append("leaf"))
    Calls.apply(x, 1).sum().backward()
    return order, trial(T, lambda: engine.queue_callback(print), message="during backward pass")


@scenario
def nodes_called_by_hand(T):
    x, y = double(T, 1.0, 2.0), double(T, 3.0, 4.0)
    g = T.ones(2, dtype=T.float64)
    product = x * y
    found = [product.grad_fn(g), (x + y).grad_fn(g), x.exp().grad_fn(g), x.sum().grad_fn(g[0])]
    with T.no_grad():
        found.append([z.requires_grad for z in product.grad_fn(g)])
    found.append([z.requires_grad for z in product.grad_fn(g)])
    found.append(trial(T, lambda: product.grad_fn(), message="arguments, got 0 instead"))
    found.append(trial(T, lambda: product.grad_fn(g, g), message="arguments, got 2 instead"))
    product.sum().backward()
    found.append(trial(T, lambda: product.grad_fn(g), message="second time"))
    (x * 2).grad_fn.next_functions[0][0](g)
    return found, x.grad


@scenario
def gradients_that_never_come(T):
    seen = []

    class Stops(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return None

    class Looks(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, fill):
            ctx.set_materialize_grads(fill)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, g, h):
            seen.append((g is None, h is None))
            return (None if g is None else g + 1), None

    found = []
    for fill in (True, False):
        for create in (True, False):
            x = double(T, 1.0)
            a, _b = Looks.apply(x, fill)
            Stops.apply(a).sum().backward(create_graph=create)
            found.append(x.grad)
    x = double(T, 1.0)
    y = x.sin()
    y.register_hook(lambda g: seen.append(g))
    Stops.apply(y).backward()
    z = x.cos()
    z.register_hook(lambda g: T.full((1,), 2.0, dtype=T.float64) if g is None else g)
    return seen, found, x.grad, trial(T, Stops.apply(z).backward, message="can't replace a None")


@pytest.mark.filterwarnings("ignore:Using backward")
def test_nodes_of_a_gradient_name_the_line_of_its_backward():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = (x.exp() * x).sum() + x.relu().sum() + x.std() + x.softmax(0).log().sum()
    (g,) = weft.autograd.grad(y, x, create_graph=True)  # this line
    (x.sin() * g).sum().backward(create_graph=True)  # or this one
    seen, stack = set(), [g.grad_fn, x.grad.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            stack += [edge for edge, _ in node.next_functions]
    sources = {n.source for n in seen if n is not None and hasattr(n, "source")}
    assert len(sources) == 3 and all("test_backward_calls.py:" in s for s in sources), sources
    assert any("# this line" in s for s in sources) and any("# or this" in s for s in sources)


@scenario
def what_grad_refuses(T):
    graph = T.autograd.graph
    x, y = double(T, 1.0), double(T, 2.0)
    a, b = x * 1, y * 1
    edge = graph.get_gradient_edge(b)
    return (
        trial(T, lambda: T.autograd.grad(a * 3, []), message="cannot be empty"),
        trial(
            T,
            lambda: T.autograd.grad(a * 3, (a, edge), allow_unused=True, materialize_grads=True),
            message="materialize_grads cannot be used when the given input is a GradientEdge",
        ),
        T.autograd.grad(a * 3, (a, edge), allow_unused=True),
        T.autograd.grad(b * 3, (a, edge), materialize_grads=True),
    )


@scenario
def anomaly_names_the_forward_call(T):
    def failing():
        with T.autograd.detect_anomaly():
            x = double(T, 1.0)
            y = x + 1
            z = y**2
            y += 1
            T.autograd.grad(z, x)

    found = []
    for action in ("always", "error"):
        with warnings.catch_warnings(record=True) as told, warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.filterwarnings(action, "Error detected")
            error = trial(T, failing, message="modified by an inplace operation")
        words = ("Anomaly Detection has been enabled", "Error detected in PowBackward0")
        found.append((error, [[w in str(t.message) for w in words] for t in told]))
    return found


@scenario
def settings_of_jacobian(T):
    jacobian, hessian = T.autograd.functional.jacobian, T.autograd.functional.hessian
    x = double(T, 1.0, 2.0)

    def square(x):
        return (x * x).sum()

    return (
        trial(T, lambda: jacobian(T.sin, x, strict=True, vectorize=True), message="together"),
        trial(T, lambda: hessian(square, x, strict=True, vectorize=True), message="together"),
        trial(T, lambda: jacobian(T.sin, x, strategy="forward-mode"), message="vectorize=True"),
        trial(
            T,
            lambda: jacobian(T.sin, x, strict=True, vectorize=True, strategy="forward-mode"),
            message="forward-mode",
        ),
        trial(T, lambda: hessian(square, x, outer_jacobian_strategy="sideways")),
        jacobian(T.sin, x, vectorize=True, strategy="forward-mode"),
        hessian(square, x, vectorize=True, outer_jacobian_strategy="forward-mode"),
    )


@scenario
def threads_of_backward(T):
    grads = T.autograd
    found = [grads.is_multithreading_enabled()]
    with grads.set_multithreading_enabled(False):
        found.append(grads.is_multithreading_enabled())
    found.append(grads.is_multithreading_enabled())
    grads.set_multithreading_enabled(False)
    found.append(grads.is_multithreading_enabled())
    grads.set_multithreading_enabled(True)
    return found


@scenario
def hooks_after_accumulation(T):
    x = double(T, 1.0)
    x.register_post_accumulate_grad_hook(lambda t: t.grad)
    return trial(T, lambda: (x * 2).backward(), message="hooks should return None.")


@scenario
def gradients_in_batches(T):
    x = double(T, 1.0, 2.0)
    y = x**3
    rows = T.vmap(lambda v: T.autograd.grad(y, x, v)[0])(T.eye(2, dtype=T.float64))
    again = trial(T, lambda: T.autograd.grad(y.sum(), x), message="second time")
    y = x**3
    kept = T.vmap(lambda v: T.autograd.grad(y, x, v, retain_graph=True)[0])(
        T.eye(2, dtype=T.float64)
    )
    return rows, again, kept, T.autograd.grad(y.sum(), x)


@scenario
def warnings_of_create_graph(T):
    def told(call):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            call()
        return sum("Using backward() with create_graph=True" in str(w.message) for w in given)

    x = double(T, 1.0)
    before = T.is_warn_always_enabled()
    T.set_warn_always(True)
    try:
        return (
            told(lambda: (x * x).backward(create_graph=True)),
            told(lambda: T.autograd.backward(x * x, create_graph=True)),
            told(lambda: T.autograd.grad(x * x, x, create_graph=True)),
            told(lambda: (x * x).backward()),
        )
    finally:
        T.set_warn_always(before)


@scenario
def switches(T):
    state, found = [], []

    @T.no_grad()
    def generator():
        try:
            yield T.is_grad_enabled()
        finally:
            state.append(T.is_grad_enabled())

    running = generator()
    next(running)
    running.close()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")

        @T.no_grad()
        class Made:
            def __init__(self):
                found.append(T.is_grad_enabled())

    Made()
    x = double(T, 1.0)
    with T.no_grad():
        array = x.numpy()
    return (
        state,
        found,
        [w.category.__name__ for w in told],
        np.asarray(array).tolist(),
        trial(T, lambda: x.numpy(), message="Can't call numpy() on Tensor that requires grad"),
    )


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda run: run.__name__)
def test_same_as_torch(run):
    agree(run)


# --- leaves that change what they are ----------------------------------------------------


def test_set_makes_another_leaf_of_a_leaf():
    x = weft.ones(3, requires_grad=True)
    edge, out = weft.autograd.graph.get_gradient_edge(x), x.clone()
    seen = []
    x.register_hook(lambda g: seen.append(g))
    with weft.no_grad():
        x.set_(weft.rand(3))
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        weft.autograd.grad(out.sum(), x, retain_graph=True)
    assert weft.autograd.grad(out.sum(), edge)[0].tolist() == [1.0, 1.0, 1.0]
    seen.clear()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0] and len(seen) == 1


def test_set_is_a_change_in_place():
    x = weft.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
        x.set_(weft.rand(3))
    y = weft.ones(3)
    product = x * y
    y.set_(weft.rand(3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_gradient_with_a_graph_is_copied_into_its_leaf_s_layout():
    x = weft.ones(3, 2).t().requires_grad_()
    (x * x * x).sum().backward(create_graph=True)
    assert x.grad.grad_fn.name() == "CopyBackwards" and x.grad.stride() == (1, 2)
    assert x.grad.grad_fn.next_functions[0] == (None, 0)
    assert weft.autograd.grad(x.grad.sum(), x)[0].tolist() == [[6.0] * 3] * 2
    gaps = weft.ones(4, 6)[:, ::2].requires_grad_()
    (gaps * gaps).sum().backward(create_graph=True)
    assert gaps.grad.grad_fn.name() == "CloneBackward0" and gaps.grad.stride() == (3, 1)


def test_swapped_tensors_take_all_along():
    p, q = weft.nn.Parameter(weft.ones(2)), weft.zeros(3)
    p.note, p.grad = "mine", weft.ones(2)
    seen = []
    p.register_hook(lambda g: seen.append(g.tolist()))
    first, second = p, q
    weft.utils.swap_tensors(p, q)
    assert first is p and second is q
    assert type(p) is weft.Tensor and type(q) is weft.nn.Parameter
    assert p.shape == (3,) and not p.requires_grad and not hasattr(p, "note")
    (q * 2).sum().backward()
    assert q.note == "mine" and q.grad.tolist() == [3.0, 3.0] and seen == [[2.0, 2.0]]
    assert p.grad is None
    base = weft.ones(2)
    view = base[:1]
    with pytest.raises(RuntimeError, match="has views"):
        weft.utils.swap_tensors(base, weft.zeros(4))
    assert view._base is base
