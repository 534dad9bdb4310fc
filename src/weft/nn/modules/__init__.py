"""Layers under the module names that PyTorch gives them: ``torch.nn.modules.conv.Conv2d``."""

# ruff: noqa: F401 - the loop below reads these names

from __future__ import annotations

import sys

from weft.nn import (
    activation,
    adaptive,
    containers,
    convolution,
    distance,
    dropout,
    fold,
    lazy,
    linear,
    loss,
    module,
    multihead,
    normalization,
    padding,
    pooling,
    recurrent,
    sparse,
    transformer,
    upsampling,
)
from weft.nn.module import Module

# PyTorch keeps attention beside the activations.
activation.MultiheadAttention = multihead.MultiheadAttention  # type: ignore[attr-defined]

batchnorm = instancenorm = normalization
channelshuffle = pixelshuffle = upsampling
container, conv, rnn, flatten = containers, convolution, recurrent, fold

_HERE = (
    *("activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance"),
    *("dropout", "flatten", "fold", "instancenorm", "lazy", "linear", "loss", "module"),
    *("normalization", "padding", "pixelshuffle", "pooling", "rnn", "sparse", "transformer"),
    "upsampling",
)
for _name in _HERE:
    _found = globals()[_name]
    sys.modules[f"{__name__}.{_name}"] = _found
    for _public, _value in vars(_found).items():
        if isinstance(_value, type) and issubclass(_value, Module) and _public[0] != "_":
            globals()[_public] = _value
