"""How functions get their public names: ``torch.f``, ``Tensor.f``, ``Tensor.f_``."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors, foreign, overrides, pending
from weft.core.devices import copy_of, host, write_into
from weft.core.dispatch import REGISTRY, Op, edge_of
from weft.core.dual import change_tangent, set_tangent, tangents_of
from weft.core.gate import announce
from weft.core.inference import check_change
from weft.core.inplace import apply_inplace, bump, check_overlap, check_writable, set_history, write
from weft.core.modes import MODES
from weft.core.tensor import Tensor, beside, wrap
from weft.core.viewing import unhooked_node
from weft.operators.outputs import (
    IN_DTYPE_OF_OUT,
    check_arguments,
    check_one_dtype,
    check_supported,
    into,
    warn_expanded,
)

# What ``import weft as torch`` offers beside classes and submodules.
FUNCTIONS: dict[str, Callable] = {}
# What submodules such as ``torch.linalg`` and ``torch.nn.functional`` offer.
NAMESPACES: dict[str, dict[str, Callable]] = {}


def top(function: Callable | None = None, *, name: str | None = None, out: bool = False) -> Any:
    """Decorator: offer a function as ``torch.<name>``; ``out=True`` adds an ``out`` argument."""
    if function is None:
        return lambda f: top(f, name=name, out=out)
    name = name or function.__name__
    public = with_out(function, name) if out else function
    FUNCTIONS[name] = public
    return public


def method(function: Callable | None = None, *, name: str | None = None) -> Any:
    """Decorator: offer a function as ``Tensor.<name>``."""
    if function is None:
        return lambda f: method(f, name=name)
    setattr(Tensor, name or function.__name__, function)
    return function


def both(function: Callable | None = None, *, name: str | None = None, out: bool = False) -> Any:
    """Decorator: offer a function as ``torch.<name>`` and as ``Tensor.<name>``."""
    if function is None:
        return lambda f: both(f, name=name, out=out)
    public = top(function, name=name, out=out)
    method(function, name=name or function.__name__)
    return public


def under(
    namespace: str, function: Callable | None = None, *, name: str | None = None, out: bool = False
) -> Any:
    """Decorator: offer a function as ``torch.<namespace>.<name>``."""
    if function is None:
        return lambda f: under(namespace, f, name=name, out=out)
    name = name or function.__name__
    public = with_out(function, f"{namespace}.{name}") if out else function
    NAMESPACES.setdefault(namespace, {})[name] = public
    return public


def settle() -> None:
    """Say of every public function where it can be found, so that it can be pickled by name."""
    homes = {"weft": FUNCTIONS}
    homes.update((f"weft.{path}", names) for path, names in NAMESPACES.items())
    for home, names in homes.items():
        for name, function in names.items():
            if isinstance(function, types.FunctionType) and not _is_found(function):
                function.__module__, function.__qualname__ = home, name


def _is_found(function: Any) -> bool:
    module = sys.modules.get(function.__module__)
    return getattr(module, function.__qualname__, None) is function


def alias(existing: str, *names: str) -> None:
    """Give a public function, its method and its in-place method further names."""
    for name in names:
        if existing in FUNCTIONS:
            FUNCTIONS[name] = FUNCTIONS[existing]
        for suffix in ("", "_"):
            if existing + suffix in Tensor.__dict__:
                setattr(Tensor, name + suffix, Tensor.__dict__[existing + suffix])


# NumPy's names of arguments, which PyTorch takes as well.
NUMPY_NAMES = {
    "axis": "dim",
    "keepdims": "keepdim",
    "x": "input",
    "a": "input",
    "x1": "input",
    "x2": "other",
}


def rename_numpy_names(function: Callable, kwargs: dict[str, Any]) -> bool:
    """Replace NumPy's names by a function's own; returns whether there were any."""
    found = [name for name in kwargs if name in NUMPY_NAMES]
    if found:
        own = inspect.signature(function).parameters
        found = [name for name in found if name not in own and NUMPY_NAMES[name] in own]
    for name in found:
        kwargs[NUMPY_NAMES[name]] = kwargs.pop(name)
    return bool(found)


def with_out(function: Callable, name: str) -> Callable:
    """Add an ``out`` argument, which receives the result (or results)."""

    @functools.wraps(function)
    def public(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None:
            try:
                return function(*args, **kwargs)
            except (AttributeError, TypeError):
                if overrides.met(*args, *kwargs.values()):
                    return public(*args, **kwargs)
                if not rename_numpy_names(function, kwargs):
                    raise
            return function(*args, **kwargs)
        if isinstance(out, Tensor):
            chosen = kwargs.get("dtype")
            if isinstance(chosen, dt.dtype):
                check_one_dtype(out.dtype, chosen, name)
            elif name in IN_DTYPE_OF_OUT:
                check_supported(out.dtype, name)
                kwargs["dtype"] = out.dtype
        return into(out, function(*args, **kwargs), name, (args, kwargs))

    return public


def inplace(name: str, function: Callable | Op, call: Callable | None = None) -> None:
    """Offer ``Tensor.<name>``, which puts the function's result into its tensor.

    ``call`` gives the op that the function is for some arguments, with its operands and
    attributes, or None: a compiled region knows changes by an op also of what has a history.
    """
    if isinstance(function, Op):
        op = function

        def change(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
            return apply_inplace(op, (self, *args), attrs)

    else:

        def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if call is not None and _is_followed() and (one := call(self, *args, **kwargs)):
                return apply_inplace(*one)
            return change_by(self, name[:-1], function, args, kwargs)

    change.__name__ = change.__qualname__ = name
    doc = function.doc if isinstance(function, Op) else function.__doc__
    change.__doc__ = f"In place: {doc}" if doc else f"``{name[:-1]}`` in place."
    setattr(Tensor, name, change)


# Methods that PyTorch lets write one value to elements that share memory.
FILLING = ("masked_fill", "index_fill")


def _fill_expanded(self: Tensor, name: str, function: Callable, args: Any, kwargs: Any) -> Tensor:
    """Fill a part of a tensor whose elements share memory: the others must not be written back."""
    if MODES.now.grad and edge_of(self) is not None:
        check_overlap(self, name)  # raises: there is no history of a part of shared memory
    result = function(self, *args, **kwargs)
    marks = beside(self, np.zeros(self._a.shape, bool))
    chosen = host(function(marks, *args[:-1], True, **kwargs))
    announce(self._a, self)
    write_into(self._a, result._a, chosen)
    bump(self, name)
    return self


def _is_followed() -> bool:
    """Whether a compiled region is the only listener."""
    found = MODES.now.recorders
    return len(found) == 1 and found[0].follows


def is_tracked(x: Tensor) -> bool:
    """Whether a gradient is wanted for a tensor, which may be pending."""
    if pending.region_of(x) is not None:
        return x.requires_grad
    return edge_of(x) is not None


def change_by(self: Tensor, name: str, function: Callable, args: Any, kwargs: Any) -> Tensor:
    """In place through an out-of-place function: compute, check, write, then record."""
    check_change(self, f"{name}_")
    source = self
    if MODES.now.grad:
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        tracking = any(map(is_tracked, (self, *tensors)))
        region = pending.region_of(self)
        if region is None or tracking or not region.owns(self):
            check_writable(self, tracking, name)
        if tracking:
            # The function may save its input, which the write below destroys.
            source = wrap(copy_of(self._a, "C"), unhooked_node(self))
    if name in FILLING and warn_expanded(self, name):
        return _fill_expanded(self, name, function, args, kwargs)
    check_overlap(self, name)
    check_arguments(self, args, name)
    old = tangents_of(self) if MODES.now.dual_level >= 0 else None
    if old and source is not self:
        for level, tangent in old.items():
            set_tangent(source, level, tangent.clone())
    result = function(source, *args, **kwargs)
    for recorder in MODES.now.recorders:
        if recorder.takes_on(self, result, name):
            return self
    if result._a.dtype != self._a.dtype and result._node is not None:
        if not dt.can_cast(result.dtype, self.dtype):
            write(self, result._a, name)  # raises, with the reason
        result = result.to(self.dtype)
    if result._node is None and MODES.now.grad and self._node is not None:
        # The new value depends on nothing that needs a gradient: the old one gets zeros.
        return apply_inplace(REGISTRY["copy"], (self, result), {})
    write(self, result._a, name)
    if result._node is not None:
        set_history(self, result._node)
    if MODES.now.dual_level >= 0:
        new = tangents_of(result) or {}
        for level in {**(old or {}), **new}:
            change_tangent(self, level, new.get(level))
    return self


def as_tensor_like(value: Any, other: Tensor) -> Tensor:
    """A tensor from a tensor or a number, in the other's dtype if it is a number."""
    if isinstance(value, Tensor):
        return value
    foreign.refuse(value)
    return wrap(np.asarray(value, dtype=other._a.dtype))


def no_view(function: Callable) -> Callable:
    """Decorator: the result does not count as a view, though a view op may have made it last.

    Changing it in place then keeps its hooks, as for any other result.
    """

    @functools.wraps(function)
    def fresh(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return apart(function(input, *args, **kwargs), input)

    return fresh


def apart(result: Tensor, *inputs: Tensor) -> Tensor:
    """A result that does not count as a view, unless it shares memory with an input."""
    region = pending.region_of(result)
    if region is not None and region.sets_apart(result, inputs):
        return result
    if result._base is not None and not any(result._vc is x._vc for x in inputs):
        result._base = result._view = None
    return result


def need_tensors(function: str, **arguments: Any) -> None:
    """Refuse, by name, arguments that are not tensors."""
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{function}(): argument '{name}' must be Tensor, not {type(value).__name__}\n"
                f"  at {errors.here()}"
            )


def whole(value: Any, function: str, argument: str) -> int:
    """An argument that is a whole number; a float is none, even where it has no fraction."""
    if value.__class__ is int:
        return value
    try:
        if isinstance(value, bool):
            raise TypeError
        return index(value)
    except TypeError:
        raise TypeError(
            f"{function}(): argument '{argument}' must be int, not {type(value).__name__}\n"
            f"  at {errors.here()}"
        ) from None


def no_dims(dim: Any) -> bool:
    """Whether a dim argument is an empty list, which for many functions means all."""
    return isinstance(dim, (tuple, list)) and not dim


def dims(dim: Any, rank: int) -> tuple[int, ...]:
    """A dim argument (None, an int, several) as a tuple of non-negative ints."""
    if dim is None:
        return tuple(range(rank))
    if dim.__class__ is int:
        return (wrap_dim(dim, rank),)
    if isinstance(dim, (int, np.integer, np.ndarray)) or hasattr(dim, "_a"):
        given: tuple[Any, ...] = (dim,)
    else:
        given = tuple(dim)
    found = tuple([wrap_dim(d, rank) for d in given])
    if len(set(found)) != len(found):
        repeated = next(d for d in found if found.count(d) > 1)
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return found


def wrap_dim(dim: Any, rank: int) -> int:
    """A dim counted from the front; IndexError when it is out of range."""
    if dim.__class__ is int and -rank <= dim < rank:
        return dim if dim >= 0 else dim + rank
    size = max(rank, 1)
    if (
        isinstance(dim, (bool, float, str))
        or (isinstance(dim, np.ndarray) and dim.ndim)
        or (isinstance(dim, Tensor) and (dim._a.ndim or dim._a.dtype.kind not in "iu"))
    ):
        raise TypeError(
            f"argument 'dim' must be int, not {type(dim).__name__}\n  at {errors.here()}"
        )
    dim = int(dim)
    if not -size <= dim < size:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], "
            f"but got {dim})\n  at {errors.here()}"
        )
    return dim + size if dim < 0 else dim


def shape_argument(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """``f(2, 3)`` and ``f((2, 3))`` alike."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    for size in sizes:
        if size.__class__ is not int:
            return tuple([index(s) for s in sizes])
    return sizes


def missing(namespace: str, name: str) -> Any:
    """What a submodule answers when asked for a name that weft lacks."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"weft does not have torch.{namespace}.{name} yet. See ROADMAP.md for what is planned"
    )
