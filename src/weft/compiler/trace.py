"""The recorded traces of a region: a tree of calls in their order.

A ``Token`` is one call of an op with its arguments: the results of earlier calls, leaves (tensors
from outside), numbers and constants. A ``Point`` is a place between calls, with the tokens that
were seen to follow. Following a trace means comparing each call with the tokens at the current
point; nothing is computed meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from weft.core.dispatch import Op
from weft.core.gate import EXPORTS, is_exported, reclaims, remembered
from weft.core.node import NOWHERE
from weft.core.pending import Outline
from weft.core.tensor import Parameter, Tensor
from weft.operators.casting import memory_format

ndarray = np.ndarray

# Kinds of tokens.
CALL, INPLACE, ASSIGN, DETACH, BACKWARD, STEP = range(6)
# Kinds of slots: what an argument is.
RESULT, LEAF, NUMBER, CONSTANT = range(4)

NUMBERS = (float, int)  # classes of operands that may vary from call to call
EXACT = frozenset((bool, int, str, type(None)))  # equal and of one class: the same
PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None), type, np.dtype, slice),
    memory_format,
)


class Kind:
    """The kind of a value: everything that a pending tensor knows before it has values."""

    __slots__ = ("dtype", "outline", "requires", "shape", "strides")

    def __init__(self, array: ndarray, requires: bool) -> None:
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.outline = Outline(array)
        self.requires = requires

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and self.key() == other.key()

    def key(self) -> tuple[Any, ...]:
        """All of it as one comparable value."""
        return self.shape, self.strides, self.dtype, self.requires

    __hash__ = None  # type: ignore[assignment]


class Root(NamedTuple):
    """Whose memory a value is in: a result's (``RESULT``) or a leaf's."""

    where: int
    number: int


def _nothing() -> Any:
    return NotImplemented  # which is not a tensor's array


class LeafSlot:
    """A tensor that no recorded call returned, in its role: the k-th that the calls along a path
    met.

    One in memory that NumPy can reach is met again by each call, since it may have changed.
    """

    __slots__ = (
        *("cls", "kind", "last", "lies", "node", "number", "outside", "owner", "plain", "seen"),
    )

    def __init__(self, number: int, tensor: Tensor) -> None:
        self.number = number
        self.kind = Kind(tensor._a, tensor._node is not None)
        self.outside = is_exported(tensor._a)
        # Parameters and states have the same array in every step, so one comparison decides most
        # cases; ``seen`` is when their memory was last known not to be exported.
        self.last: Any = _nothing
        self.owner: Any = None  # shows that a trace remembers the memory
        if tensor._base is None and not self.outside:
            self.last, self.owner = remembered(tensor)
        self.seen = EXPORTS[0]
        self.cls, self.node = tensor.__class__, tensor._node
        self.plain = tensor._base is None
        # The layout of its array, as compiled code compares it: dtype, rank, shape and strides.
        kind = self.kind
        lies = id(kind.dtype), len(kind.shape), *kind.shape, *kind.strides
        self.lies = struct.pack(f"{len(lies)}q", *lies)

    def fits(self, x: Any) -> bool:
        """Whether a tensor can play this role."""
        if (x.__class__ is not Tensor and x.__class__ is not Parameter) or not known_leaf(x):
            return False
        # Memory that is no longer exported may be copied nevertheless.
        if not self.outside and is_exported(x._a) and not reclaims(x):
            return False
        array, kind = x._a, self.kind
        if (
            array.dtype is not kind.dtype
            or array.shape != kind.shape
            or array.strides != kind.strides
            or (x._node is not None) is not kind.requires
            or (x._base is None) is not self.plain
        ):
            return False
        if self.plain and not self.outside and x.__class__ is self.cls and x._node is self.node:
            self.seen = EXPORTS[0]
            if array is not self.last():
                self.last, self.owner = remembered(x)
        return True


def known_leaf(x: Tensor) -> bool:
    """Whether a tensor from outside can be a leaf of a trace."""
    if x._a.__class__ is not ndarray or x._node is NOWHERE:
        return False
    if x._x is not None and "tangents" in x._x:
        return False
    return x._base is None or x._stamp == x._vc[0]


class Token:
    """One call."""

    __slots__ = (
        *("after", "attrs", "code", "count", "first", "grad", "instruction", "kind", "kinds"),
        *("derived", "follow", "held", "home", "leaves", "match", "name", "op", "quick", "roots"),
        *("ruled", "scope", "slots", "step", "targets"),
    )

    def __init__(
        self,
        kind: int,
        op: Any,
        slots: tuple[tuple[int, Any], ...],
        attrs: dict[str, Any],
        grad: bool,
        kinds: tuple[Kind, ...],
        roots: tuple[Root, ...],
        first: int,
    ) -> None:
        self.kind, self.op, self.slots, self.attrs = kind, op, slots, attrs
        self.name: str = op if isinstance(op, str) else getattr(op, "name", type(op).__name__)
        self.count = len(slots)
        self.grad = grad  # whether recording was on
        self.kinds, self.roots = kinds, roots  # of the results
        self.first = first  # the number of the first result
        self.leaves: tuple[LeafSlot, ...] = ()  # leaves met here for the first time
        self.targets: tuple[LeafSlot, ...] = ()  # of a backward pass: the leaves that it reaches
        # For each of these, the position among the slots of its existing gradient, or zero.
        self.held: tuple[int, ...] = ()
        self.step: Any = None  # of an optimizer: see ``stepping``
        # Functions that compare a call's arguments with the slots, and that return its pending
        # results: see ``matching``.
        self.match: Any = None
        self.follow: Any = None
        self.quick: Any = None  # compiled code that does so in common cases
        self.code: CodeType | None = None
        self.instruction = 0
        self.scope = ""
        self.home: Any = None  # the point that it follows
        # Whether its op's shape rule predicts its results, and whether it was never run eagerly:
        # see ``resizing``.
        self.ruled = self.derived = False
        self.after = Point()


class Point:
    """A place in the tree."""

    __slots__ = (
        *("changes", "hopeless", "like", "next", "opaque", "plans", "resume", "tried"),
        *("watched", "whole"),
    )

    def __init__(self) -> None:
        self.next: list[Token] = []
        self.opaque: set[Any] = (
            set()
        )  # ops that were called here with arguments that no token can represent
        self.plans: dict[int, Any] = {}  # by the set of results that are still held
        self.resume: Point | None = None  # where calls continue after everything was computed here
        # The results whose references decide what is computed here; also as compiled code reads
        # them, and that code.
        self.watched: tuple[list[int], bytes, Any] | None = None
        # Calls of functions that begin here and are confirmed as a whole, and the code of those
        # that are not: see ``whole_calls``.
        self.whole: list[tuple[Any, ...]] = []
        self.tried: list[CodeType] = []
        self.changes = 0  # of modules, for which calls were learned again
        self.hopeless = 0  # calls of modules that can't be confirmed
        self.like: tuple[Point, ...] = ()  # the same place in paths at other sizes

    @property
    def resumes(self) -> bool:
        """Whether values were computed here, at any size."""
        return self.resume is not None or any(point.resume is not None for point in self.like)

    def runs_at_once(self, op: Any) -> bool:
        """Whether an op was called here, at any size, on what no token can represent."""
        return op in self.opaque or any(op in point.opaque for point in self.like)

    def resumed(self) -> Point:
        """The point from which calls continue once everything up to here has been computed."""
        if self.resume is None:
            self.resume = Point()
            found = (point.resume for point in self.like)
            self.resume.like = tuple(point for point in found if point is not None)
        return self.resume


def walk(root: Point) -> Iterator[Point]:
    """All points after one, without recursion."""
    stack = [root]
    while stack:
        point = stack.pop()
        yield point
        stack.extend(token.after for token in point.next)
        if point.resume is not None:
            stack.append(point.resume)


def plain_attributes(attrs: Any) -> bool:
    """Whether attributes can be compared: numbers, names, tables, and containers of these."""
    if isinstance(attrs, dict):
        return all(map(plain_attributes, attrs.values()))
    if isinstance(attrs, (tuple, list)):
        return all(map(plain_attributes, attrs))
    if isinstance(attrs, np.ndarray):
        return is_table(attrs)
    return isinstance(attrs, (*PLAIN, Op)) or attrs is Ellipsis


def is_table(array: np.ndarray) -> bool:
    """Whether an array is a lookup table that functions keep for their calls and that never
    changes.
    """
    return not array.flags.writeable and array.base is None and array.size > 1


def same_attributes(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """The same for attributes, which are equal most of the time."""
    if not a and not b:
        return True
    try:
        if a != b:
            return False
    except ValueError:  # of tables that are not the same object
        return False
    for x, y in zip(a.values(), b.values(), strict=True):
        kind = x.__class__
        if kind is not y.__class__ or (kind not in EXACT and not same(x, y)):
            return False
    return True


def same(a: Any, b: Any) -> bool:
    """Equality that tells 1 from True and 1.0, and -0.0 from 0.0."""
    if a is b:
        return True
    if a.__class__ is not b.__class__:
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, slice):
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if isinstance(a, float):
        return a.hex() == b.hex()
    return not isinstance(a, np.ndarray) and bool(a == b)
