"""The values of a program in single-assignment form.

A tensor's value is known by its array (tensors that share an array share the value) and by the
writes to its memory so far. A write to a part makes a new value of the whole; other views of that
memory are derived again from it when they are read next. So a record has no in-place ops left.
"""

from __future__ import annotations

import sys
import weakref
from functools import cache
from typing import Any

from weft.core.devices import copy_of
from weft.core.dispatch import REGISTRY
from weft.core.frames import caller
from weft.core.inference import entry, version_of
from weft.core.modes import MODES
from weft.core.node import NOWHERE, AccumulateGrad, GraphNode
from weft.core.tensor import Parameter, Tensor, wrap
from weft.core.viewing import chain_of
from weft.graph.frames import callers
from weft.graph.gradient import flows_through
from weft.graph.naming import Models, class_of_scope, name_of
from weft.graph.spec import (
    CONSTANT,
    DETACH,
    FORWARD,
    INPUT,
    PARAMETER,
    VARIABLE,
    Call,
    Leaf,
    Ref,
    Spec,
    pair_ref,
)

getframe, ref = sys._getframe, weakref.ref


# Packages whose functions read numbers only internally, for a shape, a slice, an error.
DECIDING = ("weft.operators.", "weft.nn.")


class MemoryState:
    """A piece of memory: the value it has now as a whole, and how often it was written."""

    __slots__ = ("cell", "count", "kept", "leaf", "loose", "value", "version")

    def __init__(self, value: Ref, tensor: Tensor, leaf: int | None = None) -> None:
        self.value = value
        self.version = 0
        self.leaf = leaf
        cell = self.cell = tensor._vc
        self.count = entry(cell, 0)
        self.kept: list[Ref] = []
        self.loose = False  # whether no tensor has the array yet, which a draw just made

    def written_unseen(self) -> bool:
        last = entry(self.cell, -1)
        return last.__class__ is tuple and last[0] > self.count


class ArrayState:
    """One array on a piece of memory: the views that lead to it, and its value."""

    __slots__ = ("array", "chain", "cut", "cut_at", "node", "root", "tensors", "value", "version")

    def __init__(self, t: Tensor, root: MemoryState, chain: tuple[Any, ...], value: Ref) -> None:
        self.array = ref(t._a)
        self.root = root
        self.chain = chain
        self.value = value
        self.tensors = [ref(t)]  # who has the array, the last one seen at the end
        self.version = root.version
        self.node: Any = None  # a weak reference to the node that autograd gave the value
        self.cut: Ref | None = None  # the value without its gradient
        self.cut_at: Any = None  # where the program cut it off: code, instruction, module

    def meet(self, t: Tensor) -> None:
        """Note that a tensor has this array."""
        if self.tensors[-1]() is not t:
            others = [r for r in self.tensors if r() is not None and r() is not t]
            self.tensors = [*others, ref(t)]


class Values:
    """Tracks the value of every tensor of a program, and all writes."""

    def __init__(self, home: Any) -> None:
        self.home = home
        self.specs: list[Spec] = []
        self.places: dict[int, ArrayState] = {}
        self.nodes: dict[int, tuple[Any, Ref]] = {}
        self.kept: dict[int, tuple[Any, ...]] = {}
        self.updates: dict[int, Ref] = {}
        self.modules: dict[str, str] = {}
        self.models = Models()
        self.implied: set[int] = set()  # nodes that stand for no op of the program
        self.leaves: list[int] = []  # those that want a gradient
        self.flows: set[Ref] = set()  # values that a gradient can reach
        self.at: dict[Ref, Any] = {}  # weak references to autograd's nodes, by the value
        self.values = False  # whether values are kept
        self.cells: dict[int, Any] = {}  # version cells of tensors that were made in the block
        self.numbers: list[tuple[Any, Ref | None, Any, int]] = []  # what Python has read, and where

    # --- nodes -------------------------------------------------------------------------

    def _add(
        self, kind: str, op: Any, args: Any, attrs: dict[str, Any], shape: Any, dtype: Any
    ) -> Spec:
        here = self._whereabouts(getframe(2))
        return self._add_at(here, kind, op, args, attrs, shape, dtype)

    def _whereabouts(self, frame: Any) -> tuple[Any, int, str, bool, tuple[Any, ...]]:
        """Where the program stands: code, instruction, module, whether it records, callers."""
        now = MODES.now
        scope = now.scope
        if scope and scope not in self.modules:
            class_of_scope(frame, scope, self.modules)
            self.models.meet(scope, frame, self.home)
        frame = caller(frame)
        return frame.f_code, frame.f_lasti, scope, now.grad, callers(frame)

    def _add_at(
        self, here: Any, kind: str, op: Any, args: Any, attrs: dict[str, Any], shape: Any,
        dtype: Any,
    ) -> Spec:  # fmt: skip
        code, instruction, scope, grad, stack = here
        spec = Spec(
            len(self.specs), kind, op, args, attrs, shape, dtype,
            code, instruction, scope, None, None, "", grad,
        )  # fmt: skip
        spec.stack = stack
        self._append(spec)
        return spec

    def _add_leaf(self, kind: str, t: Tensor, attrs: dict[str, Any], scope: str, label: str) -> int:
        """A node for a tensor that no op of the block made; its number."""
        array, number = t._a, len(self.specs)
        spec = Spec(
            number, kind, kind, (), attrs, array.shape, array.dtype, None, 0, scope, None,
            Leaf(t), label,
        )  # fmt: skip
        self._append(spec)
        value = pair_ref((number, 0))
        self._put(t, MemoryState(value, t, number), (), value)
        return number

    def _append(self, spec: Spec) -> None:
        self.specs.append(spec)
        if spec.leaf is None or spec.leaf.grad:
            self.flows.update(flows_through(spec, self.flows))

    def _leaf(self, t: Tensor) -> ArrayState:
        """A tensor that was not made in this block."""
        label, known, t = name_of(t, getframe(2), self.home)
        wants = isinstance(t._node, AccumulateGrad)
        kind = INPUT if known == "variable" else CONSTANT
        if isinstance(t, Parameter) or wants:
            kind = PARAMETER
        mine = known == "module"
        scope = label.rpartition(".")[0] if mine else ""
        number = self._add_leaf(kind, t, {"state": True} if mine else {}, scope, label)
        if wants:
            self.leaves.append(number)
        place = self.places[id(t._a)]
        if t._node is not None:
            self._meet(t._node, place)
        return place

    def _name_models(self) -> None:
        """Write paths as people do: with a model's name only if there are several models."""
        for scope in dict.fromkeys([spec.scope for spec in self.specs]):
            self.models.meet(scope, self.home)
        shown = cache(self.models.shown)
        for spec in self.specs:
            spec.scope, spec.label = shown(spec.scope), shown(spec.label)
        self.modules = {path: kind for k, kind in self.modules.items() if (path := shown(k))}

    def _put(self, t: Tensor, root: MemoryState, chain: tuple[Any, ...], value: Ref) -> ArrayState:
        place = self.places[id(t._a)] = ArrayState(t, root, chain, value)
        return place

    def _held(self, array: Any) -> ArrayState | None:
        """The place of an array, if it was seen; an id may have been another array's."""
        place = self.places.get(id(array))
        return place if place is not None and place.array() is array else None

    def _meet(self, node: GraphNode, place: ArrayState) -> None:
        """Remember which value autograd's node stands for."""
        place.node = ref(node)
        if node is not NOWHERE:
            self.nodes[id(node)] = (place.node, place.value)
            self.at[place.value] = place.node

    def _of_node(self, node: Any) -> Ref | None:
        held = self.nodes.get(id(node))
        return held[1] if held is not None and held[0]() is node else None

    # --- values ------------------------------------------------------------------------

    def ref(self, t: Tensor) -> Ref:
        """The value that a tensor has now, as autograd sees it."""
        place = self._place(t)
        node = t._node
        if node is None:
            # A write to another view may have given the value a history that no node was met of.
            has_history = place.node is not None or place.value in self.flows
            if not has_history or not MODES.now.grad:
                return place.value
            if place.cut is None:
                place.cut = self._derived(DETACH, place.value, t)
                if place.cut_at is not None:
                    spec = self.specs[place.cut.node]
                    spec.code, spec.instruction, spec.scope = place.cut_at
            return place.cut
        known = self._of_node(node)
        is_leaf = isinstance(node, AccumulateGrad) and node is not NOWHERE
        if known is not None:
            if place.node is None or place.node() is not node:
                return known
            if is_leaf and MODES.now.grad and place.value not in self.flows:
                # It was written to without a history: the pass that follows leads to the new value.
                place.value = self._derived(VARIABLE, place.value, t)
                self._meet(node, place)
            return place.value
        if is_leaf:
            # Some value that the program declared a leaf of its own.
            value = self._derived(VARIABLE, place.value, t)
            self.nodes[id(node)] = (ref(node), value)
            self.at[value] = ref(node)
            return value
        self._meet(node, place)
        return place.value

    def detached(self, tensor: Tensor) -> None:
        """Note the line; the value without its gradient is made when it is read."""
        place = self._held(tensor._a)
        if place is not None:
            frame = caller(getframe(1))
            place.cut_at = frame.f_code, frame.f_lasti, MODES.now.scope

    def born(self, cell: list[Any]) -> None:
        """Note a tensor of the block's own."""
        self.cells[id(cell)] = cell

    def asked(self, tensor: Tensor) -> None:
        """Note the line, and the value if it is known: one that is met later is a leaf."""
        reader: Any = getframe(1)
        while reader.f_globals.get("__name__") == Tensor.__module__:
            reader = reader.f_back
        if reader.f_globals.get("__name__", "").startswith(DECIDING):
            self.takes(tensor)
        place = self._held(tensor._a)
        value = None if place is None else self._update(place)
        frame = caller(reader)
        self.numbers.append((ref(tensor._a), value, frame.f_code, frame.f_lasti))

    def _derived(self, call: Call, value: Ref, t: Tensor) -> Ref:
        return Ref(self._add(FORWARD, call, (value,), {}, t._a.shape, t._a.dtype).id)

    def _place(self, t: Tensor) -> ArrayState:
        array = t._a
        place = self._held(array) or self._find(t)
        place.meet(t)
        root = place.root
        if root.loose:
            root.cell, root.count, root.loose = t._vc, version_of(t), False
        if root.written_unseen():
            # Not by an op that weft knows: from here on the value is what it is.
            place = self._leaf(wrap(copy_of(array)))
            self.places[id(array)] = place
            place.array, place.root.cell, place.root.count = ref(array), t._vc, version_of(t)
        else:
            self._update(place)
        return place

    def _update(self, place: ArrayState) -> Ref:
        """The value of a place, derived again if its memory was written to since."""
        root = place.root
        if place.version != root.version:
            place.value = self._follow(root, place.chain)
            place.version, place.cut = root.version, None
        return place.value

    def _find(self, t: Tensor) -> ArrayState:
        """A place for an array that was not seen before."""
        value = self._of_node(t._node) if t._node is not None else None
        if value is not None:
            # A copy or an alias that stands in for a tensor of the program.
            place = self._put(t, MemoryState(value, t), (), value)
            place.node = ref(t._node)
            return place
        base = t._base
        if base is not None:
            if self._held(base._a) is not None:
                whole = self._place(base)
                chain = (*whole.chain, *links_of(chain_of(t)))
                made = self._put(t, whole.root, chain, whole.root.value)
                made.version = -1  # derived when it is read
                return made
        return self._leaf(t)

    def _follow(self, root: MemoryState, chain: tuple[Any, ...]) -> Ref:
        """The value of a view, from that of the whole."""
        value = root.value
        for op, rest, attrs, k in chain:
            kinds = op.infer(self.specs[value.node].kind_of(value.index), *rest, **attrs)
            shape, dtype = zip(*kinds, strict=True) if op.multiple else kinds[0]
            value = Ref(self._add(FORWARD, op, (value, *rest), attrs, shape, dtype).id, k)
        return value

    # --- writes --------------------------------------------------------------------------

    def _cast(self, value: Ref, target: Tensor) -> Ref:
        wanted = target._a.dtype
        shape, dtype = self.specs[value.node].kind_of(value.index)
        if dtype == wanted:
            return value
        attrs = {"dtype": wanted}
        return Ref(self._add(FORWARD, REGISTRY["to_copy"], (value,), attrs, shape, wanted).id)

    def _preserve(self, root: MemoryState) -> None:
        """Before memory is overwritten: keep the values that the record still answers for."""
        for value in root.kept:
            held = list(self.kept[value.node])
            old = held[value.index]
            held[value.index] = wrap(copy_of(old._a), old._node)
            self.kept[value.node] = tuple(held)
        root.kept = []
        if root.leaf is not None and root.version == 0:
            self._keep_leaf(root.leaf)
            spec = self.specs[root.leaf]
            if spec.kind != PARAMETER and "state" not in spec.attrs and spec.leaf is not None:
                own: Any = spec.leaf.tensor
                spec.leaf = Leaf(wrap(copy_of(own._a)))
                if id(own._vc) not in self.cells:
                    spec.leaf.live = own  # it outlives the step, which goes on from there

    def chosen(self) -> bool:
        """Whether the values of some nodes alone are kept."""
        return False

    def _keep_leaf(self, leaf: int) -> None:
        """Before a parameter or a buffer changes: the value that the block began with."""
        held = self.specs[leaf].leaf
        if self.values and not self.chosen() and leaf not in self.kept and held is not None:
            self.kept[leaf] = (wrap(copy_of(held.tensor._a)),)  # type: ignore[union-attr]

    def _written(self, place: ArrayState, value: Ref, target: Tensor) -> None:
        root = place.root
        if place.chain:
            spec = self.specs[root.value.node]
            shape, dtype = spec.kind_of(root.value.index)
            attrs = {"chain": as_view(place.chain)}
            op = REGISTRY["copy_slices"]
            whole = self._add(FORWARD, op, (root.value, value), attrs, shape, dtype)
            root.value = Ref(whole.id)
            self.implied.add(whole.id)
        else:
            root.value = value
        root.version += 1
        place.value, place.version, place.cut = value, root.version, None
        if root.leaf is not None:
            self.updates[root.leaf] = root.value


def links_of(view: Any) -> tuple[Any, ...]:
    """The steps of a view's history, oldest first."""
    found = []
    while view.__class__ is tuple:
        op, rest, attrs, k, view, _ = view
        found.append((op, rest, attrs, k))
    return tuple(reversed(found))


def as_view(chain: tuple[Any, ...]) -> Any:
    """The form in which a tensor remembers such steps."""
    view: Any = None
    for op, rest, attrs, k in chain:
        view = (op, rest, attrs, k, view, True)
    return view
