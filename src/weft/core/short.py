"""The fast path through dispatch for plain float tensors: less Python, same semantics."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors, overrides, quiet, selection
from weft.core.dispatch import NO_ATTRS, ONE, Op, apply, new_node
from weft.core.gate import LISTENERS, announce
from weft.core.inference import changeable, fresh_cell
from weft.core.inplace import apply_inplace, bump
from weft.core.modes import INFERRING, MODES, PLAIN, SPECIAL
from weft.core.node import NOWHERE
from weft.core.plan import FIRST, NOTHING, RESULT, SECOND, SECOND_NUMBER
from weft.core.tensor import Parameter, Tensor, wrap
from weft.native.codegen.trace import Loop

ndarray, asarray, new = np.ndarray, np.asanyarray, object.__new__
F32, F64, I64 = dt.F32, dt.F64, dt.I64
getframe, ref = sys._getframe, weakref.ref


# Patterns of inputs, as ``Op.plan_for`` takes them: a pair, its left or right tensor alone needing
# a gradient, a tensor with a number, and a single input.
BOTH, LEFT, RIGHT, NUMBER, SINGLE = range(5)
PATTERNS = ((3, 3, 2, False), (1, 3, 2, False), (2, 3, 2, False), (1, 1, 2, False), ONE)
NOTHING_KEPT = (), None


def _kept(plan: Any, x: Any, y: Any, z: Any, input: Any, other: Any, cell: Any) -> tuple[Any, Any]:
    """What a plan saves of a call on arrays, and its guard."""
    quick = plan.quick
    if quick is SECOND:
        version = other._vc
        return (y,), (version[0], version)
    if quick is FIRST:
        version = input._vc
        return (x,), (version[0], version)
    if quick is RESULT:
        return (z,), (0, cell)
    if quick is SECOND_NUMBER:
        return (y,), None
    second = other._vc if isinstance(other, Tensor) else None
    return plan.pack_short(x, y, z, input._vc, second, cell)


def _wrapped(
    op: Op, plans: list[Any], x: Any, y: Any, z: Any, now: Any, input: Tensor, other: Any
) -> Any:
    """The result ``z`` of a short call as a tensor, with its node; None if a view is out of date.

    This is what ``Op.made`` does, where there is no compiled code yet. ``other`` is another plain
    tensor, with the array ``y``, or a number, or None for an op of one input.
    """
    t = new(Tensor)
    t._a = z
    t._vc = cell = [0]
    t._grad = t._base = t._view = t._x = t._node = None
    if now.mode is not PLAIN or not op.differentiable:
        if INFERRING:
            t._vc = fresh_cell()
        return t
    left = input._node
    if input._base is not None and (left is NOWHERE or input._stamp != input._vc[0]):
        return None
    edges: tuple[Any, ...]
    if other is y:
        if left is None:
            return t
        pattern, edges = (SINGLE, (left,)) if other is None else (NUMBER, (left, other))
    else:
        right = other._node
        if other._base is not None and (right is NOWHERE or other._stamp != other._vc[0]):
            return None
        if left is not None:
            if right is not None:
                pattern, edges = BOTH, (left, right)
            else:
                pattern, edges = LEFT, (left, ref(other) if y.ndim else other)
        elif right is not None:
            pattern, edges = RIGHT, (ref(input) if x.ndim else input, right)
        else:
            return t
    plan = plans[pattern]
    if plan is None:
        plan = plans[pattern] = op.plan_for(*PATTERNS[pattern])
    nothing = plan.quick is NOTHING
    kept = NOTHING_KEPT if nothing else _kept(plan, x, y, z, input, other, cell)
    t._node = new_node(plan, edges, kept, NO_ATTRS, z, now, getframe(2))
    return t


def fast_unary(op: Op) -> Callable:
    """``op(x)`` for the common case: a plain tensor of float32 or float64."""
    reference, layout = op.reference, op.layout
    plans: list[Any] = [None] * len(PATTERNS)

    def unary(input: Any, *, out: Any = None) -> Any:
        if out is not None:
            return PUT_INTO[0](out, unary, (input,), op.name)
        call = op.call
        if call is not None:
            t = call(NO_ATTRS, 1, input)
            if t is not None:
                return t
        now = MODES.now
        kind = input.__class__
        if (kind is Tensor or kind is Parameter) and now.mode is not SPECIAL:
            x = input._a
            d = x.dtype
            if d is F32 or d is F64:
                entry = op.entry
                y = None if entry is None else entry(x)
                if y is None:
                    try:
                        y = reference(x) if x.size < op.limit else op.run(x)
                    except Exception:
                        return apply(op, (input,), NO_ATTRS)
                    if y.__class__ is not ndarray:
                        y = asarray(y)
                    elif layout is not None and not x.flags.c_contiguous:
                        y = layout(y, (x,))
                made = op.made
                t = None if made is None else made(y, NO_ATTRS, now, 1, input)
                if t is None:
                    t = _wrapped(op, plans, x, None, y, now, input, None)
                return apply(op, (input,), NO_ATTRS) if t is None else t
        if not isinstance(input, Tensor):
            return unary(input) if overrides.met(input) else not_a_tensor(op, input)
        return apply(op, (input,), NO_ATTRS)

    unary.__name__ = unary.__qualname__ = op.name
    unary.__doc__ = op.doc or None
    return unary


# Operands that may be combined with a tensor by an operator; other objects get their turn by
# Python's rules.
OPERANDS = (Tensor, int, float, complex, np.generic, ndarray)


# The functions of which PyTorch takes a number as the first of two operands.
NUMBER_FIRST = frozenset(
    (
        *("add", "sub", "mul", "div", "pow", "bitwise_and", "bitwise_or", "bitwise_xor"),
        *("bitwise_left_shift", "bitwise_right_shift"),
    )
)


def fast_binary(op: Op, operator: bool = False) -> Callable:
    """``op(a, b)`` for the common case: plain tensors of one type, or a tensor and a number."""
    plans: list[Any] = [None] * len(PATTERNS)
    integers = op.promote != "float" and "i" not in op.refuses
    numbers = (int, float) if op.numbers else ()

    def binary(input: Any, other: Any, *, out: Any = None) -> Any:
        if out is not None:
            return PUT_INTO[0](out, binary, (input, other), op.name)
        call = op.call
        if call is not None:
            t = call(NO_ATTRS, 1, input, other)
            if t is not None:
                return t
        now = MODES.now
        kind = input.__class__
        if (kind is Tensor or kind is Parameter) and now.mode is not SPECIAL:
            x = input._a
            d = x.dtype
            kind = other.__class__
            if kind is Tensor or kind is Parameter:
                y = other._a
                usual = y.dtype is d and (d is F32 or d is F64 or (integers and d is I64))
            elif kind in numbers:
                y = other
                usual = d is F32 or d is F64
            else:
                usual = False
            if usual:
                z = _computed(op, x, y)
                if z is not None:
                    made = op.made
                    t = None if made is None else made(z, NO_ATTRS, now, 1, input, other)
                    if t is None:
                        t = _wrapped(op, plans, x, y, z, now, input, other)
                    if t is not None:
                        return t
                return apply(op, (input, other), NO_ATTRS)
        if operator and not isinstance(other, OPERANDS):
            if overrides.met(other):
                named = getattr(Tensor, op.name)
                return overrides.hand_over_operator(named, binary, (input, other), NO_ATTRS)
            return NotImplemented
        try:
            return _apply_pair(op, input, other, numbers)
        except (AttributeError, TypeError):
            if not overrides.met(input, other):
                raise
        return binary(input, other)

    binary.__name__ = binary.__qualname__ = op.name
    binary.__doc__ = op.doc or None
    return binary


def _computed(op: Op, x: Any, y: Any) -> Any:
    """The result of an op for an array with another or with a number; None if it fails."""
    tensor = isinstance(y, ndarray)
    entry = op.entry if tensor else op.entry_with_number
    z = None if entry is None else entry(x, y)
    if z is None and tensor and op.entry_with_row is not None and y.ndim == 1:
        z = op.entry_with_row(x, y)
    if z is not None:
        return z
    try:
        small = x.size < op.limit and (not tensor or y.size < op.limit)
        z = op.reference(x, y) if small else op.run(x, y)
    except Exception:
        return None
    if z.__class__ is not ndarray:
        return asarray(z)
    if op.layout is None or (x.flags.c_contiguous and (not tensor or y.flags.c_contiguous)):
        return z
    return op.layout(z, (x, y))


def _apply_pair(op: Op, input: Any, other: Any, numbers: tuple[type, ...]) -> Any:
    """The general case, of what may not be a tensor; ``numbers`` may stand for the second."""
    if not isinstance(input, Tensor) and op.name not in NUMBER_FIRST:
        return not_a_tensor(op, input)
    if not isinstance(other, Tensor) and not (numbers and isinstance(input, Tensor)):
        if op.name in OF_NUMBERS and isinstance(input, NUMBERS):
            if isinstance(other, NUMBERS):
                return apply(op, (as_scalar(input), as_scalar(other)), NO_ATTRS)
        return not_a_tensor(op, input) if numbers else not_a_tensor(op, other, "other")
    return apply(op, (input, other), NO_ATTRS)


# Functions that PyTorch lets be called with two numbers, and what counts as one.
OF_NUMBERS = frozenset(("add", "sub", "mul", "div"))
NUMBERS = (bool, int, float, complex)


def as_scalar(value: Any) -> Tensor:
    """A number as a tensor of no dimension, of the dtype it has by itself."""
    return wrap(asarray(value, dt.scalar_dtype(value)))


def fast_over(op: Op) -> Callable:
    """``op(a, b)`` written over ``a``, for a non-differentiable op."""
    reference, name = op.reference, op.name
    numbers = tuple(inspect.signature(reference).parameters)[2:]
    loop = Loop(f"{name}_over", lambda x, y, *given: reference(x, y, *given))

    def over(target: Tensor, other: Tensor, **attrs: Any) -> Tensor:
        if MODES.now.mode is SPECIAL:
            return apply_inplace(op, (target, other, *attrs.values()), {})
        x, y = target._a, other._a
        if (
            target._node is None
            and target._base is None
            and target._vc is not other._vc
            and x.dtype is F32
            and y.dtype is F32
            and x.shape == y.shape
            and x.flags.c_contiguous
            and x.flags.writeable
            and changeable(target)
        ):
            if LISTENERS:
                announce(x, target)
            if selection._begun and selection.ready():
                if loop.into(x, y, *[attrs[number] for number in numbers]):
                    bump(target, name)
                    return target
            token = quiet.SET(quiet.SILENT)
            try:
                x[...] = reference(x, y, **attrs)
            finally:
                quiet.RESET(token)
            bump(target, name)
            return target
        return apply_inplace(op, (target, other, *attrs.values()), {})

    return over


# The function that handles ``out=``; set by the layer above.
PUT_INTO: list[Callable] = []


def not_a_tensor(op: Op, value: Any, argument: str = "input") -> Any:
    """Raise the TypeError for an argument that is not a tensor."""
    raise TypeError(
        f"{op.name}(): argument '{argument}' must be Tensor, not {type(value).__name__}. "
        f"Make one with torch.tensor(...)\n  at {errors.here()}"
    )
