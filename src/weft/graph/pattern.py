"""Patterns: ordinary functions over placeholders, found in a graph and in a running program."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core import errors
from weft.core.devices import host
from weft.core.dispatch import Op
from weft.core.dtype import F32, I64
from weft.core.tensor import Tensor, wrap
from weft.graph.collecting import no_collection
from weft.graph.edit import Edit, Traced, stand_in
from weft.graph.learning import Learned, Vocabulary, kind_of
from weft.graph.run import GraphError
from weft.graph.spec import DETACH, FORWARD, LEAVES, Ref, Spec

if TYPE_CHECKING:
    from weft.graph.graph import Graph

# What placeholders are tried as, before a program has shown what it runs on.
_SHAPES: tuple[tuple[int, ...], ...] = ((2, 2), (2,), (2, 2, 2), (2, 2, 2, 2), ())
_TRIES = 400
_SEARCHES = 50  # how often a pattern is tried on what a running program does
_REACH = 64  # ops that are looked back at while it is not known what a pattern is made of


_PLAIN = frozenset((Ref, float, int, bool, str, type(None)))


def same(a: Any, b: Any) -> bool:
    """Whether two constants or settings are equal, whatever they are made of."""
    kind = a.__class__
    if kind in _PLAIN:
        return b.__class__ is kind and a == b
    if isinstance(a, (np.ndarray, Tensor)) or isinstance(b, (np.ndarray, Tensor)):
        if type(a) is not type(b):
            return False
        first, second = host(a), host(b)
        return first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and bool(a == b)


class Pattern:
    """A function over placeholders, and the ops that it consists of."""

    def __init__(self, function: Callable, known: Vocabulary | None = None) -> None:
        self.function = function
        self.names = list(inspect.signature(function).parameters)
        if not self.names:
            raise GraphError(f"a pattern needs a placeholder\n  at {errors.here()}")
        self._traces: dict[Any, Any] = {}
        self._last: Traced | None = None  # what fitted last
        self._forms: dict[Any, Traced] = {}
        self.known = known or Vocabulary()
        self.searches = 0
        if known is not None:
            self.learn()

    @property
    def forms(self) -> list[Traced]:
        """The different ways in which the pattern runs."""
        return list(self._forms.values())

    def learn(self) -> None:
        """Find out how the pattern runs on values of the kinds that are known."""
        learned = Learned(self.function, len(self.names), self.known)
        self.searches += 1
        for kinds in learned:
            self._trace(kinds)
        if not learned.ran and learned.problem is not None:
            raise GraphError(
                f"the pattern {self.title!r} could not be run on any placeholders: "
                f"{learned.problem}\n  at {errors.here()}"
            )

    def _trace(self, kinds: Sequence[Any]) -> None:
        arrays = [stand_in(shape, F32 if dtype is None else dtype) for shape, dtype in kinds]
        traced = Traced(self.function, [wrap(a) for a in arrays])
        if traced.specs[traced.results[0].node].kind not in LEAVES:
            ops = tuple((s.op_name, tuple(s.args)) for s in traced.specs if s.kind == FORWARD)
            self._forms.setdefault((repr(ops), tuple(traced.inputs)), traced)

    def guess(self) -> Pattern:
        """Try the pattern on small tensors, before a program has shown what it runs on."""
        kinds = [*((s, F32) for s in _SHAPES), ((2,), I64), ((2, 2), I64)]
        for chosen in itertools.islice(itertools.product(kinds, repeat=len(self.names)), _TRIES):
            with contextlib.suppress(Exception):
                self._trace(chosen)
        return self

    def meet(self, op: Op, args: Any) -> None:
        """Take in an op of a running program; a new one may show how the pattern runs."""
        if self._forms and op.name not in self.inner:
            return
        if self.known.add(op.name, map(kind_of, args)) and self.searches < _SEARCHES:
            self.learn()

    @property
    def title(self) -> str:
        return getattr(self.function, "__name__", "pattern")

    @property
    def roots(self) -> set[str]:
        """The ops that the pattern may end with."""
        return {form.specs[form.results[0].node].op_name for form in self.forms}

    @property
    def inner(self) -> set[str]:
        """The ops that the pattern has before its end."""
        return {s.op_name for form in self.forms for s in form.specs if s.kind == FORWARD}

    @property
    def reach(self) -> int:
        """How many ops the pattern has at most."""
        return max((len(form.specs) for form in self.forms), default=_REACH)

    def match(
        self,
        start: Any,
        look: Callable[[Any], Any],
        kind: Callable[[Any], Any],
        flows: Collection[Ref] = (),
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """The values of the placeholders if the pattern ends at a value, and the inner values.

        ``look(value)`` gives (op, args, attrs, index) or None at an end; ``kind(value)`` the shape
        and dtype; ``flows`` the values of a graph that a gradient can reach. The first look is at
        the ops alone; then the pattern is run on placeholders of the kinds found, and everything
        has to agree.
        """
        again = self._as_before(start, look, kind, flows)
        if again is not None:
            return again
        for form in self.forms:
            bound = _unify(form, start, look, flows, strict=False)
            if bound is None or len(bound[0]) < len(self.names):
                continue
            arguments = [bound[0][k] for k in range(len(self.names))]
            exact = self._exact(tuple(kind(a) for a in arguments), arguments)
            if exact is None:
                continue
            found = _unify(exact, start, look, flows, strict=True)
            if found is not None and all(same(found[0][k], a) for k, a in enumerate(arguments)):
                self._last = exact
                return dict(zip(self.names, arguments, strict=True)), found[1]
        return None

    def _as_before(self, start: Any, look: Any, kind: Any, flows: Any) -> Any:
        """A place that is like the last one, down to the kinds of all values: the common case."""
        if self._last is None or len(self.forms) > 1:
            return None
        found = _unify(self._last, start, look, flows, strict=True)
        if found is None or len(found[0]) < len(self.names):
            return None
        arguments = [found[0][k] for k in range(len(self.names))]
        if self._traces.get(tuple([kind(a) for a in arguments])) is not self._last:
            return None
        return dict(zip(self.names, arguments, strict=True)), found[1]

    def _exact(self, kinds: tuple[Any, ...], arguments: list[Any]) -> Traced | None:
        if kinds not in self._traces:
            fixed = {k: a for k, (a, kind) in enumerate(zip(arguments, kinds, strict=True))
                     if kind is None}  # fmt: skip

            def run(*given: Tensor) -> Any:
                rest = iter(given)
                return self.function(
                    *(fixed[k] if k in fixed else next(rest) for k in range(len(kinds)))
                )

            try:
                tensors = [wrap(stand_in(*kind)) for kind in kinds if kind is not None]
                traced: Any = Traced(run, tensors)
            except Exception:
                traced = None
            if traced is not None:
                numbers = iter(traced.inputs)
                traced.inputs = [None if k in fixed else next(numbers) for k in range(len(kinds))]
                traced.fixed = fixed
            if fixed:
                return traced  # numbers are part of it: not for another place
            self._traces[kinds] = traced
        return self._traces[kinds]


def _unify(
    form: Traced, start: Any, look: Callable[[Any], Any], flows: Collection[Ref], strict: bool
) -> tuple[dict[int, Any], list[Any]] | None:
    """Lay a pattern's ops over values, from the end backwards."""
    placeholders = form.placeholders
    bound: dict[int, Any] = dict(getattr(form, "fixed", {}))
    inside: dict[int, Any] = {}
    values: list[Any] = []
    stack: list[tuple[Any, Any]] = [(form.results[0], start)]
    while stack:
        mine, theirs = stack.pop()
        if mine.__class__ is not Ref:
            if not same(mine, theirs):
                return None
            continue
        if mine.node in placeholders:
            k = placeholders[mine.node]
            if k in bound and not same(bound[k], theirs):
                return None
            bound[k] = theirs
            continue
        spec: Spec = form.specs[mine.node]
        found = look(theirs)
        if spec.kind in LEAVES:
            if not _same_leaf(spec, found, theirs):
                return None
            continue
        if spec.op is DETACH and _has_no_history(found, theirs, flows):
            stack.append((spec.args[0], theirs))  # nothing was there to cut off
            continue
        if found is None or found[0] is not spec.op or found[3] != mine.index:
            return None
        if mine.node in inside:
            if inside[mine.node] is not found[1]:
                return None
            continue
        inside[mine.node] = found[1]
        values.append(theirs)
        if len(found[1]) != len(spec.args) or (strict and not same(spec.attrs, found[2])):
            return None
        stack.extend(zip(spec.args, found[1], strict=True))
    return bound, values


def _has_no_history(found: Any, theirs: Any, flows: Collection[Ref]) -> bool:
    """Whether no gradient reaches a value, so that detach() leaves no trace."""
    if theirs.__class__ is Ref and found is not None and found[0] is not None:
        return found[0] is not DETACH and theirs not in flows
    tensor = theirs if isinstance(theirs, Tensor) else found[2] if found and not found[0] else None
    return isinstance(tensor, Tensor) and tensor._node is None


def _same_leaf(spec: Spec, found: Any, theirs: Any) -> bool:
    """A tensor that the pattern itself contains must be the one that the graph reads."""
    mine = None if spec.leaf is None else spec.leaf.tensor
    other = theirs if isinstance(theirs, Tensor) else found[2] if found and not found[0] else None
    if not isinstance(mine, Tensor) or not isinstance(other, Tensor):
        return False
    return mine is other or (not mine.requires_grad and same(wrap(mine._a), wrap(other._a)))


def rewrite(graph: Graph, pattern: Callable, replacement: Callable) -> Graph:
    """The graph with every use of a pattern replaced; the same graph if there is none."""
    with no_collection():
        return _rewritten(graph, pattern, replacement)


def _rewritten(graph: Graph, pattern: Callable, replacement: Callable) -> Graph:
    known = Pattern(pattern, Vocabulary.of(graph._specs))
    if any(form.several for form in known.forms):
        raise GraphError(
            "rewrite: a pattern gives one tensor; take the one that matters, as in "
            f"x.topk(1)[0]\n  at {errors.here()}"
        )
    wanted = list(inspect.signature(replacement).parameters)
    unknown = set(wanted) - set(known.names)
    if unknown:
        raise GraphError(
            f"rewrite: the replacement takes {sorted(unknown)}, which the pattern does not define; "
            f"its parameters are {known.names}\n  at {errors.here()}"
        )
    edit = Edit(graph, f"rewrite {known.title}")
    specs = graph._specs

    def look(value: Any) -> Any:
        spec = specs.get(value.node) if value.__class__ is Ref else None
        if spec is None:
            return None
        if spec.kind != FORWARD:
            return (None, (), None if spec.leaf is None else spec.leaf.tensor, 0)
        return spec.op, spec.args, spec.attrs, value.index

    def kind(value: Any) -> Any:
        return specs[value.node].kind_of(value.index) if value.__class__ is Ref else None

    moved: dict[Ref, Any] = {}
    taken: set[int] = set()
    places = []
    for end, bound, inside in _places(graph, known, look, kind):
        if not taken & inside:
            taken |= inside
            places.append((end, [bound[n] for n in wanted]))
    if not places:
        return graph
    edit.awaited = [x for _, arguments in places for x in arguments if x.__class__ is Ref]
    for end, arguments in places:
        given = [moved.get(x, x) if x.__class__ is Ref else x for x in arguments]
        results = edit.call_often(replacement, given, specs[end.node])
        if len(results) != 1:
            raise edit.refused(f"the replacement gives {len(results)} results, and one is needed")
        moved[end] = results[0]
    edit.redirect_all({old: new for old, new in moved.items() if new != old})
    edit.change_text += f" in {len(moved)} place{'s' * (len(moved) > 1)}"
    return edit.done()


def _places(
    graph: Graph, pattern: Pattern, look: Callable, kind: Callable
) -> Iterator[tuple[Ref, dict[str, Any], set[int]]]:
    ends = pattern.roots
    cuts = any(s.op is DETACH for form in pattern.forms for s in form.specs)
    flows = graph._flows() if cuts else ()
    for spec in graph._specs.values():
        if spec.kind != FORWARD or spec.op_name not in ends:
            continue
        for end in spec.results():
            found = pattern.match(end, look, kind, flows)
            if found is not None:
                yield end, found[0], {r.node for r in found[1]}
