"""Random programs for the tests of graphs, and the same programs with an edit, as plain Python.

``python -m graph_programs 0 5000`` trains so many random programs by themselves and by their
recorded step, and compares all that they leave behind bit by bit.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from hypothesis import strategies as st

import weft
import weft.nn.functional as F
from weft import nn, optim

# Every value of a program is 3 x 3, so that every edit that keeps the shape is a valid one.
UNARY: dict[str, Any] = {
    "relu": lambda a: a.relu(),
    "sin": lambda a: a.sin(),
    "tanh": lambda a: a.tanh(),
    "scale": lambda a: a * 0.5,
    "shift": lambda a: 1.5 - a,
    "softmax": lambda a: a.softmax(1),
    "turn": lambda a: a.t(),
    "centre": lambda a: a - a.mean(0, keepdim=True),
    "stop": lambda a: a.detach() + 0.0,
    "total": lambda a: a.sum().expand(3, 3) * 1.0,
    "rows": lambda a: weft.cat([a[1:], a[:1]]),
    "joined": lambda a: weft.stack(a.unbind(1), 0),
}
BINARY: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "mm": lambda a, b: a @ b,
    "max": lambda a, b: weft.maximum(a, b),
    "where": lambda a, b: weft.where(a > 0, a, b),
}


def _add_(a: Any, b: Any) -> Any:
    return a.add_(b)


def _row_(a: Any, b: Any) -> Any:
    a[1] = b[0]
    return a


def _column_(a: Any, b: Any) -> Any:
    a.t()[2].mul_(b[:, 0])
    return a


def _mask_(a: Any, b: Any) -> Any:
    a[b > 0] = 0.25
    return a


WRITES: dict[str, Any] = {"add_": _add_, "row_": _row_, "column_": _column_, "mask_": _mask_}

Step = tuple[str, int, int]


def same(a: Any, b: Any) -> bool:
    """Whether two tensors are equal bit for bit, in shape and dtype as well."""
    first, second = (t.detach().numpy() for t in (a, b))
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype.kind == "V":
        return first.tobytes() == second.tobytes()
    return np.array_equal(first, second, equal_nan=True)


@st.composite
def programs(draw: Any, writes: bool = False, longest: int = 8) -> list[Step]:
    """Steps (op, input, input); inputs are numbers of values, the first two are given."""
    names = [*UNARY, *BINARY, *(WRITES if writes else ())]
    steps = []
    for k in range(draw(st.integers(1, longest))):
        a, b = (draw(st.integers(0, k + 1)) for _ in range(2))
        steps.append((draw(st.sampled_from(names)), a, b))
    return steps


def act(step: Step, values: list[Any]) -> Any:
    """Run one step."""
    name, i, j = step
    if name in UNARY:
        return UNARY[name](values[i])
    if name in BINARY:
        return BINARY[name](values[i], values[j])
    return WRITES[name](values[i], values[j] * 1.0)


def begin(x: Any, w: Any) -> list[Any]:
    """The values that a program starts with: its own, since it may write to them."""
    return [x * 1.0, w * 1.0]


def play(steps: list[Step], x: Any, w: Any, edits: dict[int, Any] | None = None) -> Any:
    """Run a program; an edit gives the value of a step from the step, all values, its inputs."""
    values = begin(x, w)
    for k, step in enumerate(steps):
        inputs = [values[step[1]], values[step[2]]]
        instead = (edits or {}).get(k)
        values.append(act(step, values) if instead is None else instead(step, values, inputs))
    return values[-1]


# --- whole steps -----------------------------------------------------------------------


class Training:
    """A random program that trains: models, optimizers, and a step made of random statements."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        weft.manual_seed(seed)
        self.steps = [_random_step(rng, k) for k in range(rng.integers(2, 9))]
        self.net = nn.ModuleDict(
            {
                "a": nn.Linear(3, 3),
                "b": nn.Linear(3, 3, bias=bool(rng.integers(2))),
                "norm": [nn.LayerNorm(3), nn.BatchNorm1d(3), nn.RMSNorm(3)][rng.integers(3)],
                "drop": nn.Dropout(0.3),
            }
        )
        if not rng.integers(4):
            self.net["b"].weight = self.net["a"].weight
        kinds = [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad, optim.NAdam]
        options: dict[str, Any] = {"lr": 0.05}
        kind = kinds[rng.integers(len(kinds))]
        if kind is optim.SGD:
            options["momentum"] = float(rng.choice([0.0, 0.9]))
        self.optimizer = kind(self.net.parameters(), **options)
        self.average = [p.detach().clone() for p in self.net.parameters()]
        self.memory = weft.zeros(3, 3)
        self.ways = {name: bool(rng.integers(2)) for name in WAYS}

    def forward(self, x: Any, w: Any) -> Any:
        values = begin(x, w)
        for step in self.steps:
            name, i, _ = step
            if name in self.net:
                values.append(self.net[name](values[i]))
            elif name == "remember":
                self.memory.mul_(0.5).add_(values[i].detach(), alpha=0.1)
                values.append(values[i] + self.memory)
            elif name == "noise":
                values.append(values[i] + 0.1 * weft.randn(3, 3))
            else:
                values.append(act(step, values))
        return self.net["a"](values[-1])

    def step(self, x: Any, y: Any) -> Any:
        """One step of the training, with what the program is used to do."""
        ways = self.ways
        if not ways["accumulate"]:
            self.optimizer.zero_grad(set_to_none=ways["to_none"])
        loss = F.mse_loss(self.forward(x, y), y)
        if ways["penalty"]:
            loss = loss + 0.01 * sum(p.square().sum() for p in self.net.parameters())
        if ways["twice"]:
            (self.net["b"](x).mean() * 0.1).backward()
        loss.backward()
        if ways["clip"]:
            nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        if ways["read"]:
            with weft.no_grad():
                self.memory += self.net["a"].weight.grad * 0.01
        self.optimizer.step()
        if ways["average"]:
            with weft.no_grad():
                for average, p in zip(self.average, self.net.parameters(), strict=True):
                    average.lerp_(p, 0.1)
        return loss

    def state(self) -> dict[str, Any]:
        """All that a step leaves behind."""
        found = dict(self.net.state_dict())
        found |= {f"{k}.grad": p.grad for k, p in self.net.named_parameters()}
        found |= {f"average {k}": t for k, t in enumerate(self.average)} | {"memory": self.memory}
        for k, own in enumerate(self.optimizer.state.values()):
            found |= {f"{k}: {n}": t for n, t in own.items() if isinstance(t, weft.Tensor)}
        return {k: None if t is None else t.detach().numpy().tobytes() for k, t in found.items()}


WAYS = ("accumulate", "to_none", "penalty", "twice", "clip", "read", "average")


def _random_step(rng: np.random.Generator, k: int) -> Step:
    own = ["a", "b", "norm", "drop", "remember", "noise"]
    names = [*UNARY, *BINARY, *WRITES, *own, *own]
    a, b = (int(n) for n in rng.integers(0, k + 2, 2))
    return names[rng.integers(len(names))], a, b


def trained(seed: int, repeats: bool, count: int = 4) -> tuple[list[bytes], dict[str, Any]]:
    """The losses and the end of a training; ``repeats`` records the second step and repeats it."""
    program, data = Training(seed), np.random.default_rng(seed + 1)
    graph, losses = None, []
    for number in range(count):
        x, y = (weft.tensor(data.normal(size=(3, 3)).astype(np.float32)) for _ in range(2))
        if graph is not None:
            loss = graph.run(x=x, y=y, update=True)
            loss = loss[0] if isinstance(loss, tuple) else loss  # the oldest of its outputs
        elif repeats and number == 1:
            with weft.graph.record() as graph:
                loss = program.step(x, y)
        else:
            loss = program.step(x, y)
        losses.append(loss.detach().numpy().tobytes())
    return losses, program.state()


def differs(seed: int) -> str:
    """What a repeated step does otherwise than its program; nothing if all is well."""
    try:
        expected = trained(seed, repeats=False)
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            return ""  # the program itself is wrong
        raise
    losses, state = trained(seed, repeats=True)
    if losses != expected[0]:
        return f"seed {seed}: the losses"
    wrong = [name for name, bits in expected[1].items() if state.get(name) != bits]
    return f"seed {seed}: {', '.join(wrong)}" if wrong or state.keys() != expected[1].keys() else ""


def main(first: int, last: int) -> int:
    """Compare the programs of some seeds; how many differ."""
    count = 0
    for seed in range(first, last):
        try:
            found = differs(seed)
        except Exception as error:
            found = f"seed {seed}: {type(error).__name__}: {str(error).splitlines()[0]}"
        if found:
            count += 1
            print(found, flush=True)
    print(f"{last - first} programs, {count} differ")
    return count


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:3]))))
