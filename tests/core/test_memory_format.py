"""Results lie in memory as PyTorch's do: strides follow the inputs, channels stay innermost."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the model for strides")
opdb = pytest.importorskip("opdb")

import weft  # noqa: E402

RNG = np.random.default_rng(0)
SHAPES = ((2, 4, 5, 6), (4, 16, 32, 30), (1, 4, 3, 3))


def both(function: Callable, *arrays: np.ndarray, last: str = "1") -> None:
    """Run in both systems and compare values and strides; ``last`` tells who is channels-last."""
    results = []
    for T in (torch, weft):
        inputs = [T.tensor(a) for a in arrays]
        for i, flag in enumerate(last):
            if flag == "1":
                inputs[i] = in_last(T, inputs[i])
        results.append(function(T, *inputs))
    expected, actual = results
    assert actual.stride() == expected.stride()
    np.testing.assert_allclose(
        actual.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5
    )


def in_last(T: Any, x: Any) -> Any:
    return x.contiguous(memory_format=T.channels_last if x.ndim == 4 else T.channels_last_3d)


def image(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


FUNCTIONS: dict[str, Callable] = {
    "max_pool2d": lambda T, x: T.nn.functional.max_pool2d(x, 3, 2, 1),
    "max_pool2d_indices": lambda T, x: T.nn.functional.max_pool2d(x, 2, return_indices=True)[1],
    "avg_pool2d": lambda T, x: T.nn.functional.avg_pool2d(x, 3, 2, 1),
    "adaptive_avg_pool2d": lambda T, x: T.nn.functional.adaptive_avg_pool2d(x, 2),
    "adaptive_max_pool2d": lambda T, x: T.nn.functional.adaptive_max_pool2d(x, 2),
    "batch_norm": lambda T, x: T.nn.functional.batch_norm(x, None, None, training=True),
    "group_norm": lambda T, x: T.nn.functional.group_norm(x, 2),
    "nearest": lambda T, x: T.nn.functional.interpolate(x, scale_factor=2),
    "bilinear": lambda T, x: T.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda T, x: T.nn.functional.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "pad": lambda T, x: T.nn.functional.pad(x, (1, 2, 1, 0)),
    "reflect": lambda T, x: T.nn.functional.pad(x, (1, 2, 1, 0), mode="reflect"),
    "circular": lambda T, x: T.nn.functional.pad(x, (1, 2, 1, 0), mode="circular"),
    "channel_shuffle": lambda T, x: T.nn.functional.channel_shuffle(x, 2),
    "pixel_shuffle": lambda T, x: T.nn.functional.pixel_shuffle(x, 2),
    "mixed": lambda T, x: x + x.contiguous(),
    "mixed_the_other_way": lambda T, x: x.contiguous() + x,
    "a_channel": lambda T, x: x[:1, :, :1, :1] * x,
    "alpha": lambda T, x: T.add(x, x.contiguous(), alpha=2),
    "lerp": lambda T, x: x.lerp(x.contiguous(), 0.75),
    "where": lambda T, x: T.where(x > 0, x, x.contiguous()),
    "clone": lambda T, x: x.clone(),
    "double": lambda T, x: x.double(),
    "cat": lambda T, x: T.cat([x, x], 1),
    "sum": lambda T, x: x.sum(2),
    "cumsum": lambda T, x: x.cumsum(1),
    "masked_fill": lambda T, x: x.masked_fill(x > 0, 1.0),
    "flip": lambda T, x: x.flip(1),
    "sort": lambda T, x: x.sort(1)[0],
    "tril": lambda T, x: x.tril(),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_channels_stay_where_torch_keeps_them(name: str, shape: tuple[int, ...]) -> None:
    both(FUNCTIONS[name], image(*shape))


CONVOLUTIONS: tuple[tuple[Any, ...], ...] = (
    ((2, 8, 9, 9), (4, 8, 3, 3), {}),
    ((2, 16, 16, 16), (32, 16, 3, 3), {"padding": 1}),
    ((2, 8, 9, 9), (8, 1, 3, 3), {"groups": 8}),
    ((2, 3, 5, 5, 5), (4, 3, 3, 3, 3), {}),
)


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
@pytest.mark.parametrize("last", ("00", "01", "10", "11"))
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_follow_input_or_weight(case: Any, last: str, dtype: Any) -> None:
    shape, weight, options = case
    name = f"conv{len(shape) - 2}d"
    both(
        lambda T, x, w: getattr(T.nn.functional, name)(x, w, **options),
        image(*shape, dtype=dtype),
        image(*weight, dtype=dtype),
        last=last,
    )


@pytest.mark.parametrize("size", (2, 5))
def test_volumes(size: int) -> None:
    x = image(2, 3, size, size, size)
    both(lambda T, x: T.nn.functional.max_pool3d(x, 2), x)
    both(lambda T, x: T.nn.functional.avg_pool3d(x, 2), x)
    both(lambda T, x: T.nn.functional.interpolate(x, scale_factor=2, mode="trilinear"), x)


def test_one_channel_goes_by_its_strides() -> None:
    # Contiguous in both formats; the strides of the channel tell which one was asked for.
    for function in (
        lambda T, x: T.nn.functional.max_pool2d(x, 2),
        lambda T, x: T.nn.functional.conv2d(x, T.ones(4, 1, 3, 3)),
        lambda T, x: x.clone(),
        lambda T, x: T.zeros_like(x),
    ):
        x = image(2, 1, 6, 6)
        both(lambda T, x, f=function: f(T, x.clone(memory_format=T.channels_last)), x, last="0")
        both(function, x)


def test_strides_of_permuted_operands() -> None:
    def cases(T: Any) -> Any:
        made = (
            T.zeros(2, 3, 4),
            T.zeros(2, 3, 8)[:, :, ::2],
            T.zeros(1, 1, 4, 12)[:, :, :, ::2],
            T.empty_strided((4, 3, 2), (10, 0, 3)).fill_(1.0),
            T.empty_strided((4, 2, 3), (10, 3, 3)).fill_(1.0),
        )
        for x in made:
            for order in itertools.permutations(range(x.ndim)):
                moved = x.permute(order)
                row = T.zeros(moved.shape[-1])
                yield moved.exp()
                yield T.empty_like(moved)
                yield moved.clone()
                for pair in ((moved, moved), (moved, row), (row, moved)):
                    yield T.add(*pair)
                    yield T.eq(*pair, out=T.empty(0, dtype=T.bool))

    for actual, expected in zip(cases(weft), cases(torch), strict=True):
        assert actual.stride() == expected.stride()


def test_strides_of_empty_tensors() -> None:
    for size in ((0,), (0, 3), (5, 0), (5, 0, 3, 0, 2), (0, 3, 0, 2)):
        assert weft.empty(size).stride() == torch.empty(size).stride()
    made = weft.empty_strided((0, 2, 0), (12, 4, 1))
    assert made.stride() == (12, 4, 1)
    assert weft.empty(0).as_strided((0, 2, 0), (12, 4, 1)).stride() == (12, 4, 1)


def test_resize_as_keeps_the_format() -> None:
    x = in_last(weft, weft.zeros(4, 3, 5, 5))
    flat = weft.arange(300.0)
    flat.resize_as_(x, memory_format=weft.preserve_format)
    assert flat.stride() == x.stride()
    assert flat[0, :, 0, 0].tolist() == [0.0, 1.0, 2.0]  # the memory is as it was


# --- every op of PyTorch's table -------------------------------------------------------


def flipped(t: Any) -> Any:
    return t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else t


def rolled(t: Any) -> Any:
    return t.movedim(0, -1).contiguous().movedim(-1, 0) if t.dim() > 2 else t


def channels(t: Any) -> Any:
    return in_last(torch, t) if t.dim() in (4, 5) else t


def wrong_strides(op: Any, samples: int) -> list[str]:
    """Where a result's strides differ from torch's, but for dimensions of one element."""
    found = []
    ours = opdb.counterpart(op)
    for sample in opdb.samples_of(op, "float32", opdb.Settings(samples=samples)):
        for way in (channels, flipped, rolled):
            move = lambda v, way=way: (
                way(v.detach().contiguous()) if isinstance(v, torch.Tensor) and v.numel() else v
            )
            try:
                args, kwargs = opdb.fresh(opdb.walk(opdb.parts_of(sample), move))
                w_args, w_kwargs = opdb.to_weft((args, kwargs))
                opdb.both_seeds()
                expected = op.op(*args, **kwargs)
            except Exception:
                continue  # what torch itself refuses
            opdb.both_seeds()
            actual = ours(*w_args, **w_kwargs)
            pairs = zip(opdb.tensors_in(actual), opdb.tensors_in(expected), strict=True)
            for a, e in pairs:
                steps = zip(e.shape, a.stride(), e.stride(), strict=True)
                if e.numel() and any(n > 1 and s != t for n, s, t in steps):
                    given = [(tuple(t.shape), t.stride()) for t in opdb.tensors_in(args)]
                    found.append(f"{a.stride()} where torch has {e.stride()} for {given}")
    return found


# Whose strides are a matter of the library behind PyTorch's kernel.
FREE = ("linalg.", "fft.", "masked.", "torch.ops", "special.hash", "unsafe_", "nn.functional.rms")
FREE_OPS = {
    *("cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "lu_solve", "lu_unpack", "ormqr"),
    *("pca_lowrank", "qr", "svd", "svd_lowrank", "triangular_solve", "stft", "matmul"),
    *("__rmatmul__", "__getitem__", "as_strided_scatter", "float", "hash_tensor", "ldexp", "norm"),
    *("mvlgamma", "put", "renorm", "repeat", "rot90", "stack", "tile", "unique"),
    *("unique_consecutive", "nn.functional.conv_transpose3d", "nn.functional.instance_norm"),
    *("nn.functional.max_pool3d", "nn.functional.rrelu", "istft", "nn.functional.bilinear"),
}
ALL = {
    name: op
    for name, op in opdb.BY_NAME.items()
    if op.name not in opdb.OUT_OF_SCOPE
    and name not in opdb.OUT_OF_SCOPE
    and torch.float32 in op.dtypes
    and op.name not in FREE_OPS
    and not op.name.startswith(FREE)
}
QUICK = ["add", "true_divide", "eq", "heaviside", "isclose", "complex", "exp", "isnan", "addcmul"]


def check_strides(names: Any, samples: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = {name: found for name in names if (found := wrong_strides(ALL[name], samples))}
    assert not wrong


def test_elementwise_ops_keep_strides_as_torch_does() -> None:
    check_strides(QUICK, 2)


@pytest.mark.deep
@pytest.mark.parametrize("name", ALL)
def test_ops_keep_strides_as_torch_does(name: str) -> None:
    check_strides([name], 12)
