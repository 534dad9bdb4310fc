"""A recorded training step is a graph that trains: replayed, edited, saved, and checked."""

from __future__ import annotations

import copy
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft.graph import GraphError
from weft.graph.gradient import ACCUMULATE, Gradient
from weft.graph.spec import Ref
from weft.graph.verify import verify


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 16, 2, batch_first=True, dropout=0.2)
        self.out = nn.Linear(16, 5)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, 2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.project(y.transpose(1, 2).contiguous().view(batch, length, width)))
        return x + self.drop(self.narrow(F.gelu(self.wide(self.norm2(x)))))


class GPT(nn.Module):
    def __init__(self, words=30, width=32, context=16):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight  # tied

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x) + self.place(x.new_tensor(PLACES)))))


PLACES = list(range(16))


def mlp():
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))


def cnn():
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Dropout(0.3), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()),
        *(nn.Dropout(0.5), nn.Linear(32, 5)),
    )


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (mlp, (16, 20)),
    "cnn": (cnn, (8, 1, 8, 8)),
    "lstm": (Recurrent, (8, 7, 6)),
    "gpt": (GPT, (4, 16)),
}
OPTIMIZERS = {
    "sgd": lambda p: weft.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: weft.optim.Adam(p, lr=0.003, amsgrad=True),
    "adamw": lambda p: weft.optim.AdamW(p, lr=0.003),
}


def batch(name, number):
    rng = np.random.default_rng(number)
    shape = MODELS[name][1]
    if name == "gpt":
        return weft.tensor(rng.integers(0, 30, shape)), weft.tensor(rng.integers(0, 30, shape))
    x = weft.tensor(rng.normal(size=shape).astype(np.float32))
    return x, weft.tensor(rng.integers(0, 5, shape[:1]))


def one_step(net, optimizer, x, y, clip=True):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x).flatten(0, -2), y.flatten())
    loss.backward()
    if clip:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return loss


def begin(name, optimizer):
    weft.manual_seed(0)
    net = MODELS[name][0]()
    return net, OPTIMIZERS[optimizer](net.parameters())


def everything(net, optimizer):
    state = [t for own in optimizer.state.values() for t in own.values()]
    tensors = [*net.state_dict().values(), *(p.grad for p in net.parameters()), *state]
    return [t.detach().numpy().copy() for t in tensors]


def train(name, optimizer, steps, replayed):
    net, opt = begin(name, optimizer)
    schedule = weft.optim.lr_scheduler.CosineAnnealingLR(opt, 30)
    losses, g = [], None
    for k in range(steps):
        x, y = batch(name, k)
        if g is not None:
            loss = g.run(x=x, y=y, update=True)
        elif replayed and k:
            with weft.graph.record() as g:
                loss = one_step(net, opt, x, y)
        else:
            loss = one_step(net, opt, x, y)
        losses.append(loss.item())
        schedule.step()
    return losses, everything(net, opt)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_replayed_training_has_the_bits_of_the_program(name, optimizer):
    steps = 52 if (name, optimizer) in (("cnn", "adamw"), ("gpt", "adam")) else 12
    mine, theirs = (train(name, optimizer, steps, replayed) for replayed in (True, False))
    assert mine[0] == theirs[0]
    assert all(map(np.array_equal, mine[1], theirs[1]))


@pytest.mark.parametrize("kind", sorted(set(weft.optim.Adam.__mro__[1].__subclasses__()), key=str))
def test_every_rule_runs_in_a_graph(kind):
    def once(replayed):
        weft.manual_seed(1)
        net = mlp()
        optimizer = kind(net.parameters())
        g = None
        for k in range(5):
            x, y = batch("mlp", k)
            if g is not None:
                g.run(x=x, y=y, update=True)
            elif replayed:
                with weft.graph.record() as g:
                    one_step(net, optimizer, x, y, clip=False)
            else:
                one_step(net, optimizer, x, y, clip=False)
        return everything(net, optimizer)

    assert all(map(np.array_equal, once(True), once(False)))


def test_run_draws_the_recorded_numbers_and_update_fresh_ones():
    x = weft.ones(1000)
    weft.manual_seed(3)
    with weft.graph.record() as g:
        y = F.dropout(x, 0.5)
    assert [n.op for n in g] == ["bernoulli", "input", "dropout"]
    state = weft.get_rng_state()
    assert weft.equal(g.run(), y) and weft.equal(g.run(), y)
    assert weft.equal(weft.get_rng_state(), state)
    fresh = g.run(update=True)
    weft.set_rng_state(state)
    assert weft.equal(fresh, F.dropout(x, 0.5)) and not weft.equal(fresh, y)


def test_draws_of_every_sort_are_repeated():
    def program():
        a = weft.randn(6) + weft.rand(6) + weft.randint(0, 9, (6,)) + weft.randperm(6)
        b = weft.empty(6).normal_(1.0, 2.0) + weft.empty(6).uniform_(2.0, 3.0)
        c = weft.bernoulli(weft.full((6,), 0.4)) + weft.poisson(weft.full((6,), 3.0))
        return a + b + c + weft.multinomial(weft.ones(6), 6) + weft.empty(6).exponential_()

    weft.manual_seed(5)
    with weft.graph.record() as g:
        first = program()
    assert weft.equal(g.run(), first)
    state = weft.get_rng_state()
    second = g.run(update=True)
    weft.set_rng_state(state)
    assert weft.equal(second, program())


def test_numbers_that_were_changed_outside_of_ops_are_not_taken_for_fresh():
    x = weft.randn(4, 6)  # a slope is drawn for each negative element
    with weft.graph.record() as g:
        y = F.rrelu(x, training=True)
    assert weft.equal(g.run(), y)
    with pytest.raises(GraphError, match="drawn and changed outside of ops"):
        g.run(update=True)


def test_gradients_accumulate_from_before_the_block_and_into_it():
    net, x = nn.Linear(3, 2), weft.randn(4, 3)
    net(x).sum().backward()
    with weft.graph.record() as g:
        net(x).square().sum().backward()
    twin = nn.Linear(3, 2)
    twin.load_state_dict(net.state_dict())
    twin(x).sum().backward()
    for _ in range(2):
        twin(x).square().sum().backward()
    g.run(update=True)
    assert weft.equal(net.weight.grad, twin.weight.grad)
    net.zero_grad()
    g.run(update=True)
    twin.zero_grad()
    twin(x).square().sum().backward()
    assert weft.equal(net.weight.grad, twin.weight.grad)


def test_a_failing_step_changes_nothing():
    net, optimizer = begin("mlp", "adam")
    x, y = batch("mlp", 0)
    with weft.graph.record() as g:
        one_step(net, optimizer, x, y)
    before = everything(net, optimizer)
    with pytest.raises(IndexError):
        g.run(x=x, y=y + 100, update=True)
    assert all(map(np.array_equal, before, everything(net, optimizer)))


def test_hooks_and_custom_functions_take_part():
    class Double(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    def step(w, x, optimizer):
        optimizer.zero_grad()
        h = x @ w
        h.register_hook(lambda g: g * 0.5)
        Double.apply(h).sum().backward()
        optimizer.step()

    def run(replayed):
        weft.manual_seed(2)
        w, x = weft.randn(3, 2).requires_grad_(), weft.randn(4, 3)
        optimizer = weft.optim.SGD([w], lr=0.01)
        g = None
        for _ in range(4):
            if g is not None:
                g.run(update=True)
            elif replayed:
                with weft.graph.record() as g:
                    step(w, x, optimizer)
            else:
                step(w, x, optimizer)
        return w.detach().numpy()

    assert np.array_equal(run(True), run(False))


def test_an_edited_step_trains_on():
    net, optimizer = begin("mlp", "adam")
    x, y = batch("mlp", 0)
    with weft.graph.record() as g:
        one_step(net, optimizer, x, y)
    twin, its = begin("mlp", "adam")
    one_step(twin, its, x, y)
    twin[1] = nn.GELU()
    edited = g.replace("1.relu", F.gelu)
    for k in range(1, 6):
        x, y = batch("mlp", k)
        assert edited.run(x=x, y=y, update=True).item() == one_step(twin, its, x, y).item()
    assert all(map(np.array_equal, everything(net, optimizer), everything(twin, its)))
    verify(edited)


def test_a_parameter_that_an_edit_cuts_off_is_left_alone():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = weft.optim.Adam(net.parameters(), lr=0.1)
    x = weft.randn(3, 4)
    with weft.graph.record() as g:
        net(x).square().sum().backward()
        optimizer.step()
    before = net[0].weight.detach().clone()
    state = optimizer.state[net[0].weight]["step"].clone()
    g.remove("0.linear").run(update=True)
    assert weft.equal(net[0].weight, before)
    assert weft.equal(optimizer.state[net[0].weight]["step"], state)
    assert optimizer.state[net[1].weight]["step"].item() == 2


def test_a_saved_step_trains_on_in_another_process(tmp_path):
    net, optimizer = begin("cnn", "adamw")
    x, y = batch("cnn", 0)
    with weft.graph.record() as g:
        one_step(net, optimizer, x, y)
    g.save(tmp_path / "step.weft")
    code = """
import sys
import weft
g = weft.graph.load(sys.argv[1])
weft.manual_seed(7)
for _ in range(3):
    loss = g.run(update=True)
g.save(sys.argv[1])
print(loss.item().hex())
"""
    made = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "step.weft")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    weft.manual_seed(7)
    for _ in range(3):
        loss = g.run(update=True)
    assert made.stdout.strip() == loss.item().hex()
    there = weft.graph.load(tmp_path / "step.weft")
    for name, p in net.named_parameters():
        assert weft.equal(there[name].value, p)


def test_backward_and_optimizer_nodes_open_into_ops():
    g = recorded()
    opened = 0
    for node in [*g.find(kind="backward"), *g.find(kind="optimizer")]:
        if node.op == ACCUMULATE:
            continue
        inside = node.ops
        values = [n.value for n in node.inputs if isinstance(n, weft.graph.Node)]
        several = [x.index for x in node.spec.args if x.__class__ is Ref]
        values = [v[k] if isinstance(v, tuple) else v for v, k in zip(values, several, strict=True)]
        if node.op == "Adam":
            continue  # whose coefficients follow the step
        given = {n.name: v for n, v in zip(inside.inputs, dict.fromkeys(values), strict=False)}
        found = inside.run(given)
        wanted = node.value
        pair = [x if isinstance(x, tuple) else (x,) for x in (found, wanted)]
        for a, b in zip(*pair, strict=True):
            assert weft.allclose(a, b, atol=1e-6)
        opened += 1
    assert opened == 5
    assert {n.op for n in g["0.weight.adam"].ops} >= {"sqrt", "div", "mul", "sub"}
    with pytest.raises(GraphError, match="is one op"):
        g["1.relu"].ops  # noqa: B018


# --- the verifier ------------------------------------------------------------------------


def recorded():
    net, optimizer = begin("mlp", "adam")
    x, y = batch("mlp", 0)
    with weft.graph.record() as g:
        one_step(net, optimizer, x, y)
    return g


def _break(graph, rng):
    """Change one thing that no valid graph has so; what was done, or None if it did not apply."""
    specs = graph._specs
    spec = specs[rng.choice(list(specs))]
    refs = [k for k, x in enumerate(spec.args) if x.__class__ is Ref]
    what = rng.choice(("later", "index", "shape", "several", "drop", "swap", "gone", "forward"))
    args = list(spec.args)
    if what == "later" and refs:
        args[rng.choice(refs)] = Ref(max(specs))
        changed = spec.but(args=tuple(args))
        return (what, changed) if spec.id != max(specs) else None
    if what == "index" and refs:
        k = rng.choice(refs)
        args[k] = Ref(args[k].node, 99)
        return what, spec.but(args=tuple(args))
    if what == "gone" and refs:
        args[rng.choice(refs)] = Ref(10**6)
        return what, spec.but(args=tuple(args))
    if what == "shape" and not spec.several:
        return what, spec.but(shape=(*spec.shape, 7))
    if what == "several" and not spec.several and spec.kind != "optimizer":
        return what, spec.but(shape=(spec.shape, spec.shape), dtype=(spec.dtype, spec.dtype))
    if what == "drop" and isinstance(spec.op, Gradient) and len(args) > 1:
        return what, spec.but(args=spec.args[:-1])
    if what == "swap" and spec.op == ACCUMULATE:
        wrong = [s for s in specs.values() if s.id < spec.id and s.kinds()[0] != spec.kinds()[0]]
        return what, spec.but(args=(Ref(rng.choice(wrong).id),))
    if what == "forward" and isinstance(spec.op, Gradient):
        other = [s.id for s in specs.values() if s.op is not spec.op.op and s.id < spec.id]
        return what, spec.but(forward=rng.choice(other))
    return None


def test_the_verifier_rejects_what_is_broken():
    graph, rng = recorded(), random.Random(0)
    verify(graph)
    tried: dict[str, int] = {}
    while sum(tried.values()) < 400:
        found = _break(graph, rng)
        if found is None:
            continue
        what, spec = found
        old, graph._specs[spec.id] = graph._specs[spec.id], spec
        with pytest.raises(GraphError):
            verify(graph)
        graph._specs[spec.id] = old
        tried[what] = tried.get(what, 0) + 1
    verify(graph)
    assert len(tried) == 8


def test_a_gradient_that_nobody_asked_for_is_not_computed_in_a_replay_either() -> None:
    a, b = (weft.tensor(x, requires_grad=True) for x in ([0.7, 0.9], [0.5, 1.2]))
    with weft.graph.record() as graph:
        # There is no derivative by the first input.
        (g,) = weft.autograd.grad(weft.igammac(a * 1, b * 2).sum(), [b])
    assert graph.run().tolist() == g.tolist()
    assert "igamma" not in " ".join(n.op for n in graph["igammac.backward"].ops)


def test_a_repeated_step_goes_on_from_a_state_that_was_loaded():
    weft.manual_seed(0)
    net, x = nn.Linear(3, 2), weft.randn(5, 3)
    optimizer = weft.optim.AdamW(net.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with weft.graph.record() as g:
        step()
    start = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    start[1]["param_groups"][0]["lr"] = 0.02
    results = []
    for repeat in (step, lambda: g.run(update=True)):
        net.load_state_dict(start[0])
        optimizer.load_state_dict(copy.deepcopy(start[1]))
        results.append([repeat().item() for _ in range(4)])
    assert results[0] == results[1]


def test_a_state_that_was_thrown_away_is_said_to_be_gone():
    net, x = nn.Linear(3, 2), weft.randn(5, 3)
    optimizer = weft.optim.Adam(net.parameters())
    with weft.graph.record() as g:
        net(x).sum().backward()
        optimizer.step()
    optimizer.state.clear()
    with pytest.raises(GraphError, match=r"exp_avg.* is gone"):
        g.run(update=True)
