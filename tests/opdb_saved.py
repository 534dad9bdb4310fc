"""What nodes show of what they keep (``grad_fn._saved_self``), over PyTorch's op table.

Each op of ``op_db`` is run with its samples on both systems, and from the results down along
``next_functions``, as far as the nodes have the same names, the names that begin with ``_saved``
and their values are compared.

    python -m opdb_saved              # all ops: what differs, by type of node
    python -m opdb_saved mul 'fft.*'  # some
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import opdb

PREFIX = "_saved_"

NONE = "None: weft keeps it only where a rule needs it, and here it is an intermediate result"
GIVEN = "filled in, where PyTorch keeps what the caller left out"
NUMBER = "a whole number as a real one, or the other way round"
SIGN = "unique up to sign"
OTHER = "the same op, computed by way of other values"
EXPANDED = "expanded to the result's shape, or not"

# Values that differ, by the type of node and PyTorch's name.
KNOWN: dict[str, dict[str, str]] = {
    "AdaptiveAvgPool2DBackward0": {"self": NONE},
    "AdaptiveMaxPool2DBackward0": {"self": NONE, "result1": OTHER},
    "AmaxBackward0": {"dim": GIVEN},
    "AminBackward0": {"dim": GIVEN},
    "AminmaxBackward0": {"dim": GIVEN},
    "AvgPool2DBackward0": {"padding": GIVEN, "stride": GIVEN},
    "ConvolutionBackward0": {"padding": GIVEN, "output_padding": GIVEN},
    "CtcLossBackward0": {"result0": NONE, "result1": OTHER},
    "DivBackward0": {"other": "already of the result's dtype"},
    "EmbeddingBagBackward0": dict.fromkeys(("result1", "result2", "result3", "weight"), OTHER),
    "FftR2CBackward0": {"self": NONE},
    "GatherBackward0": {"self": NONE},
    "HardtanhBackward0": {"max_val": NUMBER, "min_val": NUMBER},
    "IndexPutBackward0": {"indices": "a mask as the indices of its elements"},
    "LinalgDetBackward0": {"LU": OTHER, "pivots": OTHER},
    "LinalgEigBackward0": {"eigenvectors": SIGN},
    "LinalgEighBackward0": {"eigenvectors": SIGN},
    "LinalgLstsqBackward0": {"solution": NONE},
    "LinalgSlogdetBackward0": {"LU": OTHER, "pivots": OTHER},
    "LinalgSolveExBackward0": {"LU": OTHER, "pivots": OTHER},
    "LinalgSvdBackward0": {"U": SIGN, "Vh": SIGN},
    "LinalgVectorNormBackward0": {"dim": GIVEN, "ord": NUMBER},
    "LogSigmoidBackward0": {"buffer": OTHER},
    "MaskedScatterBackward0": {"mask": EXPANDED},
    "MaskedSelectBackward0": {"mask": EXPANDED, "self": NONE},
    "MaxPool2DWithIndicesBackward0": {"stride": GIVEN},
    "MmBackward0": dict.fromkeys(
        ("mat2", "self", "mat2_sym_strides", "self_sym_strides"), "operands in another order"
    ),
    "MulBackward0": {"other": EXPANDED, "self": NONE},
    "NanmedianBackward1": {"indices": "of equal values, another one"},
    "NativeBatchNormBackward0": dict.fromkeys(("running_mean", "running_var"), OTHER),
    "NllLossBackward0": {"self": NONE, "total_weight": "0 in PyTorch where nothing is averaged"},
    "PreluKernelBackward0": {"weight": EXPANDED},
    "ProdBackward1": {"self": OTHER, "result": OTHER, "dim": OTHER},
    "SliceBackward0": {"end": "a step of another composite"},
    "SpecialLogNdtrBackward0": {"result": OTHER},
    "SqueezeBackward1": {"self_sym_sizes": "of an op of another rank", "dim": GIVEN},
    "SqueezeBackward2": {"dim": "only those of size one"},
    "StdBackward0": {"correction": GIVEN, "dim": GIVEN},
    "StdMeanBackward0": {"correction": GIVEN, "dim": GIVEN},
    "SumBackward1": {"dim": "a step of another composite"},
    "VarBackward0": {"correction": GIVEN, "dim": GIVEN},
    "VarMeanBackward0": {"correction": GIVEN, "dim": GIVEN},
    "ViewBackward0": {"self_sym_sizes": "of an op of another rank"},
    "WhereBackward0": {"condition": EXPANDED},
}
for volume in ("AvgPool3D", "AdaptiveAvgPool3D", "AdaptiveMaxPool3D", "MaxPool3DWithIndices"):
    KNOWN[f"{volume}Backward0"] = KNOWN[f"{volume.replace('3', '2')}Backward0"]
# Nodes that stand for something else than PyTorch's of the same name.
COMPOSITE = {"GluBackward0": "of two halves, where PyTorch's takes the whole"}


@dataclass
class Findings:
    """What was compared, and what differs."""

    ops: int = 0
    samples: int = 0
    nodes: Counter[str] = field(default_factory=Counter)
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    values: dict[tuple[str, str], str] = field(default_factory=dict)
    other_nodes: Counter[tuple[str, str]] = field(default_factory=Counter)
    other_edges: Counter[str] = field(default_factory=Counter)


def names_of(node: Any) -> set[str]:
    return {name.removeprefix(PREFIX) for name in dir(node) if name.startswith(PREFIX)}


def signed(value: Any) -> Any:
    """What PyTorch's nodes give as unsigned numbers."""
    if type(value) is int and value >= 1 << 63:
        return value - (1 << 64)
    return tuple(map(signed, value)) if isinstance(value, tuple) else value


def difference(ours: Any, theirs: Any, name: str) -> str:
    """What is wrong with a value; nothing if it is PyTorch's."""
    theirs = signed(theirs)
    ours = signed(ours)
    try:
        opdb.compare(ours, theirs, name, 1.0)
    except opdb.Unsupported:
        return ""
    except opdb.Mismatch as wrong:
        if name.startswith(("dim", "index")) and same_place(ours, theirs):
            return ""
        return str(wrong)
    unlike = isinstance(theirs, str) and ours != theirs
    return f"{name}: {ours!r} where torch has {theirs!r}" if unlike else ""


def same_place(ours: Any, theirs: Any) -> bool:
    """Whether a dimension or an index is a negative one counted from the front."""
    if isinstance(ours, tuple) and isinstance(theirs, tuple) and len(ours) == len(theirs):
        return all(same_place(a, b) for a, b in zip(ours, theirs, strict=True))
    if type(ours) is not int or type(theirs) is not int:
        return False
    return ours == theirs or (theirs < 0 <= ours <= 12)


def compare_nodes(ours: Any, theirs: Any, found: Findings) -> None:
    """Compare two nodes and those behind them."""
    waiting, seen, held = [(ours, theirs)], set(), []
    while waiting:
        ours, theirs = waiting.pop()
        held.append((ours, theirs))  # so that no id is used twice
        if (id(ours), id(theirs)) in seen or (ours is None and theirs is None):
            continue
        seen.add((id(ours), id(theirs)))
        kinds = tuple("None" if n is None else n.name() for n in (ours, theirs))
        if kinds[0] != kinds[1]:
            found.other_nodes[kinds] += 1
            continue
        kind = kinds[0]
        if kind in COMPOSITE or "::" in kind:
            continue
        found.nodes[kind] += 1
        compare_names(kind, ours, theirs, found)
        edges = ours.next_functions, theirs.next_functions
        if len(edges[0]) != len(edges[1]):
            found.other_edges[kind] += 1
            continue
        waiting += [(a, b) for (a, _), (b, _) in zip(*edges, strict=True)]


def compare_names(kind: str, ours: Any, theirs: Any, found: Findings) -> None:
    mine, wanted = names_of(ours), names_of(theirs)
    for name in mine ^ wanted:
        found.names[kind, name] = "missing" if name in wanted else "not PyTorch's"
    for name in mine & wanted:
        values = (getattr(node, PREFIX + name) for node in (ours, theirs))
        wrong = difference(*values, name)
        if wrong:
            found.values.setdefault((kind, name), wrong)


def results(op: Any, samples: int) -> Iterator[tuple[Any, Any]]:
    """Results of an op on both systems, pair by pair."""
    supported = op.supported_backward_dtypes("cpu")
    dtype = next((d for d in ("float32", "complex64") if getattr(torch, d) in supported), None)
    if not dtype or not op.supports_autograd:
        return
    ours, settings = opdb.counterpart(op), opdb.Settings(samples=samples)
    for sample in opdb.samples_of(op, dtype, settings, requires_grad=True):
        try:
            args, kwargs = opdb.fresh(opdb.parts_of(sample))
            w_args, w_kwargs = opdb.to_weft((args, kwargs))
            opdb.both_seeds()
            expected = op.op(*args, **kwargs)
        except Exception:
            continue  # samples that PyTorch itself refuses are no matter of names
        opdb.both_seeds()
        yield ours(*w_args, **w_kwargs), expected


def compare_op(name: str, samples: int, found: Findings) -> None:
    """Add what one op's samples show to the findings."""
    op = opdb.BY_NAME[name]
    found.ops += 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for actual, expected in results(op, samples):
            found.samples += 1
            pairs = zip(opdb.tensors_in(actual), opdb.tensors_in(expected), strict=True)
            for ours, theirs in pairs:
                compare_nodes(ours.grad_fn, theirs.grad_fn, found)


def in_scope() -> list[str]:
    return [
        name
        for name, op in opdb.BY_NAME.items()
        if op.name not in opdb.OUT_OF_SCOPE and name not in opdb.OUT_OF_SCOPE
    ]


def unknown(found: Findings) -> dict[tuple[str, str], str]:
    """The differences that have no known reason."""
    known = {(kind, name) for kind, names in KNOWN.items() for name in names}
    return found.names | {k: v for k, v in found.values.items() if k not in known}


def main() -> int:
    chosen = opdb.selected(sys.argv[1:]) if sys.argv[1:] else in_scope()
    found = Findings()
    for name in chosen:
        compare_op(name, 6, found)
    for (kind, name), text in sorted(unknown(found).items()):
        print(f"{kind:34} {name:24} {text[:110]}")
    print(f"{found.ops} ops, {found.samples} samples, {found.nodes.total()} nodes compared")
    counts = len(found.nodes), len(found.names), len(found.values)
    print("{} types, {} names and {} values differ".format(*counts))
    stale = [f"{k}.{n}" for k, names in KNOWN.items() for n in names if (k, n) not in found.values]
    if not sys.argv[1:]:
        print("known, and not seen:", *stale)
    print(f"other nodes: {found.other_nodes.total()} in {len(found.other_nodes)} pairs")
    for (ours, theirs), count in found.other_nodes.most_common(200):
        print(f"  {count:4} {ours} for {theirs}")
    print(f"other numbers of edges: {dict(found.other_edges)}")
    return 1 if unknown(found) else 0


if __name__ == "__main__":
    sys.exit(main())
