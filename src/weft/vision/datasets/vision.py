"""What data sets of images share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from weft.utils.data import Dataset


class StandardTransform:
    """One transform for the input and one for the target."""

    def __init__(
        self, transform: Callable | None = None, target_transform: Callable | None = None
    ) -> None:
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, input: Any, target: Any) -> tuple[Any, Any]:
        if self.transform is not None:
            input = self.transform(input)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return input, target

    def __repr__(self) -> str:
        lines = ["StandardTransform"]
        for name, step in (
            ("Transform: ", self.transform),
            ("Target transform: ", self.target_transform),
        ):
            if step is not None:
                head, *rest = repr(step).splitlines()
                lines += [f"{name}{head}", *(" " * len(name) + line for line in rest)]
        return "\n".join(lines)


class VisionDataset(Dataset):
    """A folder, and what is done to each sample from it."""

    _repr_indent = 4

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        transforms: Callable | None = None,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
    ) -> None:
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError(
                "Only transforms or transform/target_transform can be passed as argument"
            )
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transform, self.target_transform = transform, target_transform
        if transform is not None or target_transform is not None:
            transforms = StandardTransform(transform, target_transform)
        self.transforms = transforms

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def _done(self, image: Any, target: Any) -> tuple[Any, Any]:
        """A sample after its transforms."""
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def extra_repr(self) -> str:
        """More lines for ``repr``."""
        return ""

    def __repr__(self) -> str:
        body = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            body.append(f"Root location: {self.root}")
        body += self.extra_repr().splitlines()
        if self.transforms is not None:
            body.append(repr(self.transforms))  # whose further lines torchvision does not indent
        return "\n".join([f"Dataset {type(self).__name__}", *(f"    {line}" for line in body)])


def not_found(name: str, where: Any) -> RuntimeError:
    """The error for files that are not there."""
    return RuntimeError(
        f"{name}: dataset not found or corrupted in {where}. You can use download=True to "
        "download it"
    )
