"""``torchtext.legacy.data``: fields, examples, datasets and iterators."""

from weft.text.data import *  # noqa: F403
from weft.text.data import __all__ as __all__
