"""Boxes in images: which to keep, and the features inside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.dispatch import Op
from weft.core.shapes import ShapeDtype
from weft.operators.build import Sample, constant, general, linear
from weft.references import regions as kernels

Ints = tuple[int, ...]

nms_op = constant("nms", kernels.nms, names=("boxes", "scores"))


def _boxes() -> np.ndarray:
    return np.array([[0, 0.0, 0.0, 3.0, 2.0], [1, 1.0, -1.5, 4.5, 3.0], [0, 2.0, 1.0, 2.5, 1.5]])


def _per_box(x: Any, boxes: Any, size: Any) -> Any:
    return (boxes.shape[0], x.shape[1], *size)


def _how(**more: Any) -> dict[str, Any]:
    return {"size": (2, 3), "scale": 0.9, "ratio": 2, "aligned": False, **more}


roi_align_op = linear(
    "roi_align",
    kernels.roi_align,
    lambda g, boxes, x_shape, size, scale, ratio, aligned: roi_align_back_op(
        g, boxes, shape=x_shape, size=size, scale=scale, ratio=ratio, aligned=aligned
    ),
    names=("x", "boxes"),
    promote="same",
    promote_args=(0, 1),
    samples=lambda m: [
        Sample((m.real(2, 2, 4, 5), _boxes()), _how()),
        Sample((m.real(2, 1, 4, 5), _boxes()), _how(ratio=-1, aligned=True)),
        Sample((m.real(2, 1, 4, 5), np.zeros((0, 5))), _how()),
    ],
    shape=_per_box,
)
roi_align_back_op: Op = linear(
    "roi_align_backward",
    kernels.roi_align_grad,
    lambda g, boxes, size, scale, ratio, aligned: roi_align_op(
        g, boxes, size=size, scale=scale, ratio=ratio, aligned=aligned
    ),
    names=("x", "boxes"),
    promote="same",
    promote_args=(0, 1),
    samples=lambda m: [Sample((m.real(3, 2, 2, 3), _boxes()), _how(shape=(2, 2, 4, 5)))],
    shape=lambda shape: shape,
)

roi_pool_op = general(
    "roi_pool",
    kernels.roi_pool,
    lambda g, boxes, places, x_shape: roi_pool_back_op(g[0], places, boxes, shape=x_shape),
    jvp=(lambda t, boxes, places: (roi_pool_gather_op(t, places, boxes), None),),
    names=("x", "boxes"),
    outputs=("y", "places"),
    constant_outputs=(1,),
    promote="same",
    promote_args=(0, 1),
    samples=lambda m: [Sample((m.real(2, 2, 4, 5), _boxes()), {"size": (2, 2), "scale": 0.9})],
    shape=lambda x, boxes, size: [
        ShapeDtype(_per_box(x, boxes, size), x.dtype),
        ShapeDtype(_per_box(x, boxes, size), np.int64),
    ],
)
_PLACES = np.arange(24).reshape(3, 2, 2, 2) % 20 - 1
roi_pool_back_op: Op = linear(
    "roi_pool_backward",
    kernels.roi_pool_grad,
    lambda g, places, boxes: roi_pool_gather_op(g, places, boxes),
    names=("x", "places", "boxes"),
    samples=lambda m: [Sample((m.real(3, 2, 2, 2), _PLACES, _boxes()), {"shape": (2, 2, 4, 5)})],
    rows=True,
    shape=lambda shape: shape,
)
roi_pool_gather_op: Op = linear(
    "roi_pool_gather",
    kernels.roi_pool_gather,
    lambda g, places, boxes, x_shape: roi_pool_back_op(g, places, boxes, shape=x_shape),
    names=("x", "places", "boxes"),
    samples=lambda m: [Sample((m.real(2, 2, 4, 5), _PLACES, _boxes()))],
    rows=True,
    shape=lambda x, places: places.shape,
)
