"""Images: datasets, transforms, models and ops, with torchvision's names.

>>> from weft.vision import models, transforms
>>> net = models.lenet(num_classes=10)
"""

import importlib
from typing import Any

from weft.vision import datasets, io, models, ops, transforms, utils

__all__ = ["datasets", "io", "models", "ops", "transforms", "utils"]

# The release of torchvision whose interface and numbers are followed.
__version__ = "0.28.0"


def get_image_backend() -> str:
    """The package that loads images."""
    return "PIL"


def set_image_backend(backend: str) -> None:
    """Only Pillow is supported."""
    if backend != "PIL":
        raise ValueError(f"Invalid backend '{backend}'. Options are 'PIL'")


def disable_beta_transforms_warning() -> None:
    """Nothing: no transform here warns."""


def __getattr__(name: str) -> Any:
    # Subclasses of Tensor make every call a little slower, so they are defined when asked for.
    if name == "tv_tensors":
        return importlib.import_module(f"{__name__}.tv_tensors")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
