"""Ops and derivative rules as jobs: lists of native calls that run on any addresses.

``job(function, values)`` runs a function on abstract arrays, whose memory is never
read. An op on them becomes the calls of its kernel or of its traced loop, whatever the size;
an op that has neither runs its reference on them, whose NumPy calls become native ones. So do
derivative rules, which are written in both. What needs values, or what no loop does, raises
``Unplannable``.
"""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from weft.core import selection
from weft.core.dispatch import REGISTRY, VALUES, Op
from weft.core.plan import Plan
from weft.core.promotion import back, promoted
from weft.native import contract
from weft.native.codegen.trace import KINDS, UFUNCS, Loop
from weft.native.contract import Job, Unplannable
from weft.native.memory import buffers

ndarray = np.ndarray
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
# What loops of plans compute with: whole numbers too, which are counters in a training step.
PLANNED_KINDS = {**KINDS, np.dtype(np.int64): "i64"}


class StandIn(ndarray):
    """An array without values, in memory that a plan knows."""

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **options: Any) -> Any:
        given = options.pop("out", None)
        if method == "reduce":
            found = _reduced(ufunc, *args, **options)
        elif method == "__call__" and not set(options) - {"dtype"}:
            kind = options.get("dtype")
            found = _elementwise(ufunc, [_in_type(bare(a), kind) for a in args])
        else:
            raise Unplannable(f"np.{ufunc.__name__}.{method} with {', '.join(options)}")
        if given is None:
            return seen(found)
        buffers.move(bare(given[0]), found)
        return given[0]

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        handler = FUNCTIONS.get(function)
        if handler is not None:
            return seen(handler(*args, **options))
        if function in VIEWS:
            return super().__array_function__(function, types, args, options)
        raise Unplannable(f"np.{function.__name__}")

    def __setitem__(self, key: Any, value: Any) -> None:
        buffers.move(ndarray.__getitem__(bare(self), _plain_key(key)), bare(value))

    def __getitem__(self, key: Any) -> Any:
        return seen(ndarray.__getitem__(bare(self), _plain_key(key)))

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        same = self.dtype == dtype
        return self.copy() if same else seen(_converted(bare(self), np.dtype(dtype)))

    def copy(self, order: Any = "C") -> Any:
        return seen(buffers.copied(bare(self)))

    def reshape(self, *shape: Any, **options: Any) -> Any:
        return seen(_reshaped(bare(self), shape[0] if len(shape) == 1 else shape))

    def ravel(self, order: Any = "C") -> Any:
        return self.reshape(-1)

    flatten = ravel

    def sum(  # type: ignore[override]
        self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        return seen(_reduced(np.add, self, axis, dtype, keepdims=keepdims))

    def mean(  # type: ignore[override]
        self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        total = self.sum(axis, dtype, keepdims=keepdims)
        return total / (self.size / max(total.size, 1))

    def max(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:  # type: ignore[override]
        return seen(_reduced(np.maximum, self, axis, keepdims=keepdims))

    def min(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:  # type: ignore[override]
        return seen(_reduced(np.minimum, self, axis, keepdims=keepdims))

    def fill(self, value: Any) -> None:
        buffers.move(bare(self), value)

    def any(self, *args: Any, **options: Any) -> Any:
        """Whether a mask is true anywhere. A plan is for the case that it is not, and says so."""
        return _unless(bare(self), args, options)

    def all(self, *args: Any, **options: Any) -> Any:
        """Whether a mask is true everywhere, which a plan assumes and checks in the same manner."""
        return not _unless(bare(_elementwise(np.logical_not, [bare(self)])), args, options)

    def dot(self, other: Any, out: Any = None) -> Any:  # type: ignore[override]
        return seen(_dotted(bare(self), bare(other)))

    def _without_values(self, *args: Any, **options: Any) -> Any:
        raise Unplannable("a value is read")

    __bool__ = __int__ = __float__ = __index__ = __complex__ = _without_values
    __array__ = item = tolist = tobytes = argmax = argmin = nonzero = _without_values
    ptp = trace = round = put = choose = prod = std = var = sort = argsort = partition = cumsum = (
        take
    ) = repeat = _without_values


def _unless(mask: ndarray, args: Any, options: Any) -> bool:
    """False, and a flag of the job that is set where a mask is true."""
    if args or options or mask.dtype != np.bool_:
        raise Unplannable("a value is read")
    plan = buffers.planner()
    assert plan is not None
    numbers = _converted(mask, np.dtype(np.float32))
    total = _reduced(np.maximum, numbers.reshape(-1), 0)
    plan.checked(_converted(total.reshape(1), np.dtype(np.int64)))
    return False


def _in_type(x: Any, dtype: Any) -> Any:
    """An operand in the dtype in which a ufunc is asked to compute."""
    return _converted(x, np.dtype(dtype)) if dtype is not None and isinstance(x, ndarray) else x


def _plain_key(key: Any) -> Any:
    """An index of numbers and slices; arrays in it would have values that choose."""
    places = key if isinstance(key, tuple) else (key,)
    for k in places:
        if not (k is None or k is Ellipsis or isinstance(k, (int, slice, np.integer))):
            raise Unplannable("an index that is an array")
    # With an ellipsis even a single element is an array, and no value.
    return places if Ellipsis in places else (*places, Ellipsis)


def bare(x: Any) -> Any:
    """The array itself, as kernels take it."""
    return x.view(ndarray) if x.__class__ is StandIn else x


def seen(x: Any) -> Any:
    """The values that NumPy code may continue with."""
    if isinstance(x, ndarray):
        return x.view(StandIn)
    if isinstance(x, (tuple, list)):
        return tuple(map(seen, x))
    return x


def _converted(x: ndarray, dtype: np.dtype) -> ndarray:
    return x if x.dtype == dtype else selection.cast(x, dtype)


def _reshaped(x: ndarray, shape: Any) -> ndarray:
    try:
        return x.reshape(shape, copy=False)
    except ValueError:
        return buffers.copied(x).reshape(shape)


@functools.cache
def _ufuncs() -> dict[Any, Op]:
    return {op.reference: op for op in REGISTRY.values() if isinstance(op.reference, np.ufunc)}


@functools.cache
def _loop_of(ufunc: Any) -> Loop:
    return Loop(f"{ufunc.__name__}_planned", ufunc, kinds=PLANNED_KINDS)


def _elementwise(ufunc: Any, args: list[Any]) -> ndarray:
    if ufunc is np.matmul:
        return _product(*args)
    if ufunc not in UFUNCS:
        raise Unplannable(f"np.{ufunc.__name__}")
    arrays = [a for a in args if isinstance(a, ndarray)]
    kinds = {a.dtype for a in arrays} - {np.dtype(bool)}
    numbers = [a for a in args if not isinstance(a, ndarray)]
    if len(kinds) > 1 or (kinds and next(iter(kinds)).kind in "iu" and numbers):
        common = np.result_type(*[a.dtype if isinstance(a, ndarray) else a for a in args])
        args = [_converted(a, common) if isinstance(a, ndarray) else a for a in args]
    found = _loop_of(ufunc)(*map(_operand, args))
    if found is None:
        types = ", ".join(str(a.dtype) for a in arrays)
        raise Unplannable(f"no loop for np.{ufunc.__name__} of {types}")
    return found


def _operand(x: Any) -> Any:
    """A number or an array as a loop takes it."""
    if isinstance(x, ndarray):
        if _is_new(x):
            # A number that promotion has made an array of. What a function has put into an array
            # of NumPy's own may be values, which a plan has none of; so may one of its elements.
            if _whole(x).size > 1 or (x.dtype.kind in "fc" and np.isnan(x).any()):
                raise Unplannable("an array that is neither an input nor allocated by the kernel")
            buffers.constant(x)
        return x
    if isinstance(x, np.generic):
        if x.dtype.kind in "fc" and np.isnan(x):  # most likely of an array without values
            raise Unplannable("a number that NumPy has made of an array")
        return x.item()
    return x


def _whole(x: ndarray) -> ndarray:
    """The array whose memory an array shows."""
    while isinstance(x.base, ndarray):
        x = x.base
    return x


def _is_new(x: ndarray) -> bool:
    """Whether a plan does not know the memory: since nothing read values, it is a constant."""
    plan = buffers.planner()
    assert plan is not None
    try:
        plan.place(x)
    except Unplannable:
        return True
    return False


def _product(a: ndarray, b: ndarray) -> ndarray:
    if a.ndim == b.ndim == 2:
        return bare(run(REGISTRY["mm"], (a, b), {}))
    if a.ndim == b.ndim == 3 and len(a) == len(b):
        return bare(run(REGISTRY["bmm"], (a, b), {}))
    found = selection.load("gemm.products:product")(a, b)
    if found is None:
        raise Unplannable(f"a product of {a.shape} and {b.shape}")
    return found


# Elements of a float64 matrix up to which a product with a vector pays: kernels copy it first.
MOST_WIDE = 1 << 14


def _dotted(a: ndarray, b: ndarray) -> ndarray:
    """A matrix or a vector times a vector."""
    if a.dtype == np.float64 and a.size > MOST_WIDE:
        raise Unplannable(f"np.dot of {a.dtype}{list(a.shape)}")
    if not 1 <= a.ndim <= 2 or b.ndim != 1:
        raise Unplannable(f"np.dot of {a.shape} and {b.shape}")
    return _reshaped(_product(a.reshape(-1, a.shape[-1]), b[:, None]), a.shape[:-1])


_REDUCTIONS = {np.add: "sum", np.maximum: "amax", np.minimum: "amin"}
_OF_MASKS = {np.logical_and: np.minimum, np.logical_or: np.maximum}
_FLOAT = np.dtype(np.float32)


def _reduced(
    ufunc: Any, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> ndarray:
    x = bare(x)
    if ufunc in _OF_MASKS and x.dtype == np.bool_ and dtype is None:
        numbers = _reduced(_OF_MASKS[ufunc], _converted(x, _FLOAT), axis, keepdims=keepdims)
        return _converted(numbers, np.dtype(bool))
    if ufunc not in _REDUCTIONS:
        raise Unplannable(f"np.{ufunc.__name__}.reduce")
    if dtype is not None and x.dtype != dtype:
        x = _converted(x, np.dtype(dtype))
    dims = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    dims = tuple(sorted(d % x.ndim for d in dims))
    if not dims:
        return buffers.copied(x)
    if all(x.shape[d] == 1 for d in dims):  # nothing to combine
        kept = tuple(n for d, n in enumerate(x.shape) if keepdims or d not in dims)
        return buffers.copied(x).reshape(kept)
    op = REGISTRY[_REDUCTIONS[ufunc]]
    found = selection.forward(op, (x,), {"dim": dims, "keepdim": keepdims})
    if found is None:
        raise Unplannable(f"{op.name} of {x.dtype}{list(x.shape)} over {dims}")
    return found


def _new_like(value: float) -> Callable:
    def made(x: Any, dtype: Any = None, order: Any = "K", subok: Any = True,
             shape: Any = None) -> Any:  # fmt: skip
        kind = x.dtype if dtype is None else np.dtype(dtype)
        y = buffers.empty_like(bare(x), kind) if shape is None else buffers.empty(shape, kind)
        buffers.move(y, value)
        return y

    return made


def _where(condition: Any, a: Any, b: Any) -> ndarray:
    loop = _chosen()
    found = loop(*[_operand(bare(v)) for v in (condition, a, b)])
    if found is None:
        raise Unplannable("no loop for np.where")
    return found


@functools.cache
def _chosen() -> Loop:
    return Loop("where_planned", np.where, kinds=PLANNED_KINDS)


def _copyto(to: Any, source: Any, casting: Any = None, where: Any = True) -> None:
    if where is not True:
        source = _where(where, source, to)
    source = bare(source)
    if isinstance(source, ndarray) and source.dtype != to.dtype:
        source = _converted(source, to.dtype)
    buffers.move(bare(to), source)


FUNCTIONS: dict[Any, Callable] = {
    np.zeros_like: _new_like(0),
    np.ones_like: _new_like(1),
    np.empty_like: lambda x, dtype=None, order="K", subok=True, shape=None: (
        buffers.empty_like(bare(x), dtype) if shape is None else buffers.empty(shape, x.dtype)
    ),
    np.where: _where,
    np.copyto: _copyto,
    np.sum: lambda x, axis=None, **options: x.sum(axis, **options),
    np.amax: lambda x, axis=None, **options: x.max(axis, **options),
    np.max: lambda x, axis=None, **options: x.max(axis, **options),
    np.reshape: lambda x, shape, **options: x.reshape(shape),
    np.concatenate: lambda parts, axis=0, **options: run(
        REGISTRY["cat"], tuple(map(bare, parts)), {"dim": axis % parts[0].ndim}
    ),
    np.matmul: _product,
    np.dot: lambda a, b: _dotted(bare(a), bare(b)),
    np.clip: lambda x, low, high, **options: np.minimum(np.maximum(x, low), high),
    np.any: lambda x, *args, **options: x.any(*args, **options),
    np.all: lambda x, *args, **options: x.all(*args, **options),
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x: x.size,
    np.result_type: lambda *given: np.result_type(*[getattr(x, "dtype", x) for x in given]),
    np.may_share_memory: lambda a, b: np.may_share_memory(bare(a), bare(b)),
}
# What gives views of an array, and so is the same for one without values.
VIEWS = {
    *(np.transpose, np.swapaxes, np.moveaxis, np.expand_dims, np.squeeze, np.broadcast_to),
    *(np.rollaxis, np.flip, np.split, np.array_split, np.atleast_1d, np.atleast_2d, np.diagonal),
    np.lib.stride_tricks.as_strided,
}


def run(op: Op, args: Any, attrs: dict[str, Any]) -> Any:
    """An op on abstract arrays and numbers, as it computes on bare arrays."""
    args = [bare(a) for a in args]
    args = [a if a.__class__ is not ndarray else _operand(a) for a in args]
    final = None
    if op.promote is not None:
        args, final = promoted(op, args)
    out = _compute(op, args, attrs)
    if final is not None:
        out = tuple(back(o, final) for o in out) if op.multiple else back(out, final)
    return seen(out)


def _compute(op: Op, args: Any, attrs: dict[str, Any]) -> Any:
    out = None
    if op.native is not None or op.traced:
        out = selection.forward(op, [_scalar(a) for a in args] if op.traced else args, attrs)
    if out is None:
        out = op.reference(*map(seen, args), **attrs)
    return tuple(map(bare, out)) if isinstance(out, (tuple, list)) else bare(out)


def _scalar(x: Any) -> Any:
    """A number that promotion has made an array of, as traced loops take it."""
    plan = buffers.planner()
    if plan is not None and isinstance(x, ndarray) and not x.ndim and _is_new(x):
        return x.item()
    return x


VALUES[StandIn] = run


def forward(op: Op, args: Any, attrs: dict[str, Any]) -> Any:
    """An op on abstract arrays and numbers, with its results in the memory order that tensors
    have.
    """
    out = run(op, args, attrs)
    if op.layout is None:
        return out
    arrays = [bare(a) for a in args]
    lay = lambda y: seen(_laid(op, bare(y), arrays))
    return tuple(map(lay, out)) if op.multiple else lay(out)


def _laid(op: Op, y: Any, arrays: Any) -> Any:
    """A result in the op's memory order: itself, a view of it, or a copy."""
    if not isinstance(y, ndarray) or (y.flags.c_contiguous and not op.images):
        return y
    # What the layout rule would do, asked of memory that costs nothing.
    if not y.size or min(y.strides, default=0) < 0:
        return y
    one = np.zeros(1, y.dtype)
    model = np.lib.stride_tricks.as_strided(one, y.shape, y.strides, writeable=False)
    wanted = op.layout(model, arrays)  # type: ignore[misc]
    if wanted.strides == y.strides:
        return y
    made = np.empty_like(wanted)
    if made.strides != wanted.strides:
        raise Unplannable(f"strides of {op.name}")
    buffers.move(buffers.known(made), y)
    return made


def gradients(
    plan: Plan, g: Any, saved: Any, attrs: dict[str, Any], needs: Any, kinds: Sequence[Any] = ()
) -> list[Any]:
    """What the rules of an op make of gradients, a gradient for each target of the plan.

    ``kinds`` are the shapes and dtypes that they are brought to, or None for unneeded gradients.
    """
    native = plan.natives or [None] * len(plan.targets)
    given = tuple(map(bare, g)) if isinstance(g, tuple) else bare(g)
    kept = tuple(tuple(map(bare, s)) if isinstance(s, tuple) else bare(s) for s in saved)
    if plan.joint:
        found = None if native[0] is None else native[0](given, kept, attrs, needs)
        if found is None:
            found = plan.vjp(seen(given), tuple(map(seen, kept)), attrs, needs)
    else:
        found = [None if f is None else f(given, kept, attrs, needs) for f in native]
        if any(x is None for x in found):
            rest = plan.vjp(seen(given), tuple(map(seen, kept)), attrs, needs)
            found = [r if x is None else x for x, r in zip(found, rest, strict=True)]
    found = [bare(x) for x in found]
    if kinds:
        pairs = zip(found, kinds, strict=True)
        found = [None if x is None or k is None else fitted(x, *k) for x, k in pairs]
    return [seen(x) for x in found]


def fitted(g: Any, shape: tuple[int, ...], dtype: np.dtype | None) -> Any:
    """A gradient summed over what was repeated, and in its input's type."""
    g = bare(g)
    if g.shape != shape:
        total = selection.sum_to(g, shape)
        if total is None:
            lead = g.ndim - len(shape)
            dims = tuple(range(lead)) + tuple(
                i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1
            )
            total = _reshaped(_reduced(np.add, g, dims), shape)
        g = total
    return g if dtype is None or g.dtype == dtype else _converted(g, dtype)


def stand_in(x: Any) -> Any:
    """An array with the shape, strides and type of another, in memory of its own."""
    return array_of_layout(x.shape, x.strides, x.dtype) if isinstance(x, ndarray) else x


def array_of_layout(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> ndarray:
    """An abstract array without values, of the given strides, in its own memory."""
    size = prod(shape)
    if not size:
        return np.empty(shape, dtype)
    span = sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True)) + dtype.itemsize
    first = sum((1 - n) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    memory: Any
    if dtype.kind in "fc":
        memory = np.empty(span, np.uint8)
    elif span > mmap.PAGESIZE:
        memory = mmap.mmap(-1, span, _PRIVATE)  # untouched pages are zeros at no cost
    else:
        memory = np.zeros(span, np.uint8)
    made = np.ndarray(shape, dtype, memory, first, strides)
    if dtype.kind in "fc":
        buffers.poison(made)  # reading it must be detected: see ``_operand``
    return made


def job(function: Callable[..., Any], values: Sequence[Any]) -> Job:
    """What a function of arrays does, for arrays of the shapes, strides and types of these.

    Values that are not arrays belong to the job as they are. Its inputs are the arrays, in order.
    """
    if not selection.ready():
        raise Unplannable("native code is off")
    return job_on([stand_in(v) for v in values if isinstance(v, ndarray)], function, values)


def job_on(arrays: list[ndarray], function: Callable[..., Any], values: Sequence[Any]) -> Job:
    """The same on abstract arrays; ``values`` gives their positions among the arguments."""

    def kernel(*given: ndarray) -> Any:
        left = iter(given)
        whole = [seen(next(left)) if isinstance(v, ndarray) else v for v in values]
        try:
            out = function(*whole)
        except _UNFIT as error:
            raise Unplannable(f"{type(error).__name__}: {error}") from error
        return tuple(map(bare, out)) if isinstance(out, (tuple, list)) else bare(out)

    return contract.plan(kernel, tuple(arrays))


# The errors of code that does not support abstract arrays.
_UNFIT = (TypeError, ValueError, AttributeError, IndexError, KeyError, RuntimeError)


def op_job(op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Job:
    """The job of an op on arrays and numbers like these."""
    return job(lambda *values: forward(op, values, attrs), args)


def gradient_job(
    plan: Plan, g: Any, saved: Sequence[Any], attrs: dict[str, Any], needs: Any, kinds: Any
) -> Job:
    """The job of an op's derivative rules: see ``gradients``.

    Its inputs are the arrays among the gradients, then those among the saved values.
    """
    many = isinstance(g, tuple)
    nested = [s if isinstance(s, tuple) else (s,) for s in saved]
    flat = [*(g if many else (g,)), *(x for each in nested for x in each)]

    def rules(*values: Any) -> Any:
        left = iter(values)
        first = tuple(next(left) for _ in g) if many else next(left)
        kept = tuple(
            tuple(next(left) for _ in s) if isinstance(s, tuple) else next(left) for s in saved
        )
        return gradients(plan, first, kept, attrs, needs, kinds)

    return job(rules, flat)
