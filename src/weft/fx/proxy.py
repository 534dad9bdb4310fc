"""Stand-ins for values that write down what is done with them."""

from __future__ import annotations

import dis
import enum
import inspect
import operator
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import weft
from weft.core import overrides
from weft.core.errors import is_own
from weft.core.tensor import Tensor
from weft.fx.node import COMPILED, Node, map_aggregate, nodes_in, qualified_name

__all__ = ["Attribute", "GraphAppendingTracer", "Proxy", "TraceError", "TracerBase"]

# What stands in arguments as it is.
_PLAIN = (
    *(str, int, float, bool, complex, type(None), type(...), weft.dtype, weft.device, Tensor),
    *(weft.memory_format, weft.layout, enum.Enum),
)


class TraceError(ValueError):
    """Says what a traced program must not do."""


class TracerBase:
    """Makes nodes of what proxies are used for."""

    graph: Any
    record_stack_traces = False
    trace_asserts = False
    proxy_buffer_attributes = False
    check_mutable_operations = False

    def create_node(
        self,
        kind: str,
        target: Any,
        args: Any,
        kwargs: Any,
        name: Any = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a node to the graph."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """The proxy for a node's result."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Add a node for a use of proxies, and return the proxy for its result."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        if self.record_stack_traces and not node.stack_trace:
            node.stack_trace = "".join(_user_frames().format())
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def create_arg(self, a: Any) -> Any:
        """A value as the argument of a node: proxies become nodes, containers are kept."""
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return type(a)(*(self.create_arg(v) for v in a))
        if isinstance(a, (tuple, list)):
            return type(a)([self.create_arg(v) for v in a])
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(v) for key, v in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(v) for v in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*(self.create_arg(v) for v in (a.start, a.stop, a.step)))
        if isinstance(a, (*_PLAIN, Node)) or callable(a):
            return a
        raise NotImplementedError(
            f"argument of type: {type(a)} can't stand in a traced graph; pass its parts"
        )

    def _key(self, key: Any) -> Any:
        key = self.create_arg(key)
        if list(nodes_in(key)):
            raise RuntimeError(
                f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}"
            )
        return key

    def to_bool(self, obj: Proxy) -> bool:
        """What an ``if`` on a proxy asks; there is no answer before the program runs."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """What a loop over a proxy asks."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument. Loop over its size, or keep the "
            "function whole with torch.fx.wrap"
        )

    def keys(self, obj: Proxy) -> Any:
        """What ``**proxy`` asks."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds nodes to a graph that is there already."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph


def _user_frames() -> traceback.StackSummary:
    frames = traceback.extract_stack()
    return traceback.StackSummary.from_list([f for f in frames if not is_own(f.filename)])


class Proxy:
    """A placeholder for a value of a traced program: every use of it becomes a node."""

    if TYPE_CHECKING:
        # The operators are put on the class below.
        def __getitem__(self, key: Any) -> Proxy: ...

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        overrides.switch_on()
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        if k.startswith("__") and k.endswith("__"):
            raise AttributeError(k)
        return Attribute(self, k)

    def __deepcopy__(self, memo: Any) -> Proxy:
        return Proxy(self.node, self.tracer)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        # ``a, b = proxy`` says how many values there are.
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        if caller is not None:
            for step in dis.get_instructions(caller.f_code):
                if step.offset == caller.f_lasti and step.opname == "UNPACK_SEQUENCE":
                    return (self[i] for i in range(step.argval))
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """What ``**proxy`` asks."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be "
            "recorded, please call torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Proxy:
        kwargs = kwargs or {}
        tracers: dict[int, TracerBase] = {}

        def note(value: Any) -> Any:
            if isinstance(value, Proxy):
                tracers[id(value.tracer)] = value.tracer
            return value

        map_aggregate((args, kwargs), note)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers.values())} while trying to trace "
                f"operations {orig_method}"
            )
        tracer = next(iter(tracers.values()))
        if weft.overrides.is_tensor_method_or_property(orig_method):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        if qualified_name(orig_method).startswith("torch.nn.functional."):
            args, kwargs = _spelled_out(orig_method, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


def _spelled_out(function: Callable, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """A call of PyTorch's Python functions as they hand it on: all that has a default by name."""
    if function.__name__ in COMPILED:
        return args, kwargs
    signature = inspect.signature(function)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    needed, named = [], {}
    for name, value in bound.arguments.items():
        if signature.parameters[name].default is inspect.Parameter.empty:
            needed.append(value)
        else:
            named[name] = value
    return tuple(needed), named


class Attribute(Proxy):
    """An attribute of a proxy, which becomes a node only if it is not called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The reading of the attribute."""
        if self._node is None:
            made = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = made.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A proxy of a parameter whose shape is asked of the parameter itself."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Tensor) -> None:
        super().__init__(node, tracer)
        self.param, self.param_name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.param_name})"

    @property
    def shape(self) -> Any:
        """The parameter's shape."""
        return self.param.shape

    def size(self, *args: Any) -> Any:
        """The parameter's size."""
        return self.param.size(*args)

    def dim(self) -> int:
        """The number of the parameter's dimensions."""
        return self.param.dim()

    ndim = property(dim)

    def numel(self) -> int:
        """The number of the parameter's elements."""
        return self.param.numel()

    nelement = numel


def _operator(name: str, reflected: bool = False) -> Callable:
    target = getattr(operator, name)

    def method(self: Proxy, *args: Any) -> Proxy:
        operands = (args[0], self) if reflected else (self, *args)
        return self.tracer.create_proxy("call_function", target, operands, {})

    method.__name__ = f"__{'r' if reflected else ''}{name.strip('_')}__"
    return method


_BINARY = (
    *("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and_", "or_"),
    *("xor", "matmul"),
)
for _name in (
    *(*_BINARY, "eq", "ne", "lt", "gt", "le", "ge", "pos", "neg", "invert", "getitem", "setitem"),
):
    setattr(Proxy, f"__{_name.strip('_')}__", _operator(_name))
for _name in _BINARY:
    setattr(Proxy, f"__r{_name.strip('_')}__", _operator(_name, reflected=True))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
