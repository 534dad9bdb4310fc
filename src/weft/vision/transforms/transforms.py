"""Random transforms, drawing from the global stream in torchvision's order."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.transforms import functional as F
from weft.vision.transforms._containers import (
    CenterCrop,
    Compose,
    ConvertImageDtype,
    FiveCrop,
    Grayscale,
    Lambda,
    LinearTransformation,
    Normalize,
    Pad,
    PILToTensor,
    RandomApply,
    RandomChoice,
    RandomOrder,
    RandomTransforms,
    Resize,
    TenCrop,
    ToPILImage,
    ToTensor,
    pair_of,
)
from weft.vision.transforms._modes import InterpolationMode, mode_of

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "ElasticTransform", "FiveCrop",
    "GaussianBlur", "Grayscale", "Lambda", "LinearTransformation", "Normalize", "PILToTensor",
    "Pad", "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast",
    "RandomChoice", "RandomCrop", "RandomEqualize", "RandomErasing", "RandomGrayscale",
    "RandomHorizontalFlip", "RandomInvert", "RandomOrder", "RandomPerspective",
    "RandomPosterize", "RandomResizedCrop", "RandomRotation", "RandomSolarize",
    "RandomTransforms", "RandomVerticalFlip", "Resize", "TenCrop", "ToPILImage", "ToTensor",
]  # fmt: skip

_NEAREST, _BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR


def uniform(low: float, high: float) -> float:
    """One number of the stream between two others."""
    return float(weft.empty(1).uniform_(float(low), float(high)).item())


def integer(low: int, high: int) -> int:
    """One whole number of the stream from ``low`` to below ``high``."""
    return int(weft.randint(low, high, size=(1,)).item())


def angles(x: Any, name: str, sizes: tuple[int, ...] = (2,)) -> list[float]:
    """A range of angles: a number is for both directions."""
    if isinstance(x, numbers.Number):
        if x < 0:  # type: ignore[operator]
            raise ValueError(f"If {name} is a single number, it must be positive.")
        return [-float(x), float(x)]  # type: ignore[arg-type]
    if not isinstance(x, Sequence) or len(x) not in sizes:
        raise ValueError(f"{name} should be a sequence of length {' or '.join(map(str, sizes))}.")
    return [float(d) for d in x]


def colour(img: Any, fill: Any) -> Any:
    """The fill colour as tensors take it: one number for each channel."""
    if not isinstance(img, Tensor):
        return fill
    if isinstance(fill, (int, float)):
        return [float(fill)] * F.get_dimensions(img)[0]
    return [float(f) for f in fill]


class _Sometimes(nn.Module):
    """A transform without parameters, done with a probability."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def _transform(self, img: Any) -> Any:
        raise NotImplementedError

    def forward(self, img: Any) -> Any:
        """The image, transformed or not."""
        return self._transform(img) if weft.rand(1).item() < self.p else img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class RandomHorizontalFlip(_Sometimes):
    """Left and right exchanged, with a probability."""

    def _transform(self, img: Any) -> Any:
        return F.hflip(img)


class RandomVerticalFlip(_Sometimes):
    """Top and bottom exchanged, with a probability."""

    def _transform(self, img: Any) -> Any:
        return F.vflip(img)


class RandomInvert(_Sometimes):
    """The negative, with a probability."""

    def _transform(self, img: Any) -> Any:
        return F.invert(img)


class RandomAutocontrast(_Sometimes):
    """Each channel stretched over the whole range, with a probability."""

    def _transform(self, img: Any) -> Any:
        return F.autocontrast(img)


class RandomEqualize(_Sometimes):
    """Each channel with an even histogram, with a probability."""

    def _transform(self, img: Any) -> Any:
        return F.equalize(img)


class RandomGrayscale(_Sometimes):
    """Luminance in as many channels, with a probability."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def _transform(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, num_output_channels=F.get_dimensions(img)[0])


class RandomPosterize(_Sometimes):
    """The upper bits of each byte, with a probability."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits

    def _transform(self, img: Any) -> Any:
        return F.posterize(img, self.bits)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(bits={self.bits},p={self.p})"


class RandomSolarize(_Sometimes):
    """The negative where pixels reach a threshold, with a probability."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold

    def _transform(self, img: Any) -> Any:
        return F.solarize(img, self.threshold)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(threshold={self.threshold},p={self.p})"


class RandomAdjustSharpness(_Sometimes):
    """Another sharpness, with a probability."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def _transform(self, img: Any) -> Any:
        return F.adjust_sharpness(img, self.sharpness_factor)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sharpness_factor={self.sharpness_factor},p={self.p})"


class RandomCrop(nn.Module):
    """A part of an image, from a random place."""

    def __init__(
        self,
        size: Any,
        padding: Any = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__()
        self.size = tuple(pair_of(size))
        self.padding, self.pad_if_needed = padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Top, left, height and width of a random part."""
        _, h, w = F.get_dimensions(img)
        height, width = output_size
        if h < height or w < width:
            raise ValueError(
                f"Required crop size {(height, width)} is larger than input image size {(h, w)}"
            )
        if w == width and h == height:
            return 0, 0, h, w
        return integer(0, h - height + 1), integer(0, w - width + 1), height, width

    def forward(self, img: Any) -> Any:
        """The part."""
        how = self.fill, self.padding_mode
        if self.padding is not None:
            img = F.pad(img, self.padding, *how)
        _, height, width = F.get_dimensions(img)
        if self.pad_if_needed and width < self.size[1]:
            img = F.pad(img, [self.size[1] - width, 0], *how)
        if self.pad_if_needed and height < self.size[0]:
            img = F.pad(img, [0, self.size[0] - height], *how)
        return F.crop(img, *self.get_params(img, self.size))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, padding={self.padding})"


class RandomResizedCrop(nn.Module):
    """A part of random size and aspect ratio, resized."""

    def __init__(
        self,
        size: Any,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = _BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.size = pair_of(size)
        if not isinstance(scale, Sequence) or not isinstance(ratio, Sequence):
            raise TypeError("Scale and ratio should be sequences")
        self.interpolation, self.antialias = mode_of(interpolation), antialias
        self.scale, self.ratio = scale, ratio

    @staticmethod
    def get_params(img: Any, scale: Any, ratio: Any) -> tuple[int, int, int, int]:
        """Top, left, height and width of a random part."""
        _, height, width = F.get_dimensions(img)
        low, high = weft.log(weft.tensor(ratio)).tolist()
        for _ in range(10):
            area = height * width * uniform(*scale)
            aspect = weft.exp(weft.empty(1).uniform_(low, high)).item()
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                return integer(0, height - h + 1), integer(0, width - w + 1), h, w
        w, h = width, height
        if width / height < min(ratio):
            h = round(w / min(ratio))
        elif width / height > max(ratio):
            w = round(h * max(ratio))
        return (height - h) // 2, (width - w) // 2, h, w

    def forward(self, img: Any) -> Any:
        """The resized part."""
        part = self.get_params(img, self.scale, self.ratio)
        how = self.interpolation, self.antialias
        return F.resized_crop(img, *part, self.size, *how)

    def __repr__(self) -> str:
        scale, ratio = (tuple(round(n, 4) for n in pair) for pair in (self.scale, self.ratio))
        return (
            f"{type(self).__name__}(size={self.size}, scale={scale}, ratio={ratio}, "
            f"interpolation={self.interpolation.value}, antialias={self.antialias})"
        )


class RandomRotation(nn.Module):
    """A rotation by a random angle."""

    def __init__(
        self,
        degrees: Any,
        interpolation: Any = _NEAREST,
        expand: bool = False,
        center: Any = None,
        fill: Any = 0,
    ) -> None:
        super().__init__()
        self.degrees = angles(degrees, "degrees")
        self.interpolation, self.expand = mode_of(interpolation), expand
        self.center, self.fill = center, 0 if fill is None else fill

    @staticmethod
    def get_params(degrees: list[float]) -> float:
        """A random angle."""
        return uniform(*degrees)

    def forward(self, img: Any) -> Any:
        """The rotated image."""
        fill = colour(img, self.fill)
        angle = self.get_params(self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, fill)

    def __repr__(self) -> str:
        text = f"{type(self).__name__}(degrees={self.degrees}"
        text += f", interpolation={self.interpolation.value}, expand={self.expand}"
        text += f", center={self.center}" if self.center is not None else ""
        return text + (f", fill={self.fill})" if self.fill is not None else ")")


class RandomAffine(nn.Module):
    """A random rotation, shift, scale and shear."""

    def __init__(
        self,
        degrees: Any,
        translate: Any = None,
        scale: Any = None,
        shear: Any = None,
        interpolation: Any = _NEAREST,
        fill: Any = 0,
        center: Any = None,
    ) -> None:
        super().__init__()
        self.degrees = angles(degrees, "degrees")
        if translate is not None and any(not (0.0 <= t <= 1.0) for t in translate):
            raise ValueError("translation values should be between 0 and 1")
        if scale is not None and any(s <= 0 for s in scale):
            raise ValueError("scale values should be positive")
        self.translate, self.scale = translate, scale
        self.shear = None if shear is None else angles(shear, "shear", (2, 4))
        self.interpolation, self.center = mode_of(interpolation), center
        self.fill = 0 if fill is None else fill

    @staticmethod
    def get_params(
        degrees: list[float],
        translate: Any,
        scale_ranges: Any,
        shears: Any,
        img_size: list[int],
    ) -> tuple[float, tuple[int, int], float, tuple[float, float]]:
        """A random angle, shift, scale and shear."""
        angle = uniform(*degrees)
        moved = (0, 0)
        if translate is not None:
            dx, dy = float(translate[0] * img_size[0]), float(translate[1] * img_size[1])
            moved = round(uniform(-dx, dx)), round(uniform(-dy, dy))
        scale = 1.0 if scale_ranges is None else uniform(scale_ranges[0], scale_ranges[1])
        shear_x = shear_y = 0.0
        if shears is not None:
            shear_x = uniform(shears[0], shears[1])
            if len(shears) == 4:
                shear_y = uniform(shears[2], shears[3])
        return angle, moved, scale, (shear_x, shear_y)

    def forward(self, img: Any) -> Any:
        """The mapped image."""
        fill = colour(img, self.fill)
        _, height, width = F.get_dimensions(img)
        ranges = self.degrees, self.translate, self.scale, self.shear
        found: Any = self.get_params(*ranges, [width, height])
        how = {"interpolation": self.interpolation, "fill": fill, "center": self.center}
        return F.affine(img, *found, **how)

    def __repr__(self) -> str:
        text = f"{type(self).__name__}(degrees={self.degrees}"
        for name in ("translate", "scale", "shear"):
            value = getattr(self, name)
            text += f", {name}={value}" if value is not None else ""
        if self.interpolation != _NEAREST:
            text += f", interpolation={self.interpolation.value}"
        text += f", fill={self.fill}" if self.fill != 0 else ""
        return text + (f", center={self.center})" if self.center is not None else ")")


class RandomPerspective(nn.Module):
    """A random perspective, with a probability."""

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Any = _BILINEAR,
        fill: Any = 0,
    ) -> None:
        super().__init__()
        self.p, self.distortion_scale = p, distortion_scale
        self.interpolation, self.fill = mode_of(interpolation), 0 if fill is None else fill

    @staticmethod
    def get_params(
        width: int, height: int, distortion_scale: float
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The corners of an image, and random points near them."""
        dx, dy = int(distortion_scale * (width // 2)), int(distortion_scale * (height // 2))
        left, right = (0, dx + 1), (width - dx - 1, width)
        top, bottom = (0, dy + 1), (height - dy - 1, height)
        ranges = ((left, top), (right, top), (right, bottom), (left, bottom))
        ends = [[integer(*x), integer(*y)] for x, y in ranges]
        starts = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        return starts, ends

    def forward(self, img: Any) -> Any:
        """The image, mapped or not."""
        fill = colour(img, self.fill)
        if weft.rand(1) >= self.p:
            return img
        _, height, width = F.get_dimensions(img)
        points = self.get_params(width, height, self.distortion_scale)
        return F.perspective(img, *points, self.interpolation, fill)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


def jitter(value: Any, name: str, center: float = 1, low: Any = 0, high: Any = None) -> Any:
    """A range of factors around a centre; None where nothing changes."""
    most = float("inf") if high is None else high
    if isinstance(value, numbers.Number):
        if value < 0:  # type: ignore[operator]
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        pair = [center - float(value), center + float(value)]  # type: ignore[arg-type]
        if high is None:
            pair[0] = max(pair[0], 0.0)
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        pair = [float(value[0]), float(value[1])]
    else:
        raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
    if not low <= pair[0] <= pair[1] <= most:
        raise ValueError(f"{name} values should be between ({low}, {most}), but got {pair}.")
    return None if pair[0] == pair[1] == center else tuple(pair)


class ColorJitter(nn.Module):
    """Random brightness, contrast, saturation and hue, in random order."""

    def __init__(
        self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0
    ) -> None:
        super().__init__()
        self.brightness = jitter(brightness, "brightness")
        self.contrast = jitter(contrast, "contrast")
        self.saturation = jitter(saturation, "saturation")
        self.hue = jitter(hue, "hue", 0, -0.5, 0.5)

    @staticmethod
    def get_params(
        brightness: Any, contrast: Any, saturation: Any, hue: Any
    ) -> tuple[Tensor, Any, Any, Any, Any]:
        """A random order, and a factor for each (None where nothing changes)."""
        order = weft.randperm(4)
        ranges = (brightness, contrast, saturation, hue)
        b, c, s, h = (None if r is None else uniform(r[0], r[1]) for r in ranges)
        return order, b, c, s, h

    def forward(self, img: Any) -> Any:
        """The image in other colours."""
        order, *factors = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)
        steps = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
        for i in order.tolist():
            if factors[i] is not None:
                img = steps[i](img, factors[i])
        return img

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(brightness={self.brightness}, contrast={self.contrast}, "
            f"saturation={self.saturation}, hue={self.hue})"
        )


class RandomErasing(nn.Module):
    """A random rectangle overwritten, with a probability."""

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(value, (numbers.Number, str, tuple, list)):
            raise TypeError("Argument value should be either a number or str or a sequence")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        if scale[0] < 0 or scale[1] > 1:
            raise ValueError("Scale should be between 0 and 1")
        if p < 0 or p > 1:
            raise ValueError("Random erasing probability should be between 0 and 1")
        self.p, self.scale, self.ratio = p, scale, ratio
        self.value, self.inplace = value, inplace

    @staticmethod
    def get_params(img: Tensor, scale: Any, ratio: Any, value: Any = None) -> tuple[Any, ...]:
        """Top, left, height, width and values of a random rectangle."""
        count, height, width = (int(n) for n in img.shape[-3:])
        low, high = weft.log(weft.tensor(ratio)).tolist()
        for _ in range(10):
            area = height * width * uniform(scale[0], scale[1])
            aspect = weft.exp(weft.empty(1).uniform_(low, high)).item()
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if not (h < height and w < width):
                continue
            if value is None:
                v = weft.empty([count, h, w], dtype=weft.float32).normal_()
            else:
                v = weft.tensor(value)[:, None, None]
            return integer(0, height - h + 1), integer(0, width - w + 1), h, w, v
        return 0, 0, height, width, img

    def forward(self, img: Tensor) -> Tensor:
        """The image, with a rectangle overwritten or not."""
        if weft.rand(1) >= self.p:
            return img
        value: Any = self.value
        if isinstance(value, (int, float)):
            value = [float(value)]
        elif isinstance(value, str):
            value = None
        else:
            value = [float(v) for v in value]
        if value is not None and len(value) not in (1, img.shape[-3]):
            raise ValueError(
                "If value is a sequence, it should have either a single value or "
                f"{img.shape[-3]} (number of input channels)"
            )
        i, j, h, w, v = self.get_params(img, self.scale, self.ratio, value)
        return F.erase(img, i, j, h, w, v, self.inplace)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(p={self.p}, scale={self.scale}, ratio={self.ratio}, "
            f"value={self.value}, inplace={self.inplace})"
        )


class GaussianBlur(nn.Module):
    """A blur of random strength."""

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = pair_of(
            kernel_size, "Kernel size should be a tuple/list of two integers"
        )
        if any(n <= 0 or n % 2 == 0 for n in self.kernel_size):
            raise ValueError("Kernel size value should be an odd and positive number.")
        if isinstance(sigma, numbers.Number):
            sigma = (sigma, sigma)
        if not 0.0 < sigma[0] <= sigma[1]:
            raise ValueError(f"sigma values should be positive and of the form (min, max): {sigma}")
        self.sigma = sigma

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float) -> float:
        """A random strength."""
        return uniform(sigma_min, sigma_max)

    def forward(self, img: Any) -> Any:
        """The blurred image."""
        sigma = self.get_params(self.sigma[0], self.sigma[1])
        return F.gaussian_blur(img, self.kernel_size, [sigma, sigma])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kernel_size={self.kernel_size}, sigma={self.sigma})"


def _two(value: Any) -> list[float]:
    if isinstance(value, (int, float)):
        return [float(value)] * 2
    return [float(value[0]), float(value[-1])]


class ElasticTransform(nn.Module):
    """Pixels moved by a smooth random field."""

    def __init__(
        self, alpha: Any = 50.0, sigma: Any = 5.0, interpolation: Any = _BILINEAR, fill: Any = 0
    ) -> None:
        super().__init__()
        self.alpha, self.sigma = _two(alpha), _two(sigma)
        self.interpolation, self.fill = mode_of(interpolation), fill

    @staticmethod
    def get_params(alpha: list[float], sigma: list[float], size: list[int]) -> Tensor:
        """A random field (1, H, W, 2)."""
        parts = []
        for i in (0, 1):
            field = weft.rand([1, 1, *size]) * 2 - 1
            if sigma[i] > 0.0:
                width = int(8 * sigma[i] + 1) | 1
                field = F.gaussian_blur(field, [width, width], sigma)
            parts.append(field * alpha[i] / size[1 - i])
        return weft.concat(parts, 1).permute([0, 2, 3, 1])

    def forward(self, img: Any) -> Any:
        """The distorted image."""
        _, height, width = F.get_dimensions(img)
        displacement = self.get_params(self.alpha, self.sigma, [height, width])
        return F.elastic_transform(img, displacement, self.interpolation, colour(img, self.fill))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(alpha={self.alpha}, sigma={self.sigma}, "
            f"interpolation={self.interpolation}, fill={self.fill})"
        )
