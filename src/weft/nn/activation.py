"""Activation functions as layers."""

from __future__ import annotations

import warnings
from typing import Any

from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn._arguments import parameter
from weft.nn.module import Module


class _Activation(Module):
    """A layer without parameters; subclasses list what they show when printed."""

    __constants__: list[str] = []

    def extra_repr(self) -> str:
        """The settings; ``inplace`` only where it is on."""
        names = [n for n in self.__constants__ if n != "inplace"]
        parts = [f"{n}={getattr(self, n)}" for n in names]
        if self.__dict__.get("inplace"):
            parts.append("inplace=True")
        return ", ".join(parts)


class _Inplace(_Activation):
    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class ReLU(_Inplace):
    """max(0, x).

    >>> nn.ReLU()(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.relu(input, self.inplace)


class SiLU(_Inplace):
    """x times its sigmoid; also known as swish.

    >>> nn.SiLU()(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.2689,  0.0000,  1.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.silu(input, self.inplace)


class Mish(_Inplace):
    """x times the tanh of its softplus."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.mish(input, self.inplace)


class SELU(_Inplace):
    """The scaled ELU of self-normalising networks."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.selu(input, self.inplace)


class Hardsigmoid(_Inplace):
    """A sigmoid made of straight lines."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        """Nothing, as in PyTorch."""
        return ""


class Hardswish(Hardsigmoid):
    """x times its hard sigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.hardswish(input, self.inplace)


class ELU(_Activation):
    """x above zero, an exponential below."""

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.elu(input, self.alpha, self.inplace)


class CELU(_Activation):
    """ELU with a continuous derivative."""

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.celu(input, self.alpha, self.inplace)


class LeakyReLU(_Activation):
    """x above zero, a small slope below.

    >>> nn.LeakyReLU(0.1)(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.1000,  0.0000,  2.0000])
    """

    __constants__ = ["negative_slope", "inplace"]

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)


class RReLU(_Activation):
    """Leaky ReLU with a random slope while training."""

    __constants__ = ["lower", "upper", "inplace"]

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class Threshold(_Activation):
    """x where it is above the threshold, else a value."""

    __constants__ = ["threshold", "value", "inplace"]

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.threshold(input, self.threshold, self.value, self.inplace)


class Hardtanh(_Activation):
    """x kept between two bounds."""

    __constants__ = ["min_val", "max_val", "inplace"]

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        for old, given in (("min_value", min_value), ("max_value", max_value)):
            if given is not None:
                warnings.warn(
                    f"keyword argument `{old}` is deprecated and renamed to `{old[:-2]}`",
                    FutureWarning,
                    stacklevel=2,
                )
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertionError(
                f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})"
            )

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


class ReLU6(Hardtanh):
    """x kept between 0 and 6."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """``inplace`` where it is on."""
        return "inplace=True" if self.inplace else ""


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    >>> nn.Sigmoid()(torch.tensor([-2.0, 0.0, 2.0]))
    tensor([0.1192, 0.5000, 0.8808])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent.

    >>> nn.Tanh()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.7616,  0.0000,  0.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.tanh(input)


class LogSigmoid(Module):
    """The logarithm of the sigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.tanhshrink(input)


class GELU(Module):
    """x times the normal distribution's share below x.

    >>> nn.GELU()(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.1587,  0.0000,  1.9545])
    """

    __constants__ = ["approximate"]

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """Which formula."""
        return f"approximate={self.approximate!r}"


class GLU(_Activation):
    """One half of the input times the sigmoid of the other."""

    __constants__ = ["dim"]

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Gate one half by the other."""
        return F.glu(input, self.dim)


class Softplus(_Activation):
    """A smooth ReLU."""

    __constants__ = ["beta", "threshold"]

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.softplus(input, self.beta, self.threshold)


class _Shrink(Module):
    __constants__ = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        """The width."""
        return str(self.lambd)


class Hardshrink(_Shrink):
    """Zero near zero, x elsewhere."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """Zero near zero, x moved towards zero elsewhere."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element."""
        return F.softshrink(input, self.lambd)


class PReLU(Module):
    """Leaky ReLU with a slope that is learned."""

    __constants__ = ["num_parameters"]

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = parameter((num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all slopes to the starting value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to every element, with its channel's slope."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """The number of slopes."""
        return f"num_parameters={self.num_parameters}"


class _AlongDim(_Activation):
    __constants__ = ["dim"]

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim


class Softmax(_AlongDim):
    """Exponentials that add up to one along a dimension.

    >>> nn.Softmax(dim=1)(torch.tensor([[0.0, 0.0, 1.0]]))
    tensor([[0.2119, 0.2119, 0.5761]])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply it along the dimension."""
        return F.softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongDim):
    """The softmax of -x."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it along the dimension."""
        return F.softmin(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """The logarithm of the softmax."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it along the dimension."""
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of an image."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply it over the channels."""
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3, _stacklevel=5)
