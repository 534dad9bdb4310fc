"""Handwritten digits: 1,797 real ones of 8 by 8 pixels, which come with scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass

import weft
from weft import Tensor

TEST_SHARE = 5  # every fifth digit, after shuffling, is for the test


class NoDigits(RuntimeError):
    """The package that holds the digits is not installed."""


@dataclass
class Digits:
    """Images of shape (count, 1, 8, 8) from 0 to 1, and which digits they show."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, size: int) -> list[Tensor]:
        """Places of all digits in a random order, a batch each."""
        return list(weft.randperm(len(self)).split(size))


def load(seed: int = 0) -> tuple[Digits, Digits]:
    """The digits to learn from, and those to be tested with."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise NoDigits(
            "the demo needs scikit-learn, which has the digits: pip install 'weft[demo]'"
        ) from None
    found = load_digits()
    images = weft.from_numpy(found.images).float().unsqueeze(1) / 16
    labels = weft.from_numpy(found.target).long()
    order = weft.randperm(len(labels), generator=weft.Generator().manual_seed(seed))
    test, train = order[: len(order) // TEST_SHARE], order[len(order) // TEST_SHARE :]
    return Digits(images[train], labels[train]), Digits(images[test], labels[test])
