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

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import weft
from weft.autograd.function import Function
from weft.core import batching, errors, overrides
from weft.core.inplace import bump
from weft.core.tensor import Tensor
from weft.library import _schema

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "impl", "infer_schema", "opcheck",
    "register_autocast", "register_autograd", "register_fake", "register_kernel", "register_vmap",
    "triton_op", "wrap_triton",
]  # fmt: skip

_OPS: dict[str, CustomOpDef] = {}
_HERE = ("", "default", "CPU", "cpu", "CompositeExplicitAutograd")


def _split(name: str) -> tuple[str, str, str]:
    space, mark, op = name.partition("::")
    if not mark or not space or not op:
        raise ValueError(f"expected a name like namespace::op, got {name!r}\n  at {errors.here()}")
    op, _, overload = op.partition(".")
    return space, op, "" if overload == "default" else overload


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among arguments or results, also those in lists."""
    leaves = (v for a in values for v in (a if isinstance(a, (list, tuple)) else (a,)))
    return [v for v in leaves if isinstance(v, Tensor)]


class CustomOpDef:
    """An op: called like a function, and recorded as one node."""

    def __init__(self, namespace: str, name: str, overload: str = "") -> None:
        self._namespace, self._name, self._overload = namespace, name, overload
        self._schema: _schema.Schema | None = None
        self._kernel: Callable | None = None
        self._init_fn: Callable | None = None
        self._composite: Callable | None = None
        self._fake: Callable | None = None
        self._backward: Callable | None = None
        self._setup_context: Callable | None = None
        self._vmap: Callable | None = None
        self._casts: Any = None
        self._recorded: Any = None
        self.__name__ = name

    @property
    def _qualname(self) -> str:
        name = f"{self._namespace}::{self._name}"
        return f"{name}.{self._overload}" if self._overload else name

    @property
    def _opoverload(self) -> Any:
        """The op as ``torch.ops`` has it."""
        return getattr(getattr(namespace(self._namespace), self._name), self._overload or "default")

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def _take(self, kernel: Callable) -> None:
        self._kernel = kernel
        self.__doc__ = kernel.__doc__

    def register_kernel(self, device_types: Any, fn: Callable | None = None, /) -> Any:
        """A decorator: the function that computes the op on some devices."""

        def register(function: Callable) -> Callable:
            types = [device_types] if isinstance(device_types, str) else device_types
            if types is None or "cpu" in types:
                self._take(function)
            return function

        return register if fn is None else register(fn)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """A block in which the kernel registered for a device is not used, but the first one."""
        before = self._kernel
        if device_type == "cpu" and not enabled and self._init_fn is not None:
            self._kernel = self._init_fn
        try:
            yield
        finally:
            self._kernel = before

    def register_fake(self, fn: Callable, /) -> Callable:
        """A decorator: the function that gives results without values, for meta tensors."""
        self._fake = fn
        return fn

    def register_autograd(
        self, backward: Callable, /, *, setup_context: Callable | None = None
    ) -> None:
        """The derivative, as in ``torch.autograd.Function``."""
        self._backward, self._setup_context = backward, setup_context

    def register_vmap(self, func: Callable | None = None) -> Any:
        """The function for a whole batch: ``func(info, in_dims, *args)`` gives outputs and dims.

        Without it vmap runs the op once for each slice.
        """
        if func is None:
            return self.register_vmap
        self._vmap, self._recorded = func, None
        return func

    def register_autocast(self, device_type: str, cast_inputs: Any, /) -> None:
        """The dtype that floating-point inputs are given inside autocast."""
        if device_type == "cpu":
            self._casts = cast_inputs

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Any = None, /) -> Any:
        """Accepted: there is no dispatch below functions that would ask for it."""
        return (lambda f: f) if fn is None else fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return overrides.hand_over(self._opoverload, self._bound_call, args, kwargs)

    def _bound_call(self, *args: Any, **kwargs: Any) -> Any:
        if self._composite is not None:
            return self._composite(*args, **kwargs)
        if self._schema is not None:
            bound, kwargs = self._schema.bind(args, kwargs)
            args = tuple(bound)
        if self._casts is not None and weft.is_autocast_enabled("cpu"):
            args = tuple(self._cast(a) for a in args)
        tensors = _tensors(args)
        recording = weft.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if recording or batching.highest(tensors):
            return self._function(kwargs).apply(*args)
        with weft.no_grad():
            return self._run(args, kwargs)

    def _cast(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(v) for v in value)
        wanted = isinstance(value, Tensor) and value.is_floating_point()
        return value.to(self._casts) if wanted else value

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the kernel, or on meta tensors what stands for it."""
        tensors = _tensors((*args, *kwargs.values()))
        if any(t.is_meta for t in tensors):
            return self._of_meta()(*args, **kwargs)
        if self._kernel is None:
            raise NotImplementedError(
                f"{self._qualname} has no kernel for the CPU: register one with "
                f"torch.library.register_kernel\n  at {errors.here()}"
            )
        result = self._kernel(*args, **kwargs)
        if self._init_fn is not None:
            self._check_results(tensors, result)
        for t in self._changed(args, kwargs):
            bump(t, self._qualname)
        return result

    def _of_meta(self) -> Callable:
        if self._fake is not None:
            return self._fake
        raise RuntimeError(
            f"There was no fake impl registered for {self}. This is necessary for meta tensors. "
            f"Please use `{self._name}.register_fake` to add one.\n  at {errors.here()}"
        )

    def _check_results(self, given: list[Tensor], result: Any) -> None:
        seen = [id(t._vc) for t in given]
        for t in _tensors(result if isinstance(result, tuple) else (result,)):
            if id(t._vc) in seen:
                raise RuntimeError(
                    f"{self._qualname}: The output of this custom operator (1) must not also be an "
                    "input to this custom operator and (2) may not alias any inputs to this custom "
                    "operator or other returns. Please instead return a clone of the offending "
                    f"output tensor(s) (e.g. return x.clone())\n  at {errors.here()}"
                )
            seen.append(id(t._vc))

    def _changed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """The arguments that the schema says are written to."""
        if self._schema is None:
            return []
        values = (*args, *kwargs.values())
        pairs = zip(self._schema.arguments, values, strict=False)
        return _tensors(value for argument, value in pairs if argument.is_write)

    def _function(self, kwargs: dict[str, Any]) -> Any:
        """The function that runs the op and knows its derivative."""
        if kwargs:
            return _as_function(self, kwargs)
        if self._recorded is None:
            self._recorded = _as_function(self, {})
        return self._recorded


def _as_function(op: CustomOpDef, kwargs: dict[str, Any]) -> Any:
    def forward(*args: Any) -> Any:
        result = op._run(args, kwargs)
        return tuple(result) if isinstance(result, list) else result

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if op._setup_context is not None:
            more = {"keyword_only_inputs": kwargs} if kwargs else {}
            op._setup_context(ctx=ctx, inputs=inputs, output=output, **more)

    def backward(ctx: Any, *grads: Any) -> Any:
        if op._backward is None:
            raise RuntimeError(
                f"Trying to backward through {op._opoverload} but no autograd formula was "
                "registered. Please use register_autograd to add one.\n"
                f"  at {errors.here()}"
            )
        return op._backward(ctx, *grads)

    members: dict[str, Any] = {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(setup_context),
        "backward": staticmethod(backward),
        "generate_vmap_rule": op._vmap is None,
    }
    if op._vmap is not None:
        rule = op._vmap
        members["vmap"] = staticmethod(lambda info, dims, *a: rule(info, dims, *a, **kwargs))
    overload = op._overload or "default"
    name = f"GeneratedBackwardFor_{op._namespace}_{op._name}_{overload}"
    return type(name, (Function,), members)


def _op(name: Any, make: bool = False) -> CustomOpDef:
    if isinstance(name, CustomOpDef):
        return name
    if isinstance(name, _Packet):
        return _op(f"{name._space}::{name.__name__}")
    if isinstance(name, _Overload):
        return _op(name.name())
    parts = _split(name)
    key = CustomOpDef(*parts)._qualname
    if key not in _OPS:
        if not make:
            raise RuntimeError(f"there is no op {key}\n  at {errors.here()}")
        _OPS[key] = CustomOpDef(*parts)
    return _OPS[key]


def infer_schema(
    prototype_function: Callable, /, *, mutates_args: str | Iterable[str],
    op_name: str | None = None,
) -> str:  # fmt: skip
    """The schema that a function's annotations say.

    >>> def scaled(x: weft.Tensor, k: float = 2.0) -> weft.Tensor: ...
    >>> infer_schema(scaled, mutates_args=())
    '(Tensor x, float k=2.0) -> Tensor'
    """
    return str(_schema.infer(prototype_function, mutates_args, op_name or ""))


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
        op = CustomOpDef(*_split(name))
        if schema is None:
            op._schema = _schema.infer(function, mutates_args, op._qualname)
        else:
            op._schema = _schema.parse(schema, op._qualname)
        op._take(function)
        op._init_fn = function
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
    """The function for a whole batch, as in ``CustomOpDef.register_vmap``."""
    return _op(op).register_vmap(func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """The dtype that floating-point inputs are given inside autocast."""
    _op(op).register_autocast(device_type, cast_inputs)


def register_torch_dispatch(op: Any, kind: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Accepted: there is no dispatch below functions that would ask for it."""
    return _op(op).register_torch_dispatch(kind, func)


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """An op by its schema; a kernel is registered with ``impl``."""
    op = _op(qualname, make=True)
    op._schema = _schema.parse(schema, f"{op._namespace}::{op._name}", op._overload)


def impl(qualname: str, types: Any, func: Callable | None = None, *, lib: Any = None) -> Any:
    """The function that computes an op on some devices, or under a dispatch key."""

    def register(function: Callable) -> Callable:
        keys = [types] if isinstance(types, str) else types
        op = _op(qualname, make=True)
        if any(key in ("CompositeImplicitAutograd", "Autograd", "AutogradCPU") for key in keys):
            op._composite = function
        if any(key in _HERE for key in keys):
            op._take(function)
        if "Meta" in keys:
            op.register_fake(function)
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
        name = schema.partition("(")[0].strip()
        define(f"{self.ns}::{name}", schema)
        return name.partition(".")[0]

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


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: Any = ("test_schema", "test_autograd_registration", "test_faketensor"),
    raise_exception: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Check that an op does what was registered of it: schema, derivative, results without values.

    Whether the derivative is right is for ``torch.autograd.gradcheck`` to say.
    """
    from weft.library import _checking

    names = [test_utils] if isinstance(test_utils, str) else test_utils
    return _checking.check(_op(op), args, kwargs or {}, names, raise_exception)


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
        self._packet, self._overloadname = packet, name
        self._opname, self.namespace = packet.__name__, packet._space
        self.__name__ = f"{packet.__name__}.{name}"
        self.__module__ = packet.__module__
        self.tags: list[Any] = []

    @property
    def overloadpacket(self) -> _Packet:
        """The op for all types of arguments."""
        return self._packet

    @property
    def _op(self) -> Any:
        return self._packet._op or _op(self.name())

    @property
    def _schema(self) -> _schema.Schema:
        found = getattr(self._op, "_schema", None)
        if found is None:
            raise AttributeError(f"weft knows no schema of {self.name()}, only how to call it")
        return found

    def name(self) -> str:
        """The op's full name."""
        plain = self._overloadname == "default"
        return f"{self.namespace}::{self._opname if plain else self.__name__}"

    _name = property(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        op = f"{self.namespace}.{self._opname}"
        return f"<OpOverload(op='{op}', overload='{self._overloadname}')>"


class _Packet:
    """An op under its name in ``torch.ops``."""

    def __init__(self, space: str, name: str, op: Callable | None) -> None:
        # A function of weft's, or None for an op that the table of registered ones has.
        self._space, self.__name__, self._op = space, name, op
        self._qualified_op_name = f"{space}::{name}"
        self.__module__ = f"torch._ops.{space}"
        self._made: dict[str, _Overload] = {}

    def overloads(self) -> list[str]:
        """The names of the op's overloads."""
        if self._op is not None:
            return list(self._made) or ["default"]
        return [op._overload or "default" for op in _overloads(self._space, self.__name__)]

    def __getattr__(self, name: str) -> _Overload:
        if name.startswith("_") or (self._op is None and name not in self.overloads()):
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")
        return self._made.setdefault(name, _Overload(self, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._op is not None:
            return self._op(*args, **kwargs)
        return overrides.hand_over(self, self._choose, args, kwargs)

    def _choose(self, *args: Any, **kwargs: Any) -> Any:
        """Call the first overload that takes the arguments."""
        *first, last = _overloads(self._space, self.__name__)
        for op in first:
            try:
                if op._schema is not None:
                    op._schema.bind(args, kwargs)
            except RuntimeError:
                continue
            return op._bound_call(*args, **kwargs)
        return last._bound_call(*args, **kwargs)

    def __str__(self) -> str:
        return f"{self._space}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


def _overloads(space: str, name: str) -> list[CustomOpDef]:
    plain = f"{space}::{name}"
    return [op for key, op in _OPS.items() if key == plain or key.startswith(plain + ".")]


class _Namespace:
    """The ops of one library, such as ``torch.ops.aten``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._registered: dict[str, _Packet] = {}

    def __getattr__(self, op: str) -> _Packet:
        if _overloads(self.name, op):
            return self._registered.setdefault(op, _Packet(self.name, op, None))
        found: Any = None
        if self.name in ("aten", "prims") and not op.startswith("__"):
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

    def __dir__(self) -> list[str]:
        start = f"{self.name}::"
        ours = {k.removeprefix(start).partition(".")[0] for k in _OPS if k.startswith(start)}
        return sorted({*super().__dir__(), *ours})


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
