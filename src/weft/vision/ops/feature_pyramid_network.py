"""Feature pyramids: what deep layers know, brought to the resolution of early ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.ops.misc import Conv2dNormActivation


class ExtraFPNBlock(nn.Module):
    """Adds levels to a pyramid."""

    def forward(self, *levels: Any) -> tuple[list[Tensor], list[str]]:
        """The levels and names with more of them; given are levels, their inputs, names."""
        raise NotImplementedError


class FeaturePyramidNetwork(nn.Module):
    """A top-down path over feature maps, with the same number of channels at each level."""

    _version = 2

    def __init__(
        self,
        in_channels_list: list[int],
        out_channels: int,
        extra_blocks: ExtraFPNBlock | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.inner_blocks = nn.ModuleList()
        self.layer_blocks = nn.ModuleList()
        options: dict[str, Any] = {"norm_layer": norm_layer, "activation_layer": None}
        for channels in in_channels_list:
            if channels == 0:
                raise ValueError("in_channels=0 is currently not supported")
            self.inner_blocks.append(
                Conv2dNormActivation(channels, out_channels, 1, padding=0, **options)
            )
            self.layer_blocks.append(Conv2dNormActivation(out_channels, out_channels, 3, **options))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                if module.bias is not None:
                    nn.init.constant_(module.bias, 0)
        if extra_blocks is not None and not isinstance(extra_blocks, ExtraFPNBlock):
            raise TypeError(
                f"extra_blocks should be of type ExtraFPNBlock not {type(extra_blocks)}"
            )
        self.extra_blocks = extra_blocks

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        if local_metadata.get("version", None) in (None, 1):
            # Older files have a convolution where there is a sequence of one now.
            for block in ("inner_blocks", "layer_blocks"):
                for i in range(len(getattr(self, block))):
                    for kind in ("weight", "bias"):
                        old = f"{prefix}{block}.{i}.{kind}"
                        if old in state_dict:
                            state_dict[f"{prefix}{block}.{i}.0.{kind}"] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def forward(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """The pyramid's maps, from the finest to the coarsest."""
        names, maps = list(x), list(x.values())
        last = self.inner_blocks[-1](maps[-1])
        results = [self.layer_blocks[-1](last)]
        for i in range(len(maps) - 2, -1, -1):
            inner = self.inner_blocks[i](maps[i])
            last = inner + F.interpolate(last, size=inner.shape[-2:], mode="nearest")
            results.insert(0, self.layer_blocks[i](last))
        if self.extra_blocks is not None:
            results, names = self.extra_blocks(results, maps, names)
        return OrderedDict(zip(names, results, strict=True))


class LastLevelMaxPool(ExtraFPNBlock):
    """Adds every second pixel of the last level."""

    def forward(self, *levels: Any) -> tuple[list[Tensor], list[str]]:
        """The levels with "pool" behind them."""
        x, _, names = levels
        pooled = F.max_pool2d(x[-1], kernel_size=1, stride=2, padding=0)
        return [*x, pooled], [*names, "pool"]


class LastLevelP6P7(ExtraFPNBlock):
    """Adds the two levels of RetinaNet."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.p6 = nn.Conv2d(in_channels, out_channels, 3, 2, 1)
        self.p7 = nn.Conv2d(out_channels, out_channels, 3, 2, 1)
        for module in [self.p6, self.p7]:
            nn.init.kaiming_uniform_(module.weight, a=1)
            nn.init.constant_(module.bias, 0)
        self.use_P5 = in_channels == out_channels

    def forward(self, *levels: Any) -> tuple[list[Tensor], list[str]]:
        """The levels with "p6" and "p7" behind them."""
        p, c, names = levels
        p6 = self.p6(p[-1] if self.use_P5 else c[-1])
        p7 = self.p7(F.relu(p6))
        return [*p, p6, p7], [*names, "p6", "p7"]
