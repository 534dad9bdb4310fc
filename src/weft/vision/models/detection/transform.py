"""What goes into a detector and what comes out, resized and normalised."""

from __future__ import annotations

import math
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models.detection._keypoints import resize_keypoints
from weft.vision.models.detection._masks import paste_masks_in_image
from weft.vision.models.detection.image_list import ImageList


def resize_boxes(boxes: Tensor, original: Any, new: Any) -> Tensor:
    """Boxes of an image that is resized."""
    y, x = (
        weft.tensor(n, dtype=weft.float32) / weft.tensor(o, dtype=weft.float32)
        for n, o in zip(new, original, strict=True)
    )
    return boxes * weft.stack((x, y, x, y)).to(boxes.dtype)


class GeneralizedRCNNTransform(nn.Module):
    """Normalises images, resizes them to a range of sides, and pads them to one batch."""

    def __init__(
        self,
        min_size: Any,
        max_size: int,
        image_mean: list[float],
        image_std: list[float],
        size_divisible: int = 32,
        fixed_size: tuple[int, int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.min_size = min_size if isinstance(min_size, (list, tuple)) else (min_size,)
        self.max_size = max_size
        self.image_mean, self.image_std = image_mean, image_std
        self.size_divisible, self.fixed_size = size_divisible, fixed_size
        self._skip_resize = kwargs.pop("_skip_resize", False)

    def forward(self, images: list[Tensor], targets: Any = None) -> tuple[ImageList, Any]:
        """A batch, and the targets that belong to it."""
        images = list(images)
        targets = None if targets is None else [dict(target) for target in targets]
        for i, image in enumerate(images):
            if image.dim() != 3:
                raise ValueError(
                    "images is expected to be a list of 3d tensors of shape [C, H, W], got "
                    f"{image.shape}"
                )
            target = None if targets is None else targets[i]
            images[i], target = self.resize(self.normalize(image), target)
            if targets is not None:
                targets[i] = target
        sizes = [(int(image.shape[-2]), int(image.shape[-1])) for image in images]
        return ImageList(self.batch_images(images, self.size_divisible), sizes), targets

    def normalize(self, image: Tensor) -> Tensor:
        """Channels less their means, by their deviations."""
        if not image.is_floating_point():
            raise TypeError(
                "Expected input images to be of floating type (in range [0, 1]), but found type "
                f"{image.dtype} instead"
            )
        mean = weft.as_tensor(self.image_mean, dtype=image.dtype)
        std = weft.as_tensor(self.image_std, dtype=image.dtype)
        return (image - mean[:, None, None]) / std[:, None, None]

    def _scale(self, image: Tensor, side: int) -> float:
        height, width = image.shape[-2:]
        return min(side / min(height, width), self.max_size / max(height, width))

    def resize(self, image: Tensor, target: Any) -> tuple[Tensor, Any]:
        """An image whose shorter side has a wanted length, with its boxes and masks."""
        if self.training:
            if self._skip_resize:
                return image, target
            side = self.torch_choice(self.min_size)
        else:
            side = self.min_size[-1]
        old = image.shape[-2:]
        size: Any = None
        scale: Any = None
        if self.fixed_size is not None:
            size = [self.fixed_size[1], self.fixed_size[0]]
        else:
            scale = self._scale(image, side)
        how: dict[str, Any] = {"size": size, "scale_factor": scale}
        how["recompute_scale_factor"] = True if scale is not None else None
        image = F.interpolate(image[None], mode="bilinear", align_corners=False, **how)[0]
        if target is None:
            return image, target
        target["boxes"] = resize_boxes(target["boxes"], old, image.shape[-2:])
        if "masks" in target:
            masks = F.interpolate(target["masks"][:, None].float(), **how)[:, 0]
            target["masks"] = masks.byte()
        if "keypoints" in target:
            target["keypoints"] = resize_keypoints(target["keypoints"], old, image.shape[-2:])
        return image, target

    def torch_choice(self, k: Any) -> Any:
        """One of some, by the library's own stream."""
        return k[int(weft.empty(1).uniform_(0.0, float(len(k))).item())]

    def batch_images(self, images: list[Tensor], size_divisible: int = 32) -> Tensor:
        """Images in one tensor, padded with zeros at the right and bottom."""
        shape = [max(int(image.shape[i]) for image in images) for i in range(3)]
        for i in (1, 2):
            shape[i] = math.ceil(shape[i] / size_divisible) * size_divisible
        batch = images[0].new_full([len(images), *shape], 0)
        for i, image in enumerate(images):
            batch[i, :, : image.shape[1], : image.shape[2]].copy_(image)
        return batch

    def postprocess(
        self, result: list[dict[str, Tensor]], image_shapes: Any, original_image_sizes: Any
    ) -> list[dict[str, Tensor]]:
        """Boxes, masks and keypoints in the pixels of the images that were given."""
        if self.training:
            return result
        for found, now, before in zip(result, image_shapes, original_image_sizes, strict=True):
            found["boxes"] = resize_boxes(found["boxes"], now, before)
            if "masks" in found:
                found["masks"] = paste_masks_in_image(found["masks"], found["boxes"], before)
            if "keypoints" in found:
                found["keypoints"] = resize_keypoints(found["keypoints"], now, before)
        return result
