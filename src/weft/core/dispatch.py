"""Running an op: promotion, the kernel, views, and the node that records what was done."""

from __future__ import annotations

import functools
import re
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors, quiet
from weft.core.modes import MODES, PLAIN, SPECIAL
from weft.core.node import (
    NOWHERE,
    AccumulateGrad,
    GraphNode,
    Node,
    Output,
    next_sequence,
)
from weft.core.plan import FIRST, NOTHING, RESULT, SECOND, SECOND_NUMBER, Plan, parameters
from weft.core.tensor import LATE, Parameter, Tensor, refresh, shares, wrap

ndarray, asarray, new = np.ndarray, np.asarray, object.__new__
F32, F64, I64 = dt.F32, dt.F64, dt.I64
SET, RESET, SILENT = quiet.SET, quiet.RESET, quiet.SILENT
getframe, ROOT = sys._getframe, errors.ROOT
ref = weakref.ref
NO_ATTRS: dict[str, Any] = {}

REGISTRY: dict[str, Op] = {}


class Op:
    """All that the engine knows of an op. Made by the builders in ``weft.ops.build``.

    Calling an op on tensors runs and records it; calling it on bare arrays just computes,
    so that one derivative rule serves both plain and differentiable backward passes.
    """

    conj: Callable = staticmethod(np.conj)  # replaced by the op of that name

    def __init__(
        self,
        name: str,
        reference: Callable,
        *,
        names: tuple[str, ...],
        rules: tuple[Callable | None, ...] | None = None,
        joint: Callable | None = None,
        jvp: Callable | tuple[Callable | None, ...] | str | None = None,
        diagonal: bool = False,
        promote: str | None = None,
        promote_args: tuple[int, ...] | None = None,
        outputs: tuple[str, ...] = ("y",),
        constant_outputs: Iterable[int] = (),
        multiple: bool = False,
        view: bool = False,
        variadic: bool = False,
        grad_name: str | None = None,
        variant: Callable[[dict[str, Any], Any], int | str] | None = None,
        samples: Callable | None = None,
        refuses: str = "",
        check: Callable[[Any], None] | None = None,
        numbers: bool = True,
        into_overlap: bool = False,
        single_use: bool = False,
        tolerance: float = 1.0,
    ) -> None:
        if name in REGISTRY:
            raise ValueError(f"op {name!r} is registered twice")
        self.name, self.reference, self.names = name, reference, names
        self.rules, self.joint, self.jvp, self.diagonal = rules, joint, jvp, diagonal
        self.differentiable = rules is not None or joint is not None
        self.promote, self.promote_args = promote, promote_args
        self.outputs, self.constant_outputs = outputs, frozenset(constant_outputs)
        self.multiple = multiple or len(outputs) > 1
        self.view, self.variadic, self.variant = view, variadic, variant
        self.samples = samples
        self.refuses = refuses  # the kinds of common dtype that PyTorch has no kernel for
        self.check = check  # looks at the operands before they are brought to one dtype
        self.numbers = numbers  # whether the second operand may be a Python number
        self.single_use = single_use  # backward twice is an error even if nothing is saved
        self.into_overlap = into_overlap  # may write where elements share memory
        self.tolerance = tolerance
        camel = re.sub("_(.)|([0-9][a-z])", lambda found: found[0].lstrip("_").upper(), name)
        camel = camel[0].upper() + camel[1:]
        self.grad_name = grad_name or f"{camel}Backward"
        self.plans: dict[Any, Plan] = {}
        self.plan_of_one: Plan | None = None
        REGISTRY[name] = self

    @functools.cached_property
    def node_types(self) -> tuple[type[Node], ...]:
        """The classes that this op's nodes show themselves as, by variant."""
        return tuple(_node_type(f"{self.grad_name}{number}") for number in (0, 1, 2))

    def node_type(self, name: str) -> type[Node]:
        """The class of nodes that go by a name of their own."""
        return _node_type(name)

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Tensor):
            if self.multiple:
                return apply(self, args, attrs)
            return (apply_view if self.view else apply_one)(self, args[0], attrs)
        scalars = False
        for x in args:
            if isinstance(x, Tensor):
                return apply(self, args, attrs)
            scalars = scalars or isinstance(x, np.generic)
        if scalars:
            # NumPy turns zero-dim results into scalars; here they are arrays, with a type to keep.
            args = tuple(asarray(x) if isinstance(x, np.generic) else x for x in args)
        return self.compute(args, attrs)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def compute(self, args: Any, attrs: dict[str, Any]) -> Any:
        """The op on bare arrays and numbers, in the types that promotion asks for."""
        if self.promote is None:
            return self.reference(*args, **attrs)
        if len(args) == 1 and args[0].__class__ is ndarray:
            d = args[0].dtype
            if d is F32 or d is F64:
                return self.reference(args[0], **attrs)
        args, final = promoted(self, args)
        out = self.reference(*args, **attrs)
        if final is None:
            return out
        if self.multiple:
            return tuple(_back(o, final) for o in out)
        return _back(out, final)

    def infer(self, *args: Any, **attrs: Any) -> tuple[tuple[tuple[int, ...], np.dtype], ...]:
        """The shapes and NumPy dtypes of the results, for inputs of which only those are known.

        An input is a number, or a pair of shape and dtype. Elementwise ops broadcast; others are
        asked by running the reference on zeros.
        """
        spread = not self.diagonal
        dummies = [
            np.zeros(x[0] if spread else (1,) * len(x[0]), x[1]) if isinstance(x, tuple) else x
            for x in args
        ]
        token = SET(SILENT)
        try:
            out = self.compute(dummies, attrs)
        finally:
            RESET(token)
        outs = [asarray(o) for o in (out if self.multiple else (out,))]
        if spread:
            return tuple((o.shape, o.dtype) for o in outs)
        shape = np.broadcast_shapes(*(x[0] for x in args if isinstance(x, tuple)))
        return tuple((shape, o.dtype) for o in outs)

    def plan_for(self, needs: int, tensors: int, count: int, conj: bool) -> Plan:
        """The plan for a pattern of inputs given as bits, made once."""
        # The count is part of the key: patterns of different lengths share plans otherwise.
        key = (
            (count, conj)
            if self.variadic
            else ((1 << count | needs) << count | tensors) << 1 | conj
        )
        found = self.plans.get(key)
        if found is None:
            bits = [1 << i for i in range(count)]
            found = self.plans[key] = Plan(
                self,
                tuple(bool(needs & b) for b in bits),
                tuple(bool(tensors & b) for b in bits),
                conj,
            )
        return found


@functools.cache
def _node_type(name: str) -> type[Node]:
    if name in ("CopySlices0", "CopyBackwards0"):
        name = name[:-1]
    return type(name, (Node,), {"__slots__": (), "__module__": "weft.graph"})


def _back(out: Any, final: np.dtype) -> Any:
    # Comparisons and indices keep their own type; only the widened values go back.
    return out.astype(final) if out.dtype == F32 else out


def promoted(op: Op, args: Any) -> tuple[Any, np.dtype | None]:
    """Arguments in the common type; for half types also the type to go back to."""
    if op.check is not None:
        op.check(args)
    chosen: Any = op.promote_args
    common, numbers = None, False
    for x in args if chosen is None else [args[i] for i in chosen if i < len(args)]:
        if x.__class__ is ndarray:
            if common is not None and x.dtype is not common:
                common = None
                break
            common = x.dtype
        elif x.__class__ is int or x.__class__ is float:
            numbers = True
        elif x is not None:
            common = None
            break
    if (common is F32 or common is F64) and not numbers and "f" not in op.refuses:
        return args, None
    if chosen is None:
        chosen = range(len(args))
    if common is not F32 and common is not F64:
        # Not all arrays of one float type, which numbers never widen: ask the full rules.
        common = dt.result_dtype(args[i] for i in chosen if i < len(args))
    if op.promote == "float" and dt.category(common) < dt.dtype.FLOAT:
        common = dt.get_default_dtype().np
    if common.kind in op.refuses:
        raise NotImplementedError(
            f"\"{op.name}_cpu\" not implemented for '{dt.TYPE_NAMES[dt.OF_NUMPY[common].name]}'"
        )
    final = None
    if common in dt.HALF:
        common, final = F32, common
    args = list(args)
    for i in chosen:
        if i < len(args) and args[i] is not None:
            x = args[i]
            if x.__class__ is not ndarray:
                args[i] = asarray(x).astype(common)
            elif x.dtype is not common:
                args[i] = x.astype(common)
    return args, final


def apply(op: Op, args: tuple[Any, ...], attrs: dict[str, Any], shown: int | None = None) -> Any:
    """Run an op on tensors and record it: the general way through dispatch.

    ``shown`` is how many results the caller looks at, if not at all of them.
    """
    now = MODES.now
    mode = now.mode
    if mode is SPECIAL:
        return _apply_special(op, args, attrs)
    arrays = []
    needed = False
    for x in args:
        if x is not None and isinstance(x, Tensor):
            arrays.append(x._a)
            if x._node is not None or x._base is not None:
                needed = True
        else:
            arrays.append(x)
    token = SET(SILENT)
    try:
        out = op.compute(arrays, attrs)
    except (RuntimeError, ValueError, TypeError, IndexError, OverflowError, MemoryError) as e:
        raise errors.explain(e, op.name, arrays, attrs) from None
    finally:
        RESET(token)
    if op.multiple:
        results = [wrap(o if o.__class__ is ndarray else asarray(o)) for o in out]
        if op.view:
            for k, t in enumerate(results):
                link_view(t, args, op, attrs, k)
        if needed and mode is PLAIN and op.differentiable:
            record(op, args, arrays, attrs, results, shown)
        return tuple(results)
    if out.__class__ is not ndarray:
        out = asarray(out)
    t = new(Tensor)
    t._a = out
    t._vc = [0]
    t.grad = t._base = t._view = t._x = t._node = None
    if op.view:
        link_view(t, args, op, attrs, 0)
    if needed and mode is PLAIN and op.differentiable:
        record(op, args, arrays, attrs, (t,))
    return t


def apply_one(op: Op, x: Tensor, attrs: dict[str, Any]) -> Any:
    """What ``apply`` does, for the many ops with one input and one output."""
    now = MODES.now
    mode = now.mode
    a = x._a
    d = a.dtype
    if mode is SPECIAL or not (d is F32 or d is F64):
        return apply(op, (x,), attrs)
    token = SET(SILENT)
    try:
        y = op.reference(a, **attrs)
    except Exception:
        return apply(op, (x,), attrs)  # fails again, and explains
    finally:
        RESET(token)
    if y.__class__ is not ndarray:
        y = asarray(y)
    t = new(Tensor)
    t._a = y
    t._vc = cell = [0]
    t.grad = t._base = t._view = t._x = t._node = None
    if mode is PLAIN and op.differentiable:
        edge = x._node
        if x._base is not None and (edge is NOWHERE or x._stamp != x._vc[0]):
            record(op, (x,), (a,), attrs, (t,))
        elif edge is not None and y.dtype.kind == "f":
            plan = op.plan_of_one
            if plan is None:
                plan = op.plan_of_one = op.plan_for(*ONE)
            quick = plan.quick
            saved: tuple[Any, ...]
            if quick is NOTHING:
                saved, guard = (), None
            elif quick is RESULT:
                saved, guard = (y,), (0, cell)
            else:
                saved, guard = plan.pack((a,), (y,), (x._vc,), (cell,))
            frame = getframe(1).f_back
            if frame is None or frame.f_code is not _last_caller[0]:
                frame = caller(frame)
            n = new(Node)
            n.plan = plan
            n.inputs = (edge,)
            n.saved = saved
            n.guard = guard
            n.attrs = attrs
            n.shape = y.shape
            n.dtype = y.dtype
            n.seq = next_sequence()
            n.code = frame.f_code
            n.instruction = frame.f_lasti
            n.scope = now.scope
            n.extras = None
            t._node = n
        elif edge is not None:
            record(op, (x,), (a,), attrs, (t,))
    return t


def apply_view(op: Op, x: Tensor, attrs: dict[str, Any]) -> Any:
    """What ``apply`` does, for views: one input, one output, and nothing to compute."""
    now = MODES.now
    mode = now.mode
    if mode is SPECIAL:
        return apply(op, (x,), attrs)
    a = x._a
    try:
        y = op.reference(a, **attrs)
    except Exception:
        return apply(op, (x,), attrs)  # fails again, and explains
    t = new(Tensor)
    t._a = y
    t.grad = t._x = t._node = None
    edge, base = x._node, x._base
    held = y.base
    if held is a or shares(y, a):
        # As ``link_view`` does it.
        t._vc = cell = x._vc
        t._stamp = cell[0]
        if base is None:
            t._base = x
            t._view = (op, (), attrs, 0, None, mode is PLAIN)
        else:
            t._base = base
            earlier = x._view
            t._view = (op, (), attrs, 0, earlier, mode is PLAIN and earlier[5])
        if mode is not PLAIN:
            if edge is not None:
                t._node = NOWHERE
            return t
    else:
        t._vc = [0]
        t._base = t._view = None
        if mode is not PLAIN:
            return t
    if edge is None and base is None:
        return t
    if (base is not None and (edge is NOWHERE or x._stamp != x._vc[0])) or y.dtype.kind != "f":
        record(op, (x,), (a,), attrs, (t,))
    elif edge is not None:
        plan = op.plan_of_one
        if plan is None:
            plan = op.plan_of_one = op.plan_for(*ONE)
        if plan.slots:
            saved, guard = plan.pack((a,), (y,), (x._vc,), (t._vc,))
        else:
            saved, guard = (), None
        frame = getframe(1).f_back
        if frame is None or frame.f_code is not _last_caller[0]:
            frame = caller(frame)
        n = new(Node)
        n.plan = plan
        n.inputs = (edge,)
        n.saved = saved
        n.guard = guard
        n.attrs = attrs
        n.shape = y.shape
        n.dtype = y.dtype
        n.seq = next_sequence()
        n.code = frame.f_code
        n.instruction = frame.f_lasti
        n.scope = now.scope
        n.extras = None
        t._node = n
    return t


def _apply_special(op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The same where dual numbers, hooks or recorders are about."""
    now = MODES.now
    if now.dual_level >= 0 and op.differentiable:
        level = _dual_level(args)
        if level is not None:
            return _apply_dual(op, args, attrs, level)
    arrays = [x._a if isinstance(x, Tensor) else x for x in args]
    out = guarded(op, arrays, attrs)
    outs = out if op.multiple else (out,)
    results = [wrap(o if o.__class__ is ndarray else asarray(o)) for o in outs]
    if op.view:
        link_views(op, args, attrs, results)
    if now.grad and op.differentiable:
        record(op, args, arrays, attrs, results)
    for recorder in now.recorders:
        recorder.saw(op, args, attrs, results)
    return tuple(results) if op.multiple else results[0]


def guarded(op: Op, arrays: Any, attrs: dict[str, Any]) -> Any:
    """Compute quietly; an error names the op, its inputs and the user's line."""
    token = SET(SILENT)
    try:
        return op.compute(arrays, attrs)
    except (RuntimeError, ValueError, TypeError, IndexError, OverflowError, MemoryError) as e:
        raise errors.explain(e, op.name, arrays, attrs) from None
    finally:
        RESET(token)


def edge_of(x: Tensor) -> GraphNode | None:
    """The node that a gradient for ``x`` goes to, brought up to date for views."""
    if x._base is not None and x._stamp != x._vc[0]:
        refresh(x)
    return x._node


def record(
    op: Op,
    args: Any,
    arrays: Any,
    attrs: dict[str, Any],
    results: Any,
    shown: int | None = None,
) -> Node | None:
    """Give the results a node, if a gradient can flow through them."""
    first = results[0]._a
    d = first.dtype
    if not op.multiple and d.kind not in "fcV":
        return None
    inputs: list[Any] = []
    cells: list[Any] = []
    needs = tensors = 0
    bit = 1
    hidden = False
    for x in args:
        if x is not None and isinstance(x, Tensor):
            cell = x._vc
            if x._base is not None and x._stamp != cell[0]:
                refresh(x)
            edge = x._node
            tensors |= bit
            cells.append(cell)
            if edge is None:
                inputs.append(ref(x))
            elif edge is NOWHERE and op.rules is not None and len(op.rules) > 1:
                hidden = True
                inputs.append(ref(x))
            else:
                needs |= bit
                inputs.append(edge)
        else:
            inputs.append(x)
            cells.append(None)
        bit <<= 1
    if not needs and not hidden:
        return None
    conj = d.kind == "c"
    if op.multiple:
        ys = [r._a for r in results]
        for y in ys:
            conj = conj or y.dtype.kind == "c"
    count = len(inputs)
    key = (count, conj) if op.variadic else ((1 << count | needs) << count | tensors) << 1 | conj
    plan = op.plans.get(key) or op.plan_for(needs, tensors, count, conj)
    if not plan.slots:
        saved, guard = (), None
    elif op.multiple:
        saved, guard = plan.pack(arrays, ys, cells, [r._vc for r in results])
    else:
        saved, guard = plan.pack(arrays, (first,), cells, (results[0]._vc,))
    now = MODES.now
    frame = getframe(1).f_back
    if frame is None or frame.f_code is not _last_caller[0]:
        frame = caller(frame)
    node = new(Node)
    node.plan = plan
    node.inputs = tuple(inputs)
    node.saved = saved
    node.guard = guard
    node.attrs = attrs
    node.shape = first.shape
    node.dtype = d
    node.seq = next_sequence()
    node.code = frame.f_code
    node.instruction = frame.f_lasti
    node.scope = now.scope
    node.extras = None
    if now.mode is SPECIAL:
        _special(node)
    if not op.multiple:
        results[0]._node = node
        return node
    node.shape = tuple([y.shape for y in ys])
    node.dtype = tuple([y.dtype for y in ys])
    node.outs = outs = {}
    # A result that nobody looks at gets its place in the graph when backward asks for it.
    for k, y in enumerate(ys if shown is None else ys[:shown]):
        if y.dtype.kind in "fcV" and k not in op.constant_outputs:
            results[k]._node = place = Output(node, k, y.shape, y.dtype)
            outs[k] = ref(place)
    return node


# The guard of a node whose values are in the hands of saved-tensor hooks.
PACKED: tuple[Any, ...] = ()


class Packed:
    """A saved value that a saved-tensor hook holds in its own form."""

    __slots__ = ("unpack", "value")

    def __init__(self, value: Any, unpack: Callable) -> None:
        self.value, self.unpack = value, unpack


def _special(node: Node) -> None:
    if MODES.now.anomaly:
        import traceback

        node._extras().trace = "".join(traceback.format_stack(errors.user_frame(getframe(2))))
    if MODES.now.saved_hooks and node.saved:
        pack, unpack = MODES.now.saved_hooks[-1]
        op, values = node.op, []
        for slot, value in zip(node.plan.slots, node.saved, strict=True):
            if isinstance(value, ndarray) and (slot in op.names or slot in op.outputs):
                tensor = wrap(value)
                if slot in op.names:
                    edge = node.inputs[op.names.index(slot)]
                    tensor._node = edge if isinstance(edge, GraphNode) else None
                hooks, MODES.now.saved_hooks = MODES.now.saved_hooks, ()
                MODES.now.update()
                try:
                    values.append(Packed(pack(tensor), unpack))
                finally:
                    MODES.now.saved_hooks = hooks
                    MODES.now.update()
            else:
                values.append(value)
        node.saved, node.guard = tuple(values), PACKED
        node._extras()  # keeps the engine from the short way, which knows arrays only


# --- views -----------------------------------------------------------------------------


def link_views(op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
    """Tie results to the tensor whose memory they share."""
    for k, result in enumerate(results):
        link_view(result, args, op, attrs, k)


def link_view(result: Tensor, args: Any, op: Op, attrs: dict[str, Any], k: int) -> None:
    """Tie a result to the tensor whose memory it shares, if it does."""
    source = args[0]
    held = result._a.base
    if held is not source._a and not shares(result._a, source._a):
        return
    cell = source._vc
    base = source._base
    enabled = MODES.now.grad
    visible = enabled and (base is None or source._view[5])
    result._vc = cell
    result._base = source if base is None else base
    result._stamp = cell[0]
    result._view = (op, args[1:], attrs, k, source._view, visible)
    if not enabled and source._node is not None:
        # PyTorch's rule: a view made in no_grad needs a gradient, but nobody receives it.
        result._node = NOWHERE


def follow(x: Any, chain: tuple[Any, ...]) -> Any:
    """Apply the view ops that lead from a base to one of its views."""
    links = []
    link: Any = chain
    while link is not None:
        links.append(link)
        link = link[4]
    for op, rest, attrs, k, _, _ in reversed(links):
        x = op(x, *rest, **attrs)
        if op.multiple:
            x = x[k]
    return x


def _has_several(chain: Any) -> bool:
    """Whether some step of a view's history made several views at once."""
    while chain is not None:
        if chain[0].multiple:
            return True
        chain = chain[4]
    return False


def refresh_view(x: Tensor) -> None:
    """Give a view the node it would have if it were made now from its changed base."""
    base, chain = x._base, x._view
    if base is None or chain is None or base._node is None:
        x._stamp = x._vc[0]
        return
    if isinstance(x._node, AccumulateGrad) or not chain[5]:
        if not chain[5]:
            raise RuntimeError(
                "A view was created in no_grad mode and its base or another view of its base has "
                "been modified inplace with grad mode enabled. Move both the view and the "
                f"in-place op inside no_grad, or both outside\n  at {errors.here()}"
            )
        x._stamp = x._vc[0]
        return
    if _has_several(chain):
        raise RuntimeError(
            f"Output {chain[3]} of {chain[0].node_types[0].__name__} is a view and its base or "
            "another view of its base has been modified inplace. This view is the output of a "
            "function that returns multiple views. Such functions do not allow the output views "
            f"to be modified inplace. Use the out-of-place form\n  at {errors.here()}"
        )
    enabled, MODES.now.grad = MODES.now.grad, True
    MODES.now.update()
    try:
        retained = _take_retained(x)
        x._node = follow(wrap(base._a, base._node), chain)._node
        x._stamp = x._vc[0]
        _give_retained(x, retained)
    finally:
        MODES.now.grad = enabled
        MODES.now.update()


LATE.refresh = refresh_view


# --- forward mode ----------------------------------------------------------------------


def tangents_of(x: Any) -> dict[int, Tensor] | None:
    extra = x._x if isinstance(x, Tensor) else None
    return None if extra is None else extra.get("tangents")


def _dual_level(args: Any) -> int | None:
    levels = [max(found) for found in map(tangents_of, args) if found]
    return max(levels) if levels else None


def without_tangent(x: Any, level: int) -> Any:
    """The same tensor, with its tangent at one level left out."""
    found = tangents_of(x)
    if not found or level not in found:
        return x
    primal = x.alias_of()
    rest = {k: t for k, t in found.items() if k != level}
    if rest:
        primal._x = {"tangents": rest}
    return primal


def set_tangent(x: Tensor, level: int, tangent: Tensor) -> None:
    x._x = dict(x._x or {})
    x._x["tangents"] = {**(x._x.get("tangents") or {}), level: tangent}


def _apply_dual(op: Op, args: Any, attrs: dict[str, Any], level: int) -> Any:
    tangents = [(tangents_of(x) or {}).get(level) for x in args]
    primals = tuple(without_tangent(x, level) for x in args)
    out = apply(op, primals, attrs)
    outs = out if op.multiple else (out,)
    for result in outs:
        if result._base is not None and result._base is primals[0]:
            result._base = args[0]  # a view of the dual tensor, not of its stripped stand-in
    moved = jvp(op, primals, tangents, outs, attrs)
    for result, tangent in zip(outs, moved, strict=True):
        if tangent is not None and result._a.dtype.kind in "fcV":
            set_tangent(result, level, tangent)
    if MODES.now.grad:
        keep_tangents(op, args, outs)
    return out


def keep_tangents(op: Op, args: Any, outs: Any) -> None:
    """Put the tangents of an op's inputs and outputs on what its node saved of them.

    A backward run at the same level then moves tangents too.
    """
    place = next((o._node for o in outs if o._node is not None), None)
    node = place.node if isinstance(place, Output) else place
    if not isinstance(node, Node) or not node.saved:
        return
    saved = list(node.saved)
    for k, (slot, value) in enumerate(zip(node.plan.slots, saved, strict=True)):
        if slot in op.names:
            i = op.names.index(slot)
            source, edge = args[i], node.inputs[i]
            edge = edge if isinstance(edge, GraphNode) else None
        elif slot in op.outputs:
            i = op.outputs.index(slot)
            source, edge = outs[i], outs[i]._node
        else:
            continue
        found = tangents_of(source)
        if found and isinstance(value, ndarray):
            saved[k] = wrap(value, edge)
            saved[k]._x = {"tangents": dict(found)}
    node.saved = tuple(saved)


def jvp(op: Op, primals: Any, tangents: Any, outs: Any, attrs: dict[str, Any]) -> list[Any]:
    """Tangents of the outputs from those of the inputs, by the op's own rule."""
    if op.jvp in ("linear", "together"):
        out = _linear_jvp(op, primals, tangents, attrs)
        moved = list(out) if op.multiple else [out]
    elif callable(op.jvp) and "tangents" in parameters(op.jvp):
        out = _call_rule(op.jvp, op, primals, outs, attrs, tangents=tangents)
        moved = list(out) if op.multiple else [out]
    elif op.jvp is not None or op.diagonal:
        rules: Any = op.rules if op.diagonal else op.jvp
        rules = rules if isinstance(rules, tuple) else (rules,)
        total = None
        for rule, tangent in zip(rules, tangents, strict=False):
            if rule is None or tangent is None:
                continue
            part = _call_rule(rule, op, primals, outs, attrs, linear=tangent)
            total = part if total is None else _add(total, part)
        moved = list(total) if op.multiple and total is not None else [total]
        if op.multiple and total is None:
            moved = [None] * len(outs)
    else:
        moved = _jvp_by_transposition(op, primals, tangents, outs, attrs)
    shaped = []
    for result, tangent in zip(outs, moved, strict=True):
        if tangent is not None and not isinstance(tangent, Tensor):
            tangent = wrap(asarray(tangent))
        if tangent is not None and tangent._a.shape != result._a.shape:
            tangent = tangent.expand(result._a.shape)
        if tangent is not None and tangent._a.dtype != result._a.dtype:
            tangent = tangent.to(dt.of_numpy(result._a.dtype))
        shaped.append(tangent)
    return shaped


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(x + y for x, y in zip(a, b, strict=True))
    return a + b


def _call_rule(
    rule: Callable,
    op: Op,
    primals: Any,
    outs: Any,
    attrs: dict[str, Any],
    linear: Any = None,
    tangents: Any = None,
) -> Any:
    values = []
    for name in parameters(rule):
        base = name.removesuffix("_shape").removesuffix("_dtype")
        if name in ("g", "t"):
            values.append(linear)
        elif name == "tangents":
            values.append(tangents)
        elif name == "inputs":
            values.append(primals)
        elif name == "rest":
            values.append(primals[len(op.names) :])
        elif name == "shapes":
            values.append(tuple(p._a.shape for p in primals))
        elif name in op.names:
            values.append(primals[op.names.index(name)])
        elif name in op.outputs:
            values.append(outs[op.outputs.index(name)])
        elif base != name and base in op.names:
            x = primals[op.names.index(base)]
            array = x._a if isinstance(x, Tensor) else asarray(x)
            values.append(array.shape if name.endswith("_shape") else array.dtype)
        else:
            values.append(attrs[name])
    return rule(*values)


def _linear_jvp(op: Op, primals: Any, tangents: Any, attrs: dict[str, Any]) -> Any:
    if op.jvp == "together" or op.variadic:
        # Linear in all inputs at once: the op on the tangents, zeros where there is none.
        filled = list(primals)
        for i, (x, t) in enumerate(zip(primals, tangents, strict=True)):
            if t is not None:
                filled[i] = t
            elif isinstance(x, Tensor) and (op.variadic or i < len(op.names)):
                if x._a.dtype.kind in "fcV":  # an index or a mask stays what it is
                    filled[i] = wrap(np.zeros_like(x._a))
        return op(*filled, **attrs)
    # Linear in each input: put a tangent in the place of one input at a time.
    total = None
    for i, tangent in enumerate(tangents):
        if tangent is not None:
            part = op(*primals[:i], tangent, *primals[i + 1 :], **attrs)
            total = part if total is None else _add(total, part)
    return total


def _jvp_by_transposition(
    op: Op, primals: Any, tangents: Any, outs: Any, attrs: dict[str, Any]
) -> list[Any]:
    """The jvp as the transpose of the vjp, which is linear in the gradient given to it."""
    engine = JVP_ENGINE[0]
    return engine(op, primals, tangents, outs, attrs)


# autograd sits above this module and puts its function here.
JVP_ENGINE: list[Callable] = []


# --- in place --------------------------------------------------------------------------


def apply_inplace(op: Op, args: Any, attrs: dict[str, Any]) -> Tensor:
    """Run an op and write its result over its first input."""
    target = args[0]
    tracking = MODES.now.grad and op.differentiable
    if tracking:
        edges = [edge_of(x) for x in args if isinstance(x, Tensor)]
        tracking = any(e is not None for e in edges)
        check_writable(target, tracking, op.name)
    elif MODES.now.grad:
        check_writable(target, False, op.name)
    if not op.into_overlap:
        check_overlap(target, op.name)
    for x in args[1:]:
        if isinstance(x, Tensor) and x is not target and x._vc is target._vc:
            check_partial_overlap(target._a, x._a, op.name)
    tangent, level = None, None
    if MODES.now.mode is SPECIAL and MODES.now.dual_level >= 0 and op.differentiable:
        level = _dual_level(args)
        if level is not None:
            tangent = (tangents_of(apply(op, args, attrs)) or {}).get(level)
            duals = [x.alias_of() if isinstance(x, Tensor) else x for x in args]
            for dual, x in zip(duals, args, strict=True):
                if isinstance(x, Tensor):
                    dual._x = x._x
            args = tuple(without_tangent(x, level) if x is not target else x for x in args)
    arrays = [x._a if isinstance(x, Tensor) else x for x in args]
    result = guarded(op, arrays, attrs)
    if tracking:
        args, arrays = _keep_old(op, args, arrays)
    write(target, result, op.name, args)
    if tracking:
        _record_inplace(op, args, arrays, attrs, target)
    if level is not None:
        _move_tangent(target, level, tangent)
        if tracking:
            keep_tangents(op, duals, (target,))
    return target


def _move_tangent(target: Tensor, level: int, tangent: Tensor | None) -> None:
    """The tangent of a tensor that was changed in place, and of the base it is a part of."""
    if tangent is None:
        tangent = wrap(np.zeros_like(target._a))
    set_tangent(target, level, tangent)
    base = target._base
    if base is not None and target._view is not None:
        whole = (tangents_of(base) or {}).get(level)
        if whole is None:
            whole = wrap(np.zeros_like(base._a))
        moved = REGISTRY["copy_slices"](whole, tangent, chain=target._view)
        set_tangent(base, level, moved)


def write(target: Tensor, result: Any, name: str, args: Any = ()) -> None:
    """Copy a finished result into a tensor: all checks come before the first byte."""
    result = asarray(result)
    if result.shape != target._a.shape:
        raise RuntimeError(
            f"{name}_: output with shape {list(target._a.shape)} doesn't match the broadcast "
            f"shape {list(result.shape)}. An in-place op can't grow its tensor; use the "
            f"out-of-place form\n  at {errors.here()}"
        )
    if result.dtype is not target._a.dtype and not dt.can_cast(
        source := dt.of_numpy(result.dtype), wanted := dt.of_numpy(target._a.dtype)
    ):
        raise RuntimeError(
            f"{name}_: result type {dt.TYPE_NAMES[source.name]} can't be cast to the desired "
            f"output type {dt.TYPE_NAMES[wanted.name]}; convert the tensor with "
            f".to({source!r}) first\n  at {errors.here()}"
        )
    np.copyto(target._a, result, casting="unsafe")
    bump(target, name)


def bump(target: Tensor, name: str) -> None:
    """Note that a tensor's memory changed, by which op and on which line."""
    cell = target._vc
    frame = getframe(1)
    if frame.f_code is not _last_caller[0]:
        frame = caller(frame)
    version = cell[0] = cell[0] + 1
    cell.append((version, name, frame.f_code, frame.f_lasti))
    if len(cell) > 9:
        del cell[1]


def check_writable(target: Tensor, tracking: bool, name: str) -> None:
    """PyTorch's rules on which tensors may be changed in place while recording."""
    view = target._view
    if view is not None and target._base is not None:
        base = target._base
        if base._node is not None or tracking:
            if not view[5]:
                raise RuntimeError(
                    f"{name}_: A view was created in no_grad mode and is being modified inplace "
                    "with grad mode enabled. Given that this use case is ambiguous and "
                    "error-prone, it is forbidden. Move both the view and the in-place op "
                    f"inside no_grad, or both outside\n  at {errors.here()}"
                )
            if isinstance(base._node, AccumulateGrad):
                raise RuntimeError(
                    f"{name}_: a view of a leaf Variable that requires grad is being used in an "
                    "in-place operation. Wrap it in torch.no_grad() if it should not be "
                    f"recorded, or clone() the leaf first\n  at {errors.here()}"
                )
            if _has_several(view):
                raise RuntimeError(
                    f"{name}_: Output {view[3]} of {view[0].node_types[0].__name__} is a view and "
                    "is being modified inplace. This view is the output of a function that "
                    "returns multiple views. Such functions do not allow the output views to be "
                    f"modified inplace. Use the out-of-place form\n  at {errors.here()}"
                )
    if isinstance(target._node, AccumulateGrad) and (
        target._base is None or not isinstance(target._base._node, AccumulateGrad)
    ):
        raise RuntimeError(
            f"{name}_: a leaf Variable that requires grad is being used in an in-place "
            "operation. Wrap it in torch.no_grad() if it should not be recorded, or use the "
            f"out-of-place form\n  at {errors.here()}"
        )


def check_overlap(target: Tensor, name: str) -> None:
    array = target._a
    if array.size and (not array.flags.writeable or 0 in array.strides):
        if any(n > 1 and s == 0 for n, s in zip(array.shape, array.strides, strict=True)):
            raise RuntimeError(
                f"{name}_: unsupported operation: more than one element of the written-to "
                "tensor refers to a single memory location. Please clone() the tensor before "
                f"performing the operation\n  at {errors.here()}"
            )


def _keep_old(op: Op, args: Any, arrays: Any) -> tuple[list[Any], list[Any]]:
    """The inputs, with a copy of the target if backward needs what the write destroys.

    Another input on the same memory gets no copy; saving it is an error that backward reports.
    """
    target, edge = args[0], args[0]._node
    needs = sum(1 << i for i, x in enumerate(args) if isinstance(x, Tensor) and x._node is not None)
    tensors = sum(1 << i for i, x in enumerate(args) if isinstance(x, Tensor))
    plan = op.plan_for(needs, tensors, len(args), target._a.dtype.kind == "c")
    args, arrays = list(args), list(arrays)
    arrays[0] = target._a.copy() if op.names and op.names[0] in plan.slots else target._a
    args[0] = wrap(arrays[0], edge)
    return args, arrays


def check_partial_overlap(target: np.ndarray, other: np.ndarray, name: str) -> None:
    """Refuse, as PyTorch does, to read from memory that is half the memory written to."""
    if not (target.size and other.size and is_dense(target) and is_dense(other)):
        return
    start, begin = target.__array_interface__["data"][0], other.__array_interface__["data"][0]
    end, stop = start + target.nbytes, begin + other.nbytes
    if start == begin and end == stop and target.strides == other.strides:
        return
    if start < stop and begin < end:
        raise RuntimeError(
            f"{name}_: unsupported operation: some elements of the input tensor and the "
            "written-to tensor refer to a single memory location. Please clone() the tensor "
            f"before performing the operation.\n  at {errors.here()}"
        )


def is_dense(array: np.ndarray) -> bool:
    """Whether an array fills a stretch of memory, each place once."""
    expected = array.itemsize
    for stride, size in sorted(zip(array.strides, array.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _record_inplace(op: Op, args: Any, arrays: Any, attrs: dict[str, Any], target: Tensor) -> None:
    # Record into a stand-in that has the memory and the version of the target. Inputs on the
    # same memory carry the version before the change, so that what they save counts as lost.
    result = wrap(target._a)
    result._vc = cell = target._vc
    earlier = [cell[0] - 1]
    old = []
    for x in args:
        if isinstance(x, Tensor) and x._vc is cell:
            x = wrap(x._a, x._node)
            x._vc = earlier
        old.append(x)
    node = record(op, old, arrays, attrs, [result])
    if node is None:
        return
    if node.guard and any(c is earlier for c in node.guard[1:]):
        node.guard = (node.guard[0], *(cell if c is earlier else c for c in node.guard[1:]))
    set_history(target, node)


def set_history(target: Tensor, node: GraphNode) -> None:
    """Make ``node`` the maker of a tensor that was changed in place, and of its base."""
    retained = _take_retained(target)
    base = target._base
    if base is None or target._view is None:
        target._node = node
    else:
        changed = wrap(target._a, node)
        whole = wrap(base._a, base._node)
        result = wrap(base._a)
        result._vc = [0]
        copy_slices = REGISTRY["copy_slices"]
        attrs = {"chain": target._view}
        record(copy_slices, (whole, changed), (base._a, target._a), attrs, [result])
        base_retained = _take_retained(base)
        base._node = result._node
        _give_retained(base, base_retained)
        refresh(target)
    target._stamp = target._vc[0]
    _give_retained(target, retained)


def _take_retained(target: Tensor) -> bool:
    node = target._node
    if node is None or node.extras is None or isinstance(node, AccumulateGrad):
        return False
    mine = [r for r in node.extras.retained if r() is target]
    node.extras.retained = [r for r in node.extras.retained if r() is not target]
    return bool(mine)


def _give_retained(target: Tensor, wanted: bool) -> None:
    if wanted and target._node is not None:
        target._node._extras().retained.append(ref(target))


# --- the short way ---------------------------------------------------------------------

# The code that called an op last; a loop asks once whether it is the user's own.
_last_caller: list[Any] = [None]


def caller(frame: Any) -> Any:
    """The user's frame at or below a frame, remembered for the next op on the same line."""
    last = _last_caller[0]
    while frame is not None:
        code = frame.f_code
        if code is last:
            return frame
        if not code.co_filename.startswith(ROOT):
            _last_caller[0] = code
            return frame
        frame = frame.f_back
    return NO_FRAME


class NO_FRAME:
    """Stands for the caller of an op that no Python code of the user called."""

    f_code = None
    f_lasti = 0


# Patterns of inputs, as ``Op.plan_for`` takes them: which need a gradient, which are tensors.
ONE = (1, 1, 1, False)
BOTH, LEFT, RIGHT, NUMBER = range(4)
PAIRS = ((3, 3, 2, False), (1, 3, 2, False), (2, 3, 2, False), (1, 1, 2, False))


def fast_unary(op: Op) -> Callable:
    """``op(x)`` for the common case: a plain tensor of float32 or float64."""
    reference, differentiable = op.reference, op.differentiable
    plans: list[Any] = [None]

    def unary(input: Any, *, out: Any = None) -> Any:
        if out is not None:
            return PUT_INTO[0](out, unary, (input,), op.name)
        now = MODES.now
        mode = now.mode
        kind = input.__class__
        if (kind is Tensor or kind is Parameter) and mode is not SPECIAL:
            x = input._a
            d = x.dtype
            if d is F32 or d is F64:
                try:
                    y = reference(x)
                except Exception:
                    return apply(op, (input,), NO_ATTRS)
                if y.__class__ is not ndarray:
                    y = asarray(y)
                t = new(Tensor)
                t._a = y
                t._vc = cell = [0]
                t.grad = t._base = t._view = t._x = t._node = None
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
                        if frame.f_code is not _last_caller[0]:
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
                return t
        if not isinstance(input, Tensor):
            return not_a_tensor(op, input)
        return apply(op, (input,), NO_ATTRS)

    unary.__name__ = unary.__qualname__ = op.name
    return unary


# What may stand beside a tensor in an operator; other objects get their turn by Python's rules.
OPERANDS = (Tensor, int, float, complex, np.generic, ndarray)


def fast_binary(op: Op, operator: bool = False) -> Callable:
    """``op(a, b)`` for the common case: plain tensors of one type, or a tensor and a number."""
    reference, differentiable = op.reference, op.differentiable
    plans: list[Any] = [None] * len(PAIRS)
    integers = op.promote != "float" and "i" not in op.refuses
    numbers = (int, float) if op.numbers else ()

    def binary(input: Any, other: Any, *, out: Any = None) -> Any:
        if out is not None:
            return PUT_INTO[0](out, binary, (input, other), op.name)
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
                try:
                    z = reference(x, y)
                except Exception:
                    return apply(op, (input, other), NO_ATTRS)
                if z.__class__ is not ndarray:
                    z = asarray(z)
                t = new(Tensor)
                t._a = z
                t._vc = cell = [0]
                t.grad = t._base = t._view = t._x = t._node = None
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
                                pattern, edges = LEFT, (left, ref(other))
                        elif right is not None:
                            pattern, edges = RIGHT, (ref(input), right)
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
                    if frame.f_code is not _last_caller[0]:
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
                return t
        if operator and not isinstance(other, OPERANDS):
            return NotImplemented
        if not isinstance(other, Tensor) and not (numbers and isinstance(input, Tensor)):
            return not_a_tensor(op, input) if numbers else not_a_tensor(op, other, "other")
        return apply(op, (input, other), NO_ATTRS)

    binary.__name__ = binary.__qualname__ = op.name
    return binary


# The function that handles ``out=``; the layer above puts it here.
PUT_INTO: list[Callable] = []


def not_a_tensor(op: Op, value: Any, argument: str = "input") -> Any:
    """Refuse, by name, what is no tensor where a function wants one."""
    raise TypeError(
        f"{op.name}(): argument '{argument}' must be Tensor, not {type(value).__name__}. "
        f"Make one with torch.tensor(...)\n  at {errors.here()}"
    )
