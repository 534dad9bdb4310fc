"""Parameters that are computed from others each time they are read."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.core.modes import no_grad
from weft.core.tensor import Parameter, Tensor
from weft.nn.containers import ModuleDict, ModuleList
from weft.nn.module import Module


class _Cache:
    """What has been computed in a ``cached()`` block; ``depth`` counts such blocks."""

    depth = 0
    found: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """A block in which each parametrized tensor is computed once only."""
    _Cache.depth += 1
    try:
        yield
    finally:
        _Cache.depth -= 1
        if not _Cache.depth:
            _Cache.found = {}


def _register(module: Module, name: str, value: Any) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


class ParametrizationList(ModuleList):
    """The functions that make one tensor out of the original one (or ones)."""

    original: Any
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with no_grad():
            new = original
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    new = self._inverted(module, new)
        if not isinstance(new, Tensor) and not isinstance(new, Sequence):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        self._keep(original, new)
        if not unsafe:
            self._check(self(), shape, dtype)

    def _inverted(self, module: Any, value: Any) -> Any:
        try:
            return module.right_inverse(value)
        except NotImplementedError:
            return value  # a module may say that it has no inverse

    def _keep(self, original: Any, new: Any) -> None:
        """Register what is trained: the old parameter with new values, or several new ones."""
        if self.is_tensor:
            if original.dtype != new.dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\n"
                    f"right_inverse(original).dtype: {new.dtype}"
                )
            with no_grad():
                original.data = new.data
            _register(self, "original", original)
            return
        for i, part in enumerate(new):
            if not isinstance(part, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                    f"tuple...). Got element {i} of the sequence with type {type(part).__name__}."
                )
            if isinstance(original, Parameter):
                part = Parameter(part, original.requires_grad)
            _register(self, f"original{i}", part)

    def _check(self, result: Any, shape: Any, dtype: Any) -> None:
        if not isinstance(result, Tensor):
            raise ValueError("A parametrization must return a tensor. Got " + type(result).__name__)
        for what, wanted, found in (
            ("dtype", dtype, result.dtype),
            ("shape", shape, result.shape),
        ):
            if wanted != found:
                raise ValueError(
                    f"Registering a parametrization may not change the {what} of the tensor, "
                    "unless `unsafe` flag is enabled.\n"
                    f"unparametrized {what}: {wanted}\nparametrized {what}: {found}"
                )

    def originals(self) -> list[Any]:
        """The tensors that are trained."""
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Change the originals so that the result becomes this value."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                value = module.right_inverse(value)
            parts = [value] if self.is_tensor else list(value)
            if len(parts) != self.ntensors:
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors of length "
                    f"{self.ntensors}. Got a sequence of length {len(parts)}."
                )
            for original, part in zip(self.originals(), parts, strict=True):
                original.data = part.data

    def forward(self) -> Tensor:
        """The tensor that the module sees."""
        first, *others = list(self)
        x = first(*self.originals())
        for module in others:
            x = module(x)
        return x


def _parametrized_class(module: Module) -> None:
    """Give a module a class of its own, since properties live on classes."""
    base = type(module)

    def getstate(self: Any) -> Any:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict()."
        )

    def deep_copy(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        twin = self.__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
        # A class of its own, so that changes to one do not show in the other.
        twin.__class__ = type(type(self).__name__, (base,), dict(own))
        for name in self.parametrizations:
            _add_property(twin, name)
        return twin

    own = {"__getstate__": getstate, "parametrize_base": base}
    if not hasattr(base, "__deepcopy__"):
        own["__deepcopy__"] = deep_copy
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), dict(own))


def _add_property(module: Any, name: str) -> None:
    def read(self: Any) -> Tensor:
        if not _Cache.depth:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _Cache.found:
            _Cache.found[key] = self.parametrizations[name]()
        return _Cache.found[key]

    def assign(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, assign))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Have a parameter or buffer computed by a module each time it is read.

    >>> import weft
    >>> from weft.nn.utils import parametrize
    >>> class Symmetric(weft.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> m = parametrize.register_parametrization(weft.nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((m.weight == m.weight.T).all())
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        listed = module.parametrizations[tensor_name]
        if not unsafe:
            _check_further(listed, parametrization, getattr(module, tensor_name), tensor_name)
        listed.append(parametrization)
        listed.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        listed = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _parametrized_class(module)
            module.parametrizations = ModuleDict()
        _add_property(module, tensor_name)
        module.parametrizations[tensor_name] = listed
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def _check_further(listed: Any, parametrization: Any, value: Tensor, name: str) -> None:
    """A further function must keep dtype and shape, and so must its inverse.

    The originals stay as they are: from now on the function is applied to what they gave so far.
    """
    changed = parametrization(value)
    listed._check(changed, value.shape, value.dtype)
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        inverted = parametrization.right_inverse(changed)
    except NotImplementedError:
        return
    if not isinstance(inverted, Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(inverted).__name__}"
        )
    for what, wanted, found in (
        ("dtype", value.dtype, inverted.dtype),
        ("shape", value.shape, inverted.shape),
    ):
        if wanted != found:
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} "
                f"as module.{name}.\nmodule.{name}.{what}: {wanted}\n"
                f"returned {what}: {found}"
            )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrizations (of this tensor)."""
    held = module._modules.get("parametrizations")
    if not isinstance(held, ModuleDict):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make a tensor a plain one again: with its computed value, or with the original one."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    listed = module.parametrizations[tensor_name]
    kept = listed.originals()[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name)
        if listed.is_tensor:
            kept.data = value.data
        else:
            kept = Parameter(value.detach()) if isinstance(kept, Parameter) else value
    elif not listed.is_tensor:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, kept)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).parametrize_base
    return module


def type_before_parametrizations(module: Module) -> type:
    """The module's class without parametrizations."""
    return type(module).parametrize_base if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give a module another module's parametrizations, with their parameters."""
    if not is_parametrized(from_module):
        return to_module
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations)
    for name in names:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        source = from_module.parametrizations[name]
        for function in source:
            register_parametrization(to_module, name, function, unsafe=True)
        target = to_module.parametrizations[name]
        for mine, theirs in zip(target.originals(), source.originals(), strict=True):
            mine.data = theirs.data
    return to_module
