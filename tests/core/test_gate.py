"""Every write to memory is announced before its first byte, whoever makes it."""

from __future__ import annotations

import io

import numpy as np
import pytest

import boundary
import weft
from side_by_side import needs_torch
from watched_memory import Watch
from weft import nn
from weft.core import gate

torch = weft


# Functions that write to memory which nobody else has yet.
IN_NEW_MEMORY = {
    ("autograd/gradcheck.py", "_Problem.forward"),
    ("autograd/gradcheck.py", "_check_undefined_forward"),
    ("operators/creation.py", "full_like"),
    ("operators/random.py", "_place"),
}


def test_whoever_writes_to_an_array_announces_it():
    found = boundary.unannounced_writers()
    wrong = [p for p in found if (p.module, p.function) not in IN_NEW_MEMORY]
    assert not wrong, "\n".join(f"{p.module}:{p.line}: {p.text}" for p in wrong)


@needs_torch
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_programs(first):
    import gate_programs

    reports = [gate_programs.check(710_000_000 + first + k) for k in range(10)]
    assert not any(reports), "\n".join(filter(None, reports))


def test_the_watch_sees_a_write_that_nobody_announced():
    x = torch.ones(3)
    with Watch() as watch:
        assert watch.look([x]) is None
        x._a[0] = 2.0
        assert watch.look([x]) is not None
        x.mul_(2)
        assert watch.look([x]) is None


def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )


def lookahead(net, optimizer):
    net.zero_grad()
    net(torch.randn(5, 2, 6, 6)).square().mean().backward()
    net(torch.randn(5, 2, 6, 6)).square().mean().backward()  # adds to gradients that are there
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    optimizer.step()


OPTIMIZERS = [
    *("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop"),
    *("Rprop", "ASGD", "Adafactor"),
]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("large", [False, True])
def test_training_steps(name, large):
    net = model() if not large else nn.Sequential(nn.Flatten(), nn.Linear(72, 4000))
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(torch.optim, name)(net.parameters(), **options)
    with Watch() as watch:
        for _ in range(4):
            lookahead(net, optimizer)
            found = watch.look(net, optimizer)
            assert found is None, found


def test_lbfgs_and_muon():
    w = nn.Parameter(torch.randn(4, 3))
    with Watch() as watch:
        for kind in (torch.optim.LBFGS, torch.optim.Muon):
            optimizer = kind([w])

            def closure(optimizer=optimizer):
                optimizer.zero_grad()
                loss = (w**2).sum()
                loss.backward()
                return loss

            for _ in range(3):
                optimizer.step(closure)
                assert watch.look([w, optimizer]) is None


def _load(net):
    file = io.BytesIO()
    torch.save(model().state_dict(), file)
    file.seek(0)
    net.load_state_dict(torch.load(file))


def _scaled_step(net):
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler.scale(net(torch.randn(5, 2, 6, 6)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


WRITES = {
    "loading": _load,
    "batch norm": lambda net: net(torch.randn(5, 2, 6, 6)),
    "initialising": lambda net: [nn.init.normal_(p) for p in net.parameters()],
    "orthogonal": lambda net: nn.init.orthogonal_(net[4].weight),
    "data": lambda net: net[4].weight.data.mul_(2),
    "data of a part": lambda net: net[4].weight.data[0].fill_(2.0),
    "item of data": lambda net: net[4].weight.data.__setitem__((0, 1), 7.0),
    "mask of data": lambda net: net[4].weight.data.__setitem__(net[4].weight > 0, 7.0),
    "storage": lambda net: net[4].weight.untyped_storage().fill_(0),
    "item of a storage": lambda net: net[4].weight.storage().__setitem__(0, 3.0),
    "detach": lambda net: net[4].weight.detach().zero_(),
    "out": lambda net: torch.add(net[4].bias.detach(), 1, out=net[4].bias.data),
    "random": lambda net: net[4].weight.data.uniform_(),
    "dropout": lambda net: nn.functional.dropout(net[4].weight.data, inplace=True),
    "relu": lambda net: nn.functional.relu(net[4].weight.data, inplace=True),
    "apply": lambda net: net[4].weight.data.apply_(lambda v: v + 1),
    "vector": lambda net: nn.utils.vector_to_parameters(torch.ones(500), net.parameters()),
    "spectral norm": lambda net: nn.utils.parametrizations.spectral_norm(net[4])(torch.ones(64)),
    "weight norm": lambda net: nn.utils.parametrizations.weight_norm(net[4])(torch.ones(64)),
    "scaler": _scaled_step,
    "numpy": lambda net: net[4].weight.detach().numpy().fill(3.0),
    "dlpack": lambda net: np.from_dlpack(net[4].weight.detach()).fill(3.0),
    "shared": lambda net: net.share_memory(),
    "set": lambda net: net[4].bias.data.set_(torch.ones(3)),
    "resize": lambda net: net[4].bias.data.resize_(7),
}


@pytest.mark.parametrize("name", WRITES)
def test_other_writers(name):
    net = model()
    with Watch() as watch:
        watch.look(net)
        WRITES[name](net)
        assert watch.look(net) is None


def test_quasirandom_and_checked_gradients():
    engine, x = torch.quasirandom.SobolEngine(3), torch.randn(3, dtype=torch.float64)
    with Watch() as watch:
        watch.look(vars(engine), x)
        engine.draw(4)
        assert watch.look(vars(engine)) is None
        engine.fast_forward(3)
        assert watch.look(vars(engine)) is None
        seen = []
        torch.autograd.gradcheck(
            lambda x: (seen.append(watch.look([x])), x * x)[1], x.requires_grad_()
        )
        assert len(seen) > 2 and not any(seen)


def test_averaging_and_ema():
    net = model()
    averaged = torch.optim.swa_utils.AveragedModel(net)
    with Watch() as watch:
        for _ in range(3):
            watch.look(net, averaged)
            averaged.update_parameters(net)
            assert watch.look(net, averaged) is None


@pytest.mark.parametrize("static", [False, True])
def test_compiled_training(static):
    net = model()
    optimizer = torch.optim.Adam(net.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = torch.compile(step, static=static)
    with Watch() as watch:
        for _ in range(6):
            step(torch.randn(5, 2, 6, 6))
            assert watch.look(net, optimizer) is None


def test_a_recorded_step():
    net = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.randn(4, 3)
    with weft.graph.record() as recorded:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    with Watch() as watch:
        watch.look(net, optimizer)
        recorded.run()
        assert watch.look(net, optimizer) is None


def pending_numpy(x):
    y = x * 2 + 1
    x.numpy()[0] = 100.0
    return y


def pending_storage(x):
    y = x * 2 + 1
    x.untyped_storage().fill_(0)
    return y


def pending_data(x):
    y = x * 2 + 1
    x.data.mul_(0)
    return y


def pending_dlpack(x):
    y = x * 2 + 1
    np.from_dlpack(x).fill(5.0)
    return y


@pytest.mark.parametrize("function", [pending_numpy, pending_storage, pending_data, pending_dlpack])
def test_what_is_pending_reads_memory_before_it_changes(function):
    compiled = torch.compile(function)
    for _ in range(5):
        x = torch.arange(5, dtype=torch.float32)
        assert compiled(x).tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]


def test_listeners_are_told_before_the_first_byte():
    x = torch.ones(3)
    seen = []
    listener = lambda array, target: seen.append(array.tolist())
    gate.LISTENERS.append(listener)
    try:
        x.mul_(5)
        x.untyped_storage().fill_(0)
    finally:
        gate.LISTENERS.remove(listener)
    assert seen == [[1.0, 1.0, 1.0], list(np.full(3, 5.0, np.float32).view(np.uint8))]
