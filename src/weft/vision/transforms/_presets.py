"""The preprocessing that published weights were trained for."""

from __future__ import annotations

from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.transforms import functional as F
from weft.vision.transforms.functional import InterpolationMode

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NORMS = {
    "imagenet": (_MEAN, _STD),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "vgg": ((0.48235, 0.45882, 0.40784), (1.0 / 255.0, 1.0 / 255.0, 1.0 / 255.0)),
}


def interpolation(name: str) -> InterpolationMode:
    """A mode of interpolation by its value."""
    return InterpolationMode(name)


class ObjectDetection(nn.Module):
    """Images as float tensors; detectors resize and normalise by themselves."""

    def forward(self, img: Any) -> Tensor:
        """The prepared image."""
        if not isinstance(img, Tensor):
            img = F.pil_to_tensor(img)
        return F.convert_image_dtype(img, weft.float)


class ImageClassification(nn.Module):
    """Resize, crop the centre, normalise."""

    def __init__(
        self,
        *,
        crop_size: int,
        resize_size: int = 256,
        mean: tuple[float, ...] = _MEAN,
        std: tuple[float, ...] = _STD,
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.crop_size, self.resize_size = [crop_size], [resize_size]
        self.mean, self.std = list(mean), list(std)
        self.interpolation, self.antialias = interpolation, antialias

    def forward(self, img: Any) -> Tensor:
        """The prepared image."""
        img = F.resize(img, self.resize_size, self.interpolation, antialias=self.antialias)
        img = F.center_crop(img, self.crop_size)
        if not isinstance(img, Tensor):
            img = F.pil_to_tensor(img)
        return F.normalize(F.convert_image_dtype(img, weft.float), mean=self.mean, std=self.std)


class SemanticSegmentation(nn.Module):
    """Resize the shorter side, normalise."""

    def __init__(
        self,
        *,
        resize_size: int | None,
        mean: tuple[float, ...] = _MEAN,
        std: tuple[float, ...] = _STD,
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.resize_size = None if resize_size is None else [resize_size]
        self.mean, self.std = list(mean), list(std)
        self.interpolation, self.antialias = interpolation, antialias

    def forward(self, img: Any) -> Tensor:
        """The prepared image."""
        if self.resize_size is not None:
            img = F.resize(img, self.resize_size, self.interpolation, antialias=self.antialias)
        if not isinstance(img, Tensor):
            img = F.pil_to_tensor(img)
        return F.normalize(F.convert_image_dtype(img, weft.float), mean=self.mean, std=self.std)
