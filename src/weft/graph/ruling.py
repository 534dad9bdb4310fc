"""Rules: edits that act on every later step while it is being built, whatever its control flow."""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import functools
import inspect
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from weft.core import errors
from weft.core.dispatch import REGISTRY, Op, apply
from weft.core.modes import MODES
from weft.core.scopes import MODELS, path_of, split
from weft.core.tensor import Parameter, Tensor
from weft.graph.edit import function_of, is_module
from weft.graph.graph import is_op
from weft.graph.instead import given_out, written
from weft.graph.listen import Listener
from weft.graph.naming import Models, name_of
from weft.graph.past import Look, Past
from weft.graph.pattern import Pattern
from weft.graph.run import GraphError
from weft.graph.selecting import in_module
from weft.graph.spec import FORWARD, Spec, listening, title_of


class Use:
    """An op that is about to run, for rules that ask for more than its name."""

    def __init__(
        self, name: str, op: Op, args: Any, attrs: dict[str, Any], inplace: bool = False
    ) -> None:
        self.name, self.op, self.inputs, self.attrs = name, op.name, args, attrs
        self.inplace = inplace  # whether the result goes into the first input
        self.module = path_of(MODES.now.scope)


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
        self.model = ""  # the number of the model that a path without a model's name has met

    def fits(
        self, op: Op, name: Callable[[], str], args: Any, attrs: dict[str, Any], inplace: bool,
        models: Models,
    ) -> bool:  # fmt: skip
        wanted = self.select
        if wanted["op"] is not None and not _goes_by(op, wanted["op"], inplace):
            return False
        if wanted["module"] is not None and not self._in(wanted["module"], models):
            return False
        if wanted["name"] is not None and not self._is(wanted["name"], name(), models):
            return False
        where = wanted["where"]
        if inplace and wanted["op"] is wanted["name"] is where is None and _is_state(args[0]):
            return False
        return where is None or bool(where(Use(path_of(name()), op, args, attrs, inplace)))

    def _in(self, module: str, models: Models) -> bool:
        scope = MODES.now.scope
        if in_module(models.full(scope), module):
            return True
        return in_module(path_of(scope), module) and self._of_one_model("module", module, models)

    def _is(self, wanted: str, name: str, models: Models) -> bool:
        if wanted == models.full(name):
            return True
        return wanted == path_of(name) and self._of_one_model("name", wanted, models)

    def _of_one_model(self, what: str, wanted: str, models: Models) -> bool:
        """Refuse a path without a model's name that fits two models of the program."""
        tag = split(MODES.now.scope)[0]
        if not tag or wanted.startswith("*"):
            return True
        self.model = self.model or tag
        if self.model == tag:
            return True
        first, second = (models.full(t) for t in (self.model, tag))
        raise GraphError(
            f"rules: {what}={wanted!r} fits in two models, {first!r} and {second!r}. Say which one "
            f"is meant, {what}={f'{first}.{wanted}'!r}, or {what}={f'*.{wanted}'!r} for all"
            f"\n  at {errors.here()}"
        )

    def __repr__(self) -> str:
        chosen = ", ".join(f"{k}={v!r}" for k, v in self.select.items() if v is not None)
        called = "" if self.function is None else getattr(self.function, "__name__", "function")
        return f"{self.kind}({', '.join(filter(None, (called, chosen)))})"


def _is_state(target: Tensor) -> bool:
    """Whether a tensor is a module's own: running statistics are not part of what it computes."""
    return name_of(target, sys._getframe(1)).kind == "module"


def _goes_by(op: Op, name: str, inplace: bool) -> bool:
    """Whether an op has a name: ``relu`` for all its uses, ``relu_`` for those in place."""
    spec = Spec(0, FORWARD, op, (), {}, None, None)
    return is_op(spec, name) or (inplace and fnmatch.fnmatchcase(f"{op.name}_", name))


def _check_op(name: str, kind: str) -> None:
    """Refuse an unknown op name, with similar names."""
    plain = name.removesuffix("_") or name
    known = {*REGISTRY, *map(title_of, REGISTRY)}
    if any(fnmatch.filter(known, n) for n in (name, plain)):
        return
    near = difflib.get_close_matches(plain, sorted(known), 4, 0.6)
    hint = f"; close to it: {near}" if near else ""
    raise GraphError(f"rules: {kind} of op={name!r}, and no op has that name{hint}"
                     f"\n  at {errors.here()}")  # fmt: skip


def _passed_through(op: Op, call: Callable, *given: Any) -> Any:
    """What is left of an op that is taken out: its first input; statistics are taken on."""
    first = next(x for x in given if isinstance(x, Tensor))
    if not op.multiple:
        return first
    if len(op.outputs) > 1:
        return (first, *call(*given)[1:])
    raise GraphError(
        f"rules: {op.name} gives several tensors of one kind, and its input can't stand in for "
        f"them; use replace\n  at {errors.here()}"
    )


def _first_by(function: Callable, op: Op, args: Any, attrs: dict[str, Any], *given: Any) -> Any:
    return (function(*given), *apply(op, args, attrs)[1:])


def _on_data(module: Callable, *given: Any) -> Any:
    """Call a module on what an op reads, without the parameters that the module has itself."""
    tensors = [x for x in given if isinstance(x, Tensor)]
    data = [x for x in tensors if not isinstance(x, Parameter) and not _is_state(x)]
    return module(*(data or tensors))


class _Choice:
    """Some rules, and what they ask for: names, and how far patterns look back at which ops."""

    def __init__(self, rules: tuple[_Rule, ...] = ()) -> None:
        self.rules = rules
        self.patterns = [r.pattern for r in rules if r.pattern is not None]
        self.named = any(r.select.get("name") or r.select.get("where") for r in rules)


class _ThreadUses(threading.local):
    """What a thread has done in a block: uses by name, and what patterns look back at."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.models = Models()
        self.calls = 0  # of models, when a name was counted last
        self.first = ""  # the model that a step begins with
        self.last: Callable[[], Any] = lambda: None  # the newest node of a model, while it lives
        self.made = Past()
        self.target: Tensor | None = None  # what the op that is about to run writes into
        self.choice: _Choice | None = None  # that of a first run, in the second
        self.again: Any = None  # the backward pass that runs a part once more


class Rules(Listener):
    """Edits for everything that runs in a block; they can be added and removed at any time.

    An in-place op is edited as any other: what stands in for it gives the new value of its tensor.

    >>> import weft
    >>> rules = weft.graph.rules().replace("tanh", op="relu")
    >>> with rules:
    ...     y = weft.tensor([0.0, 2.0]).relu()
    >>> y
    tensor([0.0000, 0.9640])
    """

    _by_call = True  # whether a model that runs again without gradients begins a step

    def __init__(self) -> None:
        self._choice = _Choice()
        self._seen = _ThreadUses()

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
        if select.get("op") is not None:
            _check_op(select["op"], rule.kind)
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
        known = Pattern(pattern).guess()
        unknown = set(inspect.signature(replacement).parameters) - set(known.names)
        if unknown:
            raise GraphError(
                f"rules: the replacement takes {sorted(unknown)}, which the pattern does not define"
                f"\n  at {errors.here()}"
            )
        return self._with(_Rule("rewrite", replacement, {}, pattern=known))

    def undo(self) -> Rules:
        """Remove the last rule."""
        self._choice = _Choice(self._rules[:-1])
        return self

    def clear(self) -> Rules:
        """Remove all rules."""
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
            for rule in self._rules:
                rule.model = ""

    # --- acting ------------------------------------------------------------------------

    def went_back(self, work: Any, roots: Any) -> None:
        if work.ends_step:
            self._counts.clear()  # the next step counts its names again
            self._seen.first = ""

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
        self._seen.models.meet(MODES.now.scope, sys._getframe(2))
        name = self._namer(op)
        call: Callable = lambda *given: apply(op, given, attrs)
        acting = []
        for rule in self._now.rules:
            if rule.pattern is not None:
                found = self._match(rule, op, args, attrs)
                if found is None:
                    continue
                whole: Any = rule.function
                if op.multiple:
                    # The pattern is the first result; the others are what they were.
                    whole = functools.partial(_first_by, whole, op, args, attrs)
                call, args = whole, found
            elif rule.fits(op, name, args, attrs, inplace, self._seen.models):
                call = self._wrapped(rule, call, op, attrs)
            else:
                continue
            acting.append(rule)
        return acting, call, args

    def saw(self, op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
        if self._now.named and results[0]._node is not None:
            self._seen.last = weakref.ref(results[0]._node)
        patterns = self._now.patterns
        for pattern in patterns:
            pattern.meet(op, args)
        # While it is not known what a pattern is made of, any op may be a part of it.
        if any(not p.forms or op.name in p.inner for p in patterns):
            self._made.add(op, args, attrs, results, max(p.reach for p in patterns))

    def _namer(self, op: Op) -> Callable[[], str]:
        if not self._now.named:
            return str
        spec = Spec(0, FORWARD, op, (), {}, None, None)
        scope = MODES.now.scope
        self._begin_step(scope)
        base = f"{scope}.{spec.title}" if scope else spec.title
        self._counts[base] += 1
        count = self._counts[base]
        return lambda: base if count == 1 else f"{base}:{count}"

    def _begin_step(self, scope: str) -> None:
        """Where no backward() will end a step, a model that runs again begins one.

        That is so without gradients, in evaluation mode, and if nothing is left of its last run.
        """
        seen, now = self._seen, MODES.now
        tag = split(scope)[0]
        if not self._by_call or not tag or now.calls == seen.calls:
            return
        seen.calls = now.calls
        if not seen.first:
            seen.first = tag
        elif seen.first == tag:
            training = getattr(MODELS.get(tag), "training", True)
            if not now.grad or not training or seen.last() is None:
                self._counts.clear()

    def _match(self, rule: _Rule, op: Op, args: Any, attrs: dict[str, Any]) -> list[Any] | None:
        pattern: Any = rule.pattern
        pattern.meet(op, args)
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
            return functools.partial(_passed_through, op, call)
        assert function is not None
        if rule.kind == "replace":
            return functools.partial(_on_data, function) if is_module(function) else function
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
