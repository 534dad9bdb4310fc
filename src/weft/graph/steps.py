"""An optimizer's update of a parameter as a node: its rule on values, with the state as values."""

from __future__ import annotations

import importlib
from typing import Any

# The optimizers that are functions of values, by name. ``weft.optim`` puts them here.
RULES: dict[str, Any] = {}


class Step:
    """The update of one parameter.

    It reads the parameter, its gradient, its state and its counters, and gives them anew (but for
    the gradient). Settings such as the learning rate are those of the optimizer, as they are when
    the node runs, or as they were recorded if there is no optimizer, in a graph from a file.
    """

    multiple, view = True, False
    names: tuple[str, ...] = ()

    def __init__(self, rule: Any, group: dict[str, Any] | None = None) -> None:
        self.rule, self.group = rule, group
        self.name: str = rule.__name__

    def run(self, values: list[Any], states: int, settings: dict[str, Any]) -> list[Any]:
        """The new arrays of parameter, states and counters."""
        p, g, *rest = values
        if g is None:
            return [p, *rest]  # as in PyTorch: no gradient, no step
        group = settings if self.group is None else self.group
        found: list[Any] = self.rule.updated(group, p, g, rest[:states], rest[states:])
        return found


def rule_named(name: str) -> Any:
    """The optimizer of a name, if it is a function of values."""
    importlib.import_module("weft.optim")
    return RULES.get(name)
