"""Comparing two graphs: what was added, removed or changed, and where values diverge."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import chain
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.devices import host
from weft.core.tensor import Tensor
from weft.graph.collecting import no_collection
from weft.graph.graph import Graph, Node
from weft.graph.spec import (
    BACKWARD,
    FORWARD,
    INNER,
    LEAVES,
    OPTIMIZER,
    Ref,
    Spec,
    show_kind,
    show_value,
)
from weft.graph.stats import describe

_SMALL = 200_000  # pairs up to which a gap is compared in full
_LOT = 500_000_000  # bytes of values that are compared at a time
_TOLD = 60  # differences of a sort that printing tells; the lists have them all
_GRADIENT = "the gradients of the loss by them"
_EDITS = 300  # insertions and removals up to which a long gap is compared in full


class Change:
    """A node that is in both graphs but not the same."""

    def __init__(self, before: Node, after: Node, reasons: list[str]) -> None:
        self.before, self.after, self.reasons = before, after, reasons

    def __repr__(self) -> str:
        return f"{_both(self.before, self.after)}: {'; '.join(self.reasons)}"


class Diff:
    """The difference of two graphs. It is true if there is one; printing shows it."""

    def __init__(self, a: Graph, b: Graph) -> None:
        self.a, self.b = a, b
        self.added: list[Node] = []
        self.removed: list[Node] = []
        self.changed: list[Change] = []
        self._matched: dict[int, int] = {}
        self._unmade: tuple[Any, int] = ((), 0)
        self.parting: tuple[Node, Node, str] | None = None

    def _match(self, pairs: Iterable[tuple[int, int]], count: int) -> None:
        """Compute all pairs on request."""
        self._unmade = pairs, count

    @property
    def matched(self) -> dict[int, int]:
        """The numbers of nodes that belong together."""
        pairs, count = self._unmade
        if count:
            self._matched, self._unmade = dict(pairs), ((), 0)
        return self._matched

    @matched.setter
    def matched(self, pairs: dict[int, int]) -> None:
        self._matched = pairs

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.parting)

    @property
    def pairs(self) -> list[tuple[Node, Node]]:
        """The nodes that are in both graphs."""
        a, b = self.a, self.b
        return [(a._node(x), b._node(self.matched[x])) for x in a._specs if x in self.matched]

    @property
    def first(self) -> Any:
        """The first difference: an added or removed node, or a change; None if there is none."""
        places = {s.id: i for i, s in enumerate(self.a._specs.values())}
        partner = {after: places[before] for before, after in self.matched.items()}
        at, spots = -1, {}
        for spec in self.b._specs.values():
            at = partner.get(spec.id, at)
            spots[spec.id] = at + 0.5
        found: list[tuple[float, Any]] = [(spots[n.id], n) for n in self.added]
        found += [(places[n.id], n) for n in self.removed]
        found += [(places[c.before.id], c) for c in self.changed]
        return min(found, key=lambda pair: pair[0])[1] if found else None

    def __repr__(self) -> str:
        if not self:
            return f"no difference: {len(self.matched)} nodes agree"
        lines = []
        first = self.first
        if first is not None:
            node = first.after if isinstance(first, Change) else first
            where = f"  ({node.source})" if node.source else ""
            lines.append(f"first divergence: {_told(first, self)}{where}")
        for sign, nodes in (("+", self.added), ("-", self.removed)):
            lines += _some(
                sign, [f"{n.name}  {_kinds(n.spec)}  {n.source}".rstrip() for n in nodes[:_TOLD]],
                len(nodes),
            )  # fmt: skip
        lines += _some("~", [repr(c) for c in self.changed[:_TOLD]], len(self.changed))
        if self.parting is not None:
            before, after, text = self.parting
            what = "gradients" if text.startswith(_GRADIENT) else "values"
            lines.append(f"{what} part at {_both(before, after)}: {text}")
        lines.append(
            f"{len(self.added)} added, {len(self.removed)} removed, {len(self.changed)} changed, "
            f"{len(self.matched) - len(self.changed)} the same"
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from weft.graph.notebook import diff_html

        return diff_html(self)


def _both(before: Node, after: Node) -> str:
    return before.name if before.name == after.name else f"{before.name} -> {after.name}"


def _some(sign: str, texts: list[str], count: int) -> list[str]:
    more = [f"{sign} ... and {count - len(texts)} more"] if count > len(texts) else []
    return [*(f"{sign} {text}" for text in texts), *more]


def _told(first: Any, found: Diff) -> str:
    if isinstance(first, Change):
        return f"changed {first!r}"
    return f"{'added' if first.graph is found.b else 'removed'} {first.name}"


def _kinds(spec: Spec) -> str:
    return ", ".join(show_kind(s, d) for s, d in spec.kinds())


def diff(
    a: Graph, b: Graph, *, rtol: float = 1e-5, atol: float = 1e-8, values: bool | None = None
) -> Diff:
    """Align two graphs and return their differences.

    Values are compared where both graphs kept them; ``values=True`` computes the others again.
    """
    for graph in (a, b):
        if not isinstance(graph, Graph):
            raise TypeError(
                f"graph.diff compares graphs, not {type(graph).__name__}; weft.graph.of(tensor) "
                f"gives the graph behind a tensor\n  at {errors.here()}"
            )
        graph._check_whole()
    with no_collection():
        found = _structure(a, b)
    if values is not False and not (values is None and _same_ends(a, b)):
        found.parting = _parting(found, rtol, atol, bool(values))
    return found


def _structure(a: Graph, b: Graph) -> Diff:
    """What was added, removed and changed."""
    found = Diff(a, b)
    if _alike(a, b):
        found._match(zip(_ids(a), _ids(b), strict=True), len(a))
        return found
    first, second = list(a._specs.values()), list(b._specs.values())
    table: dict[Any, int] = {}
    ours, others = _codes(first, table), _codes(second, table)
    pairs = align(ours, others)
    ids_a, ids_b = list(a._specs), list(b._specs)
    at_a, at_b = pairs[:, 0].tolist(), pairs[:, 1].tolist()
    matched = dict(zip(map(ids_a.__getitem__, at_a), map(ids_b.__getitem__, at_b), strict=True))
    loose: set[int] = set()
    for gone, new in _gaps(pairs, first, second):
        for before, after in _paired(gone, new):
            matched[before.id] = after.id
            loose.add(before.id)
    found.matched = matched
    theirs = set(matched.values())
    if len(matched) < len(first):
        found.removed = [a._node(s.id) for s in first if s.id not in matched]
    if len(theirs) < len(second):
        found.added = [b._node(s.id) for s in second if s.id not in theirs]
    seen = loose | _wired_otherwise(first, b._specs, matched)
    for id in ids_a if seen else ():
        if id in seen:
            mine, other = a._specs[id], b._specs[matched[id]]
            reasons = _reasons(found, mine, other, theirs, id in loose)
            if reasons:
                found.changed.append(Change(a._node(mine.id), b._node(other.id), reasons))
    return found


def _ids(graph: Graph) -> Any:
    """The numbers of a graph's nodes, in order."""
    records = graph._records
    return records if records.__class__ is dict else sorted((*records.ids, *records.leaf_ids))


def _alike(a: Graph, b: Graph) -> bool:
    """Whether two graphs whose records are not made yet are seen to be equal right away."""
    mine, other = a._records, b._records
    if mine.__class__ is dict or other.__class__ is dict:
        return False
    try:
        return mine.same_as(other)
    except (TypeError, ValueError):  # settings that can't be compared in a word
        return False


def _same_ends(a: Graph, b: Graph) -> bool:
    """Whether two graphs without values of their own end in the same tensors."""
    mine, other = a._records, b._records
    if mine.__class__ is dict or other.__class__ is dict or a._kept or a._grads:
        return False
    return mine.ends_as(other)


def _codes(specs: list[Spec], table: dict[Any, int]) -> list[int]:
    """A number for each node, the same for those that are taken for the same at first sight."""
    shown: dict[Any, Any] = {}
    keys = [
        (s.kind, s.op_name, s.scope, s.shape, s.dtype)
        if not s.attrs and s.kind == FORWARD
        else key(s, shown)
        for s in specs
    ]
    return [table.setdefault(k, len(table)) for k in keys]


def _gaps(pairs: np.ndarray, first: list[Spec], second: list[Spec]) -> Iterator[Any]:
    """The gaps between pairs in which some node has no partner."""
    ends = np.concatenate([[[-1, -1]], pairs, [[len(first), len(second)]]])
    jumps = np.diff(ends, axis=0)
    for k in np.flatnonzero((jumps != 1).any(1)).tolist():
        (i, j), (m, n) = ends[k].tolist(), ends[k + 1].tolist()
        yield first[i + 1 : m], second[j + 1 : n]


def _wired_otherwise(first: list[Spec], others: dict[int, Spec], matched: Any) -> set[int]:
    """The nodes whose partners may not read the partners of what they read."""
    reading = [s for s in first if s.args and s.kind != BACKWARD and s.id in matched]
    partners = [others[matched[s.id]] for s in reading]
    lengths, theirs = ([len(s.args) for s in side] for side in (reading, partners))
    odd: set[int] = set()
    if lengths != theirs:
        same = [k for k, (n, m) in enumerate(zip(lengths, theirs, strict=True)) if n == m]
        odd = {s.id for s, n, m in zip(reading, lengths, theirs, strict=True) if n != m}
        reading, partners = [reading[k] for k in same], [partners[k] for k in same]
    mine_flat = list(chain.from_iterable([s.args for s in reading]))
    other_flat = list(chain.from_iterable([s.args for s in partners]))
    moved = mine_flat
    if list(matched) != list(matched.values()):  # most often numbers are the same on both sides
        partner, new = matched.get, tuple.__new__
        moved = [
            new(Ref, (partner(x[0], -1), x[1])) if x.__class__ is Ref else x for x in mine_flat
        ]
    try:
        if moved == other_flat and list(map(type, moved)) == list(map(type, other_flat)):
            return odd
    except (TypeError, ValueError):
        pass  # settings that can't be compared in a word
    start = 0
    for mine in reading:
        end = start + len(mine.args)
        for x, y in zip(moved[start:end], other_flat[start:end], strict=True):
            if x is not y and (x.__class__ is not y.__class__ or not _equal(x, y)):
                odd.add(mine.id)
                break
        start = end
    return odd


def _equal(x: Any, y: Any) -> bool:
    return x.__class__ in _PLAIN and bool(x == y)


_PLAIN = frozenset((Ref, int, float, bool, str))


def key(spec: Spec, known: dict[Any, Any] | None = None) -> tuple[Any, ...]:
    """What two nodes must have in common to be taken for the same at first sight."""
    label = spec.label if spec.kind in LEAVES else ""
    shown = _settings(spec, {} if known is None else known) if spec.attrs else ()
    head = (spec.kind, spec.op_name, spec.scope, spec.shape, spec.dtype)
    return (*head, label, shown) if label or shown else head


def _settings(spec: Spec, known: dict[Any, Any]) -> tuple[Any, ...]:
    """The settings of a node as text; many nodes have the same ones."""
    found = []
    for k, v in spec.attrs.items():
        if k in INNER:
            continue
        if v.__class__ in _PLAIN or v is None:
            place = (v.__class__, v)
            text = known.get(place)
            if text is None:
                text = known[place] = show_value(v)
        else:
            text = show_value(v)
        found.append((k, text))
    return tuple(found)


def align(a: list[Any], b: list[Any]) -> np.ndarray:
    """Positions of equal items, increasing in both: the common subsequence."""
    low, high_a, high_b = _common(a, b), len(a), len(b)
    tail = _common(a[low:][::-1], b[low:][::-1])
    high_a, high_b = high_a - tail, high_b - tail
    head, end = np.arange(low), np.arange(tail)
    middle = np.asarray(_middle(a, b, low, high_a, low, high_b), np.int64).reshape(-1, 2)
    return np.concatenate(
        [np.stack([head, head], 1), middle, np.stack([high_a + end, high_b + end], 1)]
    )


def _common(a: list[Any], b: list[Any]) -> int:
    """How many items two lists have in common from their beginning on."""
    most = min(len(a), len(b))
    if a[:most] == b[:most]:
        return most
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), most)


def _middle(a: list[Any], b: list[Any], i: int, m: int, j: int, n: int) -> list[tuple[int, int]]:
    """The common items of two ranges, anchored at those that occur once on both sides."""
    if i >= m or j >= n:
        return []
    pairs: list[tuple[int, int]] = []
    at_a, at_b = i, j
    for x, y in [*_anchors(a, b, i, m, j, n), (m, n)]:
        pairs += _gap(a, b, at_a, x, at_b, y)
        if x < m:
            pairs.append((x, y))
        at_a, at_b = x + 1, y + 1
    return pairs


def _anchors(a: list[Any], b: list[Any], i: int, m: int, j: int, n: int) -> list[tuple[int, int]]:
    counts_a, counts_b = Counter(a[i:m]), Counter(b[j:n])
    places = {b[y]: y for y in range(j, n) if counts_b[b[y]] == 1}
    once = [(x, places[a[x]]) for x in range(i, m) if counts_a[a[x]] == 1 and a[x] in places]
    # The longest run that rises in the second sequence as well.
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for k, (_, y) in enumerate(once):
        at = bisect_left(tails, y)
        if at == len(tails):
            tails.append(y)
            ends.append(k)
        else:
            tails[at], ends[at] = y, k
        before.append(ends[at - 1] if at else -1)
    chain = []
    k = ends[-1] if ends else -1
    while k >= 0:
        chain.append(once[k])
        k = before[k]
    return chain[::-1]


def _gap(a: list[Any], b: list[Any], i: int, m: int, j: int, n: int) -> list[tuple[int, int]]:
    if i >= m or j >= n:
        return []
    if (m - i) * (n - j) <= _SMALL:
        blocks = SequenceMatcher(None, a[i:m], b[j:n], autojunk=False).get_matching_blocks()
        return [(i + x + k, j + y + k) for x, y, size in blocks for k in range(size)]
    exact = _shortest_edit(a, b, i, m, j, n)
    return _greedy(a, b, i, m, j, n) if exact is None else exact


def _shortest_edit(
    a: list[Any], b: list[Any], i: int, m: int, j: int, n: int
) -> list[tuple[int, int]] | None:
    """The longest common part by Myers' method; None if the two differ in too many places."""
    rows, columns = m - i, n - j
    reach = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(_EDITS + 1):
        trail.append(dict(reach))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < rows and y < columns and a[i + x] == b[j + y]:
                x, y = x + 1, y + 1
            reach[k] = x
            if x >= rows and y >= columns:
                return _walk_back(trail, rows, columns, i, j)
    return None


def _walk_back(
    trail: list[dict[int, int]], x: int, y: int, i: int, j: int
) -> list[tuple[int, int]]:
    pairs = []
    for edits in range(len(trail) - 1, -1, -1):
        reach, k = trail[edits], x - y
        down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
        before = k + 1 if down else k - 1
        start = reach[before]
        while x > max(start, 0) and y > max(start - before, 0) and edits >= 0:
            if x - 1 < (start if down else start + 1):
                break
            x, y = x - 1, y - 1
            pairs.append((i + x, j + y))
        x, y = start, start - before
    return pairs[::-1]


def _greedy(a: list[Any], b: list[Any], i: int, m: int, j: int, n: int) -> list[tuple[int, int]]:
    """Equal items in order, greedily: for ranges with little in common."""
    waiting: dict[Any, list[int]] = {}
    for y in range(n - 1, j - 1, -1):
        waiting.setdefault(b[y], []).append(y)
    pairs, last = [], j - 1
    for x in range(i, m):
        spots = waiting.get(a[x])
        while spots and spots[-1] <= last:
            spots.pop()
        # A jump too far would cut off all that lies between.
        if spots and spots[-1] - last <= 50:
            last = spots.pop()
            pairs.append((x, last))
    return pairs


def _paired(gone: list[Spec], new: list[Spec]) -> list[tuple[Spec, Spec]]:
    """Nodes of a gap that are most likely the same node, changed."""
    pairs: list[tuple[Spec, Spec]] = []
    for alike in (
        lambda s: (s.kind, s.op_name, s.scope, s.label),
        lambda s: (s.kind, s.op_name, s.shape, s.dtype),
        lambda s: (s.kind in LEAVES, s.scope, s.shape) if s.kind not in LEAVES else object(),
    ):
        waiting: dict[Any, list[Spec]] = {}
        for s in new:
            waiting.setdefault(alike(s), []).append(s)
        left = []
        for s in gone:
            partners = waiting.get(alike(s))
            if partners:
                partner = partners.pop(0)
                pairs.append((s, partner))
                new = [t for t in new if t is not partner]
            else:
                left.append(s)
        gone = left
    return pairs


def _reasons(found: Diff, a: Spec, b: Spec, theirs: set[int], loose: bool) -> list[str]:
    matched = found.matched
    reasons = []
    if loose:
        if a.scope != b.scope:
            reasons.append(f"module {a.scope or 'none'} -> {b.scope or 'none'}")
        elif a.label != b.label:
            reasons.append(f"name {a.label or 'none'} -> {b.label or 'none'}")
        if a.op_name != b.op_name:
            reasons.append(f"op {a.op_name} -> {b.op_name}")
        if a.kinds() != b.kinds():
            reasons.append(f"{_kinds(a)} -> {_kinds(b)}")
        for name in {**a.attrs, **b.attrs}:
            old, new = (show_value(s.attrs.get(name)) for s in (a, b))
            if old != new and name not in INNER:
                reasons.append(f"{name} {old} -> {new}")
    if a.kind == "backward":
        return reasons  # where gradients come from follows from the forward nodes
    if len(a.args) != len(b.args):
        reasons.append(f"{len(a.args)} inputs -> {len(b.args)}")
        return reasons
    for i, (x, y) in enumerate(zip(a.args, b.args, strict=True)):
        if x.__class__ is not Ref or y.__class__ is not Ref:
            if x is not y and show_value(x) != show_value(y):
                reasons.append(f"input {i} {_shown(found.a, x)} -> {_shown(found.b, y)}")
            continue
        # A new or lost neighbour is reported by itself.
        if x.node not in matched or y.node not in theirs:
            continue
        if matched[x.node] != y.node or x.index != y.index:
            reasons.append(f"input {i} {_shown(found.a, x)} -> {_shown(found.b, y)}")
    return reasons


def _shown(graph: Graph, x: Any) -> str:
    if x.__class__ is not Ref:
        return show_value(x)
    return graph._names()[x.node] + (f"[{x.index}]" if x.index else "")


def _parting(found: Diff, rtol: float, atol: float, compute: bool) -> tuple[Node, Node, str] | None:
    """The first pair of nodes whose values, or else gradients, differ by more than allowed."""
    a, b, matched = found.a, found.b, found.matched
    ours, theirs = (list(g._specs) if compute else _with_values(g) for g in (a, b))
    there = set(theirs)
    pairs = [
        (a._node(x), b._node(matched[x]))
        for x in ours
        if x in matched and matched[x] in there and a._specs[x].kind not in (BACKWARD, OPTIMIZER)
    ]
    for lot in _lots([(x, y) for x, y in pairs if compute or not _one_tensor(x, y)]):
        mine, others = (_values(side, compute) for side in zip(*lot, strict=True))
        for pair, x, y in zip(lot, mine, others, strict=True):
            text = None if x is None or y is None else _difference(x, y, rtol, atol)
            if text is not None:
                return *pair, text
    return _gradients_part(pairs, rtol, atol)


def _one_tensor(x: Node, y: Node) -> bool:
    """Whether two nodes are the same tensor of the program."""
    mine, other = x.spec.leaf, y.spec.leaf
    if mine is None or other is None or x.id in x.graph._kept or y.id in y.graph._kept:
        return False
    return mine.tensor is other.tensor


def _with_values(graph: Graph) -> list[int]:
    """The nodes whose value or gradient is there, in order."""
    kept, grads = graph._kept, graph._grads
    return [
        id
        for id, spec in graph._specs.items()
        if spec.leaf is not None or id in kept or id in grads
    ]


def _gradients_part(
    pairs: list[tuple[Node, Node]], rtol: float, atol: float
) -> tuple[Node, Node, str] | None:
    """The pair nearest to the loss whose gradients differ, where both graphs kept them."""
    for before, after in reversed(pairs):
        x, y = (node.graph._grads.get(node.id) for node in (before, after))
        text = None if x is None or y is None else _difference([host(x)], [host(y)], rtol, atol)
        if text is not None:
            return before, after, f"{_GRADIENT}: {text}"
    return None


def _lots(pairs: list[tuple[Node, Node]]) -> Iterator[list[tuple[Node, Node]]]:
    """Pairs in lots whose values can be held at once: each lot is computed in one run."""
    lot: list[tuple[Node, Node]] = []
    size = 0
    for pair in pairs:
        lot.append(pair)
        size += sum(node.bytes for node in pair)
        if size > _LOT:
            yield lot
            lot, size = [], 0
    if lot:
        yield lot


def _difference(mine: list[Any], other: list[Any], rtol: float, atol: float) -> str | None:
    """How the results of two nodes differ, if they do."""
    for x, y in zip(mine, other, strict=False):
        if x.shape != y.shape:
            return f"{list(x.shape)} against {list(y.shape)}"
        if not _close(x, y, rtol, atol):
            return (
                f"they differ by up to {_distance(x, y):.4g} ({describe(x)} against {describe(y)})"
            )
    return None


def _distance(x: np.ndarray, y: np.ndarray) -> float:
    wide = np.complex128 if "c" in (x.dtype.kind, y.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        far = np.abs(x.astype(wide) - y.astype(wide))
    return float(np.fmax.reduce(far, axis=None, initial=0.0))


def _close(x: np.ndarray, y: np.ndarray, rtol: float, atol: float) -> bool:
    if x.dtype.kind in "iub" and y.dtype.kind in "iub":
        return bool(np.array_equal(x, y))
    if x.dtype.kind == "V" or y.dtype.kind == "V":
        x, y = x.astype(np.float32), y.astype(np.float32)
    return bool(np.allclose(x, y, rtol, atol, equal_nan=True))


def _values(nodes: Iterable[Node], compute: bool) -> list[list[np.ndarray] | None]:
    """The values of some nodes of one graph, as kept; the others computed, or None."""
    nodes = list(nodes)
    graph = nodes[0].graph
    held: dict[int, Any] = {}
    for node in nodes:
        leaf = node.spec.leaf
        kept = graph._kept.get(node.id)
        if kept is None and leaf is not None and leaf.tensor is not None:
            kept = (leaf.tensor,)
        if kept is not None:
            held[node.id] = kept
    if compute:
        wanted = [r for node in nodes if node.id not in held for r in node.spec.results()]
        for r, tensor in zip(wanted, graph._compute(wanted), strict=True):
            held[r.node] = (*held.get(r.node, ()), tensor)
    return [
        [host(t) for t in held[n.id] if isinstance(t, Tensor)] if n.id in held else None
        for n in nodes
    ]
