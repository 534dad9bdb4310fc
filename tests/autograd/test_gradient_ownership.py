"""Nothing that the program can reach changes unless the program changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft as torch
from weft.nn.utils import clip_grad_norm_

SIZES = [2, 40_000]  # below and above what native code takes
# Functions whose gradient is the incoming array itself, or a view of it.
KEEPING: dict[str, Callable[[Any], Any]] = {
    "add a number": lambda c: c + 1,
    "subtract a number": lambda c: c - 1,
    "clone": lambda c: c.clone(),
    "expand_as": lambda c: c.expand_as(c),
    "contiguous": lambda c: c.contiguous(),
    "view": lambda c: c.view(-1),
    "in place": lambda c: c.clone().add_(1),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.complex64])
@pytest.mark.parametrize("name", KEEPING)
def test_a_value_added_to_a_function_of_itself_gets_both_gradients(
    name: str, dtype: Any, size: int
) -> None:
    a = torch.ones(size, dtype=dtype, requires_grad=True)
    for swapped in (False, True):
        a.grad = None
        c = a * 2
        other = KEEPING[name](c)
        total = c + other if swapped else other + c
        total.backward(torch.ones_like(total))
        assert torch.equal(a.grad, torch.full_like(a, 4)), swapped
        a.grad = None
        c = a * 2
        changed = KEEPING[name](c).clone().add_(c)
        changed.backward(torch.ones_like(changed))
        assert torch.equal(a.grad, torch.full_like(a, 4))


def test_every_doubling_doubles_the_gradient() -> None:
    a = torch.tensor([1.0, 2.0], requires_grad=True)
    x = a
    for _ in range(3):
        x = x + (x + 1)
    x.sum().backward()
    assert a.grad.tolist() == [8.0, 8.0]


@pytest.mark.parametrize("size", SIZES)
def test_what_a_leafs_hook_keeps_is_not_its_grad(size: int) -> None:
    x = torch.ones(size, requires_grad=True)
    log: list[Any] = []
    x.register_hook(log.append)
    (x * 2).sum().backward()
    clip_grad_norm_([x], 0.1)
    assert log[0].eq(2).all()
    (x * 3).sum().backward()
    x.grad.zero_()
    assert log[0].eq(2).all() and log[1].eq(3).all()


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("size", SIZES)
def test_what_hooks_keep_survives_a_second_backward(name: str, size: int) -> None:
    x = torch.ones(size, requires_grad=True)
    log: list[Any] = []
    v = KEEPING[name](x)
    v.register_hook(log.append)
    v.backward(torch.ones(size), retain_graph=True)
    v.backward(torch.full((size,), 0.5))
    assert log[0].eq(1).all() and log[1].eq(0.5).all()
    assert x.grad.eq(1.5).all()


def test_what_a_node_hook_keeps_is_not_written_over() -> None:
    x = torch.ones(40_000, requires_grad=True)
    log: list[Any] = []
    y = x.exp()
    y.grad_fn.register_hook(lambda into, out: log.extend([*into, *out]))
    y.grad_fn.register_prehook(lambda out: log.extend(out))
    (y * 2).sum().backward()
    before = [g.clone() for g in log]
    x.grad.zero_()
    assert all(torch.equal(a, b) for a, b in zip(log, before, strict=True))


def test_gradients_of_inputs_that_share_an_array_are_two() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 1
    z = y + 1
    z.backward(torch.ones(3), inputs=[y, z])
    z.grad.zero_()
    assert y.grad.tolist() == [1.0, 1.0, 1.0]


def test_a_hook_may_write_to_the_gradient_of_a_loss() -> None:
    x = torch.tensor(3.0, requires_grad=True)
    loss = x * 2
    loss.register_hook(lambda g: g.mul_(2))
    loss.backward()
    assert x.grad.item() == 4
    loss = x * 2
    loss.backward()
    assert x.grad.item() == 6


def test_a_gradient_is_laid_out_as_its_leaf() -> None:
    x = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    (x * torch.ones(2, 3, 4, 5)).sum().backward()
    assert x.grad.stride() == x.stride()
    thin = torch.ones(4, 6)[:, ::2].requires_grad_()
    (thin * 2).sum().backward()
    assert thin.grad.is_contiguous()


def test_a_hook_on_a_view_sees_nothing_of_the_old_value() -> None:
    def gradients(between: bool) -> tuple[list[float], list[float]]:
        x = torch.ones(4, requires_grad=True)
        log: list[float] = []
        b = x * 1
        v = b.view(2, 2)
        v.register_hook(lambda g: log.append(g.sum().item()) or g * 2)
        w = v[0] if between else v
        w.mul_(3)
        b.sum().backward()
        return x.grad.tolist(), log

    assert gradients(between=False) == ([3.0, 3.0, 3.0, 3.0], [])
    assert gradients(between=True) == ([3.0, 3.0, 1.0, 1.0], [])


def test_a_kept_gradient_of_a_view_between_is_none() -> None:
    x = torch.ones(4, requires_grad=True)
    b = x * 1
    v = b.view(2, 2)
    v.retain_grad()
    v[0].mul_(3)
    b.sum().backward()
    assert v.grad is None


@pytest.mark.parametrize("name", ["eq_", "floor_", "sign_", "bernoulli_"])
def test_a_part_that_no_longer_depends_on_anything_gets_zeros(name: str) -> None:
    x = torch.tensor([0.5, 1.5, 2.5, 3.5], requires_grad=True)
    b = x * 2
    arguments = {"eq_": (1.0,)}.get(name, ())
    getattr(b[:2].clamp_(0, 1) if name == "bernoulli_" else b[:2], name)(*arguments)
    b.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 2.0, 2.0]


# --- the property -----------------------------------------------------------------------


class Keeps(torch.autograd.Function):
    """A function that hands on the gradient it gets, and keeps it."""

    log: ClassVar[list[Any]] = []

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        Keeps.log.append(g)
        return g


STEPS: dict[str, Callable[[Any], Any]] = {
    **KEEPING,
    "times two": lambda x: x * 2,
    "exp": lambda x: (x * 0.125).exp(),
    "tanh": lambda x: x.tanh(),
    "rows": lambda x: x.view(1, -1).expand(2, -1).sum(0),
    "halves": lambda x: torch.cat(x.split((x.numel() + 1) // 2)),
    "first half twice": lambda x: torch.cat([x, x])[: x.numel()],
    "flipped": lambda x: x.flip(0),
    "strided": lambda x: torch.stack([x, x * 2], 1)[:, 0],
    "part in place": lambda x: x.clone().index_fill_(0, torch.tensor([0]), 0.5),
    "function": Keeps.apply,
}


def _generator(g: Any) -> Any:
    def held() -> Any:
        while True:
            yield g.numpy()

    return held()


# What a hook may keep of a gradient, and how its values are read from that.
HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tensor": (lambda g: g, lambda kept: kept.detach().numpy()),
    "part": (lambda g: g[-1:], lambda kept: kept.detach().numpy()),
    "data": (lambda g: g.data, lambda kept: kept.numpy()),
    "array": (lambda g: g.numpy(), lambda kept: kept),
    "reversed array": (lambda g: g.numpy()[::-1], lambda kept: kept),
    "memory": (lambda g: memoryview(g.numpy()), np.asarray),
    "exported": (np.from_dlpack, lambda kept: kept),
    "capsule": (lambda g: (g.__dlpack__(), g.numpy()), lambda kept: kept[1]),
    "storage": (lambda g: g.untyped_storage(), lambda kept: np.frombuffer(bytes(kept), np.uint8)),
    "generator": (_generator, next),
    "set": (lambda g: torch.empty(0).set_(g), lambda kept: kept.numpy()),
}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_nothing_reachable_changes_by_itself(data: Any) -> None:
    size = data.draw(st.sampled_from([1, 3, 40_000]))
    leaves = [torch.full((size,), 0.25 * (k + 1), requires_grad=True) for k in range(2)]
    log: list[tuple[Any, Callable[[Any], Any]]] = []
    Keeps.log = []

    def keeper() -> Callable[[Any], None]:
        hold, read = HOLDERS[data.draw(st.sampled_from(sorted(HOLDERS)))]
        return lambda g: None if g is None else log.append((hold(g), read))

    def both(keep: Callable[[Any], None]) -> Callable[[Any, Any], None]:
        def hook(into: Any, out: Any) -> None:
            for g in (*into, *out):
                keep(g)

        return hook

    values = list(leaves)
    for _ in range(data.draw(st.integers(1, 8))):
        x = data.draw(st.sampled_from(values))
        step = data.draw(st.sampled_from([*STEPS, "sum with another", "product with another"]))
        if step in STEPS:
            y = STEPS[step](x)
        else:
            other = data.draw(st.sampled_from(values))
            y = x + other if step == "sum with another" else (x * 0.5).tanh() * other.tanh()
        use = data.draw(st.sampled_from(["", "", "hook", "retain", "node"]))
        if use == "hook":
            y.register_hook(keeper())
        elif use == "retain":
            y.retain_grad()
        elif use == "node" and y.grad_fn is not None:
            y.grad_fn.register_hook(both(keeper()))
        values.append(y)
    if data.draw(st.booleans()):
        data.draw(st.sampled_from(leaves)).register_hook(keeper())
    kept: list[tuple[Any, Callable[[Any], Any], np.ndarray]] = []
    expected = [np.zeros(size, np.float32) for _ in leaves]
    whole = HOLDERS["tensor"][1]
    for _ in range(data.draw(st.integers(1, 3))):
        root = data.draw(st.sampled_from(values))
        seed = torch.full((size,), 0.5)
        if data.draw(st.booleans()):
            found = torch.autograd.grad(root, leaves, seed, retain_graph=True, allow_unused=True)
            kept += [(g, whole, g.numpy().copy()) for g in found if g is not None]
        else:
            root.backward(seed, retain_graph=True)
            again = torch.autograd.grad(root, leaves, seed, retain_graph=True, allow_unused=True)
            for k, g in enumerate(again):
                expected[k] = expected[k] + (0 if g is None else g.numpy())
        kept += [(held, read, read(held).copy()) for held, read in log]
        kept += [(v, whole, whole(v).copy()) for v in (*values, seed, *Keeps.log)]
    for leaf, want in zip(leaves, expected, strict=True):
        got = np.zeros(size, np.float32) if leaf.grad is None else leaf.grad.numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5)
    for leaf in leaves:
        if leaf.grad is not None:
            leaf.grad.fill_(float("nan"))
    for held, read, before in kept:
        np.testing.assert_array_equal(read(held), before)
