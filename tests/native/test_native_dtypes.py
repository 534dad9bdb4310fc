"""Every op with a native kernel, in every dtype and on both sides of its limit, is as NumPy has it.

A call either gives what the reference gives, or fails as that does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.core import selection
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit
from weft.operators import native

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))

F = weft.nn.functional
DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
SIDES = (12, 280)  # of matrices: 144 elements are below most limits, 78,400 above all

Call = Callable[[Any, Any], Any]  # of a matrix, and of whole numbers from 0 on that fit its rows


def heads(x: Any) -> Any:
    """The elements of a matrix as queries of several heads."""
    count = 40 if len(x) == SIDES[1] else 4
    return x.reshape(count, -1, count)


CALLS: dict[str, Call] = {
    "mm": lambda x, i: x @ x,
    "bmm": lambda x, i: weft.bmm(x[None], x[None]),
    "linear": lambda x, i: F.linear(x, x),
    "linear_with_bias": lambda x, i: F.linear(x, x, x[0]),
    "convolution": lambda x, i: F.conv2d(x[None, None], x[:3, :3][None, None]),
    "conv_transpose": lambda x, i: F.conv_transpose2d(x[None, None], x[:3, :3][None, None]),
    "sum": lambda x, i: (x.sum(), x.sum(0), x.sum(1)),
    "mean": lambda x, i: (x.mean(), x.mean(0), x.mean(1)),
    "amax": lambda x, i: (x.amax(0), x.amax(1)),
    "amin": lambda x, i: (x.amin(0), x.amin(1)),
    "max": lambda x, i: x.max(),
    "min": lambda x, i: x.min(),
    "max_dim": lambda x, i: (*x.max(0), *x.max(1)),
    "min_dim": lambda x, i: (*x.min(0), *x.min(1)),
    "argmax": lambda x, i: (x.argmax(), x.argmax(0), x.argmax(1)),
    "argmin": lambda x, i: (x.argmin(), x.argmin(0), x.argmin(1)),
    "prod": lambda x, i: (x.prod(), x.prod(0), x.prod(1)),
    "any": lambda x, i: (x.any(), x.any(0)),
    "all": lambda x, i: (x.all(), x.all(1)),
    "var": lambda x, i: (x.var(), x.var(1)),
    "std": lambda x, i: (x.std(), x.std(0)),
    "linalg_vector_norm": lambda x, i: (x.norm(), weft.linalg.vector_norm(x, 1, dim=1)),
    "sin": lambda x, i: x.sin(),
    "cos": lambda x, i: x.cos(),
    "softmax": lambda x, i: (x.softmax(0), x.softmax(1)),
    "log_softmax": lambda x, i: (x.log_softmax(0), x.log_softmax(1)),
    "logsumexp": lambda x, i: x.logsumexp(1),
    "scaled_dot_product_attention": lambda x, i: F.scaled_dot_product_attention(*[heads(x)] * 3),
    "native_layer_norm": lambda x, i: F.layer_norm(x, x.shape[1:], x[0], x[1]),
    "fused_rms_norm": lambda x, i: F.rms_norm(x, x.shape[1:], x[0], eps=0.1),
    "native_batch_norm": lambda x, i: F.batch_norm(x, None, None, x[0], x[1], True),
    "batch_norm_fixed": lambda x, i: F.batch_norm(x, x[0] * 0, x[1] * 0 + 1, x[0], x[1]),
    "nll_loss": lambda x, i: F.nll_loss(x, i),
    "mse_loss": lambda x, i: F.mse_loss(x, x.flip(0)),
    "smooth_l1_loss": lambda x, i: F.smooth_l1_loss(x, x.flip(0)),
    "huber_loss": lambda x, i: F.huber_loss(x, x.flip(0)),
    "max_pool_with_indices": lambda x, i: F.max_pool2d(x[None], 2, return_indices=True),
    "adaptive_max_pool": lambda x, i: F.adaptive_max_pool2d(x[None], 4),
    "avg_pool": lambda x, i: F.avg_pool2d(x[None], 2),
    "adaptive_avg_pool": lambda x, i: F.adaptive_avg_pool2d(x[None], 4),
    "embedding": lambda x, i: F.embedding(i, x),
    "index_select": lambda x, i: (x.index_select(0, i), x.index_select(1, i)),
    "index_add": lambda x, i: x.index_add(0, i, x),
    "index_copy": lambda x, i: x.index_copy(0, i, x.flip(1)),
    "scatter_reduce": lambda x, i: [
        x.scatter_reduce(0, i[:, None].expand(x.shape), x.flip(1), reduce, include_self=own)
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    ],
    "one_hot": lambda x, i: F.one_hot(i, 70),
    "index_fill": lambda x, i: x.index_fill(0, i - x.shape[0], 2),
    "index": lambda x, i: (x[i], x[i, i], x[:, i]),
    "index_put": lambda x, i: x.index_put((i,), x.flip(1)),
    "gather": lambda x, i: (x.gather(1, i[:, None]), x.gather(0, i.expand(x.shape))),
    "scatter": lambda x, i: x.scatter(1, i.expand(x.shape), x),
    "scatter_add": lambda x, i: x.scatter_add(0, i.expand(x.shape), x),
    "take_along": lambda x, i: weft.take_along_dim(x, i[:, None], 1),
    "reshape": lambda x, i: x.T.reshape(-1),
    "clone": lambda x, i: (x.clone(), x.T.contiguous(), x[:, ::2].contiguous()),
    "cat": lambda x, i: (weft.cat([x, x[:5]]), weft.cat([x, x[:, :5]], 1)),
    "stack": lambda x, i: (weft.stack([x, x]), weft.stack([x, x], 2)),
    "to_copy": lambda x, i: [x.to(getattr(weft, name)) for name in DTYPES],
    "where": lambda x, i: weft.where(i > 2, x, x.flip(0)),
    "masked_fill": lambda x, i: x.masked_fill(i > 2, 1),
    "tril": lambda x, i: (x.tril(), x.tril(-3), x[:7].tril(2)),
    "triu": lambda x, i: (x.triu(), x.triu(-3), x[:7].triu(2)),
    "constant_pad_nd": lambda x, i: F.pad(x, (1, 2, 3, -1), value=1),
    "upsample": lambda x, i: F.interpolate(x[None, None], scale_factor=2, mode="nearest"),
    # Elementwise, with the lowest limits and with rules of their own for numbers.
    **{name: lambda x, i, n=name: getattr(weft, n)(x) for name in ("exp", "log1p", "tanh", "abs")},
    **{name: lambda x, i, n=name: getattr(weft, n)(x) for name in ("neg", "sqrt", "sigmoid")},
    "relu": lambda x, i: x.relu(),
    "gelu": lambda x, i: F.gelu(x),
    "add": lambda x, i: (x + x, x + x[0], x + 1, x + 1.5),
    "mul": lambda x, i: (x * x, x * x[:, :1], x * 2),
    "div": lambda x, i: x / (x * 0 + 2),
    "maximum": lambda x, i: weft.maximum(x, x.flip(0)),
    "pow": lambda x, i: x**2,
    "pad_by": lambda x, i: [F.pad(x[None], (2, 1), m) for m in ("reflect", "circular")],
    "cumsum": lambda x, i: x.cumsum(1),
    "cumprod": lambda x, i: (x.cumprod(1), x.cumprod(0)),
    "cummax": lambda x, i: (*x.cummax(1), *x.cummax(0)),
    "cummin": lambda x, i: (*x.cummin(1), *x.cummin(0)),
    "kthvalue": lambda x, i: (*x.kthvalue(3, 0), *x.kthvalue(5)),
    "median_dim": lambda x, i: (*x.median(0), *x.median(1)),
    "nanmedian_dim": lambda x, i: (*x.nanmedian(0), *x.nanmedian(1)),
    "topk": lambda x, i: x.topk(2),
    "compare": lambda x, i: (x > x.flip(0), x == x[0]),
}

# Backward kernels, reached by the gradients of the above; attributes of recurrent layers are
# tested with those layers, boxes with those of vision.
ELSEWHERE = {
    *("conv_weight", "softmax_backward_data", "log_softmax_backward_data", "scaled_softmax"),
    *("scaled_softmax_backward", "nll_loss_backward", "plane_scatter", "plane_gather"),
    *("avg_pool_backward", "adaptive_avg_pool_backward", "embedding_dense_backward"),
    *(
        "pad_by_backward",
        "index_backward",
        "gather_backward",
        "put_along",
        "lstm_layer",
        "gru_layer",
        "rnn_layer",
    ),
    *(
        "upsample_backward",
        "nms",
        "roi_align",
        "roi_align_backward",
        "roi_pool",
        "roi_pool_backward",
    ),
}


def test_no_kernel_is_left_out() -> None:
    assert set(native.KERNELS) <= set(CALLS) | ELSEWHERE <= set(REGISTRY) | {"compare", "div"}


def given(dtype: str, side: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(side)
    values = rng.integers(0, 2 if dtype == "bool" else 5, (side, side)).astype(np.float64)
    if dtype.startswith(("float", "bfloat")):
        values = values / 4 - 0.5
    x = weft.from_numpy(values).to(getattr(weft, dtype))
    if dtype.startswith("complex"):
        x = x * (1 + 0.5j)
    return x, weft.from_numpy(rng.permutation(side))


def outcome(call: Call, dtype: str, side: int) -> list[Any] | type[BaseException]:
    return outcome_of(call, *given(dtype, side))


def outcome_of(call: Call, x: Any, i: Any, gradients: bool = True) -> list[Any] | type:
    """What a call gives, with the gradient of its first result, or the class of its error."""
    found: list[Any] = []
    try:
        results = call(x, i)
        found += results if isinstance(results, (tuple, list)) else (results,)
        if gradients and x.is_floating_point():
            leaf = x.requires_grad_()
            again = call(leaf, i)
            first = again[0] if isinstance(again, (tuple, list)) else again
            if first.requires_grad:
                first.sum().backward()
                found.append(leaf.grad)
    except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError) as error:
        return type(error)
    return [t.detach() for t in found]


def agree(a: Any, b: Any) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype in (weft.float16, weft.bfloat16):
        close = 4 * weft.finfo(a.dtype).eps
        a, b = a.float(), b.float()
    elif a.is_floating_point() or a.is_complex():
        close = 1e-4 if a.dtype in (weft.float32, weft.complex64) else 1e-10
    else:
        return bool(np.array_equal(a.numpy(), b.numpy()))
    x, y = a.numpy(), b.numpy()
    scale = max(1.0, float(np.abs(y[np.isfinite(y)]).max(initial=0)))
    return bool(np.allclose(x, y, rtol=close, atol=close * scale, equal_nan=True))


@pytest.mark.parametrize("name", CALLS)
def test_native_code_is_as_the_reference(name: str) -> None:
    selection.start()
    wrong = []
    for dtype in DTYPES:
        for side in SIDES:
            mine = outcome(CALLS[name], dtype, side)
            selection.enable(False)
            try:
                plain = outcome(CALLS[name], dtype, side)
            finally:
                selection.enable(True)
            if isinstance(mine, type) or isinstance(plain, type):
                if mine is not plain:
                    wrong.append(f"{dtype} {side}: {mine} instead of {plain}")
            elif not all(agree(a, b) for a, b in zip(mine, plain, strict=True)):
                wrong.append(f"{dtype} {side}: other values")
    assert not wrong, "\n".join(wrong)
