"""Tools for modules and their parameters."""

# ruff: noqa: F401 - what is imported here is what the package offers

import importlib as _importlib

from weft.nn.utils import parametrizations, parametrize, rnn, stateless
from weft.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from weft.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from weft.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from weft.nn.utils.init import skip_init
from weft.nn.utils.memory_format import (
    convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format,
)
from weft.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from weft.nn.utils.weight_norm import remove_weight_norm, weight_norm
from weft.operators import api as _api


def __getattr__(name: str) -> object:
    if name == "prune":  # seldom wanted, so loaded when it is
        return _importlib.import_module("weft.nn.utils.prune")
    return _api.missing("nn.utils", name)
