"""Gradients of convolutions with respect to input and weight, as functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.modes import enable_grad
from weft.core.tensor import Tensor
from weft.nn import functional as F


def _gradient(
    convolve: Callable, first: Any, second: Any, of: int, grad_output: Tensor, *rest: Any
) -> Tensor:
    """The gradient of a convolution, linear in what it is taken of, so any values will do."""
    from weft.autograd import grad

    given = [first, second]
    shape, like = given[of], given[1 - of]
    with enable_grad():
        leaf = like.new_zeros(tuple(shape)).requires_grad_()
        given[of], given[1 - of] = leaf, like.detach()
        result = convolve(given[0], given[1], None, *rest)
    return grad(result, leaf, grad_output)[0]


def _pair(rank: int) -> tuple[Callable, Callable]:
    convolve = getattr(F, f"conv{rank}d")

    def of_input(
        input_size: Any,
        weight: Tensor,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        rest = (stride, padding, dilation, groups)
        return _gradient(convolve, input_size, weight, 0, grad_output, *rest)

    def of_weight(
        input: Tensor,
        weight_size: Any,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        rest = (stride, padding, dilation, groups)
        return _gradient(convolve, input, weight_size, 1, grad_output, *rest)

    for function, what in ((of_input, "input"), (of_weight, "weight")):
        function.__name__ = function.__qualname__ = f"conv{rank}d_{what}"
        function.__doc__ = f"The gradient of ``conv{rank}d`` with respect to its {what}."
    return of_input, of_weight


conv1d_input, conv1d_weight = _pair(1)
conv2d_input, conv2d_weight = _pair(2)
conv3d_input, conv3d_weight = _pair(3)
