"""One piece of code run with PyTorch and with weft as ``torch``, and what it gives compared.

Files that use this also hold tests against literal values, which need no PyTorch.
"""

from __future__ import annotations

import ast
import copy
import functools
import io
import math
import operator
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import weft

try:
    import torch
except ImportError:  # literals are tested all the same
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="compares with PyTorch")

MODULES = {m.__name__: m for m in (copy, functools, io, math, operator, pickle, np, warnings)} | {
    "np": np
}


def shown(value: Any) -> Any:
    """A value in a form in which those of both libraries can be compared."""
    kind = type(value).__name__
    if hasattr(value, "storage_offset"):  # a tensor
        return _shown_tensor(value, kind)
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tolist())
    if isinstance(value, np.generic):
        return ("numpy", str(value.dtype), value.item())
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    if kind == "Size":
        return ("Size", tuple(value))
    if isinstance(value, (list, tuple)):
        return (kind.split(".")[-1], [shown(v) for v in value])
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if value is None or isinstance(value, (bool, int, complex, str, bytes, set)):
        return value
    return repr(value).replace("weft.", "torch.")


def _shown_tensor(t: Any, kind: str) -> Any:
    return {
        "kind": kind,
        "dtype": str(t.dtype),
        "shape": tuple(t.shape),
        "stride": t.stride() if t.numel() else None,
        "grad": (t.requires_grad, t.is_leaf),
        "values": rounded(t.detach().tolist()),
    }


def rounded(values: Any) -> Any:
    """Numbers of nested lists to six digits, since last bits may differ."""
    if isinstance(values, list):
        return [rounded(v) for v in values]
    return f"{values:.6g}" if isinstance(values, (float, complex)) else values


def run(code: str, system: Any, **scope: Any) -> Any:
    """The value of the code's last expression, or the name of the class of its error."""
    tree = ast.parse(code)
    scope = {**MODULES, "torch": system, **scope}
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(tree, "<code>", "exec"), scope)
            value = (
                eval(compile(ast.Expression(last.value), "<code>", "eval"), scope) if last else 0
            )
            return shown(value)
        except Exception as error:
            return _family(error)


def _family(error: Exception) -> str:
    # PyTorch's choice between these two depends on where in its layers it gave up.
    kind = RuntimeError if isinstance(error, NotImplementedError) else type(error)
    return f"{kind.__name__} raised"


def agree(code: str, **scope: Any) -> None:
    """Both libraries give the same, or raise the same class of error."""
    theirs, ours = run(code, torch, **scope), run(code, weft, **scope)
    assert ours == theirs, f"{code}\n  weft  {ours}\n  torch {theirs}"


def lines(text: str) -> list[str]:
    """The lines of a table of expressions, without empty ones and comments."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
