"""Sums, means, extremes and other reductions over dimensions."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.batching import BatchedCall
from weft.core.dispatch import Op, apply, apply_one
from weft.core.meta import lacks_values
from weft.core.tensor import Tensor
from weft.operators import api, batch_rules, shape_rules
from weft.operators.along import (
    dropped_shape,
    kept,
    kept_shape,
    numpy_names,
    put_along_op,
    refuse,
    result_type,
    take_along_op,
    taken,
)
from weft.operators.arguments import scalar_name
from weft.operators.arithmetic import conj_op, where_op
from weft.operators.build import Make, Sample, constant, general, linear
from weft.operators.cumulative import has_zero_op, products_of_others
from weft.operators.pointwise import exp_op
from weft.operators.views import expand_op, reshape_op

new_tuple = tuple.__new__

# Below this many elements a copy costs less than the view and what reads it later.
SMALL = 4096


def spread(g: Any, shape: tuple[int, ...], dim: tuple[int, ...], keepdim: bool) -> Any:
    """A reduced value repeated over the dimensions that were reduced."""
    if not isinstance(g, Tensor) and math.prod(shape) <= SMALL:
        full = np.empty_like(g, order="C", shape=shape)
        full[...] = g if keepdim else g.reshape(kept_shape(shape, dim))
        return full
    return expand_op(kept(g, shape, dim, keepdim), shape=shape)


def axes(x: np.ndarray, dim: tuple[int, ...]) -> tuple[int, ...]:
    """What NumPy calls the dimensions; a zero-dim array has none."""
    return dim if x.ndim else ()


def count_of(shape: tuple[int, ...], dim: tuple[int, ...]) -> int:
    """How many elements each result of a reduction is made of."""
    return math.prod([shape[d] for d in dim]) if shape else 1


def reduced_dims(dim: Any, rank: int) -> tuple[int, ...]:
    """A dim argument for which an empty list means all dimensions, as None does."""
    return api.dims(None if api.no_dims(dim) else dim, rank)


def reduction_samples(m: Make) -> list[Sample]:
    """Some dimensions, kept ones, none to reduce, no elements."""
    return [
        Sample((m.real(2, 3, 2),), {"dim": (0, 2), "keepdim": False}),
        Sample((m.real(2, 3),), {"dim": (1,), "keepdim": True}),
        Sample((m.real(3, 0),), {"dim": (0,), "keepdim": False}),
        Sample((m.real(),), {"dim": (), "keepdim": False}),
    ]


# --- sums and means --------------------------------------------------------------------


def _sum(x: np.ndarray, dim: tuple[int, ...], keepdim: bool, variant: int = 0) -> np.ndarray:
    # NumPy would widen small integers; booleans are counted.
    kind = x.dtype if x.dtype.kind != "b" else None
    return np.add.reduce(x, axis=dim, keepdims=keepdim, dtype=kind) if x.ndim else x.copy()


sum_op = linear(
    "sum",
    _sum,
    lambda g, x_shape, dim, keepdim: spread(g, x_shape, dim, keepdim),
    promote="same",
    variant=lambda attrs, inputs: attrs.get("variant", 0),
    samples=lambda m: [
        *reduction_samples(m),
        Sample((m.real(0, 3),), {"dim": (0,), "keepdim": False}),
    ],
    rows=True,
    shape=shape_rules.summed,
    batch=batch_rules.along,
)


# All dimensions of a tensor, by its rank.
EVERY = tuple(tuple(range(rank)) for rank in range(65))


def _chosen(dim: Any, rank: int, keepdim: bool) -> dict[str, Any]:
    """The attributes of a sum or mean; over some dimensions it is another variant."""
    if dim is None or api.no_dims(dim):
        return {"dim": EVERY[rank], "keepdim": keepdim}
    return {"dim": api.dims(dim, rank), "keepdim": keepdim, "variant": 1}


@api.both(out=True)
@numpy_names
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over all elements or over some dimensions.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x.sum()
    tensor(10.)
    >>> torch.sum(x, dim=0)
    tensor([4., 6.])
    >>> x.sum(1, keepdim=True)
    tensor([[3.],
            [7.]])
    """
    if dtype is not None:
        input = input.to(dtype)
        if input._a.dtype.kind == "b":
            return any_op(input, dim=reduced_dims(dim, input._a.ndim), keepdim=keepdim)
    elif input._a.dtype is not dt.I64 and input._a.dtype.kind in "iub":
        input = input.to(dt.int64)
    return apply_one(sum_op, input, _chosen(dim, input._a.ndim, keepdim))


def _mean(x: np.ndarray, dim: tuple[int, ...], keepdim: bool, variant: int = 0) -> np.ndarray:
    if not x.ndim:
        return x.copy()
    total = np.add.reduce(x, axis=dim, keepdims=keepdim)
    return total / x.dtype.type(count_of(x.shape, dim))


mean_op = linear(
    "mean",
    _mean,
    lambda g, x_shape, dim, keepdim: spread(
        g / (count_of(x_shape, dim) or 1), x_shape, dim, keepdim
    ),
    promote="same",
    variant=lambda attrs, inputs: attrs.get("variant", 0),
    samples=reduction_samples,
    rows=True,
    shape=shape_rules.reduced,
    batch=batch_rules.along,
)


@api.both(out=True)
@numpy_names
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean over all elements or over some dimensions.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x.mean()
    tensor(2.5000)
    >>> torch.mean(x, dim=1)
    tensor([1.5000, 3.5000])
    """
    if dtype is not None:
        input = input.to(dtype)
    if input._a.dtype.kind in "iub":
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point "
            f"or complex dtype. Got: {input.dtype}; use .float() or give dtype=\n"
            f"  at {errors.here()}"
        )
    return apply_one(mean_op, input, _chosen(dim, input._a.ndim, keepdim))


@api.both(out=True)
@numpy_names
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum, with NaN counted as zero."""
    refuse("c", input, "nansum")
    if input._a.dtype.kind in "fV":
        input = where_op(input != input, 0, input)  # the NaNs
    return sum(input, dim, keepdim, dtype=dtype)


@api.both(out=True)
@numpy_names
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean of what is not NaN."""
    if input._a.dtype.kind not in "fVc":
        raise RuntimeError(
            f"nanmean(): expected input to have floating point or complex dtype but got "
            f"{input.dtype}\n  at {errors.here()}"
        )
    refuse("c", input, "nansum_cpu")
    missing = input != input  # the NaNs
    total = sum(where_op(missing, 0, input), dim, keepdim, dtype=dtype)
    if total._a.dtype.kind in "iub":
        raise RuntimeError(
            f"nanmean(): result type Float can't be cast to the desired output type "
            f"{scalar_name(total.dtype)}; give a floating dtype=\n  at {errors.here()}"
        )
    return total / sum(~missing, dim, keepdim)


# --- products --------------------------------------------------------------------------


def _prod(x: np.ndarray, dim: tuple[int, ...], keepdim: bool, variant: int = 0) -> np.ndarray:
    if x.dtype in dt.HALF:
        return _half_prod(x, axes(x, dim), keepdim)
    return np.multiply.reduce(x, axis=axes(x, dim), keepdims=keepdim, dtype=x.dtype)


def _half_prod(x: np.ndarray, dim: tuple[int, ...], keepdim: bool) -> np.ndarray:
    """Products that are rounded to the half type after each factor, as PyTorch's are."""
    if not dim:
        return x.copy()
    for d in dim:
        if x.shape[d]:
            x = np.take(np.multiply.accumulate(x, d, x.dtype), [-1], d)
        else:
            x = np.ones(kept_shape(x.shape, (d,)), x.dtype)
    return x if keepdim else x.reshape([n for k, n in enumerate(x.shape) if k not in dim])


def _prod_rule(g: Any, x: Any, y: Any, dim: tuple[int, ...], keepdim: bool) -> Any:
    if not x.shape:
        return g
    g, y = kept(g, x.shape, dim, keepdim), kept(y, x.shape, dim, keepdim)
    others = products_of_others(x, dim) if lacks_values(x) or has_zero_op(x) else y / x
    return g * conj_op(others)


prod_op = general(
    "prod",
    _prod,
    _prod_rule,
    promote="same",
    narrow=True,
    variant=lambda attrs, inputs: attrs.get("variant", 0),
    samples=lambda m: [
        *reduction_samples(m)[1:],
        Sample((m.real(2, 2),), {"dim": (0, 1), "keepdim": False}),
        Sample((np.array([[1.5, 0.0, 2.0], [0.0, 0.5, 0.0]]),), {"dim": (1,), "keepdim": False}),
    ],
    rows=True,
    shape=shape_rules.reduced,
    batch=batch_rules.along,
)


@api.both(out=True)
@numpy_names
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product of all elements or along a dimension."""
    if dtype is not None:
        input = input.to(dtype)
    elif input._a.dtype.kind in "iub":
        input = input.to(dt.int64)
    rank = input._a.ndim
    if dim is None:
        return prod_op(input, dim=tuple(range(rank)), keepdim=keepdim)
    return prod_op(input, dim=(api.wrap_dim(dim, rank),), keepdim=keepdim, variant=1)


# --- truth -----------------------------------------------------------------------------


def _truth(ufunc: Any) -> Any:
    def reference(x: np.ndarray, dim: tuple[int, ...], keepdim: bool) -> np.ndarray:
        every = x if x.dtype is dt.BOOL else x.astype(bool)
        out = ufunc.reduce(every, axis=axes(x, dim), keepdims=keepdim)
        return out.astype(np.uint8) if x.dtype == np.uint8 else out

    return reference


all_op = constant(
    "all", _truth(np.logical_and), rows=True, shape=shape_rules.truth, batch=batch_rules.along
)
any_op = constant(
    "any", _truth(np.logical_or), rows=True, shape=shape_rules.truth, batch=batch_rules.along
)


@api.both(out=True)
@numpy_names
def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether all elements are true (not zero).

    >>> x = torch.tensor([[True, True], [True, False]])
    >>> x.all()
    tensor(False)
    >>> torch.all(x, dim=1)
    tensor([ True, False])
    """
    dims = EVERY[input._a.ndim] if dim is None else api.dims(dim, input._a.ndim)
    return apply_one(all_op, input, {"dim": dims, "keepdim": keepdim})


@api.both(out=True)
@numpy_names
def any(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether any element is true (not zero)."""
    dims = EVERY[input._a.ndim] if dim is None else api.dims(dim, input._a.ndim)
    return apply_one(any_op, input, {"dim": dims, "keepdim": keepdim})


def _count_nonzero(x: np.ndarray, dim: tuple[int, ...]) -> np.ndarray:
    return np.add.reduce(x.astype(bool, copy=False), axis=axes(x, dim), dtype=np.int64)


count_nonzero_op = constant(
    "count_nonzero",
    _count_nonzero,
    rows=True,
    shape=lambda x, dim: shape_rules.reduced(x, dim, False, dt.I64),
    batch=batch_rules.along,
)


@api.both
@numpy_names
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """The number of elements that are not zero."""
    return count_nonzero_op(input, dim=reduced_dims(dim, input._a.ndim))


# --- extremes --------------------------------------------------------------------------


def refuse_empty(input: Tensor, dim: tuple[int, ...], name: str) -> None:
    """Raise where a reduction without a neutral element would have nothing to reduce."""
    shape = input._a.shape
    for d in dim:
        if shape and not shape[d]:
            raise IndexError(
                f"{name}(): Expected reduction dim {d} to have non-zero size; the shape is "
                f"{list(shape)}\n  at {errors.here()}"
            )


def _refuse_none(input: Tensor, name: str, kind: type[Exception] = RuntimeError) -> None:
    if not input._a.size:
        raise kind(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify "
            f"the reduction dim with the 'dim' argument.\n  at {errors.here()}"
        )


def _shared(x: Any, y: Any, dim: tuple[int, ...], keepdim: bool) -> tuple[Any, Any]:
    """Where the extreme is reached, and in how many places of each row."""
    reached = x == kept(y, x.shape, dim, keepdim)
    return reached, sum_op(reached, dim=dim, keepdim=True)


def _extreme_rule(g: Any, x: Any, y: Any, dim: tuple[int, ...], keepdim: bool) -> Any:
    reached, ties = _shared(x, y, dim, keepdim)
    return kept(g, x.shape, dim, keepdim) * reached / ties


def _extreme_jvp(t: Any, x: Any, y: Any, dim: tuple[int, ...], keepdim: bool) -> Any:
    reached, ties = _shared(x, y, dim, keepdim)
    return sum_op(t * reached / ties, dim=dim, keepdim=keepdim)


def _extreme(name: str, ufunc: Any) -> Op:
    return general(
        name,
        lambda x, dim, keepdim: ufunc.reduce(x, axis=axes(x, dim), keepdims=keepdim),
        _extreme_rule,
        jvp=(_extreme_jvp,),
        promote="same",
        samples=lambda m: [
            *reduction_samples(m)[:2],
            Sample((m.real(0, 3),), {"dim": (1,), "keepdim": False}),
        ],
        rows=True,
        shape=shape_rules.reduced,
        batch=batch_rules.along,
    )


amax_op = _extreme("amax", np.maximum)
amin_op = _extreme("amin", np.minimum)


def _all_extremes(name: str, op: Op) -> Any:
    def function(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
        if api.no_dims(dim):
            _refuse_none(input, name)
        dims = reduced_dims(dim, input._a.ndim)
        refuse_empty(input, dims, name)
        refuse("c", input, name)
        return op(input, dim=dims, keepdim=keepdim)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {name[1:]}imum over dimensions; ties share its gradient evenly."
    return api.both(numpy_names(function), out=True)


def _both_extremes_rule(
    g: Any, x: Any, low: Any, high: Any, dim: tuple[int, ...], keepdim: bool
) -> Any:
    least = _extreme_rule(g[0], x, low, dim, keepdim)
    return least + _extreme_rule(g[1], x, high, dim, keepdim)


def _both_extremes_jvp(
    t: Any, x: Any, low: Any, high: Any, dim: tuple[int, ...], keepdim: bool
) -> Any:
    return _extreme_jvp(t, x, low, dim, keepdim), _extreme_jvp(t, x, high, dim, keepdim)


aminmax_op = general(
    "aminmax",
    lambda x, dim, keepdim: (
        amin_op(x, dim=dim, keepdim=keepdim),
        amax_op(x, dim=dim, keepdim=keepdim),
    ),
    _both_extremes_rule,
    jvp=(_both_extremes_jvp,),
    outputs=("low", "high"),
    promote="same",
    samples=lambda m: reduction_samples(m)[:2],
    rows=True,
    shape=lambda x, dim, keepdim: [shape_rules.reduced(x, dim, keepdim)] * 2,
    batch=batch_rules.along,
)
amax, amin = _all_extremes("amax", amax_op), _all_extremes("amin", amin_op)
_aminmax_result = result_type("aminmax", "min", "max")


@api.both(out=True)
@numpy_names
def aminmax(input: Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
    """Minimum and maximum at once."""
    refuse("c", input, "aminmax")
    if dim is None:
        _refuse_none(input, "aminmax")
        dim = ()
    dims = reduced_dims(dim, input._a.ndim)
    refuse_empty(input, dims, "aminmax")
    return _aminmax_result(*aminmax_op(input, dim=dims, keepdim=keepdim))


def evenly(g: Any, x: Any, y: Any) -> Any:
    """The gradient of one chosen value, shared by all elements that are equal to it."""
    chosen = (x == y) | ((x != x) & (y != y))  # or both are NaN
    whole = tuple(range(len(x.shape)))
    return where_op(chosen, g / sum_op(chosen, dim=whole, keepdim=False), 0.0)


def whole_pick(
    name: str, reference: Any, grad_name: str, variant: int = 0, batch: Any = None
) -> Op:
    """An op that picks one value of all, whose gradient ties share."""
    return general(
        name,
        reference,
        evenly,
        promote="same",
        grad_name=grad_name,
        variant=lambda attrs, inputs: variant,
        samples=lambda m: [Sample((m.real(2, 3),)), Sample((m.real(),))],
        shape=lambda: (),
        batch=batch,
    )


def picked_rule(g: Any, indices: Any, x_shape: Any, dim: int, keepdim: bool) -> Any:
    """The gradient of one picked element in each row, put back in its place."""
    shape = kept_shape(x_shape, (dim,))
    places, g = reshape_op(indices, shape=shape), reshape_op(g[0], shape=shape)
    return put_along_op(g, places, dim=dim, shape=x_shape, unique=True)


def _picked_jvp(t: Any, indices: Any, x_shape: Any, dim: int, keepdim: bool) -> Any:
    places = reshape_op(indices, shape=kept_shape(x_shape, (dim,)))
    taken = take_along_op(t, places, dim=dim, unique=True)
    return reshape_op(taken, shape=tuple(indices.shape)), None


def row_pick(name: str, index_of: Any, grad_name: str, variant: int = 0, samples: Any = None) -> Op:
    """An op that picks one element in each row: values and indices.

    ``index_of(x, dim, **attrs)`` gives the indices with the dimension kept.
    """

    def reference(x: np.ndarray, dim: int, keepdim: bool, **attrs: Any) -> tuple[Any, Any]:
        if not x.ndim:
            return x.copy(), np.zeros((), np.int64)
        index = np.ascontiguousarray(index_of(x, dim, **attrs))
        values = taken(x, index, dim)
        if keepdim:
            return values, index
        shape = dropped_shape(x.shape, dim)
        return values.reshape(shape), index.reshape(shape)

    return general(
        name,
        reference,
        picked_rule,
        jvp=(_picked_jvp,),
        outputs=("values", "indices"),
        constant_outputs=(1,),
        promote="same",
        grad_name=grad_name,
        variant=lambda attrs, inputs: variant,
        samples=samples or pick_samples,
        shape=shape_rules.picked,
        batch=batch_rules.along,
    )


def pick_samples(m: Make, **attrs: Any) -> list[Sample]:
    """Another dimension, a kept one, a zero-dim input, no rows."""
    return [
        Sample((m.real(2, 3),), {"dim": 1, "keepdim": False, **attrs}),
        Sample((m.real(3, 2),), {"dim": 0, "keepdim": True, **attrs}),
        Sample((m.real(),), {"dim": 0, "keepdim": False, **attrs}),
        Sample((m.real(0, 3),), {"dim": 1, "keepdim": False, **attrs}),
    ]


max_dim_op = row_pick("max_dim", lambda x, dim: x.argmax(dim, keepdims=True), "MaxBackward")
min_dim_op = row_pick("min_dim", lambda x, dim: x.argmin(dim, keepdims=True), "MinBackward")


def _all_of_each(op: Op) -> Any:
    """A batching rule: the extreme of all elements is that of each example's row."""
    return lambda b: op(b.args[0].reshape(b.size, b.logical[0]._a.size), dim=(1,), keepdim=False)


max_op = whole_pick(
    "max",
    lambda x: np.maximum.reduce(x, axis=None),
    "MaxBackward",
    1,
    batch=_all_of_each(amax_op),
)
min_op = whole_pick(
    "min",
    lambda x: np.minimum.reduce(x, axis=None),
    "MinBackward",
    1,
    batch=_all_of_each(amin_op),
)


def _max_or_min(name: str, whole: Op, rows: Op, elementwise: str, example: str) -> Any:
    result = result_type(name, "values", "indices")

    def function(
        input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None
    ) -> Any:
        if other is not None or isinstance(dim, Tensor):
            refuse("c", input, name)
            return getattr(input, elementwise)(dim if other is None else other)
        if dim is None:
            if input._a.dtype is not dt.F32 or not input._a.size:
                refuse("c", input, name)
                _refuse_none(input, name)
            return apply_one(whole, input, {})
        d = api.wrap_dim(dim, input._a.ndim)
        refuse_empty(input, (d,), name)
        refuse("c", input, name)
        return new_tuple(result, apply(rows, (input,), {"dim": d, "keepdim": keepdim}))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"The {name}imum of all elements, along a dimension (values and indices), or of two "
        f"tensors element by element.\n\n{inspect.cleandoc(example)}"
    )
    return api.both(numpy_names(function), out=True)


max = _max_or_min(
    "max",
    max_op,
    max_dim_op,
    "maximum",
    """
    >>> x = torch.tensor([[1.0, 5.0], [7.0, 2.0]])
    >>> x.max()
    tensor(7.)
    >>> torch.max(x, dim=1)
    torch.return_types.max(
    values=tensor([5., 7.]),
    indices=tensor([1, 0]))
    >>> torch.max(x, torch.tensor(3.0))
    tensor([[3., 5.],
            [7., 3.]])
    """,
)
min = _max_or_min(
    "min",
    min_op,
    min_dim_op,
    "minimum",
    """
    >>> x = torch.tensor([[1.0, 5.0], [7.0, 2.0]])
    >>> x.min()
    tensor(1.)
    >>> values, indices = torch.min(x, dim=0)
    >>> indices
    tensor([0, 1])
    """,
)


def _arg_batch(b: BatchedCall) -> Any:
    """Of all elements where no dimension is named."""
    if b.attrs.get("dim") is not None:
        return batch_rules.along(b)
    first = b.logical[0]._a
    out = b.run(b.args[0].reshape(b.size, first.size), dim=1, keepdim=False)
    return out.reshape(b.size, *(1,) * (first.ndim if b.attrs["keepdim"] else 0))


def _arg(name: str, function: Any, example: str) -> Any:
    def reference(x: np.ndarray, dim: int | None, keepdim: bool) -> np.ndarray:
        if not x.ndim:
            return np.zeros((), np.int64)
        return function(x, dim, keepdims=keepdim)

    op = constant(
        name, reference, promote="compare", shape=shape_rules.index_of_one, batch=_arg_batch
    )

    def public(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        if input._a.dtype is not dt.F32:
            refuse("cb", input, name)
        if dim is None:
            _refuse_none(input, name, IndexError)
        else:
            dim = api.wrap_dim(dim, input._a.ndim)
            refuse_empty(input, (dim,), name)
        return apply_one(op, input, {"dim": dim, "keepdim": keepdim})

    public.__name__ = public.__qualname__ = name
    meaning = f"The index of the {name[3:]}imum, of all elements or along a dimension."
    public.__doc__ = f"{meaning}\n\n{inspect.cleandoc(example)}"
    return api.both(numpy_names(public), out=True)


argmax = _arg(
    "argmax",
    np.ndarray.argmax,
    """
    >>> x = torch.tensor([[1, 9, 3], [8, 2, 4]])
    >>> x.argmax()
    tensor(1)
    >>> torch.argmax(x, dim=1)
    tensor([1, 0])
    """,
)
argmin = _arg(
    "argmin",
    np.ndarray.argmin,
    """
    >>> torch.argmin(torch.tensor([[1, 9, 3], [8, 2, 4]]), dim=1)
    tensor([0, 1])
    """,
)

# --- logarithm of a sum of exponentials ------------------------------------------------


def _logsumexp(x: np.ndarray, dim: tuple[int, ...], keepdim: bool) -> np.ndarray:
    dim = axes(x, dim)
    top = np.maximum.reduce(x.real, axis=dim, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0).astype(top.dtype)
    total = np.add.reduce(np.exp(x - top), axis=dim, keepdims=True)
    out = np.log(total) + top
    return out if keepdim else out.reshape(np.delete(x.shape, dim).astype(int))


logsumexp_op = general(
    "logsumexp",
    _logsumexp,
    lambda g, x, y, dim, keepdim: (
        kept(g, x.shape, dim, keepdim) * conj_op(exp_op(x - kept(y, x.shape, dim, keepdim)))
    ),
    promote="float",
    samples=reduction_samples,
    rows=True,
    shape=shape_rules.reduced,
    batch=batch_rules.along,
)


@api.both(out=True)
@numpy_names
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials, without overflow."""
    return logsumexp_op(input, dim=reduced_dims(dim, input._a.ndim), keepdim=keepdim)


api.under("special", logsumexp, name="logsumexp")


def _hash(x: np.ndarray, dim: tuple[int, ...], keepdim: bool) -> np.ndarray:
    wide = x.astype(np.float64 if x.dtype.kind in "fV" else np.int64)
    return np.bitwise_xor.reduce(wide.view(np.uint64), axis=axes(x, dim), keepdims=keepdim)


hash_op = constant(
    "hash_tensor",
    _hash,
    shape=lambda x, dim, keepdim: shape_rules.reduced(x, dim, keepdim, np.uint64),
)


@api.both(out=True)
@numpy_names
def hash_tensor(input: Tensor, dim: Any = (), keepdim: bool = False, mode: int = 0) -> Tensor:
    """One number for the bits of all elements, or along dimensions: their exclusive or."""
    if not input._a.size and api.no_dims(dim):
        raise RuntimeError(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify "
            f"the reduction dim with the 'dim' argument.\n  at {errors.here()}"
        )
    dims = reduced_dims(dim, input._a.ndim)
    refuse_empty(input, dims, "hash_tensor")
    return hash_op(input, dim=dims, keepdim=keepdim)
