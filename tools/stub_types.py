"""What the stubs say beyond signatures: the types of arguments that are checked at run time."""

from __future__ import annotations

import inspect

OUT = "Tensor | Sequence[Tensor] | None"

# The types of arguments that are annotated as Any, by their names.
ARGUMENTS = {
    **dict.fromkeys(("out",), OUT),
    **dict.fromkeys(("dim", "axis"), "_Ints | None"),
    **dict.fromkeys(("dims", "shifts", "source_dims", "axes", "repeats"), "_Ints | Tensor | None"),
    **dict.fromkeys(("size", "sizes", "shape", "kernel_size"), "_Ints | None"),
    **dict.fromkeys(("stride", "dilation", "output_size", "normalized_shape"), "_Ints | None"),
    **dict.fromkeys(("dtype", "out_dtype"), "_Dtype | None"),
    **dict.fromkeys(("device",), "_Device | None"),
    **dict.fromkeys(("generator",), "_Generator | None"),
    **dict.fromkeys(("memory_format",), "_memory_format | None"),
    **dict.fromkeys(("other", "exponent", "end"), "_Operand"),
    **dict.fromkeys(("value", "fill_value", "alpha", "beta", "maxnorm"), "_Operand"),
    **dict.fromkeys(("min", "max"), "_Operand | None"),
    **dict.fromkeys(("tensor1", "tensor2"), "Tensor"),
    **dict.fromkeys(("tensors",), "Sequence[Tensor]"),
    **dict.fromkeys(("pin_memory",), "_bool"),
}
# Arguments by function and name where the name alone does not say it.
SPECIAL = {
    ("norm", "dim"): "_Ints | None",
    ("where", "other"): "_Operand | None",
    ("interpolate", "size"): "_Ints | None",
    ("scatter", "value"): "_Operand | None",
    ("view", "shape"): "_Ints",
    ("tensor", "data"): "Any",
    ("fold", "output_size"): "_Ints",
    **{(f"adaptive_{kind}_pool{n}d", "output_size"): "SupportsIndex | Sequence[Any] | None"
       for kind in ("avg", "max") for n in (1, 2, 3)},
    **{(name, "tensors"): "Tensor | Sequence[Tensor]"
       for name in ("atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors", "meshgrid",
                    "cartesian_prod", "block_diag", "align_tensors")},
}  # fmt: skip
# Old positional forms of later arguments, which new programs need not know.
DROPPED = {"last", "_last", "implicit"}

RESULTS = {
    **dict.fromkeys(("positive", "conj_physical", "resolve_conj", "resolve_neg"), "Tensor"),
    **dict.fromkeys(("celu", "selu", "affine_grid_generator"), "Tensor"),
}


def argument(parameter: inspect.Parameter, function: str) -> str:
    """The type of an argument whose annotation is Any."""
    kind = SPECIAL.get((function, parameter.name)) or ARGUMENTS.get(parameter.name, "Any")
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return kind.removesuffix(" | None")
    required = parameter.default is inspect.Parameter.empty
    return kind.removesuffix(" | None") if required and kind != OUT else kind


_EXTREME = [
    "(self) -> Tensor",
    "(self, other: Tensor) -> Tensor",
    "(self, dim: _int, keepdim: _bool = False) -> _return_types.{name}",
    "(self, *, axis: _int, keepdims: _bool = False) -> _return_types.{name}",
]
# Functions whose result depends on their arguments; ``self`` is ``input`` in the function.
OVERLOADS = {
    "max": [line.format(name="max") for line in _EXTREME],
    "min": [line.format(name="min") for line in _EXTREME],
    "median": [_EXTREME[0], _EXTREME[2].format(name="median")],
    "nanmedian": [_EXTREME[0], _EXTREME[2].format(name="nanmedian")],
    "size": ["(self) -> _Size", "(self, dim: _int) -> _int"],
    "stride": ["(self) -> tuple[_int, ...]", "(self, dim: _int) -> _int"],
    "type": [
        "(self) -> _str",
        "(self, dtype: _Dtype | _str, non_blocking: _bool = False) -> Tensor",
    ],
    "nonzero": [
        "(self, *, as_tuple: Literal[False] = False) -> Tensor",
        "(self, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]",
    ],
    "to": [
        ("(self, dtype: _Dtype, non_blocking: _bool = False, copy: _bool = False, *, "
        "memory_format: _memory_format | None = None) -> Tensor"),
        ("(self, device: _Device | None = None, dtype: _Dtype | None = None, "
        "non_blocking: _bool = False, copy: _bool = False, *, "
        "memory_format: _memory_format | None = None) -> Tensor"),
        ("(self, other: Tensor, non_blocking: _bool = False, copy: _bool = False, *, "
        "memory_format: _memory_format | None = None) -> Tensor"),
    ],
    "view": [
        "(self, *shape: _Ints, size: _Ints | None = None) -> Tensor",
        "(self, dtype: _dtype) -> Tensor",
    ],
    "split": [
        "(self, split_size: _int | Sequence[_int], dim: _int = 0) -> tuple[Tensor, ...]",
    ],
}  # fmt: skip
FUNCTIONS = {
    "where": [
        "(condition: Tensor) -> tuple[Tensor, ...]",
        (
            "(condition: Tensor, input: _Operand, other: _Operand, *, out: Tensor | None = None) "
            "-> Tensor"
        ),
    ],
}

_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_BINARY = (*_BINARY, "lshift", "rshift")
_OTHER = "(self, other: _Operand) -> Tensor"
OPERATORS = {
    **{f"__{side}{name}__": _OTHER for name in _BINARY for side in ("", "r", "i")},
    **{f"__{name}__": _OTHER for name in ("lt", "le", "gt", "ge")},
    **{f"__{name}__": "(self, other: Any) -> Tensor" for name in ("eq", "ne")},
    **{f"__{name}__": "(self) -> Tensor" for name in ("neg", "pos", "abs", "invert")},
    "__getitem__": "(self, key: Any) -> Tensor",
    "__setitem__": "(self, key: Any, value: Any) -> None",
}
# What a user of the class never calls, or what every class has.
SKIPPED = {
    *("__array_namespace__", "__buffer__", "__delitem__", "__dir__", "__div__", "__rdiv__"),
    *("__idiv__", "__getattr__", "__init__", "__init_subclass__", "__new__", "__nonzero__"),
    *("__long__", "__reduce_ex__", "__repr__", "__setstate__", "__torch_function__"),
    *("__deepcopy__", "alias_of", "names"),
}
PROPERTIES = {
    **{f"is_{k}": "_bool" for k in ("cuda", "sparse", "sparse_csr", "quantized", "mkldnn")},
    **{f"is_{k}": "_bool" for k in ("nested", "mps", "xpu", "ipu", "xla", "mtia", "vulkan")},
    "is_maia": "_bool",
    "mH": "Tensor",
    "mT": "Tensor",
    "name": "_str | None",
    "grad": "Tensor | None",
    "grad_fn": "Any",
    "layout": '"Layout"',
}


def asked(name: str) -> str:
    """The documentation of a property that has none."""
    if name.startswith("is_"):
        return f"Whether it is a tensor of the kind ``{name[3:]}``: never."
    return f"``{name}``."


# Submodules that are not for programs to import by attribute, and names that are imported already.
APART = {"core", "native", "operators", "references", "cli", "doctor"}
IMPORTED = {"memory_format", "channels_last", "channels_last_3d", "contiguous_format"}
IMPORTED |= {"preserve_format"}
