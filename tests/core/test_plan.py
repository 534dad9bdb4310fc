"""A plan keeps what the rules name, hands it to them, and its shortcuts say the same."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft.core import selection
from weft.core.dispatch import REGISTRY
from weft.core.plan import FIRST, NOTHING, RESULT, SECOND, SECOND_NUMBER, Plan, parameters
from weft.native.codegen import records

G, NEEDS = "the gradient", "the needs"


class Attributes(dict):
    """Attributes of an op of which each is its own name."""

    def __missing__(self, name: str) -> Any:
        return f"attribute {name}"


def noted(i: int, rule: Callable | None) -> Callable | None:
    """A rule with the same parameters that only says what it was given."""
    if rule is None:
        return None

    @functools.wraps(rule)
    def says(*args: Any) -> Any:
        return (i, *args)

    return says


def with_noted_rules(op: Any) -> Any:
    """An op like this one whose rules only say what they were given."""
    other = SimpleNamespace(**vars(op), plan_for=None)
    other.conj = lambda x: ("conj", x)
    other.joint = noted(0, op.joint)
    other.rules = op.rules and tuple(noted(i, rule) for i, rule in enumerate(op.rules))
    other.native_rules = {}
    return other


def kinds_of_ops() -> Iterator[Any]:
    """One op of each kind that plans can tell apart."""
    seen = set()
    for op in REGISTRY.values():
        if not op.differentiable:
            continue
        given = tuple(r and parameters(r) for r in (op.joint, *(op.rules or ())))
        flags = op.variadic, op.multiple, op.diagonal, op.single_use, op.wide_rules
        key = (given, op.names, op.outputs, flags)
        if key not in seen:
            seen.add(key)
            yield with_noted_rules(op)


def patterns(op: Any) -> Iterator[tuple[tuple[bool, ...], tuple[bool, ...]]]:
    """Which inputs need a gradient, and which are tensors and no numbers."""
    rules = [rule for rule in (op.joint, *(op.rules or ())) if rule is not None]
    only_tensors = any("shapes" in parameters(rule) for rule in rules)
    more = op.variadic or any("rest" in parameters(rule) for rule in rules)
    for count in (len(op.names), len(op.names) + 2) if more else (len(op.names),):
        yield (True,) * count, (True,) * count
        if op.joint is None:
            yield (False,) * count, (True,) * count
        if count > 1 and not only_tensors:
            yield (True, *(False,) * (count - 1)), (True, *(False,) * (count - 1))
            yield (*(False,) * (count - 1), True), (*(False,) * (count - 1), True)


class Use:
    """One use of an op: its inputs, outputs and version cells, and what each name stands for."""

    def __init__(self, op: Any, tensors: tuple[bool, ...]) -> None:
        self.x = [np.zeros((2, i), "f4") if t else float(i) for i, t in enumerate(tensors)]
        self.y = [np.zeros((3, k), "f8") for k, _ in enumerate(op.outputs)]
        self.v = [[100 + i] if t else None for i, t in enumerate(tensors)]
        self.w = [[1000 + k] for k, _ in enumerate(op.outputs)]
        first = len(op.names)
        self.values: dict[str, Any] = {"rest": tuple(self.x[first:])}
        self.values["shapes"] = tuple(getattr(a, "shape", ()) for a in self.x)
        self.cells = {"rest": [c for c in self.v[first:] if c is not None]}
        for name, x in zip(op.names, self.x, strict=False):
            self.values[f"{name}_shape"] = getattr(x, "shape", ())
            self.values[f"{name}_dtype"] = getattr(x, "dtype", None)
        for name, x, cell in zip(op.names, self.x, self.v, strict=False):
            self.values[name], self.cells[name] = x, [] if cell is None else [cell]
        for name, y, cell in zip(op.outputs, self.y, self.w, strict=True):
            if name not in op.names:
                self.values[name], self.cells[name] = y, [cell]

    def kept(self, names: tuple[str, ...]) -> tuple[Any, Any]:
        """The values of these names, and the guard of their version cells."""
        cells = [cell for name in names for cell in self.cells.get(name, ())]
        guard = (sum(cell[0] for cell in cells), *cells) if cells else None
        return tuple(self.values[name] for name in names), guard

    def by_recipe(self, recipe: bytes) -> tuple[Any, Any]:
        """The same as compiled code does it."""
        pairs = list(zip(recipe[2::2], recipe[3::2], strict=True))
        assert len(pairs) == recipe[0] + recipe[1]
        read: dict[int, Callable[[int], Any]] = {
            records.INPUT: lambda i: self.x[i],
            records.OUTPUT: lambda k: self.y[k],
            records.INPUT_SHAPE: lambda i: self.x[i].shape,
            records.INPUT_DTYPE: lambda i: self.x[i].dtype,
            records.SHAPES: lambda _: tuple(a.shape for a in self.x),
            records.REST: lambda first: tuple(self.x[first:]),
        }
        cells = [(self.v if kind == records.INPUT else self.w)[i] for kind, i in pairs[recipe[0] :]]
        guard = (sum(cell[0] for cell in cells), *cells) if cells else None
        return tuple(read[kind](i) for kind, i in pairs[: recipe[0]]), guard


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal, with arrays and cells being the very ones."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b if isinstance(a, (np.ndarray, list)) else type(a) is type(b) and a == b


CASES = [(op, *pattern) for op in kinds_of_ops() for pattern in patterns(op)]


def test_plans_keep_what_the_rules_name_and_hand_it_to_them() -> None:
    for op, needs, tensors in CASES:
        check_plan(op, needs, tensors, conj=False)
        if op.diagonal:
            check_plan(op, needs, tensors, conj=True)


def check_plan(op: Any, needs: tuple[bool, ...], tensors: tuple[bool, ...], conj: bool) -> None:
    plan, use = Plan(op, needs, tensors, conj), Use(op, tensors)
    rules = [(0, op.joint)] if op.joint else list(enumerate(op.rules))
    rules = [(i, r) for i, r in rules if r is not None and (op.joint or needs[i])]
    named = [n for _, rule in rules for n in parameters(rule) if n not in ("g", "t", "needs")]
    expected = tuple(dict.fromkeys(n for n in named if n in use.values))
    if not rules:
        # What several rules name is saved even if no gradient goes on, as in PyTorch.
        every = [n for rule in op.rules if rule is not None for n in parameters(rule)]
        expected = tuple(n for n in op.names if every.count(n) > 1)
    assert plan.slots == expected, op.name
    # Backward gives up values, not shapes; a number from the third operand on is a setting.
    settings = [n for i, n in enumerate(op.names) if i > 1 and not tensors[i]]
    given_up = {*op.names, *op.outputs, "rest"} - set(settings)
    assert plan.holds == (op.single_use or bool(given_up & set(plan.slots))), op.name
    assert plan.widens == (op.wide_rules and plan.holds)
    saved, guard = plan.pack(use.x, use.y, use.v, use.w)
    assert same((saved, guard), use.kept(plan.slots)), op.name
    assert plan.cells == (0 if guard is None else len(guard) - 1)
    check_shortcuts(plan, use, tensors)
    # What the rules are given.
    known = Attributes(use.values) | {"g": G, "t": G, "needs": NEEDS}
    adjoint = conj and op.diagonal

    def called(i: int, rule: Callable) -> Any:
        args = [known.get(n, f"attribute {n}") for n in parameters(rule)]
        if not adjoint:
            return (i, *args)
        return ("conj", (i, ("conj", G), *args[1:]))

    results = tuple(called(i, rule) for i, rule in rules)
    attrs = Attributes()
    assert same(plan.vjp(G, saved, attrs, NEEDS), results[0] if op.joint else results), op.name
    if op.joint:
        assert plan.targets == tuple(range(len(needs))) and plan.single == -1
        return
    assert plan.targets == tuple(i for i, _ in rules)
    if len(rules) == 1:
        assert plan.single == rules[0][0] and plan.simple == (not op.multiple)
        assert same(plan.vjp_single(G, saved, attrs), results[0])
        bare = not adjoint and parameters(rules[0][1])[1:] == plan.slots  # no attributes
        assert (plan.direct is not None) == (bare and len(saved) == 1), op.name
        if plan.direct is not None:
            assert same(plan.direct(G, saved[0]), results[0])
        # Loops take arrays and no shapes.
        values = all(n in (*op.names, *op.outputs) for n in plan.slots)
        loop = bare and values and op.diagonal and plan.simple and 0 < len(saved) < 3 and not conj
        assert (plan.entry is not None) == (loop and selection.enabled()), op.name
    else:
        assert plan.entry is None
        assert plan.single == -1 and not plan.simple and plan.direct is None


def check_shortcuts(plan: Plan, use: Use, tensors: tuple[bool, ...]) -> None:
    """The other descriptions of what is saved are true."""
    packed = plan.pack(use.x, use.y, use.v, use.w)
    if plan.recipe is not None:
        assert same(use.by_recipe(plan.recipe), packed), plan.op.name
    elif all(tensors) and not (plan.op.variadic and any("_" in slot for slot in plan.slots)):
        raise AssertionError(f"{plan.op.name} has no recipe, so compiled code can't record it")
    x, v = [*use.x, None, None][:2], [*use.v, None, None][:2]
    if plan.pack_short is not None:
        assert same(plan.pack_short(*x, use.y[0], *v, use.w[0]), packed), plan.op.name
    else:
        assert len(plan.op.names) > 2 or len(plan.op.outputs) > 1 or "rest" in plan.slots or (
            "shapes" in plan.slots
        )  # fmt: skip
    first, second = ((a, (c and c[0], c)) for a, c in zip(x, v, strict=True))
    usual: dict[int, Any] = {
        NOTHING: ((), None),
        FIRST: ((first[0],), first[1]),
        SECOND: ((second[0],), second[1]),
        SECOND_NUMBER: ((second[0],), None),
        RESULT: ((use.y[0],), (use.w[0][0], use.w[0])),
    }
    if plan.quick in usual:
        assert same(usual[plan.quick], packed), plan.op.name
    elif len(plan.slots) == 1 and len(plan.op.names) < 3 and len(plan.op.outputs) == 1:
        assert not any(same(u, packed) for u in usual.values() if u[1] is not None), plan.op.name


# ------------------------------------------------------------------ a plan of an op made up here


def made_up(*rules: Callable | None, **other: Any) -> Any:
    """An op of two inputs with these rules, of which native code can be offered."""
    op: dict[str, Any] = {
        "name": "made_up", "names": ("a", "b"), "outputs": ("y",), "rules": rules, "joint": None,
        "multiple": False, "variadic": False, "diagonal": False, "single_use": False,
        "wide_rules": False, "native_rules": {}, "conj": np.conj, "limit": 1, "exact": 0,
        "loops": {}, "shared_loops": {},
    }  # fmt: skip
    return SimpleNamespace(**(op | other))


BOTH = (True, True)
VALUES = (np.full(3, 2.0), np.full(3, 5.0))


@pytest.fixture
def kernels_wanted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether native code is for these arrays, as the test says it."""
    wanted = [True]
    monkeypatch.setattr(selection, "wanted", lambda op, args: wanted[0])
    return wanted


def test_a_kernel_may_decline_what_its_rule_then_does(kernels_wanted: list[bool]) -> None:
    calls = []

    def for_a(g: Any, b: Any) -> Any:
        calls.append("a")
        return ("rule a", g, b)

    def for_b(g: Any, a: Any) -> Any:
        calls.append("b")
        return ("rule b", g, a)

    kernels = {0: lambda g, b: None, 1: lambda g, a: ("kernel b", g, a)}
    plan = Plan(made_up(for_a, for_b, native_rules=kernels), BOTH, BOTH, False)
    saved, _ = plan.pack(VALUES, (None,), ([0], [0]), ([0],))
    assert plan.large is not None
    first, second = plan.large(G, saved, {}, None)
    assert first == ("rule a", G, VALUES[1]) and second == ("kernel b", G, VALUES[0])
    kernels[1] = lambda g, a: None
    calls.clear()
    plan = Plan(made_up(for_a, for_b, native_rules=kernels), BOTH, BOTH, False)
    assert [r[0] for r in plan.large(G, saved, {}, None)] == ["rule a", "rule b"]
    assert calls == ["a", "b"]  # all rules at once, not once for each kernel that declines
    kernels_wanted[0] = False
    kernels[0] = kernels[1] = lambda **given: pytest.fail("not wanted")
    plan = Plan(made_up(for_a, for_b, native_rules=kernels), BOTH, BOTH, False)
    assert [r[0] for r in plan.large(G, saved, {}, None)] == ["rule a", "rule b"]


def test_a_kernel_of_a_joint_rule_may_decline_too(kernels_wanted: list[bool]) -> None:
    def joint(g: Any, a: Any, scale: Any, needs: Any) -> Any:
        return ("rule", g, a, scale, needs)

    answers = [("kernel",), None]
    given = []

    def kernel(**arguments: Any) -> Any:
        given.append(arguments)
        return answers[len(given) - 1]

    plan = Plan(made_up(joint=joint, native_rules={0: kernel}), BOTH, BOTH, False)
    saved, _ = plan.pack(VALUES, (None,), ([0], [0]), ([0],))
    assert plan.large is not None
    rule = ("rule", G, VALUES[0], 3, BOTH)
    assert plan.large(G, saved, {"scale": 3}, BOTH) == ("kernel",)
    assert plan.large(G, saved, {"scale": 3}, BOTH) == rule
    assert given == [{"g": G, "a": VALUES[0], "scale": 3, "needs": BOTH}] * 2
    kernels_wanted[0] = False
    assert plan.large(G, saved, {"scale": 3}, BOTH) == rule and len(given) == 2


@pytest.mark.parametrize("variadic", [False, True])
def test_numbers_have_no_shape_and_no_dtype(variadic: bool) -> None:
    def says(g: Any, a_dtype: Any, b_dtype: Any, a_shape: Any, b_shape: Any) -> Any:
        return a_dtype, b_dtype, a_shape, b_shape

    plan = Plan(made_up(says, variadic=variadic), (True,), (True, False), False)
    saved, guard = plan.pack((VALUES[0], 2.0), (None,), ([0], None), ([0],))
    assert guard is None
    assert plan.vjp(G, saved, {}, None) == ((VALUES[0].dtype, None, (3,), ()),)


def test_no_native_code_means_no_large_way() -> None:
    plain = made_up(lambda g, b: g, lambda g, a: g)
    assert Plan(plain, BOTH, BOTH, False).large is None
    # Shapes are no operands of a loop.
    shapes = made_up(lambda g, a_shape: g, None, diagonal=True)
    assert Plan(shapes, BOTH, BOTH, False).large is None
    assert Plan(shapes, BOTH, BOTH, False).entry is None
    # A kernel for another rule is none for this one, and complex rules go by conjugates.
    one = made_up(lambda g: g, lambda g: g, native_rules={1: lambda g: g})
    assert Plan(one, (True, False), BOTH, False).large is None
    assert Plan(one, (False, True), BOTH, False).large is not None
    assert Plan(one, (False, True), BOTH, True).large is None


# ------------------------------------------------------------------ what a program sees of it


@pytest.mark.parametrize("name, attrs", [
    ("leaky_relu", {"negative_slope": 0.3}), ("elu", {"alpha": 0.7}), ("celu", {"alpha": 0.7}),
    ("softplus", {"beta": 2.0}), ("hardtanh", {"min_val": -0.5, "max_val": 0.25}), ("silu", {}),
])  # fmt: skip
def test_gradients_of_large_arrays_heed_attributes(name: str, attrs: dict[str, float]) -> None:
    function = getattr(weft.nn.functional, name)
    small = weft.tensor([-1.5, -0.4, 0.2, 3.0], requires_grad=True)
    large = small.detach().repeat(selection.LARGE).requires_grad_()
    (expected,) = weft.autograd.grad(function(small, **attrs).sum(), small)
    (found,) = weft.autograd.grad(function(large, **attrs).sum(), large)
    assert weft.allclose(found.view(-1, 4), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "function",
    [lambda a: a * weft.ones(3), lambda a: a**3.0, lambda a: a.exp(), lambda a: a.lerp(a, a)],
)
def test_backward_twice_is_an_error_where_values_were_kept(function: Callable) -> None:
    y = function(weft.ones(3, requires_grad=True)).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


@pytest.mark.parametrize(
    "function",
    [lambda a: a + 1, lambda a: a.sum(), lambda a: a.expand(2, 3), lambda a: a.lerp(a, 0.5)],
)
def test_backward_twice_works_where_only_shapes_were(function: Callable) -> None:
    a = weft.ones(3, requires_grad=True)
    y = function(a).sum()
    (once,) = weft.autograd.grad(y, a)
    assert (weft.autograd.grad(y, a)[0] == once).all()


def test_operands_that_no_rule_names_are_not_kept_alive() -> None:
    a = weft.ones(3, requires_grad=True)
    for function, alive in ((lambda b: a * b, True), (lambda b: a + b, False)):
        b = weft.ones(3)
        memory = weakref.ref(b._a)
        y = function(b)
        del b
        assert (memory() is not None) == alive
        y.sum().backward()
    assert memory() is None
