"""Registered ops called directly, with operands and attributes that public functions refuse.

    PYTHONPATH=tests python -m direct_calls 50000 [first-seed]

A graph file may name any registered op with any operands, so such a call has to be a result or an
error: never an access beyond an array, a change of an operand, or a death of the process. A call is
a use from the op's own samples and a list of damages, each a name and numbers taken modulo what is
there, so that any subset of the damages is a call too and a fatal one can be cut down. Calls run
in a process of their own, on memory that ends at unreadable pages, with native code let in from
the smallest sizes on.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import importlib
import json
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Damage = tuple[str, tuple[int, ...]]
BLOCK = 1000  # calls in one setting of the limits
SLOW = 10  # seconds after which a call is interrupted; after six times as many its process ends
MEMORY = 12 << 30  # bytes of address space: a result that is larger is a MemoryError

# Python-side sizes below which kernels decline, and what they are in a test.
LIMITS: dict[str, dict[str, int]] = {
    "loops.indexing": {"SMALL": 1, "SMALL_ROWS": 1, "SMALL_SUM": 1, "GRAIN": 8},
    "loops.movement": {"SMALL": 1, "SMALL_CHOICE": 1, "GRAIN": 8},
    "loops.reduce": {"SMALL": 1, "GRAIN": 8},
    "loops.losses": {"SMALL": 1, "GRAIN": 8},
    "loops.resampling": {"SMALL": 1, "GRAIN": 8},
    "loops.circles": {"SMALL": 1},
    "loops.normalize": {"GRAIN": 8},
    "loops.batchnorm": {"GRAIN": 8, "ONE_PASS": 64},
    "loops.pooling": {"GRAIN": 8},
    "loops.softmax": {"GRAIN": 8},
    "layers.recurrent": {"GRAIN": 8, "SMALL": 1, "COPY": 8},
    "gemm.products": {"LARGE": 1, "THIN": 1},
    "conv.convolutions": {"DENSE": 1, "BROAD": 1, "WEIGHTS": 1, "TILES": 1, "TILED": 1},
    "gemm.packed": {"WORTH": 1, "LEAST": 64},
    "codegen.trace": {"GRAIN": 8},
}


# --- uses ------------------------------------------------------------------------------------


def _public_calls() -> Iterator[Callable[[], Any]]:
    """Uses of ops that have no samples of their own."""
    import weft
    import weft.nn.functional as F

    rng = np.random.default_rng(0)
    real = lambda *shape: weft.tensor(rng.standard_normal(shape))
    whole = lambda *shape: weft.tensor(rng.integers(0, 4, shape))
    bag = whole(7)
    starts = weft.tensor([0, 2, 5])
    for mode in ("sum", "mean", "max"):
        yield lambda m=mode: F.embedding_bag(bag, real(4, 3).requires_grad_(), starts, mode=m)
    each = real(7).requires_grad_()
    yield lambda: F.embedding_bag(
        bag, real(4, 3).requires_grad_(), starts, mode="sum", per_sample_weights=each
    )
    for mode in ("bilinear", "nearest", "bicubic"):
        yield lambda m=mode: F.grid_sample(
            real(2, 3, 4, 5).requires_grad_(), real(2, 3, 2, 2).requires_grad_(), m,
            align_corners=False,
        )  # fmt: skip
    yield lambda: F.ctc_loss(
        real(6, 2, 5).log_softmax(2).requires_grad_(), weft.tensor([[1, 2], [3, 3]]),
        weft.tensor([6, 5]), weft.tensor([2, 2]),
    )  # fmt: skip
    for name in ("argmax", "argmin", "all", "any", "count_nonzero"):
        for at in ({}, {"dim": 0}, {"dim": 1}):
            yield lambda n=name, a=at: getattr(weft, n)(real(4, 5), **a)
    yield lambda: F.one_hot(whole(3, 2), 5)
    yield lambda: weft.nonzero(whole(3, 4))
    yield lambda: weft.nonzero_static(whole(3, 4), size=5)
    yield lambda: weft.isin(whole(3, 4), whole(3))
    yield lambda: weft.unique(whole(4, 3), dim=0, return_inverse=True)
    yield lambda: weft.unique_consecutive(whole(9), return_counts=True)
    yield lambda: weft.searchsorted(real(3, 5).sort()[0], real(3, 2))
    yield lambda: weft.bincount(whole(9), real(9), minlength=3)
    yield lambda: weft.histc(real(9), bins=4)
    yield lambda: weft.histogram(real(9), 4)
    yield lambda: weft.geqrf(real(4, 3))
    yield lambda: weft.linalg.matrix_rank(real(4, 4))
    yield lambda: weft.linalg.ldl_factor_ex(real(4, 4))
    yield lambda: weft.linalg.ldl_solve(*weft.linalg.ldl_factor_ex(real(4, 4))[:2], real(4, 2))
    yield lambda: weft.hash_tensor(real(3, 4))
    yield lambda: weft.isclose(real(3), real(3))
    yield lambda: weft.scatter_reduce(real(3, 4), 1, whole(3, 4), real(3, 4), "mean")
    norm = weft.nn.BatchNorm1d(3).double()
    yield lambda: norm(real(4, 3))
    yield lambda: weft._standard_gamma(real(3).abs())
    for name in ("gcd", "lcm", "bitwise_and", "bitwise_left_shift", "eq", "logical_or"):
        yield lambda n=name: getattr(weft, n)(whole(3, 1), whole(4))


class _Noting:
    """Takes note of the ops that run."""

    def __init__(self, found: dict[str, list[Any]]) -> None:
        self.found = found

    def before(self, op: Any, args: Any, attrs: dict[str, Any]) -> None:
        if op.samples is None:
            arrays = [x._a if hasattr(x, "_a") else x for x in args]
            self.found[op.name].append((arrays, dict(attrs)))

    def source(self, generator: Any) -> Any:
        return generator

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None


@functools.cache
def uses() -> dict[str, list[tuple[list[Any], dict[str, Any]]]]:
    """Arguments and attributes of each op: its samples, or what public functions call it with."""
    from weft.core.dispatch import REGISTRY, Op
    from weft.graph.spec import listening
    from weft.operators.build import Make

    found: dict[str, list[Any]] = {name: [] for name in REGISTRY}
    for name, op in REGISTRY.items():
        if op.samples is not None:
            found[name] = [(list(s.args), dict(s.attrs)) for s in op.samples(Make(0))]
    noting, compute = _Noting(found), Op.compute

    def noted(self: Op, args: Any, attrs: dict[str, Any]) -> Any:
        noting.before(self, args, attrs)
        return compute(self, args, attrs)

    Op.compute = noted  # type: ignore[method-assign]  # backward computes on bare arrays
    try:
        with listening(noting):
            for call in _public_calls():
                out = call()
                out = out[0] if isinstance(out, tuple) else out
                if out.requires_grad:
                    out.sum().backward()
    finally:
        Op.compute = compute  # type: ignore[method-assign]
    rng = np.random.default_rng(0)
    for name, op in REGISTRY.items():
        if not found[name]:
            found[name] = [([rng.standard_normal((3, 4)) for _ in op.names], {})]
    return found


# --- damages ---------------------------------------------------------------------------------


class Call:
    """One call while it is being damaged."""

    def __init__(self, args: list[Any], attrs: dict[str, Any]) -> None:
        self.args, self.attrs = list(args), dict(attrs)

    def arrays(self) -> list[int]:
        return [i for i, x in enumerate(self.args) if isinstance(x, np.ndarray)]

    def pick(self, k: int) -> int | None:
        there = self.arrays()
        return there[k % len(there)] if there else None


DAMAGES: dict[str, Callable[..., None]] = {}


def damage(function: Callable[..., None]) -> Callable[..., None]:
    DAMAGES[function.__name__] = function
    return function


def _dtypes() -> list[np.dtype]:
    import ml_dtypes

    names = ("f4", "f8", "f2", "i8", "i4", "i2", "i1", "u1", "?", "c8", "c16", "u2", "u4", "u8")
    return [*map(np.dtype, names), np.dtype(ml_dtypes.bfloat16)]


def _converted(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = x.real
    return x.astype(dtype)


SIZES = (0, 1, 2, 3, 5, 8, 17, 33, 64, 100, 300)
NUMBERS = (
    *(-1, 0, 1, 2, 3, 7, 64, -3, 1000, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 2**64, -(2**31)),
    *(0.5, -0.5, float("nan"), float("inf"), 1e300, True, False, None, "sum", "no such", b"x"),
    *((), (1,), (0, 0), (2, 3), (-1,), (2**40, 2), [1, 2], 1j, {}),
)
WHOLE = (-1, -2, 0, 1, 5, 100, -100, 2**31, -(2**31) - 1, 2**62, -(2**63), 2**63 - 1)


@damage
def float_type(call: Call, which: int) -> None:
    """All floats in one type; native code is mostly for float32."""
    dtype = _dtypes()[(0, 0, 0, 0, 1, 2, 14)[which % 7]]
    for i in call.arrays():
        if call.args[i].dtype.kind == "f":
            call.args[i] = call.args[i].astype(dtype)


@damage
def one_type(call: Call, k: int, which: int) -> None:
    i = call.pick(k)
    if i is not None:
        kinds = _dtypes()
        call.args[i] = _converted(call.args[i], kinds[which % len(kinds)])


@damage
def stretch(call: Call, k: int, which: int) -> None:
    """All dimensions of one size get another, in all operands and in attributes."""
    sizes = sorted({n for i in call.arrays() for n in call.args[i].shape})
    if not sizes:
        return
    old, new = sizes[k % len(sizes)], SIZES[which % len(SIZES)]
    swap = lambda v: new if v.__class__ is int and v == old else v
    for i in call.arrays():
        shape = tuple(swap(n) for n in call.args[i].shape)
        if shape != call.args[i].shape and np.prod(shape) < 2e5:
            call.args[i] = np.resize(call.args[i], shape)
    for name, value in call.attrs.items():
        if isinstance(value, tuple):
            call.attrs[name] = tuple(map(swap, value))
        elif "num" in name or "size" in name:
            call.attrs[name] = swap(value)


@damage
def one_size(call: Call, k: int, dim: int, which: int) -> None:
    i = call.pick(k)
    if i is None or not call.args[i].ndim:
        return
    shape = list(call.args[i].shape)
    d = dim % len(shape)
    choices = (*SIZES, shape[d] + 1, max(shape[d] - 1, 0), 2 * shape[d])
    shape[d] = choices[which % len(choices)]
    if np.prod(shape) < 2e5:
        call.args[i] = np.resize(call.args[i], shape)


@damage
def rank(call: Call, k: int, which: int, seed: int) -> None:
    i = call.pick(k)
    if i is None:
        return
    x, rng = call.args[i], random.Random(seed)
    choices: tuple[Callable[[], Any], ...] = (
        lambda: x[0] if x.ndim and len(x) else x[None],
        lambda: x[None],
        lambda: x[..., None],
        lambda: x.reshape(-1),
        lambda: np.resize(x, ()),
        lambda: np.resize(x, [rng.choice((0, 1, 2, 3, 4, 5)) for _ in range(rng.randrange(7))]),
        lambda: np.resize(x, [rng.choice((1, 2, 3)) for _ in range(x.ndim)]),
    )
    call.args[i] = choices[which % len(choices)]()


@damage
def swapped_axes(call: Call, k: int, a: int, b: int) -> None:
    i = call.pick(k)
    if i is not None and call.args[i].ndim:
        n = call.args[i].ndim
        call.args[i] = np.ascontiguousarray(np.swapaxes(call.args[i], a % n, b % n))


@damage
def values(call: Call, k: int, which: int, seed: int) -> None:
    i = call.pick(k)
    if i is None or not call.args[i].size:
        return
    x, rng = call.args[i].copy(), random.Random(seed)
    spots = [rng.randrange(x.size) for _ in range(rng.choice((1, 1, 3, x.size)))]
    if x.dtype.kind in "iu":
        bounds = np.iinfo(x.dtype)
        for at in spots:
            v = rng.choice((*WHOLE, *call.args[call.arrays()[0]].shape))
            x.reshape(-1)[at] = min(max(v, bounds.min), bounds.max)
    elif x.dtype.kind in "fc":
        for at in spots:
            x.reshape(-1)[at] = rng.choice((np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0, -1.0))
    call.args[i] = x


@damage
def layout(call: Call, k: int, which: int) -> None:
    i = call.pick(k)
    if i is None:
        return
    x = call.args[i]
    choices: tuple[Callable[[], Any], ...] = (
        lambda: np.asfortranarray(x),
        lambda: np.ascontiguousarray(x[::-1])[::-1] if x.ndim else x,
        lambda: np.ascontiguousarray(x[..., ::-1])[..., ::-1] if x.ndim else x,
        lambda: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
        lambda: np.repeat(x, 3, axis=0)[::3] if x.ndim else x,
        lambda: np.broadcast_to(x[:1], x.shape) if x.ndim else x,
        lambda: np.broadcast_to(x[..., :1], x.shape) if x.ndim else x,
        lambda: np.broadcast_to(x.reshape(-1)[:1].reshape(()), x.shape) if x.size else x,
        lambda: _unaligned(x),
        lambda: _overlapping(x),
        lambda: _read_only(x),
        lambda: x.astype(x.dtype.newbyteorder()) if x.dtype.kind != "V" else x,
    )
    call.args[i] = choices[which % len(choices)]()


def _unaligned(x: np.ndarray) -> np.ndarray:
    room = np.empty(x.nbytes + 1, np.uint8)
    moved = room[1:].view(x.dtype).reshape(x.shape)
    moved[...] = x
    return moved


def _overlapping(x: np.ndarray) -> np.ndarray:
    """Rows that begin one element after each other."""
    if x.ndim < 2 or not x.size:
        return x
    steps = (x.itemsize,) * x.ndim
    flat = np.resize(x, sum(x.shape)).copy()
    return np.lib.stride_tricks.as_strided(flat, x.shape, steps)


def _read_only(x: np.ndarray) -> np.ndarray:
    made = x.copy()
    made.flags.writeable = False
    return made


@damage
def attribute(call: Call, k: int, which: int) -> None:
    if call.attrs:
        name = sorted(call.attrs)[k % len(call.attrs)]
        call.attrs[name] = NUMBERS[which % len(NUMBERS)]


@damage
def part(call: Call, k: int, at: int, which: int) -> None:
    """One entry of an attribute that has several, or one more or less of them."""
    several = sorted(n for n, v in call.attrs.items() if isinstance(v, (tuple, list)))
    if not several:
        return
    name = several[k % len(several)]
    entries = list(call.attrs[name])
    if at % 4 == 3 or not entries:
        entries = entries[:-1] if which % 2 and entries else [*entries, which % 3]
    else:
        entries[at % len(entries)] = NUMBERS[which % 20]
    call.attrs[name] = tuple(entries)


@damage
def extra_attribute(call: Call, which: int) -> None:
    if which % 2 and call.attrs:
        del call.attrs[sorted(call.attrs)[which % len(call.attrs)]]
    else:
        call.attrs["dim"] = which % 5 - 2


@damage
def operand(call: Call, k: int, which: int) -> None:
    if not call.args:
        return
    i, j = k % len(call.args), which % len(call.args)
    action = which % 5
    if action == 0:
        del call.args[i]
    elif action == 1:
        call.args.append(call.args[i])
    elif action == 2:
        call.args[i] = (None, 2, -1.5, True, 1j, "x", 2**70, np.float32(3), [1.0, 2.0])[which % 9]
    elif action == 3:
        call.args[i], call.args[j] = call.args[j], call.args[i]
    else:
        call.args[i] = call.args[j]


USUAL = ("float_type", "stretch", "layout")
WEIGHTS = {"one_size": 4, "rank": 3, "values": 3, "attribute": 3, "part": 3, "stretch": 3}


def draw(seed: int, names: list[str]) -> tuple[str, str, int, list[Damage]]:
    """An op's name, a route, the number of a use, and damages."""
    rng = random.Random(seed)
    number = lambda: rng.randrange(1 << 20)
    native = sorted(_native_names())
    name = rng.choice(native if rng.random() < 0.5 else names)
    routes = ("compute", "compute", "record", "graph", "rule", "rule", "inplace", "over")
    route = rng.choice(routes)
    damages: list[Damage] = []
    if rng.random() < 0.8:
        damages.append(("float_type", (number(),)))
    for _ in range(rng.choice((0, 1, 2))):
        damages.append(("stretch", (number(), number())))
    kinds = sorted(DAMAGES)
    weights = [WEIGHTS.get(kind, 1) for kind in kinds]
    for kind in rng.choices(kinds, weights, k=rng.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        damages.append((kind, (number(), number(), number())))
    return name, route, number(), damages


def _native_names() -> list[str]:
    from weft.operators.native import KERNELS

    return list(KERNELS)


def _damaged(call: Call, damages: list[Damage]) -> None:
    for kind, numbers in damages:
        function = DAMAGES[kind]
        function(call, *numbers[: function.__code__.co_argcount - 1])


# --- running ---------------------------------------------------------------------------------


def set_limits(block: int) -> None:
    """Let native code in: all kernels from one element on, or in the sizes that they are meant for.

    In every other block arrays begin behind an unreadable page.
    """
    import guarded_memory
    from weft.core import selection
    from weft.core.dispatch import REGISTRY
    from weft.operators import native

    guarded_memory.install(at_end=block % 4 < 3)
    selection._begun.append(True)
    selection.ready()
    if block % 3:
        for module, limits in LIMITS.items():
            held = importlib.import_module(f"weft.native.{module}")
            for name, value in limits.items():
                assert isinstance(getattr(held, name), int)
                setattr(held, name, value)
        for name, (_, *paths) in native.KERNELS.items():
            selection.offer(REGISTRY[name], name in native.EXACT, 1, *paths)
        selection.LARGE = selection.OVER = selection.BEGIN = 1
        for op in REGISTRY.values():
            if op.traced:
                op.limit, op.exact = 1, 0
    else:
        selection.BEGIN = 1


def _placed(x: Any, at_end: bool) -> Any:
    import guard

    if not isinstance(x, np.ndarray) or x.dtype.hasobject:
        return x
    made = (guard.before if at_end else guard.after)(x)
    made.flags.writeable = x.flags.writeable
    return made


def _bytes(values: Any) -> list[Any]:
    return [x.tobytes() if isinstance(x, np.ndarray) else None for x in values]


def _use(name: str, use: Any) -> Call:
    """The use of an op with a number, or arguments and attributes as they are given."""
    there = uses()[name]
    return Call(*use) if isinstance(use, tuple) else Call(*there[use % len(there)])


def run(name: str, route: str, use: Any, damages: list[Damage], at_end: bool) -> str:
    """One call: "result", or the name of the error's class."""
    from weft.core.dispatch import REGISTRY

    op = REGISTRY[name]
    call = _use(name, use)
    late = [d for d in damages if d[0] not in USUAL] if route in ("rule", "over") else []
    _damaged(call, [d for d in damages if d not in late])
    call.args = [_placed(x, at_end) for x in call.args]
    before = _bytes(call.args)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ROUTES[route](op, call, late, at_end)
        found = "result"
    except SystemError:
        raise  # native code that gave neither a result nor an error
    except Exception as error:
        found = type(error).__name__
    if route != "inplace" and _bytes(call.args) != before:
        raise SystemError("an operand was changed")
    return found


def _compute(op: Any, call: Call, late: list[Damage], at_end: bool) -> None:
    out = op(*call.args, **call.attrs)
    for o in out if op.multiple else (out,):
        np.asarray(o).tobytes()


def _tensors(call: Call) -> list[Any]:
    from weft.core.tensor import wrap

    made = []
    for x in call.args:
        if isinstance(x, np.ndarray):
            x = wrap(x)
            if x._a.dtype.kind in "fcV":
                x.requires_grad_()
        made.append(x)
    return made


def _record(op: Any, call: Call, late: list[Damage], at_end: bool) -> None:
    import weft

    tensors = _tensors(call)
    out = op(*tensors, **call.attrs)
    outs = [o for o in (out if op.multiple else (out,)) if o.requires_grad]
    leaves = [t for t in tensors if isinstance(t, weft.Tensor) and t.requires_grad]
    if outs and leaves:
        seeds = [weft.ones(o.shape, dtype=o.dtype) for o in outs]
        weft.autograd.grad(outs, leaves, seeds, allow_unused=True)


def _graph(op: Any, call: Call, late: list[Damage], at_end: bool) -> None:
    """The call as a node of a graph file, which is read, run and differentiated."""
    from weft import graph

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.weft"
        write_graph(path, op, call)
        found = graph.load(path)
    out = found.run()
    outs = [o for o in (out if isinstance(out, tuple) else (out,)) if o.requires_grad]
    if outs:
        sum(o.abs().sum() for o in outs).backward()
    for node in found:
        _ = node.value


def write_graph(path: Path, op: Any, call: Call) -> None:
    """A graph file of leaves and one node."""
    import weft
    from weft.graph import files
    from weft.io.safetensors import save_safetensors

    writer = files._RecordWriter(weft.graph.record())
    usual: dict[str, Any] = {"args": [], "attrs": {}, "several": False, "module": "", "label": ""}
    usual |= {"source": None, "forward": None, "grad": True, "time": None}
    nodes, args = [], []
    for x in call.args:
        if isinstance(x, np.ndarray):
            k = len(nodes)
            smooth = x.dtype.kind in "fcV"
            shape, dtype = list(x.shape), files._dtype(x.dtype)
            leaf = {**writer.array(x), "grad": smooth}
            kind = "parameter" if smooth else "constant"
            names = {"id": k, "name": f"leaf{k}", "kind": kind, "op": kind}
            nodes.append({**usual, **names, "results": [[shape, dtype]], "leaf": leaf})
            args.append({"ref": [k, 0]})
        else:
            args.append(writer.value(x, "an operand"))
    last = len(nodes)
    attrs = {k: writer.value(v, k) for k, v in call.attrs.items()}
    names = {"id": last, "name": "called", "kind": "forward", "op": op.name}
    results = [[None, None]] * (len(op.outputs) if op.multiple else 1)
    own = {"args": args, "attrs": attrs, "several": op.multiple, "results": results}
    nodes.append({**usual, **names, **own})
    document = {
        files.KEY: files.VERSION, "nodes": nodes, "outputs": [[last, 0]], "updates": [],
        "passes": [], "modules": {}, "order": None,
    }  # fmt: skip
    save_safetensors(writer.tensors, path, {files.KEY: json.dumps(document)})


def _inplace(op: Any, call: Call, late: list[Damage], at_end: bool) -> None:
    from weft.core.inplace import apply_inplace
    from weft.core.tensor import wrap

    made = [wrap(x) if isinstance(x, np.ndarray) else x for x in call.args]
    apply_inplace(op, made, call.attrs)


def _rule(op: Any, call: Call, late: list[Damage], at_end: bool) -> None:
    plan, g, saved = _saved(op, call, late, at_end)
    needs = (True,) * len(call.args)
    for rule in (plan.large, plan.vjp):
        if rule is not None:
            rule(g, saved, call.attrs, needs)


def _over(op: Any, call: Call, late: list[Damage], at_end: bool) -> None:
    """Elementwise loops that write over an array."""
    from weft.core import selection

    plan, g, saved = _saved(op, call, late, at_end)
    if isinstance(g, np.ndarray):
        plan.over(g.copy(), saved)
        if plan.entry is not None:
            plan.entry(g, *saved)
    if op.traced and call.args and isinstance(call.args[0], np.ndarray):
        selection.into(op, call.args[0].copy(), *call.args[1:])


def _saved(op: Any, call: Call, late: list[Damage], at_end: bool) -> tuple[Any, Any, Any]:
    """A plan, a gradient and what a call saves for it; then both are damaged."""
    if not op.differentiable:
        raise NotImplementedError
    args = call.args
    out = op.compute(args, call.attrs)
    outs = [np.asarray(o) for o in (out if op.multiple else (out,))]
    count = len(args)
    there = sum(1 << i for i, x in enumerate(args) if isinstance(x, np.ndarray))
    conj = any(o.dtype.kind == "c" for o in outs)
    plan = op.plan_for(there, there, count, conj)
    saved, _ = plan.pack(args, outs, [[0]] * count, [[0]] * len(outs))
    seeds = [np.ones_like(o) for o in outs]
    held = Call([*seeds, *saved], call.attrs)
    _damaged(held, [d for d in late if d[0] != "operand"])
    if len(held.args) != len(seeds) + len(saved):
        raise ValueError
    placed = [_placed(x, at_end) for x in held.args]
    call.attrs = held.attrs
    g = tuple(placed[: len(seeds)]) if op.multiple else placed[0]
    return plan, g, tuple(placed[len(seeds) :])


ROUTES: dict[str, Callable[..., None]] = {
    "compute": _compute,
    "record": _record,
    "graph": _graph,
    "inplace": _inplace,
    "rule": _rule,
    "over": _over,
}


def _give_up(*_: Any) -> None:
    # Sizes are not limited, so that a call may take its time.
    raise TimeoutError


def work() -> None:
    """The process that makes the calls it is sent; it says what it does before it does it."""
    block = int(sys.argv[2])
    faulthandler.enable()
    signal.signal(signal.SIGALRM, _give_up)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    uses()
    set_limits(block)
    names = sorted(uses())
    to = os.fdopen(int(sys.argv[3]), "wb", buffering=0)
    for number, given in pickle.load(sys.stdin.buffer):
        name, route, use, damages = draw(given, names) if isinstance(given, int) else given
        to.write(f"{number}\n".encode())
        signal.alarm(SLOW)
        faulthandler.dump_traceback_later(6 * SLOW, exit=True)
        try:
            found = run(name, route, use, damages, block % 4 < 3)
        except TimeoutError:
            found = "TimeoutError"
        except Exception as error:
            to.write(f"{number} !{type(error).__name__}: {error}\n".replace("\n", " ").encode())
            to.write(b"\n")
            continue
        to.write(f"{number} {found}\n".encode())
        signal.alarm(0)
    faulthandler.cancel_dump_traceback_later()


def run_calls(calls: list[Any], block: int) -> tuple[list[str], int | None, str]:
    """What came of calls, up to the first fatal one; its place and what was said of it."""
    here = Path(__file__).parent
    source = str(here.parent / "src")
    paths = [source, str(here), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Threads that wait must not take the processor from those that work.
    settings = {"WEFT_POOL": "off", "OMP_WAIT_POLICY": "PASSIVE"}
    environment = {**os.environ, **settings, "PYTHONPATH": os.pathsep.join(paths)}
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "direct_calls", "--work", str(block), str(write)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        pass_fds=(write,), env=environment,
    )  # fmt: skip
    os.close(write)
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(pickle.dumps(list(enumerate(calls))))
    process.stdin.close()
    begun, found = -1, []
    with os.fdopen(read) as lines:
        for line in lines:
            number, _, outcome = line.strip().partition(" ")
            if not number:
                continue
            if not outcome:
                begun = int(number)
            else:
                found.append(outcome)
                if outcome.startswith("!"):
                    process.kill()
                    process.wait()
                    process.stderr.close()
                    return found, begun, outcome[1:]
    said = process.stderr.read().decode(errors="replace")
    process.stderr.close()
    code = process.wait()
    if code and begun < 0:
        raise RuntimeError(f"the process that makes the calls did not start:\n{said}")
    if code:
        died = signal.Signals(-code).name if code < 0 else f"exit {code}"
        return found, begun, f"{died}\n{said[:3000]}"
    return found, None, ""


def smaller(call: Any, block: int) -> tuple[Any, str]:
    """The same call with as few damages as still make it fatal, and what is said of it."""
    name, route, use, damages = call
    _, fatal, said = run_calls([call], block)
    if fatal is None:
        return call, ""
    for k in reversed(range(len(damages))):
        fewer = (name, route, use, damages[:k] + damages[k + 1 :])
        _, fatal, told = run_calls([fewer], block)
        if fatal is not None:
            call, said, damages = fewer, told, fewer[3]
    return call, said


def describe(call: Any) -> str:
    """The call as it is made, for people."""
    from weft.core.errors import describe as show

    name, route, use, damages = call
    made = _use(name, use)
    late = [d for d in damages if d[0] not in USUAL] if route in ("rule", "over") else []
    _damaged(made, [d for d in damages if d not in late])
    given = [f"{show(x)}{_strange(x)}" for x in made.args]
    given += [f"{k}={v!r}" for k, v in made.attrs.items()]
    return f"{route} {name}({', '.join(given)})" + (f" then {late}" if late else "")


def _strange(x: Any) -> str:
    plain = not isinstance(x, np.ndarray) or x.flags.c_contiguous
    return "" if plain else f" with strides {x.strides}"


def check(first: int, count: int) -> Iterator[tuple[int, Any, str]]:
    """Run calls by their seeds; each fatal one with its seed, cut down, and what is said of it."""
    end = first + count
    while first < end:
        block = first // BLOCK
        stop = min(end, (block + 1) * BLOCK)
        found, fatal, said = run_calls(list(range(first, stop)), block)
        for outcome in found:
            OUTCOMES[outcome] = OUTCOMES.get(outcome, 0) + 1
        if fatal is None:
            first = stop
            print(f"{sum(OUTCOMES.values())} calls", file=sys.stderr, flush=True)
            continue
        seed = first + fatal
        if said.startswith("exit 1\n") and "Timeout (" in said:
            # Some functions take time by the values, as polynomials do by their degree.
            print(f"slow: seed {seed}", file=sys.stderr, flush=True)
            OUTCOMES["slow"] = OUTCOMES.get("slow", 0) + 1
            first = seed + 1
            continue
        call, alone = smaller(draw(seed, sorted(uses())), block)
        yield seed, call, alone or f"{said}\n(not by itself: it takes the calls before it)"
        first = seed + 1


OUTCOMES: dict[str, int] = {}


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        work()
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    given = parser.parse_args()
    fatal = 0
    for seed, call, said in check(given.first, given.count):
        fatal += 1
        print(f"seed {seed}: {describe(call)}\n{said}\n", flush=True)
    print(f"{given.count} calls, {fatal} fatal; {dict(sorted(OUTCOMES.items()))}")
    return int(bool(fatal))


if __name__ == "__main__":
    sys.exit(main())
