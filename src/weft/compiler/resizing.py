"""A known path at a new size: its results follow from the shape rules of its ops.

If a call is not the expected one, but resembles a learned one (the same op on the same results and
leaves, of different sizes), no values are needed to predict its results: shapes, dtypes and strides
follow from the rule, and everything else (what is a view, what requires a gradient) is unchanged.
So a token for it is created at once, from one that was learned eagerly, and the call can be
deferred like any other: a new size runs compiled in its first call.

Nothing is inferred about sizes. Python runs, and determines the arguments of each call; if it does
anything different than at previous sizes, that is a different path, which is learned eagerly. A
size that varies is at least two, since a dimension of one element is broadcast and may have any
stride. A rule is trusted for a token if it predicts what eager mode returned when the token was
learned.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from weft.compiler import building, matching
from weft.compiler.building import Geometry
from weft.compiler.ir import Value, WorkNode, attrs_key, constant_key
from weft.compiler.native_calls import CHANGE, TOKENS
from weft.compiler.ops import OpWork
from weft.compiler.segment import Segment, TraceMemory
from weft.compiler.stepping import Stepping
from weft.compiler.trace import (
    ASSIGN,
    BACKWARD,
    CALL,
    CONSTANT,
    INPLACE,
    LEAF,
    NUMBER,
    RESULT,
    STEP,
    Kind,
    LeafSlot,
    Point,
    Token,
    known_leaf,
    same,
    walk,
)
from weft.core import frames, meta, shapes
from weft.core.dispatch import Op
from weft.core.gate import is_exported, reclaims
from weft.core.modes import MODES
from weft.core.tensor import Parameter, Tensor, shares, storage_array

array_of = Tensor.__dict__["_a"].__get__  # fails for a pending tensor

BRANCHES = 16  # continuations that are remembered at one point
RARE = 4  # new sizes are followed while one in so many of the previous ones has recurred
TRIALS = 64  # and in any case in one of so many calls
MOST_RESULTS = 4096  # that are remembered

_results: dict[Any, Any] = {}


class ArrayLayout(NamedTuple):
    """The layout of an array."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype


def layout_of(like: Any) -> ArrayLayout:
    """The layout of an array, or of a value of a kind."""
    return ArrayLayout(like.shape, like.strides, like.dtype)


Results = list[
    tuple[ArrayLayout, bool]
]  # their layout, and whether they are views of the first input


def results_of(op: Op, given: list[Any], attrs: dict[str, Any]) -> Results | None:
    """The results of an op for inputs of these layouts, and constants; None if unknown."""
    key: Any = attrs_key(attrs)
    if key is not None:
        own = tuple(x if x.__class__ is ArrayLayout else constant_key(x) for x in given)
        key = op, key, own, building.settings()
        try:
            if key in _results:
                return _results[key]
        except TypeError:
            key = None
    try:
        found: Any = _by_rule(op, given, attrs)
        if _chooses_layout(op, given):
            found = _by_kernel(op, given, attrs, found)
    except Exception:  # eager mode raises the same error, with its line
        found = None
    if key is not None:
        if len(_results) >= MOST_RESULTS:
            _results.clear()
        _results[key] = found
    return found


def _by_rule(op: Op, given: list[Any], attrs: dict[str, Any]) -> Results:
    args = [
        meta.MetaArray(x.shape, x.dtype, strides=x.strides if math.prod(x.shape) else None)
        if x.__class__ is ArrayLayout
        else x
        for x in given
    ]
    out = shapes.compute(op, args, attrs)
    return [
        (ArrayLayout(y.shape, y.strides, meta.plain(y.dtype)), op.view and shares(y, args[0]))
        for y in (out if op.multiple else (out,))
    ]


def _chooses_layout(op: Op, given: list[Any]) -> bool:
    """Whether an op has a kernel that chooses the layout of its results."""
    if op.native is None or op.view or op.traced or op.layout is not None:
        return False
    return any(math.prod(x.shape) >= op.limit for x in given if x.__class__ is ArrayLayout)


def _by_kernel(op: Op, given: list[Any], attrs: dict[str, Any], ruled: Results) -> Results:
    """The results in the layout of the op's kernel, which rules don't know: taken from its job,
    which a program needs as well.
    """
    args = [Value(x.shape, x.dtype) if x.__class__ is ArrayLayout else x for x in given]
    made = [Value(x.shape, x.dtype) for x, _ in ruled]
    node = WorkNode(OpWork(op, attrs), args, made, None)  # type: ignore[arg-type]  # of no graph
    lies = [Geometry(*x) for x in given if x.__class__ is ArrayLayout]
    planned = building.planned(node, list(node.inputs()), lies)
    return [(ArrayLayout(*lies), False) for lies in planned.results]


def is_ruled(op: Op, args: Any, attrs: dict[str, Any], results: Any) -> bool:
    """Whether an op's rule predicted its eager results."""
    given = [layout_of(array_of(x)) if isinstance(x, Tensor) else x for x in args]
    first = array_of(args[0]) if isinstance(args[0], Tensor) else None
    arrays = [array_of(t) for t in results]
    seen = [(layout_of(a), op.view and first is not None and shares(a, first)) for a in arrays]
    found = results_of(op, given, attrs)
    return found is not None and len(found) == len(seen) and all(map(_equal, found, seen))


def _equal(a: tuple[ArrayLayout, bool], b: tuple[ArrayLayout, bool]) -> bool:
    """Whether results have the same layout; those without elements have any strides."""
    if a == b:
        return True
    (x, view), (y, other) = a, b
    return view is other and x.shape == y.shape and 0 in x.shape and x.dtype == y.dtype


def kind_like(found: ArrayLayout, before: Kind) -> Kind:
    """A kind of this shape and strides, otherwise like an existing one."""
    shape, strides, dtype = found
    if 0 in shape and shape == before.shape:
        return before
    model = np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)
    made = Kind(model, before.requires)
    made.outline.base = before.outline.base
    return made


def varies(n: int, before: int) -> bool:
    """Whether a size may differ from the previous one."""
    return n == before or (n > 1 and before > 1)


def same_rank(shape: tuple[int, ...], before: tuple[int, ...]) -> bool:
    return len(shape) == len(before) and all(map(varies, shape, before))


def same_order(strides: tuple[int, ...], before: tuple[int, ...]) -> bool:
    """Whether dimensions have the same order in memory, and the same ones are expanded."""
    if strides == before:
        return True
    order, known = (sorted(range(len(s)), key=s.__getitem__) for s in (strides, before))
    return order == known and all((a > 0) - (a < 0) == (b > 0) - (b < 0)
                                  for a, b in zip(strides, before, strict=True))  # fmt: skip


def alike(a: Any, b: Any) -> bool:
    """Whether constants are the same except for numbers in them, which may be derived from
    sizes.
    """
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ is int or a.__class__ is float:
        return True
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, slice):
        return alike((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return same(a, b)


def resemble(a: Token, b: Token) -> bool:
    """Whether two calls are the same except for sizes."""
    return (
        a.op is b.op
        and a.kind == b.kind
        and a.grad is b.grad
        and a.first == b.first
        and a.count == b.count
        and alike(a.attrs, b.attrs)
        and all(map(_plays_alike, a.slots, b.slots))
    )


def _plays_alike(a: tuple[int, Any], b: tuple[int, Any]) -> bool:
    (kind, what), (other, wanted) = a, b
    if kind != other:
        return False
    if kind == LEAF:
        return what.number == wanted.number
    return alike(what, wanted) if kind == CONSTANT else what == wanted


def runs_of(token: Token) -> tuple[int, int]:
    """How often the path after a token recurred, and when it last did."""
    plans = [p for point in walk(token.after) for p in point.plans.values() if p]
    count = max((p.runs for p in plans), default=0) - (token.derived and bool(plans))
    return count, max((p.last for p in plans), default=0)


def expects_return(point: Point, learned: TraceMemory) -> bool:
    """Whether a new size at a point can be expected to recur, as previous ones did."""
    if not point.next:
        return True
    back = [token for token in point.next if runs_of(token)[0] > 0]
    if len(back) * RARE < len(point.next) or (len(back) < 2 and not point.like):
        return False
    paid = sum(token.derived for token in back)
    return learned.unrepeated <= RARE * (paid + 1) or learned.calls % TRIALS == 0


class Resizing(Segment):
    """The part of a region that follows paths at sizes that it has not seen."""

    def derive(self, kind: int, op: Any, args: Any, attrs: dict[str, Any]) -> Token | None:
        """The token of a call that equals known ones except for sizes; it is added to them."""
        if self.stance not in ("default", "eager_then_compile", "aot_eager_then_compile"):
            return None
        found = self.similar(kind, op, args, attrs)
        if not found and self.at.like and self.path:
            self.at.like = self.elsewhere()  # paths that were not compared so far
            found = self.similar(kind, op, args, attrs)
        for like in found:
            token = self.resized(like, args, attrs)
            if token is not None:
                token.after.like = (like.after,)
                self.learned.resized += not self.at.like
                self.make_room()
                self.append(token)
                return token
        return None

    def derive_step(self, optimizer: Any) -> None:
        """The same for an optimizer's step."""
        for like in [t for point in self.at.like for t in point.next]:
            if like.kind == STEP and like.op is optimizer:
                args = like.step.arguments()
                if args is not None and self.derive(STEP, optimizer, args, {}) is not None:
                    return

    def elsewhere(self) -> tuple[Point, ...]:
        """All points that known paths reach by calls like those of the current path."""
        start = self.path[0].home
        found = [start, *start.like]
        for token in self.path:
            found = [
                known.after for point in found for known in point.next if resemble(known, token)
            ]
        return tuple(point for point in found if point is not self.at)

    def similar(self, kind: int, op: Any, args: Any, attrs: dict[str, Any]) -> list[Token]:
        """Known calls that a call resembles, if it can be expected to recur."""
        point, grad = self.at, MODES.now.grad
        if self.learned.unlikely == (point, self.learned.runs):
            return []
        homes = point.like or (point,)
        found = [
            token
            for home in homes
            for token in home.next
            if token.op is op
            and token.kind == kind
            and token.grad is grad
            and (token.ruled or kind != CALL)
            and alike(token.attrs, attrs)
            and self.resembles(token, args)
        ]
        if found and not expects_return(point, self.learned):
            self.learned.unlikely = point, self.learned.runs
            return []
        return found

    def resembles(self, token: Token, args: Any) -> bool:
        """Whether arguments match a token, except for sizes."""
        if len(args) != token.count:
            return False
        new = {slot.number for slot in token.leaves}
        first: dict[int, Any] = {}  # leaves that are met here
        own: set[int] = set()  # the identities of those that are met once
        for x, (kind, wanted) in zip(args, token.slots, strict=True):
            if kind == RESULT:
                fits = self.handles[wanted] is x
            elif kind == NUMBER:
                fits = x.__class__ is wanted
            elif kind != LEAF:
                fits = alike(x, wanted)
            elif wanted.number in first:
                fits = first[wanted.number] is x
            elif wanted.number not in new:
                fits = self.leaves[wanted.number] is x
            else:
                once = id(x) not in self.met and id(x) not in own
                fits = self.is_like(wanted, x) and (wanted.outside or once)
                first[wanted.number] = x
                own.add(id(x))
            if not fits:
                return False
        return True

    def is_like(self, slot: LeafSlot, x: Any) -> bool:
        """Whether a tensor can play a leaf's role, except for its size."""
        if x.__class__ is not Tensor and x.__class__ is not Parameter:
            return False
        try:
            array_of(x)
        except AttributeError:
            return False  # pending in another region
        # Before this code holds its array, too: references to it are counted.
        outside = is_exported(x._a) and (slot.outside or not reclaims(x))
        array = x._a
        return (
            known_leaf(x)
            and array.dtype is slot.kind.dtype
            and same_rank(array.shape, slot.kind.shape)
            and same_order(array.strides, slot.kind.strides)
            and x._node.__class__ is slot.node.__class__
            and (x._base is None) is slot.plain
            and outside is slot.outside
        )

    def resized(self, like: Token, args: Any, attrs: dict[str, Any]) -> Token | None:
        """A token for a call that resembles another; None if no rule predicts its results."""
        slots: list[tuple[int, Any]] = []
        leaves: dict[int, LeafSlot] = {}
        new = {slot.number for slot in like.leaves}
        met: dict[int, LeafSlot] = {}
        if like.targets or any(k == LEAF and w.number not in new for k, w in like.slots):
            met = {slot.number: slot for token in self.path for slot in token.leaves}
        for x, (kind, what) in zip(args, like.slots, strict=True):
            if kind == LEAF and what.number in new:
                if what.number not in leaves:
                    leaves[what.number] = LeafSlot(what.number, x)
                what = leaves[what.number]
            elif kind == LEAF:
                what = met[what.number]
            elif kind not in (RESULT, NUMBER):
                what = x
            slots.append((kind, what))
        kinds = self.resized_kinds(like, slots, attrs, met)
        if kinds is None:
            return None
        made = Token(
            like.kind, like.op, tuple(slots), attrs, like.grad, kinds, like.roots, like.first
        )
        made.leaves = tuple(leaves.values())
        made.targets = tuple(met[slot.number] for slot in like.targets)
        made.held = like.held
        made.scope = MODES.now.scope
        frame = frames.caller(sys._getframe(1))
        if frame is not None:
            made.code, made.instruction = frame.f_code, frame.f_lasti
        made.ruled = made.derived = True
        if like.kind == STEP and not self.resized_step(made, like, args):
            return None
        return made

    def kind_at(self, slot: tuple[int, Any]) -> Kind:
        """The kind of an argument of the path."""
        kind, what = slot
        if kind == LEAF:
            return what.kind
        for token in reversed(self.path):
            if token.first <= what:
                return token.kinds[what - token.first]
        raise AssertionError("a result that no recorded call returned")

    def resized_kinds(
        self,
        like: Token,
        slots: list[tuple[int, Any]],
        attrs: dict[str, Any],
        met: dict[int, LeafSlot],
    ) -> tuple[Kind, ...] | None:
        """The kinds of the results of a call that resembles another."""
        if like.kind == STEP:
            return like.kinds
        if like.kind == BACKWARD:
            found = [
                _gradient(met[slot.number].kind, slot.kind, kind)
                for slot, kind in zip(like.targets, like.kinds, strict=True)
            ]
            return None if None in found else tuple(found)  # type: ignore[arg-type]
        target = self.kind_at(slots[0]) if slots[0][0] in (LEAF, RESULT) else None
        if like.kind != CALL:
            assert target is not None
            if like.kind == ASSIGN and layout_of(self.kind_at(slots[1])) != layout_of(target):
                return None
            if like.kind == INPLACE and not self.fills(like.op, slots, attrs, target):
                return None
            results: Any = [(layout_of(target), False)]
        else:
            results = results_of(like.op, self.operands(slots), attrs)
            views = [like.roots[k].number != like.first + k or like.roots[k].where != RESULT
                     for k in range(len(like.kinds))]  # fmt: skip
            if results is None or [view for _, view in results] != views:
                return None
        kinds = []
        for (found, _), before in zip(results, like.kinds, strict=True):
            if found[2] != before.dtype or not same_rank(found[0], before.shape):
                return None
            kinds.append(kind_like(found, before))
        return tuple(kinds)

    def operands(self, slots: list[tuple[int, Any]]) -> list[Any]:
        """The operands of a rule: layouts of arrays, and constants."""
        return [
            layout_of(self.kind_at((kind, what)))
            if kind in (LEAF, RESULT)
            else what(1) if kind == NUMBER else what
            for kind, what in slots
        ]  # fmt: skip

    def fills(self, op: Op, slots: list[tuple[int, Any]], attrs: Any, target: Kind) -> bool:
        """Whether the result of an in-place op fits its target."""
        found = results_of(op, self.operands(slots), attrs)
        if found is None or len(found) != 1:
            return False
        (shape, _, dtype), _ = found[0]
        return shape == target.shape and dtype == target.dtype

    def resized_step(self, made: Token, like: Token, args: Any) -> bool:
        """Give a token its own optimizer step, if everything that it changes is unchanged in
        kind.
        """
        for now, before in zip(made.slots, like.slots, strict=True):
            if now[0] == LEAF and now[1].kind != before[1].kind:
                return False
        made.step = Stepping(like.op)
        if made.step.written != like.step.written or len(args) != like.count:
            return False
        # Exported memory is read through a copy, which a step must not write to.
        if any(made.slots[k][0] == LEAF and made.slots[k][1].outside for k in made.step.written):
            return False
        try:
            arrays = [array_of(p) for p in args[: made.step.count]]
        except AttributeError:
            return False
        return len({id(storage_array(a)) for a in arrays}) == len(arrays)

    def append(self, token: Token) -> None:
        """Append a token to the current point."""
        matching.prepare(token)
        token.home = self.at
        self.at.next.append(token)
        self.learned.tokens += 1
        self.learned.leaf_bytes += sum(slot.kind.outline.nbytes for slot in token.leaves)

    def make_room(self) -> None:
        """Evict a path from here if many are known: one that never recurred, or the least recently
        used.
        """
        point = self.at
        if len(point.next) < BRANCHES:
            return
        gone = next((token for token in point.next if not runs_of(token)[0]), None)
        if gone is not None:
            self.learned.note_waste()
            self.learned.unrepeated += gone.derived
        else:
            gone = min(point.next, key=lambda token: runs_of(token)[1])
        point.next.remove(gone)
        point.whole = [
            own for own in point.whole if gone not in own[TOKENS] and own[CHANGE] is not gone
        ]
        for behind in walk(gone.after):  # others may still resemble it, but it does not run
            behind.plans.clear()
            behind.like = ()
        self.learned.evicted += 1


def _gradient(leaf: Kind, before: Kind, gradient: Kind) -> Kind | None:
    """The kind of a leaf's gradient, which has the leaf's layout; None if that is unclear."""
    if leaf == before:
        return gradient
    if layout_of(gradient) != layout_of(before) or not leaf.outline.flags.c_contiguous:
        return None
    return kind_like(layout_of(leaf), gradient)
