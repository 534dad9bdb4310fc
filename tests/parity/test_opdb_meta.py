"""PyTorch's op table on the meta device: every third op with one sample.

The deep run takes all of them, with all samples in all dtypes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="the op table comes from PyTorch, which is absent")
opdb_meta = pytest.importorskip("opdb_meta")

import opdb  # noqa: E402

IN_SCOPE = [
    name
    for name, op in opdb.BY_NAME.items()
    if op.name not in opdb.OUT_OF_SCOPE and name not in opdb.OUT_OF_SCOPE
]
ONE = replace(opdb_meta.QUICK, samples=1)

# What depends on values: the shape of the result, or whether there is one.
VALUES = {
    *("item", "allclose", "equal", "masked_select", "narrow", "tensor_split", "unique"),
    *("unique_consecutive", "histogram", "histogramdd", "nonzero", "argwhere"),
    *("nn.functional.ctc_loss", "repeat_interleave", "bincount", "hash_tensor"),
}
# weft's CPU has results of these in rows, where PyTorch's LAPACK and FFT leave them in columns.
OTHER_STRIDES = ("cholesky", "fft.", "linalg.", "lu", "ormqr", "qr", "svd", "triangular_solve")
# PyTorch's meta results differ here from those of its own CPU, in strides or in more.
OTHER_ON_META = ("nn.functional.max_unpool2d", "unsafe_chunk")
ODD_ON_META = ("native_layer_norm", "native_batch_norm")

# Differences that only more samples or other dtypes show.
DEEP = {
    "index_put": "a mask without values",
    "index_reduce.mean": "booleans, whose mean the CPU gives as int8",
    "nn.functional.glu": "integers, which PyTorch refuses on the CPU",
    "pow": "booleans, which PyTorch refuses on the CPU",
    "unravel_index": "strides",
}


def agree(name: str, settings: opdb.Settings) -> None:
    problems = opdb_meta.check(name, settings)
    for kind, text in problems.items():
        if kind == "values" or (kind == "error" and name in VALUES):
            assert name in VALUES, text
        elif kind == "strides":
            assert name.startswith((*OTHER_STRIDES, *OTHER_ON_META)), text
        elif kind != "torch" or name not in ODD_ON_META:
            pytest.fail(f"{kind}: {text}")


@pytest.mark.parametrize("name", IN_SCOPE[::3])
def test_op_on_meta(name: str) -> None:
    agree(name, ONE)


@pytest.mark.deep
@pytest.mark.parametrize("name", IN_SCOPE)
def test_op_on_meta_in_all_dtypes(name: str) -> None:
    if name in DEEP:
        pytest.xfail(DEEP[name])
    agree(name, opdb_meta.FULL)


def test_lists_name_real_ops() -> None:
    assert not VALUES - set(opdb.BY_NAME)
    for start in (*OTHER_STRIDES, *OTHER_ON_META, *ODD_ON_META):
        assert any(name.startswith(start) for name in opdb.BY_NAME), start
