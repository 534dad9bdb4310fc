"""Fields: how a column becomes tokens, numbers and a tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.text.data.dataset import Dataset
from weft.text.data.pipeline import Pipeline
from weft.text.data.utils import get_tokenizer
from weft.text.vocab import Vocab


class RawField:
    """A column that is left as it is, but for ``preprocessing`` and ``postprocessing``."""

    def __init__(
        self,
        preprocessing: Callable[..., Any] | None = None,
        postprocessing: Callable[..., Any] | None = None,
        is_target: bool = False,
    ) -> None:
        self.preprocessing = preprocessing
        self.postprocessing = postprocessing
        self.is_target = is_target

    def preprocess(self, x: Any) -> Any:
        """What an example holds of a value."""
        return x if self.preprocessing is None else self.preprocessing(x)

    def process(self, batch: list[Any], *args: Any, **kwargs: Any) -> Any:
        """What a batch holds of a list of values."""
        return batch if self.postprocessing is None else self.postprocessing(batch)


class Field(RawField):
    """A column of text (or numbers) that becomes a tensor of token numbers.

    >>> text = Field(init_token="<s>", include_lengths=True, batch_first=True)
    >>> text.build_vocab([["a", "b"], ["a"]])
    >>> text.process([["a"], ["b", "a"]])[0]
    tensor([[2, 3, 1],
            [2, 4, 3]])
    """

    vocab: Vocab

    def __init__(
        self,
        sequential: bool = True,
        use_vocab: bool = True,
        init_token: str | None = None,
        eos_token: str | None = None,
        fix_length: int | None = None,
        dtype: Any = weft.long,
        preprocessing: Callable[..., Any] | None = None,
        postprocessing: Callable[..., Any] | None = None,
        lower: bool = False,
        tokenize: Any = None,
        tokenizer_language: str = "en",
        include_lengths: bool = False,
        batch_first: bool = False,
        pad_token: str | None = "<pad>",
        unk_token: str | None = "<unk>",
        pad_first: bool = False,
        truncate_first: bool = False,
        stop_words: Iterable[str] | None = None,
        is_target: bool = False,
    ) -> None:
        super().__init__(preprocessing, postprocessing, is_target)
        self.sequential = sequential
        self.use_vocab = use_vocab
        self.init_token: Any = init_token
        self.eos_token: Any = eos_token
        self.unk_token = unk_token
        self.fix_length = fix_length
        self.dtype = dtype
        self.lower = lower
        self.tokenizer_args = (tokenize, tokenizer_language)
        self.tokenize = get_tokenizer(tokenize, tokenizer_language)
        self.include_lengths = include_lengths
        self.batch_first = batch_first
        self.pad_token: Any = pad_token if sequential else None
        self.pad_first = pad_first
        self.truncate_first = truncate_first
        try:
            self.stop_words = None if stop_words is None else set(stop_words)
        except TypeError:
            raise ValueError("Stop words must be convertible to a set") from None

    def __getstate__(self) -> dict[str, Any]:
        # Tokenisers of other packages can't be pickled, so they are made again by their names.
        return {k: v for k, v in self.__dict__.items() if k != "tokenize"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.tokenize = get_tokenizer(*self.tokenizer_args)

    def preprocess(self, x: Any) -> Any:
        """Tokens of a string, lowered and without stop words where these are asked for."""
        if self.sequential and isinstance(x, str):
            x = self.tokenize(x.rstrip("\n"))
        if self.lower:
            x = Pipeline(str.lower)(x)
        if self.sequential and self.use_vocab and self.stop_words is not None:
            x = [token for token in x if token not in self.stop_words]
        return super().preprocess(x)

    def process(self, batch: list[Any], device: Any = None, **kwargs: Any) -> Any:
        """Pad, turn into numbers and make a tensor."""
        return self.numericalize(self.pad(batch), device=device)

    def pad(self, minibatch: Iterable[Any]) -> Any:
        """Token lists of one length, with their own lengths if ``include_lengths``."""
        rows = list(minibatch)
        if not self.sequential:
            return rows
        begin = [] if self.init_token is None else [self.init_token]
        end = [] if self.eos_token is None else [self.eos_token]
        if self.fix_length is None:
            longest = max(len(row) for row in rows)
        else:
            longest = self.fix_length - len(begin) - len(end)
        padded, lengths = [], []
        for row in rows:
            kept = row[-longest:] if self.truncate_first else row[:longest]
            filled = [*begin, *kept, *end]
            padding = [self.pad_token] * max(0, longest - len(row))
            lengths.append(len(filled))
            padded.append(padding + filled if self.pad_first else filled + padding)
        return (padded, lengths) if self.include_lengths else padded

    def _columns(self, sources: Sequence[Any]) -> list[Any]:
        """The columns of datasets that are this field's, and other iterables as they are."""
        found: list[Any] = []
        for source in sources:
            if isinstance(source, Dataset):
                names = [name for name, field in source.fields.items() if field is self]
                found += [getattr(source, name) for name in names]
            else:
                found.append(source)
        return found

    def build_vocab(self, *args: Any, **kwargs: Any) -> None:
        """Make ``vocab`` of the tokens of datasets or iterables; options are those of Vocab."""
        counter: Counter[str] = Counter()
        for column in self._columns(args):
            for tokens in column:
                if not self.sequential:
                    tokens = [tokens]
                try:
                    counter.update(tokens)
                except TypeError:  # lists of lists
                    counter.update(chain.from_iterable(tokens))
        marks = [self.unk_token, self.pad_token, self.init_token, self.eos_token]
        marks += list(kwargs.pop("specials", ()))
        specials = list(dict.fromkeys(mark for mark in marks if mark is not None))
        self.vocab = Vocab(counter, specials=specials, **kwargs)

    def _numbers(self, rows: Any) -> Any:
        if self.use_vocab:
            if not hasattr(self, "vocab"):
                raise AttributeError("the field has no vocabulary yet: call build_vocab(dataset)")
            table = self.vocab.stoi
            if self.sequential:
                return [[table[token] for token in row] for row in rows]
            return [table[token] for token in rows]
        if self.dtype.is_complex or self.dtype == weft.bool:
            raise ValueError(
                f"Specified Field dtype {self.dtype} can not be used with use_vocab=False: "
                "there is no rule from text to it"
            )
        if self.sequential:
            return rows
        number: Callable[[str], Any] = float if self.dtype.is_floating_point else int
        return [number(x) if isinstance(x, str) else x for x in rows]

    def numericalize(self, arr: Any, device: Any = None) -> Any:
        """A tensor of what ``pad`` gave, and a tensor of lengths if ``include_lengths``."""
        if self.include_lengths and not isinstance(arr, tuple):
            raise ValueError(
                "Field has include_lengths set to True, but input data is not a tuple of "
                "(data batch, batch lengths)."
            )
        lengths = None
        if isinstance(arr, tuple):
            arr, counted = arr
            lengths = weft.tensor(counted, dtype=self.dtype, device=device)
        numbers = self._numbers(arr)
        if self.postprocessing is not None:
            numbers = self.postprocessing(numbers, self.vocab if self.use_vocab else None)
        made = weft.tensor(numbers, dtype=self.dtype, device=device)
        if self.sequential and not self.batch_first:
            made = made.t().contiguous()
        return (made, lengths) if self.include_lengths else made


class LabelField(Field):
    """A column of labels: one token each, no unknown token, a target."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "sequential": False, "unk_token": None, "is_target": True})


class ReversibleField(Field):
    """A field whose batches can be turned into text again; tokens are joined by ``joint``.

    torchtext takes the package revtok for its tokens unless ``tokenize=list``; here that is
    done with ``tokenize="revtok"``, and else tokens are joined by a space (characters by nothing).
    """

    def __init__(self, **kwargs: Any) -> None:
        self._revtok = kwargs.get("tokenize") == "revtok"
        self.joint = "" if kwargs.get("tokenize") in (list, "char") else " "
        super().__init__(**{"unk_token": " UNK ", **kwargs})

    def reverse(self, batch: Tensor) -> list[str]:
        """The texts of a batch up to their end tokens, without begin and padding tokens."""
        rows = (batch if self.batch_first else batch.t()).tolist()
        return [self._text([self.vocab.itos[i] for i in row]) for row in rows]

    def _text(self, tokens: list[str]) -> str:
        if self.eos_token in tokens:
            tokens = tokens[: tokens.index(self.eos_token)]
        tokens = [t for t in tokens if t not in (self.init_token, self.pad_token)]
        if self._revtok:
            import revtok

            return revtok.detokenize(tokens)
        return self.joint.join(tokens)
