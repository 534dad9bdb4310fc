"""The boxes that a detector starts from."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models.detection.image_list import ImageList


class AnchorGenerator(nn.Module):
    """Anchors of some sizes and aspect ratios around every pixel of each feature map."""

    def __init__(
        self, sizes: Any = ((128, 256, 512),), aspect_ratios: Any = ((0.5, 1.0, 2.0),)
    ) -> None:
        super().__init__()
        if not isinstance(sizes[0], (list, tuple)):
            sizes = tuple((s,) for s in sizes)
        if not isinstance(aspect_ratios[0], (list, tuple)):
            aspect_ratios = (aspect_ratios,) * len(sizes)
        self.sizes, self.aspect_ratios = sizes, aspect_ratios
        self.cell_anchors = [
            self.generate_anchors(size, ratio)
            for size, ratio in zip(sizes, aspect_ratios, strict=True)
        ]

    def generate_anchors(self, scales: Any, aspect_ratios: Any) -> Tensor:
        """Anchors around zero."""
        scales = weft.as_tensor(scales, dtype=weft.float32)
        tall = weft.sqrt(weft.as_tensor(aspect_ratios, dtype=weft.float32))
        heights = (tall[:, None] * scales[None, :]).view(-1)
        widths = ((1 / tall)[:, None] * scales[None, :]).view(-1)
        return (weft.stack([-widths, -heights, widths, heights], dim=1) / 2).round()

    def num_anchors_per_location(self) -> list[int]:
        """How many anchors a pixel has, for each feature map."""
        pairs = zip(self.sizes, self.aspect_ratios, strict=True)
        return [len(sizes) * len(ratios) for sizes, ratios in pairs]

    def forward(self, image_list: ImageList, feature_maps: list[Tensor]) -> list[Tensor]:
        """All anchors, for each image."""
        height, width = image_list.tensors.shape[-2:]
        if len(feature_maps) != len(self.cell_anchors):
            raise ValueError(
                f"there are {len(feature_maps)} feature maps and sizes for "
                f"{len(self.cell_anchors)}: both should be the same"
            )
        found = []
        for feature, cell in zip(feature_maps, self.cell_anchors, strict=True):
            rows, columns = feature.shape[-2:]
            x = weft.arange(0, columns, dtype=weft.int32) * (width // columns)
            y = weft.arange(0, rows, dtype=weft.int32) * (height // rows)
            y, x = (part.reshape(-1) for part in weft.meshgrid(y, x, indexing="ij"))
            shifts = weft.stack((x, y, x, y), dim=1)
            found.append((shifts[:, None] + cell.to(feature.dtype)[None]).reshape(-1, 4))
        return [weft.cat(found)] * len(image_list.image_sizes)


class DefaultBoxGenerator(nn.Module):
    """The default boxes of SSD."""

    def __init__(
        self,
        aspect_ratios: list[list[int]],
        min_ratio: float = 0.15,
        max_ratio: float = 0.9,
        scales: list[float] | None = None,
        steps: list[int] | None = None,
        clip: bool = True,
    ) -> None:
        super().__init__()
        if steps is not None and len(aspect_ratios) != len(steps):
            raise ValueError("aspect_ratios and steps should have the same length")
        self.aspect_ratios, self.steps, self.clip = aspect_ratios, steps, clip
        count = len(aspect_ratios)
        if scales is None:
            spread = max_ratio - min_ratio
            between = [min_ratio + spread * k / (count - 1.0) for k in range(count)]
            scales = [*between, 1.0] if count > 1 else [min_ratio, max_ratio]
        self.scales = scales
        self._pairs = [self._sizes(k) for k in range(count)]

    def _sizes(self, k: int) -> Tensor:
        scale = self.scales[k]
        between = math.sqrt(scale * self.scales[k + 1])
        pairs = [[scale, scale], [between, between]]
        for ratio in self.aspect_ratios[k]:
            root = math.sqrt(ratio)
            w, h = scale * root, scale / root
            pairs += [[w, h], [h, w]]
        return weft.tensor(pairs, dtype=weft.float32)

    def num_anchors_per_location(self) -> list[int]:
        """How many boxes a pixel has, for each feature map."""
        return [2 + 2 * len(ratios) for ratios in self.aspect_ratios]

    def forward(self, image_list: ImageList, feature_maps: list[Tensor]) -> list[Tensor]:
        """All boxes, for each image."""
        height, width = image_list.tensors.shape[-2:]
        found = []
        for k, feature in enumerate(feature_maps):
            rows, columns = feature.shape[-2:]
            if self.steps is not None:
                x_count, y_count = width / self.steps[k], height / self.steps[k]
            else:
                y_count, x_count = rows, columns
            kind = feature_maps[0].dtype
            x = ((weft.arange(0, columns) + 0.5) / x_count).to(kind)
            y = ((weft.arange(0, rows) + 0.5) / y_count).to(kind)
            y, x = (part.reshape(-1) for part in weft.meshgrid(y, x, indexing="ij"))
            pairs = self._pairs[k].clamp(0, 1) if self.clip else self._pairs[k]
            centres = weft.stack((x, y) * len(pairs), dim=-1).reshape(-1, 2)
            found.append(weft.cat((centres, pairs.repeat(rows * columns, 1)), dim=1))
        boxes = weft.cat(found, dim=0)
        corners = weft.cat(
            [boxes[:, :2] - 0.5 * boxes[:, 2:], boxes[:, :2] + 0.5 * boxes[:, 2:]], -1
        )
        scaled = corners * weft.tensor([width, height, width, height], dtype=corners.dtype)
        return [scaled] * len(image_list.image_sizes)
