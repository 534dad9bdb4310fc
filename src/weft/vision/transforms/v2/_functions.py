"""Transforms as functions for images, videos, masks, boxes, points, and Pillow images."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.vision import tv_tensors
from weft.vision._pillow import is_pillow, pillow
from weft.vision.transforms import _colour, _geometry, _tensor
from weft.vision.transforms import functional as v1
from weft.vision.transforms._modes import InterpolationMode, mode_of
from weft.vision.transforms.v2 import _boxes
from weft.vision.transforms.v2._boxes import clamp_bounding_boxes as clamp_bounding_boxes
from weft.vision.transforms.v2._boxes import clamp_keypoints as clamp_keypoints
from weft.vision.transforms.v2._boxes import convert
from weft.vision.tv_tensors import BoundingBoxes, Image, KeyPoints, Mask, Video, wrap

_NEAREST, _BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
_KERNELS: dict[str, dict[type, Callable[..., Any]]] = {}


def register_kernel(functional: Any, tv_tensor_cls: type) -> Callable[[Callable], Callable]:
    """Say what a functional does to tensors of a class of your own."""
    name = functional if isinstance(functional, str) else functional.__name__
    if not issubclass(tv_tensor_cls, tv_tensors.TVTensor):
        raise ValueError(f"kernels are for subclasses of TVTensor, not {tv_tensor_cls}")
    if name not in globals() or name.startswith("_"):
        raise ValueError(f"there is no functional {name!r}")

    def decorate(kernel: Callable) -> Callable:
        _KERNELS.setdefault(name, {})[tv_tensor_cls] = kernel
        return kernel

    return decorate


def is_pure_tensor(inpt: Any) -> bool:
    """Whether something is a tensor and none of the classes of ``tv_tensors``."""
    return isinstance(inpt, Tensor) and not isinstance(inpt, tv_tensors.TVTensor)


def _own_kernel(name: str, inpt: Any) -> Callable[..., Any] | None:
    for kind, kernel in _KERNELS.get(name, {}).items():
        if isinstance(inpt, kind):
            return kernel
    return None


def _on_pixels(name: str, inpt: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of v1 on an image or a video; other kinds stay as they are."""
    kernel = _own_kernel(name, inpt)
    if kernel is not None:
        return kernel(inpt, *args, **kwargs)
    if isinstance(inpt, (Image, Video)):
        plain = inpt.as_subclass(Tensor)
        return wrap(getattr(v1, name)(plain, *args, **kwargs), like=inpt)
    if isinstance(inpt, tv_tensors.TVTensor):
        return inpt
    return getattr(v1, name)(inpt, *args, **kwargs)


def _on_mask(mask: Any, function: Callable[[Tensor], Tensor]) -> Any:
    plain = mask.as_subclass(Tensor)
    result = function(plain[None])[0] if plain.ndim < 3 else function(plain)
    return wrap(result, like=mask)


def _geometric(name: str, inpt: Any, pixels: Any, mask: Any, boxes: Any, points: Any) -> Any:
    """One of four functions, by the kind of the input."""
    kernel = _own_kernel(name, inpt)
    if kernel is not None:
        return kernel(inpt)
    if isinstance(inpt, Mask):
        return _on_mask(inpt, mask)
    if isinstance(inpt, BoundingBoxes):
        return boxes(inpt)
    if isinstance(inpt, KeyPoints):
        return points(inpt)
    if isinstance(inpt, (Image, Video)):
        return wrap(pixels(inpt.as_subclass(Tensor)), like=inpt)
    if isinstance(inpt, tv_tensors.TVTensor):
        return inpt
    return pixels(inpt)


# --- what an input is ------------------------------------------------------------------------


def get_dimensions(inpt: Any) -> list[int]:
    """Channels, height and width."""
    return v1.get_dimensions(inpt)


def get_num_channels(inpt: Any) -> int:
    """The number of channels."""
    return v1.get_dimensions(inpt)[0]


get_image_num_channels = get_num_channels


def get_size(inpt: Any) -> list[int]:
    """Height and width, of the canvas for boxes and points."""
    if isinstance(inpt, (BoundingBoxes, KeyPoints)):
        return list(inpt.canvas_size)
    if isinstance(inpt, Mask):
        return [int(n) for n in inpt.shape[-2:]]
    return v1.get_dimensions(inpt)[1:]


def get_num_frames(inpt: Any) -> int:
    """The number of frames of a video."""
    return int(inpt.shape[-4])


# --- between kinds ---------------------------------------------------------------------------


def to_image(inpt: Any) -> Any:
    """A Pillow image, an array (H, W, C) or a tensor as an ``Image``."""
    if isinstance(inpt, np.ndarray):
        array = np.atleast_3d(inpt)
        return Image(weft.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1))))
    if is_pillow(inpt) or isinstance(inpt, Tensor):
        return Image(inpt)
    raise TypeError(f"Input can either be a pure Tensor, a numpy array, or a PIL image, got {inpt}")


def to_pil_image(inpt: Any, mode: str | None = None) -> Any:
    """A tensor (C, H, W) or an array (H, W, C) as a Pillow image."""
    plain = inpt.as_subclass(Tensor) if isinstance(inpt, tv_tensors.TVTensor) else inpt
    return v1.to_pil_image(plain, mode)


def pil_to_tensor(pic: Any) -> Tensor:
    """A Pillow image as a tensor (C, H, W) of its own type."""
    return v1.pil_to_tensor(pic)


def to_tensor(inpt: Any) -> Tensor:
    """A Pillow image or an array as a float tensor (C, H, W)."""
    return v1.to_tensor(inpt)


def to_dtype(inpt: Any, dtype: Any = weft.float, scale: bool = False) -> Any:
    """Another type; ``scale`` fits the values of images and videos to its range."""
    if isinstance(inpt, tv_tensors.TVTensor) and not isinstance(inpt, (Image, Video)):
        return wrap(inpt.as_subclass(Tensor).to(dtype), like=inpt)
    plain = inpt.as_subclass(Tensor)
    made = _tensor.convert_dtype(plain, dtype, v2=True) if scale else plain.to(dtype)
    return made if is_pure_tensor(inpt) else wrap(made, like=inpt)


def convert_image_dtype(image: Any, dtype: Any = weft.float32) -> Any:
    """Another type, with values fitted to its range."""
    return to_dtype(image, dtype, scale=True)


def convert_bounding_box_format(
    inpt: Any, old_format: Any = None, new_format: Any = None, inplace: bool = False
) -> Any:
    """Boxes in another format."""
    if new_format is None:
        raise TypeError("missing 1 required argument: 'new_format'")
    new = tv_tensors.format_of(new_format)
    if not isinstance(inpt, BoundingBoxes):
        if old_format is None:
            raise ValueError("For pure tensor inputs, `old_format` has to be passed.")
        return convert(inpt, tv_tensors.format_of(old_format), new)
    if old_format is not None:
        raise ValueError("For bounding box tv_tensor inputs, `old_format` must not be passed.")
    return wrap(convert(inpt.as_subclass(Tensor), inpt.format, new), like=inpt, format=new)


# --- geometry --------------------------------------------------------------------------------


def horizontal_flip(inpt: Any) -> Any:
    """Left and right exchanged."""

    def boxes(b: Any) -> Any:
        return _boxes.moved(b, _boxes.flip(b.canvas_size, True), b.canvas_size, False)

    def points(p: Any) -> Any:
        return _boxes.moved_points(p, _boxes.flip(p.canvas_size, True, 1), p.canvas_size)

    return _geometric("horizontal_flip", inpt, v1.hflip, v1.hflip, boxes, points)


def vertical_flip(inpt: Any) -> Any:
    """Top and bottom exchanged."""

    def boxes(b: Any) -> Any:
        return _boxes.moved(b, _boxes.flip(b.canvas_size, False), b.canvas_size, False)

    def points(p: Any) -> Any:
        return _boxes.moved_points(p, _boxes.flip(p.canvas_size, False, 1), p.canvas_size)

    return _geometric("vertical_flip", inpt, v1.vflip, v1.vflip, boxes, points)


hflip, vflip = horizontal_flip, vertical_flip


def resize(
    inpt: Any,
    size: Any,
    interpolation: Any = _BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    """Another size; a single number is for the shorter side, None for ``max_size`` alone."""
    wanted = [size] if isinstance(size, int) else size
    mode = mode_of(interpolation)

    def pixels(x: Any, mode: str = mode.value) -> Any:
        old = get_size(x)
        new = _geometry.resized_size((old[0], old[1]), wanted, max_size)
        if is_pillow(x):
            return v1.resize(x, new, mode_of(mode))
        return _tensor.resize(x, new, mode, bool(antialias), native=True)

    def canvas(x: Any) -> tuple[tuple[int, int], tuple[int, int]]:
        old = x.canvas_size
        return old, _geometry.resized_size(old, wanted, max_size)

    def boxes(b: Any) -> Any:
        old, new = canvas(b)
        return b if old == new else _boxes.moved(b, _boxes.scale(old, new), new, False)

    def points(p: Any) -> Any:
        old, new = canvas(p)
        return p if old == new else _boxes.moved_points(p, _boxes.scale(old, new), new)

    exact = InterpolationMode.NEAREST_EXACT
    for_mask = mode.value if mode in (_NEAREST, exact) else "nearest"
    return _geometric("resize", inpt, pixels, lambda m: pixels(m, for_mask), boxes, points)


def crop(inpt: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part; pixels outside the input are zero."""

    def pixels(x: Any) -> Any:
        return v1.crop(x, top, left, height, width)

    def boxes(b: Any) -> Any:
        return _boxes.moved(b, _boxes.shift(-left, -top), (height, width), True)

    def points(p: Any) -> Any:
        return _boxes.moved_points(p, _boxes.shift(-left, -top), (height, width))

    return _geometric("crop", inpt, pixels, pixels, boxes, points)


def center_crop(inpt: Any, output_size: Any) -> Any:
    """The middle, padded with zeros if the input is smaller."""
    height, width = v1._pair(output_size)
    h, w = get_size(inpt)
    if isinstance(inpt, (BoundingBoxes, KeyPoints)):
        return crop(inpt, *_geometry.crop_corners((h, w), (height, width)), height, width)

    def pixels(x: Any) -> Any:
        return v1.center_crop(x, (height, width))

    return _geometric("center_crop", inpt, pixels, pixels, None, None)


def resized_crop(
    inpt: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = _BILINEAR,
    antialias: bool | None = True,
) -> Any:
    """A part, resized."""
    part = crop(inpt, top, left, height, width)
    return resize(part, size, interpolation, antialias=antialias)


def pad(inpt: Any, padding: Any, fill: Any = None, padding_mode: str = "constant") -> Any:
    """Pixels added around the input."""
    left, top, right, bottom = _boxes.pads(padding)

    def pixels(x: Any) -> Any:
        colour = 0 if fill is None else fill
        return v1.pad(x, [left, top, right, bottom], colour, padding_mode)

    def mask(m: Any) -> Any:
        if isinstance(fill, (tuple, list)):
            raise ValueError("Non-scalar fill value is not supported")
        return pixels(m)

    def canvas(x: Any) -> tuple[int, int]:
        if padding_mode != "constant":
            raise ValueError(f"Padding mode '{padding_mode}' is not supported with {type(x)}")
        return x.canvas_size[0] + top + bottom, x.canvas_size[1] + left + right

    def boxes(b: Any) -> Any:
        return _boxes.moved(b, _boxes.shift(left, top), canvas(b), True)

    def points(p: Any) -> Any:
        return _boxes.moved_points(p, _boxes.shift(left, top), canvas(p))

    return _geometric("pad", inpt, pixels, mask, boxes, points)


def affine(
    inpt: Any,
    angle: float,
    translate: Any,
    scale: float,
    shear: Any,
    interpolation: Any = _NEAREST,
    fill: Any = None,
    center: Any = None,
) -> Any:
    """A rotation, shift, scale and shear about the centre."""

    def pixels(x: Any, mode: Any = interpolation) -> Any:
        return v1.affine(x, angle, list(translate), scale, shear, mode, fill, center)

    def move(canvas: tuple[int, int]) -> Any:
        about = [canvas[1] * 0.5, canvas[0] * 0.5] if center is None else center
        shears = v1._shears(shear)
        return _boxes.linear(
            _geometry.inverse_affine(about, angle, translate, scale, shears, inverted=False)
        )

    def boxes(b: Any) -> Any:
        return _boxes.moved(b, move(b.canvas_size), b.canvas_size, True)

    def points(p: Any) -> Any:
        return _boxes.moved_points(p, move(p.canvas_size), p.canvas_size)

    return _geometric("affine", inpt, pixels, lambda m: pixels(m, _NEAREST), boxes, points)


def rotate(
    inpt: Any,
    angle: float,
    interpolation: Any = _NEAREST,
    expand: bool = False,
    center: Any = None,
    fill: Any = None,
) -> Any:
    """A rotation against the clock; ``expand`` makes room for the corners."""

    def pixels(x: Any, mode: Any = interpolation) -> Any:
        return v1.rotate(x, angle, mode, expand, center, fill)

    def move(canvas: tuple[int, int]) -> tuple[tuple[int, int], Any]:
        about = [canvas[1] * 0.5, canvas[0] * 0.5]
        if center is not None and not expand:
            about = center
        how = (-angle, [0.0, 0.0], 1.0, [0.0, 0.0])
        forward = _geometry.inverse_affine(about, *how, inverted=False)
        if not expand:
            return canvas, _boxes.linear(forward)
        return _boxes.expanded(canvas, forward, _geometry.inverse_affine(about, *how))

    def boxes(b: Any) -> Any:
        canvas, step = move(b.canvas_size)
        return _boxes.moved(b, step, canvas, True)

    def points(p: Any) -> Any:
        canvas, step = move(p.canvas_size)
        return _boxes.moved_points(p, step, canvas)

    return _geometric("rotate", inpt, pixels, lambda m: pixels(m, _NEAREST), boxes, points)


def perspective(
    inpt: Any,
    startpoints: Any,
    endpoints: Any,
    interpolation: Any = _BILINEAR,
    fill: Any = None,
    coefficients: Any = None,
) -> Any:
    """The map that takes four start points to four end points."""
    if coefficients is None:
        coefficients = _geometry.perspective_coefficients(startpoints, endpoints)

    def pixels(x: Any, mode: Any = interpolation) -> Any:
        kernels = _tensor if isinstance(x, Tensor) else v1._pil
        return kernels.perspective(x, coefficients, mode_of(mode).value, fill)

    def boxes(b: Any) -> Any:
        return _boxes.moved(b, _boxes.perspective(coefficients), b.canvas_size, True)

    def points(p: Any) -> Any:
        return _boxes.moved_points(p, _boxes.perspective(coefficients), p.canvas_size)

    return _geometric("perspective", inpt, pixels, lambda m: pixels(m, _NEAREST), boxes, points)


def elastic(
    inpt: Any, displacement: Tensor, interpolation: Any = _BILINEAR, fill: Any = None
) -> Any:
    """An input read at places moved by a displacement (1, H, W, 2)."""

    def pixels(x: Any, mode: Any = interpolation) -> Any:
        return v1.elastic_transform(x, displacement, mode, fill)

    def boxes(b: Any) -> Any:
        return _boxes.moved(b, _boxes.elastic(b.canvas_size, displacement), b.canvas_size, True)

    def points(p: Any) -> Any:
        return _boxes.moved_points(
            p, _boxes.elastic(p.canvas_size, displacement, False), p.canvas_size
        )

    return _geometric("elastic", inpt, pixels, lambda m: pixels(m, _NEAREST), boxes, points)


elastic_transform = elastic


def five_crop(inpt: Any, size: Any) -> tuple[Any, ...]:
    """The four corners and the middle."""
    if isinstance(inpt, (Image, Video)):
        parts = v1.five_crop(inpt.as_subclass(Tensor), size)
        return tuple(wrap(part, like=inpt) for part in parts)
    return v1.five_crop(inpt, size)


def ten_crop(inpt: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    """The four corners and the middle of an input and of its mirror image."""
    if isinstance(inpt, (Image, Video)):
        parts = v1.ten_crop(inpt.as_subclass(Tensor), size, vertical_flip)
        return tuple(wrap(part, like=inpt) for part in parts)
    return v1.ten_crop(inpt, size, vertical_flip)


# --- colours ---------------------------------------------------------------------------------


def adjust_brightness(inpt: Any, brightness_factor: float) -> Any:
    """Pixels times a factor."""
    return _on_pixels("adjust_brightness", inpt, brightness_factor)


def adjust_contrast(inpt: Any, contrast_factor: float) -> Any:
    """Pixels farther from or nearer to the mean luminance."""
    return _on_pixels("adjust_contrast", inpt, contrast_factor)


def adjust_saturation(inpt: Any, saturation_factor: float) -> Any:
    """Pixels farther from or nearer to their luminance."""
    return _on_pixels("adjust_saturation", inpt, saturation_factor)


def adjust_hue(inpt: Any, hue_factor: float) -> Any:
    """Colours turned around the circle of hues."""
    return _on_pixels("adjust_hue", inpt, hue_factor)


def adjust_gamma(inpt: Any, gamma: float, gain: float = 1) -> Any:
    """Pixels to a power."""
    return _on_pixels("adjust_gamma", inpt, gamma, gain)


def adjust_sharpness(inpt: Any, sharpness_factor: float) -> Any:
    """An image farther from or nearer to a slightly blurred one."""
    return _on_pixels("adjust_sharpness", inpt, sharpness_factor)


def invert(inpt: Any) -> Any:
    """The negative."""
    return _on_pixels("invert", inpt)


def _real_pixels(inpt: Any) -> Tensor | None:
    """An image of floats as a plain tensor; None for everything else."""
    if not isinstance(inpt, (Image, Video)) and not is_pure_tensor(inpt):
        return None
    plain = inpt.as_subclass(Tensor)
    return plain if plain.is_floating_point() else None


def posterize(inpt: Any, bits: int) -> Any:
    """The upper bits of each pixel."""
    plain = _real_pixels(inpt)
    if plain is not None and _own_kernel("posterize", inpt) is None:
        levels = 1 << bits
        made = plain.mul(levels).floor_().clamp_(0, levels - 1).mul_(1.0 / levels)
        return wrap(made, like=inpt) if isinstance(inpt, (Image, Video)) else made
    return _on_pixels("posterize", inpt, bits)


def solarize(inpt: Any, threshold: float) -> Any:
    """The negative where pixels reach a threshold."""
    return _on_pixels("solarize", inpt, threshold)


def autocontrast(inpt: Any) -> Any:
    """Each channel stretched over the whole range."""
    if _own_kernel("autocontrast", inpt) is None and (
        isinstance(inpt, (Image, Video)) or is_pure_tensor(inpt)
    ):
        made = _colour.autocontrast(inpt.as_subclass(Tensor), divide=True)
        return wrap(made, like=inpt) if isinstance(inpt, (Image, Video)) else made
    return _on_pixels("autocontrast", inpt)


def equalize(inpt: Any) -> Any:
    """Each channel with an even histogram."""
    plain = _real_pixels(inpt)
    if plain is not None and _own_kernel("equalize", inpt) is None:
        made = to_dtype(v1.equalize(to_dtype(plain, weft.uint8, scale=True)), plain.dtype, True)
        return wrap(made, like=inpt) if isinstance(inpt, (Image, Video)) else made
    return _on_pixels("equalize", inpt)


def rgb_to_grayscale(inpt: Any, num_output_channels: int = 1) -> Any:
    """Luminance, in one channel or three equal ones."""
    return _on_pixels("rgb_to_grayscale", inpt, num_output_channels)


to_grayscale = rgb_to_grayscale


def grayscale_to_rgb(inpt: Any) -> Any:
    """A gray image in three channels; colours stay."""
    if is_pillow(inpt):
        return inpt.convert("RGB")
    if isinstance(inpt, tv_tensors.TVTensor) and not isinstance(inpt, (Image, Video)):
        return inpt
    plain = inpt.as_subclass(Tensor)
    made = plain if plain.shape[-3] == 3 else v1.rgb_to_grayscale(plain, 3)
    return made if is_pure_tensor(inpt) else wrap(made, like=inpt)


def permute_channels(inpt: Any, permutation: list[int]) -> Any:
    """Channels in another order."""
    if is_pillow(inpt):
        return to_pil_image(permute_channels(pil_to_tensor(inpt), permutation))
    if isinstance(inpt, tv_tensors.TVTensor) and not isinstance(inpt, (Image, Video)):
        return inpt
    plain = inpt.as_subclass(Tensor)
    if plain.shape[-3] != len(permutation):
        raise ValueError(
            f"Length of permutation does not match number of channels: {len(permutation)} != "
            f"{plain.shape[-3]}"
        )
    made = plain[..., permutation, :, :]
    return made if is_pure_tensor(inpt) else wrap(made, like=inpt)


def gaussian_blur(inpt: Any, kernel_size: Any, sigma: Any = None) -> Any:
    """A blur by a Gaussian."""
    return _on_pixels("gaussian_blur", inpt, kernel_size, sigma)


def gaussian_noise(inpt: Any, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> Any:
    """Noise added to each pixel."""
    if is_pillow(inpt):
        raise ValueError("Gaussian Noise is not implemented for PIL images.")
    if isinstance(inpt, tv_tensors.TVTensor) and not isinstance(inpt, (Image, Video)):
        return inpt
    if sigma < 0:
        raise ValueError(f"sigma shouldn't be negative. Got {sigma}")
    plain = inpt.as_subclass(Tensor)
    if plain.dtype == weft.uint8:
        drawn = weft.randn(plain.shape, dtype=weft.float32) * (sigma * 255)
        made = plain + (mean * 255 + drawn).to(weft.int16)
        made = (made.clamp(0, 255) if clip else made).to(weft.uint8)
    elif plain.is_floating_point():
        made = plain + mean + weft.randn_like(plain) * sigma
        made = made.clamp(0, 1) if clip else made
    else:
        raise ValueError(f"Input tensor is expected to be in uint8 or float, got {plain.dtype}")
    return made if is_pure_tensor(inpt) else wrap(made, like=inpt)


def normalize(inpt: Any, mean: Any, std: Any, inplace: bool = False) -> Any:
    """Channels less their means, by their deviations."""
    if is_pillow(inpt):
        raise TypeError("normalize is not supported for PIL images; convert with to_image first")
    return _on_pixels("normalize", inpt, mean, std, inplace)


def erase(inpt: Any, i: int, j: int, h: int, w: int, v: Tensor, inplace: bool = False) -> Any:
    """A rectangle overwritten by values."""
    if is_pillow(inpt):
        return to_pil_image(v1.erase(pil_to_tensor(inpt), i, j, h, w, v))
    return _on_pixels("erase", inpt, i, j, h, w, v, inplace)


def jpeg(inpt: Any, quality: int) -> Any:
    """An image as JPEG of a quality shows it."""
    if isinstance(inpt, tv_tensors.TVTensor) and not isinstance(inpt, (Image, Video)):
        return inpt
    if isinstance(inpt, Tensor):
        plain = inpt.as_subclass(Tensor)
        planes = plain.reshape(-1, *plain.shape[-3:])
        done = [pil_to_tensor(jpeg(to_pil_image(plane), quality)) for plane in planes]
        made = weft.stack(done).reshape(plain.shape)
        return made if is_pure_tensor(inpt) else wrap(made, like=inpt)
    file = BytesIO()
    inpt.save(file, format="JPEG", quality=quality)
    file.seek(0)
    return pillow().open(file).convert(inpt.mode)


def uniform_temporal_subsample(inpt: Any, num_samples: int) -> Any:
    """Frames of a video at even distances."""
    count = inpt.shape[-4]
    places = weft.linspace(0, count - 1, num_samples).long()
    made = weft.index_select(inpt.as_subclass(Tensor), -4, places)
    return made if is_pure_tensor(inpt) else wrap(made, like=inpt)


def sanitize_bounding_boxes(
    bounding_boxes: Any,
    format: Any = None,
    canvas_size: Any = None,
    min_size: float = 1.0,
    min_area: float = 1.0,
) -> tuple[Any, Tensor]:
    """The boxes that are inside their canvas and not too small, and their mask."""
    if not isinstance(bounding_boxes, BoundingBoxes):
        if format is None or canvas_size is None:
            raise ValueError(
                "format and canvas_size cannot be None if bounding_boxes is a pure tensor. Got "
                f"format={format} and canvas_size={canvas_size}."
            )
        boxes = BoundingBoxes(bounding_boxes, format=format, canvas_size=canvas_size)
        kept, valid = sanitize_bounding_boxes(boxes, min_size=min_size, min_area=min_area)
        return kept.as_subclass(Tensor), valid
    plain = bounding_boxes.as_subclass(Tensor)
    corners = convert(plain, bounding_boxes.format, tv_tensors.BoundingBoxFormat.XYXY)
    width, height = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
    valid = (width >= min_size) & (height >= min_size) & (width * height >= min_area)
    rows, columns = bounding_boxes.canvas_size
    most = weft.tensor([columns, rows, columns, rows], dtype=corners.dtype)
    valid &= ((corners >= 0) & (corners <= most)).all(dim=-1)
    return wrap(plain[valid], like=bounding_boxes), valid


def sanitize_keypoints(key_points: Any, canvas_size: Any = None) -> tuple[Any, Tensor]:
    """The points (or groups of them) that are inside their canvas, and their mask."""
    plain = key_points.as_subclass(Tensor)
    height, width = canvas_size if canvas_size is not None else key_points.canvas_size
    inside = (plain >= 0).all(-1) & (plain[..., 0] < width) & (plain[..., 1] < height)
    valid = inside.flatten(1).all(-1) if inside.ndim > 1 else inside
    kept = plain[valid]
    return (wrap(kept, like=key_points) if isinstance(key_points, KeyPoints) else kept), valid
