"""What ``.grad`` may hold, what reading it says, and ``grad_dtype``."""

from __future__ import annotations

import copy
import warnings

import pytest

import weft


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (weft.ones(2), RuntimeError, r"gradient of size '\[2\]' to a tensor of size '\[3\]'"),
        (weft.ones(1, 3), RuntimeError, "same size"),
        (weft.ones(3, dtype=weft.float64), RuntimeError, "grad_dtype 'Float'"),
        (weft.ones(3, dtype=weft.int64), RuntimeError, "grad_dtype 'Float'"),
        (weft.ones(3, dtype=weft.complex64), RuntimeError, "grad_dtype 'Float'"),
        (3.0, TypeError, "Tensor or None but got grad of type float"),
        ([1.0], TypeError, "Tensor or None but got grad of type list"),
    ],
)
def test_what_is_no_gradient_of_a_tensor_is_refused(value, error, words):
    p = weft.ones(3, requires_grad=True)
    p.grad = held = weft.ones(3)
    with pytest.raises(error, match=words):
        p.grad = value
    assert p.grad is held


def test_a_tensor_is_not_its_own_gradient():
    p = weft.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="can't assign Variable as its own grad"):
        p.grad = p


def test_grad_can_be_cleared_by_none_and_by_del():
    p = weft.ones(3, requires_grad=True)
    p.grad = weft.ones(3)
    p.grad = None
    assert p.grad is None
    p.grad = weft.ones(3)
    del p.grad
    assert p.grad is None


def test_tensors_without_gradients_can_hold_one():
    counts = weft.ones(3, dtype=weft.int64)
    counts.grad = weft.ones(3, dtype=weft.int64)
    assert counts.grad.tolist() == [1, 1, 1]


def test_reading_grad_of_a_non_leaf_warns():
    leaf = weft.ones(3, requires_grad=True)
    y = leaf * 2
    with pytest.warns(UserWarning, match="not a leaf Tensor is being accessed"):
        assert y.grad is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert leaf.grad is None
        assert y.detach().grad is None
        with weft.no_grad():
            assert leaf[:2].grad is None
        y.retain_grad()
        assert y.grad is None
        kept = leaf * 2
        kept.grad = weft.ones(3)
        assert kept.grad.tolist() == [1.0, 1.0, 1.0]


class ToBFloat16(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g.to(weft.bfloat16)


def test_grad_dtype_is_what_gradients_are_summed_in():
    p = weft.ones(2, 3, requires_grad=True)
    assert p.grad_dtype is weft.float32
    p.grad_dtype = weft.float64
    seen = []
    p.register_hook(lambda g: seen.append(g.dtype))
    for _ in range(2):
        (p * 2).sum().backward()
    assert p.grad.dtype is weft.float64
    assert p.grad.tolist() == [[4.0] * 3] * 2
    assert seen == [weft.float64] * 2
    assert weft.autograd.grad((p * 2).sum(), p)[0].dtype is weft.float64
    assert p.detach().grad_dtype is weft.float32


def test_grad_dtype_for_leaves_of_another_memory_order():
    p = weft.ones(3, 2).t().requires_grad_()
    p.grad_dtype = weft.float64
    (p * 2).sum().backward()
    assert p.grad.dtype is weft.float64


def test_grad_dtype_none_takes_any_dtype():
    p = weft.ones(3, requires_grad=True)
    ToBFloat16.apply(p).sum().backward()
    assert p.grad.dtype is weft.float32
    p.grad, p.grad_dtype = None, None
    ToBFloat16.apply(p).sum().backward()
    assert p.grad.dtype is weft.bfloat16
    assert weft.autograd.grad(ToBFloat16.apply(p).sum(), p)[0].dtype is weft.bfloat16
    p.grad = weft.ones(3, dtype=weft.float16)
    assert p.grad_dtype is None


def test_grad_dtype_says_what_may_be_assigned():
    p = weft.ones(3, requires_grad=True)
    p.grad_dtype = weft.float64
    with pytest.raises(RuntimeError, match="grad_dtype 'Double'"):
        p.grad = weft.ones(3)
    p.grad = weft.ones(3, dtype=weft.float64)
    with pytest.raises(RuntimeError, match="Cannot set grad_dtype to 'Half'"):
        p.grad_dtype = weft.float16
    p.grad_dtype = None
    p.grad_dtype = weft.float64
    with pytest.raises(RuntimeError, match="grad_dtype must be a torch\\.dtype"):
        p.grad_dtype = 3
    with pytest.raises(RuntimeError, match="grad_dtype 'Float'"):
        copy.deepcopy(p)  # as in PyTorch, the copy has the default again


def test_grad_dtype_is_for_leaves():
    y = weft.ones(3, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="grad_dtype can only be accessed on leaf"):
        y.grad_dtype  # noqa: B018
    with pytest.raises(RuntimeError, match="grad_dtype can only be set on leaf"):
        y.grad_dtype = None


def test_volatile_is_gone():
    with pytest.warns(UserWarning, match="volatile was removed"):
        assert not weft.ones(1).volatile
