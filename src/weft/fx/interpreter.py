"""Running a graph node by node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, map_aggregate, map_arg
from weft.fx.proxy import Proxy
from weft.nn.module import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs the graph of a module; subclasses change what a kind of node does.

    >>> import weft
    >>> traced = weft.fx.symbolic_trace(lambda x: weft.neg(x) + 1)
    >>> class Loud(weft.fx.Interpreter):
    ...     def run_node(self, n):
    ...         print(n.op, n.name)
    ...         return super().run_node(n)
    >>> Loud(traced).run(weft.tensor(2.0))
    placeholder x
    call_function neg
    call_function add
    output output
    tensor(-1.)
    """

    def __init__(
        self,
        module: Module,
        garbage_collect_values: bool = True,
        graph: Graph | None = None,
    ) -> None:
        self.module: Any = module
        self.graph: Graph = self.module.graph if graph is None else graph
        self.submodules = dict(module.named_modules())
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for node in reversed(self.graph.nodes):
            for used in node.all_input_nodes:
                if used not in seen:
                    seen.add(used)
                    self.user_to_last_uses.setdefault(node, []).append(used)

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """Run the graph; ``initial_env`` holds values of nodes that are not to be run."""
        self.env = {} if initial_env is None else initial_env
        inputs = self.graph.process_inputs(*args) if enable_io_processing else args
        self.args_iter: Iterator[Any] = iter(inputs)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    said = f"While executing {node.format_node()}"
                    error.args = (f"{error.args[0]}\n\n{said}" if error.args else said,)
                raise
            if self.garbage_collect_values:
                for used in self.user_to_last_uses.get(node, []):
                    del self.env[used]
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def run_node(self, n: Node) -> Any:
        """Run one node by the method of its kind."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The next argument of ``run``, or the default."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An attribute of the module."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a function."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a method of the first argument."""
        owner, *rest = args
        return getattr(owner, target)(*rest, **kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a submodule."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """What the module has under a dotted name."""
        found: Any = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(found, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: i + 1])}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        """The arguments of a node with values instead of nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """An argument with values instead of nodes."""

        def value(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {used}! Run Graph.lint() to diagnose "
                    "such issues"
                )
            return self.env[used]

        return map_arg(args, value)


class Transformer(Interpreter):
    """Makes a new module by running a graph with proxies; subclasses change what nodes become."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        from weft.fx._symbolic_trace import Tracer

        self.new_graph = Graph()

        class TransformerTracer(Tracer):
            def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
                return True

        self.tracer = TransformerTracer()
        self.tracer.graph, self.tracer.root = self.new_graph, self.module

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An input of the new graph."""
        return Proxy(
            self.new_graph.placeholder(target, default_value=next(iter(args), ...)), self.tracer
        )

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The reading of an attribute in the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call of a submodule in the new graph."""
        module = self.fetch_attr(target)
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call of a function in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new module."""
        result = super().run(enable_io_processing=False)
        if result is not None:
            plain = map_aggregate(result, lambda v: v.node if isinstance(v, Proxy) else v)
            old = self.graph.output_node()
            made = self.new_graph.output(plain, old.type)
            made.meta.update(old.meta)
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
