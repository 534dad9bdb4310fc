"""Graphs in files: JSON in the header of a safetensors file, which holds the leaves' values.

No code is in such a file and none runs when it is read: ops are found by their registered names.
"""

from __future__ import annotations

import importlib
import json
import math
import os
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.dispatch import Op
from weft.core.tensor import Parameter, Tensor, wrap
from weft.graph.graph import Graph, Pass
from weft.graph.run import GraphError
from weft.graph.spec import CALLS, LEAVES, Call, Leaf, Ref, Spec, op_named
from weft.ops.casting import memory_format

VERSION = 1
KEY = "weft_graph"


def _tensor_files() -> Any:
    # A layer above this one, so it is asked for when it is needed.
    return importlib.import_module("weft.io.safetensors")


# --- writing ---------------------------------------------------------------------------


class _Writer:
    """Turns records into plain data, and collects the arrays."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors: dict[str, Tensor] = {}

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
            return {"tensor": self.array(x._a)}
        if isinstance(x, np.generic):
            return {"scalar": self.array(np.asarray(x))}
        if isinstance(x, Op):
            return {"op": x.name}
        raise GraphError(
            f"{at!r} holds a {type(x).__name__}, which a graph file can't hold. Replace the node "
            "by ops, or cut it off with subgraph()"
        )

    def spec(self, spec: Spec, values: bool) -> dict[str, Any]:
        name = self.graph._names()[spec.id]
        if isinstance(spec.op, Call) and spec.op.name not in CALLS:
            raise GraphError(
                f"{name!r} is a call of the Python function {spec.op.name!r}, which a graph file "
                "can't hold. Replace it by ops, or cut it off with subgraph()"
            )
        attrs = spec.attrs
        if spec.kind == "optimizer":
            attrs = {k: v for k, v in attrs.items() if self._fits(v)}
        found: dict[str, Any] = {
            "id": spec.id,
            "name": name,
            "kind": spec.kind,
            "op": spec.op_name,
            "args": [self.value(x, name) for x in spec.args],
            "attrs": {k: self.value(v, name) for k, v in attrs.items()},
            "results": [[_plain(s), _dtype(d)] for s, d in spec.kinds()],
            "several": spec.several,
            "module": spec.scope,
            "source": spec.line() or None,
            "forward": spec.forward,
            "label": spec.label,
            "grad": spec.grad,
            "time": spec.time,
        }
        tensor = None if spec.leaf is None else spec.leaf.tensor
        if tensor is not None:
            found["leaf"] = {**self.array(tensor._a), "grad": tensor.requires_grad}
        kept = self.graph._kept.get(spec.id) if values else None
        if kept is not None:
            found["kept"] = [self.array(t._a) if isinstance(t, Tensor) else None for t in kept]
        return found


def _plain(shape: Any) -> Any:
    return None if shape is None else [int(n) for n in shape]


def _dtype(d: Any) -> Any:
    return None if d is None else dt.of_numpy(d).name


def save(graph: Graph, path: str | os.PathLike[str], values: bool = False) -> None:
    """Write a graph and the values of its leaves; the file is replaced as a whole."""
    writer = _Writer(graph)
    found = {
        KEY: VERSION,
        "nodes": [writer.spec(s, values) for s in graph._specs.values()],
        "outputs": [list(r) for r in graph._outputs],
        "updates": [[leaf, list(r)] for leaf, r in graph._updates.items()],
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
    text = json.dumps(found, allow_nan=False, separators=(",", ":"))
    _tensor_files().save_safetensors(writer.tensors, path, {KEY: text})


# --- reading ---------------------------------------------------------------------------


class _Reader:
    """Turns plain data back into records."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors

    def array(self, place: dict[str, Any]) -> np.ndarray:
        array = self.tensors[place["name"]]._a
        if "complex" in place:
            array = array.view(np.complex128).reshape(place["complex"])
        if "order" in place:
            array = array.transpose(np.argsort(place["order"]))
        return array

    def value(self, x: Any) -> Any:
        if not isinstance(x, dict):
            return x
        ((kind, held),) = x.items()
        if kind == "ref":
            return Ref(*held)
        if kind in ("tuple", "list"):
            made = [self.value(v) for v in held]
            return tuple(made) if kind == "tuple" else made
        if kind == "dict":
            return {self.value(k): self.value(v) for k, v in held}
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

    def spec(self, x: dict[str, Any]) -> Spec:
        shapes = tuple(None if s is None else tuple(s) for s, _ in x["results"])
        dtypes = tuple(None if d is None else dt.BY_NAME[d].np for _, d in x["results"])
        several = x["several"]
        kind, op = x["kind"], x["op"]
        bare = kind in LEAVES or kind == "optimizer" or (kind == "backward" and _is_step(op))
        leaf = None
        if "leaf" in x:
            tensor = wrap(self.array(x["leaf"]))
            if kind == "parameter":
                tensor = Parameter(tensor, requires_grad=bool(x["leaf"]["grad"]))
            leaf = Leaf(tensor)
        return Spec(
            int(x["id"]), kind, op if bare else op_named(op),
            tuple(self.value(v) for v in x["args"]),
            {k: self.value(v) for k, v in x["attrs"].items()},
            shapes if several else shapes[0], dtypes if several else dtypes[0],
            scope=x["module"], forward=x["forward"], leaf=leaf, label=x["label"],
            grad=x["grad"], time=x["time"], source=x["source"] or "",
        )  # fmt: skip


def _is_step(op: str) -> bool:
    try:
        op_named(op)
    except ValueError:
        return True
    return False


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a graph that ``save`` wrote; it runs to the same numbers."""
    files = _tensor_files()
    text = files.safetensors_metadata(path).get(KEY)
    if text is None:
        raise GraphError(f"{os.fspath(path)!r} holds tensors but no graph")
    found = json.loads(text)
    if not isinstance(found, dict) or found.get(KEY) != VERSION:
        version = found.get(KEY) if isinstance(found, dict) else None
        raise GraphError(
            f"{os.fspath(path)!r} has version {version!r} of the graph format; this weft reads "
            f"{VERSION}"
        )
    reader = _Reader(files.load_safetensors(path))
    try:
        return _built(reader, found)
    except GraphError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise GraphError(f"the graph in {os.fspath(path)!r} is damaged: {error!r}") from error


def _built(reader: _Reader, found: dict[str, Any]) -> Graph:
    specs: dict[int, Spec] = {}
    kept: dict[int, tuple[Any, ...]] = {}
    for x in found["nodes"]:
        spec = reader.spec(x)
        unknown = [r.node for r in spec.refs() if r.node not in specs]
        if unknown or spec.id in specs:
            raise GraphError(f"the node {x['name']!r} reads {unknown}, which do not come before it")
        specs[spec.id] = spec
        if "kept" in x:
            kept[spec.id] = tuple(None if p is None else wrap(reader.array(p)) for p in x["kept"])
    passes = tuple(
        Pass(
            tuple(
                (None if r is None else Ref(*r), None if g is None else reader.array(g))
                for r, g in p["roots"]
            ),
            p["fills"],
        )
        for p in found["passes"]
    )
    outputs = tuple(Ref(*r) for r in found["outputs"])
    updates = {leaf: Ref(*r) for leaf, r in found["updates"]}
    for r in (*outputs, *updates.values()):
        specs[r.node].kind_of(r.index)
    graph = Graph()._fill(
        specs, outputs, kept=kept, passes=passes, updates=updates, modules=found["modules"]
    )
    graph._cache["names"] = {x["id"]: x["name"] for x in found["nodes"]}
    graph._order = found["order"]
    return graph
