"""Linear algebra as a user meets it: errors, empty batches, graphs, named results."""

from __future__ import annotations

import numpy as np
import pytest

import weft


def ones(*shape: int, dtype: object = weft.float64) -> weft.Tensor:
    return weft.ones(*shape, dtype=dtype)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ones(2, 3) @ ones(4, 5), r"cannot be multiplied \(2x3 and 4x5\)"),
        (lambda: weft.mm(ones(2), ones(2, 2)), "self must be a matrix"),
        (lambda: ones(2, 2) @ ones(2, 2).float(), "got: double != float"),
        (lambda: ones(2, 2, 3) @ ones(2, 4, 2), r"to be: \[2, 3\] but got: \[2, 4\]"),
        (lambda: ones(2, 2, 3) @ ones(3, 3, 2), r"tensor a \(2\) must match .* tensor b \(3\)"),
        (lambda: weft.dot(ones(2), ones(3)), "inconsistent tensor size"),
        (lambda: weft.einsum("ij,jk", ones(2, 3)), "fewer operands"),
        (lambda: weft.linalg.inv(ones(2, 3)), "batches of square matrices"),
        (lambda: ones(2, 2, 2).norm("nuc"), "dim must be a 2-tuple"),
        (lambda: weft.linalg.inv(weft.tensor([[1, 2], [3, 4]])), "Got Long"),
    ],
)
def test_errors_say_what_does_not_fit(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: weft.linalg.inv(x), "input matrix is singular"),
        (lambda x: weft.linalg.solve(x, x), "input matrix is singular"),
        (lambda x: weft.linalg.cholesky(-x), "not positive-definite"),
        (lambda x: weft.linalg.inv(weft.stack((x + weft.eye(2, dtype=x.dtype), x))), "element 1"),
        (lambda x: weft.linalg.lu_factor(x), r"U\[2,2\] is zero"),
    ],
)
def test_singular_matrices_raise_linalg_error(call, message):
    assert issubclass(weft.linalg.LinAlgError, RuntimeError)
    with pytest.raises(weft.linalg.LinAlgError, match=message):
        call(ones(2, 2))


def test_ex_functions_report_instead_of_raising():
    batch = weft.stack((ones(2, 2), weft.eye(2, dtype=weft.float64)))
    result, info = weft.linalg.inv_ex(batch)
    assert info.tolist() == [2, 0]
    assert result[1].tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_results_have_torchs_field_names():
    x = weft.eye(3)
    assert weft.linalg.svd(x)._fields == ("U", "S", "Vh")
    assert weft.svd(x)._fields == ("U", "S", "V")
    assert weft.linalg.eigh(x)._fields == ("eigenvalues", "eigenvectors")
    assert weft.linalg.lu(x)._fields == ("P", "L", "U")
    assert weft.linalg.slogdet(x)._fields == ("sign", "logabsdet")


def test_linear_is_one_node_and_keeps_leading_dimensions():
    weight, bias = ones(4, 3).requires_grad_(), ones(4).requires_grad_()
    y = weft.nn.functional.linear(ones(5, 2, 3), weight, bias)
    assert y.shape == (5, 2, 4)
    assert y.grad_fn.name() == "AddmmBackward0"
    y.sum().backward()
    assert weight.grad.tolist() == [[10.0] * 3] * 4
    assert bias.grad.tolist() == [10.0] * 4


def test_only_singular_values_of_equal_size_have_a_gradient():
    x = weft.eye(3, dtype=weft.float64).requires_grad_()
    weft.linalg.svd(x).S.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.eye(3))


def test_a_loss_that_depends_on_the_phase_of_vectors_is_refused():
    x = weft.tensor([[2.0 + 0j, 1j], [-1j, 5.0]], requires_grad=True)
    vectors = weft.linalg.eigh(x).eigenvectors
    with pytest.raises(RuntimeError, match="phase"):
        (vectors[0, 0].imag * 3 + vectors[1, 1].imag).backward()


def test_pivots_that_lapack_could_not_follow_are_refused():
    x = weft.eye(2)
    pivots = weft.tensor([0, 7], dtype=weft.int32)
    with pytest.raises(RuntimeError, match="pivots"):
        weft.linalg.ldl_solve(x, pivots, x)


def test_half_types_are_summed_in_float32():
    x = ones(1, 4096, dtype=weft.bfloat16)
    assert (x @ x.T).item() == 4096.0


def test_in_place_addmm_and_matmul():
    x = ones(2, 2)
    x.addmm_(ones(2, 2), ones(2, 2), beta=2, alpha=3)
    assert x.tolist() == [[8.0, 8.0], [8.0, 8.0]]
    x @= weft.eye(2, dtype=weft.float64)
    assert x.tolist() == [[8.0, 8.0], [8.0, 8.0]]


def test_zero_beta_ignores_nan():
    nan = weft.full((2, 2), float("nan"), dtype=weft.float64)
    assert weft.addmm(nan, ones(2, 2), ones(2, 2), beta=0).tolist() == [[2.0, 2.0]] * 2


def test_gradients_of_determinants_of_singular_matrices():
    inf, nan = float("inf"), float("nan")
    matrices = weft.tensor([[[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]], [[2.0, 0], [0, 1]]])
    x = matrices.requires_grad_()
    (logs,) = weft.autograd.grad(weft.linalg.slogdet(x)[1].sum(), x)
    expected = [[[nan, nan], [nan, inf]], [[-inf, inf], [inf, -inf]], [[0.5, 0.0], [0.0, 1.0]]]
    np.testing.assert_array_equal(logs.numpy(), np.array(expected))
    (plain,) = weft.autograd.grad(weft.linalg.det(x).sum(), x)
    cofactors = [np.zeros((2, 2)), [[4, -2], [-2, 1]], [[1, 0], [0, 2]]]
    np.testing.assert_allclose(plain.numpy(), cofactors, rtol=1e-5, atol=1e-6)
    (recorded,) = weft.autograd.grad(weft.linalg.det(x[1]), x, create_graph=True)
    np.testing.assert_allclose(recorded[1].detach().numpy(), [[4, -2], [-2, 1]], rtol=1e-5)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_the_exponential_of_positive_matrices_does_not_cancel(n: int) -> None:
    x = np.full((3, n, n), 1.37)
    x[1] *= 1e-3
    x[2] *= 3
    exact = np.eye(n) + np.expm1(n * x[:, :1, :1]) / n
    found = weft.linalg.matrix_exp(weft.tensor(x)).numpy()
    np.testing.assert_allclose(found, exact, rtol=1e-14)


def triangular(lib, matrix, side, left):
    A = lib.tensor([[2.0, 1.0], [0.0, 4.0]], dtype=getattr(lib, matrix), requires_grad=True)
    B = lib.tensor([[1, 2], [3, 5]], dtype=getattr(lib, side))
    if B.is_floating_point():
        B.requires_grad_()
    y = lib.linalg.solve_triangular(A, B, upper=True, left=left)
    (y * y).abs().sum().backward()
    return [y, A.grad] if B.grad is None else [y, A.grad, B.grad]


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize(
    ("matrix", "side"),
    [
        ("float64", "float32"),
        ("float32", "float64"),
        ("float32", "int64"),
        ("complex64", "int64"),
    ],
)
def test_the_right_side_of_a_triangular_system_has_any_real_dtype(matrix, side, left):
    torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")
    pairs = zip(
        triangular(weft, matrix, side, left), triangular(torch, matrix, side, left), strict=True
    )
    for mine, theirs in pairs:
        assert str(mine.dtype) == str(theirs.dtype)
        np.testing.assert_allclose(mine.tolist(), theirs.tolist(), rtol=1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: weft.linalg.solve_triangular(a, b * 1j, upper=True),
        lambda a, b: weft.cholesky_solve(b, a),
        lambda a, b: weft.triangular_solve(b, a),
        lambda a, b: weft.lobpcg(b, 1, B=a),
        lambda a, b: weft.linalg.lu_solve(*weft.linalg.lu_factor(a), b, adjoint=True),
    ],
)
def test_other_systems_have_one_dtype_and_imaginary_parts_are_not_lost(call):
    with pytest.raises(RuntimeError, match="same dtype"):
        call(weft.eye(4), weft.eye(4, dtype=weft.float64))
