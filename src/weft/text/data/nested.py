"""A field of fields, for the characters of words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import weft
from weft.text.data.field import Field


class NestedField(Field):
    """A list of tokens, each of which another field takes apart: (batch, words, characters)."""

    def __init__(
        self,
        nesting_field: Field,
        use_vocab: bool = True,
        init_token: str | None = None,
        eos_token: str | None = None,
        fix_length: int | None = None,
        dtype: Any = weft.long,
        preprocessing: Callable[..., Any] | None = None,
        postprocessing: Callable[..., Any] | None = None,
        tokenize: Any = None,
        tokenizer_language: str = "en",
        include_lengths: bool = False,
        pad_token: str | None = "<pad>",
        pad_first: bool = False,
        truncate_first: bool = False,
    ) -> None:
        if isinstance(nesting_field, NestedField):
            raise ValueError("nesting field must not be another NestedField")
        if nesting_field.include_lengths:
            raise ValueError("nesting field cannot have include_lengths=True")
        if nesting_field.sequential:
            pad_token = nesting_field.pad_token
        super().__init__(
            use_vocab=use_vocab,
            init_token=init_token,
            eos_token=eos_token,
            fix_length=fix_length,
            dtype=dtype,
            preprocessing=preprocessing,
            postprocessing=postprocessing,
            lower=nesting_field.lower,
            tokenize=tokenize,
            tokenizer_language=tokenizer_language,
            include_lengths=include_lengths,
            batch_first=True,
            pad_token=pad_token,
            unk_token=nesting_field.unk_token,
            pad_first=pad_first,
            truncate_first=truncate_first,
        )
        self.nesting_field = nesting_field
        nesting_field.batch_first = True

    def preprocess(self, x: Any) -> Any:
        """The tokens, each as the nested field takes it."""
        return [self.nesting_field.preprocess(token) for token in super().preprocess(x)]

    def pad(self, minibatch: Iterable[Any]) -> Any:
        """Lists of words of one length, each word padded to one length by the nested field.

        With ``include_lengths`` also the numbers of words and the lengths of all words.
        """
        rows = list(minibatch)
        inner = self.nesting_field
        if not inner.sequential:
            return super().pad(rows)
        width = inner.fix_length
        if width is None:
            marks = (inner.init_token is not None) + (inner.eos_token is not None)
            width = marks + max(len(word) for row in rows for word in row)
        # A begin or end token of this field is a word of one symbol to the nested one.
        words, counts = self._pad_words(rows, [self.pad_token] * width)
        padded, lengths = [], []
        for row, count in zip(words, counts, strict=True):
            now, lens = _pad_inner(inner, row, width)
            missing = len(row) - count
            blank = range(missing) if self.pad_first else range(len(row) - missing, len(row))
            for i in blank:
                now[i], lens[i] = [self.pad_token] * width, 0
            padded.append(now)
            lengths.append(lens)
        return (padded, counts, lengths) if self.include_lengths else padded

    def _pad_words(self, rows: list[Any], blank: list[Any]) -> tuple[list[Any], list[int]]:
        outer = Field(
            init_token=None if self.init_token is None else [self.init_token],  # type: ignore[arg-type]
            eos_token=None if self.eos_token is None else [self.eos_token],  # type: ignore[arg-type]
            fix_length=self.fix_length,
            include_lengths=True,
            pad_token=blank,  # type: ignore[arg-type]
            pad_first=self.pad_first,
            truncate_first=self.truncate_first,
        )
        return outer.pad(rows)

    def build_vocab(self, *args: Any, **kwargs: Any) -> None:
        """One vocabulary for this field and the nested one, of the nested one's tokens."""
        vectors = {k: kwargs.pop(k, None) for k in ("vectors", "unk_init", "vectors_cache")}
        words = [row for column in self._columns(args) for row in column]
        self.nesting_field.build_vocab(*words, **kwargs)
        inner = self.nesting_field.vocab
        super().build_vocab()
        self.vocab.extend(inner)
        self.vocab.freqs = inner.freqs.copy()
        if vectors["vectors"] is not None:
            self.vocab.load_vectors(
                vectors["vectors"], unk_init=vectors["unk_init"], cache=vectors["vectors_cache"]
            )
        self.nesting_field.vocab = self.vocab

    def numericalize(self, arr: Any, device: Any = None) -> Any:
        """A tensor of (batch, words, characters), with lengths if ``include_lengths``."""
        lengths: list[Any] = []
        if self.include_lengths:
            arr, *lengths = arr
        made = weft.stack([self.nesting_field.numericalize(row, device=device) for row in arr])
        if not self.include_lengths:
            return made
        return made, *(weft.tensor(n, dtype=self.dtype, device=device) for n in lengths)


def _pad_inner(field: Field, row: list[Any], width: int) -> tuple[list[Any], list[int]]:
    """Words padded by a field to a width, with their lengths; the field stays as it was."""
    before = field.fix_length, field.include_lengths
    field.fix_length, field.include_lengths = width, True
    try:
        return field.pad(row)
    finally:
        field.fix_length, field.include_lengths = before
