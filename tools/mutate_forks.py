"""Mutation testing in forks of one process: hundreds of mutants in the time of one test run.

    python tools/mutate_forks.py src/weft/core/plan.py --count 200 -- tests/autograd tests/core

``tools/mutate.py`` starts Python anew for each mutant, which takes longer than most tests. Here
pytest collects the tests once. A first run notes which tests reach which lines of the files; then
each mutant gets a fork in which the changed function has its new code, and in which the tests that
reach it run, those that killed others first, until one fails or the budget is spent. ``--pool``
names a file in which the first run is kept for the next time.

Faults outside of functions, in what runs as the package is imported (``--at-import``) and in what
tests start as processes of their own need ``tools/mutate.py``; the former are listed at the end.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import importlib
import inspect
import json
import os
import pathlib
import random
import resource
import select
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import mutate
import pytest

Lines = dict[str, list[int]]  # of each file, by its path, which a test reaches


class Target:
    """A file to put faults into, and the functions of the module that it has been imported as."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path.resolve()
        root = mutate._root(self.path)
        self.name = ".".join(self.path.relative_to(root).with_suffix("").parts)
        self.source = self.path.read_bytes()
        self.spans: list[tuple[int, int, str]] = []
        self._find(ast.parse(self.source).body, "")

    def _find(self, body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                self._find(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                first, last = node.body[0].lineno, node.body[-1].end_lineno or 0
                self.spans.append((first, last, prefix + node.name))

    def function_at(self, line: int) -> str | None:
        """The function of the module or of a class whose body has this line."""
        return next((name for a, b, name in self.spans if a <= line <= b), None)

    def function(self, name: str) -> types.FunctionType:
        """A function by its qualified name, out of whatever decorators have made of it."""
        found: Any = importlib.import_module(self.name)
        for part in name.split("."):
            found = vars(found)[part] if inspect.isclass(found) else getattr(found, part)
        for wrapper in ("__func__", "__wrapped__", "fget", "func", "function"):
            found = getattr(found, wrapper, found)
        assert inspect.isfunction(found), f"{name} has a decorator that hides it"
        return found

    def put_in(self, mutant: mutate.Mutant) -> None:
        """Give the function of a mutant its new code, wherever it has been imported to."""
        name = self.function_at(mutant.line)
        assert name is not None
        code = compile(mutant.applied(self.source), str(self.path), "exec")
        self.function(name).__code__ = _code_of(code, name)

    def lines_of(self, mutant: mutate.Mutant) -> range:
        """The lines that a mutant changes."""
        return range(mutant.line, self.source.count(b"\n", 0, mutant.end) + 2)


def _code_of(code: types.CodeType, name: str) -> types.CodeType:
    head, _, rest = name.partition(".")
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType) and inner.co_name == head:
            return _code_of(inner, rest) if rest else inner
    raise LookupError(name)


def in_a_fork(work: Callable[[], Any], seconds: float) -> Any:
    """What ``work`` gives in a fork, or None if it takes too much time or crashes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reading)
        limit = int(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        with contextlib.suppress(BaseException), open(writing, "w") as answer:
            json.dump(work(), answer)
        os._exit(0)
    os.close(writing)
    # Processor time is what counts; the clock is for those that wait forever.
    patience = time.monotonic() + 10 * seconds + 10
    answer, part = b"", b" "
    while part and select.select([reading], [], [], max(0.0, patience - time.monotonic()))[0]:
        part = os.read(reading, 1 << 16)
        answer += part
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(answer) if answer else None


class Forks:
    """A plugin for pytest that runs mutants instead of the tests."""

    def __init__(self, targets: list[Target], asked: argparse.Namespace) -> None:
        self.targets, self.asked = targets, asked
        self.kills: collections.Counter[str] = collections.Counter()
        self.at: dict[tuple[str, int], list[str]] = collections.defaultdict(list)  # tests by line

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        session.config.pluginmanager.unregister(name="terminalreporter")
        self.items = {item.nodeid: item for item in session.items}
        reached = self.survey()
        for name, (_, files) in reached.items():
            for path, seen in files.items():
                for line in seen:
                    self.at[path, line].append(name)
        for target in self.targets:
            self.try_all(target, reached)
        return True

    def passes(self, item: pytest.Item) -> bool:
        """Run one test."""
        failed = self.session.testsfailed
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return self.session.testsfailed == failed

    # -------------------------------------------------------------- which tests reach which lines

    def survey(self) -> dict[str, tuple[float, Lines]]:
        """The time that each test takes and the lines it reaches; tests that fail are left out."""
        pool = self.asked.pool
        known = json.loads(pool.read_text()) if pool and pool.exists() else {}
        missing = [item for name, item in self.items.items() if name not in known]
        if missing:
            print(f"first run of {len(missing)} tests", file=sys.stderr, flush=True)
            known.update(in_a_fork(lambda: self.trace(missing), 3600) or {})
            if pool:
                pool.write_text(json.dumps(known))
        return {name: known[name] for name in self.items if known.get(name)}

    def trace(self, items: list[pytest.Item]) -> dict[str, Any]:
        files = {str(t.path): set[int]() for t in self.targets}

        def lines(frame: Any, event: str, argument: Any) -> Any:
            files[frame.f_code.co_filename].add(frame.f_lineno)
            return lines

        def calls(frame: Any, event: str, argument: Any) -> Any:
            return lines if frame.f_code.co_filename in files else None

        found: dict[str, Any] = {}
        for item in items:
            start = time.process_time()
            sys.settrace(calls)
            try:
                good = self.passes(item)
            finally:
                sys.settrace(None)
            taken = time.process_time() - start
            reached = {path: sorted(seen) for path, seen in files.items()}
            found[item.nodeid] = (taken, reached) if good else None
            for seen in files.values():
                seen.clear()
        return found

    # ------------------------------------------------------------------------ running the mutants

    def try_all(self, target: Target, reached: dict[str, tuple[float, Lines]]) -> None:
        """Try the mutants of one file, and print what became of them."""
        fates: collections.Counter[str] = collections.Counter()
        skipped = []
        for mutant in chosen(target, self.asked):
            name = target.function_at(mutant.line)
            if name is None or name in self.asked.at_import:
                skipped.append(mutant.number)
                continue
            fate = self.fate(target, mutant, reached)
            fates[fate.partition(" ")[0]] += 1
            print(f"#{mutant.number} {fate}", flush=True)
            if not fate.startswith("killed"):
                place = f"{target.path.name}:{mutant.line}"
                print(f"{place} {mutant.kind}\n{mutate.diff(mutant, target.source)}", flush=True)
        print(f"{target.name}: {dict(fates)}; at import: {','.join(map(str, skipped))}", flush=True)

    def fate(self, target: Target, mutant: mutate.Mutant, reached: dict[str, Any]) -> str:
        """``killed`` and by which test, ``unreached``, or ``survived`` and how many tests."""
        path = str(target.path)
        found = {name for line in target.lines_of(mutant) for name in self.at[path, line]}
        covering = sorted(found, key=lambda n: (-self.kills[n], reached[n][0]))
        chosen, total = [], 0.0
        for name in covering:
            if total < self.asked.budget:
                chosen.append(name)
                total += reached[name][0]
        if not chosen:
            return "unreached"

        target.function(target.function_at(mutant.line) or "")  # fails here if it can't be found

        def work() -> str:
            target.put_in(mutant)
            return next((n for n in chosen if not self.passes(self.items[n])), "")

        killer = in_a_fork(work, 5 * total + 10)
        if killer is None:
            return "killed by the time limit or a crash"
        if not killer:
            return f"survived {len(chosen)} of {len(covering)} tests that reach it"
        self.kills[killer] += 1
        return f"killed by {killer}"


def chosen(target: Target, asked: argparse.Namespace) -> list[mutate.Mutant]:
    """The mutants of a file to try: those named, or a sample."""
    found = mutate.mutants_of(target.source)
    if asked.only:
        wanted = {int(n) for n in asked.only.split(",")}
        return [m for m in found if m.number in wanted]
    count = min(asked.count, len(found))
    print(f"{count} of {len(found)} mutants of {target.name}, seed {asked.seed}", flush=True)
    picked = random.Random(asked.seed).sample(found, count)
    return sorted(picked, key=lambda m: m.number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=pathlib.Path, nargs="+", help="files to put faults into")
    parser.add_argument("--count", type=int, default=200, help="how many mutants of each to sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="numbers of mutants, with commas, instead of a sample")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of tests for a mutant")
    parser.add_argument("--pool", type=pathlib.Path, help="where the first run is kept")
    parser.add_argument("--at-import", nargs="*", default=[], help="functions that run on import")
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    asked = parser.parse_args(given[:at])
    targets = [Target(path) for path in asked.files]
    raise SystemExit(pytest.main(["-q", "-s", *given[at + 1 :]], plugins=[Forks(targets, asked)]))


if __name__ == "__main__":
    main()
