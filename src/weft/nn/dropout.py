"""Dropout layers."""

from __future__ import annotations

from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn.module import Module


class _DropoutNd(Module):
    __constants__ = ["p", "inplace"]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """The probability, and whether it works in place."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Sets elements to zero at random while training.

    >>> _ = torch.manual_seed(0)
    >>> layer = nn.Dropout(0.5)
    >>> layer(torch.ones(6))
    tensor([0., 0., 2., 0., 0., 0.])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Sets whole channels of signals to zero."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Sets whole channels of images to zero."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Sets whole channels of volumes to zero."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance, for SELU networks."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements."""
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """Alpha dropout of whole channels."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return F.feature_alpha_dropout(input, self.p, self.training)
