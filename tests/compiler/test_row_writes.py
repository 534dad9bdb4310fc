"""Rows written over a leaf in its place: no other leaf sees them, and a failure undoes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.compiler.program import Program, lower
from weft.core import selection
from weft.core.dispatch import REGISTRY
from weft.graph.spec import FORWARD, INPUT, Leaf, Ref, Spec
from weft.native.codegen import jit

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()

DTYPES = ("float32", "float64", "int64", "uint8", "float16", "complex128", "bool")


class Graph:
    """Records of a graph, made by hand, and the program of them."""

    def __init__(self) -> None:
        self.specs: list[Spec] = []
        self.leaves: dict[int, np.ndarray] = {}

    def leaf(self, array: np.ndarray) -> Ref:
        held = object.__new__(Leaf)
        held._hold, held.version, held.grad, held.live = None, 0, False, None
        spec = Spec(len(self.specs), INPUT, INPUT, (), {}, array.shape, array.dtype, leaf=held)
        self.specs.append(spec)
        self.leaves[spec.id] = array
        return Ref(spec.id)

    def op(self, name: str, shape: Any, dtype: Any, *args: Any, **attrs: Any) -> Ref:
        spec = Spec(len(self.specs), FORWARD, REGISTRY[name], args, attrs, shape, dtype)
        self.specs.append(spec)
        return Ref(spec.id)

    def program(self, wanted: list[Ref], writes: dict[Ref, Ref]) -> Program:
        return lower(
            self.specs, self.leaves, wanted, {leaf.node: new for leaf, new in writes.items()}
        )

    def run(self, program: Program) -> Any:
        program._memory.fill(0xFF)  # who reads what was not written shall be found out
        return program.run([self.leaves[k] for k in program.leaves])


def values(rng: np.random.Generator, shape: Any, dtype: str) -> np.ndarray:
    return (rng.standard_normal(shape) * 9).astype(dtype)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_rows_in_their_place(data: Any) -> None:
    """Chains of writes to one leaf, of any dtype along any dimension, with repeated indices."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple))
    shape = (*shape, data.draw(st.sampled_from((1, 3, 40))))
    dim = data.draw(st.integers(0, len(shape) - 1))
    graph = Graph()
    array = values(rng, shape, dtype)
    leaf = value = graph.leaf(array)
    want = array.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        index = rng.integers(0, shape[dim], data.draw(st.integers(1, 4)))
        rows = values(rng, (*shape[:dim], len(index), *shape[dim + 1 :]), dtype)
        if data.draw(st.booleans()):
            rows = np.asfortranarray(rows)
        at = (slice(None),) * dim
        for k, i in enumerate(index):
            want[(*at, i)] = rows[(*at, k)]
        given = graph.leaf(rows), graph.leaf(index)
        value = graph.op("index_copy", shape, dtype, value, *given, dim=dim)
    program = graph.program([value], {leaf: value})
    if dtype != "complex128":  # which no kernel places
        assert "index_copy in place" in "\n".join(program.explain())
    (found,) = graph.run(program)
    np.testing.assert_array_equal(array, want)
    np.testing.assert_array_equal(found, want)
    assert not np.shares_memory(found, array)


def failing(index: int, place: list[int], rows: int = 3) -> tuple[Graph, Program, np.ndarray]:
    """A program that writes rows to a leaf twice and takes an element by an index."""
    graph = Graph()
    rng = np.random.default_rng(0)
    cache, table = values(rng, (2, rows, 5), "float32"), values(rng, (4, 6), "float32")
    leaf = graph.leaf(cache)
    places = np.array(place)
    new = [graph.leaf(values(rng, (2, len(place), 5), "float32")) for _ in range(2)]
    at = graph.leaf(places)
    value = graph.op("index_copy", cache.shape, cache.dtype, leaf, new[0], at, dim=1)
    value = graph.op("index_copy", cache.shape, cache.dtype, value, new[1], at, dim=1)
    chosen = graph.leaf(np.array([index]))
    taken = graph.op("index_select", (1, 6), table.dtype, graph.leaf(table), chosen, dim=0)
    return graph, graph.program([taken], {leaf: value}), cache


@pytest.mark.parametrize("timed", [False, True])
def test_a_failure_puts_the_old_rows_back(timed: bool) -> None:
    graph, program, cache = failing(9, [2, 0, 2])
    before = cache.copy()
    runs: list[Any] = []
    if timed:
        program.watch(runs)
    assert graph.run(program) is None
    assert cache.tobytes() == before.tobytes()


def test_rows_out_of_range_are_not_written() -> None:
    for place in ([0, 3], [3, 0], [-4, 1]):
        graph, program, cache = failing(1, place)
        before = cache.copy()
        assert graph.run(program) is None
        assert cache.tobytes() == before.tobytes()
    graph, program, cache = failing(1, [0, 2])
    before = cache.copy()
    assert graph.run(program) is not None
    assert cache.tobytes() != before.tobytes()


def test_memory_that_another_leaf_shows_is_not_changed() -> None:
    """Else the other leaf would be read with some of the new rows in it."""
    memory = np.arange(24.0).reshape(6, 4)
    graph = Graph()
    leaf, other = graph.leaf(np.zeros((6, 4))), graph.leaf(np.zeros((2, 4)))
    rows, place = graph.leaf(np.full((1, 4), -1.0)), graph.leaf(np.array([2]))
    value = graph.op("index_copy", (6, 4), np.float64, leaf, rows, place, dim=0)
    read = graph.op("mul", (2, 4), np.float64, other, other)
    program = graph.program([read], {leaf: value})
    graph.leaves[leaf.node] = memory
    for first in range(5):
        graph.leaves[other.node] = memory[first : first + 2]
        assert graph.run(program) is None
        np.testing.assert_array_equal(memory, np.arange(24.0).reshape(6, 4))
    graph.leaves[other.node] = np.ones((2, 4))
    assert graph.run(program) is not None
    np.testing.assert_array_equal(memory[2], -np.ones(4))


@pytest.mark.parametrize("reader", ["before", "wanted", "source", "elsewhere", "between"])
def test_a_leaf_that_is_read_as_it_was_is_copied(reader: str) -> None:
    graph = Graph()
    array, rows = np.arange(12.0).reshape(3, 4), np.full((1, 4), -1.0)
    leaf, place = graph.leaf(array), graph.leaf(np.array([1]))
    old, wanted, writes = array.copy(), [], {}
    source = graph.leaf(rows)
    if reader == "source":
        old_row = graph.leaf(np.array([2]))
        source = graph.op("index_select", (1, 4), np.float64, leaf, old_row, dim=0)
    value = graph.op("index_copy", (3, 4), np.float64, leaf, source, place, dim=0)
    want = old.copy()
    want[1] = old[2] if reader == "source" else rows
    expected = []
    if reader == "before":
        wanted.append(graph.op("mul", (3, 4), np.float64, leaf, value))
        expected.append(old * want)
    elif reader == "wanted":
        wanted.append(leaf)
        expected.append(old)
    elif reader == "elsewhere":
        other = graph.leaf(np.zeros((3, 4)))
        writes[other] = leaf
    elif reader == "between":
        between = graph.op("mul", (3, 4), np.float64, value, value)
        value = graph.op("index_copy", (3, 4), np.float64, value, source, graph.leaf(np.array([0])),
                         dim=0)  # fmt: skip
        wanted.append(graph.op("add", (3, 4), np.float64, between, value))
        first = want.copy()
        want[0] = rows
        expected.append(first * first + want)
    program = graph.program(wanted, {leaf: value, **writes})
    assert "index_copy in place" not in "\n".join(program.explain())
    found = graph.run(program)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(array, want)
    if reader == "elsewhere":
        np.testing.assert_array_equal(graph.leaves[other.node], old)


def test_a_value_that_two_leaves_take_on() -> None:
    graph = Graph()
    a, b = np.arange(12.0).reshape(3, 4), np.zeros((3, 4))
    one, two = graph.leaf(a), graph.leaf(b)
    rows, place = graph.leaf(np.full((1, 4), -1.0)), graph.leaf(np.array([1]))
    value = graph.op("index_copy", (3, 4), np.float64, one, rows, place, dim=0)
    program = graph.program([], {one: value, two: value})
    assert graph.run(program) == []
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a[1], -np.ones(4))


def attend(cache: Any, row: Any, place: Any, table: Any, token: Any) -> Any:
    cache.index_copy_(1, place, row)
    return (cache * 2).sum(1) + table[token]


@pytest.mark.parametrize("static", [False, True])
def test_a_cache_of_many_steps(static: bool) -> None:
    """Compiled and eager steps, with one that fails: the cache holds what eager mode leaves."""
    weft.manual_seed(0)
    caches = [weft.zeros(2, 6, 4) for _ in range(2)]
    table = weft.randint(-9, 9, (5, 4)).float()  # so that sums are exact in any order
    steps = [lambda *a, c=c: attend(c, a[0], a[1], table, a[2]) for c in caches]
    compiled = weft.compile(steps[0], static=static)
    for k in range(20):
        row, place = weft.randint(-9, 9, (2, 1, 4)).float(), weft.tensor([k % 6])
        token = weft.tensor([9 if k == 13 else k % 5])
        results = []
        for step in (compiled, steps[1]):
            try:
                results.append(step(row, place, token).tolist())
            except IndexError as error:
                results.append(str(error).splitlines()[0])
        assert results[0] == results[1]
        assert caches[0].tolist() == caches[1].tolist()
        assert caches[0]._version == caches[1]._version


def test_an_argument_that_shows_the_cache() -> None:
    caches = [weft.arange(24.0).view(6, 4).clone() for _ in range(2)]

    def step(cache: Any, row: Any, place: Any) -> Any:
        cache.index_copy_(0, place, row + 1)
        return row * 2

    compiled = weft.compile(lambda row, place: step(caches[0], row, place), static=True)
    for k in range(8):
        place = weft.tensor([k % 6])
        rows = [weft.full((1, 4), float(-k)) if k < 5 else c[2:3] for c in caches]
        found = compiled(rows[0], place)
        want = step(caches[1], rows[1], place)
        assert found.tolist() == want.tolist()
        assert caches[0].tolist() == caches[1].tolist()


@pytest.mark.parametrize("found", [1, 2])
def test_what_python_runs_may_fail(found: int) -> None:
    graph = Graph()
    cache = np.arange(12.0).reshape(3, 4)
    leaf, mask = graph.leaf(cache), graph.leaf(np.arange(4) < found)
    rows, place = graph.leaf(np.full((1, 4), -1.0)), graph.leaf(np.array([1]))
    value = graph.op("index_copy", (3, 4), np.float64, leaf, rows, place, dim=0)
    places = graph.op("nonzero", (1, 1), np.int64, mask)
    program = graph.program([places], {leaf: value})
    assert not program.is_native
    before = cache.copy()
    if found == 1:
        before[1] = -1.0
    assert (graph.run(program) is not None) == (found == 1)
    np.testing.assert_array_equal(cache, before)
