"""Classifiers of token sequences: convolutions over words, and recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.nn.utils.rnn import pack_padded_sequence


def _embedding(size: int, dim: int, padding: int | None, vectors: Tensor | None) -> nn.Embedding:
    """A table of embeddings, drawn at random or begun with pretrained vectors."""
    if vectors is None:
        return nn.Embedding(size, dim, padding_idx=padding)
    if tuple(vectors.shape) != (size, dim):
        raise ValueError(
            f"vectors of shape {tuple(vectors.shape)} do not fit vocab_size {size} and "
            f"embed_dim {dim}"
        )
    return nn.Embedding.from_pretrained(vectors.clone(), freeze=False, padding_idx=padding)


class TextCNN(nn.Module):
    """Kim's network: windows of several widths over embeddings, and the maximum over time.

    >>> TextCNN(100, 16, 3)(weft.zeros(2, 7, dtype=weft.long)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        num_classes: int,
        kernel_sizes: Sequence[int] = (3, 4, 5),
        num_filters: int = 100,
        dropout: float = 0.5,
        padding_idx: int | None = None,
        vectors: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.embedding = _embedding(vocab_size, embed_dim, padding_idx, vectors)
        self.convs = nn.ModuleList(nn.Conv1d(embed_dim, num_filters, k) for k in kernel_sizes)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(num_filters * len(kernel_sizes), num_classes)
        self.padding_idx = padding_idx
        self.widest = max(kernel_sizes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, classes) of token numbers (batch, time)."""
        missing = self.widest - tokens.shape[1]
        if missing > 0:  # no window would fit
            tokens = nn.functional.pad(tokens, (0, missing), value=self.padding_idx or 0)
        x = self.embedding(tokens).transpose(1, 2)
        found = [conv(x).relu().amax(dim=2) for conv in self.convs]
        return self.fc(self.dropout(weft.cat(found, dim=1)))


class _RecurrentClassifier(nn.Module):
    """The last states of a recurrent layer in both directions, and a linear layer."""

    kind: Any

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        hidden_dim: int,
        num_classes: int,
        num_layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.5,
        padding_idx: int | None = None,
        vectors: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.embedding = _embedding(vocab_size, embed_dim, padding_idx, vectors)
        options: dict[str, Any] = {"batch_first": True, "bidirectional": bidirectional}
        options["dropout"] = dropout if num_layers > 1 else 0.0
        self.rnn = self.kind(embed_dim, hidden_dim, num_layers, **options)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(hidden_dim * (2 if bidirectional else 1), num_classes)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Logits (batch, classes) of token numbers (batch, time).

        Padding behind ``lengths`` is not read.
        """
        x = self.dropout(self.embedding(tokens))
        if lengths is not None:
            x = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        state = self.rnn(x)[1]
        hidden = state[0] if isinstance(state, tuple) else state
        last = weft.cat(list(hidden[-2:]), dim=1) if self.rnn.bidirectional else hidden[-1]
        return self.fc(self.dropout(last))


class LSTMClassifier(_RecurrentClassifier):
    """An LSTM and a linear layer on its last states.

    >>> net = LSTMClassifier(100, 8, 12, num_classes=2)
    >>> net(weft.zeros(3, 5, dtype=weft.long), weft.tensor([5, 2, 1])).shape
    torch.Size([3, 2])
    """

    kind = nn.LSTM


class GRUClassifier(_RecurrentClassifier):
    """A GRU and a linear layer on its last states."""

    kind = nn.GRU
