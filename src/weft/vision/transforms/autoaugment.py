"""Augmentation by policies: AutoAugment, RandAugment, TrivialAugment and AugMix."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.transforms import functional as F
from weft.vision.transforms._modes import InterpolationMode

__all__ = ["AugMix", "AutoAugment", "AutoAugmentPolicy", "RandAugment", "TrivialAugmentWide"]

Space = dict[str, tuple[Tensor, bool]]


def apply_op(img: Any, op: str, magnitude: float, interpolation: Any, fill: Any) -> Any:
    """One operation of a policy, by its name."""
    how = {"interpolation": interpolation, "fill": fill}
    if op in ("ShearX", "ShearY"):
        # Magnitudes are of a map x + level * y, without the rotation that an affine shear has.
        degrees = math.degrees(math.atan(magnitude))
        shear = [degrees, 0.0] if op == "ShearX" else [0.0, degrees]
        return F.affine(img, 0.0, [0, 0], 1.0, shear, center=[0, 0], **how)
    if op in ("TranslateX", "TranslateY"):
        moved = [int(magnitude), 0] if op == "TranslateX" else [0, int(magnitude)]
        return F.affine(img, 0.0, moved, 1.0, [0.0, 0.0], **how)
    if op == "Rotate":
        return F.rotate(img, magnitude, **how)
    factors = {
        "Brightness": F.adjust_brightness,
        "Color": F.adjust_saturation,
        "Contrast": F.adjust_contrast,
        "Sharpness": F.adjust_sharpness,
    }
    if op in factors:
        return factors[op](img, 1.0 + magnitude)
    if op == "Posterize":
        return F.posterize(img, int(magnitude))
    if op == "Solarize":
        return F.solarize(img, magnitude)
    plain = {"AutoContrast": F.autocontrast, "Equalize": F.equalize, "Invert": F.invert}
    if op in plain:
        return plain[op](img)
    if op == "Identity":
        return img
    raise ValueError(f"The provided operator {op} is not recognized.")


def filled(img: Any, fill: Any) -> Any:
    """The fill colour as tensors take it: one number for each channel."""
    if fill is None or not isinstance(img, Tensor):
        return fill
    if isinstance(fill, (int, float)):
        return [float(fill)] * F.get_dimensions(img)[0]
    return [float(f) for f in fill]


class AutoAugmentPolicy(Enum):
    """Data sets for which policies were searched."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


# Pairs of operation, probability and magnitude (- where there is none), as published.
_POLICIES = {
    AutoAugmentPolicy.IMAGENET: """
Posterize .4 8 Rotate .6 9; Solarize .6 5 AutoContrast .6 -; Equalize .8 - Equalize .6 -;
Posterize .6 7 Posterize .6 6; Equalize .4 - Solarize .2 4; Equalize .4 - Rotate .8 8;
Solarize .6 3 Equalize .6 -; Posterize .8 5 Equalize 1 -; Rotate .2 3 Solarize .6 8;
Equalize .6 - Posterize .4 6; Rotate .8 8 Color .4 0; Rotate .4 9 Equalize .6 -;
Equalize 0 - Equalize .8 -; Invert .6 - Equalize 1 -; Color .6 4 Contrast 1 8;
Rotate .8 8 Color 1 2; Color .8 8 Solarize .8 7; Sharpness .4 7 Invert .6 -;
ShearX .6 5 Equalize 1 -; Color .4 0 Equalize .6 -; Equalize .4 - Solarize .2 4;
Solarize .6 5 AutoContrast .6 -; Invert .6 - Equalize 1 -; Color .6 4 Contrast 1 8;
Equalize .8 - Equalize .6 -""",
    AutoAugmentPolicy.CIFAR10: """
Invert .1 - Contrast .2 6; Rotate .7 2 TranslateX .3 9; Sharpness .8 1 Sharpness .9 3;
ShearY .5 8 TranslateY .7 9; AutoContrast .5 - Equalize .9 -; ShearY .2 7 Posterize .3 7;
Color .4 3 Brightness .6 7; Sharpness .3 9 Brightness .7 9; Equalize .6 - Equalize .5 -;
Contrast .6 7 Sharpness .6 5; Color .7 7 TranslateX .5 8; Equalize .3 - AutoContrast .4 -;
TranslateY .4 3 Sharpness .2 6; Brightness .9 6 Color .2 8; Solarize .5 2 Invert 0 -;
Equalize .2 - AutoContrast .6 -; Equalize .2 - Equalize .6 -; Color .9 9 Equalize .6 -;
AutoContrast .8 - Solarize .2 8; Brightness .1 3 Color .7 0; Solarize .4 5 AutoContrast .9 -;
TranslateY .9 9 TranslateY .7 9; AutoContrast .9 - Solarize .8 3; Equalize .8 - Invert .1 -;
TranslateY .7 9 AutoContrast .9 -""",
    AutoAugmentPolicy.SVHN: """
ShearX .9 4 Invert .2 -; ShearY .9 8 Invert .7 -; Equalize .6 - Solarize .6 6;
Invert .9 - Equalize .6 -; Equalize .6 - Rotate .9 3; ShearX .9 4 AutoContrast .8 -;
ShearY .9 8 Invert .4 -; ShearY .9 5 Solarize .2 6; Invert .9 - AutoContrast .8 -;
Equalize .6 - Rotate .9 3; ShearX .9 4 Solarize .3 3; ShearY .8 8 Invert .7 -;
Equalize .9 - TranslateY .6 6; Invert .9 - Equalize .6 -; Contrast .3 3 Rotate .8 4;
Invert .8 - TranslateY 0 2; ShearY .7 6 Solarize .4 8; Invert .6 - Rotate .8 4;
ShearY .3 7 TranslateX .9 3; ShearX .1 6 Invert .6 -; Solarize .7 2 TranslateY .6 7;
ShearY .8 4 Invert .8 -; ShearX .7 9 TranslateY .8 3; ShearY .8 5 AutoContrast .7 -;
ShearX .7 2 Invert .1 -""",
}


def policies(policy: AutoAugmentPolicy) -> list[tuple[tuple[str, float, int | None], ...]]:
    """The pairs of operations of a policy, with probability and magnitude."""
    if policy not in _POLICIES:
        raise ValueError(f"The provided policy {policy} is not recognized.")
    found = []
    for pair in _POLICIES[policy].split(";"):
        words = pair.split()
        parts = []
        for name, p, level in (words[:3], words[3:]):
            parts.append((name, float(p), None if level == "-" else int(level)))
        found.append(tuple(parts))
    return found


def _posterizing(bins: int, least: int) -> Tensor:
    return 8 - (weft.arange(bins) / ((bins - 1) / (8 - least))).round().int()


_NONE = 0.0


class AutoAugment(nn.Module):
    """A random pair of operations of a policy that was searched for a data set."""

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__()
        self.policy, self.interpolation, self.fill = policy, interpolation, fill
        self.policies = policies(policy)

    def _augmentation_space(self, num_bins: int, image_size: tuple[int, int]) -> Space:
        return {
            "ShearX": (weft.linspace(0.0, 0.3, num_bins), True),
            "ShearY": (weft.linspace(0.0, 0.3, num_bins), True),
            "TranslateX": (
                weft.linspace(0.0, 150.0 / 331.0 * image_size[1], num_bins), True
            ),
            "TranslateY": (
                weft.linspace(0.0, 150.0 / 331.0 * image_size[0], num_bins), True
            ),
            "Rotate": (weft.linspace(0.0, 30.0, num_bins), True),
            "Brightness": (weft.linspace(0.0, 0.9, num_bins), True),
            "Color": (weft.linspace(0.0, 0.9, num_bins), True),
            "Contrast": (weft.linspace(0.0, 0.9, num_bins), True),
            "Sharpness": (weft.linspace(0.0, 0.9, num_bins), True),
            "Posterize": (_posterizing(num_bins, 4), False),
            "Solarize": (weft.linspace(255.0, 0.0, num_bins), False),
            "AutoContrast": (weft.tensor(_NONE), False),
            "Equalize": (weft.tensor(_NONE), False),
            "Invert": (weft.tensor(_NONE), False),
        }  # fmt: skip

    @staticmethod
    def get_params(transform_num: int) -> tuple[int, Tensor, Tensor]:
        """A random pair, and for each of its operations a probability and a sign."""
        chosen = int(weft.randint(transform_num, (1,)).item())
        return chosen, weft.rand((2,)), weft.randint(2, (2,))

    def forward(self, img: Any) -> Any:
        """The augmented image."""
        fill = filled(img, self.fill)
        _, height, width = F.get_dimensions(img)
        chosen, chances, signs = self.get_params(len(self.policies))
        space = self._augmentation_space(10, (height, width))
        for i, (op, p, level) in enumerate(self.policies[chosen]):
            if chances[i] <= p:
                magnitudes, signed = space[op]
                magnitude = float(magnitudes[level].item()) if level is not None else 0.0
                if signed and signs[i] == 0:
                    magnitude *= -1.0
                img = apply_op(img, op, magnitude, self.interpolation, fill)
        return img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(policy={self.policy}, fill={self.fill})"


def _drawn_sign(signed: bool, magnitude: float) -> float:
    return -magnitude if signed and weft.randint(2, (1,)) else magnitude


class RandAugment(nn.Module):
    """Some random operations, all of one magnitude."""

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__()
        self.num_ops, self.magnitude = num_ops, magnitude
        self.num_magnitude_bins = num_magnitude_bins
        self.interpolation, self.fill = interpolation, fill

    def _augmentation_space(self, num_bins: int, image_size: tuple[int, int]) -> Space:
        space: Space = {"Identity": (weft.tensor(_NONE), False)}
        made = AutoAugment._augmentation_space(self, num_bins, image_size)  # type: ignore[arg-type]
        made.pop("Invert")
        return space | made

    def forward(self, img: Any) -> Any:
        """The augmented image."""
        fill = filled(img, self.fill)
        _, height, width = F.get_dimensions(img)
        for _ in range(self.num_ops):
            space = self._augmentation_space(self.num_magnitude_bins, (height, width))
            op = list(space)[int(weft.randint(len(space), (1,)).item())]
            magnitudes, signed = space[op]
            magnitude = float(magnitudes[self.magnitude].item()) if magnitudes.ndim > 0 else 0.0
            magnitude = _drawn_sign(signed, magnitude)
            img = apply_op(img, op, magnitude, self.interpolation, fill)
        return img

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_ops={self.num_ops}, magnitude={self.magnitude}, "
            f"num_magnitude_bins={self.num_magnitude_bins}, interpolation={self.interpolation}, "
            f"fill={self.fill})"
        )


class TrivialAugmentWide(nn.Module):
    """One random operation of random magnitude, from wide ranges."""

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__()
        self.num_magnitude_bins = num_magnitude_bins
        self.interpolation, self.fill = interpolation, fill

    def _augmentation_space(self, num_bins: int) -> Space:
        line = weft.linspace
        space: Space = {"Identity": (weft.tensor(_NONE), False)}
        space |= {name: (line(0.0, 0.99, num_bins), True) for name in ("ShearX", "ShearY")}
        space |= {name: (line(0.0, 32.0, num_bins), True) for name in ("TranslateX", "TranslateY")}
        space["Rotate"] = (line(0.0, 135.0, num_bins), True)
        for name in ("Brightness", "Color", "Contrast", "Sharpness"):
            space[name] = (line(0.0, 0.99, num_bins), True)
        space["Posterize"] = (_posterizing(num_bins, 2), False)
        space["Solarize"] = (line(255.0, 0.0, num_bins), False)
        space |= {name: (weft.tensor(_NONE), False) for name in ("AutoContrast", "Equalize")}
        return space

    def forward(self, img: Any) -> Any:
        """The augmented image."""
        fill = filled(img, self.fill)
        space = self._augmentation_space(self.num_magnitude_bins)
        op = list(space)[int(weft.randint(len(space), (1,)).item())]
        magnitudes, signed = space[op]
        magnitude = 0.0
        if magnitudes.ndim > 0:
            place = weft.randint(len(magnitudes), (1,), dtype=weft.long)
            magnitude = float(magnitudes[place].item())
        magnitude = _drawn_sign(signed, magnitude)
        return apply_op(img, op, magnitude, self.interpolation, fill)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_magnitude_bins={self.num_magnitude_bins}, "
            f"interpolation={self.interpolation}, fill={self.fill})"
        )


class AugMix(nn.Module):
    """A random mixture of an image with chains of operations on it."""

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        fill: Any = None,
    ) -> None:
        super().__init__()
        if not (1 <= severity <= 10):
            raise ValueError(f"The severity must be between [1, 10]. Got {severity} instead.")
        self.severity, self.mixture_width, self.chain_depth = severity, mixture_width, chain_depth
        self.alpha, self.all_ops = alpha, all_ops
        self.interpolation, self.fill = interpolation, fill

    def _augmentation_space(self, num_bins: int, image_size: tuple[int, int]) -> Space:
        line = weft.linspace
        space: Space = {name: (line(0.0, 0.3, num_bins), True) for name in ("ShearX", "ShearY")}
        space["TranslateX"] = (line(0.0, image_size[1] / 3.0, num_bins), True)
        space["TranslateY"] = (line(0.0, image_size[0] / 3.0, num_bins), True)
        space["Rotate"] = (line(0.0, 30.0, num_bins), True)
        levels = 4 - (weft.arange(num_bins) / ((num_bins - 1) / 4)).round().int()
        space["Posterize"] = (levels, False)
        space["Solarize"] = (line(255.0, 0.0, num_bins), False)
        space |= {name: (weft.tensor(_NONE), False) for name in ("AutoContrast", "Equalize")}
        if self.all_ops:
            for name in ("Brightness", "Color", "Contrast", "Sharpness"):
                space[name] = (line(0.0, 0.9, num_bins), True)
        return space

    def _sample_dirichlet(self, params: Tensor) -> Tensor:
        return weft._sample_dirichlet(params)

    def _chain(self, image: Any, space: Space, fill: Any) -> Any:
        depth = self.chain_depth
        if depth <= 0:
            depth = int(weft.randint(low=1, high=4, size=(1,)).item())
        for _ in range(depth):
            op = list(space)[int(weft.randint(len(space), (1,)).item())]
            magnitudes, signed = space[op]
            magnitude = 0.0
            if magnitudes.ndim > 0:
                place = int(weft.randint(self.severity, (1,), dtype=weft.long).item())
                magnitude = float(magnitudes[place].item())
            magnitude = _drawn_sign(signed, magnitude)
            image = apply_op(image, op, magnitude, self.interpolation, fill)
        return image

    def forward(self, orig_img: Any) -> Any:
        """The augmented image."""
        fill = filled(orig_img, self.fill)
        _, height, width = F.get_dimensions(orig_img)
        is_tensor = isinstance(orig_img, Tensor)
        img = orig_img if is_tensor else F.pil_to_tensor(orig_img)
        space = self._augmentation_space(10, (height, width))
        shape = list(img.shape)
        batch = img.view([1] * max(4 - img.ndim, 0) + shape)
        ones = [1] * (batch.ndim - 1)
        alphas = weft.tensor([self.alpha, self.alpha])
        share = self._sample_dirichlet(alphas.expand(batch.shape[0], -1))
        alphas = weft.tensor([self.alpha] * self.mixture_width)
        weights = self._sample_dirichlet(alphas.expand(batch.shape[0], -1)) * share[:, 1].view(
            [batch.shape[0], -1]
        )
        mix = share[:, 0].view(batch.shape[0], *ones) * batch
        for i in range(self.mixture_width):
            part = self._chain(batch, space, fill)
            mix.add_(weights[:, i].view(batch.shape[0], *ones) * part)
        mixed = mix.view(shape).to(dtype=img.dtype)
        return mixed if is_tensor else F.to_pil_image(mixed)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(severity={self.severity}, mixture_width={self.mixture_width}, "
            f"chain_depth={self.chain_depth}, alpha={self.alpha}, all_ops={self.all_ops}, "
            f"interpolation={self.interpolation}, fill={self.fill})"
        )
