"""What a small op costs in eager mode, and what a step costs in memory."""

from __future__ import annotations

from typing import Any

from benchmarks.timing import Row, compare, in_processes, report


def small_ops(lib: Any) -> dict[str, Any]:
    a, b = lib.ones(4, 4, requires_grad=True), lib.ones(4, 4)

    def chain() -> None:
        x = a
        for _ in range(50):
            x = x * b
        x.sum().backward()
        a.grad = None

    return {"add": lambda: a + b, "add without recording": lambda: b + b, "chain": chain}


def network(lib: Any) -> Any:
    """One Adam step of a 2-10-1 ReLU network on a batch of 100."""
    lib.manual_seed(0)
    x, y = lib.randn(100, 2), lib.randn(100, 1)
    model = lib.nn.Sequential(lib.nn.Linear(2, 10), lib.nn.ReLU(), lib.nn.Linear(10, 1))
    measure = lib.nn.MSELoss()
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        measure(model(x), y).backward()
        optimizer.step()

    return step


def bare_network(lib: Any) -> Any:
    """The same step written on bare tensors, as a course would show it."""
    lib.manual_seed(0)
    x, y = lib.randn(100, 2), lib.randn(100, 1)
    parameters = [
        t.requires_grad_()
        for t in (lib.randn(10, 2), lib.zeros(10), lib.randn(1, 10), lib.zeros(1))
    ]
    means = [lib.zeros_like(p) for p in parameters]
    squares = [lib.zeros_like(p) for p in parameters]
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        w1, b1, w2, b2 = parameters
        hidden = lib.relu(x @ w1.t() + b1)
        loss = ((hidden @ w2.t() + b2 - y) ** 2).mean()
        loss.backward()
        with lib.no_grad():
            first, second = 1 - 0.9**count, (1 - 0.999**count) ** 0.5
            for p, m, v in zip(parameters, means, squares, strict=True):
                g = p.grad
                m.mul_(0.9).add_(g, alpha=0.1)
                v.mul_(0.999).addcmul_(g, g, value=0.001)
                p.addcdiv_(m, (v.sqrt() / second).add_(1e-8), value=-1e-3 / first)
                p.grad = None

    return step


def tree(lib: Any, depth: int = 8, width: int = 32) -> Any:
    """One SGD step of a network over a binary tree, built anew in every step."""
    lib.manual_seed(0)
    join = lib.nn.Linear(2 * width, width)
    optimizer = lib.optim.SGD(join.parameters(), lr=1e-3)
    leaves = lib.randn(2**depth, width)
    target = lib.zeros(width)

    def embed(first: int, count: int) -> Any:
        if count == 1:
            return leaves[first]
        half = count // 2
        left, right = embed(first, half), embed(first + half, half)
        return lib.tanh(lib.nn.functional.linear(lib.cat([left, right]), join.weight, join.bias))

    def step() -> None:
        optimizer.zero_grad()
        ((embed(0, 2**depth) - target) ** 2).mean().backward()
        optimizer.step()

    return step


IMPORT = """
import time
start = time.perf_counter()
import {name}
print((time.perf_counter() - start) * 1000)
"""

# The growth of the process's peak over some steps, after the inputs exist.
MEMORY = """
import {name} as lib
lib.manual_seed(0)
x = lib.randn(512, 784)
y = lib.randn(512, 10)
sizes = [784, 1024, 1024, 10]
weights = [(lib.randn(n, m) * 0.05).requires_grad_() for m, n in zip(sizes, sizes[1:])]
biases = [lib.zeros(n, requires_grad=True) for n in sizes[1:]]
def status(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024
def step():
    h = x
    for k, (w, b) in enumerate(zip(weights, biases)):
        h = h @ w.t() + b
        if k < 2:
            h = lib.relu(h)
    loss = ((h - y) ** 2).mean()
    loss.backward()
    with lib.no_grad():
        for p in weights + biases:
            p.sub_(p.grad, alpha=1e-3)
            p.grad = None
# What is measured is the step; each library loads its kernels before.
small = lib.ones(256, 256, requires_grad=True)
((small @ small.t() + small).relu() ** 2).mean().backward()
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # forget the peak so far
for _ in range(3):
    step()
print(status("VmHWM") - before)
"""


def run(path: str | None = None) -> bool:
    """Measure everything; True if all limits hold."""
    import torch

    import weft

    torch.set_num_threads(2)
    mine, theirs = small_ops(weft), small_ops(torch)
    rows: list[Row] = [
        compare("add of two 4x4, recorded", mine["add"], theirs["add"], 20000, limit=1.0),
        compare(
            "add of two 4x4, not recorded",
            mine["add without recording"],
            theirs["add without recording"],
            20000,
        ),
        compare(
            "50 multiplications of 4x4 and backward", mine["chain"], theirs["chain"], 300, limit=0.7
        ),
        compare("2-10-1 ReLU network, Adam step", network(weft), network(torch), 200, limit=0.7),
        compare("the same on bare tensors", bare_network(weft), bare_network(torch), 200),
        compare("a tree of 511 nodes of width 32, SGD step", tree(weft), tree(torch), 3, limit=0.7),
        in_processes("import", IMPORT.format(name="weft"), IMPORT.format(name="torch"), 0.2, "ms"),
        in_processes(
            "peak memory of a 784-1024-1024-10 step",
            MEMORY.format(name="weft"),
            MEMORY.format(name="torch"),
            1.05,
            "MiB",
        ),
    ]
    return report("eager overhead, weft against torch", rows, path)
