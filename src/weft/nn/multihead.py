"""Attention in several heads, as a layer."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn._arguments import parameter
from weft.nn.linear import NonDynamicallyQuantizableLinear
from weft.nn.module import Module


class MultiheadAttention(Module):
    """Attention in several heads, between linear layers for its inputs and its output."""

    __constants__ = ["batch_first"]
    bias_k: Tensor | None
    bias_v: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = kdim if kdim is not None else embed_dim
        self.vdim = vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")
        self._make_weights(bias, add_bias_kv, device, dtype)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _make_weights(self, bias: bool, add_bias_kv: bool, device: Any, dtype: Any) -> None:
        size = self.embed_dim
        shapes: dict[str, Any] = {"in_proj_weight": (3 * size, size)}
        if not self._qkv_same_embed_dim:
            shapes = {
                "q_proj_weight": (size, size),
                "k_proj_weight": (size, self.kdim),
                "v_proj_weight": (size, self.vdim),
            }
        for name, shape in shapes.items():
            setattr(self, name, parameter(shape, device, dtype))
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if name not in shapes:
                self.register_parameter(name, None)
        made = parameter((3 * size,), device, dtype) if bias else None
        self.register_parameter("in_proj_bias", made)
        self.out_proj = NonDynamicallyQuantizableLinear(size, size, bias, device, dtype)
        if add_bias_kv:
            self.bias_k = parameter((1, 1, size), device, dtype)
            self.bias_v = parameter((1, 1, size), device, dtype)
        else:
            self.bias_k = self.bias_v = None

    def _reset_parameters(self) -> None:
        """Draw the starting values."""
        weights = (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        for weight in weights:
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """What the queries find among the values, and (if asked for) how much of each."""
        transposed = self.batch_first and query.ndim == 3
        if transposed:
            # The same tensor must stay the same one, so that one product serves all three.
            old = (query, key, value)
            query, key, value = (t.transpose(0, 1) for t in old)
            if old[1] is old[0]:
                key = query
            if old[2] is old[1]:
                value = key
        output, weights = F.multi_head_attention_forward(
            *(query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight),
            *(self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn, self.dropout),
            *(self.out_proj.weight, self.out_proj.bias),
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return output.transpose(0, 1) if transposed else output, weights

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Both masks as one, and which kind it is (0 attention, 1 padding, 2 both)."""
        merged, kind = None, None
        if key_padding_mask is not None:
            merged, kind = key_padding_mask, 1
        if attn_mask is not None:
            samples, length = query.shape[:2]
            kind = 2
            shaped = (
                attn_mask.view(samples, -1, length, length)
                if attn_mask.ndim == 3
                else attn_mask.view(1, 1, length, length).expand(samples, self.num_heads, -1, -1)
            )
            merged = shaped
            if key_padding_mask is not None:
                across = key_padding_mask.view(samples, 1, 1, length)
                merged = shaped + across.expand(-1, self.num_heads, -1, -1)
        return merged, kind
