"""What static steps come to by other ways than a name in the function, and what they may keep."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import weft as torch
import weft.nn as nn

MODEL: Any = None
RULE: Any = None
Wrap = Callable[[Callable], Any]


def dropping() -> Any:
    return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))


def trained(x: Any) -> Any:
    RULE.zero_grad()
    loss = MODEL(x).pow(2).sum()
    loss.backward()
    RULE.step()
    return loss


class Trainer:
    def __call__(self, x: Any) -> Any:
        return trained(x)

    def update(self, x: Any) -> Any:
        return trained(x)


class Slotted:
    __slots__ = ("model",)

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, x: Any) -> Any:
        return self.model(x)


class Config:
    model: Any = None

    @classmethod
    def run(cls, x: Any) -> Any:
        return cls.model(x)


class UsesAGlobal(nn.Module):
    def forward(self, x: Any) -> Any:
        return MODEL(x) * 2


class Hidden(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.hidden = {"models": [model]}

    def forward(self, x: Any) -> Any:
        return self.hidden["models"][0](x)


def in_a_lambda(model: Any) -> Callable:
    return lambda x: (lambda y: MODEL(y))(x) * 2


def in_a_comprehension(model: Any) -> Callable:
    return lambda x: torch.stack([MODEL(x) * k for k in range(2)])


def of_a_partial(model: Any) -> Callable:
    return functools.partial(lambda model, x: model(x) * 2, model)


def by_default(model: Any) -> Callable:
    def step(x: Any, model: Any = model) -> Any:
        return model(x) * 2

    return step


def of_a_class(model: Any) -> Callable:
    Config.model = model
    return lambda x: Config.run(x)


def of_a_method(model: Any) -> Callable:
    return Trainer().update


WAYS = {
    "lambda": in_a_lambda,
    "comprehension": in_a_comprehension,
    "partial": of_a_partial,
    "default": by_default,
    "class": of_a_class,
    "method": of_a_method,
    "object": lambda model: Trainer(),
    "slots": Slotted,
    "module": lambda model: UsesAGlobal(),
    "hidden": Hidden,
}


def both(run: Callable[[Wrap], Any]) -> None:
    """Compare a program that wraps its steps with the eager one."""
    for found, expected in zip(
        run(lambda f: torch.compile(f, static=True)), run(lambda f: f), strict=True
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("way", WAYS)
def test_modules_are_guarded_however_a_step_comes_to_them(way: str) -> None:
    def run(wrap: Wrap) -> list[Any]:
        global MODEL, RULE
        torch.manual_seed(0)
        MODEL = dropping()
        RULE = torch.optim.SGD(MODEL.parameters(), 0.1)
        model = MODEL
        step, results = wrap(WAYS[way](model)), []
        for k in range(10):
            if k == 4:
                model.eval()
            if k == 7:
                model[0] = nn.Linear(3, 3)
            with torch.set_grad_enabled(way in ("method", "object")):
                results.append(step(torch.randn(2, 3)))
        return results

    both(run)


@pytest.mark.parametrize("home", ["global", "variable", "attribute", "list"])
def test_another_model_of_the_same_name_is_another_model(home: str) -> None:
    def run(wrap: Wrap) -> list[Any]:
        global MODEL
        torch.manual_seed(0)
        model, holder, models = None, Slotless(), [None]
        step = wrap(
            {
                "global": lambda x: MODEL(x),
                "variable": lambda x: model(x),
                "attribute": lambda x: holder.model(x),
                "list": lambda x: models[0](x),
            }[home]
        )
        results = []
        for _ in range(3):
            model = MODEL = holder.model = models[0] = nn.Linear(3, 3)
            with torch.no_grad():
                results += [step(torch.randn(2, 3)) for _ in range(4)]
        return results

    both(run)


class Slotless:
    model: Any = None


def test_hooks_of_a_module_that_has_had_some_are_noticed() -> None:
    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        handles = [model[k].register_forward_hook(lambda m, a, out: out * 2) for k in (0, 1, 1)]
        step, results = wrap(lambda x: model(x)), []
        for k in range(12):
            if k in (4, 8):
                handles.pop().remove()
            with torch.no_grad():
                results.append(step(torch.randn(2, 3)))
        return results

    both(run)


def test_hooks_of_all_modules_are_noticed() -> None:
    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        model, handles = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), []
        everywhere = torch.nn.modules.module.register_module_forward_hook
        step, results = wrap(lambda x: model(x)), []
        for k in range(16):
            if k in (0, 4):
                handles.append(everywhere(lambda m, a, out, k=k: out * 2 if k else out + 1))
            if k in (8, 12):
                handles.pop().remove()
            with torch.no_grad():
                results.append(step(torch.randn(2, 3)))
        return results

    both(run)


def test_settings_in_dicts_and_lists_and_private_ones_are_noticed() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._gain, self.settings, self.sizes = 1.0, {"scale": 1.0}, [1, 2]

        def forward(self, x: Any) -> Any:
            return x * self._gain * self.settings["scale"] * sum(self.sizes)

    def run(wrap: Wrap) -> list[Any]:
        model = Scaled()
        step, results = wrap(lambda x: model(x)), []
        for k in range(16):
            if k == 4:
                model._gain = 3.0
            if k == 8:
                model.settings["scale"] = 5.0
            if k == 12:
                model.sizes.append(7)
            with torch.no_grad():
                results.append(step(torch.ones(2)))
        return results

    both(run)


def in_a_deque(x: Any, kept: Any) -> None:
    kept["deque"].append(x)


def in_a_set(x: Any, kept: Any) -> None:
    kept["set"].add(len(kept["set"]))


@pytest.mark.parametrize("keep", [in_a_deque, in_a_set])
def test_what_a_step_puts_aside_is_there(keep: Any) -> None:
    def run(wrap: Wrap) -> list[Any]:
        kept = {"deque": deque(), "set": set()}
        step = wrap(lambda x: (keep(x, kept), x * 2)[1])
        for _ in range(6):
            step(torch.ones(2))
        return [torch.tensor([len(kept["deque"]), len(kept["set"])])]

    both(run)


def test_what_a_hook_puts_aside_is_there() -> None:
    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        layer, seen = nn.Linear(3, 3), []
        layer.register_forward_hook(lambda m, a, out: seen.append(out.detach()))
        step = wrap(lambda x: layer(x) * 2)
        with torch.no_grad():
            for _ in range(6):
                step(torch.randn(2, 3))
        return [torch.stack(seen)]

    both(run)


def test_a_step_that_takes_the_next_of_an_iterator_takes_the_next() -> None:
    def run(wrap: Wrap) -> list[Any]:
        batches = iter(torch.arange(12.0).reshape(6, 2))
        step = wrap(lambda x: next(batches) * x)
        return [step(torch.ones(2)) for _ in range(6)]

    both(run)


def test_a_static_step_can_be_a_method() -> None:
    class Scaler:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @torch.compile(static=True)
        def step(self, x: Any) -> Any:
            return x * self.factor

    scalers = [Scaler(2.0), Scaler(3.0)]
    for _ in range(4):
        for scaler in scalers:
            assert scaler.step(torch.ones(2)).tolist() == [scaler.factor] * 2


def test_compiled_functions_inside_of_a_static_step_are_gone_through() -> None:
    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        model = dropping()
        for inside in (lambda f: torch.compile(f), wrap):
            inner = inside(lambda x, model=model: model(x))
            step, results = wrap(lambda x, inner=inner: inner(x) * 2), []
            for k in range(8):
                model.train(k < 4)
                with torch.no_grad():
                    results.append(step(torch.randn(2, 3)))
        return results

    both(run)


def test_a_step_that_names_another_static_step() -> None:
    """By an attribute of the same name: ``rule.step``."""
    torch.manual_seed(0)
    models = [nn.Linear(3, 3), nn.Linear(3, 3)]
    rules = [torch.optim.Adam(m.parameters()) for m in models]

    def made(model: Any, rule: Any) -> Any:
        def run(x: Any) -> Any:
            rule.zero_grad()
            loss = model(x).sum()
            loss.backward()
            rule.step()
            return loss

        return torch.compile(run, static=True)

    step = made(models[0], rules[0])
    for _ in range(4):
        step(torch.ones(2, 3))
    space: dict[str, Any] = {"step": step, "model": models[1], "rule": rules[1], "torch": torch}
    exec("def run(x):\n rule.zero_grad()\n model(x).sum().backward()\n rule.step()", space)
    other = torch.compile(space["run"], static=True)
    before = models[0].weight.clone()
    for _ in range(4):
        other(torch.ones(2, 3))
    assert len(other.steps) == 1 and torch.equal(before, models[0].weight)
