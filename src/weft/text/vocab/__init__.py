"""Vocabularies and pretrained word vectors."""

from weft.text.vocab.vectors import CharNGram, FastText, GloVe, Vectors, pretrained_aliases
from weft.text.vocab.vocab import Vocab, build_vocab_from_iterator, vocab

__all__ = [
    "CharNGram",
    "FastText",
    "GloVe",
    "Vectors",
    "Vocab",
    "build_vocab_from_iterator",
    "pretrained_aliases",
    "vocab",
]
