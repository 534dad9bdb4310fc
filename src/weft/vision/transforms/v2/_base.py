"""What transforms of nested samples share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.utils._pytree import tree_flatten, tree_unflatten
from weft.vision._pillow import is_pillow
from weft.vision.transforms.v2 import functional as F
from weft.vision.tv_tensors import BoundingBoxes, Image, KeyPoints, Mask, Video

_PIXELS = (F.is_pure_tensor, Image, is_pillow, Video)


def check_type(obj: Any, types_or_checks: Any) -> bool:
    """Whether an object is of one of some types, or passes one of some checks."""
    for entry in types_or_checks:
        if isinstance(obj, entry) if isinstance(entry, type) else entry(obj):
            return True
    return False


def has_any(flat_inputs: list[Any], *types_or_checks: Any) -> bool:
    """Whether some leaf is of one of some types."""
    return any(check_type(inpt, types_or_checks) for inpt in flat_inputs)


def has_all(flat_inputs: list[Any], *types_or_checks: Any) -> bool:
    """Whether there is a leaf of each of some types."""
    return all(any(check_type(i, [kind]) for i in flat_inputs) for kind in types_or_checks)


def get_bounding_boxes(flat_inputs: list[Any]) -> Any:
    """The boxes of a sample."""
    for inpt in flat_inputs:
        if isinstance(inpt, BoundingBoxes):
            return inpt
    raise ValueError("No bounding boxes were found in the sample")


def get_keypoints(flat_inputs: list[Any]) -> Any:
    """The points of a sample."""
    for inpt in flat_inputs:
        if isinstance(inpt, KeyPoints):
            return inpt
    raise ValueError("No keypoints were found in the sample")


def query_chw(flat_inputs: list[Any]) -> tuple[int, int, int]:
    """Channels, height and width, which all images of a sample share."""
    found = {tuple(F.get_dimensions(i)) for i in flat_inputs if check_type(i, _PIXELS)}
    if not found:
        raise TypeError("No image or video was found in the sample")
    if len(found) > 1:
        raise ValueError(f"Found multiple CxHxW dimensions in the sample: {sorted(found)}")
    return found.pop()  # type: ignore[return-value]


def query_size(flat_inputs: list[Any]) -> tuple[int, int]:
    """Height and width, which all parts of a sample share."""
    kinds = (*_PIXELS, Mask, BoundingBoxes, KeyPoints)
    found = {tuple(F.get_size(i)) for i in flat_inputs if check_type(i, kinds)}
    if not found:
        raise TypeError("No image, video, mask, bounding box of keypoint was found in the sample")
    if len(found) > 1:
        raise ValueError(f"Found multiple HxW dimensions in the sample: {sorted(found)}")
    return found.pop()  # type: ignore[return-value]


class Transform(nn.Module):
    """A transform of samples: any nesting of images, masks, boxes, labels.

    A subclass says in ``make_params`` what is drawn once for a sample, and in ``transform`` what
    that means for one part of it. Of plain tensors only the first is an image, and none is where
    there is an ``Image`` or a Pillow image.
    """

    _transformed_types: tuple[Any, ...] = (Tensor, is_pillow)

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        """Refuse a sample that lacks what the transform needs."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """What is drawn once for a sample."""
        return {}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """One part of the sample, transformed."""
        raise NotImplementedError

    def _call_kernel(self, functional: Callable, inpt: Any, *args: Any, **kwargs: Any) -> Any:
        return functional(inpt, *args, **kwargs)

    def forward(self, *inputs: Any) -> Any:
        """The sample, transformed."""
        flat, spec = tree_flatten(inputs if len(inputs) > 1 else inputs[0])
        self.check_inputs(flat)
        needed = self._needs_transform_list(flat)
        params = self.make_params([i for i, needs in zip(flat, needed, strict=True) if needs])
        done = [
            self.transform(i, params) if needs else i for i, needs in zip(flat, needed, strict=True)
        ]
        return tree_unflatten(done, spec)

    def _needs_transform_list(self, flat_inputs: list[Any]) -> list[bool]:
        found = []
        plain_is_image = not has_any(flat_inputs, Image, Video, is_pillow)
        for inpt in flat_inputs:
            needs = check_type(inpt, self._transformed_types)
            if needs and F.is_pure_tensor(inpt):
                needs, plain_is_image = plain_is_image, False
            found.append(needs)
        return found

    def extra_repr(self) -> str:
        """The attributes that were given."""
        shown = []
        for name, value in vars(self).items():
            if name.startswith("_") or name == "training" or not _is_shown(value):
                continue
            shown.append(f"{name}={value}")
        return ", ".join(shown)


def _is_shown(value: Any) -> bool:
    if isinstance(value, (bool, int, float, str, tuple, list, type(None))):
        return True
    return type(value).__name__ == "InterpolationMode"


class RandomApplyTransform(Transform):
    """A transform that is done with a probability."""

    def __init__(self, p: float = 0.5) -> None:
        if not (0.0 <= p <= 1.0):
            raise ValueError("`p` should be a floating point value in the interval [0.0, 1.0].")
        super().__init__()
        self.p = p

    def forward(self, *inputs: Any) -> Any:
        """The sample, transformed or not."""
        sample = inputs if len(inputs) > 1 else inputs[0]
        flat, _ = tree_flatten(sample)
        self.check_inputs(flat)
        if weft.rand(1) >= self.p:
            return sample
        return super().forward(*inputs)


class Fill:
    """A fill colour: one for all kinds, or one for each."""

    def __init__(self, fill: Any) -> None:
        self.fill = fill

    def __call__(self, inpt: Any) -> Any:
        """The colour for an input."""
        fill = self.fill
        if isinstance(fill, dict):
            known = [kind for kind in (*type(inpt).__mro__, "others") if kind in fill]
            fill = fill[known[0]] if known else None
        if fill is None or isinstance(fill, (int, float)):
            return fill
        return [float(f) for f in fill] if len(fill) > 1 else float(fill[0])


def labels_of(labels_getter: Any) -> Callable[[Any], Any]:
    """How to find the labels in a sample."""
    if labels_getter == "default":
        return _usual_labels
    if callable(labels_getter):
        return labels_getter
    if labels_getter is None:
        return lambda _: None
    raise ValueError(
        f"labels_getter should either be 'default', a callable, or None, but got {labels_getter}."
    )


def _usual_labels(inputs: Any) -> Any:
    """The second part if it is a tensor, or what is called labels."""
    if isinstance(inputs, (tuple, list)):
        inputs = inputs[1]
    if F.is_pure_tensor(inputs):
        return inputs
    if not isinstance(inputs, dict):
        raise ValueError(
            "When using the default labels_getter, the input passed to forward must be a "
            f"dictionary or a two-tuple whose second item is a dictionary or a tensor, got {inputs}"
        )
    named = [key for key in inputs if isinstance(key, str) and "label" in key.lower()]
    exact = [key for key in named if key.lower() in ("label", "labels")]
    if named:
        return inputs[(exact or named)[0]]
    raise ValueError(
        "Could not infer where the labels are in the sample. Try passing a callable as the "
        "labels_getter parameter? If there are no labels in the sample by design, pass "
        "labels_getter=None."
    )
