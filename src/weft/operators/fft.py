"""Fourier transforms."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.batching import each
from weft.core.dispatch import Op
from weft.core.shapes import ShapeDtype
from weft.core.tensor import Tensor
from weft.operators import api, batch_rules, shape_rules
from weft.operators.arithmetic import conj_op, mul_op
from weft.operators.build import Sample, linear
from weft.operators.casting import convert
from weft.operators.creation import finish, number_type
from weft.operators.views import place_op, real_op, slice_op

# How a transform is scaled: not at all, by the root of the number of points, or by that number.
NONE, ROOT, COUNT = range(3)
_FORWARD: Any = ("backward", "ortho", "forward")
_INVERSE: Any = ("forward", "ortho", "backward")


def _fft_c2c(x: np.ndarray, dim: tuple[int, ...], norm: int, forward: bool) -> np.ndarray:
    one = len(dim) == 1
    if forward:
        if one:
            return np.fft.fft(x, axis=dim[0], norm=_FORWARD[norm])
        return np.fft.fftn(x, axes=dim, norm=_FORWARD[norm])
    if one:
        return np.fft.ifft(x, axis=dim[0], norm=_INVERSE[norm])
    return np.fft.ifftn(x, axes=dim, norm=_INVERSE[norm])


fft_c2c_op: Op = linear(
    "fft_c2c",
    _fft_c2c,
    lambda g, dim, norm, forward: fft_c2c_op(g, dim=dim, norm=norm, forward=not forward),
    samples=lambda m: [
        Sample(
            (m.real(2, 3, 4) + 1j * m.real(2, 3, 4),), {"dim": (0, 2), "norm": 0, "forward": True}
        ),
        Sample((m.real(5) + 1j * m.real(5),), {"dim": (0,), "norm": 1, "forward": False}),
        Sample((m.real(0, 2) + 1j * m.real(0, 2),), {"dim": (1,), "norm": 2, "forward": True}),
    ],
    shape=lambda x: shape_rules.in_order_of(x, x.shape),
    batch=batch_rules.along,
)


def _fft_r2c(x: np.ndarray, dim: tuple[int, ...], norm: int, onesided: bool) -> np.ndarray:
    if len(dim) == 1:
        one = np.fft.rfft if onesided else np.fft.fft
        return one(x, axis=dim[0], norm=_FORWARD[norm])
    several = np.fft.rfftn if onesided else np.fft.fftn
    return several(x, axes=dim, norm=_FORWARD[norm])


def _fft_r2c_back(g: Any, x_shape: Any, dim: tuple[int, ...], norm: int, onesided: bool) -> Any:
    if onesided:
        last = dim[-1]
        full = (*g.shape[:last], x_shape[last], *g.shape[last + 1 :])
        index = (slice(None),) * last + (slice(0, g.shape[last]),)
        g = place_op(g, shape=full, index=index)
    return real_op(fft_c2c_op(g, dim=dim, norm=norm, forward=False))


def _r2c_shape(x: ShapeDtype, dim: tuple[int, ...], onesided: bool) -> ShapeDtype:
    shape = x.shape
    if onesided:
        shape = shape_rules.replaced(shape, dim[-1], shape[dim[-1]] // 2 + 1)
    return shape_rules.in_order_of(x, shape, shape_rules.complex_of(x.dtype))


fft_r2c_op = linear(
    "fft_r2c",
    _fft_r2c,
    _fft_r2c_back,
    samples=lambda m: [
        Sample((m.real(2, 3, 4),), {"dim": (0, 2), "norm": 0, "onesided": True}),
        Sample((m.real(5, 2),), {"dim": (0,), "norm": 1, "onesided": True}),
        Sample((m.real(1, 3),), {"dim": (1, 0), "norm": 2, "onesided": False}),
    ],
    shape=_r2c_shape,
    batch=batch_rules.along,
)


def _fft_c2r(x: np.ndarray, dim: tuple[int, ...], norm: int, size: int) -> np.ndarray:
    if not x.size or size < 1:  # NumPy reads the first element even where there is none
        raise RuntimeError(f"Invalid number of data points ({size}) specified")
    if len(dim) == 1:
        return np.fft.irfft(x, size, dim[0], _INVERSE[norm])
    points = [x.shape[d] for d in dim[:-1]] + [size]
    return np.fft.irfftn(x, s=points, axes=dim, norm=_INVERSE[norm])


def _fft_c2r_back(g: Any, dim: tuple[int, ...], norm: int, size: int) -> Any:
    half = fft_r2c_op(g, dim=dim, norm=norm, onesided=True)
    last = dim[-1]
    # All but the first (and for an even size the last) frequency stand for two.
    weights = np.ones(half.shape[last], np.float32 if half.dtype.itemsize == 8 else np.float64)
    weights[1 : 1 + (size - 1) // 2] = 2
    return mul_op(half, weights.reshape((-1,) + (1,) * (len(half.shape) - last - 1)))


fft_c2r_op = linear(
    "fft_c2r",
    _fft_c2r,
    _fft_c2r_back,
    samples=lambda m: [
        Sample((m.real(2, 3) + 1j * m.real(2, 3),), {"dim": (0, 1), "norm": 2, "size": 4}),
        Sample((m.real(3) + 1j * m.real(3),), {"dim": (0,), "norm": 1, "size": 5}),
        Sample((m.real(1, 2) + 1j * m.real(1, 2),), {"dim": (0,), "norm": 0, "size": 1}),
    ],
    shape=lambda x, dim, size: shape_rules.in_order_of(
        x, shape_rules.replaced(x.shape, dim[-1], size), shape_rules.real(x.dtype)
    ),
    batch=lambda b: batch_rules.along(b) if b.size else each(b),
)

# --- arguments -------------------------------------------------------------------------


def _norm(norm: str | None, forward: bool) -> int:
    if norm is None or norm == "backward":
        return NONE if forward else COUNT
    if norm == "forward":
        return COUNT if forward else NONE
    if norm != "ortho":
        _fail(f'Invalid normalization mode: "{norm}"')
    return ROOT


def _input(x: Tensor, name: str, *, complex: bool = False, real: bool = False) -> Tensor:
    """The input in a type that can be transformed."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name}(): argument 'input' must be Tensor, not {type(x).__name__}\n"
            f"  at {errors.here()}"
        )
    d = x._a.dtype
    if real and d.kind == "c":
        _fail(f"{name} expects a real input tensor, but got {x.dtype!r}")
    if d in dt.HALF:
        _fail(f"Unsupported dtype {x.dtype!r}")
    if d.kind in "iub":
        d = dt.get_default_dtype().np
    if complex and d.kind != "c":
        d = dt.OF_NUMPY[d].to_complex().np
    return convert(x, d)


def _fail(message: str) -> NoReturn:
    raise RuntimeError(f"{message}\n  at {errors.here()}")


def _plan(x: Tensor, s: Any, dim: Any) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """The dims to transform and the number of points of each (None: as the input has)."""
    shape = x._a.shape
    rank = len(shape)
    if s is not None:
        s = tuple(s) if isinstance(s, (tuple, list)) else (s,)
    if dim is not None:
        given = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
        if given and not rank:
            raise IndexError(
                f"Dimension specified as {given[0]} but tensor has no dimensions\n"
                f"  at {errors.here()}"
            )
        dims = tuple([api.wrap_dim(d, rank) for d in given])
        if len(set(dims)) != len(dims):
            _fail("FFT dims must be unique")
        if s is not None and len(s) != len(dims):
            _fail("When given, dim and shape arguments must have the same length")
    elif s is not None:
        if len(s) > rank:
            _fail(f"Got shape with {len(s)} values but input tensor only has {rank} dimensions.")
        dims = tuple(range(rank - len(s), rank))
    else:
        dims = tuple(range(rank))
    points = (None,) * len(dims) if s is None else tuple([None if n == -1 else int(n) for n in s])
    for d, n in zip(dims, points, strict=True):
        count = shape[d] if n is None else n
        if count < 1:
            _fail(f"Invalid number of data points ({count}) specified")
    return dims, points


def _resized(x: Tensor, dims: tuple[int, ...], points: tuple[int | None, ...]) -> Tensor:
    """The input cut or filled up with zeros to the wanted number of points."""
    if not any(points):
        return x
    shape = list(x._a.shape)
    index = [slice(None)] * len(shape)
    larger = False
    for d, n in zip(dims, points, strict=True):
        if n is not None and n != shape[d]:
            index[d] = slice(0, min(n, shape[d]))
            larger |= n > shape[d]
            shape[d] = n
    if any(
        part.stop is not None and part.stop < m for part, m in zip(index, x._a.shape, strict=True)
    ):
        x = slice_op(x, index=tuple(index))
    return place_op(x, shape=tuple(shape), index=tuple(index)) if larger else x


def _all_dims(
    input: Tensor, s: Any, dim: Any, norm: str | None, forward: bool, name: str
) -> Tensor:
    x = _input(input, name, complex=not forward)
    dims, points = _plan(x, s, dim)
    x = _resized(x, dims, points)
    if not dims:
        return convert(x, x.dtype.to_complex().np, copy=True)
    mode = _norm(norm, forward)
    if x._a.dtype.kind == "c":
        return fft_c2c_op(x, dim=dims, norm=mode, forward=forward)
    return fft_r2c_op(x, dim=dims, norm=mode, onesided=False)


def _real_dims(input: Tensor, s: Any, dim: Any, norm: str | None, name: str) -> Tensor:
    x = _input(input, name, real=True)
    dims, points = _plan(x, s, dim)
    if not dims:
        _fail(f"{name} must transform at least one axis")
    return fft_r2c_op(_resized(x, dims, points), dim=dims, norm=_norm(norm, True), onesided=True)


def _to_real(x: Tensor, s: Any, dim: Any, name: str) -> tuple[Tensor, tuple[int, ...], int]:
    """A half-complex input of the right size, its dims, and the size of the last one after."""
    dims, points = _plan(x, s, dim)
    if not dims:
        _fail(f"{name} must transform at least one axis")
    size = points[-1]
    if size is None:
        size = 2 * (x._a.shape[dims[-1]] - 1)
    if size < 1:
        _fail(f"Invalid number of data points ({size}) specified")
    return _resized(x, dims, (*points[:-1], size // 2 + 1)), dims, size


# --- torch.fft -------------------------------------------------------------------------


def _under(function: Any) -> Any:
    return api.under("fft", function, out=True)


@_under
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The Fourier transform along one dimension."""
    return _all_dims(input, None if n is None else (n,), (dim,), norm, True, "fft")


@_under
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse Fourier transform along one dimension."""
    return _all_dims(input, None if n is None else (n,), (dim,), norm, False, "ifft")


@_under
def fftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The Fourier transform along several dimensions."""
    return _all_dims(input, s, dim, norm, True, "fftn")


@_under
def ifftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse Fourier transform along several dimensions."""
    return _all_dims(input, s, dim, norm, False, "ifftn")


@_under
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The non-negative frequencies of a real input."""
    return _real_dims(input, None if n is None else (n,), (dim,), norm, "rfft")


@_under
def rfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The transform of a real input; half of the last dimension's frequencies."""
    return _real_dims(input, s, dim, norm, "rfftn")


@_under
def irfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The real signal whose ``rfftn`` is given."""
    x, dims, size = _to_real(_input(input, "irfftn", complex=True), s, dim, "irfftn")
    return fft_c2r_op(x, dim=dims, norm=_norm(norm, False), size=size)


@_under
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The real signal whose ``rfft`` is given."""
    return irfftn(input, None if n is None else (n,), (dim,), norm)


@_under
def hfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The transform, which is real, of a signal symmetric up to conjugation."""
    x, dims, size = _to_real(_input(input, "hfftn", complex=True), s, dim, "hfftn")
    mode = _norm(norm, True)
    if len(dims) > 1:
        x = fft_c2c_op(x, dim=dims[:-1], norm=mode, forward=True)
    return fft_c2r_op(conj_op(x), dim=dims[-1:], norm=mode, size=size)


@_under
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform, which is real, of a signal symmetric up to conjugation."""
    return hfftn(input, None if n is None else (n,), (dim,), norm)


@_under
def ihfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of ``hfftn``: half of a signal with a real transform."""
    x = _input(input, "ihfftn", real=True)
    dims, points = _plan(x, s, dim)
    if not dims:
        _fail("ihfftn must transform at least one axis")
    mode = _norm(norm, False)
    half = fft_r2c_op(_resized(x, dims, points), dim=dims[-1:], norm=mode, onesided=True)
    half = conj_op(half)
    return fft_c2c_op(half, dim=dims[:-1], norm=mode, forward=False) if len(dims) > 1 else half


@_under
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``hfft``: half of a signal with a real transform."""
    return ihfftn(input, None if n is None else (n,), (dim,), norm)


def _two_dims(name: str, function: Any) -> None:
    def transform(
        input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None
    ) -> Tensor:
        return function(input, s, dim, norm)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"``{name[:-1]}n`` over the last two dimensions."
    _under(transform)


for _name, _function in (
    ("fft2", fftn), ("ifft2", ifftn), ("rfft2", rfftn), ("irfft2", irfftn),
    ("hfft2", hfftn), ("ihfft2", ihfftn),
):  # fmt: skip
    _two_dims(_name, _function)


def _frequencies(name: str, make: Any) -> None:
    def frequencies(
        n: int, d: float = 1.0, *, out: Any = None, dtype: Any = None, layout: Any = None,
        device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        array = make(n, d).astype(number_type(dtype, out))
        made = finish(array, device, requires_grad)
        return made if out is None else api.into(out, made, name)

    frequencies.__name__ = frequencies.__qualname__ = name
    frequencies.__doc__ = "The frequencies that a transform of ``n`` points ``d`` apart stands for."
    api.under("fft", frequencies)


_frequencies("fftfreq", np.fft.fftfreq)
_frequencies("rfftfreq", np.fft.rfftfreq)


def _shift(name: str, amount: Any) -> None:
    def shift(input: Tensor, dim: Any = None) -> Tensor:
        dims = api.dims(dim, input.ndim)
        if not dims:
            raise RuntimeError(
                f"{name}: `shifts` required: there is no dimension to shift\n  at {errors.here()}"
            )
        return input.roll([amount(input._a.shape[d]) for d in dims], dims)

    shift.__name__ = shift.__qualname__ = name
    shift.__doc__ = "Frequency zero to the middle, or back to the front."
    api.under("fft", shift)


_shift("fftshift", lambda n: n // 2)
_shift("ifftshift", lambda n: (n + 1) // 2)
