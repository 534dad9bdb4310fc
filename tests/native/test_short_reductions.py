"""Reductions of small arrays by compiled code: NumPy's bits, whatever the array is like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.core import selection
from weft.native.codegen import jit
from weft.native.loops import reduce, scans, short_reductions

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))

SHAPES = [(1,), (4,), (16,), (4, 4), (3, 1), (1, 5), (2, 3, 4), (128,), (1024,), (1025,), (33, 31)]
SHAPES += [(), (0, 3), (3, 0)]
CALLS = {
    "max": lambda x: x.max(), "min": lambda x: x.min(), "amax": lambda x: x.amax(),
    "amax last": lambda x: x.amax(-1), "amin last": lambda x: x.amin(-1),
    "amax first": lambda x: x.amax(0), "amax kept": lambda x: x.amax(-1, keepdim=True),
    "any": lambda x: x.any(), "all": lambda x: x.all(), "any last": lambda x: x.any(-1),
    "all last": lambda x: x.all(-1), "all first": lambda x: x.all(0),
    "sum": lambda x: x.sum(), "sum last": lambda x: x.sum(-1), "sum kept": lambda x: x.sum(0, True),
    "argmax": lambda x: x.argmax(), "argmax last": lambda x: x.argmax(-1),
    "argmin last": lambda x: x.argmin(-1), "argmax kept": lambda x: x.argmax(-1, keepdim=True),
    "topk": lambda x: x.topk(min(2, x.shape[-1] if x.ndim else 1)),
    "topk least": lambda x: x.topk(1, largest=False),
}  # fmt: skip


def values(order: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers with ties, zeros of both signs, infinities, NaN and the ends of the range."""
    if dtype == "bool":
        return order.random(shape) < order.choice([0.0, 0.01, 0.5, 0.99, 1.0])
    if dtype.startswith("int"):
        far = np.iinfo(dtype)
        few = np.array([0, 0, 1, -1, 7, far.max, far.min], dtype)
        return order.choice(few[: order.choice([2, 5, 7])], shape)
    x = order.standard_normal(shape).astype(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-42]
    for _ in range(order.integers(4)):
        x[order.random(shape) < 0.3] = order.choice(special)
    return np.asarray(np.round(x) if order.random() < 0.3 else x, dtype)


def layouts(order: np.random.Generator, x: np.ndarray) -> np.ndarray:
    kind = order.integers(4)
    if kind == 1:
        return np.asfortranarray(x)
    if kind == 2 and x.ndim:
        return np.repeat(x, 2, -1)[..., ::2]
    if kind == 3:
        raw = np.empty(x.nbytes + 1, np.uint8)
        odd = raw[1:].view(x.dtype).reshape(x.shape)
        odd[...] = x
        return odd
    return x


def outcome(name: str, x: weft.Tensor) -> Any:
    try:
        found = CALLS[name](x)
    except Exception as error:
        return type(error).__name__, str(error).partition("\n  at")[0]
    parts = found if isinstance(found, tuple) else (found,)
    return [(p.dtype, p.shape, p.is_contiguous(), p._a.tobytes()) for p in parts]


@pytest.mark.parametrize("seed", range(8))
def test_small_reductions_are_those_of_numpy(seed: int) -> None:
    assert selection.ready()
    order = np.random.default_rng(seed)
    for _ in range(60):
        dtype = str(order.choice(["float32", "float32", "float64", "int64", "int32", "bool"]))
        array = layouts(order, values(order, SHAPES[order.integers(len(SHAPES))], dtype))
        x = weft.tensor(0)
        x._a = array
        short = {name: outcome(name, x) for name in CALLS}
        again = {name: outcome(name, x) for name in CALLS}
        weft.backends.native.set("numpy")
        try:
            plain = {name: outcome(name, x) for name in CALLS}
        finally:
            weft.backends.native.set("native")
        for name in CALLS:
            assert short[name] == again[name] == plain[name], (name, array)


def test_plain_arrays_are_taken() -> None:
    x, mask, n = np.ones((3, 4), np.float32), np.ones((3, 4), bool), np.ones((3, 4), np.int64)
    every, last = (0, 1), (1,)
    for dim in (every, last):
        for found in (
            *(short_reductions.extreme(x, dim, least) for least in (True, False)),
            *(
                short_reductions.truth(a, dim, all_of)
                for a in (x, mask)
                for all_of in (True, False)
            ),
            short_reductions.integers(n, dim),
        ):
            assert found is not None and found.shape == np.add.reduce(x, axis=dim).shape
    assert reduce.max_of_all(x) == 1 and reduce.sum_over(n, every, False) == 12
    assert scans.topk(np.arange(8, dtype=np.float32), 3, 0, True, True)[1].tolist() == [7, 6, 5]


def test_what_numpy_decides_by_processor_is_left_to_it() -> None:
    for values in ([0.0, -0.0, -1.0], [np.nan, 1.0, 2.0], [1.0, 2.0, np.nan], [-0.0, -0.0, -3.0]):
        assert short_reductions.extreme(np.array(values, np.float32), (0,), False) is None
    assert short_reductions.extreme(np.ones(1025, np.float32), (0,), False) is None
    assert short_reductions.extreme(np.ones(4), (0,), False) is None
