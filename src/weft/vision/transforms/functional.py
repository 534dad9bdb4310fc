"""Transforms as functions, for Pillow images and for tensors (..., C, H, W)."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.vision._pillow import is_pillow, pillow
from weft.vision.transforms import _colour, _geometry, _pil, _tensor
from weft.vision.transforms._modes import InterpolationMode, mode_of

Image = Any  # a Pillow image or a tensor
_NEAREST, _BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR


def _is_tensor(img: Any) -> bool:
    if isinstance(img, Tensor):
        return True
    if not is_pillow(img):
        raise TypeError(f"Unexpected type {type(img)}: a Pillow image or a tensor is expected")
    return False


def get_dimensions(img: Image) -> list[int]:
    """Channels, height and width."""
    if _is_tensor(img):
        _tensor.need_image(img)
        return [_tensor.channels(img), int(img.shape[-2]), int(img.shape[-1])]
    return [_pil.channels(img), img.height, img.width]


def get_image_size(img: Image) -> list[int]:
    """Width and height."""
    _, height, width = get_dimensions(img)
    return [width, height]


def get_image_num_channels(img: Image) -> int:
    """The number of channels."""
    return get_dimensions(img)[0]


# --- between kinds ---------------------------------------------------------------------------

_TYPES = {"I": np.int32, "I;16": np.int16, "F": np.float32}


def _array_of(pic: Any) -> np.ndarray:
    """A Pillow image as an array (C, H, W) of its own."""
    array = np.array(pic, _TYPES.get(pic.mode, np.uint8), copy=True)
    if pic.mode == "1":
        array = 255 * array
    array = array.reshape(pic.height, pic.width, _pil.channels(pic))
    return np.ascontiguousarray(array.transpose(2, 0, 1))


def to_tensor(pic: Any) -> Tensor:
    """A Pillow image or an array (H, W, C) as a tensor (C, H, W); bytes become 0 to 1."""
    if isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        array = pic[:, :, None] if pic.ndim == 2 else pic
        array = np.ascontiguousarray(array.transpose(2, 0, 1))
    elif is_pillow(pic):
        array = _array_of(pic)
    else:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    made = weft.from_numpy(array)
    if array.dtype == np.uint8:
        return made.to(weft.get_default_dtype()).div(255)
    return made


def pil_to_tensor(pic: Any) -> Tensor:
    """A Pillow image as a tensor (C, H, W) of its own type."""
    if not is_pillow(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    array = np.array(pic, copy=True)
    array = array.reshape(pic.height, pic.width, _pil.channels(pic))
    return weft.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))


def convert_image_dtype(image: Tensor, dtype: Any = weft.float) -> Tensor:
    """Pixels in another type, scaled to its range."""
    if not isinstance(image, Tensor):
        raise TypeError("Input img should be Tensor Image")
    return _tensor.convert_dtype(image, dtype)


_MODES_OF = {
    1: {"uint8": "L", "int16": "I;16", "uint16": "I;16", "int32": "I", "float32": "F"},
    2: {"uint8": "LA"},
    3: {"uint8": "RGB"},
    4: {"uint8": "RGBA"},
}
_PERMITTED = {2: ("LA",), 4: ("RGBA", "CMYK", "RGBX"), 3: ("RGB", "YCbCr", "HSV")}


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A tensor (C, H, W) or an array (H, W, C) as a Pillow image."""
    if isinstance(pic, Tensor):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        if pic.is_floating_point() and mode != "F":
            pic = pic.mul(255).byte()
        array = pic.detach().numpy()
        array = array[None] if array.ndim == 2 else array
        array = array.transpose(1, 2, 0)
    elif isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        array = pic[:, :, None] if pic.ndim == 2 else pic
    else:
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    height, width, count = array.shape
    if count > 4:
        raise ValueError(f"pic should not have > 4 channels. Got {count} channels.")
    expected = _MODES_OF[count].get(array.dtype.name)
    if count == 1 and mode is not None and mode != expected:
        raise ValueError(
            f"Incorrect mode ({mode}) supplied for input type {array.dtype}. Should be {expected}"
        )
    if count > 1 and mode is not None and mode not in _PERMITTED[count]:
        raise ValueError(f"Only modes {_PERMITTED[count]} are supported for {count}D inputs")
    mode = mode or expected
    if mode is None:
        raise TypeError(f"Input type {array.dtype} is not supported")
    return pillow().frombytes(mode, (width, height), np.ascontiguousarray(array).tobytes())


def normalize(tensor: Tensor, mean: Any, std: Any, inplace: bool = False) -> Tensor:
    """Channels less their means, by their deviations."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    return _tensor.normalize(tensor, mean, std, inplace)


# --- sizes and parts -------------------------------------------------------------------------


def resize(
    img: Image,
    size: Any,
    interpolation: Any = _BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Image:
    """An image of another size; a single number is for the shorter side."""
    mode = mode_of(interpolation).value
    wanted = [size] if isinstance(size, int) else size
    if isinstance(wanted, (list, tuple)):
        if len(wanted) not in (1, 2):
            raise ValueError(
                f"Size must be an int or a 1 or 2 element tuple/list, not a {len(wanted)} element"
            )
        if max_size is not None and len(wanted) != 1:
            raise ValueError(
                "max_size should only be passed if size specifies the length of the smaller edge, "
                "i.e. size should be an int or a sequence of length 1."
            )
    _, height, width = get_dimensions(img)
    out = _geometry.resized_size((height, width), wanted, max_size)
    if out == (height, width):
        return img
    if not _is_tensor(img):
        if antialias is False:
            warnings.warn("Anti-alias option is always applied for PIL Image input.", stacklevel=2)
        return _pil.resize(img, out, mode)
    return _tensor.resize(img, out, mode, bool(antialias))


def pad(img: Image, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Image:
    """Pixels added around an image: all sides, (left/right, top/bottom), or all four."""
    if _is_tensor(img):
        return _tensor.pad(img, padding, fill, padding_mode)
    return _pil.pad(img, padding, fill, padding_mode)


def crop(img: Image, top: int, left: int, height: int, width: int) -> Image:
    """A part of an image; pixels outside it are zero."""
    kernels = _tensor if _is_tensor(img) else _pil
    return kernels.crop(img, top, left, height, width)


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, numbers.Number):
        return int(size), int(size)  # type: ignore[call-overload]
    if len(size) == 1:
        return int(size[0]), int(size[0])
    return int(size[0]), int(size[1])


def center_crop(img: Image, output_size: Any) -> Image:
    """The middle of an image, padded with zeros if it is smaller."""
    height, width = _pair(output_size)
    _, h, w = get_dimensions(img)
    if width > w or height > h:
        sides = [
            (width - w) // 2 if width > w else 0,
            (height - h) // 2 if height > h else 0,
            (width - w + 1) // 2 if width > w else 0,
            (height - h + 1) // 2 if height > h else 0,
        ]
        img = pad(img, sides, fill=0)
        _, h, w = get_dimensions(img)
        if width == w and height == h:
            return img
    return crop(img, *_geometry.crop_corners((h, w), (height, width)), height, width)


def resized_crop(
    img: Image,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = _BILINEAR,
    antialias: bool | None = True,
) -> Image:
    """A part of an image, resized."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def five_crop(img: Image, size: Any) -> tuple[Image, ...]:
    """The four corners and the middle."""
    height, width = _pair(size)
    _, h, w = get_dimensions(img)
    if width > w or height > h:
        raise ValueError(
            f"Requested crop size {(height, width)} is bigger than input size {(h, w)}"
        )
    corners = [(0, 0), (0, w - width), (h - height, 0), (h - height, w - width)]
    parts = [crop(img, *corner, height, width) for corner in corners]
    return (*parts, center_crop(img, [height, width]))


def ten_crop(img: Image, size: Any, vertical_flip: bool = False) -> tuple[Image, ...]:
    """The four corners and the middle of an image and of its mirror image."""
    mirrored = vflip(img) if vertical_flip else hflip(img)
    return five_crop(img, size) + five_crop(mirrored, size)


def hflip(img: Image) -> Image:
    """Left and right exchanged."""
    return (_colour if _is_tensor(img) else _pil).hflip(img)


def vflip(img: Image) -> Image:
    """Top and bottom exchanged."""
    return (_colour if _is_tensor(img) else _pil).vflip(img)


# --- maps ------------------------------------------------------------------------------------


def perspective(
    img: Image,
    startpoints: Any,
    endpoints: Any,
    interpolation: Any = _BILINEAR,
    fill: Any = None,
) -> Image:
    """The map that takes four start points to four end points."""
    coefficients = _geometry.perspective_coefficients(startpoints, endpoints)
    kernels = _tensor if _is_tensor(img) else _pil
    return kernels.perspective(img, coefficients, mode_of(interpolation).value, fill)


def _shears(shear: Any) -> list[float]:
    if isinstance(shear, numbers.Number):
        return [float(shear), 0.0]  # type: ignore[arg-type]
    if len(shear) not in (1, 2):
        raise ValueError(f"Shear should be a sequence containing two values. Got {shear}")
    return [shear[0], shear[0]] if len(shear) == 1 else list(shear)


def affine(
    img: Image,
    angle: float,
    translate: list[int],
    scale: float,
    shear: Any,
    interpolation: Any = _NEAREST,
    fill: Any = None,
    center: Any = None,
) -> Image:
    """A rotation, shift, scale and shear about the centre."""
    if len(translate) != 2:
        raise ValueError("Argument translate should be a sequence of length 2")
    if scale <= 0.0:
        raise ValueError("Argument scale should be positive")
    mode, shear = mode_of(interpolation).value, _shears(shear)
    _, height, width = get_dimensions(img)
    if not _is_tensor(img):
        about = [width * 0.5, height * 0.5] if center is None else center
        matrix = _geometry.inverse_affine(about, angle, translate, scale, shear)
        return _pil.affine(img, matrix, mode, fill)
    about = _from_middle(center, height, width)
    moved = [1.0 * t for t in translate]
    matrix = _geometry.inverse_affine(about, angle, moved, scale, shear)
    return _tensor.affine(img, matrix, mode, fill)


def _from_middle(center: Any, height: int, width: int) -> list[float]:
    if center is None:
        return [0.0, 0.0]
    if len(center) != 2:
        raise ValueError("Argument center should be a sequence of length 2")
    return [1.0 * (c - s * 0.5) for c, s in zip(center, (width, height), strict=True)]


def rotate(
    img: Image,
    angle: float,
    interpolation: Any = _NEAREST,
    expand: bool = False,
    center: Any = None,
    fill: Any = None,
) -> Image:
    """A rotation against the clock; ``expand`` makes room for the corners."""
    mode = mode_of(interpolation).value
    if not isinstance(angle, (int, float)):
        raise TypeError("Argument angle should be int or float")
    if not _is_tensor(img):
        return _pil.rotate(img, angle, mode, expand, center, fill)
    _, height, width = get_dimensions(img)
    about = _from_middle(center, height, width)
    matrix = _geometry.inverse_affine(about, -angle, [0.0, 0.0], 1.0, [0.0, 0.0])
    return _tensor.rotate(img, matrix, mode, expand, fill)


def elastic_transform(
    img: Image, displacement: Tensor, interpolation: Any = _BILINEAR, fill: Any = None
) -> Image:
    """An image read at places moved by a displacement (1, H, W, 2)."""
    if not isinstance(displacement, Tensor):
        raise TypeError("Argument displacement should be a Tensor")
    tensor = img if _is_tensor(img) else pil_to_tensor(img)
    shape = [1, *tensor.shape[-2:], 2]
    if list(displacement.shape) != shape:
        raise ValueError(
            f"Argument displacement shape should be {shape}, but given {displacement.shape}"
        )
    moved = _tensor.elastic(tensor, displacement, mode_of(interpolation).value, fill)
    return moved if _is_tensor(img) else to_pil_image(moved, mode=img.mode)


# --- colours ---------------------------------------------------------------------------------


def adjust_brightness(img: Image, brightness_factor: float) -> Image:
    """Pixels times a factor."""
    return (_colour if _is_tensor(img) else _pil).adjust_brightness(img, brightness_factor)


def adjust_contrast(img: Image, contrast_factor: float) -> Image:
    """Pixels farther from or nearer to the mean luminance."""
    return (_colour if _is_tensor(img) else _pil).adjust_contrast(img, contrast_factor)


def adjust_saturation(img: Image, saturation_factor: float) -> Image:
    """Pixels farther from or nearer to their luminance."""
    return (_colour if _is_tensor(img) else _pil).adjust_saturation(img, saturation_factor)


def adjust_hue(img: Image, hue_factor: float) -> Image:
    """Colours turned around the circle of hues, by up to half of it either way."""
    return (_colour if _is_tensor(img) else _pil).adjust_hue(img, hue_factor)


def adjust_gamma(img: Image, gamma: float, gain: float = 1) -> Image:
    """Pixels to a power."""
    return (_colour if _is_tensor(img) else _pil).adjust_gamma(img, gamma, gain)


def adjust_sharpness(img: Image, sharpness_factor: float) -> Image:
    """An image farther from or nearer to a slightly blurred one."""
    return (_colour if _is_tensor(img) else _pil).adjust_sharpness(img, sharpness_factor)


def invert(img: Image) -> Image:
    """The negative."""
    return (_colour if _is_tensor(img) else _pil).invert(img)


def posterize(img: Image, bits: int) -> Image:
    """The upper bits of each byte."""
    if not (0 <= bits <= 8):
        raise ValueError(f"The number if bits should be between 0 and 8. Got {bits}")
    return (_colour if _is_tensor(img) else _pil).posterize(img, bits)


def solarize(img: Image, threshold: float) -> Image:
    """The negative where pixels reach a threshold."""
    return (_colour if _is_tensor(img) else _pil).solarize(img, threshold)


def autocontrast(img: Image) -> Image:
    """Each channel stretched over the whole range."""
    return (_colour if _is_tensor(img) else _pil).autocontrast(img)


def equalize(img: Image) -> Image:
    """Each channel with an even histogram."""
    return (_colour if _is_tensor(img) else _pil).equalize(img)


def to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """A Pillow image in grey, of one channel or three equal ones."""
    if isinstance(img, Tensor):
        raise TypeError("Input should be PIL Image")
    return _pil.to_grayscale(img, num_output_channels)


def rgb_to_grayscale(img: Image, num_output_channels: int = 1) -> Image:
    """Luminance, in one channel or three equal ones."""
    if _is_tensor(img):
        return _colour.rgb_to_grayscale(img, num_output_channels)
    return _pil.to_grayscale(img, num_output_channels)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Tensor, inplace: bool = False) -> Tensor:
    """A rectangle overwritten by values."""
    if not isinstance(img, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(img)}")
    return _colour.erase(img, i, j, h, w, v, inplace)


def gaussian_blur(img: Image, kernel_size: Any, sigma: Any = None) -> Image:
    """A blur by a Gaussian, reflected at the edges."""
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if len(sizes) != 2 or any(n % 2 == 0 or n < 0 for n in sizes):
        raise ValueError(
            f"kernel_size should have odd and positive integers of length 2. Got {kernel_size}"
        )
    if sigma is None:
        sigma = [n * 0.15 + 0.35 for n in sizes]
    elif isinstance(sigma, (int, float)):
        sigma = [float(sigma)] * 2
    else:
        sigma = [sigma[0]] * 2 if len(sigma) == 1 else list(sigma)
    if any(s <= 0.0 for s in sigma):
        raise ValueError(f"sigma should have positive values. Got {sigma}")
    tensor = img if _is_tensor(img) else pil_to_tensor(img)
    blurred = _colour.gaussian_blur(tensor, sizes, sigma)
    return blurred if _is_tensor(img) else to_pil_image(blurred, mode=img.mode)
