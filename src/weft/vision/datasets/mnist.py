"""MNIST and its family, in the IDX format of its first publication."""

from __future__ import annotations

import gzip
import os
import shutil
import string
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.vision._pillow import pillow
from weft.vision.datasets.utils import (
    download_and_extract_archive,
    download_from_mirrors,
    extract_archive,
    verify_str_arg,
)
from weft.vision.datasets.vision import VisionDataset, not_found

# Types of elements by the third byte of a file; all are big-endian.
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_sn3_pascalvincent_tensor(path: str | os.PathLike[str], strict: bool = True) -> Tensor:
    """An IDX file as a tensor; the sizes it states are checked against the file's own."""
    with (gzip.open if os.fspath(path).endswith(".gz") else open)(path, "rb") as file:  # type: ignore[operator]
        data = file.read()
    magic = int.from_bytes(data[:4], "big")
    rank, code = magic % 256, magic // 256
    if len(data) < 4 + 4 * rank or code not in _TYPES or not 1 <= rank <= 3:
        raise RuntimeError(f"{path} is not an IDX file: it begins with {data[:4].hex()}")
    shape = [int.from_bytes(data[4 * i + 4 : 4 * i + 8], "big") for i in range(rank)]
    kind = np.dtype(_TYPES[code])
    body = data[4 + 4 * rank :]
    count = int(np.prod(shape, dtype=object))
    if count * kind.itemsize > len(body) or (strict and count * kind.itemsize != len(body)):
        raise RuntimeError(
            f"{path} is truncated or corrupt: {shape} elements of {kind.itemsize} bytes are stated "
            f"and {len(body)} bytes follow"
        )
    array = np.frombuffer(body, kind, count).reshape(shape)
    return weft.from_numpy(array.astype(kind.newbyteorder("=")))


def read_image_file(path: str) -> Tensor:
    """Images (N, H, W) of bytes."""
    x = read_sn3_pascalvincent_tensor(path, strict=False)
    if x.dtype != weft.uint8 or x.ndim != 3:
        raise RuntimeError(f"{path} holds no images: {x.dtype} of {x.ndim} dimensions")
    return x


def read_label_file(path: str) -> Tensor:
    """Labels (N,)."""
    x = read_sn3_pascalvincent_tensor(path, strict=False)
    if x.dtype != weft.uint8 or x.ndim != 1:
        raise RuntimeError(f"{path} holds no labels: {x.dtype} of {x.ndim} dimensions")
    return x.long()


class MNIST(VisionDataset):
    """Handwritten digits, read from ``root/MNIST/raw`` (files there may be packed or not)."""

    mirrors = [
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ]
    resources = [
        ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ]
    classes = [
        "0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six",
        "7 - seven", "8 - eight", "9 - nine",
    ]  # fmt: skip

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
        if not self._check_exists():
            raise not_found(type(self).__name__, self.raw_folder)
        self.data, self.targets = self._load_data()

    def _files(self) -> tuple[str, str]:
        name = "train" if self.train else "t10k"
        return f"{name}-images-idx3-ubyte", f"{name}-labels-idx1-ubyte"

    def _path(self, name: str) -> str | None:
        """A file of the raw folder, unpacked or packed."""
        for path in (os.path.join(self.raw_folder, name + end) for end in ("", ".gz")):
            if os.path.isfile(path):
                return path
        return None

    def _load_data(self) -> tuple[Tensor, Tensor]:
        images, labels = (str(self._path(name)) for name in self._files())
        data, targets = read_image_file(images), read_label_file(labels)
        if len(data) != len(targets):
            raise RuntimeError(
                f"{images} has {len(data)} images and {labels} {len(targets)} labels"
            )
        return data, targets

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = pillow().fromarray(self.data[index].numpy())
        return self._done(image, int(self.targets[index]))

    def __len__(self) -> int:
        return len(self.data)

    @property
    def raw_folder(self) -> str:
        """Where the original files are."""
        return os.path.join(str(self.root), type(self).__name__, "raw")

    @property
    def processed_folder(self) -> str:
        """Where older releases kept converted files; nothing is read from there."""
        return os.path.join(str(self.root), type(self).__name__, "processed")

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class."""
        return {name: i for i, name in enumerate(self.classes)}

    @property
    def train_labels(self) -> Tensor:
        """The old name of ``targets``."""
        return self.targets

    test_labels = train_labels

    @property
    def train_data(self) -> Tensor:
        """The old name of ``data``."""
        return self.data

    test_data = train_data

    def _check_exists(self) -> bool:
        return all(self._path(name) is not None for name in self._files())

    def download(self) -> None:
        """Fetch the original files, unless they are there."""
        if self._check_exists():
            return
        os.makedirs(self.raw_folder, exist_ok=True)
        for name, md5 in self.resources:
            download_from_mirrors(self.mirrors, name, self.raw_folder, md5)
            extract_archive(os.path.join(self.raw_folder, name), self.raw_folder)

    def extra_repr(self) -> str:
        """Which part it is."""
        return f"Split: {'Train' if self.train is True else 'Test'}"


class FashionMNIST(MNIST):
    """Articles of clothing, in MNIST's format."""

    mirrors = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ]
    classes = [
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
        "Ankle boot",
    ]  # fmt: skip


class KMNIST(MNIST):
    """Characters of classical Japanese, in MNIST's format."""

    mirrors = ["http://codh.rois.ac.jp/kmnist/dataset/kmnist/"]
    resources = [
        ("train-images-idx3-ubyte.gz", "bdb82020997e1d708af4cf47b453dcf7"),
        ("train-labels-idx1-ubyte.gz", "e144d726b3acfaa3e44228e80efcd344"),
        ("t10k-images-idx3-ubyte.gz", "5c965bf0a639b31b8f53240b1b52f4d7"),
        ("t10k-labels-idx1-ubyte.gz", "7320c461ea6c1c855c0b718fb2a4b134"),
    ]
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


class EMNIST(MNIST):
    """Letters and digits in MNIST's format, in several divisions into classes."""

    url = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
    md5 = "58c8d27c78d21e728a6bc7b3cc06412e"
    splits = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")
    # These letters look the same, large and small.
    _merged_classes = {"c", "i", "j", "k", "l", "m", "o", "p", "s", "u", "v", "w", "x", "y", "z"}
    _all_classes = set(string.digits + string.ascii_letters)
    classes_split_dict = {
        "byclass": sorted(_all_classes),
        "bymerge": sorted(_all_classes - _merged_classes),
        "balanced": sorted(_all_classes - _merged_classes),
        "letters": ["N/A", *string.ascii_lowercase],
        "digits": list(string.digits),
        "mnist": list(string.digits),
    }

    def __init__(self, root: str | os.PathLike[str], split: str, **kwargs: Any) -> None:
        self.split = verify_str_arg(split, "split", self.splits)
        super().__init__(root, **kwargs)
        self.classes = self.classes_split_dict[self.split]

    def _files(self) -> tuple[str, str]:
        name = f"emnist-{self.split}-{'train' if self.train else 'test'}"
        return f"{name}-images-idx3-ubyte", f"{name}-labels-idx1-ubyte"

    def download(self) -> None:
        """Fetch the archive of all divisions, unless the files are there."""
        if self._check_exists():
            return
        os.makedirs(self.raw_folder, exist_ok=True)
        download_and_extract_archive(self.url, self.raw_folder, md5=self.md5)
        inside = os.path.join(self.raw_folder, "gzip")
        for name in os.listdir(inside):
            if name.endswith(".gz"):
                extract_archive(os.path.join(inside, name), self.raw_folder)
        shutil.rmtree(inside)


class QMNIST(MNIST):
    """MNIST with the whole of its test set and what is known of each digit."""

    subsets = {"train": "train", "test": "test", "test10k": "test", "test50k": "test"}
    subsets["nist"] = "nist"
    resources_of = {
        "train": [
            ("qmnist-train-images-idx3-ubyte.gz", "ed72d4157d28c017586c42bc6afe6370"),
            ("qmnist-train-labels-idx2-int.gz", "0058f8dd561b90ffdd0f734c6a30e5e4"),
        ],
        "test": [
            ("qmnist-test-images-idx3-ubyte.gz", "1394631089c404de565df7b7aeaf9412"),
            ("qmnist-test-labels-idx2-int.gz", "5b5b05890a5e13444e108efe57b788aa"),
        ],
        "nist": [
            ("xnist-images-idx3-ubyte.xz", "7f124b3b8ab81486c9d8c2749c17f834"),
            ("xnist-labels-idx2-int.xz", "5ed0e788978e45d4a8bd4b7caec3d79d"),
        ],
    }
    mirrors = ["https://raw.githubusercontent.com/facebookresearch/qmnist/master/"]

    def __init__(
        self,
        root: str | os.PathLike[str],
        what: str | None = None,
        compat: bool = True,
        train: bool = True,
        **kwargs: Any,
    ) -> None:
        self.what = verify_str_arg(
            ("train" if train else "test") if what is None else what, "what", tuple(self.subsets)
        )
        self.compat = compat
        super().__init__(root, train, **kwargs)

    def _files(self) -> tuple[str, str]:
        images, labels = (name for name, _ in self.resources_of[self.subsets[self.what]])
        return os.path.splitext(images)[0], os.path.splitext(labels)[0]

    def _load_data(self) -> tuple[Tensor, Tensor]:
        images, labels = (str(self._path(name)) for name in self._files())
        data = read_image_file(images)
        targets = read_sn3_pascalvincent_tensor(labels).long()
        if targets.ndim != 2 or targets.shape[0] != data.shape[0]:
            raise RuntimeError(f"{labels} does not hold one row for each of {len(data)} images")
        if self.what == "test10k":
            return data[0:10000].clone(), targets[0:10000].clone()
        if self.what == "test50k":
            return data[10000:].clone(), targets[10000:].clone()
        return data, targets

    def download(self) -> None:
        """Fetch the original files of this part, unless they are there."""
        if self._check_exists():
            return
        import lzma

        os.makedirs(self.raw_folder, exist_ok=True)
        for name, md5 in self.resources_of[self.subsets[self.what]]:
            download_from_mirrors(self.mirrors, name, self.raw_folder, md5)
            path = os.path.join(self.raw_folder, name)
            if name.endswith(".xz"):
                with lzma.open(path) as packed, open(path[:-3], "wb") as file:
                    shutil.copyfileobj(packed, file)
            else:
                extract_archive(path, self.raw_folder)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = pillow().fromarray(self.data[index].numpy())
        row = self.targets[index]
        return self._done(image, int(row[0]) if self.compat else row)

    def extra_repr(self) -> str:
        """Which part it is."""
        return f"Split: {self.what}"
