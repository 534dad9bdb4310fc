"""Autograd against PyTorch: backward, hooks, forward mode, gradcheck."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import weft
from agreement import agree, cube, double, trial, wavy

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


# --- backward and grad -----------------------------------------------------------------


@scenario
def accumulation(T):
    x = double(T, 1.0, 2.0)
    (x * x).sum().backward()
    (x**3).sum().backward()
    first = x.grad.clone()
    x.grad = None
    (x * 2).sum().backward()
    return first, x.grad, x.is_leaf, x.grad_fn is None


@scenario
def repeated_use_and_several_roots(T):
    x, y = double(T, 1.0, 2.0), double(T, 3.0, 4.0)
    a = x * y
    b = a.sin() + a * x + x
    T.autograd.backward([b.sum(), (a * a).sum()], [T.tensor(2.0, dtype=T.float64), None])
    return x.grad, y.grad


@scenario
def gradient_argument(T):
    x = double(T, 1.0, 2.0)
    v = double(T, 0.5, -1.0, grad=False)
    (x * x).backward(v)
    return (
        x.grad,
        trial(T, lambda: (x * x).backward(), message="scalar outputs"),
        trial(T, lambda: (x * x).backward(v[:1]), message="Mismatch in shape"),
    )


@scenario
def twice(T):
    x = double(T, 1.0, 2.0)
    y = (x.sin() * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    kept = x.grad.clone()
    return kept, trial(T, y.backward, message="a second time")


@scenario
def twice_without_saved_values(T):
    x = double(T, 1.0, 2.0)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    return x.grad


@scenario
def inputs_argument(T):
    x, y = double(T, 1.0, 2.0), double(T, 3.0, 4.0)
    a = x * y
    (a * a).sum().backward(inputs=[x])
    second = x.grad.clone(), y.grad is None
    (x * y).sum().backward(inputs=y)
    empty = trial(T, lambda: (x * y).sum().backward(inputs=[]), message="cannot be empty")
    return second, x.grad, y.grad, empty


@scenario
def grad_options(T):
    x, y, z = double(T, 1.0, 2.0), double(T, 3.0, 4.0), double(T, 5.0)
    out = (x * y).sum()
    g = T.autograd.grad(out, [x, y], retain_graph=True)
    unused = trial(
        T,
        lambda: T.autograd.grad(out, [x, z], retain_graph=True),
        message="not have been used in the graph",
    )
    allowed = T.autograd.grad(out, [x, z], allow_unused=True, retain_graph=True)
    zeros = T.autograd.grad(out, [x, z], materialize_grads=True, retain_graph=True)
    both = trial(
        T,
        lambda: T.autograd.grad(
            out, [z], allow_unused=False, materialize_grads=True, retain_graph=True
        ),
    )
    constant = trial(T, lambda: T.autograd.grad(out, T.ones(2)), message="does not require grad")
    nothing = trial(T, lambda: T.autograd.grad(T.ones(()), [x]), message="does not require grad")
    return (
        g,
        unused,
        allowed[0],
        allowed[1] is None,
        zeros,
        both,
        constant,
        nothing,
        x.grad is None,
    )


@scenario
def grad_of_middle_values(T):
    x = double(T, 1.0, 2.0)
    a = x.sin()
    b = a * x
    return T.autograd.grad(b.sum(), [a, x, b], allow_unused=True)


@scenario
def batched_gradients(T):
    x = double(T, 1.0, 2.0)
    y = x**2
    rows = T.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=T.float64)
    return T.autograd.grad(y, x, rows, is_grads_batched=True)


@scenario
def third_derivative(T):
    x = double(T, 0.3, 0.7)
    found = []
    y = x.sin() * x.exp()
    for _ in range(3):
        (y,) = T.autograd.grad(y.sum(), x, create_graph=True)
        found.append(y)
    return found


@scenario
def backward_with_a_graph(T):
    x = double(T, 1.0, 2.0)
    (x**3).sum().backward(create_graph=True)
    g = x.grad
    x.grad = None
    (g * g).sum().backward()
    return x.grad, g.requires_grad


@scenario
def gradient_edges(T):
    x = double(T, 1.0, 2.0)
    y = x * x
    edge = T.autograd.graph.get_gradient_edge(y)
    leaf = T.autograd.graph.get_gradient_edge(x)
    (g,) = T.autograd.grad(y.sum(), [edge], retain_graph=True)
    (h,) = T.autograd.grad(y.sum(), [leaf])
    constant = trial(T, lambda: T.autograd.graph.get_gradient_edge(T.ones(2)))
    return g, h, edge.output_nr, edge.node.name(), constant


@scenario
def graph_can_be_walked(T):
    x, y = double(T, 1.0), double(T, 2.0)
    z = (x * y + 3).sin()
    names = []
    node = z.grad_fn
    while node is not None and node.next_functions:
        names.append(node.name())
        node = node.next_functions[0][0]
    return names, node.name().split("::")[-1], node.variable is x


# --- hooks -----------------------------------------------------------------------------


@scenario
def tensor_hooks(T):
    x = double(T, 1.0, 2.0)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(("y", g.clone())))
    handle = y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    (y * y).sum().backward(retain_graph=True)
    first = x.grad.clone()
    handle.remove()
    x.grad = None
    (y * y).sum().backward()
    refused = trial(T, lambda: T.ones(2).register_hook(print), message="doesn't require gradient")
    return seen, first, x.grad, refused


@scenario
def kept_gradients(T):
    x = double(T, 1.0, 2.0)
    y = x.sin()
    y.retain_grad()
    y.register_hook(lambda g: g * 3)
    z = (y * y).sum()
    z.retain_grad()
    z.backward()
    return y.grad, z.grad, x.grad, y.retains_grad, x.retains_grad


@scenario
def after_accumulation(T):
    x = double(T, 1.0, 2.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
    (x * x * x).sum().backward()
    (x * x).sum().backward()
    not_leaf = trial(T, lambda: (x * 2).register_post_accumulate_grad_hook(print))
    return seen, not_leaf


@scenario
def node_hooks(T):
    x = double(T, 1.0, 2.0)
    y = x.sin()
    seen = []
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    y.grad_fn.register_hook(lambda ins, outs: seen.append((ins, outs)))
    handle = y.grad_fn.register_hook(lambda ins, outs: (ins[0] + 1,))
    y.sum().backward(retain_graph=True)
    first = x.grad.clone()
    handle.remove()
    y.sum().backward()
    y.grad_fn.metadata["note"] = 3
    return seen, first, x.grad, y.grad_fn.metadata


@scenario
def hooks_on_many(T):
    a, b, c = double(T, 1.0), double(T, 2.0), double(T, 3.0)
    seen, any_seen = [], []
    mid = a * b
    T.autograd.graph.register_multi_grad_hook(
        (a, b, c), lambda gs: seen.append([None if g is None else g.clone() for g in gs])
    )
    handle = T.autograd.graph.register_multi_grad_hook(
        (mid, c), lambda g: any_seen.append(g.clone()), mode="any"
    )
    (mid * mid).sum().backward(retain_graph=True)
    (mid * c).sum().backward(retain_graph=True)
    handle.remove()
    mid.sum().backward()
    return seen, len(any_seen)


@scenario
def hooks_on_many_wait_for_what_runs(T):
    a = double(T, 1.0, 2.0)
    b = a * 3
    c = b.unsqueeze(0)
    seen = []
    T.autograd.graph.register_multi_grad_hook(
        [a, b], lambda gs: seen.append([None if g is None else g.clone() for g in gs])
    )
    c.sin().sum().backward(inputs=[c, b])  # runs the node of b, and stops short of the leaf
    return seen, b.grad, a.grad


@scenario
def hooks_under_create_graph(T):
    x = double(T, 1.0, 2.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = T.autograd.grad(y.sum(), x, create_graph=True)
    return g, T.autograd.grad(g.sum(), x)


# --- saved tensors ---------------------------------------------------------------------


@scenario
def saved_tensor_hooks(T):
    x = double(T, 1.0, 2.0)
    log = []

    def pack(t):
        log.append("pack")
        return t.detach().clone() * 2

    def unpack(t):
        log.append("unpack")
        return t / 2

    with T.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = (x.sin() * 3).sum()
    y.backward()
    return x.grad, log


@scenario
def saved_hooks_nested_and_off(T):
    x = double(T, 1.0, 2.0)
    G = T.autograd.graph
    with G.save_on_cpu(), G.saved_tensors_hooks(lambda t: t, lambda t: t * 2):
        y = (x * x).sum()
    y.backward()

    def inside():
        with G.disable_saved_tensors_hooks("not here"):
            with G.saved_tensors_hooks(lambda t: t, lambda t: t):
                pass

    return x.grad, trial(T, inside, message="not here")


@scenario
def overwritten_values(T):
    x = double(T, 1.0, 2.0)
    y = x * 1
    z = y.sin()
    y.add_(1)
    a = trial(T, z.sum().backward, message="modified by an inplace operation")
    y = x * 1
    z = y.sin()
    T.autograd.graph.increment_version(y)
    b = trial(T, z.sum().backward, message="modified by an inplace operation")
    with T.autograd.graph.allow_mutation_on_saved_tensors():
        y = x * 1
        z = y.sin()
        y.add_(1)
        z.sum().backward()
    return a, b, x.grad


# --- anomalies -------------------------------------------------------------------------


@scenario
def anomaly_names_the_op(T):
    x = double(T, 0.0)

    def run():
        with T.autograd.detect_anomaly():
            y = (x.sqrt() * 0).sum()
            y.backward()

    named = trial(T, run, message="SqrtBackward0")
    with T.autograd.set_detect_anomaly(True, check_nan=False):
        (x.sqrt() * 0).sum().backward()
    with T.autograd.set_detect_anomaly(False):
        (x.sqrt() * 0).sum().backward()
    return named, x.grad


def test_anomaly_shows_the_line():
    x = weft.tensor([0.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with weft.autograd.detect_anomaly():
            y = x.sqrt() * 0  # the line to show
    with (
        pytest.raises(RuntimeError, match="the line to show"),
        weft.autograd.set_detect_anomaly(True),
    ):
        y.sum().backward()


# --- forward mode ----------------------------------------------------------------------


def fw(T):
    from importlib import import_module

    return import_module(f"{T.__name__}.autograd.forward_ad")


@scenario
def forward_mode(T):
    F = fw(T)
    x, v = double(T, 0.3, 0.7, grad=False), double(T, 1.0, 2.0, grad=False)
    with F.dual_level():
        dual = F.make_dual(x, v)
        out = F.unpack_dual((dual.sin() * dual).sum() / dual.exp().sum())
        bare = F.unpack_dual(x)
        wrong = trial(T, lambda: F.make_dual(x, v[:1]), message="different size")
    late = trial(T, lambda: F.make_dual(x, v), message="no level exists")
    after = F.unpack_dual(dual).tangent is None
    return out.primal, out.tangent, bare.tangent is None, wrong, late, after


@scenario
def forward_over_reverse(T):
    F = fw(T)
    x, v = double(T, 0.3, 0.7), double(T, 1.0, 2.0, grad=False)
    with F.dual_level():
        dual = F.make_dual(x, v)
        (g,) = T.autograd.grad((dual.sin() * dual.exp()).sum(), dual)
        first = F.unpack_dual(g).tangent
        (g,) = T.autograd.grad((dual.sin() * dual.exp()).sum(), x, create_graph=True)
        second = F.unpack_dual(g).tangent
    return first, second


@scenario
def reverse_over_forward(T):
    F = fw(T)
    x, v = double(T, 0.3, 0.7), double(T, 1.0, 2.0)
    with F.dual_level():
        t = F.unpack_dual(F.make_dual(x, v).sin().sum()).tangent
    return T.autograd.grad(t, [x, v])


@scenario
def function_jvp(T):
    F = fw(T)

    class Mul(T.autograd.Function):
        @staticmethod
        def forward(x, y, k):
            return x * y * k, x + y

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, y, ctx.k = inputs
            ctx.save_for_backward(x, y)
            ctx.save_for_forward(x, y)

        @staticmethod
        def backward(ctx, a, b):
            x, y = ctx.saved_tensors
            return a * y * ctx.k + b, a * x * ctx.k + b, None

        @staticmethod
        def jvp(ctx, tx, ty, _):
            x, y = ctx.saved_tensors
            return (tx * y + x * ty) * ctx.k, tx + ty

    x, y, v = double(T, 0.3, 0.7), double(T, 1.5, 2.5), double(T, 1.0, 2.0, grad=False)
    with F.dual_level():
        a, b = Mul.apply(F.make_dual(x, v), y, 3)
        ta, tb = F.unpack_dual(a).tangent, F.unpack_dual(b).tangent
        missing = trial(T, lambda: cube(T).apply(F.make_dual(x, v)), message="jvp function")
    return ta, tb, T.autograd.grad(ta.sum(), [x, y], allow_unused=True), missing


@scenario
def forward_mode_through_many_ops(T):
    F = fw(T)
    x, v = double(T, 0.3, 0.7, grad=False), double(T, 1.0, 2.0, grad=False)
    with F.dual_level():
        dual = F.make_dual(x, v)
        a, b = dual.unbind(0)
        changed = dual * 1
        changed.mul_(dual)
        outs = (
            a * b,
            T.stack([a, b]).cumsum(0),
            dual.max(0)[0],
            dual.reshape(2, 1) @ dual.reshape(1, 2),
            dual.view(1, 2).expand(2, 2).sum(),
            changed,
        )
        return [F.unpack_dual(o).tangent for o in outs]


@scenario
def forward_mode_in_place_on_a_view(T):
    F = fw(T)
    x, v = double(T, 0.3, 0.7, grad=False), double(T, 1.0, 2.0, grad=False)
    with F.dual_level():
        dual = F.make_dual(x, v)
        z = T.zeros(2, dtype=T.float64)
        z[0] = dual[1] * 2
        w = dual * 1
        w[0] = 5.0
        return F.unpack_dual(z).tangent, F.unpack_dual(w).tangent


@scenario
def forward_over_reverse_in_place(T):
    F = fw(T)
    x, v = double(T, 0.3, 0.7), double(T, 1.0, 2.0, grad=False)
    with F.dual_level():
        dual = F.make_dual(x, v)
        y = dual * 1
        y.mul_(dual.sin())
        (g,) = T.autograd.grad(y.sum(), x)
        return F.unpack_dual(g).tangent


@scenario
def function_error_in_backward(T):
    class Fails(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("of the user's own")

    return trial(T, Fails.apply(double(T, 1.0)).sum().backward, message="of the user's own")


@scenario
def hooks_and_changes_in_place(T):
    x = double(T, 0.3, 0.7)
    y = x.sin()
    z = y.view(2, 1)
    seen = []
    y.register_hook(lambda g: seen.append(g.clone()))
    y.mul_(2)
    y.register_hook(lambda g: seen.append(g.clone() * 10))
    z.sum().backward()
    w = x * 2
    w.retain_grad()
    w.mul_(3)
    w.sum().backward()
    return seen, x.grad, w.grad


@scenario
def node_prehooks_and_kept_gradients(T):
    x = double(T, 0.3, 0.7)
    y = x * 2
    y.retain_grad()
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 3,))
    (y**2).sum().backward(retain_graph=True)
    return y.grad, x.grad, T.autograd.grad((y**2).sum(), y)


# --- functional and gradcheck ----------------------------------------------------------


@scenario
def functional(T):
    A = T.autograd.functional
    x, y = double(T, 0.3, 0.7), double(T, 1.0, 2.0)
    f = lambda x, y: (x.sin() * y, (x * y).sum())
    s = lambda x, y: (x * x * y.exp()).sum()
    v = (double(T, 1.0, 0.5, grad=False), T.tensor(2.0, dtype=T.float64))
    return (
        A.jacobian(f, (x, y)),
        A.jacobian(lambda x: x**2, x),
        A.hessian(s, (x, y)),
        A.hessian(wavy, x),
        A.vjp(f, (x, y), v),
        A.vjp(wavy, x),
        A.jvp(f, (x, y), (v[0], v[0])),
        A.vhp(s, (x, y), (v[0], v[0])),
        A.hvp(s, (x, y), (v[0], v[0])),
        A.jacobian(lambda x: x**2, x).requires_grad,
        A.jacobian(lambda x: T.ones(2, dtype=T.float64), x),
    )


@scenario
def functional_with_a_graph(T):
    A = T.autograd.functional
    x = double(T, 0.3, 0.7)
    found = []
    for out in (
        A.jacobian(lambda x: x**3, x, create_graph=True),
        A.hessian(wavy, x, create_graph=True),
        A.vjp(wavy, x, create_graph=True)[1],
        A.jvp(lambda x: x**3, x, x.detach(), create_graph=True)[1],
        A.hvp(wavy, x, x.detach(), create_graph=True)[1],
        A.vhp(wavy, x, x.detach(), create_graph=True)[1],
    ):
        found.append((out.requires_grad, T.autograd.grad(out.sum(), x)))
    return found


@scenario
def functional_strict(T):
    A = T.autograd.functional
    x, y = double(T, 0.3, 0.7), double(T, 1.0, 2.0)
    return [
        trial(T, lambda: A.jacobian(lambda x, y: x * 2, (x, y), strict=True)),
        trial(T, lambda: A.vjp(lambda x, y: x.sum(), (x, y), strict=True)),
        trial(T, lambda: A.hessian(lambda x: (x * 2).sum(), x, strict=True)),
        trial(T, lambda: A.vjp(lambda x: x, x), message="can only be None"),
        trial(T, lambda: A.vjp(lambda x: 3, x)),
        trial(T, lambda: A.hvp(lambda x: x, x, x), message="single element"),
        trial(T, lambda: A.jvp(lambda x: x, x, x[:1]), message="invalid size"),
    ]


@scenario
def gradcheck_answers(T):
    Cube = cube(T)

    class Wrong(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = double(T, 0.3, 0.7)
    c = T.tensor([1.0 + 2j, 0.5 - 1j], dtype=T.complex128).requires_grad_()
    check, again = T.autograd.gradcheck, T.autograd.gradgradcheck
    found = []
    for fast in (False, True):
        found += [
            check(Cube.apply, (x, 2.0), fast_mode=fast),
            again(Cube.apply, (x, 2.0), fast_mode=fast),
            check(Wrong.apply, (x,), raise_exception=False, fast_mode=fast),
            trial(
                T, lambda fast=fast: check(Wrong.apply, (x,), fast_mode=fast), message="mismatch"
            ),
            check(lambda c: (c * c.conj(), c.abs()), (c,), fast_mode=fast),
            check(lambda x: x.sin(), (x,), check_forward_ad=True, fast_mode=fast),
        ]
    found.append(trial(T, lambda: check(lambda x: x, (x.detach(),)), message="at least one input"))
    return found


# --- depth, threads ---------------------------------------------------------------------


def test_a_chain_of_a_hundred_thousand_nodes():
    x = weft.tensor([1.0], dtype=weft.float64, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    y.backward()
    assert x.grad.item() == 1.0
    del y
    y = x
    for _ in range(100_000):
        y = y * 1.00001
    del y


def test_many_threads():
    shared = weft.tensor(np.linspace(0, 1, 50), dtype=weft.float64, requires_grad=True)
    own, errors = {}, []

    def work(k):
        try:
            for _ in range(20):
                x = weft.tensor(np.full(50, float(k)), dtype=weft.float64, requires_grad=True)
                (x.sin() * shared).sum().backward()
                with weft.no_grad():
                    assert not (x * 2).requires_grad
            own[k] = x.grad.numpy().copy()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    for k in range(8):
        np.testing.assert_allclose(own[k], np.cos(k) * np.linspace(0, 1, 50))
    np.testing.assert_allclose(
        shared.grad.numpy(), 20 * sum(np.sin(k) for k in range(8)), rtol=1e-12
    )


def test_inputs_of_grad_may_be_an_iterator():
    model = weft.nn.Linear(2, 1)
    weight, bias = weft.autograd.grad(model(weft.ones(2)).sum(), model.parameters())
    assert weight.tolist() == [[1, 1]] and bias.tolist() == [1]


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda run: run.__name__)
def test_same_as_torch(run):
    agree(run)


SAVED_NAMES = {
    "linear": (lambda T, F, x, y: F.linear(x, y), "self mat2"),
    "addmm": (lambda T, F, x, y: F.linear(x, y, y[0]), "mat1 mat2"),
    "mm": (lambda T, F, x, y: x @ y, "self mat2"),
    "pow": (lambda T, F, x, y: x**y, "self exponent result"),
    "clamp": (lambda T, F, x, y: x.clamp(0.25, 0.5), "self min max"),
    "conv": (
        lambda T, F, x, y: F.conv2d(x[None, None], y[None, None], stride=2),
        "input weight stride padding dilation groups",
    ),
    "mse": (lambda T, F, x, y: F.mse_loss(x, y), "self target reduction"),
    "svd": (lambda T, F, x, y: T.linalg.svd(x)[0], "U S Vh full_matrices"),
    "inv": (lambda T, F, x, y: T.linalg.inv(x), "inverse"),
    "qr": (lambda T, F, x, y: T.linalg.qr(x)[0], "Q R mode"),
    "layer_norm": (lambda T, F, x, y: F.layer_norm(x, (3,)), "input weight result1 result2"),
    "batch_norm": (
        lambda T, F, x, y: F.batch_norm(x, None, None, training=True),
        "input weight result1 eps",
    ),
    "max_pool": (
        lambda T, F, x, y: F.max_pool2d(x[None, None], 2, 2),
        "result1 kernel_size stride padding",
    ),
    "embedding": (lambda T, F, x, y: F.embedding(T.tensor([0, 2]), x), "indices"),
    "index": (lambda T, F, x, y: x[T.tensor([0, 2])], "indices"),
    "sum": (lambda T, F, x, y: x.sum(1, keepdim=True), "dim keepdim self_sym_sizes"),
}


@pytest.mark.parametrize("case", SAVED_NAMES)
def test_saved_values_have_pytorchs_names(case: str) -> None:
    torch = pytest.importorskip("torch")
    function, names = SAVED_NAMES[case]

    def saved(T):
        T.manual_seed(0)
        x, y = (T.rand(3, 3, requires_grad=True) for _ in range(2))
        node = function(T, T.nn.functional, x, y).grad_fn
        assert all(f"_saved_{name}" in dir(node) for name in names.split())
        return [getattr(node, f"_saved_{name}") for name in names.split()]

    for ours, theirs in zip(saved(weft), saved(torch), strict=True):
        if isinstance(theirs, torch.Tensor):
            np.testing.assert_allclose(
                ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5
            )
        elif case == "index":
            assert ours[0].tolist() == theirs[0].tolist()
        else:
            assert ours == theirs
