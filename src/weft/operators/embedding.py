"""Rows of a table by their numbers, alone or in bags."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.batching import BatchedCall, each, values_of
from weft.core.devices import host
from weft.core.dispatch import Op, apply
from weft.core.meta import lacks_values
from weft.core.modes import no_grad
from weft.core.shapes import ShapeDtype
from weft.core.tensor import Tensor, beside, wrap
from weft.operators import api, shape_rules
from weft.operators.arguments import refuse, scalar_name
from weft.operators.build import Sample, general, linear
from weft.operators.gather import outside
from weft.references import sequence as kernels


def _rows(weight: np.ndarray, indices: np.ndarray, padding_idx: int, by_freq: bool) -> np.ndarray:
    if outside(indices, len(weight)):
        wrong = indices[(indices < 0) | (indices >= len(weight))].flat[0]
        raise IndexError(
            f"index out of range in self: {wrong}, in a table of {len(weight)} rows (0 to "
            f"{len(weight) - 1})"
        )
    return weight.take(indices, 0)


def _add_rows(
    x: np.ndarray, indices: np.ndarray, count: int, padding_idx: int, by_freq: bool
) -> np.ndarray:
    flat = indices.reshape(-1)
    rows = x.reshape(flat.size, *x.shape[indices.ndim :])
    out = np.zeros((count, *rows.shape[1:]), x.dtype)
    if padding_idx >= 0:
        kept = flat != padding_idx
        flat, rows = flat[kept], rows[kept]
    if not flat.size:
        return out
    # Sorted, the rows of one number stand together and are summed in one pass.
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    numbers, sums = ordered[starts], rows[order]
    if len(numbers) < len(flat):
        sums = np.add.reduceat(sums, starts, axis=0)
    if by_freq:
        counts = np.diff(starts, append=len(flat)).reshape((-1,) + (1,) * (sums.ndim - 1))
        sums = sums / counts.astype(x.dtype)
    out[numbers] = sums
    return out


def _joined_tables(b: BatchedCall, count: int) -> Tensor | None:
    """Indices into the tables of all examples, one behind the other; None if that can't be."""
    found = values_of(b.args[1])
    if b.attrs["padding_idx"] >= 0 or b.attrs["by_freq"] or not b.size or lacks_values(found):
        return None
    if outside(found, count):
        return None  # an index past an example's own table would reach the next one's
    indices = b.lead(1)
    first = np.arange(b.size, dtype=np.int64) * count
    return indices + wrap(first.reshape(b.size, *(1,) * (indices._a.ndim - 1)))


def _embedding_batch(b: BatchedCall) -> Any:
    weight = b.args[0]
    if not b.on[0]:
        return b.run(*b.args, **b.attrs)
    indices = _joined_tables(b, weight._a.shape[1])
    return each(b) if indices is None else b.run(b.fold(weight), indices, **b.attrs)


def _embedding_backward_batch(b: BatchedCall) -> Any:
    count = b.attrs["count"]
    indices = _joined_tables(b, count)
    if indices is None:
        return each(b)
    return b.unfold(b.run(b.lead(0), indices, **{**b.attrs, "count": b.size * count}), count)


embedding_op = linear(
    "embedding",
    _rows,
    lambda g, weight_shape, indices, padding_idx, by_freq: embedding_back_op(
        g, indices, count=weight_shape[0], padding_idx=padding_idx, by_freq=by_freq
    ),
    names=("weight", "indices"),
    samples=lambda m: [
        Sample((m.real(4, 3), np.array([[0, 2], [2, 3]])), {"padding_idx": -1, "by_freq": False}),
    ],
    shape=lambda weight, indices: (*indices.shape, *weight.shape[1:]),
    batch=_embedding_batch,
)


def _embedding_again(g: Any, indices: Any, padding_idx: int, by_freq: bool) -> Any:
    y = embedding_op(g, indices, padding_idx=-1, by_freq=False)
    if padding_idx < 0 and not by_freq:
        return y
    array = host(indices)
    share = np.where(array == padding_idx, 0.0, 1.0)
    if by_freq:
        _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
        share = share / counts[inverse].reshape(array.shape)
    return y * _like(share[..., None], y)


def _like(value: np.ndarray, other: Any) -> Any:
    """A constant in another value's type, as an array or a tensor as that is."""
    if isinstance(other, Tensor):
        return wrap(value.astype(other._a.dtype))
    return value.astype(other.dtype)


embedding_back_op: Op = linear(
    "embedding_dense_backward",
    _add_rows,
    _embedding_again,
    names=("x", "indices"),
    promote="same",
    promote_args=(0,),
    samples=lambda m: [
        Sample(
            (m.real(2, 2, 3), np.array([[0, 2], [2, 3]])),
            {"count": 4, "padding_idx": padding_idx, "by_freq": by_freq},
        )
        for padding_idx, by_freq in ((-1, False), (3, True))
    ],
    shape=lambda x, indices, count: (count, *x.shape[indices.ndim :]),
    batch=_embedding_backward_batch,
)


def _check_indices(indices: Tensor, name: str) -> None:
    if indices._a.dtype is not dt.I64 and indices._a.dtype not in (np.int64, np.int32):
        refuse(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {indices.dtype!r} instead (while checking arguments for {name})"
        )


@api.top
def embedding_renorm_(
    weight: Tensor, indices: Tensor, max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """Shrink, in place, the rows named by ``indices`` to a largest norm."""
    if weight.is_meta:
        return weight
    with no_grad():
        used = beside(weight, np.unique(host(indices)))
        rows = weight[used]
        size = rows.abs().to(dt.float64)
        if norm_type == float("inf"):
            length = size.amax(-1, keepdim=True)
        else:
            length = (size**norm_type).sum(-1, keepdim=True) ** (1.0 / norm_type)
        length = length.to(rows.dtype).to(dt.float64)
        # The margin is PyTorch's.
        shrink = max_norm / (length + 1e-7)
        weight[used] = rows * ((length > max_norm) * (shrink - 1.0) + 1.0).to(rows.dtype)
    return weight


def _padding(padding_idx: int | None, count: int, kind: type[Exception]) -> int:
    if padding_idx is None:
        return -1
    if not -count <= padding_idx < count:
        name = "Padding_idx" if kind is AssertionError else "padding_idx"
        refuse(f"{name} must be within num_embeddings", kind)
    return padding_idx % count


@api.under("nn.functional")
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of ``weight`` that ``input`` names."""
    if weight._a.ndim != 2:
        refuse(f"'weight' must be 2-D, but got one of size {list(weight._a.shape)}")
    place = _padding(padding_idx, weight._a.shape[0], AssertionError)
    _check_indices(input, "embedding")
    if max_norm is not None:
        embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    attrs = {"padding_idx": place, "by_freq": scale_grad_by_freq}
    return apply(embedding_op, (weight, input), attrs)


@api.top(name="embedding")
def _top_embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of ``weight`` that ``indices`` names."""
    _check_indices(indices, "embedding")
    return embedding_op(weight, indices, padding_idx=padding_idx, by_freq=scale_grad_by_freq)


# --- bags ------------------------------------------------------------------------------

_BAG_RESULTS = ("y", "bag", "sizes", "largest")


def _bag(
    weight: np.ndarray,
    indices: np.ndarray,
    offsets: np.ndarray | None,
    psw: np.ndarray | None,
    mode: str,
    last: bool,
    padding_idx: int | None,
    by_freq: bool,
) -> tuple[np.ndarray, ...]:
    quick = mode != "max" and padding_idx is None and weight.dtype != np.float64
    _check_bag_indices(indices, len(weight), quick)
    if last and not quick and offsets is not None and len(offsets) > 1:
        # PyTorch looks at the end of the last bag on its fast path only.
        offsets = np.append(offsets[:-1], max(len(indices), offsets[-1]))
    y, bag, sizes, largest = kernels.embedding_bag(
        weight, indices, offsets, mode, psw, last, padding_idx
    )
    return y, bag, sizes, np.zeros(0, np.int64) if largest is None else largest


def _check_bag_indices(indices: np.ndarray, count: int, quick: bool) -> None:
    wrong = np.flatnonzero((indices < 0) | (indices >= count))
    if len(wrong):
        value = indices.reshape(-1)[wrong[0]]
        if quick:
            message = f"Index {wrong[0]} of input takes value {value} which is not in the valid "
            raise RuntimeError(f"{message}range [0, {count})")
        raise RuntimeError(
            f"Expected idx >= 0 && idx < num_embeddings but found idx to be {value} "
            f"(num_embeddings is {count})"
        )


def _bag_rule(
    g: Any,
    weight: Any,
    indices: Any,
    psw: Any,
    bag: Any,
    sizes: Any,
    largest: Any,
    needs: Any,
    mode: str,
    padding_idx: int | None,
    by_freq: bool,
) -> tuple[Any, ...]:
    gw = gp = None
    if needs[0]:
        gw = bag_back_op(
            g[0],
            indices,
            psw,
            bag,
            sizes,
            largest,
            shape=weight.shape,
            mode=mode,
            padding_idx=padding_idx,
            by_freq=by_freq,
        )
    if needs[3]:
        gp = bag_weight_back_op(g[0], weight, indices, bag, padding_idx=padding_idx)
    return gw, None, None, gp


# Without samples: PyTorch has no second derivative here either, which those tests would take.
def _bag_shape(
    weight: ShapeDtype, indices: ShapeDtype, offsets: ShapeDtype | None, mode: str, last: bool
) -> list[Any]:
    count = indices.shape[0] if offsets is None else offsets.shape[0] - last
    y = (count, weight.shape[1])
    largest = ShapeDtype(y if mode == "max" else (0,), np.int64)
    return [y, ShapeDtype((indices.size,), np.int64), ShapeDtype((count,), np.int64), largest]


embedding_bag_op = general(
    "embedding_bag",
    _bag,
    joint=_bag_rule,
    names=("weight", "indices", "offsets", "psw"),
    outputs=_BAG_RESULTS,
    constant_outputs=(1, 2, 3),
    promote="same",
    promote_args=(0, 3),
    grad_name="EmbeddingBagBackward",
    samples=None,
    shape=_bag_shape,
)
embedding_bag_op.edges = ("weight", "psw")


def _bag_back(
    g_in: np.ndarray,
    indices: np.ndarray,
    psw: Any,
    bag: np.ndarray,
    sizes: np.ndarray,
    largest: np.ndarray,
    shape: Any,
    mode: str,
    padding_idx: int | None,
    by_freq: bool,
) -> np.ndarray:
    return kernels.embedding_bag_grad(
        g_in,
        shape,
        indices,
        bag,
        sizes,
        largest if mode == "max" else None,
        mode,
        psw,
        padding_idx,
        by_freq,
    )


def _no_second(g: Any, needs: Any) -> Any:
    raise NotImplementedError("the second derivative of embedding_bag is not implemented")


bag_back_op = general(
    "embedding_bag_backward",
    _bag_back,
    joint=_no_second,
    names=("g_in", "indices", "psw", "bag", "sizes", "largest"),
    promote="same",
    promote_args=(0, 2),
    samples=None,
    shape=shape_rules.shape_attribute,
)
bag_weight_back_op = general(
    "embedding_bag_per_sample_weights_backward",
    lambda g_in, weight, indices, bag, padding_idx: kernels.embedding_bag_sample_grad(
        g_in, weight, indices, bag, padding_idx
    ),
    joint=_no_second,
    names=("g_in", "weight", "indices", "bag"),
    promote="same",
    promote_args=(0, 1),
    samples=None,
    shape=lambda g_in, indices: ShapeDtype((indices.size,), g_in.dtype),
)


def _check_bags(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None,
    mode: str,
    per_sample_weights: Tensor | None,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> None:
    if mode not in ("sum", "mean", "max"):
        refuse("mode has to be one of sum, mean or max", ValueError)
    if per_sample_weights is not None:
        if per_sample_weights._a.shape != input._a.shape:
            refuse(
                f"embedding_bag: If per_sample_weights ({list(per_sample_weights._a.shape)}) is "
                "not None, then it must have the same shape as the input "
                f"({list(input._a.shape)})",
                ValueError,
            )
        if mode != "sum":
            refuse(
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only "
                f"supported for mode='sum' (got mode='{mode}')",
                NotImplementedError,
            )
    if mode == "max" and (scale_grad_by_freq or sparse):
        refuse(
            "max mode does not support scaling the gradient by the frequency, nor sparse weights",
            ValueError,
        )
    if input.ndim == 2:
        if offsets is not None:
            refuse(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch "
                "of fixed length sequences",
                ValueError,
            )
    elif input.ndim != 1:
        refuse(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}", ValueError
        )
    elif offsets is None:
        refuse("offsets has to be a 1D Tensor but got None", ValueError)
    elif offsets.ndim != 1:
        refuse("offsets has to be a 1D Tensor", ValueError)
    elif offsets._a.dtype.kind != "i" or offsets._a.itemsize < 4:
        refuse(
            "Expected tensor for argument #1 'offsets' to have one of the following scalar types: "
            f"Long, Int; but got {scalar_name(offsets.dtype)} instead (while checking arguments "
            "for embedding_bag)"
        )
    if weight.ndim != 2:
        refuse(
            f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}", ValueError
        )
    if per_sample_weights is not None and per_sample_weights._a.dtype != weight._a.dtype:
        refuse(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for "
            f"argument #1 'per_sample_weights'; but {scalar_name(weight.dtype)} does not equal "
            f"{scalar_name(per_sample_weights.dtype)} (while checking arguments for embedding_bag)"
        )
    _check_indices(input, "embedding_bag")


@api.under("nn.functional")
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or largest value of the rows in each bag of numbers."""
    if weight._a.dtype == np.int64 and input._a.dtype.kind == "f":
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage "
            "`embedding_bag(weight, input, ...)` is deprecated, and should now be "
            "`embedding_bag(input, weight, ...)`.",
            stacklevel=2,
        )
        input, weight = weight, input
    _check_bags(input, weight, offsets, mode, per_sample_weights, scale_grad_by_freq, sparse)
    place = _padding(padding_idx, weight._a.shape[0], RuntimeError)
    if max_norm is not None:
        embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    return embedding_bag_op(
        weight,
        input,
        offsets,
        per_sample_weights,
        mode=mode,
        last=include_last_offset,
        padding_idx=None if place < 0 else place,
        by_freq=scale_grad_by_freq,
    )[0]


@api.top(name="embedding_bag")
def _top_embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, ...]:
    """Bags of rows, with the bag of each number, the bags' sizes and the largest rows."""
    return embedding_bag_op(
        weight,
        indices,
        offsets,
        per_sample_weights,
        mode=("sum", "mean", "max")[mode],
        last=include_last_offset,
        padding_idx=padding_idx,
        by_freq=scale_grad_by_freq,
    )
