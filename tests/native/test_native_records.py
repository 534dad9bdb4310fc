"""Tensors and nodes made by compiled code: the same as Python makes them, and nothing leaks."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.core import making, selection
from weft.core.dispatch import REGISTRY, apply
from weft.core.node import AccumulateGrad, OpNode, Output
from weft.native.codegen import records
from weft.native.codegen.frame_layout import frame_layout

if not selection.ready():
    pytest.skip("no native code here", allow_module_level=True)


@contextmanager
def by_python() -> Iterator[None]:
    """Ops finished by the Python code alone, which is the specification."""
    held = {op: (op.made, op.call) for op in REGISTRY.values()}
    for op in held:
        op.made = op.call = None
    try:
        yield
    finally:
        for op, (made, call) in held.items():
            op.made, op.call = made, call


def compiled(name: str) -> tuple[Callable, Callable]:
    """The compiled functions of an op, which may not have been used yet."""
    made, call = making.functions(REGISTRY[name])
    assert made is not None
    assert call is not None
    return made, call


def leaf(*shape: int, seed: int = 0) -> weft.Tensor:
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return weft.tensor(x, requires_grad=True)


# --- the same as Python ------------------------------------------------------------------

STEPS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "scaled": lambda x, y: x * 0.5,
    "from": lambda x, y: 1.0 - x,
    "by one": lambda x, y: x * weft.tensor(2.0),
    "exp": lambda x, y: x.sigmoid(),
    "relu": lambda x, y: weft.relu(x),
    "clamp": lambda x, y: x.clamp(-0.5, 1),
    "clamp min": lambda x, y: x.clamp(min=0),
    "view": lambda x, y: x.view(2, 8),
    "reshape": lambda x, y: x.t().reshape(16),
    "flatten": lambda x, y: x.flatten(),
    "t": lambda x, y: x.t(),
    "permute": lambda x, y: x.permute(1, 0),
    "transpose": lambda x, y: x.transpose(0, -1),
    "unsqueeze": lambda x, y: x.unsqueeze(1).squeeze(1),
    "squeeze": lambda x, y: x.squeeze(),
    "expand": lambda x, y: x.expand(2, 4, 4),
    "select": lambda x, y: x[1],
    "slice": lambda x, y: x[1:3],
    "index": lambda x, y: x[weft.tensor([0, 2])],
    "cat": lambda x, y: weft.cat([x, y, x]),
    "cat last": lambda x, y: weft.cat((x, y), dim=-1),
    "stack": lambda x, y: weft.stack([x, y], 1),
    "split": lambda x, y: x.split(3)[1],
    "chunk": lambda x, y: x.chunk(2, 1)[0],
    "unbind": lambda x, y: x.unbind(1)[2],
    "sum": lambda x, y: x.sum(),
    "sum dim": lambda x, y: x.sum(1, keepdim=True),
    "mean": lambda x, y: x.mean(0),
    "std": lambda x, y: x.std(),
    "var": lambda x, y: x.var(1),
    "max": lambda x, y: x.max(1)[0],
    "topk": lambda x, y: x.topk(2)[0],
    "sort": lambda x, y: x.sort(0)[0],
    "cumsum": lambda x, y: x.cumsum(1),
    "softmax": lambda x, y: x.softmax(1),
    "log_softmax": lambda x, y: F.log_softmax(x, 1),
    "cross": lambda x, y: F.cross_entropy(x, weft.tensor([0, 1, 2, 3])),
    "where": lambda x, y: weft.where(x > 0, x, y),
    "fill": lambda x, y: x.masked_fill(x > 0, 0.0),
    "mm": lambda x, y: x @ y,
    "linear": lambda x, y: F.linear(x, y, y[0]),
    "layer_norm": lambda x, y: F.layer_norm(x, (4,)),
    "double": lambda x, y: x.double() * 2,
    "detach": lambda x, y: x.detach() + y,
    "compare": lambda x, y: (x > y).float() * x,
    "in place": lambda x, y: (x * 1).add_(y),
    "into view": lambda x, y: _into_view(x, y),
    "unrecorded": lambda x, y: _unrecorded(x) + y,
    "whole": lambda x, y: ((x * 9).long() + 3) * 2 - 1,
    "mask": lambda x, y: ~(x > 0) & (y > 0) | ((x * 9).long() == 2),
    "masked": lambda x, y: x * (~(x > y)).float(),
}


def _into_view(x: Any, y: Any) -> Any:
    made = x * 1
    part = made[1:3]
    part.mul_(2)
    return made + part.sum() * y


def _unrecorded(x: Any) -> Any:
    with weft.no_grad():
        return x.view(16)[:4] * 2


def shown(value: Any) -> Any:
    """A saved value, an input of a node or an attribute, in a form that can be compared."""
    if isinstance(value, np.ndarray):
        return "array", value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, weft.Tensor):
        return "tensor", shown(value._a)
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [shown(v) for v in value]
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    if isinstance(value, weakref.ref):
        return "weak", shown(value())
    return type(value).__name__, repr(value) if not hasattr(value, "seq") else None


def graph_of(result: weft.Tensor) -> list[Any]:
    """All that a user can learn of a graph."""
    todo, seen, found = [result._node], {}, []
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen:
            continue
        seen[id(node)] = node
        if isinstance(node, AccumulateGrad):
            continue
        if isinstance(node, Output):
            found.append((node.seq, "output", node.index, node.shape, node.dtype))
            todo.append(node.node)
            continue
        assert isinstance(node, OpNode)
        guard = node.guard and (node.guard[0], [type(c).__name__ for c in node.guard[1:]])
        edges = [i.seq if hasattr(i, "seq") else shown(i) for i in node.inputs]
        found.append(
            (
                *(node.seq, node.name(), node.source, node.scope, node.shape, node.dtype),
                *(shown(node.attrs), shown(node.saved), guard, edges),
                node.code.co_name if node.code else None,
                sorted(node.outs) if hasattr(node, "outs") else None,
            )
        )
        todo.extend(i for i in node.inputs if hasattr(i, "inputs"))
    found.sort(key=lambda part: part[0])
    first = {part[0]: k for k, part in enumerate(found)}  # numbers differ, their order must not
    return [
        (k, *(
            [first.get(e, e) if isinstance(e, int) and not isinstance(e, bool) else e for e in p]
            if i == 9
            else p
            for i, p in enumerate(part[1:], 1)
        ))
        for k, part in enumerate(found)
    ]  # fmt: skip


def view_of(x: weft.Tensor) -> Any:
    link, steps = x._view, []
    while link.__class__ is tuple:
        steps.append((link[0].name, link[1], shown(link[2]), link[3], link[5]))
        link = link[4]
    return steps, link, x._base is not None and (x._base._a.shape, x._stamp), x._vc[0]


def run(chosen: list[str], seed: int, dtype: weft.dtype = weft.float32) -> list[Any]:
    """A random program: what it gives, what it recorded, and its gradients."""
    a, b = leaf(4, 4, seed=seed), leaf(4, 4, seed=seed + 1)
    if dtype is not weft.float32:
        a, b = (x.detach().to(dtype).requires_grad_() for x in (a, b))
    told, x = [], a
    for name in chosen:
        try:
            y = STEPS[name](x, b if name != "by one" else x)
        except Exception as error:
            told.append((name, type(error).__name__, str(error)))
            continue
        told.append((name, shown(y._a), view_of(y), y.requires_grad, graph_of(y)))
        if y._a.shape == (4, 4) and y._a.dtype == a._a.dtype:
            x = y
    if x.requires_grad:
        x.sum().backward()
    told.append((shown(a.grad), shown(b.grad)))
    return told


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_give_the_same_graph(seed: int) -> None:
    chosen = list(np.random.default_rng(seed).choice(list(STEPS), 12))
    run(chosen, seed)  # plans are made on first use, by Python
    fast = run(chosen, seed)
    with by_python():
        slow = run(chosen, seed)
    for mine, wanted in zip(fast, slow, strict=True):
        assert mine == wanted


WHOLE = [-3, -1, 0, 1, 2, 7, 2**40, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**70, True, 2.5]


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16])
@pytest.mark.parametrize("seed", range(30))
def test_random_programs_of_half_types_give_the_same_graph(
    seed: int, dtype: weft.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "TRIES", 3)
    selection.open_entries()
    chosen = list(np.random.default_rng(seed).choice(list(STEPS), 12))
    for _ in range(6):  # plans are made on first use, entry points after some
        fast = run(chosen, seed, dtype)
    with by_python():
        slow = run(chosen, seed, dtype)
    for mine, wanted in zip(fast, slow, strict=True):
        assert mine == wanted


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16])
def test_calls_on_half_types_are_compiled(
    dtype: weft.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "TRIES", 3)
    selection.open_entries()
    a, b = (leaf(4, 4, seed=k).detach().to(dtype) for k in (0, 1))
    r = b.clone().requires_grad_()
    for name in ("add", "mul", "maximum", "gt"):
        for _ in range(3):
            REGISTRY[name](a, b), REGISTRY[name](a, r)
        call = compiled(name)[1]
        assert call({}, 0, a, b) is not None and call({}, 0, a, r) is not None, name
        for other in (2.0, b[0], b.float(), b.t(), b[:, :2], weft.tensor(2.0), a > 0):
            assert call({}, 0, a, other) is None, (name, other)  # which Python widens or promotes


def outcome(name: str, args: Any) -> Any:
    """What an op gives without attributes, or which error it raises."""
    try:
        result = REGISTRY[name](*args)
    except Exception as error:
        return type(error).__name__, str(error).partition("\n  at")[0]
    results = result if isinstance(result, tuple) else (result,)
    for t in results:
        if t._a.dtype.kind == "f":
            t._a[np.isnan(t._a)] = np.nan  # of either sign
    return [(shown(t), t._base is not None, t._node) for t in results]


@pytest.mark.parametrize(
    "name",
    [
        n
        for n, op in REGISTRY.items()
        if op.promote is not None
        and op.check is None
        and "polynomial" not in n  # whose numbers are degrees, one step each
    ],
)
def test_integers_booleans_and_numbers_give_the_same(name: str) -> None:
    op = REGISTRY[name]
    n, mask = weft.tensor([[3, -2, 0, 5], [1, 7, -9, 2]]), weft.tensor([True, False, True, True])
    x, single = weft.tensor([0.5, -2.0, 3.0, 0.0]), weft.tensor(4)
    tensors = [n, n.t(), n[:, 1:3], mask, mask[::2], x, single, weft.tensor(True)]
    cases: list[tuple[Any, ...]] = [(a,) for a in tensors]
    if len(op.names) > 1 or op.variadic:
        cases += [(a, b) for a in tensors for b in (*tensors, *WHOLE)]
    if len(op.names) > 2:
        cases += [(a, n[0], k) for a in (mask, n[0], x) for k in (*WHOLE, x, n[1], mask)]
    held = op.made, op.call
    op.made, op.call = making.functions(op)
    try:
        mine = [outcome(name, case) for case in cases]
        with by_python():
            wanted = [outcome(name, case) for case in cases]
    finally:
        op.made, op.call = held
    for case, a, b in zip(cases, mine, wanted, strict=True):
        assert a == b, case


def test_calls_on_integers_booleans_and_numbers_are_compiled() -> None:
    n, mask = weft.arange(4), weft.tensor([True, False])
    for name, *args in (
        ("add", n, n), ("add", n, 1), ("eq", n, 1), ("mul", n, -2), ("eq", mask, mask),
        ("bitwise_not", mask), ("bitwise_and", mask, mask), ("bitwise_or", n, n),
        ("logical_not", mask), ("logical_and", mask, mask), ("cat", mask, mask),
    ):  # fmt: skip
        assert compiled(name)[1]({} if name != "cat" else {"dim": 0}, 0, *args) is not None, name
    for name, *args in (
        ("add", n, 2**63), ("eq", n, 2**63), ("add", n, 1.0), ("add", n, True), ("add", mask, 1),
        ("bitwise_and", weft.ones(2), weft.ones(2)), ("eq", n, n.int()), ("div", n, n),
        ("sub", mask, mask),
    ):  # fmt: skip
        assert (
            making.functions(REGISTRY[name])[1] is None or compiled(name)[1]({}, 0, *args) is None
        )


def test_the_compiled_code_was_used() -> None:
    for _ in range(3):
        run(list(STEPS), 0)
    kinds = {type(REGISTRY[name].call).__name__ for name in ("add", "view", "cat", "split", "topk")}
    assert kinds == {"builtin_function_or_method"}


@pytest.mark.parametrize("name", list(STEPS))
def test_unrecorded_and_in_inference_mode(name: str) -> None:
    def program(mode: Any) -> Any:
        a, b = leaf(4, 4), leaf(4, 4, seed=1)
        with mode():
            try:
                y = STEPS[name](a, b)
            except RuntimeError as error:
                return str(error)
        return shown(y._a), y.requires_grad, y.is_inference(), type(y._vc).__name__

    for mode in (weft.no_grad, weft.inference_mode):
        fast = program(mode), program(mode)
        with by_python():
            assert fast == (program(mode),) * 2


def test_nothing_is_compiled_for_calls_that_would_decline(monkeypatch: pytest.MonkeyPatch) -> None:
    op, x = REGISTRY["add"], leaf(3)
    standing = making.Maker(op, True)
    for name in ("made", "call"):
        monkeypatch.setattr(op, name, standing)
    monkeypatch.setattr(selection, "pays", lambda: True)
    learning = weft.compile(lambda: x + x)
    learning()
    assert op.call is standing
    x + x
    assert op.call is not standing
    assert op.made is not standing


def test_subclasses_hooks_and_recorders_go_by_python() -> None:
    class Mine(weft.Tensor):
        pass

    made, call = compiled("mul")
    a, b = leaf(4), leaf(4, seed=1)
    assert call({}, 0, a.as_subclass(Mine), b) is None
    with weft.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        assert call({}, 0, a, b) is None
    with weft.autograd.forward_ad.dual_level():
        assert call({}, 0, a, b) is None
    with weft.inference_mode():
        assert call({}, 0, a, b) is None
    assert call({}, 0, a, b.double()) is None
    assert call({}, 0, a, b.to("meta")) is None
    assert call({}, 0, a.long(), b.long()) is None or not call({}, 0, a.long(), b.long())._node
    assert call({}, 0, a, "b") is None
    assert call({}, 0) is None
    assert call() is None
    assert made(a._a, {}, None, 0, a, b) is None


@pytest.mark.parametrize("name", ["logical_or", "logical_and", "add", "maximum"])
def test_none_is_no_operand(name: str) -> None:
    _, call = compiled(name)
    x = weft.ones(3)
    assert call({}, 0, x, None) is None and call({}, 0, None, x) is None
    for pair in ((x, None), (None, x)):
        with pytest.raises(TypeError):
            getattr(weft, name)(*pair)


def test_it_can_be_switched_off() -> None:
    _, call = compiled("mul")
    a, b = leaf(4), leaf(4, seed=1)
    assert (a * b)._node is not None  # Python's code makes the plan for this pattern of inputs
    assert call({}, 0, a, b) is not None
    weft.backends.native.set("numpy")
    try:
        assert call({}, 0, a, b) is None
    finally:
        weft.backends.native.set("native")
    assert call({}, 0, a, b) is not None


def test_what_functions_are_made_from_outlives_what_knows_it() -> None:
    # The collector reads a built-in function's definition, at the latest while Python ends.
    found = making.records()
    assert found is not None
    other = copy.copy(found)
    other.definitions = {}
    alive = weakref.ref(other.definition(False, False, False))
    del other
    gc.collect()
    assert alive() is not None


def test_other_layouts_of_objects_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        __slots__ = ("_a",)

        @property
        def _node(self) -> None:
            return None

    assert records.Slots(Other, "_a")["_a"] > 0
    with pytest.raises(records.Unsupported):
        records.Slots(Other, "_node")

    def refuse(*_: Any) -> int:
        raise records.Unsupported("not here")

    monkeypatch.setattr(records, "_offset", refuse)
    with pytest.raises(records.Unsupported):
        records.Slots(Other, "_a")


def test_a_stale_view_goes_by_python() -> None:
    base = leaf(4) * 1
    part = base[1:3]
    base.mul_(3)
    assert compiled("mul")[1]({}, 0, part, part) is None
    (part * 2).sum().backward()


def test_an_error_names_the_op_and_the_line() -> None:
    with pytest.raises(RuntimeError, match="test_native_records"):
        leaf(4, 4) @ leaf(3, 4)
    with pytest.raises(
        RuntimeError, match=r"Sizes of tensors must match[\s\S]*test_native_records"
    ):
        weft.cat([leaf(4, 4), leaf(4, 3)])
    with pytest.raises(RuntimeError, match="equal size"):
        weft.stack([leaf(4, 4), leaf(2, 8)])
    with pytest.raises(RuntimeError, match="invalid for input of size 16"):
        leaf(4, 4).view(3, 5)


def test_an_interrupt_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    op = REGISTRY["logcumsumexp"]

    def interrupted(*args: Any, **attrs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(op, "reference", interrupted)
    _, call = making.functions(op)
    with pytest.raises(KeyboardInterrupt):
        call({"dim": 0}, 0, leaf(4))
    monkeypatch.setattr(op, "reference", lambda *args, **attrs: 1 / 0)
    _, call = making.functions(op)
    assert call({"dim": 0}, 0, leaf(4)) is None


# --- references --------------------------------------------------------------------------


def counts(objects: list[Any]) -> list[int]:
    return [sys.getrefcount(x) for x in objects]


def everything(a: Any, b: Any) -> None:
    for step in STEPS.values():
        step(a, b)


def test_references_are_exact() -> None:
    a, b, c = leaf(4, 4), leaf(4, 4, seed=1), weft.ones(4, 4)
    attrs, names = {"shape": (2, 8)}, ("mul", "view", "where", "cat", "split", "sum")
    ways = {name: compiled(name) for name in names}
    mask, now = c > 0, weft.core.modes.MODES.now
    calls = (
        lambda: ways["mul"][1]({}, 0, a, b),
        lambda: ways["mul"][1]({}, 0, a, 2.0),
        lambda: ways["mul"][1]({}, 0, c, c),
        lambda: ways["mul"][1]({}, 0, a, b.shape),  # declined
        lambda: ways["mul"][0](c._a, {}, now, 0, a, c),
        lambda: ways["view"][1](attrs, 0, a),
        lambda: ways["view"][1]({"shape": (3, 3)}, 0, a),  # fails, and is declined
        lambda: ways["where"][1]({}, 0, mask, a, c),
        lambda: ways["cat"][1]({"dim": 0}, 0, a, b, c),
        lambda: ways["split"][1]({"sizes": (1, 3), "dim": 0}, 0, None, a),
        lambda: ways["sum"][1]({"dim": (0, 1), "keepdim": False}, 0, a),
        lambda: everything(a, b),
    )
    ops = [REGISTRY[name] for name in names]
    held = [a, b, c, a._a, b._a, c._a, a._node, a._vc, b._vc, attrs, mask, now, now.scope]
    held += [None, True, False, 0, 1, (), weft.Tensor, OpNode, Output, *ops]
    number = np.ones((1, 1), np.float32)
    # On Python 3.12 every ``dot`` of NumPy's leaves a reference to the dtype behind.
    held += [] if moved_by(lambda: number.dot(number), 100, [number.dtype]) else [number.dtype]
    held += [plan for op in ops for plan in op.plans.values()]
    for call in calls:
        for _ in range(1000):
            call()
        count = 100_000 if call is not calls[-1] else 300
        # Other code of the process may let go of something meanwhile; a leak is there each time.
        assert moved_by(call, count, held) == [] or moved_by(call, count, held) == []


def moved_by(call: Callable, count: int, held: list[Any]) -> list[tuple[str, int]]:
    """Of which objects a number of calls leaves other counts of references, and more objects."""
    gc.collect()
    alive, before = len(gc.get_objects()), counts(held)
    for _ in range(count):
        call()
    gc.collect()
    after = counts(held)
    # Caches of the interpreter and of other code may take a few; a leak would take thousands.
    found = [(str(x)[:80], m - n) for x, n, m in zip(held, before, after, strict=True)]
    # Fewer may be alive than before: what stood in for native code until it was loaded.
    more = ("objects", max(0, len(gc.get_objects()) - alive))
    return [(name, by) for name, by in (*found, more) if abs(by) >= 100]


def holders(y: weft.Tensor) -> list[int]:
    """How many references there are to a result and to all that hangs on it."""
    node = y._node
    parts = ("plan", "inputs", "saved", "guard", "shape")
    found = [sys.getrefcount(getattr(node, part)) for part in parts]
    found += [sys.getrefcount(x) for x in (y, node)]
    return [*found, *(sys.getrefcount(getattr(y, slot)) for slot in ("_a", "_vc"))]


def test_references_of_results_are_exact() -> None:
    a, b = leaf(4), leaf(4, seed=1)
    for _ in range(3):
        y = a * b
    fast = holders(y)
    with by_python():
        y = a * b
        assert holders(y) == fast


def test_a_result_has_a_dict_and_can_die() -> None:
    a, b = leaf(4), leaf(4, seed=1)
    assert (a * b)._node is not None  # Python's code makes the plan for this pattern of inputs
    y = compiled("mul")[1]({}, 0, a, b)
    assert y.__dict__ == {}
    y.note = "seen"
    assert y.__dict__ == {"note": "seen"}
    held = weakref.ref(y)
    del y
    assert held() is None


def test_collections_at_every_allocation() -> None:
    a, b = leaf(4, 4), leaf(4, 4, seed=1)
    everything(a, b)
    wanted = run(list(STEPS), 3)
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        assert run(list(STEPS), 3) == wanted
    finally:
        gc.set_threshold(*before)


DEBUG = """
import gc, sys
sys.path[:0] = {path!r}
import test_native_records as tests
gc.set_threshold(3, 2, 2)
for _ in range(3):
    for seed in range(4):
        tests.run(list(tests.STEPS), seed)
print("done")
"""


def test_under_a_debug_allocator() -> None:
    # It fills freed memory, and finds what is written outside of objects.
    environment = {**os.environ, "PYTHONMALLOC": "debug"}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", DEBUG.format(path=sys.path)],
        capture_output=True,
        text=True,
        cwd=os.path.dirname(__file__),
        env=environment,
    )
    assert done.stdout.strip() == "done", done.stderr[-2000:]


def test_from_several_threads() -> None:
    wanted = [run(list(STEPS), seed)[-1] for seed in range(4)]
    found: dict[int, Any] = {}

    def work(seed: int) -> None:
        for _ in range(5):
            if seed % 2:
                with weft.no_grad():  # modes are a thread's own
                    assert not (leaf(4) * 2).requires_grad
            found[seed] = run(list(STEPS), seed)[-1]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert [found[seed] for seed in range(4)] == wanted


# --- where ops stood ---------------------------------------------------------------------


def test_the_line_is_the_user_s_however_deep_the_call() -> None:
    a = leaf(4, 4)

    def inner(x: Any) -> Any:
        return x.norm(dim=1)  # the line of norm

    layer = weft.nn.Sequential(weft.nn.Linear(4, 4), weft.nn.ReLU())
    for _ in range(3):
        y = a * 2  # the line of mul
        assert "the line of mul" in y.grad_fn.source
        assert "the line of norm" in inner(a).grad_fn.source
        z = layer(a)  # the line of the layer
        assert "the line of the layer" in z.grad_fn.source
        parts = [x * 3 for x in (a, y)]  # the line of a comprehension
        assert "the line of a comprehension" in parts[0].grad_fn.source
        made = next(x.exp() for x in (a,))  # the line of a generator
        assert "the line of a generator" in made.grad_fn.source
        scope = {"a": a}
        exec(compile("y = a.sum()", "<no file>", "exec"), scope)
        assert scope["y"].grad_fn.source.startswith("<no file>:1")


def test_the_path_of_modules_is_noted() -> None:
    layer = weft.nn.Sequential(weft.nn.Linear(4, 4), weft.nn.ReLU())
    a = leaf(2, 4)
    fast = [layer(a).grad_fn.scope for _ in range(2)]
    with by_python():
        assert [layer(a).grad_fn.scope for _ in range(2)] == fast


def test_apply_counts_shown_results() -> None:
    a = leaf(3, 4)
    op, attrs = REGISTRY["native_layer_norm"], {"rank": 1, "eps": 1e-5}
    for _ in range(3):
        y, mean, rstd = apply(op, (a, None, None), attrs, shown=1)
        assert isinstance(y._node, Output)
        assert mean._node is None
        assert rstd._node is None
        assert sorted(y._node.node.outs) == [0]


def test_looking_at_frames_keeps_nothing_of_the_callers_alive() -> None:
    class Held:
        pass

    def caller() -> weakref.ref[Held]:
        held = Held()
        assert frame_layout() is None or held
        return weakref.ref(held)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()
