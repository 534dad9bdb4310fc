"""Transforms of plain tensors of one kind, under torchvision's names for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.tensor import Tensor
from weft.vision.transforms._modes import InterpolationMode
from weft.vision.transforms.v2 import _functions as f
from weft.vision.tv_tensors import BoundingBoxes, BoundingBoxFormat, KeyPoints, Mask

Canvas = tuple[int, int]
_BILINEAR, _XYXY = InterpolationMode.BILINEAR, BoundingBoxFormat.XYXY
_SOFT = "soft"
_ANY = (0, 0)  # the canvas, where the result does not depend on it

# --- pixels: a plain tensor is an image, or the frames of a video -------------------------------

adjust_brightness_image = adjust_brightness_video = f.adjust_brightness
adjust_contrast_image = adjust_contrast_video = f.adjust_contrast
adjust_gamma_image = adjust_gamma_video = f.adjust_gamma
adjust_hue_image = adjust_hue_video = f.adjust_hue
adjust_saturation_image = adjust_saturation_video = f.adjust_saturation
adjust_sharpness_image = adjust_sharpness_video = f.adjust_sharpness
affine_image = affine_video = f.affine
autocontrast_image = autocontrast_video = f.autocontrast
center_crop_image = center_crop_video = f.center_crop
crop_image = crop_video = f.crop
elastic_image = elastic_video = f.elastic
equalize_image = equalize_video = f.equalize
erase_image = erase_video = f.erase
five_crop_image = five_crop_video = f.five_crop
gaussian_blur_image = gaussian_blur_video = f.gaussian_blur
gaussian_noise_image = gaussian_noise_video = f.gaussian_noise
get_dimensions_image = get_dimensions_video = f.get_dimensions
get_num_channels_image = get_num_channels_video = f.get_num_channels
get_num_frames_video = f.get_num_frames
get_image_size = get_size_image = get_size_video = f.get_size
grayscale_to_rgb_image = f.grayscale_to_rgb
horizontal_flip_image = horizontal_flip_video = f.horizontal_flip
invert_image = invert_video = f.invert
jpeg_image = jpeg_video = f.jpeg
normalize_image = normalize_video = f.normalize
pad_image = pad_video = f.pad
permute_channels_image = permute_channels_video = f.permute_channels
perspective_image = perspective_video = f.perspective
posterize_image = posterize_video = f.posterize
resize_image = resize_video = f.resize
resized_crop_image = resized_crop_video = f.resized_crop
rgb_to_grayscale_image = f.rgb_to_grayscale
rotate_image = rotate_video = f.rotate
solarize_image = solarize_video = f.solarize
ten_crop_image = ten_crop_video = f.ten_crop
to_dtype_image = to_dtype_video = f.to_dtype
uniform_temporal_subsample_video = f.uniform_temporal_subsample
vertical_flip_image = vertical_flip_video = f.vertical_flip

# --- masks: never a mixture of two classes ------------------------------------------------------


def _mask(function: Callable[..., Any], mask: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return function(Mask(mask), *args, **kwargs).as_subclass(Tensor)


def affine_mask(
    mask: Tensor, angle: float, translate: list[float], scale: float, shear: list[float],
    fill: Any = None, center: list[float] | None = None,
) -> Tensor:  # fmt: skip
    """A rotation, shift, scale and shear of a mask."""
    return _mask(f.affine, mask, angle, translate, scale, shear, fill=fill, center=center)


def center_crop_mask(mask: Tensor, output_size: list[int]) -> Tensor:
    """The middle of a mask."""
    return _mask(f.center_crop, mask, output_size)


def crop_mask(mask: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """A part of a mask."""
    return _mask(f.crop, mask, top, left, height, width)


def elastic_mask(mask: Tensor, displacement: Tensor, fill: Any = None) -> Tensor:
    """A mask read at moved places."""
    return _mask(f.elastic, mask, displacement, fill=fill)


def get_size_mask(mask: Tensor) -> list[int]:
    """Height and width of a mask."""
    return [int(n) for n in mask.shape[-2:]]


def horizontal_flip_mask(mask: Tensor) -> Tensor:
    """Left and right of a mask exchanged."""
    return _mask(f.horizontal_flip, mask)


def pad_mask(
    mask: Tensor, padding: list[int], fill: Any = None, padding_mode: str = "constant"
) -> Tensor:
    """Pixels added around a mask."""
    return _mask(f.pad, mask, padding, fill, padding_mode)


def perspective_mask(
    mask: Tensor, startpoints: Any, endpoints: Any, fill: Any = None, coefficients: Any = None
) -> Tensor:
    """The map of a mask that takes four points to four others."""
    return _mask(f.perspective, mask, startpoints, endpoints, fill=fill, coefficients=coefficients)


def resize_mask(
    mask: Tensor, size: Any, interpolation: Any = _BILINEAR, max_size: int | None = None
) -> Tensor:
    """A mask in another size."""
    return _mask(f.resize, mask, size, interpolation, max_size)


def resized_crop_mask(
    mask: Tensor, top: int, left: int, height: int, width: int, size: list[int]
) -> Tensor:
    """A part of a mask, resized."""
    return _mask(f.resized_crop, mask, top, left, height, width, size)


def rotate_mask(
    mask: Tensor, angle: float, expand: bool = False, center: Any = None, fill: Any = None
) -> Tensor:
    """A mask rotated against the clock."""
    return _mask(f.rotate, mask, angle, expand=expand, center=center, fill=fill)


def vertical_flip_mask(mask: Tensor) -> Tensor:
    """Top and bottom of a mask exchanged."""
    return _mask(f.vertical_flip, mask)


# --- boxes and points: those that change the canvas give the new one too ------------------------


def _apart(moved: Any) -> tuple[Tensor, Canvas]:
    return moved.as_subclass(Tensor), moved.canvas_size


def _boxes(
    boxes: Tensor, format: Any, canvas: Canvas, clamping_mode: str | None = _SOFT
) -> BoundingBoxes:
    return BoundingBoxes(boxes, format=format, canvas_size=canvas, clamping_mode=clamping_mode)


def _points(points: Tensor, canvas: Canvas) -> KeyPoints:
    return KeyPoints(points, canvas_size=canvas)


def affine_bounding_boxes(
    bounding_boxes: Tensor, format: Any, canvas_size: Canvas, angle: float,
    translate: list[float], scale: float, shear: list[float], center: Any = None,
    clamping_mode: str | None = _SOFT,
) -> Tensor:  # fmt: skip
    """A rotation, shift, scale and shear of boxes."""
    boxes = _boxes(bounding_boxes, format, canvas_size, clamping_mode)
    return _apart(f.affine(boxes, angle, translate, scale, shear, center=center))[0]


def affine_keypoints(
    keypoints: Tensor, canvas_size: Canvas, angle: float, translate: list[float], scale: float,
    shear: list[float], center: Any = None,
) -> tuple[Tensor, Canvas]:  # fmt: skip
    """A rotation, shift, scale and shear of points."""
    points = _points(keypoints, canvas_size)
    return _apart(f.affine(points, angle, translate, scale, shear, center=center))


def center_crop_bounding_boxes(
    bounding_boxes: Tensor, format: Any, canvas_size: Canvas, output_size: list[int],
    clamping_mode: str | None = _SOFT,
) -> tuple[Tensor, Canvas]:  # fmt: skip
    """Boxes in the middle of their canvas."""
    boxes = _boxes(bounding_boxes, format, canvas_size, clamping_mode)
    return _apart(f.center_crop(boxes, output_size))


def center_crop_keypoints(
    inpt: Tensor, canvas_size: Canvas, output_size: list[int]
) -> tuple[Tensor, Canvas]:
    """Points in the middle of their canvas."""
    return _apart(f.center_crop(_points(inpt, canvas_size), output_size))


def crop_bounding_boxes(
    bounding_boxes: Tensor, format: Any, top: int, left: int, height: int, width: int,
    clamping_mode: str | None = _SOFT,
) -> tuple[Tensor, Canvas]:  # fmt: skip
    """Boxes in a part of their canvas."""
    boxes = _boxes(bounding_boxes, format, _ANY, clamping_mode)
    return _apart(f.crop(boxes, top, left, height, width))


def crop_keypoints(
    keypoints: Tensor, top: int, left: int, height: int, width: int
) -> tuple[Tensor, Canvas]:
    """Points in a part of their canvas."""
    return _apart(f.crop(_points(keypoints, _ANY), top, left, height, width))


def elastic_bounding_boxes(
    bounding_boxes: Tensor, format: Any, canvas_size: Canvas, displacement: Tensor,
    clamping_mode: str | None = _SOFT,
) -> Tensor:  # fmt: skip
    """Boxes moved by a displacement."""
    boxes = _boxes(bounding_boxes, format, canvas_size, clamping_mode)
    return _apart(f.elastic(boxes, displacement))[0]


def elastic_keypoints(keypoints: Tensor, canvas_size: Canvas, displacement: Tensor) -> Tensor:
    """Points moved by a displacement."""
    return _apart(f.elastic(_points(keypoints, canvas_size), displacement))[0]


def get_size_bounding_boxes(bounding_box: BoundingBoxes) -> list[int]:
    """Height and width of the canvas of boxes."""
    return list(bounding_box.canvas_size)


def get_size_keypoints(keypoints: KeyPoints) -> list[int]:
    """Height and width of the canvas of points."""
    return list(keypoints.canvas_size)


def horizontal_flip_bounding_boxes(
    bounding_boxes: Tensor, format: Any, canvas_size: Canvas
) -> Tensor:
    """Boxes with left and right exchanged."""
    return _apart(f.horizontal_flip(_boxes(bounding_boxes, format, canvas_size)))[0]


def horizontal_flip_keypoints(keypoints: Tensor, canvas_size: Canvas) -> Tensor:
    """Points with left and right exchanged."""
    return _apart(f.horizontal_flip(_points(keypoints, canvas_size)))[0]


def pad_bounding_boxes(
    bounding_boxes: Tensor, format: Any, canvas_size: Canvas, padding: list[int],
    padding_mode: str = "constant", clamping_mode: str | None = _SOFT,
) -> tuple[Tensor, Canvas]:  # fmt: skip
    """Boxes on a canvas with pixels added around it."""
    boxes = _boxes(bounding_boxes, format, canvas_size, clamping_mode)
    return _apart(f.pad(boxes, padding, padding_mode=padding_mode))


def pad_keypoints(
    keypoints: Tensor, canvas_size: Canvas, padding: list[int], padding_mode: str = "constant"
) -> tuple[Tensor, Canvas]:
    """Points on a canvas with pixels added around it."""
    return _apart(f.pad(_points(keypoints, canvas_size), padding, padding_mode=padding_mode))


def perspective_bounding_boxes(
    bounding_boxes: Tensor, format: Any, canvas_size: Canvas, startpoints: Any, endpoints: Any,
    coefficients: Any = None, clamping_mode: str | None = _SOFT,
) -> Tensor:  # fmt: skip
    """Boxes under the map that takes four points to four others."""
    boxes = _boxes(bounding_boxes, format, canvas_size, clamping_mode)
    return _apart(f.perspective(boxes, startpoints, endpoints, coefficients=coefficients))[0]


def perspective_keypoints(
    keypoints: Tensor, canvas_size: Canvas, startpoints: Any, endpoints: Any,
    coefficients: Any = None,
) -> Tensor:  # fmt: skip
    """Points under the map that takes four points to four others."""
    points = _points(keypoints, canvas_size)
    return _apart(f.perspective(points, startpoints, endpoints, coefficients=coefficients))[0]


def resize_bounding_boxes(
    bounding_boxes: Tensor, canvas_size: Canvas, size: Any, max_size: int | None = None,
    format: Any = _XYXY, clamping_mode: str | None = _SOFT,
) -> tuple[Tensor, Canvas]:  # fmt: skip
    """Boxes on a canvas of another size."""
    boxes = _boxes(bounding_boxes, format, canvas_size, clamping_mode)
    return _apart(f.resize(boxes, size, max_size=max_size))


def resize_keypoints(
    keypoints: Tensor, size: Any, canvas_size: Canvas, max_size: int | None = None
) -> tuple[Tensor, Canvas]:
    """Points on a canvas of another size."""
    return _apart(f.resize(_points(keypoints, canvas_size), size, max_size=max_size))


def resized_crop_bounding_boxes(
    bounding_boxes: Tensor, format: Any, top: int, left: int, height: int, width: int,
    size: list[int], clamping_mode: str | None = _SOFT,
) -> tuple[Tensor, Canvas]:  # fmt: skip
    """Boxes in a part of their canvas, resized."""
    boxes = _boxes(bounding_boxes, format, _ANY, clamping_mode)
    return _apart(f.resized_crop(boxes, top, left, height, width, size))


def resized_crop_keypoints(
    keypoints: Tensor, top: int, left: int, height: int, width: int, size: list[int]
) -> tuple[Tensor, Canvas]:
    """Points in a part of their canvas, resized."""
    return _apart(f.resized_crop(_points(keypoints, _ANY), top, left, height, width, size))


def rotate_bounding_boxes(
    bounding_boxes: Tensor, format: Any, canvas_size: Canvas, angle: float, expand: bool = False,
    center: Any = None, clamping_mode: str | None = _SOFT,
) -> tuple[Tensor, Canvas]:  # fmt: skip
    """Boxes rotated against the clock."""
    boxes = _boxes(bounding_boxes, format, canvas_size, clamping_mode)
    return _apart(f.rotate(boxes, angle, expand=expand, center=center))


def rotate_keypoints(
    keypoints: Tensor, canvas_size: Canvas, angle: float, expand: bool = False, center: Any = None
) -> tuple[Tensor, Canvas]:
    """Points rotated against the clock."""
    return _apart(f.rotate(_points(keypoints, canvas_size), angle, expand=expand, center=center))


def vertical_flip_bounding_boxes(
    bounding_boxes: Tensor, format: Any, canvas_size: Canvas
) -> Tensor:
    """Boxes with top and bottom exchanged."""
    return _apart(f.vertical_flip(_boxes(bounding_boxes, format, canvas_size)))[0]


def vertical_flip_keypoints(keypoints: Tensor, canvas_size: Canvas) -> Tensor:
    """Points with top and bottom exchanged."""
    return _apart(f.vertical_flip(_points(keypoints, canvas_size)))[0]
