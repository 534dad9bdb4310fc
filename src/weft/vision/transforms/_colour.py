"""Transforms of the colours of image tensors (..., C, H, W)."""

from __future__ import annotations

from typing import Any

import weft
import weft.nn.functional as F
from weft.core.tensor import Tensor
from weft.vision.transforms._tensor import (
    _GRAY,
    _as_batch,
    _need_colour,
    bound,
    channels,
    need_image,
)


def hflip(img: Tensor) -> Tensor:
    """Left and right exchanged."""
    need_image(img)
    return img.flip(-1)


def vflip(img: Tensor) -> Tensor:
    """Top and bottom exchanged."""
    need_image(img)
    return img.flip(-2)


def invert(img: Tensor) -> Tensor:
    """The negative."""
    need_image(img)
    _need_colour(img)
    return bound(img.dtype) - img


def posterize(img: Tensor, bits: int) -> Tensor:
    """The upper bits of each byte."""
    need_image(img)
    if img.dtype != weft.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    _need_colour(img)
    return img & -int(2 ** (8 - bits)) % 256


def solarize(img: Tensor, threshold: float) -> Tensor:
    """The negative where pixels reach a threshold."""
    need_image(img)
    _need_colour(img)
    if threshold > bound(img.dtype):
        raise TypeError("Threshold should be less than bound of img.")
    return weft.where(img >= threshold, invert(img), img)


def rgb_to_grayscale(img: Tensor, num_output_channels: int = 1) -> Tensor:
    """Luminance, in one channel or three equal ones."""
    need_image(img)
    if img.ndim < 3:
        raise TypeError(
            f"Input image tensor should have at least 3 dimensions, but found {img.ndim}"
        )
    _need_colour(img)
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    gray = img.clone()
    if channels(img) == 3:
        r, g, b = img.unbind(dim=-3)
        gray = (_GRAY[0] * r + _GRAY[1] * g + _GRAY[2] * b).to(img.dtype).unsqueeze(dim=-3)
    if num_output_channels == 3:
        return gray.expand(*img.shape[:-3], 3, *img.shape[-2:])
    return gray


def _blend(one: Tensor, two: Any, ratio: float) -> Tensor:
    mixed = ratio * one + (1.0 - ratio) * two
    return mixed.clamp(0, bound(one.dtype)).to(one.dtype)


def adjust_brightness(img: Tensor, brightness_factor: float) -> Tensor:
    """Pixels times a factor."""
    if brightness_factor < 0:
        raise ValueError(f"brightness_factor ({brightness_factor}) is not non-negative.")
    need_image(img)
    _need_colour(img)
    return _blend(img, weft.zeros_like(img), brightness_factor)


def adjust_contrast(img: Tensor, contrast_factor: float) -> Tensor:
    """Pixels farther from or nearer to the mean luminance."""
    if contrast_factor < 0:
        raise ValueError(f"contrast_factor ({contrast_factor}) is not non-negative.")
    need_image(img)
    _need_colour(img)
    kind = img.dtype if img.is_floating_point() else weft.float32
    gray = rgb_to_grayscale(img) if channels(img) == 3 else img
    mean = gray.to(kind).mean(dim=(-3, -2, -1), keepdim=True)
    return _blend(img, mean, contrast_factor)


def adjust_saturation(img: Tensor, saturation_factor: float) -> Tensor:
    """Pixels farther from or nearer to their luminance."""
    if saturation_factor < 0:
        raise ValueError(f"saturation_factor ({saturation_factor}) is not non-negative.")
    need_image(img)
    _need_colour(img)
    if channels(img) == 1:
        return img
    return _blend(img, rgb_to_grayscale(img), saturation_factor)


def adjust_gamma(img: Tensor, gamma: float, gain: float = 1) -> Tensor:
    """Pixels to a power."""
    need_image(img)
    _need_colour(img)
    if gamma < 0:
        raise ValueError("Gamma should be a non-negative real number")
    kind = img.dtype
    real = img if img.is_floating_point() else img.to(weft.float32) / bound(kind)
    result = (gain * real**gamma).clamp(0, 1)
    if kind.is_floating_point:
        return result
    return (result * (bound(kind) + 1.0 - 1e-3)).to(kind)


def adjust_hue(img: Tensor, hue_factor: float) -> Tensor:
    """Colours turned around the circle of hues, by up to half of it either way."""
    if not (-0.5 <= hue_factor <= 0.5):
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    need_image(img)
    _need_colour(img)
    if channels(img) == 1 or img.numel() == 0:
        return img
    kind = img.dtype
    real = img if kind.is_floating_point else img.to(weft.float32) / bound(kind)
    h, s, v = _rgb_to_hsv(real)
    turned = _hsv_to_rgb((h + hue_factor) % 1.0, s, v)
    if kind.is_floating_point:
        return turned
    return (turned * (bound(kind) + 1.0 - 1e-3)).to(kind)


def _rgb_to_hsv(img: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r, g, b = img.unbind(dim=-3)
    high, low = img.amax(dim=-3), img.amin(dim=-3)
    flat = high == low
    spread = high - low
    one = weft.ones_like(high)
    s = spread / weft.where(flat, one, high)
    divisor = weft.where(flat, one, spread)
    rc, gc, bc = (high - r) / divisor, (high - g) / divisor, (high - b) / divisor
    is_r, is_g = high == r, high == g
    hr = is_r * (bc - gc)
    hg = (is_g & ~is_r) * (2.0 + rc - bc)
    hb = (~is_g & ~is_r) * (4.0 + gc - rc)
    return weft.fmod((hr + hg + hb) / 6.0 + 1.0, 1.0), s, high


def _hsv_to_rgb(h: Tensor, s: Tensor, v: Tensor) -> Tensor:
    sixth = weft.floor(h * 6.0)
    f = h * 6.0 - sixth
    i = sixth.to(weft.int32) % 6
    p = (v * (1.0 - s)).clamp(0.0, 1.0)
    q = (v * (1.0 - s * f)).clamp(0.0, 1.0)
    t = (v * (1.0 - s * (1.0 - f))).clamp(0.0, 1.0)
    mask = i.unsqueeze(dim=-3) == weft.arange(6).view(-1, 1, 1)
    red = weft.stack((v, q, p, p, t, v), dim=-3)
    green = weft.stack((t, v, v, q, p, p), dim=-3)
    blue = weft.stack((p, p, t, v, v, q), dim=-3)
    columns = [(mask * part).sum(dim=-3) for part in (red, green, blue)]
    return weft.stack(columns, dim=-3).to(h.dtype)


def gaussian_kernel(size: int, sigma: float, dtype: Any) -> Tensor:
    """The weights of a blur along one axis."""
    half = (size - 1) * 0.5
    x = weft.linspace(-half, half, steps=size, dtype=dtype)
    weights = weft.exp(-0.5 * (x / sigma).pow(2))
    return weights / weights.sum()


def gaussian_blur(img: Tensor, kernel_size: list[int], sigma: list[float]) -> Tensor:
    """A blur by a Gaussian, reflected at the edges."""
    need_image(img)
    batch, back = _as_batch(img, img.dtype if img.is_floating_point() else weft.float32)
    across = gaussian_kernel(kernel_size[0], sigma[0], batch.dtype)
    down = gaussian_kernel(kernel_size[1], sigma[1], batch.dtype)
    count = batch.shape[-3]
    kernel = (down[:, None] * across[None, :]).expand(count, 1, len(down), len(across))
    left, top = kernel_size[0] // 2, kernel_size[1] // 2
    right, bottom = kernel_size[0] - 1 - left, kernel_size[1] - 1 - top
    padded = F.pad(batch, [left, right, top, bottom], mode="reflect")
    return back(F.conv2d(padded, kernel, groups=count))


def adjust_sharpness(img: Tensor, sharpness_factor: float) -> Tensor:
    """An image farther from or nearer to a slightly blurred one."""
    if sharpness_factor < 0:
        raise ValueError(f"sharpness_factor ({sharpness_factor}) is not non-negative.")
    need_image(img)
    _need_colour(img)
    if img.shape[-1] <= 2 or img.shape[-2] <= 2:
        return img
    kind = img.dtype if img.is_floating_point() else weft.float32
    kernel = weft.ones((3, 3), dtype=kind)
    kernel[1, 1] = 5.0
    count = int(img.shape[-3])
    kernel = (kernel / kernel.sum()).expand(count, 1, 3, 3)
    batch, back = _as_batch(img, kind)
    inside = back(F.conv2d(batch, kernel, groups=count))
    blurred = img.clone()
    blurred[..., 1:-1, 1:-1] = inside
    return _blend(img, blurred, sharpness_factor)


def autocontrast(img: Tensor, divide: bool = False) -> Tensor:
    """Each channel stretched over the whole range; the two versions round differently."""
    need_image(img)
    _need_colour(img)
    most = bound(img.dtype)
    kind = img.dtype if img.is_floating_point() else weft.float32
    low = img.amin(dim=(-2, -1), keepdim=True).to(kind)
    high = img.amax(dim=(-2, -1), keepdim=True).to(kind)
    flat = high == low
    span = high - low
    scale = span * (1.0 / most) if divide else span.reciprocal() * most
    low = weft.where(flat, weft.zeros_like(low), low)
    scale = weft.where(flat, weft.ones_like(scale), scale)
    stretched = (img - low) / scale if divide else (img - low) * scale
    return stretched.clamp(0, most).to(img.dtype)


def _equalize_plane(img: Tensor) -> Tensor:
    histogram = weft.bincount(img.reshape(-1).to(weft.int64), minlength=256)
    filled = histogram[histogram != 0]
    step = weft.div(filled[:-1].sum(), 255, rounding_mode="floor")
    if step == 0:
        return img
    table = weft.div(weft.cumsum(histogram, 0) + step // 2, step, rounding_mode="floor")
    table = F.pad(table, [1, 0])[:-1].clamp(0, 255)
    return table[img.to(weft.int64)].to(weft.uint8)


def equalize(img: Tensor) -> Tensor:
    """Each channel with an even histogram."""
    need_image(img)
    if img.dtype != weft.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    if img.ndim >= 3:
        _need_colour(img)
    if img.numel() == 0:
        return img
    planes = img.reshape(-1, *img.shape[-2:])
    return weft.stack([_equalize_plane(plane) for plane in planes]).reshape(img.shape)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Tensor, inplace: bool = False) -> Tensor:
    """A rectangle overwritten."""
    need_image(img)
    result = img if inplace else img.clone()
    result[..., i : i + h, j : j + w] = v
    return result
