"""Byte-level byte-pair encoding, as GPT-2 uses it."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from weft.io import atomic
from weft.text.tokenizers.merging import learn_merges, merge_all

END = "<|endoftext|>"


@functools.cache
def byte_symbols() -> tuple[str, ...]:
    """A printable character for each byte: itself where it is printable, else from 256 on.

    >>> byte_symbols()[ord("a")], byte_symbols()[ord(" ")]
    ('a', 'Ġ')
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return tuple(chr(b if b in printable else next(others)) for b in range(256))


@functools.cache
def _words() -> re.Pattern[str]:
    """GPT-2's pattern of what is merged within: contractions, words, numbers, signs, spaces.

    A word, a number or a group of signs takes the space in front of it.
    """
    numbers = _class_of_numbers()
    kinds = rf"[^\W_{numbers}]+", f"[{numbers}]+", r"(?:[^\s\w]|_)+"
    contractions = "'s|'t|'re|'ve|'m|'ll|'d"
    return re.compile("|".join([contractions, *(f" ?{k}" for k in kinds), r"\s+(?!\S)", r"\s+"]))


def _class_of_numbers() -> str:
    r"""The ranges of \p{N}, which Python's re does not know; \d leaves out fractions and others."""
    codes = [c for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c))[0] == "N"]
    starts = [c for i, c in enumerate(codes) if i == 0 or codes[i - 1] != c - 1]
    ends = [c for i, c in enumerate(codes) if i + 1 == len(codes) or codes[i + 1] != c + 1]
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends, strict=True))


def _spelled(word: str) -> str:
    symbols = byte_symbols()
    return "".join(symbols[b] for b in word.encode("utf-8", "surrogatepass"))


class ByteLevelBPE:
    """A byte-level BPE tokeniser; any string is encoded, and decoded to itself.

    >>> bpe = ByteLevelBPE.train(["low lower lowest"] * 4, vocab_size=260)
    >>> bpe.tokenize("lower low"), bpe.decode(bpe.encode("lower low"))
    (['low', 'e', 'r', 'Ġlow'], 'lower low')
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        special_tokens: Iterable[str] = (END,),
    ) -> None:
        self.vocab = dict(vocab)
        self.merges = [(a, b) for a, b in merges]
        self.special_tokens = [token for token in special_tokens if token in self.vocab]
        self._ranks = {pair: i for i, pair in reversed(list(enumerate(self.merges)))}
        self._symbols = {i: token for token, i in self.vocab.items()}
        self._bytes = {symbol: b for b, symbol in enumerate(byte_symbols())}
        self._known: dict[str, list[str]] = {}

    @classmethod
    def from_files(
        cls, vocab_file: str | os.PathLike[str], merges_file: str | os.PathLike[str]
    ) -> ByteLevelBPE:
        """Read GPT-2's ``vocab.json`` (or ``encoder.json``) and ``merges.txt`` (``vocab.bpe``)."""
        vocab = json.loads(pathlib.Path(vocab_file).read_text(encoding="utf-8"))
        if not isinstance(vocab, dict) or not all(isinstance(i, int) for i in vocab.values()):
            raise ValueError(f"{os.fspath(vocab_file)!r} is not a vocabulary: tokens with numbers")
        merges = []
        lines = pathlib.Path(merges_file).read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines, 1):
            if not line.strip() or (number == 1 and line.startswith("#version")):
                continue
            first, space, second = line.partition(" ")
            if not space or " " in second:
                where = f"{os.fspath(merges_file)!r}, line {number}"
                raise ValueError(f"{where}: a merge is two symbols, not {line!r}")
            merges.append((first, second))
        return cls(vocab, merges)

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str]) -> ByteLevelBPE:
        """Read ``vocab.json`` and ``merges.txt`` of a folder."""
        return cls.from_files(
            pathlib.Path(folder, "vocab.json"), pathlib.Path(folder, "merges.txt")
        )

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 1000,
        min_frequency: int = 2,
        special_tokens: Sequence[str] = (),
    ) -> ByteLevelBPE:
        """Learn a vocabulary of special tokens, the 256 bytes and the most frequent merges."""
        alphabet = [*special_tokens, *sorted(byte_symbols())]
        if vocab_size < len(alphabet):
            raise ValueError(
                f"vocab_size {vocab_size} is less than the {len(alphabet)} to begin with"
            )
        words: Counter[tuple[str, ...]] = Counter()
        for text in texts:
            words.update(tuple(_spelled(word)) for word in _words().findall(text))
        merges = learn_merges(words, alphabet, vocab_size - len(alphabet), min_frequency)
        tokens = dict.fromkeys([*alphabet, *(a + b for a, b in merges)])
        return cls({token: i for i, token in enumerate(tokens)}, merges, special_tokens)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``vocab.json`` and ``merges.txt`` into a folder."""
        os.makedirs(folder, exist_ok=True)
        merges = "".join(["#version: 0.2\n", *(f"{a} {b}\n" for a, b in self.merges)])
        for name, text in (
            ("vocab.json", json.dumps(self.vocab, ensure_ascii=False)),
            ("merges.txt", merges),
        ):
            with atomic.replacing(pathlib.Path(folder, name)) as file:
                file.write(text.encode())

    def __len__(self) -> int:
        return len(self.vocab)

    def _pieces(self, text: str) -> list[tuple[str, bool]]:
        """The text cut at special tokens, and whether a piece is one."""
        if not self.special_tokens:
            return [(text, False)]
        longest_first = sorted(self.special_tokens, key=len, reverse=True)
        cut = re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text)
        return [(piece, i % 2 == 1) for i, piece in enumerate(cut) if piece]

    def tokenize(self, text: str) -> list[str]:
        """The symbols of a text, in the printable spelling of the vocabulary."""
        tokens: list[str] = []
        for piece, special in self._pieces(text):
            if special:
                tokens.append(piece)
                continue
            for word in _words().findall(piece):
                if word not in self._known:
                    if len(self._known) > 100_000:
                        self._known.clear()
                    self._known[word] = merge_all(_spelled(word), self._ranks)
                tokens += self._known[word]
        return tokens

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's symbols."""
        try:
            return [self.vocab[token] for token in self.tokenize(text)]
        except KeyError as error:
            raise ValueError(f"the vocabulary has no symbol {error.args[0]!r}") from None

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text of numbers; bytes that are not UTF-8 become U+FFFD."""
        data = bytearray()
        for i in ids:
            token = self._symbols.get(int(i))
            if token is None:
                raise ValueError(f"the vocabulary of {len(self)} tokens has no number {int(i)}")
            if token not in self.special_tokens:
                data += bytes(self._bytes[c] for c in token)
            elif not skip_special_tokens:
                data += token.encode()
        return data.decode("utf-8", "replace")

    __call__ = encode
