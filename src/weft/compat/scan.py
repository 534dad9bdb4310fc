"""Finding, before a program runs, the names of PyTorch that it uses and weft lacks.

The scan reads the script and the modules beside it that it imports. It follows what ``import``
binds, scope by scope, and the attributes taken from that; attributes of values are not known before
the program runs. A use that the program itself guards is only worth a warning.
"""

from __future__ import annotations

import ast
import functools
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from weft.compat.names import COMPANIONS, Missing, RefusedName, look_up

# Errors by which programs ask whether a name is there.
_ASKING = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
# Names that extensions for other devices put into torch; PyTorch itself does not have them.
_VENDORS = {"npu", "mlu", "musa", "sdaa", "hpu", "neuron", "supa", "gcu", "tpu"}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, order=True)
class NameUse:
    """One use of a name that weft lacks."""

    path: str
    line: int
    name: str
    guarded: bool
    reason: str = ""
    refused: bool = False  # the name is there, and raises when it is called


def missing_names(script: str) -> list[NameUse]:
    """The uses of names that weft lacks, in a script and the modules beside it."""
    root = os.path.dirname(os.path.realpath(script))
    waiting, seen, uses = [script], set(), []
    while waiting:
        path = waiting.pop()
        if os.path.realpath(path) in seen:
            continue
        seen.add(os.path.realpath(path))
        tree = _parse(path)
        if tree is not None:
            scan = _Scan(path)
            scan.module(tree)
            uses += scan.uses
            waiting += _modules_beside(tree, path, root)
    return sorted(set(uses))


def uses_in_files(paths: Iterable[str]) -> tuple[set[str], list[NameUse]]:
    """The names of PyTorch's that files use, and the uses of those that weft lacks."""
    names: set[str] = set()
    uses: list[NameUse] = []
    for path in paths:
        tree = _parse(path)
        if tree is not None:
            scan = _Scan(path)
            scan.module(tree)
            names |= scan.names
            uses += scan.uses
    return names, uses


def _parse(path: str) -> ast.Module | None:
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python says them when it comes to that file
            return ast.parse(file.read(), path)
    except (SyntaxError, ValueError, OSError):
        return None


@functools.cache
def _missing(name: str) -> Missing | None:
    try:
        look_up(name)
    except Missing as missing:
        return missing
    return None


@dataclass
class _Scope:
    """What the names of one scope stand for: a name of PyTorch's, or None for anything else."""

    means: dict[str, str | None] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    is_class: bool = False

    def bind(self, name: str, meaning: str | None) -> None:
        if name in self.means and self.means[name] != meaning:
            # Bound in two ways, as in "try: import torch; except ImportError: torch = None".
            self.doubtful.add(name)
            meaning = self.means[name] or meaning
        self.means[name] = meaning


class _Scan(ast.NodeVisitor):
    def __init__(self, path: str) -> None:
        self.path = path
        self.uses: list[NameUse] = []
        self.names: set[str] = set()
        self.scopes: list[_Scope] = []
        self.guards = 0
        self.own: set[str] = set()  # attributes that the program itself sets on our modules
        self.annotations_run = True

    def module(self, tree: ast.Module) -> None:
        self.annotations_run = not any(
            isinstance(s, ast.ImportFrom) and s.module == "__future__" for s in tree.body
        )
        self.scopes = [_bindings(tree.body)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                name, _ = self.full_name(node)
                self.own.add(name or "")
        for statement in tree.body:
            self.visit(statement)

    # What is used

    def check(self, name: str, line: int, doubtful: bool = False) -> None:
        self.names.add(name)
        missing = _missing(name)
        if missing is not None and (absent := str(missing)) not in self.own:
            # What raises when called may be mentioned; the call itself gives the reason.
            refused = isinstance(missing, RefusedName)
            # Code for a vendor's devices runs where the vendor's extension is installed only.
            elsewhere = absent.partition(".")[2].partition(".")[0] in _VENDORS
            may_pass = bool(self.guards) or doubtful or refused or elsewhere
            self.uses.append(NameUse(self.path, line, absent, may_pass, missing.reason, refused))

    def full_name(self, node: ast.expr) -> tuple[str | None, bool]:
        """PyTorch's name for ``F.relu`` and the like, and whether it is in doubt."""
        if isinstance(node, ast.Attribute):
            owner, doubtful = self.full_name(node.value)
            return (f"{owner}.{node.attr}" if owner else None), doubtful
        if isinstance(node, ast.Name):
            for i, scope in enumerate(reversed(self.scopes)):
                if node.id in scope.means and not (scope.is_class and i):
                    return scope.means[node.id], node.id in scope.doubtful
        return None, False

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if _ours(alias.name):
                self.check(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not _ours(node.module or ""):
            return
        for alias in node.names:
            name = node.module if alias.name == "*" else f"{node.module}.{alias.name}"
            self.check(str(name), alias.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name, doubtful = self.full_name(node)
        if name is None:
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load):
            self.check(name, node.lineno, doubtful)
        else:
            self.check(name.rpartition(".")[0], node.lineno, doubtful)

    # Scopes

    @contextmanager
    def scope(self, scope: _Scope) -> Iterator[None]:
        self.scopes.append(scope)
        yield
        self.scopes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.visit_all([*node.decorator_list, *_defaults(node.args)])
        if self.annotations_run:
            self.visit_all([a.annotation for a in _arguments(node.args)] + [node.returns])
        inner = _bindings(node.body)
        for argument in _arguments(node.args):
            inner.bind(argument.arg, None)
        with self.scope(inner):
            self.visit_all(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_all(_defaults(node.args))
        with self.scope(_Scope({a.arg: None for a in _arguments(node.args)})):
            self.visit(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all([*node.decorator_list, *node.bases, *node.keywords])
        inner = _bindings(node.body)
        inner.is_class = True
        with self.scope(inner):
            self.visit_all(node.body)

    def visit_ListComp(self, node: ast.expr) -> None:
        targets = [t for g in node.generators for t in ast.walk(g.target)]
        with self.scope(_Scope({t.id: None for t in targets if isinstance(t, ast.Name)})):
            self.generic_visit(node)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit_all([node.target, node.value])
        if self.annotations_run:
            self.visit(node.annotation)

    # Guards

    @contextmanager
    def guard(self, on: bool) -> Iterator[None]:
        self.guards += on
        yield
        self.guards -= on

    def visit_Try(self, node: ast.Try) -> None:
        with self.guard(any(_asks(handler) for handler in node.handlers)):
            self.visit_all([*node.body, *node.orelse])
        with self.guard(bool(node.handlers)):
            self.visit_all(node.handlers)
        self.visit_all(node.finalbody)

    visit_TryStar = visit_Try  # type: ignore[assignment]

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        with self.guard(_is_question(node.test)):
            self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        with self.guard(any(_is_question(value) for value in node.values)):
            self.generic_visit(node)

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)


def _bindings(body: list[ast.stmt]) -> _Scope:
    """What the statements of a scope bind, without the scopes inside it."""
    scope = _Scope()
    waiting: list[ast.AST] = list(reversed(body))
    elsewhere: set[str] = set()
    while waiting:
        node = waiting.pop()
        inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scope.bind(node.name, None)
            inner = ()
        elif isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
            inner = ()
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for name, meaning in _imported(node):
                scope.bind(name, meaning)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            scope.bind(node.id, None)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            scope.bind(node.name, None)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            elsewhere.update(node.names)
        waiting += reversed(list(inner))
    for name in elsewhere:
        scope.means.pop(name, None)
    return scope


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str | None]]:
    for alias in node.names:
        if isinstance(node, ast.Import):
            first = alias.name.partition(".")[0]
            meaning = alias.name if alias.asname else first
            yield alias.asname or first, meaning if _ours(meaning) else None
        elif alias.name != "*":
            ours = not node.level and _ours(node.module or "")
            yield alias.asname or alias.name, f"{node.module}.{alias.name}" if ours else None


def _ours(name: str) -> bool:
    return name.partition(".")[0] in ("torch", *COMPANIONS)


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    found = [*arguments.posonlyargs, *arguments.args, arguments.vararg]
    found += [*arguments.kwonlyargs, arguments.kwarg]
    return [a for a in found if a is not None]


def _defaults(arguments: ast.arguments) -> list[ast.expr | None]:
    return [*arguments.defaults, *arguments.kw_defaults]


def _asks(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(getattr(n, "id", getattr(n, "attr", "")) in _ASKING for n in ast.walk(handler.type))


def _is_question(test: ast.expr) -> bool:
    """Whether a condition asks what the library or the machine has."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in ("hasattr", "is_available", "is_initialized", "device_count"):
                return True
        if getattr(node, "attr", "") == "__version__" or getattr(node, "id", "") == "TYPE_CHECKING":
            return True
    return False


def _modules_beside(tree: ast.Module, path: str, root: str) -> Iterator[str]:
    """Files of the program's own that an import in it may load."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(root, alias.name)
        elif isinstance(node, ast.ImportFrom):
            folder = root
            if node.level:
                above = [".."] * (node.level - 1)
                folder = os.path.normpath(os.path.join(os.path.dirname(path), *above))
            module = node.module or ""
            yield from _files(folder, module)
            for alias in node.names:
                yield from _files(folder, f"{module}.{alias.name}".lstrip("."))


def _files(folder: str, module: str) -> Iterator[str]:
    place = folder
    for part in module.split(".") if module else []:
        place = os.path.join(place, part)
        for candidate in (f"{place}.py", os.path.join(place, "__init__.py")):
            if os.path.isfile(candidate):
                yield candidate
