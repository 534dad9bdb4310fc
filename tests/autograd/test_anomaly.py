"""Anomaly mode: PyTorch's error, and the walk to the first bad value, forward or backward."""

from __future__ import annotations

import threading
import warnings

import pytest

import weft
from weft.core.node import FREED

NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def told(run):
    """What anomaly mode says of a program."""
    with pytest.raises(RuntimeError, match="returned nan values") as caught:
        with weft.autograd.detect_anomaly():
            run()
    return str(caught.value)


def leaf(T, *values):
    return T.tensor(list(values), requires_grad=True)


def slope(T):
    (leaf(T, 0.0, 4.0).sqrt() * T.zeros(2)).sum().backward()


def second_input(T):
    x, w = leaf(T, -1.0, 4.0), leaf(T, 1.0, 1.0)
    (x.log() * w).sum().backward()


def scalar(T):
    (leaf(T, 0.0).sum().sqrt() * 0).backward()


def several_results(T):
    a, b = leaf(T, 0.0, 1.0).unbind()
    (a.sqrt() * 0 + b).backward()


def given(T):
    (leaf(T, 1.0, 2.0) * 2).backward(T.tensor([NAN, 1.0]))


def infinite(T):
    ((leaf(T, 1.0, 2.0) * 0).sqrt() * 3).sum().backward()


def in_place(T):
    y = leaf(T, 0.0, 1.0) * 1
    y.sqrt_()
    (y * 0).sum().backward()


def power(T):
    (leaf(T, 0.0, 1.0) ** 0.5 * 0).sum().backward()


def second_order(T):
    x = leaf(T, 0.0, 1.0)
    (g,) = T.autograd.grad((x * x.abs().sqrt()).sum(), x, create_graph=True)
    g.sum().backward()


@pytest.mark.parametrize(
    "program",
    [slope, second_input, scalar, several_results, given, infinite, in_place, power, second_order],
)
def test_the_error_begins_as_pytorchs(program):
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError) as caught:
        with torch.autograd.detect_anomaly():
            program(torch)
    first = str(caught.value).splitlines()[0]
    assert told(lambda: program(weft)).splitlines()[0] == first


def test_a_backward_that_made_it():
    x = weft.tensor([0.0, 4.0, 9.0], requires_grad=True)

    def run():
        root = x.sqrt()  # the line
        (root * weft.zeros(3)).sum().backward()

    text = told(run)
    assert "the backward of sqrt made the first NaN" in text
    assert "at tests/autograd/test_anomaly.py" in text and "root = x.sqrt()  # the line" in text
    assert "gradient: float32[3], min 0, max 0, mean 0, 3 zeros" in text
    assert "float32[3], min 0, max 9, mean 4.333, 1 zero" in text
    assert "result: float32[3], min 0, max 3, mean 1.667, 1 zero" in text
    assert "slope of sqrt is infinite at 0" in text


def test_a_number():
    text = told(lambda: scalar(weft))
    assert "gradient: float32[], min 0, max 0, mean 0, 1 zero" in text


def test_a_forward_that_made_it():
    x, w = leaf(weft, 1.0, -3.0, NAN), leaf(weft, 2.0, 2.0, 2.0)

    def run():
        low = (x.nan_to_num(0.0) - 1) * 2
        high = low.log()  # the line
        (high.sin() * w).sum().backward()

    text = told(run)
    assert "Function 'MulBackward0' returned nan values in its 1th output." in text
    assert "in the forward pass log made the first NaN" in text
    assert "high = low.log()  # the line" in text
    assert "mul: float32[3], min -8, max 0, mean -3.333, 1 zero" in text


def test_an_input_that_had_it():
    data, w = weft.tensor([1.0, NAN, INF]), leaf(weft, 1.0, 1.0, 1.0)
    text = told(lambda: (data * w).sum().backward())
    assert "made the first NaN" in text and "in the forward pass" in text


def test_an_infinity_of_backward_that_became_nan():
    def run():
        x = leaf(weft, 1.0, 2.0)
        flat = x * 0
        root = flat.sqrt()  # the line
        (root * 3).sum().backward()

    text = told(run)
    assert "Function 'MulBackward0'" in text
    assert "the backward of sqrt made the first infinity" in text
    assert "root = flat.sqrt()  # the line" in text
    assert "gradient: float32[2], min 3, max 3" in text


def test_an_infinity_beside_the_way_is_not_blamed():
    def run():
        x, other = leaf(weft, 1.0, 2.0), leaf(weft, 0.0, 1.0)
        root = (x * 0).sqrt()
        beside = other**0.5  # has an infinite slope as well, met before, which harms nobody
        (root.sum() + beside.sum()).backward()

    text = told(run)
    assert "Function 'MulBackward0'" in text and "of sqrt made the first infinity" in text


def test_a_gradient_that_was_given():
    text = told(lambda: given(weft))
    assert "received a NaN: backward() was given it, or a hook made it" in text
    assert "1 NaN" in text and "made the first" not in text


def test_masks_of_minus_infinity_are_not_blamed():
    def run():
        x = leaf(weft, 1.0, 2.0)
        masked = x.masked_fill(weft.tensor([True, True]), -INF)
        masked.softmax(0).sum().backward()

    assert "softmax made the first NaN" in told(run)


def test_values_that_are_gone_are_admitted():
    def run():
        x = leaf(weft, 0.0, 1.0)
        ((x + weft.zeros(2)).sqrt() * weft.zeros(2)).sum().backward()

    text = told(run)
    assert "the backward of sqrt made the first NaN" in text
    assert "add: float32[2], value no longer kept" in text
    assert "not all values are kept: the value of" in text and "gone" in text
    assert "result: float32[2], min 0, max 1, mean 0.5, 1 zero" in text  # this one was saved


def test_values_that_were_changed_are_not_shown_as_if_they_were_not():
    def run():
        x, shift = leaf(weft, 0.0, 1.0), weft.zeros(2)
        y = (x + shift).sqrt()
        shift += 100
        (y * 0).sum().backward()

    text = told(run)
    assert (
        "add: float32[2], value no longer kept" in text
        and "100" not in text.partition("recorded here")[0]
    )
    assert "what sqrt read was changed in place since" in text


def test_a_changed_value_blames_nobody():
    def run():
        x, shift = leaf(weft, 0.0, 1.0), weft.zeros(2)
        y = (x + shift).sqrt()
        shift.fill_(NAN)
        (y * 0).sum().backward()

    text = told(run)
    assert "the backward of sqrt made the first NaN" in text and "in the forward pass" not in text


def test_custom_functions():
    class Broken(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * NAN

    text = told(lambda: Broken.apply(leaf(weft, 1.0, 2.0) + 1).sum().backward())
    assert text.startswith("Function 'BrokenBackward' returned nan values in its 0th output.")
    assert "the backward of Broken made the first NaN" in text
    text = told(lambda: (Broken.apply(leaf(weft, 1.0)) - 3).sqrt().sum().backward())
    assert "sqrt" in text.splitlines()[0].lower()


def test_saved_tensor_hooks():
    def run():
        x = leaf(weft, 0.0, 1.0)
        with weft.autograd.graph.saved_tensors_hooks(lambda t: [t], lambda p: p[0]):
            (x.sqrt() * 0).sum().backward()

    assert "the backward of sqrt made the first NaN" in told(run)


@pytest.mark.parametrize("dtype", [weft.float64, weft.float16, weft.bfloat16, weft.complex64])
def test_types(dtype):
    x = weft.tensor([0.0, 1.0], dtype=dtype, requires_grad=True)
    text = told(lambda: (x.sqrt() * 0).abs().sum().backward())
    assert "the backward of" in text and "1 zero" in text


def test_a_long_chain():
    def run():
        x = leaf(weft, 0.0, 1.0)
        y = x.sqrt()
        for _ in range(3000):
            y = y * 1.0
        (y * 0).sum().backward()

    assert "the backward of sqrt made the first NaN" in told(run)


def test_a_very_long_chain_made_before():
    x = leaf(weft, 0.0, 1.0)
    y = x
    for _ in range(100_000):
        y = y * 1.0
    with weft.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError) as caught:
        (y.sqrt() * 0).sum().backward()
    assert "the backward of sqrt made the first NaN" in str(caught.value)
    assert "1 zero" in str(caught.value)


def test_saved_values_are_freed_when_the_pass_is_over():
    x = leaf(weft, 1.0, 2.0)
    with weft.autograd.detect_anomaly():
        y = x.exp()
        y.sum().backward()
        assert y.grad_fn.saved is FREED
        with pytest.raises(RuntimeError, match="a second time"):
            y.sum().backward()
        z = x.exp()
        z.sum().backward(retain_graph=True)
        z.sum().backward()
    bad = x.sub(x.detach()).sqrt()
    with weft.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="returned nan"):
        (bad * 0).sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        (bad * 1).sum().backward()


def test_the_walk_disturbs_nothing():
    x = leaf(weft, 0.0, 1.0)
    weft.manual_seed(3)
    expected = weft.rand(2).tolist()
    weft.manual_seed(3)
    with weft.graph.record() as g:
        dropped = weft.nn.functional.dropout(x * 1, 0.0)
        with weft.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError):
            (dropped.sqrt() * 0).sum().backward()
        x * 5
    assert weft.rand(2).tolist() == expected
    assert [n.op for n in g if n.kind == "forward"].count("sqrt") == 1
    assert weft.is_grad_enabled() and not weft.is_anomaly_enabled()


def test_other_threads_and_unchecked_passes():
    x = leaf(weft, 0.0, 1.0)
    failed = []

    def work():
        try:
            (x.sqrt() * 0).sum().backward()
        except RuntimeError as error:
            failed.append(error)

    with weft.autograd.detect_anomaly():
        other = threading.Thread(target=work)
        other.start()
        other.join()
    with weft.autograd.detect_anomaly(check_nan=False):
        work()
    assert not failed


def test_empty_tensors():
    x = weft.zeros(0, 3, requires_grad=True)
    with weft.autograd.detect_anomaly():
        (x.sqrt() * 0).sum().backward()
    assert x.grad.shape == (0, 3)
