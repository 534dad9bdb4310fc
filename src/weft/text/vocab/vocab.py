"""A vocabulary: tokens and their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.text.vocab.vectors import Vectors, pretrained_aliases


class TokenNumbers(dict[str, int]):
    """Numbers by token; an unknown token has the default number, and is not added."""

    default: int | None = None

    def __missing__(self, token: str) -> int:
        if self.default is None:
            raise KeyError(f"{token!r} is not in the vocabulary, which has no default number")
        return self.default


class Vocab(nn.Module):
    """Tokens and their numbers, with the methods of both of torchtext's interfaces.

    ``Vocab(counter, …)`` is that of ``Field`` and of programs before torchtext 0.9: the special
    tokens, then all others by falling frequency; ``stoi`` and ``itos`` are its tables. Newer
    programs use ``vocab`` or ``build_vocab_from_iterator``.

    >>> words = Vocab(Counter("a b b c c c".split()), min_freq=2)
    >>> words.itos, words["c"], words["never seen"]
    (['<unk>', '<pad>', 'c', 'b'], 2, 0)
    """

    UNK = "<unk>"
    itos: list[str]
    stoi: TokenNumbers
    freqs: Counter[str]
    vectors: Tensor | None

    def __init__(
        self,
        counter: Counter[str],
        max_size: int | None = None,
        min_freq: int = 1,
        specials: Sequence[str] = ("<unk>", "<pad>"),
        vectors: Any = None,
        unk_init: Callable[[Tensor], Tensor] | None = None,
        vectors_cache: str | None = None,
        specials_first: bool = True,
    ) -> None:
        super().__init__()
        specials = list(specials)
        kept = [(t, n) for t, n in counter.items() if n >= max(min_freq, 1) and t not in specials]
        words = [token for token, _ in sorted(kept, key=lambda pair: (-pair[1], pair[0]))]
        if max_size is not None:
            words = words[:max_size]
        self._fill(specials + words if specials_first else words + specials)
        if self.UNK in specials:
            self.stoi.default = self.stoi[self.UNK]
        self.freqs = counter
        if vectors is not None:
            self.load_vectors(vectors, unk_init=unk_init, cache=vectors_cache)
        elif unk_init is not None or vectors_cache is not None:
            raise ValueError(
                "unk_init and vectors_cache are about vectors, of which there are none"
            )

    @classmethod
    def of_tokens(cls, tokens: Iterable[str]) -> Vocab:
        """A vocabulary of tokens in their order, without a default number."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made._fill(list(tokens))
        made.freqs = Counter()
        return made

    def _fill(self, tokens: list[str]) -> None:
        repeated = [token for token, times in Counter(tokens).items() if times > 1]
        if repeated:
            raise RuntimeError(f"a vocabulary holds a token once; {repeated[0]!r} comes again")
        self.itos = tokens
        self.stoi = TokenNumbers((token, i) for i, token in enumerate(tokens))
        self.vectors = None

    @property
    def unk_index(self) -> int | None:
        """The number of unknown tokens."""
        return self.stoi.default

    def __len__(self) -> int:
        return len(self.itos)

    def __contains__(self, token: str) -> bool:
        return token in self.stoi

    def __getitem__(self, token: str) -> int:
        try:
            return self.stoi[token]
        except KeyError:
            raise RuntimeError(
                f"Token {token} not found and default index is not set: "
                "set_default_index(number) says what unknown tokens are"
            ) from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocab):
            return NotImplemented
        mine, theirs = self.vectors, other.vectors
        same = (mine is None) == (theirs is None)
        if same and mine is not None and theirs is not None:
            same = mine.shape == theirs.shape and bool((mine == theirs).all())
        return same and self.itos == other.itos and self.freqs == other.freqs

    __hash__ = nn.Module.__hash__

    def __repr__(self) -> str:
        return f"Vocab({len(self)} tokens)"

    def forward(self, tokens: Sequence[str]) -> list[int]:
        """The numbers of tokens."""
        return self.lookup_indices(tokens)

    def set_default_index(self, index: int | None) -> None:
        """Give unknown tokens a number; None makes them an error."""
        self.stoi.default = index

    def get_default_index(self) -> int | None:
        """The number of unknown tokens, if they have one."""
        return self.stoi.default

    def insert_token(self, token: str, index: int) -> None:
        """Put a new token at a place; those behind it move on by one."""
        if not 0 <= index <= len(self):
            raise RuntimeError(
                f"Specified index {index} is out of bounds of vocab of size {len(self)}"
            )
        if token in self.stoi:
            raise RuntimeError(
                f"Token {token} already exists in the Vocab with index: {self.stoi[token]}"
            )
        default = self.stoi.default
        self._fill([*self.itos[:index], token, *self.itos[index:]])
        self.stoi.default = default

    def append_token(self, token: str) -> None:
        """Put a new token at the end."""
        self.insert_token(token, len(self))

    def lookup_token(self, index: int) -> str:
        """The token of a number."""
        if not 0 <= index < len(self):
            raise RuntimeError(
                f"Specified index {index} is out of bounds of vocab of size {len(self)}"
            )
        return self.itos[index]

    def lookup_tokens(self, indices: Sequence[int]) -> list[str]:
        """The tokens of numbers."""
        return [self.lookup_token(int(i)) for i in indices]

    def lookup_indices(self, tokens: Sequence[str]) -> list[int]:
        """The numbers of tokens."""
        return [self[token] for token in tokens]

    def get_stoi(self) -> dict[str, int]:
        """Numbers by token."""
        return dict(self.stoi)

    def get_itos(self) -> list[str]:
        """Tokens by number."""
        return list(self.itos)

    def extend(self, v: Vocab, sort: bool = False) -> None:
        """Add the tokens of another vocabulary that are new here."""
        for token in sorted(v.itos) if sort else v.itos:
            if token not in self.stoi:
                self.stoi[token] = len(self.itos)
                self.itos.append(token)

    def load_vectors(
        self,
        vectors: Any,
        unk_init: Callable[[Tensor], Tensor] | None = None,
        cache: str | None = None,
        **options: Any,
    ) -> None:
        """Set ``vectors`` from one or several ``Vectors``, side by side, or from their names."""
        found = []
        for source in vectors if isinstance(vectors, list) else [vectors]:
            if isinstance(source, str):
                if source not in pretrained_aliases:
                    known = ", ".join(pretrained_aliases)
                    raise ValueError(f"unknown vectors {source!r}; known are {known}")
                source = pretrained_aliases[source](unk_init=unk_init, cache=cache, **options)
            elif not isinstance(source, Vectors):
                raise ValueError(f"vectors are of class Vectors or names, not {type(source)}")
            found.append(source)
        # One after the other, token by token, since unk_init may draw random numbers.
        rows = [weft.cat([v[token.strip()].reshape(-1) for v in found]) for token in self.itos]
        self.vectors = weft.stack(rows)

    def set_vectors(
        self,
        stoi: Mapping[str, int],
        vectors: Any,
        dim: int,
        unk_init: Callable[[Tensor], Tensor] = Tensor.zero_,
    ) -> None:
        """Set ``vectors`` from a table of vectors and the places of tokens in it."""
        made = weft.zeros(len(self), dim)
        for i, token in enumerate(self.itos):
            place = stoi.get(token)
            made[i] = unk_init(made[i]) if place is None else vectors[place]
        self.vectors = made


def vocab(
    ordered_dict: dict[str, int],
    min_freq: int = 1,
    specials: Sequence[str] | None = None,
    special_first: bool = True,
) -> Vocab:
    """A vocabulary of the tokens of a dict with their frequencies, in its order.

    >>> letters = vocab({"b": 2, "a": 1}, specials=["<unk>"])
    >>> letters.set_default_index(0)
    >>> letters(["a", "b", "z"])
    [2, 1, 0]
    """
    marks = list(specials or ())
    words = [token for token, times in ordered_dict.items() if times >= min_freq]
    words = [token for token in words if token not in marks]
    return Vocab.of_tokens(marks + words if special_first else words + marks)


def build_vocab_from_iterator(
    iterator: Iterable[Iterable[str]],
    min_freq: int = 1,
    specials: Sequence[str] | None = None,
    special_first: bool = True,
    max_tokens: int | None = None,
) -> Vocab:
    """A vocabulary of all tokens of an iterator, by falling frequency, then by the alphabet.

    >>> build_vocab_from_iterator([["b", "a"], ["b"]], specials=["<pad>"]).get_itos()
    ['<pad>', 'b', 'a']
    """
    counter: Counter[str] = Counter()
    for tokens in iterator:
        counter.update(tokens)
    pairs = sorted(counter.items(), key=lambda pair: (-pair[1], pair[0]))
    if max_tokens is not None:
        marks = len(specials or ())
        if marks >= max_tokens:
            raise AssertionError(
                f"len(specials) >= max_tokens ({marks} >= {max_tokens}), "
                "so the vocab will be entirely special tokens."
            )
        pairs = pairs[: max_tokens - marks]
    return vocab(dict(pairs), min_freq, specials, special_first)
