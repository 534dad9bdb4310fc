"""Update rules of the optimizers, as functions of values.

A rule takes the parameter ``p``, its gradient ``g``, the arrays of its state, coefficients ``c``
and flags that choose the variant, and gives the new parameter and state. It treats every element
alone and knows nothing of where values are: arrays of a unit, the stand-ins from which one native
pass over all parameters is compiled, and tensors with a history (``differentiable=True``) all go
through the same lines. The order of the operations is that of PyTorch's kernels.
"""

from __future__ import annotations

import math
from typing import Any

from weft.core.dispatch import REGISTRY
from weft.core.tensor import Tensor

sqrt, absolute = REGISTRY["sqrt"], REGISTRY["abs"]
maximum, minimum, where = REGISTRY["maximum"], REGISTRY["minimum"], REGISTRY["where"]

States = tuple[Any, ...]
Result = tuple[Any, States]


def root(x: Any) -> Any:
    """The square root of a coefficient, which is a number or a tensor."""
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def slope(p: Any, g: Any, decay: Any, decays: bool, maximize: bool) -> Any:
    """The gradient to go down: with its sign turned and weight decay added, if so wanted."""
    if decays:
        return p * decay - g if maximize else p * decay + g
    return -g if maximize else g


def _blended(average: Any, value: Any, weight: Any) -> Any:
    return average + (value - average) * weight


def _blended_square(average: Any, g: Any, keep: Any, weight: Any) -> Any:
    return average * keep + g * g * weight


def sgd(p: Any, g: Any, states: States, c: Any, flags: Any) -> Result:
    """Gradient descent, with momentum where there is a buffer for it."""
    lr, decay, momentum, enters = c
    decays, maximize, damped, nesterov = flags
    g = slope(p, g, decay, decays, maximize)
    if not states:
        return p - g * lr, ()
    buffer = states[0] * momentum + (g * enters if damped else g)
    g = g + buffer * momentum if nesterov else buffer
    return p - g * lr, (buffer,)


def adam(p: Any, g: Any, states: States, c: Any, flags: Any) -> Result:
    """Adam and AdamW; the bias corrections are folded into ``eps`` and ``size``."""
    decay, shrink, weight1, keep2, weight2, eps, size = c
    decays, decoupled, maximize, amsgrad = flags
    if decays and decoupled:
        p = p * shrink
    g = slope(p, g, decay, decays and not decoupled, maximize)
    mean = _blended(states[0], g, weight1)
    square = _blended_square(states[1], g, keep2, weight2)
    changed: States = (mean, square)
    if amsgrad:
        square = maximum(states[2], square)
        changed = (*changed, square)
    return p - mean / (sqrt(square) + eps) * size, changed


def adamax(p: Any, g: Any, states: States, c: Any, flags: Any) -> Result:
    """Adam with the infinity norm of the past gradients."""
    decay, weight1, keep2, eps, size = c
    decays, maximize = flags
    g = slope(p, g, decay, decays, maximize)
    mean = _blended(states[0], g, weight1)
    norm = maximum(states[1] * keep2, absolute(g) + eps)
    return p - mean / norm * size, (mean, norm)


def nadam(p: Any, g: Any, states: States, c: Any, flags: Any) -> Result:
    """Adam with Nesterov momentum."""
    decay, shrink, weight1, keep2, weight2, correction, eps, size, size_mean = c
    decays, decoupled, maximize = flags
    if decays and decoupled:
        p = p * shrink
    g = slope(p, g, decay, decays and not decoupled, maximize)
    mean = _blended(states[0], g, weight1)
    square = _blended_square(states[1], g, keep2, weight2)
    change = (g * size + mean * size_mean) / (sqrt(square / correction) + eps)
    return p - change, (mean, square)


def radam(p: Any, g: Any, states: States, c: Any, flags: Any) -> Result:
    """Adam that adapts only once the variance of its second moment is known well enough."""
    decay, shrink, weight1, keep2, weight2, eps, size = c
    decays, decoupled, maximize, adapts = flags
    if decays and decoupled:
        p = p * shrink
    g = slope(p, g, decay, decays and not decoupled, maximize)
    mean = _blended(states[0], g, weight1)
    square = _blended_square(states[1], g, keep2, weight2)
    change = mean / (sqrt(square) + eps) if adapts else mean
    return p - change * size, (mean, square)


def adagrad(p: Any, g: Any, states: States, c: Any, flags: Any) -> Result:
    """Steps divided by the root of the sum of all squared gradients."""
    decay, eps, size = c
    decays, maximize = flags
    g = slope(p, g, decay, decays, maximize)
    total = states[0] + g * g
    return p - g / (sqrt(total) + eps) * size, (total,)


def adadelta(p: Any, g: Any, states: States, c: Any, flags: Any) -> Result:
    """Steps scaled by the root mean square of past steps over that of past gradients."""
    decay, keep, weight, eps, lr = c
    decays, maximize = flags
    g = slope(p, g, decay, decays, maximize)
    square = _blended_square(states[0], g, keep, weight)
    change = sqrt(states[1] + eps) / sqrt(square + eps) * g
    return p - change * lr, (square, _blended_square(states[1], change, keep, weight))


def rmsprop(p: Any, g: Any, states: States, c: Any, flags: Any) -> Result:
    """Steps divided by the running root mean square (or standard deviation) of gradients."""
    decay, keep, weight, eps, momentum, lr = c
    decays, maximize, moves, centered = flags
    g = slope(p, g, decay, decays, maximize)
    square = _blended_square(states[0], g, keep, weight)
    changed: States = (square,)
    spread = square
    if centered:
        mean = _blended(states[-1], g, weight)
        spread = square - mean * mean
    change = g / (sqrt(spread) + eps)
    if moves:
        change = states[1] * momentum + change
        changed = (*changed, change)
    return p - change * lr, (*changed, mean) if centered else changed


def rprop(p: Any, g: Any, states: States, c: Any, flags: Any) -> Result:
    """Steps of their own size for each element, by the signs of the last two gradients."""
    grow, shrink, smallest, largest, zero = c
    (maximize,) = flags
    if maximize:
        g = -g
    trend = g * states[0]
    turned = trend < zero
    # As in PyTorch: a NaN has the sign zero, and moves nothing.
    size = where(trend > zero, states[1] * grow, where(turned, states[1] * shrink, states[1]))
    size = minimum(maximum(size, smallest), largest)
    g = where(turned, zero, g)
    down = where(g > zero, size, where(g < zero, -size, zero))
    return p - down, (g, size)


def asgd(p: Any, g: Any, states: States, c: Any, flags: Any) -> Result:
    """Gradient descent that also keeps the average of where it has been."""
    decay, shrink, eta, mu = c
    decays, maximize, averages = flags
    g = slope(p, g, decay, decays, maximize)
    p = p * shrink - g * eta
    return p, (_blended(states[0], p, mu) if averages else p,)
