"""Hooks, parametrizations and resizing side by side with PyTorch."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch", reason="PyTorch is the model for these")
RNG = np.random.default_rng(0)
BOTH = pytest.mark.parametrize("T", (torch, weft), ids=("torch", "weft"))


# --- resizing --------------------------------------------------------------------------

SIZES: tuple[tuple[Any, ...], ...] = (
    ((2, 3, 8, 9), (5, 4), None),
    ((1, 3, 40, 50), (13, 70), None),
    ((2, 3, 8, 9), None, 0.6),
    ((2, 3, 8, 9), None, (2.0, 1.0)),
)


@pytest.mark.parametrize("case", SIZES)
@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.uint8))
@pytest.mark.parametrize("mode", ("bilinear", "bicubic", "lanczos"))
def test_antialiased_resizing(mode: str, dtype: Any, case: Any) -> None:
    shape, size, factor = case
    values = (RNG.random(shape) * 255).astype(dtype)
    results = []
    for T in (torch, weft):
        x = T.tensor(values)
        if dtype is not np.uint8:
            x.requires_grad_()
        y = T.nn.functional.interpolate(x, size, factor, mode, antialias=True)
        if dtype is np.uint8:
            results.append((y.numpy(), y.numpy()))
            continue
        weight = T.tensor(np.cos(np.arange(y.numel())).reshape(tuple(y.shape)).astype(dtype))
        (gradient,) = T.autograd.grad((y * weight).sum(), x)
        results.append((y.detach().numpy(), gradient.numpy()))
    for expected, actual in zip(*results, strict=True):
        close = {np.float32: 2e-5, np.float64: 1e-11, np.uint8: 0}[dtype]
        np.testing.assert_allclose(actual, expected, rtol=close, atol=255 * close)


@BOTH
def test_lanczos_is_for_antialiasing_only(T: Any) -> None:
    x = T.ones(1, 1, 4, 4)
    for options in ({}, {"antialias": True, "align_corners": True}):
        with pytest.raises(ValueError, match="Lanczos mode"):
            T.nn.functional.interpolate(x, size=2, mode="lanczos", **options)


# --- parametrizations ------------------------------------------------------------------


def parametrizations(T: Any) -> tuple[type, type]:
    class RankOne(T.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x.unsqueeze(-1) @ y.unsqueeze(-2)

        def right_inverse(self, value: Any) -> Any:
            u, s, vh = T.linalg.svd(value, full_matrices=False)
            root = s[0].sqrt().unsqueeze(-1)
            return u[..., :, 0] * root, vh[..., 0, :] * root

    class Double(T.nn.Module):
        def forward(self, x: Any) -> Any:
            return 2.0 * x

        def right_inverse(self, value: Any) -> Any:
            return 0.5 * value

    return RankOne, Double


@BOTH
def test_a_second_parametrization_is_applied_on_top(T: Any) -> None:
    RankOne, Double = parametrizations(T)
    for first in (RankOne, Double):
        layer = T.nn.Linear(3, 3)
        register = T.nn.utils.parametrize.register_parametrization
        register(layer, "weight", first())
        before = layer.weight.detach().clone()
        register(layer, "weight", Double())
        np.testing.assert_allclose(
            layer.weight.detach().numpy(), 2.0 * before.numpy(), rtol=1e-6, atol=1e-7
        )


@BOTH
def test_a_second_parametrization_is_checked(T: Any) -> None:
    _, Double = parametrizations(T)

    class Wider(T.nn.Module):
        def forward(self, x: Any) -> Any:
            return x

        def right_inverse(self, value: Any) -> Any:
            return value.double()

    layer = T.nn.Linear(3, 3)
    register = T.nn.utils.parametrize.register_parametrization
    register(layer, "weight", Double())
    with pytest.raises(ValueError, match="must have the same dtype"):
        register(layer, "weight", Wider())


@BOTH
def test_spectral_norm_of_a_complex_weight(T: Any) -> None:
    layer = T.nn.Linear(3, 4, dtype=T.complex128)
    T.nn.utils.parametrizations.spectral_norm(layer, n_power_iterations=50)
    assert abs(T.linalg.matrix_norm(layer.weight, 2).item() - 1.0) < 1e-9


# --- hooks -----------------------------------------------------------------------------


class Pair(NamedTuple):
    first: Any
    second: Any


@BOTH
def test_named_tuples_go_through_backward_hooks(T: Any) -> None:
    class Two(T.nn.Module):
        def forward(self, x: Any) -> Any:
            return Pair(x * 2, x * 3)

    module = Two()
    seen: list[Any] = []
    module.register_full_backward_hook(lambda m, inputs, outputs: seen.append(len(outputs)))
    result = module(T.ones(2, requires_grad=True))
    assert isinstance(result, Pair)
    result.second.sum().backward()
    assert seen == [2]


@BOTH
def test_hooks_that_are_always_called_see_the_result(T: Any) -> None:
    def fail(*args: Any) -> None:
        raise KeyError("hook")

    module = T.nn.Linear(2, 2)
    seen: list[Any] = []
    module.register_forward_hook(fail)
    module.register_forward_hook(lambda m, args, y: seen.append(y is not None), always_call=True)
    with pytest.raises(KeyError):
        module(T.ones(1, 2))
    assert seen == [True]


@BOTH
def test_hooks_of_all_modules_have_their_names(T: Any) -> None:
    home = T.nn.modules.module
    handle = home.register_module_forward_hook(lambda *args: None, always_call=True)
    assert len(home._global_forward_hooks_always_called) == 1
    handle.remove()
    assert not home._global_forward_hooks_always_called
    seen: list[Any] = []
    home.register_module_forward_hook(lambda *args: seen.append(1))
    try:
        kept, home._global_forward_hooks = (
            home._global_forward_hooks,
            type(home._global_forward_hooks)(),
        )
        T.nn.ReLU()(T.ones(1))
        assert not seen
    finally:
        kept.clear()
        home._global_forward_hooks = kept


@BOTH
def test_old_backward_hooks_say_what_they_miss(T: Any) -> None:
    module = T.nn.Sequential(T.nn.Tanh(), T.nn.Tanh())
    module.register_backward_hook(lambda m, inputs, outputs: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module(T.ones(2, requires_grad=True))
    assert ["multiple autograd Nodes" in str(w.message) for w in caught] == [True]


@BOTH
def test_old_backward_hooks_return_as_many(T: Any) -> None:
    module = T.nn.Tanh()
    module.register_backward_hook(lambda m, inputs, outputs: ())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = module(T.ones(2, requires_grad=True).clone())
    with pytest.raises(RuntimeError, match="incorrect number of values"):
        result.sum().backward()


@BOTH
def test_load_hooks_do_not_keep_their_module(T: Any) -> None:
    module = T.nn.Linear(2, 2)
    module.register_load_state_dict_pre_hook(lambda *args: None)
    held = weakref.ref(module)
    on = gc.isenabled()
    gc.disable()
    try:
        del module
        assert held() is None
    finally:
        if on:
            gc.enable()


# --- convolution -----------------------------------------------------------------------


@BOTH
def test_convolution_of_nothing(T: Any) -> None:
    with pytest.raises(TypeError):
        T.nn.Conv2d(3, 3, 3)(None)


def test_gradients_of_convolutions_as_functions() -> None:
    x, w, g = RNG.random((1, 2, 5)), RNG.random((3, 2, 2)), RNG.random((1, 3, 4))
    for name, given in (("conv1d_input", (x.shape, w, g)), ("conv1d_weight", (x, w.shape, g))):
        results = []
        for T in (torch, weft):
            args = [T.tensor(a) if isinstance(a, np.ndarray) else a for a in given]
            results.append(getattr(T.nn.functional.grad, name)(*args).numpy())
        np.testing.assert_allclose(*results)


@pytest.mark.parametrize("bias", ["float16", "float32", "int64"])
def test_a_bias_of_another_dtype_is_added_where_rows_can_not_be_flattened(bias):
    made = {}
    for t in (weft, torch):
        x = t.arange(24.0, dtype=t.float64).reshape(4, 2, 3).transpose(0, 1).requires_grad_()
        weight, b = t.ones(2, 3, dtype=t.float64), t.ones(2, dtype=getattr(t, bias))
        if bias != "int64":
            b.requires_grad_()
        out = t.nn.functional.linear(x, weight, b)
        out.sum().backward()
        made[t] = [out.dtype, out.tolist(), x.grad.tolist(), b.grad]
        with pytest.raises(RuntimeError, match="must have the same dtype"):
            t.nn.functional.linear(x[0], weight, b)
    assert [str(made[weft][0]), *made[weft][1:3]] == [str(made[torch][0]), *made[torch][1:3]]
    if bias != "int64":
        assert made[weft][3].tolist() == made[torch][3].tolist()
        assert str(made[weft][3].dtype) == str(made[torch][3].dtype)


def test_packed_sequences_without_steps_are_refused():
    rnn = weft.nn.utils.rnn
    empty = rnn.PackedSequence(weft.zeros(0, 3), weft.tensor([], dtype=weft.int64))
    with pytest.raises(RuntimeError, match="batch_sizes can not be empty"):
        rnn.pad_packed_sequence(empty)
