"""Transforms that do the same each time, and containers of transforms."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.transforms import functional as F
from weft.vision.transforms._modes import InterpolationMode, mode_of


def pair_of(size: Any, message: str = "Please provide only two dimensions (h, w) for size.") -> Any:
    """(height, width) from one number or two."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, Sequence) and len(size) == 1:
        return size[0], size[0]
    if len(size) != 2:
        raise ValueError(message)
    return size


class Compose:
    """Transforms one after another.

    >>> import numpy as np
    >>> from weft.vision import transforms
    >>> prepare = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.5, 0.5)])
    >>> prepare(np.zeros((2, 2, 1), np.uint8)).flatten()
    tensor([-1., -1., -1., -1.])
    """

    def __init__(self, transforms: Sequence[Callable]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return _listed(self, self.transforms)


def _listed(owner: Any, transforms: Sequence[Any]) -> str:
    lines = [type(owner).__name__ + "(", *(f"    {t}" for t in transforms), ")"]
    return "\n".join(lines)


class ToTensor:
    """A Pillow image or an array (H, W, C) as a tensor (C, H, W); bytes become 0 to 1."""

    def __call__(self, pic: Any) -> Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PILToTensor:
    """A Pillow image as a tensor (C, H, W) of its own type."""

    def __call__(self, pic: Any) -> Tensor:
        return F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ConvertImageDtype(nn.Module):
    """Pixels in another type, scaled to its range."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: Tensor) -> Tensor:
        """The converted image."""
        return F.convert_image_dtype(image, self.dtype)


class ToPILImage:
    """A tensor (C, H, W) or an array (H, W, C) as a Pillow image."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.mode is None else f'mode={self.mode}'})"


class Normalize(nn.Module):
    """Channels less their means, by their deviations."""

    def __init__(self, mean: Any, std: Any, inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: Tensor) -> Tensor:
        """The normalised image."""
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(mean={self.mean}, std={self.std})"


class Resize(nn.Module):
    """An image of another size; a single number is for the shorter side."""

    def __init__(
        self,
        size: Any,
        interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        if not isinstance(size, (int, Sequence)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, Sequence) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        self.size, self.max_size = size, max_size
        self.interpolation = mode_of(interpolation)
        self.antialias = antialias

    def forward(self, img: Any) -> Any:
        """The resized image."""
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(size={self.size}, interpolation={self.interpolation.value}, "
            f"max_size={self.max_size}, antialias={self.antialias})"
        )


class CenterCrop(nn.Module):
    """The middle of an image, padded with zeros if it is smaller."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair_of(size)

    def forward(self, img: Any) -> Any:
        """The middle of the image."""
        return F.center_crop(img, self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


class Pad(nn.Module):
    """Pixels added around an image."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        if not isinstance(padding, (int, float, tuple, list)):
            raise TypeError("Got inappropriate padding arg")
        if not isinstance(fill, (int, float, str, tuple, list)):
            raise TypeError("Got inappropriate fill arg")
        if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
        if isinstance(padding, Sequence) and len(padding) not in (1, 2, 4):
            raise ValueError(
                f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} "
                "element tuple"
            )
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img: Any) -> Any:
        """The padded image."""
        return F.pad(img, self.padding, self.fill, self.padding_mode)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(padding={self.padding}, fill={self.fill}, "
            f"padding_mode={self.padding_mode})"
        )


class Lambda:
    """Any function as a transform."""

    def __init__(self, lambd: Callable) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class RandomTransforms:
    """What containers that choose among transforms share."""

    def __init__(self, transforms: Sequence[Callable]) -> None:
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence")
        self.transforms = transforms

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError

    def __repr__(self) -> str:
        return _listed(self, self.transforms)


class RandomApply(nn.Module):
    """All of some transforms, with a probability."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        vars(self)["transforms"], self.p = transforms, p  # without parameters: not registered

    def forward(self, img: Any) -> Any:
        """The image, transformed or not."""
        if self.p < weft.rand(1):
            return img
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}(", f"    p={self.p}"]
        return "\n".join([*lines, *(f"    {t}" for t in self.transforms), ")"])


class RandomOrder(RandomTransforms):
    """All of some transforms in random order."""

    def __call__(self, img: Any) -> Any:
        order = list(range(len(self.transforms)))
        random.shuffle(order)
        for i in order:
            img = self.transforms[i](img)
        return img


class RandomChoice(RandomTransforms):
    """One of some transforms."""

    def __init__(self, transforms: Sequence[Callable], p: Sequence[float] | None = None) -> None:
        super().__init__(transforms)
        if p is not None and not isinstance(p, Sequence):
            raise TypeError("Argument p should be a sequence")
        self.p = p

    def __call__(self, *args: Any) -> Any:
        return random.choices(self.transforms, self.p)[0](*args)

    def __repr__(self) -> str:
        return f"{super().__repr__()}(p={self.p})"


class FiveCrop(nn.Module):
    """The four corners and the middle."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair_of(size)

    def forward(self, img: Any) -> tuple[Any, ...]:
        """Five images."""
        return F.five_crop(img, self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


class TenCrop(nn.Module):
    """The four corners and the middle of an image and of its mirror image."""

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size, self.vertical_flip = pair_of(size), vertical_flip

    def forward(self, img: Any) -> tuple[Any, ...]:
        """Ten images."""
        return F.ten_crop(img, self.size, self.vertical_flip)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, vertical_flip={self.vertical_flip})"


class LinearTransformation(nn.Module):
    """A flattened image less a mean, times a matrix: whitening."""

    def __init__(self, transformation_matrix: Tensor, mean_vector: Tensor) -> None:
        super().__init__()
        rows, columns = transformation_matrix.shape
        if rows != columns:
            raise ValueError(
                "transformation_matrix should be square. Got "
                f"{tuple(transformation_matrix.size())} rectangular matrix."
            )
        if mean_vector.size(0) != rows:
            raise ValueError(
                f"mean_vector should have the same length {mean_vector.size(0)} as any one of the "
                f"dimensions of the transformation_matrix [{tuple(transformation_matrix.size())}]"
            )
        self.transformation_matrix, self.mean_vector = transformation_matrix, mean_vector

    def forward(self, tensor: Tensor) -> Tensor:
        """The whitened image."""
        size = tensor.shape
        count = size[-3] * size[-2] * size[-1]
        if count != self.transformation_matrix.shape[0]:
            raise ValueError(
                f"Input tensor and transformation matrix have incompatible shape. [{size[-3]} x "
                f"{size[-2]} x {size[-1]}] != {self.transformation_matrix.shape[0]}"
            )
        flat = tensor.view(-1, count) - self.mean_vector
        matrix = self.transformation_matrix.to(flat.dtype)
        return weft.mm(flat, matrix).view(size)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(transformation_matrix={self.transformation_matrix.tolist()}, "
            f"mean_vector={self.mean_vector.tolist()})"
        )


class Grayscale(nn.Module):
    """Luminance, in one channel or three equal ones."""

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        """The image in grey."""
        return F.rgb_to_grayscale(img, num_output_channels=self.num_output_channels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_output_channels={self.num_output_channels})"
