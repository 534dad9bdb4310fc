"""Small questions and old names that programs use on dense tensors, answered for the CPU."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.storage import map_file
from weft.core.tensor import Layout, Tensor, wrap
from weft.operators import api
from weft.operators.casting import contiguous_format, convert
from weft.operators.creation import number_type, sizes

# --- other kinds of tensor, from the dense one's point of view -------------------------

# Layouts that can be named and compared with, though nothing has them.
for _name in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"):
    api.FUNCTIONS[_name] = Layout(_name)  # type: ignore[assignment]
api.FUNCTIONS["legacy_contiguous_format"] = contiguous_format  # type: ignore[assignment]


@api.method
def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor itself: it is dense; in another dtype if one is given."""
    return self if dtype is None else convert(self, dt.as_numpy(dtype))


@api.method
def dense_dim(self: Tensor) -> int:
    """The number of dense dimensions: all."""
    return self._a.ndim


@api.method
def sparse_dim(self: Tensor) -> int:
    """The number of sparse dimensions: none."""
    return 0


@api.method
def to_sparse(
    self: Tensor, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """The entries that are not zero, as a sparse tensor in coordinate format.

    >>> torch.eye(2).to_sparse().indices()
    tensor([[0, 1],
            [0, 1]])
    """
    if isinstance(sparse_dim, Layout):
        sparse_dim, layout = None, sparse_dim
    if (layout is not None and repr(layout) != "torch.sparse_coo") or blocksize or dense_dim:
        raise NotImplementedError(
            "to_sparse: weft has sparse tensors in coordinate format only. Leave layout, blocksize "
            f"and dense_dim out\n  at {errors.here()}"
        )
    # Sparse tensors are a type made of these functions, and loaded when there is one.
    return importlib.import_module("weft.sparse").from_dense(self, sparse_dim)


@api.method
def to_sparse_coo(self: Tensor) -> Tensor:
    """The entries that are not zero, as a sparse tensor in coordinate format."""
    return self.to_sparse()


@api.both
def dequantize(input: Tensor) -> Tensor:
    """The tensor as float32, which is what a tensor without quantisation stands for."""
    return convert(input, dt.F32)


# --- old and special names of Python's methods -----------------------------------------


def _divider(name: str) -> Any:
    return lambda self, other: getattr(Tensor, name)(self, other)


for _old, _new in (("div", "truediv"), ("rdiv", "rtruediv"), ("idiv", "itruediv")):
    setattr(Tensor, f"__{_old}__", _divider(f"__{_new}__"))
Tensor.__long__ = Tensor.__int__
Tensor.__nonzero__ = Tensor.__bool__
Tensor.name = property(lambda self: None, doc="A name that PyTorch's Caffe2 once had: None.")
api.method(Tensor.data_ptr, name="const_data_ptr")


@api.method(name="__reversed__")
def _reversed(self: Tensor) -> Tensor:
    return self.flip(0) if self._a.ndim else self


@api.method(name="__array_wrap__")
def _array_wrap(
    self: Tensor, array: np.ndarray, context: Any = None, return_scalar: bool = False
) -> Tensor:
    # NumPy's functions of tensors give tensors.
    return wrap(array.astype(np.uint8) if array.dtype == bool else array)


# --- small functions -------------------------------------------------------------------


@api.method
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Overwrite the main diagonal, for tall matrices again and again with ``wrap``."""
    x = self._a
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) > 1):
        raise RuntimeError(
            "fill_diagonal_: dimensions must be larger than 1, and all equal if there are more "
            f"than 2; the shape is {list(x.shape)}\n  at {errors.here()}"
        )
    steps = sum(self.stride())
    count = min(x.shape)
    self.as_strided((count,), (steps,)).fill_(fill_value)
    if wrap and x.ndim == 2 and x.shape[0] > x.shape[1] + 1:
        rows, columns = x.shape
        start = columns + 1
        while start < rows:
            part = self.narrow(0, start, min(columns, rows - start))
            part.diagonal().fill_(fill_value)
            start += columns + 1
    return self


@api.method
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed over what broadcasting had repeated, so that the given shape is left."""
    shape = sizes(size, "sum_to_size")
    if not shape:
        return self.sum()
    lead = self._a.ndim - len(shape)
    fits = lead >= 0 and all(
        n in (1, m) for n, m in zip(shape, self._a.shape[max(lead, 0) :], strict=False)
    )
    if not fits:
        raise RuntimeError(
            f"size {{{list(shape)}}} is not expandable to size {{{list(self._a.shape)}}}.\n"
            f"  at {errors.here()}"
        )
    summed = [d for d, n in enumerate(self._a.shape) if d < lead or (shape[d - lead] == 1 != n)]
    result = self.sum(summed, keepdim=True) if summed else self
    return result.reshape(shape) if lead else result


@api.method
def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What a parameter becomes when a state with ``other`` in its place is loaded."""
    return other.detach() if assign else self.copy_(other).detach()


@api.top
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dimensions but one."""
    if dim == -1:
        return v.norm(pow)
    at = api.wrap_dim(dim, v._a.ndim)
    rest = [d for d in range(v._a.ndim) if d != at]
    return v.norm(pow, dim=rest, keepdim=True)


@api.top
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Dropout, and the mask of what was kept."""
    kept = input.new_ones(input.shape, dtype=dt.bool_)
    if train is False or p == 0:
        return input.clone(), kept
    kept = input.new_empty(input.shape).bernoulli_(1 - p).bool()
    return input * kept * (1 / (1 - p) if p < 1 else 0.0), kept


@api.top
def kl_div(
    input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False
) -> Tensor:
    """``nn.functional.kl_div`` with the reduction as a number: none, mean, sum."""
    function = api.NAMESPACES["nn.functional"]["kl_div"]
    how = ("none", "mean", "sum")[reduction]
    return function(input, target, reduction=how, log_target=log_target)


@api.top
def from_file(
    filename: str, shared: bool | None = None, size: int = 0, *, dtype: Any = None, **rest: Any
) -> Tensor:
    """A tensor on a file's memory; changes reach the file only if it is shared."""
    d = number_type(dtype)
    return wrap(map_file(filename, bool(shared), size * d.itemsize).view(d))


# --- questions about this build, and numbers that PyTorch may trace ---------------------

for _name in ("has_lapack", "has_openmp", "has_spectral"):
    api.FUNCTIONS[_name] = True  # type: ignore[assignment]
api.FUNCTIONS["has_mkl"] = False  # type: ignore[assignment]


@api.top
def set_warn_always(b: bool) -> None:
    """Whether a warning that is usually given once is given each time."""
    if not isinstance(b, bool):
        raise RuntimeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    errors.WARNINGS.always = b


@api.top
def is_warn_always_enabled() -> bool:
    """The setting of ``set_warn_always``."""
    return errors.WARNINGS.always


@api.top
def is_vulkan_available() -> bool:
    """Whether there is such a device: no."""
    return False


@api.top
def compiled_with_cxx11_abi() -> bool:
    """Which C++ interface the library was built for; there is no C++ here."""
    return True


class OutOfMemoryError(RuntimeError):
    """A device's memory is used up; never raised on the CPU, where Python has MemoryError."""


class AcceleratorError(RuntimeError):
    """An accelerator failed; never raised on the CPU."""


for _error in (OutOfMemoryError, AcceleratorError):
    _error.__module__ = "torch"
    api.FUNCTIONS[_error.__name__] = _error

SYMBOLIC: dict[str, Callable] = {
    "sym_int": math.trunc,
    "sym_float": float,
    "sym_not": lambda a: not a,
    "sym_max": lambda a, b: max(a, b),
    "sym_min": lambda a, b: min(a, b),
    "sym_sqrt": math.sqrt,
    "sym_sum": sum,
    "sym_ite": lambda b, t, f: t if b else f,
}
api.FUNCTIONS.update(SYMBOLIC)

for _name in ("addmv_", "as_strided_"):
    api.top(getattr(Tensor, _name), name=_name)
