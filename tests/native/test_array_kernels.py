"""The NumPy kernels against torch: values, and gradients by its autograd."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.references import convolution as conv
from weft.references import pooling, resampling, sequence

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")
F = torch.nn.functional

torch.set_num_threads(1)
examples = settings(max_examples=60, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
MAX_UNPOOL = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}
ADAPTIVE_AVG = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


def close(ours: np.ndarray, theirs: torch.Tensor, tolerance: float = 1e-9) -> None:
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def leaf(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).clone().requires_grad_()


def gradients(y: torch.Tensor, g: np.ndarray, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(y, inputs, torch.from_numpy(g))


def draw_tuple(rng: np.random.Generator, nd: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(int(v) for v in rng.integers(low, high + 1, nd))


# Convolution


def check_convolution(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> None:
    x, w = rng.standard_normal(shape), rng.standard_normal(weight_shape)
    X, W = leaf(x), leaf(w)
    expected = CONV[len(stride)](X, W, None, stride, padding, dilation, groups)
    options = stride, padding, dilation, groups
    close(conv.convolution(x, w, *options), expected)
    g = rng.standard_normal(expected.shape)
    gx, gw = gradients(expected, g, X, W)
    close(conv.convolution_input_grad(g, w, x.shape, *options), gx)
    close(conv.convolution_weight_grad(g, x, w.shape, *options), gw)


@pytest.mark.parametrize("nd", [1, 2, 3])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [
        (3, 1, 1, 1),
        (3, 2, 1, 1),
        (2, 1, 2, 1),
        (3, 1, 2, 2),
        (1, 1, 0, 1),
        (1, 2, 0, 1),
        (1, 1, 1, 1),
    ],
)
@pytest.mark.parametrize(
    ("channels", "outputs", "groups"), [(4, 4, 1), (4, 6, 2), (6, 4, 2), (3, 3, 3)]
)
def test_convolution_grid(nd, kernel, stride, padding, dilation, channels, outputs, groups):
    rng = np.random.default_rng(0)
    options = (stride,) * nd, (padding,) * nd, (dilation,) * nd
    weight = (outputs, channels // groups, *(kernel,) * nd)
    check_convolution(rng, (2, channels, *(5, 6, 7)[:nd]), weight, *options, groups)


@examples
@given(seeds, st.integers(1, 3), st.integers(1, 3))
def test_convolution_shapes(seed, nd, groups):
    rng = np.random.default_rng(seed)
    kernel, stride = draw_tuple(rng, nd, 1, 3), draw_tuple(rng, nd, 1, 3)
    padding, dilation = draw_tuple(rng, nd, 0, 2), draw_tuple(rng, nd, 1, 2)
    reach = np.array(dilation) * (np.array(kernel) - 1) + 1
    spatial = np.maximum(reach - 2 * np.array(padding), 1) + rng.integers(0, 4, nd)
    depth, rows, samples = draw_tuple(rng, 3, 1, 3)
    shape = (samples, groups * depth, *(int(n) for n in spatial))
    weight = (groups * rows, depth, *kernel)
    check_convolution(rng, shape, weight, stride, padding, dilation, groups)


@examples
@given(seeds, st.integers(1, 3), st.integers(1, 3))
def test_transposed_convolution(seed, nd, groups):
    rng = np.random.default_rng(seed)
    kernel, stride = draw_tuple(rng, nd, 1, 3), draw_tuple(rng, nd, 1, 3)
    dilation = draw_tuple(rng, nd, 1, 2)
    padding = tuple(int(rng.integers(0, k)) for k in kernel)
    extra = tuple(int(rng.integers(0, max(s, d))) for s, d in zip(stride, dilation, strict=True))
    depth, rows = draw_tuple(rng, 2, 1, 3)
    x = rng.standard_normal((2, groups * depth, *draw_tuple(rng, nd, 4, 6)))
    w = rng.standard_normal((groups * depth, rows, *kernel))
    X, W = leaf(x), leaf(w)
    expected = CONV_TRANSPOSE[nd](X, W, None, stride, padding, extra, groups, dilation)
    options = stride, padding, dilation, groups
    close(conv.convolution(x, w, *options, True, extra), expected)
    g = rng.standard_normal(expected.shape)
    gx, gw = gradients(expected, g, X, W)
    # Output padding of a whole stride, which dilation allows, adds places nothing came from.
    inside = (..., *(slice(n) for n in x.shape[2:]))
    close(conv.convolution(g, w, *options)[inside], gx)
    close(conv.convolution_weight_grad(x, g, w.shape, *options), gw)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128", "int64"])
@pytest.mark.parametrize("kernel", [1, 3])
def test_convolution_dtypes(dtype, kernel):
    rng = np.random.default_rng(1)
    x, w = rng.integers(-4, 5, (2, 4, 6, 6)), rng.integers(-4, 5, (4, 2, kernel, kernel))
    if dtype.startswith("complex"):
        x, w = x + 1j * x[::-1], w - 2j * w[::-1]
    x, w = x.astype(dtype), w.astype(dtype)
    options = (1, 1), (kernel // 2,) * 2, (1, 1), 2
    X, W = torch.from_numpy(x), torch.from_numpy(w)
    close(conv.convolution(x, w, *options), F.conv2d(X, W, None, *options))
    back = conv.convolution_input_grad(x, w, x.shape, *options)
    assert back.dtype == x.dtype
    if dtype != "int64":
        close(back, F.conv_transpose2d(X, W, None, (1, 1), options[1], 0, 2))


def test_convolution_of_complex_needs_conjugates_in_its_gradients():
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s) + 1j * rng.standard_normal(s) for s in ((2, 3, 5), (4, 3, 3)))
    X, W = leaf(x), leaf(w)
    expected = F.conv1d(X, W, None, 2, 1)
    g = rng.standard_normal(expected.shape) + 1j
    gx, gw = gradients(expected, g, X, W)
    options = (2,), (1,), (1,), 1
    close(conv.convolution_input_grad(g, w.conj(), x.shape, *options), gx)
    close(conv.convolution_weight_grad(g, x.conj(), w.shape, *options), gw)


@pytest.mark.parametrize("kernel", [1, 3])
def test_convolution_of_no_samples(kernel):
    x, w = np.zeros((0, 2, 5, 5)), np.ones((4, 2, kernel, kernel))
    options = (1, 1), (0, 0), (1, 1), 1
    y = conv.convolution(x, w, *options)
    assert y.shape == (0, 4, 6 - kernel, 6 - kernel)
    assert conv.convolution_input_grad(y, w, x.shape, *options).shape == x.shape
    assert not conv.convolution_weight_grad(y, x, w.shape, *options).any()


def test_convolution_in_several_blocks(monkeypatch):
    monkeypatch.setattr(conv, "_BLOCK_BYTES", 4096)
    rng = np.random.default_rng(3)
    check_convolution(rng, (7, 4, 6, 6), (6, 2, 3, 3), (2, 1), (1, 0), (1, 1), 2)


def test_convolution_refuses_a_kernel_larger_than_its_input():
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        conv.convolution(np.zeros((1, 1, 2)), np.zeros((1, 1, 3)), (1,), (0,), (1,), 1)
    with pytest.raises(RuntimeError, match="Output size is too small"):
        conv.convolution(np.zeros((1, 1, 2)), np.zeros((1, 1, 3)), (1,), (3,), (1,), 1, True)


@examples
@given(seeds)
def test_unfold_and_fold(seed):
    rng = np.random.default_rng(seed)
    kernel, stride = draw_tuple(rng, 2, 1, 3), draw_tuple(rng, 2, 1, 3)
    padding, dilation = draw_tuple(rng, 2, 0, 2), draw_tuple(rng, 2, 1, 2)
    x = rng.standard_normal((2, 3, *draw_tuple(rng, 2, 5, 8)))
    X = leaf(x)
    expected = F.unfold(X, kernel, dilation, padding, stride)
    close(conv.unfold(x, kernel, dilation, padding, stride), expected)
    g = rng.standard_normal(expected.shape)
    folded = conv.fold(g, x.shape[2:], kernel, dilation, padding, stride)
    close(folded, F.fold(torch.from_numpy(g), x.shape[2:], kernel, dilation, padding, stride))
    close(folded, gradients(expected, g, X)[0])


# Pooling


def draw_pool(rng: np.random.Generator, nd: int) -> tuple[tuple[int, ...], ...]:
    kernel, stride = draw_tuple(rng, nd, 1, 4), draw_tuple(rng, nd, 1, 4)
    return kernel, stride, tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)


@examples
@given(seeds, st.integers(1, 3), st.booleans())
def test_max_pool(seed, nd, ceil_mode):
    rng = np.random.default_rng(seed)
    kernel, stride, padding = draw_pool(rng, nd)
    dilation = draw_tuple(rng, nd, 1, 2)
    x = rng.integers(-3, 4, (2, 3, *draw_tuple(rng, nd, 7, 9))).astype(float)
    x[rng.random(x.shape) < 0.1] = -np.inf
    x[rng.random(x.shape) < 0.05] = np.nan
    X = leaf(x)
    options = kernel, stride, padding, dilation, ceil_mode
    expected, places = MAX_POOL[nd](X, *options, return_indices=True)
    out, indices = pooling.max_pool(x, *options)
    close(out, expected)
    close(indices, places)
    g = rng.standard_normal(out.shape)
    close(pooling.max_pool_scatter(g, indices, x.shape), gradients(expected, g, X)[0])
    np.testing.assert_array_equal(pooling.gather_plane(x, indices), out)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64", "uint8"])
def test_max_pool_dtypes(dtype):
    x = np.random.default_rng(0).integers(0, 90, (2, 2, 7, 7)).astype(dtype)
    expected = F.max_pool2d(torch.from_numpy(x), 3, 2, 1)
    close(pooling.max_pool(x, (3, 3), (2, 2), (1, 1), (1, 1))[0], expected)


@pytest.mark.parametrize("nd", [1, 2, 3])
def test_max_unpool(nd):
    rng = np.random.default_rng(nd)
    x = rng.standard_normal((2, 3, *(6, 8, 4)[:nd]))
    pooled, indices = pooling.max_pool(x, (2,) * nd, (2,) * nd, (0,) * nd, (1,) * nd)
    P = leaf(pooled)
    expected = MAX_UNPOOL[nd](P, torch.from_numpy(indices), 2)
    close(pooling.max_unpool(pooled, indices, x.shape[2:]), expected)
    g = rng.standard_normal(x.shape)
    close(pooling.gather_plane(g, indices), gradients(expected, g, P)[0])
    with pytest.raises(RuntimeError, match="invalid max index"):
        pooling.max_unpool(pooled, indices + 10**6, x.shape[2:])


@examples
@given(seeds, st.integers(1, 3), st.booleans(), st.booleans(), st.booleans())
def test_avg_pool(seed, nd, ceil_mode, count_include_pad, override):
    rng = np.random.default_rng(seed)
    kernel, stride, padding = draw_pool(rng, nd)
    x = rng.standard_normal((2, 3, *draw_tuple(rng, nd, 4, 9)))
    X = leaf(x)
    options = (kernel, stride, padding, ceil_mode, count_include_pad)
    if nd > 1:
        options += (3 if override else None,)
    expected = AVG_POOL[nd](X, *options)
    close(pooling.avg_pool(x, *options), expected)
    g = rng.standard_normal(expected.shape)
    close(pooling.avg_pool_grad(g, x.shape, *options), gradients(expected, g, X)[0])


def test_avg_pool_dtypes():
    x = np.random.default_rng(0).integers(-90, 90, (2, 2, 6, 6))
    for dtype in ("int64", "float32", "float16"):
        expected = F.avg_pool2d(torch.from_numpy(x.astype(dtype)), 3, 2, 1)
        close(pooling.avg_pool(x.astype(dtype), (3, 3), (2, 2), (1, 1)), expected, 2e-3)


@examples
@given(seeds, st.integers(1, 3))
def test_adaptive_pools(seed, nd):
    rng = np.random.default_rng(seed)
    size = draw_tuple(rng, nd, 1, 7)
    x = rng.standard_normal((2, 3, *draw_tuple(rng, nd, 1, 9)))
    X = leaf(x)
    expected = ADAPTIVE_AVG[nd](X, size)
    close(pooling.adaptive_avg_pool(x, size), expected)
    g = rng.standard_normal(expected.shape)
    close(pooling.adaptive_avg_pool_grad(g, x.shape), gradients(expected, g, X)[0])

    x[rng.random(x.shape) < 0.05] = np.nan
    expected, places = ADAPTIVE_MAX[nd](torch.from_numpy(x), size, return_indices=True)
    out, indices = pooling.adaptive_max_pool(x, size)
    close(out, expected)
    close(indices, places)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("nd", [2, 3])
def test_fractional_max_pool(nd, dtype):
    rng = np.random.default_rng(nd)
    pool = F.fractional_max_pool2d if nd == 2 else F.fractional_max_pool3d
    for _ in range(10):
        kernel, size = draw_tuple(rng, nd, 1, 3), draw_tuple(rng, nd, 1, 4)
        x = rng.standard_normal((2, 3, *draw_tuple(rng, nd, 7, 9))).astype(dtype)
        samples = rng.random((2, 3, nd)).astype(dtype)
        expected, places = pool(
            torch.from_numpy(x),
            kernel,
            size,
            return_indices=True,
            _random_samples=torch.from_numpy(samples),
        )
        out, indices = pooling.fractional_max_pool(x, kernel, size, samples)
        close(out, expected)
        close(indices, places)


def test_pools_of_no_samples():
    x = np.zeros((0, 2, 6, 6))
    out, indices = pooling.max_pool(x, (2, 2), (2, 2), (0, 0), (1, 1))
    assert out.shape == indices.shape == (0, 2, 3, 3)
    assert pooling.max_pool_scatter(out, indices, x.shape).shape == x.shape
    assert pooling.adaptive_max_pool(x, (4, 4))[1].shape == (0, 2, 4, 4)
    assert pooling.adaptive_avg_pool(x, (4, 4)).shape == (0, 2, 4, 4)


def test_pool_refuses_an_input_smaller_than_its_window():
    with pytest.raises(RuntimeError, match="Output size is too small"):
        pooling.max_pool(np.zeros((1, 1, 2)), (4,), (1,), (0,), (1,))


# Resampling

MODES = [
    ("nearest", 1, False),
    ("nearest", 2, False),
    ("nearest", 3, False),
    ("nearest-exact", 2, False),
    ("linear", 1, False),
    ("bilinear", 2, False),
    ("bilinear", 2, True),
    ("trilinear", 3, False),
    ("bicubic", 2, False),
    ("bicubic", 2, True),
    ("area", 1, False),
    ("area", 2, False),
    ("area", 3, False),
]


def check_interpolate(rng, x, mode, align, antialias, size=None, factors=None, oracle=True):
    options = {"align_corners": align if "linear" in mode or "cubic" in mode else None}
    X = leaf(x)
    expected = F.interpolate(X, size, factors, mode, antialias=antialias, **options)
    ours = mode, align, factors, antialias
    close(resampling.interpolate(x, tuple(expected.shape[2:]), *ours), expected)
    g = rng.standard_normal(expected.shape)
    gx = resampling.interpolate_grad(g, x.shape, *ours)
    np.testing.assert_allclose((gx * x).sum(), (g * expected.detach().numpy()).sum(), 1e-9)
    if oracle:
        close(gx, gradients(expected, g, X)[0])


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(("mode", "nd", "antialias"), MODES)
def test_interpolate_to_size(mode, nd, antialias, align):
    rng = np.random.default_rng(nd)
    # torch itself smears the columns of an antialiased result that is one column wide.
    narrowest = 2 if antialias else 1
    for _ in range(8):
        x = rng.standard_normal((2, 2, *draw_tuple(rng, nd, 1, 8)))
        size = draw_tuple(rng, nd, narrowest, 11)
        check_interpolate(rng, x, mode, align, antialias, size=size)


@pytest.mark.parametrize("factor", [0.4, 0.5, 1.0, 1.1, 1.3, 2.0, 2.05, 2.7])
@pytest.mark.parametrize(("mode", "nd", "antialias"), [m for m in MODES if m[0] != "area"])
def test_interpolate_by_factor(mode, nd, antialias, factor):
    rng = np.random.default_rng(nd)
    factors = (factor, 2.0, 0.75)[:nd]
    x = rng.standard_normal((2, 2, *(5, 7, 6)[:nd]))
    # torch forgets a factor close to one or two in the gradients of these, but not forwards.
    oracle = factor not in (1.1, 2.05) or not (antialias or mode == "nearest")
    check_interpolate(rng, x, mode, False, antialias, factors=factors, oracle=oracle)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_places_at_all_sizes(mode, dtype):
    for size, count in product(range(1, 40, 3), range(1, 60)):
        x = np.arange(size, dtype=dtype)[None, None]
        expected = F.interpolate(torch.from_numpy(x), count, mode=mode)
        close(resampling.interpolate(x, (count,), mode), expected)


def test_interpolate_dtypes():
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 5, 6)).astype(np.uint8)
    expected = F.interpolate(torch.from_numpy(x), (9, 4))
    close(resampling.interpolate(x, (9, 4), "nearest"), expected)
    for mode in ("bilinear", "bicubic"):
        expected = F.interpolate(torch.from_numpy(x), (9, 4), mode=mode).numpy()
        ours = resampling.interpolate(x, (9, 4), mode)
        assert ours.dtype == np.uint8
        assert np.abs(ours.astype(int) - expected).max() <= 1
        single = x.astype(np.float32)
        expected = F.interpolate(torch.from_numpy(single), (9, 4), mode=mode)
        close(resampling.interpolate(single, (9, 4), mode), expected, 1e-4)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "nd"),
    [("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("bilinear", 3), ("nearest", 3)],
)
def test_grid_sample(mode, nd, padding_mode, align):
    rng = np.random.default_rng(nd)
    for _ in range(4):
        x = rng.standard_normal((2, 3, *draw_tuple(rng, nd, 1, 6)))
        grid = rng.uniform(-2.5, 2.5, (2, *draw_tuple(rng, nd, 1, 5), nd))
        X, G = leaf(x), leaf(grid)
        expected = F.grid_sample(X, G, mode, padding_mode, align)
        close(resampling.grid_sample(x, grid, mode, padding_mode, align), expected)
        g = rng.standard_normal(expected.shape)
        gx, ggrid = resampling.grid_sample_grad(g, x, grid, mode, padding_mode, align)
        for ours, theirs in zip((gx, ggrid), gradients(expected, g, X, G), strict=True):
            close(ours, theirs)


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_at_points_without_a_place(mode, padding_mode):
    x = np.arange(1.0, 10).reshape(1, 1, 3, 3)
    grid = np.array([[np.nan, 0], [np.inf, 0], [-np.inf, 0.5], [0, np.nan]])[None, None]
    expected = F.grid_sample(*map(torch.from_numpy, (x, grid)), mode, padding_mode, False)
    with np.errstate(invalid="ignore"):
        close(resampling.grid_sample(x, grid, mode, padding_mode, False), expected)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("size", [(2, 1, 4, 5), (2, 3, 1, 3), (2, 1, 2, 3, 4)])
def test_affine_grid(size, align):
    rng = np.random.default_rng(0)
    nd = len(size) - 2
    theta = rng.standard_normal((2, nd, nd + 1))
    T = leaf(theta)
    expected = F.affine_grid(T, size, align)
    close(resampling.affine_grid(theta, size, align), expected)
    g = rng.standard_normal(expected.shape)
    close(resampling.affine_grid_grad(g, size, align), gradients(expected, g, T)[0])


def test_kernels_accept_any_strides():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 6, 3, 2)).T
    w = rng.standard_normal((3, 3, 3, 4)).T
    g = rng.standard_normal((5, 6, 4, 2)).T
    grid = rng.uniform(-1, 1, (2, 5, 6, 2)).swapaxes(1, 2)
    options = (1, 1), (1, 1), (1, 1), 1
    calls = [
        (conv.convolution, (x, w, *options)),
        (conv.convolution_input_grad, (g, w, x.shape, *options)),
        (conv.convolution_weight_grad, (g, x, w.shape, *options)),
        (conv.unfold, (x, (2, 2), (1, 1), (0, 0), (1, 1))),
        (pooling.max_pool, (x, (2, 2), (2, 2), (0, 0), (1, 1))),
        (pooling.avg_pool, (x, (2, 2), (2, 2), (1, 1))),
        (pooling.adaptive_max_pool, (x, (4, 4))),
        (pooling.adaptive_avg_pool, (x, (3, 4))),
        (resampling.interpolate, (x, (9, 9), "bicubic")),
        (resampling.grid_sample, (x, grid, "bilinear", "zeros", False)),
        (resampling.grid_sample_grad, (x, x, grid, "bicubic", "border", False)),
    ]
    for kernel, arguments in calls:
        dense = [np.ascontiguousarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
        for ours, theirs in zip(kernel(*arguments), kernel(*dense), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


# Sequences


def check_ctc(log_probs, targets, inputs, labels, blank, zero_infinity, rng):
    L = leaf(log_probs)
    integers = [torch.from_numpy(np.asarray(a)) for a in (targets, inputs, labels)]
    expected = F.ctc_loss(L, *integers, blank, "none", zero_infinity)
    arrays = targets, inputs, labels
    loss, log_alpha = sequence.ctc_loss(log_probs, *arrays, blank, zero_infinity)
    close(loss, expected)
    g = rng.standard_normal(loss.shape)
    ours = sequence.ctc_loss_grad(g, log_probs, *arrays, log_alpha, blank, zero_infinity)
    close(ours, gradients(expected, g, L)[0])


@examples
@given(seeds, st.booleans(), st.booleans())
def test_ctc_loss(seed, concatenated, zero_infinity):
    rng = np.random.default_rng(seed)
    steps, samples, classes, width = (int(rng.integers(1, n)) for n in (12, 5, 6, 6))
    classes += 1
    blank = int(rng.integers(classes))
    log_probs = rng.standard_normal((steps, samples, classes))
    log_probs -= np.log(np.exp(log_probs).sum(-1, keepdims=True))
    labels = rng.integers(0, width + 1, samples)
    targets = (blank + rng.integers(1, classes, (samples, width))) % classes
    if concatenated:
        targets = np.concatenate([row[:n] for row, n in zip(targets, labels, strict=True)])
    inputs = rng.integers(0, steps + 1, samples)
    check_ctc(log_probs, targets, inputs, labels, blank, zero_infinity, rng)


def test_ctc_loss_with_impossible_classes():
    log_probs = np.log(np.full((5, 1, 4), 0.25))
    log_probs[1, 0, 3] = log_probs[0, 0, 1] = -np.inf
    targets, inputs, labels = np.array([[1, 2]]), np.array([5]), np.array([2])
    check_ctc(log_probs, targets, inputs, labels, 0, False, np.random.default_rng(0))


@examples
@given(seeds, st.sampled_from(["sum", "mean", "max"]), st.booleans(), st.booleans(), st.booleans())
def test_embedding_bag(seed, mode, include_last, weighted, padded):
    rng = np.random.default_rng(seed)
    weight = rng.integers(-5, 6, (6, 3)).astype(float)
    sizes = rng.integers(0, 4, rng.integers(1, 6))
    indices = rng.integers(0, 6, sizes.sum())
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    offsets = offsets if include_last else offsets[:-1]
    samples = rng.standard_normal(len(indices)) if weighted and mode == "sum" else None
    padding_idx = -2 if padded else None
    W = leaf(weight)
    S = None if samples is None else leaf(samples)
    expected = F.embedding_bag(
        torch.from_numpy(indices),
        W,
        torch.from_numpy(offsets),
        mode=mode,
        per_sample_weights=S,
        include_last_offset=include_last,
        padding_idx=padding_idx,
    )
    out, bag, counts, places = sequence.embedding_bag(
        weight, indices, offsets, mode, samples, include_last, padding_idx
    )
    close(out, expected)
    g = rng.standard_normal(out.shape)
    gw = sequence.embedding_bag_grad(
        g, weight.shape, indices, bag, counts, places, mode, samples, padding_idx
    )
    theirs = gradients(expected, g, *(t for t in (W, S) if t is not None))
    close(gw, theirs[0])
    if samples is not None:
        ours = sequence.embedding_bag_sample_grad(g, weight, indices, bag, padding_idx)
        close(ours, theirs[1])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag_of_a_matrix(mode):
    rng = np.random.default_rng(0)
    weight, indices = rng.standard_normal((7, 3)), rng.integers(0, 7, (4, 5))
    W = leaf(weight)
    expected = F.embedding_bag(torch.from_numpy(indices), W, mode=mode)
    out, bag, counts, places = sequence.embedding_bag(weight, indices, mode=mode)
    close(out, expected)
    g = rng.standard_normal(out.shape)
    options = g, weight.shape, indices, bag, counts, places, mode
    gw = sequence.embedding_bag_grad(*options)
    close(gw, gradients(expected, g, W)[0])
    if mode != "max":
        # Not compared with torch, which divides by the frequency of another row.
        scaled = sequence.embedding_bag_grad(*options, scale_grad_by_freq=True)
        frequency = np.maximum(np.bincount(indices.ravel(), minlength=7), 1)
        np.testing.assert_allclose(scaled, gw / frequency[:, None])


def test_embedding_bag_max_and_nan():
    weight = np.array([[1.0, np.nan], [np.nan, 2.0], [0.0, 3.0]])
    indices, offsets = np.array([0, 1, 2, 1, 0]), np.array([0, 3, 5])
    out, _, _, places = sequence.embedding_bag(weight, indices, offsets, "max")
    expected = F.embedding_bag(*map(torch.from_numpy, (indices, weight, offsets)), mode="max")
    close(out, expected)
    np.testing.assert_array_equal(places, [[0, 0], [1, 1], [-1, -1]])
