"""Containers, conversions, and what keeps samples in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.utils._pytree import tree_flatten, tree_unflatten
from weft.vision import tv_tensors
from weft.vision._pillow import is_pillow
from weft.vision.transforms import _containers
from weft.vision.transforms.v2 import functional as F
from weft.vision.transforms.v2._base import (
    Transform,
    get_bounding_boxes,
    get_keypoints,
    labels_of,
)
from weft.vision.tv_tensors import BoundingBoxes, Image, KeyPoints, Mask, Video, wrap


class Compose(Transform):
    """Transforms one after another."""

    def __init__(self, transforms: Sequence[Callable]) -> None:
        super().__init__()
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence of callables")
        if not transforms:
            raise ValueError("Pass at least one transform")
        vars(self)["transforms"] = transforms  # without parameters, so not registered

    def forward(self, *inputs: Any) -> Any:
        """The sample after all transforms."""
        many = len(inputs) > 1
        for transform in self.transforms:
            outputs = transform(*inputs)
            inputs = outputs if many else (outputs,)
        return outputs

    def extra_repr(self) -> str:
        """One transform a line."""
        return "\n".join(f"{t}" for t in self.transforms)


def _run_all(transforms: Any, inputs: tuple[Any, ...]) -> Any:
    many = len(inputs) > 1
    outputs: Any = inputs if many else inputs[0]
    for transform in transforms:
        outputs = transform(*inputs)
        inputs = outputs if many else (outputs,)
    return outputs


class RandomApply(Transform):
    """All of some transforms, with a probability."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        if not isinstance(transforms, (Sequence, nn.ModuleList)):
            raise TypeError("Argument transforms should be a sequence of callables")
        if not (0.0 <= p <= 1.0):
            raise ValueError("`p` should be a floating point value in the interval [0.0, 1.0].")
        vars(self)["transforms"], self.p = transforms, p

    def forward(self, *inputs: Any) -> Any:
        """The sample, transformed or not."""
        if weft.rand(1) >= self.p:
            return inputs if len(inputs) > 1 else inputs[0]
        return _run_all(self.transforms, inputs)


class RandomChoice(Transform):
    """One of some transforms."""

    def __init__(self, transforms: Sequence[Callable], p: list[float] | None = None) -> None:
        super().__init__()
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence of callables")
        p = [1] * len(transforms) if p is None else p
        if len(p) != len(transforms):
            raise ValueError(
                f"Length of p doesn't match the number of transforms: {len(p)} != {len(transforms)}"
            )
        vars(self)["transforms"] = transforms  # without parameters, so not registered
        self.p = [share / sum(p) for share in p]

    def forward(self, *inputs: Any) -> Any:
        """The sample, transformed by one of them."""
        chosen = int(weft.multinomial(weft.tensor(self.p), 1))
        return self.transforms[chosen](*inputs)


class RandomOrder(Transform):
    """All of some transforms in random order."""

    def __init__(self, transforms: Sequence[Callable]) -> None:
        super().__init__()
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence of callables")
        vars(self)["transforms"] = transforms  # without parameters, so not registered

    def forward(self, *inputs: Any) -> Any:
        """The sample after all transforms."""
        order = weft.randperm(len(self.transforms)).tolist()
        return _run_all([self.transforms[i] for i in order], inputs)


class Identity(Transform):
    """Nothing."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part as it is."""
        return inpt


class Lambda(Transform):
    """A function for parts of some types."""

    def __init__(self, lambd: Callable[[Any], Any], *types: type) -> None:
        super().__init__()
        self.lambd, self.types = lambd, types or (object,)
        self._transformed_types = self.types

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """The function of one part."""
        return self.lambd(inpt)


class LinearTransformation(Transform):
    """A flattened image less a mean, times a matrix: whitening."""

    _transformed_types = (F.is_pure_tensor, Image, Video)

    def __init__(self, transformation_matrix: Tensor, mean_vector: Tensor) -> None:
        super().__init__()
        self._plain = _containers.LinearTransformation(transformation_matrix, mean_vector)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, whitened."""
        made = self._plain(inpt.as_subclass(Tensor))
        return made if F.is_pure_tensor(inpt) else wrap(made, like=inpt)


class Normalize(Transform):
    """Channels less their means, by their deviations."""

    def __init__(self, mean: Any, std: Any, inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = list(mean), list(std), inplace

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        """Refuse Pillow images."""
        if any(is_pillow(inpt) for inpt in flat_inputs):
            raise TypeError(f"{type(self).__name__}() does not support PIL images.")

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, normalised."""
        return F.normalize(inpt, self.mean, self.std, self.inplace)


class ToDtype(Transform):
    """Another type; ``scale`` fits the values of images and videos to its range."""

    _transformed_types = (Tensor,)

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part in the type that is for its kind."""
        dtype = self.dtype
        if isinstance(dtype, dict):
            kinds = [kind for kind in (type(inpt), "others") if kind in dtype]
            if not kinds:
                raise ValueError(
                    f"No dtype was specified for type {type(inpt)}. Add an entry for it, or "
                    "'others', to the dtype dict"
                )
            dtype = dtype[kinds[0]]
        elif not (F.is_pure_tensor(inpt) or isinstance(inpt, (Image, Video))):
            return inpt
        return inpt if dtype is None else F.to_dtype(inpt, dtype, self.scale)


class ConvertImageDtype(Transform):
    """Another type, with values fitted to its range."""

    _transformed_types = (F.is_pure_tensor, Image)

    def __init__(self, dtype: Any = weft.float32) -> None:
        super().__init__()
        self.dtype = dtype

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part, converted."""
        return F.to_dtype(inpt, self.dtype, scale=True)


class ToImage(Transform):
    """Tensors, arrays and Pillow images as ``Image``."""

    _transformed_types = (F.is_pure_tensor, is_pillow, np.ndarray)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part as an image."""
        return F.to_image(inpt)


class ToPILImage(Transform):
    """Tensors and arrays as Pillow images."""

    _transformed_types = (F.is_pure_tensor, Image, np.ndarray)

    def __init__(self, mode: str | None = None) -> None:
        super().__init__()
        self.mode = mode

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part as a Pillow image."""
        return F.to_pil_image(inpt, mode=self.mode)


class PILToTensor(Transform):
    """Pillow images as tensors of their own type."""

    _transformed_types = (is_pillow,)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part as a tensor."""
        return F.pil_to_tensor(inpt)


class ToTensor(Transform):
    """Pillow images and arrays as float tensors; ``ToImage`` and ``ToDtype`` say it better."""

    _transformed_types = (is_pillow, np.ndarray)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part as a tensor."""
        return F.to_tensor(inpt)


class ToPureTensor(Transform):
    """Classes of ``tv_tensors`` as plain tensors."""

    _transformed_types = (tv_tensors.TVTensor,)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part as a plain tensor."""
        return inpt.as_subclass(Tensor)


class ConvertBoundingBoxFormat(Transform):
    """Boxes in another format."""

    _transformed_types = (BoundingBoxes,)

    def __init__(self, format: Any) -> None:
        super().__init__()
        self.format = tv_tensors.format_of(format)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Boxes, converted."""
        return F.convert_bounding_box_format(inpt, new_format=self.format)


class ClampBoundingBoxes(Transform):
    """Boxes cut off at the edges of their canvas."""

    _transformed_types = (BoundingBoxes,)

    def __init__(self, clamping_mode: str | None = "auto") -> None:
        super().__init__()
        self.clamping_mode = clamping_mode

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Boxes inside their canvas."""
        return F.clamp_bounding_boxes(inpt, clamping_mode=self.clamping_mode)


class ClampKeyPoints(Transform):
    """Points moved to the nearest pixel of their canvas."""

    _transformed_types = (KeyPoints,)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Points inside their canvas."""
        return F.clamp_keypoints(inpt)


class SetClampingMode(Transform):
    """Another ``clamping_mode`` for the transforms that follow."""

    _transformed_types = (BoundingBoxes,)

    def __init__(self, clamping_mode: str | None) -> None:
        super().__init__()
        if clamping_mode not in (None, "soft", "hard"):
            raise ValueError(f"clamping_mode must be soft, hard or None, got {clamping_mode}")
        self.clamping_mode = clamping_mode

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Boxes that know the mode."""
        made = inpt.clone()
        made.clamping_mode = self.clamping_mode
        return made


class _Sanitize(Transform):
    """Leaves out what is not valid, with its labels and masks."""

    def __init__(self, labels_getter: Any = "default") -> None:
        super().__init__()
        self.labels_getter = labels_getter
        self._labels_getter = labels_of(labels_getter)

    def _valid(self, flat_inputs: list[Any]) -> tuple[Any, Tensor]:
        raise NotImplementedError

    _kinds: tuple[type, ...] = ()

    def forward(self, *inputs: Any) -> Any:
        """The sample without what is not valid."""
        sample = inputs if len(inputs) > 1 else inputs[0]
        labels = self._labels_getter(sample)
        if labels is None or isinstance(labels, Tensor):
            labels = [] if labels is None else [labels]
        if not all(isinstance(label, Tensor) for label in labels):
            raise ValueError(
                "The labels in the input to forward() must be a tensor or None, got "
                f"{type(labels[0])} instead."
            )
        flat, spec = tree_flatten(sample)
        found, valid = self._valid(flat)
        for label in labels:
            if label.shape[0] != found.shape[0]:
                raise ValueError(
                    f"Number of boxes (shape={found.shape}) and must match the number of labels. "
                    f"Found labels with shape={label.shape})."
                )
        done = []
        for inpt in flat:
            if any(inpt is label for label in labels):
                done.append(inpt[valid])
            elif isinstance(inpt, self._kinds) and inpt.shape[0] == len(valid):
                done.append(wrap(inpt.as_subclass(Tensor)[valid], like=inpt))
            else:
                done.append(inpt)
        return tree_unflatten(done, spec)


class SanitizeBoundingBoxes(_Sanitize):
    """Leaves out boxes that are too small or outside, with their labels and masks."""

    _kinds = (BoundingBoxes, Mask)

    def __init__(
        self, min_size: float = 1.0, min_area: float = 1.0, labels_getter: Any = "default"
    ) -> None:
        super().__init__(labels_getter)
        if min_size < 1:
            raise ValueError(f"min_size must be >= 1, got {min_size}.")
        if min_area < 1:
            raise ValueError(f"min_area must be >= 1, got {min_area}.")
        self.min_size, self.min_area = min_size, min_area

    def _valid(self, flat_inputs: list[Any]) -> tuple[Any, Tensor]:
        boxes = get_bounding_boxes(flat_inputs)
        least = {"min_size": self.min_size, "min_area": self.min_area}
        return boxes, F.sanitize_bounding_boxes(boxes, **least)[1]


class SanitizeKeyPoints(_Sanitize):
    """Removes points outside the image, with their labels."""

    _kinds = (KeyPoints,)

    def __init__(self, labels_getter: Any = None) -> None:
        super().__init__(labels_getter)

    def _valid(self, flat_inputs: list[Any]) -> tuple[Any, Tensor]:
        points = get_keypoints(flat_inputs)
        return points, F.sanitize_keypoints(points)[1]


class UniformTemporalSubsample(Transform):
    """Frames of a video at even distances."""

    _transformed_types = (F.is_pure_tensor, Video)

    def __init__(self, num_samples: int) -> None:
        super().__init__()
        self.num_samples = num_samples

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One video with fewer frames."""
        return F.uniform_temporal_subsample(inpt, self.num_samples)
