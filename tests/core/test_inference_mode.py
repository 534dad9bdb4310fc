"""Tensors made in ``inference_mode``: marked, and refused where autograd would need their past."""

from __future__ import annotations

from typing import Any

import pytest

import weft

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

SYSTEMS = [weft] if torch is None else [weft, torch]
both = pytest.mark.parametrize("t", SYSTEMS, ids=lambda t: t.__name__)


def made(t: Any, **options: Any) -> Any:
    with t.inference_mode():
        return t.ones(1, 2, 3, **options)


@both
@pytest.mark.parametrize("requires_grad", [False, True])
def test_what_is_made_inside_is_marked(t, requires_grad):
    outside = t.ones(1, 2, 3, requires_grad=requires_grad)
    with t.inference_mode():
        made = t.ones(1, 2, 3, requires_grad=requires_grad)
        results = [made, made * made, made.sin(), made + outside, made.sum(), outside * 2]
        results += [made.view(-1), made[0], made.mT, made.detach(), made.unbind(1)[0]]
        results += [t.zeros(2), t.rand(2), t.tensor([1.0]), t.cat([made, made]), made.clone()]
        results += [t.nn.Linear(2, 3)(made.reshape(3, 2)), t.ones_like(outside), outside.clone()]
        with t.inference_mode(False):
            assert not t.ones(2).is_inference()
            assert not t.is_inference_mode_enabled()
        results.append(t.ones(2))
    assert [r.is_inference() for r in results] == [True] * len(results)
    assert made.requires_grad == requires_grad
    assert not any(r.requires_grad for r in results[1:])
    assert not t.ones(2).is_inference()


@both
def test_what_shares_memory_with_others_is_like_them(t):
    outside = t.ones(2, 3)
    with t.inference_mode():
        view = outside.view(-1)
        outside.add_(1)
        assert not view.is_inference() and view._is_view()
    assert outside._version == view._version == 1
    inside = made(t)
    view = inside.view(-1)
    assert view.is_inference() and not view._is_view() and view.is_leaf
    assert not inside.clone().is_inference() and not (inside * 2).is_inference()


@both
def test_versions_are_not_counted(t):
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        made(t)._version  # noqa: B018


SAVERS = {
    "mul": lambda t, c, s: c * s,
    "mul flipped": lambda t, c, s: s * c,
    "broadcast": lambda t, c, s: s * c[:, :1],
    "div": lambda t, c, s: s / c,
    "pow": lambda t, c, s: s**c,
    "matmul": lambda t, c, s: s @ c.mT,
    "maximum": lambda t, c, s: t.maximum(s, c),
    "mul_": lambda t, c, s: s.clone().mul_(c),
    "addcmul": lambda t, c, s: t.addcmul(s, s, c),
    "view": lambda t, c, s: s * c.view(1, 2, 3),
}


@both
@pytest.mark.parametrize("name", SAVERS)
def test_what_is_marked_is_not_saved_for_backward(t, name):
    s, c = t.ones(1, 2, 3, requires_grad=True), made(t)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        SAVERS[name](t, c, s)
    with t.no_grad():
        SAVERS[name](t, c, s)
    SAVERS[name](t, c.clone(), s)


@both
def test_a_refused_change_changes_nothing(t):
    a, c = t.ones(1, 2, 3, requires_grad=True).clone(), made(t) * 2
    with t.inference_mode():
        c = t.full((1, 2, 3), 2.0)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        a.mul_(c)
    if t is weft:
        assert a.sum().item() == 6.0 and a._version == 0


@both
def test_functions_do_not_save_them(t):
    class Times(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0], None

    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        Times.apply(t.ones(1, 2, 3, requires_grad=True), made(t))


@both
def test_what_saves_nothing_records(t):
    s, c = t.ones(1, 2, 3, requires_grad=True), made(t, requires_grad=True)
    (s + c).sum().backward()
    assert s.grad.sum().item() == c.grad.sum().item() == 6.0


CHANGES = {
    "add_": lambda t, x: x.add_(2),
    "add_ of a tensor": lambda t, x: x.add_(t.ones(1, 2, 3)),
    "mul_": lambda t, x: x.mul_(2),
    "sin_": lambda t, x: x.sin_(),
    "zero_": lambda t, x: x.zero_(),
    "fill_": lambda t, x: x.fill_(3),
    "copy_": lambda t, x: x.copy_(t.zeros(1, 2, 3)),
    "setitem": lambda t, x: x.__setitem__(0, 5.0),
    "setitem by a tensor": lambda t, x: x.__setitem__((0, t.tensor([1])), 5.0),
    "normal_": lambda t, x: x.normal_(),
    "clamp_": lambda t, x: x.clamp_(0, 0.5),
    "masked_fill_": lambda t, x: x.masked_fill_(t.ones(1, 2, 3).bool(), 7.0),
    "view": lambda t, x: x.view(-1).add_(1),
    "transpose_": lambda t, x: x.transpose_(0, 1),
    "out": lambda t, x: t.mul(t.ones(1, 2, 3), 3, out=x),
}


@both
@pytest.mark.parametrize("name", CHANGES)
def test_changed_in_place_inside_only(t, name):
    c = made(t)
    for guard in (t.enable_grad, t.no_grad):
        with guard(), pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            CHANGES[name](t, c)
    if t is weft:  # torch notices when it is done
        assert c.shape == (1, 2, 3) and c.sum().item() == 6.0
    c = made(t)
    with t.inference_mode():
        CHANGES[name](t, c)
    assert c.is_inference()
    assert c.shape != (1, 2, 3) or c.sum().item() != 6.0


@both
def test_no_gradient_is_asked_for_outside(t):
    with pytest.raises(RuntimeError, match="requires_grad=True on inference tensor outside"):
        made(t).requires_grad_()
    with t.inference_mode():
        assert made(t).requires_grad_().requires_grad


@both
def test_views_made_inside_are_not_changed_outside(t):
    a = t.ones(1, 2, 3, requires_grad=True).clone()
    with t.inference_mode():
        view = a.view(-1)
        rows = a.unbind(1)
    with pytest.raises(RuntimeError, match="A view was created in inference mode and is being"):
        view.add_(2)
    with pytest.raises(RuntimeError, match="is being modified inplace"):
        rows[0].add_(2)
    a.add_(1)
    with pytest.raises(RuntimeError, match="A view was created in inference mode and its base"):
        view.grad_fn  # noqa: B018


@both
def test_shapes_change_inside_also_with_a_gradient(t):
    with t.inference_mode():
        x = t.ones(1, 2, 3, requires_grad=True)
        x.resize_(1, 2)
    assert x.is_inference() and x.requires_grad and x.shape == (1, 2)


@both
def test_resize_counts_as_a_change(t):
    x, y = t.rand(1), t.rand(3)
    for change, version in (((1, 2), 1), ((3,), 2), ((3,), 2)):
        x.resize_(change)
        assert x._version == version
    x.resize_as_(y)
    assert x._version == 2


def test_a_graph_is_recorded_of_them():
    x = weft.ones(2, 3)
    with weft.inference_mode(), weft.graph.record() as graph:
        y = (x * 2).add_(1).sum()
    assert y.is_inference()
    assert len(graph) >= 3
