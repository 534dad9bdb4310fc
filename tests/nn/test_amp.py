"""Mixed precision: dtypes inside autocast, losses, and the scaler's steps, against PyTorch."""

from __future__ import annotations

import pathlib
import pickle
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import weft
import weft.amp
import weft.cpu.amp
import weft.cuda.amp

torch = pytest.importorskip("torch")

pytest.importorskip("torch.cpu.amp")
pytest.importorskip("torch.cuda.amp")

BOTH = (weft, torch)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Calls on f (3x3), v (3), p (a positive definite 3x3), c (1x2x4), i (1x2x4x4), w (1x2x4x4x4) in
# some dtype, and on the same names with a 2 behind in another; n, m, k are integers.
LOWER = """
f @ f2
f @ v2
v @ v2
f.matmul(f2)
T.matmul(f, f2)
T.mm(f, f2)
f.mm(f2)
T.bmm(f[None], f2[None])
T.linalg.vecdot(f, f2)
T.linalg.matmul(f, f2)
T.linalg.multi_dot([f, f2, f])
T.linalg.matrix_power(f, 3)
T.einsum('ij,jk', f, f2)
T.tensordot(f, f2, 1)
T.inner(f, f2)
T.baddbmm(f[None], f[None], f2[None])
T.addmm(v, f, f2)
v.addmm(f, f2)
T.addbmm(f, f[None], f2[None])
F.linear(f, f2)
F.linear(f, f2, v2)
F.conv1d(c, c2)
F.conv2d(i, i2)
F.conv3d(w, w2)
T.conv2d(i, i2, v2[:1])
F.conv_transpose1d(c, c2.transpose(0, 1))
F.conv_transpose2d(i, i2.transpose(0, 1))
F.conv_transpose3d(w, w2.transpose(0, 1))
F.prelu(f, v2[:1])
T.prelu(f, v2)
F.scaled_dot_product_attention(i, i2, i)
T.nn.Linear(3, 2)(f)
T.nn.Conv2d(2, 3, 2)(i)
T.nn.MultiheadAttention(4, 2)(c, c, c)[0]
""".strip().splitlines()
FLOAT32 = """
F.avg_pool3d(w, 2)
F.max_pool3d(w, 2)
F.adaptive_avg_pool3d(w, 2)
F.adaptive_max_pool3d(w, 2)
F.grid_sample(i, i2[..., :2])
F.binary_cross_entropy(p.sigmoid(), p2.sigmoid())
F.binary_cross_entropy_with_logits(f, f2)
F.mse_loss(f, f2)
F.l1_loss(f, f2)
F.smooth_l1_loss(f, f2)
F.huber_loss(f, f2)
F.cross_entropy(f, n)
F.cross_entropy(f, f2.softmax(-1))
F.nll_loss(f, n)
F.nll_loss(i, m)
F.kl_div(f, f2)
F.poisson_nll_loss(f, f2)
F.cosine_embedding_loss(f, f2, k)
F.hinge_embedding_loss(f, f2)
F.margin_ranking_loss(v, v2, k)
F.soft_margin_loss(f, f2)
F.triplet_margin_loss(f, f2, f)
F.multi_margin_loss(f, n)
F.multilabel_margin_loss(f, n.expand(3, 3))
T.nn.CrossEntropyLoss()(f, n)
T.nn.MSELoss()(f, f2)
F.pad(c, (1, 1), mode='reflect')
F.pad(i, (1, 1, 1, 1), mode='reflect')
F.pad(c, (1, 1), mode='replicate')
F.pad(w, (1, 1, 1, 1, 1, 1), mode='replicate')
T.prod(f)
f.prod(0)
T.trace(f)
T.quantile(f, 0.3)
T.nanquantile(f, 0.3)
T.cdist(f, f2)
T.polar(f, f2)
T.cholesky_inverse(p)
T.linalg.cholesky(p)
T.linalg.inv(p)
T.inverse(p)
T.linalg.solve(p, f2)
T.linalg.eigvalsh(p)
T.linalg.eigh(p)[0]
T.linalg.svd(p)[1]
T.linalg.svdvals(p)
T.linalg.qr(p)[0]
T.linalg.matrix_rank(p)
T.linalg.cond(p)
T.linalg.lstsq(p, f2)[0]
T.pinverse(p)
T.fft.fft(f)
T.fft.rfft(f)
T.fft.ifftn(f)
T.view_as_complex(c[..., :2])
""".strip().splitlines()
WIDEST = """
T.cat([f, f2])
T.cat((f, f))
T.stack([f, f2])
T.concat([f2, f])
T.index_copy(f, 0, n, f2)
""".strip().splitlines()
LEFT_ALONE = """
f + f2
f * 2
f.sum()
f.exp()
T.softmax(f, 0)
F.relu(f)
F.gelu(f)
F.layer_norm(f, (3,), v2, v2)
F.pad(c, (1, 1))
F.max_pool2d(i, 2)
F.bilinear(f, f2, f[None])
F.multilabel_soft_margin_loss(f, f2)
F.group_norm(i, 2, v2[:2], v2[:2])
F.batch_norm(i, None, None, v2[:2], v2[:2], True)
F.avg_pool2d(i, 2)
f.mean()
f.norm()
T.mv(f, v)
T.dot(v, v)
T.outer(v, v2)
T.where(f > 0, f, f2)
f.clone()
f == f2
F.embedding(n, f)
f.cumsum(0)
""".strip().splitlines()
LISTS = {"lower": LOWER, "float32": FLOAT32, "widest": WIDEST, "alone": LEFT_ALONE}
PATTERNS = [
    ("float32", "float32"),
    ("float32", "bfloat16"),
    ("bfloat16", "float32"),
    ("bfloat16", "bfloat16"),
]


def values(T: Any, dtype: str, other: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    m = rng.standard_normal((3, 3))
    arrays = {
        "f": m,
        "v": m[0],
        "p": m @ m.T + 3 * np.eye(3),
        "c": rng.standard_normal((1, 2, 4)),
        "i": rng.standard_normal((1, 2, 4, 4)),
        "w": rng.standard_normal((1, 2, 4, 4, 4)),
    }
    made = {}
    for name, a in arrays.items():
        made[name] = T.tensor(a).to(getattr(T, dtype))
        made[name + "2"] = T.tensor(a).to(getattr(T, other))
    made["n"], made["k"] = T.tensor([0, 2, 1]), T.tensor([1, -1, 1])
    made["m"] = T.zeros(1, 4, 4, dtype=T.int64)
    return {**made, "T": T, "F": T.nn.functional}


def dtype_of(T: Any, code: str, dtype: str, other: str, fast: str) -> Any:
    """The dtype of a result inside autocast, or that there is none."""
    names = values(T, dtype, other)
    with T.autocast("cpu", dtype=getattr(T, fast)):
        try:
            result = eval(code, names)
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            return "error"
    return str(result.dtype)


@pytest.mark.parametrize("fast", ["bfloat16", "float16"])
@pytest.mark.parametrize("code", [c for listed in LISTS.values() for c in listed])
def test_dtypes_inside_autocast(code: str, fast: str) -> None:
    for dtype, other in PATTERNS:
        dtype, other = (fast if d == "bfloat16" else d for d in (dtype, other))
        expected = dtype_of(torch, code, dtype, other, fast)
        if expected != "error":  # where PyTorch has no kernel for the mixture, ours may work
            assert dtype_of(weft, code, dtype, other, fast) == expected, (dtype, other)


def test_double_and_integers_are_left_alone() -> None:
    with weft.autocast("cpu"):
        d = weft.ones(2, 2, dtype=weft.float64)
        assert (d @ d).dtype == weft.float64
        assert (weft.ones(2, 2, dtype=weft.int64) @ weft.ones(2, 2, dtype=weft.int64)).dtype == (
            weft.int64
        )
        assert weft.prod(d).dtype == weft.float64


def test_out_is_written_as_it_is() -> None:
    with weft.autocast("cpu"):
        out = weft.empty(2, 2)
        assert weft.mm(weft.ones(2, 2), weft.ones(2, 2), out=out).dtype == weft.float32


# --- a network -------------------------------------------------------------------------


def network(T: Any, fast: str) -> list[Any]:
    rng = np.random.default_rng(0)
    array = lambda *shape: T.tensor(rng.standard_normal(shape).astype(np.float32))
    model = T.nn.Sequential(
        T.nn.Conv2d(1, 4, 3), T.nn.ReLU(), T.nn.Flatten(), T.nn.Linear(4 * 36, 16),
        T.nn.LayerNorm(16), T.nn.Tanh(), T.nn.Linear(16, 5),
    )  # fmt: skip
    with T.no_grad():
        for p in model.parameters():
            p.copy_(array(*p.shape) * 0.2)
    x, y = array(8, 1, 8, 8), T.tensor(rng.integers(0, 5, 8))
    optimizer = T.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        with T.autocast("cpu", dtype=getattr(T, fast)):
            out = model(x)
            loss = T.nn.functional.cross_entropy(out, y)
        assert str(out.dtype) == f"torch.{fast}" and str(loss.dtype) == "torch.float32"
        loss.backward()
        assert all(p.grad.dtype == p.dtype for p in model.parameters())
        optimizer.step()
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("fast", ["bfloat16", "float16"])
def test_a_network_learns_as_in_pytorch(fast: str) -> None:
    np.testing.assert_allclose(network(weft, fast), network(torch, fast), rtol=0.02)


def test_gradients_flow_through_casts() -> None:
    grads = []
    for T in BOTH:
        w = T.ones(2, 2, requires_grad=True)
        x = T.tensor([[0.5, 1.5], [2.0, 3.0]])
        with T.autocast("cpu"):
            y = (x @ w).sum() + (w @ x).sum() * 2
        y.backward()
        assert str(w.grad.dtype) == "torch.float32"
        grads.append(w.grad.numpy())
    np.testing.assert_array_equal(*grads)


def test_weights_are_cast_once_in_a_block() -> None:
    w = weft.ones(2, 2, requires_grad=True)
    x = weft.ones(2, 2)
    made = lambda y: y.grad_fn.next_functions[1][0]
    with weft.autocast("cpu"):
        a, b = weft.mm(x, w), weft.mm(x, w)
        assert made(a) is made(b)
        with weft.autocast("cpu", cache_enabled=False):
            assert made(weft.mm(x, w)) is not made(a)
        with weft.no_grad():
            weft.mm(x, w)
        assert made(weft.mm(x, w)) is made(a)
    with weft.autocast("cpu"):
        assert made(weft.mm(x, w)) is not made(a)


def test_a_cast_made_without_history_is_not_kept() -> None:
    w = weft.ones(2, 2, requires_grad=True)
    with weft.autocast("cpu"):
        with weft.no_grad():
            weft.mm(w, w)
        assert weft.mm(w, w).requires_grad


# --- switches --------------------------------------------------------------------------


def switches(T: Any) -> list[Any]:
    seen: list[Any] = []
    state = lambda: (
        T.is_autocast_enabled("cpu"), T.is_autocast_enabled(), T.is_autocast_cpu_enabled(),
        str(T.get_autocast_dtype("cpu")), str(T.get_autocast_cpu_dtype()),
        str(T.get_autocast_gpu_dtype()), T.is_autocast_cache_enabled(),
    )  # fmt: skip
    seen.append(state())
    with T.autocast("cpu", dtype=T.float16, cache_enabled=False):
        seen.append(state())
        with T.autocast("cpu", enabled=False):
            seen.append((state(), str((T.ones(2, 2) @ T.ones(2, 2)).dtype)))
            with T.amp.autocast("cpu", T.bfloat16):
                seen.append((state(), str((T.ones(2, 2) @ T.ones(2, 2)).dtype)))
        seen.append(state())
        with T.autocast("cuda"):
            seen.append((state(), T.is_autocast_enabled("cuda")))

    @T.autocast("cpu")
    def product() -> Any:
        return str((T.ones(2, 2) @ T.ones(2, 2)).dtype), state()

    seen += [product(), state(), product()]
    T.set_autocast_enabled("cpu", True)
    T.set_autocast_dtype("cpu", T.float16)
    seen.append((state(), str((T.ones(2, 2) @ T.ones(2, 2)).dtype)))
    T.set_autocast_enabled("cpu", False)
    T.set_autocast_dtype("cpu", T.bfloat16)
    try:
        with T.autocast("cpu"):
            raise KeyError
    except KeyError:
        seen.append(state())
    seen += [T.amp.is_autocast_available("cpu"), T.autocast is T.amp.autocast]
    seen.append((T.autocast_increment_nesting(), T.autocast_decrement_nesting()))
    T.clear_autocast_cache()
    return seen


def test_switches() -> None:
    assert switches(weft) == switches(torch)


def test_a_decorated_function_may_call_itself() -> None:
    @weft.autocast("cpu")
    def product(n: int) -> Any:
        return product(n - 1) if n else (weft.ones(2, 2) @ weft.ones(2, 2)).dtype

    assert product(3) == weft.bfloat16
    assert not weft.is_autocast_enabled("cpu")


def test_other_threads_are_not_touched() -> None:
    import threading

    found = []
    with weft.autocast("cpu"):
        thread = threading.Thread(
            target=lambda: found.append((weft.ones(2, 2) @ weft.ones(2, 2)).dtype)
        )
        thread.start()
        thread.join()
    assert found == [weft.float32]


WARNINGS = [
    "T.autocast('cpu', dtype=T.float64)",
    "T.autocast('cuda')",
    "T.cpu.amp.autocast()",
    "T.cuda.amp.autocast()",
    "T.cuda.amp.GradScaler()",
    "T.cpu.amp.GradScaler()",
    "T.amp.GradScaler()",
    "T.amp.GradScaler('cpu')",
    "T.autocast(3)",
    "T.autocast('foo')",
    "T.amp.GradScaler('cpu', growth_factor=1.)",
    "T.amp.GradScaler('cpu', backoff_factor=1.)",
    "T.amp.GradScaler('cpu').update()",
    "T.amp.GradScaler('cpu').unscale_(3)",
    "T.amp.GradScaler('cpu').load_state_dict({})",
    "T.amp.custom_fwd(device_type=3)",
]


@pytest.mark.parametrize("code", WARNINGS)
def test_warnings_and_errors(code: str) -> None:
    results = []
    for T in BOTH:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                made = eval(code, {"T": T})
                result = getattr(made, "_enabled", None)
            except Exception as error:
                result = type(error).__name__, str(error).split("\n")[0].split(",")[0][:60]
        shown = [(w.category.__name__, str(w.message)) for w in caught]
        results.append((result, shown))
    assert results[0] == results[1]


# --- functions with a backward of their own --------------------------------------------


def custom_product(T: Any, cast: str | None) -> Any:
    seen: list[Any] = []

    class Product(T.autograd.Function):
        @staticmethod
        @T.amp.custom_fwd(device_type="cpu", cast_inputs=cast and getattr(T, cast))
        def forward(ctx, a, b):
            seen.append((T.is_autocast_enabled("cpu"), str(a.dtype), str((a @ b).dtype)))
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @T.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen.append((T.is_autocast_enabled("cpu"), str(a.dtype)))
            g = g.to(a.dtype)
            return g @ b.t(), a.t() @ g

    x = T.ones(2, 2, requires_grad=True)
    with T.autocast("cpu"):
        y = Product.apply(x, T.ones(2, 2))
    seen.append(str(y.dtype))
    y.float().sum().backward()
    return seen, x.grad.tolist(), str(x.grad.dtype)


@pytest.mark.parametrize("cast", [None, "float32", "bfloat16"])
def test_custom_functions(cast: str | None) -> None:
    results = [custom_product(T, cast) for T in BOTH]
    assert results[0] == results[1]


# --- the scaler ------------------------------------------------------------------------


def scaled_steps(T: Any) -> list[Any]:
    """Good and bad steps: what the scale, the weights and the errors do."""
    w = T.tensor([1.0, 2.0], requires_grad=True)
    unused = T.tensor([1.0], requires_grad=True)
    optimizer = T.optim.SGD([w, unused], lr=0.1)
    scaler = T.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    history: list[Any] = [scaler.state_dict()]
    for factor in (1.0, 0.5, float("inf"), 1.0, float("nan"), 2.0, 1.0, 1.0):
        optimizer.zero_grad()
        loss = (w * factor).sum()
        scaler.scale(loss).backward()
        history.append(w.grad.tolist())
        if factor == 0.5:
            scaler.unscale_(optimizer)
            history.append(w.grad.tolist())
            history.append(error(lambda: scaler.unscale_(optimizer)))
        history.append(scaler.step(optimizer))
        history.append(error(lambda: scaler.step(optimizer)))
        history.append(error(lambda: scaler.unscale_(optimizer)))
        scaler.update()
        history += [w.tolist(), scaler.get_scale(), scaler._get_growth_tracker()]
    again = pickle.loads(pickle.dumps(scaler))
    other = T.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    history += [scaler.state_dict(), again.state_dict(), other.state_dict()]
    scaler.update(4.0)
    history.append(scaler.get_scale())
    scaler.update(T.tensor(2.0))
    history.append(scaler.get_scale())
    history.append([t.tolist() for t in scaler.scale([T.ones(1), T.ones(2)])])
    history.append(error(lambda: scaler.step(optimizer, closure=lambda: None)))
    history.append(error(scaler.update))
    return history


def error(call: Any) -> Any:
    try:
        call()
    except (RuntimeError, AssertionError, ValueError) as e:
        return type(e).__name__, str(e).split("\n")[0]
    return None


def test_the_scaler_steps_as_in_pytorch() -> None:
    assert repr(scaled_steps(weft)) == repr(scaled_steps(torch))


def own_scaling(T: Any) -> list[Any]:
    """What optimizers get that unscale gradients by themselves."""
    seen: list[Any] = []

    class Takes(T.optim.Optimizer):
        _step_supports_amp_scaling = True

        def step(self, closure: Any = None) -> str:
            scale = None if self.grad_scale is None else float(self.grad_scale)
            seen.append((scale, float(self.found_inf)))
            return "done"

    class TakesScaler(Takes):
        def step(self, closure: Any = None, *, grad_scaler: Any = None) -> None:
            seen.append((grad_scaler.get_scale(), hasattr(self, "grad_scale")))

    w = T.tensor([1.0, 2.0], requires_grad=True)
    scaler = T.amp.GradScaler("cpu", init_scale=8.0)
    for kind in (Takes, TakesScaler):
        for factor, first in ((1.0, False), (2.0, True), (float("inf"), False)):
            optimizer = kind([w], {})
            w.grad = None
            scaler.scale((w * factor).sum()).backward()
            if first:
                scaler.unscale_(optimizer)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                seen.append(scaler.step(optimizer))
            seen.append([w.category.__name__ for w in told if "GradScaler" in str(w.message)])
            seen.append((w.grad.tolist(), hasattr(optimizer, "grad_scale")))
            seen.append(error(lambda o=optimizer: scaler.step(o)))
            if kind is Takes:
                scaler.update()
            seen.append(scaler.get_scale())
    return seen


def test_optimizers_that_scale_by_themselves() -> None:
    assert repr(own_scaling(weft)) == repr(own_scaling(torch))


def test_a_scale_that_would_overflow_stays() -> None:
    results = []
    for T in BOTH:
        w = T.ones(1, requires_grad=True)
        optimizer = T.optim.SGD([w], lr=0.0)
        scaler = T.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1)
        scaler.scale((w * 0.0).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        results.append((scaler.get_scale(), scaler.get_growth_factor()))
    assert results[0] == results[1]


def test_half_gradients_are_refused() -> None:
    for T in BOTH:
        w = T.ones(1, dtype=T.float16, requires_grad=True)
        optimizer = T.optim.SGD([w], lr=0.1)
        scaler = T.amp.GradScaler("cpu")
        scaler.scale(w.sum()).backward()
        with pytest.raises(ValueError, match="FP16"):
            scaler.unscale_(optimizer)


def test_a_scaler_that_is_off_passes_everything_through() -> None:
    results = []
    for T in BOTH:
        w = T.ones(1, requires_grad=True)
        optimizer = T.optim.SGD([w], lr=0.5)
        scaler = T.amp.GradScaler("cpu", enabled=False)
        scaler.scale(w.sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        results.append((w.tolist(), scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()))
    assert results[0] == results[1]


# In a process of its own: casts are installed by the first block of a process.
FUNCTIONS_STAY = """
import weft as torch
from torch_function import asked
from weft import cat, matmul
from weft.nn.functional import conv2d

plain = torch.Tensor.matmul
if {early}:
    asked(torch)
with torch.autocast("cpu"):
    assert cat is torch.cat and matmul is torch.matmul and conv2d is torch.conv2d
    assert torch.Tensor.matmul is plain
    a, b = torch.ones(2, 2), torch.ones(2, 2, dtype=torch.bfloat16)
    assert matmul(a, a).dtype is (a @ a).dtype is a.matmul(a).dtype is torch.bfloat16
    assert cat([a, b]).dtype is torch.float32
    assert asked(torch) == ["matmul", torch.float32, torch.bfloat16]
traced = torch.fx.symbolic_trace(lambda x: torch.cat([x, torch.matmul(x, x)]))
assert "torch.cat([" in traced.code and "torch.matmul(" in traced.code, traced.code
"""
TORCH_FUNCTION = """
def asked(torch):
    seen = []

    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.matmul:
                seen.append(func.__name__)
                seen.append(args[0].dtype)
            result = super().__torch_function__(func, types, args, kwargs or {})
            if func is torch.matmul:
                seen.append(result.dtype)
            return result

    torch.matmul(torch.ones(2, 2).as_subclass(Sub), torch.ones(2, 2))
    return seen
"""


@pytest.mark.parametrize("early", [False, True])
def test_public_functions_stay_what_they_are(early: bool, tmp_path: pathlib.Path) -> None:
    (tmp_path / "torch_function.py").write_text(TORCH_FUNCTION)
    (tmp_path / "program.py").write_text(FUNCTIONS_STAY.format(early=early))
    subprocess.run([sys.executable, tmp_path / "program.py"], check=True)
