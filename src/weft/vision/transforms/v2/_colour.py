"""Transforms of colours, mixtures of samples, and policies."""

from __future__ import annotations

import math
from typing import Any

import weft
import weft.nn.functional as nnF
from weft import distributions
from weft.core.tensor import Tensor
from weft.utils._pytree import tree_flatten, tree_unflatten
from weft.vision._pillow import is_pillow
from weft.vision.transforms import transforms as v1
from weft.vision.transforms._containers import pair_of
from weft.vision.transforms.v2 import functional as F
from weft.vision.transforms.v2._base import (
    RandomApplyTransform,
    Transform,
    has_any,
    labels_of,
    query_chw,
    query_size,
)
from weft.vision.tv_tensors import BoundingBoxes, Image, KeyPoints, Mask, Video, wrap


class Grayscale(Transform):
    """Luminance, in one channel or three equal ones."""

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part in grey."""
        return F.rgb_to_grayscale(inpt, num_output_channels=self.num_output_channels)


class RandomGrayscale(RandomApplyTransform):
    """Luminance in as many channels, with a probability."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """The number of channels."""
        return {"num_output_channels": query_chw(flat_inputs)[0]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part in grey."""
        return F.rgb_to_grayscale(inpt, **params)


class RGB(Transform):
    """Images in three channels."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part in colour."""
        return F.grayscale_to_rgb(inpt)


class ColorJitter(Transform):
    """Random brightness, contrast, saturation and hue, in random order."""

    def __init__(
        self, brightness: Any = None, contrast: Any = None, saturation: Any = None, hue: Any = None
    ) -> None:
        super().__init__()
        ranges = v1.ColorJitter(brightness or 0, contrast or 0, saturation or 0, hue or 0)
        self.brightness, self.contrast = ranges.brightness, ranges.contrast
        self.saturation, self.hue = ranges.saturation, ranges.hue

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random order and factors."""
        ranges = self.brightness, self.contrast, self.saturation, self.hue
        order, *factors = v1.ColorJitter.get_params(*ranges)
        return {"order": order.tolist(), "factors": factors}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part in other colours."""
        steps = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
        for i in params["order"]:
            if params["factors"][i] is not None:
                inpt = steps[i](inpt, params["factors"][i])
        return inpt


class RandomChannelPermutation(Transform):
    """Channels in random order."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random order."""
        return {"permutation": weft.randperm(query_chw(flat_inputs)[0])}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part with its channels in that order."""
        return F.permute_channels(inpt, params["permutation"].tolist())


class RandomPhotometricDistort(Transform):
    """Random brightness, contrast, saturation, hue and order of channels (SSD)."""

    def __init__(
        self,
        brightness: tuple[float, float] = (0.875, 1.125),
        contrast: tuple[float, float] = (0.5, 1.5),
        saturation: tuple[float, float] = (0.5, 1.5),
        hue: tuple[float, float] = (-0.05, 0.05),
        p: float = 0.5,
    ) -> None:
        super().__init__()
        self.brightness, self.contrast = brightness, contrast
        self.hue, self.saturation, self.p = hue, saturation, p

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Factors where chance has it so, and whether contrast comes first."""
        channels = query_chw(flat_inputs)[0]
        ranges = {"brightness": self.brightness, "contrast": self.contrast}
        ranges |= {"saturation": self.saturation, "hue": self.hue}
        found: dict[str, Any] = {
            name: v1.uniform(*pair) if weft.rand(1) < self.p else None
            for name, pair in ranges.items()
        }
        found["first"] = bool(weft.rand(()) < 0.5)
        found["order"] = weft.randperm(channels).tolist() if weft.rand(1) < self.p else None
        return found

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part in other colours."""
        middle = ["saturation", "hue"]
        names = ["contrast", *middle] if params["first"] else [*middle, "contrast"]
        for name in ("brightness", *names):
            if params[name] is not None:
                inpt = getattr(F, f"adjust_{name}")(inpt, params[name])
        return inpt if params["order"] is None else F.permute_channels(inpt, params["order"])


class RandomEqualize(RandomApplyTransform):
    """Each channel with an even histogram, with a probability."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, equalized."""
        return F.equalize(inpt)


class RandomInvert(RandomApplyTransform):
    """The negative, with a probability."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, inverted."""
        return F.invert(inpt)


class RandomAutocontrast(RandomApplyTransform):
    """Each channel stretched over the whole range, with a probability."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, stretched."""
        return F.autocontrast(inpt)


class RandomPosterize(RandomApplyTransform):
    """The upper bits of each pixel, with a probability."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part in fewer colours."""
        return F.posterize(inpt, self.bits)


class RandomSolarize(RandomApplyTransform):
    """The negative where pixels reach a threshold, with a probability."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, solarized."""
        return F.solarize(inpt, self.threshold)


class RandomAdjustSharpness(RandomApplyTransform):
    """Another sharpness, with a probability."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, sharpened or blurred."""
        return F.adjust_sharpness(inpt, self.sharpness_factor)


class GaussianBlur(Transform):
    """A blur of random strength."""

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        checked = v1.GaussianBlur(kernel_size, sigma)
        self.kernel_size, self.sigma = pair_of(kernel_size), checked.sigma

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random strength."""
        return {"sigma": [v1.uniform(self.sigma[0], self.sigma[1])] * 2}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, blurred."""
        return F.gaussian_blur(inpt, self.kernel_size, **params)


class GaussianNoise(Transform):
    """Noise added to each pixel."""

    def __init__(self, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> None:
        super().__init__()
        self.mean, self.sigma, self.clip = mean, sigma, clip

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part with noise."""
        return F.gaussian_noise(inpt, self.mean, self.sigma, self.clip)


class JPEG(Transform):
    """Compression of random quality."""

    def __init__(self, quality: Any) -> None:
        super().__init__()
        pair = (quality, quality) if isinstance(quality, int) else tuple(quality)
        if isinstance(quality, bool) or not 1 <= pair[0] <= pair[1] <= 100:
            raise ValueError(f"quality must be an integer from 1 to 100, got {quality}")
        self.quality = pair

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random quality."""
        return {"quality": int(weft.randint(self.quality[0], self.quality[1] + 1, ()).item())}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, compressed."""
        return F.jpeg(inpt, **params)


class RandomErasing(RandomApplyTransform):
    """A random rectangle overwritten, with a probability."""

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: Any = 0.0,
        inplace: bool = False,
    ) -> None:
        super().__init__(p)
        v1.RandomErasing(p, scale, ratio, value, inplace)
        self.scale, self.ratio, self.value, self.inplace = scale, ratio, value, inplace

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random rectangle and its values."""
        channels, height, width = query_chw(flat_inputs)
        value: Any = self.value
        if isinstance(value, (int, float)):
            value = [float(value)]
        elif isinstance(value, str):
            value = None
        if value is not None and len(value) not in (1, channels):
            raise ValueError(
                "If value is a sequence, it should have either a single value or "
                f"{channels} (number of inpt channels)"
            )
        like = weft.empty((channels, height, width), dtype=weft.uint8)
        i, j, h, w, v = v1.RandomErasing.get_params(like, self.scale, self.ratio, value)
        return {"i": i, "j": j, "h": h, "w": w, "v": None if v is like else v}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, with a rectangle overwritten."""
        if params["v"] is None:
            return inpt
        return F.erase(inpt, **params, inplace=self.inplace)


class _Mixing(Transform):
    """A batch mixed with itself, moved by one."""

    def __init__(
        self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: Any = "default"
    ) -> None:
        super().__init__()
        self.alpha, self.num_classes = float(alpha), num_classes
        self._dist = distributions.Beta(weft.tensor([alpha]), weft.tensor([alpha]))
        self._labels_getter = labels_of(labels_getter)

    def _checked_labels(self, sample: Any) -> Tensor:
        labels = self._labels_getter(sample)
        if not isinstance(labels, Tensor):
            raise ValueError(f"The labels must be a tensor, but got {type(labels)} instead.")
        if labels.ndim not in (1, 2):
            raise ValueError(
                "labels should be index based with shape (batch_size,) or probability based with "
                f"shape (batch_size, num_classes), but got a tensor of shape {labels.shape}."
            )
        if labels.ndim == 2 and self.num_classes not in (None, labels.shape[-1]):
            raise ValueError(
                "When passing 2D labels, the number of elements in last dimension must match "
                f"num_classes: {labels.shape[-1]} != {self.num_classes}. You can Leave num_classes "
                "to None."
            )
        if labels.ndim == 1 and self.num_classes is None:
            raise ValueError("num_classes must be passed if the labels are index-based (1D)")
        return labels

    def forward(self, *inputs: Any) -> Any:
        """The mixed batch; labels become probabilities."""
        sample = inputs if len(inputs) > 1 else inputs[0]
        flat, spec = tree_flatten(sample)
        if has_any(flat, is_pillow, BoundingBoxes, Mask, KeyPoints):
            raise ValueError(
                f"{type(self).__name__}() does not support PIL images, bounding boxes, keypoints "
                "and masks."
            )
        needed = self._needs_transform_list(flat)
        labels = self._checked_labels(sample)
        params = self.make_params([i for i, needs in zip(flat, needed, strict=True) if needs])
        done = []
        for inpt, needs in zip(flat, needed, strict=True):
            if inpt is labels:
                done.append(self._labels(inpt, params["share"]))
            elif needs:
                done.append(self._batch(inpt, params, labels.shape[0]))
            else:
                done.append(inpt)
        return tree_unflatten(done, spec)

    def _labels(self, labels: Tensor, share: float) -> Tensor:
        if labels.ndim == 1:
            labels = nnF.one_hot(labels, num_classes=self.num_classes)
        labels = labels if labels.is_floating_point() else labels.float()
        return labels.roll(1, 0) * (1.0 - share) + labels * share

    def _batch(self, inpt: Any, params: dict[str, Any], size: int) -> Any:
        rank = 5 if isinstance(inpt, Video) else 4
        if inpt.ndim != rank:
            raise ValueError(
                f"Expected a batched input with {rank} dims, but got {inpt.ndim} dimensions."
            )
        if inpt.shape[0] != size:
            raise ValueError(
                "The batch size of the image or video does not match the batch size of the labels: "
                f"{inpt.shape[0]} != {size}."
            )
        mixed = self._mixed(inpt.as_subclass(Tensor), params)
        return wrap(mixed, like=inpt) if isinstance(inpt, (Image, Video)) else mixed

    def _mixed(self, batch: Tensor, params: dict[str, Any]) -> Tensor:
        raise NotImplementedError


class MixUp(_Mixing):
    """Each sample blended with the one before it."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random share."""
        return {"share": float(self._dist.sample(()))}

    def _mixed(self, batch: Tensor, params: dict[str, Any]) -> Tensor:
        share = params["share"]
        return batch.roll(1, 0) * (1.0 - share) + batch * share


class CutMix(_Mixing):
    """Each sample with a rectangle of the one before it."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random rectangle and the share that is left."""
        share = float(self._dist.sample(()))
        height, width = query_size(flat_inputs)
        x, y = int(weft.randint(width, size=(1,))), int(weft.randint(height, size=(1,)))
        half = 0.5 * math.sqrt(1.0 - share)
        dx, dy = int(half * width), int(half * height)
        x1, y1, x2, y2 = max(x - dx, 0), max(y - dy, 0), min(x + dx, width), min(y + dy, height)
        left = float(1.0 - (x2 - x1) * (y2 - y1) / (width * height))
        return {"share": left, "box": (x1, y1, x2, y2)}

    def _mixed(self, batch: Tensor, params: dict[str, Any]) -> Tensor:
        x1, y1, x2, y2 = params["box"]
        mixed = batch.clone()
        mixed[..., y1:y2, x1:x2] = batch.roll(1, 0)[..., y1:y2, x1:x2]
        return mixed
