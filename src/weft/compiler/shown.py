"""A compiled function as a graph: the work of its program after the compiler's passes.

The usual tools can inspect, draw and run it. A fused loop appears like a module, so the page shows
it as one box that expands into its ops.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.compiler.expand import Expansion, StepWork
from weft.compiler.ir import Number, Value, Work, WorkNode
from weft.compiler.ops import OpWork
from weft.compiler.passes import optimized
from weft.compiler.passes.products import FusedReluWork
from weft.compiler.program import needed_for
from weft.compiler.static import reached
from weft.compiler.trace import walk
from weft.core import errors
from weft.core.devices import host
from weft.core.node import AccumulateGrad
from weft.core.scopes import path_of
from weft.core.tensor import Tensor, wrap
from weft.graph.graph import Graph
from weft.graph.spec import CONSTANT, FORWARD, INPUT, PARAMETER, STATE, Call, Leaf, Ref, Spec
from weft.nn.module import Module

LOOP = "fused loop"


def graph_of(learned: Any, function: Any) -> Graph:
    """The graph of the program that a function ran most often; of several, the longest."""
    found = [
        (plan.runs, len(plan.path), plan)
        for root in learned.roots.values()
        for point in walk(root)
        for plan in point.plans.values()
        if plan
    ]
    if not found:
        raise RuntimeError(
            f"graph.of: {learned.name} has no program yet: call it until it is compiled (the "
            f"second or third call), or ask torch.compiler.explain why not\n  at {errors.here()}"
        )
    *_, plan = max(found, key=lambda entry: entry[:2])
    return _ProgramGraph(plan.program.source, _labels(plan, function)).graph()


class _Label(NamedTuple):
    """The label of a parameter or of an optimizer's state."""

    kind: str
    text: str
    owner: str  # the parameter itself, or that of the state
    tensor: Tensor | None = None

    @property
    def scope(self) -> str:
        return self.owner.rpartition(".")[0]


def _labels(plan: Any, function: Any) -> dict[int, _Label]:
    """The names of parameters and of optimizers' states among the leaves of a program."""
    models = [x for x in reached(function) if isinstance(x, Module)]
    names = {id(p): name for model in models for name, p in model.named_parameters()}
    found: dict[int, _Label] = {}
    for token in plan.path:
        for slot in token.leaves:
            tensor = slot.node.variable if isinstance(slot.node, AccumulateGrad) else None
            if tensor is not None:
                name = names.get(id(tensor), "")
                found[slot.number] = _Label(PARAMETER, name, name, tensor)
        for member in token.step.members if token.step is not None else ():
            param = found.get(token.slots[member.param][1].number)
            states = token.step.groups[member.group].names if param and param.text else ()
            for place, state in zip(member.states, states, strict=False):
                text = f"{param.text}.{state}"  # type: ignore[union-attr]
                label = _Label(STATE, text, param.text)  # type: ignore[union-attr]
                found[token.slots[place][1].number] = label
    return {node: found[number] for node, number in plan.leaves.items() if number in found}


class _ProgramGraph:
    """The work of a program, converted to the records of a graph."""

    def __init__(self, source: Any, labels: dict[int, _Label]) -> None:
        specs, leaves, wanted, writes, numbers = source
        self.labels: dict[Any, _Label] = labels
        needed = needed_for(specs, leaves, (*wanted, *writes.values()), writes)
        expansion = Expansion(specs, leaves, list(numbers), needed)
        ends = [expansion.read(r) for r in (*wanted, *writes.values())]
        nodes, ends = optimized(expansion.nodes, ends)
        self.specs: dict[int, Spec] = {}
        self.modules: dict[str, str] = {}
        self.refs: dict[Value, Ref] = {}
        for node in nodes:
            if node.work.members and not isinstance(node.work, FusedReluWork):
                self.add_loop(node.work)
                continue
            for part in node.work.members or (node,):
                self.add(part, path_of(part.spec.scope))
        self.outputs = tuple(r for r in map(self.read, ends) if isinstance(r, Ref))

    def graph(self) -> Graph:
        """The records as a graph."""
        return Graph()._fill(self.specs, self.outputs, modules=self.modules)

    def add_loop(self, work: Work) -> None:
        number = sum(kind.startswith(LOOP) for kind in self.modules.values())
        homes = {path_of(member.spec.scope) for member in work.members}
        home = homes.pop() if len(homes) == 1 else ""
        path = ".".join(filter(None, (home, f"loop{number}")))
        self.modules[path] = f"{LOOP} of {len(work.members)}"
        for member in work.members:
            self.add(member, path)

    def add(self, node: WorkNode, scope: str) -> None:
        args = tuple([self.read(x) if isinstance(x, Value) else x for x in node.args])
        op, attrs = _runs(node.work, len(node.results))
        several = op.multiple
        shapes = tuple(v.shape for v in node.results)
        dtypes = tuple(v.dtype for v in node.results)
        spec = self.put(
            FORWARD, op, args, attrs, shapes if several else shapes[0],
            dtypes if several else dtypes[0], node.spec.code, node.spec.instruction, scope,
            source=node.spec.source, **self.of_step(node),
        )  # fmt: skip
        self.refs.update(zip(node.results, spec.results(), strict=True))

    def of_step(self, node: WorkNode) -> dict[str, str]:
        """The label of an optimizer's step: named after the parameter that it updates."""
        first = node.args[0] if node.args else None
        if not isinstance(node.work, StepWork) or not isinstance(first, Value):
            return {}
        param = self.labels.get(first.leaf)
        return {"label": f"{param.text}.{node.work.name.lower()}"} if param and param.text else {}

    def put(self, *fields: Any, **more: Any) -> Spec:
        spec = Spec(len(self.specs), *fields, **more)
        self.specs[spec.id] = spec
        return spec

    def read(self, x: Any) -> Any:
        """A value as the result of a record; a leaf's record is added on first use."""
        if not isinstance(x, Value):
            return x
        if x not in self.refs:
            kind, label, scope, leaf = INPUT, "", "", None
            if isinstance(x, Number):
                label = f"number{x.index}"
            elif x.constant is not None:
                kind, leaf = CONSTANT, Leaf(wrap(x.constant))
            elif x.leaf in self.labels:
                known = self.labels[x.leaf]
                kind, label, scope = known.kind, known.text, known.scope
                leaf = None if known.tensor is None else Leaf(known.tensor, strong=False)
            given = {"leaf": leaf, "label": label, "scope": scope}
            spec = self.put(kind, kind, (), {}, x.shape, x.dtype, **given)
            self.refs[x] = Ref(spec.id)
        return self.refs[x]


def _runs(work: Work, count: int) -> tuple[Any, dict[str, Any]]:
    """The op of a piece of work; for other work a function that does the same."""
    if isinstance(work, OpWork):
        return work.op, work.attrs

    def run(*args: Any) -> Any:
        read = (host(x) if isinstance(x, Tensor) else x for x in args)
        outs = [wrap(o) for o in work.python(*read)]
        return tuple(outs) if count > 1 else outs[0]

    return Call(work.name or type(work).__name__, run, multiple=count > 1), {}
