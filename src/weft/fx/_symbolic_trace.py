"""Tracing: run a program once with proxies, and keep what it did as a graph."""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import operator
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from weft.core.tensor import Parameter, Tensor
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, map_aggregate
from weft.fx.proxy import ParameterProxy, Proxy, TracerBase
from weft.nn.containers import Sequential
from weft.nn.module import Module

__all__ = ["PH", "Tracer", "is_fx_tracing", "symbolic_trace", "wrap"]

# Global functions that tracing keeps whole: the globals they stand in, and their names.
_wrapped: dict[tuple[int, str], dict[str, Any]] = {}
_tracing: list[Tracer] = []
_KEEP_WHOLE = ("torch.nn.", "torch.ao.nn.", "weft.nn.")


class _Placeholder:
    """In ``concrete_args``: a part of a container that stays an input."""

    def __repr__(self) -> str:
        return "PH"


PH = _Placeholder()


def is_fx_tracing() -> bool:
    """Whether a program is being traced in this moment."""
    return bool(_tracing)


def wrap(fn_or_name: Any) -> Any:
    """Let tracing keep a function whole: one of this module's globals, by itself or its name.

    It is called at the level of a module, or stands over a function as a decorator.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    assert caller is not None
    if caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped[id(caller.f_globals), name] = caller.f_globals
    return fn_or_name


class Tracer(TracerBase):
    """Makes a graph of a module or function.

    Subclasses say which modules are kept as one node (``is_leaf_module``), and how calls,
    attributes and arguments become nodes.
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable, ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._autowrap_modules = autowrap_modules
        self._autowrap = {
            id(value): value
            for module in autowrap_modules
            for name, value in vars(module).items()
            if not name.startswith("_") and callable(value)
        }
        self._autowrap.update((id(function), function) for function in autowrap_functions)
        self.param_shapes_constant = param_shapes_constant
        self.root: Module = Module()
        self.submodule_paths: dict[Module, str] | None = None
        self.tensor_attrs: dict[Any, str] = {}
        self._stack: dict[str, Any] = {}

    # --- what subclasses change ---

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module is one node: those of ``torch.nn``, apart from Sequential."""
        home = f"{type(m).__module__}."
        return home.startswith(_KEEP_WHOLE) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The name of a submodule in the root."""
        if self.submodule_paths and mod in self.submodule_paths:
            return self.submodule_paths[mod]
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable, args: Any, kwargs: Any) -> Any:
        """What a call of a module becomes: a node, or the nodes of its parts."""
        name = self.path_of_module(m)
        before = self._stack
        self._stack = {**before, name: (name, type(m))} if name else before
        try:
            if self.is_leaf_module(m, name):
                return self.create_proxy("call_module", name, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            self._stack = before

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What reading an attribute of a module becomes."""
        named: Any = ()
        if isinstance(attr_val, Parameter):
            named = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            named = self.root.named_buffers()
        for name, value in named:
            if value is attr_val:
                if name not in parameter_proxy_cache:
                    parameter_proxy_cache[name] = self._read(name, value)
                return parameter_proxy_cache[name]
        return attr_val

    def _read(self, name: str, value: Tensor) -> Proxy:
        if self.param_shapes_constant:
            return self.create_proxy(
                "get_attr", name, (), {},
                proxy_factory_fn=lambda node: ParameterProxy(self, node, name, value),
            )  # fmt: skip
        return self.create_proxy("get_attr", name, (), {})

    def create_node(
        self,
        kind: str,
        target: Any,
        args: Any,
        kwargs: Any,
        name: Any = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a node, with the modules around it in its ``meta``."""
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        if self._stack:
            node.meta["nn_module_stack"] = dict(self._stack)
        return node

    def create_arg(self, a: Any) -> Any:
        """A value as an argument; tensors of the module become the reading of an attribute."""
        if isinstance(a, Parameter):
            for name, parameter in self.root.named_parameters():
                if parameter is a:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Tensor):
            for name, buffer in self.root.named_buffers():
                if buffer is a:
                    return self.create_node("get_attr", name, (), {})
            return self.create_node("get_attr", self._constant(a), (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super().create_arg(a)

    def _constant(self, value: Tensor) -> str:
        """The name of a tensor that the program holds; it becomes an attribute of the root."""
        name = self.tensor_attrs.get(value)
        if name is None:
            number = 0
            while hasattr(self.root, f"_tensor_constant{number}"):
                number += 1
            name = self.tensor_attrs[value] = f"_tensor_constant{number}"
            setattr(self.root, name, value)
        return name

    # --- tracing ---

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """Run a module or function once with proxies, and give the graph of what it did."""
        if isinstance(root, Module):
            self.root, function = root, type(root).forward
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root, function = Module(), root
            self.submodule_paths = None
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {}
        for prefix, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    self.tensor_attrs[value] = f"{prefix}.{name}" if prefix else name
        patches = _Patches()
        _tracing.append(self)
        try:
            plain, args = self.create_args_for_root(
                function, isinstance(root, Module), concrete_args
            )
            self._patch(patches, function)
            result = plain(*args)
            notes = {} if _own(function) else getattr(plain, "__annotations__", {})
            returns = notes.get("return")
            self.create_node("output", "output", (self.create_arg(result),), {}, None, returns)
        finally:
            patches.undo()
            _tracing.pop()
        return self.graph

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable, list[Any]]:
        """The function to call, and a proxy for each of its arguments."""
        function = inspect.unwrap(root_fn)
        if isinstance(function, functools.partial) or not hasattr(function, "__code__"):
            raise RuntimeError(
                f"{root_fn!r} can't be traced: a Python function or a module is expected"
            )
        code = function.__code__
        names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        args: list[Any] = [self.root] if is_module else []
        if is_module and not names:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        concrete = concrete_args or {}
        for name in names[len(args) :]:
            args.append(self._input(function, name, concrete))
        variable = [
            stars + code.co_varnames[len(names) + shift]
            for stars, flag, shift in (
                ("*", inspect.CO_VARARGS, 0),
                ("**", inspect.CO_VARKEYWORDS, bool(code.co_flags & inspect.CO_VARARGS)),
            )
            if code.co_flags & flag
        ]
        args += [self.create_proxy("placeholder", name, (), {}) for name in variable]
        if code.co_kwonlyargcount or variable:
            function = _all_positional(function, len(args))
        return function, args

    def _input(self, function: Any, name: str, concrete: dict[str, Any]) -> Any:
        parameter = inspect.signature(function).parameters[name]
        default = () if parameter.default is inspect.Parameter.empty else (parameter.default,)
        kind = None if _own(function) else function.__annotations__.get(name)
        if name not in concrete:
            return self.create_proxy("placeholder", name, default, {}, None, kind)
        value = concrete[name]
        if not isinstance(value, (*_CONSTANT, type(None))) or value is PH:
            raise NotImplementedError(
                f"concrete_args[{name!r}] is a {type(value).__name__}; weft takes numbers, strings "
                "and None there. Bind other values with a function of one's own"
            )
        # The input stays one, and must have the value that the graph was made for.
        given = self.create_proxy("placeholder", name, default, {}, f"{name}_1", kind)
        if value is not None:
            check = self.create_proxy("call_function", operator.eq, (given, value), {})
            said = f"{name} has been specialized to have value {value} but got another value"
            self.create_proxy("call_function", _assertion(), (check, said), {})
        return value

    def _patch(self, patches: _Patches, function: Any) -> None:
        tracer, call, read = self, Module.__call__, Module.__getattr__
        cache: dict[str, Any] = {}

        def traced_call(module: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return call(module, *args, **kwargs)

            tracer._keep_whole(patches, vars(_module_of(module)))
            return tracer.call_module(module, forward, args, kwargs)

        def traced_read(module: Module, name: str) -> Any:
            return tracer.getattr(name, read(module, name), cache)

        patches.set(Module, "__call__", traced_call)
        patches.set(Module, "__getattr__", traced_read)
        for (_, name), namespace in _wrapped.items():
            found = namespace.get(name) or getattr(builtins, name, None)
            if found is not None:
                patches.set_item(namespace, name, _recording(found, is_wrapped=True))
        for module in self._autowrap_modules:
            self._keep_whole(patches, vars(module))
        self._keep_whole(patches, getattr(inspect.unwrap(function), "__globals__", {}))

    def _keep_whole(self, patches: _Patches, namespace: dict[str, Any]) -> None:
        """Let the functions of ``autowrap_modules`` be nodes where they are global names."""
        if patches.seen(namespace):
            return
        for name, value in list(namespace.items()):
            if not name.startswith("_") and id(value) in self._autowrap:
                patches.set_item(namespace, name, _recording(value))


_CONSTANT = (bool, int, float, complex, str)


def _own(function: Any) -> bool:
    """Whether a function is one of the library's, whose annotations are for its own readers."""
    return str(getattr(function, "__module__", "")).startswith(_KEEP_WHOLE)


def _assertion() -> Callable:
    from weft.compat.stand_ins.helpers import _assert

    return _assert


def _module_of(module: Module) -> Any:
    return sys.modules.get(type(module).__module__, math)


def _all_positional(function: FunctionType, count: int) -> FunctionType:
    """The function with its keyword, ``*`` and ``**`` arguments as plain ones."""
    code = function.__code__
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    plain = code.replace(
        co_flags=flags, co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0
    )
    return FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)


def _recording(function: Callable, is_wrapped: bool = False) -> Callable:
    """A function that becomes one node where an argument is a proxy."""

    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        found: list[Proxy] = []
        map_aggregate((args, kwargs), lambda v: found.append(v) if isinstance(v, Proxy) else v)
        if not found:
            return function(*args, **kwargs)
        made = found[0].tracer.create_proxy("call_function", function, args, kwargs)
        if is_wrapped:
            made.node.meta["is_wrapped"] = True
        return made

    return recorded


class _Patches:
    """Attributes that are something else while a program is traced."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._seen: set[int] = set()

    def seen(self, namespace: dict[str, Any]) -> bool:
        known = id(namespace) in self._seen
        self._seen.add(id(namespace))
        return known

    def set(self, owner: Any, name: str, value: Any) -> None:
        before = getattr(owner, name)
        self._undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)

    def set_item(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        present, before = name in namespace, namespace.get(name)

        def undo() -> None:
            if present:
                namespace[name] = before
            else:
                del namespace[name]

        self._undo.append(undo)
        namespace[name] = value

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A module whose graph is that of a module or function, found by running it with proxies.

    >>> import weft
    >>> def f(x):
    ...     return weft.relu(x) + 1
    >>> traced = weft.fx.symbolic_trace(f)
    >>> [node.name for node in traced.graph.nodes]
    ['x', 'relu', 'add', 'output']
    >>> traced(weft.tensor([-1.0, 2.0]))
    tensor([1., 3.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
