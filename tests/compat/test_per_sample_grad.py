"""``call_for_per_sample_grads``: a gradient for each example, from an ordinary backward pass."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import weft
from weft.nn.utils import _per_sample_grad as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.nn.utils._per_sample_grad")

LAYERS = {
    "linear": (lambda t: t.nn.Linear(4, 3), (5, 4)),
    "linear without bias": (lambda t: t.nn.Linear(4, 3, bias=False), (5, 4)),
    "linear over sequences": (lambda t: t.nn.Linear(4, 3), (5, 2, 4)),
    "conv1d": (lambda t: t.nn.Conv1d(2, 4, 3, padding="same"), (3, 2, 5)),
    "conv2d": (lambda t: t.nn.Conv2d(2, 4, 3, padding=1, groups=2), (3, 2, 5, 5)),
    "conv3d": (lambda t: t.nn.Conv3d(2, 4, 3, stride=2), (3, 2, 5, 5, 5)),
    "group norm": (lambda t: t.nn.GroupNorm(2, 4), (3, 4, 5)),
    "layer norm": (lambda t: t.nn.LayerNorm(4), (3, 2, 4)),
    "instance norm": (
        lambda t: t.nn.InstanceNorm1d(4, affine=True, track_running_stats=True), (3, 4, 5)
    ),
    "embedding": (lambda t: t.nn.Embedding(7, 3, padding_idx=1), None),
    "several layers": (
        lambda t: t.nn.Sequential(
            t.nn.Conv2d(1, 3, 3), t.nn.ReLU(), t.nn.Flatten(), t.nn.Linear(27, 2)
        ),
        (4, 1, 5, 5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_examples_are_those_of_torch(name: str, reduction: str) -> None:
    make, shape = LAYERS[name]
    draws = np.random.default_rng(0)
    x = np.array([[0, 1, 1], [2, 3, 6]])
    if shape is not None:
        x = draws.standard_normal(shape).astype(np.float32)
    other, module = make(torch), make(weft)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.copy_(torch.from_numpy(draws.standard_normal(parameter.shape)))
    module.load_state_dict({k: weft.tensor(v.numpy()) for k, v in other.state_dict().items()})
    results = {}
    for part, t, m in ((theirs, torch, other), (ours, weft, module)):
        out = part.call_for_per_sample_grads(m, loss_reduction=reduction)(t.tensor(x))
        (out**2).sum().backward()
        assert all(p.grad is None for p in m.parameters())
        results[t] = {n: p.grad_sample.detach().numpy() for n, p in m.named_parameters()}
        results[t].update({n: b.numpy() for n, b in m.named_buffers()})
    for key, expected in results[torch].items():
        scale = np.abs(expected).max()
        np.testing.assert_allclose(results[weft][key], expected, rtol=1e-5, atol=1e-6 * scale)


def test_a_weight_that_is_used_twice_gets_the_sum() -> None:
    layer = weft.nn.Linear(3, 3)
    both = weft.nn.Sequential(layer, layer)
    x = weft.randn(4, 3)
    ours.call_for_per_sample_grads(both)(x).sum().backward()
    for i in range(4):
        both.zero_grad()
        both(x[i : i + 1]).sum().backward()
        weft.testing.assert_close(layer.weight.grad_sample[i], layer.weight.grad)


def test_frozen_parameters_get_none() -> None:
    layer = weft.nn.Linear(3, 2)
    layer.bias.requires_grad_(False)
    ours.call_for_per_sample_grads(layer, batch_size=4)(weft.ones(4, 3)).sum().backward()
    assert layer.weight.grad_sample.shape == (4, 2, 3)
    assert not hasattr(layer.bias, "grad_sample")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f, t: f(t.nn.Linear(2, 2), loss_reduction="none"), "to be sum or mean, got none"),
        (lambda f, t: f(len), "must be nn.Module, got builtin_function_or_method"),
        (lambda f, t: f(t.nn.Linear(2, 2), batch_size=2.0), "None or an integer, got float"),
        (lambda f, t: f(t.nn.Linear(2, 2), batch_size=0), "Batch size must be positive, got 0"),
        (lambda f, t: f(t.nn.Linear(2, 2))(), "in the passed args and kwargs"),
        (
            lambda f, t: f(t.nn.Bilinear(2, 2, 2))(t.ones(3, 2), t.ones(4, 2)),
            "computing batch size",
        ),
        (lambda f, t: f(t.nn.Linear(2, 2), batch_size=3)(t.ones(4, 2)), "batch size of 4 with"),
        (lambda f, t: f(t.nn.Linear(2, 2), batch_size=2)(t.ones(2)), "batch"),
        (lambda f, t: f(t.nn.Linear(2, 2), batch_size=2)(t.ones(0, 2)), "0 is not a valid batch"),
        (lambda f, t: f(t.nn.LayerNorm(2), batch_size=2)(t.ones(2)), "batch dimension"),
        (lambda f, t: f(t.nn.BatchNorm1d(2))(t.ones(4, 2)), "cannot handle function batch_norm"),
    ],
)
def test_what_torch_refuses_is_refused(call, words: str) -> None:
    for part, t in ((theirs, torch), (ours, weft)):
        with pytest.raises(RuntimeError, match=words):
            call(part.call_for_per_sample_grads, t)


def test_a_second_call_asks_for_the_first_ones_gradients_to_be_cleared() -> None:
    layer = weft.nn.Linear(3, 2)
    ours.call_for_per_sample_grads(layer)(weft.ones(4, 3)).sum().backward()
    with pytest.raises(RuntimeError, match="weight has a grad_sample already"):
        ours.call_for_per_sample_grads(layer)
    with pytest.raises(RuntimeError, match="of Tensors, got int"):
        ours.ExpandedWeight(3, 1, "sum")
    with pytest.raises(RuntimeError, match="of tensors that requires_grad"):
        ours.ExpandedWeight(weft.ones(2), 1, "sum")


def test_libraries_find_it_where_torch_has_it() -> None:
    code = (
        "from weft import compat; compat.install()\n"
        "from torch.nn.utils._per_sample_grad import call_for_per_sample_grads\n"
        "from torch.nn.utils._expanded_weights.expanded_weights_impl import ExpandedWeight\n"
        "print(call_for_per_sample_grads.__module__, ExpandedWeight.__module__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    home = "torch.nn.utils._expanded_weights.expanded_weights_impl"
    assert done.stdout.split() == ["torch.nn.utils._per_sample_grad", home]
