"""The record of one node: plain, immutable data that graphs share."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.dispatch import REGISTRY, Op
from weft.core.inference import version_of
from weft.core.modes import MODES
from weft.core.tensor import Tensor

INPUT, PARAMETER, CONSTANT = "input", "parameter", "constant"
STATE = "state"  # of an optimizer
FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
# Attributes that a node has for weft's own use.
INNER = frozenset(("grad_of", "held", "index", "of", "outs", "pass", "state"))
LEAVES = frozenset((INPUT, PARAMETER, CONSTANT, STATE))


_TITLES = {
    "linear_with_bias": "linear",
    "max_pool_with_indices": "max_pool",
    "fused_rms_norm": "rms_norm",
    "convolution": "conv",
    "to_copy": "to",
}


def title_of(name: str) -> str:
    """An op as people call it."""
    return _TITLES.get(name) or name.removeprefix("native_").lstrip("_")


class Ref(NamedTuple):
    """A result of a node, by the node's number in its graph and the result's number."""

    node: int
    index: int = 0  # type: ignore[assignment]


# A Ref of a pair, without the constructor that NamedTuple writes in Python.
pair_ref: Callable[[tuple[int, int]], Ref] = partial(tuple.__new__, Ref)


class StateOf:
    """The state of a parameter as its optimizer has it now, after ``load_state_dict`` another."""

    __slots__ = ("name", "optimizer", "parameter")

    def __init__(self, optimizer: Any, parameter: Tensor, name: str) -> None:
        self.optimizer, self.parameter, self.name = optimizer, parameter, name

    def __call__(self) -> Tensor | None:
        found: Tensor | None = self.optimizer.state.get(self.parameter, {}).get(self.name)
        return found


class Leaf:
    """The tensor at an end of a graph: held weakly in a live graph, strongly in a record."""

    __slots__ = ("_hold", "grad", "live", "version")

    def __init__(self, tensor: Tensor, strong: bool = True) -> None:
        self._hold: Any = tensor if strong else weakref.ref(tensor)
        self.version = version_of(tensor)
        self.grad = tensor._node is not None
        # The program's own tensor, where ``tensor`` is the value that it had before the block
        # wrote to it: what a repeated step reads and writes.
        self.live: Tensor | None = None

    @property
    def tensor(self) -> Tensor | None:
        """The tensor, while it lives."""
        held = self._hold
        return held() if isinstance(held, (weakref.ref, StateOf)) else held

    def follow(self, state: StateOf) -> None:
        """Let the tensor be an optimizer's state."""
        self._hold = state

    @property
    def lasting(self) -> Any:
        """The tensor that a repeated step reads and writes."""
        return self.tensor if self.live is None else self.live


class Call:
    """Replaces an op where a node is a call of an opaque Python function."""

    multiple = False
    view = False
    cuts = False  # whether no gradient passes
    is_leaf = False  # whether gradients end here
    names: tuple[str, ...] = ()

    def __init__(
        self, name: str, function: Any, multiple: bool = False, constant: Any = ()
    ) -> None:
        self.name, self.function, self.multiple = name, function, multiple
        self.constant = frozenset(constant)  # results that have no gradient

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        return self.function(*args, **attrs)


def _detach(x: Tensor) -> Tensor:
    return x.detach()


def _variable(x: Tensor) -> Tensor:
    return x.detach().requires_grad_()


# What happens to a tensor's place in the graph without an op.
DETACH = Call("detach", _detach)
VARIABLE = Call("requires_grad", _variable)
DETACH.cuts = VARIABLE.is_leaf = True
CALLS = {call.name: call for call in (DETACH, VARIABLE)}


class Spec:
    """One node: what ran, on what, with which result, and where it stood in the program."""

    __slots__ = (
        *("args", "attrs", "code", "dtype", "forward", "grad", "id", "instruction", "kind"),
        *("label", "leaf", "op", "scope", "shape", "source", "stack", "time"),
    )

    def __init__(
        self,
        id: int,
        kind: str,
        op: Any,
        args: tuple[Any, ...],
        attrs: dict[str, Any],
        shape: Any,
        dtype: Any,
        code: CodeType | None = None,
        instruction: int = 0,
        scope: str = "",
        forward: int | None = None,
        leaf: Leaf | None = None,
        label: str = "",
        grad: bool = True,
        time: float | None = None,
        source: str | None = None,
    ) -> None:
        self.id = id
        self.kind = kind
        # An Op, Call, Gradient, Draw or Step, or the name of what does not run: a leaf,
        # an AccumulateGrad (which adds), an optimizer that is not a function of values.
        self.op = op
        self.args = args  # refs and constants
        self.attrs = attrs
        self.shape = shape  # a tuple of shapes where there are several results
        self.dtype = dtype
        self.code = code
        self.instruction = instruction
        self.scope = scope
        self.forward = forward  # the forward node that a backward or optimizer node belongs to
        self.leaf = leaf
        self.label = label  # a name of its own, of leaves
        self.grad = grad  # whether recording was on, so that a replay records as well
        self.time = time
        self.source = source  # the line as text, where there is no code object (from a file)
        # Where the callers of the line stood, innermost first: code objects and instructions.
        self.stack: tuple[tuple[CodeType, int], ...] = ()

    def but(self, **changes: Any) -> Spec:
        """The same record with some fields changed."""
        made = self.__copy__()
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    def reading(self, args: tuple[Any, ...]) -> Spec:
        """The same record with other inputs."""
        made = self.__copy__()
        made.args = args
        return made

    def __copy__(self) -> Spec:
        # Line by line: edits of large graphs copy every node.
        made = object.__new__(Spec)
        made.id, made.kind, made.op = self.id, self.kind, self.op
        made.args, made.attrs = self.args, self.attrs
        made.shape, made.dtype = self.shape, self.dtype
        made.code, made.instruction, made.scope = self.code, self.instruction, self.scope
        made.forward, made.leaf, made.label = self.forward, self.leaf, self.label
        made.grad, made.time = self.grad, self.time
        made.source, made.stack = self.source, self.stack
        return made

    @property
    def op_name(self) -> str:
        op = self.op
        return op if op.__class__ is str else op.name

    @property
    def title(self) -> str:
        """The op as people call it: ``linear`` for ``linear_with_bias``."""
        name = self.op_name
        if self.kind != FORWARD:
            return name
        return title_of(name)

    @property
    def several(self) -> bool:
        """Whether there are several results."""
        return self.dtype.__class__ is tuple

    def refs(self) -> list[Ref]:
        """The results of other nodes that this one reads."""
        return [x for x in self.args if x.__class__ is Ref]

    def needs(self) -> Iterator[Ref]:
        """All that must be there before this node can run: what it reads, and for a step of a
        backward pass the node whose backward it is, since shapes are that node's.
        """
        yield from self.refs()
        if "outs" in self.attrs and self.forward is not None:
            yield Ref(self.forward)

    def kind_of(self, index: int) -> tuple[Any, Any]:
        """Shape and NumPy dtype of one result."""
        if self.dtype.__class__ is tuple:
            return self.shape[index], self.dtype[index]
        return self.shape, self.dtype

    def kinds(self) -> tuple[tuple[Any, Any], ...]:
        """Shape and NumPy dtype of every result."""
        if self.dtype.__class__ is tuple:
            return tuple(zip(self.shape, self.dtype, strict=True))
        return ((self.shape, self.dtype),)

    def results(self) -> list[Ref]:
        """Every result of the node."""
        if self.dtype.__class__ is tuple:
            return [pair_ref((self.id, k)) for k in range(len(self.dtype))]
        return [pair_ref((self.id, 0))]

    def nbytes(self) -> int:
        """Bytes of the results; a view has no memory of its own."""
        if getattr(self.op, "view", False):
            return 0
        return sum(
            math.prod(shape) * dtype.itemsize
            for shape, dtype in self.kinds()
            if shape is not None and dtype is not None
        )

    def line(self) -> str:
        """``file.py:12: text of the line``, or nothing."""
        if self.source is not None:
            return self.source
        return "" if self.code is None else errors.describe_position(self.code, self.instruction)

    def position(self) -> str | None:
        """``file.py:12``, or None."""
        if self.source is not None:
            return ":".join(self.source.split(":")[:2]) or None
        found = errors.position(self.code, self.instruction)
        if found is None:
            return None
        line = f":{found[1]}"
        return errors.describe_position(self.code, self.instruction).partition(line)[0] + line


def dtype_name(d: Any) -> str:
    """``float32`` for a NumPy dtype."""
    if d is None:
        return "?"
    found = dt.OF_NUMPY.get(d)
    return str(d) if found is None else found.name


def show_kind(shape: Any, d: Any) -> str:
    """``float32[2, 3]``."""
    return dtype_name(d) + ("[gone]" if shape is None else str(list(shape)))


def show_value(value: Any, longest: int = 60) -> str:
    """A constant or attribute in a few characters."""
    if isinstance(value, (np.ndarray, Tensor)):
        return errors.describe(value)
    if isinstance(value, (Op, Call)):
        return value.name
    if isinstance(value, np.dtype):
        return dtype_name(value)
    if isinstance(value, (tuple, list)):
        inner = ", ".join(show_value(v) for v in value)
        text = f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{k}: {show_value(v)}" for k, v in value.items()) + "}"
    elif isinstance(value, slice):
        parts = ["" if p is None else str(p) for p in (value.start, value.stop, value.step)]
        text = ":".join(parts if parts[2] else parts[:2])
    else:
        text = repr(value)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def is_op_name(name: str) -> bool:
    """Whether an op, or a call that every weft knows, has this name."""
    return name in REGISTRY or name in CALLS


def op_named(name: str) -> Any:
    """A registered op, or one of the calls that every weft knows."""
    found = REGISTRY.get(name) or CALLS.get(name)
    if found is None:
        raise ValueError(f"no op is registered under the name {name!r}")
    return found


class listening:
    """A block with other recorders than those outside; with none, nothing is recorded."""

    def __init__(self, *recorders: Any) -> None:
        self.recorders = recorders

    def __enter__(self) -> None:
        now = MODES.now
        self.outer, now.recorders = now.recorders, self.recorders
        now.update()

    def __exit__(self, *exc: object) -> None:
        MODES.now.recorders = self.outer
        MODES.now.update()
