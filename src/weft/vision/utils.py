"""Grids of images, and boxes, masks and points drawn on them."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.io.atomic import replacing
from weft.vision._pillow import pillow

__all__ = [
    "draw_bounding_boxes", "draw_keypoints", "draw_segmentation_masks", "flow_to_image",
    "make_grid", "save_image",
]  # fmt: skip


def _scaled(x: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    low, high = value_range or (float(x.min()), float(x.max()))
    return (x.clamp(min=low, max=high) - low) / max(high - low, 1e-5)


@weft.no_grad()
def make_grid(
    tensor: Any,
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Images (N, C, H, W), or a list of them, in rows of one image.

    >>> import weft
    >>> make_grid(weft.zeros(10, 1, 4, 4), nrow=5).shape
    torch.Size([3, 14, 32])
    """
    if isinstance(tensor, list) and all(isinstance(t, Tensor) for t in tensor):
        tensor = weft.stack(tensor, dim=0)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"tensor or list of tensors expected, got {type(tensor)}")
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 3:
        tensor = (weft.cat((tensor,) * 3, 0) if tensor.size(0) == 1 else tensor).unsqueeze(0)
    if tensor.dim() == 4 and tensor.size(1) == 1:
        tensor = weft.cat((tensor,) * 3, 1)
    if normalize:
        if value_range is not None and not isinstance(value_range, tuple):
            raise TypeError("value_range has to be a tuple (min, max) if specified.")
        if scale_each:
            tensor = weft.stack([_scaled(image, value_range) for image in tensor])
        else:
            tensor = _scaled(tensor, value_range)
    if tensor.size(0) == 1:
        return tensor.squeeze(0)
    count = tensor.size(0)
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    height, width = tensor.size(2) + padding, tensor.size(3) + padding
    shape = (tensor.size(1), height * rows + padding, width * columns + padding)
    grid = tensor.new_full(shape, pad_value)
    for k in range(count):
        y, x = k // columns * height + padding, k % columns * width + padding
        grid[:, y : y + height - padding, x : x + width - padding].copy_(tensor[k])
    return grid


@weft.no_grad()
def save_image(tensor: Any, fp: Any, format: str | None = None, **kwargs: Any) -> None:
    """Save an image, or several as a grid; an old file is there until the new one is whole."""
    grid = make_grid(tensor, **kwargs)
    array = grid.mul(255).add_(0.5).clamp_(0, 255).permute(1, 2, 0).to(weft.uint8).numpy()
    image = pillow().fromarray(np.ascontiguousarray(array))
    if not isinstance(fp, (str, os.PathLike)):
        image.save(fp, format=format)
        return
    if format is None:
        ending = os.path.splitext(os.fspath(fp))[1].lower()
        pillow().init()
        if ending not in pillow().EXTENSION:
            raise ValueError(f"unknown file extension: {ending}")
        format = pillow().EXTENSION[ending]
    with replacing(fp) as file:
        image.save(file, format=format)


# --- drawing ---------------------------------------------------------------------------------


def _palette(count: int) -> list[tuple[int, int, int]]:
    primes = (2**25 - 1, 2**15 - 1, 2**21 - 1)
    return [tuple(i * p % 255 for p in primes) for i in range(count)]  # type: ignore[misc]


def _colours(colors: Any, count: int) -> list[tuple[int, ...]]:
    """One colour for each of some objects."""
    if colors is None:
        found: list[Any] = list(_palette(count))
    elif isinstance(colors, list):
        if len(colors) < count:
            raise ValueError(
                f"Number of colors must be equal or larger than the number of objects, but got "
                f"{len(colors)} < {count}."
            )
        found = colors
    elif isinstance(colors, (tuple, str)):
        found = [colors] * count
    else:
        raise ValueError("colors must be a tuple or a string, or a list thereof")
    named = pillow("ImageColor")
    return [named.getrgb(c) if isinstance(c, str) else tuple(c) for c in found]


def _canvas(image: Tensor) -> tuple[Tensor, bool]:
    """An image as bytes of three channels, and whether it was floats."""
    if not isinstance(image, Tensor):
        raise TypeError(f"Tensor expected, got {type(image)}")
    if image.dtype != weft.uint8 and not image.is_floating_point():
        raise ValueError(f"The image dtype must be uint8 or float, got {image.dtype}")
    if image.dim() != 3:
        raise ValueError("Pass individual images, not batches")
    if image.size(0) not in (1, 3):
        raise ValueError("Only grayscale and RGB images are supported")
    real = image.is_floating_point()
    data = image.mul(255.999).clamp(0, 255).to(weft.uint8) if real else image
    return (weft.cat((data,) * 3) if data.size(0) == 1 else data), real


def _finished(drawn: Any, real: bool, like: Tensor) -> Tensor:
    array = np.array(np.asarray(drawn).transpose(2, 0, 1), order="C")
    made = weft.from_numpy(array)
    return made.to(like.dtype) / 255 if real else made


@weft.no_grad()
def draw_bounding_boxes(
    image: Tensor,
    boxes: Tensor,
    labels: list[str | None] | None = None,
    colors: Any = None,
    fill: bool = False,
    width: int = 1,
    font: str | None = None,
    font_size: int | None = None,
    label_colors: Any = None,
    label_background_colors: Any = None,
    fill_labels: bool = False,
) -> Tensor:
    """Boxes (N, 4) as corners, drawn on an image with their labels."""
    data, real = _canvas(image)
    if (boxes[:, 0] > boxes[:, 2]).any() or (boxes[:, 1] > boxes[:, 3]).any():
        raise ValueError(
            "Boxes need to be in (xmin, ymin, xmax, ymax) format. Use torchvision.ops.box_convert "
            "to convert them"
        )
    count = boxes.shape[0]
    if count == 0:
        return image
    texts: list[str | None] = [None] * count if labels is None else labels
    if len(texts) != count:
        raise ValueError(
            f"The number of boxes ({count}) and labels ({len(texts)}) mismatch. Please specify "
            "labels for each box."
        )
    lines = _colours(colors, count)
    words = _colours(label_colors, count) if label_colors is not None else list(lines)
    canvas = pillow().fromarray(np.ascontiguousarray(data.permute(1, 2, 0).numpy()))
    pen = pillow("ImageDraw").Draw(canvas, "RGBA" if fill else None)
    letters = _font(font, font_size)
    behind = lines if label_background_colors is None else _colours(label_background_colors, count)
    for i, box in enumerate(boxes.to(weft.int64).tolist()):
        inside = (*lines[i], 100) if fill else None
        pen.rectangle(box, width=width, outline=lines[i], fill=inside)
        if texts[i] is None:
            continue
        margin = width + 1
        place = (box[0] + margin, box[1] + margin)
        if fill_labels or label_background_colors is not None:
            left, top, right, bottom = pen.textbbox(place, texts[i], font=letters)
            pen.rectangle((left - 4, top - 4, right + 4, bottom + 4), fill=behind[i])
            if label_colors is None:
                words[i] = (0, 0, 0)
        pen.text(place, texts[i], fill=words[i], font=letters)
    return _finished(canvas, real, image)


def _font(font: str | None, size: int | None) -> Any:
    fonts = pillow("ImageFont")
    if font is None:
        return fonts.load_default() if size is None else fonts.load_default(size)
    return fonts.truetype(font=font, size=size or 10)


@weft.no_grad()
def draw_segmentation_masks(
    image: Tensor, masks: Tensor, alpha: float = 0.8, colors: Any = None
) -> Tensor:
    """Masks (N, H, W) or (H, W) of booleans, laid over an image in colours."""
    if not isinstance(image, Tensor):
        raise TypeError(f"The image must be a tensor, got {type(image)}")
    if image.dtype != weft.uint8 and not image.is_floating_point():
        raise ValueError(f"The image dtype must be uint8 or float, got {image.dtype}")
    if image.dim() != 3 or image.size(0) != 3:
        raise ValueError("Pass an RGB image. Other Image formats are not supported")
    masks = masks[None] if masks.ndim == 2 else masks
    if masks.ndim != 3:
        raise ValueError("masks must be of shape (H, W) or (num_masks, H, W)")
    if masks.dtype != weft.bool:
        raise ValueError(f"The masks must be of dtype bool. Got {masks.dtype}")
    if masks.shape[-2:] != image.shape[-2:]:
        raise ValueError("The image and the masks must have the same height and width")
    count = masks.size(0)
    if count == 0:
        return image
    drawn = image.clone()
    for mask, colour in zip(masks, _colours(colors, count), strict=False):
        values = weft.tensor(colour, dtype=weft.uint8)
        values = values / 255 if image.is_floating_point() else values
        drawn[:, mask] = values.to(image.dtype)[:, None]
    drawn[:, masks.sum(dim=0) > 1] = 0  # where masks overlap
    return (image * (1 - alpha) + drawn * alpha).to(image.dtype)


@weft.no_grad()
def draw_keypoints(
    image: Tensor,
    keypoints: Tensor,
    connectivity: list[tuple[int, int]] | None = None,
    colors: Any = None,
    radius: int = 2,
    width: int = 3,
    visibility: Tensor | None = None,
) -> Tensor:
    """Points (objects, points, 2), drawn on an image and joined as ``connectivity`` says."""
    data, real = _canvas(image)
    if keypoints.ndim != 3:
        raise ValueError("keypoints must be of shape (num_instances, K, 2)")
    shown = weft.ones(keypoints.shape[:-1]) if visibility is None else visibility
    shown = shown.squeeze(-1) if shown.ndim == 3 else shown
    if tuple(shown.shape) != tuple(keypoints.shape[:-1]):
        raise ValueError("keypoints and visibility must have the same dimensionality")
    canvas = pillow().fromarray(np.ascontiguousarray(data.permute(1, 2, 0).numpy()))
    pen = pillow("ImageDraw").Draw(canvas)
    named = pillow("ImageColor")
    colour = named.getrgb(colors) if isinstance(colors, str) else colors
    seen = shown.bool().tolist()
    for points, visible in zip(keypoints.to(weft.int64).tolist(), seen, strict=True):
        for (x, y), is_seen in zip(points, visible, strict=True):
            if is_seen:
                pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
        for a, b in connectivity or ():
            if visible[a] and visible[b]:
                pen.line((*points[a], *points[b]), width=width)
    return _finished(canvas, real, image)


@weft.no_grad()
def flow_to_image(flow: Tensor) -> Tensor:
    """An optical flow (2, H, W) or (N, 2, H, W) in colours: direction as hue."""
    if flow.dtype != weft.float:
        raise ValueError(f"Flow should be of dtype torch.float, got {flow.dtype}.")
    if flow.ndim not in (3, 4) or flow.shape[-3] != 2:
        raise ValueError(
            f"Input flow should have shape (2, H, W) or (N, 2, H, W), got {flow.shape}"
        )
    batch = flow[None] if flow.ndim == 3 else flow
    length = (batch**2).sum(dim=1).sqrt()
    batch = batch / (length.max() + weft.finfo(flow.dtype).eps)
    images = _flow_colours(batch)
    return images[0] if flow.ndim == 3 else images


def _flow_colours(flow: Tensor) -> Tensor:
    wheel = _colour_wheel() / 255
    count = len(wheel)
    x, y = flow.unbind(1)
    radius = (flow**2).sum(dim=1).sqrt()[..., None]
    place = (weft.atan2(-y, -x) / math.pi + 1) / 2 * (count - 1)
    low = place.floor().long()
    share = (place - low)[..., None]
    colour = (1 - share) * wheel[low] + share * wheel[(low + 1) % count]
    return weft.floor(255 * (1 - radius * (1 - colour))).to(weft.uint8).permute(0, 3, 1, 2)


def _colour_wheel() -> Tensor:
    """Hues in the unequal steps of the Middlebury flow colours."""
    steps = (
        (15, 0, 1, 1),
        (6, 1, 0, -1),
        (4, 1, 2, 1),
        (11, 2, 1, -1),
        (13, 2, 0, 1),
        (6, 0, 2, -1),
    )
    wheel = np.zeros((sum(s[0] for s in steps), 3))
    at = 0
    for count, full, moving, sign in steps:
        ramp = np.floor(255 * np.arange(count) / count)
        wheel[at : at + count, full] = 255
        wheel[at : at + count, moving] = ramp if sign > 0 else 255 - ramp
        at += count
    return weft.from_numpy(wheel.astype(np.float32))
