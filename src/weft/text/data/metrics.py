"""BLEU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from weft.text.data.utils import ngrams_iterator


def _ngrams(tokens: Sequence[str], longest: int) -> Counter[tuple[str, ...]]:
    # A token with a space in it counts as several, as in torchtext.
    return Counter(tuple(gram.split(" ")) for gram in ngrams_iterator(tokens, longest))


def bleu_score(
    candidate_corpus: Sequence[Sequence[str]],
    references_corpus: Sequence[Sequence[Sequence[str]]],
    max_n: int = 4,
    weights: Sequence[float] = (0.25, 0.25, 0.25, 0.25),
) -> float:
    """BLEU of translations (lists of tokens), each with a list of references; from 0 to 1.

    >>> said = [["My", "full", "pytorch", "test"], ["Another", "Sentence"]]
    >>> right = [[["My", "full", "pytorch", "test"], ["Something", "else"]], [["No", "Match"]]]
    >>> round(bleu_score(said, right), 4)
    0.8409
    """
    if max_n != len(weights):
        raise AssertionError(f"there are {len(weights)} weights for n-grams up to max_n={max_n}")
    if len(candidate_corpus) != len(references_corpus):
        raise AssertionError(
            f"{len(candidate_corpus)} candidates have references for {len(references_corpus)}"
        )
    matched, total = [0] * max_n, [0] * max_n
    said_length = right_length = 0
    for said, references in zip(candidate_corpus, references_corpus, strict=True):
        said_length += len(said)
        right_length += min((len(r) for r in references), key=lambda n: abs(n - len(said)))
        right: Counter[tuple[str, ...]] = Counter()
        for reference in references:
            right |= _ngrams(reference, max_n)
        for gram, times in (_ngrams(said, max_n) & right).items():
            matched[len(gram) - 1] += times
        for n in range(max_n):
            total[n] += max(len(said) - n, 0)
    if min(matched) == 0:
        return 0.0
    logs = [w * math.log(m / t) for w, m, t in zip(weights, matched, total, strict=True)]
    return math.exp(sum(logs) + min(1 - right_length / said_length, 0))
