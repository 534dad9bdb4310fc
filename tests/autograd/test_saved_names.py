"""What nodes kept for backward can be read by PyTorch's names for it."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from side_by_side import needs_torch, rounded, torch

F = lambda lib: lib.nn.functional


def matrix(lib: Any) -> Any:
    return lib.tensor([[3.0, 1.0], [1.0, 2.0]], requires_grad=True)


def ones(lib: Any, *shape: int) -> Any:
    return lib.ones(*shape, requires_grad=True)


# A call whose result's node is looked at, and names of what that node kept.
CALLS: dict[str, tuple[Any, str]] = {
    "avg_pool2d": (lambda t: F(t).avg_pool2d(ones(t, 1, 1, 2, 2), 2), "kernel_size"),
    "clamp": (lambda t: ones(t, 2).clamp(0.0, 2.0), "self min max"),
    "conv1d": (lambda t: F(t).conv1d(ones(t, 1, 1, 3), ones(t, 1, 1, 2)), "input weight"),
    "conv_transpose1d": (
        lambda t: F(t).conv_transpose1d(ones(t, 1, 1, 3), ones(t, 1, 1, 2)), "input weight"),
    "dot": (lambda t: ones(t, 2).dot(ones(t, 2)), "self tensor"),
    "embedding": (
        lambda t: F(t).embedding(t.tensor([0]), ones(t, 2, 2)), "indices scale_grad_by_freq"),
    "index": (lambda t: ones(t, 3)[t.tensor([0, 2])], "indices"),
    "cholesky": (lambda t: t.linalg.cholesky_ex(matrix(t)).L, "L"),
    "eigh": (lambda t: t.linalg.eigh(matrix(t))[0], "eigenvalues eigenvectors"),
    "inv": (lambda t: t.linalg.inv_ex(matrix(t)).inverse, "inverse"),
    "qr": (lambda t: t.linalg.qr(matrix(t))[0], "Q R"),
    "svd": (lambda t: t.linalg.svd(matrix(t))[1], "U S Vh"),
    "linear": (lambda t: F(t).linear(ones(t, 2, 3), ones(t, 4, 3)), "self mat2"),
    "linear with a bias": (
        lambda t: F(t).linear(ones(t, 2, 3), ones(t, 4, 3), ones(t, 4)), "mat1 mat2"),
    "max_pool2d": (
        lambda t: F(t).max_pool2d(ones(t, 1, 1, 2, 2), 2), "kernel_size result1"),
    "mse_loss": (lambda t: F(t).mse_loss(ones(t, 2), ones(t, 2)), "self target"),
    "smooth_l1_loss": (lambda t: F(t).smooth_l1_loss(ones(t, 2), ones(t, 2)), "self target"),
    "batch_norm": (
        lambda t: F(t).batch_norm(ones(t, 3, 2), None, None, training=True), "input result1"),
    "layer_norm": (lambda t: F(t).layer_norm(ones(t, 3, 2), (2,)), "input result1 result2"),
    "upsample": (lambda t: F(t).interpolate(ones(t, 1, 1, 2, 2), size=4), "output_size"),
    "mul by a constant": (lambda t: ones(t, 2) * t.ones(2), "self other"),
}  # fmt: skip


UNIQUE_UP_TO_SIGNS = ("eigh", "qr", "svd")


def kept(lib: Any, name: str) -> Any:
    call, names = CALLS[name]
    node = call(lib).grad_fn
    found = [getattr(node, f"_saved_{n}") for n in names.split()]
    return [rounded(f.tolist()) if isinstance(f, lib.Tensor) else None for f in found]


@pytest.mark.parametrize("name", CALLS)
def test_values_have_the_names_that_torch_gives_them(name: str) -> None:
    assert len(kept(weft, name)) == len(CALLS[name][1].split())


@needs_torch
@pytest.mark.parametrize("name", [n for n in CALLS if n not in UNIQUE_UP_TO_SIGNS])
def test_values_are_those_of_torch(name: str) -> None:
    assert kept(weft, name) == kept(torch, name)


@pytest.mark.parametrize(
    "call",
    [
        lambda lib, x: F(lib).avg_pool2d(x, 2),
        lambda lib, x: F(lib).adaptive_avg_pool2d(x, 3),
    ],
)
def test_backward_twice_is_refused_where_only_shapes_are_kept(call: Any) -> None:
    for lib in (weft, torch):
        if lib is None:
            continue
        y = call(lib, ones(lib, 1, 1, 4, 4)).sum()
        y.backward()
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()
