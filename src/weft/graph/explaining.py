"""Why a gradient is None, zero, NaN or huge, and where a NaN came from: in words."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any

import numpy as np

from weft.autograd import engine
from weft.autograd.anomaly import badness
from weft.core.devices import host
from weft.core.dispatch import Op
from weft.core.modes import enable_grad
from weft.core.node import GraphNode as GraphEdge
from weft.core.node import OpNode
from weft.core.tensor import Tensor, wrap
from weft.graph.build import behind, of
from weft.graph.collecting import no_collection
from weft.graph.graph import Graph
from weft.graph.graph import Node as GraphNode
from weft.graph.run import Execution, GraphError
from weft.graph.spec import FORWARD, LEAVES, Ref, Spec, listening
from weft.graph.stats import describe

HUGE = 1e4  # the norm of a gradient from which on it counts as huge
TINY = 1e-12  # and below which it moves nothing


class Answer:
    """An explanation: ``verdict`` in a word, the text, the node to look at, and the path to it."""

    def __init__(
        self, verdict: str, text: str, node: GraphNode | None = None, path: Any = ()
    ) -> None:
        self.verdict, self.text, self.node, self.path = verdict, text, node, list(path)

    def __repr__(self) -> str:
        lines = [self.text]
        if self.node is not None and self.node.source:
            lines.append(f"  at {self.node.source}")
        if self.path:
            names = [n.name for n in self.path]
            if len(names) > 12:
                names = [*names[:6], "...", *names[-5:]]
            lines.append(f"  path: {' -> '.join(names)}")
        return "\n".join(lines)


def why(tensor: Tensor, loss: Tensor | Graph | None = None) -> Answer:
    """Why a tensor's gradient is what it is: None, zero, tiny, NaN, huge, or fine.

    With the loss (or a recorded graph) the answer names the node and the path.
    """
    with no_collection():
        return _answered(tensor, loss)


def _answered(tensor: Tensor, loss: Tensor | Graph | None) -> Answer:
    grad = tensor._grad
    if grad is None:
        return _why_none(tensor, loss)
    array = host(grad)
    if not array.size:
        return Answer("fine", "its gradient is empty, as it is: it has no elements")
    size = _norm((array,))
    if np.isnan(array).any():
        return _why_bad(tensor, loss, "nan", f"its gradient has {int(np.isnan(array).sum())} NaN")
    if np.isinf(array).any():
        return _why_bad(tensor, loss, "inf", f"its gradient has {int(np.isinf(array).sum())} inf")
    if not array.any():
        return _why_bad(tensor, loss, "zero", "its gradient is zero everywhere")
    if size > HUGE:
        return _why_bad(tensor, loss, "huge", f"its gradient is huge: norm {size:.3g}")
    if size < TINY:
        return _why_bad(tensor, loss, "tiny", f"its gradient is tiny: norm {size:.3g}")
    return Answer("fine", f"its gradient is finite and not zero: norm {size:.3g}, "
                          f"{describe(array)}")  # fmt: skip


def _why_none(tensor: Tensor, loss: Any) -> Answer:
    if not tensor.requires_grad:
        text = "it has no gradient because it does not require one; call requires_grad_() on it "
        return Answer("none", text + "before it is used, or it was made inside no_grad or detached")
    if not tensor.is_leaf:
        text = f"it was computed (by {tensor.grad_fn.name()}) and only leaves keep their gradient; "  # type: ignore[union-attr]
        return Answer("none", text + "call retain_grad() on it before backward()")
    if loss is None:
        text = (
            "it requires a gradient, and none has arrived: no backward() reached it since it was "
        )
        return Answer("none", text + "last cleared. Give the loss, why(tensor, loss), for the path")
    if isinstance(loss, Tensor) and loss._node is None:
        text = "the loss has no graph: nothing it was computed from requires a gradient, or it was "
        return Answer("none", text + "computed inside no_grad, so no backward() can start from it")
    graph = graph_behind(loss)
    start = _leaf_of(graph, tensor)
    if start is not None:
        cut = _cut(graph, start)
        if cut is None:
            path = _path(graph, start)
            text = "a path leads from it to the loss, so backward() has not run yet, or the "
            return Answer("none", text + "gradient was cleared (zero_grad) after it", path=path)
        node, reason = cut
        return Answer("none", f"it is used, but {reason}", node, _path(graph, start, node.id))
    hidden = _detached_use(loss, tensor) if isinstance(loss, Tensor) else ""
    if hidden:
        return Answer("none", hidden)
    text = "the loss does not depend on it: no op between it and the loss was recorded. It was "
    text += "not used, was used inside no_grad, or through detach(), numpy() or item()"
    return Answer("none", f"{text}; why(tensor, graph) with a record() of the step names the line")


def graph_behind(loss: Any) -> Graph:
    if isinstance(loss, Graph):
        return loss
    return of(loss)


def _leaf_of(graph: Graph, tensor: Tensor) -> int | None:
    for spec in graph._specs.values():
        if spec.leaf is not None and spec.leaf.tensor is tensor:
            return spec.id
    return None


def ends_of(graph: Graph) -> set[int]:
    roots = {r.node for p in graph._passes for r, _ in p.roots if r is not None}
    return roots or {r.node for r in graph._ends()}


def _cut(graph: Graph, start: int) -> tuple[GraphNode, str] | None:
    """Where the gradient's way from a leaf to the loss ends, if it does."""
    open_: set[int] = {start}
    dead: list[tuple[Spec, str]] = []
    for spec in graph._specs.values():
        if spec.kind != FORWARD or not any(r.node in open_ for r in spec.refs()):
            continue
        reason = _stops(spec)
        if reason is None:
            open_.add(spec.id)
        else:
            dead.append((spec, reason))
    if open_ & ends_of(graph):
        return None
    if dead:
        spec, reason = dead[-1]
        return graph._node(spec.id), reason
    last = graph._node(max(open_))
    return last, f"its use ends at {last.name}, from which nothing leads to the loss"


def _stops(spec: Spec) -> str | None:
    if spec.op_name == "detach":
        return "the gradient is cut off by detach()"
    if not spec.grad:
        return f"{spec.title} ran inside no_grad"
    if not getattr(spec.op, "differentiable", True):
        return f"{spec.title} has no derivative"
    if all(d is not None and d.kind not in "fcV" for _, d in spec.kinds()):
        return f"{spec.title} gives whole numbers, which carry no gradient"
    return None


def _detached_use(loss: Tensor, tensor: Tensor) -> str:
    """Whether a node behind the loss read the tensor's memory as a constant."""
    for node in behind([loss.grad_fn]) if loss.grad_fn is not None else ():
        if any(np.may_share_memory(a, host(tensor)) for a in _constants(node) if a.size):
            return (
                f"its values are used by {node.op.name}, but as a constant: they were cut off "
                "before, by detach(), .data or no_grad, and are read\n"
                f"  at {node.source}\n"
                "  why(tensor, graph) with a record() of the step names the line of detach()"
            )
    return ""


def _constants(node: Any) -> list[np.ndarray]:
    """The arrays that a node read without a gradient, as far as they are still known."""
    if not isinstance(node, OpNode):
        return []
    held = [edge() if isinstance(edge, weakref.ref) else edge for edge in node.inputs]
    read = {
        slot: value for slot, value in zip(node.plan.slots, node.saved, strict=False)
        if slot in node.op.names and isinstance(value, np.ndarray)
    }  # fmt: skip
    for i, edge in enumerate(node.inputs):
        if isinstance(edge, GraphEdge) and i < len(node.op.names):
            read.pop(node.op.names[i], None)
    return [*read.values(), *(host(t) for t in held if isinstance(t, Tensor))]


def _path(graph: Graph, start: int, end: int | None = None) -> list[GraphNode]:
    """A shortest way from a leaf towards the loss."""
    ends = {end} if end is not None else ends_of(graph)
    users, came = graph._users(), {start: -1}
    queue = deque([start])
    while queue:
        id = queue.popleft()
        if id in ends:
            way = []
            while id >= 0:
                way.append(graph._node(id))
                id = came[id]
            return way[::-1]
        for k in users.get(id, ()):
            spec = graph._specs[k]
            open_ = k in ends or _stops(spec) is None
            if k not in came and spec.kind == FORWARD and open_:
                came[k] = id
                queue.append(k)
    return []


def _why_bad(tensor: Tensor, loss: Any, verdict: str, head: str) -> Answer:
    if loss is None:
        return Answer(
            verdict, f"{head}. Give the loss, why(tensor, loss), for the node that did it"
        )
    graph = graph_behind(loss)
    start = _leaf_of(graph, tensor)
    if start is None:
        return Answer(verdict, f"{head}, and the loss given does not depend on it: the gradient is "
                               "from another backward")  # fmt: skip
    path = _path(graph, start)
    try:
        node, reason = _found(graph, start, verdict, {})
    except GraphError as error:
        found = _without_the_lost(graph, start, verdict)
        if found is None:
            gone = str(error).partition("\n")[0]
            text = f"{head}. The node can't be named, since values are gone: {gone}"
            return Answer(verdict, text, path=path)
        node, reason = found
    if node is None:
        return Answer(verdict, f"{head}; no single node between it and the loss explains it",
                      path=path)  # fmt: skip
    return Answer(verdict, f"{head}: {reason}", graph._node(node.id), path)


def _found(graph: Graph, start: int, verdict: str, given: dict[int, Any]) -> Any:
    """The node that explains a leaf's gradient, and the reason."""
    values, grads = gradients(graph, given)
    if given and _verdict(grads.get(start, ())) != verdict:
        raise GraphError("what is lost takes part in the gradient")
    inside = graph._after([start])
    between = [s for s in reversed(graph._specs.values()) if s.id in inside and s.kind == FORWARD]
    find = {"zero": _first_zero, "huge": _largest_growth, "tiny": _largest_shrinkage}
    with np.errstate(over="ignore", invalid="ignore"):
        return find.get(verdict, _first_broken)(graph, between, values, grads, inside)


def _verdict(grads: Any) -> str:
    """What ``why`` says of a gradient."""
    if any(np.isnan(g).any() for g in grads):
        return "nan"
    if any(np.isinf(g).any() for g in grads):
        return "inf"
    size = _norm(grads)
    return "zero" if not size else "huge" if size > HUGE else "tiny" if size < TINY else "fine"


def _without_the_lost(graph: Graph, start: int, verdict: str) -> Any:
    """The same, where constants are lost that play no part: the answer is one for any values."""
    answers = []
    for fill in (0.75, 1.5):
        given = {}
        for spec in graph._specs.values():
            if spec.kind in LEAVES and spec.leaf is not None and spec.leaf.tensor is None:
                kind = _kind_of_lost(graph, spec)
                if kind is None:
                    return None
                given[spec.id] = wrap(np.full(kind[0], fill, kind[1]))
        try:
            answers.append(_found(graph, start, verdict, given))
        except (GraphError, RuntimeError, ValueError, TypeError, IndexError):
            return None
    (node, reason), (other, _) = answers
    return (node, reason) if node is other else None


def _kind_of_lost(graph: Graph, spec: Spec) -> tuple[Any, Any] | None:
    """Shape and dtype of a lost constant; an elementwise op tells one that will do as well."""
    if spec.shape is not None:
        return spec.shape, spec.dtype
    for k in graph._users().get(spec.id, ()):
        user = graph._specs[k]
        if getattr(user.op, "diagonal", False):
            return user.shape, user.dtype
    return None


def gradients(
    graph: Graph, given: dict[int, Any] | None = None
) -> tuple[dict[int, Any], dict[int, list[Any]]]:
    """All values of a graph, computed again, and the gradients of the loss by them."""
    roots = [pair for p in graph._passes for pair in p.roots if pair[0] is not None]
    roots = roots or [(r, None) for r in graph._ends()]
    behind, specs = graph._behind([r.node for r, _ in roots]), graph._specs  # type: ignore[union-attr]
    run_kinds = (*LEAVES, FORWARD)
    wanted = [
        Ref(id, k)
        for id in behind
        if specs[id].kind in run_kinds
        for k in range(len(specs[id].shape) if specs[id].several else 1)
    ]
    with listening(), enable_grad():
        run = Execution(graph, given or {}, reuse=False)
        found = dict(zip(wanted, run.run(wanted), strict=True))
        live = [r for r in wanted if isinstance(found[r], Tensor) and found[r].requires_grad]
        ends = [(found[r], seed) for r, seed in roots if found[r].requires_grad]  # type: ignore[index]
        if not ends:
            raise GraphError("nothing that the loss depends on requires a gradient")
        seeds = [wrap(np.ones_like(t._a) if seed is None else seed) for t, seed in ends]
        results = engine.grad(
            [t for t, _ in ends], [found[r] for r in live], seeds, allow_unused=True
        )
    values: dict[int, Any] = {}
    for r, t in found.items():
        values.setdefault(r.node, []).append(host(t) if isinstance(t, Tensor) else t)
    grads: dict[int, list[Any]] = {}
    for r, g in zip(live, results, strict=True):
        if g is not None:
            grads.setdefault(r.node, []).append(host(g))
    return values, grads


def _inputs_of(spec: Spec, grads: dict[int, list[Any]], inside: set[int]) -> list[Any]:
    """The gradients of what a node read, towards the tensor in question."""
    nodes = {r.node for r in spec.refs() if r.node in inside}
    return [g for id in nodes for g in grads.get(id, ())]


class _PassedOn:
    """The gradients that nodes passed on, and the sizes of gradients."""

    def __init__(self, graph: Graph, values: Any, grads: Any, inside: set[int]) -> None:
        self.values, self.grads, self.inside, self.users = values, grads, inside, graph._users()
        self.norms: dict[int, float] = {}

    def by(self, spec: Spec) -> list[Any]:
        """What a node gave to its inputs: of a value that others read too, its own share."""
        towards = {r.node for r in spec.refs() if r.node in self.inside}
        shared = any(len(self.users[id]) > 1 for id in towards)
        share = self._share(spec, towards) if shared else None
        return [g for id in towards for g in self.grads.get(id, ())] if share is None else share

    def size(self, spec: Spec) -> float:
        """The norm of the same."""
        towards = {r.node for r in spec.refs() if r.node in self.inside}
        if len(towards) == 1 and len(self.users[id := next(iter(towards))]) == 1:
            return self.norm(id)
        return _norm(self.by(spec))

    def norm(self, id: int) -> float:
        """The size of the gradient that arrived at a node."""
        found = self.norms.get(id)
        if found is None:
            found = self.norms[id] = _norm(self.grads.get(id, ()))
        return found

    def _share(self, spec: Spec, towards: set[int]) -> list[Any] | None:
        """A node's backward alone, on what it read; None where it can't be run by itself."""
        arrived = self.grads.get(spec.id, ())
        if not isinstance(spec.op, Op) or len(arrived) != len(spec.kinds()):
            return None
        args, wanted = [], []
        with listening(), enable_grad():
            for x in spec.args:
                if x.__class__ is Ref:
                    known = x.node in self.values
                    value = self.values[x.node][x.index] if known else None
                    if not isinstance(value, np.ndarray):
                        return None
                    x_node, x = x.node, wrap(value)
                    if x_node in towards and value.dtype.kind in "fcV":
                        wanted.append(x.requires_grad_())
                args.append(x)
            out = spec.op(*args, **spec.attrs)
            ends = list(out) if spec.op.multiple else [out]
            found = engine.grad(ends, wanted, [wrap(g) for g in arrived], allow_unused=True)
        return [host(g) for g in found if g is not None]


def _first_zero(graph: Graph, between: Any, values: Any, grads: Any, inside: Any) -> Any:
    for spec in between:
        mine, passed = grads.get(spec.id, ()), _inputs_of(spec, grads, inside)
        if any(g.any() for g in mine) and passed and not any(g.any() for g in passed):
            return spec, _zero_reason(graph, spec, values, mine)
    ends = [s for s in between if s.id in ends_of(graph)]
    if ends and not any(g.any() for g in grads.get(ends[0].id, ())):
        return ends[0], "the gradient is zero already where backward begins"
    return None, ""


def _zero_reason(graph: Graph, spec: Spec, values: dict[int, Any], arrived: Any) -> str:
    read = [values[r.node][r.index] for r in spec.refs() if r.node in values]
    name = graph._names()[spec.id]
    shown = ", ".join(describe(v) for v in read if isinstance(v, np.ndarray))
    if spec.op_name == "relu" and read and (read[0] <= 0).all():
        those = "every input is negative" if (read[0] < 0).all() else "no input is positive"
        return f"at {name} {those} ({shown}), where relu has slope zero"
    if _saturated(spec, values[spec.id][0]):
        return f"at {name} every element is saturated ({shown})"
    dim = spec.attrs.get("dim")
    if spec.op_name == "softmax" and isinstance(dim, int) and arrived:
        if arrived[0].ndim and not np.ptp(arrived[0], axis=dim).any():
            return (
                f"{name} sums to one along dim {dim} whatever it reads, and the gradient that "
                "arrives is the same for all elements there, so it cancels: weigh them "
                "differently (a target, a loss) before they are summed"
            )
    if spec.op_name in ("mul", "mm", "bmm", "linear", "linear_with_bias", "convolution"):
        return f"{name} multiplies it by zeros ({shown})"
    return f"{name} turns a gradient that is not zero into zeros (it read {shown})"


def _saturated(spec: Spec, result: Any) -> bool:
    """Whether an op that has flat ends is at one of them with every element."""
    name = spec.op_name
    if name in ("hardtanh", "clamp", "hardsigmoid"):
        return True  # flat but for its middle, where the slope is not zero
    if not isinstance(result, np.ndarray) or result.dtype.kind != "f":
        return False
    if name == "tanh":
        result = np.abs(result)
    if name in ("sigmoid", "tanh", "softmax"):
        return bool((np.minimum(np.abs(result), np.abs(1 - result)) < 1e-6).all())
    return False


def _first_broken(graph: Graph, between: Any, values: Any, grads: Any, inside: Any) -> Any:
    bad = _nan_in_forward(graph, values)
    if bad is not None:
        name = graph._names()[bad.id]
        return bad, f"the forward pass has NaN already: {name} made the first; see first_bad"
    passed_on = _PassedOn(graph, values, grads, inside)
    for spec in between:
        mine, passed = grads.get(spec.id, ()), _inputs_of(spec, grads, inside)
        if not mine or not _finite(mine) or _finite(passed):
            continue
        if not _finite(passed_on.by(spec)):
            return spec, _broken_reason(graph, spec, values)
    ends = [s for s in between if s.id in ends_of(graph)]
    return (ends[0], "it is so already where backward begins") if ends else (None, "")


def _finite(arrays: Any) -> bool:
    return all(np.isfinite(g).all() for g in arrays)


def _nan_in_forward(graph: Graph, values: dict[int, Any]) -> Spec | None:
    """The first node that gave NaN though it read none."""
    hurt: set[int] = set()
    for spec in graph._specs.values():
        if badness(values.get(spec.id, ())) == "NaN":
            if not any(r.node in hurt for r in spec.refs()):
                return spec
            hurt.add(spec.id)
    return None


_EDGES = {
    "sqrt": "the slope of sqrt is infinite at 0; add a small number first",
    "log": "the slope of log is infinite at 0; add a small number or use log1p",
    "div": "it divides by zero",
    "reciprocal": "it divides by zero",
    "rsqrt": "it divides by zero",
    "pow": "a power has an infinite slope at 0 where the exponent is below 1",
    "norm": "the norm has no slope at 0; add a small number under the root",
    "linalg_vector_norm": "the norm has no slope at 0; add a small number under the root",
    "acos": "acos has an infinite slope at -1 and 1",
    "asin": "asin has an infinite slope at -1 and 1",
    "atan2": "atan2 has no slope at (0, 0)",
    "exp": "the exponential overflows",
}


def hint_for(op_name: str) -> str:
    """Where an op usually has no finite slope, and what helps; or nothing."""
    return _EDGES.get(op_name, "")


def _broken_reason(graph: Graph, spec: Spec, values: dict[int, Any]) -> str:
    name = graph._names()[spec.id]
    read = [values[r.node][r.index] for r in spec.refs() if r.node in values]
    shown = "; ".join(describe(v) for v in read if isinstance(v, np.ndarray))
    hint = hint_for(spec.op_name)
    return f"{name} received a finite gradient and passed on one that is not (it read {shown})" + (
        f": {hint}" if hint else ""
    )


def _largest_growth(graph: Graph, between: Any, values: Any, grads: Any, inside: Any) -> Any:
    best: tuple[float, Spec | None] = (1.0, None)
    passed_on = _PassedOn(graph, values, grads, inside)
    for spec in between:
        mine, passed = passed_on.norm(spec.id), passed_on.size(spec)
        if mine and passed / mine > best[0]:
            best = (passed / mine, spec)
    if best[1] is None:
        return None, ""
    name = graph._names()[best[1].id]
    return best[1], f"it grows most at {name}, by a factor of {best[0]:.3g}"


def _largest_shrinkage(graph: Graph, between: Any, values: Any, grads: Any, inside: Any) -> Any:
    best: tuple[float, Spec | None] = (1.0, None)
    count = 0
    passed_on = _PassedOn(graph, values, grads, inside)
    for spec in between:
        mine, passed = passed_on.norm(spec.id), passed_on.size(spec)
        if mine and passed:
            count += passed < 0.5 * mine
            if passed / mine < best[0]:
                best = (passed / mine, spec)
    if best[1] is None:
        return None, ""
    name = graph._names()[best[1].id]
    more = f"; {count} nodes make it less than half as large" if count > 1 else ""
    return best[1], f"it shrinks most at {name}, to {best[0]:.3g} of its size{more}"


def _norm(arrays: Any) -> float:
    total = 0.0
    for g in arrays:
        row = (np.abs(g) if g.dtype.kind == "c" else g).astype(np.float64).ravel()
        total += float(row.dot(row))  # in float64, where squares of tiny numbers are not zero
    return math.sqrt(total)


__all__ = ["Answer", "ends_of", "gradients", "graph_behind", "hint_for", "why"]
