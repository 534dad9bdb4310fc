"""What keeps memory alive: the program's names, and the graphs of their tensors."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from weft.autograd.steps import STEPS
from weft.core.errors import here, is_own
from weft.core.node import AccumulateGrad, GraphNode, Output
from weft.core.tensor import Tensor, storage_array
from weft.graph.build import behind
from weft.graph.frames import locals_of
from weft.graph.graph import Graph
from weft.graph.run import NoSuchNode
from weft.graph.table import human

_DEPTH = 5  # containers inside one another that are searched
_MANY = 100_000  # items of one container that are searched
_LONG = 3  # steps that one graph spans from which on it looks like a leak


class Owner:
    """A tensor that keeps memory alive: its own, and what its graph saved.

    ``steps`` are the steps that made the graph's nodes, as a range from 0. A step ends with a
    backward pass.
    """

    def __init__(self, names: Iterable[str], tensor: Tensor) -> None:
        self.names, self.tensor = tuple(names), tensor
        self.name = self.names[0]  # the shortest way to it; there may be others
        self.nodes = 0
        self.own = storage_array(tensor._a).nbytes
        self.saved = 0
        self.source = ""
        self.steps = range(0)

    @property
    def bytes(self) -> int:
        """Everything that would be freed with it; memory charged to other names is not counted."""
        return self.own + self.saved

    def __repr__(self) -> str:
        text = f"`{self.name}` keeps {human(self.bytes) or '0 B'}"
        if self.nodes:
            plural = "s" if self.nodes > 1 else ""
            text += f": {self.nodes} node{plural} of {_told(self.steps)}"
            text += f", the last from {self.source}" if self.source else ""
        return text


def _told(steps: range) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"


def _growth(owner: Owner) -> str:
    """What is wrong with a tensor whose graph goes on from step to step, if it does."""
    if len(owner.steps) < _LONG or owner.name.endswith("]"):
        return ""
    kept = human(owner.saved) or "no saved values"
    return (
        f"`{owner.name}` drags the graphs of {len(owner.steps)} steps along ({kept}, {owner.nodes} "
        f"nodes of {_told(owner.steps)}): add `.item()` or `.detach()` of each step to it instead"
    )


class Owners:
    """The owners of memory, largest first. Printing shows them, and possible leaks."""

    def __init__(self, found: list[Owner], total: int) -> None:
        self.found, self.total = found, total

    def __iter__(self) -> Iterator[Owner]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, name: str) -> Owner:
        for owner in self.found:
            if name in owner.names:
                return owner
        raise NoSuchNode(
            f"no name {name!r} keeps a tensor; there are {[o.name for o in self.found]}"
        )

    @property
    def leaks(self) -> list[str]:
        """Containers whose tensors keep the graphs of past steps alive."""
        groups: dict[str, list[Owner]] = defaultdict(list)
        for owner in self.found:
            for name in owner.names if owner.nodes else ():
                if name.endswith("]"):
                    groups[name.rpartition("[")[0]].append(owner)
        told = []
        for name, members in groups.items():
            # The elements of one step share a graph; those of a leak have one each.
            graphs = {id(o.tensor.grad_fn) for o in members}
            if len(members) < 2 or len(graphs) < 2:
                continue
            size, nodes = sum(o.saved for o in members), sum(o.nodes for o in members)
            kept = human(size) or "no saved values"
            steps = _told(_span(o.steps for o in members))
            told.append(
                f"`{name}` holds {len(members)} tensors with their graphs ({kept}, {nodes} nodes "
                f"of {steps}): append `.item()` or `.detach()` instead"
            )
        return told + [text for owner in self.found if (text := _growth(owner))]

    def __repr__(self) -> str:
        lines = [f"{len(self.found)} names keep {human(self.total) or '0 B'} of tensors alive"]
        lines += [f"  {owner!r}" for owner in self.found[:20]]
        if len(self.found) > 20:
            lines.append(f"  and {len(self.found) - 20} more")
        lines += [f"leak: {text}" for text in self.leaks]
        return "\n".join(lines)


def owners(smallest: int = 0) -> Owners:
    """The names of the program and the bytes of tensors that each keeps alive, with their
    graphs.
    """
    if not isinstance(smallest, int):
        raise TypeError(
            "owners: the smallest number of bytes that is listed must be an int, not "
            f"{type(smallest).__name__}; owners() lists every name that keeps memory\n"
            f"  at {here()}"
        )
    found: list[Owner] = []
    buffers: dict[int, np.ndarray] = {}
    owned = _named_tensors()
    for _, tensor in owned:
        whole = storage_array(tensor._a)
        buffers[id(whole)] = whole
    named = frozenset(buffers)
    for names, tensor in owned:
        owner = Owner(names, tensor)
        saved = _behind(tensor, owner)
        owner.saved = sum(a.nbytes for key, a in saved.items() if key not in named)
        buffers.update(saved)
        if owner.bytes >= smallest:
            found.append(owner)
    found.sort(key=lambda o: -o.bytes)
    return Owners(found, sum(a.nbytes for a in buffers.values()))


def _behind(tensor: Tensor, owner: Owner) -> dict[int, np.ndarray]:
    """The arrays that the graph behind a tensor saved, each memory once."""
    root = tensor._node
    if root is None or isinstance(root, AccumulateGrad):
        return {}
    nodes = behind([root.node if isinstance(root, Output) else root])
    owner.nodes, owner.source = len(nodes), nodes[-1].source
    owner.steps = _span(STEPS.of(node.seq) for node in (nodes[0], nodes[-1]))
    return {id(a): a for node in nodes for value in node.saved for a in _arrays(value)}


def _span(parts: Iterable[range]) -> range:
    """All steps from the first to the last of some."""
    ends = [(part.start, part.stop) for part in parts]
    return range(min(a for a, _ in ends), max(b for _, b in ends))


def _arrays(value: Any) -> Iterator[np.ndarray]:
    """The memory that a saved value holds, whatever it is wrapped in."""
    if isinstance(value, np.ndarray):
        yield storage_array(value)
    elif isinstance(value, Tensor):
        yield storage_array(value._a)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _arrays(item)
    else:
        # A tensor that a custom function saved, or what a hook made of a saved value.
        held = getattr(value, "tensor", None)
        held = getattr(value, "value", None) if held is None else held
        if isinstance(held, (Tensor, np.ndarray, tuple, list)):
            yield from _arrays(held)


def _named_tensors() -> list[tuple[Iterable[str], Tensor]]:
    """Every tensor that a variable of the program leads to, with its names, shortest ways first."""
    found: dict[int, tuple[dict[str, None], Tensor]] = {}
    seen: set[int] = set()
    queue: list[tuple[str, Any, int]] = []
    for name, value in _variables():
        queue.append((name, value, 0))
    while queue:
        later: list[tuple[str, Any, int]] = []
        for name, value, depth in queue:
            if isinstance(value, Tensor):
                found.setdefault(id(value), ({}, value))[0][name] = None
                if isinstance(value._grad, Tensor):
                    found.setdefault(id(value._grad), ({}, value._grad))[0][f"{name}.grad"] = None
                continue
            if depth >= _DEPTH or id(value) in seen:
                continue
            seen.add(id(value))
            later.extend((n, v, depth + 1) for n, v in _inside(name, value))
        queue = later
    return list(found.values())


def _variables() -> Iterator[tuple[str, Any]]:
    """The variables of all running functions of the program, and of its modules."""
    here = threading.get_ident()
    for thread, frame in list(sys._current_frames().items()):
        walk: Any = frame
        while walk is not None:
            code = walk.f_code
            name = code.co_filename
            if not is_own(name) and not name.startswith(("<frozen", sys.base_prefix)):
                for name, value in list(locals_of(walk, thread == here).items()):
                    if not name.startswith("__"):
                        yield name, value
            walk = walk.f_back
    for module in list(sys.modules.values()):
        yield from _globals(module)


def _globals(module: Any) -> Iterator[tuple[str, Any]]:
    """The variables of a module of the program; of a library's only those that are tensors."""
    held = getattr(module, "__dict__", None)
    if not isinstance(held, dict):
        return
    title, path = getattr(module, "__name__", ""), getattr(module, "__file__", None) or ""
    main = title == "__main__"
    if not main and (not path or is_own(path)):
        return
    library = path.startswith((sys.base_prefix, sys.prefix))
    for name, value in list(held.items()):
        # By type: isinstance would ask stand-ins for their class, and some warn then.
        tensor = issubclass(type(value), Tensor)
        if not name.startswith("__") and (main or not library or tensor):
            yield (name if main else f"{title}.{name}"), value


_SKIPPED = (str, bytes, int, float, complex, types.ModuleType, type, np.ndarray)


def _inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if value is None or isinstance(value, (*_SKIPPED, GraphNode, types.FrameType, Owners, Owner)):
        return
    if isinstance(value, Graph):
        yield from _of_graph(name, value)
    elif isinstance(value, dict):
        if len(value) <= _MANY:
            for key, item in list(value.items()):
                shown = f"[{key!r}]" if isinstance(key, (str, int, tuple)) else "[...]"
                if isinstance(key, Tensor):
                    yield f"{name} key", key
                yield f"{name}{shown}", item
    elif isinstance(value, types.FunctionType):
        yield from _of_function(name, value)
    elif isinstance(value, types.MethodType):
        yield f"{name}.__self__", value.__self__
    elif isinstance(value, functools.partial):
        for i, item in enumerate(value.args):
            yield f"{name}.args[{i}]", item
        for key, item in value.keywords.items():
            yield f"{name}.keywords[{key!r}]", item
        yield f"{name}.func", value.func
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        if len(value) <= _MANY:
            for i, item in enumerate(list(value)):
                yield f"{name}[{i}]", item
    else:
        yield from _attributes(name, value)


def _of_function(name: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function holds: the variables that it closes over, and its defaults."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for variable, cell in cells:
        with contextlib.suppress(ValueError):  # a cell that is still empty
            yield f"{name}.{variable}", cell.cell_contents
    for i, item in enumerate(function.__defaults__ or ()):
        yield f"{name}.__defaults__[{i}]", item
    for key, item in (function.__kwdefaults__ or {}).items():
        yield f"{name}.__kwdefaults__[{key!r}]", item


def _of_graph(name: str, graph: Graph) -> Iterator[tuple[str, Any]]:
    """What a graph holds: kept values and gradients, and the leaves of a record."""
    names = graph._names()
    for id, held in graph._kept.items():
        for item in held:
            yield f"{name}[{names[id]!r}].value", item
    for id, grad in graph._grads.items():
        yield f"{name}[{names[id]!r}].grad", grad
    for id, spec in graph._specs.items():
        if spec.leaf is not None and isinstance(spec.leaf._hold, Tensor):  # others are weak
            yield f"{name}[{names[id]!r}]", spec.leaf.tensor


def _attributes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds by name; a module's parts go by their own names."""
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else tuple(slots):
            held = kind.__dict__.get(slot)
            if isinstance(held, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # not set
                    yield f"{name}.{slot}", held.__get__(value)
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
