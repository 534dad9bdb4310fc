"""Ops of one's own: a name in ``torch.ops``, a kernel, and a derivative if there is one.

>>> import weft as torch
>>> @torch.library.custom_op("readme::double", mutates_args=())
... def double(x: torch.Tensor) -> torch.Tensor:
...     return x * 2
>>> double.register_autograd(lambda ctx, grad: grad * 2)
>>> x = torch.ones(2, requires_grad=True)
>>> double(x).sum().backward()
>>> x.grad
tensor([2., 2.])
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import weft
from weft.autograd.function import Function
from weft.core import errors
from weft.core.tensor import Tensor

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "impl", "opcheck", "register_autocast",
    "register_autograd", "register_fake", "register_kernel", "register_vmap", "triton_op",
    "wrap_triton",
]  # fmt: skip

_OPS: dict[str, CustomOpDef] = {}
_HERE = ("", "default", "CPU", "cpu", "CompositeExplicitAutograd")


def _split(name: str) -> tuple[str, str]:
    space, mark, op = name.partition("::")
    if not mark or not space or not op:
        raise ValueError(f"expected a name like namespace::op, got {name!r}\n  at {errors.here()}")
    return space, op.partition(".")[0]


class CustomOpDef:
    """An op: called like a function, and recorded as one node."""

    def __init__(self, namespace: str, name: str, schema: str | None = None) -> None:
        self._namespace, self._name, self._schema = namespace, name, schema
        self._kernel: Callable | None = None
        self._composite: Callable | None = None
        self._fake: Callable | None = None
        self._backward: Callable | None = None
        self._setup_context: Callable | None = None
        self._signature: inspect.Signature | None = None
        self.__name__ = name

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def _take(self, kernel: Callable) -> None:
        self._kernel = kernel
        self.__doc__ = kernel.__doc__
        try:
            self._signature = inspect.signature(kernel)
        except (TypeError, ValueError):
            self._signature = None

    def register_kernel(self, device_types: Any, fn: Callable | None = None, /) -> Any:
        """A decorator: the function that computes the op on some devices."""

        def register(function: Callable) -> Callable:
            types = [device_types] if isinstance(device_types, str) else device_types
            if types is None or "cpu" in types:
                self._take(function)
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn: Callable, /) -> Callable:
        """A decorator: the function that gives results without values, for graph capture."""
        self._fake = fn
        return fn

    def register_autograd(
        self, backward: Callable, /, *, setup_context: Callable | None = None
    ) -> None:
        """The derivative, as in ``torch.autograd.Function``."""
        self._backward, self._setup_context = backward, setup_context

    def register_vmap(self, func: Callable | None = None) -> Any:
        """Accepted: vmap runs the op once for each slice."""
        return (lambda f: f) if func is None else func

    def register_autocast(self, device_type: str, cast_inputs: Any, /) -> None:
        """Accepted; the op sees its inputs as they are."""

    register_torch_dispatch = register_autocast

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self._kernel is None:
            raise NotImplementedError(
                f"{self._qualname} has no kernel for the CPU: register one with "
                f"torch.library.register_kernel\n  at {errors.here()}"
            )
        return self._kernel(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._composite is not None:
            return self._composite(*args, **kwargs)
        if self._signature is not None:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        leaves = [v for a in args for v in (a if isinstance(a, (list, tuple)) else (a,))]
        wanted = any(isinstance(v, Tensor) and v.requires_grad for v in leaves)
        if not wanted or not weft.is_grad_enabled():
            with weft.no_grad():
                return self._run(*args, **kwargs)
        return _recorded(self, kwargs).apply(*args)


def _recorded(op: CustomOpDef, kwargs: dict[str, Any]) -> Any:
    """The function that runs an op once and knows its derivative."""

    def forward(*args: Any) -> Any:
        result = op._run(*args, **kwargs)
        return tuple(result) if isinstance(result, list) else result

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if op._setup_context is not None:
            more = {"keyword_only_inputs": kwargs} if kwargs else {}
            op._setup_context(ctx, inputs, output, **more)

    def backward(ctx: Any, *grads: Any) -> Any:
        if op._backward is None:
            raise RuntimeError(
                f"Trying to backward through {op._qualname} but no autograd formula was "
                "registered. Please use register_autograd to add one.\n"
                f"  at {errors.here()}"
            )
        return op._backward(ctx, *grads)

    members = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(setup_context),
        "backward": staticmethod(backward),
    }
    return type(f"{op._namespace}_{op._name}", (Function,), members)


def _op(name: Any, make: bool = False) -> CustomOpDef:
    if isinstance(name, CustomOpDef):
        return name
    if isinstance(name, (_Packet, _Overload)):
        found: Any = name._op
        return found
    space, op = _split(name)
    key = f"{space}::{op}"
    if key not in _OPS:
        if not make:
            raise RuntimeError(f"there is no op {key}\n  at {errors.here()}")
        _OPS[key] = CustomOpDef(space, op)
    return _OPS[key]


def custom_op(
    name: str,
    fn: Callable | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """A decorator that makes an op of a function; also ``torch.ops.namespace.op`` from then on."""

    def make(function: Callable) -> CustomOpDef:
        op = CustomOpDef(*_split(name), schema)
        op._take(function)
        _OPS[op._qualname] = op
        return op

    return make if fn is None else make(fn)


def register_kernel(
    op: Any, device_types: Any, func: Callable | None = None, /, *, lib: Any = None
) -> Any:
    """The function that computes an op on some devices."""
    return _op(op).register_kernel(device_types, func)


def register_fake(op: Any, func: Callable | None = None, /, **options: Any) -> Any:
    """The function that gives an op's results without values; the op may come later."""
    found = _op(op, make=True)
    return found.register_fake if func is None else found.register_fake(func)


impl_abstract = register_fake


def register_autograd(
    op: Any, backward: Callable, /, *, setup_context: Callable | None = None, lib: Any = None
) -> None:
    """The derivative of an op."""
    _op(op, make=True).register_autograd(backward, setup_context=setup_context)


def register_vmap(op: Any, func: Callable | None = None, /, *, lib: Any = None) -> Any:
    """Accepted: vmap runs the op once for each slice."""
    return _op(op).register_vmap(func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Accepted; the op sees its inputs as they are."""


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """An op by its schema; a kernel is registered with ``impl``."""
    _op(qualname, make=True)._schema = schema


def impl(qualname: str, types: Any, func: Callable | None = None, *, lib: Any = None) -> Any:
    """The function that computes an op on some devices, or under a dispatch key."""

    def register(function: Callable) -> Callable:
        keys = [types] if isinstance(types, str) else types
        op = _op(qualname, make=True)
        if any(key in ("CompositeImplicitAutograd", "Autograd", "AutogradCPU") for key in keys):
            op._composite = function
        if any(key in _HERE for key in keys):
            op._take(function)
        return function

    return register if func is None else register(func)


class Library:
    """Ops of one namespace, defined by schemas."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}\n  at {errors.here()}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """An op by its schema; gives its name."""
        name = re.split(r"[.(]", schema, maxsplit=1)[0].strip()
        _op(f"{self.ns}::{name}", make=True)._schema = schema
        return name

    def impl(
        self, op_name: Any, fn: Callable, dispatch_key: str = "", *, with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:  # fmt: skip
        """The function that computes an op under a dispatch key."""
        name = op_name if isinstance(op_name, str) else _op(op_name)._qualname
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        impl(f"{self.ns}::{name.rpartition('::')[2]}", key, fn)

    def _register_fake(self, op_name: str, fn: Callable, _stacklevel: int = 1, **kw: Any) -> None:
        _op(f"{self.ns}::{op_name}", make=True).register_fake(fn)

    def _destroy(self) -> None:
        for key in [k for k in _OPS if k.startswith(f"{self.ns}::")]:
            del _OPS[key]


def opcheck(op: Any, args: tuple[Any, ...], kwargs: Any = None, **options: Any) -> dict[str, str]:
    """Call an op and check its derivative where it has one."""
    found, results = _op(op), {"test_schema": "SUCCESS"}
    found(*args, **(kwargs or {}))
    tensors = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
    if tensors and found._backward is not None:
        weft.autograd.gradcheck(lambda *a: found(*a, **(kwargs or {})), args)
        results["test_autograd_registration"] = "SUCCESS"
    return results


def _refuse_triton(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises: Triton compiles GPU kernels."""
    raise RuntimeError(
        "torch.library.triton_op: Triton compiles GPU kernels and weft runs on the CPU. Use "
        f"torch.library.custom_op with a function in Python\n  at {errors.here()}"
    )


triton_op = wrap_triton = _refuse_triton
_refuse_triton.unavailable = True  # type: ignore[attr-defined]


# ------------------------------------------------------------------ torch.ops


class _Overload:
    """An op for one choice of types of arguments, such as ``torch.ops.aten.add.Tensor``."""

    def __init__(self, packet: _Packet, name: str) -> None:
        self._packet, self._overload = packet, name
        self._op: Any = packet._op
        self.__name__ = f"{packet.__name__}.{name}"

    @property
    def overloadpacket(self) -> _Packet:
        """The op for all types of arguments."""
        return self._packet

    def name(self) -> str:
        """The op's full name."""
        return f"{self._packet._space}::{self.__name__}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)

    def __repr__(self) -> str:
        op = f"{self._packet._space}.{self._packet.__name__}"
        return f"<OpOverload(op='{op}', overload='{self._overload}')>"


class _Packet:
    """An op under its name in ``torch.ops``."""

    def __init__(self, space: str, name: str, op: Callable) -> None:
        self._space, self.__name__, self._op = space, name, op
        self._overloads: dict[str, _Overload] = {}

    def __getattr__(self, name: str) -> _Overload:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._overloads.setdefault(name, _Overload(self, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._space}.{self.__name__}')>"


class _Namespace:
    """The ops of one library, such as ``torch.ops.aten``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, op: str) -> _Packet:
        found: Any = _OPS.get(f"{self.name}::{op}")
        if found is None and self.name in ("aten", "prims") and not op.startswith("__"):
            found = _plain_function(op) or _refusing(f"{self.name}::{op}")
        if found is None:
            raise AttributeError(
                f"'_OpNamespace' '{self.name}' object has no attribute '{op}': no such op was "
                "registered with torch.library, and weft does not load compiled libraries of ops"
            )
        packet = _Packet(self.name, op, found)
        if self.name == "aten":
            self.__dict__[op] = packet
        return packet


def _refusing(name: str) -> Callable:
    """An op of PyTorch's that can be named, in the tables of tensor subclasses for example."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"weft has no function for PyTorch's op {name}\n  at {errors.here()}"
        )

    return refuse


def _plain_function(name: str) -> Any:
    """weft's function of an op of PyTorch's."""
    for part in ("linalg", "fft", "special"):
        if name.startswith(part + "_"):
            return getattr(getattr(weft, part), name.removeprefix(part + "_"), None)
    for owner in (weft, weft.nn.functional, Tensor):
        found = getattr(owner, name, None)
        if callable(found):
            return found
    return None


_SPACES: dict[str, _Namespace] = {}
loaded_libraries: set[str] = set()


def namespace(name: str) -> _Namespace:
    """The ops of a library; of one that has registered none yet as well."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _SPACES.setdefault(name, _Namespace(name))


def load_library(path: str) -> NoReturn:
    """Raises: libraries of ops are compiled against PyTorch."""
    raise OSError(
        f"Could not load this library: {path}. It is compiled against PyTorch's own library\n"
        f"  at {errors.here()}"
    )
