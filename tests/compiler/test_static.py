"""Steps that run without Python: what is guarded, what is read each time, what is refused."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import OrderedDict, deque
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.nn import functional as F


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def trainer(optimizer=torch.optim.Adam, norm=False, **settings):
    """A model with its optimizer, and a step on given data."""
    torch.manual_seed(0)
    # Without a bias before the norm: it would have no gradient but rounding, which Adam scales up.
    layers = [
        nn.Linear(4, 8, bias=not norm),
        *([nn.BatchNorm1d(8)] if norm else []),
        nn.Tanh(),
        nn.Linear(8, 2),
    ]
    model = nn.Sequential(*layers)
    rule = optimizer(model.parameters(), **settings)

    def step(x, y):
        rule.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        rule.step()
        return loss

    return model, rule, step


def batches(count, size=6):
    torch.manual_seed(1)
    return [(torch.randn(size, 4), torch.randn(size, 2)) for _ in range(count)]


def same_state(a, b):
    for (name, x), y in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.Adam, {"lr": 0.01}),
        (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True}),
    ],
)
def test_a_training_is_the_eager_one(optimizer, settings, norm):
    plain, _, eager = trainer(optimizer, norm, **settings)
    model, _, step = trainer(optimizer, norm, **settings)
    static = torch.compile(step, static=True)
    for x, y in batches(8):
        close(static(x, y), eager(x, y).detach())
        for p, q in zip(plain.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-6)
    same_state(model, plain)
    assert len(static.steps) == 1 and not static.refused


def test_settings_of_optimizers_are_read_in_every_step():
    plain, rule, eager = trainer(torch.optim.SGD, lr=0.1)
    model, other, step = trainer(torch.optim.SGD, lr=0.1)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(r, 0.5) for r in (rule, other)]
    static = torch.compile(step, static=True)
    for x, y in batches(6):
        eager(x, y), static(x, y)
        for schedule in schedules:
            schedule.step()
    same_state(model, plain)


def test_what_is_guarded_is_noticed():
    plain, rule, eager = trainer(norm=True)
    model, other, step = trainer(norm=True)
    static = torch.compile(step, static=True)
    data = iter(batches(60))

    def run(count=4):
        for _ in range(count):
            x, y = next(data)
            close(static(x, y), eager(x, y).detach())
        same_state(model, plain)

    run()
    for m in (plain, model):
        m.eval()
    run()
    for m in (plain, model):
        m.train()
        m.load_state_dict({k: v + 0.1 for k, v in m.state_dict().items()})
    run()
    for r in (rule, other):
        r.load_state_dict(r.state_dict())
    run()
    for m in (plain, model):
        torch.manual_seed(3)
        m[0].weight.data = torch.randn(8, 4)
    run()
    for m in (plain, model):
        m[0].weight.requires_grad_(False)
    run()


def test_other_shapes_have_programs_of_their_own():
    plain, _, eager = trainer()
    model, _, step = trainer()
    static = torch.compile(step, static=True)
    for k in range(12):
        ((x, y),) = batches(1, 3 + k % 3)
        close(static(x, y), eager(x, y).detach())
    same_state(model, plain)
    assert len(static.steps) == 3


def test_dropout_draws_from_the_live_stream():
    model = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5))
    x = torch.ones(2, 4)
    with torch.no_grad():
        static = torch.compile(lambda x: model(x), static=True)
        for k in range(6):
            torch.manual_seed(k)
            expected = model(x)
            torch.manual_seed(k)
            close(static(x), expected)


def test_a_training_with_dropout_has_the_numbers_of_eager_mode():
    def run(compile):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 3))
        optimizer = torch.optim.Adam(model.parameters())

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        step = compile(step)
        losses = [step(torch.randn(8, 6), torch.randint(3, (8,))).item() for _ in range(6)]
        return losses, torch.rand(3).tolist()

    losses, drawn = run(lambda step: step)
    static_losses, static_drawn = run(lambda step: torch.compile(step, static=True))
    assert static_drawn == drawn, "making a program has moved the generator"
    assert static_losses == pytest.approx(losses, rel=1e-6)


def test_hooks_and_recorders_go_to_python():
    model, _, step = trainer()
    static = torch.compile(step, static=True)
    data = batches(8)
    for x, y in data[:4]:
        static(x, y)
    seen = []
    model[0].weight.register_hook(lambda g: seen.append(1))
    for x, y in data[4:]:
        static(x, y)
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x.view(-1), "a view"),
        (lambda x: x.add_(1), "argument"),
        (lambda x: (x.requires_grad_() * 2).exp(), "grad_fn"),
    ],
)
def test_what_is_refused_runs_eagerly(function, why):
    static = torch.compile(function, static=True)
    for _ in range(4):
        x = torch.ones(2, 3)
        expected = function(torch.ones(2, 3))
        close(static(x).detach(), expected.detach())
    assert any(why in reason for reason in static.refused), static.refused


def test_explain_names_what_is_taken_for_granted():
    _, _, step = trainer()
    static = torch.compile(step, static=True)
    for x, y in batches(4):
        static(x, y)
    assert "assumed: " in static.explain() and "guarded" in static.explain()


def _data(seed):
    torch.manual_seed(seed)
    return {
        "x": torch.randn(6, 4),
        "p": torch.rand(6, 4),
        "labels": torch.randint(0, 4, (6, 4)),
        "counts": torch.randint(1, 4, (6,)),
        "place": torch.randint(0, 4, ()),
        "padding": torch.arange(6)[None] >= torch.randint(2, 6, (1, 1)),
    }


LAYER = nn.MultiheadAttention(4, 2, batch_first=True).requires_grad_(False)


def _attended(w, d):
    x = (w * d["x"])[None]
    y, _ = LAYER(x, x, x, key_padding_mask=d["padding"], need_weights=False)
    return y.tanh().sum()


VALUES = {
    "bernoulli": lambda w, d: (w * torch.bernoulli(d["p"])).sum(),
    "bernoulli_": lambda w, d: (w * torch.empty(6, 4).bernoulli_(d["p"])).sum(),
    "binomial": lambda w, d: (w * torch.binomial(torch.full((6, 4), 9.0), d["p"])).sum(),
    "normal": lambda w, d: (w * torch.normal(d["x"], d["p"])).sum(),
    "poisson": lambda w, d: (w * torch.poisson(d["p"])).sum(),
    "multinomial": lambda w, d: w[:, torch.multinomial(d["p"], 2)[0]].sum(),
    "gamma": lambda w, d: (w * torch.distributions.Gamma(d["p"], 1.0).sample()).sum(),
    "dirichlet": lambda w, d: (w * torch.distributions.Dirichlet(d["p"]).sample()).sum(),
    "ctc": lambda w, d: F.ctc_loss(
        (w * d["x"]).reshape(6, 1, 4).log_softmax(2), torch.tensor([[1, 2]]),
        d["counts"][:1] + 3, torch.tensor([2]), zero_infinity=True,
    ),
    "labels": lambda w, d: F.multilabel_margin_loss(w * d["x"], d["labels"]),
    "repeats": lambda w, d: w.repeat_interleave(d["counts"], 0).pow(2).sum(),
    "index": lambda w, d: w[d["place"]].pow(2).sum(),
    "select": lambda w, d: w.select(0, d["place"] + 1).pow(2).sum(),
    "narrow": lambda w, d: w.narrow(0, d["place"], 2).pow(2).sum(),
    "split": lambda w, d: torch.tensor_split(w, d["counts"][:1])[0].pow(2).sum(),
    "padding": _attended,
}  # fmt: skip


NAMES = ("x", "p", "labels", "counts", "place", "padding")


def _stepper(loss_of):
    torch.manual_seed(0)
    w = torch.randn(6, 4).requires_grad_()
    rule = torch.optim.SGD([w], lr=0.01)

    def step(*given):
        rule.zero_grad()
        loss = loss_of(w, dict(zip(NAMES, given, strict=True)))
        loss.backward()
        rule.step()
        return loss.detach()

    return step


@pytest.mark.parametrize("name", VALUES)
def test_values_of_arguments_are_read_in_every_call(name):
    """Also where an op reads them in Python, and what it makes of them is a constant."""
    eager = _stepper(VALUES[name])
    static = torch.compile(_stepper(VALUES[name]), static=True)
    for seed in range(8):
        losses = []
        for run in (eager, static):
            data = _data(seed)
            torch.manual_seed(seed)
            losses.append(run(*(data[name] for name in NAMES)))
        close(*losses)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Boxed:
    value: Any


RESULTS: dict[str, Any] = {
    "a class of the program": lambda x: Boxed(x * 2),
    "a deque": lambda x: deque([x * 2]),
    "an ordered dict": lambda x: OrderedDict(a=x * 2),
    "an array": lambda x: (x * 2).numpy(),
    "numbers": lambda x: (x * 2).tolist(),
    "a number": lambda x: (x * 2, x.sum().item()),
    "a function": lambda x: (x * 2).tolist,
    "a named tuple": lambda x: Pair(x * 2, [x.shape, x.dtype, 3, None, {"a": x + 1}]),
}


def opened(value: Any) -> Any:
    """What can be compared of a result."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.tolist()
    if isinstance(value, Boxed):
        return type(value), opened(value.value)
    if isinstance(value, dict):
        return type(value), {k: opened(v) for k, v in value.items()}
    if isinstance(value, (tuple, list, deque)):
        return type(value), [opened(v) for v in value]
    return value() if callable(value) and not isinstance(value, torch.dtype) else value


@pytest.mark.parametrize("what", RESULTS)
def test_results_of_all_kinds_are_those_of_the_call(what: str) -> None:
    function = RESULTS[what]
    step = torch.compile(function, static=True)
    for k in range(5):
        x = torch.full((2,), float(k))
        assert opened(step(x)) == opened(function(x))
    assert bool(step.steps) == (what == "a named tuple")


def test_results_share_memory_as_they_do_eagerly() -> None:
    @functools.partial(torch.compile, static=True)
    def twice(x: Any) -> Any:
        y = x * 2
        return y, [y]

    @functools.partial(torch.compile, static=True)
    def detached(x: Any) -> Any:
        y = x * 2
        return y, y.detach()

    for k in range(5):
        a, (b,) = twice(torch.full((2,), float(k)))
        assert a is b and a.tolist() == [2 * k] * 2
        a, b = detached(torch.full((2,), float(k)))
        a.add_(1)
        assert b.tolist() == [2 * k + 1] * 2
    assert twice.steps and not detached.steps


def test_numbers_are_known_by_value_and_sign() -> None:
    step = torch.compile(lambda x, by: x / by, static=True)
    found = [step(torch.ones(1), by).item() for by in (0.0, 0.0, 0.0, -0.0, -0.0, -0.0, 0.0)]
    assert found == [math.inf] * 3 + [-math.inf] * 3 + [math.inf]


def put_back(x: Any) -> Any:
    state = torch.get_rng_state()
    noise = torch.rand(3)
    torch.set_rng_state(state)
    return x + noise, torch.rand(3)


def forked(x: Any) -> Any:
    with torch.random.fork_rng():
        return x + torch.rand(3)


SEEDED: dict[str, Any] = {
    "manual_seed": lambda x: (torch.manual_seed(3), x + torch.rand(3))[1],
    "a state that is put back": put_back,
    "fork_rng": forked,
    "a generator of the call's own": lambda x: x + torch.rand(3, generator=torch.Generator()),
    "a seeded generator": lambda x: x + torch.rand(3, generator=torch.Generator().manual_seed(2)),
}


@pytest.mark.parametrize("how", SEEDED)
def test_a_step_that_seeds_draws_what_it_draws_eagerly(how: str) -> None:
    found = []
    for step in (SEEDED[how], torch.compile(SEEDED[how], static=True)):
        torch.manual_seed(1)
        found.append([opened(step(torch.ones(3))) for _ in range(5)] + [torch.rand(2).tolist()])
    assert found[0] == found[1]


def own_gradient(x: Any) -> Any:
    leaf = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(leaf.pow(3).sum(), [leaf])
    return x * gradient


def own_optimizer(x: Any) -> Any:
    weight = x.clone().requires_grad_()
    rule = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    for _ in range(2):
        rule.zero_grad()
        (weight * x).sum().backward()
        rule.step()
    return weight.detach()


@pytest.mark.parametrize(
    "function",
    [
        own_gradient,
        own_optimizer,
        lambda x: x * torch.func.grad(lambda t: t.pow(3).sum())(x),
        lambda x: torch.from_numpy(x.numpy()) * 2,
    ],
)
def test_what_a_step_makes_of_its_arguments_is_not_taken_for_the_same(function: Any) -> None:
    step = torch.compile(function, static=True)
    for k in range(5):
        x = torch.arange(3.0) + k
        close(step(x), function(x))


def test_versions_count_every_write_of_a_step() -> None:
    layer, mean = nn.Linear(3, 2), nn.Linear(3, 2).requires_grad_(False)
    rule = torch.optim.SGD(layer.parameters(), 0.1)

    def step(x: Any) -> Any:
        rule.zero_grad()
        loss = layer(x).pow(2).mean()
        loss.backward()
        rule.step()
        with torch.no_grad():
            layer.weight.clamp_(-1, 1)
            for p, q in zip(mean.parameters(), layer.parameters(), strict=True):
                p.mul_(0.9).add_(q, alpha=0.1)
        return loss

    def versions() -> list[int]:
        return [t._version for t in (*layer.parameters(), *mean.parameters())]

    compiled = torch.compile(step, static=True)
    for _ in range(5):
        before = versions()
        compiled(torch.randn(4, 3))
        assert [now - then for now, then in zip(versions(), before, strict=True)] == [2, 1, 2, 2]
    assert "1 programs" in compiled.explain()


def test_a_scaler_that_looks_for_infinities_runs_eagerly() -> None:
    layer = nn.Linear(3, 2)
    rule = torch.optim.SGD(layer.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=100)

    def step(x: Any) -> None:
        rule.zero_grad()
        scaler.scale(layer(x).pow(2).mean()).backward()
        scaler.step(rule)
        scaler.update()

    compiled = torch.compile(step, static=True)
    for k in range(5):
        compiled(torch.full((2, 3), math.inf if k == 4 else 1.0))
    assert torch.isfinite(layer.weight).all() and scaler.get_scale() == 2.0
    assert "code reads values that change" in compiled.explain()


@pytest.mark.parametrize(
    "add",
    [
        lambda model: model.append(nn.ReLU()),
        lambda model: model.add_module("last", nn.ReLU()),
        lambda model: model[1].add_module("0", nn.ReLU()),
    ],
)
def test_modules_that_are_added_are_noticed(add: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Sequential())
    compiled = torch.compile(lambda x: model(x), static=True)
    with torch.no_grad():
        for k in range(8):
            if k == 4:
                add(model)
            x = torch.randn(5, 4)
            assert compiled(x).ge(0).all() == (k >= 4)
            close(compiled(x), model(x))


def clears_outside(step: Any, rule: Any, layers: Any, k: int) -> None:
    if k % 4 != 3:  # one of four batches adds to the gradients of the one before
        rule.zero_grad()
    step(layers[0])


def moves_one_layer_or_another(step: Any, rule: Any, layers: Any, k: int) -> None:
    step(layers[k // 3 % 2], rule)


def finds_a_gradient_of_its_own(step: Any, rule: Any, layers: Any, k: int) -> None:
    if k % 5 == 4:
        layers[1].weight.grad = torch.ones(3, 3)
    step(layers[0], rule if k % 2 else None)
    rule.zero_grad()


@pytest.mark.parametrize(
    "call", [clears_outside, moves_one_layer_or_another, finds_a_gradient_of_its_own]
)
def test_gradients_that_are_there_before_a_step_are_added_to_or_cleared(call: Any) -> None:
    def trained(static: bool) -> list[Any]:
        torch.manual_seed(0)
        layers = [nn.Linear(3, 3), nn.Linear(3, 3)]
        parameters = [p for layer in layers for p in layer.parameters()]
        rule = torch.optim.SGD(parameters, 0.1)

        def step(layer: Any, clears: Any = None) -> None:
            if clears is not None:
                clears.zero_grad()
            layer(data).pow(2).mean().backward()
            rule.step()

        data = torch.randn(4, 3)
        made = torch.compile(step, static=True) if static else step
        seen: list[Any] = []
        for k in range(24):
            call(made, rule, layers, k)
            seen += [(None if p.grad is None else p.grad.clone(), p.clone()) for p in parameters]
        if static:
            assert made.steps
        return seen

    for (grad, p), (known_grad, known) in zip(trained(True), trained(False), strict=True):
        close(p, known)
        assert (grad is None) == (known_grad is None)
        if grad is not None:
            close(grad, known_grad)


@pytest.mark.parametrize("clears", [False, True])
def test_gradients_of_leaves_that_no_module_has(clears: bool) -> None:
    leaf = torch.ones(3, requires_grad=True)

    def step(x: Any) -> None:
        if clears:
            leaf.grad = None
        (leaf * x).sum().backward()

    compiled = torch.compile(step, static=True)
    for k in range(10):
        if not clears and k != 6:
            leaf.grad = None
        compiled(torch.full((3,), float(k)))
        assert leaf.grad is not None
        assert leaf.grad.tolist() == [11.0 if k == 6 and not clears else k] * 3
    assert compiled.steps


def test_an_argument_that_gets_a_gradient_gets_it() -> None:
    compiled = torch.compile(lambda leaf, x: (leaf * x).sum().backward(), static=True)
    for k in range(5):
        leaf = torch.ones(3, requires_grad=True)
        compiled(leaf, torch.full((3,), float(k)))
        assert leaf.grad is not None and leaf.grad.tolist() == [k] * 3
    assert "an argument that receives a gradient" in compiled.explain()


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.hidden, self.calls = nn.RNNCell(3, 3), torch.zeros(2, 3), 0
        self.seen: list[Any] = []
        self.register_buffer("mean", torch.zeros(3))
        self.rule = torch.optim.SGD(self.cell.parameters(), 0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.rule, 5)


def keeps_hidden(m: Any, x: Any) -> None:
    m.hidden = m.cell(x, m.hidden.detach())


def counts(m: Any, x: Any) -> None:
    m.calls += 1


def averages(m: Any, x: Any) -> None:
    m.mean = 0.9 * m.mean + x.mean(0)


def appends(m: Any, x: Any) -> None:
    m.seen.append(x)


def schedules(m: Any, x: Any) -> None:
    m.scheduler.step()


def switches(m: Any, x: Any) -> None:
    m.train(not m.training)


def decays(m: Any, x: Any) -> None:
    m.rule.param_groups[0]["lr"] *= 0.9


@pytest.mark.parametrize(
    "change", [keeps_hidden, counts, averages, appends, schedules, switches, decays]
)
def test_a_step_that_changes_what_python_holds_runs_eagerly(change: Any) -> None:
    def trained(static: bool) -> tuple[Any, ...]:
        torch.manual_seed(0)
        model = Stateful()

        def step(x: Any) -> Any:
            model.rule.zero_grad()
            loss = model.cell(x, model.hidden.detach() + model.mean).pow(2).sum()
            loss.backward()
            model.rule.step()
            change(model, x)
            return loss

        made = torch.compile(step, static=True) if static else step
        losses = [made(torch.randn(2, 3)).item() for _ in range(8)]
        state = model.calls, len(model.seen), model.training, model.rule.param_groups[0]["lr"]
        return losses, state

    assert trained(True) == trained(False)


def test_a_step_that_counts_in_a_variable_runs_eagerly() -> None:
    number = 0

    def step(x: Any) -> Any:
        nonlocal number
        number += 1
        return x * number

    compiled = torch.compile(step, static=True)
    assert [compiled(torch.ones(1)).item() for _ in range(5)] == [1, 2, 3, 4, 5]


def test_a_pass_goes_on_behind_an_argument() -> None:
    below, above = nn.Linear(3, 3), nn.Linear(3, 2)
    compiled = torch.compile(lambda h: above(h).pow(2).sum().backward(), static=True)
    for _ in range(5):
        below.zero_grad()
        above.zero_grad()
        compiled(below(torch.ones(2, 3)))
        assert below.weight.grad is not None
    assert "continues into the graph" in compiled.explain()


@pytest.mark.parametrize("first", [0, 2])
def test_an_argument_that_shows_written_memory(first: int) -> None:
    def summed(static: bool) -> list[float]:
        kept = torch.ones(6, 3)

        def step(x: Any) -> Any:
            kept[:2] = x[:2] * 2
            return x.sum()

        made = torch.compile(step, static=True) if static else step
        given = [kept[first : first + 3] if k > 3 else torch.full((3, 3), k) for k in range(8)]
        return [made(x.float()).item() for x in given]

    assert summed(True) == summed(False)


def lengths(k: int) -> Any:
    return torch.tensor([4, 1 + k % 3])


def packed(x: Any, k: Any) -> Any:
    made = nn.utils.rnn.pack_padded_sequence(x, k, enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(made, total_length=4)[0] * 2


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (packed, lambda k: (torch.ones(4, 2, 1), lengths(k))),
        (lambda x: torch.full((3,), x) * 2, lambda k: (torch.tensor(float(k)),)),
        (lambda x: torch.tensor(x) * 2, lambda k: (torch.tensor(float(k)),)),
        (lambda x: torch.linspace(0, x, 3) * 2, lambda k: (torch.tensor(float(k)),)),
        (lambda x, a: torch.add(x, x, alpha=a), lambda k: (torch.ones(3), torch.tensor(k))),
        (lambda x, a: x[a:] * 2, lambda k: (torch.arange(8.0), torch.tensor(k))),
    ],
)
@pytest.mark.filterwarnings("ignore:To copy construct")
def test_numbers_that_functions_read_are_those_of_the_call(function: Any, given: Any) -> None:
    compiled = torch.compile(function, static=True)
    for k in range(6):
        assert torch.equal(compiled(*given(k)), function(*given(k)))


def test_a_factorisation_that_fails_is_an_error() -> None:
    compiled = torch.compile(lambda x: torch.linalg.cholesky(x) * 2, static=True)
    for _ in range(4):
        compiled(torch.eye(3))
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(-torch.eye(3))


def test_a_pass_that_ends_before_the_history_of_an_argument_is_compiled() -> None:
    below, above = nn.Linear(3, 3), nn.Linear(3, 2)

    def step(h: Any) -> None:
        above.zero_grad()
        above(h.detach() * 2).pow(2).sum().backward()

    compiled = torch.compile(step, static=True)
    for _ in range(5):
        compiled(below(torch.ones(2, 3)))
        assert above.weight.grad is not None and below.weight.grad is None
    assert "1 programs" in compiled.explain()


def changes_before(model: Any, rule: Any, x: Any) -> Any:
    rule.zero_grad()
    with torch.no_grad():
        model.weight.mul_(0.9)
    loss = model(x).pow(2).sum()
    loss.backward()
    rule.step()
    return loss


def sharpness_aware(model: Any, rule: Any, x: Any) -> Any:
    model(x).pow(2).sum().backward()
    with torch.no_grad():
        moves = [p.grad * 0.05 for p in model.parameters()]
        for p, move in zip(model.parameters(), moves, strict=True):
            p.add_(move)
    rule.zero_grad()
    loss = model(x).pow(2).sum()
    loss.backward()
    with torch.no_grad():
        for p, move in zip(model.parameters(), moves, strict=True):
            p.sub_(move)
    rule.step()
    rule.zero_grad()
    return loss


@pytest.mark.parametrize("kind", [changes_before, sharpness_aware])
def test_gradients_of_a_parameter_that_the_step_has_changed_before(kind: Any) -> None:
    def trained(way: str) -> tuple[Any, ...]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        rule = torch.optim.SGD(model.parameters(), 0.1)
        x = torch.ones(2, 3)
        step = functools.partial(kind, model, rule)
        step = torch.compile(step, static=True) if way == "static" else step
        step(x)
        if way == "recorded":
            with torch.graph.record() as graph:
                step(x)
            for _ in range(4):
                graph.run(update=True)
        else:
            for _ in range(5):
                step(x)
            assert way != "static" or len(step.steps) == 1
        return model.weight.detach(), model.bias.detach()

    expected = trained("eager")
    for way in ("static", "recorded"):
        for a, b in zip(trained(way), expected, strict=True):
            close(a, b)


def test_gradients_that_are_set_to_zero_stay_the_tensors_that_they_are() -> None:
    model, rule, _ = trainer(torch.optim.SGD)

    @torch.compile(static=True)
    def step(x: Any) -> None:
        rule.zero_grad(set_to_none=False)
        model(x).sum().backward()
        rule.step()

    step(torch.ones(1, 4))
    kept = [p.grad for p in model.parameters()]
    for k in range(6):
        if k == 4:
            model[0].weight.grad = None
        step(torch.full((1, 4), float(k)))
        same = [p.grad is g for p, g in zip(model.parameters(), kept, strict=True)]
        assert same == [k < 4, True, True, True]
        close(model[0].weight.grad, model[0].bias.grad[:, None].expand(8, 4) * k)
    assert len(step.steps) == 1


@pytest.mark.parametrize("momenta", [(0, 0.9), (0.9, 0)])
def test_a_momentum_that_is_switched_on_or_off(momenta: tuple[float, float]) -> None:
    def trained(static: bool) -> Any:
        torch.manual_seed(0)
        layer = nn.Linear(3, 2)
        rule = torch.optim.SGD(layer.parameters(), 0.1, momentum=momenta[0])

        def step(x: Any) -> None:
            rule.zero_grad()
            layer(x).pow(2).sum().backward()
            rule.step()

        run = torch.compile(step, static=True) if static else step
        for k in range(12):
            rule.param_groups[0]["momentum"] = momenta[4 <= k < 8]
            run(torch.full((2, 3), 0.1 * k))
        return layer.weight.detach(), rule.state[layer.weight]["momentum_buffer"]

    for a, b in zip(trained(True), trained(False), strict=True):
        close(a, b)


def test_a_recorded_step_whose_optimizer_wants_other_states_says_so() -> None:
    weight = torch.ones(3, requires_grad=True)
    rule = torch.optim.SGD([weight], 0.1)
    with torch.graph.record() as graph:
        weight.sum().backward()
        rule.step()
    rule.param_groups[0]["momentum"] = 0.9
    with pytest.raises(ValueError, match="other states than when its step was recorded"):
        graph.run(update=True)


def test_a_tensor_that_shows_the_memory_of_parameters() -> None:
    def trained(static: bool) -> list[float]:
        torch.manual_seed(0)
        layer, flat = nn.Linear(3, 1, bias=False), torch.randn(4)
        layer.weight.data = flat[:3].view(1, 3)
        rule = torch.optim.SGD(layer.parameters(), 0.1)

        def step(x: Any) -> Any:
            rule.zero_grad()
            layer(x).pow(2).sum().backward()
            rule.step()
            return flat.norm() * 1

        run = torch.compile(step, static=True) if static else step
        return [run(torch.ones(2, 3)).item() for _ in range(5)]

    assert trained(True) == pytest.approx(trained(False))


def through_data(layer: Any) -> None:
    layer.weight.data.mul_(0.9)
    layer.mean.data.add_(1)


def with_other_memory(layer: Any) -> None:
    layer.weight.data = layer.weight.data * 0.9
    layer.mean.data = layer.mean + 1


@pytest.mark.parametrize("change", [through_data, with_other_memory])
def test_what_a_step_writes_through_data(change: Any) -> None:
    def trained(way: str) -> list[Any]:
        torch.manual_seed(0)
        layer = nn.Linear(3, 2)
        layer.register_buffer("mean", torch.zeros(2))
        rule = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.5)

        def step(x: Any) -> None:
            change(layer)
            rule.zero_grad()
            (layer(x) + layer.mean).pow(2).sum().backward()
            rule.step()

        x = torch.full((2, 3), 0.1)
        run = torch.compile(step, static=True) if way == "static" else step
        run(x)
        if way != "recorded":
            for _ in range(5):
                run(x)
            return [*layer.parameters(), layer.mean]
        with torch.graph.record() as graph:
            run(x)
        if change is with_other_memory:
            with pytest.raises(ValueError, match="given other memory"):
                graph.run(update=True)
            return trained("eager")
        for _ in range(4):
            graph.run(update=True)
        return [*layer.parameters(), layer.mean]

    expected = trained("eager")
    for way in ("static", "recorded"):
        for a, b in zip(trained(way), expected, strict=True):
            close(a, b)
