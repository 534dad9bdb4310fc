"""Text: tokenisers, vocabularies, datasets, transforms and models, with torchtext's names.

>>> from weft.text.data import get_tokenizer
>>> get_tokenizer("basic_english")("You can now install it.")
['you', 'can', 'now', 'install', 'it', '.']
"""

from weft.text import (
    data,
    datasets,
    functional,
    legacy,
    models,
    tokenizers,
    transforms,
    utils,
    vocab,
)

__all__ = [
    "data",
    "datasets",
    "functional",
    "legacy",
    "models",
    "tokenizers",
    "transforms",
    "utils",
    "vocab",
]

# The last release of torchtext; `data` and `datasets` also have the classes of 0.6, which later
# releases kept as `legacy`.
__version__ = "0.18.0"


def disable_torchtext_deprecation_warning() -> None:
    """Nothing: nothing here warns."""
