"""Rules: edits that act on every later step while it is being built, whatever its control flow."""

from __future__ import annotations

import inspect
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from weft.core import errors
from weft.core.dispatch import Op, apply
from weft.core.modes import MODES
from weft.core.tensor import Tensor
from weft.graph.edit import function_of
from weft.graph.graph import in_module, is_op
from weft.graph.listen import Listener
from weft.graph.pattern import Pattern
from weft.graph.run import GraphError
from weft.graph.spec import FORWARD, Spec, listening


class Use:
    """An op that is about to run, for rules that ask for more than its name."""

    def __init__(self, name: str, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        self.name, self.op, self.inputs, self.attrs = name, op.name, args, attrs
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

    def fits(self, op: Op, name: Callable[[], str], args: Any, attrs: dict[str, Any]) -> bool:
        wanted = self.select
        spec = Spec(0, FORWARD, op, (), {}, None, None)
        if wanted["op"] is not None and not is_op(spec, wanted["op"]):
            return False
        if wanted["module"] is not None and not in_module(MODES.now.scope, wanted["module"]):
            return False
        if wanted["name"] is not None and name() != wanted["name"]:
            return False
        where = wanted["where"]
        return where is None or bool(where(Use(name(), op, args, attrs)))

    def __repr__(self) -> str:
        chosen = ", ".join(f"{k}={v!r}" for k, v in self.select.items() if v is not None)
        called = "" if self.function is None else getattr(self.function, "__name__", "function")
        return f"{self.kind}({', '.join(filter(None, (called, chosen)))})"


class Rules(Listener):
    """Edits for all that runs in a block; they may be added and taken back at any time.

    >>> import weft
    >>> rules = weft.graph.rules().replace("tanh", op="relu")
    >>> with rules:
    ...     y = weft.tensor([0.0, 2.0]).relu()
    >>> y
    tensor([0.0000, 0.9640])
    """

    def __init__(self) -> None:
        self._rules: tuple[_Rule, ...] = ()
        self._counts: Counter[str] = Counter()
        self._made: dict[int, tuple[Any, ...]] = {}
        self._inner: frozenset[str] = frozenset()
        self._named = False

    def _with(self, rule: _Rule) -> Rules:
        select = rule.select
        if rule.pattern is None and all(v is None for v in select.values()):
            raise GraphError(
                f"rules: {rule.kind} of what? Give op=, module=, name= or where="
                f"\n  at {errors.here()}"
            )
        self._rules = (*self._rules, rule)
        self._settle()
        return self

    def _settle(self) -> None:
        patterns = [r.pattern for r in self._rules if r.pattern is not None]
        self._inner = frozenset(name for p in patterns for name in p.inner)
        self._named = any(r.select.get("name") or r.select.get("where") for r in self._rules)

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
        self._rules = self._rules[:-1]
        self._settle()
        return self

    def clear(self) -> Rules:
        """Take back all rules."""
        self._rules = ()
        self._settle()
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
        self._counts.clear()
        self._made.clear()

    # --- acting ------------------------------------------------------------------------

    def went_back(self, work: Any, roots: Any) -> None:
        self._counts.clear()  # the next step counts its names anew

    def before(self, op: Op, args: Any, attrs: dict[str, Any]) -> Any:
        rules = self._rules
        if not rules or MODES.now.backward is not None:
            return None
        name = self._namer(op)
        call: Callable = lambda *given: apply(op, given, attrs)
        touched = False
        for rule in rules:
            if rule.pattern is not None:
                found = self._match(rule, op, args, attrs)
                if found is None:
                    continue
                call, args = rule.function, found  # type: ignore[assignment]
            elif rule.fits(op, name, args, attrs):
                call = self._wrapped(rule, call, op, attrs)
            else:
                continue
            rule.uses += 1
            touched = True
        if not touched:
            return None
        others = tuple(r for r in MODES.now.recorders if r is not self)
        with listening(*others):
            out = call(*args)
        return self._checked(out, op)

    def saw(self, op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
        if op.name in self._inner:
            # Kept while the result lives: the end of a pattern looks back along these.
            for k, t in enumerate(results):
                key = id(t._a)
                held = weakref.ref(t._a, lambda _, key=key: self._made.pop(key, None))
                self._made[key] = (held, (op, args, attrs, k))

    def _namer(self, op: Op) -> Callable[[], str]:
        if not self._named:
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

        def look(value: Any) -> Any:
            if value is start:
                return op, args, attrs, 0
            held = self._made.get(id(value._a)) if isinstance(value, Tensor) else None
            return held[1] if held is not None and held[0]() is value._a else None

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
            moved[rule.input] = function(moved[rule.input])
            return call(*moved)

        return changed

    @staticmethod
    def _checked(out: Any, op: Op) -> Any:
        right = isinstance(out, tuple) if op.multiple else isinstance(out, Tensor)
        if not right:
            wanted = f"{len(op.outputs)} tensors" if op.multiple else "a tensor"
            raise GraphError(
                f"a rule gave a {type(out).__name__} in the place of {op.name}, whose users need "
                f"{wanted}\n  at {errors.here()}"
            )
        return out


def rules() -> Rules:
    """Edits for every later step: ``with weft.graph.rules().replace("gelu", op="relu"): ...``"""
    return Rules()
