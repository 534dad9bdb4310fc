"""Which transform leads from all real numbers to a region: ``biject_to`` and ``transform_to``.

Both give a map onto the region. Those of ``biject_to`` are bijective and know their change of
volume, as inference needs; those of ``transform_to`` may be simpler, as optimisation wants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.distributions import constraints, transforms
from weft.distributions.utils import refuse

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """A table from kinds of regions to makers of transforms."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable] = {}
        super().__init__()

    def register(self, constraint: Any, factory: Callable | None = None) -> Any:
        """Add a maker of transforms for a kind of region; also a decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not isinstance(constraint, type) or not issubclass(constraint, constraints.Constraint):
            raise TypeError(
                "Expected constraint to be either a Constraint subclass or instance, "
                f"but got {constraint}"
            )
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        factory = self._registry.get(type(constraint))
        if factory is None:
            refuse(f"Cannot transform {type(constraint).__name__} constraints", NotImplementedError)
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*kinds: Any) -> Callable:
    def register(factory: Callable) -> Callable:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return register


@_both(constraints.real)
def _to_real(constraint: Any) -> Any:
    return transforms.identity_transform


def _independent(registry: ConstraintRegistry) -> Callable:
    return lambda constraint: transforms.IndependentTransform(
        registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims
    )


@_both(constraints.positive, constraints.nonnegative)
def _to_greater(constraint: Any) -> Any:
    lower = transforms.AffineTransform(constraint.lower_bound, 1)
    return transforms.ComposeTransform([transforms.ExpTransform(), lower])


@_both(constraints.less_than)
def _to_less(constraint: Any) -> Any:
    upper = transforms.AffineTransform(constraint.upper_bound, -1)
    return transforms.ComposeTransform([transforms.ExpTransform(), upper])


@_both(constraints.interval, constraints.half_open_interval)
def _to_interval(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    # Numbers only: comparing tensors would ask for their values.
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    stretch = transforms.AffineTransform(low, high - low)
    return transforms.ComposeTransform([transforms.SigmoidTransform(), stretch])


@_both(constraints.corr_cholesky)
def _to_corr_cholesky(constraint: Any) -> Any:
    return transforms.CorrCholeskyTransform()


def _cat(registry: ConstraintRegistry) -> Callable:
    return lambda constraint: transforms.CatTransform(
        [registry(c) for c in constraint.cseq], constraint.dim, constraint.lengths
    )


def _stack(registry: ConstraintRegistry) -> Callable:
    return lambda constraint: transforms.StackTransform(
        [registry(c) for c in constraint.cseq], constraint.dim
    )


for _registry in (biject_to, transform_to):
    _registry.register(constraints.independent, _independent(_registry))
    _registry.register(constraints.cat, _cat(_registry))
    _registry.register(constraints.stack, _stack(_registry))

biject_to.register(constraints.simplex, lambda constraint: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: transforms.SoftmaxTransform())
transform_to.register(
    constraints.lower_cholesky, lambda constraint: transforms.LowerCholeskyTransform()
)
for _region in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_region, lambda constraint: transforms.PositiveDefiniteTransform())
