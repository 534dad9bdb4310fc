"""The invariants of every graph. Each rule checks one kind of node and returns what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core.dispatch import Op
from weft.core.symbols import Undecided
from weft.graph.draws import DRAWS, Draw
from weft.graph.gradient import ACCUMULATE, Gradient, kinds_of
from weft.graph.run import GraphError
from weft.graph.spec import (
    BACKWARD,
    FORWARD,
    LEAVES,
    OPTIMIZER,
    PARAMETER,
    Call,
    Ref,
    Spec,
    show_kind,
)
from weft.graph.steps import Step

if TYPE_CHECKING:
    from weft.graph.graph import Graph


def verify(graph: Graph) -> None:
    """Raise an error that names the first node that breaks a rule."""
    seen = _VerifiedNodes()
    for id, spec in graph._specs.items():
        for reason in chain(_reading(spec, seen), _rule(spec)(spec, seen)):
            raise GraphError(f"the node {graph._names()[id]!r} of the graph is invalid: {reason}")
        if spec.id != id:
            raise GraphError(f"the node {id} of the graph has the number {spec.id}")
        seen[id] = spec
    for reason in _ends(graph):
        raise GraphError(f"the graph is invalid: {reason}")


class _VerifiedNodes(dict[Any, Spec]):
    """The nodes so far, and what ops gave for the kinds and settings that they were given."""

    def __init__(self) -> None:
        super().__init__()
        self._inferred: dict[Any, tuple[Any, ...]] = {}

    def infer(self, op: Op, kinds: list[Any], attrs: dict[str, Any]) -> tuple[Any, ...]:
        """The same as the op's own answer; nodes that are alike are asked once."""
        try:
            key = (op, *map(_form, kinds), *map(_form, attrs), *map(_form, attrs.values()))
            found = self._inferred.get(key)
        except TypeError:  # a setting that can't be a key
            return tuple(op.infer(*kinds, **attrs))
        if found is None:
            found = self._inferred[key] = tuple(op.infer(*kinds, **attrs))
        return found


def _form(x: Any) -> Any:
    """A kind or a setting as part of a key, where ``1``, ``1.0`` and ``True`` are three."""
    kind = x.__class__
    if kind in _PLAIN or isinstance(x, np.dtype):
        return kind, x
    if kind is tuple or kind is list:
        return (kind, *map(_form, x))
    raise TypeError


_PLAIN = frozenset((int, float, bool, str, NoneType))


def _reading(spec: Spec, seen: _VerifiedNodes) -> Iterator[str]:
    for r in spec.refs():
        if r.node not in seen:
            yield f"it reads {r.node}, which does not come before it"
        elif not 0 <= r.index < len(seen[r.node].kinds()):
            yield f"it reads result {r.index} of {r.node}, which has {len(seen[r.node].kinds())}"


def _rule(spec: Spec) -> Callable[[Spec, _VerifiedNodes], Iterator[str]]:
    if spec.kind in LEAVES:
        return _leaf
    if isinstance(spec.op, Gradient):
        return _gradient
    if spec.op == ACCUMULATE and spec.kind == BACKWARD:
        return _accumulate
    if spec.kind == OPTIMIZER:
        return _step if isinstance(spec.op, Step) else _nothing
    if isinstance(spec.op, Draw):
        return _draw
    if isinstance(spec.op, Call):
        return _call
    return _op if spec.kind in (FORWARD, BACKWARD) else _unknown


def _nothing(spec: Spec, seen: _VerifiedNodes) -> Iterator[str]:
    return iter(())


def _unknown(spec: Spec, seen: _VerifiedNodes) -> Iterator[str]:
    yield f"its kind {spec.kind!r} is unknown"


def _leaf(spec: Spec, seen: _VerifiedNodes) -> Iterator[str]:
    if spec.op != spec.kind or spec.args:
        yield "a leaf runs nothing and reads nothing"
    tensor = None if spec.leaf is None else spec.leaf.tensor
    if tensor is not None and spec.shape is not None and tensor._a.shape != spec.shape:
        yield f"it is {show_kind(spec.shape, spec.dtype)} and holds {list(tensor._a.shape)}"
    if "grad_of" in spec.attrs:
        owner = seen.get(spec.attrs["grad_of"])
        if owner is None or owner.leaf is None or owner.shape != spec.shape:
            yield "it is the gradient of no leaf"


def _call(spec: Spec, seen: _VerifiedNodes) -> Iterator[str]:
    if "outs" in spec.attrs and (spec.forward not in seen or len(spec.args) < 1):
        yield "a hook acts on the gradient of a node"


def _op(spec: Spec, seen: _VerifiedNodes) -> Iterator[str]:
    op = spec.op
    if not isinstance(op, Op):
        yield f"{op!r} is not an op"
        return
    if spec.several != op.multiple:
        yield f"{op.name} does not give {len(spec.kinds())} results"
        return
    kinds = [_kind(x, seen) for x in spec.args]
    if op.shape is None or any(k.__class__ is tuple and k[0] is None for k in kinds):
        return
    try:
        found = seen.infer(op, kinds, spec.attrs)
    except Undecided:
        return
    except NotImplementedError:
        return
    except Exception as error:
        yield f"{op.name} does not take what it reads: {error}"
        return
    if found != spec.kinds():
        got = ", ".join(show_kind(*k) for k in found)
        yield f"{op.name} gives {got} here, not {', '.join(show_kind(*k) for k in spec.kinds())}"


def _kind(x: Any, seen: _VerifiedNodes) -> Any:
    return seen[x.node].kind_of(x.index) if x.__class__ is Ref else x


def _draw(spec: Spec, seen: _VerifiedNodes) -> Iterator[str]:
    if spec.op.name not in DRAWS or spec.several:
        yield f"{spec.op.name} is not a random draw"


def _gradient(spec: Spec, seen: _VerifiedNodes) -> Iterator[str]:
    outs, forward = spec.attrs.get("outs"), seen.get(spec.forward)  # type: ignore[arg-type]
    if forward is None or forward.op is not spec.op.op:
        yield "it is the backward of no node before it"
        return
    if not isinstance(outs, tuple) or not outs or len(outs) > len(spec.args):
        yield f"the gradients {outs} do not reach it"
        return
    if not all(type(k) is int and 0 <= k < len(forward.kinds()) for k in outs):
        yield f"its node has no results {outs}"
        return
    if spec.args[len(outs) :] != tuple(spec.op.saved(forward)):
        yield "it does not read what its node left for it"
    yield from _terms(spec, [Ref(forward.id, k) for k in outs], seen)
    for i in spec.op.targets:
        if i >= len(forward.args) or forward.args[i].__class__ is not Ref:
            yield f"input {i} of its node has no gradient"
            return
    if (spec.shape, spec.dtype) != kinds_of(spec.op, forward, outs, seen):
        yield "its results are not like the inputs of its node"


def _terms(spec: Spec, of: list[Ref], seen: _VerifiedNodes) -> Iterator[str]:
    """A gradient has the shape and dtype of what it is the gradient of."""
    for g, value in zip(spec.args, of, strict=False):
        wanted = seen[value.node].kind_of(value.index)
        if g.__class__ is Ref:
            found = seen[g.node].kind_of(g.index)
        elif isinstance(g, float):
            continue
        else:
            found = (getattr(g, "shape", None), getattr(g, "dtype", None))
        if found != wanted and None not in (wanted[0], found[0]):
            yield f"a gradient of {show_kind(*wanted)} can't be {show_kind(*found)}"


def _accumulate(spec: Spec, seen: _VerifiedNodes) -> Iterator[str]:
    of, index = spec.attrs.get("of"), spec.attrs.get("index")
    if (
        type(of) is not int
        or of not in seen
        or type(index) is not int
        or not 0 <= index < len(seen[of].kinds())
    ):
        yield f"it is the gradient of {of}"
        return
    if spec.several or (spec.shape, spec.dtype) != seen[of].kind_of(index):
        yield "it is not like what it is the gradient of"
    yield from _terms(spec, [Ref(of, index)] * len(spec.args), seen)


def _step(spec: Spec, seen: _VerifiedNodes) -> Iterator[str]:
    if len(spec.args) != len(spec.kinds()) + 1 or not spec.several:
        yield "it gives what it reads, but for the gradient"
        return
    if not all(x.__class__ is Ref for x in spec.args) or spec.forward not in seen:
        yield "it updates no parameter"
        return
    read = [_kind(x, seen) for k, x in enumerate(spec.args) if k != 1]
    if tuple(read) != spec.kinds():
        yield "what it gives is not like what it reads"
    if _kind(spec.args[1], seen)[0] != read[0][0]:
        yield "its gradient has another shape than its parameter"


def _ends(graph: Graph) -> Iterator[str]:
    specs = graph._specs
    roots = [r for p in graph._passes for r, _ in p.roots]
    grads = graph._gradients
    for r in (*graph._outputs, *roots, *graph._updates.values(), *grads.values()):
        if r is not None and (r.node not in specs or not 0 <= r.index < len(specs[r.node].kinds())):
            yield f"it has no value {tuple(r)}"
    for leaf in (*graph._updates, *grads):
        if leaf not in specs or specs[leaf].leaf is None:
            yield f"{leaf} is updated and is not a leaf"
    for leaf, r in graph._updates.items():
        if specs[leaf].kind == PARAMETER or "state" in specs[leaf].attrs:
            if specs[r.node].kind_of(r.index)[0] != specs[leaf].shape:
                yield f"the update of {graph._names()[leaf]!r} has another shape"
