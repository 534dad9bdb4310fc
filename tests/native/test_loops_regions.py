"""Loops over regions of images: what a kernel finds of boxes is what the reference finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.native import contract
from weft.native.codegen import jit
from weft.native.loops import regions as loops
from weft.references import regions as reference

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))


def some_boxes(seed: int, dtype: Any) -> tuple[np.ndarray, np.ndarray, tuple[Any, ...]]:
    """Images, boxes in, around and beyond them, and how they are sampled."""
    rng = np.random.default_rng(seed)
    shape = tuple(map(int, rng.integers(1, 4, 4) * (1, 1, 3, 4)))
    boxes = rng.uniform(-6, 20, (rng.integers(1, 6), 5)).astype(dtype)
    boxes[:, 0] = rng.integers(0, shape[0], len(boxes))
    if seed % 3 == 0:
        boxes[0, 1 + seed % 4] = (np.nan, np.inf, -np.inf)[seed // 3 % 3]
    size = tuple(map(int, rng.integers(1, 4, 2)))
    scale, ratio = float(rng.choice([1.0, 0.5, 0.37])), int(rng.integers(1, 4))
    return (
        rng.standard_normal(shape).astype(dtype),
        boxes,
        (size, scale, ratio, bool(rng.integers(2))),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(40))
def test_samples_and_jobs_of_roi_align(seed: int, dtype: Any) -> None:
    x, boxes, how = some_boxes(seed, dtype)
    forward = lambda x, boxes: loops.roi_align(x, boxes, *how)
    backward = lambda g, boxes: loops.roi_align_back(g, boxes, x.shape, *how)
    with np.errstate(all="ignore"):
        batch, rows, columns = reference.all_align_taps(x.shape, boxes, *how)
        y = reference.roi_align(x, boxes, *how)
        g = np.random.default_rng(seed).standard_normal(y.shape).astype(dtype)
        gx = reference.roi_align_grad(g, boxes, x.shape, *how)
    parts = np.full(len(boxes), how[2] ** 2, dtype)
    taps: Any = loops._known_taps(x.shape, boxes, *how)
    for made, wanted in zip(taps, [batch, parts, *rows, *columns], strict=True):
        assert made.dtype == wanted.dtype
        np.testing.assert_array_equal(made, wanted)
    tolerance = 1e-12 if dtype is np.float64 else 1e-5
    jobs = []
    for kernel, first, wanted in ((forward, x, y), (backward, g, gx)):
        jobs.append((contract.plan(kernel, (first, boxes)), first))
        found = jobs[-1][0](first, boxes)
        assert found.tobytes() == kernel(first, boxes).tobytes()
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    for no_image in (len(x), -1.0, np.nan):
        boxes[0, 0] = no_image
        assert all(job(first, boxes) is None for job, first in jobs)
        assert forward(x, boxes) is None and backward(g, boxes) is None
