"""Update rules of the optimizers, on flat arrays of equal length, without new memory.

Every elementwise rule has one signature: the parameter ``p`` and the arrays in ``states`` are
changed in place; the gradient ``g`` is only read; ``scratch`` are three arrays to compute in; ``c``
holds the coefficients as zero-dim arrays of the same dtype (the fastest kind of scalar that NumPy
has); ``flags`` says which variant is wanted.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray
Arrays = tuple[Array, ...]
add, subtract, multiply, divide = np.add, np.subtract, np.multiply, np.divide
sqrt, negative, absolute, maximum, minimum = (
    np.sqrt,
    np.negative,
    np.absolute,
    np.maximum,
    np.minimum,
)
copyto, greater, less, equal, sign = np.copyto, np.greater, np.less, np.equal, np.sign


def _slope(p: Array, g: Array, s: Array, decay: Array, decays: bool, maximize: bool) -> Array:
    """The gradient to go down: with its sign turned and weight decay added, if so wanted."""
    if decays:
        multiply(p, decay, s)
        return (subtract if maximize else add)(s, g, s)
    return negative(g, s) if maximize else g


def _blend(average: Array, value: Array, weight: Array, s: Array) -> None:
    """average += weight * (value - average)"""
    subtract(value, average, s)
    multiply(s, weight, s)
    add(average, s, average)


def _blend_square(average: Array, g: Array, keep: Array, weight: Array, s: Array) -> None:
    """average = keep * average + weight * g * g"""
    multiply(g, g, s)
    multiply(s, weight, s)
    multiply(average, keep, average)
    add(average, s, average)


def sgd(p: Array, g: Array, states: Arrays, scratch: Arrays, c: Arrays, flags: Any) -> None:
    """Gradient descent, with momentum where there is a buffer for it."""
    lr, decay, momentum, fresh = c
    decays, maximize, damped, nesterov = flags
    s, u, _ = scratch
    g = _slope(p, g, s, decay, decays, maximize)
    if states:
        buffer = states[0]
        multiply(buffer, momentum, buffer)
        add(buffer, multiply(g, fresh, u) if damped else g, buffer)
        if nesterov:
            multiply(buffer, momentum, u)
            g = add(g, u, u)
        else:
            g = buffer
    multiply(g, lr, u)
    subtract(p, u, p)


def adam(p: Array, g: Array, states: Arrays, scratch: Arrays, c: Arrays, flags: Any) -> None:
    """Adam and AdamW; the bias corrections are folded into ``eps`` and ``size``."""
    decay, shrink, weight1, keep2, weight2, eps, size = c
    decays, decoupled, maximize, amsgrad = flags
    s, u, _ = scratch
    if decays and decoupled:
        multiply(p, shrink, p)
    g = _slope(p, g, s, decay, decays and not decoupled, maximize)
    mean, square = states[0], states[1]
    _blend(mean, g, weight1, u)
    _blend_square(square, g, keep2, weight2, u)
    if amsgrad:
        square = maximum(states[2], square, out=states[2])
    sqrt(square, u)
    add(u, eps, u)
    divide(mean, u, u)
    multiply(u, size, u)
    subtract(p, u, p)


def adamax(p: Array, g: Array, states: Arrays, scratch: Arrays, c: Arrays, flags: Any) -> None:
    """Adam with the infinity norm of the past gradients."""
    decay, weight1, keep2, eps, size = c
    decays, maximize = flags
    s, u, _ = scratch
    g = _slope(p, g, s, decay, decays, maximize)
    mean, norm = states
    _blend(mean, g, weight1, u)
    absolute(g, u)
    add(u, eps, u)
    multiply(norm, keep2, norm)
    maximum(norm, u, out=norm)
    divide(mean, norm, u)
    multiply(u, size, u)
    subtract(p, u, p)


def nadam(p: Array, g: Array, states: Arrays, scratch: Arrays, c: Arrays, flags: Any) -> None:
    """Adam with Nesterov momentum."""
    decay, shrink, weight1, keep2, weight2, correction, eps, size, size_mean = c
    decays, decoupled, maximize = flags
    s, u, _ = scratch
    if decays and decoupled:
        multiply(p, shrink, p)
    g = _slope(p, g, s, decay, decays and not decoupled, maximize)
    mean, square = states
    _blend(mean, g, weight1, u)
    _blend_square(square, g, keep2, weight2, u)
    multiply(g, size, s)
    multiply(mean, size_mean, u)
    add(s, u, s)
    divide(square, correction, u)
    sqrt(u, u)
    add(u, eps, u)
    divide(s, u, u)
    subtract(p, u, p)


def radam(p: Array, g: Array, states: Arrays, scratch: Arrays, c: Arrays, flags: Any) -> None:
    """Adam that adapts only once the variance of its second moment is known well enough."""
    decay, shrink, weight1, keep2, weight2, eps, size = c
    decays, decoupled, maximize, adapts = flags
    s, u, _ = scratch
    if decays and decoupled:
        multiply(p, shrink, p)
    g = _slope(p, g, s, decay, decays and not decoupled, maximize)
    mean, square = states
    _blend(mean, g, weight1, u)
    _blend_square(square, g, keep2, weight2, u)
    if adapts:
        sqrt(square, u)
        add(u, eps, u)
        divide(mean, u, u)
        multiply(u, size, u)
    else:
        multiply(mean, size, u)
    subtract(p, u, p)


def adagrad(p: Array, g: Array, states: Arrays, scratch: Arrays, c: Arrays, flags: Any) -> None:
    """Steps divided by the root of the sum of all squared gradients."""
    decay, eps, size = c
    decays, maximize = flags
    s, u, _ = scratch
    g = _slope(p, g, s, decay, decays, maximize)
    total = states[0]
    multiply(g, g, u)
    add(total, u, total)
    sqrt(total, u)
    add(u, eps, u)
    divide(g, u, u)
    multiply(u, size, u)
    subtract(p, u, p)


def adadelta(p: Array, g: Array, states: Arrays, scratch: Arrays, c: Arrays, flags: Any) -> None:
    """Steps scaled by the root mean square of past steps over that of past gradients."""
    decay, keep, weight, eps, lr = c
    decays, maximize = flags
    s, u, w = scratch
    g = _slope(p, g, s, decay, decays, maximize)
    square, delta = states
    _blend_square(square, g, keep, weight, u)
    add(square, eps, u)
    sqrt(u, u)
    add(delta, eps, w)
    sqrt(w, w)
    divide(w, u, u)
    multiply(u, g, u)
    _blend_square(delta, u, keep, weight, w)
    multiply(u, lr, u)
    subtract(p, u, p)


def rmsprop(p: Array, g: Array, states: Arrays, scratch: Arrays, c: Arrays, flags: Any) -> None:
    """Steps divided by the running root mean square (or standard deviation) of gradients."""
    decay, keep, weight, eps, momentum, lr = c
    decays, maximize, moves, centered = flags
    s, u, _ = scratch
    g = _slope(p, g, s, decay, decays, maximize)
    square = states[0]
    _blend_square(square, g, keep, weight, u)
    if centered:
        mean = states[-1]
        _blend(mean, g, weight, u)
        multiply(mean, mean, u)
        subtract(square, u, u)
        sqrt(u, u)
    else:
        sqrt(square, u)
    add(u, eps, u)
    divide(g, u, u)
    if moves:
        buffer = states[1]
        multiply(buffer, momentum, buffer)
        add(buffer, u, buffer)
        multiply(buffer, lr, u)
    else:
        multiply(u, lr, u)
    subtract(p, u, p)


def rprop(p: Array, g: Array, states: Arrays, scratch: Arrays, c: Arrays, flags: Any) -> None:
    """Steps of their own size for each element, by the signs of the last two gradients."""
    grow, shrink, smallest, largest, zero, one = c
    (maximize,) = flags
    s, u, spare = scratch
    mask = spare.view(np.bool_)[: len(p)]
    previous, size = states
    multiply(g, previous, s)
    if maximize:
        negative(s, s)
        negative(g, previous)
    else:
        copyto(previous, g)
    # NaN stays what it is: it is neither above, below nor equal to zero.
    sign(s, u)
    greater(s, zero, mask)
    copyto(u, grow, where=mask)
    equal(s, zero, mask)
    copyto(u, one, where=mask)
    less(s, zero, mask)
    copyto(u, shrink, where=mask)
    copyto(previous, zero, where=mask)
    multiply(size, u, size)
    maximum(size, smallest, out=size)
    minimum(size, largest, out=size)
    sign(previous, u)
    multiply(u, size, u)
    subtract(p, u, p)


def asgd(p: Array, g: Array, states: Arrays, scratch: Arrays, c: Arrays, flags: Any) -> None:
    """Gradient descent that also keeps the average of where it has been."""
    decay, shrink, eta, mu = c
    decays, maximize, averages = flags
    s, u, _ = scratch
    g = _slope(p, g, s, decay, decays, maximize)
    multiply(g, eta, u)
    multiply(p, shrink, p)
    subtract(p, u, p)
    average = states[0]
    if averages:
        _blend(average, p, mu, u)
    else:
        copyto(average, p)


def root_mean_square(x: Array) -> float:
    """The root of the mean of the squares of all elements."""
    flat = x.ravel()
    return math.sqrt(float(np.dot(flat, flat)) / max(flat.size, 1))


def mean_square(x: Array, axis: int, work: Array, out: Array) -> Array:
    """The mean of the squares along an axis, which stays with length one."""
    multiply(x, x, work)
    return np.mean(work, axis=axis, keepdims=True, out=out)


def adafactor(
    p: Array,
    g: Array,
    rows: Array | None,
    columns: Array | None,
    variance: Array | None,
    work: Arrays,
    means: Arrays,
    *,
    weight: float,
    rho: float,
    shrink: float,
    eps1: float,
    eps2: float,
    clip: float,
    maximize: bool,
) -> None:
    """Adafactor: the second moment of a matrix is kept as a row and a column."""
    s, u = work
    size = max(eps2, root_mean_square(p)) * rho
    if shrink != 1.0:
        multiply(p, p.dtype.type(shrink), p)
    if rows is not None and columns is not None:
        row_mean, column_mean, total = means
        _blend(rows, mean_square(g, -1, s, row_mean), rows.dtype.type(weight), row_mean)
        _blend(columns, mean_square(g, -2, s, column_mean), columns.dtype.type(weight), column_mean)
        multiply(rows, columns, s)
        np.mean(rows, axis=-2, keepdims=True, out=total)
        maximum(total, total.dtype.type(eps1), out=total)
        divide(s, total, s)
    else:
        assert variance is not None
        multiply(g, g, s)
        _blend(variance, s, variance.dtype.type(weight), s)
        copyto(s, variance)
    maximum(s, s.dtype.type(eps1 * eps1), out=s)
    sqrt(s, s)
    divide(g, s, u)
    scale = size / max(1.0, root_mean_square(u) / clip)
    multiply(u, u.dtype.type(-scale if not maximize else scale), u)
    add(p, u, p)


def _rounded(x: Array) -> Array:
    """Through bfloat16, in which Muon's iteration is defined, and back to float32."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def orthogonalized(
    x: Array, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Array:
    """Newton and Schulz's iteration for the nearest orthogonal matrix, in bfloat16."""
    a, b, c = coefficients
    tall = x.shape[0] > x.shape[1]
    y = _rounded(x.T if tall else x)
    norm = float(_rounded(np.sqrt(np.sum(y * y, dtype=np.float32), dtype=np.float32)))
    y = _rounded(y / np.float32(max(norm, eps)))
    for _ in range(steps):
        gram = _rounded(y @ y.T)
        update = _rounded(np.float32(b) * gram + np.float32(c) * (gram @ gram))
        y = _rounded(np.float32(a) * y + update @ y)
    return y.T if tall else y
