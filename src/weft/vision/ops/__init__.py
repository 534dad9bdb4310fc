"""Ops on boxes and regions, and layers that vision models share."""

from weft.vision.ops import boxes, deform_conv, feature_pyramid_network, misc
from weft.vision.ops.boxes import (
    batched_nms,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    masks_to_boxes,
    nms,
    remove_small_boxes,
)
from weft.vision.ops.deform_conv import DeformConv2d, deform_conv2d
from weft.vision.ops.dropping import (
    DropBlock2d,
    DropBlock3d,
    StochasticDepth,
    drop_block2d,
    drop_block3d,
    stochastic_depth,
)
from weft.vision.ops.feature_pyramid_network import FeaturePyramidNetwork
from weft.vision.ops.losses import (
    complete_box_iou_loss,
    distance_box_iou_loss,
    generalized_box_iou_loss,
    sigmoid_focal_loss,
)
from weft.vision.ops.misc import (
    MLP,
    Conv2dNormActivation,
    Conv3dNormActivation,
    FrozenBatchNorm2d,
    Permute,
    SqueezeExcitation,
)
from weft.vision.ops.pooling import (
    MultiScaleRoIAlign,
    PSRoIAlign,
    PSRoIPool,
    RoIAlign,
    RoIPool,
    ps_roi_align,
    ps_roi_pool,
    roi_align,
    roi_pool,
)

__all__ = [
    "MLP", "Conv2dNormActivation", "Conv3dNormActivation", "DeformConv2d", "DropBlock2d",
    "DropBlock3d", "FeaturePyramidNetwork", "FrozenBatchNorm2d", "MultiScaleRoIAlign",
    "PSRoIAlign", "PSRoIPool", "Permute", "RoIAlign", "RoIPool", "SqueezeExcitation",
    "StochasticDepth", "batched_nms", "box_area", "box_convert", "box_iou", "boxes",
    "clip_boxes_to_image", "complete_box_iou", "complete_box_iou_loss", "deform_conv",
    "deform_conv2d", "distance_box_iou", "distance_box_iou_loss", "drop_block2d", "drop_block3d",
    "feature_pyramid_network", "generalized_box_iou", "generalized_box_iou_loss",
    "masks_to_boxes", "misc", "nms", "ps_roi_align", "ps_roi_pool", "remove_small_boxes",
    "roi_align", "roi_pool", "sigmoid_focal_loss", "stochastic_depth",
]  # fmt: skip
