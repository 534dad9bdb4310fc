"""A module whose ``forward`` is made from a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
import os
from pathlib import Path
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.fx.codegen import PythonCode
from weft.fx.graph import Graph
from weft.nn.module import Module

__all__ = ["GraphModule"]

_numbers = itertools.count()


class GraphModule(Module):
    """A module with a graph, and with what the graph refers to taken from ``root``.

    ``root`` is a module, or a dictionary of names and what they stand for. After changing
    ``graph`` call ``recompile()``.

    >>> traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    >>> isinstance(traced, torch.fx.GraphModule)
    True
    >>> [node.op for node in traced.graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Each has a class of its own, so that ``forward`` is a method as in any module.
        for kind in cls.__mro__:
            if kind.__qualname__ != "GraphModuleImpl" and issubclass(kind, GraphModule):
                cls = kind
                break
        made = type("GraphModuleImpl", (cls,), {"__module__": __name__})
        return super().__new__(made)

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, Module):
            self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attribute(root, self, str(node.target))
        elif isinstance(root, dict):
            self._take(root, graph)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.graph = graph
        self.meta: dict[str, Any] = {}

    def _take(self, root: dict[str, Any], graph: Graph) -> None:
        targets = [str(n.target) for n in graph.nodes if n.op in ("get_attr", "call_module")]
        for target in targets:
            if target not in root:
                raise RuntimeError(
                    f"Node refers to target {target}, but it was not provided in ``root``!"
                )
        # Outer modules first, so that inner names find a place.
        for target in sorted(targets, key=lambda name: name.count(".")):
            _assign(root[target], self, target)

    @property
    def graph(self) -> Graph:
        """The graph; assigning one recompiles."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        object.__setattr__(self, "_graph", g)
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of ``forward``."""
        return self._code

    def recompile(self) -> PythonCode:
        """Make ``forward`` from the graph as it is now."""
        made = self._graph.python_code(root_module="self")
        object.__setattr__(self, "_code", made.src)
        path = f"<eval_with_key>.{next(_numbers)}"
        linecache.cache[path] = (len(made.src), None, made.src.splitlines(True), path)
        names = dict(made.globals)
        exec(compile(made.src, path, "exec"), names)
        type(self).forward = names["forward"]
        return made

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        """The source of this module and of those inside it that have graphs."""
        source = self._graph.python_code("self", verbose=True).src.lstrip("\n").rstrip()
        lines = [f"class {self._get_name()}(torch.nn.Module):"]
        lines += [f"    {line}" if line.strip() else "" for line in source.split("\n")]
        text = "\n".join(lines) + "\n"
        for name, child in self.named_children():
            if isinstance(child, GraphModule):
                inner = child.print_readable(print_output=False)
                inner = inner.replace(f"class {child._get_name()}(", f"class {name}(", 1)
                text += "\n" + "\n".join(f"    {line}".rstrip() for line in inner.split("\n"))
        if print_output:
            print(text)
        return text

    def _get_name(self) -> str:
        return type(self).__name__

    # --- submodules ---

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module under a dotted name, with empty modules on the way; True if it was."""
        *path, last = target.split(".")
        at: Module = self
        for part in path:
            if not hasattr(at, part):
                at.add_module(part, Module())
            found = getattr(at, part)
            if not isinstance(found, Module):
                return False
            at = found
        at.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take a module out by its dotted name; False if there is none."""
        *path, last = target.split(".")
        at: Any = self
        for part in path:
            at = getattr(at, part, None)
        if not isinstance(at, Module) or not isinstance(getattr(at, last, None), Module):
            return False
        delattr(at, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take out the modules that no node refers to."""
        used: set[str] = set()
        for node in self._graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = str(node.target).split(".")
                used.update(".".join(parts[:i]) for i in range(1, len(parts) + 1))
                found = _find(self, str(node.target))
                if node.op == "call_module" and isinstance(found, Module):
                    used.update(f"{node.target}.{name}" for name, _ in found.named_modules())
        for name, _ in list(self.named_modules()):
            if name and name not in used:
                self.delete_submodule(name)

    # --- copies and files ---

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        Module.__init__(made)
        for key, value in vars(self).items():
            if key not in ("_graph", "_code"):
                vars(made)[key] = copy.deepcopy(value, memo)
        type(made).__name__ = type(self).__name__
        made.graph = copy.deepcopy(self._graph, memo)
        for name, value in made.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
            setattr(made, name, value)
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, copy.deepcopy(self._graph), type(self).__name__)
        made.meta = getattr(self, "meta", {})
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        state = {k: v for k, v in vars(self).items() if k not in ("_graph", "_code")}
        imports = self._graph.python_code("self").globals
        return _from_code, (state, self._code, _importable(imports), type(self).__name__)

    def to_folder(self, folder: str | os.PathLike, module_name: str = "FxModule") -> None:
        """Write the source and the weights into a folder."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        weft.save(self.state_dict(), place / "state_dict.pt")
        body = "\n".join(f"    {line}" for line in self._code.strip("\n").split("\n"))
        (place / "module.py").write_text(
            f"import torch\nfrom math import inf, nan\nfrom torch import device\n\n\n"
            f"class {module_name}(torch.nn.Module):\n{body}\n"
        )

    def __str__(self) -> str:
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return f"{super().__str__()}\n{self._code}\n{hint}"


class _CodeOnlyModule(Module):
    """A module that has what a dictionary says, as a source of attributes."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        vars(self).update(body)


# Attributes under this key of ``meta`` are kept by copies.
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


def _importable(names: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in names.items() if name not in ("torch",)}


def _from_code(state: dict[str, Any], code: str, names: dict[str, Any], kind: str) -> GraphModule:
    """Make a module again from its source, by tracing it."""
    from weft.fx._symbolic_trace import Tracer

    known: dict[str, Any] = {"torch": weft, **names}
    exec(compile(code, "<pickled graph>", "exec"), known)
    plain = type(kind, (_CodeOnlyModule,), {"forward": known["forward"]})(state)

    class KeepAll(Tracer):
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    graph = KeepAll().trace(plain)
    made = GraphModule(plain, graph, kind)
    for key, value in state.items():
        vars(made).setdefault(key, value)
    return made


def _find(root: Any, target: str) -> Any:
    for part in target.split("."):
        root = getattr(root, part, None)
    return root


def _copy_attribute(source: Module, made: Module, target: str) -> None:
    """Let a module have under a dotted name what another has there."""
    *path, last = target.split(".")
    at_source: Any = source
    at: Any = made
    for part in path:
        found = getattr(at_source, part, None)
        if found is getattr(at, part, None):
            return  # a whole module that was taken over already
        if not hasattr(at, part):
            setattr(at, part, Module())
        at_source, at = found, getattr(at, part)
    value = getattr(at_source, last)
    if isinstance(value, Tensor) and last in getattr(at_source, "_buffers", {}):
        at.register_buffer(last, value)
    else:
        setattr(at, last, value)


def _assign(value: Any, made: Module, target: str) -> None:
    *path, last = target.split(".")
    at: Any = made
    for part in path:
        if not hasattr(at, part):
            setattr(at, part, Module())
        at = getattr(at, part)
    if isinstance(value, Tensor) and not isinstance(value, weft.nn.Parameter):
        at.register_buffer(last, value)
    else:
        setattr(at, last, value)
