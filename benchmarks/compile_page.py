"""The table of compiled steps in ``docs/compile.md``, made from measured rows."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from benchmarks.timing import Row

BEGIN, END = "<!-- table -->\n", "<!-- end -->"
TITLES = {
    "mlp 2-10-1": "2-10-1 MLP, batch 100",
    "mlp 32-64-64-10": "32-64-64-10 MLP, batch 16",
    "mlp": "784-256-10 MLP, batch 64",
    "cnn": "LeNet-like CNN on 3x32x32, batch 64",
    "resnet18": "ResNet-18 on 3x32x32, batch 32",
    "lstm": "LSTM 2x256, sequence 64, batch 32",
    "gpt": "GPT, 4 layers, width 256, context 128, batch 8",
    "dqn": "DQN step, 4-128-128-2, batch 128",
    "generation": "the same GPT, a token at a time with a key/value cache",
    "cell": "LSTM cell of width 64 written by hand, 32 steps, batch 16",
    "tree": "network of width 32 over a tree of 511 nodes, by recursion",
}
COLUMNS = (
    *("training step", "eager torch", "followed", "static", "aim", "`torch.compile`", "`jax.jit`"),
    *("followed, of the faster of these", "aim", "static, of its products"),
)
OTHERS = ("torch.compile, step", "torch.compile, model", "jax.jit")


def write(path: str, rows: list[Row], threads: int) -> None:
    """Put the table and a line on the machine between the marks of a page."""
    page = Path(path).read_text()
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    Path(path).write_text(f"{head}{BEGIN}{machine(threads)}\n\n{table(rows)}\n{END}{tail}")


def table(rows: list[Row]) -> str:
    """One line for each step; times as shares of eager torch's."""
    found = {row.case: row for row in rows}
    lines = [COLUMNS, ("---",) * len(COLUMNS)]
    for name, title in TITLES.items():
        if name not in found:
            continue
        eager, static, products = (found[name + end] for end in ("", ", static", ", products"))
        others = {k: found[f"{name}, {k}"] for k in OTHERS if f"{name}, {k}" in found}
        # Each was timed beside the followed step, so that is what leads back to eager torch.
        shares = {k: eager.ratio / row.ratio for k, row in others.items()}
        torch = [share for k, share in shares.items() if k.startswith("torch")]
        best = next((row for row in others.values() if row.limit), None)
        lines.append((
            title, f"{eager.torch:.3g} ms", f"{eager.ratio:.2f}", f"{static.ratio:.2f}",
            f"{eager.limit:.2f}", f"{min(torch):.2f}" if torch else "",
            f"{shares['jax.jit']:.2f}" if "jax.jit" in shares else "",
            f"{best.ratio:.2f}" if best else "", f"{best.limit:.2f}" if best else "",
            f"{products.ratio:.2f}",
        ))  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine(threads: int) -> str:
    """What the figures were measured on."""
    import numpy
    import torch

    text = Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    name = re.search(r"model name\s*:\s*(.*)", text)
    vectors = next((v for v in ("avx512f", "avx2") if v in text), "no AVX2")
    wide = {"avx512f": "AVX-512", "avx2": "AVX2"}.get(vectors, vectors)
    return (
        f"{name[1] if name else platform.processor()} with {wide}, {os.cpu_count()} cores, "
        f"{threads} threads; Python {platform.python_version()}, NumPy {numpy.__version__}, "
        f"torch {torch.__version__.split('+')[0]}."
    )
