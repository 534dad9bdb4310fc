"""Which values an op call saves for backward, and how its derivative rules get them.

A rule is an ordinary function; the names of its parameters say what it needs: ``g`` (or ``t``) the
gradient or tangent, an input's name its value, ``y`` (or an output's name) a result,
``<input>_shape`` and ``<input>_dtype`` an input's shape and dtype, anything else an attribute of
the op; ``rest`` is the tuple of inputs beyond those with names, ``shapes`` those of all inputs.
Only values that some needed rule names are kept alive.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.core import selection
from weft.core.errors import ROOT
from weft.native.codegen import records

if TYPE_CHECKING:
    from weft.core.dispatch import Op

LINEAR_ARGUMENTS = ("g", "t")

# What a plan of an op with one or two inputs and one output saves, as ``Plan.quick`` says it.
NOTHING, FIRST, SECOND, SECOND_NUMBER, RESULT, SEVERAL = range(6)


def parameters(rule: Callable) -> tuple[str, ...]:
    """The names of a rule's parameters."""
    return tuple(inspect.signature(rule).parameters)


def shape_of(value: Any) -> tuple[int, ...]:
    return getattr(value, "shape", ())


def dtype_of(value: Any) -> Any:
    return getattr(value, "dtype", None)


def _made(source: str, scope: dict[str, Any]) -> Any:
    """A function from its source, marked as weft's own code rather than the user's."""
    return eval(compile(source, f"{ROOT}core/<rules>", "eval"), scope)


class Plan:
    """The values that an op saves and the rules that it calls, for one pattern of inputs that need
    gradients.

    ``pack(x, y, v, w)`` takes the inputs, the outputs and their version cells, and gives the saved
    values with a guard: the sum of the cells' versions, then the cells. Versions only grow, so an
    equal sum means that no saved value has been overwritten. ``pack_short(x0, x1, y0, v0, v1, w0)``
    is the same for ops of one or two inputs. ``vjp(g, s, at, needs)`` gives a gradient for each
    input in ``targets``; where that is one input, ``single`` is its number and ``vjp_single`` gives
    its gradient bare; ``direct`` is the bare rule itself if it takes just the gradient and one
    saved value, and ``entry`` its native entry point for small arrays if it takes the gradient and
    all saved values. A plan is ``simple`` if it maps one gradient to one gradient. ``large`` does
    what ``vjp`` does by native code where arrays are large; ``natives`` is that code rule by rule,
    with None where there is none.
    """

    __slots__ = (
        *("cells", "direct", "holds", "joint", "large", "natives", "op", "pack", "pack_short"),
        *("quick",),
        *("recipe", "widens"),
        *("simple", "single", "slots", "targets", "_pattern", "_traced"),
        *("vjp", "vjp_single", "entry"),
    )

    def __init__(self, op: Op, needs: tuple[bool, ...], tensors: tuple[bool, ...], conj: bool):
        self.op = op
        self._pattern = sum(1 << i for i, x in enumerate(tensors) if x), len(tensors), conj
        self.joint = op.joint is not None
        if op.joint is not None:
            rules = {0: op.joint}
            self.targets = tuple(range(len(needs)))
        else:
            # An input without a rule gets no gradient; that is the op's choice, not an error.
            given = enumerate(op.rules or ())
            rules = {i: rule for i, rule in given if rule is not None and needs[i]}
            self.targets = tuple(rules)
        self.slots = self._slots(rules)
        # Whether anything is saved that backward releases (shapes don't count). A number beside a
        # tensor counts, as in PyTorch; one behind two operands is a setting.
        count = len(tensors)
        operands = [n for i, n in enumerate(op.names) if i < 2 or (i < count and tensors[i])]
        held = (*operands, *op.outputs, "rest")
        self.holds = op.single_use or any(slot in held for slot in self.slots)
        self.widens = op.wide_rules and self.holds
        self.pack = self._make_pack(tensors)
        self.recipe = self._recipe(tensors)
        self.quick = self._quick(tensors)
        calls, scope = self._calls(rules, conj)
        self.single = self.targets[0] if len(self.targets) == 1 and not self.joint else -1
        self.vjp_single = _made(f"lambda g, s, at: {calls[0]}", scope) if calls else None
        self.simple = self.single >= 0 and not op.multiple
        self.direct = None
        if self.single >= 0 and not (conj and op.diagonal):
            rule = rules[self.single]
            if len(self.slots) == 1 and parameters(rule)[1:] == self.slots:
                self.direct = rule
        body = calls[0] if self.joint else f"({', '.join(calls)},)" if calls else "()"
        self.vjp = _made(f"lambda g, s, at, needs: {body}", scope)
        self.large = self._large(rules, conj)
        self._traced = None
        if self.simple and op.diagonal and not conj and 0 < len(self.slots) < 3:
            rule = rules[self.single]
            if parameters(rule)[1:] == self.slots and self._holds_arrays():
                self._traced = rule
        self.open_entry()

    def part(self, targets: tuple[int, ...], saved: Any) -> tuple[Plan, tuple[Any, ...]]:
        """The plan for some of the targets, and those of the saved values that it reads.

        So gradients that were not requested are not computed, and rules that would raise are not
        called.
        """
        plan = self.op.plan_for(sum(1 << i for i in targets), *self._pattern)
        return plan, tuple(saved[self.slots.index(slot)] for slot in plan.slots)

    def open_entry(self) -> None:
        """Enable or disable native code for small arrays."""
        self.entry = None
        if self._traced is not None and selection.enabled():
            self.entry = selection.LazyEntry(self, "entry", lambda args: self._loop().entry(args))

    def over(self, g: Any, saved: Any) -> bool:
        """Write the outgoing gradient over the incoming one; False if it can't."""
        return self._traced is not None and selection.ready() and self._loop().into(g, *saved)

    def _loop(self) -> Any:
        assert self._traced is not None
        return selection.loop_for(self.op, f"_{self.single}", self._traced, selection.NOTHING)

    def _holds_arrays(self) -> bool:
        """Whether only values are saved, no shapes."""
        return all(slot in (*self.op.names, *self.op.outputs) for slot in self.slots)

    def _large(self, rules: dict[int, Callable], conj: bool) -> Callable | None:
        """What ``vjp`` does, for large arrays in a plain backward: native code where there is."""
        op, plain = self.op, self.vjp
        self.natives: list[Callable | None] = []
        if conj or not rules or not (op.diagonal or op.native_rules):
            return None
        natives = self.natives = [self._native(i, rule) for i, rule in rules.items()]
        if all(native is None for native in natives):
            return None
        if self.joint:
            whole = natives[0]
            assert whole is not None

            def joint(g: Any, s: Any, at: Any, needs: Any) -> Any:
                wanted = selection.wanted(op, (*g, *s) if g.__class__ is tuple else (g, *s))
                out = whole(g, s, at, needs) if wanted else None
                return plain(g, s, at, needs) if out is None else out

            return joint

        def each(g: Any, s: Any, at: Any, needs: Any) -> Any:
            if not selection.wanted(op, (g, *s)):
                return plain(g, s, at, needs)
            results, rest = [], None
            for k, native in enumerate(natives):
                out = None if native is None else native(g, s, at, needs)
                if out is None:
                    rest = plain(g, s, at, needs) if rest is None else rest
                    out = rest[k]
                results.append(out)
            return results

        return each

    def _native(self, i: int, rule: Callable) -> Callable | None:
        """Native code for one rule: a kernel that was offered, or a loop traced from it."""
        op, names = self.op, parameters(rule)
        kernel = op.native_rules.get(i)
        if kernel is not None:
            given = ", ".join(f"{n}={self._argument(n)}" for n in names)
            return _made(f"lambda g, s, at, needs: kernel({given})", {"kernel": kernel})
        if not op.diagonal:
            return None
        own = tuple(n for n in names[1:] if n not in self.slots)
        places = tuple(self.slots.index(n) for n in names[1:] if n in self.slots)
        if any(self.slots[p] not in (*op.names, *op.outputs) for p in places):
            return None  # it needs shapes
        suffix = f"_{i}"

        def traced(g: Any, s: Any, at: Any, needs: Any) -> Any:
            attrs = {k: at[k] for k in own} if own else at if not at else {}
            loop = selection.loop_for(op, suffix, rule, attrs)
            return loop(g, *[s[p] for p in places])

        return traced

    def _quick(self, tensors: tuple[bool, ...]) -> int:
        """Which of the usual things is saved, for the short path: see the constants above."""
        if not self.slots:
            return NOTHING
        if len(self.slots) > 1:
            return SEVERAL
        only, names = self.slots[0], self.op.names
        if only in self.op.outputs:
            return RESULT
        if names and only == names[0] and tensors[0]:
            return FIRST
        if len(names) == 2 and only == names[1]:
            return SECOND if tensors[1] else SECOND_NUMBER
        return SEVERAL

    def _slots(self, rules: dict[int, Callable]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for rule in rules.values():
            for name in parameters(rule):
                if name not in LINEAR_ARGUMENTS and name != "needs" and self._is_saved(name):
                    found[name] = None
        return tuple(found) if rules else self._shared()

    def _shared(self) -> tuple[str, ...]:
        """The values saved where no gradient flows on, as from a view made without recording.

        PyTorch then omits values that only one rule names, and saves the operands of several.
        """
        named = [n for rule in self.op.rules or () if rule is not None for n in parameters(rule)]
        return tuple(n for n in self.op.names if named.count(n) > 1)

    def _is_saved(self, name: str) -> bool:
        op = self.op
        base = name.removesuffix("_shape").removesuffix("_dtype")
        return (
            name in op.names or name in op.outputs or base in op.names or name in ("shapes", "rest")
        )

    def _make_pack(self, tensors: tuple[bool, ...]) -> Callable:
        op, values, cells = self.op, [], []
        for name in self.slots:
            if name in op.names:
                i = op.names.index(name)
                values.append(f"x[{i}]")
                if i < len(tensors) and tensors[i]:
                    cells.append(f"v[{i}]")
            elif name in op.outputs:
                k = op.outputs.index(name)
                values.append(f"y[{k}]")
                cells.append(f"w[{k}]")
            elif name == "shapes":
                values.append("tuple(a.shape for a in x)")
            elif name == "rest":
                first = len(op.names)
                values.append(f"tuple(x[{first}:])")
                cells += [f"v[{i}]" for i, tensor in enumerate(tensors) if tensor and i >= first]
            else:
                kind = name.rpartition("_")[2]
                i = op.names.index(name.removesuffix("_shape").removesuffix("_dtype"))
                array = not op.variadic and i < len(tensors) and tensors[i]
                values.append(f"x[{i}].{kind}" if array else f"{kind}_of(x[{i}])")
        saved = f"({', '.join(values)},)" if values else "()"
        self.cells = len(cells)
        total = " + ".join(f"{c}[0]" for c in cells)
        guard = f"({total}, {', '.join(cells)})" if cells else "None"
        self.pack_short = None
        if len(op.names) <= 2 and len(op.outputs) == 1 and "tuple(" not in saved:
            flat = re.sub(r"([xyvw])\[([01])\](?!\d)", r"\1\2", f"({saved}, {guard})")
            self.pack_short = _made(f"lambda x0, x1, y0, v0, v1, w0: {flat}", _HELPERS)
        return _made(f"lambda x, y, v, w: ({saved}, {guard})", _HELPERS)

    def _recipe(self, tensors: tuple[bool, ...]) -> bytes | None:
        """What ``pack`` does, for compiled code: see ``weft.native.codegen.records``.

        How many values and how many cells, then of each what it is and of which input or output.
        """
        op, values, cells = self.op, list[int](), list[int]()
        for name in self.slots:
            if name == "shapes" and all(tensors):
                values += (records.SHAPES, 0)
                continue
            if name == "rest":
                first = len(op.names)
                if first > len(tensors):
                    return None
                values += (records.REST, first)
                for i in range(first, len(tensors)):
                    cells += (records.INPUT, i) if tensors[i] else ()
                continue
            if name in op.outputs:
                k = op.outputs.index(name)
                values += (records.OUTPUT, k)
                cells += (records.OUTPUT, k)
                continue
            shape, dtype = name.endswith("_shape"), name.endswith("_dtype")
            own = name in op.names or not (shape or dtype)
            base = name if own else name.removesuffix("_shape").removesuffix("_dtype")
            i = op.names.index(base) if base in op.names else len(tensors)
            if i >= len(tensors):
                return None
            if own:
                values += (records.INPUT, i)
                cells += (records.INPUT, i) if tensors[i] else ()
            elif tensors[i] and not op.variadic:
                values += (records.INPUT_SHAPE if shape else records.INPUT_DTYPE, i)
            else:
                return None
        counts = len(values) // 2, len(cells) // 2
        return bytes((*counts, *values, *cells)) if max(counts, default=0) < 256 else None

    def _calls(self, rules: dict[int, Callable], conj: bool) -> tuple[list[str], dict[str, Any]]:
        scope: dict[str, Any] = dict(_HELPERS)
        calls = []
        for i, rule in rules.items():
            scope[f"rule{i}"] = rule
            arguments = [self._argument(name) for name in parameters(rule)]
            if conj and self.op.diagonal:
                # A diagonal map's adjoint is itself between two conjugations.
                arguments[0] = "conj(g)"
                scope["conj"] = self.op.conj
                calls.append(f"conj(rule{i}({', '.join(arguments)}))")
            else:
                calls.append(f"rule{i}({', '.join(arguments)})")
        return calls, scope

    def _argument(self, name: str) -> str:
        if name in LINEAR_ARGUMENTS:
            return "g"
        if name == "needs":
            return "needs"
        if name in self.slots:
            return f"s[{self.slots.index(name)}]"
        return f"at[{name!r}]"


_HELPERS: dict[str, Any] = {"shape_of": shape_of, "dtype_of": dtype_of, "tuple": tuple}
