"""Models that find objects."""

from typing import Any

from weft.vision.models._api import weights_enum, weights_names
from weft.vision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator
from weft.vision.models.detection.faster_rcnn import (
    FasterRCNN,
    fasterrcnn_mobilenet_v3_large_320_fpn,
    fasterrcnn_mobilenet_v3_large_fpn,
    fasterrcnn_resnet50_fpn,
    fasterrcnn_resnet50_fpn_v2,
)
from weft.vision.models.detection.fcos import FCOS, fcos_resnet50_fpn
from weft.vision.models.detection.keypoint_rcnn import KeypointRCNN, keypointrcnn_resnet50_fpn
from weft.vision.models.detection.mask_rcnn import (
    MaskRCNN,
    maskrcnn_resnet50_fpn,
    maskrcnn_resnet50_fpn_v2,
)
from weft.vision.models.detection.retinanet import (
    RetinaNet,
    retinanet_resnet50_fpn,
    retinanet_resnet50_fpn_v2,
)
from weft.vision.models.detection.ssd import SSD, ssd300_vgg16
from weft.vision.models.detection.ssdlite import ssdlite320_mobilenet_v3_large

__all__ = [
    "FCOS", "SSD", "AnchorGenerator", "DefaultBoxGenerator", "FasterRCNN", "KeypointRCNN",
    "MaskRCNN", "RetinaNet", "fasterrcnn_mobilenet_v3_large_320_fpn",
    "fasterrcnn_mobilenet_v3_large_fpn", "fasterrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2",
    "fcos_resnet50_fpn", "keypointrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn",
    "maskrcnn_resnet50_fpn_v2", "retinanet_resnet50_fpn", "retinanet_resnet50_fpn_v2",
    "ssd300_vgg16", "ssdlite320_mobilenet_v3_large",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in weights_names():
        return weights_enum(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
