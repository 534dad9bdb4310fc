"""Modules that learn a size from their first input."""

from __future__ import annotations

import itertools
from typing import Any

from weft.nn.module import Module
from weft.nn.parameter import is_lazy


class LazyModuleMixin(Module):
    """Gives its module shapes when the first input comes, and then steps aside."""

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        for name, param in self._parameters.items():
            if param is not None:
                kept = param if is_lazy(param) or keep_vars else param.detach()
                destination[prefix + name] = kept
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                kept = buffer if is_lazy(buffer) or keep_vars else buffer.detach()
                destination[prefix + name] = kept

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Take shapes from a state dict that has them."""
        for name, own in itertools.chain(self._parameters.items(), self._buffers.items()):
            key = prefix + name
            if own is not None and key in state_dict and is_lazy(own):
                if not is_lazy(state_dict[key]):
                    own.materialize(state_dict[key].shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give shapes to the parameters, as the first input tells; subclasses know how."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        held = itertools.chain(self._parameters.values(), self._buffers.values())
        return any(is_lazy(t) for t in held)

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        delattr(module, "_initialize_hook")
        delattr(module, "_load_hook")
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self) -> Any:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy "
            "forward pass to correctly initialize the modules"
        )
