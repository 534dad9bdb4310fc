"""``autograd.Function`` against PyTorch."""

from __future__ import annotations

import warnings

import pytest

import weft
from agreement import agree, cube, double, trial

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


@scenario
def function_forward_with_ctx(T):
    Cube, x = cube(T), double(T, 1.0, 2.0)
    y = Cube.apply(x, 2.0)
    name = type(y.grad_fn).__name__, y.grad_fn.name(), len(y.grad_fn.next_functions)
    kept = y.grad_fn.saved_tensors[0] is x, y.grad_fn.scale
    y.sum().backward()
    freed = trial(T, lambda: y.grad_fn.saved_tensors, message="after they have already been freed")
    (g,) = T.autograd.grad(Cube.apply(x, 1.0).sum(), x, create_graph=True)
    (h,) = T.autograd.grad(g.sum(), x, create_graph=True)
    return name, kept, freed, x.grad, g, h, T.autograd.grad(h.sum(), x)


@scenario
def function_with_setup_context(T):
    class Both(T.autograd.Function):
        @staticmethod
        def forward(x, y, k=3):
            return x * y, x + k

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, y, k = inputs
            ctx.save_for_backward(x, y, output[0])
            ctx.k = k

        @staticmethod
        def backward(ctx, a, b):
            x, y, out = ctx.saved_tensors
            return a * y + b + 0 * out, a * x, None

    x, y = double(T, 1.0, 2.0), double(T, 3.0, 4.0)
    a, b = Both.apply(x, y)
    _, d = Both.apply(x, y, k=5)
    g = T.autograd.grad(a.sum() + (b * b).sum(), [x, y], create_graph=True)
    h = T.autograd.grad(d.sum(), [x, y])
    return a, b, d, g, h, T.autograd.grad(g[0].sum() + g[1].sum(), [x, y], allow_unused=True)


@scenario
def function_outputs_of_all_kinds(T):
    seen = []

    class Kinds(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            fixed = x * 5
            ctx.mark_non_differentiable(fixed)
            return x * 2, fixed, "text", x > 1, None

        @staticmethod
        def backward(ctx, *grads):
            seen.append([None if g is None else g.clone() for g in grads])
            return grads[0] * 2

    x = double(T, 1.0, 2.0)
    out = Kinds.apply(x)
    (out[0] * 3).sum().backward()
    return out, [getattr(o, "requires_grad", None) for o in out], x.grad, seen


@scenario
def function_missing_gradients(T):
    seen = []

    class Two(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a is None, b is None))
            return None if b is None else b * 3

    x = double(T, 1.0, 2.0)
    a, b = Two.apply(x)
    b.sum().backward(retain_graph=True)
    first = x.grad.clone()
    a.sum().backward()
    return seen, first, x.grad


@scenario
def function_errors(T):
    def made(back, forward=lambda ctx, x, n: x * 2):
        return type(
            "Made",
            (T.autograd.Function,),
            {"forward": staticmethod(forward), "backward": staticmethod(back)},
        )

    x = double(T, 1.0, 2.0)
    few = made(lambda ctx, g: g)
    many = made(lambda ctx, g: (g, None, None, None))
    stray = made(lambda ctx, g: (g, g))
    shape = made(lambda ctx, g: (g[:1].expand(3), None))
    broadcast = made(lambda ctx, g: (g.expand(4, 2), None))
    number = made(lambda ctx, g: (g, None), lambda ctx, x, n: (ctx.save_for_backward(3), x * 2)[1])

    class Nothing(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    many.apply(x, 3).sum().backward()
    broadcast.apply(x, 3).sum().backward()
    return (
        trial(T, few.apply(x, 3).sum().backward, message="expected 2, got 1"),
        trial(T, stray.apply(x, 3).sum().backward, message="different than None at position 2"),
        trial(
            T, shape.apply(x, 3).sum().backward, message="returned an invalid gradient at index 0"
        ),
        trial(T, lambda: number.apply(x, 3), message="can only save variables"),
        trial(T, Nothing.apply(x).sum().backward, message="either the backward or vjp"),
        trial(T, lambda: T.autograd.Function.apply(x)) != "no error",
        x.grad,
    )


@scenario
def function_in_place(T):
    class Double(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    class Forgets(Double):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x * 2

    x = double(T, 1.0, 2.0)
    y = x * 1
    out = Double.apply(y)
    z = double(T, 1.0, 2.0, grad=False)
    base = x * 1
    part = base[:1]
    Double.apply(part)
    (out * out).sum().backward(retain_graph=True)
    first = x.grad.clone()
    (base * base).sum().backward()
    name = part.grad_fn is not None, type(out.grad_fn).__name__
    return (
        out is y,
        y._version,
        out,
        first,
        x.grad,
        base,
        name,
        Double.apply(z) is z,
        z,
        trial(T, lambda: Double.apply(x), message="a leaf Variable that requires grad"),
        trial(T, lambda: Forgets.apply(x * 1), message="marked as dirty"),
    )


@scenario
def function_returns_its_input(T):
    class Same(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 7

    x = double(T, 1.0, 2.0)
    y = Same.apply(x)
    y.sum().backward()
    refused = trial(T, lambda: y.mul_(2))
    z = double(T, 1.0, grad=False)
    return y is x, x.grad, refused[0], Same.apply(z).requires_grad, Same.apply(z) is z


@scenario
def function_returns_a_view(T):
    class First(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:1]

        @staticmethod
        def backward(ctx, g):
            return T.cat([g * 5, T.zeros(1, dtype=T.float64)])

    x = double(T, 1.0, 2.0)
    y = First.apply(x)
    y.sum().backward()
    return x.grad, y, y.grad_fn.name(), trial(T, lambda: y.mul_(2))[0]


@scenario
def function_saved_values_guarded(T):
    Cube, x = cube(T), double(T, 1.0, 2.0)
    y = x * 1
    z = Cube.apply(y)
    y.add_(1)
    return trial(T, z.sum().backward, message="modified by an inplace operation")


@scenario
def function_saves_output(T):
    class Exp(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    x = double(T, 0.1, 0.2)
    (g,) = T.autograd.grad(Exp.apply(x).sum(), x, create_graph=True)
    (h,) = T.autograd.grad(g.sum(), x, create_graph=True)
    return g, h, T.autograd.grad(h.sum(), x)


@scenario
def function_once_differentiable(T):
    from importlib import import_module

    once = import_module(f"{T.__name__}.autograd.function").once_differentiable

    class Square(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    x = double(T, 1.0, 2.0)
    y = Square.apply(x)
    v = double(T, 1.0, 1.0)
    (g,) = T.autograd.grad(y, x, v, create_graph=True)
    return g, trial(T, lambda: g.sum().backward(), message="once_differentiable")


@scenario
def function_hooks_and_saved_hooks(T):
    Cube, x = cube(T), double(T, 1.0, 2.0)
    log = []
    with T.autograd.graph.saved_tensors_hooks(
        lambda t: (log.append("pack"), t * 2)[1], lambda t: (log.append("unpack"), t / 2)[1]
    ):
        y = Cube.apply(x)
    y.grad_fn.register_hook(
        lambda ins, outs: (ins[0] + 1, *ins[1:]) if len(ins) > 1 else (ins[0] + 1,)
    )
    y.retain_grad()
    y.sum().backward()
    return log, x.grad, y.grad


@scenario
def function_in_no_grad(T):
    Cube, x = cube(T), double(T, 1.0, 2.0)
    with T.no_grad():
        y = Cube.apply(x)
    return y.requires_grad, y, Cube.apply(x.detach()).requires_grad


@scenario
def function_vjp_name_and_vmap(T):
    class Named(T.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    x = double(T, 1.0, 2.0)
    Named.apply(x).sum().backward()
    return x.grad, T.func.vmap(Named.apply)(x.detach())


@scenario
def variable(T):
    x = T.autograd.Variable(T.ones(2), requires_grad=True)
    (x * 2).sum().backward()
    return x.grad, isinstance(x, T.autograd.Variable), T.autograd.Variable(T.ones(1)).requires_grad


def test_function_gradients_are_not_shared():
    class Add(weft.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return g, g

    a, b = weft.ones(2, requires_grad=True), weft.ones(2, requires_grad=True)
    Add.apply(a, b).sum().backward()
    a.grad.mul_(5)
    assert b.grad.tolist() == [1.0, 1.0]


def boxed(T, seen, materialize=True):
    class Boxed(T.autograd.Function):
        boxed_grads_call = True

        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, grads):
            seen.append((type(grads).__name__, [g is None for g in grads]))
            a, b = grads
            grads.clear()
            if a is None or b is None:
                return (a if b is None else b) * 5
            return a * 2 + b * 3

    return Boxed


@scenario
def gradients_in_a_box(T):
    seen, x = [], double(T, 1.0, 2.0)
    y, z = boxed(T, seen).apply(x)
    (y + z * z).sum().backward()
    y, z = boxed(T, seen).apply(x)
    y.sum().backward()
    loose, _ = boxed(T, seen, False).apply(x)
    loose.sum().backward()
    direct = y.grad_fn.apply(T.ones(2).double(), T.ones(2).double())
    return seen, x.grad, direct


@scenario
def saved_tensors_given_away(T):
    class Once(T.autograd.Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            found.append(trial(T, lambda: ctx.saved_tensors))
            return g * 2 * x

    found, x = [], double(T, 3.0)
    y = Once.apply(x)
    y.backward(retain_graph=True)
    return found, x.grad, trial(T, lambda: y.backward())


@scenario
def one_output_given_twice(T):
    class Twice(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            return y, y

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h * 2

    x = double(T, 1.0, 2.0)
    a, b = Twice.apply(x)
    (a * 3 + b).sum().backward()
    return a is b, x.grad


@scenario
def the_class_itself(T):
    Cube, x = cube(T), double(T, 1.0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = Cube()
    return (
        type(Cube.apply(x).grad_fn) is Cube._backward_cls,
        [w.category.__name__ for w in told],
        trial(T, lambda: made(x), message="non-static forward method is deprecated"),
    )


@scenario
def a_ctx_that_outlives_its_node(T):
    kept = []

    class Keeps(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            kept.append(ctx)
            return ctx.saved_tensors[0] * g

    y = Keeps.apply(double(T, 1.0))
    y.backward(retain_graph=True)
    del y
    return kept[0].saved_tensors


@scenario
def marks(T):
    class Marked(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, filled):
            y, z = x * 2, x * 3
            ctx.mark_non_differentiable(z)
            ctx._materialize_non_diff_grads = filled
            return y, z

        @staticmethod
        def backward(ctx, g, h):
            seen.append(h)
            return g * 2, None

    class Dirty(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 3
            ctx.mark_dirty(y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * 3

    seen, x = [], double(T, 1.0)
    for filled in (True, False):
        Marked.apply(x, filled)[0].backward()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Dirty.apply(x).backward()
    return seen, x.grad, ["was not an input" in str(w.message) for w in told]


@scenario
def a_backward_that_has_no_derivative(T):
    class Plain(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        @T.autograd.function.once_differentiable
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, None, g * x

    x, y = double(T, 1.0), double(T, 2.0)
    g, h = T.autograd.grad(Plain.apply(x, 1.0, y) ** 2, (x, y), create_graph=True)
    nodes = [(type(z.grad_fn).__name__, len(z.grad_fn.next_functions)) for z in (g, h)]
    return g, h, nodes, trial(T, lambda: (g + h).backward(), message="once_differentiable")


def tangent_of(T, x):
    return T.autograd.forward_ad.unpack_dual(x).tangent


@scenario
def jvp_keeps_to_what_forward_did(T):
    class Changes(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, right):
            ctx.right = right
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx, t, _):
            return t.mul_(2) if ctx.right == "right" else t if ctx.right == "idle" else t * 2

    class Views(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, right):
            ctx.right = right
            return x.narrow(0, 0, 2) if right != "as it is" else x

        @staticmethod
        def jvp(ctx, t, _):
            if ctx.right in ("as it is", "copy"):
                return t.clone()
            part = t.narrow(0, 0, 2)
            return part if ctx.right == "right" else part.clone().view_as(part)

    fwad = T.autograd.forward_ad
    found = []
    with fwad.dual_level():
        for base in (False, True):
            for F, choices in (
                (Changes, ("right", "idle", "new")),
                (Views, ("right", "as it is", "copy", "other")),
            ):
                for right in choices:
                    dual = fwad.make_dual(T.arange(3.0), T.ones(3))
                    dual = dual[:3] if base else dual
                    if right == "right":
                        out = F.apply(dual, right)
                        found += [tangent_of(T, out), tangent_of(T, dual), out is dual]
                        out.mul_(2)
                        found += [tangent_of(T, out), tangent_of(T, dual)]
                    else:
                        found.append(
                            trial(T, lambda F=F, d=dual, r=right: F.apply(d, r), message="the jvp")
                        )
    return found


@scenario
def jvp_and_what_it_is_given(T):
    class Mixed(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, n, y):
            ctx.save_for_backward(x)
            out, fixed = x * 2, y.clone()
            ctx.mark_non_differentiable(fixed)
            return out, fixed, n + 1

        @staticmethod
        def jvp(ctx, t, n, s):
            seen.append((t is None, n is None, s is None, len(ctx.saved_tensors)))
            return t * 2, t if wrong else None, None

    seen, wrong = [], False
    fwad = T.autograd.forward_ad
    with fwad.dual_level():
        dual = fwad.make_dual(T.ones(2), T.ones(2))
        out = Mixed.apply(dual, T.tensor(3), T.ones(2))
        found = [tangent_of(T, o) for o in out]
        wrong = True
        found.append(
            trial(
                T,
                lambda: Mixed.apply(dual, T.tensor(3), T.ones(2)),
                message="You should return None at that position instead",
            )
        )
    return seen, found


def test_function_frees_its_memory_without_the_collector():
    import gc
    import weakref

    Cube = cube(weft)
    gc.disable()
    try:
        x = weft.ones(2, requires_grad=True)
        y = Cube.apply(x)
        held = weakref.ref(y.grad_fn)
        del y
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda run: run.__name__)
def test_same_as_torch(run):
    agree(run)
