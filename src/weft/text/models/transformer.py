"""A Transformer from sequence to sequence."""

from __future__ import annotations

import math

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.text.models.generation import State, Translator


class PositionalEncoding(nn.Module):
    """Sines and cosines of the position, added to (batch, time, width)."""

    pe: Tensor

    def __init__(self, d_model: int, dropout: float = 0.1, max_length: int = 512) -> None:
        super().__init__()
        if d_model % 2:
            raise ValueError(f"d_model is even, so that each sine has its cosine; it is {d_model}")
        position = weft.arange(max_length).unsqueeze(1)
        rate = weft.exp(weft.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        angles = position * rate
        table = weft.stack([angles.sin(), angles.cos()], dim=2).reshape(max_length, d_model)
        self.register_buffer("pe", table, persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """The sum, with dropout."""
        if x.shape[1] > len(self.pe):
            raise ValueError(f"a sequence of {x.shape[1]} is longer than max_length={len(self.pe)}")
        return self.dropout(x + self.pe[: x.shape[1]])


class Seq2SeqTransformer(Translator):
    """The encoder-decoder Transformer on token numbers (batch, time), with all its masks.

    >>> net = Seq2SeqTransformer(20, 30, d_model=16, nhead=2, dim_feedforward=32)
    >>> net(weft.ones(2, 5, dtype=weft.long), weft.ones(2, 4, dtype=weft.long)).shape
    torch.Size([2, 4, 30])
    """

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 3,
        num_decoder_layers: int = 3,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        padding_idx: int = 0,
        max_length: int = 512,
        norm_first: bool = False,
        tie_output: bool = False,
    ) -> None:
        super().__init__()
        self.transformer = nn.Transformer(
            d_model,
            nhead,
            num_encoder_layers,
            num_decoder_layers,
            dim_feedforward,
            dropout,
            batch_first=True,
            norm_first=norm_first,
        )
        self.src_embedding = nn.Embedding(src_vocab_size, d_model, padding_idx=padding_idx)
        self.tgt_embedding = nn.Embedding(tgt_vocab_size, d_model, padding_idx=padding_idx)
        for table in (self.src_embedding, self.tgt_embedding):
            nn.init.normal_(table.weight, std=d_model**-0.5)
            with weft.no_grad():
                table.weight[padding_idx].zero_()
        self.positions = PositionalEncoding(d_model, dropout, max_length)
        self.generator = nn.Linear(d_model, tgt_vocab_size)
        if tie_output:
            self.generator.weight = self.tgt_embedding.weight
        self.padding_idx = padding_idx
        self.scale = math.sqrt(d_model)

    def encode(self, src: Tensor) -> Tensor:
        """What the decoder reads of the source."""
        x = self.positions(self.src_embedding(src) * self.scale)
        return self.transformer.encoder(x, src_key_padding_mask=src == self.padding_idx)

    def decode(self, tgt: Tensor, memory: Tensor, memory_padding: Tensor) -> Tensor:
        """Features of the targets, each of which sees itself and those before it."""
        mask = weft.ones(tgt.shape[1], tgt.shape[1], dtype=weft.bool).triu(1)
        return self.transformer.decoder(
            self.positions(self.tgt_embedding(tgt) * self.scale),
            memory,
            tgt_mask=mask,
            tgt_key_padding_mask=tgt == self.padding_idx,
            memory_key_padding_mask=memory_padding,
        )

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Logits (batch, time, vocabulary) of the token behind each target token."""
        return self.generator(self.decode(tgt, self.encode(src), src == self.padding_idx))

    def begin(self, src: Tensor) -> State:
        """What a search keeps of the source."""
        return {"memory": self.encode(src), "padding": src == self.padding_idx}

    def advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """One step of a search: logits behind the newest tokens."""
        so_far = tokens[:, None]
        if "written" in state:
            so_far = weft.cat([state["written"], so_far], dim=1)
        features = self.decode(so_far, state["memory"], state["padding"])
        return self.generator(features[:, -1]), {**state, "written": so_far}
