"""WordPiece with BERT's normalisation."""

from __future__ import annotations

import os
import pathlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.io import atomic
from weft.text.tokenizers.merging import learn_merges

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def _is_punctuation(character: str) -> bool:
    # All ASCII signs count, also those that Unicode calls symbols ("$", "^").
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character)[0] == "P"


def _cleaned(character: str) -> str:
    if character in "\t\n\r":
        return " "
    kind = unicodedata.category(character)
    if kind == "Zs":
        return " "
    if character in "\0�" or kind in ("Cc", "Cf", "Cn", "Co", "Cs"):
        return ""
    if any(low <= ord(character) <= high for low, high in _IDEOGRAPHS):
        return f" {character} "
    return character


class BasicTokenizer:
    """BERT's words: cleaned, lowered without accents if asked, signs and ideographs apart.

    >>> BasicTokenizer()("Café, 中文!")
    ['cafe', ',', '中', '文', '!']
    """

    def __init__(self, do_lower_case: bool = True, strip_accents: bool | None = None) -> None:
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents

    def __call__(self, text: str) -> list[str]:
        text = "".join(map(_cleaned, text))
        if self.strip_accents:
            text = unicodedata.normalize("NFD", text)
            text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        if self.do_lower_case:
            text = text.lower()
        return "".join(f" {c} " if _is_punctuation(c) else c for c in text).split()


class WordPiece:
    """BERT's tokeniser: words cut into the longest pieces that the vocabulary has.

    >>> pieces = WordPiece(["[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "!"])
    >>> pieces.tokenize("Unaffable!"), pieces.encode("Unaffable!")
    (['un', '##aff', '##able', '!'], [1, 3, 4, 5, 6, 2])
    """

    def __init__(
        self,
        vocab: Iterable[str],
        do_lower_case: bool = True,
        unk_token: str = "[UNK]",
        max_chars_per_word: int = 100,
        strip_accents: bool | None = None,
    ) -> None:
        self.itos = list(vocab)
        self.vocab = {token: i for i, token in enumerate(self.itos)}
        if unk_token not in self.vocab:
            raise ValueError(f"the vocabulary has no {unk_token!r} for words that it can't spell")
        self.unk_token = unk_token
        self.max_chars_per_word = max_chars_per_word
        self.words = BasicTokenizer(do_lower_case, strip_accents)
        self.special_tokens = [token for token in SPECIALS if token in self.vocab]

    @classmethod
    def from_file(cls, vocab_file: str | os.PathLike[str], **options: Any) -> WordPiece:
        """Read BERT's ``vocab.txt``: a token on each line."""
        text = pathlib.Path(vocab_file).read_text(encoding="utf-8")
        return cls(text.removesuffix("\n").split("\n"), **options)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 1000,
        min_frequency: int = 2,
        special_tokens: Sequence[str] = SPECIALS,
        do_lower_case: bool = True,
    ) -> WordPiece:
        """Learn a vocabulary by joining the most frequent neighbours within words."""
        split, words = BasicTokenizer(do_lower_case), Counter[str]()
        for text in texts:
            words.update(split(text))
        spelled = {(w[0], *(f"##{c}" for c in w[1:])): n for w, n in words.items()}
        alphabet = [*special_tokens, *sorted({symbol for word in spelled for symbol in word})]
        if vocab_size < len(alphabet):
            raise ValueError(
                f"vocab_size {vocab_size} is less than the {len(alphabet)} to begin with"
            )
        count = vocab_size - len(alphabet)
        merges = learn_merges(spelled, alphabet, count, min_frequency, joint="##")
        made = [a + b.removeprefix("##") for a, b in merges]
        return cls(dict.fromkeys([*alphabet, *made]), do_lower_case)

    def save(self, vocab_file: str | os.PathLike[str]) -> None:
        """Write the vocabulary, a token on each line."""
        with atomic.replacing(vocab_file) as file:
            file.write("".join(f"{token}\n" for token in self.itos).encode())

    def __len__(self) -> int:
        return len(self.itos)

    def _cut(self, word: str) -> list[str]:
        if len(word) > self.max_chars_per_word:
            return [self.unk_token]
        pieces, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if mark + word[start:e] in self.vocab), None)
            if end is None:  # a word is spelled as a whole or not at all
                return [self.unk_token]
            pieces.append(mark + word[start:end])
            start = end
        return pieces

    def tokenize(self, text: str) -> list[str]:
        """The pieces of a text; special tokens in it stay whole."""
        if not self.special_tokens:
            return [piece for word in self.words(text) for piece in self._cut(word)]
        tokens: list[str] = []
        cut = re.split("(" + "|".join(map(re.escape, self.special_tokens)) + ")", text)
        for i, part in enumerate(cut):
            if i % 2:
                tokens.append(part)
            else:
                tokens += [piece for word in self.words(part) for piece in self._cut(word)]
        return tokens

    def _number(self, token: str) -> int:
        if token not in self.vocab:
            raise ValueError(
                f"the vocabulary has no {token!r}; encode with add_special_tokens=False"
            )
        return self.vocab[token]

    def encode(
        self, text: str, pair: str | None = None, add_special_tokens: bool = True
    ) -> list[int]:
        """The numbers of a text, or of a pair of texts, between [CLS] and [SEP]."""
        return self._encode(text, pair, add_special_tokens)[0]

    def _encode(self, text: str, pair: str | None, marked: bool) -> tuple[list[int], list[int]]:
        ids: list[int] = [self._number("[CLS]")] if marked else []
        types = [0] * len(ids)
        for kind, part in enumerate([text] if pair is None else [text, pair]):
            now = [self.vocab[token] for token in self.tokenize(part)]
            now += [self._number("[SEP]")] if marked else []
            ids += now
            types += [kind] * len(now)
        return ids, types

    def __call__(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """A padded batch with the names of BERT's arguments."""
        seconds = [None] * len(texts) if pairs is None else list(pairs)
        coded = [self._encode(a, b, True) for a, b in zip(texts, seconds, strict=True)]
        longest = max((len(ids) for ids, _ in coded), default=0)
        pad = self._number("[PAD]")
        rows = lambda values, fill: weft.tensor([v + [fill] * (longest - len(v)) for v in values])
        return {
            "input_ids": rows([ids for ids, _ in coded], pad),
            "token_type_ids": rows([types for _, types in coded], 0),
            "attention_mask": rows([[1] * len(ids) for ids, _ in coded], 0),
        }

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The pieces of numbers, joined to words with spaces between."""
        tokens = [self.itos[int(i)] for i in ids]
        if skip_special_tokens:
            tokens = [token for token in tokens if token not in self.special_tokens]
        return " ".join(tokens).replace(" ##", "")
