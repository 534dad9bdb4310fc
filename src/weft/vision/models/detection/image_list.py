"""Images of different sizes in one batch."""

from __future__ import annotations

from weft.core.tensor import Tensor


class ImageList:
    """A padded batch, and the sizes of the images in it."""

    def __init__(self, tensors: Tensor, image_sizes: list[tuple[int, int]]) -> None:
        self.tensors, self.image_sizes = tensors, image_sizes
