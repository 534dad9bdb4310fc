"""Street View House Numbers, from MATLAB files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.vision._pillow import pillow
from weft.vision.datasets.utils import download_url, verify_str_arg
from weft.vision.datasets.vision import VisionDataset, not_found


class SVHN(VisionDataset):
    """Digits of house numbers, 32x32, read from ``root/train_32x32.mat`` and its like."""

    split_list = {
        name: (f"http://ufldl.stanford.edu/housenumbers/{name}_32x32.mat", f"{name}_32x32.mat", md5)
        for name, md5 in (
            ("train", "e26dedcc434d2e4c54c9b2d4a06d8373"),
            ("test", "eb5a983be6a315427106f1b164d9cef3"),
            ("extra", "a93ce644f1a588dc4d68dda5feec44a7"),
        )
    }

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = "train",
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = verify_str_arg(split, "split", tuple(self.split_list))
        self.url, self.filename, self.file_md5 = self.split_list[split]
        if download:
            self.download()
        path = os.path.join(str(self.root), self.filename)
        if not os.path.isfile(path):
            raise not_found("SVHN", path)
        from scipy.io import loadmat

        loaded = loadmat(path)
        if "X" not in loaded or "y" not in loaded:
            raise RuntimeError(f"{path} has no X and y: it is not a file of SVHN")
        labels = loaded["y"].astype(np.int64).squeeze(1)
        self.labels = np.where(labels == 10, 0, labels)  # the file has 10 for the digit 0
        self.data = np.ascontiguousarray(np.transpose(loaded["X"], (3, 2, 0, 1)))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = pillow().fromarray(np.ascontiguousarray(self.data[index].transpose(1, 2, 0)))
        return self._done(image, int(self.labels[index]))

    def __len__(self) -> int:
        return len(self.data)

    def download(self) -> None:
        """Fetch the file, unless it is there and whole."""
        download_url(self.url, str(self.root), self.filename, self.file_md5)

    def extra_repr(self) -> str:
        """Which part it is."""
        return f"Split: {self.split}"
