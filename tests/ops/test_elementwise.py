"""Elementwise ops against torch: shapes by Hypothesis, and the values that break things."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import weft
from weft.core.dispatch import REGISTRY

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e-3, 1e-30, 20.0, -20.0)
TOLERANCE = {"float32": (2e-5, 1e-6), "float64": (1e-9, 1e-12)}

# Functions whose public form takes more, or other shapes, than tensors that broadcast.
OTHER_ARGUMENTS = (
    *("binary_cross_entropy_with_logits", "dropout", "polygamma", "prelu", "threshold"),
)


# Where torch forgets a NaN in one input; weft keeps it.
FORGETS_NAN = ("igamma", "igammac")


def counterpart(name: str) -> Any:
    """torch's function of the same name, if weft offers one too."""
    for place, mine in ((torch, weft), (torch.special, weft.special)):
        found = getattr(place, name, None)
        if callable(found) and hasattr(mine, name):
            return getattr(mine, name), found
    return None


NAMES = sorted(
    name
    for name, op in REGISTRY.items()
    if op.diagonal and len(op.names) <= 2 and name not in OTHER_ARGUMENTS and counterpart(name)
)


def same(name: str, arrays: list[np.ndarray]) -> None:
    mine, theirs = counterpart(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs(*(torch.from_numpy(a) for a in arrays))
        found = mine(*(weft.from_numpy(a) for a in arrays))
    assert tuple(found.shape) == tuple(expected.shape)
    assert str(found.dtype) == str(expected.dtype)
    rtol, atol = TOLERANCE.get(str(found.dtype).removeprefix("torch."), (0, 0))
    np.testing.assert_allclose(
        found.numpy(), expected.numpy(), rtol=rtol, atol=atol, equal_nan=True, err_msg=name
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_special_values_agree_with_torch(name: str, dtype: str) -> None:
    values = np.array(SPECIAL, dtype)
    if name in FORGETS_NAN:
        values = values[~np.isnan(values)]
    count = len(REGISTRY[name].names)
    if count == 1:
        same(name, [values])
    else:
        same(name, [values[:, None].copy(), values.copy()])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_shapes_and_strides_agree_with_torch(name: str, data: Any) -> None:
    count = len(REGISTRY[name].names)
    shapes = data.draw(
        npst.mutually_broadcastable_shapes(num_shapes=count, max_dims=3, max_side=3, min_side=0)
    )
    arrays = []
    for k, shape in enumerate(shapes.input_shapes):
        rng = np.random.default_rng(k)
        array = rng.uniform(0.2, 0.9, shape)
        if array.ndim > 1 and data.draw(st.booleans()):
            array = np.ascontiguousarray(array.T).T
        arrays.append(array)
    same(name, arrays)


@pytest.mark.parametrize("name", NAMES)
def test_integers_promote_as_in_torch(name: str) -> None:
    count = len(REGISTRY[name].names)
    arrays = [np.array([1, 2, 3]), np.array([2, 1, 2])][:count]
    _, theirs = counterpart(name)
    try:
        theirs(*(torch.from_numpy(a) for a in arrays))
    except (RuntimeError, NotImplementedError):
        return  # torch does not take integers here
    same(name, arrays)
