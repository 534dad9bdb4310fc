"""Running an op: promotion, the kernel, and the node that records what was done."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.core import batching, devices, errors, making, quiet, selection, shapes
from weft.core import dtype as dt
from weft.core.devices import DeviceArray, home_of
from weft.core.dual import (
    dual_level_of,
    jvp,
    keep_tangents,
    set_tangent,
    tangents_of,
    without_tangent,
)
from weft.core.frames import caller, last_caller
from weft.core.inference import Untracked, fresh_cell
from weft.core.meta import LIVE, any_meta
from weft.core.modes import INFERRING, MODES, PLAIN, SPECIAL
from weft.core.node import NOWHERE, GraphNode, OpNode, Output, next_sequence, note_origin
from weft.core.plan import NOTHING, RESULT, Plan
from weft.core.promotion import back, promoted
from weft.core.saved import pack_values
from weft.core.tensor import Tensor, refresh, shares, wrap
from weft.core.viewing import IN_INFERENCE, link_view, link_views
from weft.native.codegen.trace import UFUNCS, Element, Setting, lowered
from weft.native.memory.layout import channels_wanted, like_image, like_operands
from weft.native.once import lazy

ndarray, asarray, new = np.ndarray, np.asanyarray, object.__new__
F32, F64, I64 = dt.F32, dt.F64, dt.I64
NEVER = selection.NEVER
SET, RESET, SILENT = quiet.SET, quiet.RESET, quiet.SILENT
getframe, ref = sys._getframe, weakref.ref
NO_ATTRS: dict[str, Any] = {}

# The pattern of one input, as ``Op.plan_for`` takes it: which need a gradient, which are tensors.
ONE = (1, 1, 1, False)

REGISTRY: dict[str, Op] = {}


def _on_stand_ins(op: Op, args: Any, attrs: dict[str, Any]) -> Any:
    """An op on tracer values for elements: they record what its reference does to them."""
    if op.lower is not None:
        return lowered(op.lower, args, attrs)
    return op.reference(*args, **attrs)


# Types that ops accept besides arrays, numbers and tensors, and their handlers: a type registered
# here can be passed to every op and every derivative rule. Tensors (with those on ``meta``,
# batches, duals and subclasses) and arrays are checked first, at no extra cost.
VALUES: dict[type, Callable[[Any, Any, dict[str, Any]], Any]] = dict.fromkeys(
    (Element, Setting), _on_stand_ins
)


def _in_rows(y: Any, arrays: Any) -> Any:
    """A result in row-major order, as PyTorch returns it, so that views of it work.

    NumPy keeps the order of permuted inputs.
    """
    if y.__class__ is not ndarray or y.flags.c_contiguous:
        return y
    return np.ascontiguousarray(y)


def _in_rows_or_last(y: Any, arrays: Any) -> Any:
    """The same, but with the channels innermost if that is how it came."""
    if y.__class__ is not ndarray or y.flags.c_contiguous:
        return y
    if y.ndim in (4, 5) and np.moveaxis(y, 1, -1).flags.c_contiguous:
        return y
    return np.ascontiguousarray(y)


def _in_rows_or_stacked(y: Any, arrays: Any) -> Any:
    """The same for inputs that are joined, if all ask for it: one without elements does not."""
    if y.flags.c_contiguous or all(map(channels_wanted, arrays)):
        return y
    return np.ascontiguousarray(y)


def _like_image(y: Any, arrays: Any) -> Any:
    """A result with the channels innermost if the first input has them so."""
    return like_image(y, y.ndim > 3 and channels_wanted(arrays[0]))


def _like_plane(y: Any, arrays: Any) -> Any:
    """The same where PyTorch has no kernel that keeps the order for volumes."""
    return like_image(y, y.ndim == 4 and channels_wanted(arrays[0]))


def _like_images(y: Any, arrays: Any) -> Any:
    """The same for convolutions, where the weight may ask for it too."""
    # PyTorch has no kernel that keeps the order for volumes in double precision.
    fits = y.ndim == 4 or (y.ndim == 5 and y.dtype.itemsize < 8)
    last = fits and (channels_wanted(arrays[0]) or channels_wanted(arrays[1]))
    return like_image(y, last)


# Memory layouts of results: ``rows`` is row-major order, ``rows or last`` (``stacked last``) so or
# with the channels innermost, ``operands`` as the operands of elementwise arithmetic decide,
# ``first`` as the first input decides alone, ``image`` and the like as (N, C, ...) inputs do.
LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "rows": _in_rows,
    "rows or last": _in_rows_or_last,
    "rows or stacked last": _in_rows_or_stacked,
    "operands": like_operands,
    "first": lambda y, arrays: like_operands(y, arrays[:1]),
    "image": _like_image,
    "image 2d": _like_plane,
    "images": _like_images,
}


def as_array(out: Any) -> Any:
    """The result of an op as an array: NumPy returns scalars for zero-dimensional results."""
    return out if isinstance(out, DeviceArray) else asarray(out)


class Op:
    """Everything that the engine knows about an op. Created by the builders in
    ``weft.operators.build``.

    Calling an op on tensors runs and records it; calling it on bare arrays just computes,
    so that one derivative rule serves both plain and differentiable backward passes.
    """

    conj: Callable = staticmethod(np.conj)  # replaced by the op of that name
    edges: tuple[str, ...] = ()  # the inputs as ``grad_fn.next_functions`` lists them, if different
    # Results of another rank are made by another node in PyTorch, a view of what this op gives.
    own_rank: int | None = None

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
        inner_outputs: Iterable[int] = (),
        multiple: bool = False,
        view: bool = False,
        variadic: bool = False,
        grad_name: str | None = None,
        variant: Callable[[dict[str, Any], Any], int | str] | None = None,
        samples: Callable | None = None,
        refuses: str = "",
        rows: bool = False,
        layout: str = "",
        check: Callable[[Any], None] | None = None,
        numbers: bool = True,
        bare_numbers: bool = False,
        into_overlap: bool = False,
        single_use: bool = False,
        takes_none: bool = False,
        ties: bool | Callable[[dict[str, Any]], bool] = False,
        tolerance: float = 1.0,
        lower: str | Callable | None = None,
        wide: tuple[int, ...] = (),
        wide_rules: bool = False,
        narrow: bool = False,
        shape: Callable | str | None = None,
        batch: Callable | None = None,
        doc: str = "",
    ) -> None:
        if name in REGISTRY:
            raise ValueError(f"op {name!r} is registered twice")
        self.name, self.reference, self.names = name, reference, names
        self.rules, self.joint, self.jvp, self.diagonal = rules, joint, jvp, diagonal
        self.differentiable = rules is not None or joint is not None
        self.promote, self.promote_args = promote, promote_args
        self.outputs, self.constant_outputs = outputs, frozenset(constant_outputs)
        self.inner_outputs = frozenset(inner_outputs)  # for derivative rules; no user sees them
        self.multiple = multiple or len(outputs) > 1
        self.view, self.variadic, self.variant = view, variadic, variant
        self.samples = samples
        self.doc = inspect.cleandoc(doc)  # what ``help`` shows of the public function
        self._set_operands(refuses, check, numbers, bare_numbers, wide, narrow, wide_rules)
        self.single_use = single_use  # backward twice is an error even if nothing is saved
        self.takes_none = takes_none  # the rule is told which outputs no gradient reached
        # Whether a differentiable gradient counts as a function of its input although it is
        # constant, since PyTorch's backward kernel takes that input. This may depend on the
        # attributes.
        self.ties = (lambda attrs: True) if ties is True else ties
        self.into_overlap = into_overlap  # may write where elements share memory
        self.tolerance = tolerance
        self.lower = lower  # does the same in kernels: see ``weft.native.codegen.trace.lowered``
        # Whether large arrays can go through a loop traced from the reference.
        self.traced = diagonal or lower is not None or reference in UFUNCS
        # The number of operands, where the reference alone would not detect a wrong one.
        self.arity = reference.nin if isinstance(reference, np.ufunc) else None
        # Converts results to PyTorch's memory order; a function of a result and the inputs.
        rule = "rows" if rows else layout or ("operands" if self.traced else "")
        self.layout: Callable[[Any, Any], Any] | None = LAYOUTS.get(rule)
        self.layout_rule = rule
        self.images = rule.startswith("image")  # called even if all arrays are row-major
        # How shapes and dtypes of results follow from those of inputs: see ``core.shapes``.
        self.shape = "elementwise" if shape is None and self.traced else shape
        self.batch = batch  # how a batch of calls is one call: see ``core.batching``
        camel = re.sub("_(.)|([0-9][a-z])", lambda found: found[0].lstrip("_").upper(), name)
        self.grad_name = grad_name or f"{camel[0].upper()}{camel[1:]}Backward"
        self.plans: dict[Any, Plan] = {}
        self.plan_of_one: Plan | None = None
        self._set_native()
        REGISTRY[name] = self
        selection.open_op(self)

    def _set_operands(
        self, refuses: str, check: Any, numbers: bool, bare_numbers: bool, wide: tuple[int, ...],
        narrow: bool, wide_rules: bool,
    ) -> None:  # fmt: skip
        """Which operands the op takes, and in which precision."""
        # The kinds of common dtype that PyTorch has no kernel for; "h" stands for half types.
        self.refuses = refuses
        # Half types: operands whose numbers keep float32's precision, where PyTorch rounds others
        # to the half type first; whether the reference does its steps in the half type itself.
        self.wide, self.narrow = wide, narrow
        # Whether PyTorch's derivative is one kernel, which takes half types in float32; else it is
        # several steps that each round.
        self.wide_rules = wide_rules
        self.check = check  # checks the operands before they are promoted to one dtype
        self.plain = check is None and "f" not in refuses  # float32 arrays need no promotion
        self.numbers = numbers  # whether the second operand may be a Python number
        # Whether the reference accepts Python numbers with arrays of a float dtype: the result
        # equals that for numbers of that dtype.
        self.bare_numbers = bare_numbers

    def _set_native(self) -> None:
        """Slots for native code: kernels, loops and entry points, filled in when first used."""
        self.limit = selection.LARGE if self.traced else NEVER  # arrays from here on: ``run``
        # Whether traced loops take half types as they are.
        takes_halves = self.check is None and not set("fVh") & set(self.refuses)
        self.halves = self.traced and not self.narrow and takes_halves
        # Native code for small arrays, for one with a number or with a row: see ``kernels``.
        self.entry: Callable | None = None
        self.entry_with_number: Callable | None = None
        self.entry_with_row: Callable | None = None
        self.entry_float16: Callable | None = None  # the same for arrays of one half type
        self.entry_bfloat16: Callable | None = None
        self.special: frozenset = frozenset()  # numbers with dedicated loops: exponents
        self.exact = NEVER  # arrays below this size: native code gives the reference's bits
        self.native: Any = None  # a kernel: its name, and itself from the first call on
        self.native_rules: dict[int, Callable] = {}
        self.loops: dict[Any, Callable] = {}
        self.shared_loops: dict[Any, Any] = {}  # those that take numbers among the attributes
        # Compiled code that wraps and records results, and code that executes a whole call on
        # tensors of one float dtype, or None: see ``core.making``.
        self.made: Callable | None = making.Maker(self, False)
        self.call: Callable | None = making.Maker(self, True)

    @lazy
    def node_types(self) -> tuple[type[OpNode], ...]:
        """The classes that this op's nodes show themselves as, by variant."""
        return tuple(_node_type(f"{self.grad_name}{number}") for number in (0, 1, 2))

    def node_type_for(self, attrs: dict[str, Any], inputs: Any) -> type[OpNode]:
        """The class that a node of a call shows itself as."""
        use = self.variant(attrs, inputs) if self.variant else 0
        return self.node_types[use] if isinstance(use, int) else self.node_type(use)

    def node_type(self, name: str) -> type[OpNode]:
        """The class of nodes that go by a name of their own."""
        return _node_type(name)

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        if self.arity is not None and (attrs or len(args) != self.arity):
            self.check_arity(args, attrs)
        if len(args) == 1 and isinstance(args[0], Tensor):
            if self.multiple:
                return apply(self, args, attrs)
            return (apply_view if self.view else apply_one)(self, args[0], attrs)
        scalars = False
        for x in args:
            if x.__class__ is ndarray:
                continue
            if isinstance(x, Tensor):
                return apply(self, args, attrs)
            if x.__class__ in VALUES:
                return VALUES[x.__class__](self, args, attrs)
            scalars = scalars or isinstance(x, np.generic)
        if scalars:
            # NumPy turns zero-dim results into scalars; here they are arrays, with a type to keep.
            args = tuple(asarray(x) if isinstance(x, np.generic) else x for x in args)
        return self.compute(args, attrs)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __deepcopy__(self, memo: Any) -> Op:
        """Itself: ops are singletons, and a copy of a graph has the same ops."""
        return self

    def check_arity(self, args: Any, attrs: dict[str, Any]) -> None:
        """Refuse arguments that a ufunc as reference would misinterpret.

        For a ufunc, one more array is the output, and ``out`` and ``where`` are keywords.
        """
        if self.arity is not None and (len(args) != self.arity or attrs):
            given = f"{len(args)}" + (f" and {', '.join(attrs)}" if attrs else "")
            raise TypeError(f"{self.name}: expected {self.arity} operands, got {given}")

    def compute(self, args: Any, attrs: dict[str, Any]) -> Any:
        """The op on bare arrays and numbers, in the dtypes that promotion requires."""
        if LIVE:
            if any_meta(args):
                return shapes.compute(self, args, attrs)
            if home_of(args) is not None:
                return devices.run(self, args, attrs)
        entry = self.entry
        if entry is not None and not attrs:
            out = entry(*args)
            if out is not None:
                return out
        run = self.reference
        if self.limit is not NEVER and selection.large(args, self.limit):
            if self.promote is None or (self.plain and _all_float32(args)):
                out = selection.forward(self, args, attrs)
                return run(*args, **attrs) if out is None else out
            if self.halves and _all_half(args):
                # Widened, computed and rounded once in one pass.
                out = selection.forward(self, _with_half_numbers(self, args), attrs)
                if out is not None:
                    return out
            # Traced loops would widen the steps that the reference does in the half type.
            if not (self.narrow and self.traced and _all_half(args)):
                run = self.run
        elif self.promote is None:
            return run(*args, **attrs)
        if len(args) == 1 and args[0].__class__ is ndarray:
            d = args[0].dtype
            if d is F32 or d is F64:
                return run(args[0], **attrs)
        args, final = promoted(self, args)
        out = run(*args, **attrs)
        if final is None:
            return out
        if self.multiple:
            return tuple(back(o, final) for o in out)
        return back(out, final)

    def run(self, *args: Any, **attrs: Any) -> Any:
        """The op on large arrays: native code where available."""
        out = selection.forward(self, args, attrs)
        return self.reference(*args, **attrs) if out is None else out

    def infer(self, *args: Any, **attrs: Any) -> tuple[tuple[tuple[Any, ...], np.dtype], ...]:
        """The shapes and NumPy dtypes of the results, for inputs of which only those are known.

        An input is a number, None, or a pair of shape and dtype. Sizes may be symbols
        (``core.symbols``).
        """
        known = [shapes.ShapeDtype(*x) if isinstance(x, tuple) else x for x in args]
        return tuple((o.shape, o.dtype) for o in shapes.infer(self, known, attrs))

    def plan_for(self, needs: int, tensors: int, count: int, conj: bool) -> Plan:
        """The plan for a pattern of inputs given as bits, made once."""
        # The count is part of the key: patterns of different lengths share plans otherwise.
        key = (
            ~(count << 1 | conj)
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
def _node_type(name: str) -> type[OpNode]:
    if name in ("CopySlices0", "CopyBackwards0"):
        name = name[:-1]
    return type(name, (OpNode,), {"__slots__": (), "__module__": "weft.graph"})


def _all_float32(args: Any) -> bool:
    """Whether no promotion is needed: float32 arrays, and numbers only where allowed."""
    for x in args:
        if x is not None and (x.__class__ is not ndarray or x.dtype is not F32):
            return False
    return True


def _all_half(args: Any) -> bool:
    """Whether all arrays are of one half type."""
    kinds = {x.dtype for x in args if x.__class__ is ndarray}
    return len(kinds) == 1 and kinds <= dt.HALF


def _with_half_numbers(op: Op, args: Any) -> Any:
    """Operands of which the numbers have the precision in which PyTorch takes them."""
    half = next(x.dtype for x in args if x.__class__ is ndarray)
    return [
        float(half.type(x)) if x.__class__ in (int, float) and i not in op.wide else x
        for i, x in enumerate(args)
    ]


def apply(op: Op, args: tuple[Any, ...], attrs: dict[str, Any], shown: int | None = None) -> Any:
    """Run an op on tensors and record it: the general path through dispatch.

    ``shown`` is the number of results that the caller uses, if not all of them.
    """
    call = op.call
    if call is not None:
        done = call(attrs, 2, shown, *args) if op.multiple else call(attrs, 2, *args)
        if done is not None:
            return done
    now = MODES.now
    mode = now.mode
    if mode is SPECIAL:
        return _apply_special(op, args, attrs)
    arrays: list[Any] = []
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
    if op.layout is not None and not (LIVE and home_of(arrays)):
        lay = op.layout
        out = tuple([lay(o, arrays) for o in out]) if op.multiple else lay(out, arrays)
    made = op.made
    if op.multiple:
        if made is not None:
            done = made(out if out.__class__ is tuple else tuple(out), attrs, now, 2, shown, *args)
            if done is not None:
                return done
        results = [wrap(o if o.__class__ is ndarray else as_array(o)) for o in out]
        if op.view:
            for k, t in enumerate(results):
                link_view(t, args, op, attrs, k)
        if needed and mode is PLAIN and op.differentiable:
            record(op, args, arrays, attrs, results, shown)
        return tuple(results)
    if out.__class__ is not ndarray:
        out = as_array(out)
    if made is not None:
        t = made(out, attrs, now, 2, *args)
        if t is not None:
            return t
    t = new(Tensor)
    t._a = out
    t._vc = [0] if not INFERRING else fresh_cell()
    t._grad = t._base = t._view = t._x = t._node = None
    if op.view:
        link_view(t, args, op, attrs, 0)
    if needed and mode is PLAIN and op.differentiable:
        record(op, args, arrays, attrs, (t,))
    return t


def new_node(
    plan: Plan,
    inputs: tuple[Any, ...],
    kept: tuple[Any, Any],
    attrs: dict[str, Any],
    y: Any,
    now: Any,
    frame: Any,
) -> OpNode:
    """The node of a call that gave the array ``y``; ``kept`` are saved values and their guard."""
    if frame is None or frame.f_code is not last_caller[0]:
        frame = caller(frame)
    node = new(OpNode)
    node.plan = plan
    node.inputs = inputs
    node.saved, node.guard = kept
    node.attrs = attrs
    node.shape = y.shape
    node.dtype = y.dtype
    node.seq = next_sequence()
    node.code = frame.f_code
    node.instruction = frame.f_lasti
    node.scope = now.scope
    node.extras = None
    return node


def apply_one(op: Op, x: Tensor, attrs: dict[str, Any]) -> Any:
    """What ``apply`` does, for the many ops with one input and one output."""
    call = op.call
    if call is not None:
        t = call(attrs, 2, x)
        if t is not None:
            return t
    now = MODES.now
    mode = now.mode
    if mode is SPECIAL:
        return _apply_special(op, (x,), attrs)
    a = x._a
    d = a.dtype
    if not (d is F32 or d is F64):
        return apply(op, (x,), attrs)
    y = None
    if a.size >= op.limit:
        y = selection.forward(op, (a,), attrs)
    if y is None:
        token = SET(SILENT)
        try:
            y = op.reference(a, **attrs)
        except Exception:
            return apply(op, (x,), attrs)  # fails again, and explains
        finally:
            RESET(token)
    if y.__class__ is not ndarray:
        y = asarray(y)
    elif op.layout is not None and (
        op.images or not (y.flags.c_contiguous and a.flags.c_contiguous)
    ):
        y = op.layout(y, (a,))
    made = op.made
    if made is not None:
        t = made(y, attrs, now, 2, x)
        if t is not None:
            return t
    t = new(Tensor)
    t._a = y
    t._vc = cell = [0]
    t._grad = t._base = t._view = t._x = t._node = None
    if mode is PLAIN and op.differentiable:
        edge = x._node
        if x._base is not None and (edge is NOWHERE or x._stamp != x._vc[0]):
            record(op, (x,), (a,), attrs, (t,))
        elif edge is not None and y.dtype.kind == "f":
            plan = op.plan_of_one
            if plan is None:
                plan = op.plan_of_one = op.plan_for(*ONE)
            quick = plan.quick
            kept: tuple[Any, Any]
            if quick is NOTHING:
                kept = (), None
            elif quick is RESULT:
                kept = (y,), (0, cell)
            else:
                kept = plan.pack((a,), (y,), (x._vc,), (cell,))
            t._node = new_node(plan, (edge,), kept, attrs, y, now, getframe(1).f_back)
        elif edge is not None:
            record(op, (x,), (a,), attrs, (t,))
    elif INFERRING:
        t._vc = fresh_cell()
    return t


def apply_view(op: Op, x: Tensor, attrs: dict[str, Any]) -> Any:
    """What ``apply`` does, for views: one input, one output, and nothing to compute."""
    call = op.call
    if call is not None:
        t = call(attrs, 2, x)
        if t is not None:
            return t
    now = MODES.now
    mode = now.mode
    if mode is SPECIAL:
        return _apply_special(op, (x,), attrs)
    a = x._a
    if LIVE and isinstance(a, DeviceArray):
        return apply(op, (x,), attrs)
    try:
        if a.size < op.limit:
            y = op.reference(a, **attrs)
        else:
            y = op.run(a, **attrs)
    except Exception:
        return apply(op, (x,), attrs)  # fails again, and explains
    made = op.made
    if made is not None:
        t = made(y, attrs, now, 2, x)
        if t is not None:
            return t
    t = new(Tensor)
    t._a = y
    t._grad = t._x = t._node = None
    if y.base is a or shares(y, a):
        recorded = _link_only_view(t, op, x, attrs, now)
    else:
        t._vc = [0] if not INFERRING else fresh_cell()
        t._base = t._view = None
        recorded = mode is PLAIN
    edge, base = x._node, x._base
    if not recorded or (edge is None and base is None):
        return t
    if (base is not None and (edge is NOWHERE or x._stamp != x._vc[0])) or y.dtype.kind != "f":
        record(op, (x,), (a,), attrs, (t,))
    elif edge is not None:
        plan = op.plan_of_one
        if plan is None:
            plan = op.plan_of_one = op.plan_for(*ONE)
        kept = plan.pack((a,), (y,), (x._vc,), (t._vc,)) if plan.slots else ((), None)
        t._node = new_node(plan, (edge,), kept, attrs, y, now, getframe(1).f_back)
    return t


def _link_only_view(t: Tensor, op: Op, x: Tensor, attrs: dict[str, Any], now: Any) -> bool:
    """What ``link_view`` does, for the one result of one input; whether the op is recorded."""
    plain = now.mode is PLAIN
    t._vc = cell = x._vc
    t._base = t._view = None
    if not plain and cell.__class__ is Untracked:
        return False
    try:
        t._stamp = cell[0]
    except RuntimeError:
        return False  # its views are inference tensors, no views to autograd
    base = x._base
    if base is None:
        t._base = x
        t._view = (op, (), attrs, 0, x._view, plain)
    else:
        t._base = base
        earlier: Any = x._view
        t._view = (op, (), attrs, 0, earlier, plain and earlier[5])
    if not plain and t._base._node is not None:
        t._node = NOWHERE
        if INFERRING and now.inference:
            t._view = (*t._view[:5], IN_INFERENCE)
    return plain


def _apply_special(op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The same while dual numbers, hooks, recorders or casts are active."""
    now = MODES.now
    if now.autocast is not None:
        args = now.autocast(op, args)
    if now.batches:
        batch = batching.highest(args)
        if batch:
            return batching.apply_batched(op, args, attrs, batch)
    if now.dual_level >= 0 and op.differentiable:
        level = dual_level_of(args)
        if level is not None:
            return _apply_dual(op, args, attrs, level)
    for recorder in now.recorders:
        instead = recorder.before(op, args, attrs)
        if instead is not None:
            return instead
    arrays = [x._a if isinstance(x, Tensor) else x for x in args]
    out = guarded(op, arrays, attrs)
    outs = out if op.multiple else (out,)
    if op.layout is not None and not (LIVE and home_of(arrays)):
        outs = tuple([op.layout(o, arrays) for o in outs])
    results = [wrap(o if o.__class__ is ndarray else as_array(o)) for o in outs]
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
    node = x._node
    # A view made in no_grad wants a gradient only as long as its base does.
    return None if node is NOWHERE and not x.requires_grad else node


def record(
    op: Op,
    args: Any,
    arrays: Any,
    attrs: dict[str, Any],
    results: Any,
    shown: int | None = None,
) -> OpNode | None:
    """Give the results a node, if a gradient can flow through them."""
    first = results[0]._a
    if not op.multiple and first.dtype.kind not in "fcV":
        return None
    inputs, cells, needs, tensors, hidden = _inputs_of(op, args)
    if not needs and not hidden:
        return None
    ys = [r._a for r in results] if op.multiple else (first,)
    conj = any(y.dtype.kind == "c" for y in ys)
    count = len(inputs)
    pattern = count if op.variadic else (1 << count | needs) << count | tensors
    key = pattern << 1 | conj if not op.variadic else ~(pattern << 1 | conj)
    plan = op.plans.get(key) or op.plan_for(needs, tensors, count, conj)
    kept = plan.pack(arrays, ys, cells, [r._vc for r in results]) if plan.slots else ((), None)
    now = MODES.now
    node = new_node(plan, tuple(inputs), kept, attrs, first, now, getframe(1).f_back)
    if now.mode is SPECIAL:
        _special(node)
    if not op.multiple:
        results[0]._node = node
        return node
    node.shape = tuple([y.shape for y in ys])
    node.dtype = tuple([y.dtype for y in ys])
    node.outs = outs = {}
    # An unused result gets its place in the graph when backward requests it.
    for k, y in enumerate(ys if shown is None else ys[:shown]):
        if y.dtype.kind in "fcV" and k not in op.constant_outputs:
            results[k]._node = place = Output(node, k, y.shape, y.dtype)
            outs[k] = ref(place)
    return node


def _inputs_of(op: Op, args: Any) -> tuple[list[Any], list[Any], int, int, bool]:
    """The edges of a call and its inputs' version cells; as bits, which inputs need a gradient and
    which are tensors; whether one needs a gradient only as long as its base does."""
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
            if edge is NOWHERE and not x.requires_grad:
                edge = None
            tensors |= bit
            cells.append(cell)
            if edge is None:
                # A number wrapped in a tensor is held: it costs nothing, and a replay needs it.
                inputs.append(ref(x) if x._a.ndim else x)
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
    return inputs, cells, needs, tensors, hidden


def _special(node: OpNode) -> None:
    if MODES.now.anomaly:
        note_origin(node, errors.user_frame(getframe(2)))
    if MODES.now.saved_hooks and node.saved:
        pack_values(node, *MODES.now.saved_hooks[-1])


def _apply_dual(op: Op, args: Any, attrs: dict[str, Any], level: int) -> Any:
    tangents = [(tangents_of(x) or {}).get(level) for x in args]
    primals = tuple(without_tangent(x, level) for x in args)
    out = apply(op, primals, attrs)
    outs = out if op.multiple else (out,)
    for result in outs:
        if result._base is not None and result._base is primals[0]:
            result._base = args[0]  # a view of the dual tensor, not of its stripped copy
    moved = jvp(op, primals, tangents, outs, attrs, level)
    for result, tangent in zip(outs, moved, strict=True):
        if tangent is not None and result._a.dtype.kind in "fcV":
            set_tangent(result, level, tangent)
    if MODES.now.grad:
        keep_tangents(op, args, outs)
    return out
