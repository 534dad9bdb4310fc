"""The Python array API standard, wherever PyTorch follows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import weft

FLOATS = (weft.float32, weft.float64)
SIGNED = (weft.int8, weft.int16, weft.int32, weft.int64)

# The promotions that the standard requires, as pairs and their result.
PROMOTIONS = [
    *((a, b, SIGNED[max(i, j)]) for i, a in enumerate(SIGNED) for j, b in enumerate(SIGNED)),
    *((a, b, FLOATS[max(i, j)]) for i, a in enumerate(FLOATS) for j, b in enumerate(FLOATS)),
    (weft.uint8, weft.int8, weft.int16),
    (weft.uint8, weft.int16, weft.int16),
    (weft.uint8, weft.int32, weft.int32),
    (weft.uint8, weft.int64, weft.int64),
    (weft.complex64, weft.float32, weft.complex64),
    (weft.complex64, weft.float64, weft.complex128),
    (weft.complex64, weft.complex128, weft.complex128),
    (weft.bool, weft.bool, weft.bool),
]


@pytest.mark.parametrize(("a", "b", "expected"), PROMOTIONS)
def test_promotion_of_arrays_follows_the_standard(a: Any, b: Any, expected: Any) -> None:
    assert weft.result_type(weft.ones(2, dtype=a), weft.ones(2, dtype=b)) is expected
    if expected is not weft.bool:
        assert (weft.ones(2, dtype=a) + weft.ones(2, dtype=b)).dtype is expected


@pytest.mark.parametrize("dtype", [*FLOATS, *SIGNED, weft.uint8, weft.complex64], ids=str)
def test_python_numbers_do_not_widen(dtype: Any) -> None:
    assert (weft.ones(2, dtype=dtype) + 1).dtype is dtype
    if dtype.is_floating_point or dtype.is_complex:
        assert (weft.ones(2, dtype=dtype) * 1.5).dtype is dtype


def test_the_namespace_is_weft_itself() -> None:
    x = weft.ones(3)
    xp = x.__array_namespace__()
    assert xp is weft
    assert xp.asarray([1.0]).dtype is weft.float32
    assert x.__array_namespace__(api_version="2023.12") is weft
    with pytest.raises(ValueError, match="version"):
        x.__array_namespace__(api_version="1.0")


@settings(max_examples=80, deadline=None)
@given(npst.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4, min_side=0))
def test_broadcasting_follows_the_standard(shapes: Any) -> None:
    first, second = shapes.input_shapes
    a, b = weft.ones(first), weft.ones(second)
    assert tuple((a + b).shape) == shapes.result_shape
    assert tuple(weft.broadcast_shapes(first, second)) == shapes.result_shape
    assert [tuple(t.shape) for t in weft.broadcast_tensors(a, b)] == [shapes.result_shape] * 2


@settings(max_examples=60, deadline=None)
@given(
    npst.arrays(
        st.sampled_from(["float32", "float64", "int8", "int32", "int64", "uint8", "complex64"]),
        npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
        elements=st.integers(0, 100),
    )
)
def test_dlpack_shares_memory_both_ways(array: np.ndarray) -> None:
    tensor = weft.from_dlpack(array)
    assert np.array_equal(tensor.numpy(), array)
    assert tensor.__dlpack_device__() == (1, 0)
    back = np.from_dlpack(tensor)
    assert back.dtype == array.dtype and back.shape == array.shape
    if array.size:
        assert np.shares_memory(back, array)


@settings(max_examples=60, deadline=None)
@given(
    npst.arrays("float64", npst.array_shapes(max_dims=3, max_side=5), elements=st.floats(-5, 5)),
    st.data(),
)
def test_reductions_and_axes_agree_with_numpy(array: np.ndarray, data: Any) -> None:
    axis = data.draw(st.integers(-array.ndim, array.ndim - 1))
    keep = data.draw(st.booleans())
    x = weft.from_numpy(array)
    for mine, theirs in ((weft.sum, np.sum), (weft.mean, np.mean), (weft.amax, np.amax)):
        found = mine(x, dim=axis, keepdim=keep)
        np.testing.assert_allclose(found.numpy(), theirs(array, axis=axis, keepdims=keep))


def test_numpy_asks_through_array_and_gets_the_memory() -> None:
    x = weft.arange(6).reshape(2, 3)
    view = np.asarray(x)
    view[0, 0] = 7
    assert x[0, 0].item() == 7
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(weft.ones(2, requires_grad=True))
