"""Modules and optimizers are made and called by PyTorch's names of their arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import weft

torch = pytest.importorskip("torch")


def named(namespace: Any, base: type) -> dict[str, type]:
    found = vars(namespace).items()
    return {n: c for n, c in found if isinstance(c, type) and issubclass(c, base)}


# PyTorch hides the arguments of what is deprecated behind a decorator.
DEPRECATED = {"Container", "NLLLoss2d"}
MODULES = sorted(
    (named(torch.nn, torch.nn.Module).keys() & named(weft.nn, weft.nn.Module).keys()) - DEPRECATED
)
OPTIMIZERS = sorted(
    named(torch.optim, torch.optim.Optimizer).keys()
    & named(weft.optim, weft.optim.Optimizer).keys()
)


def arguments(function: Any) -> list[Any]:
    """Names, kinds and defaults; a default that is an object counts as its name."""
    found = []
    for p in inspect.signature(function).parameters.values():
        default = p.default
        if default is inspect.Parameter.empty:
            default = "none"
        elif not isinstance(default, (int, float, str, bool, tuple, type(None))):
            default = getattr(default, "__name__", type(default).__name__)
        found.append((p.name, p.kind, default))
    return found


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_made_with_the_same_arguments(name: str) -> None:
    ours, theirs = getattr(weft.nn, name), getattr(torch.nn, name)
    assert arguments(ours) == arguments(theirs)


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_called_with_the_same_arguments(name: str) -> None:
    ours, theirs = getattr(weft.nn, name).forward, getattr(torch.nn, name).forward
    assert arguments(ours) == arguments(theirs)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_made_with_the_same_arguments(name: str) -> None:
    ours, theirs = getattr(weft.optim, name), getattr(torch.optim, name)
    assert arguments(ours) == arguments(theirs)


def test_there_is_something_to_compare() -> None:
    assert len(MODULES) > 140 and len(OPTIMIZERS) > 12
