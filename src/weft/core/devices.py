"""Devices with memory of their own: the interface that lets every op run there.

A device supplies an array class, a subclass of ``DeviceArray``, and a ``Device`` that copies to and
from the host and runs ops. The array of a tensor on it is such an array. Code outside ``core`` and
the kernels reads only shape, strides and dtype of a tensor's array, so it works for every device;
code that needs the numbers in Python calls ``host``.

The dtype of such an array equals the ordinary one but is a different object, as for meta arrays, so
the fast paths through dispatch, which check ``dtype is F32``, decline it at no cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core.arrays import ForeignArray
from weft.core.meta import ELSEWHERE, LIVE, MetaArray, no_values, plain
from weft.core.modes import MODES
from weft.native.memory.layout import empty_like_dense, in_rows

ndarray = np.ndarray
DEVICES: dict[str, Device] = {}  # by the name of their type


class ArrayFlags:
    """The flags that follow from an array's strides."""

    __slots__ = ("c_contiguous", "f_contiguous", "owndata", "writeable")

    def __init__(self, array: DeviceArray) -> None:
        shape, strides, size = array.shape, array.strides, array.itemsize
        self.c_contiguous = in_rows(shape, strides, size)
        self.f_contiguous = in_rows(shape[::-1], strides[::-1], size)
        self.owndata, self.writeable = array.base is None, True


class DeviceArray(ForeignArray):
    """An array in memory that Python and NumPy can't reach: its geometry, and its operators.

    ``base`` is the array that owns the memory, or None; ``address`` is that of the first element,
    meaningful only among arrays of the device.
    """

    __slots__ = ("__weakref__", "address", "base", "dtype", "shape", "strides")
    home: Device
    __array_ufunc__ = None  # NumPy leaves operators to this class

    def __init__(self, shape: Any, strides: Any, dtype: Any, base: Any, address: int) -> None:
        self.shape, self.strides = tuple(shape), tuple(strides)
        self.dtype = self.home.dtypes[np.dtype(dtype)]
        self.base, self.address = base, address

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.dtype.itemsize)
    flags = property(ArrayFlags)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"an array on {self.home.name} can't be read from the host; copy it first")

    __bool__ = __int__ = __float__ = __complex__ = __index__ = __array__  # type: ignore[assignment]
    __len__ = __iter__ = __buffer__ = __array__  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        # In a pickle it is the bytes of its memory. Arrays that share it are views of one owner.
        if self.base is not None:
            raise TypeError(f"a view on {self.home.name} is pickled with the tensor that it is of")
        memory = self.home.view(self, np.dtype(np.uint8), (self.nbytes,), (1,), 0)
        return _from_pickle, (self.home.name, self.home.get(memory))

    def __repr__(self) -> str:
        return f"<{plain(self.dtype)}{list(self.shape)} on {self.home.name}>"


def _from_pickle(name: str, memory: ndarray) -> DeviceArray:
    if name not in DEVICES:
        raise RuntimeError(
            f"the pickle has a tensor on the device {name!r}, which this process does not have; "
            "register the device first, or pickle tensor.cpu()"
        )
    return DEVICES[name].put(memory)


def _operator(name: str, reflected: bool) -> Any:
    def method(self: DeviceArray, *others: Any) -> Any:
        from weft.core.dispatch import REGISTRY

        if any(hasattr(x, "_a") for x in others):
            return NotImplemented  # tensors take over
        given = (self, *others)
        return run(REGISTRY[name], given[::-1] if reflected else given, {})

    return method


for _name, _op in (
    *(("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"), ("matmul", "matmul")),
    *(("pow", "pow"), ("eq", "eq"), ("ne", "ne"), ("lt", "lt"), ("le", "le"), ("gt", "gt")),
    *(("ge", "ge"), ("neg", "neg"), ("abs", "abs"), ("and", "bitwise_and")),
    *(("or", "bitwise_or"), ("xor", "bitwise_xor")),
):
    setattr(DeviceArray, f"__{_name}__", _operator(_op, False))
    if _name in ("add", "sub", "mul", "truediv", "matmul", "pow", "and", "or", "xor"):
        setattr(DeviceArray, f"__r{_name}__", _operator(_op, True))


class Device:
    """A device: how its arrays are created, copied, viewed, and computed with."""

    name: str
    array: type[DeviceArray]
    dtypes: dict[np.dtype, np.dtype]  # of its arrays, by the ordinary ones that they equal

    def put(self, array: ndarray) -> DeviceArray:
        """A copy of a host array, with strides in the same order."""
        raise NotImplementedError

    def get(self, array: Any) -> ndarray:
        """A copy of an array in the host's memory, in the same order of dimensions."""
        raise NotImplementedError

    def view(self, array: Any, dtype: Any, shape: Any, strides: Any, start: int) -> DeviceArray:
        """Another geometry on the memory of an array, ``start`` bytes from where that begins."""
        raise NotImplementedError

    def write(self, target: Any, source: Any, where: ndarray | None = None) -> None:
        """Copy values into an array, in its own dtype; they broadcast. A mask may choose some."""
        raise NotImplementedError

    def run(self, op: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """An op on arrays of this device, numbers and zero-dim arrays of the host."""
        raise NotImplementedError


def register(device: Device) -> None:
    """Register a device: from now on tensors can be moved there by its name."""
    device.dtypes = {
        d: np.dtype(d, metadata={"device": device.name})  # type: ignore[call-overload]
        for d in dt.OF_NUMPY
    }
    device.array.home = device
    DEVICES[device.name] = device
    ELSEWHERE[device.name] = device.put
    dev.add(device.name)
    LIVE.add(id(device))  # dispatch looks for arrays of other devices while this is not empty


def forget(device: Device) -> None:
    """Unregister a device that has no tensors left."""
    del DEVICES[device.name], ELSEWHERE[device.name]
    LIVE.discard(id(device))


def device_of(array: Any) -> dev.device:
    """The device that an array is on."""
    if isinstance(array, DeviceArray):
        return dev.device(array.home.name, 0)
    return dev.META if array.__class__ is MetaArray else dev.CPU


def home_of(values: Any) -> Device | None:
    """The device that some of the values are on, if that is another than the CPU."""
    for x in values:
        if isinstance(x, DeviceArray):
            return x.home
    return None


# Ops that take an index, or values to write, from another device than that of their first input.
FROM_ELSEWHERE = frozenset(("copy", "fill", "index", "index_put", "index_backward", "copy_slices"))


def run(op: Any, args: Any, attrs: dict[str, Any]) -> Any:
    """An op of which some inputs are on a device other than the CPU."""
    home: Any = home_of(args)
    if op.name == "to_device":
        return moved(args[0], attrs["device"])
    attrs = {k: plain(v) if isinstance(v, np.dtype) else v for k, v in attrs.items()}
    inputs = []
    for x in args:
        if isinstance(x, ndarray) or (isinstance(x, DeviceArray) and x.home is not home):
            allowed = not x.ndim or op.name in FROM_ELSEWHERE or MODES.now.backward is not None
            if not allowed or isinstance(x, MetaArray):
                raise mixed(device_of(a) for a in args if isinstance(a, (ndarray, DeviceArray)))
            x = home.put(host_of(x)) if x.ndim else host_of(x)
        inputs.append(x)
    return home.run(op, tuple(inputs), attrs)


def mixed(found: Any) -> RuntimeError:
    """The error for tensors on several devices."""
    names = sorted({str(d) for d in found}, key=lambda name: (name == "cpu", name))
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{' and '.join(names[:2])}! Move one of them with .to()"
    )


def host_of(array: Any) -> ndarray:
    """An array's values in the host's memory: itself if they are there. Not to be written to."""
    if isinstance(array, DeviceArray):
        return array.home.get(array)
    if array.__class__ is MetaArray:
        raise no_values("reading values")
    return array


def host(x: Any) -> ndarray:
    """A tensor's or array's values, copied to the host if needed, for Python to read.

    They are not to be written to, and are the tensor's own memory where that is the host's.
    """
    return host_of(getattr(x, "_a", x))


def bare(x: Any) -> Any:
    """The operand of derivative rules: the array of a tensor on the CPU, on other devices the
    tensor itself, detached. Other values are returned unchanged.
    """
    array = getattr(x, "_a", x)
    if not isinstance(array, DeviceArray) or array is x:
        return array
    return x if x._node is None else x.detach()


def cpu_array(x: Any) -> ndarray:
    """The array of a tensor on the CPU, for code that works on the CPU's memory alone."""
    if isinstance(x._a, DeviceArray):
        raise RuntimeError(
            f"expected a tensor on the CPU, but found one on {x.device}; copy it with .cpu() first"
        )
    return x._a


def taken(x: Any) -> ndarray:
    """A tensor's values, which Python turns into a constant of a record."""
    for recorder in MODES.now.recorders:
        recorder.takes(x)
    return host(x)


def drawn_from(x: Any) -> ndarray:
    """A tensor's values for a generator; to a record they are an input of the draw."""
    for recorder in MODES.now.recorders:
        recorder.meets(x)
    return host(x)


def moved(array: Any, device: str) -> Any:
    """A copy of an array's values on the device of a name."""
    values = host_of(array)
    if device != "cpu":
        return DEVICES[device].put(values)
    return values.copy("K") if values is array else values


def placed(array: Any, where: dev.device) -> Any:
    """A new host array on the device that a tensor was asked for; meta arrays stay as they are."""
    home = DEVICES.get(where.type)
    if home is None or isinstance(array, DeviceArray):
        return array
    return _put(home, array)


def _put(home: Device, array: ndarray) -> DeviceArray:
    """A host array on a device. Recorders hear of it: the array may be what a draw gave them."""
    made = home.put(array)
    for recorder in MODES.now.recorders:
        recorder.puts(array, made)
    return made


def zeros_like(array: Any) -> Any:
    """Zeros in the shape and dtype of an array, on its device."""
    if isinstance(array, DeviceArray):
        return array.home.put(np.zeros(array.shape, plain(array.dtype)))
    return np.zeros_like(array)


def ones_like(array: Any) -> Any:
    """The same with ones."""
    if isinstance(array, DeviceArray):
        return array.home.put(np.ones(array.shape, plain(array.dtype)))
    return np.ones_like(array)


def model_like(array: Any) -> ndarray:
    """A new host array of the geometry of another array without its gaps, to be filled."""
    return empty_like_dense(array, plain(array.dtype))


def visible(x: Any) -> ndarray:
    """The same for descriptions of tensors: one without values is returned unchanged."""
    return x._a if isinstance(x._a, MetaArray) else host(x)


def put_like(like: Any, array: ndarray) -> Any:
    """A host array, on the device of another array; without values if that has none."""
    return _put(like.home, array) if isinstance(like, DeviceArray) else array


def copy_of(array: Any, order: Any = "K") -> Any:
    """A copy of an array on its own device."""
    if isinstance(array, DeviceArray):
        return array.home.put(np.array(array.home.get(array), order=order))
    return array.copy(order)


def viewed_as(array: Any, d: np.dtype) -> Any:
    """The same bytes as elements of another type."""
    if not isinstance(array, DeviceArray):
        return array.view(d)
    shape, strides = list(array.shape), list(array.strides)
    if d.itemsize != array.itemsize:
        shape[-1] = shape[-1] * array.itemsize // d.itemsize
        strides[-1] = d.itemsize
    return over_bytes(array, d, tuple(shape), tuple(strides), _start(array))


def over_bytes(memory: Any, d: np.dtype, shape: Any, strides: Any, start: int) -> Any:
    """An array of a geometry on the memory of another array, from a byte of its storage on."""
    if isinstance(memory, DeviceArray):
        return memory.home.view(memory, d, shape, strides, 0 if 0 in shape else start)
    return memory.__class__(shape, d, memory[:0] if 0 in shape else memory, start, strides)


def _start(array: DeviceArray) -> int:
    return array.address - (array if array.base is None else array.base).address


def on_device_of(d: np.dtype, array: ndarray) -> Any:
    """A host array on the device whose arrays have a dtype."""
    home = None if d.metadata is None else DEVICES.get(d.metadata["device"])
    return array if home is None else home.put(array)


def dtype_beside(array: Any, d: np.dtype) -> np.dtype:
    """The dtype of values that are on an array's device."""
    return array.home.dtypes[plain(d)] if isinstance(array, DeviceArray) else d


def write_into(target: Any, source: Any, where: Any = None) -> None:
    """Copy values into an array of any device, in its dtype; they broadcast."""
    if isinstance(target, DeviceArray):
        if not isinstance(source, DeviceArray) or source.home is not target.home:
            source = host_of(source)
        target.home.write(target, source, where)
    elif where is not None:
        target[where] = host_of(source)[where]
    else:
        np.copyto(target, host_of(source) if source.__class__ is not MetaArray else source,
                  casting="unsafe")  # fmt: skip


@contextmanager
def changed_on_host(*tensors: Any) -> Iterator[list[ndarray]]:
    """Arrays in the host's memory for a block to write the values of tensors to.

    They are the tensors' own where these are there, else copies that go back when the block ends.
    """
    arrays = [t._a for t in tensors]
    copies = [np.array(host_of(a)) if isinstance(a, DeviceArray) else a for a in arrays]
    yield copies
    for array, copy in zip(arrays, copies, strict=True):
        if copy is not array:
            write_into(array, copy)


def clear(array: Any) -> None:
    """Set every element to zero."""
    if array.dtype.kind == "V" or isinstance(array, DeviceArray):
        write_into(array, np.zeros((), plain(array.dtype)))  # one float8 type has no zero
    else:
        array.fill(0)


def address_of(array: Any) -> int:
    """Where an array's first element is, among the arrays of its device."""
    if isinstance(array, DeviceArray):
        return array.address
    return array.__array_interface__["data"][0]
