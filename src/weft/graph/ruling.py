"""Rules: edits that act on every later step while it is being built, whatever its control flow."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from weft.core import errors
from weft.core.dispatch import Op, apply
from weft.core.modes import MODES
from weft.core.tensor import Tensor
from weft.graph.edit import function_of
from weft.graph.graph import in_module, is_op
from weft.graph.instead import given_out, written
from weft.graph.listen import Listener
from weft.graph.naming import name_of
from weft.graph.past import Look, Past
from weft.graph.pattern import Pattern
from weft.graph.run import GraphError
from weft.graph.spec import FORWARD, Spec, listening


class Use:
    """An op that is about to run, for rules that ask for more than its name."""

    def __init__(
        self, name: str, op: Op, args: Any, attrs: dict[str, Any], inplace: bool = False
    ) -> None:
        self.name, self.op, self.inputs, self.attrs = name, op.name, args, attrs
        self.inplace = inplace  # whether the result goes into the first input
        self.module = MODES.now.scope


class _Rule:
    """One edit, and which ops it is for."""

    def __init__(
        self,
        kind: str,
        function: Callable | None,
        select: dict[str, Any],
        input: int = 0,
        pattern: Pattern | None = None,
    ) -> None:
        self.kind, self.function, self.select, self.input = kind, function, select, input
        self.pattern = pattern
        self.uses = 0

    def fits(
        self, op: Op, name: Callable[[], str], args: Any, attrs: dict[str, Any], inplace: bool
    ) -> bool:
        wanted = self.select
        if wanted["op"] is not None and not _goes_by(op, wanted["op"], inplace):
            return False
        if wanted["module"] is not None and not in_module(MODES.now.scope, wanted["module"]):
            return False
        if wanted["name"] is not None and name() != wanted["name"]:
            return False
        where = wanted["where"]
        if inplace and wanted["op"] is wanted["name"] is where is None and _is_state(args[0]):
            return False
        return where is None or bool(where(Use(name(), op, args, attrs, inplace)))

    def __repr__(self) -> str:
        chosen = ", ".join(f"{k}={v!r}" for k, v in self.select.items() if v is not None)
        called = "" if self.function is None else getattr(self.function, "__name__", "function")
        return f"{self.kind}({', '.join(filter(None, (called, chosen)))})"


def _is_state(target: Tensor) -> bool:
    """Whether a tensor is a module's own: running statistics are no part of what it computes."""
    return name_of(target, sys._getframe(1)).kind == "module"


def _goes_by(op: Op, name: str, inplace: bool) -> bool:
    """Whether an op has a name: ``relu`` for all its uses, ``relu_`` for those in place."""
    spec = Spec(0, FORWARD, op, (), {}, None, None)
    return is_op(spec, name) or (inplace and fnmatch.fnmatchcase(f"{op.name}_", name))


class _Choice:
    """Some rules, and what they ask for: names, and how far patterns look back at which ops."""

    def __init__(self, rules: tuple[_Rule, ...] = ()) -> None:
        self.rules = rules
        patterns = [r.pattern for r in rules if r.pattern is not None]
        self.inner = frozenset(name for p in patterns for name in p.inner)
        self.reach = max((len(f.specs) for p in patterns for f in p.forms), default=0)
        self.named = any(r.select.get("name") or r.select.get("where") for r in rules)


class _Seen(threading.local):
    """What a thread has done in a block: uses by name, and what patterns look back at."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.made = Past()
        self.target: Tensor | None = None  # what the op that is about to run writes into
        self.choice: _Choice | None = None  # that of a first run, in the second
        self.again: Any = None  # the backward pass that runs a part once more


class Rules(Listener):
    """Edits for all that runs in a block; they may be added and taken back at any time.

    An op in place is edited as any other: what stands in for it gives the new value of its tensor.

    >>> import weft
    >>> rules = weft.graph.rules().replace("tanh", op="relu")
    >>> with rules:
    ...     y = weft.tensor([0.0, 2.0]).relu()
    >>> y
    tensor([0.0000, 0.9640])
    """

    def __init__(self) -> None:
        self._choice = _Choice()
        self._seen = _Seen()

    @property
    def _rules(self) -> tuple[_Rule, ...]:
        return self._choice.rules

    @property
    def _now(self) -> _Choice:
        """The rules that act: those of a first run while it is run again."""
        return self._seen.choice or self._choice

    @property
    def _counts(self) -> Counter[str]:
        return self._seen.counts

    @property
    def _made(self) -> Past:
        return self._seen.made

    def _with(self, rule: _Rule) -> Rules:
        select = rule.select
        if rule.pattern is None and all(v is None for v in select.values()):
            raise GraphError(
                f"rules: {rule.kind} of what? Give op=, module=, name= or where="
                f"\n  at {errors.here()}"
            )
        self._choice = _Choice((*self._rules, rule))
        return self

    def replace(
        self, function: Any, *, op: str | None = None, module: str | None = None,
        name: str | None = None, where: Callable[[Use], bool] | None = None,
    ) -> Rules:  # fmt: skip
        """Run a function instead of the ops that fit, on the same inputs."""
        select = {"op": op, "module": module, "name": name, "where": where}
        return self._with(_Rule("replace", function_of(function), select))

    def insert_after(
        self, function: Any, *, op: str | None = None, module: str | None = None,
        name: str | None = None, where: Callable[[Use], bool] | None = None,
    ) -> Rules:  # fmt: skip
        """Send the results of the ops that fit through a function."""
        select = {"op": op, "module": module, "name": name, "where": where}
        return self._with(_Rule("insert_after", function_of(function), select))

    def insert_before(
        self, function: Any, *, input: int = 0, op: str | None = None, module: str | None = None,
        name: str | None = None, where: Callable[[Use], bool] | None = None,
    ) -> Rules:  # fmt: skip
        """Send one input of the ops that fit through a function."""
        select = {"op": op, "module": module, "name": name, "where": where}
        return self._with(_Rule("insert_before", function_of(function), select, input))

    def remove(
        self, *, op: str | None = None, module: str | None = None,
        name: str | None = None, where: Callable[[Use], bool] | None = None,
    ) -> Rules:  # fmt: skip
        """Leave out the ops that fit: their first input passes through."""
        select = {"op": op, "module": module, "name": name, "where": where}
        return self._with(_Rule("remove", None, select))

    def rewrite(self, pattern: Callable, replacement: Callable) -> Rules:
        """Run a replacement wherever the program does what a pattern does."""
        known = Pattern(pattern)
        unknown = set(inspect.signature(replacement).parameters) - set(known.names)
        if unknown:
            raise GraphError(
                f"rules: the replacement takes {sorted(unknown)}, which the pattern has not"
                f"\n  at {errors.here()}"
            )
        return self._with(_Rule("rewrite", replacement, {}, pattern=known))

    def undo(self) -> Rules:
        """Take back the last rule."""
        self._choice = _Choice(self._rules[:-1])
        return self

    def clear(self) -> Rules:
        """Take back all rules."""
        self._choice = _Choice()
        return self

    def __len__(self) -> int:
        return len(self._rules)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        lines = [f"{rule!r}: {rule.uses} uses" for rule in self._rules]
        return "\n".join(lines) or "no rules"

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if self not in MODES.now.recorders:
            self._counts.clear()
            self._made.clear()

    # --- acting ------------------------------------------------------------------------

    def went_back(self, work: Any, roots: Any) -> None:
        if work.ends_step:
            self._counts.clear()  # the next step counts its names anew

    def before(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        seen = self._seen
        target, seen.target = seen.target, None
        if not self._now.rules or MODES.now.backward is not seen.again:
            return None
        acting, call, args = self._edited(op, args, attrs, target is not None)
        if not acting:
            return None
        others = tuple(r for r in MODES.now.recorders if r is not self)
        with listening(*others):
            if target is None:
                out = given_out(call, op, args)
            else:
                out = written(call, op, args, target)
        for rule in acting if seen.choice is None else ():
            rule.uses += 1
        return out

    def repeats(self) -> Callable[[], Any]:
        return functools.partial(self._again, self._now, Counter(self._counts))

    @contextlib.contextmanager
    def _again(self, choice: _Choice, counts: Counter[str]) -> Iterator[None]:
        seen = self._seen
        held = seen.choice, seen.counts, seen.again
        seen.choice, seen.counts, seen.again = choice, Counter(counts), MODES.now.backward
        try:
            with listening(self, *(r for r in MODES.now.recorders if r is not self)):
                yield
        finally:
            seen.choice, seen.counts, seen.again = held

    def overwriting(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        self._seen.target = args[0]
        try:
            return self.before(op, args, attrs)
        finally:
            self._seen.target = None

    def _edited(
        self, op: Op, args: Any, attrs: dict[str, Any], inplace: bool
    ) -> tuple[list[_Rule], Callable, Any]:
        """The rules for an op, and what is to run instead of it, on what."""
        name = self._namer(op)
        call: Callable = lambda *given: apply(op, given, attrs)
        acting = []
        for rule in self._now.rules:
            if rule.pattern is not None:
                found = self._match(rule, op, args, attrs)
                if found is None:
                    continue
                call, args = rule.function, found  # type: ignore[assignment]
            elif rule.fits(op, name, args, attrs, inplace):
                call = self._wrapped(rule, call, op, attrs)
            else:
                continue
            acting.append(rule)
        return acting, call, args

    def saw(self, op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
        if op.name in self._now.inner:
            self._made.add(op, args, attrs, results, self._now.reach)

    def _namer(self, op: Op) -> Callable[[], str]:
        if not self._now.named:
            return str
        spec = Spec(0, FORWARD, op, (), {}, None, None)
        scope = MODES.now.scope
        base = f"{scope}.{spec.title}" if scope else spec.title
        self._counts[base] += 1
        count = self._counts[base]
        return lambda: base if count == 1 else f"{base}:{count}"

    def _match(self, rule: _Rule, op: Op, args: Any, attrs: dict[str, Any]) -> list[Any] | None:
        pattern: Any = rule.pattern
        if op.name not in pattern.roots:
            return None
        start = object()
        look = Look(self._made, start, (op, args, attrs, 0))

        def kind(value: Any) -> Any:
            return (value._a.shape, value._a.dtype) if isinstance(value, Tensor) else None

        found = pattern.match(start, look, kind)
        if found is None:
            return None
        names = inspect.signature(rule.function).parameters  # type: ignore[arg-type]
        return [found[0][n] for n in names]

    @staticmethod
    def _wrapped(rule: _Rule, call: Callable, op: Op, attrs: dict[str, Any]) -> Callable:
        function = rule.function
        if rule.kind == "remove":
            return lambda *given: next(x for x in given if isinstance(x, Tensor))
        assert function is not None
        if rule.kind == "replace":
            return function
        if rule.kind == "insert_after":
            if op.multiple:
                return lambda *given: (lambda out: (function(out[0]), *out[1:]))(call(*given))
            return lambda *given: function(call(*given))

        def changed(*given: Any) -> Any:
            moved = list(given)
            if not -len(moved) <= rule.input < len(moved):
                raise GraphError(
                    f"rules: insert_before at input {rule.input} of {op.name}, which has "
                    f"{len(moved)}\n  at {errors.here()}"
                )
            moved[rule.input] = function(moved[rule.input])
            return call(*moved)

        return changed


def rules() -> Rules:
    """Edits for every later step: ``with weft.graph.rules().replace("gelu", op="relu"): ...``"""
    return Rules()
