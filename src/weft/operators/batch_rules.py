"""Batching rules: how an op on every example of a batch is one op on all of them.

Elementwise ops have theirs from ``core.batching``. The rules here are for ops that have dimensions
among their attributes, that work on matrices or images behind leading dimensions, or that have
a batch of their own. An op without a rule runs once for each example. The tests of the registry
compare every op with a loop over the examples, for every choice of batched operands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.batching import Batch, BatchedArray, aligned, each, elementwise
from weft.core.dispatch import REGISTRY
from weft.core.meta import plain
from weft.core.tensor import Tensor, wrap

# Attributes that name a dimension, or several.
_DIMS = frozenset(("dim", "dim0", "dim1", "dim2", "dims"))


def _behind(value: Any) -> Any:
    return tuple(d + 1 for d in value) if isinstance(value, (tuple, list)) else value + 1


def _shifted(b: Batch) -> dict[str, Any]:
    """The attributes with every dimension one further, and shapes with the batch in front."""
    attrs = dict(b.attrs)
    for name, value in b.attrs.items():
        if name in _DIMS and value is not None:
            attrs[name] = _behind(value)
        elif name in ("shape", "size") and isinstance(value, tuple):
            attrs[name] = (b.size, *value)
    return attrs


def along(b: Batch) -> Any:
    """Ops along dimensions that are named by attributes; all operands have the same rank."""
    ranks = {x._a.ndim for x in b.logical if isinstance(x, Tensor)}
    if len(ranks) > 1 or (0 in ranks and b.op.name == "unfold"):
        return each(b)
    args, attrs = b.leads(), _shifted(b)
    if 0 in ranks and "dims" not in attrs and "shape" not in attrs and not b.op.view:
        return _along_single(b, args, attrs)
    return b.run(*args, **attrs)


def _along_single(b: Batch, args: list[Any], attrs: dict[str, Any]) -> Any:
    """The same for a single number, which has a dimension 0 to ask for and no more."""
    args = [x.unsqueeze(1) if isinstance(x, Tensor) and x._a.ndim == 1 else x for x in args]
    out = b.run(*args, **attrs)
    flat = [o.reshape(b.size) for o in (out if b.op.multiple else (out,))]
    return tuple(flat) if b.op.multiple else flat[0]


def _of_all(b: Batch) -> Any:
    """argmax and argmin: of all elements where no dimension is named."""
    if b.attrs.get("dim") is not None:
        return along(b)
    x = b.args[0]
    out = b.run(x.reshape(b.size, b.logical[0]._a.size), dim=1, keepdim=False)
    rank = b.logical[0]._a.ndim if b.attrs["keepdim"] else 0
    return out.reshape(b.size, *(1,) * rank)


def leading(b: Batch) -> Any:
    """Ops on the last dimensions, to which any before them are a batch."""
    return b.run(*b.leads(), **b.attrs)


# --- views -------------------------------------------------------------------------------


def _permute(b: Batch) -> Any:
    return b.run(b.args[0], dims=(0, *(d + 1 for d in b.attrs["dims"])))


def _t(b: Batch) -> Any:
    x = b.args[0]
    return x.transpose(1, 2) if x._a.ndim == 3 else x.view_as(x)


def _sliced(b: Batch) -> Any:
    return b.run(b.args[0], **{**b.attrs, "index": (slice(None), *b.attrs["index"])})


def _placed(b: Batch) -> Any:
    index = (slice(None), *b.attrs["index"])
    return b.run(b.args[0], shape=(b.size, *b.attrs["shape"]), index=index)


def _reshaped(b: Batch) -> Any:
    shape = (b.size, *b.attrs["shape"])
    return b.args[0].reshape(shape) if b.op.name == "view" else b.run(b.args[0], shape=shape)


def _expanded(b: Batch) -> Any:
    x, shape = b.args[0], b.attrs["shape"]
    own = x._a.shape
    missing = len(shape) + 1 - len(own)
    x = x.reshape(own[0], *(1,) * missing, *own[1:]) if missing else x
    return b.run(x, shape=(b.size, *shape))


def _joined(b: Batch) -> Any:
    # Parts of no elements and one dimension are passed over, whatever the rank of the others.
    ranks = {x._a.ndim for x in b.logical}
    return b.run(*b.leads(), dim=b.attrs["dim"] + 1) if len(ranks) == 1 else each(b)


def _roll(b: Batch) -> Any:
    return along(b) if b.attrs["dims"] else each(b)  # else all elements go round as one row


def _strided(b: Batch) -> Any:
    """Places in memory: every example has its own."""
    b.args[0] = b.args[0].contiguous()
    rows = [b.run(b.args[0].select(0, i).clone(), **b.attrs) for i in range(b.size)]
    return REGISTRY["stack"](*rows, dim=0) if rows else each(b)


def _indexed(b: Batch) -> Any:
    """Rows by index arrays: of each example by its own indices, or by those of all."""
    where = b.attrs["where"]
    at, together = where[0], all(d == where[0] + k for k, d in enumerate(where))
    if not together:
        return each(b)
    if not any(b.on[1:]):
        return b.run(*b.args, where=tuple(d + 1 for d in where))
    rank = max(x._a.ndim for x in b.logical[1:])
    indices = [b.aligned(k, rank) for k in range(1, len(b.args))]
    if not b.on[0]:
        return b.run(b.args[0], *indices, where=where).movedim(at, 0)
    rows = wrap(np.arange(b.size).reshape(b.size, *(1,) * rank))
    out = b.run(b.args[0], rows, *indices, where=(0, *(d + 1 for d in where)))
    if not at or not rank:
        return out
    return out.movedim(tuple(range(1, 1 + rank)), tuple(range(1 + at, 1 + at + rank)))


def _put(b: Batch) -> Any:
    """Values written or added at index arrays, which are each example's own or those of all."""
    where, indices = b.attrs["where"], b.logical[2:]
    at, together = where[0], all(d == where[0] + k for k, d in enumerate(where))
    if not together or not b.size or any(i._a.dtype.kind == "b" for i in indices):
        return each(b)
    shape = np.broadcast_shapes(*(i._a.shape for i in indices))
    own, rank = b.logical[0]._a.shape, len(shape)
    values = b.lead(1)
    wanted = (*own[:at], *shape, *own[at + len(where) :])
    missing = (1,) * (len(wanted) + 1 - values._a.ndim)
    values = values.reshape(b.size, *missing, *values._a.shape[1:])
    behind = tuple(d + 1 for d in where)
    if not any(b.on[2:]):
        return b.run(b.lead(0), values, *b.args[2:], **{**b.attrs, "where": behind})
    # With the number of the example before them the index arrays stand apart, and so what
    # they choose stands in front.
    values = values.expand(b.size, *wanted)
    if at and rank:
        values = values.movedim(tuple(range(1 + at, 1 + at + rank)), tuple(range(1, 1 + rank)))
    rows = wrap(np.arange(b.size).reshape(b.size, *(1,) * rank))
    chosen = [aligned(b.lead(k), rank) for k in range(2, len(b.args))]
    return b.run(b.lead(0), values, rows, *chosen, **{**b.attrs, "where": (0, *behind)})


def _put_back(b: Batch) -> Any:
    """The backward of an index: its gradient is added into zeros."""
    zeros = wrap(np.zeros((b.size, *b.attrs["shape"]), plain(b.logical[0]._a.dtype)))
    put = Batch.of(REGISTRY["index_put"], b, (zeros, *b.args), (True, *b.on))
    put.attrs = {"where": b.attrs["where"], "accumulate": True}
    return _put(put)


def _drawn(b: Batch) -> Any:
    """Random values, drawn for each example or once for all of them."""
    values = b.attrs["values"]
    if isinstance(values, BatchedArray):
        return b.run(*b.leads(), values=values.physical._a)
    return b.run(*b.leads(), values=np.broadcast_to(values, (b.size, *values.shape)).copy())


# --- matrix products ---------------------------------------------------------------------


def _product(b: Batch) -> Any:
    """mm, mv and dot as one matrix product."""
    (x, y), (x_on, y_on), name = b.args, b.on, b.op.name
    ranks = [t._a.ndim for t in b.logical]
    if name == "mm" and not y_on and ranks[1] == 2:
        return b.run(x, y)  # rows of one product, whatever the rank
    bmm, mm = REGISTRY["bmm"], REGISTRY["mm"]
    if name == "mm" and ranks == [1, 2]:  # the gradient of a linear map of one vector
        return bmm(*b.leads()).squeeze(1) if y_on else b.run(x, y)
    if name == "mm" and ranks == [2, 1]:
        name = "mv"
    elif ranks != {"mm": [2, 2], "mv": [2, 1], "dot": [1, 1]}[name]:
        return each(b)
    if name == "dot":
        x, y = b.leads()
        return bmm(x.unsqueeze(1), y.unsqueeze(2)).reshape(b.size)
    if name == "mv":
        if not x_on:
            return mm(y, x.transpose(0, 1))
        if not y_on:
            return b.unfold(b.run(b.fold(x), y), x._a.shape[1])
        return bmm(x, y.unsqueeze(2)).squeeze(2)
    return bmm(*b.leads())


def _linear(b: Batch) -> Any:
    weights = [k for k in (1, 2) if k < len(b.args) and b.on[k]]
    if not weights:
        return b.run(*b.args)
    x, weight = b.lead(0), b.lead(1)
    shape = x._a.shape
    rows = x.reshape(shape[0], -1 if x._a.size else _rows(shape), shape[-1])
    y = REGISTRY["bmm"](rows, weight.transpose(1, 2))
    if len(b.args) > 2 and b.args[2] is not None:
        y = y + b.lead(2).unsqueeze(1)
    return y.reshape(*shape[:-1], y._a.shape[-1])


def _rows(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape[1:-1]:
        count *= n
    return count


# --- images ------------------------------------------------------------------------------


def images(b: Batch) -> Any:
    """Ops on (N, C, ...) arrays: the batch and N are one dimension."""
    return _folded(b) if all(b.on) else each(b)


def _folded(b: Batch) -> Any:
    counts = {x._a.shape[0] for x, on in zip(b.logical, b.on, strict=True) if on}
    count = counts.pop()
    if counts or not b.size or not count:
        return each(b)
    args = [b.fold(x) if on else x for x, on in zip(b.args, b.on, strict=True)]
    attrs = dict(b.attrs)
    if "shape" in attrs:
        attrs["shape"] = (b.size * count, *attrs["shape"][1:])
    out = b.run(*args, **attrs)
    return tuple(b.unfold(o, count) for o in out) if b.op.multiple else b.unfold(out, count)


def _convolution(b: Batch) -> Any:
    """With weights of their own the examples are groups of one convolution."""
    x, w, bias = b.args
    if not b.on[1] and not b.on[2]:
        return _folded(b)
    if not b.size or b.op.name != "convolution":
        return each(b)
    x, w = b.lead(0), b.lead(1)
    shape, count = x._a.shape, w._a.shape[1]
    x = x.transpose(0, 1).reshape(shape[1], b.size * shape[2], *shape[3:])
    bias = None if bias is None else b.lead(2).reshape(b.size * count)
    attrs = {**b.attrs, "groups": b.size * b.attrs["groups"]}
    y = b.run(x, b.fold(w), bias, **attrs)
    return y.reshape(shape[1], b.size, count, *y._a.shape[2:]).transpose(0, 1)


# --- norms and losses ----------------------------------------------------------------------


def _layer_norm(b: Batch) -> Any:
    """Weights that differ from example to example are applied behind the norm."""
    x, weights = b.lead(0), b.args[1:]
    if not any(b.on[1:]):
        return b.run(x, *weights, **b.attrs)
    out = b.run(x, *(None for _ in weights), **b.attrs)
    y, rank = out[0], b.attrs["rank"]
    between = (1,) * (x._a.ndim - 1 - rank)
    for k, name in enumerate(b.op.names[1:], 1):
        if b.args[k] is None:
            continue
        part = b.lead(k)
        part = part.reshape(b.size, *between, *part._a.shape[1:])
        y = y * part if name == "weight" else y + part
    return (y, *out[1:])


def _loss(b: Batch) -> Any:
    """Losses that are summed up or averaged over an example, and not over the batch."""
    reduction = b.attrs["reduction"]
    ranks = {x._a.ndim for x in b.logical if isinstance(x, Tensor)}
    if len(ranks) > 1 or reduction not in ("none", "mean", "sum"):
        return each(b)
    y = b.run(*b.leads(), **{**b.attrs, "reduction": "none"})
    if reduction == "none":
        return y
    dims = tuple(range(1, y._a.ndim))
    if not dims:
        return y
    return y.mean(dims) if reduction == "mean" else y.sum(dims)


def _labels(b: Batch) -> Any:
    """nll_loss: the examples are so many more rows; then each has a sum or a mean of its own."""
    if b.on[2] or not b.size:
        return each(b)
    x, target, reduction = b.lead(0), b.lead(1), b.attrs["reduction"]
    loss = _of_rows(b, x, target)
    if reduction == "none":
        return loss
    dims = tuple(range(1, loss._a.ndim))
    total = loss.sum(dims) if dims else loss
    return total if reduction == "sum" else total / _share(b, target, x._a.shape)


def _labels_back(b: Batch) -> Any:
    if b.on[2] or not b.size:
        return each(b)
    g, target, shape = b.lead(0), b.lead(1), (b.size, *b.attrs["shape"])
    if b.attrs["reduction"] != "none":
        if b.attrs["reduction"] == "mean":
            total = _share(b, target, shape)
            g = g / total.masked_fill(total == 0, 1)
        g = g.reshape(b.size, *(1,) * (target._a.ndim - 1)).expand(target._a.shape)
    return _of_rows(b, g, target, shape)


def _of_rows(b: Batch, x: Tensor, target: Tensor, shape: Any = None) -> Any:
    """The op without a reduction, on the rows of all examples."""
    alone = target._a.ndim == 1  # an example is one row
    attrs = {**b.attrs, "reduction": "none"}
    if shape is not None:
        attrs["shape"] = shape if alone else (shape[0] * shape[1], *shape[2:])
    if alone:
        return b.run(x, target, b.args[2], **attrs)
    y = b.run(b.fold(x), b.fold(target), b.args[2], **attrs)
    return b.unfold(y, target._a.shape[1])


def _share(b: Batch, target: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What the mean of each example divides by: the weights of the labels that count."""
    kind = b.logical[0]._a.dtype
    ones = Batch.of(REGISTRY["nll_loss"], b, b.args, b.on)
    ones.attrs = {"ignore_index": b.attrs["ignore_index"]}
    used = _of_rows(ones, wrap(np.broadcast_to(np.array(-1, plain(kind)), shape)), target)
    dims = tuple(range(1, used._a.ndim))
    return used.sum(dims) if dims else used


_ALONG = """
sum mean prod all any count_nonzero amax amin aminmax max_dim min_dim logsumexp
kthvalue median_dim nanmedian_dim mode var std var_mean std_mean linalg_vector_norm norm
cumsum cumprod cummax cummin logcumsumexp recurrence softmax log_softmax softmax_backward_data
log_softmax_backward_data sort topk flip take_along put_along gather gather_backward scatter
scatter_add scatter_reduce scatter_counts fft_c2c fft_r2c
transpose unsqueeze squeeze select split unbind diagonal diagonal_place unfold unfold_backward
"""
_LEADING = """
clone alias conj real imag view_as_real view_as_complex tril triu
linalg_det linalg_slogdet linalg_inv_ex linalg_cholesky_ex linalg_qr linalg_eigh linalg_eigvalsh
linalg_eig linalg_eigvals linalg_svd linalg_svdvals linalg_lu_factor_ex linalg_matrix_exp geqrf
linalg_solve_triangular scaled_softmax scaled_softmax_backward one_hot to_copy
"""
_ELEMENTWISE = """
masked_fill isclose heaviside complex polar sgn angle isposinf isneginf isreal signbit frexp
bitwise_left_shift bitwise_right_shift nextafter gcd lcm
special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_hermite_polynomial_h
special_hermite_polynomial_he special_laguerre_polynomial_l special_legendre_polynomial_p
"""
_IMAGES = """
max_pool_with_indices avg_pool avg_pool_backward adaptive_max_pool adaptive_avg_pool
adaptive_avg_pool_backward plane_gather plane_scatter upsample upsample_backward im2col
grid_sampler
"""
_OTHERS = {
    "permute": _permute,
    "t": _t,
    "slice": _sliced,
    "place": _placed,
    "view": _reshaped,
    "reshape": _reshaped,
    "expand": _expanded,
    "cat": _joined,
    "stack": _joined,
    "mm": _product,
    "argmax": _of_all,
    "argmin": _of_all,
    "index": _indexed,
    "index_put": _put,
    "index_backward": _put_back,
    "nll_loss": _labels,
    "nll_loss_backward": _labels_back,
    "bernoulli_of": _drawn,
    "poisson_of": _drawn,
    "binomial_of": _drawn,
    "normal_of": _drawn,
    "bmm": leading,
    "roll": _roll,
    "as_strided": _strided,
    "mv": _product,
    "dot": _product,
    "linear": _linear,
    "linear_with_bias": _linear,
    "convolution": _convolution,
    "conv_transpose": _convolution,
    "native_layer_norm": _layer_norm,
    "fused_rms_norm": _layer_norm,
    "mse_loss": _loss,
    "smooth_l1_loss": _loss,
    "huber_loss": _loss,
}


def _install() -> None:
    for names, rule in (
        (_ALONG, along),
        (_LEADING, leading),
        (_ELEMENTWISE, elementwise),
        (_IMAGES, images),
    ):
        for name in names.split():
            REGISTRY[name].batch = rule
    for name, rule in _OTHERS.items():
        REGISTRY[name].batch = rule


_install()
