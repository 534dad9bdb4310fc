"""From the probabilities of a CTC model to symbols: the best path, and beam search."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any

import weft
from weft.core.tensor import Tensor

__all__ = ["CTCDecoder", "CTCHypothesis", "ctc_beam_search", "ctc_decoder", "ctc_greedy_search"]


@dataclasses.dataclass
class CTCHypothesis:
    """A decoded sequence: numbers of symbols, the score (a log-probability), frames of first use.

    ``words`` is empty, since there is no lexicon.
    """

    tokens: Tensor
    words: list[str]
    score: float
    timesteps: Tensor


def _checked(log_probs: Tensor, lengths: Any) -> list[Tensor]:
    if log_probs.ndim != 3:
        raise ValueError(
            f"log-probabilities are of shape (batch, time, symbols), not {tuple(log_probs.shape)}"
        )
    batch, time = log_probs.shape[:2]
    counts = [time] * batch if lengths is None else [int(n) for n in lengths]
    if len(counts) != batch or any(not 0 <= n <= time for n in counts):
        raise ValueError(
            f"lengths {counts} do not fit log-probabilities of {batch} x {time} frames"
        )
    return [row[:n] for row, n in zip(log_probs.detach(), counts, strict=True)]


def ctc_greedy_search(log_probs: Tensor, lengths: Any = None, blank: int = 0) -> list[list[int]]:
    """The likeliest symbol of each frame, repeats joined and blanks left out, for each row.

    ``log_probs`` is (batch, time, symbols).

    >>> frames = weft.tensor([[[0.1, 0.9], [0.2, 0.8], [0.9, 0.1], [0.3, 0.7]]]).log()
    >>> ctc_greedy_search(frames)
    [[1, 1]]
    """
    found = []
    for row in _checked(log_probs, lengths):
        best = row.argmax(dim=-1).tolist()
        joined = [b for i, b in enumerate(best) if i == 0 or b != best[i - 1]]
        found.append([b for b in joined if b != blank])
    return found


def _log_add(a: float, b: float) -> float:
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))


# The score of the best single alignment, and the frame of each symbol's first use in it.
Path = tuple[float, tuple[int, ...]]
_NO_PATH: Path = (-math.inf, ())


class _Prefix:
    """Log-probabilities of a prefix, with its last frame blank or not, and its best alignments."""

    __slots__ = ("blank", "path_to_blank", "path_to_symbol", "symbol")

    def __init__(self) -> None:
        self.blank = self.symbol = -math.inf
        self.path_to_blank = self.path_to_symbol = _NO_PATH

    @property
    def score(self) -> float:
        return _log_add(self.blank, self.symbol)

    @property
    def path(self) -> Path:
        return max(self.path_to_blank, self.path_to_symbol)

    def add_blank(self, score: float, path: Path) -> None:
        self.blank = _log_add(self.blank, score)
        self.path_to_blank = max(self.path_to_blank, path)

    def add_symbol(self, score: float, path: Path) -> None:
        self.symbol = _log_add(self.symbol, score)
        self.path_to_symbol = max(self.path_to_symbol, path)


def ctc_beam_search(
    log_probs: Tensor,
    lengths: Any = None,
    blank: int = 0,
    beam_size: int = 50,
    nbest: int = 1,
    beam_threshold: float = 50.0,
    beam_size_token: int | None = None,
) -> list[list[tuple[list[int], float, list[int]]]]:
    """The likeliest sequences of symbols, each the sum over its alignments, for each row.

    Each is (symbols, log-probability, frame of each symbol's first use in its best alignment).
    ``beam_size`` prefixes are kept at each frame, none more than ``beam_threshold`` below the best;
    ``beam_size_token`` limits how many symbols of a frame are tried.
    """
    if beam_size < 1 or nbest < 1:
        raise ValueError(f"beam_size {beam_size} and nbest {nbest} are at least 1")
    found = []
    for row in _checked(log_probs, lengths):
        first = _Prefix()
        first.add_blank(0.0, (0.0, ()))
        beams: dict[tuple[int, ...], _Prefix] = {(): first}
        for frame, values in enumerate(row.tolist()):
            symbols: Sequence[int] = range(len(values))
            if beam_size_token is not None and beam_size_token < len(values):
                likely = sorted(symbols, key=lambda s: -values[s])[:beam_size_token]
                symbols = sorted({*likely, blank})
            beams = _pruned(
                _stepped(beams, values, symbols, blank, frame), beam_size, beam_threshold
            )
        ranked = sorted(beams.items(), key=lambda pair: -pair[1].score)[:nbest]
        found.append([(list(text), p.score, list(p.path[1])) for text, p in ranked])
    return found


def _stepped(
    beams: dict[tuple[int, ...], _Prefix],
    values: list[float],
    symbols: Sequence[int],
    blank: int,
    frame: int,
) -> dict[tuple[int, ...], _Prefix]:
    """All prefixes one frame later."""
    new: dict[tuple[int, ...], _Prefix] = {}
    for text, now in beams.items():
        score, path = now.score, now.path
        stays = new.setdefault(text, _Prefix())
        stays.add_blank(score + values[blank], (path[0] + values[blank], path[1]))
        for symbol in symbols:
            value = values[symbol]
            if symbol == blank or value == -math.inf:
                continue
            before, way = score, path
            if text and text[-1] == symbol:
                # A repeat is the same symbol, unless a blank stands between.
                best, frames = now.path_to_symbol
                stays.add_symbol(now.symbol + value, (best + value, frames))
                before, way = now.blank, now.path_to_blank
            if before > -math.inf:
                grown = new.setdefault((*text, symbol), _Prefix())
                grown.add_symbol(before + value, (way[0] + value, (*way[1], frame)))
    return new


def _pruned(
    beams: dict[tuple[int, ...], _Prefix], size: int, threshold: float
) -> dict[tuple[int, ...], _Prefix]:
    scores = {text: prefix.score for text, prefix in beams.items()}
    kept = sorted(scores, key=lambda text: -scores[text])[:size]
    least = scores[kept[0]] - threshold
    return {text: beams[text] for text in kept if scores[text] >= least}


class CTCDecoder:
    """Beam search without a lexicon, with the symbols' names; made by ``ctc_decoder``."""

    def __init__(self, tokens: Sequence[str], blank_token: str, **options: Any) -> None:
        self.names = list(tokens)
        if blank_token not in self.names:
            raise ValueError(f"the blank {blank_token!r} is not among the tokens {self.names}")
        self.blank = self.names.index(blank_token)
        self.options = options

    def __call__(
        self, emissions: Tensor, lengths: Tensor | None = None
    ) -> list[list[CTCHypothesis]]:
        """The best hypotheses of log-probabilities (batch, time, symbols)."""
        if emissions.shape[-1] != len(self.names):
            raise ValueError(
                f"emissions have {emissions.shape[-1]} symbols, the decoder {len(self.names)}"
            )
        found = ctc_beam_search(emissions, lengths, self.blank, **self.options)
        return [
            [
                CTCHypothesis(
                    weft.tensor(t, dtype=weft.long), [], s, weft.tensor(f, dtype=weft.int32)
                )
                for t, s, f in row
            ]
            for row in found
        ]

    def idxs_to_tokens(self, idxs: Any) -> list[str]:
        """The names of symbols."""
        return [self.names[int(i)] for i in idxs]


def ctc_decoder(
    lexicon: Any,
    tokens: str | os.PathLike[str] | Sequence[str],
    lm: Any = None,
    nbest: int = 1,
    beam_size: int = 50,
    beam_size_token: int | None = None,
    beam_threshold: float = 50.0,
    blank_token: str = "-",
    **unused: Any,
) -> CTCDecoder:
    """A decoder of symbols by torchaudio's call; ``lexicon`` and ``lm`` are None.

    Scores are sums over alignments, as torchaudio's are with ``log_add=True``.
    """
    if lexicon is not None or lm is not None:
        raise NotImplementedError("ctc_decoder searches without a lexicon and a language model")
    if isinstance(tokens, (str, os.PathLike)):
        with open(tokens, encoding="utf-8") as file:
            tokens = [line.rstrip("\n") for line in file if line.strip()]
    return CTCDecoder(
        tokens,
        blank_token,
        nbest=nbest,
        beam_size=beam_size,
        beam_size_token=beam_size_token,
        beam_threshold=beam_threshold,
    )
