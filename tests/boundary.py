"""Which code reads more of a tensor's array than its geometry: the boundary of storage.

    python -m boundary            # what is left, by module
    python -m boundary --show     # each place

A tensor's array belongs to its device. Outside of ``core``, ``references`` and ``native`` code may
ask it for shape, strides and dtype, which arrays of every device have, and hand it to functions
that take arrays of every device. All else would work on NumPy's arrays alone.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent / "src" / "weft"
INSIDE = ("core", "native", "references")

GEOMETRY = {"dtype", "itemsize", "nbytes", "ndim", "shape", "size", "strides"}
FLAGS = {"c_contiguous", "f_contiguous"}
# Functions of ``core`` and of the layouts that take arrays of every device.
TAKE_ANY = {
    *("wrap", "beside", "host", "host_of", "visible", "write_into", "put_like", "model_like"),
    *("zeros_like", "ones_like"),
    *(
        "announce",
        "mark_exported",
        "is_exported",
        "storage_array",
        "memory_of",
        "address_of",
        "strided",
    ),
    *("shares", "channels_wanted", "dense_steps", "geometry", "in_channels_last", "is_dense"),
    *("result_dtype", "lacks_values", "isinstance", "id", "ref", "type", "in_layout", "device_of"),
    *("check_partial_overlap", "check_shared", "copy_sharing", "describe", "is_last", "write"),
    *("viewed_as", "copy_of", "over_bytes", "explain", "_in_order", "_check_vectors", "_undoing"),
    *("drawn_like", "like", "own", "copied", "add_into", "clear", "exchange", "_held"),
    *("Kind", "on_host", "bare", "cpu_array", "dtype_beside"),
}


class Place(NamedTuple):
    """Somewhere that reads an array."""

    module: str
    function: str
    line: int
    text: str


class Reader(ast.NodeVisitor):
    """Looks at one module."""

    def __init__(self, path: Path) -> None:
        self.module = path.relative_to(ROOT).as_posix()
        source = path.read_text()
        self.lines = source.splitlines()
        tree = ast.parse(source)
        self.above: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self.above[child] = node
        self.found = [
            self.place(node) for node in ast.walk(tree) if _is_array(node) and not self.fine(node)
        ]

    def place(self, node: ast.AST) -> Place:
        names = []
        at: ast.AST | None = node
        while at is not None:
            if isinstance(at, (ast.FunctionDef, ast.ClassDef)):
                names.append(at.name)
            at = self.above.get(at)
        line = node.lineno  # type: ignore[attr-defined]
        return Place(self.module, ".".join(reversed(names)), line, self.lines[line - 1].strip())

    def fine(self, node: ast.AST) -> bool:
        """Whether an expression that is an array is used as one of any device."""
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            return True  # another array in its place, or none
        up = self.above[node]
        if isinstance(up, ast.Attribute):
            if up.attr == "flags":
                top = self.above[up]
                return isinstance(top, ast.Attribute) and top.attr in FLAGS
            return up.attr in GEOMETRY or (up.attr in ("__class__", "base") and self.compared(up))
        if isinstance(up, ast.Call):
            if _name(up.func) == "getattr" and node is up.args[0]:
                return getattr(up.args[1], "value", None) in GEOMETRY
            return node is not up.func and _name(up.func) in TAKE_ANY
        if isinstance(up, ast.Compare):
            return self.compared(node)
        if isinstance(up, (ast.Tuple, ast.List, ast.GeneratorExp, ast.ListComp, ast.Starred)):
            return self.unpacked(node, up) if isinstance(up, ast.Tuple) else self.fine(up)
        if isinstance(up, ast.IfExp):
            return node is not up.test and self.fine(up)
        if isinstance(up, ast.Assign):
            return all(map(self.holder, up.targets))
        if isinstance(up, ast.NamedExpr):
            return self.named(up.target)
        return False

    def compared(self, node: ast.AST) -> bool:
        up = self.above[node]
        return isinstance(up, ast.Compare) and all(
            isinstance(o, (ast.Is, ast.IsNot)) for o in up.ops
        )

    def unpacked(self, node: ast.AST, up: ast.Tuple) -> bool:
        """``a, b = x._a, y._a``, or a tuple that goes on."""
        top = self.above[up]
        if not isinstance(top, ast.Assign):
            return self.fine(up)
        target = top.targets[0]
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(up.elts):
            return False
        return self.holder(target.elts[up.elts.index(node)])  # type: ignore[arg-type]

    def holder(self, target: ast.AST) -> bool:
        """Whether what is assigned to is another tensor, or a name of which all uses are fine."""
        if isinstance(target, ast.Attribute):
            return target.attr == "_a"
        return isinstance(target, ast.Name) and self.named(target)

    def named(self, target: ast.Name) -> bool:
        """Whether all uses of a local name for an array are fine."""
        scope: ast.AST = target
        while not isinstance(scope, (ast.FunctionDef, ast.Module, ast.Lambda)):
            scope = self.above[scope]
        return all(
            self.fine(n)
            for n in ast.walk(scope)
            if isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load)
        )


def _is_array(node: ast.AST) -> bool:
    """``x._a``, or ``getattr(x, "_a", x)``."""
    if isinstance(node, ast.Call) and _name(node.func) == "getattr":
        return getattr(node.args[1], "value", None) == "_a"
    return isinstance(node, ast.Attribute) and node.attr == "_a"


def _name(function: ast.AST) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def violations() -> list[Place]:
    """All places outside of the boundary that read more than the geometry."""
    return [
        place
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).parts[0] not in INSIDE
        for place in Reader(path).found
    ]


WRITERS = {"write_into", "clear", "copyto"}


def unannounced_writers() -> list[Place]:
    """Functions that write to a tensor's array and do not announce it to the gate themselves."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        if path.relative_to(ROOT).parts[0] in INSIDE:
            continue
        reader = Reader(path)
        for node in reader.above:
            if isinstance(node, ast.FunctionDef):
                writes = [n for n in ast.walk(node) if _writes(n)]
                calls = {_name(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
                if writes and "announce" not in calls:
                    found.append(reader.place(writes[0]))
    return found


def _writes(node: ast.AST) -> bool:
    """``x._a[...] = v``, ``x._a += v``, ``x._a.fill(v)``, ``write_into(x._a, v)``, ``out=x._a``."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _is_array(node.value)
    if isinstance(node, ast.AugAssign):
        target = node.target
        return _is_array(target) or (isinstance(target, ast.Subscript) and _is_array(target.value))
    if not isinstance(node, ast.Call):
        return False
    if any(k.arg == "out" and _is_array(k.value) for k in node.keywords):
        return True
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("fill", "sort", "put"):
        return _is_array(node.func.value)
    return _name(node.func) in WRITERS and bool(node.args) and _is_array(node.args[0])


def main() -> None:
    found = violations()
    if "--show" in sys.argv:
        wanted = [a for a in sys.argv[1:] if a != "--show"]
        for p in found:
            if not wanted or any(p.module.startswith(w) for w in wanted):
                print(f"{p.module}:{p.line} {p.function}: {p.text}")
    counts = Counter(p.module for p in found)
    for module, count in counts.most_common():
        print(count, module)
    print(len(found))


if __name__ == "__main__":
    main()
