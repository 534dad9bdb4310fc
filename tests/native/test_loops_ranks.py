"""Elements of a rank: the kernels against the references, places of equal elements included."""

from __future__ import annotations

import numpy as np
import pytest

from loops_common import over_threads
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit
from weft.native.loops import ranks

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason="no compiler here")
SHAPES = ((100, 300), (40, 70), (2000,), (3, 5, 300), (1500, 1), (700, 2), (600, 3), (2, 1030))


def rows(dtype, shape):
    """All different, many equal, and with NaN, zeros of both signs and rows of nothing but NaN."""
    rng = np.random.default_rng(0)
    spread = 1e6 if dtype not in (np.int8, np.uint8) else 100
    yield (rng.random(shape) * spread).astype(dtype)
    yield rng.integers(0, 10, shape).astype(dtype)
    yield (np.arange(np.prod(shape)) % 120).reshape(shape).astype(dtype)
    if issubclass(dtype, np.floating):
        x = rng.integers(-2, 3, shape) * dtype(0.0 if rng.random() < 0.3 else 1.5)
        x.reshape(-1)[::7] *= -1
        x[rng.random(shape) < 0.1] = np.nan
        yield x
        x = x.copy()
        x[1:3] = np.nan
        yield x


def same(found, wanted):
    bits = [a.view(f"u{a.itemsize}") if a.dtype.kind != "f" else a for a in (found, wanted)]
    return (
        found.dtype == wanted.dtype
        and np.array_equal(*bits, equal_nan=found.dtype.kind == "f")
        and np.array_equal(np.signbit(found), np.signbit(wanted))
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.int8, np.uint8])
@pytest.mark.parametrize("name", ["kthvalue", "median", "nanmedian"])
def test_ranks(name, dtype, shape):
    op = REGISTRY[name if name == "kthvalue" else f"{name}_dim"]
    for x in rows(dtype, shape):
        for dim, n in enumerate(shape):
            kinds = {1, n, (n + 1) // 2, max(1, n // 5)} if name == "kthvalue" else {0}
            for k in kinds:
                attrs = {"dim": dim, "keepdim": bool(dim % 2), **({"k": k} if k else {})}
                found = over_threads(lambda x=x, attrs=attrs: getattr(ranks, name)(x, **attrs))
                assert all(map(same, found, op.reference(x, **attrs))), attrs


def test_what_is_left_to_numpy():
    x = np.ones((30, 50), np.float32)
    assert ranks.kthvalue(x, 1, False, 50) is not None
    for dim, k in ((1, 0), (1, 51), (2, 1), (-1, 1)):
        assert ranks.kthvalue(x, dim, False, k) is None
    assert ranks.median(x, 2, False) is None and ranks.median(x[:0], 1, False) is None
    assert ranks.median(x.astype(np.float16), 1, False) is None
    assert ranks.nanmedian(x[:3, :4], 1, False) is None
