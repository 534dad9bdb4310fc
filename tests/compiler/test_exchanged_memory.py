"""Tensors that get another array between two uses: what is pending has read the one before.

Every way in which a program can put a tensor on other memory, or give it another shape there, in
the middle of a compiled stretch; compiled and automatically compiled against eager.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as torch
from weft import nn

CALLS = 8


def other() -> Any:
    return torch.arange(12.0, dtype=torch.float64).view(3, 4) * 0.1 + 1


def in_no_grad(change: Any) -> Any:
    def run(t: Any) -> None:
        with torch.no_grad():
            change(t)

    return run


WAYS: dict[str, Any] = {
    "data": lambda t: setattr(t, "data", other()),
    "data of data": lambda t: t.data.set_(other()),
    "set_": in_no_grad(lambda t: t.set_(other())),
    "copy_": in_no_grad(lambda t: t.copy_(other())),
    "share_memory_": lambda t: t.share_memory_(),
    "storage": lambda t: t.untyped_storage().copy_(other().untyped_storage()),
    "swap": lambda t: torch.utils.swap_tensors(t, nn.Parameter(other())),
}
BUFFERS: dict[str, Any] = {
    "t_": lambda t: t.t_(),
    "unsqueeze_": lambda t: t.unsqueeze_(0),
    "transpose_": lambda t: t.transpose_(0, 1),
    "resize_": lambda t: t.resize_(4, 3),
    "resize_ to less": lambda t: t.resize_(2, 2),
    "set_": lambda t: t.set_(other()),
    "data": lambda t: setattr(t, "data", other().t()),
    "out": lambda t: torch.add(other(), 1, out=t),
    "fill_": lambda t: t.fill_(3.0),
    "swap": lambda t: torch.utils.swap_tensors(t, other()),
}


def of_a_call(change: Any, make: Any) -> Any:
    """A tensor is made in each call."""

    def run(k: int) -> Any:
        t = make()
        x = torch.full((3, 4), float(k)).double()
        a = (t * x).exp()
        b = a + 1
        change(t)
        c = (t * 2 + 1).sin()
        return a, b, c, t.sum() + c.sum()

    return run


def of_all_calls(change: Any, make: Any) -> Any:
    """One tensor is changed in every other call."""
    t, x = make(), torch.full((3, 4), 0.5).double()

    def run(k: int) -> Any:
        if t.shape != (3, 4):
            t.data = torch.ones(3, 4).double()
        a = (t * x).exp()
        b = a + 1
        if k % 2:
            change(t)
        c = (t * 2 + 1).sin()
        return a, b, c, t.sum() + c.sum()

    return run


def course(run: Any) -> list[Any]:
    return [[t.detach().clone().numpy() for t in run(k)] for k in range(CALLS)]


@pytest.mark.parametrize("life", [of_a_call, of_all_calls])
@pytest.mark.parametrize("how", ["compiled", "automatic"])
@pytest.mark.parametrize(
    ("kind", "way"), [*(("parameter", w) for w in WAYS), *(("buffer", w) for w in BUFFERS)]
)
def test_what_was_pending_keeps_what_it_read(kind: str, way: str, how: str, life: Any) -> None:
    change = WAYS[way] if kind == "parameter" else BUFFERS[way]

    def make() -> Any:
        start = torch.ones(3, 4).double()
        return nn.Parameter(start) if kind == "parameter" else start

    expected = course(life(change, make))
    run = life(change, make)
    with torch.compiler.auto(how == "automatic"):
        found = course(torch.compile(run) if how == "compiled" else run)
    for k, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, err_msg=f"call {k}")


def test_a_weight_put_on_other_memory_between_two_products() -> None:
    x, p, q = (torch.randn(4, 4).double() for _ in range(3))
    q = nn.Parameter(q)
    old, new = q.detach().clone(), torch.randn(4, 4).double()

    def run() -> Any:
        h = x @ p
        a = h @ q
        q.data = new
        b = h @ q
        q.data = old
        return a, b

    compiled = torch.compile(run)
    for _ in range(5):
        a, b = compiled()
        np.testing.assert_allclose(a.detach().numpy(), (x @ p @ old).numpy(), rtol=1e-9)
        np.testing.assert_allclose(b.detach().numpy(), (x @ p @ new).numpy(), rtol=1e-9)
