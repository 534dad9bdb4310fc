"""Who keeps memory alive: the program's names, and the graphs behind their tensors."""

from __future__ import annotations

import sys
import types
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.core.errors import ROOT
from weft.core.node import AccumulateGrad, GraphNode, Node, Output
from weft.core.tensor import Tensor, storage_array
from weft.graph.graph import Graph
from weft.graph.table import human

_DEPTH = 5  # containers inside one another that are searched
_MANY = 100_000  # items of one container that are searched


class Owner:
    """A name that keeps memory alive: its own, and what the graph behind it saved."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name, self.tensor = name, tensor
        self.nodes = 0
        self.own = storage_array(tensor._a).nbytes
        self.saved = 0
        self.source = ""

    @property
    def bytes(self) -> int:
        """All that would be freed with it, if nothing else holds it."""
        return self.own + self.saved

    def __repr__(self) -> str:
        text = f"`{self.name}` keeps {human(self.bytes) or '0 B'}"
        if self.nodes:
            plural = "s" if self.nodes > 1 else ""
            text += f": {self.nodes} node{plural}"
            text += f", the last from {self.source}" if self.source else ""
        return text


class Owners:
    """The owners of memory, largest first. Printing tells them, and what looks like a leak."""

    def __init__(self, found: list[Owner], total: int) -> None:
        self.found, self.total = found, total

    def __iter__(self) -> Iterator[Owner]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, name: str) -> Owner:
        for owner in self.found:
            if owner.name == name:
                return owner
        raise KeyError(f"no name {name!r} keeps a tensor; there are {[o.name for o in self.found]}")

    @property
    def leaks(self) -> list[str]:
        """Containers whose tensors drag the graphs of past steps along."""
        groups: dict[str, list[Owner]] = defaultdict(list)
        for owner in self.found:
            if owner.nodes and owner.name.endswith("]"):
                groups[owner.name.rpartition("[")[0]].append(owner)
        told = []
        for name, members in groups.items():
            # The elements of one step share a graph; those of a leak have one each.
            graphs = {id(o.tensor.grad_fn) for o in members}
            if len(members) < 2 or len(graphs) < 2:
                continue
            size, nodes = sum(o.saved for o in members), sum(o.nodes for o in members)
            kept = human(size) or "no saved values"
            told.append(
                f"`{name}` holds {len(members)} tensors with their graphs ({kept}, {nodes} nodes): "
                f"append `.item()` or `.detach()` instead"
            )
        return told

    def __repr__(self) -> str:
        lines = [f"{len(self.found)} names keep {human(self.total) or '0 B'} of tensors alive"]
        lines += [f"  {owner!r}" for owner in self.found[:20]]
        if len(self.found) > 20:
            lines.append(f"  and {len(self.found) - 20} more")
        lines += [f"leak: {text}" for text in self.leaks]
        return "\n".join(lines)


def owners(smallest: int = 0) -> Owners:
    """Which names of the program keep how many bytes of tensors alive, with the graphs behind."""
    names = _named_tensors()
    found, buffers = [], {}
    for name, tensor in names:
        owner = Owner(name, tensor)
        for array in _behind(tensor, owner):
            buffers[id(array)] = array.nbytes
        whole = storage_array(tensor._a)
        buffers[id(whole)] = whole.nbytes
        if owner.bytes >= smallest:
            found.append(owner)
    found.sort(key=lambda o: -o.bytes)
    return Owners(found, sum(buffers.values()))


def _behind(tensor: Tensor, owner: Owner) -> list[np.ndarray]:
    """The arrays that the graph behind a tensor saved, each memory once."""
    root = tensor._node
    if root is None or isinstance(root, AccumulateGrad):
        return []
    first = root.node if isinstance(root, Output) else root
    owner.source = first.source
    seen, stack, arrays = {first}, [first], {}
    while stack:
        node = stack.pop()
        owner.nodes += 1
        for value in node.saved:
            for array in _arrays(value):
                arrays[id(array)] = array
        for edge in node.inputs:
            edge = edge.node if isinstance(edge, Output) else edge
            if isinstance(edge, Node) and edge not in seen:
                seen.add(edge)
                stack.append(edge)
    arrays.pop(id(storage_array(tensor._a)), None)
    owner.saved = sum(a.nbytes for a in arrays.values())
    return list(arrays.values())


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield storage_array(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _arrays(item)
    else:
        held = getattr(value, "tensor", None) or getattr(value, "value", None)
        if isinstance(held, Tensor):
            yield storage_array(held._a)


def _named_tensors() -> list[tuple[str, Tensor]]:
    """Every tensor that a variable of the program leads to, by the shortest way."""
    found: dict[int, tuple[str, Tensor]] = {}
    seen: set[int] = set()
    queue: list[tuple[str, Any, int]] = []
    for name, value in _variables():
        queue.append((name, value, 0))
    while queue:
        later: list[tuple[str, Any, int]] = []
        for name, value, depth in queue:
            if isinstance(value, Tensor):
                found.setdefault(id(value), (name, value))
                if isinstance(value.grad, Tensor):
                    found.setdefault(id(value.grad), (f"{name}.grad", value.grad))
                continue
            if depth >= _DEPTH or id(value) in seen:
                continue
            seen.add(id(value))
            later.extend((n, v, depth + 1) for n, v in _inside(name, value))
        queue = later
    return list(found.values())


def _variables() -> Iterator[tuple[str, Any]]:
    """The variables of all running functions of the program, and of its modules."""
    for frame in list(sys._current_frames().values()):
        walk: Any = frame
        while walk is not None:
            code = walk.f_code
            if not code.co_filename.startswith((ROOT, "<frozen", sys.base_prefix)):
                for name, value in list(walk.f_locals.items()):
                    if not name.startswith("__"):
                        yield name, value
            walk = walk.f_back
    main = sys.modules.get("__main__")
    for name, value in list(vars(main).items()) if main is not None else ():
        if not name.startswith("__"):
            yield name, value


_SKIPPED = (str, bytes, int, float, complex, types.ModuleType, types.FunctionType, type, np.ndarray)


def _inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if value is None or isinstance(value, (*_SKIPPED, GraphNode, types.FrameType, Owners, Owner)):
        return
    if isinstance(value, Graph):
        for id, held in value._kept.items():
            for item in held:
                yield f"{name}[{value._names()[id]!r}].value", item
    elif isinstance(value, dict):
        if len(value) <= _MANY:
            for key, item in list(value.items()):
                shown = f"[{key!r}]" if isinstance(key, (str, int, tuple)) else "[...]"
                if isinstance(key, Tensor):
                    yield f"{name} key", key
                yield f"{name}{shown}", item
    elif isinstance(value, (list, tuple, set, frozenset)):
        if len(value) <= _MANY:
            for i, item in enumerate(list(value)):
                yield f"{name}[{i}]", item
    else:
        yield from _attributes(name, value)


def _attributes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds by name; a module's parts go by their own names."""
    inside = getattr(value, "__dict__", None)
    if not isinstance(inside, dict):  # objects may pretend to have any attribute
        return
    for key, item in list(inside.items()):
        if key in ("_parameters", "_buffers", "_modules") and isinstance(item, dict):
            for part, held in item.items():
                yield f"{name}.{part}", held
        elif not key.startswith("__"):
            yield f"{name}.{key}", item


__all__ = ["Owner", "Owners", "owners"]
