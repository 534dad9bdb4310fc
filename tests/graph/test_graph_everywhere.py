"""Recording together with the rest: transforms, casts, checkpoints, hooks, custom functions."""

from __future__ import annotations

import pytest

import weft
import weft.nn.functional as F
from graph_programs import same
from weft import nn
from weft.utils.checkpoint import checkpoint

weft.manual_seed(0)
NET = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
W = weft.randn(3, 2, requires_grad=True)


def gradient(x):
    return weft.func.grad(lambda v: (v**3).sum())(x)


def tangent(x):
    return weft.func.jvp(lambda v: v.exp() * v, (x,), (weft.ones(4, 3),))[1]


def mapped(x):
    return weft.vmap(lambda v: v.sin().sum())(x)


def cast(x):
    with weft.autocast("cpu", dtype=weft.bfloat16):
        return NET(x)


def inference(x):
    with weft.inference_mode():
        return NET(x)


def recomputed(x):
    return checkpoint(NET, x, use_reentrant=False)


def recomputed_inside(x):
    return checkpoint(NET, x * W.sum(), use_reentrant=True)


def backward_through_a_checkpoint(x):
    NET.zero_grad()
    checkpoint(NET, x, use_reentrant=False).sum().backward()
    return NET[0].weight.grad * 1


def hooked(x):
    handle = NET[1].register_full_backward_hook(lambda module, before, after: None)
    out = NET(x)
    handle.remove()
    return out


def clipped(x):
    NET.zero_grad()
    NET(x).pow(2).sum().backward()
    norm = nn.utils.clip_grad_norm_(NET.parameters(), 0.1)
    return NET[0].weight.grad * 1 + norm


def accumulated(x):
    NET.zero_grad()
    NET(x).sum().backward()
    (NET(x) * 2).sum().backward()
    return NET[0].weight.grad * 1


class Doubling(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def written_by_a_function(x):
    y = x @ W
    z = Doubling.apply(y)
    return y.sum() + z.sum() * 3


def strided(x):
    y = x.clone()
    windows, corner = y.unfold(1, 2, 1), y.as_strided((2, 2), (3, 1))
    y.mul_(2)
    return windows.sum() + corner.sum()


def parts_of_complex(x):
    z = weft.complex(x, x)
    z.real.mul_(3)
    return z.abs()


def ordered(x):
    values, places = x.sort(1)
    return values.gather(1, places) + x.topk(2, 1)[0].sum() + x.cumsum(0)


def scattered(x):
    rows = weft.where(x > 0, x, -x).index_select(0, weft.tensor([0, 1]))
    return rows.scatter(1, weft.tensor([[0], [1]]), 5.0)


def looked_up(x):
    return F.embedding(x.argmax(1), W).sum() + F.one_hot(x.argmin(1), 3).sum()


ALL = [
    gradient, tangent, mapped, cast, inference, recomputed, recomputed_inside,
    backward_through_a_checkpoint, hooked, clipped, accumulated, written_by_a_function, strided,
    parts_of_complex, ordered, scattered, looked_up,
]  # fmt: skip


@pytest.mark.parametrize("program", ALL, ids=lambda f: f.__name__)
def test_a_replay_is_the_program(program):
    x, z = weft.randn(4, 3), weft.randn(4, 3)
    with weft.graph.record() as g:
        out = program(x)
    assert any(same(out, found) for found in _all(g.run()))
    assert any(same(program(z), found) for found in _all(g.run(x=z)))


def _all(found):
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("program", [cast, recomputed, hooked, written_by_a_function])
def test_the_gradients_of_a_replay(program):
    x = weft.randn(4, 3)
    leaves = [*NET.parameters(), W]
    for p in leaves:
        p.grad = None
    with weft.graph.record() as g:
        program(x).sum()
    g.run().backward()
    mine = [p.grad for p in leaves]
    for p in leaves:
        p.grad = None
    program(x).sum().backward()
    for a, p in zip(mine, leaves, strict=True):
        assert (a is None) == (p.grad is None)
        assert a is None or same(a, p.grad)
