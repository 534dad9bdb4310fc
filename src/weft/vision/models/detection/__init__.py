"""Models that find objects."""

from weft.vision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator
from weft.vision.models.detection.faster_rcnn import (
    FasterRCNN,
    fasterrcnn_mobilenet_v3_large_320_fpn,
    fasterrcnn_mobilenet_v3_large_fpn,
    fasterrcnn_resnet50_fpn,
    fasterrcnn_resnet50_fpn_v2,
)
from weft.vision.models.detection.retinanet import (
    RetinaNet,
    retinanet_resnet50_fpn,
    retinanet_resnet50_fpn_v2,
)
from weft.vision.models.detection.ssd import SSD, ssd300_vgg16

__all__ = [
    "SSD", "AnchorGenerator", "DefaultBoxGenerator", "FasterRCNN", "RetinaNet",
    "fasterrcnn_mobilenet_v3_large_320_fpn", "fasterrcnn_mobilenet_v3_large_fpn",
    "fasterrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2", "retinanet_resnet50_fpn",
    "retinanet_resnet50_fpn_v2", "ssd300_vgg16",
]  # fmt: skip
