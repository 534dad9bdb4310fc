"""Data sets of images, read from a local folder; they download only when asked to."""

from weft.vision.datasets import folder, utils
from weft.vision.datasets.cifar import CIFAR10, CIFAR100
from weft.vision.datasets.fakedata import FakeData
from weft.vision.datasets.folder import DatasetFolder, ImageFolder
from weft.vision.datasets.mnist import EMNIST, KMNIST, MNIST, QMNIST, FashionMNIST
from weft.vision.datasets.svhn import SVHN
from weft.vision.datasets.vision import VisionDataset

__all__ = [
    "CIFAR10", "CIFAR100", "EMNIST", "KMNIST", "MNIST", "QMNIST", "SVHN", "DatasetFolder",
    "FakeData", "FashionMNIST", "ImageFolder", "VisionDataset", "folder", "utils",
]  # fmt: skip
