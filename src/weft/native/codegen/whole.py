"""Whole ops as built-in functions: check arguments, allocate results and compute, in one call.

The code generated here is compiled together with that of ``weft.native.codegen.entry`` and uses its
helpers.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.native.codegen.entry import (
    DESCR,
    FLAGS,
    LLVM,
    PLACES,
    PLAIN,
    RANK,
    SHAPE,
    STRIDES,
    TUPLE,
    WRITEABLE,
    passed,
    read,
)

SHORT = 1 << 14  # elements up to which it doesn't pay to let other threads of Python run
_NEW = (
    "ptr %class, ptr %descr, i32 %rank, ptr %shape, ptr null, ptr null, i32 0, ptr null"  # as in C
)
SHAPES = f"""
define private i1 @plain(ptr %self, ptr %object, i64 %dtype) {{
  %array = call i1 @is(ptr %self, ptr %object, i64 {PLACES["ndarray"]})
  br i1 %array, label %look, label %no
look:
  %at = getelementptr i8, ptr %object, i64 {DESCR}
  %type = load ptr, ptr %at
  %wanted = call ptr @known(ptr %self, i64 %dtype)
  %same = icmp eq ptr %type, %wanted
  %place = getelementptr i8, ptr %object, i64 {FLAGS}
  %flags = load i32, ptr %place
  %kept = and i32 %flags, {PLAIN}
  %rows = icmp eq i32 %kept, {PLAIN}
  %both = and i1 %same, %rows
  ret i1 %both
no:
  ret i1 false
}}
define private i32 @rank(ptr %object) {{
  %at = getelementptr i8, ptr %object, i64 {RANK}
  %rank = load i32, ptr %at
  ret i32 %rank
}}
define private ptr @shape(ptr %object) {{
  %at = getelementptr i8, ptr %object, i64 {SHAPE}
  %shape = load ptr, ptr %at
  ret ptr %shape
}}
; whether two arrays have one rank and, but for the last of them, the same dimensions
define private i1 @agree(ptr %left, ptr %right, i32 %without) {{
entry:
  %rank = call i32 @rank(ptr %left)
  %other = call i32 @rank(ptr %right)
  %a = call ptr @shape(ptr %left)
  %b = call ptr @shape(ptr %right)
  %upto = sub i32 %rank, %without
  %same = icmp eq i32 %rank, %other
  br i1 %same, label %next, label %no
next:
  %i = phi i32 [ 0, %entry ], [ %i1, %look ]
  %more = icmp slt i32 %i, %upto
  br i1 %more, label %look, label %yes
look:
  %pa = getelementptr i64, ptr %a, i32 %i
  %pb = getelementptr i64, ptr %b, i32 %i
  %na = load i64, ptr %pa
  %nb = load i64, ptr %pb
  %i1 = add i32 %i, 1
  %equal = icmp eq i64 %na, %nb
  br i1 %equal, label %next, label %no, !llvm.loop !900
yes:
  ret i1 true
no:
  ret i1 false
}}
define private i64 @size(ptr %object) {{
entry:
  %rank = call i32 @rank(ptr %object)
  %shape = call ptr @shape(ptr %object)
  br label %next
next:
  %i = phi i32 [ 0, %entry ], [ %i1, %step ]
  %size = phi i64 [ 1, %entry ], [ %size1, %step ]
  %more = icmp slt i32 %i, %rank
  br i1 %more, label %step, label %done
step:
  %p = getelementptr i64, ptr %shape, i32 %i
  %n = load i64, ptr %p
  %size1 = mul i64 %size, %n
  %i1 = add i32 %i, 1
  br label %next, !llvm.loop !901
done:
  ret i64 %size
}}
define private ptr @new(ptr %self, i64 %dtype, i32 %rank, ptr %shape) {{
  %make = call ptr @known(ptr %self, i64 {PLACES["NewFromDescr"]})
  %hold = call ptr @known(ptr %self, i64 {PLACES["Py_IncRef"]})
  %class = call ptr @known(ptr %self, i64 {PLACES["ndarray"]})
  %descr = call ptr @known(ptr %self, i64 %dtype)
  call void %hold(ptr %descr)
  %new = call ptr %make({_NEW})
  ret ptr %new
}}
define private ptr @like(ptr %self, ptr %object, i64 %dtype) {{
  %rank = call i32 @rank(ptr %object)
  %shape = call ptr @shape(ptr %object)
  %new = call ptr @new(ptr %self, i64 %dtype, i32 %rank, ptr %shape)
  ret ptr %new
}}
define private i64 @workers(ptr %self, i64 %size, i64 %grain) {{
  %cell = call ptr @known(ptr %self, i64 {PLACES["threads"]})
  %most = load i64, ptr %cell
  %wanted = sdiv i64 %size, %grain
  %less = icmp slt i64 %wanted, %most
  %count = select i1 %less, i64 %wanted, i64 %most
  ret i64 %count
}}
define private i1 @counts(ptr %self, ptr %object) {{
  %float = call i1 @is(ptr %self, ptr %object, i64 {PLACES["float"]})
  %int = call i1 @is(ptr %self, ptr %object, i64 {PLACES["int"]})
  %either = or i1 %float, %int
  ret i1 %either
}}
; loops over the few dimensions of a shape stay as they are
!900 = distinct !{{!900, !904, !905}}
!901 = distinct !{{!901, !904, !905}}
!902 = distinct !{{!902, !904, !905}}
!903 = distinct !{{!903, !904, !905}}
!904 = !{{!"llvm.loop.unroll.disable"}}
!905 = !{{!"llvm.loop.vectorize.enable", i1 false}}
"""

# An array with gaps whose dimensions are in order, such as a slice or a chunk, is copied for a loop
# over plain arrays. The result is plain either way, as that of arrays in other orders is not.
MOST_INPUTS = 8
PACKING = f"""
define private i1 @is_plain(ptr %object) {{
  %at = getelementptr i8, ptr %object, i64 {FLAGS}
  %flags = load i32, ptr %at
  %kept = and i32 %flags, {PLAIN}
  %plain = icmp eq i32 %kept, {PLAIN}
  ret i1 %plain
}}
; whether each dimension steps over all behind it, and there are few elements, but some
define private i1 @in_order(ptr %object) {{
entry:
  %rank = call i32 @rank(ptr %object)
  %shape = call ptr @shape(ptr %object)
  %at = getelementptr i8, ptr %object, i64 {STRIDES}
  %strides = load ptr, ptr %at
  %size = call i64 @size(ptr %object)
  %some = icmp sgt i64 %size, 0
  %few = icmp sle i64 %size, {SHORT}
  %fine = and i1 %some, %few
  br i1 %fine, label %next, label %no
next:
  %i = phi i32 [ %rank, %entry ], [ %i1, %look ]
  %least = phi i64 [ 1, %entry ], [ %least1, %look ]
  %more = icmp sgt i32 %i, 0
  br i1 %more, label %look, label %yes
look:
  %i1 = sub i32 %i, 1
  %pn = getelementptr i64, ptr %shape, i32 %i1
  %ps = getelementptr i64, ptr %strides, i32 %i1
  %n = load i64, ptr %pn
  %step = load i64, ptr %ps
  %right = icmp sge i64 %step, %least
  %least1 = mul i64 %n, %step
  br i1 %right, label %next, label %no, !llvm.loop !906
yes:
  ret i1 true
no:
  ret i1 false
}}
define private ptr @packing(ptr %self, ptr %given, i64 %count, ptr %function) noinline {{
entry:
  %arrays = alloca ptr, i32 {MOST_INPUTS}
  %copies = alloca ptr, i32 {MOST_INPUTS}
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %stored ]
  %made = phi i64 [ 0, %entry ], [ %made1, %stored ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %all
look:
  %from = getelementptr ptr, ptr %given, i64 %i
  %object = load ptr, ptr %from
  %array = call i1 @is(ptr %self, ptr %object, i64 {PLACES["ndarray"]})
  br i1 %array, label %layout, label %stored
layout:
  %ordered = call i1 @in_order(ptr %object)
  br i1 %ordered, label %gaps, label %decline
gaps:
  %plain = call i1 @is_plain(ptr %object)
  br i1 %plain, label %stored, label %pack
pack:
  %make = call ptr @known(ptr %self, i64 {PLACES["NewCopy"]})
  %new = call ptr %make(ptr %object, i32 0)
  %none = icmp eq ptr %new, null
  br i1 %none, label %drop, label %packed
packed:
  %kept = getelementptr ptr, ptr %copies, i64 %made
  store ptr %new, ptr %kept
  %one_more = add i64 %made, 1
  br label %stored
stored:
  %passed = phi ptr [ %object, %look ], [ %object, %gaps ], [ %new, %packed ]
  %made1 = phi i64 [ %made, %look ], [ %made, %gaps ], [ %one_more, %packed ]
  %to = getelementptr ptr, ptr %arrays, i64 %i
  store ptr %passed, ptr %to
  %i1 = add i64 %i, 1
  br label %next
all:
  %useful = icmp sgt i64 %made, 0
  br i1 %useful, label %run, label %decline
run:
  %result = call ptr %function(ptr %self, ptr %arrays, i64 %count)
  br label %drop
decline:
  %nothing = call ptr @none(ptr %self)
  br label %drop
drop:
  %found = phi ptr [ %result, %run ], [ %nothing, %decline ], [ null, %pack ]
  br label %dropping
dropping:
  %j = phi i64 [ 0, %drop ], [ %j1, %let_go ]
  %left = icmp slt i64 %j, %made
  br i1 %left, label %let_go, label %done
let_go:
  %own = getelementptr ptr, ptr %copies, i64 %j
  %copy = load ptr, ptr %own
  %release = call ptr @known(ptr %self, i64 {PLACES["Py_DecRef"]})
  call void %release(ptr %copy)
  %j1 = add i64 %j, 1
  br label %dropping
done:
  ret ptr %found
}}
!906 = distinct !{{!906, !904, !905}}
"""

ELEMENTWISE = """
define ptr @{name}.{entry}(ptr %self, ptr %given, i64 %count) {{
entry:
  %reported = call i1 @watched(ptr %self)
  br i1 %reported, label %no, label %begin
begin:
  %right = icmp eq i64 %count, {count}
  br i1 %right, label %check0, label %no
no:
  %nothing = call ptr @none(ptr %self)
  ret ptr %nothing
{gaps}{checks}
check{count}:
{reads}
  %bad = call i1 @failed(ptr %self)
  br i1 %bad, label %fails, label %measure
fails:
  ret ptr null
measure:
  %size = call i64 @size(ptr %o{first})
  %few = icmp slt i64 %size, {least}
  br i1 %few, label %no, label %make
make:
{make}
run:
  %data = call ptr @address(ptr %self, ptr %out)
  %workers = call i64 @workers(ptr %self, i64 %size, i64 {grain})
  %short = icmp slt i64 %size, {short}
  br i1 %short, label %here, label %apart
here:
  call void @{name}({passed}ptr %data, i64 %size, i64 %workers)
  ret ptr %out
apart:
  %state = call ptr @leave(ptr %self)
  call void @{name}({passed}ptr %data, i64 %size, i64 %workers)
  call void @come_back(ptr %self, ptr %state)
  ret ptr %out
}}
"""


_GAPS = """
gaps:
  %packed = call ptr @packing(ptr %self, ptr %given, i64 {count}, ptr @{name}.fresh)
  ret ptr %packed
"""
_NEW_RESULT = """
  %out = call ptr @like(ptr %self, ptr %o{first}, i64 {result})
  %none = icmp eq ptr %out, null
  br i1 %none, label %fails, label %run
"""
_SAME_RESULT = f"""
  %out = getelementptr i8, ptr %o0, i64 0
  %place = getelementptr i8, ptr %out, i64 {FLAGS}
  %flags = load i32, ptr %place
  %kept = and i32 %flags, {WRITEABLE}
  %locked = icmp eq i32 %kept, 0
  br i1 %locked, label %no, label %take
take:
  %hold = call ptr @known(ptr %self, i64 {PLACES["Py_IncRef"]})
  call void %hold(ptr %out)
  br label %run
"""


def elementwise(
    entry: str, name: str, kinds: list[str], result: str, grain: int, least: int = 0
) -> str:
    """LLVM IR of a loop over plain arrays of one shape, and numbers: ``name.fresh`` or ``.over``.

    The one makes a new array, the other writes over its first argument; both give the result, or
    None for arguments that are not like that or too small. The one that makes a new array takes
    small ones with gaps too.
    """
    packs = entry == "fresh" and len(kinds) <= MOST_INPUTS
    first = next(i for i, kind in enumerate(kinds) if kind.endswith("*"))
    checks = []
    for i, kind in enumerate(kinds):
        checks += [f"check{i}:", *read(i, kind)[:2]]
        if kind.endswith("*"):
            dtype = PLACES[kind[:-1]]
            checks.append(f"  %ok{i} = call i1 @plain(ptr %self, ptr %o{i}, i64 {dtype})")
        else:
            checks.append(f"  %ok{i} = call i1 @counts(ptr %self, ptr %o{i})")
        follows = f"check{i + 1}"
        declined = "gaps" if kind.endswith("*") and packs else "no"
        if kind.endswith("*") and i != first:
            checks += [f"  br i1 %ok{i}, label %alike{i}, label %{declined}", f"alike{i}:"]
            checks.append(f"  %same{i} = call i1 @agree(ptr %o{first}, ptr %o{i}, i32 0)")
            checks.append(f"  br i1 %same{i}, label %{follows}, label %no")
        else:
            checks.append(f"  br i1 %ok{i}, label %{follows}, label %{declined}")
    reads = [line for i, kind in enumerate(kinds) for line in read(i, kind)[2:]]
    make = _NEW_RESULT.format(first=first, result=PLACES[result])
    return ELEMENTWISE.format(
        name=name,
        entry=entry,
        make=make if entry == "fresh" else _SAME_RESULT,
        gaps=_GAPS.format(name=name, count=len(kinds)) if packs else "",
        count=len(kinds),
        checks="\n".join(checks),
        reads="\n".join(reads),
        first=first,
        grain=grain,
        least=least,
        short=SHORT,
        passed=passed(kinds) + ", ",
    )


@dataclass(frozen=True)
class EntrySpec:
    """A whole op on plain arrays as one call: what it takes and gives, and what its kernel gets.

    ``takes``: of each argument its dtype and, after the first, its shape: ``like`` the first (or
    ``like k`` another before it), ``row`` for its last dimension alone, ``lines`` if only the last
    dimension may differ, ``kept`` if that is 1, ``picked`` for the second's and the rest of the
    first's, ``any``; or ``number``. ``gives``: of each result its dtype and its shape: ``like k``
    an argument, ``lead`` or ``rest`` for the first without its last or first dimension, ``kept``
    with the last as 1, ``last k`` with the last as a number among the arguments, ``none`` for a
    single value, ``picked`` as above. ``passes``:
    for each parameter of the kernel ``take k``, ``give k``, a size (``last``, ``lead``, ``first``,
    ``rest``, ``size``; of the second ``count`` and ``width``), a number, or ``flag``: memory that
    the kernel fills if the arguments are wrong. ``over`` is the divided size, ``work`` what one
    unit of it is in elements.
    """

    takes: tuple[str, ...]
    gives: tuple[str, ...]
    passes: tuple[str, ...]
    over: str
    work: str
    grain: int = 16384
    least: int = 1
    most: int = 1 << 62
    returns: tuple[int, ...] = (0,)
    narrow: tuple[int, int] = (0, 0)  # not for rows up to this length if there are so many


SIZES = """
define private i64 @side(ptr %object, i32 %from_end, i32 %index) {
  %rank = call i32 @rank(ptr %object)
  %shape = call ptr @shape(ptr %object)
  %end = mul i32 %rank, %from_end
  %place = add i32 %end, %index
  %at = getelementptr i64, ptr %shape, i32 %place
  %n = load i64, ptr %at
  ret i64 %n
}
define private i64 @width(ptr %object) {
  %rank = call i32 @rank(ptr %object)
  %flat = icmp eq i32 %rank, 0
  br i1 %flat, label %single, label %look
single:
  ret i64 1
look:
  %n = call i64 @side(ptr %object, i32 1, i32 -1)
  ret i64 %n
}
define private i1 @row(ptr %object, ptr %first) {
  %rank = call i32 @rank(ptr %object)
  %one = icmp eq i32 %rank, 1
  br i1 %one, label %look, label %no
look:
  %n = call i64 @side(ptr %object, i32 0, i32 0)
  %last = call i64 @side(ptr %first, i32 1, i32 -1)
  %same = icmp eq i64 %n, %last
  ret i1 %same
no:
  ret i1 false
}
define private i1 @keeps(ptr %object, ptr %first) {
  %alike = call i1 @agree(ptr %object, ptr %first, i32 1)
  br i1 %alike, label %look, label %no
look:
  %n = call i64 @side(ptr %object, i32 1, i32 -1)
  %one = icmp eq i64 %n, 1
  ret i1 %one
no:
  ret i1 false
}
; whether one array has the shape of a second and then of a first without its first dimension
define private i1 @picks(ptr %object, ptr %second, ptr %first) {
entry:
  %rank = call i32 @rank(ptr %object)
  %lead = call i32 @rank(ptr %second)
  %whole = call i32 @rank(ptr %first)
  %all = add i32 %lead, %whole
  %wanted = sub i32 %all, 1
  %a = call ptr @shape(ptr %object)
  %b = call ptr @shape(ptr %second)
  %c = call ptr @shape(ptr %first)
  %same = icmp eq i32 %rank, %wanted
  br i1 %same, label %next, label %no
next:
  %i = phi i32 [ 0, %entry ], [ %i1, %look ]
  %more = icmp slt i32 %i, %rank
  br i1 %more, label %look, label %yes
look:
  %ahead = icmp slt i32 %i, %lead
  %i1 = add i32 %i, 1
  %behind = sub i32 %i1, %lead
  %pa = getelementptr i64, ptr %a, i32 %i
  %pb = getelementptr i64, ptr %b, i32 %i
  %pc = getelementptr i64, ptr %c, i32 %behind
  %p = select i1 %ahead, ptr %pb, ptr %pc
  %na = load i64, ptr %pa
  %n = load i64, ptr %p
  %equal = icmp eq i64 %na, %n
  br i1 %equal, label %next, label %no, !llvm.loop !902
yes:
  ret i1 true
no:
  ret i1 false
}
define private void @copy(ptr %to, ptr %from, i32 %count) {
entry:
  br label %next
next:
  %i = phi i32 [ 0, %entry ], [ %i1, %step ]
  %more = icmp slt i32 %i, %count
  br i1 %more, label %step, label %done
step:
  %pa = getelementptr i64, ptr %to, i32 %i
  %pb = getelementptr i64, ptr %from, i32 %i
  %n = load i64, ptr %pb
  store i64 %n, ptr %pa
  %i1 = add i32 %i, 1
  br label %next, !llvm.loop !903
done:
  ret void
}
"""

_MOST_RANK = 64


def _made(j: int, dtype: str, shape: str) -> list[str]:
    """LLVM IR that makes result ``j``."""
    place, what = PLACES[dtype], shape.split()
    if what[0] == "like":
        return [f"  %g{j} = call ptr @like(ptr %self, ptr %o{what[1]}, i64 {place})"]
    rank, at, lines = "%short", "%shape", list[str]()
    if shape == "rest":
        at = "%behind"
    elif shape == "none":
        rank, at = "0", "null"
    elif shape == "kept" or what[0] == "last":
        rank, at = "%rank", f"%kept{j}"
        size = "1" if shape == "kept" else f"%a{what[1]}"
        lines += [
            f"  {at} = alloca i64, i32 {_MOST_RANK}",
            f"  call void @copy(ptr {at}, ptr %shape, i32 %short)",
            f"  %end{j} = getelementptr i64, ptr {at}, i32 %short",
            f"  store i64 {size}, ptr %end{j}",
        ]
    elif shape == "picked":
        rank, at = f"%rank{j}", f"%picked{j}"
        lines += [
            f"  {at} = alloca i64, i32 {2 * _MOST_RANK}",
            f"  %lead{j} = call i32 @rank(ptr %o1)",
            f"  %ahead{j} = call ptr @shape(ptr %o1)",
            f"  call void @copy(ptr {at}, ptr %ahead{j}, i32 %lead{j})",
            f"  %after{j} = getelementptr i64, ptr {at}, i32 %lead{j}",
            f"  call void @copy(ptr %after{j}, ptr %behind, i32 %short)",
            f"  {rank} = add i32 %lead{j}, %short",
        ]
    lines.append(f"  %g{j} = call ptr @new(ptr %self, i64 {place}, i32 {rank}, ptr {at})")
    return lines


def _number(text: str) -> str:
    return text if text.lstrip("-").isdigit() else f"%{text}"


def _checks(spec: EntrySpec) -> list[str]:
    """LLVM IR that looks whether the arguments are what the call takes."""
    lines = []
    for i, text in enumerate(spec.takes):
        kind, *shape = text.split()
        lines += [f"check{i}:", *read(i, "i64")[:2]]
        if kind == "number":
            lines.append(f"  %ok{i} = call i1 @counts(ptr %self, ptr %o{i})")
        else:
            lines.append(f"  %ok{i} = call i1 @plain(ptr %self, ptr %o{i}, i64 {PLACES[kind]})")
        follows = f"check{i + 1}"
        if i == 0:  # it has a dimension for others to be compared with
            lines += [
                "  br i1 %ok0, label %fits0, label %no",
                "fits0:",
                "  %rank = call i32 @rank(ptr %o0)",
                "  %single = icmp eq i32 %rank, 0",
                f"  br i1 %single, label %no, label %{follows}",
            ]
            continue
        if not shape or shape == ["any"]:
            lines.append(f"  br i1 %ok{i}, label %{follows}, label %no")
            continue
        both = f"ptr %o{i}, ptr %o0"
        tests = {
            "like": f"@agree(ptr %o{i}, ptr %o{shape[-1] if shape[1:] else 0}, i32 0)",
            "lines": f"@agree({both}, i32 1)",
            "row": f"@row({both})",
            "kept": f"@keeps({both})",
            "picked": f"@picks(ptr %o{i}, ptr %o1, ptr %o0)",
        }
        lines += [
            f"  br i1 %ok{i}, label %fits{i}, label %no",
            f"fits{i}:",
            f"  %fit{i} = call i1 {tests[shape[0]]}",
            f"  br i1 %fit{i}, label %{follows}, label %no",
        ]
    return lines


def _given(spec: EntrySpec, kinds: list[str]) -> tuple[list[str], str]:
    """LLVM IR for the kernel's arguments, and the list of them."""
    lines: list[str] = []
    passed: list[str] = []
    for text, kind in zip(spec.passes, kinds, strict=True):
        what, *which = text.split()
        if what == "take" and spec.takes[int(which[0])] == "number":
            passed.append(f"{LLVM[kind]} %a{which[0]}")
        elif what == "take":
            i = int(which[0])
            if f"  %d{i} = " not in "".join(lines):
                lines.append(f"  %d{i} = call ptr @address(ptr %self, ptr %o{i})")
            passed.append(f"ptr %d{i}")
        elif what == "give":
            passed.append(f"ptr %r{which[0]}")
        elif what == "flag":
            passed.append("ptr %flag")
        elif kind in ("f32", "f64"):  # a size as a float, or a literal
            name = f"%f{len(passed)}"
            lines.append(f"  {name} = sitofp i64 {_number(text)} to {LLVM[kind]}")
            passed.append(f"{LLVM[kind]} {name}")
        else:
            passed.append(f"i64 {_number(text)}")
    return lines, ", ".join(passed)


def _numbers(spec: EntrySpec, kinds: list[str]) -> list[str]:
    """LLVM IR that reads the numbers, before anything is made: that may fail."""
    lines: list[str] = []
    for text, kind in zip(spec.passes, kinds, strict=True):
        what, *which = text.split()
        if what == "take" and spec.takes[int(which[0])] == "number":
            lines += read(int(which[0]), kind)[2:]
    if not lines:
        return ["  br label %make0"]
    lines += ["  %unread = call i1 @failed(ptr %self)"]
    return [*lines, "  br i1 %unread, label %fails, label %make0", "fails:", "  ret ptr null"]


def whole(name: str, kinds: list[str], spec: EntrySpec) -> str:
    """LLVM IR of ``name.whole``, which gives its results, or None for other arguments."""
    lines = [
        f"define ptr @{name}.whole(ptr %self, ptr %given, i64 %count_given) {{",
        *_begin(spec),
        *_measures(spec),
        "numbers:",
        *_numbers(spec, kinds),
        *_results(spec),
        *_run(name, kinds, spec),
        *_returned(spec),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _begin(spec: EntrySpec) -> list[str]:
    """LLVM IR that checks the arguments; the block ``no`` gives None."""
    count = len(spec.takes)
    return [
        "entry:",
        "  %flag = alloca i64",
        "  store i64 0, ptr %flag",
        "  %reported = call i1 @watched(ptr %self)",
        "  br i1 %reported, label %no, label %begin",
        "begin:",
        f"  %right = icmp eq i64 %count_given, {count}",
        "  br i1 %right, label %check0, label %no",
        "no:",
        "  %nothing = call ptr @none(ptr %self)",
        "  ret ptr %nothing",
        *_checks(spec),
        f"check{count}:",
    ]


def _measures(spec: EntrySpec) -> list[str]:
    """LLVM IR that reads the sizes that specs can name, and declines by them."""
    second = 1 if len(spec.takes) > 1 and spec.takes[1] != "number" else 0
    return [
        "  %shape = call ptr @shape(ptr %o0)",
        "  %behind = getelementptr i64, ptr %shape, i32 1",
        "  %short = sub i32 %rank, 1",
        "  %size = call i64 @size(ptr %o0)",
        f"  %few = icmp slt i64 %size, {max(spec.least, 1)}",
        f"  %many = icmp sgt i64 %size, {spec.most}",
        "  %other = or i1 %few, %many",
        "  br i1 %other, label %no, label %measure",
        "measure:",
        f"  %drop = call ptr @known(ptr %self, i64 {PLACES['Py_DecRef']})",
        "  %last = call i64 @side(ptr %o0, i32 1, i32 -1)",
        "  %first = call i64 @side(ptr %o0, i32 0, i32 0)",
        "  %lead = sdiv i64 %size, %last",
        "  %rest = sdiv i64 %size, %first",
        f"  %count = call i64 @size(ptr %o{second})",
        f"  %width = call i64 @width(ptr %o{second})",
        f"  %slim = icmp sle i64 %last, {spec.narrow[0]}",
        f"  %crowd = icmp sge i64 %lead, {spec.narrow[1]}",
        "  %narrow = and i1 %slim, %crowd",
        "  %void = icmp slt i64 %count, 1",  # kernels divide by the number of indices
        "  %unfit = or i1 %narrow, %void",
        "  br i1 %unfit, label %no, label %numbers",
    ]


def _results(spec: EntrySpec) -> list[str]:
    """LLVM IR that makes the results; where one fails, those before it are given up."""
    lines: list[str] = []
    for j, text in enumerate(spec.gives):
        dtype, shape = text.split(maxsplit=1)
        lines += [
            f"make{j}:",
            *_made(j, dtype, shape),
            f"  %fail{j} = icmp eq ptr %g{j}, null",
            f"  br i1 %fail{j}, label %out{j}, label %got{j}",
            f"out{j}:",
            *(f"  call void %drop(ptr %g{k})" for k in range(j)),
            "  ret ptr null",
            f"got{j}:",
            f"  %r{j} = call ptr @address(ptr %self, ptr %g{j})",
            f"  br label %make{j + 1}",
        ]
    return [*lines, f"make{len(spec.gives)}:"]


def _run(name: str, kinds: list[str], spec: EntrySpec) -> list[str]:
    """LLVM IR that runs the kernel, without Python's lock if that takes long."""
    reads, passed = _given(spec, kinds)
    over, work = _number(spec.over), _number(spec.work)
    run = f"  call void @{name}({passed}, i64 {over}, i64 %workers)"
    return [
        *reads,
        f"  %all = mul i64 {over}, {work}",
        f"  %workers = call i64 @workers(ptr %self, i64 %all, i64 {spec.grain})",
        f"  %brief = icmp slt i64 %all, {SHORT}",
        "  br i1 %brief, label %here, label %apart",
        "here:",
        run,
        "  br label %look",
        "apart:",
        "  %state = call ptr @leave(ptr %self)",
        run,
        "  call void @come_back(ptr %self, ptr %state)",
        "  br label %look",
    ]


def _returned(spec: EntrySpec) -> list[str]:
    """LLVM IR that returns the results, or None if the kernel set the flag."""
    results = range(len(spec.gives))
    lines = [
        "look:",
        "  %wrong = load i64, ptr %flag",
        "  %fine = icmp eq i64 %wrong, 0",
        "  br i1 %fine, label %good, label %bad",
        "bad:",
        *(f"  call void %drop(ptr %g{j})" for j in results),
        "  br label %no",
        "good:",
        *(f"  call void %drop(ptr %g{j})" for j in results if j not in spec.returns),
    ]
    if len(spec.returns) == 1:
        return [*lines, f"  ret ptr %g{spec.returns[0]}"]
    at = "  %t{0} = getelementptr i8, ptr %tuple, i64 {1}"
    lines += [
        f"  %pack = call ptr @known(ptr %self, i64 {PLACES['PyTuple_New']})",
        f"  %tuple = call ptr %pack(i64 {len(spec.returns)})",
        "  %unpacked = icmp eq ptr %tuple, null",
        "  br i1 %unpacked, label %lost, label %packed",
        "lost:",
        *(f"  call void %drop(ptr %g{j})" for j in spec.returns),
        "  ret ptr null",
        "packed:",
    ]
    for k, j in enumerate(spec.returns):
        lines += [at.format(k, TUPLE + 8 * k), f"  store ptr %g{j}, ptr %t{k}"]
    return [*lines, "  ret ptr %tuple"]
