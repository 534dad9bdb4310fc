"""An optimizer's update of a parameter as a node: its rule on values, with the state as values."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import numpy as np

from weft.core.devices import copy_of, write_into
from weft.core.gate import announce
from weft.core.tensor import Tensor, wrap

# The optimizers that are functions of values, by name. ``weft.optim`` puts them here.
RULES: dict[str, Any] = {}


class Step:
    """The update of one parameter.

    It reads the parameter, its gradient, its state and its counters, and returns their new values
    (except the gradient). Settings such as the learning rate are those of the optimizer, as they
    are when the node runs, or as they were recorded if there is no optimizer, in a graph from a
    file.
    """

    multiple, view = True, False
    names: tuple[str, ...] = ()

    def __init__(self, rule: Any, optimizer: Any = None, group: Any = None) -> None:
        self.rule, self.optimizer = rule, optimizer
        groups = () if optimizer is None else optimizer.param_groups
        self.number = next((k for k, g in enumerate(groups) if g is group), None)
        self.name: str = rule.__name__

    @property
    def group(self) -> Any:
        """The settings of the optimizer as they are now; None without one."""
        return None if self.number is None else self.optimizer.param_groups[self.number]

    def keeps(self, states: int, group: dict[str, Any]) -> bool:
        """Whether an optimizer with such settings keeps as many states as were recorded."""
        names = getattr(self.optimizer, "_state_names", None)
        return names is None or len(names(group)) == states

    def run(self, values: list[Any], states: int, settings: dict[str, Any]) -> list[Any]:
        """The new arrays of parameter, states and counters."""
        p, g, *rest = values
        if g is None:
            return [p, *rest]  # as in PyTorch: no gradient, no step
        group = self.group
        if group is None:
            group = settings
        found: list[Any] = self.rule.updated(group, p, g, rest[:states], rest[states:])
        return found


class Taken:
    """A step of an optimizer that is a program of its own: it is repeated by taking it again.

    All parameters that it moved share it. A repeat puts values and gradients into the parameters,
    calls the optimizer's ``step``, reads what became of them, and puts back what was there: like
    everything else they are written when the whole step is done.
    """

    multiple = view = False
    names: tuple[str, ...] = ()

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.name: str = type(optimizer).__name__
        self.members: dict[int, Any] = {}  # the parameters, by the nodes that are their updates

    def run(self, given: dict[int, tuple[Any, Any]]) -> tuple[dict[int, np.ndarray], Any]:
        """The new values, from old ones and gradients; and a function that undoes the rest."""
        optimizer = self.optimizer
        every = [p for group in optimizer.param_groups for p in group["params"]]
        before = [(p, copy_of(p._a), p._grad) for p in every]
        undo = _undoing(optimizer)
        try:
            for p in every:
                p._grad = None
            for id, (value, grad) in given.items():
                p = self.members[id]
                announce(p._a, p)
                write_into(p._a, value._a)
                p._grad = None if grad is None else wrap(copy_of(grad._a))
            optimizer.step()
            return {id: copy_of(self.members[id]._a) for id in given}, undo
        except BaseException:
            undo()
            raise
        finally:
            for p, value, grad in before:
                announce(p._a, p)
                write_into(p._a, value)
                p._grad = grad


def _undoing(optimizer: Any) -> Any:
    """A function that gives an optimizer the state and the settings that it has now."""
    state = {
        p: {
            k: (v, copy_of(v._a) if isinstance(v, Tensor) else copy.deepcopy(v))
            for k, v in own.items()
        }
        for p, own in optimizer.state.items()
        if isinstance(own, dict)
    }
    groups = [dict(group) for group in optimizer.param_groups]

    def undo() -> None:
        for p in [p for p in optimizer.state if p not in state]:
            del optimizer.state[p]
        for p, own in state.items():
            mine = optimizer.state[p]
            mine.clear()
            for k, (v, held) in own.items():
                if isinstance(v, Tensor):
                    announce(v._a, v)
                    write_into(v._a, held)
                mine[k] = v if isinstance(v, Tensor) else held
        for group, settings in zip(optimizer.param_groups, groups, strict=True):
            group.update(settings)

    return undo


def rule_named(name: str) -> Any:
    """The optimizer of a name, if it is a function of values."""
    importlib.import_module("weft.optim")
    return RULES.get(name)
