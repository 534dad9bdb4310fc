"""Layers and losses refuse what does not fit, as PyTorch's do, instead of computing something."""

from __future__ import annotations

import pytest

import weft
from weft import nn
from weft.autograd import gradcheck
from weft.nn import functional as F


def refuses(text: str, function, *args, kind: type[Exception] = RuntimeError, **kwargs) -> None:
    """Calling the function raises an error with these words in it."""
    with pytest.raises(kind) as caught:
        function(*args, **kwargs)
    assert text in str(caught.value)


def test_group_norm_needs_more_than_one_value():
    words = "Expected more than 1 value per channel when training, got input size [1, 10, 1]"
    refuses(words, nn.GroupNorm(10, 10), weft.rand(1, 10, 1), kind=ValueError)
    assert F.group_norm(weft.rand(2, 10), 10).eq(0).all()
    assert weft.group_norm(weft.rand(1, 10), 10).eq(0).all()


def test_ctc_loss_checks_lengths():
    log_probs = weft.zeros(50, 3, 15).log_softmax(2)
    targets = weft.ones(3, 29, dtype=weft.int64)
    lines = weft.arange(87) % 14 + 1
    at_least = "to have value at least 0, but got value -1"
    refuses("target_lengths " + at_least, F.ctc_loss, log_probs, targets, [50] * 3, [1, -1, 1])
    refuses("input_lengths " + at_least, F.ctc_loss, log_probs, targets, [50, 50, -1], [1, 1, 1])
    words = "Expected tensor to have size 75 at dimension 0, but got size 87"
    refuses(words, F.ctc_loss, log_probs, lines, [50] * 3, [30, 25, 20])
    assert F.ctc_loss(log_probs, lines, [50] * 3, [30, 30, 27]).isfinite()


def test_cosine_losses_check_dimensions_and_dtypes():
    words = "0D target tensor expects 1D input tensors, but found inputs with sizes [2, 5] and "
    pair = weft.ones(2, 5), weft.ones(2, 5)
    refuses(words, F.cosine_embedding_loss, *pair, weft.tensor(1.0))
    whole = weft.ones(3, dtype=weft.int8)
    assert float(F.cosine_similarity(whole, weft.ones(3), dim=0)) == pytest.approx(1)
    words = "expected common dtype to be floating point, yet common dtype is Char"
    refuses(words, F.cosine_similarity, whole, whole, dim=0)


def test_interpolate_takes_whole_sizes_only():
    x = weft.ones(1, 1, 4, 4)
    for size in ((2.0, 2.0), (weft.tensor(2.0),) * 2, 2.5):
        refuses("expected size to be one of int", F.interpolate, x, size=size, kind=TypeError)
    assert F.interpolate(x, size=(weft.tensor(2), 3)).shape == (1, 1, 2, 3)


@pytest.mark.parametrize("layer", [nn.ReflectionPad1d, nn.ReplicationPad1d])
def test_padding_refuses_samples_without_channels(layer):
    words = "Expected 2D or 3D (batch mode) tensor with possibly 0 batch size and other non-zero"
    refuses(words, layer(2), weft.zeros(3, 0, 10))
    assert layer(2)(weft.zeros(0, 3, 10)).shape == (0, 3, 14)
    assert nn.CircularPad1d(1)(weft.zeros(2, 0, 4)).shape == (2, 0, 6)


def test_fractional_pooling_needs_a_ratio_for_each_dimension():
    words = "fractional_max_pool2d requires output_ratio to either be a single Int or tuple of Ints"
    x = weft.ones(1, 1, 5, 5)
    refuses(words, F.fractional_max_pool2d, x, 2, output_ratio=(0.5,) * 3, kind=ValueError)


def test_multi_margin_loss_of_one_sample_has_the_shape_of_its_target():
    x = weft.tensor([0.1, 0.2, 0.7])
    assert F.multi_margin_loss(x, weft.tensor([2]), reduction="none").shape == (1,)
    assert F.multi_margin_loss(x, weft.tensor(2), reduction="none").shape == ()


def test_a_buffer_does_not_replace_a_plain_attribute():
    module = nn.Module()
    module.a = 5
    with pytest.raises(KeyError, match="attribute 'a' already exists"):
        module.a = nn.Buffer(weft.ones(1))
    assert module.a == 5 and not dict(module.named_buffers())
    module.b = nn.Buffer(weft.ones(1))
    module.b = nn.Buffer(weft.zeros(1))
    assert module.b == 0


def test_module_to_refuses_arguments_that_mean_nothing():
    module = nn.Linear(2, 2)
    refuses(".to() does not accept copy argument", module.to, "cpu", copy=True)
    words = "invalid combination of arguments"
    refuses(words, module.to, weft.device("cpu"), True, kind=TypeError)
    assert module.to("cpu", None, True) is module
    assert module.to("cpu", weft.float64, True).weight.dtype == weft.float64


def test_gradcheck_takes_empty_inputs():
    x = weft.zeros(0, 3, 2, dtype=weft.float64, requires_grad=True)
    assert gradcheck(lambda v: (v * 2).sum(), (x,))
    y = weft.zeros(1, dtype=weft.float64).expand(3).requires_grad_()
    refuses("has a dimension with stride 0", gradcheck, lambda v: v * 2, (y,))


@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float16])
def test_group_norm_with_float32_parameters_rounds_only_its_result(dtype):
    weft.manual_seed(0)
    start, seed = weft.randn(5, 6, 4, 3).to(dtype), weft.randn(5, 6, 4, 3).to(dtype)
    grads = []
    for wanted in (dtype, weft.float32):
        layer = nn.GroupNorm(3, 6)
        x = start.detach().to(wanted).requires_grad_()
        y = layer(x)
        y.backward(seed.to(wanted))
        assert y.dtype == x.grad.dtype == wanted
        grads.append((layer.weight.grad, layer.bias.grad, x.grad.to(dtype)))
    for ours, exact in zip(*grads, strict=True):
        assert ours.dtype == exact.dtype and weft.allclose(ours, exact, atol=1e-5, rtol=1e-5)
