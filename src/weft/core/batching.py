"""Batched values: what ``vmap`` passes to a function written for one example.

A batched tensor looks like one example. Its array, a ``BatchedArray``, has an example's shape and
dtype and no values; the examples of the whole batch are its ``physical`` tensor, one dimension
more, with the batch first. An op on batched tensors is one op on the physical tensors, as the op's
batching rule (``Op.batch``) says; an op without a rule runs once for each example. The physical
tensors are in the graph, batched ones are not: a node of theirs is a node of the physical tensor.

Levels nest: the physical tensor of a batched one may be batched itself, at a lower level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from weft.core import dtype as dt
from weft.core import errors, meta
from weft.core.devices import taken
from weft.core.meta import MetaArray
from weft.core.modes import MODES
from weft.core.pending import reads_metadata
from weft.core.tensor import Tensor, wrap

if TYPE_CHECKING:
    from weft.core.dispatch import Op

ndarray = np.ndarray

# The dtypes of batched arrays, by the ordinary ones that they equal; the fast paths decline them.
MARKED = {d: np.dtype(d, metadata={"device": "batch"}) for d in dt.OF_NUMPY}  # type: ignore[call-overload]

# Addresses that all batched arrays share: they are never read.
_SHARED: list[Any] = []


class BatchedArray(MetaArray):
    """The shape and dtype of one example; ``physical`` has the values of all of them."""

    is_batch = True
    level: int
    _physical: Tensor

    def detached(self) -> Any:
        return batched(self.physical.detach(), self.level)._a

    @property
    def physical(self) -> Tensor:
        """The tensor of all examples, with the batch in front."""
        try:
            return self._physical
        except AttributeError:
            raise _unsupported("a view that was not created by an op") from None

    def item(self, *args: Any) -> Any:
        raise RuntimeError(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
            "calling .item() on a Tensor, please try to rewrite what you're doing with other "
            f"operations: the examples of a batch may differ\n  at {errors.here()}"
        )

    def __bool__(self) -> NoReturn:  # type: ignore[override]
        raise RuntimeError(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control "
            "flow. We don't support that yet, please use torch.where: the examples of a batch may "
            f"differ\n  at {errors.here()}"
        )

    __int__ = __float__ = __complex__ = __index__ = item

    def tolist(self) -> Any:
        raise _unsupported("reading its values")

    tobytes = tofile = dump = dumps = __iter__ = tolist  # type: ignore[assignment]

    def __setitem__(self, key: Any, value: Any) -> None:
        raise _unsupported("writing to its array")

    def fill(self, value: Any) -> None:
        raise _unsupported("writing to its array")

    def reshape(self, *shape: Any, **more: Any) -> Any:
        raise _unsupported("reshaping its array")

    ravel = flatten = view = conj = __deepcopy__ = reshape  # type: ignore[assignment]

    def copy(self, order: Any = "C") -> Any:
        return array_of(self.physical.clone(), self.level)

    __copy__ = copy

    def astype(self, dtype: Any, *args: Any, **more: Any) -> Any:
        return array_of(self.physical.to(dt.of_numpy(np.dtype(dtype))), self.level)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        raise _unsupported(f"NumPy's {ufunc.__name__}")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in (np.zeros_like, np.ones_like):
            return func(np.broadcast_to(np.zeros((), meta.plain(self.dtype)), self.shape))
        if func in (np.empty_like, np.full_like, np.copyto, np.copy):
            raise _unsupported(f"NumPy's {func.__name__}")  # none of them would ask for values
        return super().__array_function__(func, types, args, kwargs)

    def __reduce__(self) -> Any:
        raise _unsupported("pickling")


def _unsupported(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"vmap: {what} is not possible on a tensor that stands for a whole batch. Use tensor "
        f"functions instead, or move it out of vmap\n  at {errors.here()}"
    )


def is_batched(x: Any) -> bool:
    """Whether something is a tensor that stands for a batch."""
    return isinstance(x, Tensor) and x._a.__class__ is BatchedArray


reads_metadata(is_batched)


def batched(physical: Tensor, level: int) -> Tensor:
    """The tensor that stands for one example of a batch, which is the first dimension."""
    t = wrap(array_of(physical, level))
    t._vc = physical._vc
    t._node = physical._node
    return t


def array_of(physical: Tensor, level: int) -> BatchedArray:
    """The array of a tensor that stands for one example of a batch."""
    inner = physical._a
    shape, strides = inner.shape[1:], inner.strides[1:]
    kind = MARKED[inner.dtype]
    steps = [abs(s) for s in strides]
    extent = kind.itemsize + sum((n - 1) * s for n, s in zip(shape, steps, strict=True) if n)
    made = ndarray.__new__(BatchedArray, shape, kind, _addresses(extent), 0, steps)
    made.level, made._physical = level, physical
    return made


def _addresses(count: int) -> Any:
    if not _SHARED or len(_SHARED[-1]) < count:
        _SHARED.append(meta.reserve(max(count, 1 << 30)))
    return _SHARED[-1]


def values_of(x: Tensor) -> Any:
    """A tensor's values for Python to look at; of a batched one those of all examples."""
    while is_batched(x):
        x = x._a.physical
    return x._a if isinstance(x._a, MetaArray) else taken(x)


def physical_of(x: Tensor) -> Tensor:
    """The tensor that has all examples of a batched one, with the batch in front."""
    return x._a.physical


def level_of(x: Any) -> int:
    """The level of a batched tensor; 0 of any other value."""
    return x._a.level if is_batched(x) else 0


def highest(args: Any) -> int:
    """The highest level among values."""
    return max(map(level_of, args), default=0)


# --- running an op -----------------------------------------------------------------------


class BatchedCall:
    """One op on a batch: its operands at a level, and how to bring them together."""

    def __init__(self, op: Op, args: Any, attrs: dict[str, Any], level: int) -> None:
        self.op, self.level, self.attrs = op, level, attrs
        # A derivative rule may hand on what was saved, a bare array.
        args = [wrap(x) if x.__class__ is ndarray else x for x in args]
        self.logical = args
        self.on = [level_of(x) == level for x in args]  # which operands have the batch
        self.args = [x._a.physical if on else x for x, on in zip(args, self.on, strict=True)]
        self.size = next(x._a.shape[0] for x, on in zip(self.args, self.on, strict=True) if on)

    @classmethod
    def of(cls, op: Op, other: BatchedCall, args: Any, on: Any) -> BatchedCall:
        """Another op on physical tensors of the same batch; ``on`` says which of them have it."""
        made = cls.__new__(cls)
        made.op, made.level, made.attrs, made.size = op, other.level, {}, other.size
        made.args, made.on = list(args), list(on)
        made.logical = [batched(x, other.level) if o else x for x, o in zip(args, on, strict=True)]
        return made

    def run(self, *args: Any, **attrs: Any) -> Any:
        """The op itself, on physical tensors."""
        from weft.core.dispatch import apply

        return apply(self.op, args, attrs)

    def lead(self, k: int) -> Any:
        """An operand with the batch in front, repeated there if it has none."""
        x = self.args[k]
        return x if self.on[k] or not isinstance(x, Tensor) else repeated(x, self.size)

    def leads(self) -> list[Any]:
        """All operands with the batch in front, and as many dimensions behind it as the longest."""
        rank = self.rank()
        found = map(self.lead, range(len(self.args)))
        return [aligned(x, rank) if isinstance(x, Tensor) else x for x in found]

    def fold(self, x: Tensor) -> Tensor:
        """The first two dimensions as one."""
        shape = x._a.shape
        return x.reshape(shape[0] * shape[1], *shape[2:])

    def unfold(self, x: Tensor, count: int) -> Tensor:
        """The first dimension as the batch and so many in each example."""
        return x.reshape(self.size, count, *x._a.shape[1:])

    def aligned(self, k: int, rank: int) -> Any:
        """An operand with as many dimensions behind its batch, if it has one, as the rank says."""
        x = self.args[k]
        return aligned(x, rank) if self.on[k] else x

    def rank(self) -> int:
        """The most dimensions that an operand has as an example."""
        return max(x._a.ndim for x in self.logical if isinstance(x, Tensor))


def aligned(x: Tensor, rank: int) -> Tensor:
    """A tensor with as many dimensions behind its first as the rank says."""
    shape = x._a.shape
    missing = rank + 1 - len(shape)
    return x.reshape(shape[0], *(1,) * missing, *shape[1:]) if missing else x


Rule = Callable[[BatchedCall], Any]


def apply_batched(op: Op, args: Any, attrs: dict[str, Any], level: int) -> Any:
    """Run an op whose operands are batched at a level."""
    rule: Rule = op.batch or (elementwise if op.shape == "elementwise" else each)
    out = rule(BatchedCall(op, args, attrs, level))
    if op.multiple:
        return tuple(batched(o, level) for o in out)
    return batched(out, level)


def elementwise(b: BatchedCall) -> Any:
    """Broadcasting: every operand gets as many dimensions behind the batch as the longest has."""
    b.args = _promoted(b)
    rank = b.rank()
    return b.run(*(b.aligned(k, rank) for k in range(len(b.args))), **b.attrs)


def _promoted(b: BatchedCall) -> list[Any]:
    """Operands in the type that they have together as examples.

    A single number counts less than an array; with the batch in front it would be an array.
    """
    op, args, pairs = b.op, b.args, zip(b.logical, b.on, strict=True)
    if op.promote is None or not any(on and not x._a.ndim for x, on in pairs):
        return args
    chosen = range(len(args)) if op.promote_args is None else op.promote_args
    given = [b.logical[k] for k in chosen if k < len(args)]
    if len({x._a.dtype for x in given if isinstance(x, Tensor)}) < 2:
        return args
    values = [x._a if isinstance(x, Tensor) else x for x in given]
    common = dt.of_numpy(dt.result_dtype(v for v in values if v is not None))
    return [
        x.to(common) if k in chosen and isinstance(x, Tensor) else x for k, x in enumerate(args)
    ]


def each(b: BatchedCall) -> Any:
    """The op once for each example; right for every op."""
    if not b.size:
        return _of_none(b)
    outs = []
    for i in range(b.size):
        args = [x.select(0, i) if on else x for x, on in zip(b.args, b.on, strict=True)]
        outs.append(b.run(*args, **b.attrs))
    return _stacked(b, outs)


def _stacked(b: BatchedCall, outs: list[Any]) -> Any:
    from weft.core.dispatch import REGISTRY, apply

    stack = REGISTRY["stack"]
    if not b.op.multiple:
        return apply(stack, tuple(outs), {"dim": 0})
    return tuple(apply(stack, column, {"dim": 0}) for column in zip(*outs, strict=True))


def _of_none(b: BatchedCall) -> Any:
    """An empty batch: the shapes come from an example of zeros."""
    args = [
        wrap(np.zeros(x._a.shape, meta.plain(x._a.dtype))) if on else x
        for x, on in zip(b.logical, b.on, strict=True)
    ]
    out = b.run(*args, **b.attrs)
    outs = out if b.op.multiple else (out,)
    none = [o.unsqueeze(0).narrow(0, 0, 0) for o in outs]
    return tuple(none) if b.op.multiple else none[0]


# --- in place ----------------------------------------------------------------------------


def change_batched(op: Op, args: Any, attrs: dict[str, Any]) -> Tensor:
    """Run an in-place op on a batched tensor, or with batched operands."""
    from weft.core.dispatch import REGISTRY, apply
    from weft.core.inplace import apply_inplace

    target, level = args[0], max(highest(args), draws_batch(attrs))
    if level_of(target) != level:
        raise RuntimeError(
            f"vmap: {op.name}_(self, *extra_args) is not possible because there exists a Tensor "
            "`other` in extra_args that has more elements than `self`: `self` is not batched and "
            f"can't hold a result for each example. Use the out-of-place form of {op.name}\n"
            f"  at {errors.here()}"
        )
    physical = target._a.physical
    if op.name in ("copy", "fill"):
        value: Any = args[1]
    elif "values" in attrs:
        value = wrap(attrs["values"])  # drawn at random
    else:
        recorded = MODES.now.grad and any(isinstance(x, Tensor) and x.requires_grad for x in args)
        old = target.clone() if recorded and op.differentiable else target
        # What is saved for backward must not be what the write destroys.
        value = apply(op, tuple(old if x is target else x for x in args), attrs)
        if value._a.shape != target._a.shape:
            raise RuntimeError(
                f"{op.name}_: output with shape {list(target._a.shape)} doesn't match the "
                f"broadcast shape {list(value._a.shape)}\n  at {errors.here()}"
            )
    if level_of(value) == level:
        value = value._a.physical
        missing = physical._a.ndim - value._a.ndim
        value = value.reshape(value._a.shape[0], *(1,) * missing, *value._a.shape[1:])
    apply_inplace(REGISTRY["copy"], (physical, _as_tensor(value, physical)), {})
    target._node = physical._node
    return target


def _as_tensor(value: Any, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else wrap(np.asarray(value, like.dtype.np))


# --- levels ------------------------------------------------------------------------------


def enter(size: int, randomness: str) -> int:
    """Begin a batch: what it makes has a higher level than anything before."""
    now = MODES.now
    now.batches = (*now.batches, (size, randomness))
    now.update()
    return len(now.batches)


def leave() -> None:
    """End the last batch."""
    now = MODES.now
    now.batches = now.batches[:-1]
    now.update()


def has_level(x: Any, level: int) -> bool:
    """Whether a tensor is batched at a level."""
    while is_batched(x):
        if x._a.level == level:
            return True
        x = x._a.physical
    return False


def taken_out(x: Any, level: int) -> Any:
    """A tensor with the batch of a level as its first dimension, below what is batched higher.

    What has no batch of that level is given as it is.
    """
    if not has_level(x, level):
        return x
    at, physical = x._a.level, x._a.physical
    return physical if at == level else batched(taken_out(physical, level).transpose(0, 1), at)


def put_in(x: Tensor, level: int) -> Tensor:
    """The inverse of ``taken_out``: the first dimension becomes the batch of a level."""
    at = level_of(x)
    if at < level:
        return batched(x, level)
    return batched(put_in(x._a.physical.transpose(0, 1), level), at)


def repeated(x: Tensor, size: int) -> Tensor:
    """A tensor with a batch in front that repeats it, without memory of its own."""
    return x.unsqueeze(0).expand(size, *x._a.shape)


def spread(x: Tensor) -> Tensor:
    """A tensor repeated over every batch that is running, so that each example has its own."""
    for level, (size, _) in enumerate(MODES.now.batches, 1):
        if not has_level(x, level):
            x = put_in(repeated(x, size), level)
    return x


# --- random numbers ----------------------------------------------------------------------


def draws_batch(attrs: dict[str, Any]) -> int:
    """The level of random values that an op is to write; 0 if there are none."""
    values = attrs.get("values")
    return values.level if values.__class__ is BatchedArray else 0


class BatchedGenerator:
    """A generator for a batch: draws for all examples at once."""

    # Methods that take a shape first, the others take arrays.
    SIZED = frozenset(
        (
            *("uniform", "normal", "random", "randint", "exponential", "geometric", "cauchy"),
            "log_normal",
        )
    )

    def __init__(self, inner: Any, level: int, size: int) -> None:
        self.inner, self.level, self.size = inner, level, size

    def __getattr__(self, name: str) -> Callable:
        method = getattr(self.inner, name)
        if name == "randperm":
            return lambda *args: self._made(np.stack([method(*args) for _ in range(self.size)]))
        if name == "bernoulli":
            return lambda p, shape=None, *more, **named: self._drawn(
                method, (p, shape, *more), named
            )
        if name in self.SIZED:
            return lambda shape, *more, **named: self._drawn(
                method, (tuple(np.atleast_1d(shape).tolist()), *more), named
            )
        return lambda *args, **named: self._drawn(method, args, named)

    def _drawn(self, method: Callable, args: Any, named: Any) -> Any:
        batch = any(x.__class__ is BatchedArray and x.level == self.level for x in args)
        found: list[Any] = []
        for x in args:
            if isinstance(x, tuple):
                x = (self.size, *x)
            elif x.__class__ is BatchedArray and x.level == self.level:
                x = x.physical._a
            elif isinstance(x, np.dtype):
                x = meta.plain(x)
            elif isinstance(x, ndarray) and not batch and x.ndim:
                x = np.broadcast_to(x, (self.size, *x.shape))
            found.append(x)
        return self._made(method(*found, **named))

    def _made(self, array: Any) -> BatchedArray:
        return array_of(wrap(array), self.level)


def room_for_draws(x: Tensor) -> Tensor:
    """A new tensor with memory for the draws of every batch whose examples draw their own."""
    for level, (size, randomness) in enumerate(MODES.now.batches, 1):
        if randomness == "different" and not has_level(x, level):
            x = put_in(repeated(x, size).clone(), level)
    return x


def beside(made: Tensor, x: Tensor) -> Tensor:
    """A new tensor with memory for each example of a batch, if that is what another one has."""
    for level, (size, _) in enumerate(MODES.now.batches, 1):
        if has_level(x, level):
            made = put_in(repeated(made, size).clone(), level)
    return made


def source(generator: Any) -> Any:
    """A generator as the running batches let random ops use it."""
    for level, (size, randomness) in enumerate(MODES.now.batches, 1):
        if randomness == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use "
                "the 'same' or 'different' randomness flags on vmap or perform the randomness "
                f"operation out of vmap\n  at {errors.here()}"
            )
        if randomness == "different":
            generator = BatchedGenerator(generator, level, size)
    return generator
