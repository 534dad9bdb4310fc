"""Quasi-random numbers: points that fill the unit cube more evenly than random ones."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.devices import host, write_into
from weft.core.dtype import get_default_dtype
from weft.core.gate import announce
from weft.core.tensor import Tensor, wrap
from weft.operators.api import FUNCTIONS
from weft.operators.random import Generator

randint = FUNCTIONS["randint"]


@functools.cache
def _polynomials() -> tuple[np.ndarray, np.ndarray]:
    """Joe and Kuo's primitive polynomials and first direction numbers, which SciPy ships."""
    place = resources.files("scipy") / "stats" / "_sobol_direction_numbers.npz"
    with resources.as_file(place) as path, np.load(path) as table:
        return table["poly"].astype(np.int64), table["vinit"].astype(np.int64)


def _directions(dimension: int, bits: int) -> np.ndarray:
    """Direction numbers, one row for each dimension, scaled to integers of ``bits`` bits."""
    polynomials, first = _polynomials()
    polynomials, first = polynomials[:dimension], first[:dimension]
    found = np.ones((dimension, bits), np.int64)
    degrees = np.array([int(p).bit_length() - 1 for p in polynomials])
    for degree in range(1, int(degrees.max(initial=0)) + 1):
        rows = np.flatnonzero(degrees == degree)
        rows = rows[rows > 0]  # the first dimension is all ones
        if not rows.size:
            continue
        found[rows, :degree] = first[rows, :degree]
        for j in range(degree, bits):
            value = found[rows, j - degree].copy()
            for k in range(1, degree + 1):
                taken = (polynomials[rows] >> (degree - k)) & 1
                value ^= taken * (found[rows, j - k] << k)
            found[rows, j] = value
    return found << np.arange(bits - 1, -1, -1)


def _write(tensor: Tensor, values: np.ndarray) -> None:
    announce(tensor._a, tensor)
    write_into(tensor._a, values)


class SobolEngine:
    """Points of a Sobol sequence, scrambled if wanted.

    >>> import weft
    >>> weft.quasirandom.SobolEngine(dimension=2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                "Supported range of dimensionality for SobolEngine is "
                f"[1, {self.MAXDIM}], not {dimension}\n  at {errors.here()}"
            )
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        self.sobolstate = wrap(_directions(dimension, self.MAXBIT))
        self.shift = wrap(np.zeros(dimension, np.int64))
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()  # type: ignore[attr-defined]
        self._first_point = (self.quasi / 2**self.MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def _scramble(self) -> None:
        """A random linear change of every direction number's bits, and a random shift."""
        bits = self.MAXBIT
        generator: Any = None
        if self.seed is not None:
            generator = Generator()
            generator.manual_seed(self.seed)
        shifts = host(randint(2, (self.dimension, bits), generator=generator))
        _write(self.shift, shifts @ (1 << np.arange(bits)))
        matrices = host(randint(2, (self.dimension, bits, bits), generator=generator))
        matrices = np.tril(matrices, -1) | np.eye(bits, dtype=np.int64)
        # Bits from the highest on, as rows of a matrix for each dimension.
        places = np.arange(bits - 1, -1, -1)
        given = (host(self.sobolstate)[:, None, :] >> places[:, None]) & 1
        mixed = (matrices @ given) & 1
        _write(self.sobolstate, (mixed << places[:, None]).sum(1))

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next ``n`` points, as a tensor of shape (n, dimension)."""
        dtype = get_default_dtype() if dtype is None else dtype
        first = self.num_generated == 0
        count = n - 1 if first else n
        points = np.empty((n, self.dimension), np.int64)
        current, state = np.array(host(self.quasi)), host(self.sobolstate)
        start = max(self.num_generated - 1, 0)
        for i in range(count):
            current ^= state[:, _lowest_zero(start + i)]
            points[n - count + i] = current
        _write(self.quasi, current)
        values = wrap(points).to(dtype) * 2.0**-self.MAXBIT  # type: ignore[attr-defined]
        if first:
            values[:1] = self._first_point.to(dtype)
        self.num_generated += n
        if out is None:
            return values
        return out.resize_as_(values).copy_(values)  # type: ignore[attr-defined]

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next ``2**m`` points; as many as keep the total a power of two."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. Continue with draw(), or reset() first\n"
                f"  at {errors.here()}"
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Start again from the first point."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out the next ``n`` points."""
        current, state = np.array(host(self.quasi)), host(self.sobolstate)
        start = max(self.num_generated - 1, 0)
        for i in range(n - 1 if self.num_generated == 0 else n):
            current ^= state[:, _lowest_zero(start + i)]
        _write(self.quasi, current)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        scrambled = ", scramble=True" if self.scramble else ""
        seeded = "" if self.seed is None else f", seed={self.seed}"
        return f"{type(self).__name__}(dimension={self.dimension}{scrambled}{seeded})"


def _lowest_zero(n: int) -> int:
    """The place of the lowest bit that is zero, in which Gray codes of n and n + 1 differ."""
    return (~n & (n + 1)).bit_length() - 1
