"""What the gradient engine promises: sums, types, order, hooks and errors, each seen from outside.

The expected values are PyTorch's.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import weft as torch

LARGE = 40_000  # elements: native code takes over well below


# --- the constant that a loss starts with ------------------------------------------------


def doubled(g: Any) -> None:
    g.mul_(2)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("name", ["squeeze", "sum", "reshape"])
def test_a_hook_may_write_to_a_view_of_the_gradient_of_a_loss(name: str, create: bool) -> None:
    x = torch.tensor([3.0], requires_grad=True)
    y = x * 1
    y.register_hook(doubled)
    (y.reshape(()) if name == "reshape" else getattr(y, name)()).backward(create_graph=create)
    assert x.grad.tolist() == [2.0]
    z = x.detach().requires_grad_()
    z.squeeze().backward()
    assert z.grad.tolist() == [1.0]


@pytest.mark.parametrize("which", ["into", "out"])
def test_a_node_hook_may_write_to_the_gradient_of_a_loss(which: str) -> None:
    x = torch.tensor(3.0, requires_grad=True)
    y = x + 1
    y.grad_fn.register_hook(lambda into, out: doubled(into[0] if which == "into" else out[0]))
    y.backward()
    assert x.grad.item() == (2.0 if which == "into" else 1.0)
    z = x.detach().requires_grad_()
    (z + 1).backward()
    assert z.grad.item() == 1.0


def test_a_function_may_write_to_the_gradient_of_a_loss() -> None:
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.mul_(2)

    for _ in range(2):
        x = torch.tensor(3.0, requires_grad=True)
        Doubles.apply(x).backward()
        assert x.grad.item() == 2.0


def test_what_grad_gives_with_a_graph_may_be_written_to() -> None:
    x = torch.tensor(3.0, requires_grad=True)
    y = x * 2
    (g,) = torch.autograd.grad(y, y, create_graph=True)
    g.mul_(5)
    assert g.item() == 5.0 and torch.autograd.grad(x * 2, x)[0].item() == 2.0


# --- sums -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 2_000, LARGE])
def test_a_gradient_that_overlaps_the_grad_it_is_added_to(size: int) -> None:
    values = torch.arange(size + 1.0)
    for shift in (0, 1):
        memory = values.clone()
        x = torch.zeros(size, requires_grad=True)
        x.grad = memory[shift : shift + size]
        x.backward(memory[1 - shift : 1 - shift + size])
        assert torch.equal(x.grad, values[1:] + values[:-1])
    x = torch.zeros(size, requires_grad=True)
    x.grad = values[:-1].clone()
    x.backward(x.grad)
    assert torch.equal(x.grad, 2 * values[:-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex128])
@pytest.mark.parametrize("rows", [3, 400])
def test_a_repeated_input_gets_the_sum(dtype: Any, rows: int) -> None:
    x = torch.ones(1, 64, dtype=dtype, requires_grad=True)
    y = torch.ones((), dtype=dtype, requires_grad=True)
    (x * torch.ones(rows, 64, dtype=dtype) * y).backward(torch.full((rows, 64), 0.5, dtype=dtype))
    assert x.grad.shape == (1, 64) and x.grad.dtype is dtype and x.grad.eq(rows / 2).all()
    assert y.grad.shape == () and y.grad.dtype is dtype and y.grad.item() == rows * 32


# --- types ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, LARGE])
def test_a_real_input_of_a_complex_op_gets_the_real_part(size: int) -> None:
    x = torch.full((size,), 2.0, requires_grad=True)
    c = torch.full((size,), 3 + 4j, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (x * c).backward(torch.full((size,), 1 + 1j))
    assert x.grad.dtype is torch.float32 and x.grad.eq(7).all()
    assert c.grad.dtype is torch.complex64 and c.grad.eq(2 + 2j).all()


@pytest.mark.filterwarnings("error", "ignore:Using backward")
@pytest.mark.parametrize("other", [torch.float64, torch.complex128])
def test_gradients_with_a_graph_have_the_types_of_their_inputs(other: Any) -> None:
    x = torch.tensor([2.0], requires_grad=True)
    c = torch.tensor([3.0], dtype=other, requires_grad=True)
    found = torch.autograd.grad((x * c * x).abs().sum(), (x, c), create_graph=True)
    assert [g.dtype for g in found] == [torch.float32, other]
    assert [g.item() for g in found] == [12.0, 4.0]
    assert torch.autograd.grad(found[0].sum(), x)[0].item() == 6.0


# --- when leaves get theirs --------------------------------------------------------------


def test_a_leaf_gets_its_gradient_as_soon_as_its_last_user_has_run() -> None:
    seen: list[str] = []
    w = torch.tensor(2.0, requires_grad=True)
    v = torch.tensor(3.0, requires_grad=True)
    for leaf, name in ((w, "w"), (v, "v")):
        leaf.register_hook(lambda g, n=name: seen.append(n))
        leaf.register_post_accumulate_grad_hook(lambda t, n=name: seen.append(f"{n}.grad"))
    a = v * 5
    b = a.exp()
    c = b * w
    d = c * w * v
    for y, name in ((a, "a"), (b, "b"), (c, "c")):
        y.register_hook(lambda g, n=name: seen.append(n))
    d.backward()
    assert seen == ["c", "w", "w.grad", "b", "a", "v", "v.grad"]


def test_a_leaf_that_was_asked_for_gets_its_gradient_as_early() -> None:
    seen: list[str] = []
    w = torch.tensor(2.0, requires_grad=True)
    v = torch.tensor(3.0, requires_grad=True)
    w.register_hook(lambda g: seen.append("w"))
    a = v * 5
    a.register_hook(lambda g: seen.append("a"))
    (a * w * w).backward(inputs=[w, v])
    assert seen == ["w", "a"] and w.grad.item() == 60.0 and v.grad.item() == 20.0


def test_hooks_run_only_on_the_way_to_what_was_asked_for() -> None:
    seen: list[str] = []
    x = torch.ones(4, requires_grad=True)
    y = torch.ones(4, requires_grad=True)
    a, b = (x * 2).split(2)
    c, d = (y * 2).split(2)
    for z, name in ((a, "a"), (b, "b"), (c, "c"), (d, "d")):
        z.register_hook(lambda g, n=name: seen.append(n))
    (g,) = torch.autograd.grad((a * b * c * d).sum(), a)
    assert g.tolist() == [8.0, 8.0] and sorted(seen) == ["a", "b"]


# --- what hooks may return ---------------------------------------------------------------


def run_with_hook(kind: str, leaf: bool, create: bool, hook: Any) -> Any:
    """The gradient of a leaf after a backward in which a hook of some kind had its say."""
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    y = x * 2
    node = y.grad_fn.next_functions[0][0] if leaf else y.grad_fn
    if kind == "tensor":
        (x if leaf else y).register_hook(hook)
    elif kind == "before":
        node.register_prehook(lambda out: hook(out[0]))
    else:
        node.register_hook(lambda into, out: hook(out[0]))
    y.exp().backward(torch.ones(2), create_graph=create)
    return x.grad


BAD_FROM_TENSOR_HOOKS = {
    "tuple": (lambda g: (g,), TypeError, "expected Variable, but hook returned 'tuple'"),
    "number": (lambda g: 3, TypeError, "expected Variable, but hook returned 'int'"),
    "larger": (lambda g: torch.ones(3), RuntimeError, "'<lambda>' has changed the size of value"),
    "smaller": (lambda g: g.sum(), RuntimeError, "'<lambda>' has changed the size of value"),
    "wider": (
        lambda g: g.double(),
        RuntimeError,
        r"changed the type of value \(was torch.FloatTensor got torch.DoubleTensor\)",
    ),
}
BAD_FROM_NODE_HOOKS = {
    "tensor": (lambda g: g, TypeError, "expected tuple, but hook returned 'Tensor'"),
    "too few": (lambda g: (), RuntimeError, r"number of values \(got 0, but expected"),
    "too many": (lambda g: (g, g, g), RuntimeError, r"number of values \(got 3, but expected"),
}


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize("name", BAD_FROM_TENSOR_HOOKS)
def test_a_tensor_hook_returns_a_gradient_like_its_own(name: str, leaf: bool, create: bool) -> None:
    hook, error, message = BAD_FROM_TENSOR_HOOKS[name]
    with pytest.raises(error, match=message):
        run_with_hook("tensor", leaf, create, hook)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize("kind", ["before", "after"])
@pytest.mark.parametrize("name", BAD_FROM_NODE_HOOKS)
def test_a_node_hook_returns_as_many_as_it_got(
    name: str, kind: str, leaf: bool, create: bool
) -> None:
    hook, error, message = BAD_FROM_NODE_HOOKS[name]
    if (name, kind, leaf) == ("too few", "after", True):
        assert run_with_hook(kind, leaf, create, hook) is not None  # it got none
        return
    with pytest.raises(error, match=message):
        run_with_hook(kind, leaf, create, hook)


def test_a_node_hook_gives_no_gradient_where_there_was_none() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    y = x * torch.tensor([2.0])
    y.grad_fn.register_hook(lambda into, out: (into[0], into[0]))
    with pytest.raises(RuntimeError, match="can't replace a None gradient with a non-None value"):
        y.backward()
    y = x * torch.tensor([2.0])
    y.grad_fn.register_hook(lambda into, out: (into[0] * 5, None))
    y.backward()
    assert x.grad.tolist() == [10.0]


def test_the_last_of_several_hooks_decides() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g + 1)
    y.grad_fn.register_prehook(lambda out: (out[0] * 2,))
    y.grad_fn.register_hook(lambda into, out: (into[0] + out[0], None))
    y.backward()
    assert x.grad.tolist() == [22.0 * 2 + 22.0]
