"""Which dimensions of a network's values and parameters share one width, read off its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.graph.graph import Graph
from weft.graph.spec import LEAVES, Ref, Spec

# Dimensions of parameters: read as one of many inputs (and summed over), or one of the results,
# or both, by two layers that share a weight.
CONSUMED, PRODUCED, TIED = "consumed", "produced", "tied"


class Channels:
    """Dimensions of the values of a graph, joined where an op keeps them together.

    A place is (node, result, dim). Its ``block`` says how many neighbouring elements stand for
    one unit, as after flattening an image. ``roles`` tells of parameters how an op reads them,
    ``fixed`` why a place can't have another width.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.parent: dict[Any, Any] = {}
        self.blocks: dict[Any, int] = {}  # of a place, in units of its parent
        self.roles: dict[Any, str] = {}
        self.fixed: list[tuple[Any, str]] = []
        for spec in graph._specs.values():
            if spec.kind == "forward":
                self._read(spec)
            elif spec.kind == "input":
                for k in range(len(spec.shape)):
                    self.fix((spec.id, 0, k), f"{graph._names()[spec.id]!r} is an input")
        for r in graph._outputs:
            shape = graph._specs[r.node].kind_of(r.index)[0]
            for k in range(len(shape)):
                self.fix((r.node, r.index, k), "it is the width of the model's output")

    def find(self, place: Any) -> tuple[Any, int]:
        """The representative of a place, and the block of the place in its terms."""
        block = 1
        while place in self.parent:
            block *= self.blocks[place]
            place = self.parent[place]
        return place, block

    def join(self, a: Any, b: Any, block: int = 1) -> None:
        """Two places have one width; ``block`` neighbours of ``b`` are one unit of ``a``."""
        (root_a, block_a), (root_b, block_b) = self.find(a), self.find(b)
        if root_a == root_b:
            return
        have, want = block_b, block_a * block
        if want % have == 0:
            self.parent[root_b], self.blocks[root_b] = root_a, want // have
        elif have % want == 0:
            self.parent[root_a], self.blocks[root_a] = root_b, have // want
        else:
            self.fix(a, "its units are grouped in two ways")
            self.fix(b, "its units are grouped in two ways")

    def fix(self, place: Any, reason: str) -> None:
        self.fixed.append((place, reason))

    def group(self, place: Any) -> dict[Any, int]:
        """All places that share a width with one, with their blocks."""
        root, _ = self.find(place)
        places = {*self.parent, *self.parent.values(), *self.roles, place}
        found = {}
        for p in sorted(places):
            other, block = self.find(p)
            if other == root:
                found[p] = block
        return found

    def reasons(self, place: Any) -> list[str]:
        """Why a place can't have another width."""
        root, _ = self.find(place)
        return [reason for p, reason in self.fixed if self.find(p)[0] == root]

    # --- ops ---

    def _shape(self, r: Ref) -> tuple[int, ...]:
        return self.graph._specs[r.node].kind_of(r.index)[0]

    def _dim(self, r: Ref, k: int) -> Any:
        return (r.node, r.index, k % len(self._shape(r)))

    def _read(self, spec: Spec) -> None:
        name = spec.op_name
        refs = [x if x.__class__ is Ref else None for x in spec.args]
        reader = _READERS.get(name)
        if reader is not None:
            reader(self, spec, refs)
        elif getattr(spec.op, "diagonal", False) or name in _ALONG:
            self._elementwise(spec, refs)
        else:
            self._fix_all(spec, refs, f"{name} does more with it than weft can follow")

    def _fix_all(self, spec: Spec, refs: list[Any], reason: str) -> None:
        where = f"{reason} ({spec.line()})" if spec.line() else reason
        for r in (*filter(None, refs), *(Ref(spec.id, i) for i in range(len(spec.kinds())))):
            for k in range(len(self._shape(r))):
                self.fix(self._dim(r, k), where)

    def _elementwise(self, spec: Spec, refs: list[Any]) -> None:
        out = Ref(spec.id)
        shape = self._shape(out)
        for r in filter(None, refs):
            mine = self._shape(r)
            for k, size in enumerate(mine):
                at = k + len(shape) - len(mine)
                if size == shape[at] and size != 1:
                    self.join(self._dim(out, at), self._dim(r, k))

    def _product(self, spec: Spec, refs: list[Any]) -> None:
        """linear(x, w, bias): the weights are (out, in)."""
        x, w, *rest = refs
        out = Ref(spec.id)
        for k in range(len(self._shape(x)) - 1):
            self.join(self._dim(out, k), self._dim(x, k))
        self._weights(w, 0, PRODUCED, out, -1)
        self._weights(w, 1, CONSUMED, x, -1)
        for bias in filter(None, rest):
            self._weights(bias, 0, PRODUCED, out, -1)

    def _weights(self, w: Ref, dim: int, role: str, value: Ref, at: int) -> None:
        place = self._dim(w, dim)
        self.join(self._dim(value, at), place)
        leaf = self.graph._specs[w.node]
        if leaf.kind in LEAVES:
            self.roles[place] = role if self.roles.get(place, role) == role else TIED
        elif role == CONSUMED:
            self.fix(place, f"it is multiplied by a computed value ({leaf.line()})")

    def _convolution(self, spec: Spec, refs: list[Any]) -> None:
        if spec.attrs.get("groups", 1) != 1:
            self._fix_all(spec, refs, "the convolution works in groups")
            return
        x, w, *rest = refs
        out = Ref(spec.id)
        first, second = (1, 0) if spec.op_name == "conv_transpose" else (0, 1)
        self.join(self._dim(out, 0), self._dim(x, 0))
        self._weights(w, first, PRODUCED, out, 1)
        self._weights(w, second, CONSUMED, x, 1)
        for bias in filter(None, rest):
            self._weights(bias, 0, PRODUCED, out, 1)

    def _norm(self, spec: Spec, refs: list[Any]) -> None:
        x, *parts = refs
        for k in range(len(self._shape(x))):
            self.join(self._dim(Ref(spec.id), k), self._dim(x, k))
        for part in filter(None, parts):
            self._weights(part, 0, PRODUCED, x, 1)

    def _layer_norm(self, spec: Spec, refs: list[Any]) -> None:
        x, *parts = refs
        for k in range(len(self._shape(x))):
            self.join(self._dim(Ref(spec.id), k), self._dim(x, k))
        for part in filter(None, parts):
            for k in range(-len(self._shape(part)), 0):
                self._weights(part, k, PRODUCED, x, k)

    def _embedding(self, spec: Spec, refs: list[Any]) -> None:
        places = [r for r in refs if r is not None]
        weight = next(r for r in places if len(self._shape(r)) == 2
                      and self.graph._specs[r.node].kind in LEAVES)  # fmt: skip
        self._weights(weight, 1, PRODUCED, Ref(spec.id), -1)

    def _pool(self, spec: Spec, refs: list[Any]) -> None:
        for k in (0, 1):
            self.join(self._dim(Ref(spec.id), k), self._dim(refs[0], k))

    def _permute(self, spec: Spec, refs: list[Any]) -> None:
        x, out = refs[0], Ref(spec.id)
        rank = len(self._shape(x))
        # The destination of each dimension, found by a run on an array of distinct lengths.
        probe = np.empty(tuple(range(2, rank + 2)), np.bool_)
        moved = spec.op.reference(probe, **spec.attrs).shape
        for k, size in enumerate(moved):
            self.join(self._dim(out, k), self._dim(x, size - 2))

    def _reshape(self, spec: Spec, refs: list[Any]) -> None:
        x, out = refs[0], Ref(spec.id)
        for theirs, mine in _factors(self._shape(x), self._shape(out)):
            large = [k for k in theirs if self._shape(x)[k] != 1]
            small = [k for k in mine if self._shape(out)[k] != 1]
            if len(large) == 1 and len(small) == 1:
                self.join(self._dim(x, large[0]), self._dim(out, small[0]))
            elif len(small) == 1 and large:
                # The first of several that were merged is the one whose units stay in one piece.
                block = int(np.prod([self._shape(x)[k] for k in large[1:]]))
                self.join(self._dim(x, large[0]), self._dim(out, small[0]), block)
                for k in large[1:]:
                    self.fix(self._dim(x, k), f"it is merged with others ({spec.line()})")
            else:
                for k in large:
                    self.fix(self._dim(x, k), f"it is split up ({spec.line()})")
                for k in small:
                    self.fix(self._dim(out, k), f"it is made by splitting up ({spec.line()})")

    def _mix(self, spec: Spec, refs: list[Any]) -> None:
        """Ops that mix what lies along their dims, and leave the others alone."""
        x, out = refs[0], Ref(spec.id)
        rank = len(self._shape(x))
        chosen = spec.attrs.get("dim")
        dims = range(rank) if chosen is None else chosen if isinstance(chosen, tuple) else (chosen,)
        mixed = {d % rank for d in dims} if rank else set()
        kept = [k for k in range(rank) if k not in mixed]
        for k in mixed:
            self.fix(self._dim(x, k), f"{spec.op_name} acts along it ({spec.line()})")
        same = len(self._shape(out)) == rank
        for i, k in enumerate(kept):
            self.join(self._dim(out, k if same else i), self._dim(x, k))

    def _cat(self, spec: Spec, refs: list[Any]) -> None:
        out, dim = Ref(spec.id), spec.attrs["dim"]
        for r in filter(None, refs):
            for k in range(len(self._shape(r))):
                if k == dim % len(self._shape(r)):
                    self.fix(self._dim(r, k), f"it is joined with others ({spec.line()})")
                    self.fix(self._dim(out, k), f"it is a joint of several ({spec.line()})")
                else:
                    self.join(self._dim(out, k), self._dim(r, k))


def _factors(a: tuple[int, ...], b: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """Stretches of dimensions that hold the same elements in two shapes of one size."""
    i = j = 0
    while i < len(a) or j < len(b):
        mine, theirs = [i] if i < len(a) else [], [j] if j < len(b) else []
        m, n = (a[i] if mine else 1), (b[j] if theirs else 1)
        i, j = i + len(mine), j + len(theirs)
        while m != n:
            if m < n and i < len(a):
                m, mine, i = m * a[i], [*mine, i], i + 1
            elif j < len(b):
                n, theirs, j = n * b[j], [*theirs, j], j + 1
            else:
                break
        yield mine, theirs


_ALONG = {"clone", "to_copy", "detach", "leaky_relu", "elu", "hardtanh", "threshold", "softplus",
          "expand", "keep"}  # fmt: skip
_READERS: dict[str, Callable[[Channels, Spec, list[Any]], None]] = {
    "linear": Channels._product,
    "linear_with_bias": Channels._product,
    "convolution": Channels._convolution,
    "conv_transpose": Channels._convolution,
    "batch_norm_fixed": Channels._norm,
    "native_layer_norm": Channels._layer_norm,
    "fused_rms_norm": Channels._layer_norm,
    "embedding": Channels._embedding,
    "max_pool_with_indices": Channels._pool,
    "avg_pool": Channels._pool,
    "adaptive_avg_pool": Channels._pool,
    "adaptive_max_pool": Channels._pool,
    "permute": Channels._permute,
    "transpose": Channels._permute,
    "t": Channels._permute,
    "reshape": Channels._reshape,
    "view": Channels._reshape,
    "unsqueeze": Channels._reshape,
    "squeeze": Channels._reshape,
    "sum": Channels._mix,
    "mean": Channels._mix,
    "amax": Channels._mix,
    "softmax": Channels._mix,
    "log_softmax": Channels._mix,
    "cat": Channels._cat,
}
