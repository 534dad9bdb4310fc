"""Convolution of any dimension as GEMM over window views, with its two adjoints."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from math import prod
from operator import index
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

Ints = tuple[int, ...]

# Column blocks of about this size stay in the cache between the copy and the GEMM.
_BLOCK_BYTES = 1 << 22


@functools.lru_cache(1024)
def check_fit(
    g: Ints, x: Ints, w: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> None:
    """Raise unless (N, O, *out), (N, C, *S) and (O, C/groups, *K) are shapes of one convolution.

    There may be fewer places in ``out`` than fit into the input.
    """
    rank = len(x)
    groups, *numbers = map(index, (groups, *stride, *padding, *dilation))
    if not (
        rank == len(g) == len(w) > 2
        and len(stride) == len(padding) == len(dilation) == rank - 2
        and groups > 0
        and g[:2] == (x[0], w[0])
        and x[1] == w[1] * groups
        and not w[0] % groups
    ):
        raise RuntimeError(
            f"a convolution of an input of shape {list(x)} by a weight of shape {list(w)} in "
            f"{groups} groups, with stride {stride}, padding {padding} and dilation {dilation}, "
            f"has no result of shape {list(g)}"
        )
    if min(numbers[: rank - 2]) < 1 or min(numbers[2 * (rank - 2) :]) < 1 or min(padding) < 0:
        raise RuntimeError(
            f"stride {stride} and dilation {dilation} should be greater than zero, and negative "
            f"padding is not supported: {padding}"
        )
    padded = tuple(size + 2 * p for size, p in zip(x[2:], padding, strict=True))
    _check_places(padded, w[2:], stride, dilation, g[2:])


def check_bias(bias: np.ndarray | None, channels: int) -> None:
    """Raise unless there is one number for each channel, or none."""
    if bias is not None and bias.shape != (channels,):
        raise RuntimeError(
            f"expected bias to be 1-dimensional with {channels} elements, but got bias of size "
            f"{list(bias.shape)} instead"
        )


def _check_places(spatial: Ints, kernel: Ints, stride: Ints, dilation: Ints, out: Ints) -> None:
    """Raise unless all taps of all windows are inside."""
    for size, k, s, d, n in zip(spatial, kernel, stride, dilation, out, strict=True):
        if min(k, s, d, n) < 0 or (n and k and (n - 1) * s + d * (k - 1) >= size):
            raise RuntimeError(
                f"{_shape_text(out)} windows of {_shape_text(kernel)}, with stride {stride} and "
                f"dilation {dilation}, do not fit into {_shape_text(spatial)} places"
            )


@functools.lru_cache(1024)
def output_extent(spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    """Return the spatial shape of an ordinary convolution."""
    padded = tuple(size + 2 * p for size, p in zip(spatial, padding, strict=True))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    if any(r > size for r, size in zip(reach, padded, strict=True)):
        raise RuntimeError(
            f"Calculated padded input size per channel: {_shape_text(padded)}. "
            f"Kernel size: {_shape_text(reach)}. "
            "Kernel size can't be greater than actual input size"
        )
    return tuple((size - r) // s + 1 for size, r, s in zip(padded, reach, stride, strict=True))


def transposed_extent(
    spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, output_padding: Ints
) -> Ints:
    """Return the spatial shape of a transposed convolution."""
    axes = zip(spatial, kernel, stride, padding, dilation, output_padding, strict=True)
    out = tuple((n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, d, extra in axes)
    if min(out) < 0:
        raise RuntimeError(
            f"Given input size per channel: {_shape_text(spatial)}. "
            f"Calculated output size per channel: {_shape_text(out)}. Output size is too small"
        )
    return out


def convolution(
    x: np.ndarray,
    w: np.ndarray,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    transposed: bool = False,
    output_padding: Ints = (),
) -> np.ndarray:
    """Cross-correlate (N, C, *S) with (O, C/groups, *K), or apply the transpose of that."""
    kernel = w.shape[2:]
    if transposed:
        extra = output_padding or (0,) * len(kernel)
        spatial = transposed_extent(x.shape[2:], kernel, stride, padding, dilation, extra)
        shape = (x.shape[0], w.shape[1] * groups, *spatial)
        return convolution_input_grad(x, w, shape, stride, padding, dilation, groups)
    out = output_extent(x.shape[2:], kernel, stride, padding, dilation)
    wide = _gemm_dtype(x, w)
    weight = _group_weight(w, groups).astype(wide, copy=False)
    if _is_pointwise(kernel, padding):
        # The samples are already column matrices, so no window is ever copied.
        columns = _decimate(x, stride).reshape(x.shape[0], groups, weight.shape[2], prod(out))
        y = weight @ columns.astype(wide, copy=False)
        return y.reshape(x.shape[0], w.shape[0], *out).astype(x.dtype, copy=False)
    windows = _windows(_pad(x, padding), kernel, stride, dilation, out)
    y = np.empty((x.shape[0], w.shape[0], *out), x.dtype)
    for block in _blocks(windows):
        columns = _columns(windows[block], groups, wide)
        y[block] = _to_samples(weight @ columns, y[block].shape)
    return y


def convolution_input_grad(
    g: np.ndarray,
    w: np.ndarray,
    input_shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> np.ndarray:
    """Apply the transpose of the convolution as a map of its input (no conjugation)."""
    if 0 in input_shape:
        return np.zeros(input_shape, g.dtype)
    kernel, out = w.shape[2:], g.shape[2:]
    mirrored = _mirror_padding(g, w, input_shape, stride, padding, dilation)
    if mirrored:
        return convolution(g, _mirror_weight(w, groups), stride, mirrored, dilation, groups)
    wide = _gemm_dtype(g, w)
    weight = _group_weight(w, groups).astype(wide, copy=False).swapaxes(1, 2)
    if _is_pointwise(kernel, padding):
        samples = g.reshape(g.shape[0], groups, weight.shape[2], prod(out))
        columns = (weight @ samples.astype(wide, copy=False)).astype(g.dtype, copy=False)
        columns = columns.reshape(*input_shape[:2], *out)
        if columns.shape == tuple(input_shape):
            return columns
        gx = np.zeros(input_shape, g.dtype)
        _decimate(gx, stride)[_corner(out)] = columns
        return gx
    padded, gx = _padded_zeros(input_shape, padding, wide)
    windows = _windows(padded, kernel, stride, dilation, out)
    for block in _blocks(windows):
        columns = weight @ _group_matrix(g[block], groups, wide)
        _add_columns(windows[block], columns)
    return np.ascontiguousarray(gx.astype(g.dtype, copy=False))


def convolution_weight_grad(
    g: np.ndarray,
    x: np.ndarray,
    weight_shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> np.ndarray:
    """Apply the transpose of the convolution as a map of its weight (no conjugation)."""
    kernel, out = tuple(weight_shape[2:]), g.shape[2:]
    wide = _gemm_dtype(g, x)
    rows, depth = weight_shape[0] // groups, prod(weight_shape[1:])
    gw = np.zeros((groups, rows, depth), wide)
    windows = _windows(_pad(x, padding), kernel, stride, dilation, out)
    for block in _blocks(windows):
        columns = _columns(windows[block], groups, wide)
        gw += _group_matrix(g[block], groups, wide) @ columns.swapaxes(1, 2)
    return gw.reshape(weight_shape).astype(g.dtype, copy=False)


def unfold(x: np.ndarray, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> np.ndarray:
    """Copy every window of (N, C, *S) into a column: (N, C * prod(kernel), windows)."""
    out = output_extent(x.shape[2:], kernel, stride, padding, dilation)
    windows = _windows(_pad(x, padding), kernel, stride, dilation, out)
    return np.array(windows, order="C").reshape(x.shape[0], x.shape[1] * prod(kernel), prod(out))


def fold(
    cols: np.ndarray,
    output_size: Ints,
    kernel: Ints,
    dilation: Ints,
    padding: Ints,
    stride: Ints,
) -> np.ndarray:
    """Sum columns back into the images they came from, the transpose of unfold."""
    out = output_extent(output_size, kernel, stride, padding, dilation)
    channels = cols.shape[1] // prod(kernel)
    padded, image = _padded_zeros((cols.shape[0], channels, *output_size), padding, cols.dtype)
    windows = _windows(padded, kernel, stride, dilation, out)
    cols = cols.reshape(windows.shape)
    for tap in np.ndindex(*kernel):
        windows[:, :, *tap] += cols[:, :, *tap]
    return np.ascontiguousarray(image)


def _shape_text(sizes: Ints) -> str:
    return "(" + " x ".join(map(str, sizes)) + ")"


def _gemm_dtype(*arrays: np.ndarray) -> np.dtype:
    # Half precision has no BLAS and would round at every addition.
    dtype = np.result_type(*arrays)
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def _is_pointwise(kernel: Ints, padding: Ints) -> bool:
    return all(k == 1 for k in kernel) and not any(padding)


def _mirror_padding(
    g: np.ndarray, w: np.ndarray, input_shape: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Ints:
    # At stride one the transpose is a convolution too, and with no more channels going in than
    # out its window copies are cheaper than scattered additions. Empty where it does not apply.
    kernel = w.shape[2:]
    if prod(kernel) == 1 or any(s != 1 for s in stride) or w.shape[0] > input_shape[1]:
        return ()
    axes = tuple(zip(g.shape[2:], input_shape[2:], kernel, padding, dilation, strict=True))
    if any(p > d * (k - 1) or n + d * (k - 1) - 2 * p != size for n, size, k, p, d in axes):
        return ()
    return tuple(d * (k - 1) - p for _, _, k, p, d in axes)


def _mirror_weight(w: np.ndarray, groups: int) -> np.ndarray:
    rows, depth, *kernel = w.shape
    mirrored = np.flip(w, tuple(range(2, w.ndim))).reshape(groups, rows // groups, depth, *kernel)
    return mirrored.swapaxes(1, 2).reshape(groups * depth, rows // groups, *kernel)


def _decimate(x: np.ndarray, stride: Ints) -> np.ndarray:
    kept: Any = (..., *(slice(None, None, s) for s in stride))
    return x[kept]


def _corner(extent: Ints) -> tuple:
    return (..., *(slice(n) for n in extent))


def _interior(shape: Ints, padding: Ints) -> tuple:
    return (..., *(slice(p, p + n) for n, p in zip(shape[2:], padding, strict=True)))


def _padded_zeros(shape: Ints, padding: Ints, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    spatial = (n + 2 * p for n, p in zip(shape[2:], padding, strict=True))
    padded = np.zeros((*shape[:2], *spatial), dtype)
    return padded, padded[_interior(shape, padding)]


def _pad(x: np.ndarray, padding: Ints) -> np.ndarray:
    if not any(padding):
        return x
    padded, interior = _padded_zeros(x.shape, padding, x.dtype)
    interior[...] = x
    return padded


def _windows(x: np.ndarray, kernel: Ints, stride: Ints, dilation: Ints, out: Ints) -> np.ndarray:
    # (N, C, *K, *out) without a copy; windows overlap, taps at one place of K never do.
    _check_places(x.shape[2:], kernel, stride, dilation, out)
    steps = x.strides[2:]
    tap_steps = tuple(step * d for step, d in zip(steps, dilation, strict=True))
    out_steps = tuple(step * s for step, s in zip(steps, stride, strict=True))
    return as_strided(x, (*x.shape[:2], *kernel, *out), (*x.strides[:2], *tap_steps, *out_steps))


def _blocks(windows: np.ndarray) -> Iterator[slice]:
    samples = windows.shape[0]
    per_sample = max(1, prod(windows.shape[1:]) * windows.itemsize)
    step = max(1, _BLOCK_BYTES // per_sample)
    return (slice(start, start + step) for start in range(0, samples, step))


def _group_weight(w: np.ndarray, groups: int) -> np.ndarray:
    return w.reshape(groups, w.shape[0] // groups, prod(w.shape[1:]))


def _group_matrix(a: np.ndarray, groups: int, dtype: np.dtype) -> np.ndarray:
    # (n, C, ...) to one matrix per group whose columns run over samples and places.
    matrix = np.ascontiguousarray(a.swapaxes(0, 1), dtype)
    return matrix.reshape(groups, a.shape[1] // groups, a.shape[0] * prod(a.shape[2:]))


def _columns(windows: np.ndarray, groups: int, dtype: np.dtype) -> np.ndarray:
    n, channels, *rest = windows.shape
    nd = len(rest) // 2
    columns = np.ascontiguousarray(np.moveaxis(windows, 0, nd + 1), dtype)
    depth = channels // groups * prod(rest[:nd])
    return columns.reshape(groups, depth, n * prod(rest[nd:]))


def _add_columns(windows: np.ndarray, columns: np.ndarray) -> None:
    n, channels, *rest = windows.shape
    nd = len(rest) // 2
    columns = columns.reshape(channels, *rest[:nd], n, *rest[nd:])
    for tap in np.ndindex(*rest[:nd]):
        windows[:, :, *tap] += columns[:, *tap].swapaxes(0, 1)


def _to_samples(product: np.ndarray, shape: Ints) -> np.ndarray:
    return product.reshape(shape[1], shape[0], *shape[2:]).swapaxes(0, 1)
