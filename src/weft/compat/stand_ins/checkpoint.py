"""``torch.distributed.checkpoint.state_dict`` for the one process there is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from weft.core.errors import here
from weft.nn._state import _IncompatibleKeys


@dataclass
class StateDictOptions:
    """How states are read and loaded; what is about several processes has no effect."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def get_model_state_dict(
    model: Any,
    *,
    submodules: Iterable[Any] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The state of a module, or of some modules in it."""
    options = options or StateDictOptions()
    state = dict(model.state_dict())
    if submodules:
        wanted = list(submodules)
        kept = {}
        for name, module in model.named_modules():
            if any(module is one for one in wanted):
                start = f"{name}." if name else ""
                cut = 0 if options.keep_submodule_prefixes else len(start)
                kept.update({k[cut:]: v for k, v in state.items() if k.startswith(start)})
        state = kept
    if options.ignore_frozen_params:
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                state.pop(name, None)
    return state


def set_model_state_dict(
    model: Any, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Load a state into a module; gives the keys that did not fit.

    As in PyTorch a full state takes the place of parameters without memory, and lacks nothing.
    """
    options = options or StateDictOptions()
    if options.broadcast_from_rank0:
        raise RuntimeError(
            "set_model_state_dict: weft trains in one process, so there is nobody to send a state "
            f"to. Leave broadcast_from_rank0 out\n  at {here()}"
        )
    if not model_state_dict and options.strict:
        raise RuntimeError(
            "The option indicates that model state_dict is required to load but model state_dict "
            f"is empty\n  at {here()}"
        )
    if not model_state_dict:
        return _IncompatibleKeys({}, {})
    state, assign = model_state_dict, False
    if options.full_state_dict:
        own = model.state_dict()
        assign = any(getattr(value, "is_meta", False) for value in own.values())
        state = {**own, **model_state_dict}
    return model.load_state_dict(state, strict=options.strict, assign=assign)
