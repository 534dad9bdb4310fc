"""Forward mode against PyTorch: making duals, views of them, changes in place, levels."""

from __future__ import annotations

import pytest

import weft
from agreement import agree, double, trial

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


def tangent(T, x):
    return T.autograd.forward_ad.unpack_dual(x).tangent


@scenario
def what_can_be_made_a_dual(T):
    fwad = T.autograd.forward_ad
    x, t = double(T, 1.0, 2.0, grad=False), double(T, 3.0, 4.0, grad=False)
    with fwad.dual_level():
        dual = fwad.make_dual(x, t)
        return (
            trial(T, lambda: fwad.make_dual(x, dual), message="forward gradient at the same level"),
            trial(T, lambda: fwad.make_dual(dual, x), message="at the same level"),
            trial(T, lambda: fwad.make_dual(x, T.ones(3).double()), message="different size"),
            tangent(T, fwad.make_dual(x, t.float())),  # of another precision: taken as it is
            tangent(T, fwad.make_dual(x, t.float()) * 2),
            tangent(T, dual) is t,
            "tangent=" in repr(dual),
            "tangent=" in repr(x),
            fwad._current_level,
        )


@scenario
def a_tangent_has_the_layout_of_its_primal(T):
    fwad = T.autograd.forward_ad
    part = T.arange(6.0)[:4].detach()
    x, t = T.rand(3, 4).double(), T.arange(12.0).double().reshape(4, 3).t()
    with fwad.dual_level():
        dual = fwad.make_dual(x, t)
        moved = tangent(T, dual)
        small = fwad.make_dual(part, T.ones(4))
        return (
            moved.stride(),
            moved is t,
            tangent(T, dual.view(-1)),
            tangent(T, small.as_strided((6,), (1,), 0)),
            tangent(T, (dual.t() * 2).t().contiguous().view(2, 6)),
        )


@scenario
def changes_in_place_reach_every_view(T):
    fwad = T.autograd.forward_ad
    x, t = double(T, 1.0, 2.0, 3.0, grad=False), T.ones(3, dtype=T.float64)
    with fwad.dual_level():
        dual = fwad.make_dual(x, t)
        view = dual.narrow(0, 0, 2)
        other = dual + 1
        view *= 3
        found = [tangent(T, y) for y in (x, dual, view, other, dual * dual)]
        # Views that were there before their base had a tangent.
        base = T.zeros(3, dtype=T.float64)
        early, late = base[:2], base.narrow(0, 1, 2)
        base += dual
        found += [tangent(T, y) for y in (early, late, early * 2)]
        early.mul_(2)
        found += [tangent(T, y) for y in (base, early, late)]
        part = T.zeros(3, dtype=T.float64)
        part[1] = dual[0]
        found.append(tangent(T, part))
        loose = T.zeros(3, dtype=T.float64)
        cut = loose.detach()
        cut += dual
        found += [tangent(T, loose), tangent(T, cut)]
        primal, own = fwad.unpack_dual(dual)
        own *= 2
        found += [tangent(T, dual), tangent(T, primal), t]
        return found


@scenario
def functions_in_place(T):
    """Those that are ops, those made of others, and those that change the shape."""
    fwad = T.autograd.forward_ad
    found = []
    other = T.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]).double()
    for wants_grad in (False, True):
        for change in (
            lambda y: y.lerp_(other, 0.5),
            lambda y: y.masked_fill_(other > 2, 5.0),
            lambda y: y.zero_(),
            lambda y: y.cumsum_(1),
            lambda y: y.index_fill_(0, T.tensor([1]), 2.0),
            lambda y: y.round_(),
            lambda y: y.float_power_(2.0),
            lambda y: y.unsqueeze_(0),
            lambda y: y.t_(),
            lambda y: y.transpose_(0, 1).mul_(2),
            lambda y: y.copy_(other),
        ):
            x = T.tensor([[0.3, 0.7, -0.2], [0.1, 0.4, 0.6]]).double().requires_grad_(wants_grad)
            with fwad.dual_level():
                y = fwad.make_dual(x, other / 2) * 1
                view = y[:1]
                change(y)
                found += [tangent(T, y), tangent(T, y * 2), tangent(T, view)]
                plain = T.ones(2, 3).double()
                plain.lerp_(fwad.make_dual(x, other), 0.5)
                found.append(tangent(T, plain))
    return found


@scenario
def out_is_refused(T):
    fwad = T.autograd.forward_ad
    x = double(T, 1.0, 2.0, grad=False)
    with fwad.dual_level():
        dual = fwad.make_dual(x, x + 1)
        return [
            trial(T, call, message="forward AD with")
            for call in (
                lambda: T.add(x, x, out=dual),
                lambda: T.add(dual, x, out=x.clone()),
                lambda: T.sin(dual, out=x.clone()),
                lambda: T.add(x, x, out=x.clone()),
            )
        ]


@scenario
def detached(T):
    fwad = T.autograd.forward_ad
    with fwad.dual_level():
        dual = fwad.make_dual(T.ones(2), T.ones(2))
        copy = dual.clone()
        copy.detach_()
        return tangent(T, dual.detach() * 2), tangent(T, copy * 2), tangent(T, dual * 2)


@scenario
def a_closed_level_leaves_nothing_behind(T):
    fwad = T.autograd.forward_ad
    x = T.ones(2)
    base = T.zeros(2)
    with fwad.dual_level():
        dual = fwad.make_dual(x, T.ones(2))
        y = dual * 2
        base += dual
    with fwad.dual_level():
        return [tangent(T, z) for z in (dual, y, base, y * 2)], fwad._current_level


@scenario
def backward_over_a_change_in_place(T):
    fwad = T.autograd.forward_ad
    x = double(T, 0.3, 0.7)
    with fwad.dual_level():
        dual = fwad.make_dual(x, double(T, 1.0, 2.0, grad=False))
        y = dual * 1
        y.sin_()
        y[0].mul_(3)
        (g,) = T.autograd.grad(y.sum(), x, create_graph=True)
        return tangent(T, y), g, tangent(T, g)


@scenario
def embeddings_shrink_their_weight_unseen(T):
    fwad = T.autograd.forward_ad
    weight = T.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]]).double()
    with fwad.dual_level():
        dual = fwad.make_dual(weight, T.ones(3, 2).double())
        out = T.nn.functional.embedding(T.tensor([0, 1, 0]), dual, max_norm=1.0)
        return *fwad.unpack_dual(out), *fwad.unpack_dual(dual), weight


@scenario
def a_tangent_of_another_dtype_keeps_it(T):
    fwad = T.autograd.forward_ad
    seen = []
    with fwad.dual_level():
        d = fwad.make_dual(T.ones(2), T.full((2,), 0.1, dtype=T.float64))
        results = (d * 2, d + 1, d.sin(), d * d, d.sum(), d[0], d.softmax(0), d.relu(), d.half())
        for y in (*results, T.cat([d, d]), T.stack([d, T.ones(2)]), d.clamp(0, 2), d.mean()):
            primal, tangent = fwad.unpack_dual(y)
            dtypes = [str(t.dtype)[-7:] for t in (primal, tangent)]
            seen.append((dtypes, tangent.double().round(decimals=6)))
    return seen


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda run: run.__name__)
def test_same_as_torch(run):
    agree(run)


DRAWS = {
    "uniform_": lambda x: x.uniform_(),
    "normal_": lambda x: x.normal_(),
    "exponential_": lambda x: x.exponential_(),
    "bernoulli_": lambda x: x.bernoulli_(),
    "geometric_": lambda x: x.geometric_(0.2),
    "cauchy_": lambda x: x.cauchy_(),
    "log_normal_": lambda x: x.log_normal_(),
    "random_": lambda x: x.random_(3),
    "normal": lambda x: weft.normal(x, 0.5),
    "normal of deviations": lambda x: weft.normal(0.2, x),
    "bernoulli": weft.bernoulli,
    "poisson": weft.poisson,
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_has_a_tangent_of_zero(name):
    with weft.autograd.forward_ad.dual_level():
        x = weft.autograd.forward_ad.make_dual(weft.full((3,), 0.5), weft.ones(3))
        made = weft.autograd.forward_ad.unpack_dual(DRAWS[name](x))
    assert made.tangent is not None and made.tangent.tolist() == [0.0, 0.0, 0.0]
