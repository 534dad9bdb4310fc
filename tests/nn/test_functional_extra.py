"""What the op table does not see of nn.functional: state, streams, graphs, errors, warnings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F

torch = pytest.importorskip("torch")
TF = torch.nn.functional


def pair(*shape: int, seed: int = 0, grad: bool = False) -> tuple[Any, Any]:
    """The same float64 values in both systems."""
    values = np.random.default_rng(seed).standard_normal(shape)
    ours, theirs = weft.from_numpy(values.copy()), torch.from_numpy(values.copy())
    return ours.requires_grad_(grad), theirs.requires_grad_(grad)


def equal(ours: Any, theirs: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 4, 4)])
def test_batch_norm_moves_its_running_statistics(shape: Any, training: bool) -> None:
    x, tx = pair(*shape)
    (mean, tmean), (var, tvar) = pair(3, seed=1), pair(3, seed=2)
    var, tvar = var.abs(), tvar.abs()
    version = mean._version
    y = F.batch_norm(x, mean, var, training=training, momentum=0.3)
    equal(y, TF.batch_norm(tx, tmean, tvar, training=training, momentum=0.3))
    equal(mean, tmean)
    equal(var, tvar)
    assert (mean._version > version) is training


def test_instance_norm_moves_its_running_statistics() -> None:
    x, tx = pair(2, 3, 5)
    (mean, tmean), (var, tvar) = pair(3, seed=1), pair(3, seed=2)
    var, tvar = var.abs(), tvar.abs()
    equal(F.instance_norm(x, mean, var), TF.instance_norm(tx, tmean, tvar))
    equal(mean, tmean)
    equal(var, tvar)


@pytest.mark.parametrize(
    "name", ["dropout", "alpha_dropout", "dropout1d", "dropout2d", "dropout3d"]
)
def test_dropout_draws_from_the_stream_of_torch(name: str) -> None:
    x, tx = pair(3, 4, 5) if name == "dropout1d" else pair(2, 3, 4, 5, 6)
    if name == "dropout2d":
        x, tx = x[0], tx[0]
    weft.manual_seed(7)
    torch.manual_seed(7)
    for p in (0.3, 0.8):
        ours = getattr(F, name)(x, p, training=True)
        equal(ours, getattr(TF, name)(tx, p, training=True))


def test_dropout_of_a_transposed_input_draws_in_memory_order() -> None:
    x, tx = pair(4, 6)
    weft.manual_seed(3)
    torch.manual_seed(3)
    equal(F.dropout(x.t(), 0.5), TF.dropout(tx.t(), 0.5))


def test_dropout_in_place() -> None:
    x, tx = pair(4, 6)
    weft.manual_seed(3)
    torch.manual_seed(3)
    assert F.dropout(x, 0.5, inplace=True) is x
    equal(x, TF.dropout(tx, 0.5, inplace=True))


def second_order(module: Any, function: Callable, inputs: list[Any]) -> list[Any]:
    y = function(module.nn.functional, *inputs)
    first = module.autograd.grad((y * y).sum(), inputs, create_graph=True)
    return module.autograd.grad(sum((g * g * g).sum() for g in first), inputs)


@pytest.mark.parametrize(
    ("shapes", "function"),
    [
        ([(2, 2, 5, 5), (4, 1, 3, 3), (4,)], lambda F, x, w, b: F.conv2d(x, w, b, 2, 1, 1, 2)),
        ([(2, 4, 3), (4, 1, 3)], lambda F, x, w: F.conv_transpose1d(x, w, None, 2, 1, 1, 2)),
        # More output padding than stride: the gradient must leave the last places out.
        (
            [(1, 2, 3), (2, 2, 2)],
            lambda F, x, w: F.conv_transpose1d(x, w, None, 1, 0, 1, 1, dilation=2),
        ),
        ([(3, 2, 4), (2,), (2,)], lambda F, x, w, b: F.batch_norm(x, None, None, w, b, True)),
        ([(3, 4), (4,), (4,)], lambda F, x, w, b: F.layer_norm(x, (4,), w, b)),
        ([(3, 4), (4,)], lambda F, x, w: F.rms_norm(x, (4,), w)),
        ([(3, 4)], lambda F, x: F.softmax(x, 1)),
        ([(3, 4)], lambda F, x: F.log_softmax(x, 0)),
        ([(1, 2, 5, 5)], lambda F, x: F.max_pool2d(x, 3, 2, 1)),
        ([(1, 2, 5, 5)], lambda F, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
        ([(3, 4), (3, 4)], lambda F, x, y: F.smooth_l1_loss(x, y, beta=0.5)),
        (
            [(2, 3, 4), (2, 5, 4), (2, 5, 4)],
            lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ),
    ],
)
def test_second_order_gradients_agree_with_torch(shapes: Any, function: Callable) -> None:
    made = [pair(*s, seed=i, grad=True) for i, s in enumerate(shapes)]
    ours = second_order(weft, function, [a for a, _ in made])
    theirs = second_order(torch, function, [b for _, b in made])
    for a, b in zip(ours, theirs, strict=True):
        equal(a, b, 1e-8)


def test_hot_functions_are_one_node() -> None:
    x, _ = pair(4, 3, grad=True)
    target = weft.tensor([0, 2, 1, 0])
    loss = F.cross_entropy(x, target)
    assert loss.grad_fn.name() == "NllLossBackward0"
    assert loss.grad_fn.next_functions[0][0].name() == "LogSoftmaxBackward0"
    assert F.mse_loss(x, x.detach()).grad_fn.name() == "MseLossBackward0"
    assert F.layer_norm(x, (3,)).grad_fn.name() == "NativeLayerNormBackward0"


def test_embedding_renormalises_only_the_rows_it_reads() -> None:
    table, ttable = pair(5, 3)
    table, ttable = table * 10, ttable * 10
    equal(
        F.embedding(weft.tensor([1, 3]), table, max_norm=1.0),
        TF.embedding(torch.tensor([1, 3]), ttable, max_norm=1.0),
    )
    equal(table, ttable)


def test_a_row_with_nothing_to_attend_to_is_zero() -> None:
    q, _ = pair(1, 2, 4)
    mask = weft.tensor([[True, False], [False, False]])
    y = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    assert (y[0, 1] == 0).all() and not y.isnan().any()


def test_ignored_targets_may_be_infinite() -> None:
    logs = weft.tensor([[float("-inf"), 0.0], [-1.0, -2.0]], requires_grad=True)
    loss = F.nll_loss(logs, weft.tensor([-100, 1]))
    loss.backward()
    assert loss.item() == 2.0
    assert logs.grad.tolist() == [[0.0, 0.0], [0.0, -1.0]]


@pytest.mark.parametrize("swap", [False, True])
def test_triplet_loss_with_a_distance_of_ones_own(swap: bool) -> None:
    made = [pair(3, 4, seed=i) for i in range(3)]

    def distance(a: Any, b: Any) -> Any:
        return ((a - b) ** 4).sum(-1)

    how = {"distance_function": distance, "margin": 2.0, "swap": swap}
    equal(
        F.triplet_margin_with_distance_loss(*(a for a, _ in made), **how),
        TF.triplet_margin_with_distance_loss(*(b for _, b in made), **how),
    )


def x23() -> Any:
    return weft.ones(2, 3)


@pytest.mark.parametrize(
    ("kind", "match", "call"),
    [
        (NotImplementedError, "softmax", lambda: F.softmax(weft.arange(3), 0)),
        (RuntimeError, "normalized_shape", lambda: F.layer_norm(x23(), (4,))),
        (ValueError, "more than 1 value", lambda: F.batch_norm(
            weft.ones(1, 3), None, None, training=True)),
        (RuntimeError, "evaluation mode", lambda: F.batch_norm(x23(), None, None)),
        (ValueError, "between 0 and 1", lambda: F.dropout(x23(), 1.5)),
        (RuntimeError, "channels", lambda: F.conv1d(weft.ones(1, 3, 4), weft.ones(2, 4, 1))),
        (RuntimeError, "strided", lambda: F.conv1d(
            weft.ones(1, 1, 4), weft.ones(1, 1, 2), stride=2, padding="same")),
        (RuntimeError, "half of effective", lambda: F.max_pool1d(weft.ones(1, 1, 4), 3, padding=2)),
        (ValueError, "either size", lambda: F.interpolate(weft.ones(1, 1, 2, 2))),
        (IndexError, "out of range", lambda: F.embedding(weft.tensor([7]), x23())),
        (IndexError, "Target 5 is out of bounds", lambda: F.nll_loss(x23(), weft.tensor([1, 5]))),
        (ValueError, "batch_size", lambda: F.cross_entropy(x23(), weft.tensor([1, 1, 1]))),
        (ValueError, "not a valid value", lambda: F.mse_loss(x23(), x23(), reduction="no")),
        (RuntimeError, "between 0 and 1", lambda: F.binary_cross_entropy(3 * x23(), x23())),
        (RuntimeError, "is_causal", lambda: F.scaled_dot_product_attention(
            x23(), x23(), x23(), attn_mask=weft.ones(2, 2), is_causal=True)),
    ],
)  # fmt: skip
def test_errors_have_the_class_of_torch_and_name_the_line(
    kind: type[Exception], match: str, call: Callable
) -> None:
    with pytest.raises(kind, match=match) as caught:
        call()
    assert "test_functional_extra.py" in str(caught.value)


def test_warnings() -> None:
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        F.softmax(x23())
    with pytest.warns(UserWarning, match="different to the input size"):
        F.mse_loss(x23(), weft.ones(3))
    with pytest.warns(UserWarning, match="please use reduction='sum'"):
        F.l1_loss(x23(), x23(), size_average=False)
    with pytest.warns(UserWarning, match="batchmean"):
        F.kl_div(x23(), x23())


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_the_bias_of_a_transposed_convolution_in_double_precision(dims: int, dtype: str) -> None:
    def run(lib: Any) -> list[Any]:
        x = lib.arange(8, dtype=lib.float64).reshape(1, 2, 4, *[1] * (dims - 1))
        weight = lib.arange(12, dtype=lib.float64).reshape(2, 3, 2, *[1] * (dims - 1))
        bias = lib.tensor([1, 2, 3], dtype=getattr(lib, dtype))
        if bias.is_floating_point():
            bias.requires_grad_()
        y = getattr(lib.nn.functional, f"conv_transpose{dims}d")(x, weight, bias)
        if bias.requires_grad:
            y.sum().backward()
        return [y, bias if bias.grad is None else bias.grad]

    for mine, theirs in zip(run(weft), run(torch), strict=True):
        assert str(mine.dtype) == str(theirs.dtype)
        assert mine.tolist() == theirs.tolist()
