"""Built-in functions made at run time: what they take, refuse and give, and that nothing leaks."""

from __future__ import annotations

import gc
import sys
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.core import selection
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit, trace
from weft.native.codegen.compiler import KernelFunction, Ptr, T, f64, i64
from weft.native.codegen.whole import EntrySpec
from weft.native.loops import indexing, normalize, reduce, softmax, sums
from weft.native.memory.layout import like_operands

F32 = np.float32


@jit.kernel
def scaled(x: Ptr[T], y: Ptr[T], by: T, shift: f64, lo: i64, hi: i64):
    for i in range(lo, hi):
        y[i] = x[i] * by + T(shift)


def some(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def test_a_call_takes_arrays_addresses_and_numbers() -> None:
    x, y = some(7), np.zeros(7, F32)
    run = scaled.get("f32")
    assert run(x, y, 2, 1.5, 7, 1) is None
    np.testing.assert_array_equal(y, x * F32(2) + F32(1.5))
    y[:] = 0
    run(x.ctypes.data, y, np.float64(3), True, np.int64(7), 1)
    np.testing.assert_array_equal(y, x * F32(3) + F32(1))


def test_a_call_refuses_wrong_arguments() -> None:
    x, run = some(7), scaled.get("f32")
    with pytest.raises(TypeError, match="scaled: 6 arguments expected"):
        run(x, x)
    with pytest.raises(TypeError):
        run("x", x, 1.0, 1.0, 7, 1)
    with pytest.raises(TypeError):
        run(x, x, "1", 1.0, 7, 1)
    with pytest.raises(TypeError):
        run(x, x, 1.0, 1.0, 7.5, 1)
    with pytest.raises(OverflowError):
        run(x, x, 1.0, 1.0, 1 << 80, 1)


@pytest.mark.parametrize("seed", range(12))
def test_one_function_reads_arguments_of_every_kind_in_any_order(seed: int) -> None:
    # What the kernel gets has to be what was given, for kernels of other kinds in one process.
    draw = np.random.default_rng(seed)
    kinds = [str(k) for k in draw.choice(["f32", "f64", "i64", "i32", "Ptr[f64]"], 1 + seed)]
    given: list[Any] = []
    for kind in kinds:
        whole = int(draw.integers(-(2**31), 2**31))
        given.append(
            np.array([whole / 7]) if "Ptr" in kind else whole / 3 if "f" in kind else whole
        )
    takes = "".join(f"a{k}: {kind}, " for k, kind in enumerate(kinds))
    puts = "".join(
        f"        y[{k}] = f64(a{k}{'[0]' * ('Ptr' in kind)})\n" for k, kind in enumerate(kinds)
    )
    text = f"def put(y: Ptr[f64], {takes}lo: i64, hi: i64):\n    for i in range(lo, hi):\n{puts}"
    run, y = jit.Kernel(KernelFunction(text, {})).get(), np.zeros(len(kinds))
    run(y, *given, 1, 1)
    expected = [
        a[0] if k == "Ptr[f64]" else float(F32(a)) if k == "f32" else float(a)
        for k, a in zip(kinds, given, strict=True)
    ]
    np.testing.assert_array_equal(y, expected)
    with pytest.raises(TypeError, match=f"put: {len(kinds) + 3} arguments expected"):
        run(y, *given, 1)


def loop() -> trace.Loop:
    return trace.Loop("product_plus", lambda a, b, c: a * b + c)


def test_a_way_takes_plain_arrays_of_one_shape_and_numbers() -> None:
    a, b = some(3, 4), some(3, 4, seed=1)
    entry = loop().entry((a, b, 2.0))
    assert entry is not None
    np.testing.assert_array_equal(entry(a, b, 2.0), a * b + F32(2))
    np.testing.assert_array_equal(entry(a, b, 3), a * b + F32(3))
    for shape in ((), (0,), (5, 0, 2), (1,), (2, 1, 3, 1, 2)):
        a, b = some(*shape), some(*shape, seed=1)
        got = entry(a, b, 0.5)
        assert got.shape == shape and got.dtype == F32
        np.testing.assert_array_equal(got, a * b + F32(0.5))


@pytest.mark.parametrize(
    "other",
    [
        some(3, 4).T,
        some(4),
        some(3, 4, 1),
        some(3, 4).astype(np.float64),
        some(3, 4).astype(">f4"),
        2.0,
        None,
        [1.0],
        F32(2),
    ],
    ids=["turned", "row", "rank", "float64", "swapped", "n", "None", "list", "f32"],
)
def test_a_way_gives_none_for_the_rest(other: object) -> None:
    a = some(3, 4)
    entry = loop().entry((a, a, 1.0))
    assert entry is not None
    assert entry(a, other, 1.0) is None and entry(other, a, 1.0) is None
    assert entry(a, a, a) is None and entry(a, a) is None and entry(a, a, "1") is None
    assert entry(a, a, True) is None


@st.composite
def slices(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """An array of a shape that is a slice of a larger one, its dimensions in any order."""
    order = draw(st.permutations(range(len(shape)))) if draw(st.booleans()) else range(len(shape))
    inner = [shape[d] for d in order]
    steps = [draw(st.sampled_from((1, 1, 2, -1))) for _ in inner]
    before = [draw(st.integers(0, 2)) for _ in inner]
    sizes = [b + n * abs(s) for b, n, s in zip(before, inner, steps, strict=True)]
    whole = some(*sizes, seed=draw(st.integers(0, 9)))
    cut = [
        slice(b, b + n * s, s) if s > 0 else slice(b + n - 1, b - 1 if b else None, -1)
        for b, n, s in zip(before, inner, steps, strict=True)
    ]
    view = whole[tuple(cut)].transpose(np.argsort(order))
    if draw(st.integers(0, 5)) == 0 and view.size:
        view = np.broadcast_to(view[(slice(0, 1),) * view.ndim], shape)
    assert view.shape == shape
    return view


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_arrays_with_gaps_give_the_result_of_their_copies(data: st.DataObject) -> None:
    """Bits and memory order are those of the code that takes arrays in any order."""
    shape = tuple(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
    a, b = data.draw(slices(shape)), data.draw(slices(shape))
    entry = curved.entry((some(3), some(3), 1.0))
    assert entry is not None
    found, wanted = entry(a, b, 0.5), like_operands(curved(a, b, 0.5), (a, b))
    plain = entry(np.ascontiguousarray(a), np.ascontiguousarray(b), 0.5)
    taken = all(x.flags.c_contiguous for x in (a, b)) or all(map(_is_in_order, (a, b)))
    assert (found is not None) == taken
    if found is not None:
        assert found.strides == wanted.strides and found.flags.c_contiguous
        assert found.tobytes() == wanted.tobytes() == plain.tobytes()


curved = trace.Loop("curved", lambda a, b, c: np.exp(a) * b + c)


def _is_in_order(x: np.ndarray) -> bool:
    least = 1
    for n, step in reversed(list(zip(x.shape, x.strides, strict=True))):
        if step < least:
            return False
        least = n * step
    return x.size > 0


def test_a_result_is_not_written_over_a_copy() -> None:
    x, made = some(6, 4)[::2], loop()
    before = x.copy()
    assert made.entry((before, before, 1.0)) is not None
    (over,) = made.over_entries
    assert over(x, before, 1.0) is None
    np.testing.assert_array_equal(x, before)


def test_results_belong_to_the_caller_and_nothing_leaks() -> None:
    a, kind = some(30, 40), np.dtype(F32)
    entry = loop().entry((a, a, 1.0))
    assert entry is not None
    ways = [
        lambda: entry(a, a, 1.0),
        lambda: entry(a, a.T, 1.0),
        lambda: entry(a[::2], a[1::2], 1.0),
        lambda: entry(a[::2], a.T[:, ::2].T, 1.0),
        lambda: entry(a[::2], a.astype(np.float64)[::2], 1.0),
        lambda: softmax.softmax(a, 1),
        lambda: sums.small(a, (1,), True),
        lambda: reduce.max_dim(a, 1, False),
        lambda: normalize.layer_norm(a, a[0], a[1], 1, 1e-5),
        lambda: indexing.gather(a, np.array([[99]] * 30), 1),
        lambda: indexing.embedding(a, np.array([-1]), -1, False),
    ]
    for run in ways:
        out = run()
        if isinstance(out, np.ndarray):
            assert sys.getrefcount(out) == 2 and out.flags.owndata and out.flags.writeable
        del out
        gc.collect()
        before = [sys.getrefcount(x) for x in (a, kind, None, float)], len(gc.get_objects())
        for _ in range(1000):
            run()
        after = [sys.getrefcount(x) for x in (a, kind, None, float)], len(gc.get_objects())
        assert all(abs(x - y) < 50 for x, y in zip(before[0], after[0], strict=True))
        assert abs(before[1] - after[1]) < 50


def test_tuples_hold_their_arrays_once() -> None:
    values, places = reduce.max_dim(some(30, 40), 1, False)
    assert sys.getrefcount(values) == 2 and sys.getrefcount(places) == 2
    assert values.flags.owndata and places.dtype == np.int64


@pytest.mark.parametrize("n", [*range(1, 40), 127, 128, 129, 136, 255, 256, 1000, 4097, 8191])
def test_small_sums_have_numpys_bits(n: int) -> None:
    for seed in range(3):
        x = some(n, seed=seed) * F32(10) ** np.random.default_rng(seed).integers(-3, 4, n)
        x = x.astype(F32)
        assert sums.small(x, (0,), False) == np.add.reduce(x)
        assert sums.small(x, (0,), True) == np.add.reduce(x) / F32(n)
    for rows in (2, 3, 17):
        if rows * n <= sums.MOST:
            x = some(rows, n)
            np.testing.assert_array_equal(sums.small(x, (1,), False), np.add.reduce(x, 1))
            down = sums.small(x, (0,), False)
            assert down is None if n == 1 else np.array_equal(down, np.add.reduce(x, 0))
            np.testing.assert_array_equal(sums.small(x, (0, 1), False), np.add.reduce(x, (0, 1)))
            np.testing.assert_array_equal(
                sums.small(x.reshape(1, rows, n), (2,), True), np.add.reduce(x, 1)[None] / F32(n)
            )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
def test_small_sums_of_special_values(value: float) -> None:
    x = np.full((3, 20), value, F32)
    for dim in ((0,), (1,), (0, 1)):
        got, wanted = sums.small(x, dim, False), np.add.reduce(x, dim)
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))


def test_what_is_no_small_sum() -> None:
    assert sums.small(some(8192), (0,), False) is None
    assert sums.small(some(2, 3, 4), (0, 1), False) is None
    assert sums.small(some(2, 3, 4), (1,), False) is None
    assert sums.small(some(4, 3).T, (0,), False) is None
    assert sums.small(some(0, 3), (0,), False) is None
    assert sums.small(some(4).astype(np.float64), (0,), False) is None


def test_elements_out_of_range_are_left_to_the_reference() -> None:
    x = some(4, 5)
    for wrong in (-1, 5):
        assert indexing.gather(x, np.full((4, 1), wrong), 1) is None
        assert indexing.index_select(x, np.array([0, wrong]), 0) is None
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        weft.tensor(x).gather(1, weft.full((4, 1), 5))


def test_specs_check_every_shape() -> None:
    rows = EntrySpec(
        ("f32", "f32 row"), ("f32 like 0",), ("take 0", "give 0", "1", "0"), "size", "1", most=20
    )
    run = scaled.whole(rows, "f32")
    np.testing.assert_array_equal(run(some(4, 5), some(5)), some(4, 5))
    for other in (some(4), some(1, 5), some(5, 1), some(5)[::-1], 1.0):
        assert run(some(4, 5), other) is None
    assert run(some(), some(1)) is None  # no last dimension
    assert run(some(5, 5), some(5)) is None  # too large
    assert run(some(0, 5), some(5)) is None  # empty


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_small_arrays_get_the_same_bits_before_and_after_native_code_is_there(dtype: str) -> None:
    """What small exact ops give must not depend on how often they ran."""
    x, y = (some(5, 6, seed=k).astype(dtype) for k in (0, 1))
    selection.open_entries()

    def values() -> list[np.ndarray]:
        a = weft.tensor(x, requires_grad=True)
        b = weft.tensor(y, requires_grad=True)
        z = (a * b + a / b - b).relu() * 2 + (a.abs().sqrt() - 1.5) + a.tanh() * b.exp()
        (z.sum() + z.mean(0).sum() + z.max(1).values.sum()).backward()
        return [z.detach().numpy(), a.grad.numpy(), b.grad.numpy()]

    selection.enable(False)
    try:
        before = values()
    finally:
        selection.enable(True)
    selection.start()
    for _ in range(3 * selection.TRIES):
        after = values()
    assert REGISTRY["mul"].entry is not None and not isinstance(
        REGISTRY["mul"].entry, selection.LazyEntry
    )
    for first, later in zip(before, after, strict=True):
        np.testing.assert_array_equal(first, later)


def test_a_chance_is_given_up_for_other_types() -> None:
    op = REGISTRY["hypot"] if "hypot" in REGISTRY else REGISTRY["maximum"]
    selection.open_op(op)
    for _ in range(selection.TRIES):
        assert op.entry is not None
        op.entry(np.ones(3, int), np.ones(3, int))
    assert op.entry is None
    selection.open_op(op)


def test_turning_kernels_off_shuts_the_ways() -> None:
    selection.enable(False)
    try:
        assert all(op.entry is None and op.entry_with_number is None for op in REGISTRY.values())
    finally:
        selection.enable(True)
    assert isinstance(REGISTRY["add"].entry, selection.LazyEntry)


def test_many_threads_share_a_way() -> None:
    a = some(64, 64)
    entry = loop().entry((a, a, 1.0))
    assert entry is not None
    wanted, wrong = a * a + F32(1), []

    def work() -> None:
        for _ in range(300):
            if not np.array_equal(entry(a, a, 1.0), wanted):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_writing_over_the_first_argument() -> None:
    a, b = some(40, 50), some(40, 50, seed=1)
    made = loop()
    for x in (a.copy(), np.asfortranarray(a)):
        wanted = a * b + F32(2)
        done = made.into(x, b, 2.0)
        assert done == x.flags.c_contiguous
        np.testing.assert_array_equal(x, wanted if done else a)
    locked = a.copy()
    locked.flags.writeable = False
    assert not made.into(locked, b, 2.0)
    np.testing.assert_array_equal(locked, a)
    assert not made.into(a.copy(), b[0], 2.0)
    assert not made.into(a.astype(np.float64), b, 2.0)


@pytest.mark.parametrize("shape", [(3,), (40, 50), (300, 200)])
@pytest.mark.parametrize("name", ["add_", "sub_"])
def test_scaled_sums_in_place(shape: tuple[int, ...], name: str) -> None:
    selection.start()
    x, y = some(*shape), some(*shape, seed=1)
    # Rounded once: the product of two float32 is exact in float64.
    scaled = y.astype(np.float64) * np.float64(F32(0.3))
    wanted = (x + scaled if name == "add_" else x - scaled).astype(np.float32)
    with weft.no_grad():
        for a in (weft.tensor(x), weft.tensor(x.T.copy()).T):
            version = a._version
            assert getattr(a, name)(weft.tensor(y), alpha=0.3) is a
            np.testing.assert_array_equal(a.numpy(), wanted)
            assert a._version == version + 1
        a = weft.tensor(x)
        getattr(a, name)(a, alpha=0.5)  # the same memory on both sides
        np.testing.assert_array_equal(
            a.numpy(), x + x * F32(0.5) if name == "add_" else x - x * F32(0.5)
        )
        row = weft.tensor(x)
        getattr(row, name)(weft.tensor(y[:1]), alpha=0.5)
        part = y[:1] * F32(0.5)
        np.testing.assert_array_equal(row.numpy(), x + part if name == "add_" else x - part)


def test_a_row_is_repeated_along_an_array() -> None:
    made = trace.Loop("row_difference", lambda a, b: a - b)
    x, row = some(4, 5), some(5, seed=1)
    entry = made.row_entry((x, row))
    assert entry is not None
    np.testing.assert_array_equal(entry(x, row), x - row)
    np.testing.assert_array_equal(entry(some(2, 3, 5), row), some(2, 3, 5) - row)
    np.testing.assert_array_equal(entry(some(400, 500), some(500)), some(400, 500) - some(500))
    for a, b in ((row, x), (x, some(4)), (x, x), (x.T, some(4)), (x, row[::-1]), (x, row[None])):
        assert entry(a, b) is None
    for a, b in ((x, some(4)), (row, row), (x, x), (x, row.astype(np.float64))):
        assert made.row_entry((a, b)) is None
    selection.start()
    a, b = weft.tensor(x, requires_grad=True), weft.tensor(row, requires_grad=True)
    for _ in range(3 * selection.TRIES):
        y = a * b
    assert REGISTRY["mul"].entry_with_row.__class__.__name__ == "builtin_function_or_method"
    np.testing.assert_array_equal(y.detach().numpy(), x * row)
    y.sum().backward()
    np.testing.assert_allclose(b.grad.numpy(), x.sum(0), rtol=1e-6)


@pytest.mark.parametrize("size", [3, 2000, 50_000])
def test_functions_in_place_are_those_out_of_place(size: int) -> None:
    """Bit by bit, with the same gradients, on whole tensors and on parts of others."""
    selection.start()
    functions = {
        "relu": lambda t, inplace: weft.nn.functional.relu(t, inplace=inplace),
        "leaky": lambda t, inplace: weft.nn.functional.leaky_relu(t, 0.2, inplace=inplace),
        "tanh": lambda t, inplace: t.tanh_() if inplace else t.tanh(),
        "asinh": lambda t, inplace: t.asinh_() if inplace else t.asinh(),
        "square": lambda t, inplace: t.square_() if inplace else t.square(),
        "neg": lambda t, inplace: t.neg_() if inplace else t.neg(),
    }
    for name, function in functions.items():
        for part in (slice(None), slice(1, None), slice(None, None, 2)):
            results = []
            for inplace in (False, True):
                x = weft.tensor(some(size), requires_grad=True)
                y = (x * 1)[part]
                version = y._version
                z = function(y, inplace)
                assert (z is y) == inplace and y._version == version + inplace
                (z * weft.tensor(some(size, seed=2))[part]).sum().backward()
                results.append((z.detach().numpy().copy(), x.grad.numpy()))
            for a, b in zip(*results, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=name)


# --- numbers of every kind to every entry point ---------------------------------------------


class Broken:
    """A number whose conversion fails, and counts how often it was tried."""

    asked = 0

    def __float__(self) -> float:
        Broken.asked += 1
        raise ZeroDivisionError("no number")

    __index__ = __int__ = __float__  # type: ignore[assignment]


HOSTILE = {
    "huge": (10**400, OverflowError),
    "broken": (Broken(), ZeroDivisionError),
    "text": ("1", TypeError),
    "nothing": (None, TypeError),
    "complex": (1j, TypeError),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("place", [2, 3, 4, 5])
def test_numbers_that_fail_are_errors_of_their_own(name: str, place: int) -> None:
    value, error = HOSTILE[name]
    arguments = [some(7), some(7), 1.0, 1.0, 7, 1]
    arguments[place] = value
    with pytest.raises(error):
        scaled.get("f32")(*arguments)


def test_after_a_failure_no_code_of_the_users_runs() -> None:
    Broken.asked = 0
    for first in (10**400, "1", Broken()):
        Broken.asked = 0
        with pytest.raises((OverflowError, TypeError, ZeroDivisionError)):
            scaled.get("f32")(some(7), some(7), first, Broken(), Broken(), 1)
        assert Broken.asked == isinstance(first, Broken)


def compiled_functions() -> list[tuple[str, Any, Any, list[str]]]:
    """Every entry point that everyday calls compile: name, key, function, kinds of parameters."""
    selection.start()
    f, x, image = weft.nn.functional, weft.randn(64, 64), weft.randn(4, 8, 16, 16)
    row, rows = weft.ones(64), weft.arange(64) % 5
    for a in (x, x[:4], weft.randn(300, 64)):
        for leaf in (a.clone().requires_grad_(), a):
            for y in (
                f.layer_norm(leaf, (64,), row, row), f.layer_norm(leaf, (64,)),
                f.rms_norm(leaf, (64,), row), leaf.softmax(-1), f.log_softmax(leaf, -1),
                leaf.sum(-1), leaf.mean(0), leaf.max(-1).values, leaf.var(-1), leaf.tril(),
                f.cross_entropy(leaf, rows[: len(a)] if len(a) <= 64 else rows[0].expand(len(a))),
                f.smooth_l1_loss(leaf, leaf * 2, beta=0.5), f.huber_loss(leaf, leaf * 2),
            ):  # fmt: skip
                if y.requires_grad:
                    y.sum().backward()
    y = f.batch_norm(image.requires_grad_(), weft.zeros(8), weft.ones(8), training=True)
    f.avg_pool2d(f.max_pool2d(y, 2), 2).sum().backward()
    f.scaled_dot_product_attention(*[weft.randn(8, 64, 32)] * 3)
    found = []
    # By type(), since isinstance asks objects of other libraries, some of which then warn.
    for kernel in [k for k in gc.get_objects() if issubclass(type(k), jit.Kernel)]:
        for key, function in kernel.compiled.items():
            consts = dict(k for k in key if isinstance(k, tuple) and len(k) == 2)
            kinds = [kind for name, kind in kernel.parameters if name not in consts]
            found.append((kernel.name, key, function, kinds))
    return found


def test_every_entry_point_refuses_hostile_numbers() -> None:
    entries, places = compiled_functions(), 0
    is_whole = lambda key: bool(key) and isinstance(key[0], EntrySpec)
    wholes = [e for e in entries if is_whole(e[1])]
    for _, key, function, kinds in entries:
        if is_whole(key):
            continue
        kinds = [*kinds, "i64", "i64"]
        for place, kind in enumerate(kinds):
            arguments: list[object] = [None if k.endswith("*") else 0 for k in kinds]
            if kind.endswith("*"):
                continue
            for value, error in (HOSTILE[k] for k in ("huge", "broken", "text")):
                arguments[place] = value
                with pytest.raises(error):  # SystemError would be neither of these
                    function(*arguments)
                places += 1
    assert places > 300  # else the entry points were not found
    numbers = [e for e in wholes if "number" in e[1][0].takes]
    sized = [e for e in numbers if any("last" in text for text in e[1][0].gives)]
    numbers = [e for e in numbers if e not in sized]
    assert numbers
    for _, _, function, _ in sized:  # whose number is the size of a result
        x = np.arange(32, dtype=F32).reshape(4, 8)
        assert function(x, 8, 0)[1].shape == (4, 8) and function(x, 0, 0)[1].shape == (4, 0)
        assert function(x, 9, 0) is None and function(np.ones((2, 200), F32), 3, 0) is None
        for value, error in ((2**70, OverflowError), (-1, ValueError), (1.5, TypeError)):
            with pytest.raises(error):
                function(x, value, 0)
    shapes = {"row": (8,), "kept": (4, 1), "": (4, 8), "like": (4, 8), "lines": (4, 8)}
    dtypes = {"f32": F32, "f64": np.float64, "b1": np.bool_, "i64": np.int64}
    for _, key, function, _ in numbers:
        given: list[object] = []
        for text in key[0].takes:
            kind, *shape = text.split()
            if kind == "number":
                given.append(1e-5)
            else:
                given.append(np.ones(shapes[shape[0] if shape else ""], dtypes[kind]))
        at = key[0].takes.index("number")
        for value in (float("nan"), float("inf"), 7, 2**70):
            assert function(*given[:at], value, *given[at + 1 :]) is not None
        with pytest.raises(OverflowError):
            function(*given[:at], 10**400, *given[at + 1 :])
        for value in (True, Fraction(1, 2), np.float64(2), Broken(), None, "1", 1j):
            assert function(*given[:at], value, *given[at + 1 :]) is None  # not for this


@pytest.mark.parametrize("rows", [4, 300])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "batch_norm", "leaky_relu"])
def test_a_number_that_no_float_holds(name: str, rows: int) -> None:
    f, x, row = weft.nn.functional, weft.ones(rows, 32), weft.ones(32)
    calls = {
        "layer_norm": lambda: f.layer_norm(x, (32,), row, row, eps=10**400),
        "rms_norm": lambda: f.rms_norm(x, (32,), row, eps=10**400),
        "batch_norm": lambda: f.batch_norm(x, None, None, training=True, eps=10**400),
        "leaky_relu": lambda: f.leaky_relu(x, 10**400),
    }
    with pytest.raises(OverflowError, match="int too large to convert to float"):
        calls[name]()


def test_an_index_without_elements_is_declined() -> None:
    """Kernels divide by the number of indices."""
    table, none = weft.ones(4, 4), weft.zeros(0, dtype=weft.int64)
    assert weft.nn.functional.embedding(none, table).shape == (0, 4)
    assert table.gather(1, none.reshape(4, 0)).shape == (4, 0)
    weft.nn.functional.embedding(none, table.requires_grad_()).sum().backward()
    assert table.grad is not None and not table.grad.any()
