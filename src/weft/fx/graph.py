"""A traced program: nodes in the order in which they run."""

from __future__ import annotations

import contextlib
import keyword
import re
from builtins import __dict__ as _builtins
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import weft
from weft.fx.codegen import CodeGen, PythonCode
from weft.fx.node import Argument, Node, Target, linked, map_arg

if TYPE_CHECKING:
    from weft.nn.module import Module

__all__ = ["CodeGen", "Graph", "PythonCode"]

_ILLEGAL = re.compile("[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?")
# Names that a value in generated code must not hide.
_TAKEN = {
    *keyword.kwlist,
    *(name for name in _builtins if not name.startswith("__")),
    *("inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree"),
}


class Namespace:
    """Names for objects: each object has one, and no two objects the same."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any, allowed: bool = False) -> str:
        """A free name like ``candidate``: ``relu``, then ``relu_1``."""
        if obj is not None and obj in self._names:
            return self._names[obj]
        candidate = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        found = _NUMBERED.fullmatch(candidate)
        assert found is not None
        base, digits = found.groups()
        if digits is None or candidate in self._used:
            number = self._counts.get(base, 0)
            if candidate in _TAKEN and not allowed:
                number += 1
                candidate = f"{base}_{number}"
        else:
            number = int(digits)
        while candidate in self._used:
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._counts[base] = number
        if obj is not None:
            self._names[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Say that a name that is taken belongs to an object."""
        self._names.setdefault(obj, name)


class _Nodes:
    """The nodes of a graph, to walk over in either direction."""

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self._graph, self._backwards = graph, backwards

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Node]:
        return linked(self._graph._root, self._backwards)

    def __reversed__(self) -> Iterator[Node]:
        return linked(self._graph._root, not self._backwards)


def _snake_case(text: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", text).lower()


class Graph:
    """A program as a list of nodes, which can be looked at, changed, run and printed as Python.

    >>> from weft import fx
    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_method("relu", (x,))
    >>> _ = graph.output(y)
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_method[target=relu](args = (%x,), kwargs = {})
        return relu
    """

    def __init__(
        self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._namespace = Namespace()
        self._codegen = CodeGen()
        self._owning_module, self._tracer_cls = owning_module, tracer_cls
        self._tracer_extras = tracer_extras

    @property
    def owning_module(self) -> Any:
        """The GraphModule whose graph this is."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, module: Any) -> None:
        self._owning_module = module

    @property
    def nodes(self) -> _Nodes:
        """The nodes in order."""
        return _Nodes(self)

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind, and of a target if one is given."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self) -> Node:
        """The node that gives the result."""
        return next(node for node in reversed(self.nodes) if node.op == "output")

    # --- making nodes ---

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a step where nodes are inserted now: at the end, unless that was changed."""
        name = self._namespace.create_name(name or self._target_to_str(target), None)
        node = Node(self, name, op, target, args or (), kwargs or {}, type_expr)
        self._namespace.associate_name_with_obj(name, node)
        self._insert(node)
        return node

    def _target_to_str(self, target: Any) -> str:
        text = target if isinstance(target, str) else getattr(target, "__name__", "call")
        if text.startswith("__") and text.endswith("__"):
            text = text[2:-2]
        return _snake_case(text)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """Add an input."""
        default = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, default, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Add the reading of a parameter, buffer or attribute of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None
    ) -> Node:
        """Add the call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None
    ) -> Node:
        """Add the call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable,
        args: Any = None,
        kwargs: Any = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """Add the call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Add the result."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda n: n) -> Node:
        """Add a copy of a node of another graph; the function gives its arguments' nodes here."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Any:
        """Add copies of another graph's nodes; gives what its output node holds."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], val_map.__getitem__)
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    # --- where nodes go ---

    def inserting_before(self, n: Node | None = None) -> contextlib.AbstractContextManager[None]:
        """From now on, or in a ``with`` block, new nodes go before this one, or to the front."""
        if n is None:
            return _Point(self, self._root.append)
        self._check_own(n)
        return _Point(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> contextlib.AbstractContextManager[None]:
        """From now on, or in a ``with`` block, new nodes go right after this one, or to the end."""
        if n is None:
            return _Point(self, self._root.prepend)
        self._check_own(n)
        return _Point(self, n.append)

    def _check_own(self, node: Node) -> None:
        if node.graph is not self:
            raise AssertionError("Node to insert at is not in graph.")

    # --- changing ---

    def erase_node(self, to_erase: Node) -> None:
        """Remove an unused node."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._remove_from_list()
        to_erase._erased = True
        to_erase._set_arguments((), {})

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove nodes with unused results and no side effects; True if any."""
        impure, changed = is_impure_node or Node.is_impure, False
        for node in reversed(self.nodes):
            if not impure(node) and not node.users:
                self.erase_node(node)
                changed = True
        return changed

    def lint(self) -> None:
        """Raise if the graph is not well formed: order, names, targets in the module."""
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for used in node.all_input_nodes:
                if used.graph is not self or used._erased:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' does not belong to this Graph, but "
                        "was used as an argument! If you are copying nodes from another graph, "
                        "make sure to use ``arg_transform`` on node_copy() to remap values"
                    )
                if used not in seen:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' was used before it has been defined! "
                        f"Please check that Nodes in the graph are topologically ordered\n{self}"
                    )
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
            if node.op in ("get_attr", "call_module") and self.owning_module is not None:
                self._check_target(node, self.owning_module)

    def _check_target(self, node: Node, module: Module) -> None:
        at: Any = module
        for part in str(node.target).split("."):
            if not hasattr(at, part):
                raise RuntimeError(
                    f"Node {node} target {node.target} references nonexistent attribute {part} of "
                    f"{type(at).__name__}"
                )
            at = getattr(at, part)
        if node.op == "call_module" and not isinstance(at, weft.nn.Module):
            raise RuntimeError(
                f"Node {node} target {node.target} {node.target} of {type(at).__name__} does not "
                "reference an nn.Module"
            )

    # --- text ---

    def set_codegen(self, codegen: CodeGen) -> None:
        """Let another object make the code."""
        self._codegen = codegen

    def python_code(self, root_module: str, **options: Any) -> PythonCode:
        """The graph as the source of a ``forward`` method, with the globals that it needs."""
        return self._codegen.generate(self, root_module, **options)

    def process_inputs(self, *args: Any) -> Any:
        """The arguments of ``forward`` as the graph takes them."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """The graph's result as ``forward`` gives it."""
        return self._codegen.process_outputs(out)

    def __str__(self) -> str:
        lines = [node.format_node() for node in self.nodes]
        return "\n    ".join(["graph():", *(line for line in lines if line)])

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        heads = ["opcode", "name", "target", "args", "kwargs"]
        rows = [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs)] for n in self.nodes]
        try:
            from tabulate import tabulate
        except ImportError:
            widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
            for row in (heads, ["-" * w for w in widths], *rows):
                print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())
        else:
            print(tabulate(rows, headers=heads))

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = {} if memo is None else memo
        made = Graph(tracer_cls=self._tracer_cls)
        made._codegen = self._codegen
        memo[id(self)] = made
        values: dict[Node, Node] = {}
        result = made.graph_copy(self, values, return_output_node=True)
        if isinstance(result, tuple):
            output = made.output(result[0], type_expr=result[1].type)
            output.meta = dict(result[1].meta)
        return made


class _Point(contextlib.AbstractContextManager[None]):
    """Where nodes are inserted from now on; the end of a ``with`` block puts it back."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self._graph, self._before = graph, graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        self._graph._insert = self._before
