"""Native copies, conversions and choices against NumPy's."""

import itertools
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from loops_common import channels_last, over_threads, unaligned
from weft.native.codegen import jit
from weft.native.loops import movement

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))


@pytest.fixture(autouse=True)
def all_sizes(monkeypatch):
    for name, value in (("SMALL", 0), ("SMALL_CHOICE", 0), ("GRAIN", 1)):
        monkeypatch.setattr(movement, name, value)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def same(found, wanted):
    assert found is not None
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()


# --- copies


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.float16])
def test_copies_of_every_order(rng, dtype):
    x = (rng.standard_normal((3, 17, 33, 5)) * 99).astype(dtype)
    for order in itertools.permutations(range(4)):
        v = x.transpose(order)
        same(over_threads(lambda v=v: movement.copied(v)), np.ascontiguousarray(v))
        kept = movement.clone(v)
        assert np.array_equal(kept, v)
        assert kept.transpose(np.argsort(order)).flags.c_contiguous


def test_copies_of_parts(rng):
    x = rng.standard_normal((6, 17, 33, 5)).astype(np.float32)
    parts = [
        *(x[:, ::2], x[::-1, :, ::-3], x[..., 1:], x[:, :, ::2, ::2], x[0].T, x[:1, :, :1]),
        *(np.broadcast_to(x[:, :1], x.shape), np.broadcast_to(x[..., :1], x.shape)),
        *(x[0, 0, 0], x[0, 0, :, 0], np.broadcast_to(x[0, 0, 0, 0], (3, 4))),
    ]
    for v in parts:
        same(over_threads(lambda v=v: movement.copied(v)), np.ascontiguousarray(v))
        assert not np.shares_memory(movement.copied(v), v)
    assert movement.copied(unaligned(x)) is None


def test_shapes_for_which_elements_move(rng):
    x = rng.standard_normal((6, 17, 4, 5)).astype(np.float32)
    turned = x.transpose(0, 2, 1, 3)
    same(over_threads(lambda: movement.reshape(turned, (24, 85))), turned.reshape(24, 85))
    assert movement.reshape(x, (24, 85)) is None  # NumPy does it for nothing
    part = movement.reshape(x[:, :, :2], (6, 17, 2, 5, 1))
    assert np.shares_memory(part, x)  # a view where that can be
    np.testing.assert_array_equal(part[..., 0], x[:, :, :2])


@pytest.mark.parametrize("size", [(1, 1), (15, 16), (16, 16), (17, 33), (100, 300)])
def test_transposes(rng, size):
    x = rng.standard_normal(size).astype(np.float32)
    same(over_threads(lambda: movement.copied(x.T)), np.ascontiguousarray(x.T))


def test_clone_in_a_format(rng):
    x = rng.standard_normal((3, 5, 7, 6)).astype(np.float32)
    last = SimpleNamespace(name="channels_last")
    made = movement.clone(x, last)
    assert np.array_equal(made, x) and np.moveaxis(made, 1, -1).flags.c_contiguous
    assert movement.clone(made, SimpleNamespace(name="contiguous_format")).flags.c_contiguous
    assert movement.clone(x[0], last) is None
    assert movement.clone(np.broadcast_to(x[:, :1], x.shape)) is None


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_joins(rng, dim):
    x = rng.standard_normal((4, 5, 50)).astype(np.float32)
    short = x[tuple(slice(2) if k == dim else slice(None) for k in range(3))]
    empty = x[tuple(slice(0) if k == dim else slice(None) for k in range(3))]
    parts = [np.concatenate([p] * 40, 1 if dim != 1 else 0) for p in (x, x[::-1], short, empty)]
    same(over_threads(lambda: movement.cat(*parts, dim=dim)), np.concatenate(parts, dim))
    same(movement.stack(*parts[:2], dim=dim), np.stack(parts[:2], dim))
    assert movement.cat(parts[0], parts[0].astype(np.float64), dim=dim) is None
    assert movement.stack(parts[0], parts[2], dim=dim) is None


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_joins_keep_the_channels_last(rng, dim):
    x = rng.standard_normal((4, 5, 40, 50)).astype(np.float32)
    found = movement.cat(channels_last(x), channels_last(x[::-1]), dim=dim)
    assert np.array_equal(found, np.concatenate([x, x[::-1]], dim)) and movement.is_last(found)
    mixed = [channels_last(x), x, x.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)]
    same(over_threads(lambda: movement.cat(*mixed, dim=dim)), np.concatenate([x, x, x], dim))


# --- conversions

TYPES = [np.dtype(t) for t in ("f4", "f8", "i8", "i4", "i2", "i1", "u1", "?", "f2")]
TYPES.append(np.dtype(ml_dtypes.bfloat16))


def numbers(rng):
    edges = [0, -0.0, 0.5, -0.5, 1.5, 2.5, 0.1, 1e10, -1e10, 3e38, 1e-40, 9.2e18, -9.3e18, 2**63]
    edges += [2.0**31, -(2.0**31), 2.0**31 - 128, 65504, 65519, 65520, 1e-7, 6e-8, 3e-8, 2**24 + 1]
    bits = rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    few = (rng.standard_normal(1001) * 300).astype(np.float32)
    return np.concatenate([np.array(edges, np.float32), few, bits])


def expected(x, target):
    """What the processor gives: numbers that don't fit into an int become the lowest one."""
    if target.kind == "i" and x.dtype.kind == "f":
        limit = 2.0 ** (8 * target.itemsize - 1)
        v = np.trunc(x.astype(np.float64))
        fits = (v >= -limit) & (v < limit)
        return np.where(fits, np.where(fits, v, 0).astype(target), np.iinfo(target).min)
    return x != 0 if target.kind == "b" else x.astype(target)


@pytest.mark.parametrize("target", TYPES, ids=str)
@pytest.mark.parametrize("source", TYPES, ids=str)
def test_conversions(rng, source, target):
    with np.errstate(all="ignore"):
        x = numbers(rng)
        x = (x.astype(np.int64) if source.kind in "iu" else x).astype(source)
        found = over_threads(lambda: movement.to_copy(x, target))
        wanted = expected(x, target).astype(target)
    if found is None:
        taken = ({"f4", "f8"}, {"f4", "f8", "i8", "i4", "b1"})
        assert not (source.str[1:] in taken[0] and target.str[1:] in taken[1]) or source == target
        return
    assert found.dtype == target
    if target.kind in "fV":
        nan = np.isnan(wanted)
        assert np.array_equal(np.isnan(found), nan)
        found, wanted = found[~nan], wanted[~nan]
    assert found.tobytes() == wanted.tobytes()


def test_conversion_keeps_the_layout(rng):
    x = rng.standard_normal((3, 4, 5)).astype(np.float32).transpose(2, 0, 1)
    y = movement.to_copy(x, np.dtype(np.float64))
    assert np.array_equal(y, x) and y.strides == x.astype(np.float64).strides
    assert movement.to_copy(x[:, ::2], np.dtype(np.float64)) is None
    assert movement.to_copy(unaligned(x), np.dtype(np.float64)) is None


# --- choices

MASKS = [(4, 6, 10, 20), (1, 1, 10, 20), (4, 1, 1, 20), (10, 1), (20,), (4, 6, 1, 1), (1, 6, 1, 20)]


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16])
@pytest.mark.parametrize("shape", [*MASKS, (), (4, 1, 10, 1)], ids=str)
def test_choices(rng, shape, dtype):
    x = (rng.standard_normal((4, 6, 10, 20)) * 9).astype(dtype)
    other = np.ascontiguousarray(x[::-1])
    mask = np.asarray(rng.random(shape) < 0.4)
    one = np.array(3).astype(dtype)
    for m in (mask, np.ascontiguousarray(mask.T).T):
        for a, b in ((x, other), (one, x), (x, one)):
            same(over_threads(lambda m=m, a=a, b=b: movement.where(m, a, b)), np.where(mask, a, b))
        same(movement.masked_fill(x, one, m), np.where(mask, one, x))
        last = movement.masked_fill(channels_last(x), one, m)
        assert np.array_equal(last, np.where(mask, one, x)) and movement.is_last(last)
        last = movement.where(m, channels_last(x), channels_last(other))
        assert np.array_equal(last, np.where(mask, x, other)) and movement.is_last(last)


def test_choices_that_are_not_taken(rng):
    x = rng.standard_normal((4, 5)).astype(np.float32)
    mask = x > 0
    one = np.array(1, np.float32)
    assert movement.where(mask, x, x.astype(np.float64)) is None
    assert movement.where(mask.astype(np.uint8), x, x) is None
    assert movement.where(mask[None], x, x) is None
    assert movement.where(mask, one, one) is None
    assert movement.where(mask[:3], x, x) is None
    assert movement.masked_fill(x, 1.0, mask) is None
    assert movement.where(mask.T, x.T, x.T) is None  # in whose order the result would lie


@pytest.mark.parametrize("diagonal", [-(10**9), -12, -3, 0, 2, 25, 10**9])
def test_triangles(rng, diagonal):
    for shape in ((9, 20), (3, 20, 9), (2, 3, 7, 7)):
        x = rng.standard_normal(shape).astype(np.float32)
        same(over_threads(lambda x=x: movement.tril(x, diagonal)), np.tril(x, diagonal))
        same(over_threads(lambda x=x: movement.triu(x, diagonal)), np.triu(x, diagonal))
        same(movement.tril(x.swapaxes(-1, -2), diagonal), np.tril(x.swapaxes(-1, -2), diagonal))


# --- room around

PADS = [
    ((0, 0), (0, 0), (1, 2), (3, 4)),
    ((1, 0), (0, 2), (0, 0), (0, 1)),
    ((0, 0), (2, 1), (0, 0), (0, 0)),
    ((2, 3), (0, 0), (0, 0), (0, 0)),
    ((0, 0), (0, 0), (-1, 2), (3, -4)),
    ((0, 0), (0, 0), (-1, -2), (0, -4)),
    ((1, 1), (1, 1), (1, 1), (1, 1)),
]


@pytest.mark.parametrize("pads", PADS, ids=str)
@pytest.mark.parametrize("value", [0, 1.5, -np.inf, np.nan])
def test_padding(rng, pads, value):
    x = rng.standard_normal((4, 6, 10, 20)).astype(np.float32)
    cut = x[
        tuple(slice(max(-p, 0), n - max(-q, 0)) for n, (p, q) in zip(x.shape, pads, strict=True))
    ]
    room = [(max(p, 0), max(q, 0)) for p, q in pads]
    wanted = np.pad(cut, room, constant_values=np.float32(value))
    for v in (x, np.asfortranarray(x), unaligned(x)):
        found = over_threads(lambda v=v: movement.pad(v, pads, value))
        if found is None:  # a plain copy of what is not aligned is left to NumPy
            assert not v.flags.aligned and not any(p or q for p, q in room)
        else:
            same(found, wanted)


def test_padding_that_is_not_taken(rng):
    x = rng.standard_normal((4, 5)).astype(np.float32)
    assert movement.pad(x, ((0, 0), (-3, -2)), 0) is None  # nothing is left
    assert movement.pad(x, ((1, 1), (1, 1)), 1e39) is None  # does not fit
    assert movement.pad(x.astype(np.int64), ((1, 1), (1, 1)), 0) is None
