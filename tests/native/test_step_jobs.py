"""Every node of recorded training steps as a job: planned without values, run on those of the step.

The steps are those of usual models, small enough that eager mode would take NumPy for most of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.core import planning, selection
from weft.core.dispatch import Op
from weft.core.tensor import Tensor
from weft.graph import run
from weft.graph.gradient import ACCUMULATE, added
from weft.graph.spec import FORWARD
from weft.graph.steps import Step
from weft.native import contract
from weft.native.codegen import jit, updates
from weft.nn import functional as F

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()


def mlp() -> Any:
    model = nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3))
    x, y = weft.randn(6, 12), weft.randint(0, 3, (6,))
    return [model], lambda: F.cross_entropy(model(x), y)


def cnn() -> Any:
    model = nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(54, 10)),
    )
    x, y = weft.randn(2, 3, 14, 14), weft.randint(0, 10, (2,))
    return [model], lambda: F.cross_entropy(model(x), y)


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.shortcut(x))


def resnet() -> Any:
    model = nn.Sequential(
        *(nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
        *(nn.MaxPool2d(3, 2, 1), Block(4, 4, 1), Block(4, 8, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
    )
    x, y = weft.randn(2, 3, 24, 24), weft.randint(0, 5, (2,))
    return [model], lambda: F.cross_entropy(model(x), y)


def wide_convolutions() -> Any:
    """Enough channels for Winograd convolutions."""
    model = nn.Sequential(
        *(nn.Conv2d(3, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU()),
        *(nn.Conv2d(64, 64, 4, 2, 1), nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten()),
    )
    x = weft.randn(4, 3, 16, 16)
    return [model], lambda: model(x).square().mean()


def recurrent(kind: Any, **settings: Any) -> Callable[[], Any]:
    def make() -> Any:
        layer, head = kind(5, 7, num_layers=2, **settings), nn.Linear(7, 3)
        x, y = weft.randn(4, 3, 5), weft.randint(0, 3, (3,))
        return [layer, head], lambda: F.cross_entropy(head(layer(x)[0][-1][:, :7]), y)

    return make


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (p.view(shape).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def gpt(width: int = 8, heads: int = 2, length: int = 6) -> Any:
    tokens, places = nn.Embedding(11, width), nn.Embedding(length, width)
    block, norm = Attention(width, heads), nn.LayerNorm(width)
    head = nn.Linear(width, 11, bias=False)
    text = weft.randint(0, 11, (3, length + 1))

    def measure() -> Any:
        x = tokens(text[:, :-1]) + places(weft.arange(length))
        return F.cross_entropy(head(norm(block(x))).view(-1, 11), text[:, 1:].reshape(-1))

    return [tokens, places, block, norm, head], measure


def masked_attention() -> Any:
    """Attention in single ops: scores, a mask, softmax; and an RMS norm."""
    query, norm = nn.Linear(6, 18), nn.RMSNorm(6)
    x, mask = weft.randn(2, 5, 6), weft.ones(5, 5).tril().bool()

    def measure() -> Any:
        q, k, v = query(norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(1, 2) / 6**0.5).masked_fill(~mask, -1e9)
        return F.mse_loss(scores.softmax(-1) @ v, x)

    return [query, norm], measure


def dqn() -> Any:
    net = lambda: nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    policy, target = net(), net()
    state, following = weft.randn(9, 4), weft.randn(9, 4)
    action, reward, more = weft.randint(0, 2, (9, 1)), weft.randn(9), weft.ones(9)

    def measure() -> Any:
        value = policy(state).gather(1, action).squeeze(1)
        with weft.no_grad():
            wanted = reward + 0.99 * more * target(following).max(1).values
        return F.smooth_l1_loss(value, wanted)

    return [policy], measure


def dcgan() -> Any:
    makes = nn.Sequential(
        *(nn.ConvTranspose2d(5, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True)),
        *(nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh()),
    )
    judges = nn.Sequential(
        *(nn.Conv2d(3, 6, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)),
        *(nn.Conv2d(6, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten(0)),
    )
    noise, real, yes, no = (
        weft.randn(3, 5, 1, 1),
        weft.randn(3, 3, 8, 8),
        weft.ones(3),
        weft.zeros(3),
    )

    def measure() -> Any:
        fake = makes(noise)
        each = ((judges(real), yes), (judges(fake.detach()), no), (judges(fake), yes))
        return sum(F.binary_cross_entropy(a, b) for a, b in each)

    return [makes, judges], measure


def losses() -> Any:
    model = nn.Linear(6, 4)
    x, y, classes = weft.randn(5, 6), weft.rand(5, 4), weft.tensor([0, 3, 1, 2, 3])

    def measure() -> Any:
        out = model(x)
        found = F.binary_cross_entropy_with_logits(out, y) + F.l1_loss(out, y)
        found = found + F.huber_loss(out, y) + F.cross_entropy(out, classes, label_smoothing=0.1)
        found = found + F.kl_div(out.log_softmax(1), y, reduction="batchmean")
        return found + F.nll_loss(out.log_softmax(1), classes, reduction="sum")

    return [model], measure


def activations() -> Any:
    model = nn.Linear(6, 8)
    x = weft.randn(5, 6)
    functions = [F.silu, F.elu, F.softplus, F.mish, F.hardtanh, F.gelu, weft.sigmoid, F.relu6]

    def measure() -> Any:
        out = model(x)
        parts = [f(out) for f in functions] + [weft.exp(out), weft.sin(out), (out * out + 1).log()]
        parts += [out.abs().sqrt(), weft.clamp(out, -1, 1), out.pow(3), out / 3 - 1, 2 / (out + 9)]
        return weft.stack(parts).mean() + weft.cat(parts, 1).var() + out.std(0).sum()

    return [model], measure


STEPS: dict[str, Callable[[], Any]] = {
    **{f.__name__: f for f in (mlp, cnn, resnet, wide_convolutions, gpt, masked_attention)},
    **{f.__name__: f for f in (dqn, dcgan, losses, activations)},
    "gpt_large": lambda: gpt(64, 4, 40),
    "lstm": recurrent(nn.LSTM),
    "lstm_both_ways": recurrent(nn.LSTM, bidirectional=True),
    "lstm_without_bias": recurrent(nn.LSTM, bias=False, batch_first=True),
    "gru": recurrent(nn.GRU),
    "rnn": recurrent(nn.RNN),
    "rnn_relu": recurrent(nn.RNN, nonlinearity="relu"),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: weft.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: weft.optim.Adam(p, 0.01),
    "adamw": lambda p: weft.optim.AdamW(p, 0.01),
}


class Planned(run.Execution):
    """A run of a graph that does what each node does a second time, as a job."""

    def __init__(self, graph: Any) -> None:
        super().__init__(graph, {}, reuse=False)
        self.faults: list[str] = []
        self.planned = 0

    def check(self, name: str, make: Callable[[], contract.Job], given: Any, want: Any) -> None:
        try:
            job = make()
        except contract.Unplannable as error:
            self.faults.append(f"{name}: {error}")
            return
        found = job(*(x for x in given if isinstance(x, np.ndarray)))
        assert found is not None, f"{name}: a flag of the job is set"
        many = found if isinstance(found, tuple) else (found,)
        wanted = want if isinstance(want, (tuple, list)) else (want,)
        for k, (a, b) in enumerate(zip(many, wanted, strict=True)):
            assert (a is None) == (b is None), (name, k)
            if a is None:
                continue
            assert a.shape == b.shape and a.dtype == b.dtype, (name, k, a.dtype, b.dtype)
            assert not a.size or a.strides == b.strides or 1 in a.shape or 0 in b.strides, (
                *(name, k, a.shape, a.strides, b.strides),
            )
            size = np.abs(b).max(initial=1e-2) if b.dtype.kind == "f" else 0
            np.testing.assert_allclose(a, b, 1e-4, 1e-5 * size, err_msg=f"{name} [{k}]")
        self.planned += 1

    def _compute(self, spec: Any) -> Any:
        out = super()._compute(spec)
        if isinstance(spec.op, Op) and spec.kind == FORWARD:
            args = [
                self.values[x.node][x.index] if x.__class__ is run.Ref else x for x in spec.args
            ]
            args = [x._a if isinstance(x, Tensor) else x for x in args]
            make = lambda: planning.op_job(spec.op, args, spec.attrs)
            self.check(spec.op.name, make, args, [x._a for x in out])
        elif isinstance(spec.op, Step):
            self.step(spec, out)
        elif spec.op == ACCUMULATE:
            terms = [self.values[x.node][x.index] for x in spec.args if x.__class__ is run.Ref]
            arrays = [x._a for x in terms if isinstance(x, Tensor)]
            if arrays and len(arrays) == len(spec.args):
                make = lambda: planning.job(lambda *t: added(t).copy(), arrays)
                self.check("AccumulateGrad", make, arrays, out[0]._a)
        return out

    def step(self, spec: Any, out: Any) -> None:
        p, g, *rest = [self.values[x.node][x.index]._a for x in spec.args]
        rule, group = spec.op.rule, spec.op.group
        counters = rest[len(rest) - len(rule._scalars) :]
        states = rest[: len(rest) - len(counters)]
        count = counters[0].item() + 1 if counters else False
        flags, c = rule.__new__(rule)._coefficients(group, count, tuple(counters))
        c = np.array(c, p.dtype)
        make = lambda: planning.job(
            lambda c, *a: updates.updated(
                rule.rule, flags, planning.bare(c), tuple(map(planning.bare, a))
            ),
            (c, p, g, *states),
        )
        self.check(spec.op.name, make, (c, p, g, *states), [x._a for x in out[: len(states) + 1]])


@pytest.mark.parametrize("name", STEPS)
def test_double_precision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weft.set_default_dtype(weft.float64)
    try:
        take_step(name, "adam", monkeypatch)
    finally:
        weft.set_default_dtype(weft.float32)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_step(name, optimizer, monkeypatch)


def take_step(name: str, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record a step and check every node of it."""
    weft.manual_seed(0)
    modules, measure = STEPS[name]()
    descent = OPTIMIZERS[optimizer]([p for m in modules for p in m.parameters()])

    def step() -> Any:
        descent.zero_grad()
        loss = measure()
        loss.backward()
        descent.step()
        return loss

    step()
    with weft.graph.record() as graph:
        loss = step()
    assert loss is not None
    work = Planned(graph)

    def moved(gradient: Any, g: Any, saved: Any, attrs: Any, kinds: Any, arrived: Any) -> Any:
        plan = gradient.plan
        needs = tuple(i in gradient.targets for i in range(len(kinds))) if plan.joint else None
        found = true_moved(gradient, g, saved, attrs, kinds, arrived)
        targets = [kinds[i] if i in gradient.targets else None for i in plan.targets]
        whole: list[Any] = [None] * len(plan.targets)
        for i, x in zip(gradient.targets, found, strict=True):
            whole[plan.targets.index(i)] = x
        make = lambda: planning.gradient_job(plan, g, saved, attrs, needs, targets)
        flat = [*(g if isinstance(g, tuple) else (g,))]
        for s in saved:
            flat += s if isinstance(s, tuple) else (s,)
        work.check(gradient.name, make, flat, whole)
        return found

    true_moved = run.moved
    monkeypatch.setattr(run, "moved", moved)
    with weft.no_grad():
        updates_ = list(graph._updates.values())
        work.run([*graph._outputs, *updates_])
    assert not work.faults, "\n".join(sorted(set(work.faults)))
    assert work.planned > 5


def test_results_over_inputs() -> None:
    """What a job says may share memory gives the same when it does."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((5, 7)).astype("f4") for _ in range(2))
    checked = 0
    for name in ("add", "mul", "maximum", "sub"):
        op = planning.REGISTRY[name]
        job = planning.op_job(op, (a, b), {})
        for output, source in job.aliases:
            arrays = [a.copy(), b.copy()]
            pointers = [jit.pointer(x) for x in arrays]
            place = job.outputs[output].place
            pointers += [pointers[source], 0]
            assert place.buffer == 2 and job.results == (a.nbytes,) and not job.scratch
            assert job.run(pointers)
            np.testing.assert_array_equal(arrays[source], op.reference(a, b))
            checked += 1
    assert checked == 8


def test_views_are_no_memory() -> None:
    """A view is a place in its input, and costs no call."""
    x = np.arange(24, dtype="f4").reshape(4, 6)
    job = planning.op_job(
        planning.REGISTRY["slice"], (x,), {"index": (slice(1, 3), slice(0, 6, 2))}
    )
    assert not job.calls and not job.results
    np.testing.assert_array_equal(job(x), x[1:3, 0:6:2])


def test_plans_read_no_values() -> None:
    """What branches on a value can't be planned, and checks of values become flags."""
    x = np.array([0.5, 0.25], "f4")
    with pytest.raises(contract.Unplannable):
        planning.job(lambda a: a if a[0] > 0 else -a, (x,))
    with pytest.raises(contract.Unplannable):
        planning.job(lambda a: a * float(a[0]), (x,))
    with pytest.raises(contract.Unplannable):
        planning.job(lambda a: a * np.array(a), (x,))

    def loss(a: Any, b: Any) -> Any:
        return planning.forward(planning.REGISTRY["binary_cross_entropy"], (a, b), {})

    job = planning.job(loss, (x, x))
    assert job(x, x) is not None
    assert job(x + 1, x) is None


def test_plans_in_threads() -> None:
    """Threads plan at the same time, while others compute, and nobody takes another's calls."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((64, 64)).astype("f4") for _ in range(2))
    bias = rng.standard_normal(64).astype("f4")
    ops = ["add", "mul", "mm", "tanh", "softmax", "linear_with_bias"]
    given = {"tanh": ((x,), {}), "softmax": ((x,), {"dim": 1})}
    given["linear_with_bias"] = ((x, w, bias), {})
    given = {name: given.get(name, ((x, w), {})) for name in ops}
    want = {n: planning.op_job(planning.REGISTRY[n], *g)(*g[0]) for n, g in given.items()}
    eager = {n: planning.REGISTRY[n].compute(*g) for n, g in given.items()}
    faults: list[Any] = []

    def work(seed: int, plans: bool) -> None:
        order = np.random.default_rng(seed).permutation(ops * 30)
        try:
            for name in map(str, order):
                args, attrs = given[name]
                if plans:
                    found = planning.op_job(planning.REGISTRY[name], args, attrs)(*args)
                else:
                    found = planning.REGISTRY[name].compute(args, attrs)
                np.testing.assert_array_equal(found, (want if plans else eager)[name])
        except BaseException as error:
            faults.append(error)

    workers = [threading.Thread(target=work, args=(k, k % 2 == 0)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not faults, faults[0]
