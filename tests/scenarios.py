"""Scenarios that run on PyTorch and on weft and must give the same, with messages of errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft
from agreement import plain

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")


def same(a, b, path="result"):
    if isinstance(a, np.ndarray):
        assert isinstance(b, np.ndarray) and a.shape == b.shape and a.dtype == b.dtype, (path, a, b)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=path)
    elif isinstance(a, (list, tuple)):
        assert isinstance(b, (list, tuple)) and len(a) == len(b), (path, a, b)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}[{i}]")
    elif isinstance(a, dict):
        assert list(a) == list(b), (path, list(a), list(b))
        for k in a:
            same(a[k], b[k], f"{path}[{k!r}]")
    else:
        assert a == b, (path, a, b)


def agree(scenario):
    results = []
    for T in (weft, torch):
        T.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append(plain(scenario(T)))
    same(*results)


def error(call):
    """The class and message of what a call raises, without the line that weft adds."""
    try:
        call()
    except Exception as found:
        return type(found).__name__, str(found).partition("\n  at ")[0]
    return "no error"


def scenario(function):
    """Mark a function of the library as a scenario."""
    function.is_scenario = True
    return function


def scenarios(namespace):
    """All scenarios of a file."""
    return [f for f in namespace.values() if getattr(f, "is_scenario", False)]
