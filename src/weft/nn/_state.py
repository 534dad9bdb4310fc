"""State dicts of modules: taking them, loading them, and what can go wrong."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from weft.core.modes import no_grad
from weft.core.node import RemovableHandle
from weft.core.tensor import Parameter, Tensor
from weft.nn._conversion import get_swap_module_params_on_conversion
from weft.nn._hooks import add
from weft.nn.parameter import is_lazy
from weft.utils import swap_tensors

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class _LoadHook:
    """A hook before loading, which gets its module first when it asked for it."""

    def __init__(self, hook: Callable, module: Any = None) -> None:
        self.hook = hook
        # The module holds its hooks: a reference back would keep both for the collector.
        self.module = None if module is None else weakref.ref(module)

    def __call__(self, *args: Any) -> Any:
        return self.hook(*args) if self.module is None else self.hook(self.module(), *args)

    def __getstate__(self) -> dict[str, Any]:
        return {"hook": self.hook, "module": None if self.module is None else self.module()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["hook"], state["module"])  # type: ignore[misc]


class StateMethods:
    """What a module offers for saving and loading its state."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: OrderedDict[int, Callable]
    _state_dict_pre_hooks: OrderedDict[int, Callable]
    _load_state_dict_pre_hooks: OrderedDict[int, Callable]
    _load_state_dict_post_hooks: OrderedDict[int, Callable]
    _version = 1

    def get_extra_state(self) -> Any:
        """What else belongs in the state dict; override it together with ``set_extra_state``."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called: "
            "a module that has extra state overrides it"
        )

    def set_extra_state(self, state: Any) -> None:
        """Take back what ``get_extra_state`` gave."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called: "
            "a module that has extra state overrides it"
        )

    def _has_own(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(StateMethods, method)

    # --- taking ---

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before the state dict is taken."""
        return add(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` when it has been taken."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return add(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was "
                "previously registered via register_state_dict_post_hook"
            )
        return add(self._state_dict_hooks, hook)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        for name, param in self._parameters.items():
            if param is not None:
                destination[prefix + name] = param if keep_vars else param.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if self._has_own("get_extra_state"):
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Every parameter and persistent buffer by its full name.

        >>> state = nn.Linear(3, 2).state_dict()
        >>> {name: tuple(value.shape) for name, value in state.items()}
        {'weight': (2, 3), 'bias': (2,)}
        """
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead.",
                FutureWarning,
                stacklevel=2,
            )
            by_name = (destination, prefix, keep_vars)
            destination, prefix, keep_vars = (*args, *by_name[len(args) :])
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata: dict[str, Any] = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for before in self._state_dict_pre_hooks.values():
            before(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for after in self._state_dict_hooks.values():
            changed = after(self, destination, prefix, metadata)
            if getattr(after, "_from_public_api", False):
                if changed is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif changed is not None:
                destination = changed
        return destination

    # --- loading ---

    def _register_load_state_dict_pre_hook(
        self, hook: Callable, with_module: bool = False
    ) -> RemovableHandle:
        wrapped = _LoadHook(hook, self if with_module else None)
        return add(self._load_state_dict_pre_hooks, wrapped)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, ...)`` before this module's part is loaded."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after loading."""
        return add(self._load_state_dict_post_hooks, hook)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own tensors, not those of its children."""
        for before in self._load_state_dict_pre_hooks.values():
            before(
                *(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys),
                error_msgs,
            )
        expected = {k: v for k, v in self._parameters.items() if v is not None}
        for name, own in self._buffers.items():
            if own is not None and name not in self._non_persistent_buffers_set:
                expected[name] = own
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, own in expected.items():
            key = prefix + name
            if key in state_dict:
                self._load_one(name, key, own, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra = prefix + _EXTRA_STATE_KEY_SUFFIX
        if self._has_own("set_extra_state"):
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            self._find_unexpected(state_dict, prefix, expected, unexpected_keys)

    def _find_unexpected(
        self, state_dict: Any, prefix: str, expected: Any, unexpected_keys: list[str]
    ) -> None:
        extra = prefix + _EXTRA_STATE_KEY_SUFFIX
        for key in state_dict:
            if not key.startswith(prefix) or key == extra:
                continue
            first, *deeper = key[len(prefix) :].split(".", 1)
            if deeper:
                if first not in self._modules:
                    unexpected_keys.append(key)
            elif first not in expected:
                unexpected_keys.append(key)

    def _load_one(
        self, name: str, key: str, own: Any, given: Any, assign: bool, errors: list[str]
    ) -> None:
        if not isinstance(given, Tensor):
            errors.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
                f"object from checkpoint but received {type(given)}"
            )
            return
        if not is_lazy(own):
            if not own.ndim and given.shape == (1,):
                given = given[0]  # how scalars were saved long ago
            if given.shape != own.shape:
                errors.append(
                    f"size mismatch for {key}: copying a param with shape {given.shape} from "
                    f"checkpoint, the shape in current model is {own.shape}."
                )
                return
        if not is_lazy(own) and own.is_meta and not given.is_meta and not assign:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta "
                "parameter in the current model, which is a no-op. (Did you mean to pass "
                "`assign=True` to assign items in the state dictionary to their corresponding key "
                "in the module instead of copying them in place?)",
                stacklevel=2,
            )
        swap = get_swap_module_params_on_conversion()
        try:
            with no_grad():
                if swap:
                    _swap_with(own, given, assign)
                elif assign:
                    self._assign(name, own, given)
                else:
                    own.copy_(given)
        except Exception as error:
            errors.append(
                f'While {"swapping" if swap else "copying"} the parameter named "{key}", whose '
                f"dimensions in the model are {own.shape} and whose dimensions in the checkpoint "
                f"are {given.shape}, an exception occurred : {error.args}."
            )

    def _assign(self, name: str, own: Any, given: Tensor) -> None:
        if isinstance(own, Parameter):
            if not isinstance(given, Parameter):
                given = Parameter(given, requires_grad=own.requires_grad)
            else:
                given.requires_grad_(own.requires_grad)
        setattr(self, name, given)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Take over a state dict's values (or, with ``assign``, its tensors).

        >>> old, new = nn.Linear(3, 2), nn.Linear(3, 2)
        >>> new.load_state_dict(old.state_dict())
        <All keys matched successfully>
        >>> torch.equal(old.weight, new.weight)
        True
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        copied = OrderedDict(state_dict)
        if metadata is not None:
            copied._metadata = metadata  # type: ignore[attr-defined]
        _load(self, copied, "", metadata, assign, (missing, unexpected, errors))
        if strict:
            if unexpected:
                listed = ", ".join(f'"{k}"' for k in unexpected)
                errors.insert(0, f"Unexpected key(s) in state_dict: {listed}. ")
            if missing:
                listed = ", ".join(f'"{k}"' for k in missing)
                errors.insert(0, f"Missing key(s) in state_dict: {listed}. ")
        if errors:
            listed = "\n\t".join(errors)
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}"
            )
        return _IncompatibleKeys(missing, unexpected)


def _swap_with(own: Any, given: Tensor, assign: bool) -> None:
    new = own.module_load(given, assign=assign)
    if new is own or new is given:
        raise RuntimeError(
            "module_load returned one of self or other, please .detach() the result if returning "
            "one of the inputs in module_load"
        )
    if isinstance(own, Parameter):
        if not isinstance(new, Parameter):
            new = Parameter(new, requires_grad=own.requires_grad)
        else:
            new.requires_grad_(own.requires_grad)
    swap_tensors(own, new)


def _load(
    module: Any,
    state_dict: Any,
    prefix: str,
    metadata: Any,
    assign: bool,
    found: tuple[list[str], list[str], list[str]],
) -> None:
    local = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
    if assign:
        local["assign_to_params_buffers"] = assign
    # Like PyTorch, an unknown key is looked for by all modules, so strictness is given as True.
    module._load_from_state_dict(state_dict, prefix, local, True, *found)
    for name, child in module._modules.items():
        if child is not None:
            inner = f"{prefix}{name}."
            part = OrderedDict((k, v) for k, v in state_dict.items() if k.startswith(inner))
            _load(child, part, inner, metadata, assign, found)
    keys = _IncompatibleKeys(found[0], found[1])
    for after in module._load_state_dict_post_hooks.values():
        if after(module, keys) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to "
                "return new values, if incompatible_keys need to be modified, it should be done "
                "inplace."
            )


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix such as ``module.`` off the keys of a state dict, in place."""
    for key in [k for k in state_dict if k.startswith(prefix)]:
        state_dict[key.removeprefix(prefix)] = state_dict.pop(key)
    metadata: dict[str, Any] = getattr(state_dict, "_metadata", None) or {}
    for key in list(metadata):
        if key and (key == prefix.replace(".", "") or key.startswith(prefix)):
            metadata[key[len(prefix) :]] = metadata.pop(key)
