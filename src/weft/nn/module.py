"""The base class of all networks and layers."""

from __future__ import annotations

import importlib
import sys
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core import selection
from weft.core.meta import NO_DATA
from weft.core.modes import MODES, no_grad
from weft.core.node import RemovableHandle
from weft.core.scopes import number_model
from weft.core.tensor import Parameter, Tensor
from weft.nn import _hooks
from weft.nn._conversion import (
    get_overwrite_module_params_on_conversion,
    get_swap_module_params_on_conversion,
)
from weft.nn._hooks import (  # noqa: F401 - PyTorch offers these here
    EVERYWHERE,
    HookMethods,
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_buffer_registration_hooks,
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
    _global_is_full_backward_hook,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    registered,
)
from weft.nn._state import _EXTRA_STATE_KEY_SUFFIX, StateMethods, _IncompatibleKeys  # noqa: F401
from weft.nn._tree import TreeMethods, warn_if_hidden
from weft.nn.parameter import Buffer
from weft.operators import api
from weft.operators.casting import type_name
from weft.utils import swap_tensors

T = TypeVar("T", bound="Module")
# What a copy of a module, or one from a file, finds out for itself.
_OF_THIS_OBJECT = ("_scope_places", "_model_tag")
_hooks.HOME = sys.modules[__name__]

_HOOK_DICTS = (
    *("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs"),
    *("_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"),
    "_load_state_dict_post_hooks",
)


class _Places(tuple):
    """Where a module is registered: weak references to its owners, each with a name.

    A copy of the module, or one from a file, is registered nowhere yet.
    """

    __slots__ = ()

    def __reduce__(self) -> Any:
        return tuple, ()  # which PyTorch can read as well

    def __deepcopy__(self, memo: Any) -> _Places:
        return _Places()


def _forward_unimplemented(self: Any, *input: Any) -> None:
    """What the module computes; every subclass gives its own."""
    raise NotImplementedError(
        f'Module [{type(self).__name__}] is missing the required "forward" function'
    )


# Classes, by identity, whose parts compiled code reads from now on, if it can: see ``part_reads``.
_READ: dict[int, weakref.ref] = {}


def _read_quickly(cls: type) -> None:
    """Let compiled code read the parts of a class's modules, once that pays."""
    if selection.pays():
        from weft.native.codegen import part_reads

        known = id(cls)
        _READ[known] = weakref.ref(cls, lambda _: _READ.pop(known, None))
        made = part_reads.make(Module, ("_parameters", "_modules", "_buffers"))
        if made is not None:
            made.adopt(cls)


class Module(HookMethods, StateMethods, TreeMethods):
    """A part of a network: it has parameters, buffers and parts of its own, and can be called.

    >>> import weft
    >>> layer = weft.nn.Linear(2, 3)
    >>> layer(weft.ones(4, 2)).shape
    torch.Size([4, 3])
    """

    dump_patches = False
    call_super_init = False
    training: bool
    # The name under which the parent knows this module; calls join such names to a path.
    _scope_name = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            if kwargs:
                raise TypeError(
                    f"{type(self).__name__}.__init__() got an unexpected keyword argument "
                    f"'{next(iter(kwargs))}'"
                )
            if args:
                raise TypeError(
                    f"{type(self).__name__}.__init__() takes 1 positional argument but "
                    f"{len(args) + 1} were given"
                )
        own = self.__dict__
        own["training"] = True
        own["_parameters"] = {}
        own["_buffers"] = {}
        own["_non_persistent_buffers_set"] = set()
        own["_is_full_backward_hook"] = None
        for name in _HOOK_DICTS:
            own[name] = OrderedDict()
        own["_modules"] = {}
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        now = MODES.now
        outer = now.scope
        name = self._scope_name
        if name:
            now.scope = f"{outer}.{name}" if outer else name
        elif not outer:
            tag = self.__dict__.get("_model_tag")
            now.scope = number_model(self) if tag is None else tag
            now.calls += 1
        try:
            if self._hooked or EVERYWHERE.active:
                return self._call_with_hooks(args, kwargs)
            return self.forward(*args, **kwargs)
        finally:
            now.scope = outer

    _call_impl = _wrapped_call_impl = __call__

    # --- attributes ---

    def __getattr__(self, name: str) -> Any:
        if id(type(self)) not in _READ:
            _read_quickly(type(self))
        own = self.__dict__
        if "_parameters" in own:
            found = own["_parameters"]
            if name in found:
                return found[name]
            found = own["_modules"]
            if name in found:
                return found[name]
            found = own["_buffers"]
            if name in found:
                return found[name]
        # With the name and the object Python adds "Did you mean: 'weight'?".
        message = f"'{type(self).__name__}' object has no attribute '{name}'"
        raise AttributeError(message, name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        registered = "_parameters" in own
        if isinstance(value, Parameter):
            self._forget(name, "_parameters", "parameters")
            self.register_parameter(name, value)
        elif registered and name in own["_parameters"]:
            self._replace("_parameters", name, value)
        elif isinstance(value, Module):
            self._forget(name, "_modules", "module")
            self._register_child(name, value)
        elif registered and name in own["_modules"]:
            self._replace("_modules", name, value)
        elif isinstance(value, Tensor) and "_is_buffer" in value.__dict__:
            self._forget(name, "_buffers", "buffer")
            self.register_buffer(name, value, value.persistent)
        elif registered and name in own["_buffers"]:
            self._replace("_buffers", name, value)
        else:
            if registered and value.__class__ in (list, tuple, dict) and value:
                warn_if_hidden(self, name, value)
            object.__setattr__(self, name, value)

    def _forget(self, name: str, kind: str, what: str) -> None:
        """Make room for a registration: the name may mean only one thing."""
        own = self.__dict__
        if kind not in own:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if kind != "_buffers":  # which register_buffer refuses to put over an attribute
            own.pop(name, None)
        for other in ("_parameters", "_buffers", "_modules"):
            if other != kind:
                own[other].pop(name, None)
        own["_non_persistent_buffers_set"].discard(name)

    def _replace(self, kind: str, name: str, value: Any) -> None:
        """A new value for a name that is registered already."""
        if kind == "_buffers":
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{_kind(value)}' as buffer '{name}' "
                    "(torch.nn.Buffer, torch.Tensor or None expected)"
                )
            hooks = _hooks.HOME._global_buffer_registration_hooks
            self._buffers[name] = registered(hooks, self, name, value)
            return
        if value is not None:
            what, wanted = (
                ("parameter", "Parameter") if kind == "_parameters" else ("child module", "Module")
            )
            raise TypeError(
                f"cannot assign '{_kind(value)}' as {what} '{name}' (torch.nn.{wanted} or None "
                "expected)"
            )
        if kind == "_parameters":
            self.register_parameter(name, None)
        else:
            self._register_child(name, None)

    def __delattr__(self, name: str) -> None:
        own = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            if name in own.get(kind, ()):
                gone = own[kind].pop(name)
                own["_non_persistent_buffers_set"].discard(name)
                if kind == "_modules" and gone is not None:
                    gone._settle_name()
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = [*dir(type(self)), *self.__dict__]
        names += [*self._parameters, *self._modules, *self._buffers]
        return sorted(n for n in names if not n[0].isdigit())

    def _check_name(self, what: str, name: Any, registered_in: dict[str, Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name:
            got = f", got: {name}" if what == "module" else ""
            raise KeyError(f'{what} name can\'t contain "."{got}')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if name not in registered_in and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Give the module a parameter, or None instead of one."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name("parameter", name, self._parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{_kind(param)}' object to parameter '{name}' "
                    "(torch.nn.Parameter or None required)"
                )
            if not param.is_leaf:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must "
                    f"be created explicitly. To express '{name}' as a function of another Tensor, "
                    "compute the value in the forward() method."
                )
            param = registered(_hooks.HOME._global_parameter_registration_hooks, self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Give the module a tensor that is part of its state but not trained.

        >>> class Shift(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.register_buffer("offset", torch.tensor(2.0))
        ...     def forward(self, x):
        ...         return x + self.offset
        >>> Shift().state_dict()
        OrderedDict([('offset', tensor(2.))])
        >>> list(Shift().parameters())
        []
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_kind(tensor)}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        hooks = _hooks.HOME._global_buffer_registration_hooks
        self._buffers[name] = registered(hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Give the module a part, which is then also an attribute.

        >>> model = nn.Sequential()
        >>> model.add_module("first", nn.Linear(2, 3))
        >>> model
        Sequential(
          (first): Linear(in_features=2, out_features=3, bias=True)
        )
        """
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_kind(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._register_child(name, module)

    register_module = add_module

    def _register_child(self, name: str, module: Module | None) -> None:
        module = registered(_hooks.HOME._global_module_registration_hooks, self, name, module)
        before = self._modules.get(name)
        self._modules[name] = module
        if module is not None:
            names = [name]
            if module._scope_name and not module.__dict__.get("_scope_places"):
                # A copy, whose places are not known: the others in this module count as older.
                names = [n for n, child in self._modules.items() if child is module]
            module._settle_name(*((weakref.ref(self), n) for n in names))
        if before is not None and before is not module:
            before._settle_name()

    def _settle_name(self, *new: tuple[Any, str]) -> None:
        """Go by the first of the places at which this module is registered, as PyTorch lists it."""
        places: list[Any] = []
        for owner, name in (*self.__dict__.get("_scope_places", ()), *new):
            held = getattr(owner(), "_modules", {})
            if any(owner() is other() for other, _ in places):
                continue
            if held.get(name) is not self:
                name = next((n for n, child in held.items() if child is self), "")
            if name:
                places.append((owner, name))
        self.__dict__["_scope_places"] = _Places(places)
        if places:
            owner, name = places[0]
            self._name_scope(owner()._path_of(name))

    def _path_of(self, name: str) -> str:
        """What a child adds to the path of the module that is running."""
        return f"{self._scope_name}.{name}" if self._is_silent() else name

    def _is_silent(self) -> bool:
        """Whether calls never pass through this module, since it has no forward (ModuleList)."""
        return type(self).forward is _forward_unimplemented and bool(self._scope_name)

    def _name_scope(self, path: str) -> None:
        self.__dict__["_scope_name"] = path
        if self._is_silent():
            for name, child in self._modules.items():
                if child is not None:
                    child._settle_name((weakref.ref(self), name))

    # --- changing all tensors ---

    def _apply(self: T, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> T:
        """Change every parameter, its gradient, and every buffer by a function."""
        if recurse:
            for child in self.children():
                child._apply(fn)
        convert = _change
        if get_swap_module_params_on_conversion():
            convert = _swap
        elif get_overwrite_module_params_on_conversion():
            convert = _renew
        for name, param in self._parameters.items():
            if param is not None:
                with no_grad():
                    self._parameters[name] = convert(self, name, param, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def apply(self: T, fn: Callable[[Module], None]) -> T:
        """Call a function with each module, children first.

        >>> def start(module):
        ...     if isinstance(module, nn.Linear):
        ...         nn.init.ones_(module.weight)
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).apply(start)
        >>> model[0].weight.sum().item()
        4.0
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Another floating dtype for all floating tensors: ``to(dtype)``, ``to(device)``."""
        dtype, format, device = _to_arguments(args, kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(
                    "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                    f"dtype={dtype}"
                )
            if dtype.is_complex:
                warnings.warn(
                    "Complex modules are a new feature under active development whose design may "
                    "change, and some modules might not work as expected when using complex "
                    "tensors as parameters or buffers.",
                    stacklevel=2,
                )

        def convert(t: Tensor) -> Tensor:
            wanted = dtype if t.is_floating_point() or t.is_complex() else None
            if device is not None and device.type != t.device.type:
                return t.to(device, wanted)
            if format is not None and t.ndim in (4, 5):
                return t.to(dtype=wanted, memory_format=format)
            return t if wanted is None else t.to(wanted)

        try:
            return self._apply(convert)
        except NotImplementedError as error:
            if not str(error).startswith(NO_DATA):
                raise
            raise NotImplementedError(
                f"{NO_DATA} Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() "
                "when moving module from meta to a different device."
            ) from None

    def _to_float(self: T, dtype: dt.dtype) -> T:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self: T) -> T:
        """All floating tensors as float32."""
        return self._to_float(dt.float32)

    def double(self: T) -> T:
        """All floating tensors as float64."""
        return self._to_float(dt.float64)

    def half(self: T) -> T:
        """All floating tensors as float16."""
        return self._to_float(dt.float16)

    def bfloat16(self: T) -> T:
        """All floating tensors as bfloat16."""
        return self._to_float(dt.bfloat16)

    def type(self: T, dst_type: Any) -> T:
        """All tensors in this type."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self: T) -> T:
        """The module on the CPU, where it is."""
        return self._apply(lambda t: t.cpu())

    def cuda(self: T, device: Any = None) -> T:
        """Always an error: there is no such device here."""
        dev.present("cuda" if device is None else device)
        return self

    def xpu(self: T, device: Any = None) -> T:
        """Always an error: there is no such device here."""
        dev.present("xpu" if device is None else device)
        return self

    def to_empty(self: T, *, device: Any, recurse: bool = True) -> T:
        """New memory for all tensors, with whatever values it has."""
        make = api.FUNCTIONS["empty_like"]
        return self._apply(lambda t: make(t, device=device), recurse)

    def share_memory(self: T) -> T:
        """Move all tensors to memory that the processes started from here on share."""
        return self._apply(lambda t: t.share_memory_())

    # --- modes ---

    def train(self: T, mode: bool = True) -> T:
        """Switch the module and its parts to training (or, with False, to evaluation).

        >>> layer = nn.Dropout(0.5).eval()
        >>> layer.train().training
        True
        """
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: T) -> T:
        """Switch the module and its parts to evaluation.

        >>> layer = nn.Dropout(0.5).eval()
        >>> layer(torch.ones(3))
        tensor([1., 1., 1.])
        >>> layer.training
        False
        """
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Say for all parameters whether their gradients are wanted."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or set them to zero."""
        for param in self.parameters():
            if param.grad is None:
                continue
            if set_to_none:
                param.grad = None
            else:
                if param.grad.grad_fn is not None:
                    param.grad.detach_()
                param.grad.requires_grad_(False)
                param.grad.zero_()

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile this module's ``forward`` in place: see ``torch.compile``."""
        compiler = importlib.import_module("weft.compiler")
        object.__setattr__(self, "forward", compiler.compile(self.forward, *args, **kwargs))

    # --- printing and copying ---

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What is printed between the parentheses, beside the parts."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        parts = [f"({n}): {_addindent(repr(m), 2)}" for n, m in self._modules.items()]
        return _bracketed(self._get_name(), lines, parts)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from weft.graph.notebook import module_html

        return module_html(self)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _OF_THIS_OBJECT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _HOOK_DICTS:
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def _replicate_for_data_parallel(self: T) -> T:
        replica = type(self).__new__(type(self))
        replica.__dict__ = self.__dict__.copy()
        for kind in ("_parameters", "_buffers", "_modules"):
            replica.__dict__[kind] = replica.__dict__[kind].copy()
        return replica


def _kind(value: Any) -> str:
    """How PyTorch's messages name a value's type."""
    if isinstance(value, Tensor):
        return f"torch.{type_name(value)}"
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _bracketed(name: str, lines: list[str], parts: list[str]) -> str:
    """``Name(...)`` on one line if there is little to say, else one line for each part."""
    if len(lines) == 1 and not parts:
        return f"{name}({lines[0]})"
    if not lines and not parts:
        return f"{name}()"
    return f"{name}(\n  " + "\n  ".join([*lines, *parts]) + "\n)"


def _addindent(text: str, spaces: int) -> str:
    return text.replace("\n", "\n" + " " * spaces)


def _to_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The dtype, memory format and device out of what ``to`` was given."""
    given: list[Any] = list(args)
    for name, value in kwargs.items():
        if name == "copy":
            raise RuntimeError(".to() does not accept copy argument")
        if name not in ("device", "dtype", "non_blocking", "memory_format", "tensor", "other"):
            raise TypeError(f"to() got an unexpected keyword argument '{name}'")
        given.append(value)
    # After a device comes a dtype, and only then whether to wait.
    if len(args) > 1 and isinstance(args[0], (str, dev.device)):
        if args[1] is not None and not isinstance(args[1], dt.dtype):
            raise TypeError(
                "to() received an invalid combination of arguments - got ("
                + ", ".join(type(a).__name__ for a in args)
                + "), but expected (device, dtype, non_blocking), (dtype, non_blocking) or "
                "(tensor, non_blocking)"
            )
    dtype = format = device = None
    for value in given:
        if isinstance(value, dt.dtype):
            dtype = value
        elif isinstance(value, Tensor):
            dtype, device = value.dtype, value.device
        elif isinstance(value, (str, dev.device)) or (
            isinstance(value, int) and not isinstance(value, bool)
        ):
            device = dev.present(value)
        elif type(value).__name__ == "memory_format":
            format = value
    return dtype, format, device


# ------------------------------------------------------------------ ways to convert a parameter


def _change(module: Module, name: str, param: Any, fn: Callable[[Tensor], Tensor]) -> Any:
    """The same parameter and gradient in other memory; on another device, another parameter."""
    changed = fn(param)
    if changed.is_meta is not param.is_meta:
        return _renewed(param, changed, fn)
    param.data = changed
    if param.grad is not None:
        param.grad.data = fn(param.grad)
    return param


def _renew(module: Module, name: str, param: Any, fn: Callable[[Tensor], Tensor]) -> Any:
    """Another parameter; the old one stays as it is."""
    return _renewed(param, fn(param), fn)


def _renewed(param: Any, changed: Tensor, fn: Callable[[Tensor], Tensor]) -> Any:
    new = Parameter(changed, param.requires_grad)
    if param.grad is not None:
        new.grad = fn(param.grad).requires_grad_(param.grad.requires_grad)
    return new


def _swap(module: Module, name: str, param: Any, fn: Callable[[Tensor], Tensor]) -> Any:
    """The same objects, after they have changed places with a new parameter and gradient."""
    converted, grad = fn(param), param.grad
    param.grad = None
    try:
        swap_tensors(param, Parameter(converted, requires_grad=param.requires_grad))
    except Exception as error:
        param.grad = grad
        message = f"_apply(): Couldn't swap {module._get_name()}.{name}"
        raise RuntimeError(message) from error
    if grad is not None:
        try:
            swap_tensors(grad, fn(grad).requires_grad_(grad.requires_grad))
        except Exception as error:
            message = f"_apply(): Couldn't swap {module._get_name()}.{name}.grad"
            raise RuntimeError(message) from error
        param.grad = grad
    return param


__all__ = ["Buffer", "Module", "Parameter", "RemovableHandle"]
