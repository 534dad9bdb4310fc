"""Calls that are confirmed as a whole: what a function would do then, has happened.

The changes that are tried between two calls are those that a comparison is there for: left out, one
of these tests gives another result than eager mode.
"""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as torch
import weft.nn.functional as F
from weft import nn
from weft.autograd import engine
from weft.compiler import native_calls, whole_calls, whole_modules
from weft.compiler.following import Region
from weft.compiler.trace import walk
from weft.core import dispatch, inplace, short
from weft.core.errors import describe_position
from weft.core.modes import MODES
from weft.core.pending import region_of
from weft.core.tensor import Tensor

needs_modules = pytest.mark.skipif(
    not whole_modules.are_compared(), reason="this Python has no numbers of a module's states"
)
pytestmark = pytest.mark.skipif(
    whole_calls.compiled() is None, reason="no hook for this version of Python"
)


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the ops that functions call while a region listens."""
    called: list[str] = []

    def noting(function: Callable) -> Callable:
        def run(op: Any, args: Any, attrs: Any) -> Any:
            called.append(op.name)
            return function(op, args, attrs)

        return run

    special = noting(dispatch._apply_special)
    for name, module in list(sys.modules.items()):
        if name.startswith("weft.") and getattr(module, "_apply_special", None) is not None:
            monkeypatch.setattr(module, "_apply_special", special)
    changing = noting(inplace.apply_inplace)
    for name, module in list(sys.modules.items()):
        if name.startswith("weft.") and hasattr(module, "apply_inplace"):
            monkeypatch.setattr(module, "apply_inplace", changing)
    return called


def points(compiled: Any) -> list[Any]:
    return [p for root in compiled.learned.roots.values() for p in walk(root)]


def known(compiled: Any) -> list[str]:
    """The functions whose calls can be confirmed."""
    return [own[native_calls.CODE].co_name for p in points(compiled) for own in p.whole]


def agree(function: Callable, *calls: tuple[Any, ...]) -> Any:
    """Compare a compiled function with itself, call by call."""
    compiled = torch.compile(function)
    for args in calls:
        expected, found = function(*args), compiled(*args)
        assert torch.allclose(found, expected, rtol=1e-6, atol=0), args
    return compiled


def test_a_function_that_is_confirmed_does_not_run(ops: list[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    x, target = torch.randn(3, 4), torch.randn(3, 2)

    @torch.compile
    def step(x: Any) -> Any:
        y = model(x)
        first, second = torch.stack([y, y * 2]).unbind(0)
        return F.mse_loss(first + second.max(1, keepdim=True).values, target).clone()

    expected = step.function(x)
    for _ in range(3):
        step(x)
    ops.clear()
    found = step(x)
    assert ops == []
    assert torch.allclose(found, expected)
    step(torch.randn(3, 4))
    assert ops == [], "another tensor of the same kind is the same leaf"


@pytest.mark.parametrize("seed", range(12))
def test_whatever_changes_is_noticed(seed: int) -> None:
    torch.manual_seed(seed)
    chosen = random.Random(seed)
    pool = [torch.randn(3, 3, requires_grad=k % 2 == 0) for k in range(4)]
    pool.append(pool[0].detach())  # another tensor on the same array
    pool.append(torch.from_numpy(np.random.default_rng(seed).normal(size=(3, 3)).astype("f4")))

    def program(a: Any, b: Any, number: Any, dim: int, swapped: bool, recorded: bool) -> Any:
        with torch.set_grad_enabled(recorded):
            x = F.layer_norm(a * b + number, (3,)).view(-1, 3)
            y = torch.cat([b if swapped else a, x], dim)
            first, second = y.split([1, y.shape[dim] - 1], dim)
            z = F.linear(x, a, b[0]) + x[:, dim].unsqueeze(0) + y.max(dim).values.sum()
            z = z.transpose(0, 1).contiguous()
            if not recorded:
                z.mul_(number).add_(b, alpha=2)
                z.index_copy_(0, torch.tensor([1]), a[:1])
            return first.sum(dim).sum() + z.sum(dim) + second.sum() + b

    compiled = torch.compile(program)
    usual = (pool[0], pool[1], 2.0, 0, False, True)
    for k in range(60):
        args = list(usual)
        if k > 4 and chosen.random() < 0.5:
            other = (chosen.choice(pool), chosen.choice(pool), chosen.choice([2.0, 3.0, 3]))
            other = (*other, chosen.randrange(2), *(chosen.random() < 0.5 for _ in range(2)))
            place = chosen.randrange(6)
            args[place] = other[place]
        if k > 4 and chosen.random() < 0.2:
            p = chosen.choice(pool)
            change = chosen.choice(("memory", "let out", "requires", "write"))
            if change == "memory":
                p.data = torch.randn(3, 3)
            elif change == "let out":
                p.detach().numpy()
            elif change == "write":
                with torch.no_grad():
                    p.add_(1)
            elif p.is_leaf:
                p.requires_grad_(not p.requires_grad)
        expected, found = program(*args), compiled(*args)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)
        assert found.requires_grad == expected.requires_grad
    assert len(known(compiled)) > 10


def test_numbers_and_settings_are_compared_by_class_and_value(ops: list[str]) -> None:
    x = torch.randn(6)
    calls = [(x, n) for n in (2.0, 2.0, 2.0, 2.0, 3.0, 2, True, 2.0, 0.0, -0.0, float("nan"), 2.0)]
    compiled = torch.compile(lambda x, n: torch.copysign(x.abs(), x) * n + torch.full_like(x, n))
    for x, n in calls:
        found, expected = compiled(x, n), compiled.function(x, n)
        assert torch.equal(found, expected) or n != n
        assert torch.equal(torch.signbit(found), torch.signbit(expected))
    agree(lambda x, *size: x.view(*size) * 1, *[(x, 2, 3)] * 4, (x, 3, 2), (x, 2, 3), (x, -1))
    agree(lambda x, k: x[k] * 1, *[(x, slice(0, 2))] * 4, (x, slice(0, 3)), (x, slice(1, 3)))
    agree(lambda x, k: x[k] * 1, *[(x, 1)] * 4, (x, 2), (x, True), (x, None))


def test_lists_of_tensors_are_compared_item_by_item() -> None:
    a, b, c = (torch.randn(2) for _ in range(3))
    calls = [[a, b]] * 4 + [[b, a], [a], [a, a], [a, b, c], (a, b), [a, c]]
    agree(lambda parts: torch.cat(parts) * 2, *((parts,) for parts in calls))
    whole = agree(lambda a, b: torch.cat([a * 2, b, a]) + 1, *[(a, b)] * 4, (a, a), (b, a))
    assert "cat" in known(whole)


def test_a_result_that_is_another_one_is_noticed() -> None:
    x = torch.randn(3)
    agree(
        lambda x, first: (lambda a, b: F.relu(a if first else b))(x.exp(), x.sin()),
        *[(x, True)] * 4, (x, False), (x, True), (x, False),
    )  # fmt: skip


def test_a_tensor_given_twice_is_not_two_tensors() -> None:
    a, b = torch.randn(3), torch.randn(3)
    agree(torch.atan2, *[(a, b)] * 4, (a, a), (b, b), (b, a), (a, b))
    agree(torch.atan2, *[(a, a)] * 4, (a, b), (b, b))


def test_a_patched_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)
    compiled = torch.compile(lambda: layer(x).relu() * 2)
    for _ in range(4):
        compiled()
    with monkeypatch.context() as patch:
        patch.setattr(F, "linear", lambda input, weight, bias=None: input + 1)
        assert torch.equal(compiled(), (x + 1).relu() * 2)
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "relu", lambda self: self - 1)
        assert torch.allclose(compiled(), (layer(x) - 1) * 2)
    assert torch.allclose(compiled(), layer(x).relu() * 2)
    layer.forward = lambda input: input * 3
    assert torch.equal(compiled(), (x * 3).relu() * 2)


def test_modules_may_change() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU())
    x, seen = torch.randn(2, 3), []
    compiled = torch.compile(lambda: model(x) * 1)

    def check() -> None:
        for _ in range(4):
            state = torch.get_rng_state()
            expected = model(x) * 1
            torch.set_rng_state(state)
            count = len(seen)
            assert torch.allclose(compiled(), expected)
            assert len(seen) - count in (0, 1)

    check()
    model.eval()
    check()
    model[0].weight = nn.Parameter(torch.randn(3, 3))
    check()
    model[2] = nn.Tanh()
    check()
    handle = model[0].register_forward_hook(lambda m, args, out: seen.append(1) or out * 2)
    check()
    assert len(seen) == 8
    handle.remove()
    check()
    model[0].bias = None
    check()
    with torch.no_grad():
        check()


@needs_modules
def test_a_module_that_is_confirmed_does_not_run() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.GELU(), nn.Linear(4, 3)), nn.Tanh())
    x = torch.randn(2, 3)

    class User(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.runs, self.layer = 0, nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            self.runs += 1
            return self.layer(x) + 1

    user = User()
    compiled = torch.compile(lambda x: user(model(x)) * 2)
    for _ in range(6):
        assert torch.allclose(compiled(x), user(model(x)) * 2)
    assert user.runs == 12
    forwards = [own for p in points(compiled) for own in p.whole if own[native_calls.MODULE]]
    found = sorted(own[native_calls.CODE].co_qualname for own in forwards)
    assert found == ["Module.__call__", "Module.__call__"]


class Changes:
    """What programs do to modules between two calls."""

    def __init__(self, model: Any, chosen: random.Random) -> None:
        self.model, self.chosen = model, chosen
        self.undo: list[Callable] = []

    def make(self, name: str) -> str:
        getattr(self, name)(self.chosen.choice(self.linears()))
        return name

    def linears(self) -> list[Any]:
        return [m for m in self.model.modules() if type(m) in (nn.Linear, Twice)]

    def patched(self, owner: Any, name: str, value: Any) -> None:
        missing = name not in vars(owner)
        before = None if missing else vars(owner)[name]
        setattr(owner, name, value)
        self.undo.append(lambda: delattr(owner, name) if missing else setattr(owner, name, before))

    def to_parameter(self, layer: Any) -> None:
        layer.weight = nn.Parameter(torch.randn(3, 3))

    def to_table(self, layer: Any) -> None:
        layer._parameters["bias"] = self.chosen.choice([None, nn.Parameter(torch.randn(3))])

    def to_data(self, layer: Any) -> None:
        layer.weight.data = torch.randn(3, 3)

    def to_tied(self, layer: Any) -> None:
        layer.weight = self.chosen.choice(self.linears()).weight

    def to_part(self, layer: Any) -> None:
        inner = self.model[1]
        inner[self.chosen.randrange(len(inner))] = nn.Linear(3, 3)

    def to_longer(self, layer: Any) -> None:
        self.model[1].append(nn.Linear(3, 3)) if len(self.model[1]) < 4 else self.model[1].pop(0)

    def to_forward(self, layer: Any) -> None:
        self.patched(layer, "forward", lambda input: input * 3)

    def to_class(self, layer: Any) -> None:
        self.patched(nn.Linear, "forward", lambda self, input: F.linear(input, self.weight) - 1)

    def to_base(self, layer: Any) -> None:
        call = nn.Module.__call__
        self.patched(nn.Module, "__call__", lambda self, *args: call(self, *args) + 1)

    def to_other_class(self, layer: Any) -> None:
        layer.__class__ = Twice if type(layer) is nn.Linear else nn.Linear

    def to_function(self, layer: Any) -> None:
        before = F.linear
        self.patched(F, "linear", lambda *args: before(*args) * 0.5)

    def to_attributes(self, layer: Any) -> None:
        layer.__dict__ = {**layer.__dict__, "_parameters": dict(nn.Linear(3, 3)._parameters)}

    def to_hook(self, layer: Any) -> None:
        self.undo.append(layer.register_forward_hook(lambda m, args, out: out - 2).remove)

    def to_hook_around_all(self, layer: Any) -> None:
        register = self.chosen.choice(
            [
                lambda: self.model.register_forward_hook(lambda m, args, out: out * 2),
                lambda: self.model.register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
            ]
        )
        self.undo.append(register().remove)

    def to_global_hook(self, layer: Any) -> None:
        register = nn.modules.module.register_module_forward_hook
        self.undo.append(register(lambda m, args, out: out + 1).remove)

    def to_setting(self, layer: Any) -> None:
        self.model[2].negative_slope = self.chosen.random()

    def to_training(self, layer: Any) -> None:
        self.model.train(not self.model.training)

    def to_parametrized(self, layer: Any) -> None:
        if type(layer) is nn.Linear:
            nn.utils.parametrize.register_parametrization(layer, "weight", Doubled())
            remove = nn.utils.parametrize.remove_parametrizations
            self.undo.append(lambda: remove(layer, "weight"))

    def to_frozen(self, layer: Any) -> None:
        layer.weight.requires_grad_(not layer.weight.requires_grad)


class Twice(nn.Linear):
    def forward(self, input: Any) -> Any:
        return super().forward(input) * 2


class Doubled(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


CHANGES = [name for name in vars(Changes) if name.startswith("to_")]


def layers() -> Any:
    inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    return nn.Sequential(nn.Linear(3, 3), inner, nn.LeakyReLU(0.1), nn.Linear(3, 3))


@pytest.mark.parametrize("way", ("forward", "whole", "part"))
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_module_is_noticed(name: str, way: str) -> None:
    torch.manual_seed(1)
    model, x = layers(), torch.randn(2, 3)
    owner = nn.ModuleList([model] * (way == "part"))
    changes = Changes(model, random.Random(0))
    run = lambda: (model.forward(x) if way == "forward" else model(x)) * 1
    compiled = torch.compile(run)
    for _ in range(4):
        compiled()
    name_of = "forward" if way == "forward" else "__call__"
    assert not whole_modules.are_compared() or name_of in known(compiled)
    changes.make(name)
    try:
        found = [compiled() for _ in range(3)]
        assert all(torch.allclose(y, run()) for y in found)
    finally:
        for undo in changes.undo:
            undo()
    assert torch.allclose(compiled(), run())
    assert len(owner) == (way == "part")


@pytest.mark.parametrize("seed", range(10))
def test_whatever_changes_in_a_module_is_noticed(seed: int) -> None:
    torch.manual_seed(seed)
    chosen = random.Random(seed)
    model = layers()
    owner = nn.ModuleList([model] * (seed % 3 == 0))
    changes, x = Changes(model, chosen), torch.randn(2, 3)
    run = lambda: (model.forward(x) if seed % 3 == 1 else model(x)) * 1
    compiled = torch.compile(run)
    done: list[str] = []
    confirmed = 0
    try:
        for _ in range(80):
            if chosen.random() < 0.4 and done.append(changes.make(chosen.choice(CHANGES))) is None:
                pass
            elif changes.undo and chosen.random() < 0.6:
                changes.undo.pop()()
                done.append("undone")
            for _ in range(chosen.choice((1, 3))):
                expected, found = run(), compiled()
                assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5), done[-4:]
                assert found.requires_grad == expected.requires_grad, done[-4:]
            confirmed += any(own[native_calls.MODULE] for p in points(compiled) for own in p.whole)
    finally:
        for undo in reversed(changes.undo):
            undo()
    assert not whole_modules.are_compared() or confirmed > 5
    assert len(owner) == (seed % 3 == 0)


@needs_modules
def test_calls_of_parts_of_a_module_are_confirmed() -> None:
    class User(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.layer = nn.LayerNorm(3), nn.Linear(3, 3)

        def forward(self, x: Any, extra: Any = None) -> Any:
            return self.layer(input=self.norm(x)) + self.layer(x)

    user, x = User(), torch.randn(2, 3)
    compiled = torch.compile(lambda: user(x) * 1)
    for _ in range(6):
        assert torch.allclose(compiled(), user(x) * 1)
    modules = [own for p in points(compiled) for own in p.whole if own[native_calls.MODULE]]
    found = sorted(own[native_calls.CODE].co_qualname for own in modules)
    # Keywords with tensors are left to the functions inside.
    assert found == ["Linear.forward", "Module.__call__", "Module.__call__"]


def test_calls_of_modules_that_are_no_parts_are_counted() -> None:
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)
    compiled = torch.compile(lambda: layer(x) * 1)
    before = MODES.now.calls
    for _ in range(6):
        compiled()
    assert MODES.now.calls == before + 6

    class User(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            return layer(x) + self.shift  # called by another one, it is not counted

    user = User()
    compiled = torch.compile(lambda: user(x) * 1)
    for _ in range(6):
        compiled()
    assert MODES.now.calls == before + 12


BACKWARD: dict[str, Callable] = {
    "plain": lambda a, b: a.backward(),
    "None": lambda a, b: a.backward(None),
    "gradient": lambda a, b: a.backward(torch.tensor(2.0)),
    "retained": lambda a, b: (a.backward(retain_graph=True), a.backward()),
    "not retained": lambda a, b: a.backward(retain_graph=False),
    "inputs": lambda a, b: a.backward(inputs=[LEAVES[0]]),
    "another root": lambda a, b: b.backward(),
    "both": lambda a, b: (a.backward(), b.backward()),
    "no root": lambda a, b: a.detach().requires_grad_().backward(),
    "watched": lambda a, b: watched(a),
    "without recording": lambda a, b: unrecorded(a),
    "hooked": lambda a, b: hooked(a),
}
LEAVES: list[Any] = []


def watched(root: Any) -> None:
    told: list[Any] = []
    engine.WATCHERS.append(told)
    try:
        with pytest.raises(AttributeError):  # a list can't be told anything
            root.backward()
    finally:
        engine.WATCHERS.remove(told)
    root.detach()


def unrecorded(root: Any) -> None:
    with torch.no_grad():
        root.backward()


def hooked(root: Any) -> None:
    handle = LEAVES[1].register_hook(lambda g: g * 3)
    root.backward()
    handle.remove()


@pytest.mark.parametrize("way", BACKWARD)
def test_only_plain_backward_passes_are_confirmed(way: str) -> None:
    """After calls with a plain pass, one of another sort, and plain ones again."""

    def outcome(compile: Callable) -> Any:
        torch.manual_seed(0)
        w, v, x = torch.randn(3).requires_grad_(), torch.randn(3).requires_grad_(), torch.randn(3)
        LEAVES[:] = w, v
        seen: list[Any] = []

        def step(way: str) -> Any:
            w.grad = v.grad = None
            a, b = (w * x * v).sum(), (w * v).exp().sum()
            BACKWARD[way](a, b)
            seen.extend(torch.zeros(3) if t.grad is None else t.grad.clone() for t in (w, v))
            return a

        run = compile(step)
        for k in range(12):
            run(way if k in (6, 8) else "plain")
        return torch.stack(seen)

    assert torch.allclose(outcome(torch.compile), outcome(lambda f: f))


def test_a_confirmed_backward_pass_is_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    w, x = torch.ones(3).requires_grad_(), torch.ones(3)

    def step() -> None:
        w.grad = None
        (w * x).sum().backward()

    compiled = torch.compile(step)
    for _ in range(4):
        compiled()
    monkeypatch.setattr(Region, "backs", lambda *_: pytest.fail("entered"))
    compiled()
    assert w.grad.tolist() == [1, 1, 1]


def test_what_comes_from_outside_is_looked_at_before_it_is_copied() -> None:
    """A tensor in memory from outside may be any other one the next time."""
    array = np.arange(16, dtype=np.float32).reshape(4, 4)
    w, seen = torch.full((4, 4), 2.0), []

    def program(x: Any) -> Any:
        y = torch.mul(x, w)
        seen.append((y.shape, y.dtype, y.requires_grad))
        return y + 1

    usual = torch.from_numpy(array)
    others = [
        torch.from_numpy(array.T), torch.from_numpy(array[:1]), torch.from_numpy(array[:, 2:3]),
        torch.from_numpy(array.astype(np.float64)), torch.from_numpy(array.astype(np.int32)),
        torch.from_numpy(array.copy()).requires_grad_(), nn.Parameter(torch.from_numpy(array)),
        usual.view(4, 4), usual[:1], torch.ones(4, 4), usual.detach(), torch.from_numpy(array) * 2,
    ]  # fmt: skip
    compiled = torch.compile(program)
    for other in others:
        for _ in range(4):
            compiled(usual)
        for _ in range(3):
            found, expected = compiled(other), program(other)
            assert torch.equal(found, expected)
            assert seen[-1] == seen[-2]
            array += 1
    assert "binary" in known(compiled)


def test_a_module_in_the_place_of_another_is_noticed() -> None:
    x = torch.randn(2, 3)
    made: list[Any] = [nn.Linear(3, 3)]
    compiled = torch.compile(lambda: made[0](x) * 1)
    for _ in range(30):
        for _ in range(3):
            assert torch.allclose(compiled(), made[0](x) * 1)
        made.clear()  # so that the next one may get its memory
        made.append(nn.Linear(3, 3))


def test_modules_with_lists_run() -> None:
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)
    layer.settings = [1, 2]
    compiled = torch.compile(lambda: layer(x) * 1)
    for _ in range(4):
        compiled()
    assert not any(own[native_calls.MODULE] for p in points(compiled) for own in p.whole)


def test_modes_are_noticed() -> None:
    a, b = torch.randn(3, 3), torch.randn(3, 3)

    def program(cast: bool, default: Any) -> Any:
        torch.set_default_dtype(default)
        try:
            with torch.autocast("cpu", torch.bfloat16, enabled=cast):
                return torch.matmul(a, b), torch.arange(3) / 2 + torch.tensor([1, 2, 3]) * 0.5
        finally:
            torch.set_default_dtype(torch.float32)

    compiled = torch.compile(program)
    for cast, default in [*[(False, torch.float32)] * 4, (True, torch.float32),
                          (False, torch.float64), (False, torch.float32)]:  # fmt: skip
        for x, y in zip(compiled(cast, default), program(cast, default), strict=True):
            assert x.dtype == y.dtype
            assert torch.allclose(x, y)


def test_hooks_on_saved_tensors_are_called() -> None:
    x, packed = torch.randn(3, requires_grad=True), []
    hooks = torch.autograd.graph.saved_tensors_hooks

    def program(hooked: bool) -> Any:
        if not hooked:
            return torch.mul(x, x).exp()
        with hooks(lambda t: packed.append(1) or t, lambda t: t):
            return torch.mul(x, x).exp()

    compiled = torch.compile(program)
    for hooked in (False, False, False, False, True, True, False, True):
        packed.clear()
        program(hooked).sum().backward()
        count, expected, x.grad = len(packed), x.grad, None
        packed.clear()
        compiled(hooked).sum().backward()
        assert len(packed) == count
        assert torch.allclose(x.grad, expected)
        x.grad = None


def test_torch_function_modes_are_asked() -> None:
    asked = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
            asked.append(function)
            return function(*args, **(kwargs or {}))

    x = torch.randn(3)
    compiled = torch.compile(lambda: F.softplus(x).sum())
    for _ in range(4):
        compiled()
    with Mode():
        found = compiled()
    assert torch.allclose(found, F.softplus(x).sum())
    assert len(asked) == 2
    asked.clear()
    for _ in range(4):
        compiled()
    assert not asked


def test_warnings_are_said_each_time() -> None:
    a, b = torch.randn(3, 1), torch.randn(3)
    compiled = torch.compile(lambda: F.mse_loss(a, b))
    found = []
    for function in (compiled.function, *[compiled] * 6):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            function()
        found.append([(str(w.message), w.category, w.filename, w.lineno) for w in said])
    assert len(found[0]) == 1
    assert all(said == found[0] for said in found)


def test_warnings_are_said_after_calls_were_watched_inside_of_others() -> None:
    said = warnings.warn
    with torch.compiler.auto():
        for k in range(15):
            x, mask = torch.ones(3, 4) * 2, torch.arange(3) == k % 3
            x[mask] = 1.0  # ends a stretch; functions that it calls then begin another
            x[mask, 0] = 0.0
            assert x.sum().item() == 19.0
    assert warnings.warn is said


def test_random_numbers_are_drawn() -> None:
    x = torch.randn(20)
    compiled = torch.compile(lambda p: F.dropout(x, p) * 2)
    for p in (0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.5):
        torch.manual_seed(1)
        expected, drawn = compiled.function(p), torch.rand(1)
        torch.manual_seed(1)
        assert torch.equal(compiled(p), expected)
        assert torch.equal(torch.rand(1), drawn)


def test_changes_in_place_wait_only_where_nobody_looks() -> None:
    cache, row = torch.zeros(4, 3), torch.randn(1, 3)

    def program(k: int, look: bool) -> Any:
        cache.index_copy_(0, torch.tensor([k]), row)
        cache.mul_(0.5).add_(row, alpha=2)
        return shown.copy() if look else None

    compiled = torch.compile(program)
    reference = cache.clone()
    shown = cache.numpy()[:0]
    for k in range(12):
        if k == 6:
            shown = cache.numpy()
        looked = compiled(k % 4, k >= 6)
        reference.index_copy_(0, torch.tensor([k % 4]), row)
        reference.mul_(0.5).add_(row, alpha=2)
        assert torch.equal(cache, reference)
        assert cache._version == 3 * (k + 1)
        if k >= 6:
            assert np.array_equal(looked, reference.numpy())


def test_a_leaf_whose_memory_others_hold_is_changed_at_once() -> None:
    x = torch.zeros(3)
    views: list[Any] = []

    def program() -> Any:
        x.add_(1)
        return [v.tolist() for v in views]

    compiled = torch.compile(program)
    for _ in range(4):
        compiled()
    views.append(x[:2])
    assert compiled() == [[5.0, 5.0]]
    views.clear()
    for _ in range(3):
        compiled()
    assert x.tolist() == [8.0, 8.0, 8.0]


def changes_of(tensor: Any) -> list[tuple[Any, ...]]:
    """The version of a tensor, and what its last changes were and on which lines they were made."""
    marks = tensor._vc[1:]
    lines = [describe_position(code, at) for _, _, code, at, _ in marks]
    return [tensor._version, *[(m[0], m[1], line) for m, line in zip(marks, lines, strict=True)]]


def test_changes_in_place_are_counted_as_in_eager_mode() -> None:
    x = torch.zeros(3)

    def program(target: Any, times: int, other: bool) -> Any:
        y = x + 1  # read before it is changed
        made = y * 2
        for _ in range(times):
            target.add_(1).mul_(0.5)
            made.mul_(3).add_(y)
        made = made.exp() if other else made
        target.sub_(y)
        return made

    compiled = torch.compile(program)
    for k in range(12):
        settings = 3 + k % 3, k == 9  # which leaves the course behind changes
        twin, target = torch.zeros(3), torch.zeros(3)
        expected, found = program(twin, *settings), compiled(target, *settings)
        for a, b in ((target, twin), (found, expected)):
            assert torch.allclose(a, b)
            assert changes_of(a) == changes_of(b)
    assert "change" in known(compiled)


@pytest.mark.parametrize("read", (False, True))
@pytest.mark.parametrize("whole", (False, True))
def test_memory_that_anybody_else_holds_is_changed_at_once(read: bool, whole: bool) -> None:
    """Held is the array of a tensor, or the array whose memory that shows."""
    x, y = torch.zeros(4), torch.ones(4)
    x._a = np.zeros(4, np.float32) if whole else np.zeros(8, np.float32)[2:6]
    others: list[Any] = []

    def program() -> Any:
        z = x + y if read else y
        x.add_(z)
        return [float(array[2]) for array in others]

    compiled = torch.compile(program)
    holders: list[Callable] = [lambda: x._a, lambda: x._a.base, lambda: x._a[:3]]
    value = 0.0
    for k in range(18):
        if k >= 6 and k % 2:
            others += [array for array in (holders[k % 3](),) if array is not None]
        value = 2 * value + 1 if read else value + 1
        assert compiled() == [value] * len(others)
        others.clear()
        assert x.tolist() == [value] * 4


def test_memory_from_outside_is_copied_when_it_is_read(ops: list[str]) -> None:
    array = np.ones(3, np.float32)
    x, w = torch.from_numpy(array), torch.full((3,), 2.0)

    def program() -> Any:
        y = torch.mul(x, w)
        array[:] += 1
        return y + torch.mul(x, x)

    compiled = torch.compile(program)
    for k in range(6):
        ops.clear()
        found = compiled()
        assert found.tolist() == [2.0 * (k + 1) + (k + 2) ** 2] * 3
    assert ops == []


def marked(function: Callable) -> Callable:
    made = whole_calls.compiled()
    made.marks.add(function.__code__, whole_calls.arguments(function.__code__))
    return function


def test_functions_that_read_or_keep_something_else_are_not_confirmed() -> None:
    x, other, kept, count = torch.randn(3), torch.randn(3), [], []

    @marked
    def reads(x: Any) -> Any:
        count.append(1)
        return x + other

    @marked
    def keeps(x: Any) -> Any:
        count.append(1)
        kept.append(x.exp())
        return kept[-1] * 2

    @marked
    def makes(x: Any) -> Any:
        count.append(1)
        return x + torch.ones(3)

    @marked
    def plain(x: Any) -> Any:
        count.append(1)
        return x.exp() * 2

    for function, runs in ((reads, 6), (keeps, 6), (makes, 6), (plain, 2)):
        compiled = torch.compile(lambda x: function(x) * 2)  # noqa: B023
        count.clear()
        for _ in range(6):
            found = compiled(x)
        assert len(count) == runs, function
        assert torch.allclose(found, function(x) * 2)
    assert all(torch.allclose(k, x.exp()) for k in kept)


def test_errors_are_raised_each_time() -> None:
    a, b = torch.randn(2, 3), torch.randn(2, 3)

    def program(wrong: bool) -> Any:
        y = a.exp()
        return y.matmul(b if wrong else b.t())

    compiled = torch.compile(program)
    for wrong in (False, False, False, True, True, False, True):
        if wrong:
            with pytest.raises(RuntimeError):
                compiled(wrong)
        else:
            assert torch.allclose(compiled(wrong), a.exp() @ b.t())


def test_under_a_tracer_functions_run() -> None:
    x, seen = torch.randn(3), []
    compiled = torch.compile(lambda: F.softplus(x) * 2)
    for _ in range(4):
        compiled()
    sys.setprofile(lambda frame, event, arg: seen.append(frame.f_code.co_name))
    try:
        compiled()
    finally:
        sys.setprofile(None)
    assert "softplus" in seen


def test_deep_recursion_in_a_region() -> None:
    x = torch.randn(3)

    def deep(n: int, x: Any) -> Any:
        return deep(n - 1, x) if n else F.relu(x) * 2

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        compiled = torch.compile(lambda: deep(30_000, x) + F.relu(x))
        for _ in range(5):
            assert torch.equal(compiled(), F.relu(x) * 3)
    finally:
        sys.setrecursionlimit(limit)


def test_other_threads_run_their_functions() -> None:
    x, found = torch.randn(3), []
    compiled = torch.compile(lambda: F.relu(x) * 2)

    def other() -> None:
        mine = torch.compile(lambda: F.relu(x) * 3)
        found.extend(torch.equal(F.relu(x) * 2, compiled.function()) for _ in range(5))
        found.extend(torch.equal(mine(), F.relu(x) * 3) for _ in range(5))

    def program() -> Any:
        y = F.relu(x)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return y * 2

    outer = torch.compile(program)
    for _ in range(5):
        assert torch.equal(outer(), F.relu(x) * 2)
    assert len(found) == 50
    assert all(found)


def test_nothing_is_kept() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3))
    cache = torch.zeros(2, 3)
    compiled = torch.compile(lambda x: torch.cat([model(x), x.max(1, keepdim=True).values], 1))

    def run(n: int) -> int:
        for _ in range(n):
            x = torch.randn(2, 3)
            with torch.no_grad():
                compiled(x)
                cache.mul_(0.5).add_(x)
        gc.collect()
        return sum(type(o) in (Tensor, nn.Parameter, np.ndarray) for o in gc.get_objects())

    first = run(10)
    counts = [sys.getrefcount(o) for o in (Tensor, cache, model[0].weight)]
    assert run(50) == first
    later = [sys.getrefcount(o) for o in (Tensor, cache, model[0].weight)]
    assert later == counts


def test_the_hook_is_gone_when_the_region_ends() -> None:
    x, runs = torch.randn(3), []

    @marked
    def function(x: Any) -> Any:
        runs.append(1)
        return x * 2

    compiled = torch.compile(lambda: function(x) + 1)
    for _ in range(4):
        compiled()
    count = len(runs)
    function(x)
    assert len(runs) == count + 1

    def fails() -> Any:
        function(x)
        raise ValueError

    failing = torch.compile(fails)
    for _ in range(4):
        with pytest.raises(ValueError):
            failing()
    count = len(runs)
    function(x)
    assert len(runs) == count + 1


def test_leaves_of_another_kind_are_noticed() -> None:
    x = torch.randn(4, 4)
    others = (
        torch.randn(2, 4), torch.randn(6, 4), x.double(), torch.randn(4, 4).t(), x.int(),
        torch.randn(4, 4), torch.randn(8, 4)[::2], torch.randn(4, 4, requires_grad=True),
    )  # fmt: skip
    compiled = agree(lambda x: torch.mul(x, 3) - 1, *[(x,)] * 4, *((y,) for y in others), (x,))
    for y in (x, *others):
        found, expected = compiled(y), compiled.function(y)
        assert found.dtype == expected.dtype
        assert found.stride() == expected.stride()
        assert found.requires_grad == expected.requires_grad


def test_memory_that_was_let_out_since_is_copied_when_it_is_read() -> None:
    x, shown = torch.ones(3), []

    def program() -> Any:
        y = torch.mul(x, 2)
        for array in shown:
            array[:] += 1
        return y + 1

    compiled = torch.compile(program)
    for _ in range(4):
        assert compiled().tolist() == [3.0] * 3
    shown.append(x.numpy())
    for k in range(4):
        assert compiled().tolist() == [3.0 + 2 * k] * 3


def test_a_leaf_in_two_roles_gets_one_gradient() -> None:
    pool = [torch.randn(3, requires_grad=True) for _ in range(3)]

    def program(a: Any, b: Any, c: Any) -> Any:
        y = torch.mul(a, b)
        (torch.sin(c) * y).sum().backward()

    compiled = torch.compile(program)
    calls = [(0, 1, 2)] * 4 + [(0, 0, 1), (0, 1, 0), (0, 1, 1), (2, 1, 0), (0, 0, 0), (0, 1, 2)]
    for places in calls:
        grads = []
        for function in (program, compiled):
            for p in pool:
                p.grad = None
            function(*(pool[k] for k in places))
            grads.append([p.grad for p in pool])
        for a, b in zip(*grads, strict=True):
            assert (a is None) is (b is None)
            assert a is None or torch.allclose(a, b)


def test_recording_may_be_switched() -> None:
    a, b = torch.randn(3, requires_grad=True), torch.randn(3)

    def program(recorded: bool) -> Any:
        with torch.set_grad_enabled(recorded):
            return torch.mul(a, b).exp()

    compiled = torch.compile(program)
    for recorded in (*[True] * 4, *[False] * 4, True, False):
        found = compiled(recorded)
        assert found.requires_grad is recorded
        assert torch.allclose(found, program(recorded))


def test_what_another_thread_calls_is_not_the_region_s() -> None:
    x, pending = torch.randn(3), []

    def program() -> Any:
        thread = threading.Thread(target=lambda: pending.append(region_of(F.relu(x))))
        thread.start()
        thread.join()
        return F.relu(x) * 2

    compiled = torch.compile(program)
    for _ in range(6):
        assert torch.equal(compiled(), F.relu(x) * 2)
    assert pending == [None] * 6


def test_a_leaf_that_was_met_is_not_met_again_in_another_role() -> None:
    def reads_first(a: Any, b: Any) -> Any:
        y = torch.mul(a, 2)
        b.add_(1)
        return y + torch.mul(a, 3)

    def reads_later(a: Any, b: Any) -> Any:
        b.add_(a)
        return torch.mul(a, 3) + torch.mul(b, 2)

    for function in (reads_first, reads_later):
        pool, twins = [torch.ones(3), torch.ones(3) * 2], [torch.ones(3), torch.ones(3) * 2]
        compiled = torch.compile(function)
        for i, j in ((0, 1), (0, 1), (0, 1), (0, 1), (0, 0), (1, 0), (1, 1), (0, 0), (0, 1)):
            expected = function(twins[i], twins[j])
            assert torch.equal(compiled(pool[i], pool[j]), expected)
            assert all(map(torch.equal, pool, twins))


def test_no_two_functions_are_known_by_one_code() -> None:
    """Functions made by one factory share code: the other one would be taken for the first."""
    made = whole_calls.compiled()
    assert made is not None
    holders: dict[int, set[tuple[Any, ...]]] = {}
    for function in whole_calls.functions():
        if whole_calls.may_be_confirmed(function):
            enclosed = tuple(id(cell.cell_contents) for cell in function.__closure__ or ())
            holders.setdefault(id(function.__code__), set()).add(enclosed)
    assert len(holders) > 1000
    assert all(len(enclosed) == 1 for enclosed in holders.values())


@pytest.mark.parametrize("first, second", [("sub", "mul"), ("mul", "pow"), ("div", "add")])
def test_functions_of_one_factory_are_told_apart(first: str, second: str) -> None:
    known = {f.__name__: f for f in whole_calls.functions() if f.__module__ == short.__name__}
    functions = [known[name] for name in (first, second)]
    a, b = torch.rand(4, 4, requires_grad=True), torch.rand(4, 4) + 0.5

    def step(function: Any) -> Any:
        return (function(a * 1, b) * 2).sum()

    compiled = torch.compile(step)
    for k in range(16):
        function = functions[k > 8 and k % 2]
        torch.testing.assert_close(compiled(function), step(function))


@pytest.mark.parametrize("before", [False, True])
def test_modes_are_asked(before: bool) -> None:
    """Whether functions look at modes already when the hook is made, or only from then on."""
    program = f"""
import weft as torch
import weft.nn.functional as F

if {before}:
    import weft.overrides
x, w = torch.randn(8, 4), torch.randn(4, 4, requires_grad=True)

def step():
    return F.relu(F.linear(x, w)).sum()

compiled = torch.compile(step)
for _ in range(12):
    compiled()

class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {{}}))
        return result * 2 if function.__name__ == "relu" else result

with Doubling():
    expected, found = step(), compiled()
torch.testing.assert_close(found, expected)
torch.testing.assert_close(compiled() * 2, expected)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
def test_a_tool_that_monitors_sees_the_functions() -> None:
    monitoring, seen = sys.monitoring, []
    x = torch.randn(4)
    compiled = torch.compile(lambda: F.leaky_relu(x) * 2)
    expected = [compiled() for _ in range(4)][-1]
    assert "leaky_relu" in known(compiled)
    monitoring.use_tool_id(3, "test")
    try:
        monitoring.register_callback(
            3, monitoring.events.PY_START, lambda code, at: seen.append(code.co_name)
        )
        monitoring.set_events(3, monitoring.events.PY_START)
        assert compiled().equal(expected)
        assert "leaky_relu" in seen
    finally:
        monitoring.set_events(3, 0)
        monitoring.register_callback(3, monitoring.events.PY_START, None)
        monitoring.free_tool_id(3)
    assert compiled().equal(expected)


def test_a_frame_that_is_left_behind_keeps_nothing() -> None:
    """Of functions that are confirmed, arguments and results are counted as ever."""
    x = torch.randn(8)
    scale = tuple(map(float, range(3)))

    @marked
    def scaled(x: Any, by: Any = None) -> Any:
        return x * 3

    compiled = torch.compile(lambda: scaled(x, scale) + F.softplus(x))
    for _ in range(6):
        compiled()
    assert "scaled" in known(compiled)
    before = sys.getrefcount(x), sys.getrefcount(scale), sys.getrefcount(None)
    for _ in range(300):
        compiled()
    after = sys.getrefcount(x), sys.getrefcount(scale), sys.getrefcount(None)
    assert after[:2] == before[:2]
    assert abs(after[2] - before[2]) < 100
