"""Folders of files, with a folder for each class."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from weft.vision._pillow import pillow
from weft.vision.datasets.vision import VisionDataset

IMG_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp",
)  # fmt: skip


def has_file_allowed_extension(filename: str, extensions: str | tuple[str, ...]) -> bool:
    """Whether a name ends as one of some, in large or small letters."""
    allowed = extensions if isinstance(extensions, str) else tuple(extensions)
    return filename.lower().endswith(allowed)


def is_image_file(filename: str) -> bool:
    """Whether a name is that of an image."""
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def find_classes(directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
    """The folders in a folder, sorted, and their numbers."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(
    directory: str | os.PathLike[str],
    class_to_idx: dict[str, int] | None = None,
    extensions: str | tuple[str, ...] | None = None,
    is_valid_file: Callable[[str], bool] | None = None,
    allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """Paths and class numbers of all files below the folders of classes."""
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("Both extensions and is_valid_file cannot be None or not None at once")
    if is_valid_file is None:
        is_valid_file = lambda path: has_file_allowed_extension(path, extensions)  # type: ignore[arg-type]
    if class_to_idx is None:
        class_to_idx = find_classes(directory)[1]
    elif not class_to_idx:
        raise ValueError("'class_to_index' must have at least one entry to collect any samples.")
    found, filled = [], set()
    for name in sorted(class_to_idx):
        folder = os.path.join(os.path.expanduser(directory), name)
        if not os.path.isdir(folder):
            continue
        for root, _, files in sorted(os.walk(folder, followlinks=True)):
            for path in (os.path.join(root, file) for file in sorted(files)):
                if is_valid_file(path):
                    found.append((path, class_to_idx[name]))
                    filled.add(name)
    empty = set(class_to_idx) - filled
    if empty and not allow_empty:
        text = f"Found no valid file for the classes {', '.join(sorted(empty))}. "
        if extensions is not None:
            listed = extensions if isinstance(extensions, str) else ", ".join(extensions)
            text += f"Supported extensions are: {listed}"
        raise FileNotFoundError(text)
    return found


def pil_loader(path: str) -> Any:
    """An image in colour."""
    with open(path, "rb") as file:
        return pillow().open(file).convert("RGB")


default_loader = pil_loader


class DatasetFolder(VisionDataset):
    """Files in ``root/class/...``, read by a function of yours."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        loader: Callable[[str], Any],
        extensions: tuple[str, ...] | None = None,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        classes, class_to_idx = self.find_classes(str(self.root))
        self.samples = self.make_dataset(
            str(self.root), class_to_idx, extensions, is_valid_file, allow_empty
        )
        self.loader, self.extensions = loader, extensions
        self.classes, self.class_to_idx = classes, class_to_idx
        self.targets = [target for _, target in self.samples]

    make_dataset = staticmethod(make_dataset)

    def find_classes(self, directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
        """The classes and their numbers; a subclass may find them otherwise."""
        return find_classes(directory)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._done(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Images in ``root/class/...``."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        endings = IMG_EXTENSIONS if is_valid_file is None else None
        steps = {"transform": transform, "target_transform": target_transform}
        super().__init__(
            root, loader, endings, is_valid_file=is_valid_file, allow_empty=allow_empty, **steps
        )
        self.imgs = self.samples
