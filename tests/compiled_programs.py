"""Random programs, compiled and eager, side by side.

    python -m compiled_programs 10000 [--seed S] [--resized] [--sizes]
    python -m compiled_programs --show SEED

The programs are those of ``programs``: they share values, change views in place, hook gradients,
draw random numbers and fail. Each runs eagerly once, and compiled several times from the same
start, so that it is learned, followed and computed by plans. Compared are the errors of every
statement and, at the end, values, gradients, versions, what hooks kept, and which tensors share
memory. A program that shows a difference is cut down and printed.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import traceback
import warnings
from collections import Counter
from typing import Any

import opdb
import programs
import weft
from programs import Look, Session, Step
from weft.compiler import Compiled, resizing
from weft.compiler.learning import Learning
from weft.compiler.stepping import Stepping
from weft.core.tensor import storage_array

CALLS = 4


class resized:
    """A block in which what was learned eagerly is not followed as it is, but as if at a new size.

    So each call of a program is one that the rules of its ops tell of, and not eager mode.
    """

    def __enter__(self) -> None:
        self.before = Learning.add, Stepping.settle, resizing.expects_return
        add, settle, _ = self.before

        def learned(region: Any, *args: Any) -> Any:
            token = add(region, *args)
            if token is not None:
                token.match = token.follow = lambda *args: None
            return token

        def settled(step: Any, token: Any, args: Any) -> None:
            if token.derived:
                settle(step, token, args)

        Learning.add, Stepping.settle = learned, settled  # type: ignore[method-assign]
        resizing.expects_return = lambda point, learned: True

    def __exit__(self, *exc: object) -> None:
        Learning.add, Stepping.settle, resizing.expects_return = self.before  # type: ignore[method-assign]


class Run:
    """One run of a program: the error of each statement, and what can be seen at its end."""

    def __init__(self, steps: list[Step], around: Any = None) -> None:
        self.session = Session(weft)
        self.errors: list[str | None] = []
        self.names: list[str] = []
        body = around or play
        body(steps, self)
        self.look = Look()
        for name in self.names:
            if name in self.session.scope:
                value = self.session.scope[name]
                if isinstance(value, weft.Tensor):
                    self.session.names[name] = 0
                    self.session.look_at(name, self.look)
                else:
                    self.look.values[name] = programs.plain(value, weft)
        self.session.look_at_log(self.look)


def play(steps: list[Step], run: Run) -> None:
    """Run the statements; an error ends its statement alone."""
    scope = run.session.scope
    for step in steps:
        error = None
        try:
            exec(programs.compiled(step.code), scope)
            run.names += step.new
        except Exception as problem:
            kind = type(problem).__name__
            error = programs.FAMILY.get(kind, kind)
        run.errors.append(error)


def homes(session: Session) -> dict[str, int]:
    """For each tensor that the program can reach, the first that shares memory with it."""
    first: dict[int, int] = {}
    found = {}
    for k, (name, t) in enumerate(session.kept()):
        if t.numel():
            found[name] = first.setdefault(id(storage_array(t._a)), k)
    return found


def sharing(found: dict[str, int]) -> set[tuple[str, str]]:
    """The pairs of tensors that share memory."""
    pairs = itertools.combinations(found.items(), 2)
    return {(a, b) for (a, k), (b, n) in pairs if k == n}


def same_sharing(mine: dict[str, int], theirs: dict[str, int]) -> bool:
    """Whether tensors share memory as in eager mode, but for gradients that hooks have kept.

    An eager backward pass may hand one on to the next node, a compiled one gives each its own.
    """
    here, there = sharing(mine), sharing(theirs)
    apart = {(a, b) for a, b in there if a.startswith("log[") and b.startswith("log[")}
    return here <= there and there - here <= apart


def difference(steps: list[Step]) -> str | None:
    """How a compiled run differs from the eager one, or None."""
    return first_difference([steps] * CALLS)


def difference_at_sizes(steps: list[Step]) -> str | None:
    """The same over runs at several sizes, of which two come back and the others are new."""
    sizes = [dims for step in steps for dims in shapes_in(step.code)]
    common = Counter(n for dims in sizes for n in dims if 1 < n < 100).most_common(1)
    if not common:
        return None
    usual = common[0][0]
    runs = [usual, usual, usual + 2, usual + 2, usual + 1, 2 * usual, 1, usual + 5, usual]
    return first_difference([[at_size(step, usual, n) for step in steps] for n in runs])


DRAWN = re.compile(r"(rand\(\d+, \()([\d, ]*)\)")


def shapes_in(code: str) -> list[list[int]]:
    """The shapes of the tensors that a statement draws."""
    return [[int(n) for n in dims.split(",") if n.strip()] for _, dims in DRAWN.findall(code)]


def at_size(step: Step, usual: int, n: int) -> Step:
    """A statement that draws tensors of another size in the place of the usual one."""
    shape = lambda found: found[1] + re.sub(rf"\b{usual}\b", str(n), found[2]) + ")"
    return step._replace(code=DRAWN.sub(shape, step.code))


def first_difference(calls: list[list[Step]]) -> str | None:
    """How the calls of one compiled function differ from eager ones, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = Compiled(play)
        eager: dict[int, Run] = {}
        for number, steps in enumerate(calls):
            if id(steps) not in eager:
                eager[id(steps)] = Run(steps)
            expected = eager[id(steps)]
            found = Run(steps, compiled)
            if found.errors != expected.errors:
                pairs = zip(found.errors, expected.errors, strict=True)
                k = next(i for i, (a, b) in enumerate(pairs) if a != b)
                return (
                    f"call {number + 1}: `{steps[k].code}` ended in {found.errors[k]}, "
                    f"eagerly in {expected.errors[k]}"
                )
            text = programs.compare(found.look, expected.look)
            if text is None:
                mine, theirs = homes(found.session), homes(expected.session)
                if not same_sharing(mine, theirs):
                    text = "memory", f"{mine} where torch has {theirs}"
            if text is not None:
                return f"call {number + 1}: {text[0]}: {text[1]}".replace("torch", "eager")
    return None


def check(seed: int, theme: str | None = None, difference: Any = difference) -> str | None:
    """The report on a seed's program, if it shows a difference."""
    from program_steps import program

    with warnings.catch_warnings(), opdb.time_limit(120):
        warnings.simplefilter("ignore")
        try:
            steps, _, _ = program(seed, theme, False)
            found = difference(steps)
            if found is None:
                return None
            kind = found.split(":")[1][:6]
            fails = lambda fewer: (difference(fewer) or "::").split(":")[1][:6] == kind
            if fails(steps):
                steps = programs.smallest(steps, fails)
                found = difference(steps)
        except opdb.Slow:
            return f"seed {seed}: took too long"
        except Exception:
            return f"seed {seed}: {traceback.format_exc()}"
    body = "\n".join(step.code for step in steps)
    return f"seed {seed}: {found}\n{body}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=500_000_000)
    parser.add_argument("--theme")
    parser.add_argument("--show", type=int)
    parser.add_argument("--resized", action="store_true", help="as if sizes were new")
    parser.add_argument("--sizes", action="store_true", help="at several sizes")
    options = parser.parse_args()
    compare = difference_at_sizes if options.sizes else difference
    if options.resized:
        resized().__enter__()
    if options.show is not None:
        print(check(options.show, options.theme, compare))
        return 0
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        report = check(seed, options.theme, compare)
        if report is not None:
            wrong += 1
            print(report, flush=True)
    print(f"{options.count} programs, {wrong} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
