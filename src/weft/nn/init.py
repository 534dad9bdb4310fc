"""Starting values for parameters, drawn as PyTorch draws them."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

from weft.core.modes import no_grad
from weft.core.tensor import Tensor
from weft.operators import api, overriding

_PLAIN = (
    *("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"),
    *("conv_transpose3d", "sigmoid"),
)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much to scale weights that feed a nonlinearity."""
    if nonlinearity in _PLAIN:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill from the uniform distribution between a and b.

    >>> _ = torch.manual_seed(0)
    >>> nn.init.uniform_(torch.empty(3), -0.1, 0.1)
    tensor([-0.0007,  0.0536, -0.0823])
    """
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill from a normal distribution.

    >>> _ = torch.manual_seed(0)
    >>> nn.init.normal_(torch.empty(3), std=0.02)
    tensor([ 0.0308, -0.0059, -0.0436])
    """
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Fill from a normal distribution cut off at a and b."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of "
            "values may be incorrect.",
            stacklevel=2,
        )

    def below(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    def from_normal() -> tuple[Tensor, Tensor]:
        drawn = api.FUNCTIONS["empty_like"](tensor).normal_(mean, std, generator=generator)
        return drawn, (drawn < low) | (drawn > high)

    def from_uniform() -> tuple[Tensor, Tensor]:
        drawn = api.FUNCTIONS["empty_like"](tensor).uniform_(a, b, generator=generator)
        odds = -0.5 * ((drawn - mean) / std) ** 2 - peak
        chance = api.FUNCTIONS["empty_like"](tensor).uniform_(generator=generator)
        return drawn, chance.log() > odds

    # The bounds as the tensor's dtype has them, since that is what they are compared with.
    low, high = (tensor.new_full((), bound).item() for bound in (a, b))
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    share = below((b - mean) / std) - below((a - mean) / std)
    with no_grad():
        return tensor.copy_(_accepted(from_normal if share > 0.3 else from_uniform))


def _accepted(draw: Callable[[], tuple[Tensor, Tensor]]) -> Tensor:
    """Values of which each has been drawn again until it was not refused."""
    value, refused = draw()
    while bool(refused.any()):
        other, again = draw()
        value = api.FUNCTIONS["where"](refused, other, value)
        refused = refused & again
    return value


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one value.

    >>> layer = nn.Linear(2, 2)
    >>> nn.init.constant_(layer.bias, 0.5)
    Parameter containing:
    tensor([0.5000, 0.5000], requires_grad=True)
    """
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros.

    >>> nn.init.zeros_(torch.empty(2, 2))
    tensor([[0., 0.],
            [0., 0.]])
    """
    with no_grad():
        return tensor.zero_()


def eye_(tensor: Tensor) -> Tensor:
    """Make a matrix the identity."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        tensor.zero_()
        tensor.diagonal().fill_(1)
    return tensor


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Make a convolution's weight pass its input through, channel by channel."""
    rank = tensor.ndim
    if rank not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    sizes = tensor.size()
    if sizes[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    each = sizes[0] // groups
    centre = tuple(n // 2 for n in sizes[2:])
    with no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(each, sizes[1])):
                tensor[(group * each + channel, channel, *centre)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output element has, and how many outputs an input element has."""
    if tensor.ndim < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot's uniform distribution.

    >>> layer = nn.Linear(100, 50)
    >>> bound = nn.init.xavier_uniform_(layer.weight).abs().max()
    >>> bool(bound < (6 / 150) ** 0.5)
    True
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / float(fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot's normal distribution."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """He's uniform distribution."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """He's normal distribution.

    >>> _ = torch.manual_seed(0)
    >>> layer = nn.Linear(200, 200)
    >>> _ = nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    >>> layer.weight.detach().std()  # the square root of 2 / 200 is 0.1
    tensor(0.0998)
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Fill with a random (semi-)orthogonal matrix; all but the first dim count as columns.

    >>> w = nn.init.orthogonal_(torch.empty(3, 3))
    >>> torch.allclose(w @ w.T, torch.eye(3), atol=1e-5)
    True
    """
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.size(0)
    columns = tensor.numel() // rows
    with no_grad():
        flat = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
        if rows < columns:
            flat = flat.t()
        q, r = api.NAMESPACES["linalg"]["qr"](flat)
        # The signs of r's diagonal make the distribution uniform.
        q = q * r.diagonal().sign()
        if rows < columns:
            q = q.t()
        tensor.view_as(q).copy_(q)
        return tensor.mul_(gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal values of which a share of each column is zero."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            # PyTorch shuffles with the default generator whatever generator was given.
            chosen = api.FUNCTIONS["randperm"](rows)[:zeros]
            tensor[chosen, column] = 0
    return tensor


def _old_name(function: Callable) -> Callable:
    name = function.__name__

    @functools.wraps(function)
    def old(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{name[:-1]}` is now deprecated in favor of `nn.init.{name}`.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    old.__name__ = name[:-1]
    return old


uniform, normal, constant = _old_name(uniform_), _old_name(normal_), _old_name(constant_)
eye, dirac, sparse = _old_name(eye_), _old_name(dirac_), _old_name(sparse_)
xavier_uniform, xavier_normal = _old_name(xavier_uniform_), _old_name(xavier_normal_)
kaiming_uniform, kaiming_normal = _old_name(kaiming_uniform_), _old_name(kaiming_normal_)
orthogonal = _old_name(orthogonal_)

overriding.offer(
    "torch.nn.init",
    **{f.__name__: f for f in (constant_, kaiming_uniform_, normal_, uniform_)},
)
