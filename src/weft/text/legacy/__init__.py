"""The place of fields and iterators in torchtext 0.9 to 0.11."""

from weft.text.legacy import data, datasets, vocab

__all__ = ["data", "datasets", "vocab"]
