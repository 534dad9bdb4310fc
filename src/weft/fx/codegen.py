"""Graphs as Python source."""

from __future__ import annotations

import builtins
import enum
import math
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import weft
from weft.fx.node import INPLACE, MAGIC, Node, qualified_name, type_name

if TYPE_CHECKING:
    from weft.fx.graph import Graph

# What generated code may name besides what it calls.
_BUILT_IN = {
    "inf": math.inf,
    "nan": math.nan,
    "NoneType": type(None),
    "torch": weft,
    "device": weft.device,
}


@dataclass
class PythonCode:
    """The source of a ``forward`` method, and the global names that it uses."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None = None
    _prologue_start: int = 0


@dataclass
class _PythonWriter:
    """What is known while the source of one graph is written."""

    root: str
    namespace: Any
    verbose: bool = False
    globals: dict[str, Any] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    wrapped: dict[str, None] = field(default_factory=dict)
    returns: str = ""
    trace: str = ""

    # --- names ---

    def global_name(self, hint: str, obj: Any) -> str:
        """The name by which the source calls an object from outside the graph."""
        if hint.startswith("torch.") and _public(hint) is obj and obj is not weft.device:
            return hint
        own = vars(builtins).get(hint, _BUILT_IN.get(hint)) is obj
        name = self.namespace.create_name(hint, obj, allowed=own)
        self.globals[name] = obj
        return name

    def type_text(self, kind: Any) -> str:
        """An annotation as source."""
        if kind == ():
            return "()"
        if isinstance(kind, types.UnionType):
            return "|".join(map(self.type_text, typing.get_args(kind)))
        if origin := getattr(kind, "__origin__", None):
            outer = _TYPING.get(origin, origin) if type(kind) is not types.GenericAlias else origin
            name = self.global_name(type_name(outer), outer)
            inner = ",".join(map(self.type_text, typing.get_args(kind)))
            return f"{name}[{inner}]" if inner else name
        return self.global_name(type_name(kind), kind)

    def text(self, value: Any) -> str:
        """An argument as source."""
        if isinstance(value, Node):
            return value.name
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            name = self.global_name(qualified_name(type(value)), type(value))
            return f"{name}{tuple(value)!r}"
        if isinstance(value, enum.Enum):
            return f"{self.global_name(type(value).__name__, type(value))}.{value.name}"
        if isinstance(value, tuple):
            inner = ", ".join(map(self.text, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.text, (value.start, value.stop, value.step)))})"
        return repr(value)

    def call(self, args: Iterable[Any], kwargs: dict[str, Any]) -> str:
        """Arguments in parentheses."""
        parts = [self.text(a) for a in args]
        parts += [f"{key} = {self.text(value)}" for key, value in kwargs.items()]
        return f"({', '.join(parts)})"

    # --- nodes ---

    def write(self, node: Node, last_uses: list[Node]) -> None:
        """Add the lines of a node, and those that release values that are no longer needed."""
        if self.verbose:
            self._note_trace(node)
        if node.op == "placeholder":
            self._write_argument(node)
            return
        if node.op == "output":
            if node.type is not None:
                self.returns = f" -> {self.type_text(node.type)}"
            self.body.append(f"return {self.text(node.args[0])}")
            return
        freed = [*last_uses, node] if not node.users else last_uses
        line = self._statement(node)
        if freed:
            line += ";  " + " = ".join([*(n.name for n in freed), "None"])
        self.body.append(line)

    def _note_trace(self, node: Node) -> None:
        if node.op in ("placeholder", "output"):
            return
        where = "No stacktrace found for following nodes"
        lines = (node.stack_trace or "").strip().splitlines()
        for i in range(len(lines) - 2, -1, -1):
            if lines[i].strip().startswith('File "'):
                path, number, place = lines[i].strip()[6:].replace('"', "").split(", ")
                line = number.removeprefix("line ")
                where = f"File: {path}:{line} in {place[3:]}, code: {lines[i + 1].strip()}"
                break
        if where != self.trace:
            self.body += ["", f"# {where}"]
            self.trace = where

    def _write_argument(self, node: Node) -> None:
        default = f" = {self.text(node.args[0])}" if node.args else ""
        self.arguments.append(f"{node.target}{self._annotation(node)}{default}")
        plain = str(node.target).replace("*", "")
        if plain != node.name:
            self.body.append(f"{node.name} = {plain}")

    def _annotation(self, node: Node) -> str:
        known = node.meta.get("val", node.meta.get("tensor_meta")) if self.verbose else None
        if known is not None and hasattr(known, "dtype"):
            return f': "{_SHORT.get(str(known.dtype), str(known.dtype))}{list(known.shape)}"'
        return "" if node.type is None else f" : {self.type_text(node.type)}"

    def _statement(self, node: Node) -> str:
        made = f"{node.name}{self._annotation(node)} = "
        if node.op == "call_method":
            owner = dotted(self.text(node.args[0]), str(node.target))
            return made + owner + self.call(node.args[1:], node.kwargs)
        if node.op == "call_module":
            return made + dotted(self.root, str(node.target)) + self.call(node.args, node.kwargs)
        if node.op == "get_attr":
            return made + dotted(self.root, str(node.target))
        target: Any = node.target
        if getattr(target, "__module__", "") == "_operator":
            texts = [self.text(a) for a in node.args]
            if target.__name__ in MAGIC:
                return made + MAGIC[target.__name__].format(*texts)
            if target.__name__ in INPLACE:
                return f"{INPLACE[target.__name__].format(*texts)};  {made}{texts[0]}"
        name = self.global_name(qualified_name(target), target)
        if name == "getattr" and len(node.args) == 2 and str(node.args[1]).isidentifier():
            return made + dotted(self.text(node.args[0]), node.args[1])
        if node.meta.get("is_wrapped"):
            self.wrapped[name] = None
        return made + name + self.call(node.args, node.kwargs)


# Annotations of the old kind, typing.List[int], keep their spelling.
_TYPING = {k: getattr(typing, k.__name__.capitalize()) for k in (list, dict, tuple, set)}
_SHORT = {
    "torch.float32": "f32", "torch.float64": "f64", "torch.float16": "f16", "torch.bool": "b8",
    "torch.bfloat16": "bf16", "torch.int64": "i64", "torch.int32": "i32", "torch.int16": "i16",
    "torch.int8": "i8", "torch.uint8": "u8", "torch.complex64": "c64", "torch.complex128": "c128",
}  # fmt: skip


def _public(name: str) -> Any:
    """What weft has under a name that begins with ``torch``; None for nothing."""
    found: Any = weft
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def dotted(base: str, target: str) -> str:
    """Attributes of an object as source; ``layers.0`` needs ``getattr``."""
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


class CodeGen:
    """Makes the source of a graph; a subclass may take arguments in another form."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line that begins the function."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def forward({', '.join(free_vars)}){maybe_return_annotation}:"

    def process_inputs(self, *args: Any) -> Any:
        """The arguments of the function as the graph takes them."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """The graph's result as the function gives it."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the function needs besides those of the graph."""
        return []

    def generate(
        self, graph: Graph, root_module: str, verbose: bool = False, **_: Any
    ) -> PythonCode:
        """The source of a graph."""
        from weft.fx.graph import Namespace

        writer = _PythonWriter(root_module, Namespace(), verbose)
        for node in graph.nodes:  # values keep their names; global ones give way
            writer.namespace.create_name(node.name, node, allowed=True)
        writer.globals.update(_BUILT_IN)
        last_uses = _last_uses(graph)
        for node in graph.nodes:
            writer.write(node, last_uses.get(node, []))
        if not any(node.op == "output" for node in graph.nodes) and not writer.body:
            writer.body.append("pass")
        for name, value in self.additional_globals():
            writer.global_name(name, value)
        wraps = ""
        if writer.wrapped:
            from weft.fx import wrap

            writer.globals["wrap"] = wrap
            wraps = "\n".join(f'wrap("{name}")' for name in writer.wrapped)
        head = self.gen_fn_def(writer.arguments, writer.returns)
        body = "\n".join(f"    {line}" for line in [*writer.body, ""])
        body = body.lstrip("\n") if writer.body and writer.body[0] else body[5:]
        return PythonCode(f"\n{wraps}\n\n{head}\n{body}", writer.globals)


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """The values whose last user a node is."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}
    for node in reversed(graph.nodes):
        for used in node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                found.setdefault(node, []).append(used)
    return found
