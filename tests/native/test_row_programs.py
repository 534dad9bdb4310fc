"""Row programs: every schedule computes what the function says, on random programs too."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

from loops_common import over_threads
from weft.native.codegen import jit
from weft.native.codegen.row_programs import (
    CHUNK,
    FEW,
    SHORT,
    Along,
    Each,
    Length,
    Number,
    RowProgram,
    Shared,
    across,
    exp_flush,
    first_largest,
    first_least,
    kept,
    largest,
    least,
    root,
    row_program,
    sqrt,
    total,
)

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
SHAPES = [(1, 1, 1), (3, 7, 1), (70, 10, 1), (130, SHORT, 1), (5, 1500, 1), (2, 5, 3)]
SHAPES += [(1, 300, 5), (2, 129, 300), (40, 1, 1)]
TOLERANCE = {"f32": 2e-5, "f64": 1e-12}
DTYPES = {"f32": np.float32, "f64": np.float64}


@row_program
def everything(
    x: Along, y: Along, weight: Shared, shift: Each, scale: Number, n: Length
) -> tuple[Any, ...]:
    top = largest(x)
    e = kept(exp_flush(x - top) * weight)
    mean = total(e * y) / n
    spread = sqrt(total((e - mean) * (e - mean)) / n + 1.0)
    return (e - mean) * scale / spread + shift, mean, y * spread


def by_numpy(x: Any, y: Any, weight: Any, shift: Any, scale: float) -> tuple[np.ndarray, ...]:
    n = x.shape[1]
    e = np.exp(x - x.max(1, keepdims=True)) * weight.reshape(1, -1, 1)
    mean = (e * y).sum(1, keepdims=True) / n
    spread = np.sqrt(((e - mean) ** 2).sum(1, keepdims=True) / n + 1.0)
    return (e - mean) * scale / spread + shift, mean, y * spread


def inputs(shape: tuple[int, int, int], d: str) -> list[Any]:
    outer, n, k = shape
    draw = np.random.default_rng(sum(shape)).standard_normal
    sizes = [shape, shape, (n,), (outer, 1, k)]
    return [draw(size).astype(DTYPES[d]) for size in sizes]


@pytest.mark.parametrize("d", ["f32", "f64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_schedules(shape: tuple[int, int, int], d: str) -> None:
    x, y, weight, shift = inputs(shape, d)
    wanted = by_numpy(*(a.astype(np.float64) for a in (x, y, weight, shift)), 0.7)
    outer, n, k = shape
    made = [np.full_like(x, np.nan), np.full_like(shift, np.nan), np.full_like(x, np.nan)]
    everything.whole.runner(d, outer, n, k)(x, y, weight, shift, *made, 0.7)
    for got, exact in zip(made, wanted, strict=True):
        np.testing.assert_allclose(got, exact, rtol=TOLERANCE[d], atol=TOLERANCE[d])


def test_shapes_choose_the_schedule() -> None:
    variant = RowProgram(everything.function, 16).whole
    shapes = {"rows": (3, 7, 1), "short": (70, 10, 1), "columns": (2, 5, 3)}
    for k, (name, shape) in enumerate(shapes.items()):
        variant.runner("f32", *shape)
        used = [n for n in shapes if getattr(variant, n).compiled]
        assert len(used) == k + 1 and name in used


def test_what_is_not_wanted_is_not_computed() -> None:
    whole = ast.unparse(everything.whole.rows.function.tree)
    part = ast.unparse(everything.variant(frozenset(), (False, True, False)).rows.function.tree)
    assert "sqrt" in whole and "sqrt" not in part
    assert part.count("for ") < whole.count("for ")


@row_program
def sums(x: Along, g: Along) -> tuple[Any, ...]:
    return x * total(g), across(x * g), across(g)


@pytest.mark.parametrize("size", [4, 100])
def test_sums_across_rows(size: int) -> None:
    x, g = (np.random.default_rng(k).standard_normal((9, 1100)) for k in range(2))
    blocks = -(-9 // size)
    out, first, second = np.empty_like(x), np.empty((blocks, 1100)), np.empty((blocks, 1100))
    sums.whole.rows.get("f64")(x, g, out, first, second, 1100, 9, size, blocks, 1)
    np.testing.assert_allclose(out, x * g.sum(1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(first.sum(0), (x * g).sum(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(second.sum(0), g.sum(0), rtol=1e-12, atol=1e-12)


@row_program
def in_numpys_order(x: Along, eps: Number, n: Length) -> tuple[Any, ...]:
    mean = total(x) / n
    gap = x - mean
    rstd = 1.0 / sqrt(total(gap * gap) / n + eps)
    return gap * rstd, mean


@pytest.mark.parametrize("n", [1, 3, 8, 9, 31, 100, 128])
def test_reference_rows_have_numpys_bits(n: int) -> None:
    x = (np.random.default_rng(n).standard_normal((40, n)) * 50 + 3).astype(np.float32)
    out, means = np.empty_like(x), np.empty((40, 1), np.float32)
    in_numpys_order.whole.reference.get("f32")(x, out, means, 1e-3, n, 40, 1)
    mean = np.add.reduce(x, 1, keepdims=True) / np.float32(n)
    gap = x - mean
    squares = np.add.reduce(gap * gap, 1, keepdims=True) / np.float32(n) + np.float32(1e-3)
    assert means.tobytes() == mean.tobytes()
    assert out.tobytes() == (gap * (np.float32(1.0) / np.sqrt(squares))).tobytes()


def random_program(seed: int) -> tuple[RowProgram, Any]:
    """A program of random stages, and the same as a function of arrays."""
    rng = np.random.default_rng(seed)
    choices = rng.integers(0, 4, size=(3, 3))

    def body(x: Any, y: Any, reduce_sum: Any, reduce_max: Any, keep: Any) -> Any:
        rows, numbers = [x, y], []
        for step, (which, how, then) in enumerate(choices):
            a, b = rows[int(which) % len(rows)], rows[-1 - step % 2]
            made = (a + b, a * b, a - b, abs(a) + 1.0)[int(how)]
            made = keep(made) if step else made
            number = reduce_max(made) if then % 2 else reduce_sum(made) * 0.01
            numbers.append(number)
            rows.append(made * number if then < 2 else made - number)
        return rows[-1] * 0.5 + rows[-2], numbers[-1] + numbers[0]

    def program(x: Along, y: Along) -> Any:
        return body(x, y, total, largest, kept)

    made = RowProgram(program, 16)
    made.name = f"random_{seed}"

    def reference(x: np.ndarray, y: np.ndarray) -> Any:
        down = lambda f: lambda v: f(v, 1, keepdims=True)
        return body(x, y, down(np.sum), down(np.max), lambda v: v)

    return made, reference


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    program, reference = random_program(seed)
    for outer, n, k in [(3, 2000, 1), (100, 9, 1), (2, 140, 40)]:
        x, y = (np.random.default_rng(seed + i).uniform(0.2, 1.0, (outer, n, k)) for i in range(2))
        wanted = reference(x, y)
        made = np.empty_like(x), np.empty((outer, 1, k))
        program.whole.runner("f64", outer, n, k)(x, y, *made)
        for got, exact in zip(made, wanted, strict=True):
            np.testing.assert_allclose(got, exact, rtol=1e-9, atol=1e-9)


@row_program
def shares(x: Along) -> Any:
    e = kept(exp_flush(x - largest(x)))
    return e * (1.0 / total(e))


@pytest.mark.parametrize("shape", SHAPES)
def test_elementwise_neighbours_are_spliced_in(shape: tuple[int, int, int]) -> None:
    def scores(a: Along, mask: Along, scale: Number) -> Any:
        return a * scale + mask

    def dropped(y: Along, keep: Along) -> Any:
        return y * keep

    program = shares.spliced("masked_shares", {"x": scores}, dropped)
    outer, n, k = shape
    draw = np.random.default_rng(3).standard_normal
    a, mask, keep = draw(shape), draw(shape), (draw(shape) > 0) * 2.0
    out = np.empty(shape)
    program.whole.runner("f64", outer, n, k)(a, mask, keep, out, 0.3)
    e = np.exp(a * 0.3 + mask)
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True) * keep, rtol=1e-12, atol=1e-15)
    assert len(program.whole.traced.stages) == len(shares.whole.traced.stages)


@row_program
def one_pass(x: Along, shift: Each, y: Along, by: Number, n: Length) -> tuple[Any, ...]:
    gap = x * y - shift
    return root(total(gap * gap)) / by, largest(gap), least(x), total(y) / n - shift


# Where each is shared between threads, in parts, or written for columns of its own kind.
ONE_PASS = {
    "parts": [(1, 2 * CHUNK, 1), (3, 2 * CHUNK + 5, 1)],
    "column_parts": [(1, 1500, 3), (1, 1024, 63), (1, 70_001, 2), (2, 1200, 100), (1, 1025, 1100)],
    "few_lines": [(4, 3, 1500), (1, FEW, 3000), (2, 1, 9000)],
    "brief_columns": [(4, 9, 1500), (2, 256, 300), (1, FEW, 2), (2, 1, 40)],
    "columns": [(2, 257, 300), (30, 600, 7)],
    "short": [(70, 10, 1)],
    "rows": [(20, 100, 1)],
}


@pytest.mark.parametrize("d", ["f32", "f64"])
@pytest.mark.parametrize(("name", "shape"), [(n, s) for n, all in ONE_PASS.items() for s in all])
def test_programs_of_one_pass(name: str, shape: tuple[int, int, int], d: str) -> None:
    outer, n, k = shape
    x, shift, y = (
        np.random.default_rng(i).standard_normal((outer, size, k)).astype(DTYPES[d])
        for i, size in enumerate((n, 1, n))
    )
    variant = RowProgram(one_pass.function).whole

    def call() -> tuple[np.ndarray, ...]:
        made = tuple(np.full_like(shift, np.nan) for _ in range(4))
        variant.runner(d, *shape)(x, shift, y, *made, 3.0)
        return made

    got = over_threads(call)
    assert getattr(variant, name).compiled
    a, b, c = (v.astype(np.float64) for v in (x, y, shift))
    gap = a * b - c
    wanted = np.sqrt((gap * gap).sum(1, keepdims=True)) / 3.0, gap.max(1, keepdims=True)
    wanted += a.min(1, keepdims=True), b.mean(1, keepdims=True) - c
    for found, exact in zip(got, wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=TOLERANCE[d], atol=TOLERANCE[d])


@pytest.mark.parametrize("name", ONE_PASS)
def test_special_values_reach_every_schedule(name: str) -> None:
    for outer, n, k in ONE_PASS[name]:
        x, y = np.ones((outer, n, k)), np.ones((outer, n, k))
        shift = np.zeros((outer, 1, k))
        for place in {0, n // 2, n - 1}:
            for value in (np.nan, np.inf, -np.inf):
                x[0, place, k - 1] = value
                made = [np.empty_like(shift) for _ in range(4)]
                one_pass.whole.runner("f64", outer, n, k)(x, shift, y, *made, 1.0)
                with np.errstate(all="ignore"):
                    wanted = [np.sqrt((x * x).sum(1, keepdims=True)), x.max(1, keepdims=True)]
                wanted.append(x.min(1, keepdims=True))
                for found, exact in zip(made, wanted, strict=False):
                    np.testing.assert_allclose(found, exact, rtol=1e-12)
                x[0, place, k - 1] = 1.0


@row_program
def with_places(x: Along, shift: Each, y: Along) -> tuple[Any, ...]:
    return *first_largest(x + shift), *first_least(y), total(x * y), first_largest(x - x)[1]


def numpys_places(x: Any, shift: Any, y: Any) -> tuple[np.ndarray, ...]:
    moved = x + shift
    top, low = moved.argmax(1, keepdims=True), y.argmin(1, keepdims=True)
    taken = np.take_along_axis(moved, top, 1), top, np.take_along_axis(y, low, 1), low
    return *taken, (x * y).sum(1, keepdims=True), (x - x).argmax(1, keepdims=True)


def columns_with_places(name: str) -> str:
    return "columns" if name == "brief_columns" else name


@pytest.mark.parametrize("d", ["f32", "f64"])
@pytest.mark.parametrize(("name", "shape"), [(n, s) for n, all in ONE_PASS.items() for s in all])
def test_places_of_extremes(name: str, shape: tuple[int, int, int], d: str) -> None:
    """The first of equal elements, or the first NaN, wherever they are, as in NumPy."""
    outer, n, k = shape
    rng, variant = np.random.default_rng(n), RowProgram(with_places.function).whole
    for kind in ("ties", "all equal", "infinite", "nan", "random"):
        x, y = (rng.integers(-3, 3, shape).astype(DTYPES[d]) for _ in range(2))
        shift = rng.integers(0, 2, (outer, 1, k)).astype(DTYPES[d])
        if kind == "all equal":
            x[...], y[...] = 1.0, -0.0
        elif kind == "infinite":
            x[...], y[...] = -np.inf, np.inf
        elif kind == "nan":
            x[rng.random(shape) < 2 / n] = np.nan
            y[rng.random(shape) < 1 / n] = np.nan
        elif kind == "random":
            x, y = (rng.standard_normal(shape).astype(DTYPES[d]) for _ in range(2))

        def call(x: Any = x, shift: Any = shift, y: Any = y) -> tuple[np.ndarray, ...]:
            places = lambda: np.full(shift.shape, -1, np.int64)
            empty = lambda: np.full_like(shift, 7.5)
            made = empty(), places(), empty(), places(), empty(), places()
            variant.runner(d, *shape)(x, shift, y, *made)
            return made

        with np.errstate(all="ignore"):
            wanted = numpys_places(x, shift, y)
        for at, (found, exact) in enumerate(zip(over_threads(call), wanted, strict=True)):
            if at == 4:
                tolerance = TOLERANCE[d] * max(1.0, n**0.5)
                np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance)
            else:
                np.testing.assert_array_equal(found, exact, f"{kind}, result {at}")
    assert getattr(variant, columns_with_places(name)).compiled


@row_program
def one_map(g: Each, x: Along, by: Number) -> Any:
    return g * x * by


@pytest.mark.parametrize("shape", [(1, 2 * CHUNK + 3, 1), (3, 100_001, 1), (2, 9, 1)])
def test_elements_of_long_rows(shape: tuple[int, int, int]) -> None:
    x, g = np.random.default_rng(0).standard_normal(shape), np.arange(1.0, 1.0 + shape[0])
    run = one_map.whole.runner("f64", *shape)

    def call() -> np.ndarray:
        out = np.full_like(x, np.nan)
        run(g, x, out, 0.5)
        return out

    np.testing.assert_array_equal(over_threads(call), g.reshape(-1, 1, 1) * x * 0.5)
