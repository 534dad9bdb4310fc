"""Mask R-CNN."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from weft import nn
from weft.vision.models._api import model
from weft.vision.models.detection.faster_rcnn import (
    FasterRCNN,
    _frozen_eps,
    deeper_parts,
    resnet50_pyramid,
)
from weft.vision.ops.misc import Conv2dNormActivation
from weft.vision.ops.pooling import MultiScaleRoIAlign


class MaskRCNN(FasterRCNN):
    """Faster R-CNN with a mask for each object; targets have ``masks`` (N, H, W) of 0 and 1."""

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int | None = None,
        *args: Any,
        mask_roi_pool: nn.Module | None = None,
        mask_head: nn.Module | None = None,
        mask_predictor: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        if num_classes is not None and mask_predictor is not None:
            raise ValueError("num_classes should be None when mask_predictor is specified")
        pool = mask_roi_pool or MultiScaleRoIAlign(["0", "1", "2", "3"], 14, sampling_ratio=2)
        head = mask_head or MaskRCNNHeads(backbone.out_channels, (256,) * 4, 1)
        if mask_predictor is None:
            if num_classes is None:
                raise ValueError("num_classes should not be None when mask_predictor is not given")
            mask_predictor = MaskRCNNPredictor(256, 256, num_classes)
        super().__init__(backbone, num_classes, *args, **kwargs)
        self.roi_heads.mask_roi_pool = pool
        self.roi_heads.mask_head = head
        self.roi_heads.mask_predictor = mask_predictor


class MaskRCNNHeads(nn.Sequential):
    """Convolutions on pooled features."""

    _version = 2

    def __init__(
        self,
        in_channels: int,
        layers: Sequence[int],
        dilation: int,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        how: dict[str, Any] = {"padding": dilation, "dilation": dilation, "norm_layer": norm_layer}
        widths = [in_channels, *layers]
        pairs = zip(widths, layers, strict=False)
        super().__init__(*(Conv2dNormActivation(a, b, kernel_size=3, **how) for a, b in pairs))
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        if (local_metadata.get("version", None) or 1) < 2:
            for i in range(len(self)):
                for kind in ("weight", "bias"):
                    old = f"{prefix}mask_fcn{i + 1}.{kind}"
                    if old in state_dict:
                        state_dict[f"{prefix}{i}.0.{kind}"] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class MaskRCNNPredictor(nn.Sequential):
    """A mask of twice the size for each class."""

    def __init__(self, in_channels: int, dim_reduced: int, num_classes: int) -> None:
        super().__init__(
            OrderedDict(
                conv5_mask=nn.ConvTranspose2d(in_channels, dim_reduced, 2, 2, 0),
                relu=nn.ReLU(inplace=True),
                mask_fcn_logits=nn.Conv2d(dim_reduced, num_classes, 1, 1, 0),
            )
        )
        for name, parameter in self.named_parameters():
            if "weight" in name:
                nn.init.kaiming_normal_(parameter, mode="fan_out", nonlinearity="relu")


@model("MaskRCNN_ResNet50_FPN_Weights", given={"pretrained_": True}, after=_frozen_eps)
def maskrcnn_resnet50_fpn(
    *,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> MaskRCNN:
    """Mask R-CNN on a ResNet-50 with a pyramid."""
    backbone = resnet50_pyramid(weights_backbone, trainable_backbone_layers, pretrained_)
    return MaskRCNN(backbone, num_classes or 91, **kwargs)


@model("MaskRCNN_ResNet50_FPN_V2_Weights", given={"pretrained_": True})
def maskrcnn_resnet50_fpn_v2(
    *,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> MaskRCNN:
    """Mask R-CNN on a ResNet-50 with a pyramid and deeper heads."""
    parts = deeper_parts(weights_backbone, trainable_backbone_layers, pretrained_)
    backbone = parts.pop("backbone")
    head = MaskRCNNHeads(backbone.out_channels, (256,) * 4, 1, norm_layer=nn.BatchNorm2d)
    return MaskRCNN(backbone, num_classes or 91, mask_head=head, **parts, **kwargs)
