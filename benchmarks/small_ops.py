"""What everyday functions cost on small tensors, where Python's share is largest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.timing import Row, compare, mean_row, report, save

LIMIT = 3.0
MEAN_LIMIT = 1.5


def differentiable(lib: Any) -> tuple[Any, dict[str, Callable[[], Any]]]:
    """A leaf, and functions of it; the backward pass of each is measured too."""
    f = lib.nn.functional
    lib.manual_seed(0)
    a, b = lib.rand(4, 4, requires_grad=True), lib.rand(4, requires_grad=True)
    c, row, batch = lib.ones(4, 4), lib.ones(4), lib.rand(2, 4, 4)
    few, labels = lib.tensor([0, 2]), lib.tensor([0, 1, 2, 3])
    places, mask = lib.tensor([[0, 1], [2, 3], [1, 1], [0, 3]]), c > 0
    mean, var = lib.zeros(4), lib.ones(4)
    return a, {
        "view": lambda: a.view(2, 8),
        "reshape": lambda: a.reshape(2, 8),
        "flatten": lambda: a.flatten(),
        "t": lambda: a.t(),
        "transpose": lambda: a.transpose(0, 1),
        "permute": lambda: a.permute(1, 0),
        "unsqueeze": lambda: a.unsqueeze(0),
        "squeeze": lambda: a.squeeze(),
        "expand": lambda: a.expand(2, 4, 4),
        "x[1]": lambda: a[1],
        "x[1:3]": lambda: a[1:3],
        "x[:, 1]": lambda: a[:, 1],
        "x[index]": lambda: a[few],
        "cat": lambda: lib.cat([a, c]),
        "stack": lambda: lib.stack([a, c]),
        "split": lambda: a.split(2)[0],
        "chunk": lambda: a.chunk(2, 1)[0],
        "repeat": lambda: a.repeat(2, 1),
        "clone": lambda: a.clone(),
        "to(dtype)": lambda: a.to(lib.float64),
        "sum": lambda: a.sum(),
        "sum(1)": lambda: a.sum(1),
        "mean": lambda: a.mean(),
        "mean(1)": lambda: a.mean(1),
        "std": lambda: a.std(),
        "norm": lambda: a.norm(),
        "max(1)": lambda: a.max(1)[0],
        "topk": lambda: a.topk(2)[0],
        "cumsum": lambda: a.cumsum(1),
        "gather": lambda: a.gather(1, places),
        "index_select": lambda: a.index_select(0, few),
        "masked_fill": lambda: a.masked_fill(mask, 0.0),
        "where": lambda: lib.where(mask, a, c),
        "clamp": lambda: a.clamp(min=0),
        "a * b": lambda: a * c,
        "1 - x": lambda: 1 - a,
        "x**2": lambda: a**2,
        "exp": lambda: a.exp(),
        "relu": lambda: lib.relu(a),
        "gelu": lambda: f.gelu(a),
        "dropout": lambda: f.dropout(a, 0.5),
        "softmax": lambda: a.softmax(1),
        "log_softmax": lambda: f.log_softmax(a, 1),
        "a @ b": lambda: a @ c,
        "matmul 3d": lambda: batch @ a,
        "bmm": lambda: lib.bmm(batch, a.expand(2, 4, 4)),
        "einsum": lambda: lib.einsum("ij,jk->ik", a, c),
        "linear": lambda: f.linear(c, a, b),
        "embedding": lambda: f.embedding(few, a),
        "layer_norm": lambda: f.layer_norm(a, (4,), row, row),
        "batch_norm": lambda: f.batch_norm(a, mean, var, row, row, True),
        "cross_entropy": lambda: f.cross_entropy(a, labels),
        "mse_loss": lambda: f.mse_loss(a, c),
    }


def others(lib: Any) -> dict[str, Callable[[], Any]]:
    """Functions without a derivative, and calls on tensors that need none."""
    lib.manual_seed(0)
    c, d, one = lib.ones(4, 4), lib.ones(4, 4), lib.tensor(1.0)
    n, mask, flag = lib.arange(16).view(4, 4), c > 0, lib.tensor(True)
    return {
        "view": lambda: c.view(16),
        "a + b": lambda: c + c,
        "add_": lambda: c.add_(1.0),
        "add_(alpha)": lambda: c.add_(d, alpha=0.1),
        "addcmul_": lambda: c.addcmul_(d, d, value=0.1),
        "lerp_": lambda: c.lerp_(d, 0.1),
        "zero_": lambda: c.zero_(),
        "copy_": lambda: c.copy_(d),
        "x[0] = 1": lambda: c.__setitem__(0, 1.0),
        "c == c": lambda: c == c,
        "x > 0": lambda: c > 0,
        "any": lambda: c.any(),
        "all of mask": lambda: mask.all(),
        "~mask": lambda: ~mask,
        "mask & mask": lambda: mask & mask,
        "n + n": lambda: n + n,
        "n + 1": lambda: n + 1,
        "n == 1": lambda: n == 1,
        "sum of n": lambda: n.sum(),
        "n.float()": lambda: n.float(),
        "max": lambda: c.max(),
        "argmax": lambda: c.argmax(1),
        "detach": lambda: c.detach(),
        "contiguous": lambda: c.contiguous(),
        "to(device)": lambda: c.to("cpu"),
        "zeros": lambda: lib.zeros(4, 4),
        "ones_like": lambda: lib.ones_like(c),
        "full": lambda: lib.full((4, 4), 0.5),
        "arange": lambda: lib.arange(10),
        "tensor": lambda: lib.tensor([1.0, 2.0]),
        "randn": lambda: lib.randn(4, 4),
        "rand": lambda: lib.rand(4, 4),
        "normal_": lambda: c.normal_(),
        "uniform_": lambda: c.uniform_(),
        "randint": lambda: lib.randint(10, (4,)),
        "item": lambda: one.item(),
        "float": lambda: float(one),
        "bool": lambda: bool(flag),
        "tolist": lambda: c.tolist(),
        "numpy": lambda: c.numpy(),
        "shape": lambda: c.shape,
        "size(0)": lambda: c.size(0),
        "len": lambda: len(c),
        "dim": lambda: c.dim(),
        "numel": lambda: c.numel(),
        "dtype": lambda: c.dtype,
        "device": lambda: c.device,
        "requires_grad": lambda: c.requires_grad,
    }


def with_backward(lib: Any, leaf: Any, function: Callable[[], Any]) -> Callable[[], None]:
    """A function's forward and backward passes together."""
    gradient = lib.ones_like(function())

    def run() -> None:
        function().backward(gradient)
        leaf.grad = None

    return run


def run(path: str | None = None, *only: str) -> bool:
    """Measure all cases, or those with one of ``only`` in their names; True if limits hold."""
    import torch

    import weft

    def measure(cases: dict[str, tuple[Callable, Callable]]) -> list[Row]:
        return [
            compare(name, mine, theirs, 20, rounds=250, limit=LIMIT)
            for name, (mine, theirs) in cases.items()
            if not only or any(part in name for part in only)
        ]

    (mine, forward), (theirs, forward_torch) = differentiable(weft), differentiable(torch)
    plain, plain_torch = others(weft), others(torch)
    ahead = {name: (forward[name], forward_torch[name]) for name in forward}
    back = {
        name: (
            with_backward(weft, mine, forward[name]),
            with_backward(torch, theirs, forward_torch[name]),
        )
        for name in forward
    }
    with_grad, without = (weft.enable_grad, torch.enable_grad), (weft.no_grad, torch.no_grad)
    groups = {
        "forward, recorded": (with_grad, ahead),
        "forward, under no_grad": (without, ahead),
        "forward and backward": (with_grad, back),
        "without a derivative": (with_grad, {k: (plain[k], plain_torch[k]) for k in plain}),
    }
    fine, rows, means = True, [], {}
    for title, (modes, cases) in groups.items():
        with modes[0](), modes[1]():
            found = measure(cases)
        if not found:
            continue
        means[title] = mean_row(found, MEAN_LIMIT).ratio
        fine &= report(title, found) and means[title] <= MEAN_LIMIT
        rows += [Row(f"{title}: {r.case}", r.weft, r.torch, r.limit) for r in found]
    print(f"\ngeometric means, limit {MEAN_LIMIT:.2f}")
    for title, mean in means.items():
        print(f"{title:<24}  {mean:5.2f}")
    if rows:
        print(f"{'all':<24}  {mean_row(rows, None).ratio:5.2f}")
    if path:
        save(rows, path)
    return fine
