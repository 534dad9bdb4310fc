"""Kernel selection: a native kernel where one accepts the operands, else the NumPy reference.

**The rule**: which implementation computes an op depends on the op, its attributes, the dtypes,
layouts and shapes of its operands, and fixed settings (threads, processor, libraries), never on
what ran before. ``tests/histories.py`` tests this with programs in different orders.

An op has a ``limit``, the size of an array from which native code pays; below it the NumPy
reference runs. Elementwise ops need no kernel of their own: their reference and their derivative
rules are traced (``weft.native.codegen.trace``). Kernels for others are registered with ``offer``.

Where native code is bit-exact with the reference, it may take over at any time, and the choice
affects only speed. **Lazy loading** is the only thing that depends on what ran before, and one
function decides it: ``pays`` counts the uses of small ops and says when compiling for them is worth
it. It gates kernels for small arrays (``op.exact`` is the size below which an op's kernel is
bit-exact with NumPy: all, none, or a bound), compiled calls (``core/making.py``), and entry points
(``LazyEntry``): built-in functions for small arrays that check, allocate and compute in one call,
in less time than NumPy's call overhead.

An op whose kernel for large arrays is not bit-exact can have a second, bit-exact one for small
arrays: see ``offer_small``.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from weft.native import once
from weft.native.codegen.compiler import NotPythonError
from weft.native.memory import buffers

if TYPE_CHECKING:
    from weft.core.dispatch import Op

ndarray = np.ndarray
# Dtypes for which small calls are native. (A set compares types by identity: to NumPy float64
# equals float.)
ENTRY_TYPES = {np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.bool_), float, int}
HALVES = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
NEVER = 1 << 62
LEAST = 2  # elements for which a kernel for small arrays pays
BEGIN = 1 << 13  # elements for which native code is loaded at all, which takes a moment
PATIENCE = 20_000  # uses of small ops, after which it is loaded in any case
OFTEN = 200  # the same where it is loaded already, so that only compiling is to be paid for
TRIES = 50  # uses of an entry point in a row, on one pattern of types, for which it is compiled
MANY = 64  # loops that an op keeps, for different attributes
OVER = 1024  # elements from which an in-place loop beats NumPy, once it is compiled
LARGE = 1 << 15  # elements from which a compiled loop beats NumPy on simple arithmetic


class _Here(threading.local):
    """Whether this thread has met native code before."""

    started = False


_here = _Here()
_begun: list[bool] = []
_uses = [0]
_enabled = [os.environ.get("WEFT_KERNELS", "native") != "numpy"]


def enabled() -> bool:
    """Whether native kernels are used."""
    return _enabled[0]


def enable(on: bool) -> None:
    """Use native kernels or, for comparison, NumPy alone."""
    _enabled[0] = on
    open_entries()


def start() -> bool:
    """Prepare this thread for native code; False where it is not available."""
    with once.LOCK:
        from weft.native.codegen import jit

        if jit.why_not() is not None:
            enable(False)
            return False
        from weft.native.memory.pool import pool

        if not _begun:
            from weft.native import onednn, threads

            if onednn.available():
                threads.quiet_blas()
        memory = pool()
        if memory is not None:
            memory.enter()
        if not _begun:
            _begun.append(True)
        _here.started = True
    return True


def ready() -> bool:
    """Whether native code is enabled and loaded."""
    return _enabled[0] and (_here.started or start())


def pays(uses: int = 1) -> bool:
    """Count uses of small ops; whether native code that gives the reference's bits pays by now."""
    _uses[0] += uses
    return _uses[0] >= (OFTEN if _begun else PATIENCE) and ready()


def wanted(op: Op, args: Any) -> bool:
    """Whether to use an op's kernel for these arrays: because of their size, or because it pays by
    now.
    """
    return (large(args, min(op.exact, BEGIN)) and ready()) or pays()


class LazyEntry:
    """Placeholder for the entry point of an op or a rule until it is worth compiling, or is given
    up.

    An entry point is for one pattern of float arrays, masks and numbers. It gives the reference's
    bits, so it may take over at any time; compiling it pays after many uses of one pattern.
    """

    __slots__ = ("find", "holder", "misses", "name", "pattern", "types", "uses")

    def __init__(
        self, holder: Any, name: str, find: Callable[[Any], Any], types: Any = ENTRY_TYPES
    ) -> None:
        self.holder, self.name, self.find, self.types = holder, name, find, types
        self.uses = self.misses = 0
        self.pattern: list[Any] = []

    def __call__(self, *args: Any) -> None:
        pattern = [a.dtype if a.__class__ is ndarray else a.__class__ for a in args]
        if pattern != self.pattern or not self.types.issuperset(pattern):
            self.pattern, self.uses = pattern, 0
            self.misses += 1
            if self.misses >= TRIES:
                setattr(self.holder, self.name, None)
            return
        self.uses += 1
        if self.uses >= TRIES:  # other threads count too
            self.uses = 0
            if pays(TRIES):
                setattr(self.holder, self.name, self.find(args))


def open_op(op: Op) -> None:
    """Enable or disable native code for small arrays of an elementwise op."""
    op.entry = op.entry_with_number = op.entry_with_row = None
    op.entry_float16 = op.entry_bfloat16 = None
    if op.special:
        return  # which loop it is follows from a number
    if op.traced and _enabled[0]:
        loop = lambda: loop_for(op, "", op.reference, NOTHING)
        op.entry, op.entry_with_number = (
            LazyEntry(op, name, lambda args: loop().entry(args))
            for name in ("entry", "entry_with_number")
        )
        op.entry_with_row = LazyEntry(op, "entry_with_row", lambda args: loop().row_entry(args))
    if op.halves and _enabled[0]:
        op.entry_float16, op.entry_bfloat16 = (
            LazyEntry(op, f"entry_{d.name}", lambda args: loop().entry(args), {d}) for d in HALVES
        )


def open_entries() -> None:
    """The same for all ops and their rules."""
    from weft.core.dispatch import REGISTRY

    for op in REGISTRY.values():
        open_op(op)
        for plan in op.plans.values():
            plan.open_entry()


def load(path: str) -> Callable:
    """``module:function`` below ``weft.native``."""
    home, name = path.split(":")
    return getattr(once.module(f"weft.native.{home}"), name)


def resolve(path: str) -> Callable:
    """The same, imported when first called."""
    found: list[Callable] = []

    def call(*args: Any, **attrs: Any) -> Any:
        if not found:
            found.append(load(path))
        try:
            return found[0](*args, **attrs)
        except NotPythonError:
            return None

    return call


def offer(op: Op, exact: bool, limit: int, forward: str = "", *backward: str) -> None:
    """Register native kernels of an op by name: ``module:function``; ``exact`` if they are
    bit-exact.

    A forward kernel takes the arguments of the reference; backward kernels, one for each derivative
    rule or one for the joint rule, have the parameters of the rule. All return None for unsupported
    inputs.
    """
    op.limit, op.exact = limit, NEVER if exact else 0
    if forward:
        op.native = forward
    op.native_rules = {i: resolve(path) for i, path in enumerate(backward) if path}
    op.plans.clear()
    op.plan_of_one = None


def offer_small(op: Op, forward: str = "", *backward: str) -> None:
    """Register kernels of an op for arrays below its limit, too; these are bit-exact with NumPy.

    They have the parameters of the kernels for large arrays, which were registered before.
    """
    bound = op.limit
    op.limit, op.exact = LEAST, bound
    if forward:
        op.native = by_size(bound, forward, op.native)
    op.native_rules |= {
        i: by_size(bound, path, op.native_rules[i]) for i, path in enumerate(backward) if path
    }


def by_size(bound: int, small: str, large_one: Any) -> Callable:
    """One of two kernels: the second if an array has so many elements."""
    many = resolve(large_one) if large_one.__class__ is str else large_one
    found: list[Callable] = []

    def call(*args: Any, **attrs: Any) -> Any:
        g = attrs.get("g")
        arrays = (*args, *(g if g.__class__ is tuple else ()), *attrs.values())
        # Kernels for small arrays are single Python calls, which plans can't contain.
        if buffers.any_size() or large(arrays, bound):
            return many(*args, **attrs)
        if not found:
            found.append(load(small))
        try:
            return found[0](*args, **attrs)
        except NotPythonError:
            return None

    return call


def large(args: Any, limit: int) -> bool:
    """Whether an array among the arguments is worth native code."""
    for a in args:  # noqa: SIM110 - part of every small op, where any() is slower
        if a.__class__ is ndarray and a.size >= limit:
            return True
    return False


def forward(op: Op, args: Any, attrs: dict[str, Any]) -> Any:
    """The op's results by native code, or None."""
    if not (_here.started and _enabled[0]) and not wanted(op, args):
        return None
    native = op.native
    if native is not None:
        if native.__class__ is str:
            native = op.native = load(native)
        try:
            out = native(*args, **attrs)
        except NotPythonError:
            out = None
        if out is not None:
            return out
    return loop_for(op, "", op.reference, attrs)(*args) if op.traced else None


def into(op: Op, x: ndarray, *args: Any) -> bool:
    """Write the result of an elementwise op over its first array; False if native code can't.

    Other arrays are that very array or don't share its memory.
    """
    return _over_pays(x) and loop_for(op, "", op.reference, NOTHING).into(x, *args)


def into_small(op: Op, x: ndarray, *args: Any) -> bool:
    """The same at any size, for ops whose reference takes NumPy several calls."""
    worth = (x.size >= BEGIN and ready()) or (x.size > 0 and pays())
    return worth and loop_for(op, "", op.reference, NOTHING).into(x, *args)


def _over_pays(x: ndarray) -> bool:
    return x.size >= (OVER if _begun else BEGIN) and ready()


def over(op: Op, x: ndarray, attrs: dict[str, Any], tracking: bool) -> bool:
    """The same for an op of one array under attributes; not if backward needs what was there."""
    if not op.traced or not _over_pays(x):
        return False
    if tracking and op.names[0] in op.plan_for(1, 1, 1, False).slots:
        return False
    return loop_for(op, "", op.reference, attrs).into(x)


def loop_for(op: Op, suffix: str, function: Callable, attrs: dict[str, Any]) -> Any:
    """The compiled loop of an elementwise function under given attributes."""
    key: Any = suffix
    try:
        if attrs:
            key = (suffix, *attrs.items())
            if 0.0 in attrs.values():  # -0.0 is equal to it, but different
                key = (*key, *map(str, attrs.values()))
        found = op.loops.get(key)
    except (TypeError, ValueError):  # attributes that are not plain values
        return _no_loop
    if found is None:
        found = _new_loop(op, suffix, function, attrs)
        with once.LOCK:
            while len(op.loops) >= MANY:  # the oldest is compiled again if it is asked for
                op.loops.pop(next(iter(op.loops)))
            found = op.loops.setdefault(key, found)  # another thread may have been first
    return found


def _new_loop(op: Op, suffix: str, function: Callable, attrs: dict[str, Any]) -> Any:
    """A loop with its attributes in the code; numbers are arguments of one loop for all."""
    from weft.native.codegen.trace import Loop

    # Without a suffix it is the op itself, which rules may call on tracer values, too.
    inner = function if suffix else op
    numbers = {name: v for name, v in attrs.items() if v.__class__ is float}
    fixed = {name: v for name, v in attrs.items() if name not in numbers}
    name = f"{op.name}{suffix}_loop"

    def with_constants() -> Any:
        made = Loop(name, lambda *args: inner(*args, **attrs), op.limit)
        return _NumberedLoop(made, op) if op.special else made

    if not numbers:
        return with_constants()
    key = (suffix, tuple(numbers), *fixed.items())
    shared = op.shared_loops.get(key)
    if shared is None:
        names, count = tuple(numbers), len(numbers)

        def with_settings(*args: Any) -> Any:
            given = dict(zip(names, args[-count:], strict=True))
            return inner(*args[:-count], **fixed, **given)

        made = Loop(f"{name}_set", with_settings, op.limit, settings=count)
        shared = op.shared_loops.setdefault(key, made)
    return _SetLoop(shared, tuple(numbers.values()), with_constants)


class _SetLoop:
    """A loop under certain settings: one that takes them, or one with them in its code.

    The latter is for functions that look at their settings, such as an exponent. Which of the two
    it is follows from the function alone, and both give the same bits.
    """

    __slots__ = ("constant", "make", "settings", "shared")

    def __init__(self, shared: Any, settings: tuple[float, ...], make: Callable) -> None:
        self.shared, self.settings, self.make, self.constant = shared, settings, make, None

    def __call__(self, *args: Any) -> Any:
        if self.constant is None:
            out = self.shared(*args, *self.settings)
            if out is not None:
                return out
            self.constant = self.make()
        return self.constant(*args)

    def into(self, x: ndarray, *args: Any) -> bool:
        if self.constant is None:
            if self.shared.into(x, *args, *self.settings):
                return True
            self.constant = self.make()
        return self.constant.into(x, *args)


def is_special(op: Op, x: Any, float16: bool) -> bool:
    """Whether an op has a dedicated formula for a number; for float16 only if it is an integer.

    PyTorch takes a power of float16 by 0.5, and a root of all others: -inf tells them apart.
    """
    return x.__class__ in (int, float) and x in op.special and not (float16 and x % 1)


class _NumberedLoop:
    """A loop, and one for each of some numbers among its later arguments, which is quicker.

    Which of them runs follows from the arguments, so a number can't be left to entry points.
    """

    __slots__ = ("loop", "made", "op")

    def __init__(self, loop: Any, op: Op) -> None:
        self.loop, self.op = loop, op
        self.made: dict[Any, Any] = {}

    def _of(self, args: Any) -> tuple[Any, list[Any]]:
        """The loop for arguments, and those that it takes."""
        float16 = any(a.__class__ is ndarray and a.dtype == np.float16 for a in args)
        key = (None, *(a if is_special(self.op, a, float16) else None for a in args[1:]))
        if not any(key):
            return self.loop, args
        found = self.made.get(key)
        if found is None:
            function, kind = self.loop.function, self.loop.__class__

            def with_numbers(*given: Any) -> Any:
                rest = iter(given)
                return function(*(next(rest) if number is None else number for number in key))

            words = "_".join(f"{n:g}" for n in key if n is not None)
            name = re.sub(r"\W", lambda found: "m" if found[0] == "-" else "p", words)
            made = kind(f"{self.loop.name}_{name}", with_numbers, self.loop.least)
            found = self.made.setdefault(key, made)
        return found, [a for a, number in zip(args, key, strict=True) if number is None]

    def __call__(self, *args: Any) -> Any:
        loop, given = self._of(args)
        return loop(*given)

    def into(self, x: ndarray, *args: Any) -> bool:
        loop, (x, *rest) = self._of((x, *args))
        return loop.into(x, *rest)

    def entry(self, args: Any) -> None:
        return None


class _NoLoop:
    """Placeholder where there is no loop."""

    def __call__(self, *args: Any) -> None:
        return None

    def into(self, *args: Any) -> bool:
        return False


_no_loop = _NoLoop()


NOTHING: dict[str, Any] = {}


def sum_to(g: ndarray, shape: tuple[int, ...]) -> ndarray | None:
    """A gradient summed over broadcast dimensions, by native code if supported."""
    return _sum_to(g, shape) if ready() else None


_sum_to = resolve("loops.reduce:sum_to")


def cast(x: ndarray, dtype: np.dtype) -> ndarray:
    """An array in another type, by native code if it is large; the bits are NumPy's."""
    if (x.size >= BEGIN or buffers.planner() is not None) and ready():
        out = _to_copy(x, dtype)
        if out is not None:
            return out
        buffers.read(x)
    return x.astype(dtype)


_to_copy = resolve("loops.movement:to_copy")
