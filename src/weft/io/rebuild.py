"""Tensors from what a file says of them, with everything it says checked."""

from __future__ import annotations

import math
import reprlib
from collections import OrderedDict
from typing import Any

import numpy as np

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core.node import AccumulateGrad
from weft.core.size import Size
from weft.core.storage import LEGACY, STORAGE_NAMES, TypedStorage, UntypedStorage
from weft.core.tensor import LAYOUT, Parameter, Tensor, new, wrap

_MOST_DIMENSIONS = 64  # NumPy's limit
_MOST_ELEMENTS = 1 << 62


def shown(value: Any) -> str:
    """What a file says, for an error: the repr of a container can be longer than any memory."""
    if type(value) in (list, tuple) and len(value) <= _MOST_DIMENSIONS:
        inside = ", ".join("..." if isinstance(v, (list, tuple)) else shown(v) for v in value)
        return f"({inside})"
    if type(value) is int and value.bit_length() > 64:
        return "an int of more than 64 bits"
    if type(value) in (int, float, bool, str, bytes, type(None)):
        return reprlib.repr(value)
    if isinstance(value, type):
        return f"class {value.__name__}"
    return f"a {type(value).__name__} {getattr(value, '__name__', '')}".rstrip()


def integers(values: Any, what: str) -> tuple[int, ...]:
    """A tuple of whole numbers that are neither negative nor beyond 64 bits."""
    good = isinstance(values, (tuple, list)) and all(
        type(v) is int and 0 <= v < _MOST_ELEMENTS for v in values
    )
    if not good:
        raise RuntimeError(f"a tensor in the file has {shown(values)} as its {what}")
    return tuple(values)


def _storage_of(storage: Any, dtype: Any) -> tuple[np.ndarray, dt.dtype]:
    if not isinstance(storage, (TypedStorage, UntypedStorage)):
        raise RuntimeError(
            f"a tensor in the file lies on a {type(storage).__name__}, not a storage"
        )
    chosen = dtype if dtype is not None else getattr(storage, "dtype", dt.uint8)
    if not isinstance(chosen, dt.dtype):
        raise RuntimeError(f"a tensor in the file has {shown(chosen)} as its dtype")
    return storage._bytes(), chosen


def tensor_on(
    storage: Any, offset: Any, size: Any, stride: Any, dtype: dt.dtype | None = None
) -> Tensor:
    """A tensor on a storage; one that would reach outside of it is refused."""
    memory, kind = _storage_of(storage, dtype)
    shape, steps = integers(size, "shape"), integers(stride, "strides")
    (start,) = integers((offset,), "offset")
    if len(shape) != len(steps) or len(shape) > _MOST_DIMENSIONS:
        raise RuntimeError(f"a tensor in the file has shape {shape} and strides {steps}")
    count, width = math.prod(shape), kind.itemsize
    if count > _MOST_ELEMENTS:
        raise RuntimeError(f"a tensor in the file has shape {shape}, which is too large")
    if not count:
        return wrap(np.empty(shape, kind.np))
    reach = start + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + 1
    if reach * width > memory.size:
        raise RuntimeError(
            f"a tensor in the file of shape {shape}, strides {steps} and offset {start} needs "
            f"{reach * width} bytes, but its storage has {memory.size}"
        )
    strides = tuple(s * width for s in steps)
    return wrap(np.ndarray(shape, kind.np, memory, start * width, strides))


def _finish(tensor: Tensor, requires_grad: Any, metadata: Any = None) -> Tensor:
    if isinstance(metadata, dict):
        # PyTorch puts off conjugation and negation; here they are done at once.
        if metadata.get("conj"):
            tensor._a = np.conj(tensor._a)
        if metadata.get("neg"):
            tensor._a = -tensor._a
    if requires_grad:
        tensor.requires_grad_()
    return tensor


def rebuild_tensor(storage: Any, storage_offset: Any, size: Any, stride: Any) -> Tensor:
    """The oldest form: no gradient."""
    return tensor_on(storage, storage_offset, size, stride)


def rebuild_tensor_v2(
    storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any = False,
    backward_hooks: Any = None, metadata: Any = None,
) -> Tensor:  # fmt: skip
    """The form of the dtypes that have storage classes."""
    return _finish(tensor_on(storage, storage_offset, size, stride), requires_grad, metadata)


def rebuild_tensor_v3(
    storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any = False,
    backward_hooks: Any = None, dtype: Any = None, metadata: Any = None,
) -> Tensor:  # fmt: skip
    """The form of the newer dtypes, on storages of bytes."""
    return _finish(tensor_on(storage, storage_offset, size, stride, dtype), requires_grad, metadata)


def rebuild_parameter(data: Any, requires_grad: Any = True, backward_hooks: Any = None) -> Any:
    """A parameter around a tensor."""
    if not isinstance(data, Tensor):
        raise RuntimeError(f"a parameter in the file holds a {type(data).__name__}")
    return Parameter(data, requires_grad=bool(requires_grad))


def rebuild_parameter_with_state(
    data: Any, requires_grad: Any, backward_hooks: Any, state: Any
) -> Any:
    """A parameter with attributes of its own."""
    return with_state(rebuild_parameter(data, requires_grad, backward_hooks), state)


def rebuild_from_type_v2(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """A tensor of a class, or with attributes, of its own."""
    tensor = function(*arguments)
    if not isinstance(tensor, Tensor) or not (isinstance(kind, type) and issubclass(kind, Tensor)):
        raise RuntimeError(
            f"the file makes a tensor of {shown(kind)}, which is no class of tensors"
        )
    if type(tensor) is not kind:
        twin = new(kind)
        twin._a, twin._node, twin._vc = tensor._a, None, tensor._vc
        twin.grad = twin._base = twin._view = twin._x = None
        if tensor._node is not None:
            twin._node = AccumulateGrad(twin)
        tensor = twin
    return with_state(tensor, state)


# What a tensor's own slots and methods are called: a file may not put other things there.
_RESERVED = frozenset(name for kind in Parameter.__mro__ for name in vars(kind))


def with_state(tensor: Tensor, state: Any) -> Tensor:
    """Give a tensor the attributes that it was saved with."""
    if isinstance(state, tuple) and len(state) == 2:
        state = {**(state[0] or {}), **(state[1] or {})}
    for name, value in (state or {}).items():
        if not isinstance(name, str) or name in _RESERVED:
            raise RuntimeError(f"a tensor in the file has {shown(name)} as an attribute of its own")
        tensor.__dict__[name] = value
    return tensor


def get_layout(name: str) -> Any:
    """The layout of this name."""
    if name != "torch.strided":
        raise RuntimeError(f"layout {shown(name)} is not supported: weft has dense tensors only")
    return LAYOUT


class StorageType:
    """Stands in a file for the dtype of a storage."""

    def __init__(self, name: str, dtype: dt.dtype | None) -> None:
        self.name, self.dtype = name, dtype

    def __repr__(self) -> str:
        return f"torch.{self.name}"


STORAGE_TYPES = {
    **{f"torch.{name}": StorageType(name, dt.BY_NAME[d]) for d, name in STORAGE_NAMES.items()},
    "torch.storage.UntypedStorage": StorageType("storage.UntypedStorage", None),
}

# What PyTorch's files speak of by name, apart from the dtypes and storage types.
FUNCTIONS = {
    "torch._utils._rebuild_tensor": rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": rebuild_parameter_with_state,
    "torch._tensor._rebuild_from_type_v2": rebuild_from_type_v2,
    "torch.serialization._get_layout": get_layout,
    "torch.device": dev.device,
    "torch.Size": Size,
    "collections.OrderedDict": OrderedDict,
}
CLASSES = {
    "torch.Tensor": Tensor,
    "torch.nn.parameter.Parameter": Parameter,
}
DTYPES = {f"torch.{d.name}": d for d in dt.ALL}
NAMES: dict[str, Any] = {**FUNCTIONS, **CLASSES, **DTYPES, **STORAGE_TYPES}
UNSUPPORTED = (
    *("_rebuild_sparse_tensor", "_rebuild_sparse_csr_tensor", "_rebuild_qtensor"),
    *("_rebuild_nested_tensor", "_rebuild_meta_tensor_no_storage", "_rebuild_wrapper_subclass"),
)


def storage_dtype(kind: Any) -> dt.dtype | None:
    """The dtype behind a storage class, or None for bytes."""
    if isinstance(kind, StorageType):
        return kind.dtype
    if isinstance(kind, type) and issubclass(kind, (TypedStorage, UntypedStorage)):
        return next((dt.BY_NAME[d] for d, n in STORAGE_NAMES.items() if LEGACY[n] is kind), None)
    raise RuntimeError(f"the file speaks of a storage of type {shown(kind)}")
