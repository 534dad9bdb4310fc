"""A graph as Python code: a module whose forward runs the graph's ops."""

from __future__ import annotations

import builtins
import keyword
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core import dtype as dt
from weft.core.devices import host
from weft.core.dispatch import Op, apply
from weft.core.tensor import Tensor, wrap
from weft.graph.draws import DRAWS, Draw
from weft.graph.run import GraphError
from weft.graph.spec import DETACH, FORWARD, INPUT, LEAVES, PARAMETER, VARIABLE, Ref, Spec, op_named
from weft.operators.casting import memory_format
from weft.operators.random import default_generator

if TYPE_CHECKING:
    from weft.graph.graph import Graph

_SMALL = 16  # elements of a constant that are written out


class _Ops:
    """The registered ops by name: ``ops.relu(x)``."""

    def __getattr__(self, name: str) -> Any:
        try:
            op = op_named(name)
        except ValueError as error:
            raise AttributeError(str(error)) from None
        return (lambda *args, **attrs: apply(op, args, attrs)) if isinstance(op, Op) else op

    def op(self, name: str) -> Any:
        """An op itself, as some settings name one."""
        return op_named(name)

    def draw(self, name: str, *args: Any, **settings: Any) -> Tensor:
        """Random numbers from the default generator."""
        if name not in DRAWS:
            raise AttributeError(f"a generator has no draw {name!r}")
        arrays = [host(x) if isinstance(x, Tensor) else x for x in args]
        return wrap(np.asarray(getattr(default_generator, name)(*arrays, **settings)))


ops = _Ops()


class _SourceWriter:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.names = graph, graph._names()
        self.variables: dict[int, str] = {}
        self.taken = {"self", "held", "weft", "ops", "numpy"}
        wanted = [*graph._outputs, *state_writes(graph).values()]
        behind = graph._behind([r.node for r in wanted])
        self.specs = [s for s in graph._specs.values() if s.id in behind or s.kind == INPUT]
        for spec in self.specs:
            if spec.kind not in LEAVES and spec.kind != FORWARD:
                raise GraphError(
                    f"{self.names[spec.id]!r} is a {spec.kind} node, and code is of forward nodes; "
                    "take the part before it with slice_to(...)"
                )

    def variable(self, spec: Spec) -> str:
        """A name for a node's result that Python takes."""
        if spec.id not in self.variables:
            base = re.sub(r"\W+", "_", self.names[spec.id]).strip("_") or "value"
            base = f"m{base}" if base[0].isdigit() else base
            base = f"{base}_" if keyword.iskeyword(base) or hasattr(builtins, base) else base
            name, count = base, 1
            while name in self.taken:
                count += 1
                name = f"{base}_{count}"
            self.taken.add(name)
            self.variables[spec.id] = name
        return self.variables[spec.id]

    def value(self, x: Any) -> str:
        """A constant, a setting or a result as Python."""
        if x.__class__ is Ref:
            spec = self.graph._specs[x.node]
            if spec.kind in LEAVES and spec.kind != INPUT:
                return f"held[{self.names[spec.id]!r}]"
            return self.variable(spec) + (f"[{x.index}]" if spec.several else "")
        if isinstance(x, float) and not np.isfinite(x):
            return f'float("{x}")'
        if x is None or x is Ellipsis or isinstance(x, (bool, int, float, complex, str)):
            return repr(x)
        if isinstance(x, tuple):
            return f"({', '.join(map(self.value, x))}{',' * (len(x) == 1)})"
        if isinstance(x, list):
            return f"[{', '.join(map(self.value, x))}]"
        if isinstance(x, dict):
            return "{" + ", ".join(f"{self.value(k)}: {self.value(v)}" for k, v in x.items()) + "}"
        if isinstance(x, slice):
            return f"slice({', '.join(map(self.value, (x.start, x.stop, x.step)))})"
        return self._rare(x)

    def _rare(self, x: Any) -> str:
        if isinstance(x, np.dtype):
            return f"weft.{dt.of_numpy(x).name}.np"
        if isinstance(x, dt.dtype):
            return f"weft.{x.name}"
        if isinstance(x, memory_format):
            return f"weft.{x.name}"
        if isinstance(x, Op):
            return f"ops.op({x.name!r})"
        array = host(x)
        if isinstance(array, (np.ndarray, np.generic)) and array.dtype.kind in "fiub":
            if array.size <= _SMALL and np.isfinite(array).all():
                made = f'numpy.array({array.tolist()!r}, "{array.dtype.str}")'
                if isinstance(x, np.generic):
                    made += "[()]"
                return f"weft.from_numpy({made})" if isinstance(x, Tensor) else made
        raise GraphError(f"a {type(x).__name__} among the settings of a node can't be written")

    def line(self, spec: Spec) -> str:
        """The statement that computes a node."""
        name = self.variable(spec)
        read = [self.value(x) for x in spec.args]
        if spec.op is DETACH:
            made = f"{read[0]}.detach()"
        elif spec.op is VARIABLE:
            made = f"{read[0]}.detach().requires_grad_()"
        else:
            settings = [f"{k}={self.value(v)}" for k, v in spec.attrs.items()]
            if isinstance(spec.op, Draw):
                made = f"ops.draw({', '.join([repr(spec.op.name), *read, *settings])})"
            elif isinstance(spec.op, Op):
                made = f"ops.{spec.op.name}({', '.join([*read, *settings])})"
            else:
                raise GraphError(
                    f"{self.names[spec.id]!r} is a call of the Python function "
                    f"{spec.op_name!r}, which weft can't look into; replace it by ops first"
                )
        text = f"{name} = {made}"
        return text if spec.grad else f"with weft.no_grad(): {text}"


def state_writes(graph: Graph) -> dict[int, Ref]:
    """What the block wrote into buffers of modules, such as running statistics."""
    return {
        leaf: r
        for leaf, r in graph._updates.items()
        if "state" in graph._specs[leaf].attrs and graph._specs[leaf].kind != PARAMETER
        and r.node in graph._specs and graph._specs[r.node].kind == FORWARD
    }  # fmt: skip


def code(graph: Graph) -> str:
    """Python that rebuilds the graph; with ``g.to_module().state_dict()`` it gives its numbers."""
    graph._check_whole()
    writer = _SourceWriter(graph)
    inputs = [writer.variable(s) for s in writer.specs if s.kind == INPUT]
    made, body, last = [], [], ""
    for spec in writer.specs:
        if spec.kind in LEAVES:
            if spec.kind != INPUT:
                made.append(_held(writer, spec))
            continue
        if spec.scope != last:
            body.append(f"# {spec.scope or 'outside of modules'}")
            last = spec.scope
        body.append(writer.line(spec))
    writes = state_writes(graph)
    if writes:
        body.append("if self.training:")
        body.append("    with weft.no_grad():")
        for leaf, r in writes.items():
            body.append(f"        held[{writer.names[leaf]!r}].copy_({writer.value(r)})")
    outs = ", ".join(writer.value(r) for r in graph._outputs)
    body.append(f"return {outs if len(graph._outputs) == 1 else f'({outs})'}")
    lines = [
        "import numpy  # noqa: F401",
        "import weft",
        "from weft.graph import ops",
        "from weft.nn.graph_module import Held",
        "",
        "",
        "class Recorded(Held):",
        "    def __init__(self):",
        "        super().__init__()",
        *(f"        {x}" for x in made),
        "",
        f"    def forward(self, {', '.join(inputs)}):" if inputs else "    def forward(self):",
        "        held = self.held()",
        *(f"        {x}" for x in body),
        "",
    ]
    return "\n".join(lines)


def _held(writer: _SourceWriter, spec: Spec) -> str:
    shape, dtype = spec.kind_of(0)
    kind = f"weft.empty({writer.value(tuple(shape))}, dtype=weft.{dt.of_numpy(dtype).name})"
    return f"self.hold({writer.names[spec.id]!r}, {kind}, trains={spec.kind == PARAMETER})"
