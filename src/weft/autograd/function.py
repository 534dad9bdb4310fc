"""User-written functions with their own derivative: ``autograd.Function``.

A use of a Function is a node of the one graph, with a plan of its own, so that the engine, hooks,
anomaly mode and double backward treat it as they treat any op.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.autograd.batched import call_batched
from weft.autograd.engine import as_tensor, changeable
from weft.core import errors
from weft.core.batching import highest
from weft.core.devices import bare, zeros_like
from weft.core.dispatch import edge_of
from weft.core.dual import set_tangent, tangents_of, without_tangent
from weft.core.inplace import bump, check_writable, set_history
from weft.core.meta import filled, lacks_values
from weft.core.modes import MODES, no_grad
from weft.core.node import FREED, GraphNode, OpNode, next_sequence, note_origin, output_of
from weft.core.saved import Packed, SavedTensor, check_hooks, handle, pack_by, unpack_by
from weft.core.tensor import Tensor, wrap
from weft.core.viewing import IN_FUNCTION, OF_SEVERAL


class FunctionCtx:
    """The context that forward passes to backward: saved tensors, marks, and any attribute."""

    def __init__(self) -> None:
        self.to_save: tuple[Any, ...] = ()
        self.saved_for_forward: tuple[Any, ...] | None = None
        self.dirty_tensors: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()
        self.materialize_grads = True
        self.needs_input_grad: tuple[bool, ...] = ()
        self._place: Callable[[], FunctionNode | None] | None = None  # once it is recorded
        self._left: tuple[Any, ...] = ()  # what its node leaves when it goes first
        self._in_jvp = False
        self._materialize_non_diff_grads = True
        self._dirty: tuple[Any, ...] = ()  # what was marked in forward, until jvp has run
        self._marked: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward, guarded against later in-place changes."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for ``jvp``."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Declare which inputs forward changed in place."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Declare which outputs are not differentiable."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether outputs that got no gradient are given as zeros (True) or as None."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors saved by ``save_for_backward`` (in ``jvp``: by ``save_for_forward``)."""
        if self._in_jvp or self.saved_for_forward is not None:
            return self.saved_for_forward or ()
        node, saved = self._kept()
        found = tuple(None if s is None else s.unpack(node) for s in saved)
        if found and node is not None and type(node)._forward_cls.clear_saved_tensors_on_access:
            node.saved = FREED
        return found

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of ``saved_tensors``."""
        warnings.warn(
            "'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2
        )
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor, ...]:
        return tuple(handle(_no_hooks if s is None else s.set_hooks) for s in self._kept()[1])

    def _kept(self) -> tuple[FunctionNode | None, Any]:
        """The node, while it lives, and what it keeps of the tensors that were saved."""
        if self._place is None:
            return None, ()
        node = self._place()
        saved = self._left if node is None else node.saved
        if saved is FREED:
            which = "its node" if node is None else f"{node.name()}, recorded at {node.source},"
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved "
                f"tensors after they have already been freed): {which} has given them up. Specify "
                "retain_graph=True if you need to backward through the graph a second time or if "
                "you need to access saved tensors after calling backward."
            )
        return node, saved[0] if saved else ()

    def __getattr__(self, name: str) -> Any:
        if name in ("name", "next_functions", "metadata", "register_hook", "register_prehook"):
            place = self.__dict__.get("_place")
            node = None if place is None else place()
            if node is not None:
                return getattr(node, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _no_hooks(pack: Any, unpack: Any) -> None:
    check_hooks(None, pack, unpack)


class SavedVariable:
    """One tensor kept for backward by a node that users wrote, or by no node at all."""

    __slots__ = ("cell", "edge", "index", "tangents", "tensor", "unpack_hook", "version")

    def __init__(self, tensor: Tensor, node: FunctionNode | None) -> None:
        edge = edge_of(tensor)
        self.index: int | None = None
        if node is not None and (edge is node or getattr(edge, "node", None) is node):
            # Keeping one's own output would be a cycle: keep its values and its number.
            self.index = getattr(edge, "index", 0)
            own, tensor, edge = tensor, tensor.detach(), None
            self.tangents = tangents_of(own)
        else:
            self.tangents = None
        self.edge = edge
        self.cell, self.version = tensor._vc, tensor._vc[0]
        self.tensor: Any = tensor
        self.unpack_hook: Callable | None = None
        if MODES.now.saved_hooks:
            pack, self.unpack_hook = MODES.now.saved_hooks[-1]
            self.tensor = pack_by(pack, tensor)

    def set_hooks(self, pack: Any, unpack: Any) -> None:
        """Pass the tensor to hooks."""
        held = self.tensor if self.unpack_hook is None else Packed(self.tensor, self.unpack_hook)
        check_hooks(held, pack, unpack)
        self.tensor, self.unpack_hook = pack_by(pack, self.tensor), unpack

    def is_overwritten(self) -> bool:
        """Whether the memory was changed since; what hooks hold is theirs to look after."""
        return self.unpack_hook is None and self.cell[0] != self.version

    def unpack(self, node: FunctionNode | None) -> Tensor:
        """The tensor, in its place in the graph; an error if it was overwritten.

        An input is given back as it is now: it may have been detached since.
        """
        tensor = self.tensor
        cell = self.cell
        if self.unpack_hook is not None:
            tensor = unpack_by(self.unpack_hook, tensor)
            cell = tensor._vc
        elif self.is_overwritten():
            raise _overwritten(self, node)
        place = self.edge
        if self.index is not None and node is not None:
            place = output_of(node, self.index) if node.op.multiple else node
        kept = self.index is None and self.unpack_hook is None
        if tensor._node is not place and not kept:
            tensor = wrap(tensor._a, place)
            tensor._vc = cell
        for level, tangent in (self.tangents or {}).items():
            set_tangent(tensor, level, tangent)
        return tensor


def _overwritten(saved: SavedVariable, node: FunctionNode | None) -> RuntimeError:
    last = saved.cell[-1] if len(saved.cell) > 1 else None
    by, where = ("a Function", "<unknown line>") if node is None else (node.name(), node.source)
    who = "" if last is None else f" by {last[1]}_ at {errors.describe_position(last[2], last[3])}"
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: a tensor of shape {list(saved.tensor.shape)} that {by} saved at "
        f"{where} is at version {saved.cell[0]}; expected version {saved.version} instead. "
        f"It was changed{who}. Use the out-of-place form there, or clone() it before."
    )


class FunctionNode(OpNode):
    """A use of a Function; attributes of its ctx can be read on it."""

    _forward_cls: type[Function]

    def __del__(self) -> None:
        # Somebody may have kept the ctx, and may ask it for what was saved.
        self.attrs["ctx"]._left = self.saved

    @property
    def next_functions(self) -> tuple[tuple[GraphNode | None, int], ...]:
        """The nodes that gradients go to, one for each tensor argument."""
        edges = super().next_functions
        return tuple(e for e, x in zip(edges, self.inputs, strict=True) if x is not NO_TENSOR)

    def apply(self, *grads: Any) -> Any:
        """Call the Function's backward with gradients of its outputs."""
        cls, ctx = type(self)._forward_cls, self.attrs["ctx"]
        return (
            cls._backward()(ctx, list(grads))
            if cls.boxed_grads_call
            else cls._backward()(ctx, *grads)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.attrs["ctx"], name)


BackwardCFunction = FunctionNode  # PyTorch's name

# Stands in a node's inputs for an argument that is not a tensor.
NO_TENSOR = None


class _FunctionOp:
    """The engine's interface to an op, implemented for a Function."""

    rules = jvp = variant = promote = None
    ties = False
    takes_none = True  # filling in for missing gradients is the Function's choice
    joint, diagonal, view, variadic, differentiable = True, False, False, False, True
    names: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()
    constant_outputs: frozenset[int] = frozenset()

    def __init__(self, cls: type[Function], outputs: int | None) -> None:
        self.name = cls.__name__
        self.node_types = [cls._node_type] * 3
        self.multiple = outputs is not None

    def __repr__(self) -> str:
        return f"<autograd.Function {self.name}>"


class _FunctionPlan:
    """How the engine calls a Function's backward."""

    joint, simple, single, vjp_single, pack, large = True, False, -1, None, None, None
    takes_none, widens = True, False
    slots = ("saved",)

    def __init__(self, cls: type[Function], inputs: int, outputs: int | None, holds: bool) -> None:
        self.op = _FunctionOp(cls, outputs)
        self.holds = holds
        self.targets = range(inputs)
        self.cls = cls

    def vjp(self, g: Any, saved: Any, at: dict[str, Any], needs: tuple[bool, ...]) -> list[Any]:
        """Call backward, and check and pass on what it returns."""
        ctx = at["ctx"]
        given = g if isinstance(g, tuple) else (g,)
        grads = [as_tensor(changeable(x)) for x in given]
        if ctx.materialize_grads:
            for k, (x, kind) in enumerate(zip(grads, ctx._kinds, strict=True)):
                if x is None and kind is not None and k not in ctx._unfilled:
                    grads[k] = wrap(filled(np.zeros, *kind))
        node = ctx._place()
        # Gradients that came as tensors go on as tensors.
        keeps = MODES.now.grad or any(isinstance(x, Tensor) for x in given)
        del given, g
        if self.cls.boxed_grads_call:
            results = self.cls._backward()(ctx, grads)
        else:
            results = self.cls._backward()(ctx, *grads)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        _check_gradients(node, results)
        del grads
        for i, r in enumerate(results):
            if r is not None and not keeps and not lacks_values(r):
                results[i] = bare(r)
        r = None
        return results


def _check_gradients(node: FunctionNode, results: list[Any]) -> None:
    name, inputs = node.name(), node.inputs
    if len(results) > len(inputs) and all(r is None for r in results[len(inputs) :]):
        del results[len(inputs) :]
    if len(results) != len(inputs):
        raise RuntimeError(
            f"function {name} returned an incorrect number of gradients (expected {len(inputs)}, "
            f"got {len(results)})\n  recorded at {node.source}"
        )
    for i, (r, edge) in enumerate(zip(results, inputs, strict=True)):
        if r is None:
            continue
        if edge is NO_TENSOR:
            raise RuntimeError(
                f"function {name} returned a gradient different than None at position {i + 1}, "
                "but the corresponding forward input was not a Variable\n"
                f"  recorded at {node.source}"
            )
        if not isinstance(r, Tensor):
            raise RuntimeError(
                f"function {name} returned a {type(r).__name__} at position {i + 1}: gradients "
                f"are tensors or None\n  recorded at {node.source}"
            )
        wanted = edge.shape if isinstance(edge, GraphNode) else None
        if wanted is not None and r._a.shape != wanted and not _sums_to(r._a.shape, wanted):
            raise RuntimeError(
                f"Function {name} returned an invalid gradient at index {i} - got "
                f"{list(r.shape)} but expected shape compatible with {list(wanted)}\n"
                f"  recorded at {node.source}"
            )


def _sums_to(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    lead = len(shape) - len(wanted)
    return lead >= 0 and all(n == m or m == 1 for n, m in zip(shape[lead:], wanted, strict=True))


class Function:
    """A differentiable function with forward and backward written by hand.

    Define ``forward(ctx, *args)``, or ``forward(*args)`` with
    ``setup_context(ctx, inputs, output)``; ``backward(ctx, *grads)`` with a gradient for each
    argument of forward; and ``jvp(ctx, *tangents)`` for forward mode. All are static methods; use
    it by ``apply``.

    >>> import weft
    >>> class Double(weft.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return grad * 2
    >>> x = weft.ones(2, requires_grad=True)
    >>> Double.apply(x).sum().backward()
    >>> x.grad
    tensor([2., 2.])
    """

    generate_vmap_rule = False
    # Whether the first look at ``ctx.saved_tensors`` frees them.
    clear_saved_tensors_on_access = False
    # Whether backward takes its gradients as one list, from which it can drop them one by one.
    boxed_grads_call = False
    _node_type: type[FunctionNode]
    _backward_cls: type[FunctionNode]
    _plans: dict[Any, _FunctionPlan]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all "
            "static, so you should invoke them on the class itself.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            f"new-style autograd function with static forward method: {type(self).__name__}.apply()"
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._plans = {}
        cls._backward_cls = cls._node_type = type(
            f"{cls.__name__}Backward",
            (FunctionNode,),
            {"__module__": "weft.graph", "_forward_cls": cls},
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save for backward the inputs and outputs of forward (without a ctx)."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of the inputs from those of the outputs."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangents of the outputs from those of the inputs."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """Forward on a whole batch: returns the outputs, and the batch dimension of each."""
        raise NotImplementedError("this Function has no vmap staticmethod")

    @classmethod
    def _backward(cls) -> Callable:
        own, other = cls.backward is not Function.backward, cls.vjp is not Function.vjp
        if own and other:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You "
                "should only implement one of them."
            )
        return cls.vjp if other else cls.backward

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward on the arguments and record it."""
        if cls is Function:
            raise RuntimeError("apply() of autograd.Function itself: make a subclass of it")
        if cls.setup_context is not Function.setup_context:
            bound = inspect.signature(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        if kwargs:
            raise TypeError(f"{cls.__name__}.apply() takes no keyword arguments")
        if MODES.now.batches and highest(args):
            return call_batched(cls, Function, args)
        if MODES.now.recorders:
            return MODES.now.recorders[0].calls(cls, args)
        out, ctx = _run(cls, args)
        ctx.saved_for_forward = None
        ctx._dirty = ctx._marked = ()
        return out


def _run(cls: type[Function], args: tuple[Any, ...]) -> tuple[Any, FunctionCtx]:
    if MODES.now.dual_level >= 0:
        levels = [max(found) for found in map(tangents_of, args) if found]
        if levels:
            return _run_dual(cls, args, max(levels))
    ctx = FunctionCtx()
    edges = [edge_of(x) if isinstance(x, Tensor) else None for x in args]
    ctx.needs_input_grad = tuple(e is not None for e in edges)
    recording = MODES.now.grad and any(ctx.needs_input_grad)
    out = _forward(cls, ctx, args)
    outs = out if isinstance(out, tuple) else (out,)
    for x in ctx.dirty_tensors:
        if not any(x is o for o in outs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as "
                "output. The inputs that are modified inplace must all be outputs of the "
                f"Function.\n  at {errors.here()}"
            )
    for x in ctx.dirty_tensors:
        if not any(x is a for a in args):
            warnings.warn(
                "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that "
                "have been mutated should be passed to ctx.mark_dirty().",
                stacklevel=3,
            )
    ctx.dirty_tensors = tuple(x for x in ctx.dirty_tensors if any(x is a for a in args))
    node = _node(cls, ctx, args, edges, out) if recording else None
    results = _placed(ctx, node, args, outs)
    if node is not None:
        _save(ctx, node)
        ctx._place = weakref.ref(node)
    if MODES.now.dual_level >= 0:
        ctx._dirty, ctx._marked = ctx.dirty_tensors, ctx.non_differentiable
    ctx.to_save = ctx.dirty_tensors = ctx.non_differentiable = ()
    return (results if isinstance(out, tuple) else results[0]), ctx


def _placed(
    ctx: FunctionCtx, node: FunctionNode | None, args: Any, outs: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The outputs of forward in their places in the graph.

    A new tensor that is returned twice stays one tensor, with the later place; an input that is
    returned twice becomes two.
    """
    placed: dict[int, Any] = {}
    results = []
    for k, o in enumerate(outs):
        again = placed.get(id(o))
        if node is None or again is None or again._node is None or ctx.dirty_tensors:
            again = placed[id(o)] = _place_output(ctx, node, args, o, k, outs)
        elif any(o is x for x in args):
            again = _place_output(ctx, node, args, o, k, outs)
        else:
            again._node = output_of(node, k)
        results.append(again)
    return tuple(results)


def _forward(cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...]) -> Any:
    now = MODES.now
    level, now.dual_level = now.dual_level, -1
    try:
        with no_grad():
            if cls.setup_context is Function.setup_context:
                return cls.forward(ctx, *args)
            out = cls.forward(*args)
            cls.setup_context(ctx, args, out)
            return out
    finally:
        now.dual_level = level
        now.update()


def _node(
    cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], edges: list[Any], out: Any
) -> FunctionNode:
    many = isinstance(out, tuple)
    outs = out if many else (out,)
    ctx._kinds = [(o._a.shape, o._a.dtype) if isinstance(o, Tensor) else None for o in outs]
    ctx._unfilled = frozenset()
    if not ctx._materialize_non_diff_grads:
        marked = ctx.non_differentiable
        ctx._unfilled = frozenset(k for k, o in enumerate(outs) if any(o is x for x in marked))
    key = (len(args), len(outs) if many else None, bool(ctx.to_save))
    plan = cls._plans.get(key)
    if plan is None:
        plan = cls._plans[key] = _FunctionPlan(cls, *key)
    inputs = tuple(
        (weakref.ref(x) if edge is None else edge) if isinstance(x, Tensor) else NO_TENSOR
        for x, edge in zip(args, edges, strict=True)
    )
    kinds = [kind or (None, None) for kind in ctx._kinds]
    shape, dtype = zip(*kinds, strict=True) if many and kinds else kinds[0] if kinds else ((), ())
    frame = errors.user_frame(sys._getframe(3))
    code, instruction = (None, 0) if frame is None else (frame.f_code, frame.f_lasti)
    node = cls._node_type(
        plan, inputs, (), None, {"ctx": ctx}, shape, dtype,  # type: ignore[arg-type]
        next_sequence(), code, instruction, MODES.now.scope,
    )  # fmt: skip
    if MODES.now.anomaly:
        note_origin(node, frame)
    return node


class _Settled:
    """The stamp of a view that a Function has marked as not differentiable, for good."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


_SETTLED: Any = _Settled()


def _place_output(
    ctx: FunctionCtx, node: FunctionNode | None, args: Any, out: Any, k: int, outs: Any
) -> Any:
    """Give one output of forward its place in the graph."""
    if not isinstance(out, Tensor):
        return out
    flows = node is not None and out._a.dtype.kind in "fcV"
    flows = flows and not any(out is x for x in ctx.non_differentiable)
    given = any(out is x for x in args)
    if any(out is x for x in ctx.dirty_tensors):
        return _place_dirty(out, node if flows else None, k, outs)
    if node is None or not flows:
        if given:
            return out.detach() if out._node is not None else _as_view(out)
        if out._base is None and out._node is not None:
            out._node = None
        elif node is not None:
            out._node, out._stamp = None, _SETTLED
        return out
    if given:
        out = _as_view(out)
    elif out._base is None and out._node is not None:
        out = out.detach()  # made with gradients on inside forward: that history ends here
    out._node = output_of(node, k) if node.op.multiple else node
    if out._base is not None:
        several = sum(isinstance(o, Tensor) for o in outs) > 1
        out._view = (*out._view[:5], OF_SEVERAL if several else IN_FUNCTION)
        out._stamp = out._vc[0]
    return out


def _as_view(x: Tensor) -> Tensor:
    with no_grad():
        seen = x.view_as(x)
    if x._node is None:
        seen._node = None
    return seen


def _place_dirty(out: Tensor, node: FunctionNode | None, k: int, outs: Any) -> Tensor:
    name = "Function" if node is None else type(node)._forward_cls.__name__
    if node is not None:
        check_writable(out, True, name)
        if out._base is not None and sum(isinstance(o, Tensor) for o in outs) > 1:
            raise RuntimeError(
                "If your Function modifies inplace an input that is a view of another Tensor, "
                "your Function cannot return more than one Tensor. Make the Function out of "
                f"place, or split it\n  at {errors.here()}"
            )
    bump(out, name)
    if node is not None:
        set_history(out, output_of(node, k) if node.op.multiple else node)
    return out


def _save(ctx: FunctionCtx, node: FunctionNode) -> None:
    saved = []
    for i, x in enumerate(ctx.to_save):
        if x is not None and not isinstance(x, Tensor):
            raise TypeError(
                "save_for_backward can only save variables, but argument "
                f"{i} is of type {type(x).__name__}; keep it as an attribute of ctx"
            )
        saved.append(None if x is None else SavedVariable(x, node))
    if saved:
        node.saved = (saved,)


def _run_dual(cls: type[Function], args: tuple[Any, ...], level: int) -> tuple[Any, FunctionCtx]:
    """Run on dual numbers: forward on the primals, ``jvp`` on the tangents of one level."""
    tangents = [(tangents_of(x) or {}).get(level) for x in args]
    primals = tuple(without_tangent(x, level) for x in args)
    # An input that forward changes must be the caller's own tensor, not an alias of it.
    owners = {id(p): x for p, x in zip(primals, args, strict=True) if isinstance(x, Tensor)}
    out, ctx = _run(cls, primals)
    dirty, marked = ctx._dirty, ctx._marked
    if ctx.materialize_grads:
        tangents = [
            wrap(zeros_like(x._a))
            if t is None and isinstance(x, Tensor) and x._a.dtype.kind in "fcV"
            else t
            for x, t in zip(primals, tangents, strict=True)
        ]
    versions = [None if t is None else t._version for t in tangents]
    ctx._in_jvp = True
    try:
        moved = cls.jvp(ctx, *tangents)
    finally:
        ctx._in_jvp = False
    if ctx.saved_for_forward is not None:
        # For the level around this one, these are values that have a tangent here.
        ctx.saved_for_forward = tuple(owners.get(id(x), x) for x in ctx.saved_for_forward)
    outs = out if isinstance(out, tuple) else (out,)
    moved = moved if isinstance(moved, tuple) else (moved,)
    if len(moved) != len(outs):
        raise RuntimeError(
            f"{cls.__name__}.jvp returned {len(moved)} tangents for {len(outs)} outputs\n"
            f"  at {errors.here()}"
        )
    results = []
    for o, t in zip(outs, moved, strict=True):
        carries = isinstance(o, Tensor) and o._a.dtype.kind in "fcV"
        carries = carries and not any(o is x for x in marked)
        if not carries and t is not None:
            raise RuntimeError(
                f"{cls.__name__}.jvp returned a tangent for an output that is not differentiable. "
                f"You should return None at that position instead\n  at {errors.here()}"
            )
        if carries and any(o is x for x in dirty):
            _check_changed(cls.__name__, o, t, primals, zip(tangents, versions, strict=True))
        elif carries and t is not None and o._base is not None:
            _check_view(cls.__name__, o, t, primals, tangents)
        if isinstance(o, Tensor) and id(o._base) in owners:
            o._base = owners[id(o._base)]
        owner = owners.get(id(o))
        if owner is not None and owner is not o:
            owner._node = o._node
            if owner._base is not None:
                owner._stamp = o._stamp
            o = owner
        if carries and t is not None:
            set_tangent(o, level, t)
        results.append(o)
    node = None if ctx._place is None else ctx._place()
    if node is not None and node.saved:
        _keep_tangents(node, owners, results, level)
    return (tuple(results) if isinstance(out, tuple) else results[0]), ctx


def _check_changed(name: str, out: Tensor, tangent: Any, primals: Any, before: Any) -> None:
    """An input that forward changed in place must have had its tangent changed in place."""
    for x, (given, version) in zip(primals, before, strict=True):
        if x is out and given is not None:
            if tangent is given and given._version != version:
                return
            raise RuntimeError(
                f"{name}: An inplace custom Function is not modifying the forward mode gradients "
                "inplace. If the forward is modifying an input inplace, then the jvp function must "
                f"modify the corresponding gradient inplace.\n  at {errors.here()}"
            )


def _check_view(name: str, out: Tensor, tangent: Tensor, primals: Any, tangents: Any) -> None:
    """The tangent of a view of an input must be a view of that input's tangent."""
    for x, given in zip(primals, tangents, strict=True):
        if not isinstance(x, Tensor) or given is None:
            continue
        if out._base is not x and (x._base is None or out._base is not x._base):
            continue
        wanted, of = given, "the given grad input"
        if given._base is not None:
            wanted, of = given._base, "the same base as the given grad input"
        if tangent._base is None:
            raise RuntimeError(
                f"{name}: A custom Function's forward is returning a view (or an input as-is) but "
                f"the jvp is not returning a view.\n  at {errors.here()}"
            )
        if tangent._base is not wanted:
            raise RuntimeError(
                f"{name}: A custom Function is returning a view but the jvp is not returning a "
                f"view of {of}.\n  at {errors.here()}"
            )
        return


def _keep_tangents(node: Any, owners: dict[int, Tensor], outs: list[Any], level: int) -> None:
    """Saved tensors keep their tangents, for forward mode over this node's backward."""
    for saved in node.saved[0]:
        if saved is None:
            continue
        source = owners.get(id(saved.tensor)) if saved.index is None else outs[saved.index]
        found = tangents_of(source)
        if found and level in found:
            saved.tangents = {**(saved.tangents or {}), level: found[level]}


def once_differentiable(function: Callable) -> Callable:
    """For a backward that can't itself be differentiated: differentiating it is an error."""

    @functools.wraps(function)
    def backward(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            results = function(ctx, *grads)
        if not MODES.now.grad:
            return results
        if not any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            return results
        many = isinstance(results, tuple)
        aliases = [
            r.detach().requires_grad_() if isinstance(r, Tensor) and r._a.dtype.kind in "fcV" else r
            for r in (results if many else (results,))
        ]
        marked = _Error.apply(*aliases)
        return marked if many else marked[0]

    return backward


class _Error(Function):
    @staticmethod
    def forward(ctx: Any, *values: Any) -> Any:
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


_Error._node_type.__name__ = "Error"  # what PyTorch calls it
_Error._node_type.next_functions = OpNode.next_functions  # type: ignore[method-assign]


class InplaceFunction(Function):
    """A Function with an ``inplace`` flag, kept for older code."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


__all__ = ["BackwardCFunction", "Function", "FunctionCtx", "InplaceFunction", "once_differentiable"]
