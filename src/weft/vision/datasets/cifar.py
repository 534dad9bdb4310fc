"""CIFAR-10 and CIFAR-100, from their pickles, which are read without running code."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.vision._pillow import pillow
from weft.vision.datasets._pickles import read_pickle
from weft.vision.datasets.utils import check_integrity, download_and_extract_archive
from weft.vision.datasets.vision import VisionDataset, not_found


class CIFAR10(VisionDataset):
    """Images of 32x32 in ten classes, read from ``root/cifar-10-batches-py``."""

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    filename = "cifar-10-python.tar.gz"
    tgz_md5 = "c58f30108f718f92721af3b95e74349a"
    train_list = [
        ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
        ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        ("data_batch_4", "634d18415352ddfa80567beed471001a"),
        ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    ]
    test_list = [("test_batch", "40351d587109b95175f43aff81a1287e")]
    meta = {
        "filename": "batches.meta",
        "key": "label_names",
        "md5": "5ff9c542aee3614f3951f8cda6e48888",
    }

    def __init__(
        self,
        root: str | os.PathLike[str],
        train: bool = True,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if download:
            self.download()
        names = [name for name, _ in (self.train_list if train else self.test_list)]
        if not all(os.path.isfile(self._path(name)) for name in (*names, self.meta["filename"])):
            raise not_found(type(self).__name__, os.path.join(str(self.root), self.base_folder))
        self.targets: list[int] = []
        parts = []
        for name in names:
            entry = read_pickle(self._path(name))
            parts.append(self._images(name, entry))
            labels = entry["labels"] if "labels" in entry else entry["fine_labels"]
            self.targets.extend(int(label) for label in labels)
        self.data = np.concatenate(parts)
        if len(self.data) != len(self.targets):
            raise RuntimeError(f"{len(self.data)} images and {len(self.targets)} labels in {names}")
        self.classes = list(read_pickle(self._path(self.meta["filename"]))[self.meta["key"]])
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    def _path(self, name: str) -> str:
        return os.path.join(str(self.root), self.base_folder, name)

    def _images(self, name: str, entry: dict[str, Any]) -> np.ndarray:
        data = entry["data"]
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.size % 3072:
            raise RuntimeError(f"{self._path(name)} holds no images of 3x32x32 bytes")
        return np.ascontiguousarray(data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._done(pillow().fromarray(self.data[index]), self.targets[index])

    def __len__(self) -> int:
        return len(self.data)

    def _check_integrity(self) -> bool:
        files = [*self.train_list, *self.test_list]
        return all(check_integrity(self._path(name), md5) for name, md5 in files)

    def download(self) -> None:
        """Fetch the archive, unless its files are there and whole."""
        if not self._check_integrity():
            download_and_extract_archive(
                self.url, str(self.root), filename=self.filename, md5=self.tgz_md5
            )

    def extra_repr(self) -> str:
        """Which part it is."""
        return f"Split: {'Train' if self.train is True else 'Test'}"


class CIFAR100(CIFAR10):
    """Images of 32x32 in a hundred classes, read from ``root/cifar-100-python``."""

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    filename = "cifar-100-python.tar.gz"
    tgz_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    train_list = [("train", "16019d7e3df5f24257cddd939b257f8d")]
    test_list = [("test", "f0ef6b0ae62326f3e7ffdfab6717acfc")]
    meta = {
        "filename": "meta",
        "key": "fine_label_names",
        "md5": "7973b15100ade9c7d40fb424638fde48",
    }
