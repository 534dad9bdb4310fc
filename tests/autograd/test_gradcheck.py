"""``gradcheck`` says of a function what PyTorch's says, and in its words."""

from __future__ import annotations

import warnings

import pytest

import weft
from agreement import agree, double, trial

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


def hooked(T):
    """A function whose gradient is a little too large."""

    def function(x):
        y = x.clone()
        y.register_hook(lambda g: g + 1e-2)
        return y

    return function


def answers(T, function, inputs, message, **options):
    check = T.autograd.gradcheck
    return [
        (
            trial(
                T, lambda fast=fast: check(function, inputs, fast_mode=fast, **options),
                message=message,
            ),
            trial(T, lambda fast=fast: check(
                function, inputs, fast_mode=fast, raise_exception=False, **options
            )),
        )
        for fast in (False, True)
    ]  # fmt: skip


@scenario
def functions_that_look_at_their_inputs(T):
    x, y = double(T, 0.3, 0.7), double(T, 1.0, 2.0)
    check = T.autograd.gradcheck
    asked = []

    def reaches_by_closure(_):
        return (x * x * y).sin()

    def asks(x):
        asked.append(x.requires_grad)
        return x * 2 if x.requires_grad else x

    def needs_a_leaf(x):
        (g,) = T.autograd.grad((x**3).sum(), x, create_graph=True)
        return g

    return (
        check(reaches_by_closure, (x,)),
        check(reaches_by_closure, (x,), fast_mode=True),
        check(asks, (x,)),
        all(asked),
        check(needs_a_leaf, (x,)),
        T.autograd.gradgradcheck(reaches_by_closure, (x,)),
        x,
    )


@scenario
def mismatches(T):
    x = double(T, 1.0, 2.0)
    c = T.tensor([1.0 + 2j, 0.5 - 1j], dtype=T.complex128).requires_grad_()
    wrong = hooked(T)
    return (
        answers(T, wrong, (x,), "Jacobian mismatch for output 0 with respect to input 0"),
        answers(T, lambda x: (x * 2, wrong(x)), (x,), "output 1 with respect to input 0"),
        trial(
            T,
            lambda: T.autograd.gradcheck(wrong, (c,)),
            message="While considering the imaginary part of complex outputs only",
        ),
        answers(T, wrong, (x,), "backward not multiplied by grad_output", atol=1e-1),
    )


@scenario
def constant_functions(T):
    x = double(T, 1.0)
    expected = "Numerical gradient for function expected to be zero"
    return (
        answers(T, lambda x: T.tensor([x.item()], dtype=T.float64), (x,), expected),
        T.autograd.gradcheck(lambda x: (), (x,)),
        T.autograd.gradcheck(lambda x: T.ones(2, dtype=T.float64), (x,)),
    )


@scenario
def outputs_that_change_their_form(T):
    x = double(T, 1.0)

    def grows(x):
        return T.cat([x, x]) if bool((x >= 1).all()) else x

    def narrows(x):
        return x.to(T.float32) if bool((x >= 1).all()) else x

    return (
        answers(T, grows, (x,), "return outputs with the same shape when inputs are perturbed"),
        answers(T, narrows, (x,), "return outputs with the same dtype when inputs are perturbed"),
    )


@scenario
def backward_that_does_not_repeat_itself(T):
    class Restless(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, jitter):
            ctx.jitter = jitter
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            ctx.jitter, step = -ctx.jitter, ctx.jitter
            return g * (1 + step), None

    x = double(T, 1.0, 2.0)
    return (
        answers(T, Restless.apply, (x, 1e-6), "Backward is not reentrant"),
        answers(T, Restless.apply, (x, 1e-6), "", nondet_tol=1e-5),
    )


@scenario
def forward_mode(T):
    fwad = T.autograd.forward_ad
    seen = []

    class Scaled(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            seen.append(fwad._current_level >= 0 and x.requires_grad)
            return x * 2, x * x

        @staticmethod
        def jvp(ctx, t, factor):
            return t * ctx_factor, t * 0 if ctx_factor == 3 else None

    x, y = double(T, 0.3, 0.7), double(T, 1.0, 2.0)
    c = T.tensor([1.0 + 2j, 0.5 - 1j], dtype=T.complex128).requires_grad_()
    options = {"check_backward_ad": False, "check_forward_ad": True}
    ctx_factor = 3
    wrong = "Jacobian computed with forward mode mismatch for output 0 with respect to input 0"
    return (
        answers(T, Scaled.apply, (x, 1.0), wrong, **options),
        any(seen),
        answers(T, lambda x, y: (x * y, y), (x, y), "", **options),
        answers(T, lambda c, x: (c * x, c.abs()), (c, x), "", **options),
        answers(T, lambda x: x.sin(), (x,), "", check_batched_forward_grad=True, **options),
        T.autograd.gradgradcheck(
            lambda x: x**3, (x,), check_fwd_over_rev=True, check_rev_over_rev=False,
            check_undefined_grad=False,
        ),
    )  # fmt: skip


@scenario
def which_checks_can_be_asked_for(T):
    x = double(T, 1.0)
    check, again = T.autograd.gradcheck, T.autograd.gradgradcheck
    return [
        trial(T, lambda o=o, f=f: f(lambda x: x * x, (x,), **o), message="to be True")
        for f, o in (
            (check, {"check_backward_ad": False}),
            (check, {"check_backward_ad": False, "check_forward_ad": True}),
            (check, {"check_batched_forward_grad": True}),
            (
                check,
                {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True},
            ),
            (check, {"check_batched_grad": True}),
            (again, {"check_rev_over_rev": False}),
            (again, {"check_rev_over_rev": False, "check_fwd_over_rev": True}),
            (again, {"check_batched_grad": True}),
        )
    ] + [
        trial(T, lambda: check(lambda x: x, (T.ones(2).double(),)), message="at least one input"),
        trial(
            T,
            lambda: check(
                lambda x: x * 1, (T.ones(1, dtype=T.float64).expand(2).requires_grad_(),)
            ),
            message="stride 0",
        ),
    ]


@scenario
def jacobians_by_themselves(T):
    import importlib

    name = "torch.autograd.gradcheck" if T is not weft else "weft.autograd.gradcheck"
    module = importlib.import_module(name)
    x, y = double(T, 0.3, 0.7), double(T, 1.0, 2.0)
    c = T.tensor([1.0 + 2j, 0.5 - 1j], dtype=T.complex128).requires_grad_()

    def pair(values):
        return 2 * values[0] * values[1], values[0]

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        numerical = module.get_numerical_jacobian(pair, (x, y), eps=1e-6)
        (of_target,) = module.get_numerical_jacobian(pair, (x, y), target=y, eps=1e-6)
        found = module.get_analytical_jacobian((x, y), pair((x, y))[0])
        parts = module.get_analytical_jacobian((c,), c.abs())[0]
        ahead = module.get_numerical_jacobian(lambda v: v[0].abs(), (c,), eps=1e-6)
    kinds = [w.category.__name__ for w in told if "private API" in str(w.message)]
    return (
        [j.round(decimals=6) for j in (*numerical, of_target)],
        found,
        parts,
        [T.view_as_real(j).round(decimals=6) for j in ahead],
        kinds,
        trial(T, lambda: module.get_numerical_jacobian(pair, (x, y), grad_out=2.0), message="1.0"),
        trial(T, lambda: module.get_analytical_jacobian((c,), c * 2), message="non-complex"),
        callable(T.autograd.gradcheck),
    )


@scenario
def powers_of_negative_numbers(T):
    base = double(T, -0.5, -2.0)
    exponent = T.tensor([0.5 + 0.2j, 1.0 - 1j], dtype=T.complex128).requires_grad_()
    power = T.pow(base, exponent)
    return (
        power,
        T.autograd.grad(power.abs().sum(), (base, exponent)),
        T.autograd.gradcheck(T.pow, (base, exponent)),
        T.autograd.gradcheck(lambda e: T.pow(-1.0, e), (exponent,), check_forward_ad=True),
        T.autograd.gradgradcheck(T.pow, (base, exponent)),
    )


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda run: run.__name__)
def test_same_as_torch(run):
    agree(run)
