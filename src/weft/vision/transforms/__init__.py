"""Transforms of images, as Pillow images or as tensors; ``transforms.v2`` has boxes and masks."""

import importlib
from typing import Any

from weft.vision.transforms import functional as functional
from weft.vision.transforms._modes import InterpolationMode as InterpolationMode
from weft.vision.transforms.autoaugment import *  # noqa: F403
from weft.vision.transforms.transforms import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # Subclasses of Tensor, which v2 defines, make every call a little slower.
    if name == "v2":
        return importlib.import_module(f"{__name__}.v2")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
