"""Tensors from Python data, from other libraries' memory, and filled with values."""

from __future__ import annotations

import inspect
import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.core import batching, devices, errors, making, meta, quiet
from weft.core import device as dev
from weft.core import dtype as dt
from weft.core.devices import DEVICES, taken
from weft.core.dlpack import Importer
from weft.core.gate import mark_exported
from weft.core.modes import MODES
from weft.core.pending import model_of
from weft.core.settings import undefine, undefined
from weft.core.storage import TypedStorage, UntypedStorage, tensor_over
from weft.core.tensor import LATE, LAYOUT, Tensor, wrap
from weft.native.memory.layout import dense_steps, empty_like_dense, empty_with, rows_of
from weft.operators import api
from weft.operators.casting import TYPE_NAMES, cast, in_format, number_for, zero_of

# --- from data -------------------------------------------------------------------------

CPU = dev.CPU
_PLAIN_TYPES = {bool, int, float, complex}
_NUMBERS: Any = (bool, int, float, complex)
_FLOAT8 = frozenset(d.np for d in dt.FLOAT8)


def finish(array: np.ndarray, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new leaf around an array; a meta tensor has no use for what the array holds."""
    if (device is not None or dev._default is not dev.CPU) and dev.on_meta(device):
        array = array if array.__class__ is meta.MetaArray else meta.like(array)
    elif DEVICES:
        array = devices.placed(array, dev.present(device))
    made = wrap(array)
    return made.requires_grad_() if requires_grad else made


def _leaf_types(data: Any, found: set[Any]) -> None:
    """Collect what the leaves of nested sequences are: Python types, or NumPy dtypes."""
    kinds = set(map(type, data))
    if kinds <= _PLAIN_TYPES:
        found |= kinds
        return
    for at, value in enumerate(data):
        if isinstance(value, (list, tuple)):
            _leaf_types(value, found)
        elif isinstance(value, Tensor):
            found.add(value._a.dtype)
        elif isinstance(value, (np.ndarray, np.generic)):
            found.add(value.dtype)
        elif type(value) in _PLAIN_TYPES:
            found.add(type(value))
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            _leaf_types(value, found)
        else:
            _refuse(value, nested=not found and not at)


def _refuse(value: Any, nested: bool = False) -> None:
    kind = type(value).__name__
    where = f"\n  at {errors.here()}"
    if isinstance(value, (str, bytes)):
        if nested:
            raise ValueError(f"too many dimensions '{kind}'{where}")
        raise TypeError(f"new(): invalid data type '{kind}'{where}")
    if isinstance(value, (int, float, complex)):
        return
    raise RuntimeError(f"Could not infer dtype of {kind}{where}")


def _infer(found: set[Any]) -> np.dtype:
    """The dtype of data whose leaves are of these types."""
    exact = [d for d in found if isinstance(d, np.dtype)]
    result: np.dtype | None = None
    for d in exact:
        dt.of_numpy(d)
        result = d if result is None else dt.promote(result, d)
    default = dt.get_default_dtype()
    for kind, own in (
        (bool, dt.BOOL), (int, dt.I64), (float, default.np), (complex, default.to_complex().np)
    ):  # fmt: skip
        if kind in found:
            result = own if result is None else dt.promote(result, own)
    return default.np if result is None else result


def _plain(data: Any) -> Any:
    """Nested sequences with the tensors in them converted to arrays."""
    if isinstance(data, Tensor):
        if data._a.size != 1:
            raise ValueError(
                "only one element tensors can be converted to Python scalars; join tensors with "
                f"torch.stack or torch.cat\n  at {errors.here()}"
            )
        return data.item()
    if isinstance(data, (list, tuple)):
        return [_plain(d) for d in data]
    return data


def array_of(data: Any, dtype: Any = None) -> np.ndarray:
    """A new array with the dtype PyTorch would choose for the data."""
    wanted = None if dtype is None else dt.as_numpy(dtype)
    kind = type(data)
    if kind is float and wanted is None:
        return np.array(data, dt._default.np)
    if isinstance(data, (Tensor, np.ndarray, np.generic)):
        return _array_of_array(taken(data) if isinstance(data, Tensor) else data, wanted)
    if isinstance(data, (list, tuple)):
        found: set[Any] = set()
        try:
            _leaf_types(data, found)
        except RecursionError:
            raise TypeError(
                f"new(): self-referential lists are incompatible\n  at {errors.here()}"
            ) from None
    elif kind in _PLAIN_TYPES:
        found = {kind}
    else:
        return _array_of_other(data, dtype)
    target = _infer(found) if wanted is None else wanted
    return _from_numbers(data if found <= _PLAIN_TYPES else _plain(data), target)


def _array_of_array(source: Any, wanted: np.dtype | None) -> np.ndarray:
    array = np.array(source, order="K")
    dt.of_numpy(array.dtype)
    if not array.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Convert it "
            f"with array.astype(array.dtype.newbyteorder('=')) first\n  at {errors.here()}"
        )
    return array if wanted is None or wanted == array.dtype else cast(array, wanted)


def _array_of_other(data: Any, dtype: Any) -> np.ndarray:
    """An object that is not a list, number or array, but may be converted to one."""
    if isinstance(data, (TypedStorage, UntypedStorage)):
        return array_of(data.tolist(), dtype)
    if hasattr(data, "__array__"):
        return array_of(np.asarray(data), dtype)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return array_of(list(data), dtype)
    if isinstance(data, _NUMBERS):
        return array_of(next(k(data) for k in _NUMBERS if isinstance(data, k)), dtype)
    if hasattr(data, "__dlpack__"):
        return array_of(np.from_dlpack(data), dtype)
    indexed = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if indexed and not isinstance(data, (str, bytes, Mapping)):
        return array_of(_items(data), dtype)
    _refuse(data)
    raise AssertionError


def _items(data: Any) -> list[Any]:
    """What an object holds that has a length and items, though it is not a Sequence."""
    try:
        return [data[i] for i in range(len(data))]
    except Exception as error:
        raise ValueError(
            f"could not determine the shape of object type '{type(data).__name__}'\n"
            f"  at {errors.here()}"
        ) from error


def _from_numbers(data: Any, target: np.dtype) -> np.ndarray:
    token = quiet.SET(quiet.SILENT)
    try:
        if target.kind == "u":
            # Negative values wrap around; values too large are an error.
            return _wrapped(np.array(data), target)
        if target in _FLOAT8:
            return cast(np.array(data, np.float32), target)
        return np.array(data, target)
    except OverflowError:
        where = f"\n  at {errors.here()}"
        leaves = np.array(data, dtype=object).ravel()
        if target == dt.I64 and all(isinstance(v, int) for v in leaves):
            raise ValueError(f"Overflow when unpacking long long{where}") from None
        name = dt.of_numpy(target).name
        raise RuntimeError(
            f"value cannot be converted to type {name} without overflow{where}"
        ) from None
    except ValueError as e:
        if "NaN" in str(e) or "infinity" in str(e):
            name = dt.of_numpy(target).name
            raise RuntimeError(
                f"value cannot be converted to type {name} without overflow\n  at {errors.here()}"
            ) from None
        kind, message = _ragged(data, _sizes(data)) or (ValueError, "tensor: the data is ragged")
        raise kind(f"{message}\n  at {errors.here()}") from None
    finally:
        quiet.RESET(token)


def _wrapped(array: np.ndarray, target: np.dtype) -> np.ndarray:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise OverflowError
    if array.size and (array.max() > np.iinfo(target).max or array.min() < -(1 << 63)):
        raise OverflowError
    return (
        array.astype(target) if array.dtype.kind != "f" else array.astype(np.int64).astype(target)
    )


def _is_sequence(data: Any) -> bool:
    return isinstance(data, (list, tuple)) or (isinstance(data, np.ndarray) and data.ndim > 0)


def _sizes(data: Any) -> list[int]:
    """The shape of nested sequences, as their first elements have it."""
    found = []
    while _is_sequence(data):
        found.append(len(data))
        if not len(data):
            break
        data = data[0]
    return found


def _ragged(data: Any, sizes: list[int], dim: int = 0) -> tuple[type[Exception], str] | None:
    """Where nested sequences do not have these sizes, in one depth."""
    if dim == len(sizes):
        if _is_sequence(data):
            return TypeError, f"must be real number, not {type(data).__name__} (dim {dim})"
        return None
    if not _is_sequence(data):
        return TypeError, f"not a sequence: {type(data).__name__} at dim {dim}"
    if len(data) != sizes[dim]:
        expected = f"expected sequence of length {sizes[dim]} at dim {dim} (got {len(data)})"
        return ValueError, expected
    return next(filter(None, (_ragged(d, sizes, dim + 1) for d in data)), None)


@api.top
def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False, names: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor with a copy of the data.

    >>> import weft
    >>> weft.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach()"
            ".clone() or sourceTensor.detach().clone().requires_grad_(True), rather than "
            "torch.tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
    if isinstance(data, (TypedStorage, UntypedStorage)):
        made = tensor_over(data, None if dtype is None else dt.of_numpy(dt.as_numpy(dtype)))
    else:
        made = wrap(array_of(data, dtype))
    if (device is not None or dev._default is not CPU) and dev.on_meta(device):
        made = wrap(meta.like(made._a))
    elif DEVICES:
        made = made.to(dev.present(device))
    return made.requires_grad_() if requires_grad else made


@api.top
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """The data as a tensor, on its own memory where that is possible."""
    if (device is not None or dev._default is not dev.CPU) and dev.on_meta(device):
        return as_meta(data, dtype)
    if isinstance(data, Tensor):
        if device is not None:
            data = data.to(device)
        return data if dtype is None else data.to(dtype)
    if DEVICES and dev.present(device) != CPU:
        return wrap(devices.placed(array_of(data, dtype), dev.present(device)))
    if isinstance(data, np.ndarray) and all(s >= 0 for s in data.strides):
        shared = from_numpy(data)
        return shared if dtype is None else shared.to(dtype)
    if isinstance(data, (TypedStorage, UntypedStorage)):
        return tensor_over(data, None if dtype is None else dt.of_numpy(dt.as_numpy(dtype)))
    return wrap(array_of(data, dtype))


def as_meta(data: Any, dtype: Any) -> Tensor:
    """The data as a tensor without values."""
    if isinstance(data, Tensor):
        return data.to(dev.META, dtype)
    return wrap(meta.like(array_of(data, dtype)))


@api.top
def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:  # fmt: skip
    """The object as a tensor; ``copy`` says whether memory must or must not be copied."""
    if requires_grad is None:
        requires_grad = isinstance(obj, Tensor) and obj.requires_grad
        if requires_grad:
            errors.warn_once(
                "torch.asarray: unspecified requires_grad now defaults to obj.requires_grad "
                "instead of False. Pass requires_grad=False explicitly to get the old behavior and "
                "silence this warning."
            )
    shares = _shared(obj, dtype)
    if shares is None or (dtype is not None and shares._a.dtype != dt.as_numpy(dtype)):
        if copy is False and isinstance(obj, np.generic):
            raise RuntimeError(
                "can't alias NumPy scalars. Either remove copy=False or make an array of it with "
                f"np.asarray\n  at {errors.here()}"
            )
        if copy is False:
            raise ValueError(
                f"can't alias {'a sequence' if shares is None else 'data of another dtype'} "
                f"without copying; leave copy=None\n  at {errors.here()}"
            )
        made = wrap(array_of(obj, dtype)) if shares is None else shares.to(dtype)
    else:
        made = shares.clone() if copy else shares
    if dev.on_meta(device) and not made.is_meta:
        if copy is False:
            raise ValueError(
                f"cannot move tensor from cpu to meta without copying\n  at {errors.here()}"
            )
        made = made.to(dev.META)
    elif DEVICES and device is not None:
        made = made.to(device)
    if not requires_grad:
        return made.detach() if made._node is not None else made
    return made if made._node is not None else made.requires_grad_()


def _shared(obj: Any, dtype: Any = None) -> Tensor | None:
    """A tensor on an object's own memory, or None."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, np.ndarray):
        return from_numpy(obj)
    if isinstance(obj, np.generic):
        return None
    if hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        return from_dlpack(obj)
    if isinstance(obj, (bytes, bytearray, memoryview)):
        return frombuffer(obj, dtype=dt.get_default_dtype() if dtype is None else dtype)
    return None


@api.top
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor on an array's own memory.

    >>> import numpy as np
    >>> a = np.array([1.0, 2.0], dtype=np.float32)
    >>> x = torch.from_numpy(a)
    >>> x += 1
    >>> a.tolist()
    [2.0, 3.0]
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})\n  at {errors.here()}")
    dt.of_numpy(ndarray.dtype)
    if not ndarray.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Conversion "
            f"between byte orders is currently not supported.\n  at {errors.here()}"
        )
    if any(s < 0 for s in ndarray.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            f"strides are not currently supported; use array.copy()\n  at {errors.here()}"
        )
    if any(s % ndarray.itemsize for s in ndarray.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy "
            f"array to reallocate the memory: array.copy()\n  at {errors.here()}"
        )
    if not ndarray.flags.writeable:
        warnings.warn(
            "The given NumPy array is not writable, and PyTorch does not support non-writable "
            "tensors: changing this one in place will fail. Copy the array first, or use "
            "torch.tensor",
            UserWarning,
            stacklevel=2,
        )
    mark_exported(ndarray)
    return wrap(_own_storage(ndarray))


def _own_storage(array: np.ndarray) -> np.ndarray:
    """The same memory as an array whose storage is no larger than itself.

    What is around it in another array's memory is not the tensor's: it is not to be copied or
    pickled with it.
    """
    if type(array) is np.ndarray and array.base is None:
        return array.view()  # the caller may change the shape and flags of the array
    try:
        return np.asarray(memoryview(array))  # type: ignore[arg-type]
    except (ValueError, TypeError, BufferError):  # a type that offers no buffer
        return array.view(np.ndarray)


@api.top
def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A one-dimensional tensor on the memory of a Python buffer."""
    try:
        memory = memoryview(buffer)
    except TypeError:
        raise ValueError(
            "object does not implement Python buffer protocol: a "
            f"{type(buffer).__name__}\n  at {errors.here()}"
        ) from None
    if memory.readonly:
        errors.warn_once(
            "The given buffer is not writable, and PyTorch does not support non-writable tensors. "
            "Copy it first, for example into a bytearray, or be sure not to write to the tensor."
        )
    problem = _buffer_problem(memory.nbytes, dtype.itemsize, count, offset)
    if problem:
        raise ValueError(f"{problem}\n  at {errors.here()}")
    return finish(np.frombuffer(buffer, dtype.np, count, offset), None, requires_grad)


def _buffer_problem(length: int, size: int, count: int, offset: int) -> str | None:
    """Why a part of a buffer can't be used, or None."""
    if length == 0 or count == 0:
        return f"both buffer length ({length}) and count ({count}) must not be 0"
    if not 0 <= offset < length:
        return (
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({length} bytes) minus 1"
        )
    if count < 0 and (length - offset) % size:
        return (
            f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a "
            f"multiple of element size ({size})"
        )
    if count > 0 and offset + count * size > length:
        return (
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) "
            f"must not be greater than actual buffer length ({length} bytes)"
        )
    return None


@api.top
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array, by the DLPack protocol."""
    if device is not None:
        dev.present(device)
    return wrap(Importer(ext_tensor).array(copy))


@api.top
def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule with the tensor's memory."""
    return tensor.__dlpack__()


# --- filled with one value -------------------------------------------------------------


def sizes(given: tuple[Any, ...], name: str) -> tuple[int, ...]:
    """A shape from ``f(2, 3)`` or ``f((2, 3))``."""
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = tuple(given[0])
    try:
        return tuple(map(operator.index, given))
    except TypeError:
        bad = next(g for g in given if not hasattr(g, "__index__") or isinstance(g, Tensor))
        raise TypeError(
            f"{name}(): argument 'size' (position 1) must be tuple of ints, not "
            f"{type(bad).__name__}\n  at {errors.here()}"
        ) from None


def build(make: Callable, shape: tuple[int, ...], d: np.dtype, device: Any = CPU) -> np.ndarray:
    """``make(shape, dtype)``; a length that can't be becomes PyTorch's error.

    For the meta device nothing is made, nor drawn.
    """
    try:
        if device is not CPU and (device is not None or dev._default is not CPU):
            if dev.on_meta(device):
                return meta.empty(shape, d)
        return make(shape, d)
    except MemoryError as error:
        raise RuntimeError(f"{errors.no_memory(error)}\n  at {errors.here()}") from None
    except ValueError:
        for k, n in enumerate(shape):
            if n < 0:
                raise RuntimeError(
                    f"Trying to create tensor with negative dimension {n}: {list(shape)}\n"
                    f"  at {errors.here()}"
                ) from None
            if n >= 1 << 63:
                raise TypeError(
                    f"argument 'size' failed to unpack the object at pos {k + 1} with error "
                    f'"Overflow when unpacking long long": {list(shape)}\n  at {errors.here()}'
                ) from None
        if math.prod(shape) * d.itemsize >= 1 << 63:
            wrong = errors.too_large(shape, d.itemsize)
            raise RuntimeError(f"{wrong}\n  at {errors.here()}") from None
        raise RuntimeError(
            f"Stride calculation overflowed with sizes={list(shape)}\n  at {errors.here()}"
        ) from None


def number_type(dtype: Any, out: Tensor | None = None) -> np.dtype:
    """The dtype asked for; else that of ``out``; else the default."""
    if dtype is None:
        return dt._default.np if out is None else out._a.dtype
    asked = dt.as_numpy(dtype)
    if out is not None and out._a.dtype != asked:
        names = [dt.TYPE_NAMES[dt.of_numpy(d).name] for d in (asked, out._a.dtype)]
        raise RuntimeError(
            f"dtype {names[0]} does not match dtype of out parameter ({names[1]})\n"
            f"  at {errors.here()}"
        )
    return asked


def need_strided(layout: Any, out: Tensor | None = None) -> None:
    """Refuse every layout but that of dense tensors."""
    if layout is None or layout is LAYOUT:
        return
    kind = {"torch.sparse_coo": "Sparse", "torch.sparse_csr": "SparseCsr"}.get(
        str(layout), str(layout)
    )
    raise RuntimeError(
        (
            f"layout {kind} does not match layout of out parameter (Strided)"
            if out is not None
            else f"weft has no tensors of layout {layout}; leave layout="
        )
        + f"\n  at {errors.here()}"
    )


def _filler(name: str, make: Any, doc: str, value: int | None = None) -> Any:
    def create(
        *args: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
        device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
        memory_format: Any = None, names: Any = None,
    ) -> Tensor:  # fmt: skip
        if size is out is layout is device is memory_format is None and dev._default is CPU:
            d = dt._default.np if dtype is None else dt.as_numpy(dtype)
            short = making.create(args, d, value) if args else None
            if short is not None:
                if value is None:
                    undefine(short)
                return short.requires_grad_() if requires_grad else short
        if not args and size is None:
            raise TypeError(
                f'{name}() missing 1 required positional arguments: "size"\n  at {errors.here()}'
            )
        need_strided(layout, out)
        shape = sizes(args if size is None else (size,), name)
        array = build(make, shape, number_type(dtype, out), device)
        if memory_format is not None:
            array = in_format(array, memory_format)
        made = finish(array, device, requires_grad)
        return made if out is None else api.into(out, made, name)

    create.__name__ = create.__qualname__ = name
    create.__doc__ = inspect.cleandoc(doc)
    return api.top(create)


def _raw(shape: tuple[int, ...], d: np.dtype) -> np.ndarray:
    return undefined(np.empty(shape, d))


zeros = _filler(
    "zeros",
    np.zeros,
    """A tensor of the given shape, full of zeros.

    >>> torch.zeros(2, 3)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    >>> torch.zeros(2, dtype=torch.int64)
    tensor([0, 0])
    """,
    0,
)
ones = _filler(
    "ones",
    np.ones,
    """A tensor of the given shape, full of ones.

    >>> torch.ones(2, 3)
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """,
    1,
)
empty = _filler(
    "empty",
    _raw,
    """A tensor of the given shape whose values are whatever was in memory.

    >>> torch.empty(2, 3).shape
    torch.Size([2, 3])
    """,
)


def _filled(shape: tuple[int, ...], value: np.ndarray) -> np.ndarray:
    array = np.empty(shape, value.dtype)
    array[...] = value
    return array


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


@api.top
def full(
    size: Any, fill_value: Any, *, out: Any = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False, names: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor with one value everywhere.

    >>> torch.full((2, 2), 7)
    tensor([[7, 7],
            [7, 7]])
    """
    if not isinstance(size, (tuple, list)):
        raise TypeError(
            "full(): argument 'size' (position 1) must be tuple of ints, not "
            f"{type(size).__name__}\n  at {errors.here()}"
        )
    if out is device is None and fill_value.__class__ in _PLAIN_TYPES and dev._default is CPU:
        d = dt.number_dtype(fill_value) if dtype is None else dt.as_numpy(dtype)
        short = making.create((size,), d, fill_value)
        if short is not None:
            return short.requires_grad_() if requires_grad else short
    if dtype is not None or out is not None:
        d = number_type(dtype, out)
    else:
        is_tensor = isinstance(fill_value, Tensor)
        d = fill_value._a.dtype if is_tensor else dt.number_dtype(fill_value)
    value = None if isinstance(fill_value, Tensor) and fill_value.is_meta else _number(fill_value)
    array = build(lambda s, d: _filled(s, number_for(value, d)), sizes((size,), "full"), d, device)
    made = finish(array, device, requires_grad)
    return made if out is None else api.into(out, made, "full")


def like_array(source: np.ndarray, d: np.dtype, memory_format: Any = None) -> Any:
    """An array of the same shape with undefined values, in the same order of dimensions."""
    if memory_format is None or memory_format.name == "preserve_format":
        # An image with one channel can be in rows and have strides that say otherwise.
        plain = source.flags.c_contiguous and (source.ndim < 4 or 1 not in source.shape)
        steps = None if plain else dense_steps(source)
        if d.metadata is not None and d.metadata["device"] in DEVICES:
            home = DEVICES[d.metadata["device"]]
            return home.put(empty_with(source.shape, meta.plain(d), steps or rows_of(source.shape)))
        if source.__class__ is meta.MetaArray:
            return meta.empty(source.shape, d, steps)
        return np.empty(source.shape, d) if plain else empty_like_dense(source, d)
    return in_format(meta.filled(np.empty, source.shape, d), memory_format)


def source_for(input: Tensor, device: Any, d: np.dtype | None) -> tuple[np.ndarray, np.dtype]:
    """What a new tensor is to be like: an array on the device asked for, and a dtype."""
    source: Any = model_of(input)
    d = source.dtype if d is None else d
    where = input.device if device is None else dev.present(device)
    if where.type in DEVICES:
        return source, DEVICES[where.type].dtypes[d]
    if where.type == input.device.type:
        return source, meta.MARKED[d] if input.is_meta else d
    if isinstance(source, devices.DeviceArray):
        model = np.ndarray(source.shape, meta.plain(source.dtype), strides=source.strides)
        return (model, meta.plain(d)) if where == CPU else (meta.like(model), meta.MARKED[d])
    if not input.is_meta:
        return meta.like(source), meta.MARKED[d]
    return np.ndarray.view(source, np.ndarray), meta.plain(d)  # whose geometry alone is looked at


def _like(name: str, fill: Any, doc: str) -> Any:
    def create(
        input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
    ) -> Tensor:  # fmt: skip
        if not isinstance(input, Tensor):
            raise TypeError(
                f"{name}(): argument 'input' (position 1) must be Tensor, not "
                f"{type(input).__name__}\n  at {errors.here()}"
            )
        source = model_of(input)
        d = source.dtype if dtype is None else dt.as_numpy(dtype)
        if device is None and memory_format is None:
            short = making.create(source, d, fill)
            if short is not None:
                if fill is None:
                    undefine(short)
                return short.requires_grad_() if requires_grad else short
        if device is not None or source.__class__ is not np.ndarray:
            source, d = source_for(input, device, d)
        array = like_array(source, d, memory_format)
        if fill is not None and array.__class__ is np.ndarray:
            array.fill(fill or zero_of(array.dtype))
        elif fill is not None:
            devices.write_into(array, np.full((), fill, meta.plain(array.dtype)))
        elif array.__class__ is np.ndarray:
            undefined(array)
        made = wrap(array)
        if MODES.now.batches:
            made = batching.beside(made, input)
        return made.requires_grad_() if requires_grad else made

    create.__name__ = create.__qualname__ = name
    create.__doc__ = inspect.cleandoc(doc)
    return api.top(create)


zeros_like = _like(
    "zeros_like",
    0,
    """Zeros in another tensor's shape, dtype and device.

    >>> x = torch.tensor([[1, 2], [3, 4]])
    >>> torch.zeros_like(x)
    tensor([[0, 0],
            [0, 0]])
    >>> torch.zeros_like(x, dtype=torch.float32)
    tensor([[0., 0.],
            [0., 0.]])
    """,
)
ones_like = _like(
    "ones_like",
    1,
    """Ones in another tensor's shape, dtype and device.

    >>> torch.ones_like(torch.tensor([0.5, 2.0]))
    tensor([1., 1.])
    """,
)
empty_like = _like(
    "empty_like",
    None,
    """A tensor of another's shape, dtype and device, with whatever was in memory.

    >>> torch.empty_like(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """,
)


@api.top
def full_like(input: Tensor, fill_value: Any, **options: Any) -> Tensor:
    """A tensor of another's shape and dtype with one value everywhere."""
    requires_grad = options.pop("requires_grad", False)
    made = empty_like(input, **options)
    if isinstance(fill_value, Tensor) and fill_value._a.ndim:
        raise TypeError(
            "full_like(): argument 'fill_value' (position 2) must be Number, not Tensor\n"
            f"  at {errors.here()}"
        )
    value = number_for(_number(fill_value), made._a.dtype)
    if batching.is_batched(made):
        made.fill_(value)
    else:
        devices.write_into(made._a, value)
    return made.requires_grad_() if requires_grad else made


def _new(name: str, make: Any, doc: str) -> None:
    def create(
        self: Tensor, *args: Any, size: Any = None, dtype: Any = None, device: Any = None,
        requires_grad: bool = False, layout: Any = None, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        source = model_of(self)
        d = source.dtype if dtype is None else dt.as_numpy(dtype)
        shape = sizes(args if size is None else (size,), name)
        if device is not None or source.__class__ is not np.ndarray:
            where = self.device if device is None else device
            made = finish(build(make, shape, meta.plain(d), where), where)
            made = batching.beside(made, self) if MODES.now.batches else made
        else:
            made = wrap(build(make, shape, d))
        return made.requires_grad_() if requires_grad else made

    create.__name__ = create.__qualname__ = name
    create.__doc__ = inspect.cleandoc(doc)
    api.method(create)


_new(
    "new_zeros",
    np.zeros,
    """Zeros of the given shape, in this tensor's dtype.

    >>> x = torch.ones(2, dtype=torch.float64)
    >>> x.new_zeros(3)
    tensor([0., 0., 0.], dtype=torch.float64)
    """,
)
_new(
    "new_ones",
    np.ones,
    """Ones of the given shape, in this tensor's dtype.

    >>> x = torch.zeros(2, dtype=torch.int64)
    >>> x.new_ones(2, 2)
    tensor([[1, 1],
            [1, 1]])
    """,
)
_new("new_empty", _raw, "A tensor of the given shape and this tensor's dtype, not filled.")


@api.method
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, **more: Any) -> Tensor:
    """A new tensor of this tensor's dtype with one value everywhere."""
    if more.get("device") is None:
        more["device"] = self.device
    made = full(size, fill_value, dtype=self.dtype if dtype is None else dtype, **more)
    return batching.beside(made, self) if MODES.now.batches else made


@api.method
def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    layout: Any = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of this tensor's dtype with a copy of the data.

    >>> torch.zeros(1, dtype=torch.float64).new_tensor([1, 2])
    tensor([1., 2.], dtype=torch.float64)
    """
    own = array_of(data, self.dtype if dtype is None else dtype)
    return finish(own, self.device if device is None else device, requires_grad)


def strided_array(
    size: tuple[int, ...], stride: tuple[int, ...], d: np.dtype, device: Any = CPU
) -> np.ndarray:
    """New memory that is just large enough for the sizes and strides."""
    span = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if span * d.itemsize >= 1 << 63:
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(size)} and "
            f"strides={list(stride)}\n  at {errors.here()}"
        )
    memory = build(_raw, (span,), d, device)
    bytes_per_step = tuple(s * d.itemsize for s in stride)
    if memory.__class__ is meta.MetaArray:
        return meta.over(memory, size, bytes_per_step)
    return np.lib.stride_tricks.as_strided(memory, size, bytes_per_step)


@api.top
def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor with undefined values and the given strides."""
    shape, steps = sizes((size,), "empty_strided"), sizes((stride,), "empty_strided")
    if len(shape) != len(steps):
        raise RuntimeError(
            f"empty_strided: dimensionality of sizes ({len(shape)}) must match dimensionality of "
            f"strides ({len(steps)})\n  at {errors.here()}"
        )
    return finish(strided_array(shape, steps, number_type(dtype), device), device, requires_grad)


@api.method
def new_empty_strided(self: Tensor, size: Any, stride: Any, **options: Any) -> Tensor:
    """A new tensor of this tensor's dtype with undefined values and the given strides."""
    if options.get("dtype") is None:
        options["dtype"] = self.dtype
    if options.get("device") is None:
        options["device"] = self.device
    return empty_strided(size, stride, **options)


@api.top
def empty_permuted(
    size: Any, physical_layout: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A dense tensor with undefined values, its dimensions in the given memory order."""
    shape, order = sizes((size,), "empty_permuted"), tuple(physical_layout)
    if sorted(order) != list(range(len(shape))):
        raise RuntimeError(
            f"empty_permuted: physical_layout {list(order)} is not a permutation of the dimensions "
            f"of size {list(shape)}\n  at {errors.here()}"
        )
    made = build(_raw, tuple(shape[i] for i in order), number_type(dtype), device)
    return finish(made.transpose(np.argsort(order)) if order else made, device, requires_grad)


@api.top
def scalar_tensor(
    s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of no dimension; of the default dtype whatever the number is."""
    return finish(np.array(_number(s), number_type(dtype)), device, requires_grad)


# --- the legacy constructors -----------------------------------------------------------


def construct(*args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Tensor:
    """What ``torch.Tensor(...)`` makes: sizes give an empty tensor, sequences are data."""
    d = dt.get_default_dtype() if dtype is None else dtype
    where = CPU if device is None else dev.present(device)
    if device is not None:
        if any(isinstance(given, Tensor) for given in (*args[:1], kwargs.get("other"))):
            raise RuntimeError(
                "Legacy tensor constructor of the form torch.Tensor(tensor, device=device) is not "
                f"supported. Use torch.tensor(...) or torch.as_tensor(...)\n  at {errors.here()}"
            )
    for name in kwargs:
        if name not in ("size", "data", "other"):
            raise TypeError(
                f"new() received an invalid combination of arguments: it takes no '{name}'. Use "
                f"torch.tensor or torch.empty, which take more\n  at {errors.here()}"
            )
    if not args:
        if "size" in kwargs:
            return wrap(build(_raw, sizes((kwargs["size"],), "new"), d.np, where))
        if not kwargs:
            return wrap(build(_raw, (0,), d.np, where))
        args = (kwargs.get("data", kwargs.get("other")),)
    data = args[0]
    if type(data) is int or len(args) > 1 or type(data).__name__ == "Size":
        return wrap(build(_raw, sizes(args, "new"), d.np, where))
    if isinstance(data, Tensor):
        if dtype is not None and data.dtype is not d:
            raise TypeError(
                f"expected a tensor of dtype {d!r} (got {data.dtype!r}); convert it with "
                f".to()\n  at {errors.here()}"
            )
        return data.detach()
    if isinstance(data, (TypedStorage, UntypedStorage)):
        if isinstance(data, TypedStorage) and data.dtype is not d:
            names = [dt.TYPE_NAMES[t.name] for t in (d, data.dtype)]
            raise RuntimeError(
                f"Expected a Storage of type {names[0]} or an UntypedStorage, but got type "
                f"{names[1]} for argument 1 'storage'\n  at {errors.here()}"
            )
        return tensor_over(data, d)
    if isinstance(data, np.integer):
        return wrap(build(_raw, (int(data),), d.np, where))
    if not isinstance(data, (np.ndarray, Sequence)) or isinstance(data, (str, bytes)):
        raise TypeError(
            f"new(): data must be a sequence (got {type(data).__name__})\n  at {errors.here()}"
        )
    return finish(array_of(data, d), where)


LATE.construct = construct


@api.method
def new(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A tensor of this tensor's dtype by the rules of ``torch.Tensor(...)``."""
    if self.is_meta:
        kwargs.setdefault("device", self.device)
    return construct(*args, dtype=self.dtype, **kwargs)


class tensortype(type):
    """The class of classes such as ``torch.FloatTensor``: each makes and recognizes one dtype."""

    dtype: dt.dtype
    is_cuda = is_sparse = False
    layout = LAYOUT

    def __new__(cls, name: str, dtype: dt.dtype) -> tensortype:
        doc = f"""Makes and recognizes tensors of {dtype.name}; ``torch.tensor`` is newer.

        >>> torch.{name}([1, 0]).dtype
        torch.{dtype.name}
        >>> isinstance(torch.tensor([1, 0], dtype=torch.{dtype.name}), torch.{name})
        True
        """
        body = {"__module__": "weft", "__slots__": (), "__doc__": inspect.cleandoc(doc)}
        return super().__new__(cls, name, (), body)

    def __init__(cls, name: str, dtype: dt.dtype) -> None:
        cls.dtype = dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:  # type: ignore[override]
        return construct(*args, dtype=cls.dtype, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance._a.dtype == cls.dtype.np

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"


LEGACY = {
    f"{short}Tensor": tensortype(f"{short}Tensor", dt.BY_NAME[name])
    for name, short in TYPE_NAMES.items()
    if not name.startswith(("float8", "uint16", "uint32", "uint64"))
}
api.FUNCTIONS.update(LEGACY)


@api.top
def set_default_tensor_type(t: Any) -> None:
    """Set the default floating dtype by a legacy type or its name."""
    errors.warn_once(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
        "torch.set_default_dtype() and torch.set_default_device() as alternatives."
    )
    if isinstance(t, str):
        t = LEGACY.get(t.removeprefix("torch."))
    if t is Tensor:
        return dt.set_default_dtype(dt.float32)
    if not isinstance(t, tensortype):
        raise TypeError(f"invalid type object\n  at {errors.here()}")
    dt.set_default_dtype(t.dtype)
    return None


# --- questions -------------------------------------------------------------------------


@api.top
def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor."""
    return isinstance(obj, Tensor)


@api.top
def is_storage(obj: Any) -> bool:
    """Whether an object is a storage."""
    return isinstance(obj, (TypedStorage, UntypedStorage))


@api.both
def is_nonzero(input: Tensor) -> bool:
    """Whether the one value of a tensor is not zero."""
    return bool(input)


@api.top
def numel(input: Tensor) -> int:
    """The number of elements.

    >>> torch.numel(torch.zeros(2, 3))
    6
    """
    return input._a.size


@api.top
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating one."""
    return input.is_floating_point()


@api.top
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is a complex one."""
    return input._a.dtype.kind == "c"


@api.top
def is_conj(input: Tensor) -> bool:
    """Conjugation is done at once here, so there is no pending one."""
    return False


api.top(is_conj, name="is_neg")


@api.top
def is_signed(input: Tensor) -> bool:
    """Whether the dtype can hold negative values."""
    return input.is_signed()


@api.top
def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made in inference mode."""
    return input.is_inference()


@api.both
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input._a.shape == other._a.shape


@api.top
def result_type(tensor1: Any, tensor2: Any) -> dt.dtype:
    """The dtype of an operation on two values."""
    values = [v._a if isinstance(v, Tensor) else v for v in (tensor1, tensor2)]
    return dt.of_numpy(dt.result_dtype(values))


@api.top
def promote_types(type1: dt.dtype, type2: dt.dtype) -> dt.dtype:
    """The smallest dtype of no lower kind than either."""
    return dt.of_numpy(dt.promote(type1.np, type2.np))


@api.top
def can_cast(from_: dt.dtype, to: dt.dtype) -> bool:
    """Whether a result of one dtype may be written into a tensor of the other."""
    return dt.can_cast(from_, to)
