"""Pooling of any dimension over (N, C, *spatial), and the adjoints the gradients need."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

Ints = tuple[int, ...]


def pool_extent(
    spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Ints:
    """Return the spatial shape of a pooling."""
    extent = []
    for size, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True):
        n = (size + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        # Rounding up must not leave a window that starts inside the right padding.
        if ceil_mode and (n - 1) * s >= size + p:
            n -= 1
        extent.append(n)
    if min(extent) < 1:
        raise RuntimeError(
            f"Given input size: {tuple(spatial)}. Calculated output size: {tuple(extent)}. "
            "Output size is too small"
        )
    return tuple(extent)


def max_pool(
    x: np.ndarray,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest value of every window and its flat place in the plane."""
    spatial = x.shape[2:]
    out = pool_extent(spatial, kernel, stride, padding, dilation, ceil_mode)
    padded = _pad(x, kernel, stride, padding, dilation, out, _lowest(x.dtype))
    steps = _plane_steps(spatial)
    # A window of nothing but the lowest value answers with its first place inside the plane.
    number = np.zeros((*x.shape[:2], *out), np.int32)
    corner: Any = 0
    for axis, (n, s, p, d) in enumerate(zip(out, stride, padding, dilation, strict=True)):
        start = np.arange(n) * s - p
        first = -(np.minimum(start, 0) // d) * prod(kernel[axis + 1 :])
        number += _along(first, axis, len(out)).astype(np.int32)
        corner = corner + _along(start * steps[axis], axis, len(out))
    best = np.full(number.shape, _lowest(x.dtype), x.dtype)
    for count, tap in enumerate(np.ndindex(*kernel)):
        _keep_larger(best, number, padded[_tap_slices(tap, stride, dilation, out)], count)
    offsets = np.array(steps) * dilation @ np.indices(kernel).reshape(len(kernel), -1)
    return best, offsets[number] + corner


def max_pool_scatter(g: np.ndarray, indices: np.ndarray, input_shape: Ints) -> np.ndarray:
    """Add every value of g to the place of its plane that indices names."""
    gx = np.zeros(prod(input_shape), g.dtype)
    np.add.at(gx, _global_places(indices, prod(input_shape[2:])), g.reshape(-1))
    return gx.reshape(input_shape)


def max_unpool(x: np.ndarray, indices: np.ndarray, output_spatial: Ints) -> np.ndarray:
    """Put every value of x at its place in a plane of zeros; the last one written stays."""
    plane = prod(output_spatial)
    wrong = indices[(indices < 0) | (indices >= plane)]
    if wrong.size:
        raise RuntimeError(
            f"Found an invalid max index: {wrong.flat[0]} (output volumes are of size "
            f"{'x'.join(map(str, output_spatial))})"
        )
    out = np.zeros(prod(x.shape[:2]) * plane, x.dtype)
    out[_global_places(indices, plane)] = x.reshape(-1)
    return out.reshape(*x.shape[:2], *output_spatial)


def gather_plane(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Read from every plane the places that indices names, the transpose of the scatter."""
    places = _global_places(indices, prod(x.shape[2:]))
    return x.reshape(-1)[places].reshape(indices.shape)


def avg_pool(
    x: np.ndarray,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> np.ndarray:
    """Return the mean of every window."""
    ones = (1,) * len(kernel)
    out = pool_extent(x.shape[2:], kernel, stride, padding, ones, ceil_mode)
    total = _pad(x, kernel, stride, padding, ones, out, 0).astype(_sum_dtype(x), copy=False)
    # A box sum is separable, so k taps per axis do instead of their product.
    for axis, (k, s, n) in enumerate(zip(kernel, stride, out, strict=True)):
        taps = (total[_axis_slice(axis, tap, s, n)] for tap in range(k))
        total = _add_all(taps)
    sizes = x.shape[2:], kernel, stride, padding, out
    divisor = _divisor(*sizes, count_include_pad, divisor_override)
    return _divide(total, divisor).astype(x.dtype, copy=False)


def avg_pool_grad(
    g: np.ndarray,
    input_shape: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> np.ndarray:
    """Apply the transpose of avg_pool; ceil_mode is already in the shape of g."""
    spatial, out = tuple(input_shape[2:]), g.shape[2:]
    for size, k, s, p, n in zip(spatial, kernel, stride, padding, out, strict=True):
        if k > size + 2 * p or (n - 1) * s >= size + p:
            raise RuntimeError(
                f"means of windows of {k} with stride {s} and padding {p} over {size} places have "
                f"no gradient of {n} places"
            )
    divisor = _divisor(spatial, kernel, stride, padding, out, count_include_pad, divisor_override)
    gx = _divide(g.astype(_sum_dtype(g), copy=False), divisor)
    for axis, (size, k, s, p, n) in enumerate(
        zip(spatial, kernel, stride, padding, out, strict=True)
    ):
        shape = list(gx.shape)
        shape[axis + 2] = max(size + p, (n - 1) * s + k)
        wide = np.zeros(shape, gx.dtype)
        for tap in range(k):
            wide[_axis_slice(axis, tap, s, n)] += gx
        gx = wide[_axis_slice(axis, p, 1, size)]
    return np.ascontiguousarray(gx.astype(g.dtype, copy=False))


def adaptive_avg_pool(x: np.ndarray, output_size: Ints) -> np.ndarray:
    """Return the means of windows spread evenly over every axis."""
    y = x.astype(_sum_dtype(x), copy=False)
    for axis, n in enumerate(output_size):
        start, stop = _even_windows(x.shape[2 + axis], n)
        y = _range_sums(y, axis, start, stop)
        y /= _along(stop - start, axis, len(output_size)).astype(y.dtype)
    return y.astype(x.dtype, copy=False)


def adaptive_avg_pool_grad(g: np.ndarray, input_shape: Ints) -> np.ndarray:
    """Apply the transpose of adaptive_avg_pool."""
    gx = g.astype(_sum_dtype(g), copy=False)
    for axis, size in enumerate(input_shape[2:]):
        start, stop = _even_windows(size, g.shape[2 + axis])
        gx = gx / _along(stop - start, axis, g.ndim - 2).astype(gx.dtype)
        # The windows that cover one input are again the even windows, seen from the other side.
        gx = _range_sums(gx, axis, *_even_windows(g.shape[2 + axis], size))
    return gx.astype(g.dtype, copy=False)


def adaptive_max_pool(x: np.ndarray, output_size: Ints) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest value of windows spread evenly over every axis, and its flat place."""
    spatial = x.shape[2:]
    if all(n and size % n == 0 for size, n in zip(spatial, output_size, strict=True)):
        kernel = tuple(size // n for size, n in zip(spatial, output_size, strict=True))
        zeros, ones = (0,) * len(kernel), (1,) * len(kernel)
        return max_pool(x, kernel, kernel, zeros, ones)
    places = []
    for size, n in zip(spatial, output_size, strict=True):
        start, stop = _even_windows(size, n)
        tap = np.arange((stop - start).max(initial=0))[:, None, None, None]
        # A short window reads its last place again, which can change nothing.
        places.append(np.minimum(start + tap, stop - 1))
    return _max_of_places(x, places)


def fractional_max_pool(
    x: np.ndarray, kernel: Ints, output_size: Ints, random_samples: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Max-pool windows whose starts are drawn per plane by random_samples (N, C, 2 or 3)."""
    samples = random_samples.astype(x.dtype, copy=False)
    if len(kernel) == 2:
        # The two-dimensional operator reads its samples width first.
        samples = samples[..., ::-1]
    places = []
    for axis, (k, n) in enumerate(zip(kernel, output_size, strict=True)):
        starts = _fractional_starts(samples[..., axis, None], x.shape[2 + axis], n, k)
        places.append(starts + np.arange(k)[:, None, None, None])
    return _max_of_places(x, places)


def _lowest(dtype: np.dtype) -> float | int:
    return -np.inf if np.issubdtype(dtype, np.inexact) else np.iinfo(dtype).min


def _sum_dtype(x: np.ndarray) -> np.dtype:
    return np.dtype(np.float32) if x.dtype == np.float16 else x.dtype


def _plane_steps(spatial: Ints) -> Ints:
    return tuple(prod(spatial[axis + 1 :]) for axis in range(len(spatial)))


def _along(values: np.ndarray, axis: int, nd: int) -> np.ndarray:
    lead, length = values.shape[:-1], values.shape[-1:]
    return values.reshape(lead + (1,) * axis + length + (1,) * (nd - axis - 1))


def _axis_slice(axis: int, start: int, step: int, count: int) -> tuple:
    return (slice(None),) * (axis + 2) + (slice(start, start + (count - 1) * step + 1, step),)


def _add_all(terms: Iterator[np.ndarray]) -> np.ndarray:
    total = next(terms).copy()
    for term in terms:
        total += term
    return total


def _tap_slices(tap: Ints, stride: Ints, dilation: Ints, out: Ints) -> tuple:
    axes = zip(tap, stride, dilation, out, strict=True)
    return (..., *(slice(t * d, t * d + (n - 1) * s + 1, s) for t, s, d, n in axes))


def _pad(
    x: np.ndarray,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    out: Ints,
    fill: float,
) -> np.ndarray:
    # Far enough to the right for the last window, which ceil_mode may push past the padding.
    axes = zip(x.shape[2:], kernel, stride, padding, dilation, out, strict=True)
    ends = [max(size + p, (n - 1) * s + d * (k - 1) + 1) for size, k, s, p, d, n in axes]
    if tuple(ends) == x.shape[2:]:
        return x
    padded = np.full((*x.shape[:2], *ends), fill, x.dtype)
    places = zip(padding, x.shape[2:], strict=True)
    inner: Any = (..., *(slice(p, p + size) for p, size in places))
    padded[inner] = x
    return padded


def _keep_larger(best: np.ndarray, number: np.ndarray, value: np.ndarray, count: int) -> None:
    # A NaN beats everything and never loses again, except to a later NaN.
    better = value > best
    if np.issubdtype(value.dtype, np.inexact):
        better |= np.isnan(value)
    np.maximum(best, value, out=best)
    # Counts only grow, so the maximum selects the better one without a masked copy.
    np.maximum(number, np.multiply(better, np.int32(count)), out=number)


def _max_of_places(x: np.ndarray, places: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    # places holds per axis the coordinates (taps, N or 1, C or 1, out).
    lengths = [len(place) for place in places]
    shape = (*x.shape[:2], *(place.shape[-1] for place in places))
    scaled = [
        np.broadcast_to(_along(place * step, axis, len(places)), (len(place), *shape))
        for axis, (place, step) in enumerate(zip(places, _plane_steps(x.shape[2:]), strict=True))
    ]
    best = np.full(shape, _lowest(x.dtype), x.dtype)
    number = np.zeros(shape, np.int32)
    for count, tap in enumerate(np.ndindex(*lengths)):
        flat = _add_all(place[t] for place, t in zip(scaled, tap, strict=True))
        _keep_larger(best, number, gather_plane(x, flat), count)
    taps = np.unravel_index(number, lengths)
    return best, _add_all(
        np.take_along_axis(place, tap[None], 0)[0] for place, tap in zip(scaled, taps, strict=True)
    )


def _global_places(indices: np.ndarray, plane: int) -> np.ndarray:
    first = np.arange(prod(indices.shape[:2])) * plane
    return (indices.reshape(len(first), prod(indices.shape[2:])) + first[:, None]).reshape(-1)


def _divisor(
    spatial: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    out: Ints,
    count_include_pad: bool,
    divisor_override: int | None,
) -> np.ndarray | int:
    if divisor_override is not None:
        return divisor_override
    divisor: np.ndarray | int = 1
    axes = zip(spatial, kernel, stride, padding, out, strict=True)
    for axis, (size, k, s, p, n) in enumerate(axes):
        start = np.arange(n) * s - p
        # Padding may count, but what ceil_mode adds behind it never does.
        stop = np.minimum(start + k, size + p)
        if not count_include_pad:
            start, stop = np.maximum(start, 0), np.minimum(stop, size)
        divisor = divisor * _along(stop - start, axis, len(out))
    return divisor


def _divide(total: np.ndarray, divisor: np.ndarray | int) -> np.ndarray:
    if np.issubdtype(total.dtype, np.inexact):
        return total / np.asarray(divisor, total.dtype)
    quotient = np.abs(total) // np.abs(divisor)
    return np.where((total < 0) != (np.asarray(divisor) < 0), -quotient, quotient)


def _even_windows(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    place = np.arange(count)
    return place * size // max(count, 1), -(-(place + 1) * size // max(count, 1))


def _range_sums(x: np.ndarray, axis: int, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    axis += 2
    size, count = x.shape[axis], len(start)
    if count and size % count == 0:
        return x.reshape(*x.shape[:axis], count, size // count, *x.shape[axis + 1 :]).sum(axis + 1)
    # One tap at a time over all windows; short windows skip the taps they do not have.
    total = x.take(start, axis)
    longest = (stop - start).max(initial=0)
    for tap in range(1, longest):
        has = np.flatnonzero(start + tap < stop)
        total[(slice(None),) * axis + (has,)] += x.take(start[has] + tap, axis)
    return total


def _fractional_starts(sample: np.ndarray, size: int, count: int, kernel: int) -> np.ndarray:
    starts = np.empty((*sample.shape[:-1], count), np.int64)
    if count > 1:
        step = sample.dtype.type(size - kernel) / sample.dtype.type(count - 1)
        place = np.arange(count - 1).astype(sample.dtype)
        starts[..., :-1] = ((place + sample) * step).astype(np.int64)
        starts[..., :-1] -= (sample * step).astype(np.int64)
    starts[..., count - 1 :] = size - kernel
    return starts
