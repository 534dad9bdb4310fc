"""Keypoint R-CNN (in Mask R-CNN)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model
from weft.vision.models.detection.faster_rcnn import FasterRCNN, _frozen_eps, resnet50_pyramid
from weft.vision.ops.pooling import MultiScaleRoIAlign


class KeypointRCNN(FasterRCNN):
    """Faster R-CNN with keypoints of each object; targets have ``keypoints`` (N, K, 3)."""

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int | None = None,
        min_size: Any = None,
        *args: Any,
        keypoint_roi_pool: nn.Module | None = None,
        keypoint_head: nn.Module | None = None,
        keypoint_predictor: nn.Module | None = None,
        num_keypoints: int | None = None,
        **kwargs: Any,
    ) -> None:
        if num_keypoints is not None and keypoint_predictor is not None:
            raise ValueError("num_keypoints should be None when keypoint_predictor is specified")
        min_size = min_size or (640, 672, 704, 736, 768, 800)
        pool = keypoint_roi_pool or MultiScaleRoIAlign(["0", "1", "2", "3"], 14, sampling_ratio=2)
        head = keypoint_head or KeypointRCNNHeads(backbone.out_channels, (512,) * 8)
        predictor = keypoint_predictor or KeypointRCNNPredictor(512, num_keypoints or 17)
        super().__init__(backbone, num_classes, min_size, *args, **kwargs)
        self.roi_heads.keypoint_roi_pool = pool
        self.roi_heads.keypoint_head = head
        self.roi_heads.keypoint_predictor = predictor


class KeypointRCNNHeads(nn.Sequential):
    """Convolutions on pooled features."""

    def __init__(self, in_channels: int, layers: Sequence[int]) -> None:
        parts: list[nn.Module] = []
        for a, b in zip((in_channels, *layers), layers, strict=False):
            parts += [nn.Conv2d(a, b, 3, stride=1, padding=1), nn.ReLU(inplace=True)]
        super().__init__(*parts)
        for layer in self.children():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.constant_(layer.bias, 0)


class KeypointRCNNPredictor(nn.Module):
    """A heatmap of four times the size for each keypoint."""

    def __init__(self, in_channels: int, num_keypoints: int) -> None:
        super().__init__()
        self.kps_score_lowres = nn.ConvTranspose2d(
            in_channels, num_keypoints, 4, stride=2, padding=1
        )
        nn.init.kaiming_normal_(self.kps_score_lowres.weight, mode="fan_out", nonlinearity="relu")
        nn.init.constant_(self.kps_score_lowres.bias, 0)
        self.up_scale = 2
        self.out_channels = num_keypoints

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the cells."""
        return F.interpolate(
            self.kps_score_lowres(x),
            scale_factor=float(self.up_scale),
            mode="bilinear",
            align_corners=False,
            recompute_scale_factor=False,
        )


@model("KeypointRCNN_ResNet50_FPN_Weights", given={"pretrained_": True}, after=_frozen_eps)
def keypointrcnn_resnet50_fpn(
    *,
    num_classes: int | None = None,
    num_keypoints: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> KeypointRCNN:
    """Keypoint R-CNN on a ResNet-50 with a pyramid."""
    backbone = resnet50_pyramid(weights_backbone, trainable_backbone_layers, pretrained_)
    return KeypointRCNN(backbone, num_classes or 2, num_keypoints=num_keypoints or 17, **kwargs)
