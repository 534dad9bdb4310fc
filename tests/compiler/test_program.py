"""Programs against the graph's own execution: the same values, from other numbers than they saw."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.compiler import program as programs
from weft.compiler.program import CannotLower, Program, lower
from weft.core import selection
from weft.core.dispatch import REGISTRY
from weft.core.modes import no_grad
from weft.core.tensor import Tensor, wrap
from weft.graph.run import Execution
from weft.graph.spec import LEAVES, Ref, listening
from weft.native.codegen import jit
from weft.native.memory.pool import pool
from weft.operators.build import Make

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()

F = nn.functional
UNITS = 512  # in the last place, of the largest value: sums are taken in another order


def like(x: np.ndarray) -> np.ndarray:
    """A copy with the same strides."""
    low, high = np.lib.array_utils.byte_bounds(x)
    memory = np.zeros(max(high - low, 1), np.uint8)
    first = x.ctypes.data - low if x.size else 0
    made = np.ndarray(x.shape, x.dtype, memory, first, x.strides)
    if x.size:
        made[...] = x
    return made


def leaves_of(graph: Any) -> dict[int, np.ndarray]:
    found = {}
    for spec in graph._specs.values():
        if spec.kind not in LEAVES:
            continue
        if "grad_of" in spec.attrs:
            held = graph._specs[spec.attrs["grad_of"]].leaf.tensor._grad
        else:
            held = spec.leaf.tensor
        if held is not None:
            found[spec.id] = held._a
    return found


def moved(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Other values of the same kind; whole numbers stay, since they choose."""
    made = like(x)
    if x.dtype.kind == "f" and x.size > 1 and not any(s == 0 for s in x.strides):
        made[...] = x * rng.uniform(0.8, 1.2, x.shape)
    return made


def close(found: np.ndarray, want: np.ndarray, units: float = UNITS) -> None:
    assert found.shape == want.shape and found.dtype == want.dtype
    if want.dtype.kind not in "fcV":
        np.testing.assert_array_equal(found, want)
        return
    if want.dtype.kind == "V" or want.dtype == np.float16:
        found, want, unit = found.astype("f4"), want.astype("f4"), 2.0**-8
    else:
        unit = float(np.finfo(want.dtype).eps)
    size = np.abs(np.nan_to_num(want, posinf=0, neginf=0)).max(initial=1e-3)
    np.testing.assert_allclose(found, want, rtol=units * unit, atol=units * unit * size)


def expected(graph: Any, given: dict[int, np.ndarray], wanted: list[Ref]) -> list[Any]:
    with listening(), no_grad():
        tensors = {id: wrap(a) for id, a in given.items()}
        found = Execution(graph, tensors, reuse=False).run(wanted)
    return [None if t is None else np.array(t._a) for t in found]


class Step:
    """A recorded step with its program, run on other values."""

    def __init__(self, graph: Any, every: bool = False) -> None:
        self.graph, self.leaves = graph, leaves_of(graph)
        self.specs = list(graph._specs.values())
        self.wanted = list(graph._outputs)
        self.wanted += [r for r in graph._gradients.values() if r is not None]
        self.writes = dict(graph._updates)
        if every:
            nodes = [s for s in self.specs if s.kind not in LEAVES]
            self.wanted = [r for s in nodes for r in s.results()]
        values = expected(graph, {}, self.wanted)
        self.wanted = [r for r, v in zip(self.wanted, values, strict=True) if v is not None]
        self.program = lower(self.specs, self.leaves, self.wanted, self.writes)

    def run(self, seed: int = 0, units: float = UNITS) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        given = {id: moved(a, rng) for id, a in self.leaves.items()}
        want = expected(self.graph, {k: like(a) for k, a in given.items()},
                        [*self.wanted, *self.writes.values()])  # fmt: skip
        before = {id: np.array(a) for id, a in given.items()}
        poison(self.program)
        found = self.program.run([given[id] for id in self.program.leaves])
        assert found is not None
        for a, b in zip(found, want, strict=False):
            close(a, b, units)
        for leaf, b in zip(self.writes, want[len(self.wanted) :], strict=True):
            close(given[leaf], b, units)
        for id, a in given.items():
            if id not in self.writes:
                np.testing.assert_array_equal(a, before[id])
        return found


def poison(program: Program) -> None:
    """Put NaN into the arena: who reads what was not written shall be found out."""
    program._memory.fill(0xFF)


def recorded(step: Callable[[], Any]) -> Any:
    step()
    with weft.graph.record() as graph:
        step()
    return graph


def training(model: Any, measure: Callable[[], Any], kind: str = "Adam", **settings: Any) -> Any:
    optimizer = getattr(weft.optim, kind)(model.parameters(), lr=1e-3, **settings)

    def step() -> Any:
        optimizer.zero_grad()
        loss = measure()
        loss.backward()
        optimizer.step()
        return loss

    return recorded(step)


# --- whole steps --------------------------------------------------------------------------


def mlp(kind: str = "Adam", **settings: Any) -> Any:
    model = nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3))
    x, y = weft.randn(9, 7), weft.randint(0, 3, (9,))
    return training(model, lambda: F.cross_entropy(model(x), y), kind, **settings)


def cnn() -> Any:
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        nn.Linear(8 * 25, 4),
    )
    x, y = weft.randn(4, 3, 12, 12), weft.randint(0, 4, (4,))
    return training(model, lambda: F.cross_entropy(model(x), y), "SGD", momentum=0.9)


def residual() -> Any:
    one, two = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 3, padding=1, bias=False)
    norm = nn.BatchNorm2d(4)
    model = nn.ModuleList([one, two, norm])
    x = weft.randn(3, 4, 8, 8).contiguous(memory_format=weft.channels_last)

    def measure() -> Any:
        y = two(norm(one(x)).relu_())
        return (y + x).relu().mean((2, 3)).pow(2).sum()

    return training(model, measure)


def lstm() -> Any:
    layer, head = nn.LSTM(6, 8, num_layers=2), nn.Linear(8, 3)
    x, y = weft.randn(5, 4, 6), weft.randint(0, 3, (4,))
    measure = lambda: F.cross_entropy(head(layer(x)[0][-1]), y)
    return training(nn.ModuleList([layer, head]), measure)


def transformer() -> Any:
    tokens, places = nn.Embedding(11, 16), nn.Embedding(6, 16)
    norms = nn.ModuleList([nn.LayerNorm(16) for _ in range(3)])
    qkv, out = nn.Linear(16, 48), nn.Linear(16, 16)
    up, down, head = nn.Linear(16, 64), nn.Linear(64, 16), nn.Linear(16, 11, bias=False)
    text = weft.randint(0, 11, (2, 7))

    def measure() -> Any:
        x = tokens(text[:, :-1]) + places(weft.arange(6))
        q, k, v = (p.view(2, 6, 2, 8).transpose(1, 2) for p in qkv(norms[0](x)).split(16, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + out(y.transpose(1, 2).reshape(2, 6, 16))
        x = x + down(F.gelu(up(norms[1](x))))
        return F.cross_entropy(head(norms[2](x)).view(-1, 11), text[:, 1:].reshape(-1))

    return training(nn.ModuleList([tokens, places, norms, qkv, out, up, down, head]), measure,
                    "AdamW")  # fmt: skip


def q_learning() -> Any:
    make = lambda: nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    policy, target = make(), make()
    state, following, reward = weft.randn(8, 4), weft.randn(8, 4), weft.randn(8)
    action, going_on = weft.randint(0, 2, (8, 1)), weft.randint(0, 2, (8,)).float()
    optimizer = weft.optim.Adam(policy.parameters(), lr=1e-3)

    def step() -> Any:
        value = policy(state).gather(1, action).squeeze(1)
        with weft.no_grad():
            wanted = reward + 0.99 * going_on * target(following).max(1).values
        loss = F.smooth_l1_loss(value, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with weft.no_grad():
            for t, p in zip(target.parameters(), policy.parameters(), strict=True):
                t.mul_(0.995).add_(p, alpha=0.005)
        return loss

    return recorded(step)


def adversarial() -> Any:
    makes = nn.Sequential(nn.ConvTranspose2d(5, 6, 4, 1, 0, bias=False), nn.BatchNorm2d(6),
                          nn.ReLU(True), nn.ConvTranspose2d(6, 3, 4, 2, 1), nn.Tanh())  # fmt: skip
    judges = nn.Sequential(nn.Conv2d(3, 6, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True),
                           nn.Conv2d(6, 1, 4, 1, 0), nn.Flatten(0))  # fmt: skip
    seeds, yes = weft.randn(3, 5, 1, 1), weft.ones(3)
    criterion = nn.BCEWithLogitsLoss()  # the other refuses the targets that tests make up
    measure = lambda: criterion(judges(makes(seeds)), yes)
    return training(makes, measure)


STEPS = {f.__name__: f for f in (mlp, cnn, residual, lstm, transformer, q_learning, adversarial)}


@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str) -> None:
    weft.manual_seed(0)
    step = Step(STEPS[name]())
    for seed in (1, 2):
        step.run(seed, 4096)


@pytest.mark.parametrize("name", ["mlp", "transformer", "cnn"])
def test_every_value(name: str) -> None:
    weft.manual_seed(0)
    Step(STEPS[name](), every=True).run(1, 4096)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("SGD", {}),
        ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        ("AdamW", {"amsgrad": True}),
        ("NAdam", {}),
        ("RMSprop", {"centered": True}),
        ("Adagrad", {}),
        ("ASGD", {}),
    ],
)
def test_optimizers(kind: str, settings: dict[str, Any]) -> None:
    weft.manual_seed(0)
    step = Step(mlp(kind, **settings))
    assert any("in place" in line for line in step.program.explain())
    step.run(1, 4096)


@pytest.mark.parametrize("late", [False, True])
def test_what_is_computed_from_new_parameters(late: bool) -> None:
    """A copy that follows the parameters is made where it lies, unless its old value is read."""
    weft.manual_seed(0)
    model, copy = nn.Linear(6, 6), weft.randn(6, 6)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
    x, spread = weft.randn(4, 6), weft.zeros(6, 6)

    def step() -> None:
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()
        with weft.no_grad():
            kept = copy.t() * model.weight if late else None
            copy.mul_(0.9).add_(model.weight, alpha=0.1)
            if late:
                spread.add_(kept)

    step = Step(recorded(step))
    moves = [k for k in step.program.kernels() if k.startswith("move")]
    assert late or not moves
    step.run(1, 4096)


def test_settings_are_those_of_the_run() -> None:
    weft.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = weft.optim.Adam(model.parameters(), lr=1e-3)
    x = weft.randn(4, 3)

    def step() -> None:
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()

    step = Step(recorded(step))
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.param_groups[0]["weight_decay"] = 0.1
    step.run(1, 4096)


def test_counters_that_differ() -> None:
    weft.manual_seed(0)
    step = Step(mlp())
    counter = next(s.id for s in step.specs if s.id in step.leaves and s.kind == "state"
                   and step.leaves[s.id].size == 1)  # fmt: skip
    step.leaves[counter] = np.asarray(step.leaves[counter] + 7)
    step.run(1, 4096)


# --- ops ----------------------------------------------------------------------------------

SAMPLED = sorted(name for name, op in REGISTRY.items() if op.samples is not None)


def sampled(name: str, dtype: str) -> Iterator[tuple[Any, list[Any]]]:
    """Recorded samples of an op with their gradients, and other operands for them."""
    op = REGISTRY[name]
    assert op.samples is not None
    cast = lambda a: a.astype(dtype) if a.dtype == np.float64 else a
    for one, other in zip(op.samples(Make(0)), op.samples(Make(1)), strict=True):
        args = [wrap(cast(a)) if isinstance(a, np.ndarray) else a for a in one.args]
        second = [cast(a) if isinstance(a, np.ndarray) else a for a in other.args]
        try:
            for a in args:
                if isinstance(a, Tensor) and op.differentiable and a._a.dtype.kind == "f":
                    a.requires_grad_()
            with weft.graph.record() as graph:
                out = op(*args, **one.attrs)
                outs = out if op.multiple else (out,)
                ends = [o for k, o in enumerate(outs)
                        if o.requires_grad and k not in op.constant_outputs]  # fmt: skip
                if ends:
                    sum((o * o).sum() for o in ends).backward()
        except (RuntimeError, ValueError, TypeError, NotImplementedError):
            continue  # as the op's own tests have it
        pairs = [(a, b) for a, b in zip(args, second, strict=True) if isinstance(a, Tensor)]
        if all(a._a.shape == b.shape for a, b in pairs):
            yield graph, pairs


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", SAMPLED)
def test_samples(name: str, dtype: str) -> None:
    op = REGISTRY[name]
    for graph, pairs in sampled(name, dtype):
        specs, leaves = list(graph._specs.values()), leaves_of(graph)
        forward = next((s for s in specs if s.op is op), None)
        if forward is None:
            continue
        wanted = [r for r in forward.results() if r.index not in op.inner_outputs]
        wanted += [r for r in graph._gradients.values() if r is not None]
        try:
            program = lower(specs, leaves, wanted)
        except CannotLower as error:
            assert op.shape is None or "c" in {d.kind for _, d in forward.kinds()}, error
            continue
        for tensor, other in pairs:
            if tensor._a.flags.writeable:
                tensor._a[...] = other
        given = {id: like(a) for id, a in leaves_of(graph).items()}
        try:
            want = expected(graph, {k: like(a) for k, a in given.items()}, wanted)
        except (RuntimeError, ValueError, IndexError):
            continue
        poison(program)
        found = program.run([given[id] for id in program.leaves])
        if found is None:
            assert op.shape is None or op.name in ("masked_select",)
            continue
        for a, b in zip(found, want, strict=True):
            if b is not None:
                close(a, b, 2048 * op.tolerance)


# --- random programs ----------------------------------------------------------------------

UNARY = ("relu", "tanh", "exp", "neg", "sigmoid", "abs", "sqrt", "sign")
BINARY = ("add", "mul", "sub", "maximum", "minimum")


def random_graph(seed: int) -> Any:
    """Shared values, views, broadcasting, reductions, empty and odd shapes, NaN."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(rng.choice((1, 3, 8, 33))) for _ in range(2))
    if seed % 7 == 0:
        rows = 0
    dtype = np.float64 if seed % 3 == 0 else np.float32
    data = lambda *shape: rng.standard_normal(shape).astype(dtype)
    first = [data(rows, columns), data(columns, rows).T, data(rows, 2 * columns)[:, ::2]]
    first += [data(columns), data(rows, 1), data()]
    if first[0].size:
        first[0].flat[0] = np.nan
    tensors = [wrap(a).requires_grad_(bool(rng.integers(2))) for a in first]
    pool: list[Any] = list(tensors)
    with weft.graph.record() as graph:
        for _ in range(int(rng.integers(4, 25))):
            x, y = (pool[int(rng.integers(len(pool)))] for _ in range(2))
            choice = rng.integers(8)
            try:
                if choice < 3:
                    new = REGISTRY[str(rng.choice(UNARY))](x)
                elif choice < 5:
                    new = REGISTRY[str(rng.choice(BINARY))](x, y)
                elif choice == 5:
                    new = x * float(rng.integers(1, 4)) + 0.5
                elif choice == 6:
                    new = x.t() if x.dim() == 2 and x.shape[0] == x.shape[1] else x[..., :1]
                else:
                    new = weft.where(x > y, x, y) if x.shape == y.shape else x.sum(-1, keepdim=True)
            except (RuntimeError, IndexError):
                continue
            pool.append(new)
        total = sum(t.sum() for t in pool[6:] if t.requires_grad)
        if isinstance(total, Tensor):
            total.backward()
    return graph


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    graph = random_graph(seed)
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    rng = np.random.default_rng(seed + 1000)
    every = [r for s in specs if s.kind not in LEAVES for r in s.results()]
    want = expected(graph, {}, every)
    every = [r for r, v in zip(every, want, strict=True) if v is not None]
    # Some of the values: what is not wanted may be fused away or written over.
    chosen = [every[int(k)] for k in rng.integers(0, len(every), 1 + len(every) // 4)] or every
    program = lower(specs, leaves, chosen)
    given = {id: moved(a, rng) for id, a in leaves.items()}
    want = expected(graph, {k: like(a) for k, a in given.items()}, chosen)
    for _ in range(2):
        poison(program)
        found = program.run([given[id] for id in program.leaves])
        assert found is not None
        for a, b in zip(found, want, strict=True):
            close(a, b, 2048)


# --- rules --------------------------------------------------------------------------------


def small() -> tuple[Any, dict[int, Any], list[Ref]]:
    x, y = weft.randn(6, 5), weft.randn(5)
    with weft.graph.record() as graph:
        out = (x * y + 1).relu()
        total = out.sum()
    del total
    specs = list(graph._specs.values())
    last = [s.id for s in specs if s.op_name == "relu"]
    return graph, leaves_of(graph), [Ref(last[0]), graph._outputs[0]]


def test_results_have_memory_of_their_own() -> None:
    graph, leaves, wanted = small()
    program = lower(list(graph._specs.values()), leaves, [*wanted, wanted[0]])
    arrays = [leaves[id] for id in program.leaves]
    one = program.run(arrays)
    assert one is not None
    kept = [np.array(a) for a in one]
    two = program.run([a * 2 for a in arrays])
    assert two is not None
    for a, b in zip(one, kept, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.may_share_memory(a, program._memory)
        assert a.flags.owndata and a.flags.writeable
    for i, a in enumerate([*one, *two]):
        for b in [*one, *two][i + 1 :]:
            assert not np.may_share_memory(a, b)


@pytest.mark.skipif(pool() is None, reason="no pool on this platform")
@pytest.mark.parametrize("side", [8, 1200])
def test_an_arena_takes_the_place_of_what_eager_steps_have_left(side: int) -> None:
    x = weft.randn(side, side)
    with weft.graph.record() as graph:
        y = x @ x @ x
    pool().trim()  # of larger blocks, which would be given back first
    blocks = [np.empty(4 << 20, np.uint8) for _ in range(5)]
    del blocks
    before = weft.memory.stats()["returned_bytes"]
    made = lower(list(graph._specs.values()), leaves_of(graph), graph._outputs)
    given_back = weft.memory.stats()["returned_bytes"] - before
    if side == 8:
        assert made.arena_bytes < 1 << 20 and given_back == 0
    else:
        assert 4 * side**2 <= made.arena_bytes <= given_back < 3 * made.arena_bytes
    (found,) = made.run([x._a for _ in made.leaves]) or ()
    close(found, y.numpy())


def test_a_leaf_that_is_wanted_is_copied() -> None:
    graph, leaves, _ = small()
    program = lower(list(graph._specs.values()), leaves, [Ref(id) for id in leaves])
    found = program.run([leaves[id] for id in program.leaves])
    assert found is not None
    for a, id in zip(found, leaves, strict=True):
        np.testing.assert_array_equal(a, leaves[id])
        assert not np.may_share_memory(a, leaves[id])


def test_leaves_that_change_places() -> None:
    x, y = weft.randn(3, 4), weft.randn(3, 4)
    with weft.graph.record() as graph:
        total = (x + y).sum()
    del total
    leaves = leaves_of(graph)
    a, b = leaves
    program = lower(list(graph._specs.values()), leaves, [], {a: Ref(b), b: Ref(a)})
    given = {id: np.array(v) for id, v in leaves.items()}
    program.run([given[id] for id in program.leaves])
    np.testing.assert_array_equal(given[a], leaves[b])
    np.testing.assert_array_equal(given[b], leaves[a])


def test_an_index_out_of_range_writes_nothing() -> None:
    table, index = weft.randn(5, 3), weft.tensor([0, 4, 2])
    with weft.graph.record() as graph:
        rows = F.embedding(index, table)
        table.mul_(2.0)
    del rows
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    wanted = [Ref(s.id) for s in specs if s.op_name == "embedding"]
    program = lower(specs, leaves, wanted, dict(graph._updates))
    given = {id: np.array(a) for id, a in leaves.items()}
    names = {id: ("index" if a.dtype == np.int64 else "table") for id, a in given.items()}
    place = {name: id for id, name in names.items()}
    before = np.array(given[place["table"]])
    given[place["index"]][1] = 5
    assert program.run([given[id] for id in program.leaves]) is None
    np.testing.assert_array_equal(given[place["table"]], before)
    given[place["index"]][1] = 1
    found = program.run([given[id] for id in program.leaves])
    assert found is not None
    np.testing.assert_array_equal(found[0], before[[0, 1, 2]])
    np.testing.assert_array_equal(given[place["table"]], before * 2)


def test_numbers_of_a_run() -> None:
    x = weft.randn(7, 3).requires_grad_()
    with weft.graph.record() as graph:
        y = (x * 3.0 + 1.5).tanh().sum()
        y.backward()
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    by = {s.op_name: s.id for s in specs}
    wanted = [graph._outputs[0], *(r for r in graph._gradients.values() if r is not None)]
    program = lower(specs, leaves, wanted, {}, [(by["mul"], 1), (by["add"], 1)])
    for scale, shift in ((3.0, 1.5), (-2.0, 0.25)):
        found = program.run([leaves[id] for id in program.leaves], (scale, shift))
        assert found is not None
        other = x.detach().clone().requires_grad_()
        total = (other * scale + shift).tanh().sum()
        total.backward()
        close(found[0], total.detach()._a, 64)
        close(found[1], other.grad._a, 64)


def test_threads() -> None:
    graph, leaves, wanted = small()
    program = lower(list(graph._specs.values()), leaves, wanted)
    failures: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            given = {id: moved(a, rng) for id, a in leaves.items()}
            found = program.run([given[id] for id in program.leaves])
            x, y = (given[id] for id in leaves)
            if not np.array_equal(found[0], np.maximum(x * y + 1, 0)):  # type: ignore[index]
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_another_number_of_threads() -> None:
    weft.manual_seed(0)
    step = Step(mlp())
    before = weft.get_num_threads()
    try:
        for count in (3, 1):
            weft.set_num_threads(count)
            step.run(count, 4096)
    finally:
        weft.set_num_threads(before)


def test_fork() -> None:
    graph, leaves, wanted = small()
    program = lower(list(graph._specs.values()), leaves, wanted)
    arrays = [leaves[id] for id in program.leaves]
    want = program.run(arrays)
    child = os.fork()
    if not child:
        found = program.run(arrays)
        same = found is not None and all(map(np.array_equal, found, want))
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_random_numbers_come_from_the_generator() -> None:
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    x, y = weft.randn(4, 5), weft.randint(0, 3, (4,))
    graph = training(model, lambda: F.cross_entropy(model(x), y))
    leaves = leaves_of(graph)
    wanted = [*graph._outputs, *(r for r in graph._gradients.values() if r is not None)]
    program = lower(list(graph._specs.values()), leaves, wanted)
    for seed in (3, 4):
        weft.manual_seed(seed)
        with listening(), no_grad():
            want = Execution(graph, {}, reuse=False, live=True).run(wanted)
        drawn = weft.rand(2)
        weft.manual_seed(seed)
        found = program.run([leaves[id] for id in program.leaves])
        assert found is not None and weft.equal(weft.rand(2), drawn)
        for a, b in zip(found, want, strict=True):
            close(a, b._a)


def test_what_python_runs_is_told() -> None:
    x = weft.randn(4, 4)
    with weft.graph.record() as graph:
        y = (weft.linalg.inv(x * 2.0) + 1).relu()
    del y
    step = Step(graph)
    assert any("linalg_inv" in line and "Python" in line for line in step.program.explain())
    step.run(3, 1e5)


def test_times() -> None:
    graph, leaves, wanted = small()
    program = lower(list(graph._specs.values()), leaves, wanted)
    found = program.timed([leaves[id] for id in program.leaves])
    assert [name for name, _ in found] == program.kernels()
    assert all(seconds >= 0 for _, seconds in found)


def test_what_is_not_a_graph_of_values() -> None:
    class Twice(weft.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = weft.randn(3).requires_grad_()
    with weft.graph.record() as graph:
        Twice.apply(x).sum().backward()
    with pytest.raises(CannotLower):
        lower(list(graph._specs.values()), leaves_of(graph), graph._outputs)


def test_native_code_switched_off() -> None:
    graph, leaves, wanted = small()
    weft.backends.native.set("numpy")
    try:
        with pytest.raises(CannotLower):
            lower(list(graph._specs.values()), leaves, wanted)
    finally:
        weft.backends.native.set("native")
    assert programs.lower(list(graph._specs.values()), leaves, wanted)
