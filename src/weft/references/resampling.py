"""Interpolation on regular grids and sampling at free points, with their adjoints."""

from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np

Ints = tuple[int, ...]
Scales = tuple[float | None, ...] | None
# The places each output reads, and with which weight: two arrays (taps, outputs).
Taps = tuple[np.ndarray, np.ndarray]

_LINEAR = ("linear", "bilinear", "trilinear")


def interpolate(
    x: np.ndarray,
    output_size: Ints,
    mode: str,
    align_corners: bool = False,
    scale_factors: Scales = None,
    antialias: bool = False,
) -> np.ndarray:
    """Resize the spatial axes of (N, C, *S) to output_size."""
    options = mode, align_corners, scale_factors, antialias
    y = x
    axes = list(enumerate(all_taps(x.shape[2:], output_size, x.dtype, *options), start=2))
    for axis, taps in reversed(axes):
        if antialias and x.dtype == np.uint8:
            if x.shape[axis] != output_size[axis - 2]:
                y = _apply_fixed_point(y, axis, taps)
            continue
        y = _apply_taps(y, axis, taps)
        if x.dtype.kind in "iu":
            # Integers are rounded and clipped after every axis, so their order matters.
            y = _restore(y, x.dtype)
    return _restore(y, x.dtype)


def interpolate_grad(
    g: np.ndarray,
    input_shape: Ints,
    mode: str,
    align_corners: bool = False,
    scale_factors: Scales = None,
    antialias: bool = False,
) -> np.ndarray:
    """Apply the transpose of interpolate."""
    options = mode, align_corners, scale_factors, antialias
    gx = g
    for axis, taps in enumerate(all_taps(input_shape[2:], g.shape[2:], g.dtype, *options)):
        gx = _apply_taps(gx, 2 + axis, transpose_taps(taps, input_shape[2 + axis]))
    return _restore(gx, g.dtype)


def grid_sample(
    x: np.ndarray, grid: np.ndarray, mode: str, padding_mode: str, align_corners: bool
) -> np.ndarray:
    """Read (N, C, *S) at the points of grid (N, *out, len(S)), whose last axis is x, y, z."""
    axes = _grid_axes(grid, x.shape[2:], mode, padding_mode, align_corners)
    planes = _planes(x)
    out = np.zeros((*x.shape[:2], prod(grid.shape[1:-1])), x.dtype)
    for place, inside, weights, _ in _corners(axes, x.shape[2:]):
        out += _read(planes, place, inside) * reduce(np.multiply, weights)[:, None]
    return out.reshape(*x.shape[:2], *grid.shape[1:-1])


def grid_sample_grad(
    g: np.ndarray,
    x: np.ndarray,
    grid: np.ndarray,
    mode: str,
    padding_mode: str,
    align_corners: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients of grid_sample for its input and its grid."""
    axes = _grid_axes(grid, x.shape[2:], mode, padding_mode, align_corners)
    planes = _planes(x)
    g = _planes(g)
    gx = np.zeros(planes.shape, planes.dtype)
    slopes = np.zeros((len(axes), *g.shape[::2]), grid.dtype)
    for place, inside, weights, derivatives in _corners(axes, x.shape[2:]):
        _scatter_add(gx, place, g * reduce(np.multiply, weights)[:, None])
        if mode == "nearest":
            continue
        value = np.einsum("ncp,ncp->np", g, _read(planes, place, inside))
        for axis, derivative in enumerate(derivatives):
            others = weights[:axis] + weights[axis + 1 :]
            slopes[axis] += value * reduce(np.multiply, others, derivative)
    # Grids name their coordinates in the order opposite to the axes.
    ggrid = np.moveaxis(slopes[::-1], 0, -1).reshape(grid.shape)
    return gx.reshape(x.shape), ggrid


def grid_sample_tangent(
    x: np.ndarray,
    grid: np.ndarray,
    moved: np.ndarray,
    mode: str,
    padding_mode: str,
    align_corners: bool,
) -> np.ndarray:
    """Return how the result of grid_sample changes as its grid moves."""
    axes = _grid_axes(grid, x.shape[2:], mode, padding_mode, align_corners)
    planes = _planes(x)
    flat = moved.reshape(moved.shape[0], prod(moved.shape[1:-1]), moved.shape[-1])
    out = np.zeros((*x.shape[:2], flat.shape[1]), x.dtype)
    if mode != "nearest":
        for place, inside, weights, derivatives in _corners(axes, x.shape[2:]):
            change: Any = 0
            for axis, derivative in enumerate(derivatives):
                others = weights[:axis] + weights[axis + 1 :]
                step = flat[..., len(axes) - 1 - axis] * derivative
                change = change + reduce(np.multiply, others, step)
            out += _read(planes, place, inside) * change[:, None]
    return out.reshape(*x.shape[:2], *grid.shape[1:-1])


def affine_grid(theta: np.ndarray, size: Ints, align_corners: bool) -> np.ndarray:
    """Map the points of a regular grid of size (N, C, *S) by theta (N, d, d + 1)."""
    base = _base_grid(size, align_corners, theta.dtype)
    grid = base.reshape(-1, base.shape[-1]) @ theta.swapaxes(1, 2)
    return grid.reshape(theta.shape[0], *size[2:], len(size) - 2)


def affine_grid_grad(g: np.ndarray, size: Ints, align_corners: bool) -> np.ndarray:
    """Apply the transpose of affine_grid: (N, *S, d) to (N, d, d + 1)."""
    base = _base_grid(size, align_corners, g.dtype)
    flat = g.reshape(g.shape[0], prod(size[2:]), g.shape[-1])
    return flat.swapaxes(1, 2) @ base.reshape(-1, base.shape[-1])


def _coordinate_dtype(dtype: np.dtype) -> np.dtype:
    # Small floats and bytes are placed in single precision, as the places decide the result.
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def _restore(y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if y.dtype == dtype or dtype.kind not in "iu":
        return y.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    return np.clip(np.floor(y + 0.5), limits.min, limits.max).astype(dtype)


def all_taps(
    spatial: Ints,
    output_size: Ints,
    dtype: np.dtype,
    mode: str,
    align_corners: bool,
    scale_factors: Scales,
    antialias: bool,
) -> list[Taps]:
    scales = scale_factors or (None,) * len(output_size)
    real = _coordinate_dtype(dtype)
    if antialias and dtype == np.uint8:
        real = np.dtype(np.float64)  # whose weights are rounded to 16 bits
    taps = []
    for size, count, scale in zip(spatial, output_size, scales, strict=True):
        factor = _effective_factor(size, count, scale, mode, len(output_size), antialias)
        if mode == "area":
            taps.append(_area_taps(size, count, real))
            continue
        nearest = mode in ("nearest", "nearest-exact")
        step = _step(size, count, align_corners and not nearest, factor, real)
        if nearest:
            taps.append(_nearest_taps(size, count, step, mode == "nearest-exact", real))
        elif antialias:
            taps.append(_antialias_taps(size, count, step, mode))
        elif mode in _LINEAR:
            taps.append(_linear_taps(size, _source(count, step, align_corners, clamp=True)))
        elif mode == "bicubic":
            taps.append(_cubic_taps(size, _source(count, step, align_corners, clamp=False)))
        else:
            raise NotImplementedError(f"Got an unsupported interpolation mode: {mode}")
    return taps


def _effective_factor(
    size: int, count: int, factor: float | None, mode: str, nd: int, antialias: bool
) -> float | None:
    # Where torch has a shortcut for plain sizes, a factor that gives such a size is forgotten.
    if count == size and (mode in _LINEAR or antialias):
        return None
    if mode == "nearest" and nd == 2 and count in (size, 2 * size):
        return None
    return factor


def _step(
    size: int, count: int, align_corners: bool, factor: float | None, real: np.dtype
) -> np.floating:
    number = real.type
    if align_corners:
        return number(size - 1) / number(count - 1) if count > 1 else number(0)
    return number(1.0 / factor) if factor else number(size) / number(count)


def _source(count: int, step: np.floating, align_corners: bool, clamp: bool) -> np.ndarray:
    place = np.arange(count, dtype=step.dtype)
    if align_corners:
        return place * step
    source = step * (place + step.dtype.type(0.5)) - step.dtype.type(0.5)
    return np.maximum(source, 0) if clamp else source


def _nearest_taps(size: int, count: int, step: np.floating, exact: bool, real: np.dtype) -> Taps:
    place = np.arange(count, dtype=real)
    source = (place + real.type(0.5)) * step if exact else place * step
    # The floor is taken in single precision whatever the input, which decides close calls.
    index = np.floor(source.astype(np.float32)).astype(np.int64)
    return np.clip(index, 0, size - 1)[None], np.ones((1, count), real)


def _linear_taps(size: int, source: np.ndarray) -> Taps:
    low = np.clip(source.astype(np.int64), 0, size - 1)
    high = np.minimum(low + 1, size - 1)
    part = np.clip(source - low.astype(source.dtype), 0, 1)
    return np.stack([low, high]), np.stack([1 - part, part])


def _cubic_taps(size: int, source: np.ndarray) -> Taps:
    low = np.floor(source)
    index = low.astype(np.int64) + np.arange(-1, 3)[:, None]
    return np.clip(index, 0, size - 1), _cubic_weights(source - low)[0]


def _cubic_weights(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Weights and slopes of the four neighbours at the distances 1 + t, t, 1 - t, 2 - t.
    distances = part + 1, part, 1 - part, 2 - part
    weights = np.stack([_cubic(d, -0.75) for d in distances])
    signs = 1, 1, -1, -1
    slopes = np.stack([s * _cubic_slope(d, -0.75) for s, d in zip(signs, distances, strict=True)])
    return weights, slopes


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    # NaN takes the near branch and so stays NaN.
    return np.where(d >= 2, 0, np.where(d > 1, far, near)).astype(d.dtype)


def _cubic_slope(d: np.ndarray, a: float) -> np.ndarray:
    near = (3 * (a + 2) * d - 2 * (a + 3)) * d
    far = ((3 * d - 10) * d + 8) * a
    return np.where(d > 1, far, near).astype(d.dtype)


def _antialias_taps(size: int, count: int, step: np.floating, mode: str) -> Taps:
    number = step.dtype.type
    radius = number({"bicubic": 2, "lanczos": 3}.get(mode, 1))
    stretch = max(step, number(1))
    center = step * (np.arange(count, dtype=step.dtype) + number(0.5))
    low = np.maximum((center - radius * stretch + number(0.5)).astype(np.int64), 0)
    high = np.minimum((center + radius * stretch + number(0.5)).astype(np.int64), size)
    index = low + np.arange((high - low).max(initial=1))[:, None]
    distance = np.abs((index - center + number(0.5)) / stretch).astype(step.dtype)
    if mode == "lanczos":
        kernel = _lanczos(distance)
    else:
        kernel = np.maximum(1 - distance, 0) if mode in _LINEAR else _cubic(distance, -0.5)
    weight = np.where(index < high, kernel, 0)
    weight = weight / weight.sum(0)
    return np.minimum(index, size - 1), weight.astype(step.dtype)


def _lanczos(d: np.ndarray) -> np.ndarray:
    # A sinc, faded out over three lobes by a wider one.
    return np.where(d < 3, np.sinc(d) * np.sinc(d / 3), 0).astype(d.dtype)


def _area_taps(size: int, count: int, real: np.dtype) -> Taps:
    place = np.arange(count)
    start, stop = place * size // count, -(-(place + 1) * size // count)
    index = start + np.arange((stop - start).max(initial=1))[:, None]
    weight = np.where(index < stop, 1 / (stop - start), 0)
    return np.minimum(index, stop - 1), weight.astype(real)


def _apply_taps(x: np.ndarray, axis: int, taps: Taps) -> np.ndarray:
    index, weight = taps
    if len(index) == 1 and (weight == 1).all():
        return x.take(index[0], axis)
    weight = weight.reshape(*weight.shape, *(1,) * (x.ndim - axis - 1))
    y = x.take(index[0], axis) * weight[0]
    for places, factors in zip(index[1:], weight[1:], strict=True):
        y += x.take(places, axis) * factors
    return y


def _apply_fixed_point(x: np.ndarray, axis: int, taps: Taps) -> np.ndarray:
    """As PyTorch resizes bytes: weights of 16 bits, rounded once for each axis."""
    index, weight = taps
    bits = 0
    while bits < 22 and int(0.5 + weight.max() * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    whole = np.trunc(weight * (1 << bits) + np.where(weight < 0, -0.5, 0.5)).astype(np.int64)
    whole = whole.reshape(*whole.shape, *(1,) * (x.ndim - axis - 1))
    y = np.full(1, 1 << (bits - 1), np.int64)
    for places, factors in zip(index, whole, strict=True):
        y = y + x.take(places, axis) * factors
    return np.clip(y >> bits, 0, 255).astype(np.uint8)


def transpose_taps(taps: Taps, size: int) -> Taps:
    # The pairs sorted by input, so that every input lists the outputs it went to.
    index, weight = taps
    place = np.broadcast_to(np.arange(index.shape[1]), index.shape)
    used = weight.ravel() != 0
    target, source, factor = index.ravel()[used], place.ravel()[used], weight.ravel()[used]
    order = np.argsort(target, kind="stable")
    counts = np.bincount(target, minlength=size)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    back = np.zeros((counts.max(initial=1), size), np.int64)
    factors = np.zeros(back.shape, weight.dtype)
    back[rank, target[order]] = source[order]
    factors[rank, target[order]] = factor[order]
    return back, factors


def _base_grid(size: Ints, align_corners: bool, dtype: np.dtype) -> np.ndarray:
    # (*S, d + 1): the coordinates x, y, z of every point, then a one.
    axes = []
    for n in size[:1:-1]:
        axis = np.linspace(-1, 1, n, dtype=dtype) if n > 1 else np.zeros(n, dtype)
        axes.append(axis if align_corners else axis * dtype.type((n - 1) / n))
    points = np.meshgrid(*axes[::-1], indexing="ij")[::-1]
    return np.stack([*points, np.ones_like(points[0])], -1)


def _grid_axes(
    grid: np.ndarray, spatial: Ints, mode: str, padding_mode: str, align_corners: bool
) -> list[tuple[np.ndarray, ...]]:
    # Per axis the places, which are inside, weights and weight slopes, each (taps, N, points).
    flat = grid.reshape(grid.shape[0], prod(grid.shape[1:-1]), grid.shape[-1])
    axes: list[tuple[np.ndarray, ...]] = []
    for axis, size in enumerate(spatial):
        coordinate = flat[..., len(spatial) - 1 - axis]
        scale = (size - 1) / 2 if align_corners else size / 2
        point = (coordinate + 1) * scale - (0 if align_corners else 0.5)
        taps, weight, slope = _point_taps(point, size, mode, padding_mode, align_corners)
        inside = (taps >= 0) & (taps <= size - 1)
        index = np.where(inside, taps, 0).astype(np.int64)
        # In images weights are multiplied, so that a coordinate of NaN gives NaN; in volumes not.
        if len(spatial) == 3:
            weight = np.where(inside, weight, weight.dtype.type(0))
        slope = slope * (inside * coordinate.dtype.type(scale))
        axes.append((index, inside, weight * inside, slope))
    return axes


def _point_taps(
    point: np.ndarray, size: int, mode: str, padding_mode: str, align_corners: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if mode == "bicubic":
        # Here padding applies to the neighbours, not to the point between them.
        low = np.floor(point)
        taps = low + np.arange(-1, 3).reshape(-1, 1, 1)
        taps, _ = _into_range(taps, size, padding_mode, align_corners)
        return taps, *_cubic_weights(point - low)
    point, sign = _into_range(point, size, padding_mode, align_corners)
    if mode == "nearest":
        ones = (np.isfinite(point) * point.dtype.type(1))[None]
        return np.rint(point)[None], ones, np.zeros_like(ones)
    low = np.floor(point)
    part = point - low
    return np.stack([low, low + 1]), np.stack([1 - part, part]), np.stack([-sign, sign])


def _into_range(
    point: np.ndarray, size: int, padding_mode: str, align_corners: bool
) -> tuple[np.ndarray, np.ndarray]:
    # The padded coordinate, and its derivative by the one given.
    sign = np.ones_like(point)
    if padding_mode == "zeros":
        return point, sign
    if padding_mode == "reflection":
        point, sign = _reflect(point, size, align_corners)
    sign = sign * ((point > 0) & (point < size - 1))
    # fmax and fmin prefer the bound to NaN.
    return np.fmin(np.fmax(point, 0), size - 1), sign


def _reflect(point: np.ndarray, size: int, align_corners: bool) -> tuple[np.ndarray, np.ndarray]:
    first, span = (0, size - 1) if align_corners else (-0.5, size)
    if span == 0:
        return np.zeros_like(point), np.zeros_like(point)
    distance = np.abs(point - first)
    flips = np.floor(distance / span)
    rest = np.fmod(distance, span)
    odd = flips % 2 != 0
    sign = np.where(odd != (point < first), -1, 1).astype(point.dtype)
    return np.where(odd, span - rest, rest) + first, sign


def _corners(axes: list[tuple[np.ndarray, ...]], spatial: Ints) -> list:
    # All combinations of one tap per axis: flat place, whether it is inside, weights, slopes.
    steps = [prod(spatial[axis + 1 :]) for axis in range(len(spatial))]
    corners = []
    for combination in product(*(zip(*axis, strict=True) for axis in axes)):
        index, inside, weights, slopes = zip(*combination, strict=True)
        place = sum(i * step for i, step in zip(index, steps, strict=True))
        corners.append((place, np.logical_and.reduce(inside), weights, slopes))
    return corners


def _planes(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:2], prod(x.shape[2:]))


def _flat_places(planes: np.ndarray, place: np.ndarray) -> np.ndarray:
    first = np.arange(prod(planes.shape[:2])).reshape(*planes.shape[:2], 1) * planes.shape[2]
    return first + place[:, None]


def _read(planes: np.ndarray, place: np.ndarray, inside: np.ndarray) -> np.ndarray:
    values = planes.reshape(-1)[_flat_places(planes, place)]
    # Not left to weights of zero: what is outside is none of an image's NaN or infinities.
    return values if inside.all() else np.where(inside[:, None], values, values.dtype.type(0))


def _scatter_add(planes: np.ndarray, place: np.ndarray, value: np.ndarray) -> None:
    np.add.at(planes.reshape(-1), _flat_places(planes, place).reshape(-1), value.reshape(-1))
