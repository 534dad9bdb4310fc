"""The chi-squared law."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.gamma import Gamma

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The law of a sum of ``df`` squared standard normals."""

    arg_constraints = {"df": constraints.positive}
    _shaped = Gamma._shaped

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2
