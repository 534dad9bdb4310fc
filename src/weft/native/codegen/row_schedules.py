"""The loops of row programs: a code generator for each memory layout of rows.

All of them write kernels in the kernel language. Their parameters are the inputs that are arrays,
the results, the numbers, and sizes. Names in the code: ``p_`` a parameter, ``r_`` the memory of a
row, ``l_`` that of a line of columns, ``a_`` sums across rows; ``s_``, ``q_`` and ``t_`` the sums
of columns, their parts, and what elements read of them; ``w_`` the place of an extreme.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.native.codegen import trace
from weft.native.codegen.compiler import KernelFunction
from weft.native.codegen.row_trace import (
    NAMES,
    PLACES,
    REDUCED,
    RUNNING,
    RowTrace,
    RowValue,
    Stage,
)
from weft.native.loops.short_rows import (
    SHORT,
    TOGETHER,
    above,
    below,
    plus,
    times,
    to_columns,
    to_rows,
)
from weft.native.loops.sums import LEAF, leaf

# Elements of a row summed in their own type.
BLOCK = 1024
# Most columns at a time, and lines of columns summed in their own type, or at a time.
TILE = 256
WIDE = 1024  # columns at a time where elements are read once
ROWS = 256
LINES = 4
# How row numbers are combined, and their initial values.
JOIN = {"total": "{} + {}", "largest": "maximum({}, {})", "least": "minimum({}, {})"}
START = {"total": "f64(0.0)", "largest": "T(-inf)", "least": "T(inf)"}
# Products of parts of a row may be beyond float32 where that of the row is not.
JOIN["product"], START["product"] = "times(f64({}), f64({}))", "f64(1.0)"
for _how in ("largest", "least"):
    JOIN[f"first_{_how}"], START[f"first_{_how}"] = JOIN[_how], START[_how]
# Elements of a block of a row: the extreme of a row is found by blocks, then its index in one
# block.
SEARCHED = 256
BEFORE_ALL = 1 << 62  # a place behind all others


class SourceWriter:
    """Indented lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def __call__(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def loop(self, text: str) -> Iterator[None]:
        with self.indented(f"for {text}:"):
            yield

    @contextmanager
    def when(self, text: str) -> Iterator[None]:
        with self.indented(f"if {text}:"):
            yield

    @contextmanager
    def indented(self, head: str) -> Iterator[None]:
        self(head)
        self.depth += 1
        yield
        self.depth -= 1


class Schedule:
    """Writes the loops of a traced program."""

    name = ""
    sizes = "n: i64"
    flags = "contract "  # a product and a sum may be one instruction

    def __init__(self, traced: RowTrace) -> None:
        self.traced, self.put = traced, SourceWriter()
        self.write()

    def source(self) -> str:
        t = self.traced
        head = [f"p_{h}" for h in (*self.inputs(), *self.results())]
        head += [f"{name}_given: f64" for name in t.of("Number")]
        head += [self.sizes, "lo: i64, hi: i64"]
        ones = [f"    {name}_given = f64(p_{name}[0])" for name in t.of("One")]
        body = "\n".join([*ones, *self.put.lines])
        return f"def {t.name}_{self.name}({', '.join(head)}) -> None:\n{body}\n"

    def inputs(self) -> list[str]:
        """The arrays that are read."""
        return [f"{i.name}: Ptr[T]" for i in self.traced.arrays()]

    def results(self) -> list[str]:
        """The arrays that are written."""
        return [
            f"{name}: Ptr[{'i64' if v.how in PLACES else 'T'}]"
            for name, _, v in self.traced.outputs
        ]

    def write(self) -> None:
        raise NotImplementedError

    def moving(self) -> list[str]:
        """The arrays with an element for each place of each row."""
        return [*self.traced.of("Along"), *self.traced.memory("along")]

    def element(self, value: RowValue, number: int, pointer: str, place: str) -> list[str]:
        """The lines of one element's value."""
        t = self.traced
        if value.how == "given":
            shared = value.name in t.of("Shared")
            where = f"p_{value.name}[{self.along}]" if shared else f"{pointer.format(value.name)}"
            return [f"{value.name} = {where if shared else f'{where}[{place}]'}"]
        if t.stored(value, number):
            return [f"{value.name} = {pointer.format(t.memory('along')[0])}[{place}]"]
        return [f"{value.name} = {value.text}"]


class RowsSchedule(Schedule):
    """Row after row."""

    name, along = "rows", "i"
    searched = SEARCHED

    def __init__(self, traced: RowTrace) -> None:
        if traced.memory("across"):
            self.sizes = "n: i64, rows: i64, size: i64"
        super().__init__(traced)

    def write(self) -> None:
        put, sums = self.put, self.traced.memory("across")
        if not sums:
            with put.loop("row in range(lo, hi)"):
                self.row()
            return
        # Blocks of rows have sums of their own, so that results don't depend on threads.
        with put.loop("block in range(lo, hi)"):
            put(*(f"a_{name} = p_{name} + block * n" for name in sums))
            with put.loop("i in range(n)"):
                put(*(f"a_{name}[i] = T(0.0)" for name in sums))
            with put.loop("row in range(block * size, min(rows, (block + 1) * size))"):
                self.row()

    def row(self, start: str = "row * n") -> None:
        put, t = self.put, self.traced
        put(*(f"r_{name} = p_{name} + ({start})" for name in self.moving()))
        self.given()
        self.passes("n")
        put(*(f"p_{o}[row] = {v.name}" for o, role, v in t.outputs if role == "each"))

    def given(self, length: str = "n", row: str = "row") -> None:
        """Row numbers that are inputs."""
        put, t = self.put, self.traced
        put(f"length = {length}")
        put(*(f"{name} = p_{name}[{row}]" for name in t.of("Each")))
        put(*(f"{name} = {name}_given" for name in t.numbers()))

    def passes(self, n: str) -> None:
        for number, stage in enumerate(self.traced.stages):
            self.put(*(f"{v.name} = {v.text}" for v in stage.numbers))
            if stage.targets:
                self.one_pass(stage, number, n)

    def one_pass(self, stage: Stage, number: int, n: str) -> None:
        put = self.put
        put(*(f"{v.name} = {START[v.how]}" for v in stage.reduced))
        put(*(f"w_{v.name} = i64(0)" for v in stage.firsts))
        if not stage.sums and not stage.firsts:
            with put.loop(f"i in range({n})"):
                self.body(stage, number, "i", "i")
            return
        block = BLOCK if stage.sums else self.searched
        with put.loop(f"b in range(0, {n}, {block})"):
            put(*(f"part_{v.name} = T({START[v.how]})" for v in (*stage.sums, *stage.firsts)))
            with put.loop(f"j in range(min({block}, {n} - b))"):
                self.body(stage, number, "(b + j)", "b + j")
            put(*(f"{v.name} = {v.name} + f64(part_{v.name})" for v in stage.sums))
            for v in stage.firsts:
                with put.when(f"{v.how}(part_{v.name}, {v.name})"):
                    put(f"{v.name} = part_{v.name}", f"w_{v.name} = b")
        for v in stage.firsts:
            self.find(v, number, f"min({block}, {n} - w_{v.name})")

    def find(self, value: RowValue, number: int, count: str) -> None:
        """The index of an extreme in the first block that contains it."""
        put, name = self.put, value.name
        put(f"first_{name} = i64({BEFORE_ALL})")
        self.along = f"w_{name} + j"
        with put.loop(f"j in range({count})"):
            for v in self.traced.lines(Stage([], [], [], [value], [], []), number)[0]:
                put(*self.element(v, number, "r_{}", f"(w_{name} + j)"))
            here = f"{value.text} == {name} or {value.text} != {value.text}"
            put(f"first_{name} = min(first_{name}, j if {here} else {BEFORE_ALL})")
        put(f"w_{name} = w_{name} + first_{name}")

    def body(self, stage: Stage, number: int, place: str, along: str) -> None:
        put, t = self.put, self.traced
        self.along = along
        for value in t.lines(stage, number)[0]:
            put(*self.element(value, number, "r_{}", place))
        put(*(f"r_{memory}[{place}] = {v.name}" for memory, v in stage.stores))
        put(*(f"a_{o}[{place}] = a_{o}[{place}] + {v.name}" for o, v in stage.across))
        self.accumulate(stage, place)

    def accumulate(self, stage: Stage, place: str) -> None:
        """Take an element into the reductions of a pass."""
        put = self.put
        put(*(f"part_{v.name} = plus(part_{v.name}, {v.text})" for v in stage.sums))
        put(*(f"{v.name} = {JOIN[v.how].format(v.name, v.text)}" for v in stage.tops))
        for v in stage.firsts:
            put(f"part_{v.name} = {JOIN[v.how].format(f'part_{v.name}', v.text)}")


class ReferenceRows(RowsSchedule):
    """Short rows with the bits of NumPy: in the array's own type, sums in NumPy's order.

    What is summed over rows elsewhere is left as it is here, a row for each.
    """

    name, flags = "reference", ""

    def __init__(self, traced: RowTrace) -> None:
        traced = copy.copy(traced)
        traced.outputs = [(o, "along" if r == "across" else r, v) for o, r, v in traced.outputs]
        traced.stages = traced._stages()
        super().__init__(traced)
        self.put.lines = [line.replace("f64(", "T(") for line in self.put.lines]

    def write(self) -> None:
        summed = [v for stage in self.traced.stages for v in self.held(stage)]
        self.put(*(f"m_{v.name} = array(T, {LEAF})" for v in summed))
        super().write()

    def held(self, stage: Stage) -> list[RowValue]:
        """What a pass has to write down in order to sum it: all but inputs."""
        found = {v.uses[0].name: v.uses[0] for v in stage.sums}
        return [v for v in found.values() if v.how != "given"]

    def passes(self, n: str) -> None:
        put, t = self.put, self.traced
        for number, stage in enumerate(t.stages):
            put(*(f"{v.name} = {v.text}" for v in stage.numbers))
            put(*(f"{v.name} = {START[v.how]}" for v in stage.tops))
            if not stage.targets:
                continue
            if self.held(stage) or stage.tops or stage.stores:
                with put.loop(f"i in range({n})"):
                    self.body(stage, number, "i", "i")
            for v in stage.sums:
                (source,) = v.uses
                where = f"r_{source.name}" if source.how == "given" else f"m_{source.name}"
                put(f"{v.name} = leaf({where}, {n}) + 0.0")

    def accumulate(self, stage: Stage, place: str) -> None:
        self.put(*(f"m_{v.name}[{place}] = {v.name}" for v in self.held(stage)))
        super().accumulate(stage._replace(sums=[]), place)


def at(traced: RowTrace, value: RowValue, part: str, place: bool = False) -> str:
    """Where the result of a part is, among those of all reductions; or that result's place."""
    number = traced.reductions.index(value)
    if place:
        number = len(traced.reductions) + traced.stages[0].firsts.index(value)
    return f"{part} * {traced.slots} + {number}"


class PartsSchedule(RowsSchedule):
    """Parts of long rows: their elements, or what the first pass makes of each part."""

    name, searched = "parts", BLOCK
    sizes = "n: i64, size: i64, parts: i64"

    def results(self) -> list[str]:
        return ["made: Ptr[f64]"] if self.traced.reductions else super().results()

    def write(self) -> None:
        put, t = self.put, self.traced
        with put.loop("item in range(lo, hi)"):
            put("row = item // parts", "first = item % parts * size")
            put("count = min(size, n - first)")
            put(*(f"r_{name} = p_{name} + (row * n + first)" for name in self.moving()))
            self.given()
            put(*(f"{v.name} = {v.text}" for v in t.stages[0].numbers))
            self.one_pass(t.stages[0], 0, "count")
            put(*(f"p_made[{at(t, v, 'item')}] = {v.name}" for v in t.reductions))
            for v in t.stages[0].firsts:
                put(f"p_made[{at(t, v, 'item', True)}] = f64(first + w_{v.name})")


class JoinSchedule(RowsSchedule):
    """Row numbers from what was made of parts, of rows or of columns, k of them side by side."""

    name = "joined"
    sizes = "n: i64, k: i64, parts: i64"

    def results(self) -> list[str]:
        return ["made: Ptr[f64]", *super().results()]

    def write(self) -> None:
        put, t = self.put, self.traced
        with put.loop("row in range(lo, hi)"):
            put("first = row // k * parts * k + row % k")
            self.given()
            for v in t.reductions:
                put(f"{v.name} = {START[v.how]}")
                if v in t.stages[0].firsts:
                    self.first_of_parts(v)
                    continue
                kind = START[v.how].partition("(")[0]
                with put.loop("part in range(parts)"):
                    more = f"{kind}(p_made[{at(t, v, '(first + part * k)')}])"
                    join = "plus({}, {})" if v.how == "total" else JOIN[v.how]
                    put(f"{v.name} = {join.format(v.name, more)}")
            put(*(f"{v.name} = {v.text}" for stage in t.stages for v in stage.numbers))
            put(*(f"p_{o}[row] = {v.name}" for o, _, v in t.outputs))

    def first_of_parts(self, value: RowValue) -> None:
        """The extreme with the first index; parts of columns are not in the order of indices."""
        put, t, name, part = self.put, self.traced, value.name, "(first + part * k)"
        put(f"w_{name} = i64({BEFORE_ALL})")
        with put.loop("part in range(parts)"):
            put(f"more = T(p_made[{at(t, value, part)}])")
            put(f"where = i64(p_made[{at(t, value, part, True)}])")
            wins, loses = f"{value.how}(more, {name})", f"{value.how}({name}, more)"
            put(f"take = {wins} or (not {loses} and where < w_{name})")
            put(f"{name} = more if take else {name}", f"w_{name} = where if take else w_{name}")


class CausalSchedule(RowsSchedule):
    """Row after row, each up to the diagonal of its matrix; the rest is zero."""

    name = "causal_rows"
    sizes = "n: i64, height: i64, causal: i64"

    def passes(self, n: str) -> None:
        put, t = self.put, self.traced
        put("count = min(n, row % height + 1) if causal else n")
        super().passes("count")
        with put.loop("i in range(count, n)"):
            put(*(f"r_{o}[i] = T(0.0)" for o in t.memory("along")))


class InlineSchedule(RowsSchedule):
    """One row, as a function that other kernels call."""

    name = "row"

    def source(self) -> str:
        return super().source().replace(", lo: i64, hi: i64", "")

    def write(self) -> None:
        put = self.put
        put(*(f"r_{name} = p_{name} + 0" for name in self.moving()))
        self.given()
        self.passes("n")


class PlanesSchedule(RowsSchedule):
    """Rows that are channels of images: the elements of one plane of each of n samples."""

    name = "planes"
    sizes = "n: i64, c: i64, s: i64, block: i64, chunk: i64"

    def row(self, start: str = "") -> None:
        put, t = self.put, self.traced
        self.given("n * s")
        self.passes("n")
        put(*(f"p_{o}[row] = {v.name}" for o, role, v in t.outputs if role == "each"))

    def passes(self, n: str) -> None:
        put, t = self.put, self.traced
        for number, stage in enumerate(t.stages):
            put(*(f"{v.name} = {v.text}" for v in stage.numbers))
            if not stage.targets:
                continue
            if not stage.sums:
                with put.loop("r in range(n)"):
                    # What was read last is still in the cache.
                    self.plane(stage, number, "((n - 1 - r) * c + row) * s", "s")
                continue
            put(*(f"{v.name} = f64(0.0)" for v in stage.sums))
            with put.loop("first in range(0, n, block)"), put.loop("at in range(0, s, chunk)"):
                put(*(f"part_{v.name} = T(0.0)" for v in stage.sums))
                with put.loop("r in range(first, min(first + block, n))"):
                    self.plane(stage, number, "(r * c + row) * s + at", "min(chunk, s - at)")
                put(*(f"{v.name} = {v.name} + f64(part_{v.name})" for v in stage.sums))

    def plane(self, stage: Stage, number: int, start: str, length: str) -> None:
        put = self.put
        put(*(f"r_{name} = p_{name} + ({start})" for name in self.moving()))
        with put.loop(f"i in range({length})"):
            self.body(stage, number, "i", "i")


class CyclicSchedule(RowsSchedule):
    """Row after row, where row numbers that are inputs repeat after c rows."""

    name = "cyclic"
    sizes = "n: i64, c: i64"

    def given(self, length: str = "n", row: str = "row") -> None:
        super().given(length, "row % c")


class ReferenceColumns(RowsSchedule):
    """Columns with the bits of NumPy: in the array's own type, summed row by row."""

    name, flags = "reference_columns", ""
    sizes = "n: i64, k: i64"

    def __init__(self, traced: RowTrace) -> None:
        super().__init__(traced)
        self.put.lines = [line.replace("f64(", "T(") for line in self.put.lines]

    def row(self, start: str = "") -> None:
        put, t = self.put, self.traced
        put(*(f"r_{name} = p_{name} + row" for name in self.moving()))
        self.given()
        for number, stage in enumerate(t.stages):
            put(*(f"{v.name} = {v.text}" for v in stage.numbers))
            if stage.targets:
                put(*(f"{v.name} = T(0.0)" for v in stage.sums))
                with put.loop("i in range(n)"):
                    self.body(stage, number, "(i * k)", "i")
        put(*(f"p_{o}[row] = {v.name}" for o, role, v in t.outputs if role == "each"))

    def accumulate(self, stage: Stage, place: str) -> None:
        self.put(*(f"{v.name} = {v.name} + {v.text}" for v in stage.sums))


class ColumnsSchedule(Schedule):
    """Strided rows (columns of memory), a tile of them side by side."""

    name, along = "columns", "i"
    sizes = "n: i64, k: i64, tile: i64, tiles: i64"
    step, width = "k", "width"

    def write(self) -> None:
        put = self.put
        self.arrays()
        with put.loop("item in range(lo, hi)"):
            put("left = (item % tiles) * tile", "width = min(tile, k - left)")
            put("base = item // tiles * n * k + left", "place = item // tiles * k + left")
            put("length = n", *(f"r_{name} = p_{name} + base" for name in self.moving()))
            for number, stage in enumerate(self.traced.stages):
                self.numbers(number)
                self.one_pass(stage, number, "n")

    def arrays(self) -> None:
        """Memory for row numbers: as sums, as parts of sums, and as what elements meet."""
        put, t = self.put, self.traced
        most = WIDE if t.in_parts else TILE
        for stage in t.stages:
            for v in stage.sums:
                put(f"s_{v.name} = array(f64, {most})", f"q_{v.name} = array(T, {most})")
            for v in (*stage.tops, *stage.firsts):
                put(f"s_{v.name} = array({_type_of(v)}, {most})")
            put(*(f"w_{v.name} = array(i32, {most})" for v in stage.firsts))
        for name in self.met():
            put(f"t_{name} = array(T, {most})")

    def met(self) -> list[str]:
        """The row numbers that elements read, other than numbers of the whole call."""
        t = self.traced
        found: dict[str, None] = {}
        for number, stage in enumerate(t.stages):
            found |= dict.fromkeys(v.name for v in t.lines(stage, number)[1])
        return [n for n in found if n not in t.numbers()]

    def numbers(self, number: int) -> None:
        """Row numbers up to a stage: those that elements of this stage meet, and results."""
        put, t = self.put, self.traced
        stage, last = t.stages[number], number == len(t.stages) - 1
        met = [v for v in t.lines(stage, number)[1] if v.name not in t.numbers()]
        results = [(o, v) for o, role, v in t.outputs if role == "each"] if last else []
        before = {v.name for k in range(number) for v in t.lines(t.stages[k], k)[1]}
        fresh = [v for v in met if v.name not in before]
        if not (fresh or results or stage.reduced):
            return
        with put.loop(f"c in range({self.width})"):
            for v in self.behind([*fresh, *(v for _, v in results)]):
                put(f"{v.name} = {self.number(v)}")
            put(*(f"t_{v.name}[c] = T({v.name})" for v in fresh))
            put(*(f"p_{o}[place + c] = {v.name}" for o, v in results))
            self.begin(stage)

    def begin(self, stage: Stage) -> None:
        self.put(*(f"s_{v.name}[c] = {START[v.how]}" for v in stage.reduced))
        self.put(*(f"w_{v.name}[c] = i64(0)" for v in stage.firsts))

    def behind(self, values: list[RowValue]) -> list[RowValue]:
        """Row numbers with those that they are made from, in order."""
        seen: set[str] = set()
        todo = list(values)
        while todo:
            value = todo.pop()
            if value.name not in seen:
                seen.add(value.name)
                todo += () if value.how in REDUCED else value.uses
        return [v for v in self.traced.tape.values.values() if v.name in seen]

    def number(self, value: RowValue) -> str:
        if value.how == "given":
            number = value.name in self.traced.numbers()
            return f"{value.name}_given" if number else f"p_{value.name}[place + c]"
        if value.how == "place":
            return f"{value.text}[c]"
        return f"s_{value.name}[c]" if value.how in REDUCED else value.text

    def one_pass(self, stage: Stage, number: int, n: str) -> None:
        put = self.put
        if not stage.targets:
            return
        if not stage.sums:
            self.lines_of(stage, number, "0", n)
            return
        with put.loop(f"b in range(0, {n}, {ROWS})"):
            with put.loop(f"c in range({self.width})"):
                put(*(f"q_{v.name}[c] = T(0.0)" for v in stage.sums))
            self.lines_of(stage, number, "b", f"min(b + {ROWS}, {n})")
            with put.loop(f"c in range({self.width})"):
                put(*(f"s_{v.name}[c] = s_{v.name}[c] + f64(q_{v.name}[c])" for v in stage.sums))

    def lines_of(self, stage: Stage, number: int, first: str, last: str) -> None:
        """Line after line; reductions alone take several at a time, so as to be read less often."""
        put = self.put
        if not stage.stores:
            put(f"upto = {last} - ({last} - {first}) % {LINES}")
            with put.loop(f"i in range({first}, upto, {LINES})"):
                self.some_lines(stage, number, [f"_{u}" for u in range(LINES)])
            first = "upto"
        with put.loop(f"i in range({first}, {last})"):
            self.some_lines(stage, number, [""])

    def some_lines(self, stage: Stage, number: int, ends: list[str]) -> None:
        """Lines from the i-th on; the values of each have names with an ending of their own."""
        put, t = self.put, self.traced
        along, numbers = t.lines(stage, number)
        moving = {v.name for v in along if v.how == "given"} - set(t.of("Shared"))
        moving |= {memory for memory, _ in stage.stores}
        moving |= {t.memory("along")[0] for v in along if t.stored(v, number)}
        for u, end in enumerate(ends):
            line = f"(i + {u})" if u else "i"
            put(*(f"l_{name}{end} = r_{name} + {line} * {self.step}" for name in sorted(moving)))
        with put.loop(f"c in range({self.width})"):
            for v in numbers:
                given = v.name in t.numbers()
                put(f"{v.name} = {f'{v.name}_given' if given else f't_{v.name}[c]'}")
            own = {v.name for v in along}
            for u, end in enumerate(ends):
                self.along = f"i + {u}" if u else "i"
                for v in along:
                    lines = self.element(v, number, "l_{}" + end, "c")
                    put(*(_ended(line, own, end) for line in lines))
            put(*(f"l_{memory}[c] = {v.name}" for memory, v in stage.stores))
            for v in (*stage.sums, *stage.tops):
                terms = _in_pairs([_ended(v.text, own, end) for end in ends], JOIN[v.how])
                to = self.collected(v)
                put(f"{to} = {JOIN[v.how].format(to, terms)}")
            for v in stage.firsts:
                self.first_of_lines(v, [_ended(v.text, own, end) for end in ends])

    def first_of_lines(self, value: RowValue, terms: list[str]) -> None:
        """Take lines from the i-th on into an extreme, if they are better than those before."""
        put, name, best, where = self.put, value.name, f"s_{value.name}[c]", f"w_{value.name}[c]"
        put(f"{name} = {best}", f"at_{name} = {where}")
        for u, term in enumerate(terms):
            put(f"take = {value.how}({term}, {name})", f"{name} = {term} if take else {name}")
            put(f"at_{name} = {f'i + {u}'} if take else at_{name}")
        put(f"{best} = {name}", f"{where} = at_{name}")

    def collected(self, value: RowValue) -> str:
        """Where lines are taken into a reduction."""
        return f"q_{value.name}[c]" if value.how == "total" else f"s_{value.name}[c]"


def _type_of(value: RowValue) -> str:
    """In what a reduction takes lines of columns in; sums of few lines have none of their own."""
    return "f64" if value.how == "product" else "T"


def _ended(line: str, names: set[str], end: str) -> str:
    return NAMES.sub(lambda m: m[0] + end if m[0] in names else m[0], line)


def _in_pairs(terms: list[str], join: str) -> str:
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return f"({join.format(_in_pairs(terms[:half], join), _in_pairs(terms[half:], join))})"


# What running values begin with: what is added to a negative zero stays as it is.
BEGIN = {"running": "f64(-0.0)", "running_product": "f64(1.0)"}
BEGIN |= {"running_largest": "T(-inf)", "running_least": "T(inf)"}
STEP = {"running": "{0} + f64({1})", "running_product": "{0} * f64({1})"}
BETTER = {"running_largest": ">=", "running_least": "<="}


def _begun(values: list[RowValue], at: str = "") -> list[str]:
    """Lines that begin running values; ``at`` is a column."""
    lines = [f"g_{v.name}{at} = {BEGIN[v.how]}" for v in values if v.how in RUNNING]
    return lines + [f"h_{v.text}{at} = i64(0)" for v in values if v.how == "running_place"]


def _gone_on(value: RowValue, place: str, at: str = "") -> list[str]:
    """Lines that take an element into a running value."""
    name, text, so_far = value.name, value.text, f"g_{value.name}{at}"
    if value.how == "running_place":
        last = f"h_{text}{at}"
        return [f"{name} = {place} if take_{text} else {last}", f"{last} = {name}"]
    if value.how in STEP:
        return [f"{so_far} = {STEP[value.how].format(so_far, text)}", f"{name} = T({so_far})"]
    test = f"{text} {BETTER[value.how]} {so_far} or {text} != {text}"
    lines = [f"take_{name} = {test}", f"{name} = {text} if take_{name} else {so_far}"]
    return [*lines, f"{so_far} = {name}"]


class ScanRowsSchedule(RowsSchedule):
    """Row after row, in order, or from the end on."""

    name = "scan_rows"
    sizes = "n: i64, back: i64"

    def one_pass(self, stage: Stage, number: int, n: str) -> None:
        self.put(*_begun(self.traced.lines(stage, number)[0]))
        with self.put.loop(f"i in range({n})"):
            self.put(f"at = {n} - 1 - i if back else i")
            self.body(stage, number, "at", "at")

    def element(self, value: RowValue, number: int, pointer: str, place: str) -> list[str]:
        if value.how in RUNNING or value.how == "running_place":
            return _gone_on(value, self.along)
        return super().element(value, number, pointer, place)


class ScanColumnsSchedule(ColumnsSchedule):
    """The same for columns, line after line."""

    name = "scan_columns"
    sizes = f"{ColumnsSchedule.sizes}, back: i64"

    def arrays(self) -> None:
        super().arrays()
        for v in self.traced.tape.values.values():
            if v.how in RUNNING:
                self.put(f"g_{v.name} = array({BEGIN[v.how].partition('(')[0]}, {TILE})")
            elif v.how == "running_place":
                self.put(f"h_{v.text} = array(i64, {TILE})")

    def one_pass(self, stage: Stage, number: int, n: str) -> None:
        with self.put.loop("c in range(width)"):
            self.put(*_begun(self.traced.lines(stage, number)[0], "[c]"))
        with self.put.loop(f"j in range({n})"):
            self.put(f"i = {n} - 1 - j if back else j")
            self.some_lines(stage, number, [""])

    def element(self, value: RowValue, number: int, pointer: str, place: str) -> list[str]:
        if value.how in RUNNING or value.how == "running_place":
            return _gone_on(value, self.along, "[c]")
        return super().element(value, number, pointer, place)


class BriefColumnsSchedule(ColumnsSchedule):
    """Columns of at most ``ROWS`` lines in one pass: what is summed is not summed again."""

    name = "brief_columns"

    def arrays(self) -> None:
        t = self.traced
        self.put(*(f"q_{v.name} = array({_type_of(v)}, {WIDE})" for v in t.reductions))
        self.put(*(f"t_{name} = array(T, {WIDE})" for name in self.met()))

    def begin(self, stage: Stage) -> None:
        for v in (*stage.sums, *stage.tops):
            self.put(f"q_{v.name}[c] = {_type_of(v)}({START[v.how]})")

    def one_pass(self, stage: Stage, number: int, n: str) -> None:
        if stage.targets:
            self.lines_of(stage, number, "0", n)

    def collected(self, value: RowValue) -> str:
        return f"q_{value.name}[c]"

    def number(self, value: RowValue) -> str:
        return self.collected(value) if value.how in REDUCED else super().number(value)


class FewLinesSchedule(RowsSchedule):
    """Columns of few lines, a fixed number: each is a row, kept in registers."""

    name = "few_lines"
    sizes = ColumnsSchedule.sizes

    def write(self) -> None:
        put = self.put
        with put.loop("item in range(lo, hi)"):
            put("left = (item % tiles) * tile", "base = item // tiles * n * k + left")
            with put.loop("c in range(min(tile, k - left))"):
                put("row = item // tiles * k + left + c")
                self.row("base + c")

    def one_pass(self, stage: Stage, number: int, n: str) -> None:
        if not stage.firsts:
            super().one_pass(stage, number, n)
            return
        put = self.put
        put(*(f"{v.name} = {START[v.how]}" for v in stage.reduced))
        put(*(f"part_{v.name} = T(0.0)" for v in stage.sums))
        put(*(f"w_{v.name} = i64(0)" for v in stage.firsts))
        with put.loop(f"i in range({n})"):
            self.body(stage, number, "i", "i")
        put(*(f"{v.name} = f64(part_{v.name})" for v in stage.sums))

    def accumulate(self, stage: Stage, place: str) -> None:
        super().accumulate(stage._replace(firsts=[]), place)
        for v in stage.firsts:
            self.put(f"take = {v.how}({v.text}, {v.name})")
            self.put(f"{v.name} = {v.text} if take else {v.name}")
            self.put(f"w_{v.name} = i if take else w_{v.name}")

    def body(self, stage: Stage, number: int, place: str, along: str) -> None:
        super().body(stage, number, f"({place} * k)", along)


class ColumnPartsSchedule(ColumnsSchedule):
    """Parts of long columns: their elements, or what the first pass makes of each part.

    Row numbers that are inputs repeat after ``period`` columns, which are of one line; ``whole`` is
    the rows' length, and ``begin`` the line that they begin at.
    """

    name = "column_parts"
    sizes = "n: i64, k: i64, tile: i64, tiles: i64, size: i64, parts: i64, period: i64"
    sizes += ", whole: i64, begin: i64"

    def results(self) -> list[str]:
        return ["made: Ptr[f64]"] if self.traced.reductions else super().results()

    def write(self) -> None:
        put, t = self.put, self.traced
        self.arrays()
        with put.loop("item in range(lo, hi)"):
            put("left = (item % tiles) * tile", "width = min(tile, k - left)")
            put("rest = item // tiles", "first = rest % parts * size")
            put("count = min(size, n - first)", "outer = rest // parts")
            put("base = (outer * n + first) * k + left", "length = whole")
            put(*(f"r_{name} = p_{name} + base" for name in self.moving()))
            self.numbers(0)
            self.one_pass(t.stages[0], 0, "count")
            if t.reductions:
                with put.loop("c in range(width)"):
                    for v in t.reductions:
                        put(f"p_made[{at(t, v, '(rest * k + left + c)')}] = s_{v.name}[c]")
                    for v in t.stages[0].firsts:
                        line = f"(first + w_{v.name}[c]) * (k // period) + (left + c) // period"
                        slot = at(t, v, "(rest * k + left + c)", True)
                        put(f"p_made[{slot}] = f64(begin + {line})")

    def number(self, value: RowValue) -> str:
        if value.how == "given" and value.name not in self.traced.numbers():
            return f"p_{value.name}[outer * period + (left + c) % period]"
        return super().number(value)


class ShortSchedule(ColumnsSchedule):
    """Short rows, transposed in cache."""

    name, step, width = "short", str(TOGETHER), "width"
    sizes = "n: i64, rows: i64"

    def write(self) -> None:
        put, t = self.put, self.traced
        self.arrays()
        put(*(f"r_{name} = array(T, {SHORT * TOGETHER})" for name in self.moving()))
        put("length = n")
        with put.loop("item in range(lo, hi)"):
            put(f"place = item * {TOGETHER}", f"width = min({TOGETHER}, rows - place)")
            for name in t.of("Along"):
                put(f"to_columns(p_{name} + place * n, r_{name}, n, width)")
            for number, stage in enumerate(t.stages):
                self.numbers(number)
                self.one_pass(stage, number, "n")
            for name in t.memory("along"):
                put(f"to_rows(r_{name}, p_{name} + place * n, n, width)")


def scope() -> dict[str, Any]:
    """What the loops of row programs can call."""
    return {
        **trace.scope(),
        "plus": plus,
        "times": times,
        "first_largest": above,
        "first_least": below,
        "leaf": leaf,
        "to_columns": to_columns,
        "to_rows": to_rows,
    }


def function_of(schedule: Schedule) -> KernelFunction:
    made = KernelFunction(schedule.source(), scope())
    made.flags = schedule.flags
    # Several lines of an array are read at once, a step apart, but where they are copied first.
    made.strided = not isinstance(schedule, ShortSchedule)
    return made
