"""Sparse tensors in coordinate format: entries as a matrix of indices and a tensor of values.

They can be made, also of dense tensors, coalesced, made dense, added to dense tensors, scaled,
transposed and multiplied by matrices, with gradients for the values. All other functions refuse
them and name ``to_dense``.

>>> import weft as torch
>>> x = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 3))
>>> x.to_dense()
tensor([[0., 0., 3.],
        [9., 0., 0.]])
>>> torch.sparse.mm(x, torch.ones(3, 1))
tensor([[3.],
        [9.]])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import weft
from weft.core import making, overrides
from weft.core.errors import here
from weft.core.tensor import Tensor

__all__ = ["mm"]

# Functions that need no values, only the shape and dtype. Of properties that compiled code has
# replaced the original ones are listed: a subclass, such as the one below, restores them.
_ASKING = frozenset(
    (
        *(
            making.PROPERTIES.get(name, getattr(Tensor, name)).__get__
            for name in ("shape", "dtype", "ndim", "itemsize")
        ),
        *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.nelement, Tensor.element_size),
        *(Tensor.is_floating_point, Tensor.is_complex, Tensor.__len__, Tensor.__hash__),
        *(weft.is_floating_point, weft.is_complex, weft.numel),
    )
)


class _CooTensor(Tensor):
    """Indices and values; as a tensor it has the shape and dtype, and no memory."""

    def __new__(
        cls, indices: Tensor, values: Tensor, size: Sequence[int], coalesced: bool
    ) -> _CooTensor:
        made = Tensor._make_subclass(cls, weft.empty(size, dtype=values.dtype, device="meta"))
        made._held = indices, values
        made._coalesced = coalesced or indices.shape[1] < 2
        return made

    def __init__(self, *parts: Any) -> None:
        """All is done where it is made."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function by its rule for sparse tensors; without one it is refused."""
        if func in _ASKING:
            with overrides.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        rule = _RULES.get(getattr(func, "__name__", "").strip("_"))
        found = NotImplemented if rule is None else rule(func, *args, **(kwargs or {}))
        if found is NotImplemented:
            _refuse(str(overrides.NAMES.get(func) or getattr(func, "__name__", func)))
        return found

    is_sparse = property(lambda self: True)
    layout = property(lambda self: weft.sparse_coo)
    device = property(lambda self: weft.device("cpu"))
    is_meta = property(lambda self: False)
    requires_grad = property(lambda self: self._values().requires_grad)  # type: ignore[assignment]
    is_leaf = property(lambda self: self._values().is_leaf)
    grad_fn = property(lambda self: self._values().grad_fn)
    T = property(lambda self: self.t())

    def _indices(self) -> Tensor:
        """One column for each entry."""
        return self._held[0]

    def _values(self) -> Tensor:
        """The entries' values; those with equal indices add up."""
        return self._held[1]

    def _nnz(self) -> int:
        """The number of entries."""
        return self._held[0].shape[1]

    def is_coalesced(self) -> bool:
        """Whether no two entries have the same indices, and they are sorted."""
        return self._coalesced

    def indices(self) -> Tensor:
        """The indices, once there is one entry for each."""
        return self._of_coalesced("indices", 0)

    def values(self) -> Tensor:
        """The values, once there is one entry for each index."""
        return self._of_coalesced("values", 1)

    def _of_coalesced(self, name: str, which: int) -> Tensor:
        if not self._coalesced:
            raise RuntimeError(
                f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first\n"
                f"  at {here()}"
            )
        return self._held[which]

    def sparse_dim(self) -> int:
        """The number of dimensions that have indices."""
        return self._held[0].shape[0]

    def dense_dim(self) -> int:
        """The number of dimensions that every value has."""
        return self._held[1].ndim - 1

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """The same as a dense tensor; gradients reach the values."""
        if dtype is not None:
            raise RuntimeError(f"dtype argument is not supported by sparse_to_dense\n  at {here()}")
        indices, values = self._held
        if not self.sparse_dim():
            return values.sum(0, dtype=values.dtype)
        return weft.zeros(self.shape, dtype=values.dtype).index_put(
            tuple(indices), values, accumulate=True
        )

    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None, **more: Any) -> _CooTensor:
        """The tensor itself."""
        return self

    def to_sparse_coo(self) -> _CooTensor:
        """The tensor itself."""
        return self

    def coalesce(self) -> _CooTensor:
        """One sorted entry for each index, with the sum of the values."""
        if self._coalesced:
            return self
        indices, values = self._held
        sizes = self.shape[: self.sparse_dim()]
        place = indices[0]
        for row, length in zip(indices[1:], sizes[1:], strict=True):
            place = place * length + row
        kept, of = weft.unique(place, return_inverse=True)
        rows = weft.unravel_index(kept, sizes)
        summed = weft.zeros(len(kept), *values.shape[1:], dtype=values.dtype)
        return _CooTensor(weft.stack(list(rows)), summed.index_add(0, of, values), self.shape, True)

    def _with(self, values: Tensor) -> _CooTensor:
        return _CooTensor(self._held[0], values, self.shape, self._coalesced)

    def t(self) -> _CooTensor:
        """Rows and columns exchanged."""
        return self.transpose(0, 1)

    def transpose(self, dim0: int, dim1: int) -> _CooTensor:
        """Two of the dimensions that have indices exchanged."""
        count = self.sparse_dim()
        order, size = list(range(count)), list(self.shape)
        a, b = dim0 % len(size), dim1 % len(size)
        if max(a, b) >= count:
            _refuse("transpose of a dense dimension")
        order[a], order[b] = order[b], order[a]
        size[a], size[b] = size[b], size[a]
        return _CooTensor(self._held[0][order], self._held[1], size, a == b and self._coalesced)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        indices, values = self._held
        lines = [
            f"indices={_indented(indices, 15)}",
            f"values={_indented(values.detach(), 14)}",
            f"size={tuple(self.shape)}, nnz={self._nnz()}",
        ]
        if values.dtype not in (weft.get_default_dtype(), weft.int64, weft.bool):
            lines[-1] += f", dtype={values.dtype}"
        lines[-1] += ", layout=torch.sparse_coo"
        if values.requires_grad:
            lines[-1] += ", requires_grad=True"
        return f"tensor({(',' + chr(10) + ' ' * 7).join(lines)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> _CooTensor:
        indices, values = self._held
        return _CooTensor(indices.clone(), values.detach().clone(), self.shape, self._coalesced)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        _refuse("saving and pickling")

    def numpy(self, *, force: bool = False) -> NoReturn:
        """Raises: an array of NumPy is dense."""
        raise TypeError(
            "can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.\n"
            f"  at {here()}"
        )


def _indented(tensor: Tensor, width: int) -> str:
    if not tensor.numel():
        return f"tensor([], size={tuple(tensor.shape)})"
    text = re.sub(r", dtype=torch\.\w+\)$", ")", repr(tensor))
    return text.replace("\n", "\n" + " " * width)


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"{name}: weft does not have this for sparse tensors. Call to_dense() first\n  at {here()}"
    )


# --- functions that take them ----------------------------------------------------------


def _on_values(func: Callable, x: Any, *args: Any, **kwargs: Any) -> Any:
    return x._with(func(x._values(), *args, **kwargs))


def _sum(func: Callable, x: Any, *args: Any, **kwargs: Any) -> Any:
    return NotImplemented if args or kwargs else x._values().sum()


def _scale(func: Callable, x: Any, y: Any, **kwargs: Any) -> Any:
    if isinstance(x, _CooTensor):
        if isinstance(y, Tensor) and (isinstance(y, _CooTensor) or y.ndim):
            return NotImplemented
        return x._with(func(x._values(), y, **kwargs))
    if isinstance(x, Tensor) and x.ndim:
        return NotImplemented
    return y._with(func(x, y._values(), **kwargs))


def _divide(func: Callable, x: Any, y: Any, **kwargs: Any) -> Any:
    return _scale(func, x, y, **kwargs) if isinstance(x, _CooTensor) else NotImplemented


def _add(func: Any, x: Any, y: Any, **kwargs: Any) -> Any:
    """Into a dense tensor, or the entries of both; also with a factor, and as a difference."""
    if not isinstance(x, _CooTensor):
        if not isinstance(x, Tensor):
            return NotImplemented
        return func(x, y.to_dense(), **kwargs)
    name = func.__name__.strip("_")
    if not isinstance(y, _CooTensor):
        if not isinstance(y, Tensor):
            return NotImplemented
        raise RuntimeError(
            f"{name}(sparse, dense) is not supported. Use {name}(dense, sparse) instead.\n"
            f"  at {here()}"
        )
    if func.__name__ in _INTO or name.startswith("r"):
        return NotImplemented
    if x.shape != y.shape:
        raise RuntimeError(
            f"{name}: expected sizes of 'self' and 'other' to match, but {x.shape} != {y.shape}\n"
            f"  at {here()}"
        )
    if weft.equal(x._indices(), y._indices()):
        return x._with(func(x._values(), y._values(), **kwargs))
    other = func(weft.zeros_like(y._values()), y._values(), **kwargs)
    both = weft.cat([x._indices(), y._indices()], 1), weft.cat([x._values(), other])
    return _CooTensor(*both, x.shape, False)


_INTO = ("add_", "sub_", "__iadd__", "__isub__")


def _matmul(func: Callable, x: Any, y: Any) -> Any:
    if isinstance(x, _CooTensor) and isinstance(y, _CooTensor):
        return NotImplemented
    if not isinstance(x, _CooTensor):
        return _matmul(func, y.t(), x.t()).t() if x.ndim == 2 else NotImplemented
    if x.ndim != 2 or x.sparse_dim() != 2 or y.ndim not in (1, 2):
        return NotImplemented
    if x.shape[1] != y.shape[0]:
        shapes = "x".join(map(str, x.shape)), "x".join(map(str, y.shape))
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({shapes[0]} and {shapes[1]})\n"
            f"  at {here()}"
        )
    if x.dtype != y.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {x.dtype} != {y.dtype}\n"
            f"  at {here()}"
        )
    rows, columns = x._indices()
    values = x._values() if y.ndim == 1 else x._values().unsqueeze(1)
    result = weft.zeros(x.shape[0], *y.shape[1:], dtype=y.dtype)
    return result.index_add(0, rows, values * y.index_select(0, columns))


_RULES: dict[str, Callable] = {
    **dict.fromkeys(("add", "radd", "iadd", "sub", "isub"), _add),
    **dict.fromkeys(("mul", "rmul"), _scale),
    **dict.fromkeys(("div", "truediv"), _divide),
    **dict.fromkeys(("mm", "matmul", "mv"), _matmul),
    **dict.fromkeys(("neg", "detach", "clone", "to", "float", "double", "half"), _on_values),
    **dict.fromkeys(("long", "int", "bfloat16", "cpu", "contiguous"), _on_values),
    "sum": _sum,
    "t": lambda func, x: x.t(),
    "transpose": lambda func, x, dim0, dim1: x.transpose(dim0, dim1),
}


def mm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices of which one is sparse; gradients reach both."""
    if not isinstance(mat1, _CooTensor) and not isinstance(mat2, _CooTensor):
        return weft.mm(mat1, mat2)
    found = NotImplemented if min(mat1.ndim, mat2.ndim) < 2 else _matmul(weft.mm, mat1, mat2)
    if found is NotImplemented:
        _refuse("torch.sparse.mm of these")
    return found


def from_dense(x: Tensor, sparse_dim: int | None = None) -> Tensor:
    """The entries of a dense tensor that are not zero; gradients reach the tensor.

    With fewer sparse dimensions than it has, the entries are slices.
    """
    count = x.ndim if sparse_dim is None else sparse_dim
    if not min(1, x.ndim) <= count <= x.ndim:
        raise RuntimeError(
            f"sparse_dim argument for dense_to_sparse must be in >0 and <= {x.ndim}, got "
            f"{sparse_dim}\n  at {here()}"
        )
    with weft.no_grad():
        there = x.detach() != 0
        if count < x.ndim:
            there = there.flatten(count).any(-1)
        indices = there.nonzero().t().contiguous()
    overrides.switch_on()
    values = x[tuple(indices)] if count else x.reshape(1)[there.reshape(1)]
    return _CooTensor(indices, values, x.shape, True)


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """A sparse tensor of entries: a matrix with a column of indices for each, and their values.

    Indices are checked in any case, since one outside the tensor would be read or written there.

    >>> x = torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> x.to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if requires_grad:
        raise NotImplementedError(
            "sparse_coo_tensor: weft has no sparse gradients. Leave requires_grad out and give it "
            f"values that require a gradient\n  at {here()}"
        )
    if device is not None and weft.device(device).type != "cpu":
        raise RuntimeError(f"sparse_coo_tensor: weft has them on the CPU only\n  at {here()}")
    if values is None:
        size = tuple(indices if size is None else size)
        indices, values = weft.zeros(len(size), 0, dtype=weft.int64), weft.zeros(0)
    places = (indices if isinstance(indices, Tensor) else weft.tensor(indices)).to(weft.int64)
    held = values if isinstance(values, Tensor) else weft.tensor(values, dtype=dtype)
    held = held if dtype is None else held.to(dtype)
    places = places.unsqueeze(1) if places.ndim == 1 else places
    held = held.unsqueeze(0) if held.ndim == 0 else held
    if places.ndim != 2:
        raise RuntimeError(
            f"indices must be sparse_dim x nnz, but got: {list(places.shape)}\n  at {here()}"
        )
    if size is None:
        size = (*_extent(places), *held.shape[1:])
    _check(places, held, tuple(size))
    overrides.switch_on()
    return _CooTensor(places, held, tuple(size), bool(is_coalesced))


def _extent(indices: Tensor) -> list[int]:
    if not indices.shape[1]:
        return [0] * indices.shape[0]
    return [int(row.max()) + 1 for row in indices]


def _check(indices: Tensor, values: Tensor, size: tuple[int, ...]) -> None:
    count, dense = indices.shape[0], values.ndim - 1
    if len(size) != count + dense:
        raise RuntimeError(
            "'len(size) == sparse_dim + dense_dim' is not satisfied: "
            f"len(size) = {len(size)}, sparse_dim = {count}, dense_dim = {dense}\n  at {here()}"
        )
    if indices.shape[1] != values.shape[0]:
        raise RuntimeError(
            "indices and values must have same nnz, but got nnz from indices: "
            f"{indices.shape[1]}, nnz from values: {values.shape[0]}\n  at {here()}"
        )
    if tuple(values.shape[1:]) != size[count:]:
        raise RuntimeError(
            f"values has incorrect size, expected {[values.shape[0], *size[count:]]}, got "
            f"{list(values.shape)}\n  at {here()}"
        )
    for dim, (row, length) in enumerate(zip(indices, size, strict=False)):
        if len(row) and int(row.min()) < 0:
            least = int(row.min())
            raise RuntimeError(f"found negative index {least} for dim {dim}\n  at {here()}")
        if len(row) and int(row.max()) >= length:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {length} but found "
                f"index {int(row.max())}\n  at {here()}"
            )
