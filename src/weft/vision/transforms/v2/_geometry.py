"""Transforms of sizes, places and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.vision.ops.boxes import box_iou
from weft.vision.transforms import _geometry as geometry
from weft.vision.transforms import transforms as v1
from weft.vision.transforms._containers import pair_of
from weft.vision.transforms._modes import InterpolationMode
from weft.vision.transforms.v2 import functional as F
from weft.vision.transforms.v2._base import (
    Fill,
    RandomApplyTransform,
    Transform,
    get_bounding_boxes,
    has_all,
    query_size,
)
from weft.vision.tv_tensors import BoundingBoxes, BoundingBoxFormat, KeyPoints, Mask, wrap

_NEAREST, _BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR


class RandomHorizontalFlip(RandomApplyTransform):
    """Left and right exchanged, with a probability."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, flipped."""
        return F.horizontal_flip(inpt)


class RandomVerticalFlip(RandomApplyTransform):
    """Top and bottom exchanged, with a probability."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, flipped."""
        return F.vertical_flip(inpt)


class Resize(Transform):
    """Another size; a single number is for the shorter side."""

    def __init__(
        self,
        size: Any,
        interpolation: Any = _BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        if isinstance(size, int):
            size = [size]
        elif isinstance(size, Sequence) and len(size) in (1, 2):
            size = list(size)
        elif size is None:
            if not isinstance(max_size, int):
                raise ValueError(f"max_size must be an integer when size is None, got {max_size}")
        else:
            raise ValueError(
                f"size can be an integer, a sequence of one or two integers, or None, got {size}"
            )
        self.size, self.interpolation = size, interpolation
        self.max_size, self.antialias = max_size, antialias

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, resized."""
        return F.resize(inpt, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(Transform):
    """The middle, padded with zeros if a part is smaller."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair_of(size)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """The middle of one part."""
        return F.center_crop(inpt, self.size)


class RandomResizedCrop(Transform):
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
        self.scale, self.ratio = scale, ratio
        self.interpolation, self.antialias = interpolation, antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random part."""
        height, width = query_size(flat_inputs)
        like = weft.empty((1, height, width), dtype=weft.uint8)
        part = v1.RandomResizedCrop.get_params(like, self.scale, self.ratio)
        return dict(zip(("top", "left", "height", "width"), part, strict=True))

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, cut out and resized."""
        how = {"interpolation": self.interpolation, "antialias": self.antialias}
        return F.resized_crop(inpt, **params, size=self.size, **how)


class _Crops(Transform):
    """Several parts of one image."""

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        """Refuse boxes and masks, of which one sample would be several."""
        for inpt in flat_inputs:
            if isinstance(inpt, (BoundingBoxes, Mask, KeyPoints)):
                raise TypeError(
                    f"{type(inpt).__name__}'es are not supported by {type(self).__name__}()"
                )


class FiveCrop(_Crops):
    """The four corners and the middle."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair_of(size)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Five images."""
        return F.five_crop(inpt, self.size)


class TenCrop(_Crops):
    """The four corners and the middle of an image and of its mirror image."""

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size, self.vertical_flip = pair_of(size), vertical_flip

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Ten images."""
        return F.ten_crop(inpt, self.size, self.vertical_flip)


class Pad(Transform):
    """Pixels added around a sample."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        geometry.sides(padding)
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode
        self._fill = Fill(fill)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, padded."""
        return F.pad(inpt, self.padding, self._fill(inpt), self.padding_mode)


class RandomZoomOut(RandomApplyTransform):
    """A sample in a random place of a larger canvas, with a probability."""

    def __init__(
        self, fill: Any = 0, side_range: tuple[float, float] = (1.0, 4.0), p: float = 0.5
    ) -> None:
        super().__init__(p)
        if side_range[0] < 1.0 or side_range[0] > side_range[1]:
            raise ValueError(f"Invalid side range provided {side_range}.")
        self.fill, self.side_range = fill, side_range
        self._fill = Fill(fill)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random canvas and place."""
        height, width = query_size(flat_inputs)
        low, high = self.side_range
        r = low + weft.rand(1) * (high - low)
        canvas_width, canvas_height = int(width * r), int(height * r)
        place = weft.rand(2)
        left = int((canvas_width - width) * place[0])
        top = int((canvas_height - height) * place[1])
        right, bottom = canvas_width - left - width, canvas_height - top - height
        return {"padding": [left, top, right, bottom]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, padded."""
        return F.pad(inpt, **params, fill=self._fill(inpt))


class RandomRotation(Transform):
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
        self.degrees = v1.angles(degrees, "degrees")
        self.interpolation, self.expand = interpolation, expand
        self.center, self.fill = center, fill
        self._fill = Fill(fill)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random angle."""
        return {"angle": v1.uniform(*self.degrees)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, rotated."""
        how = (self.interpolation, self.expand, self.center, self._fill(inpt))
        return F.rotate(inpt, params["angle"], *how)


class RandomAffine(Transform):
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
        checked = v1.RandomAffine(degrees, translate, scale, shear, interpolation, 0, center)
        self.degrees, self.translate = checked.degrees, translate
        self.scale, self.shear = scale, checked.shear
        self.interpolation, self.fill, self.center = interpolation, fill, center
        self._fill = Fill(fill)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random angle, shift, scale and shear."""
        height, width = query_size(flat_inputs)
        ranges = self.degrees, self.translate, self.scale, self.shear
        found = v1.RandomAffine.get_params(*ranges, [width, height])
        return dict(zip(("angle", "translate", "scale", "shear"), found, strict=True))

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, mapped."""
        how = {"interpolation": self.interpolation, "center": self.center}
        return F.affine(inpt, **params, **how, fill=self._fill(inpt))


class RandomCrop(Transform):
    """A part from a random place."""

    def __init__(
        self,
        size: Any,
        padding: Any = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__()
        self.size = pair_of(size)
        self.padding, self.pad_if_needed = padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode
        self._fill = Fill(fill)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """What to add around, and a random part of that."""
        height, width = query_size(flat_inputs)
        sides = (0, 0, 0, 0) if self.padding is None else geometry.sides(self.padding)
        left, top, right, bottom = sides
        height, width = height + top + bottom, width + left + right
        short_y, short_x = max(self.size[0] - height, 0), max(self.size[1] - width, 0)
        if self.pad_if_needed:
            left, right, width = left + short_x, right + short_x, width + 2 * short_x
            top, bottom, height = top + short_y, bottom + short_y, height + 2 * short_y
        elif short_y or short_x:
            raise ValueError(
                f"Required crop size {tuple(self.size)} is larger than "
                f"{'padded ' if self.padding is not None else ''}input image size "
                f"{(height, width)}."
            )
        spare = height - self.size[0], width - self.size[1]
        y, x = (int(weft.randint(0, n + 1, size=())) if n > 0 else 0 for n in spare)
        return {"padding": [left, top, right, bottom], "cut": any(spare), "place": (y, x)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, cut out."""
        if any(params["padding"]):
            inpt = F.pad(inpt, params["padding"], self._fill(inpt), self.padding_mode)
        return F.crop(inpt, *params["place"], *self.size) if params["cut"] else inpt


class RandomPerspective(RandomApplyTransform):
    """A random perspective, with a probability."""

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Any = _BILINEAR,
        fill: Any = 0,
    ) -> None:
        super().__init__(p)
        if not (0 <= distortion_scale <= 1):
            raise ValueError("Argument distortion_scale value should be between 0 and 1")
        self.distortion_scale, self.interpolation, self.fill = distortion_scale, interpolation, fill
        self._fill = Fill(fill)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random map."""
        height, width = query_size(flat_inputs)
        points = v1.RandomPerspective.get_params(width, height, self.distortion_scale)
        return {"coefficients": geometry.perspective_coefficients(*points)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, mapped."""
        how = {"interpolation": self.interpolation, "fill": self._fill(inpt)}
        return F.perspective(inpt, None, None, **how, **params)


class ElasticTransform(Transform):
    """Pixels moved by a smooth random field."""

    def __init__(
        self, alpha: Any = 50.0, sigma: Any = 5.0, interpolation: Any = _BILINEAR, fill: Any = 0
    ) -> None:
        super().__init__()
        checked = v1.ElasticTransform(alpha, sigma)
        self.alpha, self.sigma = checked.alpha, checked.sigma
        self.interpolation, self.fill = interpolation, fill
        self._fill = Fill(fill)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random field."""
        size = list(query_size(flat_inputs))
        return {"displacement": v1.ElasticTransform.get_params(self.alpha, self.sigma, size)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, distorted."""
        return F.elastic(inpt, params["displacement"], self.interpolation, self._fill(inpt))


class RandomIoUCrop(Transform):
    """A random part that overlaps the boxes enough (SSD); ``SanitizeBoundingBoxes`` must follow."""

    def __init__(
        self,
        min_scale: float = 0.3,
        max_scale: float = 1.0,
        min_aspect_ratio: float = 0.5,
        max_aspect_ratio: float = 2.0,
        sampler_options: list[float] | None = None,
        trials: int = 40,
    ) -> None:
        super().__init__()
        self.min_scale, self.max_scale = min_scale, max_scale
        self.min_aspect_ratio, self.max_aspect_ratio = min_aspect_ratio, max_aspect_ratio
        self.options = sampler_options or [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
        self.trials = trials

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        """Refuse a sample without boxes."""
        if not has_all(flat_inputs, BoundingBoxes):
            raise TypeError(
                f"{type(self).__name__}() requires input sample to contain tensor or PIL images "
                "and bounding boxes. Sample can also contain masks."
            )

    def _trial(self, size: tuple[int, int], corners: Tensor, overlap: float) -> dict[str, Any]:
        height, width = size
        r = self.min_scale + (self.max_scale - self.min_scale) * weft.rand(2)
        w, h = int(width * r[0]), int(height * r[1])
        if not h or not (self.min_aspect_ratio <= w / h <= self.max_aspect_ratio):
            return {}
        r = weft.rand(2)
        left, top = int((width - w) * r[0]), int((height - h) * r[1])
        if not w:
            return {}
        cx, cy = (0.5 * (corners[..., i] + corners[..., i + 2]) for i in (0, 1))
        inside = (left < cx) & (cx < left + w) & (top < cy) & (cy < top + h)
        if not inside.any():
            return {}
        part = weft.tensor([[left, top, left + w, top + h]], dtype=corners.dtype)
        if box_iou(corners[inside], part).max() < overlap:
            return {}
        return {"top": top, "left": left, "height": h, "width": w, "inside": inside}

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random part and the boxes whose centres it has."""
        size, boxes = query_size(flat_inputs), get_bounding_boxes(flat_inputs)
        plain = boxes.as_subclass(Tensor)
        corners = F.convert_bounding_box_format(plain, boxes.format, BoundingBoxFormat.XYXY)
        while True:
            overlap = self.options[int(weft.randint(0, len(self.options), size=(1,)))]
            if overlap >= 1.0:  # stands for the whole image
                return {}
            for _ in range(self.trials):
                found = self._trial(size, corners, overlap)
                if found:
                    return found

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, cut out; boxes that were left have no size."""
        if not params:
            return inpt
        place = [params[name] for name in ("top", "left", "height", "width")]
        output = F.crop(inpt, *place)
        if not isinstance(output, BoundingBoxes):
            return output
        plain = output.as_subclass(Tensor).clone()
        plain[~params["inside"]] = 0
        return wrap(plain, like=output)


class ScaleJitter(Transform):
    """A random size around one that fits a target."""

    def __init__(
        self,
        target_size: tuple[int, int],
        scale_range: tuple[float, float] = (0.1, 2.0),
        interpolation: Any = _BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.target_size, self.scale_range = target_size, scale_range
        self.interpolation, self.antialias = interpolation, antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random size."""
        height, width = query_size(flat_inputs)
        low, high = self.scale_range
        scale = low + weft.rand(1) * (high - low)
        r = min(self.target_size[1] / height, self.target_size[0] / width) * scale
        return {"size": (int(height * r), int(width * r))}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, resized."""
        how = {"interpolation": self.interpolation, "antialias": self.antialias}
        return F.resize(inpt, params["size"], **how)


class RandomShortestSize(Transform):
    """A random length of the shorter side, from a list."""

    def __init__(
        self,
        min_size: Any,
        max_size: int | None = None,
        interpolation: Any = _BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.min_size = [min_size] if isinstance(min_size, int) else list(min_size)
        self.max_size = max_size
        self.interpolation, self.antialias = interpolation, antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random size."""
        height, width = query_size(flat_inputs)
        r = self.min_size[int(weft.randint(len(self.min_size), ()))] / min(height, width)
        if self.max_size is not None:
            r = min(r, self.max_size / max(height, width))
        return {"size": (int(height * r), int(width * r))}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, resized."""
        how = {"interpolation": self.interpolation, "antialias": self.antialias}
        return F.resize(inpt, params["size"], **how)


class RandomResize(Transform):
    """A random length of the shorter side, from a range."""

    def __init__(
        self,
        min_size: int,
        max_size: int,
        interpolation: Any = _BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.min_size, self.max_size = min_size, max_size
        self.interpolation, self.antialias = interpolation, antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """A random size."""
        return {"size": [int(weft.randint(self.min_size, self.max_size, ()))]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, resized."""
        how = {"interpolation": self.interpolation, "antialias": self.antialias}
        return F.resize(inpt, params["size"], **how)
