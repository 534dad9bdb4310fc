"""What a new size costs a compiled function that knows others: its first call, in CPU time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.compile_generation import CONTEXT, HEADS, WIDTH
from benchmarks.workloads import WORKLOADS, data, labels

KNOWN = (16, 24)  # sizes that are learned before any is timed
NEW = (12, 20, 28, 8, 36)
REPEATS = 5

Case = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]


def print_sizes(threads: int) -> None:
    """Print for each case the first, second and later calls at sizes that are new."""
    import weft

    weft.set_num_threads(threads)
    planned = _counted(weft)
    print("CPU time in ms of calls at a new size, the median of sizes " + ", ".join(map(str, NEW)))
    print(
        f"{'case':<24}{'first':>9}{'second':>9}{'later':>9}{'planning':>10}{'eager':>8}{'LLVM':>6}"
    )
    for name, (function, batch) in cases(weft).items():
        compiled = weft.compile(function)
        for n in KNOWN:
            for _ in range(REPEATS):
                compiled(*batch(n))
        rows = []
        for n in NEW:
            args = batch(n)
            before = compiled.learned.diverged, planned["compiled"]
            planned["seconds"] = 0.0
            first, second = _seconds(compiled, args), _seconds(compiled, args)
            later = min(_seconds(compiled, args) for _ in range(REPEATS))
            learned, llvm = compiled.learned.diverged - before[0], planned["compiled"] - before[1]
            rows.append((first, second, later, planned["seconds"], learned, llvm))
        *times, learned, llvm = zip(*rows, strict=True)
        shown = "".join(f"{1e3 * statistics.median(t):>9.1f}" for t in times)
        print(f"{name:<24}{shown} {sum(learned):>8}{sum(llvm):>6}")


def _seconds(function: Callable, args: tuple[Any, ...]) -> float:
    start = time.process_time()
    function(*args)
    return time.process_time() - start


def _counted(lib: Any) -> dict[str, float]:
    """What planning takes, and how often LLVM compiles, from now on."""
    from weft.compiler.following import Region
    from weft.native.codegen import jit

    found: dict[str, float] = {"seconds": 0.0, "compiled": 0}
    plan, engine = Region.plan_for, type(jit.engine())
    compile = engine.compile

    def timed(*args: Any) -> Any:
        start = time.process_time()
        try:
            return plan(*args)
        finally:
            found["seconds"] += time.process_time() - start

    def counted(*args: Any) -> Any:
        found["compiled"] += 1
        return compile(*args)

    Region.plan_for, engine.compile = timed, counted  # type: ignore[method-assign]
    return found


def cases(lib: Any) -> dict[str, Case]:
    """Functions, with what makes their arguments of a size."""
    found: dict[str, Case] = {}
    f, vocabulary = lib.nn.functional, 65

    def classes(model: Any, x: Any, y: Any) -> Any:
        return f.cross_entropy(model(x), y)

    def tokens(model: Any, x: Any, y: Any) -> Any:
        return f.cross_entropy(model(x).view(-1, vocabulary), y.reshape(-1))

    def text(batch: int, length: int) -> tuple[Any, Any]:
        whole = labels(lib, vocabulary, batch, length + 1)
        return whole[:, :-1], whole[:, 1:]

    for name, model, loss, batch in (
        ("mlp", "mlp", classes, lambda n: (data(lib, n, 784), labels(lib, 10, n))),
        ("cnn", "cnn", classes, lambda n: (data(lib, n, 3, 32, 32), labels(lib, 10, n))),
        ("lstm", "lstm", classes, lambda n: (data(lib, 64, n, 256), labels(lib, 10, n))),
        ("gpt", "gpt", tokens, lambda n: text(n // 4, 128)),
        ("gpt, length", "gpt", tokens, lambda n: text(4, 3 * n)),
    ):
        found[name] = training(lib, WORKLOADS[model](lib).modules[0], loss), batch
    found["growing cache, slices"] = slicing(lib), lambda n: (n,)
    found["growing cache, cat"] = (
        appending(lib),
        lambda n: (data(lib, 1, HEADS, n, WIDTH // HEADS),),
    )
    return found


def training(lib: Any, model: Any, loss_of: Callable) -> Callable:
    """A training step of a batch."""
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def slicing(lib: Any) -> Callable:
    """Attention of one token to the first of those that are kept."""
    kept = data(lib, 1, HEADS, CONTEXT, WIDTH // HEADS)
    query = data(lib, 1, HEADS, 1, WIDTH // HEADS, seed=1)

    def attend(n: int) -> Any:
        return lib.nn.functional.scaled_dot_product_attention(query, kept[:, :, :n], kept[:, :, :n])

    return attend


def appending(lib: Any) -> Callable:
    """The same with a cache that is another tensor each time."""
    query = data(lib, 1, HEADS, 1, WIDTH // HEADS, seed=1)

    def attend(cache: Any) -> Any:
        cache = lib.cat([cache, query], 2)
        return lib.nn.functional.scaled_dot_product_attention(query, cache, cache)

    return attend
