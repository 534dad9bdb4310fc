"""Views: the same memory seen with another shape. Their derivatives are views too."""

from __future__ import annotations

from math import prod
from operator import index
from sys import getrefcount
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.batching import BatchedCall, aligned, each
from weft.core.devices import put_like, taken, viewed_as
from weft.core.dispatch import NO_ATTRS, Op, apply, apply_view
from weft.core.dual import set_tangent, tangents_of
from weft.core.gate import exchange
from weft.core.inference import check_change, version_of
from weft.core.inplace import check_writable
from weft.core.modes import MODES
from weft.core.tensor import LATE, Tensor, strided, wrap
from weft.core.viewing import Turned, follow, give_retained, links_of, take_retained
from weft.operators import api, batch_rules, shape_rules
from weft.operators.build import Sample, linear, zeros_of
from weft.operators.outputs import put_into


def fail(kind: type[Exception], message: str) -> Exception:
    """An error that ends with the user's line."""
    return kind(f"{message}\n  at {errors.here()}")


# --- alias -----------------------------------------------------------------------------


alias_op: Op = linear(
    "alias",
    lambda x: x[...],
    lambda g: g,
    view=True,
    samples=lambda m: [Sample((m.real(2, 3),)), Sample((m.real(),))],
    shape=shape_rules.same,
    batch=batch_rules.leading,
)

LATE.alias = alias_op


# --- permute, transpose ----------------------------------------------------------------


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


permute_op: Op = linear(
    "permute",
    lambda x, dims: x.transpose(dims),
    lambda g, dims: permute_op(g, dims=_inverse(dims)),
    view=True,
    samples=lambda m: [Sample((m.real(2, 3, 4),), {"dims": (2, 0, 1)})],
    shape=lambda x, dims: tuple(x.shape[d] for d in dims),
    batch=lambda b: b.run(b.args[0], dims=(0, *(d + 1 for d in b.attrs["dims"]))),
)


@api.both
def permute(input: Tensor, *dims: Any) -> Tensor:
    """The dimensions in another order.

    >>> images = torch.zeros(8, 32, 24, 3)
    >>> images.permute(0, 3, 1, 2).shape
    torch.Size([8, 3, 32, 24])
    """
    if not dims:
        raise TypeError(f'permute() missing 1 required argument: "dims"\n  at {errors.here()}')
    rank, order, seen = input._a.ndim, dims, 0
    for d in dims:
        if d.__class__ is int and 0 <= d < rank:
            seen |= 1 << d
        else:
            break
    if seen + 1 != 1 << rank or len(dims) != rank:
        order = api.shape_argument(dims)
        order = api.dims(order, rank) if len(order) == rank else order
    if len(order) != rank:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {rank} is not "
            f"equal to len(dims) = {len(order)}\n  at {errors.here()}"
        )
    return apply_view(permute_op, input, {"dims": order})


transpose_op: Op = linear(
    "transpose",
    lambda x, dim0, dim1: x.swapaxes(dim0, dim1) if x.ndim else x[...],
    lambda g, dim0, dim1: transpose_op(g, dim0=dim0, dim1=dim1),
    view=True,
    samples=lambda m: [Sample((m.real(2, 3, 4),), {"dim0": 0, "dim1": 2})],
    shape=shape_rules.transposed,
    batch=batch_rules.along,
)


@api.both
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged.

    >>> x = torch.tensor([[1, 2, 3], [4, 5, 6]])
    >>> x.transpose(0, 1)
    tensor([[1, 4],
            [2, 5],
            [3, 6]])
    """
    rank = input._a.ndim
    chosen = {"dim0": api.wrap_dim(dim0, rank), "dim1": api.wrap_dim(dim1, rank)}
    return apply_view(transpose_op, input, chosen)


api.alias("transpose", "swapdims")


@api.both
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """Two dimensions exchanged, by NumPy's names."""
    return transpose(input, axis0, axis1)


t_op: Op = linear(
    "t",
    lambda x: x.T,
    lambda g: t_op(g),
    view=True,
    samples=lambda m: [Sample((m.real(2, 3),)), Sample((m.real(3),))],
    shape=lambda x: x.shape[::-1],
    batch=lambda b: b.args[0].transpose(1, 2) if b.rank() == 2 else b.args[0].view_as(b.args[0]),
)


@api.both
def t(input: Tensor) -> Tensor:
    """A matrix transposed; vectors and scalars as they are.

    >>> torch.tensor([[1, 2, 3], [4, 5, 6]]).t()
    tensor([[1, 4],
            [2, 5],
            [3, 6]])
    """
    if input._a.ndim > 2:
        raise RuntimeError(
            f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D; use "
            f"transpose() or mT\n  at {errors.here()}"
        )
    return apply_view(t_op, input, NO_ATTRS)


def _reversed(x: Tensor) -> Tensor:
    """The dimensions in reverse order: a matrix transposed.

    >>> torch.tensor([[1, 2, 3], [4, 5, 6]]).T
    tensor([[1, 4],
            [2, 5],
            [3, 6]])
    """
    return apply_view(permute_op, x, {"dims": tuple(range(x._a.ndim))[::-1]})


def _matrix_transpose(x: Tensor, name: str = "mT") -> Tensor:
    """The last two dimensions exchanged: each matrix of a batch transposed."""
    rank = x._a.ndim
    if rank == 1:
        raise RuntimeError(
            f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor.\n"
            f"  at {errors.here()}"
        )
    return transpose_op(x, dim0=rank - 2, dim1=rank - 1) if rank else permute_op(x, dims=())


def _adjoint_matrix(x: Tensor) -> Tensor:
    """A matrix transposed and conjugated."""
    if x._a.ndim not in (0, 2):
        raise RuntimeError(
            "tensor.H is only supported on matrices (2-D tensors). Got "
            f"{x._a.ndim}-D tensor. For batches of matrices, consider using tensor.mH\n"
            f"  at {errors.here()}"
        )
    return _matrix_transpose(x, "H").conj()


Tensor.T = property(_reversed)
Tensor.mT = property(_matrix_transpose)
Tensor.H = property(_adjoint_matrix)
Tensor.mH = property(
    lambda x: _matrix_transpose(x, "mH").conj(),
    doc="Each matrix of a batch transposed and conjugated.",
)


@api.both
def adjoint(input: Tensor) -> Tensor:
    """Matrices transposed and conjugated."""
    return _matrix_transpose(input, "adjoint").conj()


@api.both
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Move dimensions to other places, keeping the order of the rest."""
    rank = input.ndim
    if isinstance(source, int) != isinstance(destination, int):
        raise TypeError(
            "movedim() takes two ints or two sequences of ints, not "
            f"{type(source).__name__} and {type(destination).__name__}\n  at {errors.here()}"
        )
    given = [(d,) if isinstance(d, int) else tuple(d) for d in (source, destination)]
    if len(given[0]) != len(given[1]):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(given[0])} dims) should "
            f"contain the same number of dims as destination ({list(given[1])} dims)\n"
            f"  at {errors.here()}"
        )
    froms, tos = (tuple(api.wrap_dim(d, rank) for d in ds) for ds in given)
    for name, found in (("source", froms), ("destination", tos)):
        if len(set(found)) != len(found):
            raise RuntimeError(
                f"movedim: repeated dim in `{name}` ({list(found)})\n  at {errors.here()}"
            )
    order = [d for d in range(rank) if d not in froms]
    for to, fro in sorted(zip(tos, froms, strict=True)):
        order.insert(to, fro)
    return permute_op(input, dims=tuple(order))


api.alias("movedim", "moveaxis")

# --- view, reshape ---------------------------------------------------------------------

# On a gradient's own layout the reshape may have to copy; callers check when it must not.
view_op = linear(
    "view",
    lambda x, shape: x.reshape(shape),
    lambda g, x_shape: reshape_op(g, shape=x_shape),
    view=True,
    samples=lambda m: [
        Sample((m.real(2, 3, 4),), {"shape": (6, 4)}),
        Sample((m.real(0, 3),), {"shape": (3, 0, 2)}),
    ],
    shape=shape_rules.reshaped,
    batch=lambda b: b.args[0].reshape(b.size, *b.attrs["shape"]),
)
reshape_op: Op = linear(
    "reshape",
    lambda x, shape: x.reshape(shape),
    lambda g, x_shape: reshape_op(g, shape=x_shape),
    view=True,
    grad_name="ViewBackward",
    samples=lambda m: [Sample((m.real(2, 3, 4).transpose(2, 0, 1),), {"shape": (6, 4)})],
    shape=shape_rules.reshaped,
    batch=lambda b: b.run(b.args[0], shape=(b.size, *b.attrs["shape"])),
)


def resolve_shape(shape: tuple[Any, ...], count: int, name: str) -> tuple[int, ...]:
    """A shape from ``f(2, 3)`` or ``f((2, 3))``, with a -1 filled in, for ``count`` elements."""
    known, unknown = 1, 0
    for size in shape:
        if size.__class__ is not int:
            return resolve_shape(api.shape_argument(shape), count, name)
        if size >= 0:
            known *= size
        elif size == -1:
            unknown += 1
        else:
            raise RuntimeError(f"{name}: invalid shape dimension {size}\n  at {errors.here()}")
    if known == count and not unknown:
        return shape
    if unknown > 1:
        raise RuntimeError(f"{name}: only one dimension can be inferred\n  at {errors.here()}")
    if unknown and known == count == 0:
        raise RuntimeError(
            f"{name}: cannot reshape tensor of 0 elements into shape {list(shape)} because "
            f"the unspecified dimension size -1 can be any value and is ambiguous\n"
            f"  at {errors.here()}"
        )
    if unknown and known and count % known == 0:
        return tuple(count // known if s == -1 else s for s in shape)
    raise RuntimeError(
        f"{name}: shape '{list(shape)}' is invalid for input of size {count}\n  at {errors.here()}"
    )


@api.both
def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """The same elements in another shape; a view where the layout allows it.

    >>> x = torch.arange(6).reshape(2, 3)
    >>> x.reshape(3, -1)
    tensor([[0, 1],
            [2, 3],
            [4, 5]])
    >>> x.t().reshape(6)
    tensor([0, 3, 1, 4, 2, 5])
    """
    given = sizes if shape is None else (shape,)
    wanted = resolve_shape(given, input._a.size, "reshape")
    return apply_view(reshape_op, input, {"shape": wanted})


@api.method
def view(self: Tensor, *shape: Any, dtype: Any = None, size: Any = None) -> Tensor:
    """The same memory in another shape, or as another dtype.

    >>> x = torch.arange(6)
    >>> x.view(2, 3)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    >>> x.view(-1, 2).shape
    torch.Size([3, 2])
    """
    if size is not None:
        shape = (size,)
    if dtype is not None:
        return _view_as_dtype(self, dtype)
    if len(shape) == 1 and shape[0].__class__ is not int:
        if isinstance(shape[0], dt.dtype):
            return _view_as_dtype(self, shape[0])
        if isinstance(shape[0], str):
            raise TypeError(f"view() takes sizes or a dtype, not a str\n  at {errors.here()}")
    array = self._a
    call = view_op.call
    if call is not None and array.flags.c_contiguous:
        for n in shape:
            if n.__class__ is not int or n < 0:
                break
        else:
            seen = call({"shape": shape}, 1, self)  # NumPy counts the elements
            if seen is not None:
                return seen
    wanted = resolve_shape(shape, array.size, "view")
    if not array.flags.c_contiguous and not _viewable(array.shape, array.strides, wanted):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead: shape "
            f"{list(array.shape)}, strides {self.stride()}, wanted {list(wanted)}\n"
            f"  at {errors.here()}"
        )
    return apply_view(view_op, self, {"shape": wanted})


def _viewable(old: tuple[int, ...], strides: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    model = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), old, strides)  # never read
    try:
        np.reshape(model, shape, copy=False)
    except ValueError:
        return False
    return True


def _view_as_dtype(x: Tensor, d: Any) -> Tensor:
    """The same bytes as elements of another type."""
    array, new = x._a, d.np
    old_size, new_size = array.itemsize, new.itemsize
    if new_size == old_size:
        return _same_memory(x, viewed_as(array, new))
    _check_dtype_view(x, d)
    if new_size < old_size:
        ratio = old_size // new_size
        shape = (*array.shape[:-1], array.shape[-1] * ratio)
    else:
        shape = (*array.shape[:-1], array.shape[-1] * old_size // new_size)
    if not array.size:
        return _same_memory(x, put_like(array, np.empty(shape, new)))
    return _same_memory(x, viewed_as(array, new))


def _check_dtype_view(x: Tensor, d: Any) -> None:
    """PyTorch's rules for seeing memory as elements of another size."""
    array, ratio = x._a, d.itemsize // x._a.itemsize
    what = f"to view {x.dtype.name} as {d.name} (different element sizes)"
    if not array.ndim:
        raise RuntimeError(f"self.dim() cannot be 0 {what}\n  at {errors.here()}")
    strides = x.stride()
    if array.size and strides[-1] != 1 and array.shape[-1] != 1:
        raise RuntimeError(
            f"self.stride(-1) must be 1 {what}, but got {strides[-1]}\n  at {errors.here()}"
        )
    if ratio < 2:
        return
    if array.shape[-1] % ratio:
        raise RuntimeError(
            f"self.size(-1) must be divisible by {ratio} {what}, but got {array.shape[-1]}\n"
            f"  at {errors.here()}"
        )
    if x.storage_offset() % ratio:
        raise RuntimeError(
            f"self.storage_offset() must be divisible by {ratio} {what}, but got "
            f"{x.storage_offset()}\n  at {errors.here()}"
        )
    for dim, step in enumerate(strides[:-1]):
        if step % ratio and array.shape[dim] > 1:
            raise RuntimeError(
                f"self.stride({dim}) must be divisible by {ratio} {what}, but got {step}\n"
                f"  at {errors.here()}"
            )


def _same_memory(x: Tensor, array: np.ndarray) -> Tensor:
    # Other bytes than the graph knows of: no gradient, but one count of changes.
    made = wrap(array)
    made._vc = x._vc
    return made


@api.method
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the other's shape.

    >>> torch.arange(4).view_as(torch.zeros(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    return view(self, other._a.shape)


@api.method
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the other's shape, copied if need be."""
    return reshape(self, other._a.shape)


@api.both
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Several neighbouring dimensions as one.

    >>> x = torch.zeros(2, 3, 4)
    >>> x.flatten().shape
    torch.Size([24])
    >>> torch.flatten(x, start_dim=1).shape
    torch.Size([2, 12])
    """
    array = input._a
    if start_dim == 0 and end_dim == -1 and array.ndim > 1:
        return apply_view(reshape_op, input, {"shape": (array.size,)})
    shape = array.shape
    rank = len(shape)
    start, end = api.wrap_dim(start_dim, rank), api.wrap_dim(end_dim, rank)
    if start > end:
        raise RuntimeError(
            f"flatten() has invalid args: start_dim cannot come after end_dim\n  at {errors.here()}"
        )
    if not rank:
        return apply_view(reshape_op, input, {"shape": (1,)})
    if start == end:
        return input
    merged = prod(shape[start : end + 1])
    return apply_view(reshape_op, input, {"shape": (*shape[:start], merged, *shape[end + 1 :])})


@api.both
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension, one after another in memory."""
    return reshape_op(input.contiguous(), shape=(input._a.size,))


@api.both
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """One dimension as several."""
    if isinstance(dim, str):
        raise TypeError(f"unflatten(): argument 'dim' must be int, not str\n  at {errors.here()}")
    d = api.wrap_dim(dim, input.ndim)
    shape = input._a.shape
    wanted = api.shape_argument((sizes,))
    if not wanted:
        raise RuntimeError(f"unflatten: sizes must be non-empty\n  at {errors.here()}")
    size = shape[d] if shape else 1
    if -1 not in wanted and prod(wanted) != size:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(wanted)} don't multiply up to the size of dim {d} "
            f"({size}) in the input tensor\n  at {errors.here()}"
        )
    inner = resolve_shape(wanted, size, "unflatten")
    return view(input, (*shape[:d], *inner, *shape[d + 1 :]))


# --- squeeze, unsqueeze, expand --------------------------------------------------------

unsqueeze_op = linear(
    "unsqueeze",
    lambda x, dim: x.reshape((*x.shape[:dim], 1, *x.shape[dim:])),
    lambda g, x_shape: reshape_op(g, shape=x_shape),
    view=True,
    samples=lambda m: [Sample((m.real(2, 3),), {"dim": 1})],
    shape=lambda x, dim: (*x.shape[:dim], 1, *x.shape[dim:]),
    batch=batch_rules.along,
)


@api.both
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A new dimension of length one.

    >>> x = torch.tensor([1, 2, 3])
    >>> x.unsqueeze(0).shape
    torch.Size([1, 3])
    >>> x.unsqueeze(1)
    tensor([[1],
            [2],
            [3]])
    """
    return apply_view(unsqueeze_op, input, {"dim": api.wrap_dim(dim, input._a.ndim + 1)})


squeeze_op = linear(
    "squeeze",
    # NumPy gives the array itself if there is nothing to leave out; a view is another one.
    lambda x, dims, variant=0: x.squeeze(dims) if dims else x[...],
    lambda g, x_shape: reshape_op(g, shape=x_shape),
    variant=lambda attrs, inputs: attrs.get("variant", 0),
    view=True,
    samples=lambda m: [Sample((m.real(2, 1, 3, 1),), {"dims": (1, 3)})],
    shape=lambda x, dims: tuple(n for i, n in enumerate(x.shape) if i not in dims),
    batch=batch_rules.along,
)


@api.both
def squeeze(input: Tensor, dim: Any = None, *, axis: Any = None) -> Tensor:
    """Without the dimensions of length one.

    >>> x = torch.zeros(1, 3, 1)
    >>> x.squeeze().shape
    torch.Size([3])
    >>> x.squeeze(0).shape
    torch.Size([3, 1])
    """
    if axis is not None:
        dim = axis
    shape = input._a.shape
    if dim is None:
        units: tuple[int, ...] = ()
        if 1 in shape:
            units = tuple([d for d, n in enumerate(shape) if n == 1])
        return apply_view(squeeze_op, input, {"dims": units, "variant": 0})
    chosen = api.dims(dim, len(shape))
    units = tuple([d for d in chosen if shape and shape[d] == 1])
    variant = 1 if isinstance(dim, int) else 2
    return apply_view(squeeze_op, input, {"dims": units, "variant": variant})


def _unit_strides(shape: Any, strides: Any, itemsize: int) -> tuple[int, ...]:
    """Strides in which a dimension of length one steps over all that is inside it."""
    found = list(strides)
    for d in range(len(shape) - 1, -1, -1):
        if shape[d] == 1 and not found[d]:
            last = d + 1 == len(shape)
            found[d] = itemsize if last else shape[d + 1] * found[d + 1]
    return tuple(found)


def _expand(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    own, strides = x.shape, x.strides
    lead = len(shape) - len(own)
    if shape[lead:] != own:
        pairs = zip(own, shape[lead:], strides, strict=True)
        strides = tuple([0 if n == 1 and m != 1 else s for n, m, s in pairs])
    strides = (0,) * lead + strides
    if lead and 1 in shape:
        strides = _unit_strides(shape, strides, x.itemsize)
    return strided(x, shape, strides)


def _expand_batch(b: BatchedCall) -> Any:
    shape = b.attrs["shape"]
    return b.run(aligned(b.args[0], len(shape)), shape=(b.size, *shape))


expand_op = linear(
    "expand",
    _expand,
    lambda g: g,  # the engine sums a gradient down to its input's shape
    view=True,
    samples=lambda m: [Sample((m.real(2, 1),), {"shape": (3, 2, 4)})],
    shape=shape_rules.expanded,
    batch=_expand_batch,
)


@api.method
def expand(self: Tensor, *sizes: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """Repeat along dimensions of length one, without copying.

    >>> x = torch.tensor([[1], [2]])
    >>> x.expand(2, 3)
    tensor([[1, 1, 1],
            [2, 2, 2]])
    >>> x.expand(-1, 4).shape
    torch.Size([2, 4])
    """
    given = api.shape_argument(sizes if size is None else (size,))
    shape = self._a.shape
    lead = len(given) - len(shape)
    if lead >= 0 and given[lead:] == shape and (not lead or min(given[:lead]) >= 0):
        return apply_view(expand_op, self, {"shape": given})
    wanted = list(given)
    if lead < 0:
        raise RuntimeError(
            f"expand(torch.{self.dtype.name}{{{list(shape)}}}, size={wanted}): the number of sizes "
            f"provided ({len(wanted)}) must be greater or equal to the number of dimensions in "
            f"the tensor ({len(shape)})\n  at {errors.here()}"
        )
    for i, size in enumerate(wanted):
        have = shape[i - lead] if i >= lead else None
        if size == -1:
            if have is None:
                raise RuntimeError(
                    f"expand: The expanded size of the tensor (-1) isn't allowed in a leading, "
                    f"non-existing dimension {i}\n  at {errors.here()}"
                )
            wanted[i] = have
        elif have is not None and have != size and have != 1:
            raise RuntimeError(
                f"expand: The expanded size of the tensor ({size}) must match the existing size "
                f"({have}) at non-singleton dimension {i}.  Target sizes: {wanted}.  Tensor "
                f"sizes: {list(shape)}\n  at {errors.here()}"
            )
    return apply_view(expand_op, self, {"shape": tuple(wanted)})


@api.method
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Repeat to the other's shape, without copying.

    >>> torch.tensor([[1], [2]]).expand_as(torch.zeros(2, 3))
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    return expand(self, other._a.shape)


@api.both
def broadcast_to(input: Tensor, *size: Any) -> Tensor:
    """Repeat to a shape, without copying."""
    return expand(input, *size)


# --- slices and parts ------------------------------------------------------------------


def _placed(g: np.ndarray, shape: tuple[int, ...], index: Any) -> np.ndarray:
    out = np.zeros_like(g, order="C", shape=shape)
    out[index] = g
    return out


def _sliced(x: np.ndarray, index: tuple[Any, ...]) -> np.ndarray:
    seen = x[index] if ... in index else x[(*index, ...)]
    if None in index and 0 in seen.strides:
        return strided(seen, seen.shape, _unit_strides(seen.shape, seen.strides, x.itemsize))
    return seen


# Basic indexing with ints, slices, None and Ellipsis: always a view.
def _name_of_slice(attrs: dict[str, Any], inputs: Any) -> str:
    """The name of the last of the views that PyTorch makes for an index, one for each place."""
    for place in reversed(attrs["index"]):
        if place is None:
            return "UnsqueezeBackward0"
        if isinstance(place, slice):
            if place != slice(None):
                break
        elif place is not Ellipsis:
            return "SelectBackward0"
    return "SliceBackward0"


slice_op = linear(
    "slice",
    _sliced,
    lambda g, x_shape, index: place_op(g, shape=x_shape, index=index),
    variant=_name_of_slice,
    view=True,
    samples=lambda m: [
        Sample((m.real(4, 3),), {"index": (slice(1, 4, 2),)}),
        Sample((m.real(4, 3),), {"index": (2, slice(0, 2))}),
        Sample((m.real(4, 3),), {"index": (None, 3, 1)}),
    ],
    shape=shape_rules.sliced,
    batch=lambda b: b.run(b.args[0], **{**b.attrs, "index": (slice(None), *b.attrs["index"])}),
)
place_op: Op = linear(
    "place",
    _placed,
    lambda g, index: slice_op(g, index=index),
    grad_name="SliceScatterBackward",
    samples=lambda m: [Sample((m.real(2, 3),), {"shape": (4, 3), "index": (slice(1, 4, 2),)})],
    shape=shape_rules.shape_attribute,
    batch=lambda b: b.run(
        b.args[0], shape=(b.size, *b.attrs["shape"]), index=(slice(None), *b.attrs["index"])
    ),
)
select_op = linear(
    "select",
    lambda x, dim, index: x[(slice(None),) * dim + (index, ...)],
    lambda g, x_shape, dim, index: place_op(
        g, shape=x_shape, index=(slice(None),) * dim + (index,)
    ),
    view=True,
    samples=lambda m: [Sample((m.real(4, 3),), {"dim": 1, "index": 2})],
    shape=lambda x, dim: shape_rules.without(x.shape, dim),
    batch=batch_rules.along,
)


@api.both
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One slice along a dimension."""
    if not input.ndim:
        raise IndexError(f"select() cannot be applied to a 0-dim tensor.\n  at {errors.here()}")
    d, index = api.wrap_dim(dim, input.ndim), _whole(index, "select(): argument 'index'")
    size = input._a.shape[d]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input._a.shape)} at "
            f"dimension {d}\n  at {errors.here()}"
        )
    return select_op(input, dim=d, index=index % size)


def _whole(value: Any, argument: str) -> int:
    """A whole number; a float is none, even if it has no fraction."""
    if isinstance(value, (float, complex)):
        raise TypeError(f"{argument} must be int, not {type(value).__name__}\n  at {errors.here()}")
    if isinstance(value, Tensor) and not value.is_meta:
        taken(value)
    return int(value)


@api.both
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A range along a dimension, as a view."""
    if not input._a.ndim:
        raise RuntimeError(f"narrow() cannot be applied to a 0-dim tensor.\n  at {errors.here()}")
    if not input.ndim:
        raise RuntimeError(f"narrow() cannot be applied to a 0-dim tensor.\n  at {errors.here()}")
    if isinstance(start, Tensor) and (start._a.ndim or start._a.dtype.kind not in "iu"):
        raise RuntimeError(f"start must be an 0-dim integral Tensor.\n  at {errors.here()}")
    d = api.wrap_dim(dim, input.ndim)
    start, length = _whole(start, "narrow(): 'start'"), _whole(length, "narrow(): 'length'")
    size = input._a.shape[d]
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative.\n  at {errors.here()}")
    if not -size <= start <= size:
        raise IndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got "
            f"{start})\n  at {errors.here()}"
        )
    first = start + size if start < 0 else start
    if first + length > size:
        raise RuntimeError(
            f"narrow(): start ({start}) + length ({length}) exceeds dimension size ({size}).\n"
            f"  at {errors.here()}"
        )
    return slice_op(input, index=(slice(None),) * d + (slice(first, first + length),))


def _split(x: np.ndarray, sizes: tuple[int, ...], dim: int) -> tuple[np.ndarray, ...]:
    parts, start = [], 0
    lead = (slice(None),) * dim
    for size in sizes:
        end = start + size
        parts.append(x[(*lead, slice(start, end))])
        start = end
    return tuple(parts)


split_op = linear(
    "split",
    _split,
    lambda g, dim: cat_op(*g, dim=dim),
    view=True,
    multiple=True,
    samples=lambda m: [Sample((m.real(5, 3),), {"sizes": (2, 2, 1), "dim": 0})],
    shape=lambda x, sizes, dim: [shape_rules.replaced(x.shape, dim, n) for n in sizes],
    batch=batch_rules.along,
)


def _equal_sizes(size: int, step: int) -> tuple[int, ...]:
    """The sizes of parts of one size, the last of which may be smaller."""
    whole, rest = divmod(size, step)
    return (step,) * whole + ((rest,) if rest else ())


def _check_rank(x: Tensor, name: str) -> None:
    if not x._a.ndim:
        raise RuntimeError(f"{name} expects at least a 1-dimensional tensor\n  at {errors.here()}")


@api.top
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts along a dimension: of one size, or of the sizes given."""
    return apply(split_op, (tensor,), split_attributes(tensor, split_size_or_sections, dim))


def split_attributes(tensor: Tensor, split_size_or_sections: Any, dim: int) -> dict[str, Any]:
    """The sizes of all parts, and the dimension counted from the front."""
    if not tensor._a.ndim:
        raise RuntimeError(f"split expects at least a 1-dimensional tensor\n  at {errors.here()}")
    shape = tensor._a.shape
    d = api.wrap_dim(dim, len(shape))
    size = shape[d]
    if isinstance(split_size_or_sections, (int, np.integer)):
        step = int(split_size_or_sections)
        if step < 0 or (step == 0 and size):
            raise RuntimeError(
                f"split expects split_size be non-negative, but got split_size={step}\n"
                f"  at {errors.here()}"
            )
        sizes = _equal_sizes(size, step) if size else (0,)
    else:
        sizes = tuple(int(s) for s in split_size_or_sections)
        if sum(sizes) != size or any(s < 0 for s in sizes):
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's "
                f"size at dimension {d}), but got split_sizes={list(sizes)}\n  at {errors.here()}"
            )
    return {"sizes": sizes, "dim": d}


@api.method(name="split")
def _split_method(self: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts along a dimension: of one size, or of the sizes given.

    >>> torch.arange(5).split(2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    >>> torch.arange(5).split([1, 4])
    (tensor([0]), tensor([1, 2, 3, 4]))
    """
    return split(self, split_size, dim)


@api.both
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of the sizes given."""
    return split(input, tuple(split_sizes), dim)


@api.both
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most so many parts of equal size along a dimension.

    >>> torch.arange(5).chunk(2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    return apply(split_op, (input,), chunk_attributes(input, chunks, dim))


def chunk_attributes(input: Tensor, chunks: int, dim: int) -> dict[str, Any]:
    """The same for a number of parts."""
    if not input._a.ndim:
        _check_rank(input, "chunk")
    if chunks <= 0:
        raise RuntimeError(
            f"chunk expects `chunks` to be greater than 0, got: {chunks}\n  at {errors.here()}"
        )
    shape = input._a.shape
    d = api.wrap_dim(dim, len(shape))
    size = shape[d]
    step = -(-size // chunks)
    sizes = _equal_sizes(size, step) if step else (0,) * chunks
    return {"sizes": sizes, "dim": d}


unbind_op = linear(
    "unbind",
    lambda x, dim: tuple(x[(slice(None),) * dim + (i, ...)] for i in range(x.shape[dim])),
    lambda g, dim: stack_op(*g, dim=dim),
    view=True,
    multiple=True,
    samples=lambda m: [Sample((m.real(3, 2),), {"dim": 1})],
    shape=lambda x, dim: [shape_rules.without(x.shape, dim)] * index(x.shape[dim]),
    batch=batch_rules.along,
)


@api.both
def unbind(input: Tensor, dim: int = 0, *, axis: int | None = None) -> tuple[Tensor, ...]:
    """All slices along a dimension.

    >>> torch.tensor([[1, 2], [3, 4]]).unbind()
    (tensor([1, 2]), tensor([3, 4]))
    >>> a, b = torch.unbind(torch.tensor([[1, 2], [3, 4]]), dim=1)
    >>> b
    tensor([2, 4])
    """
    attributes = unbind_attributes(input, dim if axis is None else axis)
    return () if attributes is None else unbind_op(input, **attributes)


def unbind_attributes(input: Tensor, dim: int) -> dict[str, Any] | None:
    """The dimension counted from the front, unless it has no slices."""
    if not input.ndim:
        raise IndexError(
            f"unbind: Dimension specified as {dim} but tensor has no dimensions\n"
            f"  at {errors.here()}"
        )
    d = api.wrap_dim(dim, input.ndim)
    return {"dim": d} if input._a.shape[d] else None


# --- cat and stack, the transposes of split and unbind ---------------------------------


def _cat_rule(g: Any, needs: Any, shapes: Any, dim: int) -> tuple[Any, ...]:
    parts, start = [], 0
    for need, shape in zip(needs, shapes, strict=True):
        if shape == (0,):
            parts.append(zeros_of(g, shape) if need else None)  # PyTorch skips such inputs
            continue
        end = start + shape[dim]
        part: Any = (*(slice(None),) * dim, slice(start, end), ...)
        if not need:
            parts.append(None)
        else:
            parts.append(g[part] if g.__class__ is np.ndarray else slice_op(g, index=part[:-1]))
        start = end
    return tuple(parts)


def _cat(*parts: np.ndarray, dim: int) -> np.ndarray:
    try:
        return np.concatenate(parts, dim)
    except ValueError:
        # As in PyTorch an empty vector can be joined to anything.
        rank = parts[0].ndim
        if all(part.ndim == rank for part in parts):
            raise
        return np.concatenate(tuple(p for p in parts if p.shape != (0,)) or parts[:1], dim)


def _joined_batch(b: BatchedCall) -> Any:
    # Parts of no elements and one dimension are passed over, whatever the rank of the others.
    ranks = {x._a.ndim for x in b.logical}
    return b.run(*b.leads(), dim=b.attrs["dim"] + 1) if len(ranks) == 1 else each(b)


cat_op: Op = linear(
    "cat",
    _cat,
    joint=_cat_rule,
    names=(),
    promote="same",
    variadic=True,
    samples=lambda m: [Sample((m.real(2, 3), m.real(1, 3), m.real(0, 3)), {"dim": 0})],
    layout="rows or stacked last",
    shape=shape_rules.joined,
    batch=_joined_batch,
)


SEQUENCES = (list, tuple)


def need_several(function: str, tensors: Any) -> None:
    """Refuse one tensor where a sequence of them is wanted."""
    if isinstance(tensors, Tensor):
        raise TypeError(
            f"{function}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor\n"
            f"  at {errors.here()}"
        )


@api.top
def cat(tensors: Any, dim: int = 0, *, axis: int | None = None, out: Any = None) -> Tensor:
    """Tensors joined along a dimension that they have.

    >>> x = torch.tensor([[1, 2]])
    >>> torch.cat([x, x * 10])
    tensor([[ 1,  2],
            [10, 20]])
    >>> torch.cat([x, x * 10], dim=1)
    tensor([[ 1,  2, 10, 20]])
    """
    if axis is not None:
        dim = axis
    if out is not None:
        return put_into(out, cat, (tensors, dim), "cat")
    # The common case: a list of tensors, and a dim from the front that the first of them has.
    call = cat_op.call
    if call is not None and tensors.__class__ in SEQUENCES and dim.__class__ is int and tensors:
        first = tensors[0]
        if isinstance(first, Tensor) and 0 <= dim < first._a.ndim:
            joined = call({"dim": dim}, 1, *tensors)
            if joined is not None:
                return joined
    need_several("cat", tensors)
    parts = tuple(tensors)
    if not parts:
        raise ValueError(f"torch.cat(): expected a non-empty list of Tensors\n  at {errors.here()}")
    rank, zero = 0, -1
    for k, part in enumerate(parts):
        if not isinstance(part, Tensor):
            raise TypeError(
                f"cat: expected Tensor as element {k} in argument 0, but got "
                f"{type(part).__name__}\n  at {errors.here()}"
            )
        n = part._a.ndim
        if n > rank:
            rank = n
        elif not n and zero < 0:
            zero = k
    if zero >= 0:
        raise RuntimeError(
            f"cat: zero-dimensional tensor (at position {zero}) cannot be concatenated; use "
            f"stack()\n  at {errors.here()}"
        )
    if rank == 1 and dim not in (0, -1) and not any(p._a.size for p in parts):
        dim = 0  # an empty tensor of one dimension can be joined along any
    dim = api.wrap_dim(dim, rank)
    try:
        return apply(cat_op, parts, {"dim": dim})
    except (ValueError, IndexError, RuntimeError) as error:
        _check_joinable(parts, dim)
        raise error


def _check_joinable(parts: tuple[Tensor, ...], dim: int) -> None:
    """Say which of the tensors does not fit the others, if it is their sizes that do not."""
    shapes = [(k, p._a.shape) for k, p in enumerate(parts) if p._a.shape != (0,)]
    for k, shape in shapes:
        first = shapes[0][1]
        if len(shape) != len(first):
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)}. "
                f"Tensor number {k} has the shape {list(shape)}\n  at {errors.here()}"
            ) from None
        for d, (wanted, size) in enumerate(zip(first, shape, strict=True)):
            if d != dim and size != wanted:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size "
                    f"{wanted} but got size {size} for tensor number {k} in the list. They differ "
                    f"in dimension {d}\n  at {errors.here()}"
                ) from None


api.alias("cat", "concat", "concatenate")


def _stack(*parts: np.ndarray, dim: int) -> np.ndarray:
    shape = parts[0].shape
    if dim < len(shape) and len({p.shape for p in parts}) == 1:
        # As in PyTorch joined along the dimension that the new one divides: images with the
        # channels innermost keep that order.
        return np.concatenate(parts, dim).reshape((*shape[:dim], len(parts), *shape[dim:]))
    place = (*(slice(None),) * dim, None)
    return np.ascontiguousarray(np.concatenate([p[place] for p in parts], dim))


stack_op: Op = linear(
    "stack",
    _stack,
    joint=lambda g, needs, dim: tuple(
        select_op(g, dim=dim, index=i) if need else None for i, need in enumerate(needs)
    ),
    names=(),
    promote="same",
    variadic=True,
    samples=lambda m: [Sample((m.real(2, 3), m.real(2, 3)), {"dim": 1})],
    layout="rows or stacked last",
    shape=shape_rules.stacked,
    batch=_joined_batch,
)


@api.top
def stack(tensors: Any, dim: int = 0, *, axis: int | None = None, out: Any = None) -> Tensor:
    """Tensors of one shape joined along a new dimension.

    >>> x, y = torch.tensor([1, 2]), torch.tensor([3, 4])
    >>> torch.stack([x, y])
    tensor([[1, 2],
            [3, 4]])
    >>> torch.stack([x, y], dim=1)
    tensor([[1, 3],
            [2, 4]])
    """
    if axis is not None:
        dim = axis
    if out is not None:
        return put_into(out, stack, (tensors, dim), "stack")
    call = stack_op.call
    if call is not None and tensors.__class__ in SEQUENCES and dim.__class__ is int and tensors:
        first = tensors[0]
        if isinstance(first, Tensor) and 0 <= dim <= first._a.ndim:
            stacked = call({"dim": dim}, 1, *tensors)  # NumPy compares the shapes
            if stacked is not None:
                return stacked
    need_several("stack", tensors)
    parts = tuple(tensors)
    if not parts:
        raise RuntimeError(f"stack expects a non-empty TensorList\n  at {errors.here()}")
    for k, part in enumerate(parts):
        if not isinstance(part, Tensor):
            raise TypeError(
                f"stack: expected Tensor as element {k} in argument 0, but got "
                f"{type(part).__name__}\n  at {errors.here()}"
            )
        if not k:
            first = part._a.shape
        elif part._a.shape != first:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 "
                f"and {list(part._a.shape)} at entry {k}\n  at {errors.here()}"
            )
    return apply(stack_op, parts, {"dim": api.wrap_dim(dim, len(first) + 1)})


# --- diagonal, real and imaginary parts ------------------------------------------------


def _diagonal_place(g: np.ndarray, shape: Any, offset: int, dim1: int, dim2: int) -> np.ndarray:
    out = np.zeros(shape, g.dtype)
    _writable(out.diagonal(offset, dim1, dim2))[...] = g
    return out


def _writable(x: np.ndarray) -> np.ndarray:
    if not x.flags.writeable:
        x.flags.writeable = True
    return x


diagonal_op = linear(
    "diagonal",
    lambda x, offset, dim1, dim2: _writable_like(x, x.diagonal(offset, dim1, dim2)),
    lambda g, x_shape, offset, dim1, dim2: diagonal_place_op(
        g, shape=x_shape, offset=offset, dim1=dim1, dim2=dim2
    ),
    view=True,
    samples=lambda m: [Sample((m.real(3, 4, 2),), {"offset": 1, "dim1": 0, "dim2": 1})],
    shape=shape_rules.diagonal,
    batch=batch_rules.along,
)
diagonal_place_op: Op = linear(
    "diagonal_place",
    _diagonal_place,
    lambda g, offset, dim1, dim2: diagonal_op(g, offset=offset, dim1=dim1, dim2=dim2),
    grad_name="DiagEmbedBackward",
    samples=lambda m: [
        Sample((m.real(2, 3),), {"shape": (3, 4, 2), "offset": 1, "dim1": 0, "dim2": 1})
    ],
    shape=shape_rules.shape_attribute,
    batch=batch_rules.along,
)


def _writable_like(owner: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _writable(x) if owner.flags.writeable else x


@api.both
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A diagonal of the matrices in two dimensions, as a last dimension."""
    rank = input.ndim
    first, second = api.wrap_dim(dim1, rank), api.wrap_dim(dim2, rank)
    if first == second:
        raise RuntimeError(
            f"diagonal dimensions cannot be identical {dim1}, {dim2}\n  at {errors.here()}"
        )
    return diagonal_op(input, offset=offset, dim1=first, dim2=second)


real_op = linear(
    "real",
    lambda x: x.real,
    lambda g, x_dtype: _to_complex(g, x_dtype),
    view=True,
    samples=lambda m: [Sample((m.real(3) + 1j * m.real(3),))],
    shape=lambda x: x.of(shape_rules.real(x.dtype)),
    batch=batch_rules.leading,
)
imag_op = linear(
    "imag",
    lambda x: x.imag,
    lambda g, x_dtype: _to_complex(g, x_dtype, 1j),
    view=True,
    samples=lambda m: [Sample((m.real(3) + 1j * m.real(3),))],
    shape=lambda x: x.of(shape_rules.real(x.dtype)),
    batch=batch_rules.leading,
)


def _to_complex(g: Any, wanted: np.dtype, unit: complex = 1.0) -> Any:
    if isinstance(g, Tensor):
        return g * wrap(np.asarray(unit, wanted))
    return (g * wanted.type(unit)).astype(wanted)


@api.top
def real(input: Tensor) -> Tensor:
    """The real part, as a view."""
    return real_op(input) if input.is_complex() else input


@api.top
def imag(input: Tensor) -> Tensor:
    """The imaginary part, as a view."""
    if not input.is_complex():
        raise RuntimeError(
            f"imag is not implemented for tensors with non-complex dtypes ({input.dtype}).\n"
            f"  at {errors.here()}"
        )
    return imag_op(input)


def _set_part(part: Any) -> Any:
    def setter(self: Tensor, value: Any) -> None:
        part(self).copy_(value if isinstance(value, Tensor) else wrap(np.asarray(value)))

    return setter


Tensor.real = property(real, _set_part(real))
Tensor.imag = property(imag, _set_part(imag))

# --- windows ---------------------------------------------------------------------------


def _unfold(x: np.ndarray, dim: int, size: int, step: int) -> np.ndarray:
    if not x.ndim:
        return strided(x, (size,), (x.itemsize,))
    count = (x.shape[dim] - size) // step + 1
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], size)
    strides = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim])
    return strided(x, shape, strides)


def _unfold_back(g: np.ndarray, shape: Any, dim: int, size: int, step: int) -> np.ndarray:
    out = np.zeros(shape, g.dtype)
    if not shape:
        return out + g.sum()
    windows = _unfold(out, dim, size, step)
    for k in range(size):  # windows overlap: add one position of all of them at a time
        windows[..., k] += g[..., k]
    return out


unfold_op = linear(
    "unfold",
    _unfold,
    lambda g, x_shape, dim, size, step: unfold_back_op(
        g, shape=x_shape, dim=dim, size=size, step=step
    ),
    view=True,
    samples=lambda m: [Sample((m.real(5, 2),), {"dim": 0, "size": 3, "step": 1})],
    shape=shape_rules.unfolded,
    batch=lambda b: batch_rules.along(b) if b.rank() else each(b),
)
unfold_back_op: Op = linear(
    "unfold_backward",
    _unfold_back,
    lambda g, dim, size, step: unfold_op(g, dim=dim, size=size, step=step),
    samples=lambda m: [
        Sample((m.real(3, 2, 3),), {"shape": (5, 2), "dim": 0, "size": 3, "step": 1})
    ],
    shape=shape_rules.shape_attribute,
    batch=batch_rules.along,
)


@api.method
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows along a dimension, as a last dimension; overlapping ones share memory."""
    d = api.wrap_dim(dimension, self.ndim)
    size, step = (
        _whole(size, "unfold(): argument 'size'"),
        _whole(step, "unfold(): argument 'step'"),
    )
    length = self._a.shape[d] if self.ndim else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0\n  at {errors.here()}")
    if size > length:
        raise RuntimeError(
            f"maximum size for tensor at dimension {d} is {length} but size is {size}\n"
            f"  at {errors.here()}"
        )
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0\n  at {errors.here()}")
    return unfold_op(self, dim=d, size=size, step=step)


# --- the base of a view that was changed in place --------------------------------------


def empty_in_layout(shape: Any, d: np.dtype, strides: Any) -> np.ndarray:
    """A new array whose dimensions have the memory order of the strides."""
    order = sorted(range(len(shape)), key=lambda i: (-abs(strides[i]), i))
    made = np.empty([shape[i] for i in order], d)
    return made.transpose(np.argsort(order)) if order else made


# What views by places in memory show of other values of their input's shape, by the op's name.
BY_PLACE: dict[str, Any] = {}


def shown(x: Any, chain: Any) -> Any:
    """What a view shows of other values of its base's shape, which may have another layout."""
    for op, rest, attrs, k, _, _ in links_of(chain):
        by_place = BY_PLACE.get(op.name)
        x = op(x, *rest, **attrs) if by_place is None else by_place(x, **attrs)
        if op.multiple:
            x = x[k]
    return x


def _copy_slices(base: np.ndarray, part: Any, chain: Any) -> np.ndarray:
    steps = base.strides
    out = (
        np.empty(base.shape, base.dtype)
        if 0 in steps
        else empty_in_layout(base.shape, base.dtype, steps)
    )
    out[...] = base
    by_place = any(op.name in BY_PLACE for op, *_ in links_of(chain))
    for _ in range(0 if by_place else 2):
        seen = follow(out, chain)
        if not seen.size or np.may_share_memory(seen, out):
            seen[...] = part
            return out
        # A gradient need not have the base's layout: most bases are row-major.
        out = np.array(out, order="C")
    numbers = np.arange(1, out.size + 1).reshape(out.shape)
    places = shown(numbers, chain) - 1
    at = places >= 0  # memory between the elements is unused
    out.flat[places[at]] = np.broadcast_to(part, places.shape)[at]
    return out


copy_slices_op: Op = linear(
    "copy_slices",
    _copy_slices,
    lambda g, part_shape, chain: copy_slices_op(
        g, zeros_of(shown(g, chain), part_shape), chain=chain
    ),
    lambda g, chain: shown(g, chain),
    names=("base", "part"),
    together=True,
    grad_name="CopySlices",
    single_use=True,
    samples=lambda m: [
        Sample(
            (m.real(4, 3), m.real(3)),
            {"chain": (select_op, (), {"dim": 0, "index": 1}, 0, None, True)},
        )
    ],
    shape=lambda base: shape_rules.preserved(base),
)

# --- in place: another shape for the same tensor ---------------------------------------


# The reference count of a version cell that a tensor, one view of it and the caller hold.
CELL_OF_TWO = 3


def _undoing(view: Any, old: np.ndarray) -> tuple[Any, ...]:
    """The op, arguments and output by which a tensor gets back the geometry it had before."""
    op, rest, attrs = view[:3]
    if op is transpose_op or op is t_op:
        return op, rest, attrs, 0
    return view_op, (), {"shape": old.shape}, 0


def in_place_view(name: str, function: Any) -> None:
    """Offer ``Tensor.<name>``, which gives the tensor itself the geometry of its view."""

    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_change(self, name)
        seen, recording = function(self, *args, **kwargs), MODES.now.grad
        view: Any = self._view
        was_base = self._base is None
        if recording:
            check_writable(self, seen._node is not None, name[:-1])
        retained = take_retained(self)
        tangents = self._x.get("tangents") if self._x is not None else None
        tracked = self._vc.__class__ is list
        if self._base is None and tracked and getrefcount(self._vc) > CELL_OF_TWO:
            # Views of this tensor were made from its old geometry.
            if recording and seen._view is not None:
                self._view = Turned(_undoing(seen._view, self._a), view)
            else:
                # The node has that geometry still, so this lives on as their base.
                self._base = wrap(self._a, self._node)
                self._base._vc, self._base._view = self._vc, view
                for level, tangent in (tangents or {}).items():
                    set_tangent(self._base, level, tangent)
        exchange(self, seen._a)
        self._vc[0] = version_of(self) + 1
        if recording:
            self._node = seen._node
        if self._base is not None:
            self._view = seen._view or view
            if not recording and seen._view is not None:
                # What is not recorded takes nothing away: a view is replayed when used next.
                self._view = (*seen._view[:5], True if was_base else view[5])
            if recording or was_base:
                self._stamp = self._vc[0]
        give_retained(self, retained)
        for level, tangent in ((tangents and tangents_of(seen)) or {}).items():
            set_tangent(self, level, tangent)
        return self

    change.__name__ = name
    change.__doc__ = f"``{name[:-1]}`` of the tensor itself, which keeps its memory."
    setattr(Tensor, name, change)


for _name, _function in (
    ("squeeze_", squeeze),
    ("unsqueeze_", unsqueeze),
    ("transpose_", transpose),
    ("t_", t),
    ("swapaxes_", swapaxes),
    ("swapdims_", transpose),
):
    in_place_view(_name, _function)
