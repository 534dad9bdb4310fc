"""Which public functions ``__torch_function__`` and modes can take over, and under which name.

The table is the public namespaces themselves: everything in them takes part, apart from what is
named here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from weft.core import foreign, overrides
from weft.core.tensor import Tensor
from weft.operators import api

# Functions that make tensors from other things: modes are asked, types of arguments are not.
MAKING = frozenset(
    (
        *("arange", "as_tensor", "asarray", "bartlett_window", "blackman_window", "empty"),
        *("empty_permuted", "empty_strided", "eye", "frombuffer", "from_file", "from_numpy"),
        *("full", "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace"),
        *("ones", "rand", "randint", "randn", "randperm", "range", "scalar_tensor", "tensor"),
        *("tril_indices", "triu_indices", "zeros", "fftfreq", "rfftfreq", "from_dlpack"),
    )
)
# Questions about types and settings, and what concerns no tensor.
APART = frozenset(
    (
        *("broadcast_shapes", "can_cast", "compiled_with_cxx11_abi", "default_generator"),
        *("get_rng_state", "initial_seed", "is_storage", "is_tensor", "is_vulkan_available"),
        *("is_warn_always_enabled", "manual_seed", "promote_types", "seed", "set_rng_state"),
        *("set_default_tensor_type", "set_warn_always", "typename"),
    )
)
# Methods that are called without asking: they make or describe objects, or call others that ask.
DIRECT = frozenset(
    (
        *("__init__", "__init_subclass__", "__new__", "__torch_function__", "__hash__", "__iter__"),
        *("__getattr__", "__delitem__", "__buffer__", "__array_namespace__", "_make_subclass"),
        *("alias_of", "as_subclass", "__setstate__"),
    )
)
PRIVATE = frozenset(("_is_view", "_version"))

# Operators that PyTorch reports as the method that does the same.
REPORTED = {
    **{f"__{name}__": name for name in ("add", "sub", "mul", "matmul", "neg", "abs")},
    **{f"__{name}__": name for name in ("lt", "le", "gt", "ge", "ne")},
    **{f"__i{name}__": f"{name}_" for name in ("add", "sub", "mul")},
    **{f"__r{name}__": name for name in ("add", "mul")},
    **{f"__r{name}__": f"bitwise_{name}" for name in ("and", "or", "xor")},
    "__truediv__": "div",
    "__itruediv__": "div_",
    "__ifloordiv__": "floor_divide_",
    "__mod__": "remainder",
    "__imod__": "remainder_",
    "__pos__": "positive",
}
# Operators for which Python asks the other operand if they decline.
TWO_SIDED = frozenset(
    f"__{side}{name}__"
    for side in ("", "r", "i")
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or"),
        *("xor", "lshift", "rshift", "eq", "ne", "lt", "le", "gt", "ge"),
    )
)


def methods() -> Iterator[tuple[str, FunctionType]]:
    """The methods of Tensor that take part."""
    for name, found in list(vars(Tensor).items()):
        if not isinstance(found, FunctionType) or name in DIRECT:
            continue
        if not name.startswith("_") or name.startswith("__") or name in PRIVATE:
            yield name, found


def properties() -> Iterator[tuple[str, property]]:
    """The properties of Tensor that take part."""
    for name, found in list(vars(Tensor).items()):
        if isinstance(found, property) and (not name.startswith("_") or name in PRIVATE):
            yield name, found


def homes() -> dict[str, dict[str, Callable]]:
    """The public functions by module and name."""
    found = {"torch": api.FUNCTIONS}
    found.update((f"torch.{path}", names) for path, names in api.NAMESPACES.items())
    found.update(OFFERED)
    return found


def functions() -> Iterator[tuple[str, str, FunctionType]]:
    """The public functions that take part: where they are, their name, and they themselves."""
    for home, names in homes().items():
        for name, found in list(names.items()):
            if isinstance(found, FunctionType) and name not in APART:
                yield home, name, found


# Functions of higher layers that take part, by module.
OFFERED: dict[str, dict[str, Callable]] = {}


def offer(home: str, **names: Callable) -> None:
    """Let functions of a higher layer take part."""
    OFFERED.setdefault(home, {}).update(names)
    for name, function in names.items():
        if isinstance(function, FunctionType):
            foreign.guard(function, name)
    overrides.NAMES.clear()
    if overrides.ON:
        _redirect_functions()


def redirect_all() -> None:
    """Redirect everything that takes part."""
    _redirect_functions()
    _redirect_methods()


def _redirect_functions() -> None:
    for _home, name, function in functions():
        by_mode = name in MAKING
        hand_on = overrides.hand_to_modes if by_mode else overrides.hand_over
        overrides.redirect(function, function, hand_on)


def _redirect_methods() -> None:
    for name, function in methods():
        shown = vars(Tensor).get(REPORTED.get(name, name), function)
        two = name in TWO_SIDED
        hand_on = overrides.hand_over_operator if two else overrides.hand_over
        overrides.redirect(function, shown, hand_on)
    for _name, found in properties():
        for accessor, shown in (
            (found.fget, found.__get__),
            (found.fset, found.__set__),
            (found.fdel, found.__delete__),
        ):
            if isinstance(accessor, FunctionType):
                overrides.redirect(accessor, shown)


# Functions of these modules are called so in PyTorch.
_LONG = {f"torch.{name}": f"{name}_" for name in ("fft", "linalg", "special")}


def separate() -> None:
    """Give every public name a function of its own.

    ``__torch_function__`` tells ``torch.add`` from ``Tensor.add``, and an alias from the name that
    it stands for. As in PyTorch ``nn.functional`` has functions in common with the top.
    """
    seen: dict[Any, str] = {}
    for home, name, function in functions():
        shared = "torch" if home == "torch.nn.functional" else home
        if seen.setdefault(function, f"{shared}.{name}") != f"{shared}.{name}":
            function = homes()[home][name] = overrides.twin(function)
            function.__qualname__ = name
        function.__name__ = _LONG.get(home, "") + name
    for name, function in methods():
        if function in seen:
            function = overrides.twin(function)
            setattr(Tensor, name, function)
        if function.__name__ != name:
            function.__name__ = name
            function.__module__, function.__qualname__ = "weft", f"Tensor.{name}"
        seen[function] = name
    for name, found in properties():
        if found.fget in seen:
            getter = overrides.twin(found.fget)  # type: ignore[arg-type]
            setattr(Tensor, name, property(getter, found.fset, found.fdel, found.__doc__))
        seen[found.fget] = name


def guard_all() -> None:
    """Let every function that takes part name the argument that is not a tensor."""
    for _home, _name, function in functions():
        foreign.guard(function, function.__name__)
    for name, function in methods():
        foreign.guard(function, name)


def names() -> dict[Any, str]:
    """The public name of everything that takes part."""
    if not overrides.NAMES:
        for home, name, function in functions():
            overrides.NAMES.setdefault(function, f"{home}.{name}")
        for name, function in methods():
            overrides.NAMES.setdefault(function, f"torch.Tensor.{name}")
        for name, found in properties():
            for ending in ("__get__", "__set__", "__delete__"):
                overrides.NAMES[getattr(found, ending)] = f"torch.Tensor.{name}.{ending}"
    return overrides.NAMES


overrides.SWITCH.append(redirect_all)
overrides.PUBLIC_NAMES.append(names)
