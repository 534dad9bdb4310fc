"""The short path through dispatch, for plain float tensors: little Python, same meaning."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors, overrides, quiet, selection
from weft.core.dispatch import NO_ATTRS, ONE, Op, apply
from weft.core.frames import caller, last_caller
from weft.core.gate import LISTENERS, announce
from weft.core.inference import changeable, fresh_cell
from weft.core.inplace import apply_inplace, bump
from weft.core.modes import INFERRING, MODES, PLAIN, SPECIAL
from weft.core.node import NOWHERE, Node, next_sequence
from weft.core.plan import FIRST, NOTHING, RESULT, SECOND, SECOND_NUMBER
from weft.core.tensor import Parameter, Tensor, wrap
from weft.native.codegen.trace import Loop

ndarray, asarray, new = np.ndarray, np.asanyarray, object.__new__
F32, F64, I64 = dt.F32, dt.F64, dt.I64
getframe, ref = sys._getframe, weakref.ref


# Patterns of two inputs, as ``Op.plan_for`` takes them.
BOTH, LEFT, RIGHT, NUMBER = range(4)


PAIRS = ((3, 3, 2, False), (1, 3, 2, False), (2, 3, 2, False), (1, 1, 2, False))


def fast_unary(op: Op) -> Callable:
    """``op(x)`` for the common case: a plain tensor of float32 or float64."""
    reference, differentiable, layout = op.reference, op.differentiable, op.layout
    plans: list[Any] = [None]

    def unary(input: Any, *, out: Any = None) -> Any:
        if out is not None:
            return PUT_INTO[0](out, unary, (input,), op.name)
        call = op.call
        if call is not None:
            t = call(NO_ATTRS, 1, input)
            if t is not None:
                return t
        now = MODES.now
        mode = now.mode
        kind = input.__class__
        if (kind is Tensor or kind is Parameter) and mode is not SPECIAL:
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
                if made is not None:
                    t = made(y, NO_ATTRS, now, 1, input)
                    if t is not None:
                        return t
                t = new(Tensor)
                t._a = y
                t._vc = cell = [0]
                t._grad = t._base = t._view = t._x = t._node = None
                if mode is PLAIN and differentiable:
                    edge = input._node
                    if input._base is not None and (
                        edge is NOWHERE or input._stamp != input._vc[0]
                    ):
                        return apply(op, (input,), NO_ATTRS)
                    if edge is not None:
                        plan = plans[0]
                        if plan is None:
                            plan = plans[0] = op.plan_for(*ONE)
                        saved: tuple[Any, ...]
                        quick = plan.quick
                        if quick is RESULT:
                            saved, guard = (y,), (0, cell)
                        elif quick is FIRST:
                            version = input._vc
                            saved, guard = (x,), (version[0], version)
                        elif quick is NOTHING:
                            saved, guard = (), None
                        else:
                            saved, guard = plan.pack_short(x, None, y, input._vc, None, cell)
                        frame = getframe(1)
                        if frame.f_code is not last_caller[0]:
                            frame = caller(frame)
                        n = new(Node)
                        n.plan = plan
                        n.inputs = (edge,)
                        n.saved = saved
                        n.guard = guard
                        n.attrs = NO_ATTRS
                        n.shape = y.shape
                        n.dtype = y.dtype
                        n.seq = next_sequence()
                        n.code = frame.f_code
                        n.instruction = frame.f_lasti
                        n.scope = now.scope
                        n.extras = None
                        t._node = n
                elif INFERRING:
                    t._vc = fresh_cell()
                return t
        if not isinstance(input, Tensor):
            return unary(input) if overrides.met(input) else not_a_tensor(op, input)
        return apply(op, (input,), NO_ATTRS)

    unary.__name__ = unary.__qualname__ = op.name
    unary.__doc__ = op.doc or None
    return unary


# What may stand beside a tensor in an operator; other objects get their turn by Python's rules.
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
    reference, differentiable, layout = op.reference, op.differentiable, op.layout
    plans: list[Any] = [None] * len(PAIRS)
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
        mode = now.mode
        kind = input.__class__
        if (kind is Tensor or kind is Parameter) and mode is not SPECIAL:
            x = input._a
            d = x.dtype
            kind = other.__class__
            if kind is Tensor or kind is Parameter:
                y = other._a
                usual = y.dtype is d and (d is F32 or d is F64 or (integers and d is I64))
                tensor = True
            elif kind in numbers:
                y = other
                usual = d is F32 or d is F64
                tensor = False
            else:
                usual = False
            if usual:
                entry = op.entry if tensor else op.entry_with_number
                z = None if entry is None else entry(x, y)
                if z is None and tensor and op.entry_with_row is not None and y.ndim == 1:
                    z = op.entry_with_row(x, y)
                if z is None:
                    try:
                        small = x.size < op.limit and (not tensor or y.size < op.limit)
                        z = reference(x, y) if small else op.run(x, y)
                    except Exception:
                        return apply(op, (input, other), NO_ATTRS)
                    if z.__class__ is not ndarray:
                        z = asarray(z)
                    elif layout is not None and not (
                        x.flags.c_contiguous and (not tensor or y.flags.c_contiguous)
                    ):
                        z = layout(z, (x, y))
                made = op.made
                if made is not None:
                    t = made(z, NO_ATTRS, now, 1, input, other)
                    if t is not None:
                        return t
                t = new(Tensor)
                t._a = z
                t._vc = cell = [0]
                t._grad = t._base = t._view = t._x = t._node = None
                if mode is PLAIN and differentiable:
                    left = input._node
                    if input._base is not None and (
                        left is NOWHERE or input._stamp != input._vc[0]
                    ):
                        return apply(op, (input, other), NO_ATTRS)
                    if tensor:
                        right = other._node
                        if other._base is not None and (
                            right is NOWHERE or other._stamp != other._vc[0]
                        ):
                            return apply(op, (input, other), NO_ATTRS)
                        if left is not None:
                            if right is not None:
                                pattern, edges = BOTH, (left, right)
                            else:
                                pattern, edges = LEFT, (left, ref(other) if y.ndim else other)
                        elif right is not None:
                            pattern, edges = RIGHT, (ref(input) if x.ndim else input, right)
                        else:
                            return t
                    elif left is None:
                        return t
                    else:
                        pattern, edges = NUMBER, (left, other)
                    plan = plans[pattern]
                    if plan is None:
                        plan = plans[pattern] = op.plan_for(*PAIRS[pattern])
                    saved: tuple[Any, ...]
                    quick = plan.quick
                    if quick is NOTHING:
                        saved, guard = (), None
                    elif quick is SECOND:
                        version = other._vc
                        saved, guard = (y,), (version[0], version)
                    elif quick is FIRST:
                        version = input._vc
                        saved, guard = (x,), (version[0], version)
                    elif quick is SECOND_NUMBER:
                        saved, guard = (y,), None
                    else:
                        saved, guard = plan.pack_short(
                            x, y, z, input._vc, other._vc if tensor else None, cell
                        )
                    frame = getframe(1)
                    if frame.f_code is not last_caller[0]:
                        frame = caller(frame)
                    n = new(Node)
                    n.plan = plan
                    n.inputs = edges
                    n.saved = saved
                    n.guard = guard
                    n.attrs = NO_ATTRS
                    n.shape = z.shape
                    n.dtype = d
                    n.seq = next_sequence()
                    n.code = frame.f_code
                    n.instruction = frame.f_lasti
                    n.scope = now.scope
                    n.extras = None
                    t._node = n
                elif INFERRING:
                    t._vc = fresh_cell()
                return t
        if operator and not isinstance(other, OPERANDS):
            if overrides.met(other):
                named = getattr(Tensor, op.name)
                return overrides.hand_over_operator(named, binary, (input, other), NO_ATTRS)
            return NotImplemented
        try:
            if not isinstance(input, Tensor) and op.name not in NUMBER_FIRST:
                return not_a_tensor(op, input)
            if not isinstance(other, Tensor) and not (numbers and isinstance(input, Tensor)):
                if op.name in OF_NUMBERS and isinstance(input, NUMBERS):
                    if isinstance(other, NUMBERS):
                        return apply(op, (as_scalar(input), as_scalar(other)), NO_ATTRS)
                return not_a_tensor(op, input) if numbers else not_a_tensor(op, other, "other")
            return apply(op, (input, other), NO_ATTRS)
        except (AttributeError, TypeError):
            if not overrides.met(input, other):
                raise
        return binary(input, other)

    binary.__name__ = binary.__qualname__ = op.name
    binary.__doc__ = op.doc or None
    return binary


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
            return apply_inplace(op, (target, other), attrs)
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
        return apply_inplace(op, (target, other), attrs)

    return over


# The function that handles ``out=``; the layer above puts it here.
PUT_INTO: list[Callable] = []


def not_a_tensor(op: Op, value: Any, argument: str = "input") -> Any:
    """Refuse, by name, what is no tensor where a function wants one."""
    raise TypeError(
        f"{op.name}(): argument '{argument}' must be Tensor, not {type(value).__name__}. "
        f"Make one with torch.tensor(...)\n  at {errors.here()}"
    )
