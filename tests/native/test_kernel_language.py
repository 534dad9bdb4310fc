"""What inlined functions may take and give: constants, other functions, several values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.native.codegen import interpret, jit, recipes
from weft.native.codegen.compiler import Assembly, KernelError, KernelFunction, build

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))


TEXTS = [
    "def double_of(v):\n    return v + v\n",
    "def square_of(v):\n    return v * v\n",
    """def mapped(x: Ptr[T], y: Ptr[T], change: constexpr, rounds: constexpr, count: i64):
    kept = array(T, rounds)  # only a constant is a size
    for i in range(count):
        for k in range(rounds):
            kept[k] = change(x[i]) if k == 0 else change(kept[k - 1])
        y[i] = kept[rounds - 1]
""",
    "def ends(n: i64, step: i64, wide: T):\n    return n + step, n - step, wide * 0.5\n",
]
FUNCTIONS: dict[str, Any] = {}
for text in TEXTS:
    function = KernelFunction(text, FUNCTIONS)
    FUNCTIONS[function.name] = function
apply_all = jit.Kernel(
    KernelFunction(
        """def apply_all(x: Ptr[T], y: Ptr[T], twice: i64, n: i64, lo: i64, hi: i64):
    above, below, half = ends(n, 2, T(n))
    for u in range(lo, hi):
        if twice:
            mapped(x + u * n, y + u * n, square_of, 2, n)
        else:
            mapped(x + u * n, y + u * n, double_of, 3, n)
        y[u * n] = T(above - below) + half
""",
        FUNCTIONS,
    )
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("twice", [False, True])
def test_functions_and_constants_as_arguments(dtype: Any, twice: bool) -> None:
    x = np.arange(10, dtype=dtype).reshape(2, 5) - 3
    wanted = x**4 if twice else x * 8
    wanted[:, 0] = 4 + 2.5
    kind = jit.KINDS[x.dtype]
    for run in (
        apply_all.get(kind, twice=twice),
        interpret.runner(apply_all.function, {"T": kind}, {"twice": twice}),
    ):
        y = np.zeros_like(x)
        run(x, y, 5, 2, 1)
        assert np.array_equal(y, wanted)


def test_a_constant_is_no_branch() -> None:
    choice = "def choice(v: T, way: constexpr):\n    if way:\n        v = v * 3.0\n    return v\n"
    line = "def line(x: Ptr[T], n: i64, lo: i64, hi: i64):\n    x[0] = choice(x[0], {})\n"
    code = lambda way: build(
        KernelFunction(line.format(way), {"choice": KernelFunction(choice, {})}),
        {"T": "f32"}, {}, False,
    )  # fmt: skip
    assert "fmul" in code(1) and "fmul" not in code(0)
    assert "br i1" not in code(0) + code(1)
    assert "br i1" in code("n")  # known at run time alone


def test_a_constant_keeps_its_value() -> None:
    count = "def count(n: constexpr):\n    n = n + 1\n    return n\n"
    line = "def line(x: Ptr[T], lo: i64, hi: i64):\n    x[0] = T(count(3))\n"
    function = KernelFunction(line, {"count": KernelFunction(count, {})})
    with pytest.raises(KernelError, match="n is a constant"):
        build(function, {"T": "f32"}, {}, False)


def test_a_variable_hides_a_function_of_its_name() -> None:
    line = (
        "def line(x: Ptr[T], lo: i64, hi: i64):\n    square_of = x[0]\n    x[0] = same(square_of)\n"
    )
    same = KernelFunction("def same(v: constexpr):\n    return v\n", {})
    function = KernelFunction(line, {"same": same, **FUNCTIONS})
    assert "load float" in build(function, {"T": "f32"}, {}, False)


def test_assemblies_go_by_the_type_of_their_first_array() -> None:
    text = "define private void @{}(ptr %x) {{\n  ret void\n}}"
    wide = Assembly("of64", ("ptr",), lambda: text.format("of64"))
    part = Assembly("of32", ("ptr",), lambda: text.format("of32"), wide)
    line = "def line(x: Ptr[T], lo: i64, hi: i64):\n    part(x)\n"
    function = KernelFunction(line, {"part": part})
    assert "call void @of32(" in build(function, {"T": "f32"}, {}, False)
    assert "call void @of64(" in build(function, {"T": "f64"}, {}, False)


def test_recipes_know_functions_that_are_arguments() -> None:
    def recipe(half: str) -> bytes | None:
        known = {
            "half": KernelFunction(f"def half(v: T):\n    return v * {half}\n", {}),
            "by": KernelFunction("def by(f: constexpr, v: T):\n    return f(v)\n", {}),
        }
        line = "def line(x: Ptr[T], lo: i64, hi: i64):\n    x[0] = by(half, x[0])\n"
        return recipes.recipe(KernelFunction(line, known), {"T": "f32"})

    assert recipe("0.5") == recipe("0.5") != recipe("0.25")


LOOP = """def line(x: Ptr[T], n: i64, lo: i64, hi: i64):
    total = 0
    for k in range(n):
        {}
        total += min(k, 3) + max(k, ~k)
    x[0] = T(total)
"""


@pytest.mark.parametrize("change", ["pass", "k += 1"])
def test_loops_of_one_round_have_a_constant_counter(change: str) -> None:
    function = KernelFunction(LOOP.format(change), {})
    assert ("br i1" in build(function, {"T": "f32"}, {"n": 1}, False)) == (change != "pass")
    for n in range(3):
        wanted = sum(
            min(k, 3) + max(k, ~k) for k in (range(n) if change == "pass" else range(1, n + 1))
        )
        for run in (
            jit.Kernel(function).get("f32", n=n),
            interpret.runner(function, {"T": "f32"}, {"n": n}),
        ):
            x = np.full(1, -9, np.float32)
            run(x, 1, 1)
            assert x[0] == wanted


PARTS = """def line(x: Ptr[T], wide: i64, lo: i64, hi: i64):
    for part in (0, 2, 5) if wide else (1,):
        if part == 2:
            x[part] = 0.5
        else:
            x[part] = T(part)
"""


def test_a_loop_over_constants_is_unrolled() -> None:
    function = KernelFunction(PARTS, {})
    for wide, wanted in ((0, [9, 1, 9, 9, 9, 9]), (1, [0, 9, 0.5, 9, 9, 5])):
        assert "br i1" not in build(function, {"T": "f32"}, {"wide": wide}, False)
        for run in (
            jit.Kernel(function).get("f32", wide=wide),
            interpret.runner(function, {"T": "f32"}, {"wide": wide}),
        ):
            x = np.full(6, 9, np.float32)
            run(x, 1, 1)
            assert x.tolist() == wanted
    with pytest.raises(KernelError, match="constants"):
        build(KernelFunction(PARTS.replace("2, 5", "2, lo"), {}), {"T": "f32"}, {"wide": 1}, False)
