"""Choosing tokens: greedy and beam search, and sampling."""

from __future__ import annotations

import weft
from weft import nn
from weft.core.tensor import Tensor

# What a decoder keeps from step to step: tensors with the batch as their first dimension.
State = dict[str, Tensor]


class Translator(nn.Module):
    """A model that reads a sequence and writes another, one token after the other."""

    def begin(self, src: Tensor) -> State:
        """The state before the first token, of source tokens (batch, time)."""
        raise NotImplementedError

    def advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (batch, vocabulary) behind the newest tokens (batch,), and the new state."""
        raise NotImplementedError

    def _begin(self, src: Tensor) -> State:
        if self.training:
            raise RuntimeError("dropout is on, which would disturb the search: call eval() first")
        with weft.no_grad():
            return self.begin(src)

    def greedy(self, src: Tensor, begin: int, end: int, max_length: int = 50) -> list[list[int]]:
        """Translations by the likeliest token at each step."""
        return greedy_search(self, self._begin(src), begin, end, max_length)

    def beam(
        self,
        src: Tensor,
        begin: int,
        end: int,
        max_length: int = 50,
        beams: int = 4,
        length_penalty: float = 1.0,
    ) -> list[list[int]]:
        """Translations by beam search."""
        return beam_search(self, self._begin(src), begin, end, max_length, beams, length_penalty)


def greedy_search(
    model: Translator, state: State, begin: int, end: int, max_length: int = 50
) -> list[list[int]]:
    """The most probable token at each step, for each row, without ``begin`` and ``end``."""
    count = len(next(iter(state.values())))
    now = weft.full((count,), begin, dtype=weft.long)
    rows: list[list[int]] = [[] for _ in range(count)]
    running = set(range(count))
    with weft.no_grad():
        for _ in range(max_length):
            logits, state = model.advance(now, state)
            now = logits.argmax(dim=-1)
            for i, token in enumerate(now.tolist()):
                if i in running and token == end:
                    running.discard(i)
                elif i in running:
                    rows[i].append(token)
            if not running:
                break
    return rows


class _Beams:
    """The hypotheses of one row: the active ones, and the best finished ones."""

    def __init__(self, width: int, penalty: float) -> None:
        self.width = width
        self.penalty = penalty
        self.ended: list[tuple[float, list[int]]] = []
        self.done = False

    def _worth(self, score: float, tokens: list[int]) -> float:
        # The token that ends a sentence counts.
        return score / (len(tokens) + 1) ** self.penalty

    def finish(self, score: float, tokens: list[int]) -> None:
        self.ended.append((self._worth(score, tokens), tokens))
        self.ended = sorted(self.ended, key=lambda pair: -pair[0])[: self.width]

    def check(self, best: float, tokens: list[int], longest: int) -> None:
        """Stop once no active hypothesis can become better than the worst one kept.

        Scores only fall, and a longer sentence is divided by more, so the bound is the longest.
        """
        if len(self.ended) == self.width:
            bound = best / max(len(tokens) + 1, longest if self.penalty > 0 else 0) ** self.penalty
            self.done = self.ended[-1][0] >= bound

    def best(self, live: list[tuple[float, list[int]]]) -> list[int]:
        for score, tokens in [] if self.ended else live:  # none ended in time
            self.finish(score, tokens)
        return self.ended[0][1]


def beam_search(
    model: Translator,
    state: State,
    begin: int,
    end: int,
    max_length: int = 50,
    beams: int = 4,
    length_penalty: float = 1.0,
) -> list[list[int]]:
    """The best of ``beams`` sentences that grow side by side, for each row.

    A sentence's score is the sum of its tokens' log-probabilities, divided by its length to the
    power of ``length_penalty``.
    """
    count = len(next(iter(state.values())))
    state = {name: t.repeat_interleave(beams, dim=0) for name, t in state.items()}
    rows = [_Beams(beams, length_penalty) for _ in range(count)]
    live: list[list[tuple[float, list[int]]]] = [[(0.0, [])] for _ in range(count)]
    now = weft.full((count * beams,), begin, dtype=weft.long)
    with weft.no_grad():
        for _ in range(max_length):
            logits, state = model.advance(now, state)
            log_p = logits.float().log_softmax(dim=-1).reshape(count, beams, -1)
            places, tokens = [], []
            for i in range(count):
                kept = _expanded(rows[i], live[i], log_p[i], end, max_length)
                places += [i * beams + parent for parent, _ in kept]
                tokens += [token for _, token in kept]
            if all(row.done for row in rows):
                break
            order = weft.tensor(places)
            state = {name: t.index_select(0, order) for name, t in state.items()}
            now = weft.tensor(tokens)
    return [row.best(some) for row, some in zip(rows, live, strict=True)]


def _expanded(
    row: _Beams,
    live: list[tuple[float, list[int]]],
    log_p: Tensor,
    end: int,
    max_length: int,
) -> list[tuple[int, int]]:
    """Take one step of a row: changes ``live``, gives the parent and the token of each beam."""
    if row.done:
        return [(0, end)] * row.width
    scores = weft.tensor([score for score, _ in live], dtype=log_p.dtype)
    total = (log_p[: len(live)] + scores[:, None]).reshape(-1)
    # Each beam ends in at most one way, so twice as many leave enough active ones.
    best, where = total.topk(min(2 * row.width, total.numel()))
    size = log_p.shape[-1]
    grown: list[tuple[float, list[int]]] = []
    kept: list[tuple[int, int]] = []
    for rank, (score, place) in enumerate(zip(best.tolist(), where.tolist(), strict=True)):
        parent, token = divmod(place, size)
        if token == end:
            if rank < row.width:
                row.finish(score, live[parent][1])
        elif len(grown) < row.width:
            grown.append((score, [*live[parent][1], token]))
            kept.append((parent, token))
    if grown:
        live[:] = grown
        row.check(*grown[0], max_length)
    else:
        row.done = True
    return kept + [(0, end)] * (row.width - len(kept))


def filter_logits(logits: Tensor, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Logits with all but the likeliest at minus infinity.

    ``top_k`` keeps that many; ``top_p`` keeps the fewest whose probabilities reach it.

    >>> filter_logits(weft.tensor([[1.0, 3.0, 2.0]]), top_k=2)
    tensor([[-inf, 3., 2.]])
    """
    if top_k is not None and top_k < logits.shape[-1]:
        if top_k < 1:
            raise ValueError(f"top_k is at least 1, not {top_k}")
        least = logits.topk(top_k, dim=-1)[0][..., -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    if top_p is not None and top_p < 1:
        if top_p <= 0:
            raise ValueError(f"top_p is above 0, not {top_p}")
        sorted_logits, order = logits.sort(dim=-1)
        unlikely = sorted_logits.softmax(dim=-1).cumsum(dim=-1) <= 1 - top_p
        unlikely[..., -1] = False  # the likeliest stays
        removed = weft.zeros_like(unlikely).scatter(-1, order, unlikely)
        logits = logits.masked_fill(removed, float("-inf"))
    return logits


def sample_tokens(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: weft.Generator | None = None,
) -> Tensor:
    """A token for each row of logits, drawn at random; temperature 0 takes the likeliest."""
    if temperature < 0:
        raise ValueError(f"temperature is not negative, not {temperature}")
    if temperature == 0:
        return logits.argmax(dim=-1)
    kept = filter_logits(logits.float() / temperature, top_k, top_p)
    return weft.multinomial(kept.softmax(dim=-1), 1, generator=generator)[:, 0]
