"""Native resizing against the NumPy kernels."""

import numpy as np
import pytest

from loops_common import close, layouts, over_threads
from weft.native.codegen import jit
from weft.native.loops import resampling
from weft.references import resampling as reference

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))

# Shape, size, mode, align_corners, scales, antialias.
CASES = [
    ((2, 3, 13), (29,), "linear", False, None, False),
    ((2, 3, 13), (5,), "nearest", False, None, False),
    ((2, 3, 8, 9), (16, 18), "nearest", False, (2.0, 2.0), False),
    ((2, 3, 8, 9), (11, 4), "nearest-exact", False, None, False),
    ((2, 70, 8, 9), (16, 18), "bilinear", False, (2.0, 2.0), False),
    ((2, 3, 8, 9), (5, 23), "bilinear", True, None, False),
    ((1, 2, 1, 1), (4, 4), "bilinear", True, None, False),
    ((2, 3, 8, 9), (5, 20), "bilinear", False, None, True),
    ((2, 3, 8, 9), (13, 12), "bicubic", False, None, False),
    ((2, 3, 8, 9), (4, 7), "area", False, None, False),
]


@pytest.fixture(autouse=True)
def all_sizes(monkeypatch):
    monkeypatch.setattr(resampling, "SMALL", 0)
    monkeypatch.setattr(resampling, "GRAIN", 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_backward(case, dtype):
    shape, size, *options = case
    rng = np.random.default_rng(0)
    plain = rng.standard_normal(shape).astype(dtype)
    g = rng.standard_normal((*shape[:2], *size)).astype(dtype)
    wanted = reference.interpolate(plain, size, *options)
    back = reference.interpolate_grad(g, shape, *options)
    for x in layouts(plain):
        y = over_threads(lambda x=x: resampling.upsample(x, size, *options))
        close(y, wanted, np.abs(plain).max(), 8)
    for a in layouts(g):
        gx = over_threads(lambda a=a: resampling.upsample_back(a, shape, *options))
        close(gx, back, np.abs(back).max(), 8)


def test_nearest_moves_values_as_they_are():
    x = np.array([[[[np.nan, np.inf], [-0.0, 1e-45]]]], np.float32)
    y = resampling.upsample(x, (4, 4), "nearest", False, None, False)
    assert y.tobytes() == x.repeat(2, 2).repeat(2, 3).tobytes()


def test_what_is_not_taken():
    x = np.zeros((1, 1, 3, 4), np.float32)
    options = ("nearest", False, None, False)
    assert resampling.upsample(x.astype(np.uint8), (6, 8), *options) is None
    assert resampling.upsample(x[:0], (6, 8), *options) is None
    assert resampling.upsample(x[None], (2, 6, 8), *options) is None
    wide = np.zeros((1, 1, 1, resampling.LONGEST + 1), np.float32)
    assert resampling.upsample(wide, (2, 2), *options) is None
