"""Tokenisers: functions from a string to tokens, and subword tokenisers with their trainers."""

from weft.text.tokenizers.basic import (
    basic_english,
    characters,
    get_tokenizer,
    regex_tokenizer,
    whitespace,
)
from weft.text.tokenizers.bpe import ByteLevelBPE
from weft.text.tokenizers.wordpiece import BasicTokenizer, WordPiece

__all__ = [
    "BasicTokenizer",
    "ByteLevelBPE",
    "WordPiece",
    "basic_english",
    "characters",
    "get_tokenizer",
    "regex_tokenizer",
    "whitespace",
]
