"""Whole steps on a device whose memory nobody but the device can read: recorded, repeated,
compiled, saved, pickled, and with every optimizer."""

from __future__ import annotations

import copy
import io
import math
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

import mirror
import weft
import weft.nn.functional as F
from weft import nn
from weft.core import devices
from weft.core.tensor import Tensor

torch = weft


@pytest.fixture(scope="module", autouse=True)
def device() -> Any:
    """The device is there for these tests alone."""
    devices.register(mirror.MIRROR)
    yield
    devices.forget(mirror.MIRROR)


DEVICES = ("cpu", "mirror")
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01},
    "Adam": {"amsgrad": True},
    **{name: {} for name in ("AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam")},
    **{name: {} for name in ("RAdam", "Rprop", "ASGD", "Adafactor", "Muon")},
}


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.3), nn.Linear(36, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3),
    )  # fmt: skip


def batch(device: str, seed: int = 2) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(16, 1, 8, 8).to(device), torch.randint(3, (16,)).to(device)


def optimizer_of(name: str, net: nn.Module) -> Any:
    chosen = [p for p in net.parameters() if name != "Muon" or p.ndim == 2]
    return getattr(torch.optim, name)(chosen, lr=0.01, **OPTIMIZERS.get(name, {}))


def take_step(net: Any, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return loss


def everything(net: Any, optimizer: Any) -> list[Tensor]:
    state = [t for own in optimizer.state.values() for t in own.values() if torch.is_tensor(t)]
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    return [*net.state_dict().values(), *grads, *state]


def alike(there: Any, here: Any, rtol: float = 2e-4) -> None:
    assert len(there) == len(here)
    for t, h in zip(there, here, strict=True):
        assert torch.allclose(t.detach().cpu().double(), h.detach().double(), rtol=rtol, atol=1e-5)


class Recorded:
    """A step on a device that was recorded after another one."""

    def __init__(self, device: str, name: str, **options: Any) -> None:
        self.net = network().to(device)
        self.optimizer = optimizer_of(name, self.net)
        self.x, self.y = batch(device)
        take_step(self.net, self.optimizer, self.x, self.y)
        with torch.graph.record(**options) as self.graph:
            self.loss = take_step(self.net, self.optimizer, self.x, self.y)

    def all(self) -> list[Tensor]:
        return everything(self.net, self.optimizer)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_recorded_step_is_that_of_the_cpu_and_repeats(name: str) -> None:
    here, there = (Recorded(device, name) for device in DEVICES)
    assert [n.name for n in there.graph] == [n.name for n in here.graph]
    assert there.graph._frozen == here.graph._frozen == ""
    alike([there.graph.run()], [here.graph.run()])
    for seed in (5, 6):
        outs = []
        for step in (here, there):
            torch.manual_seed(seed)
            outs.append(step.graph.run(update=True))
        alike(outs[1:], outs[:1])
    assert outs[1].device.type == "mirror"
    assert all(p.grad.device.type == "mirror" for p in there.net.parameters())
    alike(there.all(), here.all())
    diff = torch.graph.diff(here.graph, there.graph)
    assert not diff.added and not diff.removed and not diff.changed


def test_repeats_are_the_steps_of_the_program() -> None:
    steps = [Recorded("mirror", "Adam") for _ in range(2)]
    for k in range(3):
        torch.manual_seed(k)
        loss = take_step(steps[0].net, steps[0].optimizer, steps[0].x, steps[0].y)
        torch.manual_seed(k)
        again = steps[1].graph.run(update=True)
        assert again.item() == loss.item()
    for a, b in zip(steps[0].all(), steps[1].all(), strict=True):
        assert a.cpu().equal(b.cpu())


def test_other_inputs_for_a_recorded_step() -> None:
    losses = []
    for device in DEVICES:
        step = Recorded(device, "SGD")
        x, y = batch(device, 9)
        names = [n.name for n in step.graph.inputs]
        torch.manual_seed(3)
        losses.append(step.graph.run(dict(zip(names, (x, y), strict=True)), update=True))
    alike(losses[1:], losses[:1])


def test_kept_values_and_gradients() -> None:
    here, there = (Recorded(device, "SGD", values=True, profile=True) for device in DEVICES)
    for name in ("2.relu", "8.gelu", "0.weight", "6.linear"):
        for found in ("value", "grad"):
            t, h = (getattr(step.graph[name], found) for step in (there, here))
            assert t.device.type == "mirror"
            alike([t], [h])
    assert there.graph["8.gelu"].time is not None
    # Without them they are computed again.
    here, there = (Recorded(device, "SGD") for device in DEVICES)
    alike([there.graph["8.gelu"].grad], [here.graph["8.gelu"].grad])


@pytest.mark.parametrize("values", [False, True])
def test_a_file_of_a_step_runs_on_the_cpu(tmp_path: Any, values: bool) -> None:
    here, there = (Recorded(device, "Adam", values=values) for device in DEVICES)
    outs = []
    for step, name in ((here, "here"), (there, "there")):
        step.graph.save(tmp_path / name, values=values)
        loaded = torch.graph.load(tmp_path / name)
        torch.manual_seed(4)
        outs.append(loaded.run(update=True))
        assert not torch.graph.diff(loaded, step.graph).added
    assert outs[1].is_cpu
    alike(outs[1:], outs[:1])


def test_moves_between_devices_in_a_file(tmp_path: Any) -> None:
    w = torch.tensor([1.0, 2.0], device="mirror", requires_grad=True)
    x = torch.tensor([3.0, 4.0])
    with torch.graph.record() as graph:
        loss = (x.to("mirror") * w).cpu().sum()
        loss.backward()
    assert graph.run().item() == 11.0 and graph["w"].grad.device.type == "mirror"
    graph.save(tmp_path / "moves")
    loaded = torch.graph.load(tmp_path / "moves")
    assert loaded.run().item() == 11.0 and loaded.run(update=True).is_cpu
    assert loaded["w"].grad.tolist() == [3.0, 4.0] and loaded["w"].grad.is_cpu
    # What moves nowhere is a copy all the same.
    moved = loaded.value("to_device")
    moved.zero_()
    assert loaded.run().item() == 11.0


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return g * x * 2 * ctx.scale, None


def test_custom_functions_and_hooks() -> None:
    found = {}
    for device in DEVICES:
        seen: list[Tensor] = []
        w = torch.arange(1.0, 5.0).to(device).requires_grad_()
        w.register_hook(lambda g, seen=seen: seen.append(g) or g * 2)
        with torch.graph.record() as graph:
            y = Halved.apply(w, 0.5)
            y.retain_grad()
            y.grad_fn.register_hook(lambda given, came: (given[0] * 3,))
            (y * y + Halved.apply(w, 2.0)).sum().backward()
        first = w.grad.clone()
        graph.run(update=True)
        ones = torch.ones(4).to(device)
        called = [Halved.apply(w, 0.5).grad_fn(ones)[0], (w * w).grad_fn(ones)[0]]
        with torch.no_grad():
            called += [Halved.apply(w, 0.5)]
        node = (w.exp() * w).grad_fn
        with torch.no_grad():
            called += node(ones)
        found[device] = [w.grad, first, y.grad, *seen[:1], *called]
        assert w.grad.device.type == device and w.grad_fn is None
    alike(found["mirror"], found["cpu"])


def test_gradients_behind_a_loss_on_the_cpu() -> None:
    grads = {}
    for device in DEVICES:
        net = network().to(device)
        x, y = batch(device)
        torch.manual_seed(4)
        F.cross_entropy(net(x).cpu(), y.cpu()).backward()
        assert all(p.grad.device.type == device for p in net.parameters())
        torch.manual_seed(4)
        loss = F.cross_entropy(net(x).cpu(), y.cpu())
        asked = torch.autograd.grad(loss, list(net.parameters()))
        grads[device] = [*(p.grad for p in net.parameters()), *asked]
    alike(grads["mirror"], grads["cpu"])


def test_random_draws_are_drawn_again() -> None:
    drawn = {}
    for device in DEVICES:
        torch.manual_seed(0)
        x = torch.zeros(6, device=device)
        with torch.graph.record() as graph:
            noise = torch.rand(6, device=device) + torch.randn_like(x)
            x.uniform_(1, 2)
            out = noise * x + torch.bernoulli(torch.full((6,), 0.5, device=device))
        first = out.clone()
        alike([graph.run()], [first.cpu()])  # as they were
        torch.manual_seed(8)
        drawn[device] = [first, graph.run(update=True), x]
    assert not drawn["cpu"][0].equal(drawn["cpu"][1])
    alike(drawn["mirror"], drawn["cpu"])


class Signs(torch.optim.Optimizer):
    """An optimizer as users write them."""

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                own = self.state[p]
                held = own.setdefault("mean", torch.zeros_like(p))
                held.mul_(0.9).add_(p.grad, alpha=0.1)
                p.addcmul_(held.sign(), torch.ones_like(p), value=-group["lr"])


def test_an_optimizer_of_the_user_is_recorded_and_repeated() -> None:
    found = {}
    for device in DEVICES:
        net = network().to(device).eval()
        optimizer = Signs(net.parameters())
        x, y = batch(device)
        take_step(net, optimizer, x, y)
        with torch.graph.record() as graph:
            take_step(net, optimizer, x, y)
        graph.run(update=True)
        found[device] = everything(net, optimizer)
    alike(found["mirror"], found["cpu"])


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs(search: str | None) -> None:
    losses = {}
    for device in DEVICES:
        net = network().double().to(device).eval()
        x, y = batch(device)
        optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, line_search_fn=search)

        def closure(net: Any = net, x: Any = x, y: Any = y, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x.double()), y)
            loss.backward()
            return loss

        losses[device] = [optimizer.step(closure).item() for _ in range(3)]
    assert losses["mirror"] == pytest.approx(losses["cpu"], rel=1e-6)
    assert math.isfinite(losses["cpu"][-1]) and losses["cpu"][-1] < losses["cpu"][0]


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "Muon"])
def test_the_state_of_an_optimizer_is_loaded(name: str) -> None:
    found = {}
    for device in DEVICES:
        net, x, y = network().to(device).eval(), *batch(device)
        optimizer = optimizer_of(name, net)
        take_step(net, optimizer, x, y)
        twin = optimizer_of(name, net)
        twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        take_step(net, twin, x, y)
        take_step(net, twin, x, y)
        found[device] = everything(net, twin)
    alike(found["mirror"], found["cpu"])


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Adam", "ASGD"])
def test_compiled_steps(name: str, static: bool) -> None:
    found = {}
    for device in DEVICES:
        net, x, y = network().to(device), *batch(device)
        optimizer = optimizer_of(name, net)

        def run(x: Tensor, y: Tensor, net: Any = net, optimizer: Any = optimizer) -> Tensor:
            return take_step(net, optimizer, x, y)

        step = torch.compile(run, static=static)
        torch.manual_seed(3)
        losses = [step(x, y) for _ in range(6)]
        found[device] = [*losses, *everything(net, optimizer)]
        told = str(step.explain())
    assert losses[-1].device.type == "mirror"
    alike(found["mirror"], found["cpu"])
    assert "mirror" in told


def test_a_compiled_module() -> None:
    for device in DEVICES:
        net, (x, _) = network().to(device).eval(), batch(device)
        compiled = torch.compile(net)
        for _ in range(5):
            alike([compiled(x)], [net(x).cpu()])
            alike([compiled(x).cpu() + 1], [net(x).cpu() + 1])  # what follows is on the CPU


def test_pickles_share_memory() -> None:
    base = torch.arange(12.0, device="mirror").view(3, 4)
    turned = base.t()
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        whole, row, view, empty = pickle.loads(
            pickle.dumps([base, base[1, 1:], turned, base[:0]], protocol)
        )
        assert whole.device.type == view.device.type == empty.device.type == "mirror"
        assert whole.tolist() == base.tolist() and view.tolist() == turned.tolist()
        assert row.tolist() == [5.0, 6.0, 7.0] and empty.shape == (0, 4)
        row.zero_()
        assert whole[1].tolist() == [4.0, 0.0, 0.0, 0.0] and view[1, 1] == 0
        assert base[1].tolist() == [4.0, 5.0, 6.0, 7.0]
    last = torch.ones(2, 3, 4, 4, device="mirror").to(memory_format=torch.channels_last)
    again = pickle.loads(pickle.dumps(last))
    assert again.stride() == last.stride() and again.tolist() == last.tolist()
    net = pickle.loads(pickle.dumps(network().to("mirror")))
    assert net[0].weight.requires_grad and isinstance(net[0].weight, nn.Parameter)
    assert net[0].weight.cpu().equal(network()[0].weight)
    twin = copy.copy(base)
    twin[0, 0] = 9.0
    assert base[0, 0] == 9.0


def test_a_pickle_of_a_device_that_is_not_there() -> None:
    data = pickle.dumps(torch.ones(2, device="mirror"))
    devices.forget(mirror.MIRROR)
    try:
        with pytest.raises(RuntimeError, match=r"device 'mirror'.*or pickle tensor\.cpu\(\)"):
            pickle.loads(data)
    finally:
        devices.register(mirror.MIRROR)


def test_other_processes_are_refused() -> None:
    x = torch.ones(2, device="mirror")
    assert not x.is_shared()
    with pytest.raises(RuntimeError, match=r"memory of mirror:0 is its own. Share tensor.cpu\(\)"):
        x.share_memory_()
    with pytest.raises(RuntimeError, match=r"on mirror:0 can't be sent.*send tensor.cpu\(\)"):
        ForkingPickler(io.BytesIO()).dump(x)


def test_a_model_is_put_back_if_it_can_not_be_resized() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)).to("mirror")
    before = [p.tolist() for p in net.parameters()]
    with pytest.raises(RuntimeError, match="shape"):
        torch.graph.resize(net, "0", width=7, example=torch.ones(3, 5, device="mirror"))
    assert [p.tolist() for p in net.parameters()] == before
