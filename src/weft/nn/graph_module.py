"""A graph as a module: its parameters train, move and are saved like those of any other."""

from __future__ import annotations

from typing import Any

from weft.core import errors
from weft.core.modes import no_grad
from weft.core.tensor import Parameter, Tensor
from weft.graph.graph import Graph
from weft.graph.run import Execution, GraphError
from weft.graph.source import state_writes
from weft.graph.spec import INPUT, LEAVES, PARAMETER
from weft.nn.module import Module


class Held(Module):
    """A module that holds tensors under paths, ``encoder.0.weight``, as the model had them."""

    def hold(self, path: str, tensor: Tensor, trains: bool = True) -> None:
        """Take a tensor as a parameter, or as a buffer."""
        *parts, name = path.split(".")
        owner: Module = self
        for part in parts:
            inner = owner._modules.get(part)
            if inner is None:
                inner = Module()
                owner.add_module(part, inner)
            owner = inner
        if trains:
            made = tensor if isinstance(tensor, Parameter) else Parameter(tensor.detach())
            owner.register_parameter(name, made)
        else:
            owner.register_buffer(name, tensor)

    def held(self) -> dict[str, Tensor]:
        """All that is held, by path."""
        found: dict[str, Tensor] = dict(self.named_parameters(remove_duplicate=False))
        found.update(self.named_buffers(remove_duplicate=False))
        return found


class RecordedModule(Held):
    """Runs a graph on inputs; parameters are those of the graph's model, the very same tensors.

    Random numbers are drawn again in each call. In training mode buffers are written as the program
    wrote them.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self._writes = state_writes(graph)
        needed = graph._behind([r.node for r in (*graph._outputs, *self._writes.values())])
        self._places: dict[int, str] = {}
        names = graph._names()
        for spec in graph._specs.values():
            if spec.kind not in LEAVES or spec.kind == INPUT or spec.id not in needed:
                continue
            tensor = None if spec.leaf is None else spec.leaf.tensor
            if tensor is None:
                raise GraphError(
                    f"to_module: the value of {names[spec.id]!r} is gone; weft.graph.record() "
                    f"holds its leaves\n  at {errors.here()}"
                )
            self._places[spec.id] = names[spec.id]
            self.hold(names[spec.id], tensor, spec.kind == PARAMETER)
        order = graph._order or [node.name for node in graph.inputs]
        self._inputs = [(graph._id(name), name) for name in order]

    def forward(self, *args: Any, **named: Any) -> Any:
        """What the graph gives for inputs in order, or by name."""
        names = [name for _, name in self._inputs]
        given = {**dict(zip(names, args, strict=False)), **named}
        if len(args) > len(names) or set(given) != set(names):
            raise TypeError(
                f"the graph has the inputs {names}, and {len(args)} were given in order"
                f"{f' and {sorted(named)} by name' if named else ''}\n  at {errors.here()}"
            )
        held = self.held()
        values = {id: held[path] for id, path in self._places.items()}
        values.update((id, given[name]) for id, name in self._inputs)
        writes = self._writes if self.training else {}
        run = Execution(self.graph, values, reuse=False, live=True)
        found = run.run([*self.graph._outputs, *writes.values()])
        count = len(self.graph._outputs)
        with no_grad():
            for leaf, value in zip(writes, found[count:], strict=True):
                held[self._places[leaf]].copy_(value)
        return found[0] if count == 1 else tuple(found[:count])

    def extra_repr(self) -> str:
        """The inputs, and the size of the graph."""
        names = ", ".join(name for _, name in self._inputs)
        return f"{len(self.graph)} nodes, inputs: {names or 'none'}"
