"""Swin Transformer (Hierarchical Vision Transformer using Shifted Windows), v1 and v2."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model
from weft.vision.ops.dropping import StochasticDepth
from weft.vision.ops.misc import MLP, Permute

__all__ = ["SwinTransformer", "swin_b", "swin_s", "swin_t", "swin_v2_b", "swin_v2_s", "swin_v2_t"]

Layer = Callable[..., nn.Module]


def _merged(x: Tensor) -> Tensor:
    """Each two by two pixels of (..., H, W, C) as one of four times the channels."""
    height, width = x.shape[-3:-1]
    x = F.pad(x, (0, 0, 0, width % 2, 0, height % 2))
    parts = [x[..., i::2, j::2, :] for j in (0, 1) for i in (0, 1)]
    return weft.cat(parts, -1)


class PatchMerging(nn.Module):
    """Halves the resolution and doubles the channels."""

    def __init__(self, dim: int, norm_layer: Layer = nn.LayerNorm) -> None:
        super().__init__()
        self.dim = dim
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = norm_layer(4 * dim)

    def forward(self, x: Tensor) -> Tensor:
        """Merged pixels, normalised and narrowed."""
        return self.reduction(self.norm(_merged(x)))


class PatchMergingV2(nn.Module):
    """Halves the resolution and doubles the channels, with the normalisation last."""

    def __init__(self, dim: int, norm_layer: Layer = nn.LayerNorm) -> None:
        super().__init__()
        self.dim = dim
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = norm_layer(2 * dim)

    def forward(self, x: Tensor) -> Tensor:
        """Merged pixels, narrowed and normalised."""
        return self.norm(self.reduction(_merged(x)))


def _windows(x: Tensor, size: list[int]) -> Tensor:
    """(B, H, W, C) cut into windows (B * windows, pixels of a window, C)."""
    n, height, width, channels = x.shape
    x = x.view(n, height // size[0], size[0], width // size[1], size[1], channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size[0] * size[1], channels)


def _joined(x: Tensor, shape: tuple[int, ...], size: list[int]) -> Tensor:
    """The opposite of ``_windows``."""
    n, height, width, channels = shape
    x = x.view(n, height // size[0], width // size[1], size[0], size[1], channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(n, height, width, channels)


def _shift_mask(height: int, width: int, size: list[int], shift: list[int]) -> Tensor:
    """What to add to attention between pixels that a cyclic shift has brought together."""
    region = weft.zeros((height, width))
    rows = ((0, -size[0]), (-size[0], -shift[0]), (-shift[0], None))
    columns = ((0, -size[1]), (-size[1], -shift[1]), (-shift[1], None))
    for i, (top, bottom) in enumerate(rows):
        for j, (left, right) in enumerate(columns):
            region[top:bottom, left:right] = 3 * i + j
    parts = _windows(region[None, :, :, None], size)[:, :, 0]
    apart = parts.unsqueeze(1) - parts.unsqueeze(2)
    return weft.where(apart != 0, -100.0, 0.0)


def _attend(
    x: Tensor, qkv: Tensor, heads: int, bias: Tensor, mask: Tensor | None, scale: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Weights of attention and values; ``scale`` are v2's logits for cosines."""
    count, pixels, channels = x.shape
    qkv = qkv.reshape(count, pixels, 3, heads, channels // heads).permute(2, 0, 3, 1, 4)
    q, k, v = qkv[0], qkv[1], qkv[2]
    if scale is not None:
        weights = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        weights = weights * weft.clamp(scale, max=math.log(100.0)).exp()
    else:
        weights = (q * (channels // heads) ** -0.5).matmul(k.transpose(-2, -1))
    weights = weights + bias
    if mask is not None:
        many = mask.shape[0]
        weights = weights.view(count // many, many, heads, pixels, pixels)
        weights = (weights + mask[None, :, None]).view(-1, heads, pixels, pixels)
    return F.softmax(weights, dim=-1), v


class ShiftedWindowAttention(nn.Module):
    """Attention within windows, which every second block shifts by half a window."""

    def __init__(
        self,
        dim: int,
        window_size: list[int],
        shift_size: list[int],
        num_heads: int,
        qkv_bias: bool = True,
        proj_bias: bool = True,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if len(window_size) != 2 or len(shift_size) != 2:
            raise ValueError("window_size and shift_size must be of length 2")
        self.window_size, self.shift_size = window_size, shift_size
        self.num_heads = num_heads
        self.attention_dropout, self.dropout = attention_dropout, dropout
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim, bias=proj_bias)
        self.define_relative_position_bias_table()
        self.define_relative_position_index()

    def define_relative_position_bias_table(self) -> None:
        """One number for each head and each distance within a window."""
        count = math.prod(2 * n - 1 for n in self.window_size)
        self.relative_position_bias_table = nn.Parameter(weft.zeros(count, self.num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def define_relative_position_index(self) -> None:
        """Which number of the table belongs to two pixels of a window."""
        rows, columns = (weft.arange(n) for n in self.window_size)
        y = rows.repeat_interleave(len(columns))
        x = columns.repeat(len(rows))
        down = y[:, None] - y[None] + self.window_size[0] - 1
        across = x[:, None] - x[None] + self.window_size[1] - 1
        index = down * (2 * self.window_size[1] - 1) + across
        self.register_buffer("relative_position_index", index.flatten())

    def _biases(self, table: Tensor) -> Tensor:
        pixels = self.window_size[0] * self.window_size[1]
        found = table[self.relative_position_index].view(pixels, pixels, -1)
        return found.permute(2, 0, 1).contiguous().unsqueeze(0)

    def get_relative_position_bias(self) -> Tensor:
        """The biases of all heads (1, heads, pixels, pixels)."""
        return self._biases(self.relative_position_bias_table)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Queries, keys and values, and the logits of v2."""
        return self.qkv(x), None

    def forward(self, x: Tensor) -> Tensor:
        """Attention over (B, H, W, C)."""
        size = self.window_size
        _, height, width, _ = x.shape
        short = [(size[i] - x.shape[1 + i] % size[i]) % size[i] for i in (0, 1)]
        x = F.pad(x, (0, 0, 0, short[1], 0, short[0]))
        whole = tuple(x.shape)
        shift = [0 if size[i] >= whole[1 + i] else s for i, s in enumerate(self.shift_size)]
        if sum(shift) > 0:
            x = weft.roll(x, shifts=(-shift[0], -shift[1]), dims=(1, 2))
        mask = _shift_mask(whole[1], whole[2], size, shift) if sum(shift) > 0 else None
        parts = _windows(x, size)
        qkv, scale = self._project(parts)
        bias = self.get_relative_position_bias()
        weights, v = _attend(parts, qkv, self.num_heads, bias, mask, scale)
        weights = F.dropout(weights, p=self.attention_dropout, training=self.training)
        parts = self.proj(weights.matmul(v).transpose(1, 2).reshape(parts.shape))
        parts = F.dropout(parts, p=self.dropout, training=self.training)
        x = _joined(parts, whole, size)
        if sum(shift) > 0:
            x = weft.roll(x, shifts=(shift[0], shift[1]), dims=(1, 2))
        return x[:, :height, :width, :].contiguous()


class ShiftedWindowAttentionV2(ShiftedWindowAttention):
    """Cosine attention with biases from a small network over log-spaced distances."""

    def __init__(
        self,
        dim: int,
        window_size: list[int],
        shift_size: list[int],
        num_heads: int,
        qkv_bias: bool = True,
        proj_bias: bool = True,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        rates = (attention_dropout, dropout)
        super().__init__(dim, window_size, shift_size, num_heads, qkv_bias, proj_bias, *rates)
        self.logit_scale = nn.Parameter(weft.log(10 * weft.ones((num_heads, 1, 1))))
        self.cpb_mlp = nn.Sequential(
            nn.Linear(2, 512, bias=True),
            nn.ReLU(inplace=True),
            nn.Linear(512, num_heads, bias=False),
        )
        if qkv_bias:
            self.qkv.bias[dim : 2 * dim].data.zero_()

    def define_relative_position_bias_table(self) -> None:
        """The distances that the small network reads."""
        axes = []
        for n in self.window_size:
            axes.append(weft.arange(-(n - 1), n, dtype=weft.float32) / (n - 1) * 8)
        table = weft.stack(weft.meshgrid([axes[0], axes[1]], indexing="ij"))
        table = table.permute(1, 2, 0).contiguous().unsqueeze(0)
        table = weft.sign(table) * weft.log2(weft.abs(table) + 1.0) / 3.0
        self.register_buffer("relative_coords_table", table)

    def get_relative_position_bias(self) -> Tensor:
        """The biases of all heads (1, heads, pixels, pixels)."""
        table = self.cpb_mlp(self.relative_coords_table).view(-1, self.num_heads)
        return 16 * weft.sigmoid(self._biases(table))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        bias = self.qkv.bias
        if bias is not None:  # keys have none
            third = bias.numel() // 3
            bias = bias.clone()
            bias[third : 2 * third].zero_()
        return F.linear(x, self.qkv.weight, bias), self.logit_scale


class SwinTransformerBlock(nn.Module):
    """Attention and two linear layers, each behind a normalisation and beside a shortcut."""

    attention: Layer = ShiftedWindowAttention

    def __init__(
        self,
        dim: int,
        num_heads: int,
        window_size: list[int],
        shift_size: list[int],
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.0,
        norm_layer: Layer = nn.LayerNorm,
        attn_layer: Layer | None = None,
    ) -> None:
        super().__init__()
        self.norm1 = norm_layer(dim)
        rates = {"attention_dropout": attention_dropout, "dropout": dropout}
        attention = attn_layer or type(self).attention
        self.attn = attention(dim, window_size, shift_size, num_heads, **rates)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.norm2 = norm_layer(dim)
        widths = [int(dim * mlp_ratio), dim]
        self.mlp = MLP(dim, widths, activation_layer=nn.GELU, inplace=None, dropout=dropout)
        for module in self.mlp.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.normal_(module.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """The pixels after the block."""
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))


class SwinTransformerBlockV2(SwinTransformerBlock):
    """Attention and two linear layers, each before a normalisation and beside a shortcut."""

    attention: Layer = ShiftedWindowAttentionV2

    def forward(self, x: Tensor) -> Tensor:
        """The pixels after the block."""
        x = x + self.stochastic_depth(self.norm1(self.attn(x)))
        return x + self.stochastic_depth(self.norm2(self.mlp(x)))


class SwinTransformer(nn.Module):
    """Stages of blocks with merging of pixels between."""

    def __init__(
        self,
        patch_size: list[int],
        embed_dim: int,
        depths: list[int],
        num_heads: list[int],
        window_size: list[int],
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.1,
        num_classes: int = 1000,
        norm_layer: Layer | None = None,
        block: Layer | None = None,
        downsample_layer: Layer = PatchMerging,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        block = block or SwinTransformerBlock
        norm = norm_layer or partial(nn.LayerNorm, eps=1e-5)
        first = nn.Conv2d(3, embed_dim, tuple(patch_size), tuple(patch_size))
        layers: list[nn.Module] = [nn.Sequential(first, Permute([0, 2, 3, 1]), norm(embed_dim))]
        total, done = sum(depths), 0
        for i, (depth, heads) in enumerate(zip(depths, num_heads, strict=True)):
            dim = embed_dim * 2**i
            stage = []
            for j in range(depth):
                shift = [0 if j % 2 == 0 else w // 2 for w in window_size]
                rates = (dropout, attention_dropout, stochastic_depth_prob * done / (total - 1))
                stage.append(
                    block(dim, heads, window_size, shift, mlp_ratio, *rates, norm_layer=norm)
                )
                done += 1
            layers.append(nn.Sequential(*stage))
            if i < len(depths) - 1:
                layers.append(downsample_layer(dim, norm))
        self.features = nn.Sequential(*layers)
        width = embed_dim * 2 ** (len(depths) - 1)
        self.norm = norm(width)
        self.permute = Permute([0, 3, 1, 2])
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten(1)
        self.head = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.permute(self.norm(self.features(x)))
        return self.head(self.flatten(self.avgpool(x)))


_WIDTHS = {
    "t": (96, [2, 2, 6, 2], [3, 6, 12, 24], 0.2),
    "s": (96, [2, 2, 18, 2], [3, 6, 12, 24], 0.3),
    "b": (128, [2, 2, 18, 2], [4, 8, 16, 32], 0.5),
}


def _build(kwargs: dict[str, Any], size: str, second: bool = False) -> SwinTransformer:
    width, depths, heads, rate = _WIDTHS[size]
    if second:
        kwargs = {
            "block": SwinTransformerBlockV2,
            "downsample_layer": PatchMergingV2,
            **kwargs,
        }
    side = 8 if second else 7
    kwargs = {"stochastic_depth_prob": rate, **kwargs}
    return SwinTransformer([4, 4], width, depths, heads, [side, side], **kwargs)


@model("Swin_T_Weights")
def swin_t(**kwargs: Any) -> SwinTransformer:
    """Swin tiny."""
    return _build(kwargs, "t")


@model("Swin_S_Weights")
def swin_s(**kwargs: Any) -> SwinTransformer:
    """Swin small."""
    return _build(kwargs, "s")


@model("Swin_B_Weights")
def swin_b(**kwargs: Any) -> SwinTransformer:
    """Swin base."""
    return _build(kwargs, "b")


@model("Swin_V2_T_Weights")
def swin_v2_t(**kwargs: Any) -> SwinTransformer:
    """Swin v2 tiny."""
    return _build(kwargs, "t", True)


@model("Swin_V2_S_Weights")
def swin_v2_s(**kwargs: Any) -> SwinTransformer:
    """Swin v2 small."""
    return _build(kwargs, "s", True)


@model("Swin_V2_B_Weights")
def swin_v2_b(**kwargs: Any) -> SwinTransformer:
    """Swin v2 base."""
    return _build(kwargs, "b", True)
