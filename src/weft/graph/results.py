"""The results of a block: the tensors that the program can still reach when it has ended."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from types import MethodType, NoneType
from typing import Any

from numpy import ndarray

from weft.core.node import AccumulateGrad, OpNode, Output
from weft.core.tensor import Tensor, wrap
from weft.graph.frames import locals_of

Weak = weakref.ref  # of a tensor
_PLAIN = frozenset((OpNode, AccumulateGrad, ndarray, int, float, str, bool, NoneType, Weak))
_MOST = 100  # longer lists of a program are not looked through


def held_outside(
    tensors: Iterable[Any], nodes: Iterable[Any], leaves: Iterable[Tensor] = ()
) -> set[int]:
    """The tensors (given as weak references) that the program, not only weft, references, by their
    id.

    A view holds the tensor whose memory it shows, autograd's nodes hold some of what they read,
    and a parameter holds its gradient: a tensor that has no other holder is not a result of the
    program's.
    """
    alive = {id(t()): t for t in tensors if t() is not None}
    # No name here may hold a tensor: it would be counted.
    # The garbage collector may take one away meanwhile.
    inner = Counter(id(getattr(t(), "_base", None)) for t in alive.values())
    inner.update(id(leaf._grad) for leaf in leaves if leaf._grad is not None)
    for node in nodes:
        inner.update(_held_by(node))
    held = (k for k, t in alive.items() if _holders(t) > inner[k] + _UNHELD)
    return {k for k in held if alive[k]() is not None}


def _holders(tensor: Any) -> int:
    return sys.getrefcount(tensor())


def _count_of_one() -> int:
    probe = wrap(None)  # type: ignore[arg-type]
    return _holders(Weak(probe))


_UNHELD = _count_of_one() - 1  # the reference count of a tensor without other references


def _held_by(node: Any) -> Iterator[int]:
    """The ids of tensors that a node holds, once for each time that it does."""
    if isinstance(node, Output):
        node = node.node
    stack = [getattr(node, name, ()) for name in ("inputs", "saved", "attrs")]
    seen = set()
    while stack:
        held = stack.pop()
        if held.__class__ in _PLAIN:
            continue
        if isinstance(held, Tensor):
            yield id(held)
        elif _is_inner(held) and id(held) not in seen:
            seen.add(id(held))
            stack += gc.get_referents(held)


def _is_inner(held: Any) -> bool:
    """Whether a thing that a node holds is a mere container, or one of weft's own."""
    kind = type(held)
    if kind in (tuple, list, dict, MethodType):
        return True
    return kind.__module__.startswith(("weft.autograd.function", "weft.utils.checkpoint")) or (
        kind.__name__ == "Packed"
    )


def variables(frame: Any) -> dict[int, Any]:
    """Weak references to the tensors that a function's variables hold, by their id."""
    found = {}
    for value in list(locals_of(frame).values()):  # other threads may add to them
        inside: Any = (value,)
        if value.__class__ in (list, tuple) and len(value) < _MOST:
            inside = value
        elif value.__class__ is dict and len(value) < _MOST:
            inside = list(value.values())
        for x in inside:
            if isinstance(x, Tensor):
                found[id(x)] = Weak(x)
    return found


def new_since(before: dict[int, Any], frame: Any) -> set[int]:
    """The ids of tensors that a function's variables hold now, and did not hold before."""
    return {
        id for id, t in variables(frame).items() if id not in before or before[id]() is not t()
    }  # fmt: skip
