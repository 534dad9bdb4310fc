"""What all distributions have: shapes, validation, and the methods that they may lack."""

from __future__ import annotations

import warnings
from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.utils import lazy_property, refuse

__all__ = ["Distribution"]


class Distribution:
    """A law of random values.

    ``batch_shape`` counts laws with parameters of their own, ``event_shape`` is the shape of one
    draw. A class names in ``_shaped`` the tensors that have the batch shape, each with the number
    of dimensions that follow it; ``expand`` is made from that.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args: bool = __debug__
    _shaped: dict[str, int] = {}

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether distributions check their arguments by default."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Any = Size(),
        event_shape: Any = Size(),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_arguments()
        super().__init__()

    def _check_arguments(self) -> None:
        try:
            regions = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set "
                "`arg_constraints = {}` or initialize the distribution with "
                "`validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        for name, region in regions.items():
            given = name in self.__dict__
            if constraints.is_dependent(region) or (
                not given and isinstance(getattr(type(self), name, None), lazy_property)
            ):
                continue
            value = getattr(self, name)
            if not region.check(value).all():
                refuse(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{region!r}, but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same laws, repeated to another batch shape."""
        if not self._shaped:
            raise NotImplementedError
        return self._expanded(Size(batch_shape), _instance)

    def _expanded(self, batch_shape: Size, instance: Any = None) -> Any:
        definer = next(
            k for k in type(self).__mro__ if "_shaped" in k.__dict__ or "expand" in k.__dict__
        )
        new = self._get_checked_instance(definer, instance)
        for name, extra in self._shaped.items():
            value = self.__dict__.get(name)
            if value is not None:
                shape = batch_shape + value.shape[value.dim() - extra :]
                setattr(new, name, value.expand(shape))
        new._batch_shape, new._event_shape = batch_shape, self._event_shape
        new._validate_args = self._validate_args
        return new

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom "
                "__init__ method must also define a custom .expand() method."
            )
        return object.__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters, without the event."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """The constraints of the parameters."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        """Draw, without a gradient."""
        with weft.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        """Draw, with a gradient for the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """Draw n times; ``sample((n,))`` is the newer form."""
        warnings.warn(
            "sample_n will be deprecated. Use .sample((n,)) instead", UserWarning, stacklevel=2
        )
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at a value."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a draw up to a value."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which a draw has a given probability."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a new first dimension."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return weft.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = Size()) -> Size:
        """The shape of draws: samples, batch, event."""
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Any) -> None:
        if not isinstance(value, Tensor):
            refuse("The value argument to log_prob must be a Tensor")
        start = value.dim() - len(self._event_shape)
        if value.shape[start:] != self._event_shape:
            refuse(
                "The right-most size of value must match event_shape: "
                f"{value.shape} vs {self._event_shape}."
            )
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.shape), reversed(expected), strict=False):
            if i != j and i != 1 and j != 1:
                refuse(
                    "Value is not broadcastable with batch_shape+event_shape: "
                    f"{value.shape} vs {expected}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not support.check(value).all():
            refuse(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, but found "
                f"invalid values:\n{value}"
            )

    def _checked(self, value: Any) -> Any:
        """The value, validated if this distribution validates."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def __repr__(self) -> str:
        shown = []
        for name in self.arg_constraints:
            if name in self.__dict__:
                value = self.__dict__[name]
                shown.append(f"{name}: {value if value.numel() == 1 else value.shape}")
        return f"{type(self).__name__}({', '.join(shown)})"


class ProbsOrLogits(Distribution):
    """A distribution with probabilities or log-odds, of which the other follows."""

    _binary = True

    def _take(self, probs: Any, logits: Any) -> None:
        self._given = "logits" if probs is None else "probs"
        setattr(self, self._given, logits if probs is None else probs)

    def _expanded(self, batch_shape: Size, instance: Any = None) -> Any:
        new = super()._expanded(batch_shape, instance)
        new._given = self._given
        return new

    @property
    def _param(self) -> Tensor:
        return getattr(self, self._given)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.shape
