"""First uses of native code from many threads at once, and forks meanwhile.

    python -m first_uses mixed|same|fork [threads]

Each run is a fresh process with nothing native loaded; results are compared with those that NumPy
alone gives for the same calls.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.testing import assert_allclose  # now: a child may not be able to import it

import weft
from weft.nn import functional as F

RNG = np.random.default_rng(3)


def array(*shape: int) -> Any:
    return weft.from_numpy(RNG.standard_normal(shape).astype(np.float32))


X, W, IMAGE, KERNEL = array(96, 128), array(128, 128), array(2, 8, 24, 24), array(8, 8, 3, 3)
HEADS = array(8, 48, 32)
ROWS = weft.arange(96) % 10


def backward() -> Any:
    x = X.clone().requires_grad_()
    (x.tanh() * x.exp()).sum().backward()
    return x.grad


def layers() -> Any:
    weight, x = KERNEL.clone().requires_grad_(), IMAGE.clone().requires_grad_()
    F.max_pool2d(F.relu(F.conv2d(x, weight, padding=1)), 2).sum().backward()
    return x.grad


def optimized(kind: str, **options: Any) -> Callable[[], Any]:
    def run() -> Any:
        p = weft.nn.Parameter(W.clone())
        optimizer = getattr(weft.optim, kind)([p], lr=0.1, **options)
        for _ in range(3):
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()
        return p.detach()

    return run


CALLS: dict[str, Callable[[], Any]] = {
    "exp": lambda: X.exp(),
    "matmul": lambda: X @ W,
    "conv": lambda: F.conv2d(IMAGE, KERNEL, padding=1),
    "softmax": lambda: X.softmax(-1),
    "layer_norm": lambda: F.layer_norm(X, (128,)),
    "batch_norm": lambda: F.batch_norm(IMAGE, None, None, training=True),
    "randn": lambda: weft.randn(5000, generator=weft.Generator().manual_seed(5)),
    "backward": backward,
    "layers": layers,
    "sgd": optimized("SGD", momentum=0.9),
    "adam": optimized("Adam"),
    "sum": lambda: X.sum(0),
    "loss": lambda: F.cross_entropy(X, ROWS),
    "attention": lambda: F.scaled_dot_product_attention(HEADS, HEADS, HEADS),
    "index": lambda: X[ROWS],
    "cat": lambda: weft.cat([X, X, W]),
    "tril": lambda: weft.cat([X, W]).tril(),
    "half": lambda: X.to(weft.bfloat16).exp().float(),
}


def wanted() -> dict[str, np.ndarray]:
    """What NumPy gives, which loads nothing."""
    weft.backends.native.set("numpy")
    try:
        return {name: call().numpy() for name, call in CALLS.items()}
    finally:
        weft.backends.native.set("native")


class Crew:
    """Threads that begin together; what any of them raises is raised at the end."""

    def __init__(self, jobs: list[Callable[[], None]]) -> None:
        self.errors: list[BaseException] = []
        self.barrier = threading.Barrier(len(jobs))
        self.threads = [threading.Thread(target=self.work, args=(job,)) for job in jobs]

    def work(self, job: Callable[[], None]) -> None:
        try:
            self.barrier.wait()
            job()
        except BaseException as error:
            self.errors.append(error)

    def run(self) -> None:
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


def check(names: list[str], right: dict[str, np.ndarray]) -> None:
    for name in names:
        assert_allclose(CALLS[name]().numpy(), right[name], rtol=2e-3, atol=1e-3, err_msg=name)


def together(count: int, right: dict[str, np.ndarray], same: bool) -> Crew:
    """Threads that all do the same calls in one order, or each in an order of its own."""
    names = list(CALLS)
    shift = 0 if same else 1
    orders = [
        names[k * shift % len(names) :] + names[: k * shift % len(names)] for k in range(count)
    ]
    return Crew([lambda o=order: check(o, right) for order in orders])  # type: ignore[misc]


def child_works(right: dict[str, np.ndarray], patience: float = 60.0) -> None:
    """Fork; the child does all calls, alone and in a thread, and ends well."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            faulthandler.dump_traceback_later(patience / 2)  # says where a child hangs
            check(list(CALLS), right)
            together(2, right, same=False).run()
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + patience
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            if status:
                raise RuntimeError(f"the child ended with {status}")
            return
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise RuntimeError("the child hung")


def main() -> None:
    kind = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    right = wanted()
    if kind == "fork":
        crew = together(count, right, same=False)
        delay = (os.getpid() % 50) / 50.0  # at some point or other of the others' work
        crew.barrier = threading.Barrier(count + 1)

        def later() -> None:
            time.sleep(delay)
            child_works(right)

        crew.threads.append(threading.Thread(target=crew.work, args=(later,)))
        crew.run()
    else:
        together(count, right, same=kind == "same").run()
    print("fine")


if __name__ == "__main__":
    main()
