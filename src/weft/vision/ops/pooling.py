"""Features of regions: RoI align, RoI pooling, and both over the levels of a pyramid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft import nn
from weft.core import errors
from weft.core.tensor import Tensor
from weft.operators.regions import roi_align_op, roi_pool_op
from weft.vision.ops.boxes import box_area


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    height, width = size
    return int(height), int(width)


def _rows(input: Tensor, boxes: Any, name: str) -> Tensor:
    """Boxes as one tensor (K, 5) whose first column is the image."""
    if isinstance(boxes, Tensor):
        if boxes.ndim != 2 or boxes.shape[1] != 5:
            raise ValueError(
                f"{name}: boxes as a tensor should be of shape (K, 5), got {list(boxes.shape)}; "
                f"a list has a tensor (L, 4) for each image\n  at {errors.here()}"
            )
        return boxes
    for part in boxes:
        if part.ndim != 2 or part.shape[1] != 4:
            raise ValueError(
                f"{name}: boxes of an image should be of shape (L, 4), got {list(part.shape)}"
                f"\n  at {errors.here()}"
            )
    if len(boxes) > input.shape[0]:
        raise ValueError(
            f"{name}: {len(boxes)} lists of boxes for {input.shape[0]} images\n  at {errors.here()}"
        )
    first = [weft.full_like(part[:, :1], float(i)) for i, part in enumerate(boxes)]
    return weft.cat([weft.cat(first), weft.cat(list(boxes))], dim=1)


def roi_align(
    input: Tensor,
    boxes: Tensor | list[Tensor],
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """Means of bilinear samples in a grid of bins inside each box.

    >>> import weft
    >>> x = weft.arange(16.0).reshape(1, 1, 4, 4)
    >>> roi_align(x, [weft.tensor([[0.0, 0.0, 2.0, 2.0]])], 1)
    tensor([[[[5.]]]])
    """
    rows = _rows(input, boxes, "roi_align").detach()
    return roi_align_op(
        input,
        rows,
        size=_pair(output_size),
        scale=float(spatial_scale),
        ratio=int(sampling_ratio),
        aligned=bool(aligned),
    )


def roi_pool(
    input: Tensor,
    boxes: Tensor | list[Tensor],
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
) -> Tensor:
    """The largest values in a grid of bins inside each box."""
    rows = _rows(input, boxes, "roi_pool").detach()
    return roi_pool_op(input, rows, size=_pair(output_size), scale=float(spatial_scale))[0]


def _own_bins(input: Tensor, size: tuple[int, int], name: str) -> None:
    """Check that the channels can be shared out among the bins."""
    if input.shape[1] % (size[0] * size[1]):
        raise ValueError(
            f"{name}: each of the {size[0]}x{size[1]} bins reads channels of its own, so their "
            f"number must be a multiple of {size[0] * size[1]}; the input has {input.shape[1]}"
            f"\n  at {errors.here()}"
        )


def ps_roi_align(
    input: Tensor,
    boxes: Tensor | list[Tensor],
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> Tensor:
    """RoI align in which each bin reads channels of its own (position-sensitive; Light-Head R-CNN).

    >>> import weft
    >>> ps_roi_align(weft.ones(1, 8, 6, 6), [weft.tensor([[0.0, 0.0, 4.0, 4.0]])], 2).shape
    torch.Size([1, 2, 2, 2])
    """
    size = _pair(output_size)
    _own_bins(input, size, "ps_roi_align")
    every = roi_align(input, boxes, size, spatial_scale, sampling_ratio, aligned=True)
    every = every.unflatten(1, (-1, *size))  # box, channel, the bin of a channel, bin
    return every.diagonal(dim1=2, dim2=4).diagonal(dim1=2, dim2=3)


def ps_roi_pool(
    input: Tensor,
    boxes: Tensor | list[Tensor],
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
) -> Tensor:
    """Means over a grid of bins in each box, each bin reading channels of its own (R-FCN)."""
    size = _pair(output_size)
    _own_bins(input, size, "ps_roi_pool")
    rows = _rows(input, boxes, "ps_roi_pool").detach()
    edges = _half_up(rows[:, 1:] * spatial_scale)
    across = _inside(edges[:, 0], edges[:, 2], size[1], input.shape[3]).to(input.dtype)
    down = _inside(edges[:, 1], edges[:, 3], size[0], input.shape[2]).to(input.dtype)
    features = input.unflatten(1, (-1, *size)).permute(0, 3, 1, 2, 4, 5)  # N, x, C, y, H, W
    result = input.new_zeros(len(rows), input.shape[1] // (size[0] * size[1]), *size)
    for image in rows[:, 0].unique().long().tolist():
        places = weft.where(rows[:, 0] == image)[0]
        # Sums over columns for all boxes of an image at once, then over rows.
        columns = features[image].flatten(1, 3) @ across[places].permute(1, 2, 0)
        columns = columns.unflatten(1, (-1, size[0], input.shape[2]))  # x, C, y, H, K
        sums = (columns * down[places].permute(1, 2, 0)).sum(3).permute(3, 1, 2, 0)
        area = down[places].sum(2)[:, :, None] * across[places].sum(2)[:, None]
        result = result.index_put((places,), sums / area.clamp(min=1)[:, None])
    return result


def _half_up(x: Tensor) -> Tensor:
    """Rounded, halves away from zero, as in C."""
    return x.sign() * (x.abs() + 0.5).floor()


def _inside(start: Tensor, end: Tensor, bins: int, length: int) -> Tensor:
    """Which places along a side each bin of each box covers: (box, bin, place)."""
    step = (end - start).clamp(min=1)[:, None] / bins
    order = weft.arange(bins, dtype=start.dtype)
    low = ((order * step).floor() + start[:, None]).clamp(0, length - 1)
    high = (((order + 1) * step).ceil() + start[:, None]).clamp(0, length - 1)
    place = weft.arange(length, dtype=start.dtype)
    return (place >= low[..., None]) & (place < high[..., None])


class RoIAlign(nn.Module):
    """``roi_align`` as a module."""

    def __init__(
        self,
        output_size: int | tuple[int, int],
        spatial_scale: float,
        sampling_ratio: int,
        aligned: bool = False,
    ) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        self.sampling_ratio, self.aligned = sampling_ratio, aligned

    def forward(self, input: Tensor, rois: Tensor | list[Tensor]) -> Tensor:
        """Features of each box."""
        options = self.spatial_scale, self.sampling_ratio, self.aligned
        return roi_align(input, rois, self.output_size, *options)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(output_size={self.output_size}, "
            f"spatial_scale={self.spatial_scale}, sampling_ratio={self.sampling_ratio}, "
            f"aligned={self.aligned})"
        )


class RoIPool(nn.Module):
    """``roi_pool`` as a module."""

    def __init__(self, output_size: int | tuple[int, int], spatial_scale: float) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale

    def forward(self, input: Tensor, rois: Tensor | list[Tensor]) -> Tensor:
        """Features of each box."""
        return roi_pool(input, rois, self.output_size, self.spatial_scale)

    def __repr__(self) -> str:
        size, scale = self.output_size, self.spatial_scale
        return f"{type(self).__name__}(output_size={size}, spatial_scale={scale})"


class PSRoIAlign(nn.Module):
    """``ps_roi_align`` as a module."""

    def __init__(
        self, output_size: int | tuple[int, int], spatial_scale: float, sampling_ratio: int
    ) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        self.sampling_ratio = sampling_ratio

    def forward(self, input: Tensor, rois: Tensor | list[Tensor]) -> Tensor:
        """Features of each box."""
        size, scale = self.output_size, self.spatial_scale
        return ps_roi_align(input, rois, size, scale, self.sampling_ratio)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(output_size={self.output_size}, "
            f"spatial_scale={self.spatial_scale}, sampling_ratio={self.sampling_ratio})"
        )


class PSRoIPool(RoIPool):
    """``ps_roi_pool`` as a module."""

    def forward(self, input: Tensor, rois: Tensor | list[Tensor]) -> Tensor:
        """Features of each box."""
        return ps_roi_pool(input, rois, self.output_size, self.spatial_scale)


class LevelMapper:
    """The level of a feature pyramid for boxes by their size (Feature Pyramid Networks, eq. 1)."""

    def __init__(
        self,
        k_min: int,
        k_max: int,
        canonical_scale: int = 224,
        canonical_level: int = 4,
        eps: float = 1e-6,
    ) -> None:
        self.k_min, self.k_max, self.eps = k_min, k_max, eps
        self.s0, self.lvl0 = canonical_scale, canonical_level

    def __call__(self, boxlists: list[Tensor]) -> Tensor:
        size = weft.sqrt(weft.cat([box_area(boxes) for boxes in boxlists]))
        eps = weft.tensor(self.eps, dtype=size.dtype)
        level = weft.floor(self.lvl0 + weft.log2(size / self.s0) + eps)
        return (level.clamp(min=self.k_min, max=self.k_max).to(weft.int64) - self.k_min).long()


class MultiScaleRoIAlign(nn.Module):
    """RoI align that reads each box from the level of a pyramid that fits its size."""

    def __init__(
        self,
        featmap_names: list[str],
        output_size: int | Sequence[int],
        sampling_ratio: int,
        *,
        canonical_scale: int = 224,
        canonical_level: int = 4,
    ) -> None:
        super().__init__()
        self.featmap_names = featmap_names
        self.sampling_ratio = sampling_ratio
        self.output_size = _pair(output_size)
        self.scales: list[float] | None = None
        self.map_levels: LevelMapper | None = None
        self.canonical_scale, self.canonical_level = canonical_scale, canonical_level

    def _set_scales(self, features: list[Tensor], image_shapes: list[tuple[int, int]]) -> None:
        height = max(shape[0] for shape in image_shapes)
        width = max(shape[1] for shape in image_shapes)
        self.scales = []
        for feature in features:
            ratios = [
                2 ** float(weft.tensor(float(s) / float(o)).log2().round())
                for s, o in zip(feature.shape[-2:], (height, width), strict=True)
            ]
            self.scales.append(ratios[0])
        low, high = (-weft.log2(weft.tensor(self.scales[i])).item() for i in (0, -1))
        sizes = self.canonical_scale, self.canonical_level
        self.map_levels = LevelMapper(int(low), int(high), *sizes)

    def forward(
        self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]
    ) -> Tensor:
        """Features of all boxes, read from the maps that ``featmap_names`` names."""
        features = [value for name, value in x.items() if name in self.featmap_names]
        if self.scales is None or self.map_levels is None:
            self._set_scales(features, image_shapes)
        assert self.scales is not None and self.map_levels is not None
        rows = _rows(features[0], boxes, "MultiScaleRoIAlign")
        options: dict[str, Any] = {"output_size": self.output_size}
        options["sampling_ratio"] = self.sampling_ratio
        if len(features) == 1:
            return roi_align(features[0], rows, spatial_scale=self.scales[0], **options)
        levels = self.map_levels(boxes)
        shape = (len(rows), features[0].shape[1], *self.output_size)
        result = weft.zeros(shape, dtype=features[0].dtype)
        for level, (feature, scale) in enumerate(zip(features, self.scales, strict=True)):
            places = weft.where(levels == level)[0]
            part = roi_align(feature, rows[places], spatial_scale=scale, **options)
            result = result.index_put((places,), part.to(result.dtype))
        return result

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(featmap_names={self.featmap_names}, "
            f"output_size={self.output_size}, sampling_ratio={self.sampling_ratio})"
        )
