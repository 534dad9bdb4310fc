"""Builders of ops, chosen by the structure of the Jacobian so that nothing is written twice.

``elementwise``   diagonal: one rule ``t -> t * derivative`` gives both vjp and jvp
``linear``        linear in every tensor input: a vjp; the jvp is the op itself
``general``       a vjp; the jvp as given, or by transposing the vjp
``constant``      no derivative: comparisons, indices
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.core import short
from weft.core.dispatch import Op
from weft.core.meta import filled
from weft.core.tensor import Tensor, wrap
from weft.operators import api


@dataclass
class Sample:
    """One use of a raw op for its generated tests: array inputs and attributes."""

    args: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)


class Make:
    """Makes sample inputs; always float64, from a fixed seed."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def real(self, *shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
        """Uniform values, no two of them equal."""
        return self.rng.uniform(low, high, shape)

    def integers(self, *shape: int, low: int = 0, high: int = 10) -> np.ndarray:
        """int64 values in [low, high)."""
        return self.rng.integers(low, high, shape)

    def mask(self, *shape: int) -> np.ndarray:
        """Booleans."""
        return self.rng.random(shape) < 0.5


def elementwise(
    name: str,
    reference: Callable,
    *rules: Callable | None,
    promote: str = "same",
    domain: tuple[float, float] | tuple[tuple[float, float], ...] = (-2.0, 2.0),
    public: bool = True,
    in_place: bool = True,
    **more: Any,
) -> Op:
    """An op that works element by element, with broadcasting.

    Each rule takes the tangent ``t`` first and gives ``t`` times the partial derivative; its
    other parameters name what it needs: ``x`` (or ``a``, ``b``, ``c``), ``y`` for the result.
    With ``public``, ``torch.<name>``, ``Tensor.<name>`` and ``Tensor.<name>_`` are offered.
    """
    count = max(len(rules), 1)
    names = more.pop("names", ("x",) if count == 1 else ("a", "b", "c")[:count])
    op = Op(
        name,
        reference,
        names=names,
        rules=rules,
        diagonal=True,
        promote=promote,
        samples=more.pop("samples", None) or _elementwise_samples(len(names), domain),
        **more,
    )
    if public:
        publish(op, in_place=in_place)
    return op


def publish(op: Op, *, in_place: bool = True, name: str | None = None) -> Callable:
    """Offer an elementwise op of one or two inputs as function, method and in-place method."""
    name = name or op.name
    fast = short.fast_unary(op) if len(op.names) == 1 else short.fast_binary(op)
    api.both(fast, name=name)
    if in_place:
        api.inplace(name + "_", op)
    return fast


def _elementwise_samples(count: int, domain: Any) -> Callable[[Make], Iterator[Sample]]:
    ranges = domain if isinstance(domain[0], tuple) else (domain,) * count
    combinations: list[tuple[tuple[int, ...], ...]]
    if count == 1:
        combinations = [((),), ((3,),), ((2, 3),), ((0, 2),)]
    else:
        tails: tuple[tuple[int, ...], ...] = ((), (3,), (2, 1, 3), (4, 1))
        combinations = [tails[i : i + count] for i in range(len(tails) - count + 1)]
        combinations += [((2, 3),) * count, ((0, 3),) * count, ((4, 1), (3,), (1, 3))[:count]]

    def samples(make: Make) -> Iterator[Sample]:
        for shapes in combinations:
            yield Sample(
                tuple(
                    make.real(*s, low=low, high=high)
                    for s, (low, high) in zip(shapes, ranges, strict=True)
                )
            )

    return samples


def linear(
    name: str,
    reference: Callable,
    *rules: Callable | None,
    joint: Callable | None = None,
    names: tuple[str, ...] = ("x",),
    samples: Callable | None,
    together: bool = False,
    **more: Any,
) -> Op:
    """An op that is linear in each of its differentiable inputs; rules are its transposes.

    ``together=True`` is for ops that are linear in all of them at once, as ``cat`` and not as
    ``matmul``: scaling one input alone does not scale the result.
    """
    return Op(
        name,
        reference,
        names=names,
        rules=rules or None,
        joint=joint,
        jvp="together" if together else "linear",
        samples=samples,
        **more,
    )


def general(
    name: str,
    reference: Callable,
    *rules: Callable | None,
    joint: Callable | None = None,
    names: tuple[str, ...] = ("x",),
    samples: Callable | None,
    **more: Any,
) -> Op:
    """An op with a vjp for each input (or one ``joint`` vjp) and, where given, a jvp."""
    return Op(
        name, reference, names=names, rules=rules or None, joint=joint, samples=samples, **more
    )


def constant(name: str, reference: Callable, *, names: tuple[str, ...] = ("x",), **more: Any) -> Op:
    """An op whose result carries no gradient."""
    return Op(name, reference, names=names, **more)


def refusing(name: str, way_out: str = "detach() the tensor first") -> Callable:
    """A rule for what has no derivative in PyTorch either: backward through it is an error."""

    def refuse(g: Any) -> Any:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented. {way_out}")

    return refuse


def zeros_of(like: Any, shape: tuple[int, ...]) -> Any:
    """Zeros in the dtype and kind (array or tensor) of another value."""
    array = like._a if isinstance(like, Tensor) else like
    zeros = filled(np.zeros, shape, array.dtype)
    return wrap(zeros) if isinstance(like, Tensor) else zeros


def is_number(value: Any) -> bool:
    """Whether an input of a node was a Python number (or left out), not a tensor."""
    return value is None or isinstance(value, (int, float, complex, np.number))


def zero(t: Any) -> Any:
    """A rule for functions whose derivative is zero: a constant, so that nothing hangs on it."""
    return zeros_of(t, t.shape)
