"""Running a scenario on PyTorch and on weft, and comparing what it gives."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")

FAST = {"rtol": 1e-9, "atol": 1e-11}


def plain(x):
    """Tensors as arrays, containers as lists, the rest as it is."""
    if isinstance(x, torch.Tensor):
        return x.detach().resolve_conj().numpy()
    if isinstance(x, weft.Tensor):
        return x.detach().numpy()
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return x


def same(a, b, path="result"):
    if isinstance(a, np.ndarray):
        assert isinstance(b, np.ndarray), path
        assert a.shape == b.shape and a.dtype == b.dtype, (path, a.shape, b.shape, a.dtype, b.dtype)
        np.testing.assert_allclose(a, b, err_msg=path, **FAST)
    elif isinstance(a, list):
        assert isinstance(b, list) and len(a) == len(b), (path, a, b)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}[{i}]")
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for k in a:
            same(a[k], b[k], f"{path}[{k!r}]")
    else:
        assert a == b, (path, a, b)


def trial(T, call, *, message=None):
    """What a call raises: the class's name, and whether the message has a part in it."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, None if message is None else message in str(error)
    return "no error"


def double(T, *values, grad=True):
    x = T.tensor(list(values), dtype=T.float64)
    return x.requires_grad_() if grad else x


def agree(run):
    """A scenario takes the library; both must give the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, found = plain(run(torch)), plain(run(weft))
    same(found, expected)


def wavy(x):
    return (x.sin() * x.exp()).sum() * x.sum()


def cube(T):
    class Cube(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale=1.0):
            ctx.scale = scale
            ctx.shape = "the user's own"
            ctx.save_for_backward(x)
            return x * x * x * scale

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            assert ctx.needs_input_grad[0] and ctx.shape == "the user's own"
            return g * 3 * x * x * ctx.scale, None

    return Cube
