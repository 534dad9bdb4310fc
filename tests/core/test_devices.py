"""Every op on a device whose memory nobody but the device can read."""

from __future__ import annotations

import copy
import io
import math
import warnings
from typing import Any

import numpy as np
import pytest
from test_registry import DIFFERENTIABLE, SAMPLED, samples, smooth_inputs, smooth_outputs

import mirror
import weft
from side_by_side import needs_torch
from weft import nn
from weft.core import devices
from weft.core.dispatch import REGISTRY
from weft.core.inplace import apply_inplace
from weft.core.tensor import Tensor, wrap

torch = weft


@pytest.fixture(scope="module", autouse=True)
def device() -> Any:
    """The device is there for these tests alone: others run as programs without one do."""
    devices.register(mirror.MIRROR)
    yield
    devices.forget(mirror.MIRROR)


def on_both(name: str, wanted: Any = ()) -> Any:
    """The samples of an op as tensors on the CPU and on the device."""
    for sample in samples(name):
        here, there = [], []
        for i, x in enumerate(sample.args):
            if not isinstance(x, np.ndarray):
                here.append(x)
                there.append(x)
                continue
            needs = wanted and i in smooth_inputs(REGISTRY[name], sample)
            here.append(wrap(np.array(x)).requires_grad_(bool(needs)))
            there.append(wrap(mirror.MIRROR.put(x)).requires_grad_(bool(needs)))
        yield sample, here, there


def outs_of(op: Any, args: Any, attrs: Any) -> list[Tensor]:
    out = op(*args, **attrs)
    return list(out) if op.multiple else [out]


def alike(found: Tensor, expected: Tensor) -> None:
    assert found.device.type == "mirror" and type(found._a) is mirror.MirrorArray
    assert found.dtype is expected.dtype and found.shape == expected.shape
    assert found.stride() == expected.stride() or not found.numel()
    np.testing.assert_array_equal(
        found.detach().cpu().contiguous()._a, expected.detach().contiguous()._a
    )


@pytest.mark.parametrize("name", SAMPLED)
def test_forward(name: str) -> None:
    op = REGISTRY[name]
    for sample, here, there in on_both(name):
        expected = outs_of(op, here, sample.attrs)
        found = outs_of(op, there, sample.attrs)
        for f, e in zip(found, expected, strict=True):
            alike(f, e)
            assert (f._base is None) == (e._base is None), "views are views there too"


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str) -> None:
    op = REGISTRY[name]
    for sample, here, there in on_both(name, wanted=True):
        rng = np.random.default_rng(0)
        expected = outs_of(op, here, sample.attrs)
        found = outs_of(op, there, sample.attrs)
        chosen = [k for k in smooth_outputs(op, expected) if expected[k].requires_grad]
        if not chosen:
            continue
        seeds = [
            rng.standard_normal(expected[k].shape).astype(expected[k]._a.dtype) for k in chosen
        ]
        given = [i for i, x in enumerate(here) if isinstance(x, Tensor) and x.requires_grad]
        grads = [
            torch.autograd.grad(
                [outs[k] for k in chosen],
                [args[i] for i in given],
                [wrap(place(np.asarray(s))) for s in seeds],
                allow_unused=True,
            )
            for outs, args, place in (
                (expected, here, np.array),
                (found, there, mirror.MIRROR.put),
            )
        ]
        for e, f in zip(*grads, strict=True):
            assert (e is None) == (f is None)
            if e is not None and f is not None:
                assert f.device.type == "mirror"
                tolerance = {"rtol": 1e-12, "atol": 1e-12} if e.dtype.itemsize > 4 else {}
                torch.testing.assert_close(f.cpu(), e, equal_nan=True, **tolerance)


def changes_itself(op: Any, here: Any, outs: list[Tensor]) -> bool:
    """Whether an op can be called in place on its first input."""
    first = here[0] if here else None
    return (
        isinstance(first, Tensor)
        and not op.multiple
        and not op.view
        and outs[0].shape == first.shape
        and outs[0].dtype is first.dtype
    )


@pytest.mark.parametrize("name", SAMPLED)
def test_in_place(name: str) -> None:
    op = REGISTRY[name]
    for sample, here, there in on_both(name):
        if not changes_itself(op, here, outs_of(op, here, sample.attrs)):
            continue
        view = there[0].view(there[0].shape)
        apply_inplace(op, tuple(here), sample.attrs)
        apply_inplace(op, tuple(there), sample.attrs)
        alike(there[0], here[0])
        assert view.cpu().equal(there[0].cpu()) or here[0].isnan().any()  # views see the change
        assert there[0]._version == here[0]._version


def test_memory_is_out_of_reach() -> None:
    x = torch.ones(2, 3, device="mirror")
    for read in (np.asarray, memoryview, bytes, float, iter, bool):
        with pytest.raises(TypeError):
            read(x._a)
    assert not hasattr(x._a, "__array_interface__")
    assert not isinstance(x._a, np.ndarray)


def test_where_a_tensor_is() -> None:
    x = torch.ones(2, 3, device="mirror")
    assert x.device == torch.device("mirror", 0) and str(x.device) == "mirror:0"
    assert not x.is_cpu and not x.is_meta and x.type() == "torch.mirror.FloatTensor"
    assert x.cpu().device.type == "cpu" and x.cpu().tolist() == [[1.0] * 3] * 2
    assert x.to("mirror") is x and x.to("cpu").is_cpu
    assert x.to("mirror", torch.float64).dtype is torch.float64
    assert x.t().contiguous().device.type == "mirror"
    assert x[0, 1:].storage_offset() == 1 and x[0, 1:].data_ptr() == x.data_ptr() + 4
    assert x.untyped_storage().nbytes() == 24 and x.untyped_storage().device.type == "mirror"


def test_factories() -> None:
    torch.manual_seed(3)
    drawn = torch.randn(4)
    torch.manual_seed(3)
    assert torch.randn(4, device="mirror").cpu().equal(drawn)
    for made, value in (
        (torch.zeros(2, device="mirror"), [0.0, 0.0]),
        (torch.full((2,), 7, device="mirror"), [7, 7]),
        (torch.arange(3, device="mirror"), [0, 1, 2]),
        (torch.tensor([1, 2], device="mirror"), [1, 2]),
        (torch.as_tensor(np.array([1.5]), device="mirror"), [1.5]),
        (torch.ones_like(torch.zeros(2, device="mirror")), [1.0, 1.0]),
        (torch.zeros_like(torch.ones(2), device="mirror"), [0.0, 0.0]),
        (torch.zeros(2, device="mirror").new_ones(1), [1.0]),
        (torch.full_like(torch.zeros(2, device="mirror"), 3), [3.0, 3.0]),
    ):
        assert made.device.type == "mirror" and made.tolist() == value
    assert torch.ones_like(torch.zeros(2, device="mirror"), device="cpu").is_cpu
    with torch.device("mirror"):
        assert torch.zeros(2).device.type == "mirror"
    assert torch.zeros(2).is_cpu


def test_errors_are_those_of_torch() -> None:
    x, y = torch.ones(2, 3, device="mirror"), torch.ones(2, 3)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x + y
    with pytest.raises(RuntimeError, match="at least two devices, mirror:0 and cpu"):
        torch.cat([y, x])
    assert (x + torch.tensor(2.0)).device.type == "mirror"  # a number in a tensor may be anywhere
    with pytest.raises(TypeError, match="can't convert mirror:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(TypeError, match=r"Tensor.cpu\(\) to copy the tensor to host memory first"):
        np.asarray(x)
    assert x.numpy(force=True).tolist() == [[1.0] * 3] * 2
    with pytest.raises(BufferError):
        np.from_dlpack(x)


def test_printing() -> None:
    x = torch.tensor([1.0, 2.5], device="mirror")
    assert repr(x) == "tensor([1.0000, 2.5000], device='mirror:0')"
    assert repr(x.long()) == "tensor([1, 2], device='mirror:0')"
    assert repr(x.requires_grad_() * 2).endswith("device='mirror:0', grad_fn=<MulBackward0>)")
    assert f"{x[1].item():.2f} {x.tolist()}" == "2.50 [1.0, 2.5]"


def test_indexing_and_writes() -> None:
    base = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    for device in ("cpu", "mirror"):
        x = torch.tensor(base, device=device)
        x[0] = 5.0
        x[1:, ::2] = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
        x[x > 8] = -1.0
        x[torch.tensor([0, 2], device=device), 1] = 9.0
        x[:, 3].mul_(2).add_(1)
        x.view(-1)[2:4] = x.view(-1)[:2].clone()
        x.masked_fill_(x == 4, 0.5).clamp_(max=7)
        torch.mul(x, 2, out=x)
        x.data[0, 0] = 11.0
        x.copy_(x.t().contiguous().t())
        if device == "cpu":
            expected = x.tolist()
    assert x.device.type == "mirror" and x.tolist() == expected


def test_gradients_across_devices() -> None:
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    (w.to("mirror") * torch.tensor([3.0, 4.0], device="mirror")).sum().backward()
    assert w.grad.is_cpu and w.grad.tolist() == [3.0, 4.0]
    v = torch.tensor([1.0, 2.0], device="mirror", requires_grad=True)
    (v.cpu() * torch.tensor([3.0, 4.0])).sum().backward()
    assert v.grad.device.type == "mirror" and v.grad.tolist() == [3.0, 4.0]
    (v * v).sum().backward()
    assert v.grad.tolist() == [5.0, 8.0]
    (g,) = torch.autograd.grad((v**3).sum(), v, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), v)
    assert h.tolist() == [6.0, 12.0]


def test_copies() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="mirror")
    pair = copy.deepcopy([x, x[1]])
    pair[1].zero_()
    assert pair[0].tolist() == [[1.0, 2.0], [0.0, 0.0]] and x[1].tolist() == [3.0, 4.0]
    assert pair[0].device.type == "mirror"


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.3), nn.Linear(36, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3),
    )  # fmt: skip


OPTIMIZERS = (
    *("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "Rprop", "ASGD"),
    *("Adafactor", "Muon"),
)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_run_has_the_numbers_of_the_cpu(name: str) -> None:
    losses = {}
    for device in ("cpu", "mirror"):
        net = network().to(device)
        options = {"momentum": 0.9, "weight_decay": 0.01} if name == "SGD" else {}
        trained = [p for p in net.parameters() if name != "Muon" or p.ndim == 2]
        optimizer = getattr(torch.optim, name)(trained, lr=0.01, **options)
        torch.manual_seed(2)
        x, y = torch.randn(16, 1, 8, 8).to(device), torch.randint(3, (16,)).to(device)
        losses[device] = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            losses[device].append(loss.item())
        assert all(p.device.type == device for p in net.parameters())
        assert all(b.device.type == device for b in net.buffers())
    # Muon rounds to bfloat16: where the last bit of a float32 differs, a bfloat16 step may follow.
    # On the CPU alone, weights changed by that bit move these losses by 4e-5.
    assert losses["mirror"] == pytest.approx(losses["cpu"], rel=4e-4 if name == "Muon" else 1e-5)
    assert math.isfinite(losses["cpu"][-1])


def test_anomaly_mode_finds_a_nan() -> None:
    x = torch.tensor([0.0, 1.0]).to("mirror").requires_grad_()
    with (
        warnings.catch_warnings(action="ignore"),  # the mode warns of its cost, and of the error
        torch.autograd.detect_anomaly(),
        pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan values"),
    ):
        (x.sqrt() * 0).sum().backward()


def test_state_goes_from_device_to_device() -> None:
    net = network().to("mirror")
    state = net.state_dict()
    assert state["0.weight"].device.type == "mirror"
    twin = network()
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    twin.load_state_dict(state)  # values are copied to where the parameters are
    assert twin[0].weight.is_cpu and twin[0].weight.equal(net[0].weight.cpu())
    net.load_state_dict(twin.state_dict())
    assert net[0].weight.device.type == "mirror"
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, map_location="cpu")
    assert loaded["0.weight"].is_cpu and loaded["0.weight"].equal(twin[0].weight)


def saved(content: object, legacy: bool) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=not legacy)
    file.seek(0)
    return file


@pytest.mark.parametrize("legacy", [False, True])
def test_files_say_on_which_device_tensors_were(legacy: bool) -> None:
    x = torch.arange(6.0, device="mirror").view(2, 3)
    content = {
        "x": x, "row": x[1], "turned": x.t(), "none": x[:0], "bools": x > 2,
        "p": torch.nn.Parameter(x[:, 1:]), "cpu": torch.ones(2),
        "bytes": x.clone().untyped_storage(),
    }  # fmt: skip
    file = saved(content, legacy)
    tags = []
    torch.load(file, map_location=lambda storage, tag: tags.append(tag))
    assert set(tags) == {"mirror:0", "cpu"}
    for where, expected in (
        (None, "mirror"), ("mirror", "mirror"), (torch.device("mirror", 0), "mirror"),
        ("cpu", "cpu"), ({"mirror:0": "cpu"}, "cpu"), ({"cpu": "mirror"}, "mirror"),
        (lambda storage, tag: storage, "cpu"), (lambda storage, tag: None, "mirror"),
    ):  # fmt: skip
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        moved_too = where in ("mirror", torch.device("mirror", 0), {"cpu": "mirror"})
        assert loaded["cpu"].device.type == ("mirror" if moved_too else "cpu")
        for name, value in content.items():
            if name != "cpu":
                assert loaded[name].device.type == expected, (name, where)
            if name != "bytes":
                assert loaded[name].cpu().equal(value.cpu()), name
                assert loaded[name].stride() == value.stride() or not value.numel()
        loaded["x"].fill_(7)  # what shared memory does so again
        assert loaded["row"].cpu().eq(7).all() and loaded["p"].detach().cpu().eq(7).all()
        assert loaded["p"].requires_grad


def test_a_file_of_a_device_that_is_not_there_says_so() -> None:
    file = saved(torch.ones(2, device="mirror"), True)
    data = file.getvalue().replace(b"mirror:0", b"nowhere0")
    with pytest.raises(RuntimeError, match="'nowhere0'"):
        torch.load(io.BytesIO(data))
    assert torch.load(io.BytesIO(data), map_location="cpu").equal(torch.ones(2))


@needs_torch
@pytest.mark.parametrize("part", range(8))
def test_torchs_table(part: int) -> None:
    import opdb_device

    found = {}
    for name in opdb_device.names_in_scope()[part::8]:
        if "empty" not in name:  # what is in new memory is nobody's promise
            found[name] = opdb_device.check(name, opdb_device.QUICK)[1]
    assert not {k: v for k, v in found.items() if v is not None}
