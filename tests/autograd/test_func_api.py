"""Function transforms, vmap and checkpoints against PyTorch."""

from __future__ import annotations

import pytest

import weft
import weft.func
import weft.utils._pytree as pytree
import weft.utils.checkpoint
from agreement import agree, double, trial, wavy

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


# --- func ------------------------------------------------------------------------------


@scenario
def func_grad(T):
    f = T.func
    x, y = double(T, 0.3, 0.7, grad=False), double(T, 1.0, 2.0, grad=False)
    pair = lambda x, y: (x * y * y).sum()
    tree = lambda p: (p["a"] * p["b"][0]).sum()
    return (
        f.grad(wavy)(x),
        f.grad(pair, argnums=1)(x, y),
        f.grad(pair, argnums=(0, -1))(x, y),
        f.grad_and_value(wavy)(x),
        f.grad(lambda x: (wavy(x), {"aux": x * 2}), has_aux=True)(x),
        f.grad(tree)({"a": x, "b": [y]}),
        f.grad(lambda x, *, k: (x * k).sum())(x, k=3.0),
        f.grad(f.grad(lambda x: x**4))(x[0]),
        f.grad(f.grad(f.grad(lambda x: x.sin())))(x[0]),
    )


@scenario
def func_grad_inside_plain_autograd(T):
    x, w = double(T, 0.3, 0.7), double(T, 1.0, 2.0)
    inner = T.func.grad(lambda x: ((x * w) ** 3).sum())
    g = inner(x)
    g.sum().backward()
    free = inner(x.detach())
    with T.no_grad():
        off = inner(x).requires_grad
    alone = T.func.grad(lambda x: (x**2).sum() + w.sum())(x.detach())
    return x.grad, w.grad, free.requires_grad, off, alone.requires_grad


@scenario
def func_jvp_of_layers(T):
    f, F = T.func.jvp, T.nn.functional
    x = T.arange(1.0, 7.0, dtype=T.float64).reshape(2, 3) / 4
    v = x.cos()
    lstm = T.nn.LSTM(3, 4).double()
    with T.no_grad():
        for p in lstm.parameters():
            p.copy_(T.linspace(-0.5, 0.5, p.numel(), dtype=T.float64).reshape(p.shape))
    weight = T.linspace(-1, 1, 6, dtype=T.float64).reshape(2, 3)
    return (
        f(lambda a: lstm(a[None])[0], (x,), (v,)),
        f(lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None]), (x,), (v,)),
        f(lambda a: F.cross_entropy(a, T.tensor([0, 2])), (x,), (v,)),
        f(lambda a: F.layer_norm(F.linear(a, weight).tanh(), (2,)), (x,), (v,)),
        f(lambda a: a.topk(2)[0], (x,), (v,)),
        f(T.linalg.svdvals, (x,), (v,)),
        f(lambda a: a.clone().add_(1).mul_(a), (x,), (v,)),
        f(lambda a: a.t().reshape(-1) * 2, (x,), (v.t().contiguous().t(),)),
        f(lambda a: (a.argmax(), a.sum()), (x,), (v,))[0],
    )


@scenario
def func_jvp_around_and_inside_of_other_transforms(T):
    f, vmap, jvp = T.func, T.func.vmap, T.func.jvp
    x = T.arange(1.0, 7.0, dtype=T.float64).reshape(2, 3) / 4
    v = x.cos()
    cubes, total = lambda r: r**3, lambda r: (r**3).sum()
    mixed = lambda r: r.sin() * r.sum()
    return (
        jvp(f.jacrev(lambda a: (a**3).sum(1)), (x,), (v,)),
        jvp(f.jacfwd(cubes), (x,), (v,)),
        jvp(f.hessian(total), (x,), (v,)),
        jvp(vmap(f.grad(total)), (x,), (v,)),
        jvp(vmap(f.jacrev(cubes)), (x,), (v,)),
        jvp(vmap(f.hessian(total)), (x,), (v,)),
        jvp(vmap(lambda a: jvp(mixed, (a,), (a,))[1]), (x,), (v,)),
        jvp(lambda a: jvp(vmap(mixed), (a,), (a,))[1], (x,), (v,)),
        jvp(f.grad(lambda a: jvp(total, (a,), (a,))[1]), (x,), (v,)),
        vmap(lambda a: jvp(vmap(T.sin), (a,), (a,))[1])(x),
        vmap(lambda a: jvp(lambda b: jvp(T.sin, (b,), (b,))[1], (a,), (a,)))(x),
        f.jacfwd(lambda a: jvp(cubes, (a,), (v,))[1])(x),
        f.grad(lambda a: jvp(total, (a,), (v,))[1])(x),
    )


@scenario
def func_vjp_and_jvp(T):
    f = T.func
    x, v = double(T, 0.3, 0.7, grad=False), double(T, 1.0, 2.0, grad=False)
    out, pull = f.vjp(lambda x, y: {"a": x * y, "b": (x.sum(), y)}, x, v)
    grads = pull({"a": v, "b": (v[0], x)})
    again = pull({"a": x, "b": (v[0], x)})
    value, moved = f.jvp(lambda x, y: (x * y, x.sin()), (x, v), (v, x))
    aux = f.jvp(lambda x: (x.sin(), x * 2), (x,), (v,), has_aux=True)
    same, push = f.linearize(lambda x: x.sin() * x, x)
    with_aux = f.vjp(lambda x: (x * 2, x + 1), x, has_aux=True)
    return (
        out,
        grads,
        again,
        value,
        moved,
        aux,
        same,
        push(v),
        push(x),
        with_aux[2],
        f.jvp(lambda x: x, (x,), (v,)),
        f.jvp(lambda x: T.ones(2), (x,), (v,))[1].sum(),
    )


@scenario
def func_jacobians(T):
    f = T.func
    x, y = double(T, 0.3, 0.7, grad=False), double(T, 1.0, 2.0, 3.0, grad=False)
    g = lambda x, y: (x.sin()[:, None] * y, {"s": (x * x).sum()})
    return (
        f.jacrev(g)(x, y),
        f.jacfwd(g)(x, y),
        f.jacrev(g, argnums=(0, 1))(x, y),
        f.jacfwd(g, argnums=(0, 1))(x, y),
        f.jacrev(lambda x: (x * x, x), has_aux=True)(x),
        f.jacfwd(lambda x: (x * x, x), has_aux=True)(x),
        f.jacrev(lambda x: x * x, chunk_size=1)(x),
    )


@scenario
def func_hessians(T):
    f = T.func
    x = double(T, 0.3, 0.7, 1.1, grad=False)
    both = f.hessian(lambda a, b: (a * b * b).sum(), argnums=(0, 1))(x, x * 2)
    return (
        f.hessian(wavy)(x),
        f.jacrev(f.jacrev(wavy))(x),
        f.jacrev(f.jacfwd(wavy))(x),
        f.jacfwd(f.jacfwd(wavy))(x),
        f.jacfwd(f.hessian(wavy))(x),
        both,
    )


@scenario
def func_nested(T):
    f = T.func
    x, v = double(T, 0.3, 0.7, grad=False), double(T, 1.0, 2.0, grad=False)
    hvp = f.jvp(f.grad(wavy), (x,), (v,))
    rev = f.vjp(f.grad(wavy), x)[1](v)
    inner = f.grad(lambda y: f.grad(lambda x: (x * x * y * y).sum())(x).sum())(v)
    of_jvp = f.grad(lambda x: f.jvp(wavy, (x,), (v,))[1])(x)
    jj = f.jvp(lambda x: f.jvp(wavy, (x,), (v,))[1], (x,), (v,))
    confusion = f.grad(lambda x: x * f.grad(lambda y: x + y)(x))(x[0])
    return hvp, rev, inner, of_jvp, jj, confusion


@scenario
def func_inside_plain_autograd(T):
    f = T.func
    x, v = double(T, 0.3, 0.7), double(T, 1.0, 2.0)
    value, moved = f.jvp(lambda x: x.sin() * x, (x,), (v,))
    g = T.autograd.grad(moved.sum() + value.sum(), [x, v])
    jac = f.jacrev(lambda x: x**3)(x)
    h = T.autograd.grad(jac.sum(), x)
    _, pull = f.vjp(lambda x: x**3, x)
    k = T.autograd.grad(pull(v)[0].sum(), [x, v])
    return g, h, k


@scenario
def func_through_changes_in_place(T):
    f = T.func
    x, v = double(T, 0.3, 0.7, grad=False), double(T, 1.0, 2.0, grad=False)

    def change(x):
        z = x * 0
        z[0] = x[1] * x[0]
        z[1:].mul_(2).add_(x[1:] ** 2)
        return z

    return (
        f.jvp(change, (x,), (v,)),
        f.jacrev(change)(x),
        f.jacfwd(change)(x),
        f.hessian(lambda x: change(x).sum())(x),
    )


@scenario
def func_in_no_grad(T):
    f = T.func
    x, v = double(T, 0.3, 0.7, grad=False), double(T, 1.0, 2.0, grad=False)
    with T.no_grad():
        return (
            f.jvp(T.sin, (x,), (v,)),
            f.hessian(lambda x: (x**3).sum())(x),
            f.vmap(f.grad(lambda x: x**2))(x),
            f.vjp(T.sin, x)[1](v),
        )


@scenario
def func_around_no_grad(T):
    def half(x):
        with T.no_grad():
            y = x * 2
        return (x * y).sum()

    return T.func.grad(half)(double(T, 0.3, 0.7, grad=False))


@scenario
def func_of_complex(T):
    f = T.func
    z = T.tensor([1 + 2j, 3 - 1j], dtype=T.complex128)
    return (
        f.grad(lambda z: (z.abs() ** 2).sum())(z),
        f.jvp(lambda z: z * z, (z,), (z,)),
        f.jvp(lambda z: z.conj() * z, (z,), (z * 1j,)),
        f.vjp(lambda z: z * z, z)[1](z * 1j),
        trial(T, lambda: f.jacrev(lambda z: z * z)(z), message="to be real"),
        trial(T, lambda: f.jacfwd(lambda z: z * z)(z), message="to be real"),
    )


@scenario
def vmap_basics(T):
    f = T.func
    x = T.arange(6.0, dtype=T.float64).reshape(2, 3)
    y = T.arange(3.0, dtype=T.float64)
    return (
        f.vmap(lambda a: a * 2)(x),
        f.vmap(lambda a: a.sum(), in_dims=1)(x),
        f.vmap(lambda a, b: a * b, in_dims=(0, None))(x, y),
        f.vmap(lambda a, b: a * b, in_dims=(1, 0), out_dims=1)(x, y),
        f.vmap(lambda a: (a, {"s": a.sum()}), out_dims=(1, 0))(x),
        f.vmap(lambda d: d["a"] + d["b"][0], in_dims=({"a": 0, "b": [None]},))({"a": x, "b": [y]}),
        f.vmap(lambda a, k: a * k, in_dims=(0, None))(x, 3.0),
        f.vmap(lambda a, *, k: a * k)(x, k=y),
        f.vmap(f.vmap(lambda a, b: a * b, in_dims=(None, 0)), in_dims=(0, None))(y, y),
        f.vmap(lambda a: a[0] * 2, out_dims=-1)(x),
        f.vmap(lambda a: a.sum())(T.zeros(0, 3)),
        T.vmap(lambda a: a + 1, chunk_size=1)(x),
    )


@scenario
def vmap_errors(T):
    f = T.func
    x = T.ones(2, 3)
    return [
        trial(T, lambda: f.vmap(lambda a: a)(T.ones(()))),
        trial(T, lambda: f.vmap(lambda a: a)(3.0), message="non-Tensor arguments"),
        trial(T, lambda: f.vmap(lambda a, b: a)(x, T.ones(3)), message="same size"),
        trial(T, lambda: f.vmap(lambda a: 3)(x), message="must only return Tensors"),
        trial(T, lambda: f.vmap(lambda a: a, in_dims=(0, 0))(x), message="not compatible"),
        trial(T, lambda: f.vmap(lambda a: a, out_dims=(0, 0))(x), message="not compatible"),
        trial(T, lambda: f.vmap(lambda: 3)(), message="got no inputs"),
        trial(T, lambda: f.vmap(lambda a: a, chunk_size=0)(x)),
        trial(T, lambda: f.vmap(lambda a: a, randomness="some")(x)),
    ]


@scenario
def vmap_of_gradients(T):
    f = T.func
    w = double(T, 0.3, 0.7, 0.1, grad=False)
    x = T.arange(6.0, dtype=T.float64).reshape(2, 3)
    loss = lambda w, x: ((w * x).sin() ** 2).sum()
    per_sample = f.vmap(f.grad(loss), in_dims=(None, 0))(w, x)
    hess = f.vmap(f.hessian(loss), in_dims=(None, 0))(w, x)
    through = f.grad(lambda w: f.vmap(loss, in_dims=(None, 0))(w, x).sum())(w)
    live = w.clone().requires_grad_()
    f.vmap(loss, in_dims=(None, 0))(live, x).sum().backward()
    return per_sample, hess, through, live.grad


def test_vmap_randomness():
    if not hasattr(weft, "rand"):
        pytest.skip("no random ops yet")
    x = weft.ones(3)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        weft.func.vmap(lambda a: a + weft.rand(1))(x)
    same_draw = weft.func.vmap(lambda a: a + weft.rand(1), randomness="same")(x)
    assert len(set(same_draw.flatten().tolist())) == 1
    other = weft.func.vmap(lambda a: a + weft.rand(1), randomness="different")(x)
    assert len(set(other.flatten().tolist())) == 3


class Affine:
    """The least that functional_call asks of a module."""

    training = True

    def __init__(self, weight, bias):
        self._parameters, self._buffers = {"weight": weight, "tied": weight}, {"bias": bias}

    def named_parameters(self, remove_duplicate=True):
        names = ["weight"] if remove_duplicate else ["weight", "tied"]
        return [(n, self._parameters[n]) for n in names]

    def named_buffers(self, remove_duplicate=True):
        return list(self._buffers.items())

    def __call__(self, x, scale=1.0):
        p = self._parameters
        return (x * p["weight"] + p["tied"] + self._buffers["bias"]) * scale


def test_functional_call():
    one, two = weft.ones(2, requires_grad=True), weft.tensor([2.0, 3.0])
    module = Affine(one, weft.zeros(2))
    call = weft.func.functional_call
    assert call(module, {"weight": two}, weft.ones(2)).tolist() == [4.0, 6.0]
    assert call(module, ({"weight": two}, {"bias": two}), (two,), {"scale": 2.0}).tolist() == [
        16,
        30,
    ]
    assert call(module, {"weight": two}, weft.ones(2), tie_weights=False).tolist() == [3.0, 4.0]
    assert module._parameters["weight"] is one and module._parameters["tied"] is one
    with pytest.raises(RuntimeError, match="missing key"):
        call(module, {"weight": two}, weft.ones(2), strict=True)
    with pytest.raises(ValueError, match="multiple dictionaries"):
        call(module, ({"weight": two}, {"weight": two}), weft.ones(2))
    # As in PyTorch a name that the module does not have is an attribute for the time of the call.
    assert call(module, {"other": two}, weft.ones(2)).tolist() == [2.0, 2.0]
    assert not hasattr(module, "other")
    g = weft.func.grad(lambda w: call(module, {"weight": w}, weft.ones(2)).sum())(two)
    assert g.tolist() == [2.0, 2.0]


def test_stack_module_state():
    models = [Affine(weft.ones(2, requires_grad=True), weft.zeros(2)) for _ in range(3)]
    params, buffers = weft.func.stack_module_state(models)
    assert tuple(params["weight"].shape) == (3, 2) and params["weight"].requires_grad
    assert params["weight"].is_leaf and not buffers["bias"].requires_grad
    out = weft.func.vmap(
        lambda p, b, x: weft.func.functional_call(models[0], (p, b), x), in_dims=(0, 0, None)
    )(params, buffers, weft.ones(2))
    assert tuple(out.shape) == (3, 2)
    with pytest.raises(RuntimeError, match="at least one"):
        weft.func.stack_module_state([])


# --- checkpoint ------------------------------------------------------------------------


def checkpointing(T):
    from importlib import import_module

    return import_module(f"{T.__name__}.utils.checkpoint")


@scenario
def checkpoints(T):
    C = checkpointing(T)
    found = []
    for reentrant in (True, False):
        w, x = double(T, 1.5, 2.5), double(T, 0.3, 0.7)
        runs = []

        def part(x, k, w=w, runs=runs):
            runs.append(1)
            return (x.sin() * w).exp() * k, x * 2

        a, b = C.checkpoint(part, x, 3.0, use_reentrant=reentrant)
        (a * b).sum().backward()
        found.append((a, b, w.grad, x.grad, len(runs)))
    return found


@scenario
def checkpoint_without_reentry(T):
    C = checkpointing(T)
    w, x = double(T, 1.5, 2.5), double(T, 0.3, 0.7)
    f = lambda x, *, k: ((x.sin() * w).exp() * k * x).tanh()
    (g,) = T.autograd.grad(
        C.checkpoint(f, x, k=2.0, use_reentrant=False).sum(), x, create_graph=True
    )
    h = T.autograd.grad(g.sum(), [x, w])
    y = C.checkpoint(f, x, k=2.0, use_reentrant=False).sum()
    y.backward(retain_graph=True)
    y.backward()
    nested = C.checkpoint(
        lambda x: C.checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False).cos(),
        x,
        use_reentrant=False,
    )
    k = T.autograd.grad(nested.sum(), x)
    chain = C.checkpoint_sequential([T.sin, T.exp, T.cos, T.tanh], 2, x, use_reentrant=False)
    return g, h, x.grad, w.grad, k, T.autograd.grad(chain.sum(), x)


@scenario
def checkpoint_notices_changes(T):
    C = checkpointing(T)
    x = double(T, 0.3, 0.7)
    runs = []

    def shape(x):
        runs.append(1)
        return x.sin() * (x if len(runs) == 1 else x[:1])

    def number(x):
        runs.append(1)
        return x.sin() if len(runs) % 2 else x * 2

    def attempt(part):
        runs.clear()
        return trial(T, C.checkpoint(part, x, use_reentrant=False).sum().backward)

    return attempt(shape), attempt(number)


def test_checkpoint_repeats_random_numbers():
    if not hasattr(weft, "rand"):
        pytest.skip("no random ops yet")
    for reentrant in (True, False):
        x = weft.ones(50, requires_grad=True)
        draws = []

        def part(x, draws=draws):
            draws.append(weft.rand(50))
            return x * draws[-1]

        out = weft.utils.checkpoint.checkpoint(part, x, use_reentrant=reentrant)
        weft.rand(3)
        out.sum().backward()
        assert draws[0].tolist() == draws[1].tolist()
        assert x.grad.tolist() == draws[0].tolist()


# --- trees ------------------------------------------------------------------------------


def test_trees():
    from collections import OrderedDict, namedtuple

    Pair = namedtuple("Pair", "a b")
    tree = {"x": [1, (2, 3)], "y": OrderedDict(z=Pair(4, None))}
    leaves, spec = pytree.tree_flatten(tree)
    assert leaves == [1, 2, 3, 4, None] and spec.num_leaves == 5
    assert pytree.tree_unflatten(leaves, spec) == tree
    assert isinstance(pytree.tree_unflatten(leaves, spec)["y"]["z"], Pair)
    assert pytree.tree_map(lambda a, b: a + b, [1, (2,)], [3, (4,)]) == [4, (6,)]
    assert pytree.tree_map_only(int, lambda v: v + 1, [1, "a"]) == [2, "a"]
    with pytest.raises(ValueError):
        pytree.tree_unflatten([1], spec)
    with pytest.raises(ValueError):
        pytree.tree_map(lambda a, b: a, [1], (1,))


def test_jvp_is_one_run_that_keeps_no_activations():
    x = weft.ones(3)
    seen = []
    weft.func.jvp(lambda a: seen.append((a * 2).requires_grad) or a.sin(), (x,), (x,))
    assert seen == [False]


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda f: f.__name__)
def test_same_as_torch(run):
    agree(run)


def test_tangents_of_gradients_lead_nowhere() -> None:
    x, v = weft.tensor([0.1, 0.2]), weft.tensor([1.0, -1.0])
    for f in (lambda a: (a.sin() * 2).sum(), lambda a: a.prod()):
        out, tangent = weft.func.jvp(weft.func.grad(f), (x,), (v,))
        assert not out.requires_grad and not tangent.requires_grad
    along = v.clone().requires_grad_()
    tangent = weft.func.jvp(weft.func.grad(lambda a: a.sin().sum()), (x,), (along,))[1]
    (found,) = weft.autograd.grad(tangent.sum(), along)
    assert weft.allclose(found, -x.sin())


def test_tangents_nest_three_deep_in_ops_without_a_rule_for_them() -> None:
    x = weft.tensor([0.5, -1.5, 2.0], dtype=weft.float64)

    def along(function, v):
        return lambda a: weft.func.jvp(function, (a,), (weft.tensor(v, dtype=weft.float64),))[1]

    third = along(along(along(weft.prod, [1.0, 0, 0]), [0, 1.0, 0]), [0, 0, 1.0])
    assert third(x).item() == pytest.approx(1.0)
    with weft.no_grad():
        assert third(x.clone().requires_grad_()).item() == pytest.approx(1.0)


def test_tangents_of_all_levels_change_in_place():
    x, v, w = (weft.randn(3, dtype=weft.float64) for _ in range(3))

    def slice_too(a):
        b = a.clone()
        b[0].mul_(a[1])
        return (b.sin_() * a).sum()

    for f in (lambda a: a.clone().mul_(a).add_(a).pow(2).sum(), slice_too):
        second = weft.func.jvp(lambda a, f=f: weft.func.jvp(f, (a,), (v,))[1], (x,), (w,))[1]
        assert weft.allclose(second, v @ weft.func.hessian(f)(x) @ w)


def test_tangents_of_a_mapped_function_without_rules_for_them():
    x, v = weft.randn(4, 3, dtype=weft.float64), weft.randn(4, 3, dtype=weft.float64)
    for f in (weft.prod, weft.var, lambda a: weft.linalg.vector_norm(a, 3.0)):
        out, tangent = weft.func.jvp(weft.func.vmap(f), (x,), (v,))
        assert weft.allclose(out, weft.stack([f(a) for a in x]))
        each = [weft.func.jvp(f, (a,), (b,))[1] for a, b in zip(x, v, strict=True)]
        assert weft.allclose(tangent, weft.stack(each))


def test_gradients_of_a_mapped_function_that_changes_what_it_multiplies():
    x = weft.randn(4, 3, dtype=weft.float64)
    f = lambda a: a.clone().mul_(a).sum()
    assert weft.allclose(weft.func.vmap(weft.func.grad(f))(x), 2 * x)
    assert weft.allclose(weft.func.grad(lambda a: weft.func.vmap(f)(a).sum())(x), 2 * x)
    assert not weft.func.grad(lambda a: weft.func.jvp(weft.matrix_exp, (a,), (a,))[1].sum())(
        weft.eye(2)
    ).requires_grad
