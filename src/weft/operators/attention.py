"""Attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.devices import host
from weft.core.dispatch import apply
from weft.core.meta import filled
from weft.core.modes import MODES
from weft.core.shapes import ShapeDtype
from weft.core.size import Size
from weft.core.tensor import Tensor, beside, wrap
from weft.operators import api, batch_rules, shape_rules
from weft.operators.arguments import refuse
from weft.operators.arithmetic import add, where_op
from weft.operators.build import Make, Sample, general
from weft.operators.dropout import dropout
from weft.operators.matmul import bmm_op, transposed
from weft.operators.softmax import scaled_softmax_back_op, scaled_softmax_op, softmax_op

_LOWEST = float("-inf")


def _check_attention(query: Tensor, key: Tensor, value: Tensor) -> None:
    if not query._a.dtype == key._a.dtype == value._a.dtype:
        refuse(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype!r} key.dtype: {key.dtype!r} and value.dtype: {value.dtype!r} instead."
        )
    if min(query.ndim, key.ndim, value.ndim) < 2:
        refuse(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{query.ndim}, key.dim: {key.ndim} and value.dim: {value.ndim} instead."
        )


def _repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Each head of keys or values as many times as query heads share it."""
    shape = x._a.shape
    own = shape[-3]
    if own == heads:
        return x
    if heads % own:
        refuse(
            "Number of heads in key and value must divide the number of heads in query, got "
            f"{own} and {heads}"
        )
    wide = x.unsqueeze(-3).expand(*shape[:-2], heads // own, *shape[-2:])
    return wide.reshape(*shape[:-3], heads, *shape[-2:])


def _scores(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """Products with a mask; for half types rounded once, after the mask."""
    half = query._a.dtype in dt.HALF
    if half:
        query, key, final = query.to(dt.float32), key.to(dt.float32), query.dtype
    scores = query @ key.transpose(-2, -1)
    if mask is not None:
        if mask._a.dtype == np.bool_:
            scores = where_op(mask, scores, _LOWEST)
        else:
            scores = scores + mask
    return scores.to(final) if half else scores


def _weights(scores: Tensor, mask: Tensor) -> Tensor:
    # A row that may look at nothing gets nothing, not NaN.
    empty = (scores.detach() == _LOWEST).all(-1, keepdim=True)
    if mask._a.dtype != np.bool_:
        # Its softmax would be NaN, and so its gradient, which only a boolean mask stops.
        scores = where_op(empty, 0.0, scores)
    return where_op(empty, 0.0, softmax_op(scores, dim=scores.ndim - 1))


def _of_nothing(query: Tensor, key: Tensor, value: Tensor) -> Tensor | None:
    """Zeros where nothing is asked for or there is nothing to look at, as PyTorch makes them."""
    if value._a.size and query._a.shape[-2]:
        return None
    shape = (*query._a.shape[:-1], value._a.shape[-1])
    none = beside(query, np.zeros(shape, query.dtype.np))
    return add(none, query.sum() + key.sum() + value.sum(), alpha=0)


def _weighted(query: Any, key: Any, scale: float, causal: bool) -> Any:
    return scaled_softmax_op(bmm_op(query, transposed(key)), scale=scale, causal=causal)


def _attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, scale: float, causal: bool
) -> tuple[np.ndarray, np.ndarray]:
    weights = _weighted(query, key, scale, causal)
    return bmm_op(weights, value), weights


def _attention_rule(
    g: Any,
    query: Any,
    key: Any,
    value: Any,
    weights: Any,
    needs: Any,
    scale: float,
    causal: bool,
) -> Any:
    gy = g[0]
    if isinstance(query, Tensor):
        weights = _weighted(query, key, scale, causal)  # with a history
    scores = None
    if needs[0] or needs[1]:
        inner = bmm_op(gy, transposed(value))
        scores = scaled_softmax_back_op(inner, weights, scale=scale, causal=causal)
    return (
        bmm_op(scores, key) if needs[0] else None,
        bmm_op(transposed(scores), query) if needs[1] else None,
        bmm_op(transposed(weights), gy) if needs[2] else None,
    )


def _attention_samples(m: Make) -> list[Sample]:
    return [
        Sample(tuple(m.real(*shape) for shape in shapes), {"scale": 0.5, "causal": causal})
        for shapes in (((3, 2), (4, 2), (4, 3)), ((2, 4, 2), (2, 3, 2), (2, 3, 2)))
        for causal in (False, True)
    ]


def _attention_shape(query: ShapeDtype, key: ShapeDtype, value: ShapeDtype) -> list[Any]:
    keys = ShapeDtype(shape_rules.transposed(key, -2, -1), key.dtype)
    weights = shape_rules.batched_matmul(query, keys)
    return [shape_rules.batched_matmul(ShapeDtype(weights, query.dtype), value), weights]


# Without mask and dropout; the weights are kept for backward.
attention_op = general(
    "scaled_dot_product_attention",
    _attention,
    joint=_attention_rule,
    names=("query", "key", "value"),
    outputs=("y", "weights"),
    constant_outputs=(1,),
    samples=_attention_samples,
    shape=_attention_shape,
    batch=batch_rules.leading,
)


@api.under("nn.functional")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Means of values, weighted by the softmax of the products of queries and keys.

    >>> q = torch.zeros(1, 2, 4)
    >>> v = torch.tensor([[[1.0], [3.0]]])
    >>> F.scaled_dot_product_attention(q, q, v)
    tensor([[[2.],
             [2.]]])
    >>> F.scaled_dot_product_attention(q, q, v, is_causal=True)
    tensor([[[1.],
             [2.]]])
    """
    _check_attention(query, key, value)
    if is_causal:
        if attn_mask is not None:
            refuse(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
                "is_causal=True"
            )
    nothing = _of_nothing(query, key, value)
    if nothing is not None:
        return nothing
    if enable_gqa:
        key = _repeat_heads(key, query._a.shape[-3])
        value = _repeat_heads(value, query._a.shape[-3])
    if scale is None:
        scale = 1.0 / math.sqrt(max(query._a.shape[-1], 1))
    final = query.dtype
    if query._a.dtype in dt.HALF:
        query, key, value = (x.to(dt.float32) for x in (query, key, value))
    if attn_mask is None and dropout_p <= 0.0:
        attrs = {"scale": float(scale), "causal": is_causal}
        y = apply(attention_op, (query, key, value), attrs, shown=1)[0]
        return y if y.dtype is final else y.to(final)
    if attn_mask is None:
        weights = _weighted(query, key, float(scale), is_causal)
    else:
        weights = _weights(_scores(query * scale, key, attn_mask), attn_mask)
    if dropout_p > 0.0:
        weights = dropout(weights, dropout_p)
    y = weights @ value
    return y if y.dtype is final else y.to(final)


# --- several heads ---------------------------------------------------------------------


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return api.NAMESPACES["nn.functional"]["linear"](x, weight, bias)


def _projected(
    query: Tensor, key: Tensor, value: Tensor, weights: Any, bias: Tensor | None
) -> tuple[Tensor, ...]:
    """Queries, keys and values through their own layers, in one product where they are one."""
    size = query._a.shape[-1]
    biases = (None,) * 3 if bias is None else bias.split(size)
    if isinstance(weights, Tensor):
        if query is key and key is value:
            parts = _linear(query, weights, bias)
            return tuple(parts.split(size, -1))
        weights = weights.split(size)
    inputs = (query, key, value)
    return tuple(_linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True))


def _as_scores(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """A mask as numbers that are added to scores; True means: do not look there."""
    if mask is None or mask._a.dtype != np.bool_:
        return mask
    if mask.is_meta:
        return mask.to(like.dtype)
    if MODES.now.recorders:
        return where_op(mask, *(wrap(np.array(x, like.dtype.np)) for x in (_LOWEST, 0.0)))
    return beside(like, np.where(host(mask), _LOWEST, 0.0).astype(like.dtype.np))


def _one_more(mask: Tensor | None) -> Tensor | None:
    """A mask with one open column at its end."""
    if mask is None:
        return None
    shape = (*mask._a.shape[:-1], 1)
    return api.FUNCTIONS["cat"]([mask, wrap(filled(np.zeros, shape, mask._a.dtype))], -1)


def _heads(x: Tensor, count: int) -> Tensor:
    """(L, N, heads * E) to (N, heads, L, E)."""
    length, samples, size = x._a.shape
    return x.reshape(length, samples, count, size // count).permute(1, 2, 0, 3)


def _joined_mask(
    attn_mask: Tensor | None, padding: Tensor | None, samples: int, heads: int
) -> Tensor | None:
    if attn_mask is not None and attn_mask.ndim == 3:
        attn_mask = attn_mask.reshape(samples, heads, *attn_mask._a.shape[1:])
    if padding is None:
        return attn_mask
    padding = padding.reshape(samples, 1, 1, -1)
    return padding if attn_mask is None else attn_mask + padding


def _check_heads(size: int, expected: int, heads: int) -> None:
    if size != expected:
        refuse(f"was expecting embedding dimension of {expected}, but got {size}", AssertionError)
    if size % heads:
        refuse(f"embed_dim {size} not divisible by num_heads {heads}", AssertionError)


def _check_ranks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding: Tensor | None,
    attn_mask: Tensor | None,
    heads: int,
) -> None:
    """Refuse queries, keys, values and masks of ranks that do not belong together."""
    rank = query.ndim
    if rank not in (2, 3):
        refuse(
            f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor",
            AssertionError,
        )
    start = f"For {'batched' if rank == 3 else 'unbatched'} ({rank}-D) `query`, expected"
    if key.ndim != rank or value.ndim != rank:
        refuse(
            f"{start} `key` and `value` to be {rank}-D but found {key.ndim}-D and {value.ndim}-D "
            "tensors respectively",
            AssertionError,
        )
    if padding is not None and padding.ndim != rank - 1:
        refuse(
            f"{start} `key_padding_mask` to be `None` or {rank - 1}-D but found {padding.ndim}-D "
            "tensor instead",
            AssertionError,
        )
    if attn_mask is None:
        return
    if attn_mask.ndim not in (2, 3):
        refuse(
            f"{start} `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.ndim}-D tensor "
            "instead",
            AssertionError,
        )
    wanted = (heads, query._a.shape[0], key._a.shape[0])
    if rank == 2 and attn_mask.ndim == 3 and attn_mask._a.shape != wanted:
        refuse(
            f"Expected `attn_mask` shape to be {wanted} but got {attn_mask.shape!r}",
            AssertionError,
        )


def _check_sizes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding: Tensor | None,
    attn_mask: Tensor | None,
    heads: int,
    separate: bool,
) -> None:
    """Refuse keys, values and masks, in batches, whose sizes do not belong together."""
    length, samples = query._a.shape[:2]
    known, keys = key._a.shape[:2] if separate else key._a.shape, key._a.shape[0]
    if value._a.shape[: len(known)] != known:
        what = "key's sequence and batch dims" if separate else "key shape"
        which = "value's" if separate else "value shape"
        refuse(
            f"{what} {Size(known)!r} does not match {which} {Size(value._a.shape[: len(known)])!r}",
            AssertionError,
        )
    if attn_mask is not None:
        full = (length, keys) if attn_mask.ndim == 2 else (samples * heads, length, keys)
        if attn_mask._a.shape != full:
            refuse(
                f"The shape of the {attn_mask.ndim}D attn_mask is {attn_mask.shape!r}, but should "
                f"be {full}."
            )
    if padding is not None:
        for axis, n in enumerate((samples, keys)):
            if padding._a.shape[axis] != n:
                refuse(
                    f"Expected key_padded_mask.shape[{axis}] to be {n}, but got "
                    f"{padding._a.shape[axis]}",
                    AssertionError,
                )


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    causal: bool,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """What every head reads and, where wanted, the weights by which it reads."""
    if not need_weights:
        return scaled_dot_product_attention(q, k, v, mask, dropout_p, causal), None
    scores = _scores(q * math.sqrt(1.0 / q._a.shape[-1]), k, mask)
    shares = softmax_op(scores, dim=scores.ndim - 1)
    shares = dropout(shares, dropout_p) if dropout_p > 0.0 else shares
    return shares @ v, shares


def _with_row(x: Tensor, bias: Tensor) -> Tensor:
    """One more key or value for every sample."""
    _, samples, size = x._a.shape
    if bias._a.shape[-1:] != (size,):
        refuse(f"Sizes of tensors must match: a bias of {list(bias._a.shape)} for {size}")
    return api.FUNCTIONS["cat"]([x, bias.expand(1, samples, size)])


@api.under("nn.functional")
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention in several heads between two linear layers, over (length, batch, features)."""
    _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    batched = query.ndim == 3
    if not batched:
        same = query is key and key is value
        query = query.unsqueeze(1)
        key, value = (query, query) if same else (key.unsqueeze(1), value.unsqueeze(1))
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    length, samples, size = query._a.shape
    _check_heads(size, embed_dim_to_check, num_heads)
    if is_causal and attn_mask is None:
        refuse(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    if static_k is None and static_v is None:
        given = (query, key, value, key_padding_mask, attn_mask)
        _check_sizes(*given, num_heads, use_separate_proj_weight)
    causal = is_causal and key_padding_mask is None and not need_weights
    if causal:
        attn_mask = None  # what it hides is known, and it is not read
    attn_mask = _as_scores(attn_mask, query)
    padding = _as_scores(key_padding_mask, query)
    weights = (
        (q_proj_weight, k_proj_weight, v_proj_weight)
        if use_separate_proj_weight
        else in_proj_weight
    )
    q, k, v = _projected(query, key, value, weights, in_proj_bias)
    if bias_k is not None and bias_v is not None:
        k, v = _with_row(k, bias_k), _with_row(v, bias_v)
        attn_mask, padding = _one_more(attn_mask), _one_more(padding)
    part = size // num_heads
    q = _heads(q, num_heads)
    k = _heads(k, num_heads) if static_k is None else static_k.reshape(samples, num_heads, -1, part)
    v = _heads(v, num_heads) if static_v is None else static_v.reshape(samples, num_heads, -1, part)
    if add_zero_attn:
        zero = wrap(filled(np.zeros, (samples, num_heads, 1, part), k._a.dtype))
        k, v = (api.FUNCTIONS["cat"]([part, zero], 2) for part in (k, v))
        attn_mask, padding = _one_more(attn_mask), _one_more(padding)
    mask = _joined_mask(attn_mask, padding, samples, num_heads)
    y, shares = _attend(q, k, v, mask, dropout_p if training else 0.0, causal, need_weights)
    y = y.permute(2, 0, 1, 3).reshape(length, samples, size)
    y = _linear(y, out_proj_weight, out_proj_bias)
    if shares is not None and average_attn_weights:
        shares = shares.mean(1)
    if batched:
        return y, shares
    return y.squeeze(1), None if shares is None else shares.squeeze(0)
