"""Compiled loops of elementwise ops and their derivatives against the NumPy references."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

import weft
from weft.core import selection
from weft.core.dispatch import REGISTRY
from weft.native import threads as pool_of_threads
from weft.native.codegen import jit, trace
from weft.native.codegen.compiler import INTRINSICS
from weft.operators.build import Make

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))

selection.start()  # small arrays alone would not load native code
TRACED = sorted(name for name, op in REGISTRY.items() if op.traced)
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, 0.5, 20.0, -20.0]
ULPS = 4  # what the functions of the kernel language are good for, with some arithmetic around


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Ordinary numbers with special ones among them."""
    x = rng.standard_normal(shape) * rng.choice([0.1, 1.0, 5.0], shape)
    where = rng.random(shape) < 0.2
    x[where] = rng.choice(SPECIAL, int(where.sum()))
    return x.astype(dtype)


def layouts(x: np.ndarray) -> list[np.ndarray]:
    """The same values lying differently in memory."""
    wide = np.zeros((x.shape[0], x.shape[1] * 2), x.dtype)
    wide[:, ::2] = x
    raw = np.zeros(x.nbytes + x.itemsize, np.uint8)
    askew = raw[x.itemsize :].view(x.dtype).reshape(x.shape)
    askew[...] = x
    return [x, np.asfortranarray(x), wide[:, ::2], x[::-1, ::-1].copy()[::-1, ::-1], askew]


def close(
    found: np.ndarray, plain: np.ndarray, exact: np.ndarray, only_arithmetic: bool, terms: list
) -> None:
    """The same bits; with functions in it, within a few units of what float64 gives."""
    assert found.shape == plain.shape and found.dtype == plain.dtype
    if found.dtype == bool:
        assert (found == plain).all()
        return
    same = (found == plain) | (np.isnan(found) & np.isnan(plain))
    if not only_arithmetic:
        # Terms of the size of the arguments, or of one, may cancel.
        unit = np.abs(np.spacing(np.where(np.isfinite(exact), exact, 1).astype(plain.dtype)))
        size = np.prod(
            [np.maximum(np.abs(np.nan_to_num(t, posinf=1, neginf=1)), 1) for t in terms], 0
        )
        same |= np.abs(found - exact) <= ULPS * np.maximum(
            unit, np.finfo(plain.dtype).eps / 2 * size
        )
    bad = np.argwhere(~same)
    assert not len(bad), (found[tuple(bad[0])], plain[tuple(bad[0])], len(bad))


def arithmetic_only(function: object, count: int, dtype: str) -> bool:
    """Whether a function is made of operations that are exactly rounded."""
    tape = trace.Tape("f32" if dtype == "f4" else "f64")
    try:
        function(*(trace.Element(tape, f"e{k}", tape.kind) for k in range(count)))  # type: ignore[operator]
    except Exception:
        return False  # masks among the arguments
    called = re.findall(r"(\w+)\(", " ".join(tape.lines))
    return all(name in INTRINSICS or name == "T" for name in called)


def attributes(op: object) -> dict[str, object]:
    try:
        return next(iter(op.samples(Make()))).attrs  # type: ignore[attr-defined]
    except (TypeError, StopIteration):
        return {}


def arguments(op: object, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> list:
    made = [values(rng, shape, dtype) for _ in op.names]  # type: ignore[attr-defined]
    for k, name in enumerate(op.names):  # type: ignore[attr-defined]
        if name in ("condition", "mask"):
            made[k] = made[k] > 0
    return made


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", TRACED)
def test_forward(name: str, dtype: str) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(0)
    attrs = attributes(op)
    given = arguments(op, rng, (37, 21), dtype)
    with np.errstate(all="ignore"):
        first = selection.forward(op, given, attrs)
        if first is None:
            pytest.skip("not traced: NumPy runs it")
        plain = op.reference(*given, **attrs)
        wide = [g.astype("f8") if g.dtype != bool else g for g in given]
        exact = np.asarray(op.reference(*wide, **attrs), "f8")
        alone = arithmetic_only(lambda *x: op(*x, **attrs), len(given), dtype)
        close(first, plain, exact, alone, [1.0])
        for versions in zip(*map(layouts, given), strict=True):
            close(selection.forward(op, versions, attrs), plain, exact, alone, [1.0])


@pytest.mark.parametrize("name", [n for n in TRACED if REGISTRY[n].diagonal])
def test_backward(name: str) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(1)
    attrs = attributes(op)
    given = arguments(op, rng, (19, 23), "f4")
    plan = op.plan_for((1 << len(given)) - 1, (1 << len(given)) - 1, len(given), False)
    if plan.large is None:
        pytest.skip("its rules ask for shapes")
    with np.errstate(all="ignore"):
        try:
            y = op.reference(*given, **attrs)
        except RuntimeError as error:
            pytest.skip(str(error))
        g = values(rng, y.shape, "f4")
        saved, _ = plan.pack(given, (y,), [[0]] * len(given), [[0]])
        try:
            plain = plan.vjp(g, saved, attrs, None)
        except (NotImplementedError, RuntimeError) as error:
            pytest.skip(str(error))
        # The loop of each rule itself: what is not traced would be compared with itself.
        loops = [plan._native(i, op.rules[i]) for i in plan.targets]
        found = [loop and loop(g, saved, attrs, None) for loop in loops]
        if all(f is None for f in found):
            pytest.skip("not traced: NumPy runs it")
        wide = [s.astype("f8") if isinstance(s, np.ndarray) else s for s in saved]
        exact = plan.vjp(g.astype("f8"), wide, attrs, None)
        for a, b, c in zip(found, plain, exact, strict=True):
            if a is not None:
                close(a, b, c, False, [g, *given])


def test_most_ops_are_traced() -> None:
    rng, count = np.random.default_rng(2), 0
    for name in TRACED:
        op = REGISTRY[name]
        with np.errstate(all="ignore"):
            given = arguments(op, rng, (5, 3), "f4")
            count += selection.forward(op, given, attributes(op)) is not None
    assert count >= 60


SHAPES = [
    ((8, 6, 5, 7), (6, 1, 1)),
    ((8, 6, 5, 7), (7,)),
    ((8, 6, 5, 7), (8, 1, 5, 1)),
    ((8, 1), (1, 9)),
    ((4, 5), ()),
    ((1,), (3, 4)),
    ((2, 3, 4, 5, 6), (3, 1, 5, 1)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize("shapes", SHAPES)
def test_broadcasting(shapes: tuple) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype("f4") for s in shapes)
    for x, y in ((a, b), (b, a), (a.T, b.T) if a.ndim == b.ndim else (a, b)):
        found = REGISTRY["sub"].run(x, y)
        assert found.shape == (x - y).shape and (found == x - y).all()


def test_result_keeps_the_order_of_its_input() -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 4)).astype("f4").transpose(0, 3, 1, 2)
    assert selection.forward(REGISTRY["relu"], (x,), {}).strides == x.strides


def test_zero_sizes_and_mixed_dtypes_are_left_to_numpy() -> None:
    empty = np.zeros((0, 3), "f4")
    assert (REGISTRY["add"].run(empty, np.ones(3, "f4"))).shape == (0, 3)
    assert selection.forward(REGISTRY["add"], (np.ones(3, "f4"), np.ones(3, "f8")), {}) is None
    assert selection.forward(REGISTRY["add"], (np.ones(3, "i8"), np.ones(3, "i8")), {}) is None


def test_numbers_are_arguments_not_new_loops() -> None:
    op, x = REGISTRY["mul"], np.arange(5, dtype="f4")
    for k in range(200):
        assert (selection.forward(op, (x, k + 0.5), {}) == x * np.float32(k + 0.5)).all()


def test_an_identity_rule_copies_nothing() -> None:
    g = np.ones((300, 300), "f4")
    plan = REGISTRY["add"].plan_for(3, 3, 2, False)
    assert plan.large(g, (), {}, None)[0] is g


def test_many_threads_at_once() -> None:
    a = weft.randn(300, 300)
    want = (a * a + a).tanh()
    wrong = []

    def work() -> None:
        for _ in range(30):
            if not weft.equal((a * a + a).tanh(), want):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_any_number_of_threads_gives_the_same_bits(count: int) -> None:
    x = weft.linspace(-4, 4, 100_003)
    want = (x.sin() * x.exp()).numpy().copy()
    before = pool_of_threads.count()
    try:
        weft.set_num_threads(count)
        assert weft.get_num_threads() == count
        assert ((x.sin() * x.exp()).numpy() == want).all()
    finally:
        weft.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_computes() -> None:
    code = (
        "import os, weft\n"
        "x = weft.randn(400, 400)\n"
        "y = (x @ x).tanh().sum().item()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    ok = abs((x @ x).tanh().sum().item() - y) < 0.5\n"
        "    os._exit(0 if ok else 3)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "assert abs((x @ x).tanh().sum().item() - y) < 0.5\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_numpy_alone_gives_the_same() -> None:
    x = weft.randn(200, 300)
    native = (x.exp() + x).relu()
    selection.enable(False)
    try:
        plain = (x.exp() + x).relu()
    finally:
        selection.enable(True)
    assert weft.allclose(native, plain, rtol=1e-6, atol=1e-6)


def test_a_damaged_cache_is_made_anew(tmp_path: object) -> None:
    code = (
        "import weft, pathlib, os\nx = weft.ones(200, 200)\nassert (x + x).sum().item() == 80000\n"
    )
    env = {**os.environ, "WEFT_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True, env=env)
    files = list(tmp_path.glob("*.o"))  # type: ignore[attr-defined]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:100])
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True, env=env)


def test_a_branch_on_values_is_not_traced() -> None:
    loop = trace.Loop("branch", lambda x: x if x > 0 else -x)
    assert loop(np.ones(4, "f4")) is None
