"""The meta device: tensors with a shape, a dtype, strides and a history, but without values."""

from __future__ import annotations

import copy
import io
import pickle
import resource
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.core import meta
from weft.core.shapes import ShapeDtype
from weft.core.symbols import symbols
from weft.nn import functional as F


def empty(*shape: int, **options: Any) -> torch.Tensor:
    return torch.empty(*shape, device="meta", **options)


# --- making them -----------------------------------------------------------------------

CREATION = {
    "empty": lambda **o: torch.empty(2, 3, **o),
    "zeros": lambda **o: torch.zeros((2, 3), **o),
    "ones": lambda **o: torch.ones(2, 3, **o),
    "full": lambda **o: torch.full((2, 3), 1.5, **o),
    "tensor": lambda **o: torch.tensor([[1, 2], [3, 4]], **o),
    "as_tensor": lambda **o: torch.as_tensor(np.ones((2, 3)), **o),
    "asarray": lambda **o: torch.asarray([1.0, 2.0], **o),
    "scalar_tensor": lambda **o: torch.scalar_tensor(2, **o),
    "arange": lambda **o: torch.arange(2, 9, 2, **o),
    "arange of floats": lambda **o: torch.arange(0.0, 1.0, 0.3, **o),
    "linspace": lambda **o: torch.linspace(0, 1, 5, **o),
    "logspace": lambda **o: torch.logspace(0, 1, 5, **o),
    "eye": lambda **o: torch.eye(3, 4, **o),
    "rand": lambda **o: torch.rand(2, 3, **o),
    "randn": lambda **o: torch.randn(2, 3, **o),
    "randint": lambda **o: torch.randint(0, 5, (2, 3), **o),
    "randperm": lambda **o: torch.randperm(5, **o),
    "empty_strided": lambda **o: torch.empty_strided((2, 3), (1, 4), **o),
    "empty_permuted": lambda **o: torch.empty_permuted((2, 3, 4), (2, 0, 1), **o),
    "tril_indices": lambda **o: torch.tril_indices(3, 3, **o),
    "hann_window": lambda **o: torch.hann_window(5, **o),
    "channels last": lambda **o: torch.zeros(2, 3, 4, 5, memory_format=torch.channels_last, **o),
}


def same_geometry(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())


@pytest.mark.parametrize("name", CREATION)
def test_creation(name: str) -> None:
    make = CREATION[name]
    expected, state = make(), torch.get_rng_state()
    given = make(device="meta")
    with torch.device("meta"):
        by_context = make()
    torch.set_default_device("meta")
    try:
        by_default = make()
    finally:
        torch.set_default_device(None)
    for found in (given, by_context, by_default):
        assert found.is_meta and found.device == torch.device("meta")
        assert same_geometry(found, expected)
    assert torch.equal(torch.get_rng_state(), state), "the generator moved"
    assert not make().is_meta


def test_tensors_like_others_go_where_those_are() -> None:
    x, c = empty(2, 3).t(), torch.ones(3, 2)
    for make in (torch.empty_like, torch.zeros_like, torch.ones_like, torch.rand_like):
        assert make(x).is_meta and same_geometry(make(x), x)
        with torch.device("meta"):
            assert not make(c).is_meta
        made = make(x, device="cpu")
        assert not made.is_meta and same_geometry(made, x)
        assert make(c, device="meta").is_meta
    assert made._a.dtype is torch.ones(1)._a.dtype  # an ordinary one, for which short ways are
    assert torch.full_like(x, 3).is_meta and x.new_zeros(2).is_meta and x.new(2).is_meta
    assert x.new_tensor([1.0]).is_meta and x.new_full((2,), 1).is_meta
    assert not x.new_empty(2, device="cpu").is_meta and not torch.Tensor(2).is_meta
    assert torch.zeros_like(x, device="cpu").tolist() == [[0.0, 0.0]] * 3


def test_context_nests_and_leaves_what_was_before() -> None:
    with torch.device("meta"):
        with torch.device("cpu"):
            assert not torch.ones(2).is_meta
        assert torch.ones(2).is_meta
        assert torch.get_default_device() == torch.device("meta")
    assert not torch.ones(2).is_meta


def test_sizes_that_can_not_be() -> None:
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        empty(2, -1)
    with pytest.raises(RuntimeError, match="overflow"):
        empty(2**40, 2**40)
    assert empty(0).numel() == 0 and empty(0, 3).stride() == (3, 1)


def test_terabytes_take_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.device("meta"):
        layers = [nn.Linear(50_000, 50_000) for _ in range(40)]  # 100 billion parameters
    model = nn.Sequential(*layers)
    assert sum(p.numel() for p in model.parameters()) > 100e9
    y = model(empty(8, 50_000))
    y.sum().backward()
    assert layers[0].weight.grad is not None and layers[0].weight.grad.is_meta
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50_000  # kilobytes


def test_addresses_are_given_back() -> None:
    x = empty(3)
    held = len(meta.LIVE)
    views = [x[1:], x.view(3, 1)]
    assert len(meta.LIVE) == held
    y = x + 1
    assert len(meta.LIVE) == held + 1
    del y, x
    assert len(meta.LIVE) == held
    del views
    assert len(meta.LIVE) == held - 1


# --- what they have, and what they have not --------------------------------------------


def test_text() -> None:
    assert repr(empty(2, 3)) == "tensor(..., device='meta', size=(2, 3))"
    assert repr(empty(2, dtype=torch.int64)) == (
        "tensor(..., device='meta', size=(2,), dtype=torch.int64)"
    )
    assert repr(empty(()) * 2) == "tensor(..., device='meta', size=())"
    assert repr(nn.Parameter(empty(2))) == (
        "Parameter containing:\ntensor(..., device='meta', size=(2,), requires_grad=True)"
    )
    assert "grad_fn=<MulBackward0>" in repr(empty(2, requires_grad=True) * 2)


def test_questions() -> None:
    x = empty(2, 3, dtype=torch.float16)
    assert x.is_meta and not x.is_cpu and not x.is_cuda and x.get_device() == -1
    assert x.data_ptr() == 0 and x.numel() == 6 and x.nbytes == 12 and x.is_contiguous()
    assert x.type() == "torch.meta.HalfTensor" and type(x) is torch.Tensor
    assert x.t().stride() == (1, 3) and x[1:].storage_offset() == 3
    assert len(list(x)) == 2 and all(row.is_meta for row in x)


VALUES_NEEDED = {
    "item": (lambda x: x.sum().item(), RuntimeError, "item"),
    "bool": (lambda x: bool(x.sum()), RuntimeError, "item"),
    "float": (lambda x: float(x.sum()), RuntimeError, "item"),
    "int": (lambda x: int(x.sum()), RuntimeError, "item"),
    "index": (lambda x: [1, 2][x.sum().long()], RuntimeError, "item"),
    "tolist": (lambda x: x.tolist(), NotImplementedError, "no data"),
    "numpy": (lambda x: x.numpy(), TypeError, "can't convert meta"),
    "array": (lambda x: np.asarray(x), TypeError, "can't convert meta"),
    "cpu": (lambda x: x.cpu(), NotImplementedError, "no data"),
    "to": (lambda x: x.to("cpu", torch.float64), NotImplementedError, "no data"),
    "copy": (lambda x: torch.ones(2, 3).copy_(x), NotImplementedError, "no data"),
    "assignment": (lambda x: torch.ones(2, 3).__setitem__(0, x[0]), NotImplementedError, "no data"),
    "dlpack": (lambda x: x.__dlpack__(), BufferError, "meta"),
    "buffer": (lambda x: x.__buffer__(0), BufferError, "no values"),
    "nonzero": (lambda x: x.nonzero(), NotImplementedError, "nonzero.*depends on the values"),
    "unique": (lambda x: x.unique(), NotImplementedError, "depends on the values"),
    "mask": (lambda x: x[x > 0], NotImplementedError, "depends on the values"),
    "masked_select": (lambda x: x.masked_select(x > 0), NotImplementedError, "masked_select"),
    "bincount": (lambda x: x[0].long().bincount(), NotImplementedError, "depends on the values"),
    "equal": (lambda x: torch.equal(x, x), RuntimeError, "item"),
    "allclose": (lambda x: torch.allclose(x, x), RuntimeError, "item"),
    "in": (lambda x: 1 in x, RuntimeError, "item"),
    "repeats": (lambda x: x.repeat_interleave(x[:, 0].long(), 0), NotImplementedError, "values"),
    "list of tensors": (
        lambda x: x[([x[0, 0].long(), 1],)],
        NotImplementedError,
        "list of tensors",
    ),
    "storage": (lambda x: x.untyped_storage()[0], NotImplementedError, "meta"),
    "stored list": (lambda x: x.storage().tolist(), NotImplementedError, "meta"),
}


@pytest.mark.parametrize("name", VALUES_NEEDED)
def test_values_are_not_there(name: str) -> None:
    call, kind, words = VALUES_NEEDED[name]
    with pytest.raises(kind, match=words):
        call(empty(2, 3))


def test_empty_vectors_do_not_count_when_joined() -> None:
    assert torch.cat([empty(0), empty(2, 3, 4)], dim=-2).shape == (2, 3, 4)


def test_devices_do_not_mix() -> None:
    x, c = empty(2, 3), torch.ones(2, 3)
    for mixed in (
        *(lambda: x + c, lambda: c * x, lambda: torch.cat([x, c]), lambda: x @ c.t()),
        *(lambda: F.linear(x, c), lambda: torch.where(c > 0, x, 0.0), lambda: x.add_(c)),
        *(lambda: F.linear(c, x), lambda: torch.stack([c, x]), lambda: F.mse_loss(x, c)),
    ):
        with pytest.raises(RuntimeError, match=r"two devices, cpu and meta|no data"):
            mixed()
    for fine in (x + torch.tensor(2.0), torch.tensor(2.0) - x, x.clamp(torch.tensor(0.0)), 2 * x):
        assert fine.is_meta and fine.shape == (2, 3)
    assert x[torch.tensor([1, 0])].is_meta and x.copy_(c) is x
    x[0] = c[0]
    x[torch.tensor([0])] = c[:1]
    with pytest.raises(RuntimeError, match="devices must match"):
        x.set_(c)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = c


def test_ordinary_dtypes_stay_ordinary() -> None:
    """The marked dtypes of meta arrays must not come out of what is computed with others."""
    x, c = empty(3), torch.ones(3)
    (x + x, x * 2.0, torch.result_type(x, x), torch.result_type(x, c), x.double() + x.double())
    float32 = torch.float32.np
    for made in (c + c, torch.zeros_like(x, device="cpu"), c.to(x.dtype), c.type(x.dtype)):
        assert made._a.dtype is float32
    assert torch.empty(2, dtype=x.dtype)._a.dtype is float32
    assert (torch.ones(2).double() + torch.ones(2))._a.dtype is torch.float64.np


IMAGES = {
    "softmax": lambda x: x.softmax(1),
    "cat": lambda x: torch.cat([x, x], 1),
    "mixed cat": lambda x: torch.cat([x, x.contiguous()], 1),
    "stack": lambda x: torch.stack([x, x]),
    "roll": lambda x: x.roll(1, 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "layer_norm": lambda x: F.layer_norm(x, (4, 5)),
    "group_norm": lambda x: F.group_norm(x, 1),
    "pad": lambda x: F.pad(x, (1, 1)),
    "conv": lambda x: F.conv2d(x, x[:, :, :2, :2]),
    "pool": lambda x: F.max_pool2d(x, 2),
    "adaptive pool": lambda x: F.adaptive_avg_pool2d(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "arithmetic": lambda x: (x * 2 + x.contiguous()).relu(),
    "sum": lambda x: x.sum(1),
    "sort": lambda x: x.sort(1).values,
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "double": lambda x: x.double(),
    "clone": lambda x: x.clone(),
    "dropout": lambda x: F.dropout(x, 0.5),
    "index": lambda x: x[:, torch.tensor([0, 1])],
    "contiguous": lambda x: x.contiguous(),
}


@pytest.mark.parametrize("name", IMAGES)
def test_channels_last(name: str) -> None:
    x = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    expected, found = IMAGES[name](x), IMAGES[name](x.to("meta"))
    assert found.is_meta and same_geometry(found, expected)


# --- views, writing and gradients ------------------------------------------------------


def test_views_share_and_are_counted() -> None:
    x = empty(4, 6)
    y = x.view(2, 2, 6).transpose(0, 1)[1:, :, ::2]
    assert y._base is x and y._is_view() and y.stride() == (6, 12, 2) and y.storage_offset() == 6
    y.add_(1)
    assert x._version == y._version == 1
    assert not (x.t().reshape(24))._is_view() and x.t().reshape(24).is_contiguous()
    assert x.expand(3, 4, 6).stride() == (0, 6, 1) and x.unfold(1, 3, 2).shape == (4, 2, 3)
    assert x.untyped_storage().data_ptr() == 0 and x.untyped_storage().nbytes() == 96
    assert x.as_strided((2, 2), (1, 3), 5).storage_offset() == 5
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.as_strided((20, 20), (20, 1))
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        x.t().view(24)
    with pytest.raises(RuntimeError, match="single memory location"):
        x[:1].expand(4, 6).add_(1)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.view(-1)[:-1].mul_(x.view(-1)[1:])


def test_complex_parts_and_other_dtypes() -> None:
    z = empty(2, 3, dtype=torch.complex64)
    assert z.real.dtype == torch.float32 and z.real.stride() == (6, 2) and z.real.is_meta
    assert torch.view_as_real(z).shape == (2, 3, 2) and (z.real + z.imag).is_meta
    assert torch.view_as_complex(empty(3, 2)).dtype == torch.complex64
    assert empty(4).view(torch.int32).dtype == torch.int32
    assert empty(4).view(torch.float16).shape == (8,)
    for d in (torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.uint8):
        assert empty(2, 3).to(d).dtype == d and empty(2, 3).to(d).t()[1:].is_meta


def test_filling_does_nothing_and_draws_nothing() -> None:
    state, x = torch.get_rng_state(), empty(3, 4)
    for fill in (
        *(x.zero_, lambda: x.fill_(2), x.normal_, x.uniform_, x.exponential_, x.cauchy_),
        *(x.bernoulli_, x.random_, lambda: x.geometric_(0.5), x.log_normal_),
    ):
        assert fill() is x
    for init in (nn.init.kaiming_uniform_, nn.init.xavier_normal_, nn.init.orthogonal_):
        assert init(x) is x
    assert x._version > 10
    for drawn in (torch.bernoulli(x), torch.poisson(x), torch.normal(x, 1.0), F.dropout(x)):
        assert drawn.is_meta and drawn.shape == x.shape
    assert torch.multinomial(x, 2).shape == (3, 2) and torch.randn_like(x).is_meta
    x[x > 0] = 1.0
    x[0, 1] = 2.0
    assert torch.equal(torch.get_rng_state(), state), "the generator moved"


def test_in_place_rules_are_those_of_other_tensors() -> None:
    leaf = empty(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf.add_(1)
    y = leaf * leaf
    y.add_(1).mul_(leaf)
    y[0] = 0
    y.sum().backward()
    assert leaf.grad is not None and leaf.grad.is_meta
    with pytest.raises(RuntimeError, match="can't be cast"):
        empty(2, dtype=torch.int64).add_(1.5)
    with pytest.raises(RuntimeError, match="broadcast shape"):
        empty(2).add_(empty(3, 2))
    z = leaf.exp()
    saved = z.sin()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified"):
        saved.sum().backward()


def test_gradients() -> None:
    w, b = empty(3, 4, requires_grad=True), empty(3, requires_grad=True)
    seen = []
    x = empty(5, 4)
    h = F.linear(x, w, b)
    h.register_hook(lambda g: seen.append((g.is_meta, g.shape, g.requires_grad)))
    h.retain_grad()
    loss = (h.relu() ** 2).mean()
    loss.backward(retain_graph=True)
    loss.backward()
    assert seen == [(True, (5, 3), False)] * 2 and h.grad is not None and h.grad.is_meta
    assert w.grad is not None and w.grad.shape == (3, 4) and not w.grad.requires_grad
    (g,) = torch.autograd.grad((w * b.unsqueeze(1)).sum(), w, create_graph=True)
    assert g.requires_grad and torch.autograd.grad(g.sum(), b)[0].is_meta
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_gradients_of_rules_that_look_at_values() -> None:
    x = empty(3, 3, requires_grad=True)
    for y in (
        *(x.prod(), x.cumprod(0).sum(), torch.linalg.det(x), torch.linalg.svd(x).U.sum()),
        *(torch.linalg.eigh(x).eigenvectors.sum(), x.masked_scatter(x > 0, x).sum()),
    ):
        (g,) = torch.autograd.grad(y, x)
        assert g.is_meta and g.shape == (3, 3)


def test_functions_of_users() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            assert ctx.saved_tensors[0].is_meta
            return g * 2

    x = empty(3, requires_grad=True)
    Twice.apply(x).sum().backward()
    assert x.grad is not None and x.grad.is_meta


def test_copies_to_meta_are_recorded_but_nothing_comes_back() -> None:
    x = torch.ones(2, 3).t().requires_grad_()
    y = x.to("meta")
    assert y.is_meta and y.stride() == (1, 3) and y.grad_fn.name() == "ToCopyBackward0"
    assert y.to("meta") is y and y.to(torch.float64).is_meta
    assert x.to(y).is_meta and x.type_as(y).is_meta
    with pytest.raises(NotImplementedError, match="no data"):
        y.sum().backward()


def test_shapes_that_do_not_fit_raise_as_elsewhere() -> None:
    x = empty(2, 3)
    for wrong in (
        *(lambda: x + empty(4), lambda: x @ empty(2, 2), lambda: F.linear(x, empty(5, 4))),
        *(lambda: x.reshape(5), lambda: torch.cat([x, empty(3, 4)]), lambda: x.expand(3, 3)),
        *(lambda: F.conv2d(empty(1, 2, 4, 4), empty(3, 5, 3, 3)), lambda: x.softmax(2)),
        *(lambda: x.sum(4), lambda: x[2], lambda: x @ x.t().double(), lambda: x.view(7)),
        *(lambda: F.conv1d(empty(1, 2, 2), empty(3, 2, 5)), lambda: torch.stack([x, x.t()])),
    ):
        with pytest.raises((RuntimeError, IndexError)):
            wrong()


# --- modules, optimizers and files -----------------------------------------------------


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8 * 16, 10), nn.Dropout(),
    )  # fmt: skip


def test_modules_move_to_meta_and_get_memory_again() -> None:
    model = network()
    weight = model[0].weight
    model.to("meta")
    assert all(t.is_meta for t in model.state_dict().values())
    assert model[0].weight is not weight and not weight.is_meta
    out = model(empty(2, 3, 8, 8))
    out.sum().backward()
    assert out.shape == (2, 10) and model[0].weight.grad.is_meta
    with pytest.raises(NotImplementedError, match="to_empty"):
        model.to("cpu")
    model.to_empty(device="cpu")
    assert not any(t.is_meta for t in model.state_dict().values())
    assert model[0].weight.requires_grad and not model[0].weight.grad.is_meta
    model.load_state_dict(network().state_dict())
    assert model(torch.ones(2, 3, 8, 8)).shape == (2, 10)


def test_state_dicts() -> None:
    full = nn.Linear(3, 2)
    blank = nn.Linear(3, 2, device="meta")
    with pytest.warns(UserWarning, match="copying from a non-meta parameter"):
        blank.load_state_dict(full.state_dict())
    assert blank.weight.is_meta
    blank.load_state_dict(full.state_dict(), assign=True)
    assert torch.equal(blank.weight, full.weight) and blank.weight.requires_grad
    with pytest.raises(RuntimeError, match="no data"):
        full.load_state_dict(nn.Linear(3, 2, device="meta").state_dict())


def test_lazy_modules() -> None:
    with torch.device("meta"):
        layer = nn.LazyLinear(4)
    assert layer.weight.device.type == "meta"
    assert layer(empty(2, 3)).shape == (2, 4) and layer.weight.shape == (4, 3)
    assert layer.weight.is_meta


@pytest.mark.parametrize(
    "name",
    [
        *("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "Rprop", "NAdam", "RAdam"),
        *("Adamax", "ASGD", "Adafactor"),
    ],
)
def test_optimizers(name: str) -> None:
    params = [nn.Parameter(empty(3, 2)), nn.Parameter(torch.ones(3)), nn.Parameter(empty(5000))]
    settings = {"momentum": 0.9} if name == "SGD" else {}
    made = getattr(torch.optim, name)(params, lr=0.1, **settings)
    for _ in range(2):
        for p in params:
            p.grad = torch.ones_like(p)
        made.step()
    assert params[0].is_meta and not torch.equal(params[1], torch.ones(3))
    assert params[0]._version >= 2
    for p in params:
        for key, value in made.state[p].items():
            if isinstance(value, torch.Tensor) and value.ndim:
                assert value.is_meta == p.is_meta
            elif key == "step":
                assert value.item() == 2
    copied = getattr(torch.optim, name)(params, lr=0.1, **settings)
    copied.load_state_dict(made.state_dict())


def test_packed_sequences() -> None:
    packed = nn.utils.rnn.pack_padded_sequence(empty(5, 2, 4), torch.tensor([5, 3]))
    out, (h, c) = nn.LSTM(4, 3, device="meta")(packed)
    assert out.data.shape == (8, 3) and h.is_meta and c.shape == (1, 2, 3)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(out)
    assert padded.is_meta and padded.shape == (5, 2, 3) and lengths.tolist() == [5, 3]


def test_what_is_built_on_tensors() -> None:
    x = empty(2, 3)
    assert torch.func.vmap(lambda row: row * 2)(x).is_meta
    assert torch.func.jacrev(lambda v: v**2)(x).shape == (2, 3, 2, 3)
    assert torch.distributions.Normal(x, 1.0, validate_args=False).rsample((4,)).shape == (4, 2, 3)
    assert nn.utils.skip_init(nn.Linear, 3, 4).weight.device.type == "cpu"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nn.Linear(3, 2, device="meta")(x).dtype == torch.bfloat16
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        (x.clone().requires_grad_() * 2).sum().backward()
    with torch.graph.record() as graph:
        (x * 2).relu().sum()
    assert graph.run().is_meta
    with pytest.raises(RuntimeError, match="only available on CPU"):
        x.share_memory_()
    assert x.is_meta


def test_clipping_and_hooks() -> None:
    model = nn.Linear(3, 2, device="meta")
    model(empty(4, 3)).sum().backward()
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0).is_meta


def test_copies_and_pickles() -> None:
    layer = nn.Linear(3, 2, device="meta")
    twin = copy.deepcopy(layer)
    assert twin.weight.is_meta and twin.weight is not layer.weight
    x = empty(4, 5)
    pair = [x.t(), x[1:]]
    for loaded in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        assert [t.stride() for t in loaded] == [(1, 5), (5, 1)] and all(t.is_meta for t in loaded)
        stored = [t.untyped_storage()._cdata for t in loaded]
        assert stored[0] == stored[1] and loaded[1].storage_offset() == 5


def saved(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def test_files() -> None:
    state = {"a": empty(2, 3).t(), "p": nn.Parameter(empty(4)), "c": torch.ones(2)}
    loaded = torch.load(saved(state))
    assert loaded["a"].is_meta and loaded["a"].stride() == (1, 3) and not loaded["c"].is_meta
    assert isinstance(loaded["p"], nn.Parameter) and loaded["p"].is_meta
    full = {"w": torch.ones(5, 6), "v": torch.ones(5, 6).t()[1:], "b": torch.tensor([True])}
    blank = torch.load(saved(full), map_location="meta")
    assert all(t.is_meta for t in blank.values())
    assert all(same_geometry(blank[k], full[k]) for k in full)
    assert torch.load(saved(full), map_location=torch.device("meta"))["w"].is_meta
    assert torch.load(saved(full), map_location={"cpu": "meta"})["w"].is_meta


def test_storages() -> None:
    x = empty(2, 3)
    storage = x.untyped_storage()
    assert storage.device.type == "meta" and storage.size() == 24 and storage.data_ptr() == 0
    assert "device=meta) of size 24" in repr(storage) and repr(storage).startswith("...")
    assert torch.UntypedStorage(10, device="meta").device.type == "meta"
    assert storage.clone().device.type == "meta" and storage.resize_(40).size() == 40
    assert empty(0).set_(storage, 0, (2, 2)).shape == (2, 2)
    assert x.resize_(7, 7).shape == (7, 7) and x.is_meta
    with pytest.raises(NotImplementedError, match="no data"):
        storage.cpu()


# --- shape rules -----------------------------------------------------------------------


def test_rules_with_names_for_sizes() -> None:
    from weft.core.dispatch import REGISTRY

    batch, length = symbols("batch length")
    f32 = np.dtype(np.float32)
    infer = lambda name, *args, **attrs: REGISTRY[name].infer(*args, **attrs)[0][0]
    x = ((batch, length, 8), f32)
    assert infer("linear", x, ((5, 8), f32)) == (batch, length, 5)
    assert infer("add", x, ((8,), f32)) == (batch, length, 8)
    assert infer("sum", x, dim=(1,), keepdim=False) == (batch, 8)
    assert infer("cat", x, x, dim=1) == (batch, 2 * length, 8)
    assert infer("permute", x, dims=(2, 0, 1)) == (8, batch, length)
    conv = {"stride": (2,), "padding": (1,), "dilation": (1,), "groups": 1}
    found = infer("convolution", ((batch, 3, length), f32), ((4, 3, 3), f32), None, **conv)
    assert found[:2] == (batch, 4) and found[2].substitute({"length": 9}) == 5
    assert REGISTRY["add"].infer(x, ((8,), np.dtype(np.float64)))[0][1] == np.float64
    assert repr(ShapeDtype((batch, 2), f32)) == "float32[batch, 2]"
    with pytest.raises(RuntimeError):
        infer("mm", x, ((batch, 3), f32))


def test_plain_tensors_ask_nothing_once_all_meta_tensors_are_gone() -> None:
    x = empty(3)
    assert meta.LIVE
    del x
    before = set(meta.LIVE)
    y = torch.ones(3) + 1
    assert y.tolist() == [2.0] * 3 and before == meta.LIVE
