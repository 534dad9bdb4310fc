"""The gradient of a graph as a graph: one walk, from the roots to the leaves."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable
from typing import Any

from weft.graph.gradient import Gradient, gradient_of
from weft.graph.spec import Call, Ref, Spec

# Makes a backward node: what runs, what it reads, and the forward node with the gradient's kinds.
Add = Callable[[Any, tuple[Any, ...], tuple[int, ...], Spec], Spec]


def derive(
    specs: Any,
    flows: Collection[Ref],
    roots: Iterable[tuple[Ref, Any]],
    add: Add,
    *,
    rank: Callable[[int], int] = int,
    towards: Collection[Ref] | None = None,
    hooks: Callable[[Ref], Iterable[Call]] = lambda value: (),
    around: Callable[[Spec, Gradient], None] = lambda forward, gradient: None,
) -> dict[Ref, list[Any]]:
    """Append the backward pass of some nodes; the gradients that arrive at every value.

    ``specs`` are the nodes by number, of which ``rank`` gives the order, and gradients pass through
    ``flows``. The pass begins at ``roots``, each with its gradient. The gradients of a value stand
    in the order in which the engine adds them. Where ``towards`` is given, only what leads there is
    derived. ``hooks`` gives what acts on the gradient of a value, and ``around`` puts the hooks
    of a node into its backward.
    """
    arrived: dict[Ref, list[Any]] = {}
    ahead: list[tuple[int, int]] = []  # a heap: newest node first, as the engine goes

    def arrive(value: Ref, g: Any) -> None:
        if value not in arrived:
            arrived[value] = []
            heapq.heappush(ahead, (-rank(value.node), value.node))
        arrived[value].append(g)

    for root, seed in roots:
        arrive(root, seed)
    useful = None if towards is None else _leading(specs, flows, list(arrived), towards, rank)
    while ahead:
        place = heapq.heappop(ahead)
        while ahead and ahead[0] == place:  # a node with several results
            heapq.heappop(ahead)
        spec = specs[place[1]]
        results = [r for r in spec.results() if r in arrived]
        for r in results:
            for hook in hooks(r):
                terms = arrived[r]
                outs = (r.index,) * len(terms)
                arrived[r] = [Ref(add(hook, tuple(terms), outs, spec).id)]
        gradient = gradient_of(spec, [x.__class__ is Ref and x in flows for x in spec.args])
        if gradient is None:
            continue
        if useful is not None:
            gradient.targets = tuple(i for i in gradient.targets if spec.args[i] in useful)
            if not gradient.targets:
                continue
        around(spec, gradient)
        terms = [g for r in results for g in arrived[r]]
        outs = tuple(r.index for r in results for _ in arrived[r])
        made = add(gradient, (*terms, *gradient.saved(spec)), outs, spec)
        for k, i in enumerate(gradient.targets):
            arrive(spec.args[i], Ref(made.id, k))
    return arrived


def _leading(
    specs: Any, flows: Collection[Ref], roots: list[Ref], targets: Collection[Ref], rank: Any
) -> set[Ref]:
    """Of the values behind some roots, those that were computed from some targets; and these."""
    behind = {r.node for r in roots}
    stack = list(behind)
    while stack:
        for r in specs[stack.pop()].refs():
            if r in flows and r.node not in behind:
                behind.add(r.node)
                stack.append(r.node)
    found = set(targets)
    for id in sorted(behind, key=rank):
        if any(r in found for r in specs[id].refs()):
            found.update(specs[id].results())
    return found
