"""Models of vision with torchvision's parameter names, so that published weights load.

>>> from weft.vision import models
>>> net = models.resnet18(num_classes=10)
>>> sum(p.numel() for p in net.parameters())
11181642
"""

from typing import Any

from weft.vision.models import detection, segmentation
from weft.vision.models._api import (
    Weights,
    WeightsEnum,
    get_model,
    get_model_builder,
    get_model_weights,
    get_weight,
    list_models,
    register_model,
    weights_enum,
    weights_names,
)
from weft.vision.models.alexnet import *  # noqa: F403
from weft.vision.models.convnext import *  # noqa: F403
from weft.vision.models.densenet import *  # noqa: F403
from weft.vision.models.efficientnet import *  # noqa: F403
from weft.vision.models.googlenet import *  # noqa: F403
from weft.vision.models.inception import *  # noqa: F403
from weft.vision.models.mnasnet import *  # noqa: F403
from weft.vision.models.mobilenet import *  # noqa: F403
from weft.vision.models.regnet import *  # noqa: F403
from weft.vision.models.resnet import *  # noqa: F403
from weft.vision.models.shufflenetv2 import *  # noqa: F403
from weft.vision.models.squeezenet import *  # noqa: F403
from weft.vision.models.swin_transformer import *  # noqa: F403
from weft.vision.models.vgg import *  # noqa: F403
from weft.vision.models.vision_transformer import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name in weights_names():
        return weights_enum(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
