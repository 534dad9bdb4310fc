"""Native indexing against NumPy's."""

import functools

import numpy as np
import pytest

from loops_common import over_threads, unaligned
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit
from weft.native.codegen.interpret import KernelInterpreter, Pointer
from weft.native.loops import indexing

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))

SHAPE = (4, 7, 40)
INTEGERS = [np.int64, np.int32]
SUMMED = [np.float32, np.float64, np.int64]


@pytest.fixture(autouse=True)
def all_sizes(monkeypatch):
    for name in ("SMALL", "SMALL_ROWS", "SMALL_SUM"):
        monkeypatch.setattr(indexing, name, 0)
    monkeypatch.setattr(indexing, "GRAIN", 1)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def whole(rng, shape, dtype):
    """Whole numbers: sums of them are exact in every order and type."""
    return rng.integers(-50, 50, shape).astype(dtype)


def views(x):
    """The same values lying in memory in several ways."""
    yield x
    yield unaligned(x)
    yield np.repeat(x, 2, axis=0)[::2]
    yield np.ascontiguousarray(x.T).T


def same(found, wanted):
    assert found is not None
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    assert np.array_equal(found, wanted)


def summed(shape, dtype, places, source):
    out = np.zeros(shape, dtype)
    np.add.at(out, places, source)
    return out


# --- embedding


@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.complex128])
@pytest.mark.parametrize("width", [1, 3, 16, 40, 100])
def test_embedding(rng, integer, dtype, width):
    index = rng.integers(0, 50, (7, 11)).astype(integer)
    weight = whole(rng, (50, width), dtype)
    for w in views(weight):
        for i in (index, np.ascontiguousarray(index.T).T):
            same(over_threads(lambda w=w, i=i: indexing.embedding(w, i, -1, False)), weight[index])


@pytest.mark.parametrize("dtype", SUMMED)
@pytest.mark.parametrize("width", [1, 3, 31, 40, 100])
@pytest.mark.parametrize("padding", [-1, 3])
def test_embedding_backward(rng, dtype, width, padding):
    index = rng.integers(0, 20, (9, 11))
    g = whole(rng, (9, 11, width), dtype)
    wanted = summed((20, width), dtype, index, g)
    if padding >= 0:
        wanted[padding] = 0
    for a in views(g):
        same(
            over_threads(lambda a=a: indexing.embedding_back(a, index, 20, padding, False)), wanted
        )
    if dtype != np.int64:
        counts = np.maximum(np.bincount(index.reshape(-1), minlength=20), 1)
        found = indexing.embedding_back(g, index, 20, padding, True)
        same(found, wanted / counts[:, None].astype(dtype))


def test_sums_are_taken_in_order(rng):
    index = rng.integers(0, 3, 1000)
    for width in (5, 80):
        g = rng.standard_normal((1000, width)).astype(np.float32)
        wanted = np.zeros((3, width), np.float32)
        for i, row in zip(index, g, strict=True):
            wanted[i] += row
        same(over_threads(lambda g=g: indexing.embedding_back(g, index, 3, -1, False)), wanted)


@pytest.mark.parametrize("single", [False, True])
def test_a_thread_writes_its_own_rows_alone(rng, single):
    source, index = np.ones(20, np.int64), rng.integers(0, 10, 20)
    out, bad = np.full(10, 7), np.zeros(1, np.int64)
    arrays = [Pointer(a.ctypes.data, "i64") for a in (source, source, index, out, bad)]
    sizes = {"n": 10, "count": 20, "inner": 1, "step": 0, "tiles": 10, "skipped": -1, "scale": 1}
    flags = {"add": True, "single": single, "own": True}
    rest = [(sizes | flags).get(name, 0) for name, _ in indexing.place.parameters[len(arrays) :]]
    run = KernelInterpreter().bound(indexing.place.function, {"T": "i64", "U": "i64"})
    run(*arrays, *rest, 4, 7)
    wanted = np.full(10, 7)
    wanted[4:7] = np.bincount(index, minlength=10)[4:7]
    assert np.array_equal(out, wanted) and not bad[0]


def test_rows_are_exchanged_and_restored(rng):
    index = np.array([3, 1, 3, 6, 0, 0])
    for dim, inner in ((0, 1), (1, 5), (1, 40)):
        x = rng.standard_normal((7, inner) if not dim else (2, 7, inner)).astype(np.float32)
        shape = (*x.shape[:dim], index.size, inner)
        before, rows = x.copy(), rng.standard_normal(shape).astype(np.float32)
        wanted = x.copy()
        for j, i in enumerate(index):  # the last of equal ones stays
            wanted[(slice(None),) * dim + (i,)] = rows[(slice(None),) * dim + (j,)]
        kept = indexing.exchange_rows(x, rows, index, dim)
        assert np.array_equal(x, wanted)
        indexing.restore_rows(x, kept, index, dim)
        assert np.array_equal(x, before)


@pytest.mark.parametrize("wrong", [-1, 50, -(2**62), 2**40])
def test_embedding_outside(rng, wrong):
    for width in (1, 4, 64):
        weight = rng.standard_normal((50, width)).astype(np.float32)
        index = rng.integers(0, 50, 200)
        index[123] = wrong
        g = np.ones((200, width), np.float32)
        assert over_threads(lambda w=weight, i=index: indexing.embedding(w, i, -1, False)) is None
        assert indexing.embedding_back(g, index, 50, -1, False) is None


# --- slices by a vector


@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize("dtype", SUMMED)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_slices(rng, integer, dtype, dim):
    plain = whole(rng, SHAPE, dtype)
    index = rng.integers(0, SHAPE[dim], 9).astype(integer)
    source = whole(rng, (*SHAPE[:dim], 9, *SHAPE[dim + 1 :]), dtype)
    places = (slice(None),) * dim + (index,)
    put = plain.copy()
    put[places] = source
    for x in views(plain):
        same(over_threads(lambda x=x: indexing.index_select(x, index, dim)), plain.take(index, dim))
        for alpha in (1, 3):
            wanted = plain.copy()
            np.add.at(wanted, places, source * np.asarray(alpha, dtype))
            found = over_threads(
                lambda x=x, alpha=alpha: indexing.index_add(x, source, index, dim, alpha)
            )
            same(found, wanted)
        same(over_threads(lambda x=x: indexing.index_copy(x, source, index, dim)), put)
        filled, seven, back = plain.copy(), np.array(7, dtype), index - SHAPE[dim]
        filled[places] = seven
        for given in (index, back):
            run = functools.partial(indexing.index_fill, x, seven, given, dim)
            same(over_threads(run), filled)
    for wrong in (SHAPE[dim], -1):
        index[4] = wrong
        assert indexing.index_select(plain, index, dim) is None
        assert indexing.index_add(plain, source, index, dim, 1) is None
        assert indexing.index_copy(plain, source, index, dim) is None
    for wrong in (SHAPE[dim], -SHAPE[dim] - 1):
        index[4] = wrong
        assert indexing.index_fill(plain, np.array(7, dtype), index, dim) is None


# --- x[index]


@pytest.mark.parametrize("dtype", SUMMED)
@pytest.mark.parametrize("where", [(0,), (1,), (2,), (0, 1), (1, 2)])
def test_index(rng, dtype, where):
    plain = whole(rng, SHAPE, dtype)
    shapes = [(3, 2)] if len(where) == 1 else [(5, 1), (7,)]
    indices = [rng.integers(-SHAPE[d], SHAPE[d], s) for d, s in zip(where, shapes, strict=True)]
    places = (slice(None),) * where[0] + tuple(indices)
    wanted = plain[places]
    put = plain.copy()
    put[places] = 7
    values = np.asarray(7, dtype)
    for x in views(plain):
        same(over_threads(lambda x=x: indexing.index(x, *indices, where=where)), wanted)
        found = over_threads(
            lambda x=x: indexing.index_put(x, values, *indices, where=where, accumulate=False)
        )
        same(found, put)
    for g in views(wanted):
        found = over_threads(lambda g=g: indexing.index_back(g, *indices, shape=SHAPE, where=where))
        same(found, summed(SHAPE, dtype, places, wanted))
    added = indexing.index_put(plain, wanted, *indices, where=where, accumulate=True)
    same(added, plain + summed(SHAPE, dtype, places, wanted))
    for wrong in (SHAPE[where[-1]], -SHAPE[where[-1]] - 1):
        indices[-1].flat[1] = wrong
        assert indexing.index(plain, *indices, where=where) is None
        assert indexing.index_back(wanted, *indices, shape=SHAPE, where=where) is None


def test_index_of_distant_dimensions(rng):
    i = rng.integers(0, 4, 50)
    assert indexing.index(whole(rng, SHAPE, np.float32), i, i, where=(0, 2)) is None


# --- an index for each element


def along(index, dim):
    grid = list(np.indices(index.shape, sparse=True))
    grid[dim] = index
    return tuple(grid)


@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize("dtype", SUMMED)
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gather_and_scatter(rng, integer, dtype, repeated, dim):
    plain = whole(rng, SHAPE, dtype)
    shape = (*SHAPE[:dim], 9, *SHAPE[dim + 1 :])
    drawn = (*shape[: dim + 1], *(1,) * (2 - dim)) if repeated else shape
    index = np.broadcast_to(rng.integers(0, SHAPE[dim], drawn).astype(integer), shape)
    source = whole(rng, shape, dtype)
    larger = whole(rng, tuple(n + 2 for n in shape), dtype)
    places = along(index, dim)
    put, one = plain.copy(), plain.copy()
    put[places] = source
    one[places] = 5
    total = summed(SHAPE, dtype, places, source)
    for x in views(plain):
        same(over_threads(lambda x=x: indexing.gather(x, index, dim)), plain[places])
        same(over_threads(lambda x=x: indexing.scatter_add(x, source, index, dim)), plain + total)
        same(over_threads(lambda x=x: indexing.scatter(x, source, index, dim)), put)
        same(over_threads(lambda x=x: indexing.scatter(x, np.array(5, dtype), index, dim)), one)
    part = larger[tuple(slice(n) for n in shape)]
    wanted = plain + summed(SHAPE, dtype, places, part)
    same(indexing.scatter_add(plain, larger, index, dim), wanted)
    same(over_threads(lambda: indexing.gather_back(source, index, SHAPE, dim)), total)
    same(indexing.put_along(source, index, dim, SHAPE, False), total)
    same(indexing.take_along(plain, index - SHAPE[dim], dim, False), plain[places])


@pytest.mark.parametrize("wrong", [-1, 40])
@pytest.mark.parametrize("dim", [0, 2])
def test_elements_outside(rng, wrong, dim):
    x = whole(rng, (40, 3, 40), np.float32)
    index = rng.integers(0, 40, x.shape)
    index[7, 1, 9] = wrong
    assert indexing.gather(x, index, dim) is None
    assert indexing.scatter_add(x, x, index, dim) is None
    assert indexing.scatter(x, x, index, dim) is None
    assert indexing.gather_back(x, index, x.shape, dim) is None


def test_what_is_not_taken(rng):
    x = whole(rng, (6, 6), np.float32)
    short = np.zeros((3, 2), np.int64)
    assert indexing.gather(x, short, 1) is None  # not the shape of x in other dimensions
    assert indexing.gather(x, short.astype(np.int16), 1) is None
    assert indexing.embedding(x[:0], short, -1, False) is None
    assert indexing.index_add(x, x, np.zeros(6, np.int64), 0, 1j) is None
    assert indexing.scatter(x, 3.0, np.zeros((6, 6), np.int64), 0) is None
    large = whole(rng, (60, 60), np.float32).T  # little is taken from much that lies apart
    assert indexing.index(large, np.zeros(3, np.int64), where=(0,)) is None
    assert indexing.gather(large, np.zeros((3, 60), np.int64), 0) is None


def test_values_that_are_no_numbers_are_moved_as_they_are(rng):
    bits = rng.integers(0, 2**32, (64, 33), dtype=np.uint32)
    bits[:, 0] = 0x7F800001  # a signalling NaN
    index = rng.integers(0, 64, 100)
    found = indexing.embedding(bits.view(np.float32), index, -1, False)
    assert np.array_equal(found.view(np.uint32), bits[index])


@pytest.mark.parametrize("dtype", SUMMED)
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(rng, dtype, reduce):
    reference = REGISTRY["scatter_reduce"].reference
    for shape, dim, count in (
        ((40, 8), 0, 90),
        ((8, 40), 1, 60),
        ((3, 20, 5), 1, 30),
        ((50,), 0, 9),
    ):
        given = (*shape[:dim], count, *shape[dim + 1 :])
        x, source = whole(rng, shape, dtype), whole(rng, given, dtype)
        if np.dtype(dtype).kind == "f":
            source.reshape(-1)[::13] = np.nan
        index = rng.integers(0, shape[dim], given)
        for own in (True, False):
            run = functools.partial(indexing.scatter_reduce, x, source, dim=dim, reduce=reduce)
            found = over_threads(lambda run=run, own=own, i=index: run(index=i, include_self=own))
            if reduce == "mean" and np.dtype(dtype).kind == "i":
                assert found is None
            else:
                with np.errstate(invalid="ignore"):
                    wanted = reference(x, source, index, dim, reduce, own)
                assert np.array_equal(found, wanted, equal_nan=found.dtype.kind == "f")
        for wrong in (-1, shape[dim]):
            bad = index.copy()
            bad.reshape(-1)[3] = wrong
            assert run(index=bad, include_self=True) is None
