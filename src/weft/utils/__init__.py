"""Helpers beside the library proper."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

from weft.core import errors
from weft.core.gate import announce
from weft.core.node import AccumulateGrad
from weft.core.tensor import Tensor

_SLOTS = ("_a", "_base", "_grad", "_node", "_stamp", "_vc", "_view", "_x", "__dict__", "__class__")


def _with_views(t1: Tensor, t2: Tensor) -> list[Tensor]:
    # A view shares the version cell, which costs less to look at than all objects there are.
    expected = 3 if t1._vc is t2._vc else 2
    shared = [t for t in (t1, t2) if sys.getrefcount(t._vc) > expected]
    holders = [x for x in gc.get_referrers(*shared) if isinstance(x, Tensor)] if shared else []
    return [t for t in shared if any(x._base is t for x in holders)]


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Swap two tensors: references to one refer to the other from now on."""
    for t in _with_views(t1, t2):
        raise RuntimeError(
            f"swap_tensors: a tensor of shape {list(t.shape)} has views, which would show the "
            f"other's values; delete them first\n  at {errors.here()}"
        )
    for t in (t1, t2):
        announce(t._a, t)
    for name in _SLOTS:
        first, second = getattr(t1, name, None), getattr(t2, name, None)
        setattr(t1, name, second)
        setattr(t2, name, first)
    for t in (t1, t2):
        leaf = t._node
        if isinstance(leaf, AccumulateGrad):
            t._node = AccumulateGrad(t)
            t._node.extras, t._node.post_accumulate = leaf.extras, leaf.post_accumulate


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
