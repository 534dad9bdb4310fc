"""What reductions and sorts promise beyond values and gradients: names, errors, ties, zeros."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import weft as torch
from weft import masked, return_types


def test_numpy_names_of_arguments_are_understood() -> None:
    x = torch.tensor([[1.0, 4.0], [3.0, 2.0]])
    assert x.sum(axis=1, keepdims=True).tolist() == [[5.0], [5.0]]
    assert torch.max(x, axis=0).indices.tolist() == [1, 0]
    assert torch.cumsum(x, axis=1)[1].tolist() == [3.0, 5.0]


def test_results_with_parts_have_names_and_survive_pickling() -> None:
    found = torch.tensor([2.0, 7.0]).max(0)
    assert found.values.item() == 7.0 and found.indices.item() == 1
    assert repr(found).startswith("torch.return_types.max(\nvalues=tensor(7.)")
    assert pickle.loads(pickle.dumps(type(found))) is return_types.max


@pytest.mark.parametrize("name", ["max", "min", "median", "amax", "amin"])
def test_ties_share_the_gradient_of_a_whole_reduction(name: str) -> None:
    x = torch.tensor([2.0, 2.0, 2.0, 2.0], requires_grad=True)
    getattr(x, name)().backward()
    assert x.grad.tolist() == [0.25] * 4


def test_equal_elements_keep_their_order_both_ways() -> None:
    x = torch.tensor([1, 0, 1, 0, 1])
    assert x.sort().indices.tolist() == [1, 3, 0, 2, 4]
    assert x.sort(descending=True).indices.tolist() == [0, 2, 4, 1, 3]


def test_products_with_zeros_have_second_derivatives() -> None:
    x = torch.tensor([0.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(x.prod(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.tolist() == [6.0, 0.0, 0.0]
    assert second.tolist() == [5.0, 3.0, 2.0]


def test_half_types_are_summed_in_float32() -> None:
    x = torch.ones(4096, dtype=torch.bfloat16)
    assert x.sum().item() == 4096.0 and x.mean().item() == 1.0
    assert x.cumsum(0)[-1].item() == 4096.0


def test_errors_have_the_classes_that_programs_catch() -> None:
    empty = torch.zeros(0, 3)
    with pytest.raises(IndexError, match="non-zero size"):
        empty.max(0)
    with pytest.raises(RuntimeError, match="Specify the reduction dim"):
        empty.max()
    with pytest.raises(RuntimeError, match="floating point"):
        torch.tensor([1, 2]).mean()
    with pytest.raises(RuntimeError, match="out of range"):
        torch.ones(3).topk(4)
    with pytest.raises(NotImplementedError, match="ComplexFloat"):
        torch.ones(2, dtype=torch.complex64).sort()


def test_out_receives_both_parts() -> None:
    values, indices = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    torch.max(torch.tensor([[1.0, 5.0], [7.0, 2.0]]), 1, out=(values, indices))
    assert values.tolist() == [5.0, 7.0] and indices.tolist() == [1, 0]


def test_topk_agrees_with_a_full_sort_where_it_only_partitions() -> None:
    x = torch.from_numpy(np.random.default_rng(0).permutation(500).astype(np.float32))
    x[7] = float("nan")
    assert x.topk(5).indices.tolist() == x.sort(descending=True).indices[:5].tolist()
    assert x.topk(5, largest=False).values.tolist() == x.sort().values[:5].tolist()


def test_masked_reductions_leave_out_what_the_mask_hides() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert masked.sum(x, 1, mask=mask).tolist() == [4.0, 0.0]
    assert masked.mean(x, mask=mask).item() == 2.0
    assert masked.amax(x, 1, mask=mask).tolist() == [3.0, -float("inf")]


@pytest.mark.parametrize("name", ["var_mean", "std_mean"])
@pytest.mark.parametrize("output", [0, 1])
@pytest.mark.parametrize("options", [{}, {"dim": 1}, {"dim": (0, 2), "keepdim": True}])
def test_each_result_alone_has_a_gradient(name, output, options):
    torch.manual_seed(0)
    x = torch.rand(2, 3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: getattr(torch, name)(x, **options)[output], (x,))
    getattr(torch, name)(x, **options)[output].sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize(
    "values", ([1, np.inf, 2], [np.inf, 1, 2], [1, 2, np.inf], [1, -np.inf, 2])
)
def test_gradients_of_logcumsumexp_beside_an_infinity(values: list[float]) -> None:
    """Only those of the infinity itself are undefined, as in PyTorch."""
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    torch.logcumsumexp(x, 0).backward(torch.tensor([1.0, 2.0, -0.5], dtype=torch.float64))
    found = x.grad.numpy()
    assert np.array_equal(np.isnan(found), np.isposinf(values))
    j = np.arange(3)
    y = np.logaddexp.accumulate(np.array(values, float))
    with np.errstate(invalid="ignore"):
        terms = np.exp(np.array(values, float)[:, None] - y) * [1.0, 2.0, -0.5]
    wanted = np.where(j >= j[:, None], terms, 0).sum(1)
    finite = np.isfinite(values)
    np.testing.assert_allclose(found[finite], wanted[finite])
