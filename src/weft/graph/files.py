"""Graphs in files: JSON in the header of a safetensors file, which holds the leaves' values.

No code is in such a file and none runs when it is read: ops are found by their registered names.
"""

from __future__ import annotations

import importlib
import json
import math
import os
from json.encoder import encode_basestring_ascii as quoted
from operator import itemgetter
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.devices import host
from weft.core.dispatch import Op
from weft.core.tensor import Parameter, Tensor, wrap
from weft.graph.collecting import no_collection
from weft.graph.draws import DRAWS, Draw
from weft.graph.gradient import ACCUMULATE, Gradient, gradient_of
from weft.graph.graph import Graph, Pass
from weft.graph.run import GraphError
from weft.graph.spec import (
    BACKWARD,
    CALLS,
    FORWARD,
    LEAVES,
    OPTIMIZER,
    PARAMETER,
    Call,
    Leaf,
    Ref,
    Spec,
    is_op_name,
    op_named,
    show_value,
)
from weft.graph.steps import Step, rule_named
from weft.graph.verify import verify
from weft.operators.casting import memory_format
from weft.operators.random import default_generator

VERSION = 2
KEY = "weft_graph"


def _tensor_files() -> Any:
    # A layer above this one, so it is asked for when it is needed.
    return importlib.import_module("weft.io.safetensors")


# --- writing ---------------------------------------------------------------------------


class _RecordWriter:
    """Turns records into plain data, and collects the arrays."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors: dict[str, Tensor] = {}
        self.names = graph._names()
        self.heads: dict[Any, str] = {}
        self.spots: dict[Any, str] = {}

    def _head(self, spec: Spec) -> str:
        """What a node is, as text; many nodes are the same."""
        key = spec.kind, spec.op_name, spec.shape, spec.dtype, spec.scope
        found = self.heads.get(key)
        if found is None:
            results = [[_plain(s), _dtype(d)] for s, d in spec.kinds()]
            fields = {
                "kind": spec.kind,
                "op": spec.op_name,
                "results": results,
                "several": spec.several,
                "module": spec.scope,
            }
            found = self.heads[key] = _text(fields)[1:-1]
        return found

    def _spot(self, spec: Spec) -> str:
        """Where a node stands in the program, as text."""
        key = spec.code, spec.instruction, spec.source, spec.grad
        found = self.spots.get(key)
        if found is None:
            fields = {"source": spec.line() or None, "grad": spec.grad}
            found = self.spots[key] = _text(fields)[1:-1]
        return found

    def array(self, array: np.ndarray) -> dict[str, Any]:
        """A place for an array in the file; its layout is kept, since sums depend on it."""
        name = f"t{len(self.tensors)}"
        order = sorted(range(array.ndim), key=lambda i: (-abs(array.strides[i]), i))
        packed = array.transpose(order).copy(order="C")
        place: dict[str, Any] = {"name": name}
        if order != list(range(array.ndim)):
            place["order"] = order
        if packed.dtype == np.complex128:
            packed, place["complex"] = packed.reshape(-1).view(np.float64), list(packed.shape)
        self.tensors[name] = wrap(packed)
        return place

    def value(self, x: Any, at: str) -> Any:
        """A constant or attribute as JSON; what JSON lacks is an object with one key."""
        if x is None or x.__class__ in (bool, int, str):
            return x
        if x.__class__ is float:
            return x if math.isfinite(x) else {"float": repr(x)}
        if x.__class__ is Ref:
            return {"ref": [x.node, x.index]}
        if isinstance(x, complex):
            return {"complex": [self.value(x.real, at), self.value(x.imag, at)]}
        if isinstance(x, (tuple, list)):
            kind = "tuple" if isinstance(x, tuple) else "list"
            return {kind: [self.value(v, at) for v in x]}
        if isinstance(x, dict):
            return {"dict": [[self.value(k, at), self.value(v, at)] for k, v in x.items()]}
        if isinstance(x, slice):
            return {"slice": [self.value(v, at) for v in (x.start, x.stop, x.step)]}
        if x is Ellipsis:
            return {"ellipsis": True}
        return self._rare(x, at)

    def _fits(self, x: Any) -> bool:
        """Whether a setting can be written; an optimizer may have functions among its own."""
        try:
            self.value(x, "")
        except GraphError:
            return False
        return True

    def _rare(self, x: Any, at: str) -> Any:
        if isinstance(x, np.dtype):
            return {"numpy_dtype": dt.of_numpy(x).name}
        if isinstance(x, dt.dtype):
            return {"dtype": x.name}
        if isinstance(x, memory_format):
            return {"memory_format": x.name}
        if isinstance(x, np.ndarray):
            return {"array": self.array(x)}
        if isinstance(x, Tensor):
            return {"tensor": self.array(host(x))}
        if isinstance(x, np.generic):
            return {"scalar": self.array(np.asarray(x))}
        if isinstance(x, Op):
            return {"op": x.name}
        raise GraphError(
            f"{at!r} holds a {type(x).__name__}, which a graph file can't hold. Replace the node "
            "by ops, or cut it off with subgraph()"
        )

    def spec(self, spec: Spec, values: bool) -> str:
        """One node as JSON text."""
        name, op = self.names[spec.id], spec.op
        if op.__class__ is not Op:
            self._check(op, name)
        args = ",".join([self._written(x, name) for x in spec.args])
        attrs = "{}"
        if spec.attrs:
            kept = {k: v for k, v in spec.attrs.items() if spec.kind != OPTIMIZER or self._fits(v)}
            attrs = _text({k: self.value(v, name) for k, v in kept.items()})
        forward = "null" if spec.forward is None else spec.forward
        label = quoted(spec.label) if spec.label else '""'
        time = "null" if spec.time is None else repr(spec.time)
        extra = self._extra(spec, values)
        return (
            f'{{"id":{spec.id},"name":{quoted(name)},{self._head(spec)},"args":[{args}],'
            f'"attrs":{attrs},{self._spot(spec)},"forward":{forward},"label":{label},'
            f'"time":{time}{extra}}}'
        )

    def _written(self, x: Any, at: str) -> str:
        """What a node reads, as JSON text."""
        kind = x.__class__
        if kind is Ref:
            return f'{{"ref":[{x[0]},{x[1]}]}}'
        if kind is int or (kind is float and math.isfinite(x)):
            return repr(x)
        return _text(self.value(x, at))

    def _check(self, op: Any, name: str) -> None:
        """Refuse what a file can't hold."""
        if isinstance(op, Call) and op.name not in CALLS:
            raise GraphError(
                f"{name!r} is a call of the Python function {op.name!r}, which a graph file "
                "can't hold. Replace it by ops, or cut it off with subgraph()"
            )
        if isinstance(op, Gradient) and (op.before or op.post):
            raise GraphError(
                f"{name!r} has a hook, a Python function, which a graph file can't hold"
            )

    def _extra(self, spec: Spec, values: bool) -> str:
        """What few nodes have."""
        found: dict[str, Any] = {}
        if isinstance(spec.op, Gradient):
            needs = spec.op.needs
            found["needs"] = [i for i, need in enumerate(needs) if need]
            found["targets"] = list(spec.op.targets)
        elif isinstance(spec.op, Draw):
            found["draw"] = self.array(spec.op.state)
        tensor = None if spec.leaf is None else spec.leaf.tensor
        if tensor is not None:
            found["leaf"] = {**self.array(host(tensor)), "grad": tensor.requires_grad}
            live = spec.leaf.live  # type: ignore[union-attr]
            if live is not None:
                found["leaf"]["live"] = self.array(host(live))
        kept = self.graph._kept.get(spec.id) if values else None
        if kept is not None:
            found["kept"] = [self.array(host(t)) if isinstance(t, Tensor) else None for t in kept]
        return f",{_text(found)[1:-1]}" if found else ""


_text = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def _plain(shape: Any) -> Any:
    return None if shape is None else [int(n) for n in shape]


def _dtype(d: Any) -> Any:
    return None if d is None else dt.of_numpy(d).name


def save(graph: Graph, path: str | os.PathLike[str], values: bool = False) -> None:
    """Write a graph and the values of its leaves; the file is replaced as a whole."""
    with no_collection():
        _save(graph, path, values)


def _save(graph: Graph, path: str | os.PathLike[str], values: bool) -> None:
    writer = _RecordWriter(graph)
    nodes = ",".join([writer.spec(s, values) for s in graph._specs.values()])
    rest = {
        KEY: VERSION,
        "outputs": [list(r) for r in graph._outputs],
        "updates": [[leaf, list(r)] for leaf, r in graph._updates.items()],
        "gradients": [
            [leaf, None if r is None else list(r)] for leaf, r in graph._gradients.items()
        ],
        "frozen": graph._frozen,
        "passes": [
            {
                "roots": [
                    [None if r is None else list(r), None if g is None else writer.array(g)]
                    for r, g in p.roots
                ],
                "fills": p.fills,
            }
            for p in graph._passes
        ],
        "modules": graph.modules,
        "order": graph._order,
    }
    text = f'{{"nodes":[{nodes}],{_text(rest)[1:]}'
    _tensor_files().save_safetensors(writer.tensors, path, {KEY: text})


# --- reading ---------------------------------------------------------------------------


def _field(x: dict[str, Any], name: str, *kinds: type) -> Any:
    """A field of a record, if it is what it has to be; ``True`` is not a number here."""
    value = x[name]
    if type(value) not in kinds:
        raise ValueError(f"{name!r} is {show_value(value)}")
    return value


# What a node's record has to have, and as what.
_FIELDS: dict[str, tuple[type, ...]] = {
    "id": (int,),
    "kind": (str,),
    "op": (str,),
    "several": (bool,),
    "args": (list,),
    "attrs": (dict,),
    "results": (list,),
    "module": (str,),
    "forward": (int, type(None)),
    "label": (str,),
    "grad": (bool,),
    "time": (float, int, type(None)),
    "source": (str, type(None)),
}
_ALL_FIELDS = itemgetter(*_FIELDS)
_KINDS = frozenset((*LEAVES, FORWARD, BACKWARD, OPTIMIZER))


class _RecordReader:
    """Turns plain data back into records, and validates everything."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        self.specs: dict[int, Spec] = {}
        self.kept: dict[int, tuple[Any, ...]] = {}
        self.names: dict[int, str] = {}
        self.accepted: set[tuple[type, ...]] = set()  # the types of fields of records, seen before

    def array(self, place: dict[str, Any]) -> np.ndarray:
        array = host(self.tensors[place["name"]])
        if "complex" in place:
            array = array.view(np.complex128).reshape(place["complex"])
        if "order" in place:
            if sorted(place["order"]) != list(range(array.ndim)):
                raise ValueError(f"{place['order']} is not an order of {array.ndim} dimensions")
            array = array.transpose(np.argsort(place["order"]))
        return array

    def ref(self, held: Any) -> Ref:
        """A result of a node that was read before."""
        node, index = held
        if type(node) is not int or type(index) is not int or node not in self.specs:
            raise ValueError(f"it reads {node!r}, which does not come before it")
        if not 0 <= index < len(self.specs[node].kinds()):
            raise ValueError(f"it reads result {index} of {self.names[node]!r}")
        return Ref(node, index)

    def value(self, x: Any, depth: int = 0) -> Any:
        if not isinstance(x, dict):
            return x
        if depth > _DEEPEST_VALUE:
            raise RecursionError
        ((kind, held),) = x.items()
        if kind == "ref":
            return self.ref(held)
        if kind in ("tuple", "list"):
            made = [self.value(v, depth + 1) for v in held]
            return tuple(made) if kind == "tuple" else made
        if kind == "dict":
            return {self.value(k): self.value(v, depth + 1) for k, v in held}
        if kind == "slice":
            return slice(*(self.value(v) for v in held))
        return self._rare(kind, held)

    def _rare(self, kind: str, held: Any) -> Any:
        if kind == "float":
            return float(held)
        if kind == "complex":
            return complex(*(self.value(v) for v in held))
        if kind == "ellipsis":
            return Ellipsis
        if kind == "numpy_dtype":
            return dt.BY_NAME[held].np
        if kind == "dtype":
            return dt.BY_NAME[held]
        if kind == "memory_format":
            return memory_format.by_name[held]
        if kind == "array":
            return self.array(held)
        if kind == "tensor":
            return wrap(self.array(held))
        if kind == "scalar":
            return self.array(held)[()]
        if kind == "op":
            return op_named(held)
        raise GraphError(f"the graph file has a value of the unknown kind {kind!r}")

    def node(self, x: dict[str, Any], passes: int) -> None:
        """Take in a node; whatever is wrong with it is told with its name."""
        try:
            spec = self._spec(x)
            if spec.id in self.specs:
                raise ValueError(f"its number {spec.id} is another node's")
            if spec.op == ACCUMULATE or "outs" in spec.attrs:
                at = _field(spec.attrs, "pass", int)
                if not 0 <= at < passes:
                    raise ValueError(f"it is in pass {at}")
            if "kept" in x:
                kept = tuple(None if p is None else wrap(self.array(p)) for p in x["kept"])
                if len(kept) != len(spec.kinds()):
                    raise ValueError(f"{len(kept)} values are kept of {len(spec.kinds())}")
                self.kept[spec.id] = kept
        except _WRONG as error:
            name = x.get("name") if isinstance(x, dict) else x
            raise GraphError(f"the node {show_value(name)}: {_told(error)}") from error
        self.specs[spec.id], self.names[spec.id] = spec, _field(x, "name", str)

    def _spec(self, x: dict[str, Any]) -> Spec:
        fields = _ALL_FIELDS(x)
        types = tuple(map(type, fields))
        if types not in self.accepted:
            for name, allowed in _FIELDS.items():
                _field(x, name, *allowed)
            self.accepted.add(types)
        number, kind, op, several, args, attrs, results, scope, forward, label, grad, *rest = fields
        if kind not in _KINDS:
            raise ValueError(f"the kind {kind!r} is unknown")
        kinds = [_kind(*pair) for pair in results]
        if not several and len(kinds) != 1:
            raise ValueError(f"it has {len(kinds)} results")
        shapes, dtypes = zip(*kinds, strict=True) if kinds else ((), ())
        if scope.count(".") > _DEEPEST:
            raise ValueError(f"it lies in {scope.count('.')} modules")
        if kind == OPTIMIZER and forward not in self.specs:
            raise ValueError(f"it updates {forward}, which does not come before it")
        made = self._op(x, kind, op, forward, several)
        if isinstance(made, Op) and made.multiple != several:
            raise ValueError(f"{op} does not give {len(kinds)} results")
        attrs = {k: self.value(v) for k, v in attrs.items()}
        if op == "to_device":
            attrs = {"device": "cpu", "source": "cpu"}  # where all that a file holds is
        return Spec(
            number, kind, made,
            tuple([self.value(v) if v.__class__ is dict else v for v in args]), attrs,
            shapes if several else shapes[0], dtypes if several else dtypes[0],
            scope=scope, forward=forward, leaf=self._leaf(x, kind), label=label,
            grad=grad, time=rest[0], source=rest[1] or "",
        )  # fmt: skip

    def _op(self, x: dict[str, Any], kind: str, op: str, forward: Any, several: bool) -> Any:
        """What a node runs; a name stands for itself where nothing does."""
        if kind in LEAVES or (kind == BACKWARD and op == ACCUMULATE):
            return op
        if kind == OPTIMIZER:
            rule = rule_named(op) if several else None
            if several and rule is None:
                raise ValueError(f"no optimizer of values is called {op!r}")
            return op if rule is None else Step(rule)
        if "needs" in x:
            return self._gradient(x, forward)
        if "draw" in x:
            if op not in DRAWS:
                raise ValueError(f"no random draw is called {op!r}")
            return Draw(op, default_generator, self.array(x["draw"]))
        if not is_op_name(op):
            raise ValueError(f"no op is registered under the name {op!r}")
        return op_named(op)

    def _gradient(self, x: dict[str, Any], forward: Any) -> Gradient:
        """The backward of a node that was read before, for the inputs that the file names."""
        if forward not in self.specs:
            raise ValueError(f"it is the backward of {forward}, which does not come before it")
        needs, targets = _field(x, "needs", list), _field(x, "targets", list)
        spec = self.specs[forward]
        if not all(type(i) is int and 0 <= i < len(spec.args) for i in (*needs, *targets)):
            raise ValueError(f"{forward} has no inputs {needs}")
        made = gradient_of(spec, [i in needs for i in range(len(spec.args))])
        if made is None or not targets or not set(targets) <= set(made.targets):
            raise ValueError(f"{self.names[forward]!r} gives no gradients to its inputs {targets}")
        made.targets = tuple(targets)
        return made

    def _leaf(self, x: dict[str, Any], kind: str) -> Leaf | None:
        if "leaf" not in x:
            return None
        if kind not in LEAVES:
            raise ValueError(f"a {kind} node has no value of its own")
        tensor = wrap(self.array(x["leaf"]))
        if kind == PARAMETER:
            tensor = Parameter(tensor, requires_grad=_field(x["leaf"], "grad", bool))
        made = Leaf(tensor)
        if "live" in x["leaf"]:
            made.live = wrap(self.array(x["leaf"]["live"]))
            if made.live._a.shape != tensor._a.shape or made.live._a.dtype != tensor._a.dtype:
                raise ValueError("its old and new value differ in shape or dtype")
        return made

    def passes(self, found: list[Any]) -> tuple[Pass, ...]:
        """The backward passes; a gradient comes after what its pass began at."""
        made = []
        for p in found:
            roots = tuple(
                (None if r is None else self.ref(r), None if g is None else self.array(g))
                for r, g in p["roots"]
            )
            made.append(Pass(roots, _field(p, "fills", bool)))
        places = {id: k for k, id in enumerate(self.specs)}
        begins = [
            max((places[r.node] for r, _ in p.roots if r is not None), default=-1) for p in made
        ]
        for spec in self.specs.values():
            step = spec.op == ACCUMULATE or "outs" in spec.attrs
            if step and begins[spec.attrs["pass"]] >= places[spec.id]:
                raise ValueError(f"{self.names[spec.id]!r} comes before what it is the gradient of")
        return tuple(made)


# What damaged data may raise on its way through the reader.
_WRONG = (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, OverflowError)
_DEEPEST = 300  # modules in modules
_DEEPEST_VALUE = 50  # tuples in tuples
_LARGEST = 2**63  # bytes of a result, from which on nothing can compute it


def _told(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]!r}"
    return str(error)


def _kind(shape: Any, dtype: Any) -> tuple[Any, Any]:
    made = None if dtype is None else dt.BY_NAME[dtype].np
    if shape is None:
        return None, made
    if type(shape) is not list or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{show_value(shape)} is not a shape")
    if math.prod(shape) * (1 if made is None else made.itemsize) >= _LARGEST:
        raise ValueError(f"a result of shape {show_value(shape)} fits into no memory")
    return tuple(shape), made


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a graph that ``save`` wrote; it runs to the same numbers."""
    files = _tensor_files()
    try:
        text = files.safetensors_metadata(path).get(KEY)
        tensors = files.load_safetensors(path)
    except files.SafetensorError as error:
        raise GraphError(
            f"{os.fspath(path)!r} is not a valid graph file (truncated or corrupt): {error}"
        ) from error
    if text is None:
        raise GraphError(f"{os.fspath(path)!r} holds tensors but no graph")
    try:
        with no_collection():
            found = json.loads(text)
            version = found.get(KEY) if isinstance(found, dict) else None
            if type(version) is int and version == VERSION:
                return _built(_RecordReader(tensors), found)
    except _WRONG as error:
        raise GraphError(f"the graph in {os.fspath(path)!r} is damaged: {_told(error)}") from error
    raise GraphError(
        f"{os.fspath(path)!r} has version {show_value(version)} of the graph format; this weft "
        f"reads {VERSION}"
    )


def _built(reader: _RecordReader, found: dict[str, Any]) -> Graph:
    for x in _field(found, "nodes", list):
        reader.node(x, len(found["passes"]))
    specs, names = reader.specs, reader.names
    if len(set(names.values())) < len(names):
        raise ValueError("two nodes have one name")
    updates = {leaf: reader.ref(r) for leaf, r in found["updates"]}
    if any(leaf not in specs or specs[leaf].leaf is None for leaf in updates):
        raise ValueError("an update is of no leaf")
    gradients = {leaf: None if r is None else reader.ref(r) for leaf, r in found["gradients"]}
    modules = _field(found, "modules", dict)
    order = _field(found, "order", list, type(None))
    if not all(type(v) is str for v in modules.values()) or set(order or ()) - set(names.values()):
        raise ValueError("'modules' or 'order' holds other things than names")
    graph = Graph()._fill(
        specs,
        tuple(reader.ref(r) for r in found["outputs"]),
        kept=reader.kept,
        passes=reader.passes(_field(found, "passes", list)),
        updates=updates,
        gradients=gradients,
        frozen=_field(found, "frozen", str),
        modules=modules,
    )
    graph._cache["names"] = names
    graph._order = order
    verify(graph)
    for spec in specs.values():
        if "grad_of" in spec.attrs:
            owner = specs[spec.attrs["grad_of"]].leaf
            owner.tensor._grad = spec.leaf.tensor  # type: ignore[union-attr]
    return graph
