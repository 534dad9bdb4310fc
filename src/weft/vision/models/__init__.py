"""Models of vision with torchvision's parameter names, so that published weights load.

>>> from weft.vision import models
>>> net = models.resnet18(num_classes=10)
>>> sum(p.numel() for p in net.parameters())
11181642
"""

from typing import Any

from weft.vision.models import detection as detection
from weft.vision.models import segmentation as segmentation
from weft.vision.models._api import Weights as Weights
from weft.vision.models._api import WeightsEnum as WeightsEnum
from weft.vision.models._api import get_model as get_model
from weft.vision.models._api import get_model_builder as get_model_builder
from weft.vision.models._api import get_model_weights as get_model_weights
from weft.vision.models._api import get_weight as get_weight
from weft.vision.models._api import list_models as list_models
from weft.vision.models._api import register_model as register_model
from weft.vision.models._api import weights_enum, weights_names
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
