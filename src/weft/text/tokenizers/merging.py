"""Byte-pair encoding on symbols: learning merges from counted words, and applying them."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

Pair = tuple[str, str]


def merge_all(symbols: Sequence[str], ranks: Mapping[Pair, int], joint: str = "") -> list[str]:
    """Join neighbours, those of the lowest rank first, until no pair has a rank.

    >>> merge_all("lower", {("l", "o"): 0, ("lo", "w"): 1})
    ['low', 'e', 'r']
    """
    parts = list(symbols)
    none = len(ranks)
    while len(parts) > 1:
        best = min(itertools.pairwise(parts), key=lambda pair: ranks.get(pair, none))
        if best not in ranks:
            break
        parts = _joined(parts, best, best[0] + best[1].removeprefix(joint))
    return parts


def _joined(parts: list[str], pair: Pair, whole: str) -> list[str]:
    """The symbols with every occurrence of a pair as one symbol, found from left to right."""
    made, i = [], 0
    while i < len(parts):
        if i + 1 < len(parts) and parts[i] == pair[0] and parts[i + 1] == pair[1]:
            made.append(whole)
            i += 2
        else:
            made.append(parts[i])
            i += 1
    return made


class _Learner:
    """Words as symbols, with the counts of all pairs of neighbours kept up to date."""

    def __init__(self, words: Mapping[tuple[str, ...], int], alphabet: Iterable[str]) -> None:
        self.words = [list(word) for word in words]
        self.times = list(words.values())
        self.ids = {symbol: i for i, symbol in enumerate(alphabet)}
        self.counts: Counter[Pair] = Counter()
        self.places: dict[Pair, set[int]] = {}
        for i in range(len(self.words)):
            self._add(i, self.times[i])
        self.heap = [self._entry(pair) for pair in self.counts]
        heapq.heapify(self.heap)

    def _entry(self, pair: Pair) -> tuple[int, int, int, Pair]:
        # Most frequent first; among equals the pair whose symbols were known first.
        return -self.counts[pair], self.ids[pair[0]], self.ids[pair[1]], pair

    def _add(self, i: int, times: int) -> set[Pair]:
        pairs = list(zip(self.words[i], self.words[i][1:], strict=False))
        for pair in pairs:
            self.counts[pair] += times
            self.places.setdefault(pair, set()).add(i)
        return set(pairs)

    def best(self, least: int) -> Pair | None:
        """The most frequent pair that occurs often enough."""
        while self.heap:
            count, _, _, pair = heapq.heappop(self.heap)
            now = self.counts[pair]
            if now != -count:  # counts changed since; the pair stands further back now
                if now > 0:
                    heapq.heappush(self.heap, self._entry(pair))
                continue
            return pair if now >= least else None
        return None

    def join(self, pair: Pair, whole: str) -> None:
        """Make one symbol of a pair everywhere."""
        self.ids.setdefault(whole, len(self.ids))
        touched: set[Pair] = set()
        for i in self.places.pop(pair, ()):
            for old in zip(self.words[i], self.words[i][1:], strict=False):
                self.counts[old] -= self.times[i]
            self.words[i] = _joined(self.words[i], pair, whole)
            touched |= self._add(i, self.times[i])
        self.counts[pair] = 0
        for changed in touched:
            heapq.heappush(self.heap, self._entry(changed))


def learn_merges(
    words: Mapping[tuple[str, ...], int],
    alphabet: Iterable[str],
    count: int,
    min_frequency: int = 2,
    joint: str = "",
) -> list[Pair]:
    """The pairs to join, most frequent first; at most ``count`` new symbols are made.

    ``joint`` is the mark of symbols inside a word, which a joined symbol has only in front.
    """
    learner = _Learner(words, alphabet)
    size = len(learner.ids) + count
    merges: list[Pair] = []
    while len(learner.ids) < size and (pair := learner.best(min_frequency)) is not None:
        merges.append(pair)
        learner.join(pair, pair[0] + pair[1].removeprefix(joint))
    return merges
