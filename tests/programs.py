"""Random programs of views, in-place ops and backward, run on weft and on torch side by side.

    python -m programs 10000 [first-seed]

A program is a list of steps; each step is a name and numbers, taken modulo what exists when it
runs. So any subset of the steps is a program too, and a failing one can be cut down.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Step = tuple[str, tuple[int, ...]]
VALUES = (0.5, -1.25, 2.0, 0.75, -0.5, 1.5)


class Machine:
    """Runs steps in one framework."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib
        self.tensors: list[Any] = []
        self.message = ""

    def pick(self, k: int) -> Any:
        return self.tensors[k % len(self.tensors)]

    def run(self, step: Step) -> str | None:
        """One step; the name of the error's class if it failed, else None."""
        name, numbers = step
        try:
            made = ACTIONS[name](self, *numbers)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            self.message = str(error)
            return type(error).__name__
        if made is not None:
            self.tensors.extend(made if isinstance(made, (tuple, list)) else (made,))
            del self.tensors[12:]
        return None


ACTIONS: dict[str, Callable[..., Any]] = {}


def action(function: Callable) -> Callable:
    ACTIONS[function.__name__] = function
    return function


@action
def leaf(m: Machine, shape: int, value: int, wants: int) -> Any:
    rng = np.random.default_rng(value)
    dims = ((2, 3), (3,), (3, 2), (4,), (2, 2, 3), (), (1, 3))[shape % 7]
    made = m.lib.tensor(rng.uniform(0.5, 1.5, dims), dtype=m.lib.float64)
    return made.requires_grad_() if wants % 2 else made


@action
def unary(m: Machine, k: int, which: int) -> Any:
    x = m.pick(k)
    return (x.sin, x.exp, x.neg, x.sigmoid, x.tanh, x.relu, x.clone, x.abs)[which % 8]()


@action
def binary(m: Machine, k: int, j: int, which: int) -> Any:
    a, b = m.pick(k), m.pick(j)
    return (lambda: a + b, lambda: a * b, lambda: a - b, lambda: a / (b * b + 1))[which % 4]()


@action
def number(m: Machine, k: int, v: int, which: int) -> Any:
    x, value = m.pick(k), VALUES[v % 6]
    return (lambda: x * value, lambda: value - x, lambda: x / value, lambda: x**2)[which % 4]()


@action
def view(m: Machine, k: int, which: int, where: int) -> Any:
    x = m.pick(k)
    last = x.dim() - 1
    return (
        lambda: x[where % 3],
        lambda: x[..., : 1 + where % 2],
        lambda: x.t(),
        lambda: x.transpose(0, last),
        lambda: x.view(-1),
        lambda: x.unsqueeze(where % 2),
        lambda: x.reshape(-1),
        lambda: x.expand(2, *x.shape),
        lambda: x.narrow(0, where % 2, 1),
        lambda: x.diagonal(),
        lambda: x.squeeze(),
        lambda: x[::2],
        lambda: x.detach(),
        lambda: x.flatten(),
        lambda: x.permute(*range(x.dim())[::-1]),
        lambda: x.view_as(x),
        lambda: x.select(-1, where % 2),
        lambda: x.unfold(0, 2, 1),
    )[which % 18]()


@action
def several(m: Machine, k: int, which: int) -> Any:
    x = m.pick(k)
    return (lambda: x.chunk(2), lambda: x.unbind(0), lambda: x.split(1))[which % 3]()


@action
def hidden_view(m: Machine, k: int, which: int) -> Any:
    with m.lib.no_grad():
        return view(m, k, which, 0)


def apart(y: Any, x: Any) -> Any:
    """A copy where the two share memory: what reading half-written memory gives is undefined."""
    shared = np.shares_memory(y.detach().numpy(), x.detach().numpy())
    return y.clone() if shared and y is not x else y


def tangled(x: Any) -> bool:
    """Whether elements overlap in memory in a way that nobody checks: results are undefined."""
    shape, stride = tuple(x.shape), tuple(x.stride())
    if any(n > 1 and s == 0 for n, s in zip(shape, stride, strict=True)):
        return False
    places = np.zeros(shape, np.int64)
    for dim, (n, s) in enumerate(zip(shape, stride, strict=True)):
        places += (np.arange(n) * s).reshape((n,) + (1,) * (len(shape) - dim - 1))
    return len(np.unique(places)) < places.size


@action
def change(m: Machine, k: int, j: int, which: int) -> None:
    x = m.pick(k)
    y = apart(m.pick(j), x)
    if tangled(x) or (y is x and 0 in x.stride()):
        return
    (
        lambda: x.add_(y),
        lambda: x.mul_(y),
        lambda: x.copy_(y),
        lambda: x.sub_(y),
        lambda: x.div_(y * y + 1),
    )[which % 5]()


@action
def change_alone(m: Machine, k: int, v: int, which: int) -> None:
    x, value = m.pick(k), VALUES[v % 6]
    if tangled(x):
        return
    (
        lambda: x.mul_(value),
        lambda: x.add_(value),
        lambda: x.fill_(value),
        lambda: x.zero_(),
        lambda: x.sigmoid_(),
        lambda: x.relu_(),
        lambda: x.tanh_(),
        lambda: x.sin_(),
        lambda: x.neg_(),
        lambda: x.exp_(),
    )[which % 10]()


@action
def put(m: Machine, k: int, j: int, which: int, v: int) -> None:
    x, value = m.pick(k), VALUES[v % 6]
    y = apart(m.pick(j), x)
    y = y.clone() if y is x else y
    if which % 6 == 4 and (not x.dim() or x.shape[0] < 2):
        return  # torch leaves a half-written tensor behind when an index is out of range
    if tangled(x) or (0 in x.stride() and which % 6 in (2, 4)):
        return  # torch only warns when an index writes to memory that elements share
    if which % 6 == 0:
        x[v % 2] = y
    elif which % 6 == 1:
        x[..., 0] = value
    elif which % 6 == 2:
        x[x > 1] = value
    elif which % 6 == 3:
        x[:1] = y
    elif which % 6 == 4:
        x[[0, 1]] = y
    else:
        x[v % 2] += y


@action
def quiet_change(m: Machine, k: int, v: int, which: int) -> None:
    with m.lib.no_grad():
        change_alone(m, k, v, which)


@action
def backward(m: Machine, k: int, keep: int) -> None:
    m.pick(k).sum().backward(retain_graph=bool(keep % 2))


@action
def gradient(m: Machine, k: int, j: int) -> Any:
    return m.lib.autograd.grad(
        (m.pick(k) * m.pick(k)).sum(), m.pick(j), create_graph=True, allow_unused=True
    )[0]


@action
def drop(m: Machine, k: int) -> None:
    if len(m.tensors) > 2:
        del m.tensors[k % len(m.tensors)]


@action
def fresh(m: Machine, k: int, wants: int) -> Any:
    return m.pick(k).detach().clone().requires_grad_(bool(wants % 2))


@action
def retain(m: Machine, k: int) -> None:
    m.pick(k).retain_grad()


NAMES = (
    *("leaf", "unary", "binary", "number", "several", "hidden_view", "quiet_change"),
    *("view",) * 5,
    *("change",) * 3,
    *("change_alone",) * 3,
    *("put",) * 2,
    *("backward",) * 2,
    *("gradient", "drop", "fresh", "retain"),
)


def program(seed: int) -> list[Step]:
    """The program of a seed."""
    rng = random.Random(seed)

    def numbers(name: str) -> tuple[int, ...]:
        count = ACTIONS[name].__code__.co_argcount - 1
        return tuple(rng.randrange(1000) for _ in range(count))

    steps: list[Step] = [("leaf", numbers("leaf")) for _ in range(3)]
    for _ in range(rng.randrange(4, 22)):
        name = rng.choice(NAMES)
        steps.append((name, numbers(name)))
    steps.append(("backward", numbers("backward")))
    return steps


def state(tensor: Any) -> tuple[Any, ...]:
    """What a user can see of a tensor, but for its values."""
    grad_fn = tensor.requires_grad and not tensor.is_leaf
    return tuple(tensor.shape), tensor.requires_grad, tensor.is_leaf, grad_fn


def visible(tensor: Any) -> tuple[Any, ...] | None:
    """The state, or None where even looking is an error."""
    try:
        return state(tensor)
    except RuntimeError:
        return None


def values(tensor: Any) -> np.ndarray:
    return np.array(tensor.detach().numpy())


def difference(steps: list[Step], weft: Any, torch: Any) -> str | None:
    """What a program shows of a difference between the two, or None."""
    mine, theirs = Machine(weft), Machine(torch)
    for number, step in enumerate(steps):
        if step[0] != "leaf" and not mine.tensors:
            continue
        found, expected = mine.run(step), theirs.run(step)
        where = f"step {number} {step}"
        if found != expected:
            said = mine.message if found else theirs.message
            return f"{where}: weft raised {found}, torch {expected} ({said})"
        if len(mine.tensors) != len(theirs.tensors):
            return f"{where}: {len(mine.tensors)} tensors, torch has {len(theirs.tensors)}"
        for k in reversed(range(len(mine.tensors))):
            a, b = mine.tensors[k], theirs.tensors[k]
            have, seen = visible(a), visible(b)
            if have != seen:
                return f"{where}: tensor {k} is {have}, in torch {seen}"
            if seen is None:  # a forbidden view: from here on any error would do
                del mine.tensors[k], theirs.tensors[k]
                continue
            if not np.allclose(values(a), values(b), rtol=1e-9, atol=1e-12, equal_nan=True):
                return f"{where}: tensor {k} holds {values(a)}, in torch {values(b)}"
            if (a.is_leaf or a.retains_grad) and not _same_grad(a, b):
                return f"{where}: tensor {k} has gradient {a.grad}, in torch {b.grad}"
    return None


def _same_grad(a: Any, b: Any) -> bool:
    if a.grad is None or b.grad is None:
        return a.grad is None and b.grad is None
    return a.grad.shape == b.grad.shape and np.allclose(
        values(a.grad), values(b.grad), rtol=1e-8, atol=1e-10, equal_nan=True
    )


def smallest(steps: list[Step], fails: Callable[[list[Step]], Any]) -> list[Step]:
    """A failing program without the steps that it fails without."""
    k = 0
    while k < len(steps):
        fewer = steps[:k] + steps[k + 1 :]
        if fails(fewer):
            steps, k = fewer, 0
        else:
            k += 1
    return steps


def check(seed: int, weft: Any, torch: Any) -> str | None:
    """Run a seed's program; a report with the smallest failing program if there is one."""
    steps = program(seed)
    if difference(steps, weft, torch) is None:
        return None
    small = smallest(steps, lambda s: difference(s, weft, torch))
    lines = "\n".join(f"    {s}" for s in small)
    return f"seed {seed}: {difference(small, weft, torch)}\n{lines}"


def main() -> None:
    import warnings

    import torch

    import weft

    warnings.simplefilter("ignore")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    start = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = 0
    for seed in range(start, start + count):
        report = check(seed, weft, torch)
        if report:
            failed += 1
            print(report)
            if failed >= 10:
                break
    print(f"{count} programs, {failed} with a difference")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
