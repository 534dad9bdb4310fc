"""Tensors that know what they are: images, videos, masks, boxes and points.

>>> import weft
>>> from weft.vision import tv_tensors
>>> boxes = tv_tensors.BoundingBoxes([[1, 2, 3, 4]], format="XYXY", canvas_size=(10, 10))
>>> type(boxes + 1) is weft.Tensor  # an op gives a plain tensor; a transform keeps the class
True
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Any

import weft
from weft.core.overrides import DisableTorchFunctionSubclass, switch_on
from weft.core.tensor import Tensor
from weft.vision._pillow import is_pillow

__all__ = [
    "BoundingBoxFormat", "BoundingBoxes", "Image", "KeyPoints", "Mask", "TVTensor", "Video",
    "is_rotated_bounding_format", "set_return_type", "wrap",
]  # fmt: skip

switch_on()  # subclasses of Tensor in weft's own modules do not by themselves
_keeps_class = [False]
# These give the same thing again, so it stays what it is.
_KEEPING = ("clone", "to", "detach", "requires_grad_")


class TVTensor(Tensor):
    """What all kinds share."""

    _known: tuple[str, ...] = ()

    @staticmethod
    def _to_tensor(data: Any, dtype: Any, device: Any, requires_grad: bool | None) -> Tensor:
        if requires_grad is None:
            requires_grad = data.requires_grad if isinstance(data, Tensor) else False
        return weft.as_tensor(data, dtype=dtype, device=device).requires_grad_(requires_grad)

    @classmethod
    def _kept(cls, output: Any, source: Any) -> Any:
        """A result as this class, with what the source knows."""
        if isinstance(output, Tensor):
            made = output if isinstance(output, cls) else output.as_subclass(cls)
            for name in cls._known:
                setattr(made, name, getattr(source, name))
            return made
        if isinstance(output, (tuple, list)):
            return type(output)(cls._kept(part, source) for part in output)
        return output

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if not all(issubclass(cls, kind) for kind in types):
            return NotImplemented
        with DisableTorchFunctionSubclass():
            output = func(*args, **kwargs or {})
        source = next((a for a in args if isinstance(a, cls)), None)
        first = len(args) > 0 and isinstance(args[0], cls)
        if source is not None:
            if _keeps_class[0] or (getattr(func, "__name__", "") in _KEEPING and first):
                return cls._kept(output, source)
        if isinstance(output, cls) and not _keeps_class[0]:
            return output.as_subclass(Tensor)
        return output

    def _described(self, **known: Any) -> str:
        text = repr(self.as_subclass(Tensor)).replace("tensor", type(self).__name__, 1)
        if not known:
            return text
        return text[:-1] + ", " + ", ".join(f"{k}={v}" for k, v in known.items()) + ")"

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._described(**{name: getattr(self, name) for name in self._known})

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        with DisableTorchFunctionSubclass():
            plain = self.detach().clone().requires_grad_(self.requires_grad)
        return type(self)._kept(plain, self)


class Image(TVTensor):
    """Images (..., C, H, W); a Pillow image is converted."""

    def __new__(
        cls,
        data: Any,
        *,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool | None = None,
    ) -> Any:
        if is_pillow(data):
            from weft.vision.transforms.functional import pil_to_tensor

            data = pil_to_tensor(data)
        tensor = cls._to_tensor(data, dtype, device, requires_grad)
        if tensor.ndim < 2:
            raise ValueError(f"an image has at least 2 dimensions, got {tensor.ndim}")
        if tensor.ndim == 2:
            tensor = tensor.unsqueeze(0)
        return tensor.as_subclass(cls)


class Video(TVTensor):
    """Videos (..., T, C, H, W)."""

    def __new__(
        cls,
        data: Any,
        *,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool | None = None,
    ) -> Any:
        tensor = cls._to_tensor(data, dtype, device, requires_grad)
        if tensor.ndim < 4:
            raise ValueError(f"a video has at least 4 dimensions, got {tensor.ndim}")
        return tensor.as_subclass(cls)


class Mask(TVTensor):
    """Masks (..., H, W): the class of each pixel, or one mask for each object."""

    def __new__(
        cls,
        data: Any,
        *,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool | None = None,
    ) -> Any:
        if is_pillow(data):
            from weft.vision.transforms.functional import pil_to_tensor

            data = pil_to_tensor(data)
        return cls._to_tensor(data, dtype, device, requires_grad).as_subclass(cls)


class BoundingBoxFormat(Enum):
    """The numbers of a box: corners, corner and size, or centre and size; r are degrees."""

    XYXY = "XYXY"
    XYWH = "XYWH"
    CXCYWH = "CXCYWH"
    XYWHR = "XYWHR"
    CXCYWHR = "CXCYWHR"
    XYXYXYXY = "XYXYXYXY"


def format_of(format: BoundingBoxFormat | str) -> BoundingBoxFormat:
    """A format from a format or its name."""
    return BoundingBoxFormat[format.upper()] if isinstance(format, str) else format


def is_rotated_bounding_format(format: BoundingBoxFormat | str) -> bool:
    """Whether boxes of a format have an angle."""
    return format_of(format).name in ("XYWHR", "CXCYWHR", "XYXYXYXY")


class BoundingBoxes(TVTensor):
    """Boxes (N, 4) in an image of (height, width)."""

    _known = ("format", "canvas_size", "clamping_mode")
    format: BoundingBoxFormat
    canvas_size: tuple[int, int]
    clamping_mode: str | None

    def __new__(
        cls,
        data: Any,
        *,
        format: BoundingBoxFormat | str,
        canvas_size: tuple[int, int],
        clamping_mode: str | None = "soft",
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool | None = None,
    ) -> Any:
        tensor = cls._to_tensor(data, dtype, device, requires_grad)
        if is_rotated_bounding_format(format) and not tensor.is_floating_point():
            raise ValueError(
                f"Rotated bounding boxes should be floating point tensors, got {tensor.dtype}."
            )
        return cls._wrap(tensor, format, canvas_size, clamping_mode)

    @classmethod
    def _wrap(
        cls, tensor: Tensor, format: Any, canvas_size: Any, clamping_mode: str | None = "soft"
    ) -> Any:
        if tensor.ndim == 1:
            tensor = tensor.unsqueeze(0)
        elif tensor.ndim != 2:
            raise ValueError(f"Expected a 1D or 2D tensor, got {tensor.ndim}D")
        if clamping_mode not in (None, "hard", "soft"):
            raise ValueError(f"clamping_mode must be None, hard or soft, got {clamping_mode}.")
        made = tensor.as_subclass(cls)
        made.format, made.canvas_size = format_of(format), tuple(canvas_size)
        made.clamping_mode = clamping_mode
        return made


class KeyPoints(TVTensor):
    """Points (..., 2) as (x, y) in an image of (height, width)."""

    _known = ("canvas_size",)
    canvas_size: tuple[int, int]

    def __new__(
        cls,
        data: Any,
        *,
        canvas_size: tuple[int, int],
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool | None = None,
    ) -> Any:
        tensor = cls._to_tensor(data, dtype, device, requires_grad)
        if tensor.ndim == 1:
            tensor = tensor.unsqueeze(0)
        if tensor.shape[-1] != 2:
            raise ValueError(f"Expected a tensor of shape (..., 2), not {tensor.shape}")
        made = tensor.as_subclass(cls)
        made.canvas_size = tuple(canvas_size)
        return made


def wrap(wrappee: Tensor, *, like: Any, **kwargs: Any) -> Any:
    """A tensor as the class of another, with what that one knows unless it is given."""
    if isinstance(like, BoundingBoxes):
        known = {name: kwargs.get(name, getattr(like, name)) for name in BoundingBoxes._known}
        return type(like)._wrap(wrappee.as_subclass(Tensor), **known)
    if isinstance(like, KeyPoints):
        made = wrappee.as_subclass(type(like))
        made.canvas_size = tuple(kwargs.get("canvas_size", like.canvas_size))
        return made
    return wrappee.as_subclass(type(like))


class _Restoring(contextlib.AbstractContextManager):
    def __init__(self, before: bool) -> None:
        self.before = before

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _keeps_class[0] = self.before


def set_return_type(return_type: str) -> _Restoring:
    """Let ops on these tensors give "Tensor" (the default) or "TVTensor"; also by ``with``."""
    known = {"tensor": False, "tvtensor": True}
    if return_type.lower() not in known:
        raise ValueError(f"return_type must be 'TVTensor' or 'Tensor', got {return_type}")
    before = _keeps_class[0]
    _keeps_class[0] = known[return_type.lower()]
    return _Restoring(before)
