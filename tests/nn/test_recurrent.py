"""Recurrent layers as one op each: against PyTorch, against the same layer step by step, and in
their corners."""

from __future__ import annotations

import copy
import itertools
import os
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import weft
from weft.core.dispatch import REGISTRY
from weft.core.selection import enable, ready
from weft.operators.recurrent import run_layer
from weft.operators.recurrent_steps import run_steps
from weft.references import recurrent as kernels

try:
    import torch
except ImportError:  # the rest is tested all the same
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="compares with PyTorch")
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
KINDS = ("LSTM", "GRU", "RNN")
TOLERANCE = {"float64": 1e-10, "float32": 2e-5}


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def pair(kind: str, dtype: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """The same layer in both systems."""
    theirs = getattr(torch.nn, kind)(*args, **kwargs).to(getattr(torch, dtype))
    mine = getattr(weft.nn, kind)(*args, **kwargs).to(getattr(weft, dtype))
    mine.load_state_dict({k: weft.tensor(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    return mine, theirs


def flat(value: Any) -> list[Any]:
    """All tensors of a result, those of packed sequences included."""
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in flat(v)]
    return [value] if hasattr(value, "dtype") else []


def close(found: Any, expected: Any, dtype: str) -> None:
    a, b = found.detach().numpy(), expected.detach().numpy()
    assert a.shape == b.shape and a.dtype == b.dtype
    np.testing.assert_allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def compare(mine: Any, theirs: Any, call: Any, arrays: list[np.ndarray], dtype: str) -> None:
    """Results and all gradients of a call on both systems."""
    runs = []
    for lib, layer in ((weft, mine), (torch, theirs)):
        tensors = [lib.tensor(a.astype(dtype)).requires_grad_() for a in arrays]
        results = [r for r in flat(call(lib, layer, tensors)) if r.is_floating_point()]
        weights = [
            lib.tensor(numbers(9 + k, *r.shape).astype(dtype)) for k, r in enumerate(results)
        ]
        sum((r * w).sum() for r, w in zip(results, weights, strict=True)).backward()
        runs.append((results, [t.grad for t in (*tensors, *layer.parameters())]))
    for found, expected in zip(*runs, strict=True):
        for a, b in zip(found, expected, strict=True):
            close(a, b, dtype)


def state_shapes(kind: str, layers: int, batch: int, size: int, projection: int) -> list[Any]:
    first = (layers, batch, projection or size)
    return [first, (layers, batch, size)] if kind == "LSTM" else [first]


def as_state(kind: str, tensors: Any) -> Any:
    return tuple(tensors) if kind == "LSTM" else tensors[0]


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(12))
def test_layers_agree_with_torch(kind: str, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers, directions, batch, length = (int(rng.integers(1, n)) for n in (4, 3, 5, 7))
    size, features = (int(n) for n in rng.integers(2, 7, 2))
    options: dict[str, Any] = {
        "num_layers": layers,
        "bidirectional": directions == 2,
        "bias": bool(rng.integers(2)),
        "batch_first": bool(rng.integers(2)),
    }
    projection = 0
    if kind == "LSTM" and rng.integers(2):
        projection = options["proj_size"] = 1
    if kind == "RNN":
        options["nonlinearity"] = ("tanh", "relu")[rng.integers(2)]
    mine, theirs = pair(kind, dtype, features, size, **options)
    shape = (batch, length, features) if options["batch_first"] else (length, batch, features)
    arrays = [numbers(seed, *shape)]
    if rng.integers(2):
        shapes = state_shapes(kind, layers * directions, batch, size, projection)
        arrays += [numbers(seed + k, *s) for k, s in enumerate(shapes)]

    def call(lib: Any, layer: Any, tensors: Any) -> Any:
        return layer(tensors[0], as_state(kind, tensors[1:])) if tensors[1:] else layer(tensors[0])

    compare(mine, theirs, call, arrays, dtype)


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [64, 33])
def test_larger_layers_agree_with_torch(kind: str, dtype: str, size: int) -> None:
    """Of a size at which native code runs, with rows that are a power of two long and others."""
    for options in ({}, {"nonlinearity": "relu"} if kind == "RNN" else {"bias": False}):
        mine, theirs = pair(kind, dtype, 24, size, 2, bidirectional=True, **options)
        shapes = [(9, 16, 24), *state_shapes(kind, 4, 16, size, 0)]
        arrays = [0.3 * numbers(k, *s) for k, s in enumerate(shapes)]
        call = lambda lib, layer, tensors: layer(tensors[0], as_state(kind, tensors[1:]))
        compare(mine, theirs, call, arrays, dtype)


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [[4, 4, 1], [5, 3, 2], [2, 5, 3], [1, 1], [3]], ids=str)
@pytest.mark.parametrize("projection", [0, 2])
def test_packed_sequences_agree_with_torch(kind: str, lengths: list[int], projection: int) -> None:
    if projection and kind != "LSTM":
        return
    more = {"proj_size": projection} if projection else {}
    mine, theirs = pair(kind, "float64", 3, 4, 2, bidirectional=True, **more)
    shapes = state_shapes(kind, 4, len(lengths), 4, projection)
    arrays = [numbers(0, max(lengths), len(lengths), 3)]
    arrays += [numbers(1 + k, *s) for k, s in enumerate(shapes)]

    def call(lib: Any, layer: Any, tensors: Any) -> Any:
        pack = lib.nn.utils.rnn.pack_padded_sequence
        packed = pack(tensors[0], lib.tensor(lengths), enforce_sorted=False)
        output, state = layer(packed, as_state(kind, tensors[1:]))
        return output.data, state

    compare(mine, theirs, call, arrays, "float64")


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 3), (3,), (0, 3)], ids=str)
def test_cells_agree_with_torch(kind: str, bias: bool, shape: tuple[int, ...]) -> None:
    mine, theirs = pair(f"{kind}Cell", "float64", 3, 4, bias)
    lead = shape[:-1]
    states = [(*lead, 4)] * (2 if kind == "LSTM" else 1)
    arrays = [numbers(0, *shape), *(numbers(1 + k, *s) for k, s in enumerate(states))]

    def call(lib: Any, cell: Any, tensors: Any) -> Any:
        return cell(tensors[0], as_state(kind, tensors[1:])), cell(tensors[0])

    compare(mine, theirs, call, arrays, "float64")


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
def test_corners_agree_with_torch(kind: str) -> None:
    mine, theirs = pair(kind, "float64", 3, 4, 2)
    turned = lambda lib, layer, tensors: layer(tensors[0].transpose(0, 2)[:, ::2])
    compare(mine, theirs, turned, [numbers(0, 3, 4, 5)], "float64")
    plain = lambda lib, layer, tensors: layer(tensors[0])
    compare(mine, theirs, plain, [numbers(0, 5, 3)], "float64")  # no batch
    compare(mine, theirs, plain, [numbers(0, 5, 0, 3)], "float64")  # an empty batch
    spread = lambda lib, layer, tensors: layer(tensors[0].expand(5, 2, 3))
    compare(mine, theirs, spread, [numbers(0, 1, 1, 3)], "float64")
    wild = numbers(0, 4, 2, 3)
    wild[0, 0, 0], wild[1, 1, 1], wild[2, 0, 2] = np.nan, np.inf, -np.inf
    compare(mine, theirs, plain, [wild], "float64")


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_without_features_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="input_size must be greater than zero"):
        getattr(weft.nn, kind)(0, 3)


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_agree_with_torch(kind: str) -> None:
    mine, theirs = pair(kind, "float64", 2, 3, 2, bidirectional=True)
    found = []
    for lib, layer in ((weft, mine), (torch, theirs)):
        x = lib.tensor(numbers(0, 4, 2, 2)).requires_grad_()
        output, _ = layer(x)
        weights = list(layer.parameters())
        first = lib.autograd.grad(output.sin().sum(), [x, *weights], create_graph=True)
        total = sum((g * g).sum() for g in first)
        found.append(lib.autograd.grad(total, [x, *weights]))
    for a, b in zip(*found, strict=True):
        close(a, b, "float64")


@needs_torch
def test_functions_agree_with_torch() -> None:
    x, h = numbers(0, 5, 2, 3), numbers(1, 2, 2, 4)
    cases = [("lstm", "LSTM"), ("gru", "GRU"), ("rnn_tanh", "RNN"), ("rnn_relu", "RNN")]
    for name, kind in cases:
        results = []
        layers = pair(kind, "float64", 3, 4, 1, bidirectional=True)
        for lib, layer in zip((weft, torch), layers, strict=True):
            data, state, weights = lib.tensor(x), lib.tensor(h), layer._flat_weights
            state = [state, state + 1] if kind == "LSTM" else state
            run = getattr(lib, name)
            packed = data.reshape(10, 3), lib.tensor([2, 2, 2, 2, 1, 1])
            wrong = [
                lambda run=run, a=(data, state, weights): run(*a, True, 3, 0.0, False, True, False),
                lambda run=run, a=(data, state, weights): run(*a, True, 1, 0.0),
                lambda run=run, a=(data, state, weights): run(*a, True, 1, 0.0, 0, 0, 0, 0, 0),
                lambda run=run, a=(data[..., :2], state, weights): run(
                    *a, True, 1, 0.0, False, True, False
                ),
            ]
            results.append(
                [
                    run(data, state, weights, True, 1, 0.0, False, True, False),
                    run(data.transpose(0, 1), state, weights, True, 1, 0.5, False, True, True),
                    run(*packed, state, weights, True, 1, 0.0, False, True),
                    run(
                        data=packed[0],
                        batch_sizes=packed[1],
                        hx=state,
                        params=weights,
                        has_biases=True,
                        num_layers=1,
                        dropout=0.0,
                        train=True,
                        bidirectional=True,
                    ),
                    [error(call) for call in wrong],
                ]
            )
        for a, b in zip(flat(results[0]), flat(results[1]), strict=True):
            close(a, b, "float64")
        assert results[0][-1] == results[1][-1]


def error(call: Any) -> str:
    try:
        call()
    except Exception as e:
        return type(e).__name__
    return "none"


@needs_torch
def test_cell_functions_agree_with_torch() -> None:
    for name, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
        results = []
        for lib in (weft, torch):
            x, h = lib.tensor(numbers(0, 2, 3)), lib.tensor(numbers(1, 2, 4))
            w = [lib.tensor(numbers(2, gates * 4, n)) for n in (3, 4)]
            b = [lib.tensor(numbers(3 + k, gates * 4)) for k in range(2)]
            state = (h, h + 1) if name == "lstm" else h
            run = getattr(lib, f"{name}_cell")
            bad = (h[:1], h[:1]) if name == "lstm" else h[:1]
            wrong = [error(lambda: run(x[:, :2], state, *w)), error(lambda: run(x, bad, *w))]  # noqa: B023
            results.append([run(x, state, *w, *b), run(x, state, *w), wrong])
        for a, c in zip(flat(results[0]), flat(results[1]), strict=True):
            close(a, c, "float64")
        assert results[0][-1] == results[1][-1] == ["RuntimeError", "RuntimeError"]


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}], ids=str)
def test_autocast_gives_the_types_of_torch(kind: str, options: dict[str, Any]) -> None:
    cases = [{"proj_size": 2}] if kind == "LSTM" else [{}]  # whole LSTMs need bfloat16 hardware
    for more in cases:
        kinds = []
        layers = pair(kind, "float32", 3, 4, **options, **more)
        for lib, layer in zip((weft, torch), layers, strict=True):
            x = lib.tensor(numbers(0, 5, 2, 3).astype(np.float32)).requires_grad_()
            with lib.autocast("cpu", dtype=lib.bfloat16):
                results = flat(layer(x))
            sum(r.float().sum() for r in results).backward()
            kinds.append([str(r.dtype).split(".")[-1] for r in results])
            kinds[-1].append(str(x.grad.dtype).split(".")[-1])
        assert kinds[0] == kinds[1]


def test_autocast_lowers_a_whole_lstm() -> None:
    layer, x = weft.nn.LSTM(3, 4), weft.randn(5, 2, 3)
    full = layer(x)[0]
    with weft.autocast("cpu", dtype=weft.bfloat16):
        output, (h, c) = layer(x)
    assert output.dtype == h.dtype == c.dtype == weft.bfloat16
    assert (output.float() - full).abs().max().item() < 0.05
    output.float().sum().backward()
    assert layer.weight_hh_l0.grad.dtype == weft.float32


# --- against the same layer step by step -----------------------------------------------


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN_TANH", "RNN_RELU"])
@pytest.mark.parametrize("sizes", [None, (3, 3, 2, 1)], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_one_op_gives_what_the_steps_give(mode: str, sizes: Any, reverse: bool) -> None:
    gates = {"LSTM": 4, "GRU": 3}.get(mode, 1)
    shapes = [(4, 3, 2) if sizes is None else (9, 2)]
    shapes += [(3, 5)] * (2 if mode == "LSTM" else 1)
    shapes += [(gates * 5, 2), (gates * 5, 5), (gates * 5,), (gates * 5,)]
    runs = []
    for run in (run_layer, run_steps):
        values = [weft.tensor(numbers(k, *s)).requires_grad_() for k, s in enumerate(shapes)]
        x, *others = values
        state, weights = tuple(others[:-4]), [*others[-4:], None]
        results = run(mode, x, sizes, state, weights, reverse)
        sum((r * r).sum() for r in results).backward()
        runs.append([*results, *(v.grad for v in values)])
    for a, b in zip(*runs, strict=True):
        close(a, b, "float64")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_half_types_are_near_float32(kind: str, dtype: str) -> None:
    layer = getattr(weft.nn, kind)(3, 4, 2)
    half = copy.deepcopy(layer).to(getattr(weft, dtype))
    x = weft.randn(5, 2, 3)
    output, lowered = layer(x)[0], half(x.to(getattr(weft, dtype)))[0]
    assert lowered.dtype == getattr(weft, dtype)
    output.sum().backward()
    lowered.sum().backward()
    assert (lowered.float() - output).abs().max().item() < 0.03
    for p, q in zip(layer.parameters(), half.parameters(), strict=True):
        assert q.grad.dtype == q.dtype
        assert (q.grad.float() - p.grad).abs().max().item() < 0.03 * (1 + p.grad.abs().max().item())


# --- native code -----------------------------------------------------------------------

CELL_SHAPES = {
    "lstm_forward": "4n 4n 4 n n n n",
    "lstm_backward": "n 4n n n n 4n",
    "gru_forward": "3n 3n 4 n n n",
    "gru_backward": "n 3n n n 3n 3n",
    "tanh_forward": "1n 1n 1 n",
    "tanh_backward": "n n 1n",
    "relu_forward": "1n 1n 1 n",
    "relu_backward": "n n 1n",
}


@pytest.mark.skipif(not ready(), reason="there is no native code here")
@pytest.mark.parametrize("name", CELL_SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows, size", [(1, 1), (3, 7), (32, 80), (0, 4)])
def test_compiled_cells_do_what_the_references_do(
    name: str, dtype: str, rows: int, size: int
) -> None:
    from weft.native.layers.recurrent import CELLS

    arrays = []
    for k, text in enumerate(CELL_SHAPES[name].split()):
        width = int(text.rstrip("n") or 1) * size
        values = numbers(k, rows, width) if text.endswith("n") else numbers(k, width)
        if values.size > 5:
            values.flat[:5] = [np.nan, np.inf, -np.inf, 200.0, -200.0]
        arrays.append(values.astype(dtype))
    expected = [a.copy() for a in arrays]
    with np.errstate(all="ignore"):
        kernels.CELLS[name](*expected)
    CELLS[name](*arrays)
    changed = [k for k, text in enumerate(CELL_SHAPES[name].split()) if text.endswith("n")]
    if name.endswith("forward"):
        changed.remove(1)  # the reference adds the bias to the recurrent share
    for k in changed:
        if name in ("tanh_forward", "relu_forward") and k == 0:
            continue
        tolerance = TOLERANCE[dtype]
        np.testing.assert_allclose(arrays[k], expected[k], rtol=tolerance, atol=tolerance)


@pytest.mark.skipif(not ready(), reason="there is no native code here")
@pytest.mark.parametrize("kind", KINDS)
def test_native_layers_give_what_numpy_gives(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.native.layers import recurrent as native

    layer = getattr(weft.nn, kind)(16, 64, 2, bidirectional=True)
    lengths = [9, 9, 9, 9, 6, 6, 2, 1]
    packed = weft.nn.utils.rnn.pack_padded_sequence(weft.randn(9, 8, 16), lengths)
    used: set[str] = set()
    for name, function in list(native.CELLS.items()):
        spy = lambda *args, name=name, function=function: (used.add(name), function(*args))[1]
        monkeypatch.setitem(native.CELLS, name, spy)
    runs = []
    for on in (True, False):
        enable(on)
        layer.zero_grad()
        try:
            output, state = layer(packed)
            (output.data.sin().sum() + flat(state)[0].sum()).backward()
        finally:
            enable(True)
        runs.append([output.data, *flat(state), *(p.grad.clone() for p in layer.parameters())])
    for a, b in zip(*runs, strict=True):
        close(a, b, "float32")
    start = kind.lower()
    assert used >= {"gemm", f"{start}_forward_steps", f"{start}_backward_steps"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_layers_run_after_a_fork() -> None:
    layer, x = weft.nn.LSTM(16, 64), weft.randn(9, 32, 16)
    expected = layer(x)[0].detach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's advice on threads and forks
        child = os.fork()
    if not child:
        output = layer(x)[0]
        output.sum().backward()
        os._exit(0 if weft.allclose(output.detach(), expected, atol=1e-6) else 1)
    assert os.waitpid(child, 0)[1] == 0


# --- what users can see ----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_one_node_for_each_direction(kind: str) -> None:
    layer = getattr(weft.nn, kind)(2, 3, num_layers=2, bidirectional=True)
    found = weft.graph.of(layer(weft.ones(4, 1, 2))[0]).find(op=f"{kind.lower()}_layer")
    assert len(found) == 4


# What may be changed between forward and backward: PyTorch keeps the states of the steps, and the
# output is a copy of them; a bias is never read again, a weight only for the other's gradient.
CHANGES = ("output", "output.data", "state", "input", "weight_ih_l0", "weight_hh_l0", "bias_ih_l0")


@needs_torch
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("what", CHANGES)
def test_changes_before_backward(
    kind: str, dtype: str, layers: int, batch_first: bool, wanted: bool, what: str
) -> None:
    """Refused where PyTorch refuses them, and without effect on gradients elsewhere."""
    if kind == "LSTM" and dtype == "float32" and (what[:4] == "bias" or what[:9] == "weight_ih"):
        pytest.skip("PyTorch's kernel for float32 saves all weights; here nothing is lost")
    options = {"num_layers": layers, "batch_first": batch_first}
    mine, theirs = pair(kind, dtype, 3, 4, **options)

    def gradients(m: Any, layer: Any) -> list[Any] | None:
        x = m.tensor(numbers(0, 2, 5, 3), dtype=getattr(m, dtype), requires_grad=wanted)
        given = x * 1
        output, state = layer(given)
        state = state[0] if kind == "LSTM" else state
        changed = {"output": output, "state": state, "input": given, "output.data": output.data}
        with m.no_grad():
            (changed[what] if what in changed else getattr(layer, what)).mul_(0.5)
        try:
            (output.sum() + state.sum()).backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return None
        return [p.grad for p in layer.parameters()] + [x.grad] * wanted

    found, expected = gradients(weft, mine), gradients(torch, theirs)
    assert (found is None) == (expected is None)
    for a, b in zip(found or (), expected or (), strict=True):
        close(a, b, dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frozen", ["input", "weight_ih_l0"])
@pytest.mark.parametrize("sizes", [(3, 2, 3, 4), (20, 16, 24, 64)], ids=["small", "large"])
def test_backward_does_not_read_what_it_lets_change(
    kind: str, frozen: str, sizes: tuple[int, ...]
) -> None:
    steps, batch, features, width = sizes
    layer = getattr(weft.nn, kind)(features, width)
    x = weft.tensor(numbers(1, steps, batch, features), dtype=weft.float32)
    x.requires_grad_(frozen != "input")
    layer.weight_ih_l0.requires_grad_(frozen != "weight_ih_l0")
    wanted = [t for t in (x, *layer.parameters()) if t.requires_grad]
    unread = [layer.bias_ih_l0, layer.bias_hh_l0]
    unread.append(layer.weight_ih_l0 if frozen == "input" else x)

    def gradients(spoiled: bool) -> list[np.ndarray]:
        output, _ = layer(x)
        for t in unread if spoiled else ():
            t.detach().numpy()[...] = np.nan
        return [g.numpy() for g in weft.autograd.grad(output.square().sum(), wanted)]

    expected, found = gradients(False), gradients(True)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_gradients_notice_a_changed_bias(kind: str) -> None:
    """They run the layer again, with all that it read."""
    layer = getattr(weft.nn, kind)(2, 3)
    total = layer(weft.ones(4, 1, 2))[0].sum()
    with weft.no_grad():
        layer.bias_ih_l0.mul_(2)
    weft.autograd.grad(total, layer.weight_hh_l0, retain_graph=True)
    with pytest.raises(RuntimeError, match=rf"operation: {kind.lower()}_layer.*mul_ at"):
        weft.autograd.grad(total, layer.weight_hh_l0, create_graph=True)


def test_backward_twice_needs_the_graph() -> None:
    layer = weft.nn.LSTM(2, 3)
    total = layer(weft.ones(4, 1, 2))[0].sum()
    total.backward(retain_graph=True)
    once = layer.weight_hh_l0.grad.clone()
    total.backward()
    close(layer.weight_hh_l0.grad, once * 2, "float32")
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()


@pytest.mark.parametrize("kind", KINDS)
def test_transforms_go_through_layers(kind: str) -> None:
    layer = getattr(weft.nn, kind)(2, 3).double()
    x, t = weft.tensor(numbers(0, 4, 2, 2)), weft.tensor(numbers(1, 4, 2, 2))
    value = lambda v: layer(v)[0]
    _, moved = weft.func.jvp(value, (x,), (t,))
    step = 1e-6
    slope = (value(x + step * t) - value(x - step * t)) / (2 * step)
    np.testing.assert_allclose(moved.detach().numpy(), slope.detach().numpy(), atol=1e-8)
    many = weft.stack([x, x * 2, x - 1])
    mapped = weft.vmap(value)(many)
    for a, b in zip(mapped, many, strict=True):
        close(a, value(b), "float64")
    hessian = weft.func.hessian(lambda v: value(v).sum())(x[:1, :1])
    total = weft.autograd.functional.hessian(lambda v: value(v).sum(), x[:1, :1])
    close(hessian, total, "float64")


def test_only_wanted_gradients_are_given() -> None:
    for wanted in itertools.product([False, True], repeat=3):
        layer = weft.nn.LSTM(2, 3)
        x = weft.ones(4, 1, 2, requires_grad=wanted[0])
        layer.weight_ih_l0.requires_grad_(wanted[1])
        layer.weight_hh_l0.requires_grad_(wanted[2])
        layer(x)[0].sum().backward()
        given = [t.grad is not None for t in (x, layer.weight_ih_l0, layer.weight_hh_l0)]
        assert given == list(wanted)
        assert layer.bias_ih_l0.grad is not None


def test_the_state_alone_can_be_used() -> None:
    layer = weft.nn.LSTM(2, 3)
    x = weft.ones(4, 1, 2, requires_grad=True)
    _, (h, _) = layer(x)
    h.sum().backward()
    alone = x.grad.clone()
    x.grad = None
    layer(x)[0][-1].sum().backward()
    close(x.grad, alone, "float32")


def test_errors_name_the_function_and_the_way_out() -> None:
    layer = weft.nn.LSTM(2, 3)
    x, h = weft.ones(4, 2, 2), weft.zeros(1, 2, 3)
    more = (True, 1, 0.0, False, False, False)
    with pytest.raises(
        RuntimeError, match=r"same dtype.*Float and Double.*\n  at .*test_recurrent"
    ):
        weft.lstm(x, (h.double(), h), layer._flat_weights, *more)
    with pytest.raises(RuntimeError, match=r"take 4 weights each, 4 in all, but 3"):
        weft.lstm(x, (h, h), layer._flat_weights[:3], *more)
    with pytest.raises(RuntimeError, match=r"batch_sizes must be positive, never grow"):
        weft.lstm(x.reshape(8, 2), weft.tensor([2, 6]), (h, h), layer._flat_weights, *more[:-1])
    with pytest.raises(RuntimeError, match=r"for a batch of 2 the state must"):
        weft.lstm(x, (h[:, :1], h), layer._flat_weights, *more)
    with pytest.raises(RuntimeError, match="lstm expects two hidden states"):
        weft.lstm(x, (h,), layer._flat_weights, *more)


def test_layers_run_in_threads() -> None:
    layer, x = weft.nn.GRU(8, 16, 2), weft.randn(20, 4, 8)
    expected = layer(x)[0]
    found: list[Any] = [None] * 4

    def run(k: int) -> None:
        for _ in range(5):
            found[k] = layer(x)[0]

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for output in found:
        close(output, expected, "float32")


def test_every_function_of_a_step_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[str] = set()

    def spied(name: str, function: Any) -> Any:
        def spy(*args: Any) -> Any:
            called.add(name)
            if name.endswith(("_forward", "_backward")):
                assert all(a.flags.c_contiguous for a in args)  # as compiled cells need it
            return function(*args)

        return spy

    for name, function in list(kernels.CELLS.items()):
        monkeypatch.setitem(kernels.CELLS, name, spied(name, function))
    for name in ("lstm_layer", "gru_layer", "rnn_layer"):
        op = REGISTRY[name]
        for sample in op.samples(weft.operators.build.Make(0)):  # type: ignore[misc]
            tensors = [None if a is None else weft.tensor(a).requires_grad_() for a in sample.args]
            results = op(*tensors, **sample.attrs)
            results[0].sum().backward()
    assert called == set(kernels.CELLS)
