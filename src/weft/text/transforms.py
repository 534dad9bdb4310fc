"""Transforms of text as modules, with torchtext's names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.text import functional as F
from weft.text.tokenizers import ByteLevelBPE, WordPiece
from weft.text.vocab import Vocab

__all__ = [
    "AddToken",
    "BERTTokenizer",
    "GPT2BPETokenizer",
    "LabelToIndex",
    "PadTransform",
    "RegexTokenizer",
    "Sequential",
    "StrToIntTransform",
    "ToTensor",
    "Truncate",
    "VocabTransform",
]


class Sequential(nn.Sequential):
    """Transforms one after the other.

    >>> Sequential(Truncate(2), AddToken(0), ToTensor())([5, 6, 7])
    tensor([0, 5, 6])
    """


class VocabTransform(nn.Module):
    """Tokens to their numbers in a vocabulary."""

    def __init__(self, vocab: Vocab) -> None:
        super().__init__()
        if not isinstance(vocab, Vocab):
            raise AssertionError(f"VocabTransform takes a Vocab, not {type(vocab)}")
        self.vocab = vocab

    def forward(self, input: Any) -> Any:
        """Numbers of a list of tokens, or of a batch of lists."""
        return F.on_each(self.vocab.lookup_indices, input, str)


class ToTensor(nn.Module):
    """Numbers to a tensor, padded if there is a padding value."""

    def __init__(self, padding_value: int | None = None, dtype: weft.dtype = weft.long) -> None:
        super().__init__()
        self.padding_value = padding_value
        self.dtype = dtype

    def forward(self, input: Any) -> Tensor:
        """The tensor."""
        return F.to_tensor(input, self.padding_value, self.dtype)


class LabelToIndex(nn.Module):
    """Labels to their places in a list of labels, or in a file with a label on each line."""

    def __init__(
        self,
        label_names: Sequence[str] | None = None,
        label_path: str | None = None,
        sort_names: bool = False,
    ) -> None:
        super().__init__()
        if bool(label_names) == bool(label_path):
            raise AssertionError("give either label_names or label_path")
        if label_path:
            with open(label_path, encoding="utf-8") as file:
                label_names = [line.strip() for line in file if line.strip()]
        names = list(label_names or ())
        self._label_vocab = Vocab.of_tokens(sorted(names) if sort_names else names)

    @property
    def label_names(self) -> list[str]:
        """The labels in their order."""
        return self._label_vocab.get_itos()

    def forward(self, input: str | list[str]) -> Any:
        """The number of a label, or of each of a list."""
        return self._label_vocab[input] if isinstance(input, str) else self._label_vocab(input)


class Truncate(nn.Module):
    """The first tokens."""

    def __init__(self, max_seq_len: int) -> None:
        super().__init__()
        self.max_seq_len = max_seq_len

    def forward(self, input: Any) -> Any:
        """The shortened list, or lists."""
        return F.truncate(input, self.max_seq_len)


class AddToken(nn.Module):
    """A token in front, or at the end."""

    def __init__(self, token: int | str, begin: bool = True) -> None:
        super().__init__()
        self.token = token
        self.begin = begin

    def forward(self, input: Any) -> Any:
        """The longer list, or lists."""
        return F.add_token(input, self.token, self.begin)


class PadTransform(nn.Module):
    """A tensor padded to at least a length."""

    def __init__(self, max_length: int, pad_value: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.pad_value = float(pad_value)

    def forward(self, x: Tensor) -> Tensor:
        """The tensor, longer in its last dimension if it was too short."""
        missing = max(0, self.max_length - x.size(-1))
        return weft.nn.functional.pad(x, (0, missing), value=self.pad_value) if missing else x


class StrToIntTransform(nn.Module):
    """Spelled numbers to numbers."""

    def forward(self, input: Any) -> Any:
        """The numbers."""
        return F.str_to_int(input)


class _Tokenizer(nn.Module):
    """A tokeniser of a string or of a list of strings; numbers come spelled, as in torchtext."""

    def __init__(self, return_tokens: bool) -> None:
        super().__init__()
        self._return_tokens = return_tokens

    def _tokens(self, text: str) -> list[str]:
        raise NotImplementedError

    def _numbers(self, text: str) -> list[int]:
        raise NotImplementedError

    def _one(self, text: str) -> list[str]:
        return self._tokens(text) if self._return_tokens else list(map(str, self._numbers(text)))

    def forward(self, input: str | list[str]) -> Any:
        """The tokens of a text, or of each text of a list."""
        if isinstance(input, str):
            return self._one(input)
        if isinstance(input, list) and all(isinstance(text, str) for text in input):
            return [self._one(text) for text in input]
        raise TypeError(f"Input type not supported: {type(input)}; a string or a list of them is")


class GPT2BPETokenizer(_Tokenizer):
    """GPT-2's tokeniser, of ``encoder.json`` and ``vocab.bpe`` (``vocab.json``, ``merges.txt``)."""

    def __init__(
        self, encoder_json_path: str, vocab_bpe_path: str, return_tokens: bool = False
    ) -> None:
        super().__init__(return_tokens)
        self.bpe = ByteLevelBPE.from_files(encoder_json_path, vocab_bpe_path)

    def _tokens(self, text: str) -> list[str]:
        return [self.bpe.decode([i]) for i in self.bpe.encode(text)]

    def _numbers(self, text: str) -> list[int]:
        return self.bpe.encode(text)

    def decode(self, tokens: Sequence[str]) -> str:
        """The text of spelled numbers."""
        return self.bpe.decode([int(token) for token in tokens])


class BERTTokenizer(_Tokenizer):
    """BERT's tokeniser from ``vocab.txt``; no [CLS] and [SEP] are added."""

    def __init__(
        self,
        vocab_path: str,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        return_tokens: bool = False,
        never_split: Sequence[str] | None = None,
    ) -> None:
        super().__init__(return_tokens)
        options = {"do_lower_case": do_lower_case, "strip_accents": strip_accents}
        self.pieces = WordPiece.from_file(vocab_path, **options)
        self.pieces.special_tokens = [t for t in never_split or () if t in self.pieces.vocab]

    def _tokens(self, text: str) -> list[str]:
        return self.pieces.tokenize(text.strip())

    def _numbers(self, text: str) -> list[int]:
        return self.pieces.encode(text.strip(), add_special_tokens=False)


class RegexTokenizer(nn.Module):
    """Patterns replaced one after the other, and what is left split at spaces.

    >>> RegexTokenizer([("[,._+ ]+", " ")])("Basic.Regex,Line_of+Text")
    ['Basic', 'Regex', 'Line', 'of', 'Text']
    """

    def __init__(self, patterns_list: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.patterns = [(re.compile(pattern), text) for pattern, text in patterns_list]

    def forward(self, line: str) -> list[str]:
        """The tokens of a line."""
        for pattern, text in self.patterns:
            line = pattern.sub(text, line)
        return line.split()
