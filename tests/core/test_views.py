"""Views: shared memory and versions, strides, and changes in place through them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
quick = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)

VIEWS = """
x.view(6, 4)
x.view(-1)
x.view(4, 3, 2)
x.reshape(4, 6)
x.permute(2, 0, 1)
x.transpose(0, 2)
x.swapaxes(0, 1)
x.movedim(0, 2)
x.movedim((0, 1), (2, 0))
x.mT
x.T
x.unsqueeze(1)
x.unsqueeze(-1)
x[:1].squeeze(0)
x[:, :1].squeeze()
x.expand(5, 2, 3, 4)
x[:1].expand(3, -1, -1)
x.broadcast_to((1, 2, 3, 4))
x[1]
x[:, 1:]
x[..., ::2]
x[None, :, 2]
x.select(1, 2)
x.narrow(2, 1, 2)
x.narrow(2, t.tensor(1), 2)
x.flatten(1)
x.unflatten(2, (2, -1))
x.diagonal(1, 1, 2)
x.unfold(2, 2, 1)
x.unfold(1, 3, 2)
x.as_strided((3, 2), (1, 4), 2)
x.transpose(0, 1).as_strided((2, 2), (12, 1))
x.split(2, 1)[1]
x.chunk(2, 2)[0]
x.unbind(1)[2]
x.tensor_split(2, 2)[1]
x.tensor_split((1, 3), 2)[1]
x.hsplit([1])[1]
x.vsplit(2)[0]
x.dsplit(2)[1]
x.view_as(t.zeros(24))
x.reshape_as(t.zeros(24))
x.ravel()
x.transpose(1, 2)[0].diagonal()
x.permute(1, 2, 0)[1:].unfold(1, 2, 2)[:, 0]
x[0].expand(2, 3, 4).transpose(0, 1)
t.atleast_3d(x[0])
t.meshgrid(x[0, 0], x[0, 1], indexing='xy')[0]
x.view(t.int64)
x.view(t.float32)
x.view(t.complex128)
x.view(t.int16)[1]
t.view_as_complex(x.view(2, 3, 2, 2))
x.detach()
x.data
x.contiguous()
x.to(t.float64)
"""
VIEWS_OF_ALL = [line for line in VIEWS.splitlines() if line]

COPIES = """
x.clone()
x.flip(0)
x.roll(1, 2)
x.transpose(0, 1).reshape(24)
x.transpose(0, 1).contiguous()
x.repeat(1, 1, 2)
x.transpose(0, 1).flatten()
x.rot90()
x.tril()
x[t.tensor([0, 1])]
x[x > 3]
x.index_select(0, t.tensor([1]))
x.to(t.float32)
x.to(t.float64, copy=True)
t.diag(x[0])
t.view_copy(x, (24,))
t.narrow_copy(x, 0, 0, 1)
"""


def made(system: Any) -> Any:
    return system.tensor(np.arange(24, dtype=np.float64).reshape(2, 3, 4) + 1.0)


def evaluate(code: str, system: Any, x: Any) -> Any:
    return eval(code, {"x": x, "t": system})


@pytest.mark.parametrize("code", VIEWS_OF_ALL)
def test_views_are_what_torch_has(code: str) -> None:
    seen = []
    for system in (weft, torch):
        x = made(system)
        view = evaluate(code, system, x)
        seen.append((view.shape, view.stride(), view.storage_offset(), view.numpy().copy()))
        assert view._version == x._version
        if "x.data" not in code:
            x.add_(1)
            assert view._version == x._version == 1
    ours, theirs = seen
    assert tuple(ours[0]) == tuple(theirs[0])
    assert tuple(ours[1]) == tuple(theirs[1])
    assert ours[2] == theirs[2]
    np.testing.assert_array_equal(ours[3], theirs[3])


@pytest.mark.parametrize("code", VIEWS_OF_ALL)
def test_views_share_memory(code: str) -> None:
    after = []
    for system in (weft, torch):
        x = made(system)
        view = evaluate(code, system, x)
        x.mul_(2)
        now = view.numpy().copy()
        after.append(now)
        pointers = x.untyped_storage().data_ptr(), view.untyped_storage().data_ptr()
        assert pointers[0] == pointers[1]
    np.testing.assert_array_equal(*after)


@pytest.mark.parametrize("code", [line for line in COPIES.splitlines() if line])
def test_copies_share_nothing(code: str) -> None:
    for system in (weft, torch):
        x = made(system)
        copied = evaluate(code, system, x)
        before = copied.numpy().copy()
        x.zero_()
        np.testing.assert_array_equal(copied.numpy(), before)


# Changing these in place is refused, or has no gradient.
NOT_SAFE = ("expand", "broadcast", "unfold(2, 2, 1)", "meshgrid", "t.int", "t.float32")
NOT_SAFE += ("complex", "detach", "data", "split", "chunk", "unbind")
SAFE = [code for code in VIEWS_OF_ALL if not any(word in code for word in NOT_SAFE)]
CHANGES = ["view.mul_(w)", "view.copy_(w)", "view.zero_()", "view[0] = 3.0"]
NO_GRADIENT = ("t.int", "t.float32", "detach", "data", "complex")
SMOOTH = [code for code in VIEWS_OF_ALL if not any(word in code for word in NO_GRADIENT)]


@pytest.mark.parametrize("code", SAFE)
@pytest.mark.parametrize(
    "change", ["view.mul_(w)", "view.copy_(w)", "view.zero_()", "view[0] = 3.0"]
)
def test_gradients_of_changes_through_views(code: str, change: str) -> None:
    grads = []
    for system in (weft, torch):
        leaf = made(system).requires_grad_()
        x = leaf * 1.5
        view = evaluate(code, system, x)
        values = np.arange(view.numel(), dtype=np.float64).reshape(view.shape) - 3.0
        w = system.tensor(values, requires_grad=True)
        exec(change, {"view": view, "w": w})
        ((x * x).sum() + (view * 3.0).sum()).backward()
        grads.append((leaf.grad.numpy(), None if w.grad is None else w.grad.numpy()))
    np.testing.assert_allclose(grads[0][0], grads[1][0])
    assert (grads[0][1] is None) == (grads[1][1] is None)
    if grads[0][1] is not None:
        np.testing.assert_allclose(grads[0][1], grads[1][1])


@pytest.mark.parametrize("code", SAFE)
def test_a_view_follows_changes_of_its_base(code: str) -> None:
    grads = []
    for system in (weft, torch):
        leaf = made(system).requires_grad_()
        x = leaf * 1.0
        view = evaluate(code, system, x)
        x.mul_(leaf)
        (view * view).sum().backward()
        grads.append(leaf.grad.numpy())
    np.testing.assert_allclose(*grads)


@pytest.mark.parametrize("code", SMOOTH)
def test_second_derivatives_through_views(code: str) -> None:
    found = []
    for system in (weft, torch):
        x = made(system).requires_grad_()
        y = evaluate(code, system, x)
        (g,) = system.autograd.grad((y * y * y).sum(), x, create_graph=True)
        (gg,) = system.autograd.grad((g * g).sum(), x)
        found.append(gg.numpy())
    np.testing.assert_allclose(*found)


# --- random chains of views ------------------------------------------------------------

STEPS = ("transpose", "narrow", "select", "unsqueeze", "flatten", "slice", "expand", "diagonal")


@st.composite
def chains(draw: Any) -> list[tuple[Any, ...]]:
    return [
        (draw(st.sampled_from(STEPS)), draw(st.integers(-3, 3)), draw(st.integers(-3, 3)))
        for _ in range(draw(st.integers(1, 5)))
    ]


def step(x: Any, name: str, a: int, b: int) -> Any:
    if name == "transpose":
        return x.transpose(a, b)
    if name == "narrow":
        return x.narrow(a, b, 1)
    if name == "select":
        return x.select(a, b)
    if name == "unsqueeze":
        return x.unsqueeze(a)
    if name == "flatten":
        return x.flatten(a, b)
    if name == "slice":
        return x[..., a:b]
    if name == "expand":
        return x.expand(a + 3, *x.shape)
    return x.diagonal(a, 0, b)


@quick
@given(chains())
def test_chains_of_views(chain: Any) -> None:
    seen = []
    for system in (weft, torch):
        x = made(system)
        try:
            for name, a, b in chain:
                x = step(x, name, a, b)
        except Exception as error:
            seen.append(type(error).__name__)
            continue
        seen.append((tuple(x.shape), x.numpy()))
    ours, theirs = seen
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs
        return
    assert ours[0] == theirs[0]
    np.testing.assert_array_equal(ours[1], theirs[1])


# --- errors ----------------------------------------------------------------------------

WRONG = """
m.view(4)
m.view(5, -1)
m.view(-1, -1)
m.t().view(6)
m.view('a')
m.reshape(4)
m.reshape(-2)
t.zeros(0, 3).reshape(-1, 0)
m.view(t.float64)
t.zeros(2, 3)[:, :2].view(t.float64)
m.t().view(t.int8)
s.view(t.int8)
t.zeros(3, 4)[:, 1:3].view(t.complex64)
m.expand(3)
m.expand(-1, 2, 3)
m.expand(4, -2, 3)
m.expand(2, 5)
m.unfold(0, 3, 1)
m.unfold(0, 1, 0)
m.unfold(0, -1, 1)
m.unfold(5, 1, 1)
m.narrow(0, 3, 1)
m.narrow(0, 0, -1)
m.narrow(0, 1, 2)
m.narrow(0, t.tensor([1]), 1)
s.narrow(0, 0, 1)
m.movedim(0, (0, 1))
m.movedim((0, 0), (0, 1))
t.zeros(2, 2, 2).H
t.zeros(3).H
t.zeros(3).mT
t.zeros(2, 3, 4).permute(0, 1)
t.zeros(2, 3).permute(0, 1, 2)
m.permute(0, 0)
m.transpose(0, 5)
t.zeros(2, 2, 2).t()
m.split(0)
m.split([1, 2])
m.split(-1)
s.split(1)
s.chunk(1)
m.chunk(0)
m.tensor_split(0)
m.tensor_split(t.tensor([1.0]), 1)
m.hsplit(2)
s.hsplit(1)
m[0].vsplit(1)
m.dsplit(1)
m.squeeze(5)
m.unsqueeze(3)
t.view_as_real(m)
t.view_as_complex(m)
t.view_as_complex(t.zeros(4, 3)[:, :2])
t.view_as_complex(t.zeros(2, 3).t())
t.view_as_complex(t.zeros(2, dtype=t.int64))
t.view_as_complex(s)
m.as_strided((9, 9), (1, 1))
m.as_strided((2,), (1, 1))
m.as_strided((2,), (-1,))
t.cat([m, m[0]])
t.cat([m, m[:, :2]])
t.cat([])
t.cat([m, s])
t.cat(m)
t.cat([m, 1])
t.stack([m, m[0]])
t.stack([])
t.unbind(s)
t.diagonal(m[0])
t.diagonal(m, 0, 1, 1)
m.unflatten(1, (2, 2))
m.unflatten(1, ())
m.flatten(1, 0)
m.contiguous(memory_format=t.channels_last)
m.select(0, 5)
m.select(3, 5)
s.select(0, 0)
m.imag
m.expand(2, 2, 3).add_(1)
m.requires_grad_().t_()
m.requires_grad_().view(6).zero_()
(m.requires_grad_() * 1).unbind(0)[0].zero_()
(m.requires_grad_() * 1).split(1)[0].mul_(2)
t.flip(m, (0, 0))
m.flip(3)
m.roll((1, 2), 0)
m.rot90(1, (0, 0))
m.repeat(2)
m.repeat_interleave(t.tensor([1, 2, 3]), 0)
m.repeat_interleave(-1)
s.tril()
t.diag(t.zeros(2, 2, 2))
t.meshgrid(m, m, indexing='ij')
t.broadcast_shapes((2,), (3,))
t.broadcast_tensors(m, t.zeros(2))
t.nn.functional.pad(m, (1,))
t.nn.functional.pad(m, (1, 1, 1, 1, 1, 1))
t.nn.functional.pad(m, (-2, -2))
t.nn.functional.pad(m, (3, 3), mode='reflect')
t.nn.functional.pad(m, (4, 4), mode='circular')
t.nn.functional.pad(m, (1, 1), mode='foo')
t.nn.functional.pad(s, (1, 1), mode='reflect')
t.pixel_shuffle(t.zeros(1, 3, 2, 2), 2)
t.pixel_unshuffle(t.zeros(1, 3, 3, 2), 2)
t.channel_shuffle(t.zeros(1, 3, 2, 2), 2)
t.nn.functional.one_hot(t.tensor([1.0]))
t.nn.functional.one_hot(t.tensor([-1]))
t.nn.functional.one_hot(t.tensor([3]), 2)
t.select_scatter(m, t.zeros(4), 0, 0)
t.slice_scatter(m, t.zeros(1, 2), 0, 0, 1)
t.diagonal_scatter(m, t.zeros(3))
m.to(t.float64, foo=1)
m.copy_(t.zeros(4))
"""


@pytest.mark.parametrize("code", [line for line in WRONG.splitlines() if line])
def test_error_classes(code: str) -> None:
    raised = []
    for system in (weft, torch):
        m = system.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
        scope = {"m": m, "s": system.tensor(3.0), "t": system}
        with pytest.raises(Exception) as caught:
            eval(code, scope)
        raised.append(caught.type.__name__)
        assert m.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], "a failed call changed its tensor"
    assert raised[0] == raised[1], f"{raised[0]} where torch has {raised[1]}"


# --- layouts ---------------------------------------------------------------------------

LAYOUTS = """
x.clone().stride()
x.permute(2, 0, 1).clone().stride()
x[:, ::2].permute(2, 0, 1).clone().stride()
x[:, ::2].permute(2, 0, 1).float().stride()
x.permute(2, 0, 1).contiguous().stride()
x.expand(2, 2, 3, 4).clone().stride()
x.permute(2, 0, 1).clone(memory_format=t.contiguous_format).stride()
x.unsqueeze(0).contiguous(memory_format=t.channels_last).stride()
x.unsqueeze(0).to(memory_format=t.channels_last).stride()
x.unsqueeze(0).to(t.float32, memory_format=t.channels_last).stride()
x.unsqueeze(0).clone(memory_format=t.channels_last).is_contiguous(memory_format=t.channels_last)
x.contiguous() is x
x.to(t.float64) is x
x.to('cpu') is x
x.to(x) is x
x.to(None) is x
x.to(t.float64, copy=True) is x
x.permute(2, 0, 1).is_contiguous()
t.empty(0, 3).stride()
t.empty(0, 3).t().stride()
t.empty(0, 3).t().t().stride()
t.empty(0, 3).requires_grad_().t().stride()
t.empty(0, 3)[:, 1:].stride()
t.empty(0, 3).narrow(1, 0, 2).t().stride()
t.empty(0, 3).diagonal().stride()
t.empty(0, 3).unfold(1, 2, 1).stride()
t.empty(0, 3).unbind(1)[1].stride()
t.empty(3, 0, 4).permute(2, 0, 1).stride()
t.empty(2, 0).expand(4, 2, 0).stride()
t.empty(0, 3).t().contiguous().stride()
"""


@pytest.mark.parametrize("code", [line for line in LAYOUTS.splitlines() if line])
def test_layouts(code: str) -> None:
    ours, theirs = (evaluate(code, system, made(system)) for system in (weft, torch))
    assert ours == theirs


ORDERS = {
    "rows": "a * 1",
    "columns": "a.t() / 2",
    "a transposed view": "(a * 1).t()",
    "every other column": "t.cat([a, a], 1)[:, ::2]",
    "permuted": "t.stack([a, a]).permute(2, 0, 1) / 2",
    "behind others": "(a * 1)[1:]",
    "one row": "a[:1] * 1",
    "a view of all columns": "(a.t() / 2)[:]",
    "all of what is permuted": "(t.stack([a, a]).permute(2, 0, 1) / 2).split(2)[0][:]",
}
WHOLE = """
v.expand(v.shape)
v.expand_as(v)
v.broadcast_to(v.shape)
v.view(v.shape)
v.view_as(v)
v.reshape(v.shape)
v.permute(*range(v.dim()))
v.transpose(0, 0)
v[:]
v[...]
v.narrow(0, 0, v.shape[0])
v.squeeze()
v.flatten(0, 0)
v.movedim(0, 0)
v.as_strided(v.shape, v.stride(), v.storage_offset())
v.split(v.shape[0])[0]
v.chunk(1)[0]
v.tensor_split(1)[0]
v.unsqueeze(0).squeeze(0)
v.unflatten(0, (v.shape[0],))
v.detach()
v.mT.mT
v.expand(1, *v.shape)[0]
v.contiguous()
"""


@pytest.mark.parametrize("code", [line for line in WHOLE.splitlines() if line])
@pytest.mark.parametrize("order", ORDERS)
def test_a_view_of_the_whole_is_a_view(order: str, code: str) -> None:
    """In any order of memory: what is written through it is a change of what it shows."""
    found = []
    for t in (weft, torch):
        a = t.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=t.float64, requires_grad=True)
        v = eval(ORDERS[order], {"a": a, "t": t})
        version, product = v._version, v * v
        y = eval(code, {"v": v, "t": t})
        facts: list[Any] = [y._base is None, y.stride()]
        with t.no_grad():
            y.add_(1)
        facts += [v._version - version, v.tolist()]
        try:
            product.sum().backward()
            facts.append(a.grad.tolist())
        except RuntimeError:
            facts.append("changed in place")
        found.append(facts)
    assert found[0] == found[1]


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_real_view_of_complex_numbers_changed_in_place(create_graph: bool) -> None:
    x = weft.ones(2, 3, dtype=weft.complex64, requires_grad=True)
    base = x.clone()
    view = weft.view_as_real(base).transpose(0, 1)
    view.mul_(3)
    (found,) = weft.autograd.grad(
        weft.view_as_real(base).sum(), x, create_graph=create_graph
    )  # warnings are errors: no complex number is cast to a real one on the way
    assert found.tolist() == [[3 + 3j] * 3] * 2


# --- views that recorded view ops can't lead to ------------------------------------------


class _Shown(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * 5


class _Same(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class _Halves(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[:1], x[1:]

    @staticmethod
    def backward(ctx, g, h):
        return weft.cat([g, h])


class _OtherInput(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return None, g


FROM_FUNCTIONS = {
    "a view": (lambda b: _Shown.apply(b), "inside a custom Function"),
    "the input": (lambda b: _Same.apply(b), "inside a custom Function"),
    "several": (lambda b: _Halves.apply(b)[0], "function that returns multiple views"),
    "of a constant": (
        lambda b: _OtherInput.apply(b.detach(), weft.ones(3, requires_grad=True)),
        "inside a custom Function",
    ),
}


@pytest.mark.parametrize("kind", FROM_FUNCTIONS)
def test_a_function_s_view_is_not_changed_in_place(kind):
    make, words = FROM_FUNCTIONS[kind]
    base = weft.ones(3, requires_grad=True).clone()
    out = make(base)
    with pytest.raises(RuntimeError, match=f"is being modified inplace.*{words}"):
        out.add_(1)
    with pytest.raises(RuntimeError, match=f"is being modified inplace.*{words}"):
        out[:1].add_(1)
    with pytest.raises(RuntimeError, match=f"is being modified inplace.*{words}"):
        out.unsqueeze_(0)
    assert base.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("kind", FROM_FUNCTIONS)
def test_a_function_s_view_of_changed_memory_is_not_used(kind):
    make, words = FROM_FUNCTIONS[kind]
    base = weft.ones(3, requires_grad=True).clone()
    out = make(base)
    view = out[:1]
    with weft.no_grad():
        out.mul_(2)
    for use in (lambda: out * 2, lambda: out.grad_fn, lambda: out.is_leaf, lambda: view * 2):
        with pytest.raises(RuntimeError, match=f"its base or another view of its.*{words}"):
            use()
    assert "grad_fn=<Invalid>" in repr(out)


def test_a_view_made_and_changed_without_recording_prints():
    a = weft.ones(1, requires_grad=True)
    with weft.no_grad():
        b = a[:]
        b *= 2
    assert repr(b) == "tensor([2.], grad_fn=<Invalid>)"


# --- another shape in place, not recorded ------------------------------------------------


def test_a_leaf_given_another_shape_without_recording_keeps_its_gradient():
    x = weft.ones(2, 3, requires_grad=True)
    seen = []
    x.register_hook(lambda g: seen.append(g.shape))
    with weft.no_grad():
        x.t_()
    assert x.is_leaf and x.requires_grad and x._version == 1
    (x * weft.arange(6.0).reshape(3, 2)).sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert seen == [(3, 2)]


def test_a_view_given_another_shape_without_recording_is_replayed():
    x = weft.ones(2, 3, requires_grad=True)
    base = x.clone()
    view = base[:]
    with weft.no_grad():
        view.t_()
    view.mul_(2)
    (view * weft.arange(6.0).reshape(3, 2)).sum().backward()
    assert x.grad.tolist() == [[0.0, 4.0, 8.0], [2.0, 6.0, 10.0]]


def test_a_result_given_another_shape_without_recording_keeps_its_node():
    x = weft.ones(2, 3, requires_grad=True)
    base = x.clone()
    view = base[:1]
    with weft.no_grad():
        base.t_()
    assert base.grad_fn.name() == "CloneBackward0"
    assert view.grad_fn is not None
    with pytest.raises(RuntimeError, match=r"got \[3, 2\] but expected shape compatible with"):
        base.sum().backward()
