"""A backbone with classifiers of pixels on top."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor


class SimpleSegmentationModel(nn.Module):
    """Scores of the classes for each pixel, at the resolution of the input."""

    def __init__(
        self, backbone: nn.Module, classifier: nn.Module, aux_classifier: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.classifier = classifier
        self.aux_classifier = aux_classifier

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """``out``, and ``aux`` where there is a second classifier."""
        size = x.shape[-2:]
        features = self.backbone(x)
        heads: list[tuple[str, Any]] = [("out", self.classifier)]
        if self.aux_classifier is not None:
            heads.append(("aux", self.aux_classifier))
        result = OrderedDict()
        for name, head in heads:
            scores = head(features[name])
            result[name] = F.interpolate(scores, size=size, mode="bilinear", align_corners=False)
        return result


def stages_of(backbone: nn.Module) -> list[int]:
    """Places of the layers of a MobileNet after which the resolution falls, and the last."""
    falls = [i for i, layer in enumerate(backbone) if getattr(layer, "_is_cn", False)]
    return [0, *falls, len(backbone) - 1]
