"""Models that classify every pixel."""

from weft.vision.models.segmentation.deeplabv3 import (
    DeepLabV3,
    deeplabv3_mobilenet_v3_large,
    deeplabv3_resnet50,
    deeplabv3_resnet101,
)
from weft.vision.models.segmentation.fcn import FCN, fcn_resnet50, fcn_resnet101
from weft.vision.models.segmentation.lraspp import LRASPP, lraspp_mobilenet_v3_large
from weft.vision.models.segmentation.unet import UNet, unet

__all__ = [
    "FCN", "LRASPP", "DeepLabV3", "UNet", "deeplabv3_mobilenet_v3_large", "deeplabv3_resnet50",
    "deeplabv3_resnet101", "fcn_resnet50", "fcn_resnet101", "lraspp_mobilenet_v3_large", "unet",
]  # fmt: skip
