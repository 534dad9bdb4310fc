"""Recurrent sequence to sequence with attention."""

from __future__ import annotations

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from weft.text.models.generation import State, Translator


def _mix(scores: Tensor, memory: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of memory by the softmax of scores, and the weights; padding has none."""
    weights = scores.masked_fill(padding[:, None], float("-inf")).softmax(dim=-1)
    return weights @ memory, weights


class BahdanauAttention(nn.Module):
    """Additive attention: ``v · tanh(W q + U m)`` of each query and each memory."""

    def __init__(self, query_dim: int, memory_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_dim, hidden_dim, bias=False)
        self.memory = nn.Linear(memory_dim, hidden_dim)
        self.score = nn.Linear(hidden_dim, 1, bias=False)

    def forward(self, query: Tensor, memory: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts (batch, queries, memory_dim) and weights (batch, queries, time)."""
        sums = self.query(query)[:, :, None] + self.memory(memory)[:, None]
        return _mix(self.score(sums.tanh())[..., 0], memory, padding)


class LuongAttention(nn.Module):
    """Multiplicative attention: ``q · m`` (``"dot"``) or ``q · W m`` (``"general"``)."""

    def __init__(self, query_dim: int, memory_dim: int, method: str = "general") -> None:
        super().__init__()
        if method not in ("dot", "general"):
            raise ValueError(f"method is 'dot' or 'general', not {method!r}")
        if method == "dot" and query_dim != memory_dim:
            raise ValueError(f"'dot' needs equal widths, not {query_dim} and {memory_dim}")
        self.memory = nn.Linear(memory_dim, query_dim, bias=False) if method == "general" else None

    def forward(self, query: Tensor, memory: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        """Contexts (batch, queries, memory_dim) and weights (batch, queries, time)."""
        keys = memory if self.memory is None else self.memory(memory)
        return _mix(query @ keys.transpose(1, 2), memory, padding)


class AttentionSeq2Seq(Translator):
    """A bidirectional GRU that reads, and a GRU that writes with attention to what was read.

    With ``attention="bahdanau"`` the context of the state before goes into the step; with
    ``"luong"`` that of the state after the step goes into the output, so that all steps of a known
    target are one call.
    """

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        embed_dim: int = 256,
        hidden_dim: int = 256,
        attention: str = "bahdanau",
        dropout: float = 0.3,
        padding_idx: int = 0,
    ) -> None:
        super().__init__()
        if attention not in ("bahdanau", "luong"):
            raise ValueError(f"attention is 'bahdanau' or 'luong', not {attention!r}")
        wide = 2 * hidden_dim
        self.padding_idx = padding_idx
        self.src_embedding = nn.Embedding(src_vocab_size, embed_dim, padding_idx=padding_idx)
        self.tgt_embedding = nn.Embedding(tgt_vocab_size, embed_dim, padding_idx=padding_idx)
        self.encoder = nn.GRU(embed_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(wide, hidden_dim)
        self.early = attention == "bahdanau"
        self.attention: nn.Module
        if self.early:
            self.attention = BahdanauAttention(hidden_dim, wide, hidden_dim)
        else:
            self.attention = LuongAttention(hidden_dim, wide)
        self.decoder = nn.GRU(embed_dim + (wide if self.early else 0), hidden_dim, batch_first=True)
        self.combine = nn.Linear(hidden_dim + wide, embed_dim)
        self.output = nn.Linear(embed_dim, tgt_vocab_size)
        self.dropout = nn.Dropout(dropout)

    def begin(self, src: Tensor) -> State:
        """What the decoder reads and begins with; padding is not read."""
        padding = src == self.padding_idx
        lengths = (~padding).sum(dim=1).clamp(min=1).cpu()
        x = self.dropout(self.src_embedding(src))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        read, last = self.encoder(packed)
        memory = pad_packed_sequence(read, batch_first=True, total_length=src.shape[1])[0]
        begin = self.bridge(weft.cat([last[0], last[1]], dim=1)).tanh()
        return {"memory": memory, "padding": padding, "hidden": begin}

    def _steps(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits behind each of some tokens (batch, time), and the state behind the last."""
        x = self.dropout(self.tgt_embedding(tokens))
        memory, padding, hidden = state["memory"], state["padding"], state["hidden"]
        if self.early:
            context = self.attention(hidden[:, None], memory, padding)[0]
            x = weft.cat([x, context], dim=2)
        written, last = self.decoder(x, hidden[None].contiguous())
        if not self.early:
            context = self.attention(written, memory, padding)[0]
        mixed = self.combine(weft.cat([written, context], dim=2)).tanh()
        return self.output(self.dropout(mixed)), {**state, "hidden": last[0]}

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        teacher_forcing: float = 1.0,
        generator: weft.Generator | None = None,
    ) -> Tensor:
        """Logits (batch, time, vocabulary) of the token behind each target token.

        With ``teacher_forcing`` below 1 a step now and then reads the likeliest token of the step
        before instead of the target's.
        """
        state = self.begin(src)
        if not self.early and teacher_forcing >= 1:
            return self._steps(tgt, state)[0]
        made: list[Tensor] = []
        for i in range(tgt.shape[1]):
            now = tgt[:, i]
            if (
                made
                and teacher_forcing < 1
                and weft.rand((), generator=generator) >= teacher_forcing
            ):
                now = made[-1].argmax(dim=-1)
            logits, state = self._steps(now[:, None], state)
            made.append(logits[:, 0])
        return weft.stack(made, dim=1)

    def advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """One step of a search: logits behind the newest tokens."""
        logits, state = self._steps(tokens[:, None], state)
        return logits[:, 0], state
