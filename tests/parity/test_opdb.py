"""PyTorch's op table, in short: every op, few samples, two dtypes, with gradients.

``python -m opdb --all`` runs more samples and all dtypes.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the op table comes from PyTorch, which is absent")
opdb = pytest.importorskip("opdb")

import weft  # noqa: E402
from opdb_known import DEEP_FAILURES, KNOWN_FAILURES  # noqa: E402

IN_SCOPE = [
    name
    for name, op in opdb.BY_NAME.items()
    if op.name not in opdb.OUT_OF_SCOPE and name not in opdb.OUT_OF_SCOPE
]


def agree(name: str, settings: opdb.Settings, known: dict[str, str]) -> None:
    """The op passes, or fails as the list of known failures says."""
    result = opdb.check(opdb.BY_NAME[name], settings)
    if name in known:
        if result.status == "pass":
            pytest.fail(f"{name} passes: take it off the list in opdb_known.py")
        pytest.xfail(known[name])
    failures = "\n".join(f"{label}: {text}" for label, text in result.messages.items())
    assert result.status == "pass", failures


@pytest.mark.parametrize("name", IN_SCOPE)
def test_op_agrees_with_torch(name: str) -> None:
    agree(name, opdb.QUICK, KNOWN_FAILURES)


@pytest.mark.deep
@pytest.mark.parametrize("name", IN_SCOPE)
def test_op_agrees_with_torch_in_all_dtypes(name: str) -> None:
    agree(name, opdb.FULL, KNOWN_FAILURES | DEEP_FAILURES)


def test_lists_name_real_ops() -> None:
    names = set(opdb.BY_NAME) | {op.name for op in opdb.BY_NAME.values()}
    listed = set(KNOWN_FAILURES) | set(DEEP_FAILURES) | set(opdb.OUT_OF_SCOPE) | set(opdb.LOOSE)
    assert not listed - names


WRONG = {
    "dtype": (weft.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64)),
    "shape": (weft.tensor([1.0]), torch.tensor([[1.0]])),
    "value": (weft.tensor([1.0, 2.0]), torch.tensor([1.0, 2.001])),
    "nan": (weft.tensor([float("nan")]), torch.tensor([1.0])),
    "inf": (weft.tensor([float("inf")]), torch.tensor([-float("inf")])),
    "integer": (weft.tensor([3]), torch.tensor([4])),
    "length": ((weft.tensor([1.0]),), (torch.tensor([1.0]), torch.tensor([1.0]))),
    "field": ((weft.tensor(1.0), weft.tensor(0)), torch.max(torch.tensor([1.0]), 0)),
    "number": (1, 1.0),
    "none": (weft.tensor(1.0), None),
    "no tensor": (1.0, torch.tensor(1.0)),
}


@pytest.mark.parametrize("what", WRONG)
def test_comparison_sees(what: str) -> None:
    with pytest.raises(opdb.Mismatch):
        opdb.compare(*WRONG[what], where="result", factor=1.0)


def test_comparison_lets_pass() -> None:
    values = [[1.0, float("nan")], [float("inf"), -0.0]]
    ours, theirs = weft.tensor(values), torch.tensor(values)
    opdb.compare([ours, (1, 2.0, None)], [theirs * (1 + 1e-7), (1, 2.0, None)], "result", 1.0)


@pytest.mark.parametrize("dtype", opdb.DTYPES)
def test_conversion_keeps_strides_values_and_dtype(dtype: str) -> None:
    whole = torch.arange(24).reshape(4, 6).to(getattr(torch, dtype))
    for part in (whole, whole.T, whole[1:3, ::2], whole[:, 1:2].expand(4, 5), whole[:0]):
        array = opdb.array_of(part)
        assert opdb.to_weft(part.dtype).np == array.dtype
        assert array.shape == tuple(part.shape)
        if part.numel():
            assert tuple(s // array.itemsize for s in array.strides) == part.stride()
        np.testing.assert_array_equal(array.astype(complex), part.to(torch.complex128).numpy())


def test_conversion_copies() -> None:
    source = torch.zeros(3)
    opdb.to_weft(source)._a[...] = 1.0
    opdb.copy_of(source).add_(1.0)
    assert not source.any()


def test_rebuilt_functions_run_on_weft() -> None:
    scale = torch.tensor(2.0)

    def function(x, offset=torch.tensor(1.0)):
        return torch.add(x * scale, offset)

    function.__module__ = "torch.testing"
    result = opdb.translate(function)(weft.tensor([1.0, 2.0]))
    assert isinstance(result, weft.Tensor)
    assert result.tolist() == [3.0, 5.0]
