"""Native kernels on arrays beside unreadable pages: a read or a write beyond them ends the run.

    python -m guarded 1000 [first-seed]

Each seed is a call of ``test_native_dtypes.CALLS``, or one that writes over its operand, with a
random dtype, size and layout; its operands end right before an unreadable page or begin right
behind one. A worker process runs the seeds; where one ends it, the seed is named and another
worker goes on with the next.
"""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import numpy as np

import guard
import weft
from native.test_native_dtypes import CALLS, DTYPES, agree, outcome_of
from weft.core import selection
from weft.core.tensor import wrap

SIDES = (1, 2, 3, 5, 7, 8, 12, 16, 17, 31, 33, 64, 65, 100, 129, 150, 257)
LAYOUTS = ("plain", "plain", "plain", "transposed", "stepped", "shifted")
OVER: dict[str, Any] = {
    "exp_": lambda x, i: x.exp_(),
    "mul_": lambda x, i: x.mul_(1.5),
    "add_": lambda x, i: x.add_(x.flip(0), alpha=0.5),
    "relu_": lambda x, i: x.relu_(),
    "copy_": lambda x, i: x.copy_(x.flip(0)),
    "zero_": lambda x, i: x.zero_(),
    "fill_": lambda x, i: x.fill_(2),
    "index_add_": lambda x, i: x.index_add_(0, i, x.clone()),
    "masked_fill_": lambda x, i: x.masked_fill_(i > 2, 1),
    "normal_": lambda x, i: x.normal_(generator=weft.Generator().manual_seed(1)),
    "clamp_": lambda x, i: x.clamp_(-0.25, 0.25),
}
ALL = {**CALLS, **OVER}
# Sizes of these multiply; the rest is quick at any of the above.
SLOW = ("convolution", "conv_transpose", "upsample", "bmm", "scaled_dot_product_attention")


def operands(seed: int) -> tuple[str, str, Any, Any]:
    """The call of a seed: its name, what it is made of, and its two operands."""
    rng = random.Random(seed)
    name, dtype, layout = rng.choice(list(ALL)), rng.choice(DTYPES), rng.choice(LAYOUTS)
    side, end = rng.choice(SIDES), rng.random() < 0.7
    if name in SLOW:
        side = min(side, 64)
    if name == "scaled_dot_product_attention":
        side = rng.choice((12, 16, 32, 64))
    values = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 5, (side, 2 * side))
    x = weft.from_numpy(values.astype(np.float64)).to(getattr(weft, dtype))._a
    x = {
        "plain": lambda: x[:, :side].copy(),
        "transposed": lambda: x[:, :side].copy().T,
        "stepped": lambda: x[:, ::2],
        "shifted": lambda: x[:, side // 2 : side // 2 + side],
    }[layout]()
    order = np.random.default_rng(seed).permutation(side)
    place = guard.before if end else guard.after
    what = f"{name} {dtype} {side}x{side} {layout} {'before' if end else 'after'}"
    return name, what, wrap(place(x)), wrap(place(order))


def check(seed: int) -> str | None:
    """Run a seed natively and by NumPy; what differs, if anything does."""
    selection.start()
    results = []
    for native in (True, False):
        name, what, x, i = operands(seed)
        selection.enable(native)
        try:
            results.append(outcome_of(ALL[name], x, i, gradients=name not in OVER))
        finally:
            selection.enable(True)
    mine, plain = results
    if isinstance(mine, type) or isinstance(plain, type):
        return None if mine is plain else f"{what}: {mine} instead of {plain}"
    fine = all(agree(a, b) for a, b in zip(mine, plain, strict=True))
    return None if fine else f"{what}: other values"


def work(first: int, last: int) -> None:
    """The worker: says what it is about to do, so that the parent knows what ended it."""
    for seed in range(first, last):
        print(f"seed {seed}", flush=True)
        wrong = check(seed)
        if wrong is not None:
            print(f"wrong {wrong}", flush=True)


def run(count: int, first: int = 0) -> list[str]:
    """All that went wrong in so many seeds."""
    wrong, last = [], first + count
    while first < last:
        command = [sys.executable, "-m", "guarded", "--work", str(first), str(last)]
        done = subprocess.run(command, capture_output=True, text=True)
        seed = first
        for line in done.stdout.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "seed":
                seed = int(rest)
            elif kind == "wrong":
                wrong.append(f"seed {seed}: {rest}")
        if done.returncode == 0:
            break
        what = operands(seed)[1]
        wrong.append(f"seed {seed}: {what}: ended by {done.returncode}\n{done.stderr[-500:]}")
        first = seed + 1
    return wrong


def main() -> None:
    if sys.argv[1] == "--work":
        work(int(sys.argv[2]), int(sys.argv[3]))
        return
    count = int(sys.argv[1])
    wrong = run(count, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print("\n".join([*wrong, f"{count} calls, {len(wrong)} wrong"]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
