"""Sparse tensors in coordinate format: what libraries do with them, beside torch."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys

import pytest

import weft

torch = pytest.importorskip("torch")
# PyTorch says once that it does not check indices.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")

# x has two entries with the same indices; y has none.
SAME = """
x
x.coalesce()
y
x.to_dense()
x.coalesce().indices(), x.coalesce().values()
x._indices(), x._values(), x._nnz(), x.sparse_dim(), x.dense_dim()
x.is_coalesced(), y.is_coalesced(), x.coalesce().is_coalesced(), x.coalesce().t().is_coalesced()
x.shape, x.size(), x.ndim, x.dim(), x.numel(), x.dtype, len(x), x.is_floating_point()
x.is_sparse, x.layout, x.device, x.is_meta, x.requires_grad, x.is_leaf, torch.is_tensor(x)
torch.ones(2, 3) + x, torch.ones(2, 3) - x, torch.ones(2, 3).add(x, alpha=2)
torch.ones(2, 3).add_(x)
x + x, x - x, torch.add(x, x, alpha=3), (x - y).to_dense(), (x.coalesce() + x.coalesce())
x * 2, 2 * x, x / 2, -x, x.mul(3), x * torch.tensor(2.0)
x @ torch.ones(3, 2), x @ torch.ones(3), torch.ones(4, 2) @ x, torch.mm(x, torch.ones(3, 2))
torch.sparse.mm(x, torch.ones(3, 2)), torch.sparse.mm(torch.ones(4, 2), x)
x.t(), x.T, x.transpose(0, 1), x.t().to_dense()
x.to_dense().to_sparse(), x.to_dense().to_sparse().is_coalesced(), torch.eye(3).to_sparse_coo()
x.to_dense().to_sparse(1), torch.zeros(2, 3).to_sparse(), torch.arange(4).to_sparse()
torch.ones(2, 3, 2).to_sparse(2), torch.eye(2).to_sparse(layout=torch.sparse_coo)
torch.tensor(2.0).to_sparse().to_dense(), x.to_sparse(), torch.tensor(0.0).to_sparse()._nnz()
x.sum()
x.double(), x.to(torch.float16), x.clone(), x.detach(), copy.deepcopy(x)
torch.sparse_coo_tensor((2, 3)), torch.sparse_coo_tensor(size=(2, 3))
torch.sparse_coo_tensor([[0, 1]], [[1.0, 2.0], [3.0, 4.0]])
torch.sparse_coo_tensor([[0, 1]], [[1.0, 2.0], [3.0, 4.0]]).to_dense()
torch.sparse_coo_tensor([[0, 0]], [1, 2]).coalesce(), torch.sparse_coo_tensor([[0, 2]], [1, 2])
torch.sparse_coo_tensor([[0, 1]], [1, 2], (4,), dtype=torch.float64)
torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0), (2, 3)).to_dense()
"""


def _entries(t):
    x = t.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 3))
    return {"torch": t, "copy": copy, "x": x, "y": t.sparse_coo_tensor([[0], [1]], [7.0], (2, 3))}


@pytest.mark.parametrize("code", SAME.strip().splitlines())
def test_results_are_those_of_torch(code: str) -> None:
    assert repr(eval(code, _entries(weft))) == repr(eval(code, _entries(torch)))


REFUSED = """
x.indices()
x.values()
x + torch.ones(2, 3)
x.to_dense(torch.float64)
x.numpy()
x @ torch.ones(2, 2)
x.double() @ torch.ones(3, 2)
x.exp()
x == x
torch.sparse_coo_tensor([0, 1], [1.0, 2.0], (2,))
torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0, 3.0], (2,))
torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2, 3))
torch.sparse_coo_tensor([[0, 1]], [[1.0], [2.0]], (2, 3))
torch.sparse_coo_tensor([[[0, 1]]], [1.0, 2.0], (2,))
"""


@pytest.mark.parametrize("code", REFUSED.strip().splitlines())
def test_what_torch_refuses_is_refused_with_the_same_error(code: str) -> None:
    with pytest.raises(Exception) as expected:
        eval(code, _entries(torch))
    with pytest.raises(expected.type) as found:
        eval(code, _entries(weft))
    assert found.type is expected.type


@pytest.mark.parametrize(
    "code",
    ["torch.relu(x)", "x[0]", "torch.cat([x, x])", "x @ x.t()", "torch.sparse.mm(x, x.t())",
     "torch.ones(2, 3) * x", "1 / x", "x.sum(0)", "torch.nn.functional.linear(x, x)", "x.data",
     "torch.save(x, file)", "pickle.dumps(x)", "x.add_(x)", "x.item()", "x.data_ptr()"],
)  # fmt: skip
def test_what_weft_lacks_says_so_and_never_reads_what_is_not_there(code: str) -> None:
    with pytest.raises(NotImplementedError, match=r"for sparse tensors\. Call to_dense\(\) first"):
        eval(code, {**_entries(weft), "file": io.BytesIO(), "pickle": pickle})


@pytest.mark.parametrize("index", [2, -1])
def test_an_index_outside_of_the_tensor_is_refused(index: int) -> None:
    with pytest.raises(RuntimeError, match="index"):
        weft.sparse_coo_tensor([[0, index]], [1.0, 2.0], (2,))


def test_sparse_gradients_and_other_devices_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="values that require a gradient"):
        weft.sparse_coo_tensor([[0]], [1.0], (2,), requires_grad=True)
    with pytest.raises(RuntimeError, match="on the CPU only"):
        weft.sparse_coo_tensor([[0]], [1.0], (2,), device="meta")


@pytest.mark.parametrize(
    "use",
    [
        lambda t, x, m: x.to_dense().pow(2).sum(),
        lambda t, x, m: x.coalesce().to_dense().pow(2).sum(),
        lambda t, x, m: t.sparse.mm(x, m).pow(2).sum(),
        lambda t, x, m: (m.t() + x * 3).pow(2).sum(),
        lambda t, x, m: (m @ x).pow(2).sum(),
        lambda t, x, m: x.sum() * m.sum(),
        lambda t, x, m: t.sparse.mm(m.to_sparse(), x.to_dense()).pow(2).sum(),
        lambda t, x, m: (m * 2).to_sparse(1).to_dense().pow(2).sum() + x.sum(),
    ],
)
def test_gradients_reach_values_and_matrices(use) -> None:
    found = {}
    for t in (torch, weft):
        values = t.tensor([3.0, 4.0, 5.0], requires_grad=True)
        matrix = t.arange(6.0).reshape(3, 2).requires_grad_()
        x = t.sparse_coo_tensor(t.tensor([[0, 1, 1], [2, 0, 0]]), values, (2, 3))
        assert x.requires_grad
        use(t, x, matrix).backward()
        found[t] = [None if p.grad is None else p.grad.tolist() for p in (values, matrix)]
    assert found[weft] == found[torch]


def test_libraries_find_them_where_torch_has_them() -> None:
    code = (
        "from weft import compat; compat.install()\n"
        "import torch\n"
        "x = torch.sparse_coo_tensor([[0]], [1.0], (2,))\n"
        "print(isinstance(x, torch.Tensor), torch.sparse.mm.__module__, x.layout)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "torch.sparse", "torch.sparse_coo"]


def test_sparse_tensors_made_after_native_code_was_loaded() -> None:
    """By then compiled code has replaced the properties that sparse tensors answer from."""
    code = (
        "import weft\n"
        "from weft.core import making\n"
        "making.records()\n"
        "making.read_attributes()\n"
        "x = weft.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))\n"
        "print(x.to_dense().tolist(), tuple(x.shape), x.dtype, x.ndim)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[[0.0, 1.0], [2.0, 0.0]] (2, 2) torch.float32 2\n", done.stderr
