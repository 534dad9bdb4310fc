"""Padding with an array's own elements: the kernels against the references."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
from loops_common import over_threads
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit
from weft.native.loops import folds
from weft.operators.padding import _pad_map

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason="no compiler here")
SHAPES = ((2, 5, 600), (3, 4, 20, 30), (20, 100), (2, 3, 5, 9, 11), (3000, 2), (4, 2, 600, 1))
PADS = ((1, 1), (4, 2), (0, 3), (-1, 2), (2, -1), (-2, -1))
MODES = ("reflect", "replicate", "circular")


def cases(shape):
    """Tables of places for the last dimension, the last two and so on, as ``pad`` makes them."""
    for mode in MODES:
        for k, (before, after) in enumerate(PADS):
            pads = [(before, after), (after, before), PADS[k - 1]][: max(len(shape) - 1, 1)]
            if all(max(p) < n and n + sum(p) > 0 for p, n in zip(pads, shape[::-1], strict=False)):
                dims = range(len(shape) - 1, -1, -1)
                each = [(d, _pad_map(shape[d], *p, mode)) for d, p in zip(dims, pads, strict=False)]
                yield from (tuple(each[:count]) for count in range(1, len(each) + 1))
                yield (each[-1],)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, bool, ml_dtypes.bfloat16])
def test_padding(shape, dtype):
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    for maps in cases(shape):
        for given in (x, np.asfortranarray(x), np.repeat(x, 2, 0)[::2]):
            found = over_threads(lambda given=given, maps=maps: folds.pad_by(given, maps))
            wanted = REGISTRY["pad_by"].reference(x, maps)
            assert found.dtype == wanted.dtype
            assert np.array_equal(found, wanted)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_transpose(shape, dtype):
    for maps in cases(shape):
        padded = REGISTRY["pad_by"].reference(np.empty(shape, np.int8), maps).shape
        g = np.random.default_rng(1).integers(-99, 99, padded).astype(dtype)  # sums are exact
        for given in (g, np.asfortranarray(g)):
            found = over_threads(
                lambda given=given, maps=maps: folds.pad_by_back(given, shape, maps)
            )
            if g.size < folds.SMALL:
                assert found is None
                continue
            wanted = REGISTRY["pad_by_backward"].reference(g, shape, maps)
            assert found.dtype == dtype and np.array_equal(found, wanted)


def test_what_is_left_to_numpy():
    x, fine = np.ones((4, 5, 600), np.float32), np.arange(600)
    assert folds.pad_by(x, ((2, fine),)) is not None
    for dim, index in (
        *((2, fine + 1), (2, fine - 1), (3, fine), (-1, fine), (2, fine.astype(np.int32))),
        *((2, fine[None]), (2, fine[:0]), (2, fine.tolist())),
    ):
        assert folds.pad_by(x, ((dim, index),)) is None
        assert folds.pad_by_back(x, x.shape, ((dim, index),)) is None
    assert folds.pad_by(x, ((2, fine), (2, fine))) is None
    assert folds.pad_by(x.astype(complex), ((2, fine),)) is None
    assert folds.pad_by(x[:0], ((2, fine),)) is None
    assert folds.pad_by_back(x, (4, 5), ((1, fine),)) is None
    assert folds.pad_by_back(x, (4, 6, 600), ((2, fine),)) is None
    assert folds.pad_by_back(x.astype(np.int64), x.shape, ((2, fine),)) is None


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_images_with_the_channels_innermost(mode):
    x = weft.randn(2, 4, 20, 30)
    weights = weft.randn(2, 4, 23, 35)
    grads = []
    for given in (x, x.contiguous(memory_format=weft.channels_last), x.double()):
        given = given.detach().requires_grad_()
        y = weft.nn.functional.pad(given, (3, 2, 1, 2), mode=mode)
        (y * weights).sum().backward()
        grads.append(given.grad.numpy())
    np.testing.assert_array_equal(grads[0], grads[1])
    np.testing.assert_allclose(grads[0], grads[2], rtol=1e-5, atol=1e-6)


def test_circles_without_rows_or_without_anything_to_repeat():
    for shape in ((2, 0, 3), (0, 3, 4)):
        x = weft.zeros(*shape, requires_grad=True)
        y = weft.nn.functional.pad(x, (1, 1), mode="circular")
        y.sum().backward()
        assert y.shape == (*shape[:-1], shape[-1] + 2) and x.grad.shape == shape
    x = weft.ones(2, 3, 4, requires_grad=True)  # PyTorch gives undefined memory there
    for pads in ((-4, 2), (1, -4), (-2, -3)):
        with pytest.raises(RuntimeError, match="padding"):
            weft.nn.functional.pad(x, pads, mode="circular")
    assert weft.nn.functional.pad(x, (-2, -2), mode="circular").shape == (2, 3, 0)
