"""What kernels are made from: whoever knows that need not write their code."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.native import threads
from weft.native.codegen import cache, compiler, jit, recipes
from weft.native.codegen.compiler import Assembly, KernelFunction, build

pytestmark = pytest.mark.skipif(jit.why_not() is not None or jit.INTERPRETED, reason="no kernels")

LINE = "def line(x: Ptr[T], lo: i64, hi: i64):\n    for i in range(lo, hi):\n        {}\n"
HALF = "def half(v: T):\n    return v * {}\n"


def made(body: str = "x[i] = half(x[i]) + STEP", **scope: object) -> bytes:
    known = {"half": KernelFunction(HALF.format("0.5"), {}), "STEP": 2, "unused": 7, **scope}
    found = recipes.recipe(KernelFunction(LINE.format(body), known), {"T": "f32"})
    assert found is not None
    return found


def test_it_has_all_that_is_named() -> None:
    assert made() == made() == made(unused=8)
    others = [
        made("x[i] = half(x[i]) - STEP"), made(STEP=3), made(STEP=2.0),
        made(half=KernelFunction(HALF.format("0.25"), {})),
        made(half=KernelFunction(HALF.format("0.5"), {}, reassociate=True)),
    ]  # fmt: skip
    assert len({made(), *others}) == 6


def test_types_and_fixed_numbers_count() -> None:
    function = KernelFunction(LINE.format("x[i] = 1"), {})
    given = [({"T": "f32"}, {}), ({"T": "f64"}, {}), ({"T": "f32"}, {"n": 1}), ({}, {})]
    assert len({recipes.recipe(function, *each) for each in given}) == 4


def part(width: int) -> Assembly:
    return Assembly("part", ("ptr",), lambda: f"; {width}")


def test_hand_written_parts_are_told_by_what_they_enclose() -> None:
    body = "part(x)"
    recipe = lambda width: recipes.recipe(KernelFunction(LINE.format(body), {"part": part(width)}))
    assert recipe(4) is None  # written outside of the package, where nothing says what it is
    inside = recipes.PACKAGE
    try:
        recipes.PACKAGE = Path(__file__).parent
        assert recipe(4) == recipe(4) != recipe(8)
    finally:
        recipes.PACKAGE = inside


def test_names_that_lead_in_a_circle() -> None:
    scope: dict[str, object] = {}
    scope["half"] = function = KernelFunction(HALF.format("half(v)"), scope)
    assert recipes.recipe(function) is not None


class Read(dict):
    """Names that notes which of them are read."""

    def __init__(self, known: dict) -> None:
        super().__init__(known)
        self.names: set[str] = set()

    def get(self, name: str, *other: object) -> object:
        self.names.add(name)
        return super().get(name, *other)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


def run_some() -> None:
    """Things that need kernels of many sorts."""
    weft.manual_seed(0)
    x = weft.randn(64, 3, 32, 32, requires_grad=True)
    net = weft.nn.Sequential(weft.nn.Conv2d(3, 8, 3), weft.nn.ReLU(), weft.nn.MaxPool2d(2))
    y = net(x).flatten(1)
    h, _ = weft.nn.LSTM(225, 64)(y.view(64, 8, 225))
    weft.nn.functional.layer_norm(h, (64,)).softmax(-1).cumsum(0).sum().backward()
    (weft.randn(300, 300) @ weft.randn(300, 200)).sort(1).values.sum()


def is_ours(kernel: jit.Kernel) -> bool:
    """Whether a kernel stands in the package: those of other tests have no recipe."""
    origin = kernel.function.origin
    return origin is None or origin.__code__.co_filename.startswith(str(recipes.PACKAGE))


def test_the_code_is_the_one_that_the_cache_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some kernels of this process, with all the names that writing them reads."""
    run_some()
    gc.collect()
    kernels = [k for k in gc.get_objects() if type(k) is jit.Kernel and k.symbols and is_ours(k)]
    functions = [f for f in gc.get_objects() if type(f) is KernelFunction]
    assert len(kernels) > 12
    kernels = random.sample(kernels, min(len(kernels), 60))
    host, parallel = jit.engine(), threads.available()
    told: dict[int, set[str]] = {}
    names_of = recipes._Recipe.names

    def noted(self: object, names: list[str], scope: dict) -> None:
        told.setdefault(id(scope), set()).update(names)
        names_of(self, names, scope)  # type: ignore[arg-type]

    monkeypatch.setattr(recipes._Recipe, "names", noted)
    before = [f.scope for f in functions]
    scopes = {id(s): Read(s) for s in before}
    try:
        for function in functions:
            function.scope = scopes[id(function.scope)]
        for kernel in kernels:
            for choice, (_, symbol) in kernel.symbols.items():
                bound, consts = dict(zip(("T", "U"), choice[0], strict=False)), dict(choice[1:])
                host_is = host.cpu, host.features
                key = recipes.recipe(kernel.function, bound, consts, parallel, *host_is)
                text = build(kernel.function, bound, consts, parallel)
                assert key is not None, kernel.name
                known = cache.read(f"{kernel.name}.text", key)
                assert known is None or known.decode() == recipes.digest(text), kernel.name
                assert (
                    jit._reported_as(kernel.name, recipes.digest(text))
                    == kernel._symbol(choice[0], consts)[0]
                )
                kinds = compiler.argument_kinds(kernel.function, bound, consts)
                assert symbol.kinds == tuple(kinds.values())
        for scope in scopes.values():
            known_names = scope.names & scope.keys()
            assert known_names <= told.get(id(scope), set())
    finally:
        for function, scope in zip(functions, before, strict=True):
            function.scope = scope


def test_nothing_is_kept_once_a_source_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "cache"
    kept.mkdir(mode=0o700)
    monkeypatch.setattr(cache, "place", lambda: cache.CacheFolder(kept))
    key = made()
    with monkeypatch.context() as edited:
        edited.setattr(recipes, "_sources", lambda: "others")
        assert recipes.written("line", key, lambda: "code")[0] == recipes.digest("code")
    assert not list(kept.iterdir())
    recipes.written("line", key, lambda: "code")
    digest, text = recipes.written("line", key, lambda: "again")
    assert digest == recipes.digest("code") and text() == "again"
    monkeypatch.setattr(recipes, "SOURCES", "others")
    assert made() != key


PROGRAM = """
from weft.native.codegen import jit
build, written = jit.build, []
jit.build = lambda function, *given, **more: (
    written.append(function.name), build(function, *given, **more))[1]
import hashlib, weft
weft.manual_seed(0)
x = weft.randn(200, 300, requires_grad=True)
y = (x @ weft.randn(300, 300)).softmax(1).cumsum(0)
y.sum().backward()
print(hashlib.sha256(y.detach().numpy().tobytes() + x.grad.numpy().tobytes()).hexdigest())
print(*written)
"""


def test_a_second_process_writes_no_kernel(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    environment = {**os.environ, "WEFT_CACHE": str(tmp_path)}
    lines = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True,
            check=True,
        ).stdout.split("\n")
        for _ in range(2)
    ]  # fmt: skip
    assert lines[0][0] == lines[1][0]
    assert lines[0][1]
    assert not lines[1][1]
