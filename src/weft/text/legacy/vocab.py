"""``torchtext.legacy.vocab``: vocabularies made of counters."""

from weft.text.vocab import *  # noqa: F403
from weft.text.vocab import __all__ as __all__
