"""Calls of many ops in an order that the command line gives: a digest of the bits of each.

``tests/native/test_histories.py`` runs this in fresh processes. Which implementation an op takes
may depend on its operands and on settings, but not on what ran before it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import weft
from weft.core import selection
from weft.native.codegen import jit
from weft.nn import functional as F

# Around the sizes at which implementations change: see ``core/selection.py``.
SIZES = (7, 600, 1500, 5000, 9000, 40_000)
UNARY = (
    *("exp", "log", "tanh", "sigmoid", "sqrt", "abs", "neg", "sin", "cos", "erf", "expm1"),
    *("log1p", "relu", "reciprocal", "square", "floor", "sign", "atan", "exp2", "log2"),
)
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    **{n: getattr(F, n) for n in ("gelu", "silu", "elu", "softplus", "mish", "hardtanh", "relu6")},
    "leaky_relu": lambda x: F.leaky_relu(x, 0.07),
    "pow3": lambda x: x**3,
    "pow_half": lambda x: (x.abs() + 0.1) ** 0.7,
    "clamp": lambda x: x.clamp(-0.3, 0.4),
    "add_number": lambda x: x + 1.7,
    "div_number": lambda x: x / 3.3,
    "mul_self": lambda x: x * x,
    "cumsum": lambda x: x.cumsum(0),
    "cast": lambda x: x.double().float(),
}
ROWS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "softmax_columns": lambda x: x.softmax(0),
    "logsumexp": lambda x: x.logsumexp(-1),
    "sum": lambda x: x.sum(),
    "sum_rows": lambda x: x.sum(-1),
    "sum_columns": lambda x: x.sum(0),
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "std_columns": lambda x: x.std(0),
    "norm": lambda x: x.norm(),
    "amax": lambda x: x.amax(-1),
    "max": lambda x: x.max(-1).values,
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "mse": lambda x: F.mse_loss(x, x.flip(0)),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x.flip(0)),
    "cross_entropy": lambda x: F.cross_entropy(x, weft.arange(x.shape[0]) % x.shape[1]),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, x.flip(0).sigmoid()),
    "linear": lambda x: F.linear(x, x[:5], x[:5, 0]),
    "matmul": lambda x: x @ x.T,
    "plus_row": lambda x: x + x[0],
    "times_column": lambda x: x * x[:, :1],
    "gather": lambda x: x.gather(1, (weft.arange(x.numel()).reshape(x.shape) * 7) % x.shape[1]),
    "cat": lambda x: weft.cat([x, x], 1),
    "transposed": lambda x: (x.T * 2).contiguous(),
    "index": lambda x: x[[0, 0, 1]],
    "layer_norm_weighted": lambda x: F.layer_norm(x, x.shape[-1:], x[0], x[1]),
    "embedding": lambda x: F.embedding(weft.arange(6).reshape(2, 3) % x.shape[0], x),
    "topk": lambda x: x.topk(2, -1).values,
    "max_all": lambda x: x.max(),
    "index_add": lambda x: x.index_add(0, weft.tensor([0, 2, 0]), x[:3]),
}
IMAGES: dict[str, Callable[[Any], Any]] = {
    "conv": lambda x: F.conv2d(x, x[:1, :, :3, :3].expand(4, -1, -1, -1), padding=1),
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 2),
}
IN_PLACE = ("exp_", "tanh_", "sigmoid_", "relu_", "sqrt_", "neg_", "erf_", "square_", "log1p_")


def values(name: str, *shape: int) -> Any:
    """The same numbers for a case in every process."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return weft.from_numpy(rng.standard_normal(shape).astype(np.float32))


def graded(name: str, function: Callable[[Any], Any], *shape: int) -> Callable[[], list[Any]]:
    """A function with its gradient."""

    def run() -> list[Any]:
        x = values(name, *shape).requires_grad_()
        y = function(x)
        if not y.requires_grad:
            return [y]
        y.backward(values(name + "g", *y.shape))
        return [y, x.grad]

    return run


def in_place(name: str, op: str, size: int) -> Callable[[], list[Any]]:
    def run() -> list[Any]:
        x = values(name, size).abs() + 0.1
        return [getattr(x, op)()]

    return run


def converted(name: str, op: str, kind: str, size: int) -> Callable[[], list[Any]]:
    """An op in another type."""

    def run() -> list[Any]:
        x = (values(name, size).abs() + 0.1).to(getattr(weft, kind))
        y = F.gelu(x) if op == "gelu" else getattr(weft, op)(x)
        return [y.double()]

    return run


def attributes(count: int) -> Callable[[], list[Any]]:
    """An op under many different attributes, of which no more than some are compiled."""

    def run() -> list[Any]:
        x = values("attributes", 3000)
        return [F.elu(x, 0.5 + k / 97) for k in range(count)]

    return run


def optimizer(kind: str, size: int) -> Callable[[], list[Any]]:
    def run() -> list[Any]:
        p = values(kind, size).requires_grad_()
        descent = getattr(weft.optim, kind)([p], lr=0.01)
        for _ in range(3):
            p.grad = values(kind + "g", size)
            descent.step()
        return [p]

    return run


def cases() -> dict[str, Callable[[], list[Any]]]:
    found: dict[str, Callable[[], list[Any]]] = {}
    for size in SIZES:
        for op in UNARY:
            name = f"{op} {size}"
            found[name] = graded(name, lambda x, op=op: getattr(weft, op)(x.abs() + 0.1), size)
        for op, function in ACTIVATIONS.items():
            found[f"{op} {size}"] = graded(f"{op} {size}", function, size)
        for op in IN_PLACE:
            found[f"{op} {size}"] = in_place(f"{op} {size}", op, size)
        for kind in ("SGD", "Adam", "AdamW", "RMSprop"):
            found[f"{kind} {size}"] = optimizer(kind, size)
    for shape in ((3, 4), (20, 30), (10, 600), (150, 90), (300, 300), (70, 10), (600, 20), (9, 33)):
        for op, function in ROWS.items():
            found[f"{op} {shape}"] = graded(f"{op} {shape}", function, *shape)
    for shape in ((1, 2, 4, 4), (4, 3, 16, 16), (4, 8, 32, 32)):
        for op, function in IMAGES.items():
            found[f"{op} {shape}"] = graded(f"{op} {shape}", function, *shape)
    for kind in ("float64", "bfloat16"):
        for size in (7, 1500, 9000):
            for op in ("exp", "tanh", "sigmoid", "sum", "sqrt", "gelu"):
                name = f"{op} {kind} {size}"
                found[name] = converted(name, op, kind, size)
    found["attributes"] = attributes(70)
    found["attributes again"] = attributes(3)
    return found


def digest(results: list[Any]) -> str:
    hashed = hashlib.sha256()
    for t in results:
        hashed.update(np.ascontiguousarray(t.detach().numpy()).tobytes())
    return hashed.hexdigest()[:16]


def order_of(names: list[str], history: str) -> Iterator[tuple[str, int]]:
    """The cases, and how often each is run before its digest is taken: small ones are compiled
    when they were seen often enough.
    """
    if history == "backward":
        names = names[::-1]
    elif history == "in place":  # before anything that loads native code
        names = sorted(names, key=lambda name: "_ " not in name)
    elif history == "shuffled":
        names = [names[i] for i in np.random.default_rng(0).permutation(len(names))]
    for name in names:
        small = any(f" {size}" in name for size in (7, 600, "(3, 4)", "(20, 30)", "(1, 2"))
        yield name, 60 if history == "warm" and small else 1


def main(history: str) -> None:
    if history == "entry points":  # of which most are compiled late
        jit.ENTRY_USES = 0
    if history == "warm":
        selection.start()
        for k in range(80):  # other attributes than those of the cases
            F.elu(weft.ones(3000), 2.0 + k)
    every = cases()
    found = {}
    for name, repeats in order_of(list(every), history):
        for _ in range(repeats):
            results = every[name]()
        found[name] = digest(results)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
