"""Mutation testing: do the tests notice when a line of the code is wrong?

    python tools/mutate.py src/weft/io/unpickle.py --count 200 -j 2 -- \\
        -m pytest -q -x --ff tests/io/test_unpickle.py

A mutant is the file with one small fault: a comparison swapped, a condition negated, a constant
off by one, a statement dropped, a return value lost. Mutants are sampled by a seed; each is put
into a scratch copy of the package, on which the given command runs (with this Python, from the
current folder, with the copy first on PYTHONPATH). A command that fails or takes too long has
killed the mutant. Survivors are printed as a diff: each is either equivalent (no input can tell
it from the original), or a test that is missing.

The command should stop at its first failure; ``--ff`` of pytest starts with the test that killed
the last mutant. Several commands, each after a ``--`` of its own, are stages: what survives the
first goes on to the next, so a few quick tests go first and many slow ones see few mutants.
``--list`` prints the mutants without running anything, ``--only 12,57`` runs
those, ``--lines 100-180`` takes mutants of these lines only.
"""

from __future__ import annotations

import argparse
import ast
import collections
import concurrent.futures
import contextlib
import os
import pathlib
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

COMPARISONS: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE], ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot], ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn], ast.NotIn: [ast.In],
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
    ast.MatMult: ast.Mult,
}  # fmt: skip
DROPPED = (
    *(ast.Expr, ast.AugAssign, ast.Assign, ast.Raise, ast.Delete, ast.Continue, ast.Break),
    *(ast.Return, ast.Assert),
)
SHORTEST_TIMEOUT = 10.0


@dataclass(frozen=True)
class Mutant:
    """One fault: what takes the place of the bytes from ``start`` to ``end`` of the file."""

    number: int
    kind: str
    line: int
    start: int
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        """The file with the fault in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]


# ------------------------------------------------------------------ finding places


class Finder:
    """Walks a syntax tree and notes every fault that could be put in."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.found: list[Mutant] = []

    def note(self, kind: str, node: ast.AST, text: str) -> None:
        """Note that this text can take the place of a node."""
        start = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        self.found.append(Mutant(len(self.found), kind, node.lineno, start, end, text))  # type: ignore[attr-defined]

    def expression(self, kind: str, node: ast.expr, changed: ast.expr) -> None:
        """Note another expression in the place of one; parentheses keep what is around it apart."""
        self.note(kind, node, f"({ast.unparse(ast.fix_missing_locations(changed))})")

    def walk(self, node: ast.AST, in_error: bool = False) -> None:
        """Note the faults of a node and of all below it, but for those that only users would see.

        The wording of errors, annotations and f-strings are left alone.
        """
        if isinstance(node, ast.JoinedStr):
            return
        in_error = in_error or isinstance(node, ast.Raise)
        for kind, changed in self._expressions(node, in_error):
            self.expression(kind, node, changed)  # type: ignore[arg-type]
        self._conditions(node)
        self._statements(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_text(child):
                    self.walk(child, in_error)

    def _expressions(self, node: ast.AST, in_error: bool) -> Iterator[tuple[str, ast.expr]]:
        if isinstance(node, ast.Compare):
            for at, operator in enumerate(node.ops):
                for other in COMPARISONS[type(operator)]:
                    ops = [*node.ops[:at], other(), *node.ops[at + 1 :]]
                    yield "comparison", ast.Compare(node.left, ops, node.comparators)
        elif isinstance(node, ast.BoolOp):
            other_op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or", ast.BoolOp(other_op, node.values)
            for at in range(len(node.values)):
                rest = node.values[:at] + node.values[at + 1 :]
                yield "operand dropped", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            yield "sign dropped", node.operand
        elif isinstance(node, ast.BinOp) and not _is_text(node.left):
            yield "operator", ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        elif isinstance(node, ast.Constant):
            yield from self._constants(node, in_error)
        elif isinstance(node, (ast.Tuple, ast.Set)) and isinstance(
            getattr(node, "ctx", ast.Load()), ast.Load
        ):
            for at, item in enumerate(node.elts):
                if len(node.elts) > 1 and not isinstance(item, ast.Starred):
                    rest = node.elts[:at] + node.elts[at + 1 :]
                    kept = ast.Set(rest) if isinstance(node, ast.Set) else ast.Tuple(rest, node.ctx)
                    yield "item dropped", kept
        elif isinstance(node, ast.Call) and not in_error:
            for at in range(len(node.keywords)):
                rest_keywords = node.keywords[:at] + node.keywords[at + 1 :]
                yield "argument dropped", ast.Call(node.func, node.args, rest_keywords)

    def _constants(self, node: ast.Constant, in_error: bool) -> Iterator[tuple[str, ast.expr]]:
        value = node.value
        if isinstance(value, bool):
            yield "constant", ast.Constant(not value)
        elif isinstance(value, (int, float)):
            for other in (value + 1, value - 1):
                yield "constant", ast.Constant(other)
        elif isinstance(value, str) and not in_error:
            yield "constant", ast.Constant(f"{value}?")
        elif isinstance(value, bytes) and not in_error:
            yield "constant", ast.Constant(value + b"?")

    def _conditions(self, node: ast.AST) -> None:
        tests: list[ast.expr] = []
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            tests = [node.test]
        elif isinstance(node, ast.comprehension):
            tests = node.ifs
        for test in tests:
            if not isinstance(test, ast.Constant) and not _is_negated_elsewhere(test):
                self.expression("condition negated", test, ast.UnaryOp(ast.Not(), test))

    def _statements(self, node: ast.AST) -> None:
        if isinstance(node, ast.Return) and node.value is not None:
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                self.note("return value lost", node, "return None")
            return
        if isinstance(node, ast.Assign) and not any(
            isinstance(t, (ast.Attribute, ast.Subscript)) for t in node.targets
        ):
            return  # without its variable the rest would fail at once
        if isinstance(node, DROPPED) and not (isinstance(node, ast.Expr) and _is_text(node.value)):
            self.note("statement dropped", node, "pass")


def _is_negated_elsewhere(test: ast.expr) -> bool:
    """Whether the negation of a condition is among the mutants of the condition itself."""
    single = isinstance(test, ast.Compare) and len(test.ops) == 1
    return single or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _is_text(node: ast.AST) -> bool:
    """Whether this is a docstring or an f-string, which only people read."""
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or isinstance(node, ast.JoinedStr)


def mutants_of(source: bytes) -> list[Mutant]:
    """Every fault that could be put into a file, numbered; the same ones for the same text."""
    finder = Finder(source)
    finder.walk(ast.parse(source))
    unique: dict[tuple[int, int, str], Mutant] = {}
    for mutant in finder.found:
        unique.setdefault((mutant.start, mutant.end, mutant.text), mutant)
    found = sorted(unique.values(), key=lambda m: (m.start, m.end, m.text))
    numbered = (replace(m, number=k) for k, m in enumerate(found))
    return [m for m in numbered if _compiles(m.applied(source))]


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def diff(mutant: Mutant, source: bytes) -> str:
    """The lines that a mutant changes, before and after."""
    first = source.rfind(b"\n", 0, mutant.start) + 1
    last = source.find(b"\n", mutant.end)
    before, after = source[first:last], mutant.applied(source)[first:]
    after = after[: len(after) - (len(source) - last)]
    lines = [f"  - {line}" for line in before.decode().splitlines()]
    return "\n".join(lines + [f"  + {line}" for line in after.decode().splitlines()])


# ------------------------------------------------------------------ running the tests


@dataclass
class Stage:
    """A command that may kill mutants: how long it may take, and how many it has killed."""

    command: list[str]
    limit: float = 3600.0
    dead: int = 0


class Scratch:
    """A copy of the package in which one file can be changed."""

    def __init__(self, file: pathlib.Path) -> None:
        root = _root(file)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mutants-"))
        package = file.relative_to(root).parts[0]
        shutil.copytree(root / package, self.folder / package)
        self.target = self.folder / file.relative_to(root)
        kept = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        paths = [str(self.folder), *(p for p in kept if p and pathlib.Path(p).resolve() != root)]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            # Bytecode is told by seconds and sizes, which two mutants may share.
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, content: bytes, stages: list[Stage]) -> str:
        """What becomes of the tests with this as the file: ``killed``, ``late`` or ``survived``."""
        for stage in stages:
            fate = self.run_one(content, stage)
            if fate != "survived":
                stage.dead += 1
                return fate
        return "survived"

    def run_one(self, content: bytes, stage: Stage) -> str:
        """The same for one stage."""
        self.target.write_bytes(content)
        for old in (self.target.parent / "__pycache__").glob(f"{self.target.stem}.*.pyc"):
            old.unlink()
        # A group of its own, so that what the tests have started ends with them.
        process = subprocess.Popen(
            [sys.executable, *stage.command],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(stage.limit)
        except subprocess.TimeoutExpired:
            return "late"
        finally:
            end_group(process)
        return "killed" if code else "survived"

    def close(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def warm_up(scratch: Scratch) -> None:
    """Compile the files of a copy, so that only the changed one is compiled in each run."""
    environment = {k: v for k, v in scratch.environment.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "compileall", "-q", str(scratch.folder)]
    subprocess.run(command, env=environment)


def normal_time(scratch: Scratch, source: bytes, stage: Stage) -> float:
    """The seconds that a stage takes on the file as it is."""
    start = time.monotonic()
    if scratch.run_one(source, stage) != "survived":
        raise SystemExit(f"the command fails on the file as it is: {' '.join(stage.command)}")
    return time.monotonic() - start


def _root(file: pathlib.Path) -> pathlib.Path:
    """The folder that the package of a file is imported from."""
    folder = file.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    if folder == file.parent:
        raise SystemExit(f"{file} is not part of a package")
    return folder


def run_all(
    mutants: list[Mutant],
    source: bytes,
    scratches: list[Scratch],
    stages: list[Stage],
    report: Callable[[Mutant, str], None],
) -> dict[int, str]:
    """What became of each mutant, over as many processes as there are copies."""
    free: queue.Queue[Scratch] = queue.Queue()
    for scratch in scratches:
        free.put(scratch)

    def run(mutant: Mutant) -> tuple[Mutant, str]:
        scratch = free.get()
        try:
            return mutant, scratch.run(mutant.applied(source), stages)
        finally:
            free.put(scratch)

    fates = {}
    with concurrent.futures.ThreadPoolExecutor(len(scratches)) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, m) for m in mutants]):
            mutant, fate = done.result()
            fates[mutant.number] = fate
            report(mutant, fate)
            if len(fates) % 20 == 0:
                print(f"{len(fates)} of {len(mutants)}", file=sys.stderr, flush=True)
    return fates


# ------------------------------------------------------------------ the command line


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path, help="the file to put faults into")
    parser.add_argument("--count", type=int, default=100, help="how many mutants to sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", help="first-last: only mutants of these lines")
    parser.add_argument("--only", help="numbers of mutants, with commas, instead of a sample")
    parser.add_argument("--timeout", type=float, help="seconds; else five times a normal run")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--minimum", type=float, default=0.0, help="fail below this percentage")
    parser.epilog = "After each -- come the arguments of Python that run the tests of one stage."
    parts: list[list[str]] = [[]]
    for word in sys.argv[1:]:
        if word == "--":
            parts.append([])
        else:
            parts[-1].append(word)
    asked = parser.parse_args(parts[0])
    asked.stages = [Stage(part) for part in parts[1:] if part]
    return asked


def chosen(asked: argparse.Namespace, source: bytes) -> list[Mutant]:
    """The mutants to try: those named, or a sample."""
    found = mutants_of(source)
    if asked.only:
        wanted = {int(n) for n in asked.only.split(",")}
        return [m for m in found if m.number in wanted]
    if asked.lines:
        first, _, last = asked.lines.partition("-")
        found = [m for m in found if int(first) <= m.line <= int(last or first)]
    count = min(asked.count, len(found))
    picked = random.Random(asked.seed).sample(found, count)
    print(f"{count} of {len(found)} mutants of {asked.file}, seed {asked.seed}", flush=True)
    return sorted(picked, key=lambda m: m.number)


def main() -> None:
    asked = options()
    file = asked.file.resolve()
    source = file.read_bytes()
    mutants = chosen(asked, source)

    def show(mutant: Mutant, fate: str) -> None:
        if fate == "survived":
            place = f"{asked.file}:{mutant.line}"
            print(f"#{mutant.number} {place} {mutant.kind}\n{diff(mutant, source)}", flush=True)

    if asked.list:
        for mutant in mutants:
            show(mutant, "survived")
        return
    stages: list[Stage] = asked.stages
    if not stages:
        raise SystemExit("after -- there must be a command, such as -m pytest -x tests/test_x.py")
    scratches = [Scratch(file) for _ in range(max(1, asked.jobs))]
    try:
        for scratch in scratches:
            warm_up(scratch)
        for stage in stages:
            longest = max(normal_time(scratch, source, stage) for scratch in scratches)
            stage.limit = asked.timeout or max(SHORTEST_TIMEOUT, 5 * longest)
            print(
                f"a run without faults takes {longest:.1f} s; the limit is {stage.limit:.0f} s",
                flush=True,
            )
        fates = run_all(mutants, source, scratches, stages, show)
    finally:
        for scratch in scratches:
            scratch.close()
    counts = collections.Counter(fates.values())
    dead = counts["killed"] + counts["late"]
    share = 100 * dead / max(1, len(fates))
    print(
        f"{len(fates)} mutants: {counts['killed']} killed, {counts['late']} by the time limit, "
        f"{counts['survived']} survived ({share:.1f}% dead)"
    )
    if len(stages) > 1:
        print("by stage:", *(stage.dead for stage in stages))
    raise SystemExit(share < asked.minimum)


if __name__ == "__main__":
    main()
