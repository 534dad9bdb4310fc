"""Copies and conversions: clone, to, contiguous, copy_, fill_."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.core import device as dev
from weft.core import devices, errors, making, meta
from weft.core import dtype as dt
from weft.core.dispatch import Op, apply, apply_one
from weft.core.gate import LISTENERS, announce
from weft.core.inference import check_change
from weft.core.inplace import apply_inplace, bump, copied_over, filled_over
from weft.core.modes import MODES, SPECIAL
from weft.core.pending import model_of
from weft.core.shapes import ShapeDtype
from weft.core.tensor import Tensor, wrap
from weft.native.memory import buffers
from weft.native.memory.layout import (
    channels_wanted,
    dense_steps,
    empty_like_dense,
    geometry,
    in_channels_last,
    is_dense,
    last_of,
)
from weft.operators import api, batch_rules, shape_rules
from weft.operators.build import Sample, general, linear, zero


class memory_format:
    """A name for an order of dimensions in memory."""

    by_name: dict[str, memory_format] = {}

    def __init__(self, name: str) -> None:
        self.name = name
        memory_format.by_name[name] = self

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_format_named, (self.name,))


def _format_named(name: str) -> memory_format:
    return memory_format.by_name[name]


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")

for _format in (contiguous_format, preserve_format, channels_last, channels_last_3d):
    api.FUNCTIONS[_format.name] = _format  # type: ignore[assignment]
api.FUNCTIONS["memory_format"] = memory_format


def in_format(x: np.ndarray, format: Any) -> np.ndarray:
    """A copy of an array with its dimensions in the given order in memory."""
    if format is channels_last or format is channels_last_3d:
        check_format(x.shape, format)
        if x.__class__ is meta.MetaArray:
            return meta.empty(x.shape, x.dtype, last_of(x.shape))
        return np.moveaxis(np.array(np.moveaxis(x, 1, -1), order="C"), -1, 1)
    keeps = format is None or format is preserve_format
    if x.__class__ is meta.MetaArray:
        return x.copy("K" if keeps else "C")
    if keeps and not (x.flags.c_contiguous and (x.ndim < 4 or 1 not in x.shape)):
        out = empty_like_dense(x, x.dtype)
        buffers.move(out, x)
        return out
    return np.array(x, order="C")


def check_format(shape: tuple[int, ...], format: Any) -> None:
    """Refuse a channels-last order for tensors of another rank."""
    rank = 4 if format is channels_last else 5
    if len(shape) != rank:
        raise RuntimeError(f"required rank {rank} tensor to use {format.name} format")


def _clone_shape(x: ShapeDtype, memory_format: Any = None) -> ShapeDtype:
    if memory_format is channels_last or memory_format is channels_last_3d:
        check_format(x.shape, memory_format)
        return ShapeDtype(x.shape, x.dtype, last_of(x.shape))
    keeps = memory_format is None or memory_format is preserve_format
    return shape_rules.preserved(x) if keeps else ShapeDtype(x.shape, x.dtype)


clone_op = linear(
    "clone",
    lambda x, memory_format=None: in_format(x, memory_format),
    lambda g: g,
    samples=lambda m: [Sample((m.real(2, 3).T,))],
    shape=_clone_shape,
    batch=batch_rules.leading,
)


@api.both
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy with memory of its own.

    >>> x = torch.tensor([1, 2])
    >>> y = x.clone()
    >>> y[0] = 9
    >>> x
    tensor([1, 2])
    """
    return apply_one(clone_op, input, {"memory_format": memory_format})


@api.method
def contiguous(self: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """This tensor in row-major order (or in the order given): itself, or a copy.

    >>> x = torch.zeros(2, 3).t()
    >>> x.is_contiguous(), x.contiguous().is_contiguous()
    (False, True)
    """
    if memory_format is contiguous_format:
        if self._a.flags.c_contiguous:
            return self
    elif is_in_order(self, memory_format):
        return self
    return clone_op(self, memory_format=memory_format)


def is_in_order(x: Tensor, format: Any) -> bool:
    """Whether a tensor has the strides of a memory format."""
    return _in_order(model_of(x), format)


def as_image(result: Tensor, input: Tensor) -> Tensor:
    """The result with its channels innermost if the input has them so."""
    if not channels_wanted(model_of(input)):
        return result
    format = channels_last if input._a.ndim == 4 else channels_last_3d
    return clone_op(result, memory_format=format)


def _last_steps(x: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Each dimension's size and stride, and the stride with channels innermost."""
    step = x.itemsize
    for dim in (1, *range(x.ndim - 1, 1, -1), 0):
        yield x.shape[dim], x.strides[dim], step
        step *= x.shape[dim] if x.shape[dim] != 1 else 1


def _in_order(x: np.ndarray, format: Any) -> bool:
    if format is channels_last or format is channels_last_3d:
        rank = 4 if format is channels_last else 5
        if x.ndim != rank or x.size:
            return x.ndim == rank and in_channels_last(x)
        # To NumPy an array without elements is in every order; PyTorch goes by its strides.
        return all(n == 1 or s == step for n, s, step in _last_steps(x))
    if format is preserve_format:
        raise RuntimeError(
            "preserve memory format is unsupported by the contiguous operator\n"
            f"  at {errors.here()}"
        )
    return x.flags.c_contiguous


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """An array of another dtype, by PyTorch's rules where NumPy has others."""
    if x.dtype.kind == "c" and dtype.kind != "c":
        if dtype.kind == "b":
            return x != 0
        x = x.real
    if dtype.kind in "iu" and x.dtype.kind in "fV":
        if x.dtype.kind == "V":
            x = x.astype(np.float32)
        # As the processor does it: small types through int32, where what doesn't fit becomes
        # the lowest number; the rest through int64.
        x = x.astype(
            np.int32
            if dtype.itemsize < 4 and dtype != np.uint16
            else (dtype if dtype.kind == "i" else np.int64)
        )
    if dtype == dt.float8_e4m3fn.np and x.dtype.kind in "fV":
        # This type has no infinity; what is beyond its range becomes its greatest number.
        x = np.clip(x.astype(np.float32), -448.0, 448.0)
    if dtype == dt.float8_e8m0fnu.np:
        # Nothing but exponents: no sign, and the least power of two stands for zero.
        x = np.maximum(np.abs(x.astype(np.float32)), np.float32(2.0**-127))
    return x.astype(dtype)


def zero_of(dtype: np.dtype) -> Any:
    """What fills an array with zero bits; one float8 type has no number for them."""
    return np.zeros((), dtype) if dtype.kind == "V" else 0


def number_for(value: Any, dtype: np.dtype) -> np.ndarray:
    """A number as a zero-dim array of a dtype that can hold it; RuntimeError if it can't."""
    kind = dtype.kind
    if kind in "iu":
        limits = np.iinfo(dtype)
        # PyTorch lets a negative integer wrap around in an unsigned type.
        wraps = kind == "u" and not isinstance(value, float)
        low = -limits.max if wraps else limits.min
        fits = not isinstance(value, complex) or not value.imag
        number = value.real if isinstance(value, complex) else value
        fits = fits and number == number and abs(number) != float("inf")
        if not fits or not low <= number or int(number) > limits.max:
            raise _overflow(dtype)
        return np.asarray(int(number)).astype(dtype)
    if kind in "fV" and isinstance(value, complex):
        if value.imag:
            raise _overflow(dtype)
        value = value.real
    if dtype == dt.F32 and isinstance(value, (int, float)):
        if abs(value) > 3.4028235677973366e38 and abs(value) != float("inf"):
            raise _overflow(dtype)
    elif dtype in dt.HALF:
        widest = dt.finfo(dt.of_numpy(dtype))
        infinite = abs(value) == float("inf") and np.isinf(
            np.array(value, np.float32).astype(dtype)
        )
        if (value < widest.min or value > widest.max) and not infinite:
            raise _overflow(dtype)
    return np.asarray(value).astype(dtype)


def _overflow(dtype: np.dtype) -> RuntimeError:
    name = {"float32": "float", "float64": "double"}.get(dtype.name)
    if name is None:
        half = dtype in dt.HALF
        name = f"c10::{TYPE_NAMES[dtype.name]}" if half else f"{dtype.name}_t"
    return RuntimeError(
        f"value cannot be converted to type {name} without overflow\n  at {errors.here()}"
    )


def _converted(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    # NumPy would put repeated dimensions innermost.
    return cast(in_format(x, None) if 0 in x.strides and x.ndim else x, dtype)


to_op: Op = linear(
    "to_copy",
    _converted,
    lambda g, x_dtype: to_op(g, dtype=x_dtype),
    samples=lambda m: [Sample((m.real(2, 3),), {"dtype": dt.F64})],
    shape=lambda x, dtype: shape_rules.preserved(x, dtype),
    batch=batch_rules.leading,
)


def convert(x: Tensor, d: np.dtype, copy: bool = False, format: Any = None) -> Tensor:
    """The tensor in another dtype; itself if nothing changes and no copy is asked for."""
    plain = format is None or format is preserve_format
    if x._a.dtype == d:
        if copy or not (plain or _fits(x, format)):
            return clone_op(x, memory_format=format)
        return x
    changed = to_op(x, dtype=d)
    return (
        changed
        if plain or is_in_order(changed, format)
        else clone_op(changed, memory_format=format)
    )


def _fits(x: Tensor, format: Any) -> bool:
    # As in PyTorch: rows are what any tensor is in but one with its channels innermost.
    model = model_of(x)
    return (format is contiguous_format and not channels_wanted(model)) or _in_order(model, format)


@api.method
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Another dtype or device: ``to(dtype)``, ``to(device, dtype)``, ``to(other)``.

    >>> x = torch.tensor([1, 2])
    >>> x.to(torch.float64)
    tensor([1., 2.], dtype=torch.float64)
    >>> x.to("cpu") is x
    True
    """
    if len(args) == 1 and not kwargs:
        asked = args[0]
        if asked.__class__ is dt.dtype:
            return convert(self, asked.np)
        kind = asked.__class__
        here = asked == "cpu" if kind is str else kind is dev.device and asked.type == "cpu"
        if here and self.device is dev.CPU:
            return self
    d, copy, format, device = _to_arguments(args, kwargs)
    wanted = self.dtype.np if d is None else dt.as_numpy(d)
    if device is not None and device.type != self.device.type:
        return moved(self, device, wanted, format)
    return convert(self, wanted, copy, format)


def _without_values(x: np.ndarray, dtype: np.dtype) -> Any:
    shape, steps = geometry(x)
    return meta.empty(shape, dtype, steps if is_dense(shape, steps, 1) else dense_steps(x))


def _no_way_back(g: Any) -> Any:
    raise NotImplementedError(
        f"{meta.NO_DATA} The gradient of a copy to the meta device has no values"
    )


to_meta_op: Op = linear(
    "to_meta",
    _without_values,
    _no_way_back,
    grad_name="ToCopyBackward",
    samples=None,
    shape=lambda x, dtype: ShapeDtype(x.shape, dtype, x.steps),
)


to_device_op: Op = linear(
    "to_device",
    lambda x, device, source: devices.moved(x, device),
    lambda g, device, source: _moved_back(g, device, source),
    grad_name="ToCopyBackward",
    samples=None,
    shape=lambda x, device, source: x.shape,
)
to_device_op.call = to_device_op.made = None  # compiled calls know the CPU's arrays alone


def _moved_back(g: Any, device: str, source: str) -> Any:
    if isinstance(g, Tensor):
        return apply(to_device_op, (g,), {"device": source, "source": device})
    return devices.moved(g, source)


def moved(x: Tensor, device: dev.device, d: np.dtype, format: Any = None) -> Tensor:
    """A tensor on another device: on meta its shape and dtype; from there nothing comes back."""
    if device.type != "meta" and not x.is_meta:
        attrs = {"device": device.type, "source": x.device.type}
        return apply(to_device_op, (convert(x, d, False, format),), attrs)
    if device.type != "meta":
        raise NotImplementedError(
            f"{meta.NO_DATA} Make it on the CPU, or take torch.empty_like(x, device='cpu')\n"
            f"  at {errors.here()}"
        )
    made = to_meta_op(x, dtype=d)
    return made if format is None or format is preserve_format else convert(made, d, False, format)


def _to_arguments(args: Any, kwargs: dict[str, Any]) -> tuple[Any, bool, Any, Any]:
    """``([device,] [dtype,] non_blocking, copy)`` or ``(other, non_blocking, copy)``."""
    known = ("dtype", "device", "copy", "non_blocking", "memory_format", "other")
    for name in kwargs:
        if name not in known:
            raise TypeError(f"to() got an unexpected keyword argument '{name}'")
    d, device, copy = kwargs.get("dtype"), kwargs.get("device"), kwargs.get("copy", False)
    if "other" in kwargs:
        d, device = kwargs["other"].dtype, kwargs["other"].device
    flags: list[bool] = []
    for place, value in enumerate(args):
        if place and isinstance(value, (dt.dtype, str, dev.device)):
            if d is not None or not isinstance(value, dt.dtype):
                raise TypeError(
                    "to() received an invalid combination of arguments; a device comes first, "
                    f"then a dtype\n  at {errors.here()}"
                )
        if isinstance(value, bool):
            flags.append(value)
        elif isinstance(value, Tensor):
            d, device = value.dtype, value.device
        elif isinstance(value, dt.dtype) or value in (float, int, bool, complex):
            d = value
        elif isinstance(value, (str, dev.device, int)):
            device = value
        elif value is not None:
            raise TypeError(
                f"to() received an invalid argument {value!r}; it takes a dtype, a device or a "
                f"tensor\n  at {errors.here()}"
            )
    where = None if device is None else dev.present(device)
    return d, flags[1] if len(flags) > 1 else copy, kwargs.get("memory_format"), where


@api.method
def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor on the CPU, where it is unless it has no values.

    >>> x = torch.ones(2)
    >>> x.cpu() is x
    True
    """
    return self if self.is_cpu else moved(self, dev.CPU, self.dtype.np)


@api.method
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    """Always an error: there is no such device here.

    >>> x = torch.ones(2)
    >>> x.cuda() if torch.cuda.is_available() else x
    tensor([1., 1.])
    """
    dev.present("cuda" if device is None else device)
    return self


@api.method
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """Nothing to pin without a GPU; the tensor itself, as if pinned."""
    return self


@api.method
def type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of the tensor's type, or the tensor in another type.

    >>> x = torch.tensor([1.5, 2.0])
    >>> x.type()
    'torch.FloatTensor'
    >>> x.type(torch.int64)
    tensor([1, 2])
    """
    if dtype is None:
        return f"torch.{type_name(self)}"
    if isinstance(dtype, str):
        short = dtype.removeprefix("torch.").removesuffix("Tensor")
        found = {v: k for k, v in TYPE_NAMES.items()}.get(short)
        if found is None:
            raise ValueError(f"invalid type: '{dtype}'\n  at {errors.here()}")
        return convert(self, dt.BY_NAME[found].np)
    if dtype is Tensor:
        return convert(self, dt.get_default_dtype().np)
    wanted = dtype if isinstance(dtype, dt.dtype) else getattr(dtype, "dtype", None)
    if not isinstance(wanted, dt.dtype):
        if isinstance(dtype, builtins.type):
            raise ValueError(f"invalid type: '{dtype.__name__}'\n  at {errors.here()}")
        raise TypeError(f"dtype must be a type, str, or dtype object\n  at {errors.here()}")
    return convert(self, wanted.np)


@api.method
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the other's dtype, on the other's device.

    >>> torch.tensor([1, 2]).type_as(torch.tensor([0.5]))
    tensor([1., 2.])
    """
    if self.device.type != other.device.type:
        return moved(self, other.device, other.dtype.np)
    return convert(self, other._a.dtype)


TYPE_NAMES = dt.TYPE_NAMES


def type_name(x: Tensor) -> str:
    """``FloatTensor`` and the like: what PyTorch's messages call a tensor's type."""
    where = x.device.type
    return f"{'' if where == 'cpu' else where + '.'}{TYPE_NAMES[x.dtype.name]}Tensor"


def _conversion(name: str, target: dt.dtype, example: str) -> None:
    def convert_to(self: Tensor, memory_format: Any = None) -> Tensor:
        return convert(self, target.np, format=memory_format)

    convert_to.__name__ = name
    convert_to.__doc__ = f"This tensor as {target.name}.\n\n{example}"
    api.method(convert_to)


def _example(name: str, target: dt.dtype) -> str:
    """A conversion as a prompt shows it."""
    values = {"b": " True, False", "i": "1, 0", "u": "1, 0", "c": "1.5000+0.j, 0.0000+0.j"}
    shown = values.get(target.np.kind, "1.5000, 0.0000")
    plain = target in (dt.float32, dt.int64, dt.bool_, dt.complex64)
    dtype = "" if plain else f", dtype=torch.{target.name}"
    return f">>> torch.tensor([1.5, 0.0]).{name}()\ntensor([{shown}]{dtype})"


for _name, _target in (
    ("float", dt.float32),
    ("double", dt.float64),
    ("half", dt.float16),
    ("bfloat16", dt.bfloat16),
    ("byte", dt.uint8),
    ("char", dt.int8),
    ("short", dt.int16),
    ("int", dt.int32),
    ("long", dt.int64),
    ("bool", dt.bool_),
    ("cfloat", dt.complex64),
    ("cdouble", dt.complex128),
):
    _conversion(_name, _target, _example(_name, _target))

# --- writing into a tensor -------------------------------------------------------------


def _copied(x: np.ndarray, src: np.ndarray) -> np.ndarray:
    if src.shape != x.shape:
        try:
            src = np.broadcast_to(src, x.shape)
        except ValueError:
            raise RuntimeError(
                f"The size of tensor a {list(x.shape)} must match the size of tensor b "
                f"{list(src.shape)}: it can't be broadcast into it"
            ) from None
    return src if src.dtype == x.dtype else cast(src, x.dtype)


copy_op = general(
    "copy",
    _copied,
    lambda g: zero(g),
    lambda g: g,
    names=("x", "src"),
    grad_name="CopyBackwards",
    jvp=(lambda t: zero(t), lambda t, x_shape: t.expand(x_shape)),
    samples=lambda m: [Sample((m.real(2, 3), m.real(3)))],
    shape=lambda x, src: shape_rules.expanded(src, x.shape, x.dtype),
)


@api.method
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Overwrite this tensor with another's values.

    >>> x = torch.zeros(2, 2)
    >>> x.copy_(torch.tensor([1, 2]))
    tensor([[1., 2.],
            [1., 2.]])
    """
    if making.overwrite(self, "copy", src) is not None:
        return self
    if not isinstance(src, Tensor):
        src = wrap(np.asarray(src))
    if copied_over(self, src):
        bump(self, "copy")
        return self
    return apply_inplace(copy_op, (self, src), {})


def _filled(x: np.ndarray, value: Any, whole: bool = False) -> np.ndarray:
    one = cast(value, x.dtype) if isinstance(value, np.ndarray) else number_for(value, x.dtype)
    return np.full(x.shape, one) if whole else np.broadcast_to(one, x.shape)


fill_op = general(
    "fill",
    _filled,
    lambda g: zero(g),
    lambda g: g,
    names=("x", "value"),
    into_overlap=True,
    jvp=(lambda t: zero(t), lambda t, x_shape: t.expand(x_shape)),
    samples=lambda m: [Sample((m.real(2, 3), m.real()))],
    shape=lambda x: x.shape,
)
fill_op.edges = ("x", "value?")


@api.method
def fill_(self: Tensor, value: Any) -> Tensor:
    """Overwrite every element with one value.

    >>> torch.zeros(3).fill_(5)
    tensor([5., 5., 5.])
    """
    if value.__class__ is float or value.__class__ is int:
        if making.overwrite(self, "fill", value) is not None:
            return self
        if filled_over(self, value):
            bump(self, "fill")
            return self
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            "fill_ only supports 0-dimension value tensor but got tensor with "
            f"{value.ndim} dimensions.\n  at {errors.here()}"
        )
    if isinstance(value, Tensor) and value._vc is self._vc:
        value = value.clone()  # an element of the tensor itself, as in x.fill_(x[0])
    return apply_inplace(fill_op, (self, value), {})


@api.top
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor of the same shape with one value everywhere."""
    return fill_op(input, value, whole=True)


@api.both
def zero_(self: Tensor) -> Tensor:
    """Overwrite every element with zero.

    >>> x = torch.tensor([1.0, 2.0])
    >>> x.zero_()
    tensor([0., 0.])
    """
    if making.overwrite(self, "zero", 0) is not None:
        return self
    if filled_over(self, 0.0):
        bump(self, "zero")
        return self
    now = MODES.now
    if (not now.grad or self._node is None) and now.mode is not SPECIAL:
        if self._base is None or not now.grad:
            check_change(self, "zero_")
            if LISTENERS:
                announce(self._a, self)
            devices.clear(self._a)
            bump(self, "zero")
            return self
    return apply_inplace(fill_op, (self, 0), {})
