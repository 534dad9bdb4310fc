"""Vision Transformer (An Image is Worth 16x16 Words)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model
from weft.vision.ops.misc import MLP, Conv2dNormActivation

__all__ = ["VisionTransformer", "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16", "vit_l_32"]

Layer = Callable[..., nn.Module]
_NORM = partial(nn.LayerNorm, eps=1e-6)


class ConvStemConfig(NamedTuple):
    """One convolution of a stem that stands for the cut into patches."""

    out_channels: int
    kernel_size: int
    stride: int
    norm_layer: Layer = nn.BatchNorm2d
    activation_layer: Layer = nn.ReLU


class MLPBlock(MLP):
    """Two linear layers."""

    _version = 2

    def __init__(self, in_dim: int, mlp_dim: int, dropout: float) -> None:
        options: dict[str, Any] = {"activation_layer": nn.GELU, "inplace": None}
        super().__init__(in_dim, [mlp_dim, in_dim], dropout=dropout, **options)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.normal_(module.bias, std=1e-6)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        if (local_metadata.get("version", None) or 1) < 2:
            for i, place in enumerate((0, 3), 1):
                for kind in ("weight", "bias"):
                    old = f"{prefix}linear_{i}.{kind}"
                    if old in state_dict:
                        state_dict[f"{prefix}{place}.{kind}"] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class EncoderBlock(nn.Module):
    """Attention and two linear layers, each behind a normalisation and beside a shortcut."""

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Layer = _NORM,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(
            hidden_dim, num_heads, dropout=attention_dropout, batch_first=True
        )
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLPBlock(hidden_dim, mlp_dim, dropout)

    def forward(self, input: Tensor) -> Tensor:
        """The tokens after the block."""
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + input
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Positions, blocks and a last normalisation."""

    def __init__(
        self,
        seq_length: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Layer = _NORM,
    ) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(weft.empty(1, seq_length, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        sizes = (num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer)
        for i in range(num_layers):
            layers[f"encoder_layer_{i}"] = EncoderBlock(*sizes)
        self.layers = nn.Sequential(layers)
        self.ln = norm_layer(hidden_dim)

    def forward(self, input: Tensor) -> Tensor:
        """The tokens after all blocks."""
        return self.ln(self.layers(self.dropout(input + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """A Transformer encoder over patches of an image."""

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
        representation_size: int | None = None,
        norm_layer: Layer = _NORM,
        conv_stem_configs: list[ConvStemConfig] | None = None,
    ) -> None:
        super().__init__()
        if image_size % patch_size:
            raise ValueError(
                f"image_size {image_size} should be divisible by patch_size {patch_size}"
            )
        self.image_size, self.patch_size, self.hidden_dim = image_size, patch_size, hidden_dim
        self.mlp_dim, self.attention_dropout, self.dropout = mlp_dim, attention_dropout, dropout
        self.num_classes, self.representation_size = num_classes, representation_size
        self.norm_layer = norm_layer
        self.conv_proj = self._first(conv_stem_configs)
        length = (image_size // patch_size) ** 2 + 1
        self.class_token = nn.Parameter(weft.zeros(1, 1, hidden_dim))
        rates = (dropout, attention_dropout, norm_layer)
        self.encoder = Encoder(length, num_layers, num_heads, hidden_dim, mlp_dim, *rates)
        self.seq_length = length
        heads: OrderedDict[str, nn.Module] = OrderedDict()
        if representation_size is None:
            heads["head"] = nn.Linear(hidden_dim, num_classes)
        else:
            heads["pre_logits"] = nn.Linear(hidden_dim, representation_size)
            heads["act"] = nn.Tanh()
            heads["head"] = nn.Linear(representation_size, num_classes)
        self.heads = nn.Sequential(heads)
        self._initialise()

    def _first(self, configs: list[ConvStemConfig] | None) -> nn.Module:
        if configs is None:
            return nn.Conv2d(3, self.hidden_dim, self.patch_size, self.patch_size)
        stem, width = nn.Sequential(), 3
        for i, c in enumerate(configs):
            options: dict[str, Any] = {"norm_layer": c.norm_layer}
            options["activation_layer"] = c.activation_layer
            layer = Conv2dNormActivation(width, c.out_channels, c.kernel_size, c.stride, **options)
            stem.add_module(f"conv_bn_relu_{i}", layer)
            width = c.out_channels
        stem.add_module("conv_last", nn.Conv2d(width, self.hidden_dim, kernel_size=1))
        return stem

    def _initialise(self) -> None:
        last = self.conv_proj if isinstance(self.conv_proj, nn.Conv2d) else None
        if last is not None:
            fan_in = last.in_channels * last.kernel_size[0] * last.kernel_size[1]
            nn.init.trunc_normal_(last.weight, std=math.sqrt(1 / fan_in))
        else:
            last = self.conv_proj.conv_last
            nn.init.normal_(last.weight, mean=0.0, std=math.sqrt(2.0 / last.out_channels))
        if last.bias is not None:
            nn.init.zeros_(last.bias)
        if hasattr(self.heads, "pre_logits"):
            fan_in = self.heads.pre_logits.in_features
            nn.init.trunc_normal_(self.heads.pre_logits.weight, std=math.sqrt(1 / fan_in))
            nn.init.zeros_(self.heads.pre_logits.bias)
        nn.init.zeros_(self.heads.head.weight)
        nn.init.zeros_(self.heads.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        if tuple(x.shape[-2:]) != (self.image_size, self.image_size):
            raise ValueError(
                f"this VisionTransformer takes images of {self.image_size}x{self.image_size}, got "
                f"{x.shape[-2]}x{x.shape[-1]}"
            )
        tokens = self.conv_proj(x).flatten(2).permute(0, 2, 1)
        first = self.class_token.expand(len(x), -1, -1)
        return self.heads(self.encoder(weft.cat([first, tokens], dim=1))[:, 0])


def _build(kwargs: dict[str, Any], patch: int, layers: int, heads: int, *dims: Any) -> Any:
    size = kwargs.pop("image_size", 224)
    return VisionTransformer(size, patch, layers, heads, *dims, **kwargs)


@model("ViT_B_16_Weights")
def vit_b_16(**kwargs: Any) -> VisionTransformer:
    """ViT base with patches of 16x16."""
    return _build(kwargs, 16, 12, 12, 768, 3072)


@model("ViT_B_32_Weights")
def vit_b_32(**kwargs: Any) -> VisionTransformer:
    """ViT base with patches of 32x32."""
    return _build(kwargs, 32, 12, 12, 768, 3072)


@model("ViT_L_16_Weights")
def vit_l_16(**kwargs: Any) -> VisionTransformer:
    """ViT large with patches of 16x16."""
    return _build(kwargs, 16, 24, 16, 1024, 4096)


@model("ViT_L_32_Weights")
def vit_l_32(**kwargs: Any) -> VisionTransformer:
    """ViT large with patches of 32x32."""
    return _build(kwargs, 32, 24, 16, 1024, 4096)


@model("ViT_H_14_Weights")
def vit_h_14(**kwargs: Any) -> VisionTransformer:
    """ViT huge with patches of 14x14."""
    return _build(kwargs, 14, 32, 16, 1280, 5120)


def interpolate_embeddings(
    image_size: int,
    patch_size: int,
    model_state: OrderedDict[str, Tensor],
    interpolation_mode: str = "bicubic",
    reset_heads: bool = False,
) -> OrderedDict[str, Tensor]:
    """Weights for images of another size: the grid of positions is resized."""
    key = "encoder.pos_embedding"
    positions = model_state[key]
    n, length, width = positions.shape
    if n != 1:
        raise ValueError(f"Unexpected position embedding shape: {positions.shape}")
    side = image_size // patch_size
    if side**2 + 1 == length:
        return model_state
    old = math.isqrt(length - 1)
    if old * old != length - 1:
        raise ValueError(f"{length - 1} positions are not a square grid")
    first, grid = positions[:, :1], positions[:, 1:]
    grid = grid.permute(0, 2, 1).reshape(1, width, old, old)
    options = {"mode": interpolation_mode, "align_corners": True}
    resized = nn.functional.interpolate(grid, size=(side, side), **options)
    resized = resized.reshape(1, width, side * side).permute(0, 2, 1)
    model_state[key] = weft.cat([first, resized], dim=1)
    if not reset_heads:
        return model_state
    return OrderedDict((k, v) for k, v in model_state.items() if not k.startswith("heads"))
