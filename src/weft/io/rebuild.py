"""Tensors from what a file says of them, with everything it says checked."""

from __future__ import annotations

import inspect
import math
import reprlib
from collections import Counter, OrderedDict
from types import MemberDescriptorType
from typing import Any

import numpy as np

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core import meta
from weft.core.devices import DeviceArray, device_of, over_bytes, placed
from weft.core.node import AccumulateGrad
from weft.core.size import Size
from weft.core.storage import LEGACY, STORAGE_NAMES, TypedStorage, UntypedStorage
from weft.core.tensor import LAYOUT, Layout, Parameter, Tensor, new, slots_of, wrap

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


class Pending:
    """Conjugated or negated copies of a storage, each made once, however many tensors use it.

    PyTorch marks a tensor as conjugated or negated; here that is done when it is loaded. It is done
    to the whole storage, since a tensor with strides of zero can be larger than any machine. In
    the older format the bytes come after the tensors, so that ``fill`` is called again then.
    """

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory
        self.copies: dict[tuple[dt.dtype, bool, bool], np.ndarray] = {}

    def copy(self, kind: dt.dtype, conj: bool, neg: bool) -> np.ndarray:
        """The bytes of the storage with all its elements conjugated, negated, or both."""
        key = (kind, conj, neg)
        if key not in self.copies:
            self.copies[key] = np.empty(self.memory.size, np.uint8)
            self.fill()
        return self.copies[key]

    def fill(self) -> None:
        """Compute all copies from what the storage holds now."""
        for (kind, conj, neg), copy in self.copies.items():
            whole = self.memory.size // kind.itemsize * kind.itemsize
            values, target = self.memory[:whole].view(kind.np), copy[:whole].view(kind.np)
            if conj and kind.is_complex:
                values = np.conj(values, out=target)
            if neg:
                np.negative(values, out=target)
            elif values is not target:
                target[...] = values


def _storage_of(storage: Any, dtype: Any) -> tuple[np.ndarray, dt.dtype]:
    if not isinstance(storage, (TypedStorage, UntypedStorage)):
        raise RuntimeError(
            f"a tensor in the file has as its storage a {type(storage).__name__}, not a storage"
        )
    chosen = dtype if dtype is not None else getattr(storage, "dtype", dt.uint8)
    if not isinstance(chosen, dt.dtype):
        raise RuntimeError(f"a tensor in the file has {shown(chosen)} as its dtype")
    if chosen is dt.bool_ and getattr(storage, "dtype", None) is not dt.bool_:
        # Only the bytes of a storage of bools are known to be zeros and ones.
        raise RuntimeError("a bool tensor in the file has a storage of another dtype")
    return storage._bytes(), chosen


def _changed(storage: Any, kind: dt.dtype, metadata: Any) -> np.ndarray | None:
    """The bytes of a tensor marked as conjugated or negated, or None without a mark."""
    if not isinstance(metadata, dict):
        return None
    marks = metadata.get("conj", False), metadata.get("neg", False)
    if any(type(mark) is not bool for mark in marks):
        raise RuntimeError(f"a tensor in the file has {shown(marks)} as its marks conj and neg")
    if not any(marks):
        return None
    if isinstance(storage._bytes(), DeviceArray):
        raise RuntimeError(
            "a conjugated or negated tensor in the file can be loaded on the CPU alone: call "
            "torch.load with map_location='cpu'"
        )
    if kind is dt.bool_:
        raise RuntimeError("a tensor of bools in the file is marked as conjugated or negated")
    untyped = storage.untyped()
    if not hasattr(untyped, "_pending"):
        raise RuntimeError(
            "a conjugated or negated tensor in the file covers only part of its storage"
        )
    if untyped._pending is None:
        untyped._pending = Pending(untyped._bytes())
    return untyped._pending.copy(kind, *marks)


def tensor_on(
    storage: Any, offset: Any, size: Any, stride: Any, dtype: dt.dtype | None = None,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor on a storage; one that would reach outside it is refused."""
    memory, kind = _storage_of(storage, dtype)
    shape, steps = integers(size, "shape"), integers(stride, "strides")
    (start,) = integers((offset,), "offset")
    if len(shape) != len(steps) or len(shape) > _MOST_DIMENSIONS:
        raise RuntimeError(f"a tensor in the file has shape {shape} and strides {steps}")
    count, width = math.prod(shape), kind.itemsize
    if count > _MOST_ELEMENTS:
        raise RuntimeError(f"a tensor in the file has shape {shape}, which is too large")
    if not count:
        on_meta = memory.__class__ is meta.MetaArray
        made = meta.empty(shape, kind.np) if on_meta else _empty(shape, kind)
        return wrap(placed(made, device_of(memory)))
    reach = start + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + 1
    if reach * width > memory.size:
        raise RuntimeError(
            f"a tensor in the file of shape {shape}, strides {steps} and offset {start} needs "
            f"{reach * width} bytes, but its storage has {memory.size}"
        )
    changed = None if memory.__class__ is meta.MetaArray else _changed(storage, kind, metadata)
    memory = memory if changed is None else changed
    # A single element has no next one; its stride may be any number, even one too large for NumPy.
    strides = tuple(s * width if n > 1 else width for n, s in zip(shape, steps, strict=True))
    made = over_bytes(memory, kind.np, shape, strides, start * width)
    if not isinstance(made, DeviceArray) and not made.flags.aligned:
        raise RuntimeError(f"a tensor in the file of dtype {kind} is misaligned in memory")
    return wrap(made)


def _empty(shape: tuple[int, ...], kind: dt.dtype) -> np.ndarray:
    try:
        return np.empty(shape, kind.np)
    except (ValueError, OverflowError):  # no elements, but one of the lengths is too large
        raise RuntimeError(f"a tensor in the file has shape {shown(shape)}, too large") from None


def _finish(tensor: Tensor, requires_grad: Any) -> Tensor:
    if type(requires_grad) not in (bool, int, type(None)):
        raise RuntimeError(f"a tensor in the file has {shown(requires_grad)} as requires_grad")
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
    made = tensor_on(storage, storage_offset, size, stride, None, metadata)
    return _finish(made, requires_grad)


def rebuild_tensor_v3(
    storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any = False,
    backward_hooks: Any = None, dtype: Any = None, metadata: Any = None,
) -> Tensor:  # fmt: skip
    """The form of the newer dtypes, on storages of bytes."""
    made = tensor_on(storage, storage_offset, size, stride, dtype, metadata)
    return _finish(made, requires_grad)


def rebuild_meta_tensor(dtype: Any, size: Any, stride: Any, requires_grad: Any = False) -> Tensor:
    """A tensor without values, and so without a storage in the file."""
    if not isinstance(dtype, dt.dtype):
        raise RuntimeError(f"a tensor in the file has {shown(dtype)} as its dtype")
    shape, steps = integers(size, "shape"), integers(stride, "strides")
    if len(shape) != len(steps) or len(shape) > _MOST_DIMENSIONS or min(steps, default=0) < 0:
        raise RuntimeError(f"a tensor in the file has shape {shape} and strides {steps}")
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    if max(math.prod(shape), reach) > _MOST_ELEMENTS:
        raise RuntimeError(f"a tensor in the file has shape {shape}, which is too large")
    try:
        return _finish(wrap(meta.empty(shape, dtype.np, steps)), requires_grad)
    except (ValueError, MemoryError) as error:
        raise RuntimeError(f"a tensor in the file has shape {shown(shape)}: {error}") from None


def rebuild_parameter(data: Any, requires_grad: Any = True, backward_hooks: Any = None) -> Any:
    """A parameter around a tensor."""
    if not isinstance(data, Tensor):
        raise RuntimeError(f"a parameter in the file holds a {type(data).__name__}")
    return _finish(Parameter(data, requires_grad=False), requires_grad)


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
            f"the file makes a tensor of {shown(kind)}, which is not a class of tensors"
        )
    if type(tensor) is not kind:
        twin = new(kind)
        twin._a, twin._node, twin._vc = tensor._a, None, tensor._vc
        twin._grad = twin._base = twin._view = twin._x = None
        if tensor._node is not None:
            twin._node = AccumulateGrad(twin)
        tensor = twin
    return with_state(tensor, state)


def with_state(tensor: Tensor, state: Any) -> Tensor:
    """Give a tensor the attributes that it was saved with."""
    slots = slots_of(type(tensor))
    for name, value in attributes(state):
        check_name(type(tensor), name)
        if name in slots:
            object.__setattr__(tensor, name, value)
        else:
            tensor.__dict__[name] = value
    return tensor


# ------------------------------------------------------------------ attributes


def attributes(state: Any) -> list[tuple[Any, Any]]:
    """The names and values of a state: a dict, or a pair of them (the second from slots)."""
    if isinstance(state, tuple) and len(state) == 2:
        parts = [part for part in state if part is not None]
    else:
        parts = [] if state is None else [state]
    if not all(isinstance(part, dict) for part in parts):
        raise RuntimeError(f"the file has {shown(state)} as the state of an object")
    return [pair for part in parts for pair in part.items()]


def _is_protocol(name: str) -> bool:
    """Names by which Python, NumPy and others ask an object for what it can do.

    ``__array_interface__`` and similar ones describe memory, ``_as_parameter_`` is for ctypes.
    """
    return name.startswith("__") or (name.startswith("_") and name.endswith("_"))


_OWN = frozenset({*Parameter.__mro__, *OrderedDict.__mro__})


def check_name(kind: type, name: Any) -> None:
    """A file may give a tensor or dict new attributes, but replace nothing of its class.

    A class of the user's may have constants that are the defaults of attributes, and slots.
    """
    good = type(name) is str and name.isidentifier() and not _is_protocol(name)
    for base in kind.__mro__ if good else ():
        if name in vars(base):
            kept = type(vars(base)[name])
            good = base not in _OWN and (
                kept is MemberDescriptorType or not hasattr(kept, "__get__")
            )
            break
    if not good:
        raise RuntimeError(
            f"the file sets attribute {shown(name)} of a {kind.__name__}, which is not a name that "
            "attributes in files may have"
        )


# What attributes may hold: a function or class there could be taken for a method.
_VALUES = frozenset(
    {
        *(int, float, bool, complex, str, bytes, bytearray, type(None), list, tuple, dict, set),
        *(frozenset, OrderedDict, Counter, Size, dt.dtype, dev.device, Layout, Tensor, Parameter),
        *(TypedStorage, UntypedStorage),
    }
)


def is_data(value: Any) -> bool:
    """Whether a value is of a type that attributes of tensors may hold."""
    return type(value) in _VALUES


# Where a module looks for names that it does not have otherwise.
_LOOKED_UP = ("_parameters", "_buffers", "_modules")


def allowed_state(kind: type, state: Any) -> Any:
    """The state of an object whose class the user has allowed, if all of it is data.

    Attributes may have any plain name, but methods stay what they are, and so does all that has a
    meaning to Python (``__class__``) or NumPy (``__array_interface__``).
    """
    if type(state) is tuple:
        return tuple(_checked_part(kind, part) for part in state)
    return _checked_part(kind, state)


def _checked_part(kind: type, part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    for name in part:
        method = type(name) is str and inspect.isroutine(inspect.getattr_static(kind, name, None))
        if method or _is_special(name):
            raise RuntimeError(
                f"Weights only load failed: the file sets {shown(name)} of a {kind.__name__}, "
                "which is not data"
            )
    if type(part) not in (dict, OrderedDict):
        return part
    # Copies, since the file could put more names into the dicts that it made.
    part = part.copy()
    for name in _LOOKED_UP:
        inner = part.get(name)
        if type(inner) in (dict, OrderedDict):
            part[name] = inner.copy()
            if any(_is_special(key) for key in inner):
                raise RuntimeError(
                    f"Weights only load failed: the file has special names in {name} of a "
                    f"{kind.__name__}"
                )
    return part


def _is_special(name: Any) -> bool:
    return isinstance(name, str) and name.startswith("__")


def is_slot(kind: type, name: Any) -> bool:
    """Whether this is one of the ``__slots__`` of a class."""
    return type(name) is str and isinstance(
        inspect.getattr_static(kind, name, None), MemberDescriptorType
    )


def get_layout(name: str) -> Any:
    """The layout of this name."""
    if type(name) is not str or name != "torch.strided":
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
TENSOR_FUNCTIONS = {
    "torch._utils._rebuild_tensor": rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": rebuild_tensor_v3,
    "torch._utils._rebuild_meta_tensor_no_storage": rebuild_meta_tensor,
    "torch._utils._rebuild_parameter": rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": rebuild_parameter_with_state,
}
FUNCTIONS = {
    **TENSOR_FUNCTIONS,
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
    *("_rebuild_nested_tensor", "_rebuild_wrapper_subclass"),
)


def storage_dtype(kind: Any) -> dt.dtype | None:
    """The dtype behind a storage class, or None for bytes."""
    if isinstance(kind, StorageType):
        return kind.dtype
    if isinstance(kind, type) and issubclass(kind, (TypedStorage, UntypedStorage)):
        return next((dt.BY_NAME[d] for d, n in STORAGE_NAMES.items() if LEGACY[n] is kind), None)
    raise RuntimeError(f"the file refers to a storage of type {shown(kind)}")
