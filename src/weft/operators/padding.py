"""Room around tensors, and pixels traded for channels."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft.core.dispatch import Op
from weft.core.shapes import ShapeDtype
from weft.core.tensor import Tensor
from weft.operators import api, shape_rules
from weft.operators.build import Sample, general, linear
from weft.operators.casting import as_image, clone_op, contiguous_format, number_for
from weft.operators.indexing import add_rows
from weft.operators.views import fail

# --- padding ---------------------------------------------------------------------------


def _pad_slices(shape: Any, pads: Any) -> tuple[list[slice], list[slice], list[int]]:
    """The offsets of the kept part of an input in it and in the result, and the result's shape."""
    source, target, sizes = [], [], []
    for n, (before, after) in zip(shape, pads, strict=True):
        source.append(slice(max(-before, 0), n - max(-after, 0)))
        start = max(before, 0)
        kept = n + min(before, 0) + min(after, 0)
        target.append(slice(start, start + kept))
        sizes.append(n + before + after)
    return source, target, sizes


def _pad(x: np.ndarray, pads: Any, value: Any) -> np.ndarray:
    source, target, sizes = _pad_slices(x.shape, pads)
    fill = number_for(value, x.dtype)
    # Memory of zeros costs less; -0.0 is none.
    zero = not value and not str(value).startswith("-")
    out = np.zeros(sizes, x.dtype) if zero else np.full(sizes, fill, x.dtype)
    out[tuple(target)] = x[tuple(source)]
    return out


def _unpad(g: Any, pads: Any) -> Any:
    return pad_op(g, pads=tuple((-a, -b) for a, b in pads), value=0)


pad_op: Op = general(
    "constant_pad_nd",
    _pad,
    _unpad,
    jvp=(lambda t, pads: pad_op(t, pads=pads, value=0),),
    layout="image",
    samples=lambda m: [
        Sample((m.real(2, 3),), {"pads": ((1, 0), (2, 3)), "value": 0}),
        Sample((m.real(4, 3),), {"pads": ((-1, 2), (0, -1)), "value": 1.5}),
    ],
    shape=lambda x, pads: tuple(n + a + b for n, (a, b) in zip(x.shape, pads, strict=True)),
    batch=lambda b: b.run(b.args[0], **{**b.attrs, "pads": ((0, 0), *b.attrs["pads"])}),
)


def _fold(x: np.ndarray, maps: Any, circular: bool = False) -> np.ndarray:
    for dim, index in maps:
        x = x.take(index, dim)
    return x


def _unfold(g: np.ndarray, shape: Any, maps: Any) -> np.ndarray:
    for dim, index in reversed(maps):
        moved = np.moveaxis(g, dim, 0)
        out = np.zeros((shape[dim], *moved.shape[1:]), g.dtype)
        width = math.prod(moved.shape[1:])  # which -1 can't infer without rows
        add_rows(out.reshape(shape[dim], width), index, moved.reshape(len(index), width))
        g = np.moveaxis(out, 0, dim)
    return g


# Padding with the input's own elements: along each padded dimension, a map of positions.
def _folded_shape(x: ShapeDtype, maps: Any) -> Any:
    shape = x.shape
    for dim, index in maps:
        shape = shape_rules.replaced(shape, dim, len(index))
    return shape


def _unfolded_shape(x: ShapeDtype, shape: Any, maps: Any) -> Any:
    found = x.shape
    for dim, _ in maps:
        found = shape_rules.replaced(found, dim, shape[dim])
    return found


pad_by_op = linear(
    "pad_by",
    _fold,
    lambda g, x_shape, maps: pad_by_back_op(g, shape=x_shape, maps=maps),
    layout="image",
    grad_name="PadBackward",
    ties=lambda attrs: not attrs.get("circular"),  # that is made of slices there
    samples=lambda m: [
        Sample(
            (m.real(2, 4, 3),),
            {"maps": ((1, np.array([1, 0, 1, 2, 3, 3])), (2, np.array([0, 0, 1, 2])))},
        )
    ],
    shape=_folded_shape,
)
pad_by_back_op: Op = linear(
    "pad_by_backward",
    _unfold,
    lambda g, maps: pad_by_op(g, maps=maps),
    samples=lambda m: [
        Sample((m.real(2, 6),), {"shape": (2, 4), "maps": ((1, np.array([1, 0, 1, 2, 3, 3])),)})
    ],
    shape=_unfolded_shape,
)


@functools.lru_cache(256)
def _pad_maps(shape: tuple[int, ...], given: tuple[int, ...], mode: str) -> tuple[Any, ...]:
    """The dimensions that are padded, with their maps: one object for equal calls."""
    maps = []
    for k in range(len(given) // 2):
        d = len(shape) - 1 - k
        before, after = given[2 * k : 2 * k + 2]
        if before or after:
            index = _pad_map(shape[d], before, after, mode)
            index.flags.writeable = False
            maps.append((d, index))
    return tuple(maps)


def _pad_map(size: int, before: int, after: int, mode: str) -> np.ndarray:
    if mode == "circular":  # what negative padding cuts off does not come round again
        kept = np.arange(max(-before, 0), size - max(-after, 0))
        return kept[np.arange(-max(before, 0), len(kept) + max(after, 0)) % len(kept)]
    places = np.arange(-before, size + after)
    if mode == "replicate":
        return places.clip(0, size - 1)
    places = np.abs(places)
    return np.where(places >= size, 2 * (size - 1) - places, places)


def _check_pads(shape: Any, given: tuple[int, ...], mode: str) -> None:
    rank, count = len(shape), len(given) // 2
    if count > rank:
        raise fail(
            RuntimeError,
            "Padding length should be less than or equal to two times the input dimension but "
            f"got padding length {len(given)} and input of dimension {rank}",
        )
    if not (count <= 3 and rank in (count + 1, count + 2)):
        raise fail(
            NotImplementedError,
            "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now: got "
            f"{len(given)} numbers for shape {list(shape)}",
        )
    # Circular padding is made of copies, which do not mind.
    if 0 in shape[rank - count - (mode != "circular") :]:
        raise fail(
            RuntimeError,
            f"Expected {count + 1}D or {count + 2}D (batch mode) tensor with possibly 0 batch "
            f"size and other non-zero dimensions for input, but got: {list(shape)}",
        )
    for k in range(count):
        size, (before, after) = shape[rank - 1 - k], given[2 * k : 2 * k + 2]
        if mode == "reflect" and (before >= size or after >= size):
            raise fail(
                RuntimeError,
                "Padding size should be less than the corresponding input dimension, but got: "
                f"padding ({before}, {after}) at dimension {rank - 1 - k} of input {list(shape)}",
            )
        if mode == "circular" and (before > size or after > size):
            raise fail(
                RuntimeError,
                "Padding value causes wrapping around more than once: padding "
                f"({before}, {after}) for size {size}",
            )
        if mode == "circular" and size + min(before, 0) + min(after, 0) < (before > 0 or after > 0):
            raise fail(
                RuntimeError,
                f"Negative padding ({before}, {after}) of size {size} leaves nothing to pad with",
            )
        if size + before + after < (0 if mode == "circular" else 1):
            raise fail(
                RuntimeError,
                f"input size {size} plus padding ({before}, {after}) resulted in a negative or "
                "zero output size",
            )


@api.under("nn.functional")
def pad(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Room around a tensor, last dimension first, filled with a value or its own elements.

    >>> x = torch.tensor([[1, 2], [3, 4]])
    >>> F.pad(x, (1, 2))
    tensor([[0, 1, 2, 0, 0],
            [0, 3, 4, 0, 0]])
    >>> F.pad(x, (0, 0, 1, 0), value=9)
    tensor([[9, 9],
            [1, 2],
            [3, 4]])
    """
    given = tuple(int(p) for p in pad)
    if len(given) % 2:
        raise fail(RuntimeError, "Padding length must be divisible by 2")
    if mode == "constant":
        return constant_pad_nd(input, given, 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise fail(NotImplementedError, f"Unrecognised padding mode {mode}")
    if value:
        raise fail(ValueError, f'Padding mode "{mode}" doesn\'t take in value argument')
    shape = input._a.shape
    _check_pads(shape, given, mode)
    maps = _pad_maps(tuple(shape), given, mode)
    if not maps:
        return input.clone()
    # PyTorch has no kernel for circular padding that keeps channels innermost.
    whole = input.contiguous() if mode == "circular" else input
    return pad_by_op(whole, maps=maps, circular=mode == "circular")


@api.top
def constant_pad_nd(input: Tensor, pad: Any, value: Any = 0) -> Tensor:
    """Room around a tensor, last dimension first, filled with a value."""
    given = tuple(int(p) for p in pad)
    shape = input._a.shape
    if len(given) % 2:
        raise fail(RuntimeError, f"Length of pad must be even but instead it equals {len(given)}")
    if len(given) > 2 * len(shape):
        raise fail(
            RuntimeError,
            "Length of pad should be no more than twice the number of dimensions of the input. "
            f"Pad length is {len(given)} while the input has {len(shape)} dimensions.",
        )
    pairs = [(given[i], given[i + 1]) for i in range(0, len(given), 2)]
    pads = ((0, 0),) * (len(shape) - len(pairs)) + tuple(reversed(pairs))
    for d, (n, (before, after)) in enumerate(zip(shape, pads, strict=True)):
        if n + before + after < 0 or n + min(before, 0) + min(after, 0) < 0:
            raise fail(
                RuntimeError,
                f"The input size {n}, plus negative padding {before} and {after} resulted in a "
                f"negative output size, which is invalid. Check dimension {d} of your input.",
            )
    return pad_op(input, pads=pads, value=value)


# --- pixels and channels ---------------------------------------------------------------


def _image(input: Tensor, name: str) -> tuple[int, ...]:
    if input._a.ndim < 3:
        raise fail(
            RuntimeError,
            f"{name} expects input to have at least 3 dimensions, but got input with "
            f"{input._a.ndim} dimension(s)",
        )
    return input._a.shape


@api.top
@api.no_view
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels rearranged into a finer grid of pixels."""
    *lead, channels, height, width = _image(input, "pixel_shuffle")
    r = upscale_factor
    if r <= 0 or channels % (r * r):
        raise fail(
            RuntimeError,
            "pixel_shuffle expects a positive upscale_factor, and its input's 'channel' "
            f"dimension to be divisible by its square, but {channels} is not divisible by {r}^2",
        )
    n = len(lead)
    split = input.reshape(*lead, channels // (r * r), r, r, height, width)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    rows = clone_op(split.permute(order), memory_format=contiguous_format)
    return as_image(rows.reshape(*lead, channels // (r * r), height * r, width * r), input)


@api.top
@api.no_view
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """A grid of pixels rearranged into channels of a coarser one."""
    *lead, channels, height, width = _image(input, "pixel_unshuffle")
    r = downscale_factor
    if r <= 0 or height % r or width % r:
        raise fail(
            RuntimeError,
            "pixel_unshuffle expects a positive downscale_factor that divides height and width, "
            f"but got {r} for {height} x {width}",
        )
    n = len(lead)
    split = input.reshape(*lead, channels, height // r, r, width // r, r)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    rows = clone_op(split.permute(order), memory_format=contiguous_format)
    return as_image(rows.reshape(*lead, channels * r * r, height // r, width // r), input)


@api.top
@api.no_view
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of several groups dealt out in turn."""
    shape = _image(input, "channel_shuffle")
    if groups <= 0 or shape[1] % groups:
        raise fail(
            RuntimeError,
            "Number of groups to divide channels in must be positive and divide the number of "
            f"channels, but got {groups} for {shape[1]}",
        )
    split = input.reshape(shape[0], groups, shape[1] // groups, *shape[2:])
    rows = clone_op(split.transpose(1, 2), memory_format=contiguous_format)
    return as_image(rows.reshape(shape), input)


for _function in (pixel_shuffle, pixel_unshuffle, channel_shuffle):
    api.under("nn.functional", _function)

api.top(channel_shuffle, name="native_channel_shuffle")
api.under("nn.functional", channel_shuffle, name="native_channel_shuffle")
