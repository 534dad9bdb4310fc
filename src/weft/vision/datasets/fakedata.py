"""Random images, for trying a program out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.vision.datasets.vision import VisionDataset
from weft.vision.transforms.functional import to_pil_image


class FakeData(VisionDataset):
    """Images of noise with random labels; the same index is the same image each time."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(transform=transform, target_transform=target_transform)
        self.size, self.num_classes = size, num_classes
        self.image_size, self.random_offset = image_size, random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        before = weft.get_rng_state()
        weft.manual_seed(index + self.random_offset)
        image = weft.randn(*self.image_size)
        target = weft.randint(0, self.num_classes, size=(1,), dtype=weft.long)[0]
        weft.set_rng_state(before)
        return self._done(to_pil_image(image), target.item())

    def __len__(self) -> int:
        return self.size
