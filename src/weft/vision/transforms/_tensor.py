"""Transforms of image tensors (..., C, H, W)."""

from __future__ import annotations

import math
from typing import Any

import weft
import weft.nn.functional as F
from weft.core.tensor import Tensor
from weft.vision.transforms import _geometry

_GRAY = (0.2989, 0.587, 0.114)


def bound(dtype: Any) -> float:
    """The largest value of a pixel: one for floats, the type's maximum for integers."""
    if dtype.is_floating_point:
        return 1.0
    if dtype == weft.bool:
        return 1
    return weft.iinfo(dtype).max


def need_image(img: Any) -> None:
    """Refuse what is not an image tensor."""
    if not isinstance(img, Tensor) or img.ndim < 2:
        raise TypeError("Tensor is not a torch image.")


def channels(img: Tensor) -> int:
    """The number of channels."""
    return 1 if img.ndim == 2 else int(img.shape[-3])


def _need_colour(img: Tensor, permitted: tuple[int, ...] = (1, 3)) -> None:
    found = channels(img)
    if found not in permitted:
        raise TypeError(
            f"Input image tensor permitted channel values are {list(permitted)}, but found {found}"
        )


def _as_batch(img: Tensor, kind: Any = None) -> tuple[Tensor, Any]:
    """(N, C, H, W) in a float type, and how to come back."""
    shape, dtype = tuple(img.shape), img.dtype
    batch = img.reshape(-1, *shape[-3:]) if img.ndim >= 3 else img[None, None]
    if kind is None:
        kind = dtype if dtype in (weft.float32, weft.float64) else weft.float32
    if dtype != kind:
        batch = batch.to(kind)

    def back(result: Tensor) -> Tensor:
        out = (*shape[:-3], *result.shape[-3:]) if len(shape) >= 3 else result.shape[-2:]
        result = result.reshape(out)
        if dtype == kind:
            return result
        if not dtype.is_floating_point:
            result = weft.round(result)
        return result.to(dtype)

    return batch, back


# --- types ----------------------------------------------------------------------------------


def convert_dtype(image: Tensor, dtype: Any, v2: bool = False) -> Tensor:
    """Pixels in another type, scaled to its range."""
    if image.dtype == dtype:
        return image
    from_float, to_float = image.is_floating_point(), dtype.is_floating_point
    if from_float and to_float:
        return image.to(dtype)
    if from_float:
        unsafe = image.dtype == weft.float32 and dtype in (weft.int32, weft.int64)
        if unsafe or (image.dtype == weft.float64 and dtype == weft.int64):
            raise RuntimeError(
                f"The cast from {image.dtype} to {dtype} cannot be performed safely."
            )
        if v2:
            return image.mul(bound(dtype) + 1.0 - 1e-3).to(dtype)
        return (image * (bound(dtype) + 1.0 - 1e-3)).to(dtype)
    if to_float:
        return image.to(dtype) / bound(image.dtype)
    before, after = _bits(image.dtype), _bits(dtype)
    if before > after:
        return (
            (image // 2 ** (before - after)).to(dtype)
            if not v2
            else (image.bitwise_right_shift(before - after).to(dtype))
        )
    if v2:
        return image.to(dtype).bitwise_left_shift_(after - before)
    return image.to(dtype) * int((bound(dtype) + 1) // (bound(image.dtype) + 1))


def _bits(dtype: Any) -> int:
    return int(math.log2(bound(dtype) + 1))


def normalize(tensor: Tensor, mean: Any, std: Any, inplace: bool = False) -> Tensor:
    """Channels less their means, by their deviations."""
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.ndim < 3:
        raise ValueError(
            "Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = "
            f"{tensor.size()}"
        )
    mean = weft.as_tensor(mean, dtype=tensor.dtype)
    std = weft.as_tensor(std, dtype=tensor.dtype)
    if (std == 0).any():
        raise ValueError(
            f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by "
            "zero."
        )
    mean = mean.view(-1, 1, 1) if mean.ndim == 1 else mean
    std = std.view(-1, 1, 1) if std.ndim == 1 else std
    if inplace:
        return tensor.sub_(mean).div_(std)
    return (tensor - mean) / std


# --- geometry -------------------------------------------------------------------------------


def crop(img: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """A part of an image; pixels outside it are zero."""
    need_image(img)
    h, w = img.shape[-2:]
    right, bottom = left + width, top + height
    inside = img[..., max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    if left >= 0 and top >= 0 and right <= w and bottom <= h:
        return inside
    padding = [
        max(min(right, 0) - left, 0),
        max(right - max(w, left), 0),
        max(min(bottom, 0) - top, 0),
        max(bottom - max(h, top), 0),
    ]
    return F.pad(inside, padding)


_PAD_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


def pad(img: Tensor, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Tensor:
    """Pixels added at the left, top, right and bottom."""
    need_image(img)
    if padding_mode not in (*_PAD_MODES, "symmetric"):
        raise ValueError(
            "Padding mode should be either constant, edge, reflect or symmetric, got "
            f"{padding_mode!r}"
        )
    left, top, right, bottom = _geometry.sides(padding)
    if padding_mode == "constant":
        if isinstance(fill, (tuple, list)):
            return _pad_colours(img, (left, top, right, bottom), fill)
        return F.pad(img, [left, right, top, bottom], value=float(fill or 0))
    if min(left, top, right, bottom) < 0:  # crops, then pads
        img = crop_sides(img, min(left, 0), min(top, 0), min(right, 0), min(bottom, 0))
        left, top, right, bottom = (max(n, 0) for n in (left, top, right, bottom))
    if padding_mode == "symmetric":
        return _pad_symmetric(img, left, top, right, bottom)
    batch = img.reshape(-1, *img.shape[-3:]) if img.ndim > 2 else img[None, None]
    kind = img.dtype
    if not kind.is_floating_point:
        batch = batch.to(weft.float64 if kind == weft.int64 else weft.float32)
    padded = F.pad(batch, [left, right, top, bottom], mode=_PAD_MODES[padding_mode])
    return padded.to(kind).reshape(*img.shape[:-2], *padded.shape[-2:])


def crop_sides(img: Tensor, left: int, top: int, right: int, bottom: int) -> Tensor:
    """Negative padding: pixels taken away."""
    h, w = img.shape[-2:]
    return img[..., -top : h + bottom, -left : w + right]


def _pad_colours(img: Tensor, padding: tuple[int, ...], fill: Any) -> Tensor:
    left, top, right, bottom = padding
    if len(fill) == 1:
        return F.pad(img, [left, right, top, bottom], value=float(fill[0]))
    h, w = img.shape[-2:]
    colour = weft.tensor(fill, dtype=img.dtype).view(-1, 1, 1)
    shape = (*img.shape[:-2], h + top + bottom, w + left + right)
    result = colour.expand(shape).clone()
    y, x = max(top, 0), max(left, 0)
    inside = crop_sides(img, min(left, 0), min(top, 0), min(right, 0), min(bottom, 0))
    result[..., y : y + inside.shape[-2], x : x + inside.shape[-1]] = inside
    return result


def _pad_symmetric(img: Tensor, left: int, top: int, right: int, bottom: int) -> Tensor:
    h, w = img.shape[-2:]
    columns = [*range(left - 1, -1, -1), *range(w), *range(w - 1, w - 1 - right, -1)]
    rows = [*range(top - 1, -1, -1), *range(h), *range(h - 1, h - 1 - bottom, -1)]
    y, x = weft.tensor(rows), weft.tensor(columns)
    return img[..., y[:, None], x[None, :]]


def resize(
    img: Tensor, size: tuple[int, int], mode: str, antialias: bool = True, native: bool = False
) -> Tensor:
    """An image of another size; ``native`` computes bytes as bytes."""
    need_image(img)
    if tuple(img.shape[-2:]) == tuple(size):
        return img
    if mode not in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        raise ValueError(
            f"interpolation mode {mode!r} is for Pillow images; tensors have nearest, "
            "nearest-exact, bilinear and bicubic"
        )
    smooth = mode in ("bilinear", "bicubic")
    antialias = bool(antialias) and smooth
    as_is = native and img.dtype == weft.uint8
    if native and mode == "nearest":
        as_is = img.dtype == weft.uint8
    batch, back = _as_batch(img, weft.uint8 if as_is else None)
    align = False if smooth else None
    result = F.interpolate(batch, list(size), mode=mode, align_corners=align, antialias=antialias)
    if mode == "bicubic" and img.dtype == weft.uint8 and not as_is:
        result = result.clamp(0, 255)
    return back(result)


def _sampled(img: Tensor, grid: Tensor, mode: str, fill: Any) -> Tensor:
    """An image read at the points of a grid; outside it is the fill colour."""
    batch, back = _as_batch(img, grid.dtype if not img.is_floating_point() else img.dtype)
    if not isinstance(fill, (list, tuple, type(None))):
        fill = [float(fill)]
    if fill is not None and len(fill) > 1 and len(fill) != img.shape[-3]:
        raise ValueError(
            "The number of elements in 'fill' cannot broadcast to match the number of channels of "
            f"the image ({len(fill)} != {img.shape[-3]})"
        )
    if batch.shape[0] > 1:
        grid = grid.expand(batch.shape[0], -1, -1, -1)
    if fill is not None:
        batch = weft.cat((batch, weft.ones_like(batch[:, :1])), dim=1)
    grid = grid.to(batch.dtype)
    result = F.grid_sample(batch, grid, mode=mode, padding_mode="zeros", align_corners=False)
    if fill is not None:
        mask, result = result[:, -1:], result[:, :-1]
        colour = weft.tensor(fill, dtype=result.dtype).view(1, -1, 1, 1)
        if mode == "nearest":
            result = weft.where(mask < 0.5, colour.expand_as(result), result)
        else:
            result = result * mask + (1.0 - mask) * colour
    return back(result)


def _need_sampling(mode: str) -> None:
    if mode not in ("nearest", "bilinear"):
        raise ValueError(f"Interpolation mode '{mode}' is unsupported with Tensor input")


def _affine_grid(matrix: list[float], size: tuple[int, int], out: tuple[int, int]) -> Tensor:
    """For each pixel of the result its place in the input, in grid_sample's coordinates."""
    (h, w), (oh, ow) = size, out
    theta = weft.tensor(matrix, dtype=weft.float32).reshape(1, 2, 3)
    base = weft.empty(1, oh, ow, 3)
    base[..., 0].copy_(weft.linspace(-ow * 0.5 + 0.5, ow * 0.5 - 0.5, steps=ow))
    base[..., 1].copy_(weft.linspace(-oh * 0.5 + 0.5, oh * 0.5 - 0.5, steps=oh).unsqueeze(-1))
    base[..., 2].fill_(1)
    scaled = theta.transpose(1, 2) / weft.tensor([0.5 * w, 0.5 * h])
    return base.view(1, oh * ow, 3).bmm(scaled).view(1, oh, ow, 2)


def affine(img: Tensor, matrix: list[float], mode: str = "nearest", fill: Any = None) -> Tensor:
    """An affine map about the image's centre, given from result to input."""
    need_image(img)
    _need_sampling(mode)
    size = (int(img.shape[-2]), int(img.shape[-1]))
    return _sampled(img, _affine_grid(matrix, size, size), mode, fill)


def _expanded_size(matrix: list[float], h: int, w: int) -> tuple[int, int]:
    corners = weft.tensor(
        [[-0.5 * w, -0.5 * h, 1.0], [-0.5 * w, 0.5 * h, 1.0], [0.5 * w, 0.5 * h, 1.0],
         [0.5 * w, -0.5 * h, 1.0]]
    )  # fmt: skip
    theta = weft.tensor(matrix, dtype=weft.float32).view(2, 3)
    places = weft.matmul(corners, theta.T)
    low, high = places.min(dim=0)[0], places.max(dim=0)[0]
    half = weft.tensor((w * 0.5, h * 0.5))
    low, high = low + half, high + half
    # Rounding must not grow an image that is only turned by right angles.
    tolerance = 1e-4
    high = weft.ceil((high / tolerance).trunc_().mul_(tolerance))
    low = weft.floor((low / tolerance).trunc_().mul_(tolerance))
    size = high - low
    return int(size[1]), int(size[0])


def rotate(
    img: Tensor, matrix: list[float], mode: str = "nearest", expand: bool = False, fill: Any = None
) -> Tensor:
    """A rotation, given as the affine map from result to input."""
    need_image(img)
    _need_sampling(mode)
    size = (int(img.shape[-2]), int(img.shape[-1]))
    out = _expanded_size(matrix, *size) if expand else size
    return _sampled(img, _affine_grid(matrix, size, out), mode, fill)


def perspective(
    img: Tensor, coefficients: list[float], mode: str = "bilinear", fill: Any = None
) -> Tensor:
    """A perspective map, given by eight numbers from result to input."""
    need_image(img)
    _need_sampling(mode)
    oh, ow = img.shape[-2:]
    a, b, c, d, e, f, g, h = coefficients
    kind = img.dtype if img.is_floating_point() else weft.float32
    theta1 = weft.tensor([[[a, b, c], [d, e, f]]], dtype=kind)
    theta2 = weft.tensor([[[g, h, 1.0], [g, h, 1.0]]], dtype=kind)
    base = weft.empty(1, oh, ow, 3, dtype=kind)
    base[..., 0].copy_(weft.linspace(0.5, ow - 0.5, steps=ow, dtype=kind))
    base[..., 1].copy_(weft.linspace(0.5, oh - 0.5, steps=oh, dtype=kind).unsqueeze(-1))
    base[..., 2].fill_(1)
    scaled = theta1.transpose(1, 2) / weft.tensor([0.5 * ow, 0.5 * oh], dtype=kind)
    above = base.view(1, oh * ow, 3).bmm(scaled)
    below = base.view(1, oh * ow, 3).bmm(theta2.transpose(1, 2))
    grid = (above / below - 1.0).view(1, oh, ow, 2)
    return _sampled(img, grid, mode, fill)


def elastic(img: Tensor, displacement: Tensor, mode: str = "bilinear", fill: Any = None) -> Tensor:
    """An image read at places moved by a displacement (1, H, W, 2)."""
    need_image(img)
    _need_sampling(mode)
    h, w = (int(n) for n in img.shape[-2:])
    rows = weft.linspace((-h + 1) / h, (h - 1) / h, h)
    columns = weft.linspace((-w + 1) / w, (w - 1) / w, w)
    y, x = weft.meshgrid(rows, columns, indexing="ij")
    grid = weft.stack([x, y], -1).unsqueeze(0) + displacement
    return _sampled(img, grid, mode, fill)
