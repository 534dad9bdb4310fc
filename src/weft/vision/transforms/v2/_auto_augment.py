"""Augmentation by policies, for one image or video of a sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.utils._pytree import tree_flatten, tree_unflatten
from weft.vision._pillow import is_pillow
from weft.vision.transforms import autoaugment as v1
from weft.vision.transforms import functional as v1F
from weft.vision.transforms._modes import InterpolationMode, mode_of
from weft.vision.transforms.autoaugment import AutoAugmentPolicy
from weft.vision.transforms.v2 import functional as F
from weft.vision.transforms.v2._base import Fill, Transform, check_type
from weft.vision.tv_tensors import BoundingBoxes, Image, KeyPoints, Mask, Video, wrap

_NEAREST, _BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
Space = dict[str, tuple[Tensor, bool]]


def _apply(image: Any, op: str, magnitude: float, interpolation: Any, fill: Any) -> Any:
    if op == "Solarize":
        # Magnitudes are of bytes; other types have their own largest value.
        most = 255.0
        if isinstance(image, Tensor):
            most = v1F._tensor.bound(image.dtype)
        return F.solarize(image, most * (magnitude / 255.0))
    if isinstance(image, Tensor) and op in ("Posterize", "Equalize"):
        return F.posterize(image, int(magnitude)) if op == "Posterize" else F.equalize(image)
    return v1.apply_op(image, op, magnitude, mode_of(interpolation), fill)


class _OneImage(Transform):
    """Finds the one image of a sample, augments it, and puts it back."""

    def __init__(self, interpolation: Any, fill: Any) -> None:
        super().__init__()
        self.interpolation, self.fill = interpolation, fill
        self._fill = Fill(fill)

    def forward(self, *inputs: Any) -> Any:
        """The sample with its image augmented."""
        flat, spec = tree_flatten(inputs if len(inputs) > 1 else inputs[0])
        needed = self._needs_transform_list(flat)
        kinds = (Image, is_pillow, F.is_pure_tensor, Video)
        found = [i for i, x in enumerate(flat) if needed[i] and check_type(x, kinds)]
        for inpt in flat:
            if isinstance(inpt, (BoundingBoxes, Mask, KeyPoints)):
                raise TypeError(
                    f"Inputs of type {type(inpt).__name__} are not supported by "
                    f"{type(self).__name__}()"
                )
        if len(found) != 1:
            raise TypeError(
                "Auto augment transformations are only properly defined for a single image or "
                f"video, but found {len(found)}."
            )
        image = flat[found[0]]
        plain = image.as_subclass(Tensor) if isinstance(image, (Image, Video)) else image
        done = self._augmented(plain, v1.filled(plain, self._fill(image)))
        flat[found[0]] = wrap(done, like=image) if isinstance(image, (Image, Video)) else done
        return tree_unflatten(flat, spec)

    def _augmented(self, image: Any, fill: Any) -> Any:
        raise NotImplementedError

    def _step(self, image: Any, op: str, magnitude: float, signed: bool, fill: Any) -> Any:
        if signed and weft.rand(()) <= 0.5:
            magnitude *= -1
        return _apply(image, op, magnitude, self.interpolation, fill)


def _chosen(space: Space) -> str:
    return list(space)[int(weft.randint(len(space), ()))]


class AutoAugment(_OneImage):
    """A random pair of operations of a policy that was searched for a data set."""

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: Any = _NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.policy = policy
        self._policies = v1.policies(policy)

    _augmentation_space: Callable[..., Space] = v1.AutoAugment._augmentation_space

    def _augmented(self, image: Any, fill: Any) -> Any:
        _, height, width = v1F.get_dimensions(image)
        policy = self._policies[int(weft.randint(len(self._policies), ()))]
        space = self._augmentation_space(10, (height, width))
        for op, p, level in policy:
            if not weft.rand(()) <= p:
                continue
            magnitudes, signed = space[op]
            magnitude = float(magnitudes[level]) if level is not None else 0.0
            image = self._step(image, op, magnitude, signed and level is not None, fill)
        return image


class RandAugment(_OneImage):
    """Some random operations, all of one magnitude."""

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = _NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_ops, self.magnitude = num_ops, magnitude
        self.num_magnitude_bins = num_magnitude_bins

    _augmentation_space: Callable[..., Space] = v1.RandAugment._augmentation_space

    def _augmented(self, image: Any, fill: Any) -> Any:
        _, height, width = v1F.get_dimensions(image)
        space = self._augmentation_space(self.num_magnitude_bins, (height, width))
        for _ in range(self.num_ops):
            op = _chosen(space)
            magnitudes, signed = space[op]
            magnitude = float(magnitudes[self.magnitude]) if magnitudes.ndim > 0 else 0.0
            image = self._step(image, op, magnitude, signed, fill)
        return image


class TrivialAugmentWide(_OneImage):
    """One random operation of random magnitude, from wide ranges."""

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: Any = _NEAREST, fill: Any = None
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = num_magnitude_bins

    _augmentation_space: Callable[..., Space] = v1.TrivialAugmentWide._augmentation_space

    def _augmented(self, image: Any, fill: Any) -> Any:
        space = self._augmentation_space(self.num_magnitude_bins)
        op = _chosen(space)
        magnitudes, signed = space[op]
        magnitude = 0.0
        if magnitudes.ndim > 0:
            magnitude = float(magnitudes[int(weft.randint(self.num_magnitude_bins, ()))])
        return self._step(image, op, magnitude, signed, fill)


class AugMix(_OneImage):
    """A random mixture of an image with chains of operations on it."""

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Any = _BILINEAR,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        if not (1 <= severity <= 10):
            raise ValueError(f"The severity must be between [1, 10]. Got {severity} instead.")
        self.severity, self.mixture_width, self.chain_depth = severity, mixture_width, chain_depth
        self.alpha, self.all_ops = alpha, all_ops

    _augmentation_space: Callable[..., Space] = v1.AugMix._augmentation_space

    def _chain(self, image: Any, space: Space, fill: Any) -> Any:
        depth = self.chain_depth
        if depth <= 0:
            depth = int(weft.randint(low=1, high=4, size=()))
        for _ in range(depth):
            op = _chosen(space)
            magnitudes, signed = space[op]
            magnitude = 0.0
            if magnitudes.ndim > 0:
                magnitude = float(magnitudes[int(weft.randint(self.severity, ()))])
            image = self._step(image, op, magnitude, signed, fill)
        return image

    def _augmented(self, image: Any, fill: Any) -> Any:
        _, height, width = v1F.get_dimensions(image)
        space = self._augmentation_space(10, (height, width))
        tensor = image if isinstance(image, Tensor) else v1F.pil_to_tensor(image)
        shape = list(tensor.shape)
        batch = tensor.reshape([1] * max(4 - tensor.ndim, 0) + shape)
        count, ones = batch.shape[0], [1] * (batch.ndim - 1)
        pair = weft.tensor([self.alpha, self.alpha]).expand(count, -1)
        share = weft._sample_dirichlet(pair)
        many = weft.tensor([self.alpha] * self.mixture_width).expand(count, -1)
        weights = weft._sample_dirichlet(many) * share[:, 1].reshape(count, -1)
        mix = share[:, 0].reshape(count, *ones) * batch
        for i in range(self.mixture_width):
            part = self._chain(batch, space, fill)
            mix = mix + weights[:, i].reshape(count, *ones) * part
        mixed = mix.reshape(shape).to(tensor.dtype)
        return mixed if isinstance(image, Tensor) else v1F.to_pil_image(mixed)
