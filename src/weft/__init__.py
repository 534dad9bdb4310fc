"""weft: PyTorch's freedom, with a graph that you can hold in your hand."""

# ruff: noqa: F401 - what is imported here is what the package offers

from __future__ import annotations

import importlib as _importlib
import importlib.util as _importlib_util
import math as _math
import os as _os
from typing import Any, NoReturn

from weft import _cpu  # first: it speaks to libraries that are about to be loaded

# isort: split
from weft import autograd
from weft.core import absent as _absent
from weft.core import dtype as _dt
from weft.core import overrides as _overrides
from weft.core.device import device, get_default_device, set_default_device
from weft.core.dtype import dtype, finfo, get_default_dtype, iinfo, set_default_dtype
from weft.core.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from weft.core.printing import get_printoptions, printoptions, set_printoptions
from weft.core.settings import (
    are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode,
    get_float32_matmul_precision,
    get_num_interop_threads,
    get_num_threads,
    is_deterministic_algorithms_warn_only_enabled,
    set_deterministic_debug_mode,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_num_threads,
    use_deterministic_algorithms,
)
from weft.core.size import Size
from weft.core.tensor import LATE as _LATE
from weft.core.tensor import LAYOUT as strided
from weft.core.tensor import Layout as layout
from weft.core.tensor import Tensor
from weft.core.tracebacks import get_traceback_filtering, set_traceback_filtering
from weft.core.tracebacks import install as _install_filter
from weft.operators import api as _api
from weft.operators import load as _load
from weft.operators import overriding as _overriding
from weft.torch_version import __version__

# Where modules are that only programs written for PyTorch ask for, such as ``weft.cuda``.
__path__.append(_os.path.join(__path__[0], "compat", "shims"))
_load.everything()
_overriding.separate()
_overriding.guard_all()

from weft import fft, linalg, special  # noqa: E402
from weft.func import vmap  # noqa: E402
from weft.operators.casting import (  # noqa: E402
    channels_last,
    channels_last_3d,
    contiguous_format,
    memory_format,
    preserve_format,
)

e, inf, nan, pi, newaxis = _math.e, _math.inf, _math.nan, _math.pi, None


def _missing(name: str) -> NoReturn:
    from weft.compat import tree

    why = tree.why_missing(name) or "See ROADMAP.md for what is planned"
    raise AttributeError(f"weft does not have torch.{name} yet. {why}")


_LATE.missing = _missing
_absent.install()


# Names at the top that live in modules which are loaded when first asked for.
_ELSEWHERE = {
    **dict.fromkeys(("load", "save"), "serialization"),
    **dict.fromkeys(("Future",), "futures"),
    **dict.fromkeys(("ScriptFunction", "ScriptModule"), "jit"),
    **dict.fromkeys(("cond", "_check", "_check_index", "_check_is_size"), "_checks"),
    **dict.fromkeys(("_check_type", "_check_value", "_check_with"), "_checks"),
    **dict.fromkeys(("_check_not_implemented", "_check_tensor_all"), "_checks"),
    **dict.fromkeys(("_check_tensor_all_with",), "_checks"),
    "GradScaler": "amp",
    "compile": "compiler",
    "sparse_coo_tensor": "sparse",
    "watch": "watching",
}


_PRIVATE = ("__config__", "__future__", "_dynamo", "_inductor", "_logging", "_vmap_internals")


def __getattr__(name: str) -> Any:
    # Submodules such as torch.cuda are loaded when they are first asked for.
    if name in _ELSEWHERE:
        return getattr(_importlib.import_module(f"weft.{_ELSEWHERE[name]}"), name)
    if "autocast" in name:
        casting = _importlib.import_module("weft.amp.autocast_mode")
        if name in casting.TOP:
            return getattr(casting, name)
    if name in _PRIVATE or not name.startswith("_"):
        if _importlib_util.find_spec(f"weft.{name}") is not None:
            return _importlib.import_module(f"weft.{name}")
    if name.startswith("__"):
        raise AttributeError(name)
    return _missing(name)


def _share_memory_(self: Tensor) -> Tensor:
    """Move this tensor to memory that other processes can see."""
    return _importlib.import_module("weft.multiprocessing.shared").share_memory_(self)


def _is_shared(self: Tensor) -> bool:
    """Whether other processes can see this tensor's memory."""
    return _importlib.import_module("weft.multiprocessing.shared").is_shared(self)


Tensor.share_memory_, Tensor.is_shared = _share_memory_, _is_shared

globals().update({d.name: d for d in _dt.ALL})
globals().update(_dt.ALIASES)
globals().update(_api.FUNCTIONS)
_api.settle()
_install_filter()
if _overrides.mentioned():
    _overrides.switch_on()
