"""Window functions of signal processing: the old ones and those of ``torch.signal.windows``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.tensor import LAYOUT, Tensor
from weft.operators import api
from weft.operators.creation import finish


def _window_type(dtype: Any, name: str) -> np.dtype:
    d = dt.get_default_dtype() if dtype is None else dtype
    if not d.is_floating_point:
        raise RuntimeError(
            f"{name} expects floating point dtypes, got: {d!r}\n  at {errors.here()}"
        )
    return d.np


def _strided_only(layout: Any, name: str, kind: type[Exception] = RuntimeError) -> None:
    if layout is not None and layout is not LAYOUT:
        raise kind(
            f"{name} is not implemented for sparse types, got: {layout}\n  at {errors.here()}"
        )


def _made(
    formula: Callable, length: int, symmetric: bool, d: np.dtype, device: Any, requires_grad: bool,
    name: str,
) -> Tensor:  # fmt: skip
    """A window from a formula of the places 0 .. n-1 and the last place."""
    if length < 0:
        raise RuntimeError(
            f"{name} requires non-negative window_length, got window_length={length}\n"
            f"  at {errors.here()}"
        )
    if length < 2:
        values = np.ones(length)
    else:
        last = length - 1 if symmetric else length
        values = formula(np.arange(length, dtype=np.float64), last)
    return finish(values.astype(d), device, requires_grad)


def _cosines(places: np.ndarray, last: float, coefficients: Iterable[float]) -> np.ndarray:
    """An alternating sum of cosines."""
    angle = places * (2 * math.pi / last)
    terms = [(-1) ** k * a * np.cos(k * angle) for k, a in enumerate(coefficients)]
    return np.sum(terms, axis=0)


def _kaiser(places: np.ndarray, last: float, beta: float) -> np.ndarray:
    middle = last / 2
    inside = np.maximum(1 - ((places - middle) / middle) ** 2, 0)
    return np.i0(beta * np.sqrt(inside)) / np.i0(beta)


def _bartlett(places: np.ndarray, last: float) -> np.ndarray:
    return 1 - np.abs(places * (2 / last) - 1)


HANN, BLACKMAN = (0.5, 0.5), (0.42, 0.5, 0.08)
NUTTALL = (0.3635819, 0.4891775, 0.1365995, 0.0106411)

# --- torch.hann_window and its like ----------------------------------------------------


def _old(name: str, formula_of: Callable, *settings: tuple[str, float]) -> None:
    def window(
        window_length: int, periodic: bool = True, *values: float, dtype: Any = None,
        layout: Any = None, device: Any = None, requires_grad: bool = False,
        pin_memory: bool = False, **named: float,
    ) -> Tensor:  # fmt: skip
        given = dict(settings)
        given.update(zip(given, values, strict=False))
        for key, value in named.items():
            if key not in given:
                raise TypeError(
                    f"{name}() got an unexpected keyword argument '{key}'\n  at {errors.here()}"
                )
            given[key] = value
        _strided_only(layout, name)
        formula = formula_of(**given)
        d = _window_type(dtype, name)
        return _made(formula, window_length, not periodic, d, device, requires_grad, name)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"A {name.removesuffix('_window')} window; periodic unless told otherwise."
    api.top(window)


_old("hann_window", lambda: lambda n, last: _cosines(n, last, HANN))
_old(
    "hamming_window",
    lambda alpha, beta: lambda n, last: _cosines(n, last, (alpha, beta)),
    ("alpha", 0.54),
    ("beta", 0.46),
)
_old("blackman_window", lambda: lambda n, last: _cosines(n, last, BLACKMAN))
_old("bartlett_window", lambda: _bartlett)
_old("kaiser_window", lambda beta: lambda n, last: _kaiser(n, last, beta), ("beta", 12.0))

# --- torch.signal.windows --------------------------------------------------------------


def _windows(function: Callable) -> Callable:
    """Turn a maker of formulas into a public window function."""
    name = function.__name__

    def window(
        M: int, *args: Any, sym: bool = True, dtype: Any = None, layout: Any = None,
        device: Any = None, requires_grad: bool = False, **settings: Any,
    ) -> Tensor:  # fmt: skip
        _strided_only(layout, name, ValueError)
        formula = function(*args, **settings)
        d = dt.get_default_dtype() if dtype is None else dtype
        if d is not dt.float32 and d is not dt.float64:
            raise ValueError(
                f"{name} expects float32 or float64 dtypes, got: {d!r}\n  at {errors.here()}"
            )
        if sym and settings.get("center") is not None:
            raise ValueError(f"Center must be None for symmetric windows\n  at {errors.here()}")
        if M < 0:
            raise ValueError(
                f"{name} requires non-negative window length, got M={M}\n  at {errors.here()}"
            )
        return _made(formula, M, sym, d.np, device, requires_grad, name)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = function.__doc__
    return api.under("signal.windows", window)


@_windows
def general_cosine(a: Iterable[float]) -> Callable:
    """A weighted sum of cosines of rising frequency."""
    weights = list(a)
    if not weights:
        raise ValueError(f"Coefficients cannot be empty\n  at {errors.here()}")
    return lambda n, last: _cosines(n, last, weights)


@_windows
def general_hamming(*, alpha: float = 0.54) -> Callable:
    """A raised cosine with weight ``alpha``."""
    return lambda n, last: _cosines(n, last, (alpha, 1 - alpha))


@_windows
def hamming() -> Callable:
    """The Hamming window."""
    return lambda n, last: _cosines(n, last, (0.54, 0.46))


@_windows
def hann() -> Callable:
    """The Hann window."""
    return lambda n, last: _cosines(n, last, HANN)


@_windows
def blackman() -> Callable:
    """The Blackman window."""
    return lambda n, last: _cosines(n, last, BLACKMAN)


@_windows
def nuttall() -> Callable:
    """The minimum four-term Blackman-Harris window by Nuttall."""
    return lambda n, last: _cosines(n, last, NUTTALL)


@_windows
def bartlett() -> Callable:
    """The Bartlett (triangular) window."""
    return _bartlett


@_windows
def cosine() -> Callable:
    """Half a period of a sine."""
    return lambda n, last: np.sin((n + 0.5) * (math.pi / (last + 1)))


@_windows
def exponential(*, center: float | None = None, tau: float = 1.0) -> Callable:
    """Exponential decay to both sides of the centre."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.\n  at {errors.here()}")

    def formula(places: np.ndarray, last: float) -> np.ndarray:
        middle = last / 2 if center is None else center
        return np.exp(-np.abs(places - middle) / tau)

    return formula


@_windows
def gaussian(*, std: float = 1.0) -> Callable:
    """A Gaussian of the given width around the centre."""
    if std <= 0:
        raise ValueError(
            f"Standard deviation must be positive, got: {std} instead.\n  at {errors.here()}"
        )
    return lambda n, last: np.exp(-(((n - last / 2) / (std * math.sqrt(2))) ** 2))


@_windows
def kaiser(*, beta: float = 12.0) -> Callable:
    """The Kaiser window of shape ``beta``."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.\n  at {errors.here()}")
    return lambda n, last: _kaiser(n, last, beta)
