"""Detectors of two stages."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from weft import nn
from weft.core.tensor import Tensor


def check_targets(targets: Any) -> None:
    """Refuse targets without boxes (N, 4)."""
    if targets is None:
        raise ValueError("targets should not be none when in training mode")
    for target in targets:
        boxes = target["boxes"]
        if not isinstance(boxes, Tensor):
            raise TypeError(f"Expected target boxes to be of type Tensor, got {type(boxes)}.")
        if boxes.ndim != 2 or boxes.shape[-1] != 4:
            raise ValueError(
                f"Expected target boxes to be a tensor of shape [N, 4], got {boxes.shape}."
            )


def check_degenerate(targets: Any) -> None:
    """Refuse boxes without area."""
    for i, target in enumerate(targets or ()):
        boxes = target["boxes"]
        bad = (boxes[:, 2:] <= boxes[:, :2]).any(dim=1)
        if bad.any():
            first = boxes[bad][0].tolist()
            raise ValueError(
                "All bounding boxes should have positive height and width. Found invalid box "
                f"{first} for target at index {i}."
            )


class GeneralizedRCNN(nn.Module):
    """A backbone, proposals, and a head that classifies them."""

    def __init__(
        self, backbone: nn.Module, rpn: nn.Module, roi_heads: nn.Module, transform: nn.Module
    ) -> None:
        super().__init__()
        self.transform = transform
        self.backbone = backbone
        self.rpn = rpn
        self.roi_heads = roi_heads

    def forward(self, images: list[Tensor], targets: Any = None) -> Any:
        """Losses by name in training; else boxes, labels and scores of each image."""
        if self.training:
            check_targets(targets)
        sizes = [tuple(int(n) for n in image.shape[-2:]) for image in images]
        batch, targets = self.transform(images, targets)
        check_degenerate(targets)
        features = self.backbone(batch.tensors)
        if isinstance(features, Tensor):
            features = OrderedDict([("0", features)])
        proposals, losses = self.rpn(batch, features, targets)
        found, more = self.roi_heads(features, proposals, batch.image_sizes, targets)
        if self.training:
            return {**more, **losses}
        return self.transform.postprocess(found, batch.image_sizes, sizes)
