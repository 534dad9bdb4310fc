"""What the gradient engine promises: sums, types, order, hooks and errors, each seen from outside.

The expected values are PyTorch's.
"""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft.core.dispatch import REGISTRY
from weft.operators.build import general

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
    assert x.grad.item() == 2.0  # a sum hands on what it gets
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


@pytest.mark.parametrize("create", [False, True])
def test_a_complex_input_keeps_the_imaginary_part_in_its_own_precision(create: bool) -> None:
    x = torch.tensor([2 + 1j], requires_grad=True)
    c = torch.tensor([3 + 4j], dtype=torch.complex128)
    given = torch.tensor([1 + 1j], dtype=torch.complex128)
    (g,) = torch.autograd.grad(x * c, x, given, create_graph=create)
    assert g.dtype is torch.complex64 and g.tolist() == [7 - 1j]


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


def test_hooks_of_a_root_that_leads_nowhere_run_if_it_is_alone() -> None:
    seen: list[Any] = []
    x, z = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    a, b = x * 2, z * 3
    b.register_hook(lambda g: seen.append(g.item()))
    b.grad_fn.register_prehook(lambda out: seen.append("not this one"))
    given = [torch.ones(1), torch.ones(1) * 7]
    (g,) = torch.autograd.grad([a, b], [x], given, retain_graph=True)
    assert g.item() == 2.0 and seen == []
    assert torch.autograd.grad(b, [x], given[1], allow_unused=True) == (None,)
    assert seen == [7.0] and z.grad is None


def test_what_grad_gives_is_what_hooks_made_of_it_unless_it_leads_on() -> None:
    x = torch.ones(1, requires_grad=True)
    a = x * 2
    a.register_hook(lambda g: g * 10)
    y = a * 3
    assert torch.autograd.grad(y, a, retain_graph=True)[0].item() == 30.0
    assert [g.item() for g in torch.autograd.grad(y, (a, x))] == [3.0, 60.0]


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


# --- gradients that never come ------------------------------------------------------------


class Stops(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return None


def test_hooks_of_one_of_several_results_are_told_of_no_gradient() -> None:
    seen: list[Any] = []
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    a, b = (x * 1).split(1)
    a.register_hook(lambda g: seen.append(g))
    (Stops.apply(a) + b).backward()
    assert seen == [None] and x.grad.tolist() == [0.0, 1.0]
    a, b = (x * 1).split(1)
    a.register_hook(lambda g: torch.ones(1))
    with pytest.raises(RuntimeError, match="can't replace a None gradient with a non-None value"):
        (Stops.apply(a) + b).backward()


@pytest.fixture
def gives_nothing() -> Iterator[Any]:
    """An op that saves nothing, and whose rule gives no gradient."""
    yield general("gives_nothing", np.copy, lambda g: None, samples=None)
    del REGISTRY["gives_nothing"]


@pytest.mark.parametrize("kind", ["norm", "own op"])
def test_a_rule_may_give_no_gradient(gives_nothing: Any, kind: str) -> None:
    def count(x: Any) -> Any:
        return x.norm(p=0) if kind == "norm" else gives_nothing(x).sum()

    x = torch.tensor([3.0, 4.0], requires_grad=True)
    count(x).backward()
    assert x.grad is None
    seen: list[str] = []
    w = torch.tensor(2.0, requires_grad=True)
    x.register_hook(lambda g: seen.append("x"))
    v = w * 3
    v.register_hook(lambda g: seen.append("v"))
    ((x * v).sum() + count(x)).backward()
    assert seen == ["x", "v"] and x.grad.tolist() == [6.0, 6.0] and w.grad.item() == 21.0


# --- what changes under the graph's feet ----------------------------------------------------


def test_a_grad_that_grows_is_another_value() -> None:
    x = torch.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    before = x.grad._version
    w = torch.ones(2, requires_grad=True)
    product = w * x.grad
    (x * 3).sum().backward()
    assert x.grad._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize("which", [0, 1])
def test_either_of_two_saved_values_may_be_overwritten(which: int) -> None:
    x = torch.tensor([1.0], requires_grad=True)
    values = (x * 1, torch.tensor([2.0]))
    y = torch.atan2(*values)
    values[which].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    assert x.grad is None


def test_a_leaf_that_wants_no_gradient_any_more_gets_none() -> None:
    x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    y = x * w
    x.requires_grad_(False)
    y.sum().backward()
    assert x.grad is None and w.grad.tolist() == [1.0, 1.0]


# --- memory -----------------------------------------------------------------------------


def test_grad_keeps_no_gradient_that_it_was_not_asked_for() -> None:
    size = 1 << 18
    x = torch.ones(size, requires_grad=True)
    y = x
    for _ in range(10):
        y = y * 2
    given = torch.ones(size)
    tracemalloc.start()
    try:
        (g,) = torch.autograd.grad(y, x, given)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert g[0].item() == 1024.0 and peak < 3.5 * x.nbytes, peak / x.nbytes


# --- nodes called by hand -----------------------------------------------------------------


def test_a_node_is_called_with_tensors_or_none() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    y = x * 2
    with pytest.raises(TypeError, match="Variable"):
        y.grad_fn(3.0)
    assert y.grad_fn(None) == (None, None)
    a, b = torch.ones(4, requires_grad=True).split(2)
    assert a.grad_fn(None, None) is None
    assert b.grad_fn(torch.ones(2), None).tolist() == [1.0, 1.0, 0.0, 0.0]
    values, _ = torch.tensor([1.0, 5.0], requires_grad=True).max(0)
    assert values.grad_fn(torch.tensor(2.0)).tolist() == [0.0, 2.0]


def test_a_gradient_given_to_a_node_by_hand_has_a_history() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    g = torch.tensor([2.0], requires_grad=True)
    found, _ = (x + 1).grad_fn(g)
    (found * 5).backward()
    assert g.grad.tolist() == [5.0]
    node = (x * 2).grad_fn
    with torch.no_grad():
        assert not node(g)[0].requires_grad


def test_a_leaf_called_by_hand_takes_the_gradient() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    leaf = (x * 2).grad_fn.next_functions[0][0]
    given = torch.tensor([2.0])
    assert leaf(given) == () and leaf(None) == ()
    assert x.grad.tolist() == [2.0]
    x.grad.zero_()
    assert given.tolist() == [2.0]


def test_a_node_called_by_hand_gives_what_its_inputs_need() -> None:
    # PyTorch leaves shapes and types to the engine; here a node settles them itself.
    x = torch.ones(1, 3, requires_grad=True)
    y = torch.ones(2, 3, dtype=torch.float64)
    found = (x * y).grad_fn(torch.ones(2, 3, dtype=torch.float64))
    assert found[0].shape == (1, 3) and found[0].dtype is torch.float32 and found[1] is None


# --- what backward and grad are asked for ------------------------------------------------------


def test_as_many_gradients_as_tensors() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    for given in (torch.ones(1), [torch.ones(1)]):
        with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
            torch.autograd.backward((x * 2, x * 3), given)
        with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
            torch.autograd.grad((x * 2, x * 3), x, given)
    torch.autograd.backward((x * 2, x * 3), [None, torch.ones(1) * 10])
    assert x.grad.tolist() == [32.0]
    torch.autograd.backward((x * 2, x * 3))
    assert x.grad.tolist() == [37.0]


def test_backward_of_nothing() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    torch.autograd.backward([], [])
    assert x.grad is None
    with pytest.raises(RuntimeError, match="at index 0 appears to not have been used"):
        torch.autograd.grad([], [x])


def test_inputs_that_can_get_no_gradient_are_refused() -> None:
    x, c = torch.tensor([3.0], requires_grad=True), torch.ones(1)
    y = x * c
    with pytest.raises(RuntimeError, match="can't retain_grad on Tensor that has requires_grad="):
        y.backward(inputs=[x, c])
    with pytest.raises(RuntimeError, match="all inputs have to be Tensors or GradientEdges, but "):
        y.backward(inputs=[x, 3])
    with pytest.raises(RuntimeError, match="all inputs have to be Tensors or GradientEdges, but "):
        torch.autograd.grad(y, [x, 3])
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(y, [c])
    assert x.grad is None
    y.backward(inputs=x)
    assert x.grad.tolist() == [1.0]


def test_gradients_for_inputs_that_were_not_used() -> None:
    x, z = torch.tensor([3.0], requires_grad=True), torch.ones(2, requires_grad=True)
    y = x * 2
    with pytest.raises(RuntimeError, match="at index 1 appears to not have been used in the graph"):
        torch.autograd.grad(y, (x, z), retain_graph=True)
    assert torch.autograd.grad(y, (x, z), retain_graph=True, allow_unused=True)[1] is None
    _, zeros = torch.autograd.grad(y, (x, z), retain_graph=True, materialize_grads=True)
    assert zeros.tolist() == [0.0, 0.0] and not zeros.requires_grad
    _, zeros = torch.autograd.grad(y, (x, z), create_graph=True, materialize_grads=True)
    assert zeros.requires_grad


def test_a_gradient_of_another_shape_names_the_line() -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"grad_output\[0\] has a shape of") as raised:
        (x * 1).backward(torch.ones(3))
    if torch.__name__ == "weft":
        assert "test_engine_rules.py" in raised.value.__notes__[0]


@pytest.mark.parametrize("place", ["leaf", "result", "node"])
def test_anomaly_mode_names_the_node_of_a_failing_hook(place: str) -> None:
    def fail(g: Any) -> None:
        raise KeyError("the hook's own")

    names = {"leaf": "AccumulateGrad", "result": "SplitBackward0", "node": "AddBackward0"}
    with pytest.warns(UserWarning) as told, torch.autograd.detect_anomaly():
        x = torch.ones(4, requires_grad=True)
        a, b = (x * 2).split(2)
        y = a.exp() + b
        {"leaf": x, "result": a, "node": y}[place].register_hook(fail)
        with pytest.raises(KeyError, match="the hook's own"):
            y.sum().backward()
    (message,) = [str(w.message) for w in told if "Error detected" in str(w.message)]
    assert f"{names[place]}." in message


# --- forward mode by way of backward ----------------------------------------------------------


def tangents(function: Any, *pairs: tuple[Any, Any]) -> list[Any]:
    """The tangents of what a function gives, for inputs with tangents."""
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        out = function(*(x if t is None else forward.make_dual(x, t) for x, t in pairs))
        out = out if isinstance(out, tuple) else (out,)
        return [forward.unpack_dual(o).tangent for o in out]


def test_tangents_of_ops_that_have_only_a_gradient() -> None:
    x = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    t = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)
    var, mean = tangents(torch.var_mean, (x, t))
    assert mean.item() == 0.0 and var.item() == pytest.approx(-5.0)
    (only,) = tangents(lambda x: torch.var_mean(x)[1], (x, t + 1))
    assert only.item() == 1.0 and not only.requires_grad
    a = torch.tensor([[2.0, 1.0], [0.0, 4.0]], dtype=torch.float64)
    b = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    da = torch.ones(2, 2, dtype=torch.float64)
    for move_a, move_b in ((da, None), (None, b), (da, b)):
        (moved,) = tangents(torch.linalg.solve, (a, move_a), (b, move_b))
        y = torch.linalg.solve(a, b)
        right = (0 if move_b is None else move_b) - (0 if move_a is None else move_a @ y)
        assert torch.allclose(moved, torch.linalg.solve(a, right))


def test_tangents_have_a_history_while_gradients_are_on() -> None:
    x = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64, requires_grad=True)
    t = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    (moved,) = tangents(lambda x: torch.logsumexp(x, 0), (x, t))
    p = torch.softmax(x.detach(), 0)
    gx, gt = torch.autograd.grad(moved, (x, t))
    assert torch.allclose(gt, p)
    assert torch.allclose(gx, p * t.detach() - p * (p * t.detach()).sum())
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(x.detach(), t)
        with torch.no_grad():
            out = torch.logsumexp(dual, 0)
        moved = forward.unpack_dual(out).tangent
        assert torch.allclose(moved, (p * t).sum()) and not moved.requires_grad


def test_what_a_node_hook_gives_has_a_history_if_the_gradient_has() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    y = x.exp() * 1
    y.grad_fn.next_functions[0][0].register_hook(lambda into, out: (into[0] * 2,))
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(g.log().sum(), x, retain_graph=True)
    assert second.item() == pytest.approx(2.0)  # the hook had its say again
    assert not torch.autograd.grad(y, x)[0].requires_grad


def test_only_gradients_that_lead_to_what_was_asked_for_are_computed(monkeypatch):
    rows = []
    op = REGISTRY["linear_with_bias"]
    plain = op.rules[1]

    def counted(g, x):
        rows.append(x.shape)
        return plain(g, x)

    monkeypatch.setattr(op, "rules", (op.rules[0], counted, op.rules[2]))
    monkeypatch.setattr(op, "plans", {})
    for compiled in ("call", "made"):  # which know the plans as they were
        monkeypatch.setattr(op, compiled, None)
    first, second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
    x = torch.randn(5, 3, requires_grad=True)
    loss = second(first(x).relu()).sum()
    (g,) = torch.autograd.grad(loss, x, retain_graph=True)
    assert not rows
    torch.autograd.grad(loss, first.weight, retain_graph=True)
    assert rows == [(5, 3)]
    loss.backward()
    assert torch.equal(g, x.grad) and len(rows) == 3


def test_a_backward_pass_towards_a_value_inside_uses_up_its_node():
    w = torch.ones(2, requires_grad=True)
    inside = w * w
    loss = (inside * 3).sum()
    loss.backward(inputs=[inside])
    assert w.grad is None
    with pytest.raises(RuntimeError, match="second time"):
        inside.sum().backward()
