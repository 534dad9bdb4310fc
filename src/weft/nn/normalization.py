"""Normalisation layers."""

from __future__ import annotations

import warnings
from typing import Any

from weft.core import dtype as dt
from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn._arguments import empty, parameter
from weft.nn.lazy import LazyModuleMixin
from weft.nn.module import Module
from weft.nn.parameter import UninitializedBuffer, UninitializedParameter
from weft.operators import api


class _NormBase(Module):
    """What batch and instance normalisation share: scale, shift and running statistics."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        weighted = affine and num_features is not None
        for name, wanted in (("weight", weighted), ("bias", weighted and bias)):
            made = parameter((num_features,), device, dtype) if wanted else None
            self.register_parameter(name, made)
        self._make_statistics(device, dtype)
        self.reset_parameters()

    def _make_statistics(self, device: Any, dtype: Any) -> None:
        if self.track_running_stats:
            count = self.num_features
            self.register_buffer("running_mean", empty((count,), device, dtype))
            self.register_buffer("running_var", empty((count,), device, dtype))
            self.register_buffer("num_batches_tracked", _zero_count())
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)

    def reset_running_stats(self) -> None:
        """Forget the running statistics."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Scale one, shift zero, no statistics."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        """The sizes and settings."""
        shows_bias = f"bias={self._parameters.get('bias') is not None}"
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, {shows_bias}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        version = local_metadata.get("version")
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats:
            # Version 1 had no count of batches.
            if key not in state_dict:
                own = self.num_batches_tracked
                state_dict[key] = own if own is not None else _zero_count()
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def _zero_count() -> Tensor:
    return api.FUNCTIONS["zeros"]((), dtype=dt.int64)


def _check_rank(input: Tensor, *allowed: int) -> None:
    if input.ndim not in allowed:
        listed = " or ".join(f"{n}D" for n in allowed)
        raise ValueError(f"expected {listed} input (got {input.ndim}D input)")


class _BatchNorm(_NormBase):
    def forward(self, input: Tensor) -> Tensor:
        """The input with each channel's mean and variance taken out."""
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # a plain average over all batches
                factor = 1.0 / float(self.num_batches_tracked)
        mean, var = self.running_mean, self.running_var
        from_batch = self.training or (mean is None and var is None)
        keep = not self.training or self.track_running_stats
        return F.batch_norm(
            *(input, mean if keep else None, var if keep else None, self.weight, self.bias),
            *(from_batch, factor, self.eps),
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (batch, features) or (batch, channels, length).

    >>> x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    >>> nn.BatchNorm1d(2)(x).detach()
    tensor([[-1.0000, -1.0000],
            [ 1.0000,  1.0000]])
    """

    def _check_input_dim(self, input: Tensor) -> None:
        _check_rank(input, 2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of images.

    >>> layer = nn.BatchNorm2d(3)
    >>> _ = layer(torch.ones(8, 3, 4, 4))
    >>> layer.running_mean
    tensor([0.1000, 0.1000, 0.1000])
    """

    def _check_input_dim(self, input: Tensor) -> None:
        _check_rank(input, 4)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of volumes."""

    def _check_input_dim(self, input: Tensor) -> None:
        _check_rank(input, 5)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over all processes of a group; there is one, so over its batch."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            *(num_features, eps, momentum, affine, track_running_stats, device, dtype), bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """The module with this class instead of every batch normalisation in it."""
        made = module
        if isinstance(module, _BatchNorm):
            made = cls(
                *(module.num_features, module.eps, module.momentum, module.affine),
                *(module.track_running_stats, process_group),
                bias=module.bias is not None,
            )
            if module.affine:
                made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked = module.num_batches_tracked
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


class _InstanceNorm(_NormBase):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            *(num_features, eps, momentum, affine, track_running_stats, device, dtype), bias=bias
        )

    def _get_no_batch_dim(self) -> int:
        raise NotImplementedError

    def _check_input_dim(self, input: Tensor) -> None:
        unbatched = self._get_no_batch_dim()
        _check_rank(input, unbatched, unbatched + 1)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        version = local_metadata.get("version")
        if version is None and not self.track_running_stats:
            found = [
                prefix + n for n in ("running_mean", "running_var") if prefix + n in state_dict
            ]
            if found:
                errors = rest[-1]
                errors.append(
                    f"Unexpected running stats buffer(s) {' and '.join(repr(k) for k in found)} "
                    f"for {type(self).__name__} with track_running_stats=False: remove them from "
                    "the state_dict, or set track_running_stats=True"
                )
                for key in found:
                    state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _normalize(self, input: Tensor) -> Tensor:
        return F.instance_norm(
            *(input, self.running_mean, self.running_var, self.weight, self.bias),
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )

    def forward(self, input: Tensor) -> Tensor:
        """The input with each sample's and channel's mean and variance taken out."""
        self._check_input_dim(input)
        dim = input.ndim - self._get_no_batch_dim()
        if input.size(dim) != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={dim} to match num_features "
                    f"({self.num_features}), but got: {input.size(dim)}."
                )
            warnings.warn(
                f"input's size at dim={dim} does not match num_features. You can silence this "
                "warning by not passing in num_features, which is not used because affine=False",
                stacklevel=3,
            )
        if dim == 0:
            return self._normalize(input.unsqueeze(0)).squeeze(0)
        return self._normalize(input)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of signals."""

    def _get_no_batch_dim(self) -> int:
        return 2


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of images."""

    def _get_no_batch_dim(self) -> int:
        return 3


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of volumes."""

    def _get_no_batch_dim(self) -> int:
        return 4


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A normalisation that learns ``num_features`` from its first input."""

    weight: Any
    bias: Any

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=bias)
        self.affine = affine
        self.track_running_stats = track_running_stats
        factory = {"device": device, "dtype": dtype}
        if affine:
            self.weight = UninitializedParameter(**factory)
            if bias:
                self.bias = UninitializedParameter(**factory)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**factory)
            self.running_var = UninitializedBuffer(**factory)
            self.num_batches_tracked = _zero_count()

    def __init_subclass__(cls) -> None:
        # Before it becomes that class it checks its first input as that class does.
        for name in ("_check_input_dim", "_get_no_batch_dim"):
            if hasattr(cls.cls_to_become, name):
                setattr(cls, name, getattr(cls.cls_to_become, name))

    def reset_parameters(self) -> None:
        """Set the starting values, once the shape is known."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the number of channels from the first input."""
        if self.num_features == 0:
            self.num_features = input.shape[1]
        if not self.has_uninitialized_params():
            return
        held = [self.weight, self.bias] if self.affine else []
        if self.track_running_stats:
            held += [self.running_mean, self.running_var]
        for tensor in held:
            if tensor is not None:
                tensor.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """BatchNorm1d that learns ``num_features`` from its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """BatchNorm2d that learns ``num_features`` from its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """BatchNorm3d that learns ``num_features`` from its first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm1d that learns ``num_features`` from its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm2d that learns ``num_features`` from its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm3d that learns ``num_features`` from its first input."""

    cls_to_become = InstanceNorm3d


def _as_shape(normalized_shape: Any) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


class LayerNorm(Module):
    """Normalisation over the last dimensions of each sample.

    >>> layer = nn.LayerNorm(4)
    >>> layer(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).detach()
    tensor([[-1.3416, -0.4472,  0.4472,  1.3416]])
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (
            ("weight", elementwise_affine),
            ("bias", elementwise_affine and bias),
        ):
            made = parameter(self.normalized_shape, device, dtype) if wanted else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale one, shift zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """The input with mean and variance of its last dimensions taken out."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The shape and settings."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Division by the root of the mean square over the last dimensions."""

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        made = parameter(self.normalized_shape, device, dtype) if elementwise_affine else None
        self.register_parameter("weight", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale one."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The input divided by its root mean square."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """The shape and settings."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """Normalisation over groups of channels of each sample."""

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            made = parameter((num_channels,), device, dtype) if wanted else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale one, shift zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """The input with each group's mean and variance taken out."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The sizes and settings."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Division by the strength of neighbouring channels."""

    __constants__ = ["size", "alpha", "beta", "k"]

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        """The input divided by its neighbourhood's strength."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The settings."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Local response normalisation as Torch 7 had it: windows are not cut at the edges."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        """The input divided by its neighbourhood's strength."""
        reach = int((self.size - 1) / 2)
        channels = input.size(1)
        squares = input * input
        padded = F.pad(squares, (0, 0, 0, 0, reach, reach))
        total = sum(padded[:, i : i + channels] for i in range(2 * reach + 1))
        # As in PyTorch, where the first channel never leaves the running sum.
        total[:, reach + 1 :] += squares[:, :1]
        return input * (self.k + total * (self.alpha / self.size)) ** -self.beta

    def extra_repr(self) -> str:
        """The settings."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
