"""The transformer: encoder, decoder, and both together."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from weft.core.modes import MODES
from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.containers import ModuleList
from weft.nn.dropout import Dropout
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.nn.multihead import MultiheadAttention
from weft.nn.normalization import LayerNorm
from weft.operators import api


def _causal_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    full = api.FUNCTIONS["full"]((size, size), float("-inf"), dtype=dtype, device=device)
    return full.triu(1)


def _detect_is_causal_mask(mask: Tensor | None, is_causal: bool | None, size: Any) -> bool:
    """Whether a mask is the causal one: as the caller says, or by looking at it."""
    if is_causal is not None or mask is None:
        return is_causal is True
    wanted = _causal_mask(mask.size(-2) if size is None else size, dtype=mask.dtype)
    return mask.shape == wanted.shape and bool((mask == wanted).all())


def _seq_len(src: Tensor, batch_first: bool) -> int:
    return src.size(1 if src.ndim == 3 and batch_first else 0)


def _activation(activation: Any) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return getattr(F, activation)


def _copies(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


class _Layer(Module):
    """What encoder and decoder layers share: attentions, and a feed-forward network."""

    __constants__ = ["norm_first"]
    _attentions: tuple[str, ...] = ()

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"bias": bias, "device": device, "dtype": dtype}
        attention = {"dropout": dropout, "batch_first": batch_first, **factory}
        for name in self._attentions:
            self.add_module(name, MultiheadAttention(d_model, nhead, **attention))
        self.linear1 = Linear(d_model, dim_feedforward, **factory)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **factory)
        self.norm_first = norm_first
        # One of each after every attention, and one after the feed-forward network.
        numbers = range(1, len(self._attentions) + 2)
        for number in numbers:
            self.add_module(f"norm{number}", LayerNorm(d_model, eps=layer_norm_eps, **factory))
        for number in numbers:
            self.add_module(f"dropout{number}", Dropout(dropout))
        self.activation = _activation(activation)

    def _sa_block(
        self, x: Tensor, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False
    ) -> Tensor:
        found = _attended(self.self_attn, x, x, attn_mask, key_padding_mask, is_causal)
        return self.dropout1(found)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


def _attended(
    attention: Module, x: Tensor, memory: Tensor, mask: Any, padding: Any, is_causal: bool
) -> Tensor:
    """What a sequence finds in another one."""
    return attention(
        *(x, memory, memory),
        attn_mask=mask,
        key_padding_mask=padding,
        need_weights=False,
        is_causal=is_causal,
    )[0]


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual and a normalisation."""

    _attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """The sequence after this layer."""
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._ff_block(x))

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self._feed_forward(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, and a feed-forward network."""

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The target sequence after this layer."""
        x = tgt
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), memory, *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, memory, *other))
        return self.norm3(x + self._ff_block(x))

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Any,
        key_padding_mask: Any,
        is_causal: bool = False,
    ) -> Tensor:
        found = _attended(self.multihead_attn, x, mem, attn_mask, key_padding_mask, is_causal)
        return self.dropout2(found)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self._feed_forward(x))


class TransformerEncoder(Module):
    """Several encoder layers, one after another."""

    __constants__ = ["norm"]

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        self.use_nested_tensor = enable_nested_tensor and _skips_padding(encoder_layer)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """The sequence after all layers."""
        output = src
        first = self.layers[0]
        size = _seq_len(src, first.self_attn.batch_first)
        causal = _detect_is_causal_mask(mask, is_causal, size)
        for layer in self.layers:
            output = layer(output, mask, src_key_padding_mask, causal)
        if src_key_padding_mask is not None:
            padding = src_key_padding_mask
            if padding.dtype.name != "bool":
                padding = padding == float("-inf")
            if self._leaves_out(src, mask, padding):
                output = output.masked_fill(padding.unsqueeze(-1), 0.0)
        return output if self.norm is None else self.norm(output)

    def _leaves_out(self, src: Tensor, mask: Any, padding: Tensor) -> bool:
        """Whether PyTorch would compute this without the padding, and so give zeros there."""
        if mask is not None or not self.use_nested_tensor or src.ndim != 3:
            return False
        recorded = MODES.now.grad and (
            src.requires_grad or any(p.requires_grad for p in self.layers[0].parameters())
        )
        if self.layers[0].training or recorded:
            return False
        if not self.mask_check:
            return True
        # Only padding at the end can be left out.
        return not bool((padding[:, :-1] & ~padding[:, 1:]).any())


def _skips_padding(layer: Any) -> bool:
    """Whether PyTorch has a fast way through layers of this kind, which skips padding."""
    if not isinstance(layer, TransformerEncoderLayer):
        return False
    attention = layer.self_attn
    activation = layer.activation
    return (
        not layer.norm_first
        and attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.in_proj_bias is not None
        and (activation in (F.relu, F.gelu) or type(activation).__name__ in ("ReLU", "GELU"))
        and layer.norm1.eps == layer.norm2.eps
        and attention.num_heads % 2 == 0
    )


class TransformerDecoder(Module):
    """Several decoder layers, one after another."""

    __constants__ = ["norm"]

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The target sequence after all layers."""
        output = tgt
        size = _seq_len(tgt, self.layers[0].self_attn.batch_first)
        causal = _detect_is_causal_mask(tgt_mask, tgt_is_causal, size)
        for layer in self.layers:
            output = layer(
                *(output, memory, tgt_mask, memory_mask, tgt_key_padding_mask),
                *(memory_key_padding_mask, causal, memory_is_causal),
            )
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """An encoder for the source and a decoder for the target."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"bias": bias, "device": device, "dtype": dtype}
        layer = (
            *(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps),
            *(batch_first, norm_first),
        )
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            self.encoder = TransformerEncoder(
                TransformerEncoderLayer(*layer, **factory),
                num_encoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, **factory),
            )
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            self.decoder = TransformerDecoder(
                TransformerDecoderLayer(*layer, **factory),
                num_decoder_layers,
                LayerNorm(d_model, eps=layer_norm_eps, **factory),
            )
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The decoder's result for the target, given the source."""
        dim = 0 if self.batch_first else 1
        if src.ndim == 3 and src.size(dim) != tgt.size(dim):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(
            src,
            mask=src_mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=src_is_causal,
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The mask that hides what comes later: -inf above the diagonal, zero elsewhere."""
        return _causal_mask(sz, device, dtype)

    def _reset_parameters(self) -> None:
        for param in self.parameters():
            if param.ndim > 1:
                init.xavier_uniform_(param)
