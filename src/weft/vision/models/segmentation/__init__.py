"""Models that classify every pixel."""

from typing import Any

from weft.vision.models._api import weights_enum, weights_names
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


def __getattr__(name: str) -> Any:
    if name in weights_names():
        return weights_enum(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
