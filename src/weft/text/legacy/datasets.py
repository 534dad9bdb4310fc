"""``torchtext.legacy.datasets``: datasets of examples."""

from weft.text.datasets import *  # noqa: F403
from weft.text.datasets import __all__ as __all__
