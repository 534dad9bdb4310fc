"""Running an optimizer on other parameters and another state for a while."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from weft.core import errors
from weft.core.tensor import Tensor
from weft.optim.optimizer import Optimizer

__all__ = ["swap_in_optimizer_params_and_state"]

_NAME = "swap_in_optimizer_params_and_state"


def _need(holds: bool, message: str) -> None:
    if not holds:
        raise RuntimeError(f"{message}\n  at {errors.here()}")


def _check(optimizer: Optimizer, given: Any) -> None:
    """Refuse a state that does not have the form of ``optimizer.state_dict()``."""
    _need(bool(optimizer.state), f"{_NAME} requires initialized optimizer state.")
    _need(isinstance(given, dict), f"{_NAME} requires an optimizer state_dict.")
    state, groups = given.get("state"), given.get("param_groups")
    _need(
        isinstance(state, dict) and not any(isinstance(key, Tensor) for key in state),
        f"{_NAME} requires swapin_optim_state['state'] to be a dict mapping packed parameter ids "
        "to per-param state dicts.",
    )
    _need(isinstance(groups, list), f"{_NAME} requires a list of param-group dicts.")
    _need(
        len(groups) == len(optimizer.param_groups),
        "swapin_optim_state has a different number of parameter groups than the live optimizer.",
    )
    ids = set()
    for i, (group, other) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        _need(
            len(group["params"]) == len(other["params"]),
            f"swapin_optim_state param group {i} has a different number of params than the live "
            "optimizer param group.",
        )
        _need(
            group.keys() == other.keys(),
            f"{_NAME} requires param group keys to exactly match the live optimizer group keys "
            f"for group {i}: {sorted(group.keys() ^ other.keys())} differ.",
        )
        ids.update(other["params"])
    extra = [key for key in state if key not in ids]
    _need(not extra, f"{_NAME} found state for unknown parameter ids {extra!r}.")


@contextlib.contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer,
    swapin_parameters: dict[str, Tensor],
    swapin_optim_state: dict[str, Any],
) -> Iterator[None]:
    """Let the optimizer work on these parameters and this state inside the block."""
    _check(optimizer, swapin_optim_state)
    groups = swapin_optim_state["param_groups"]
    params = list(swapin_parameters.values())
    _need(
        len(params) >= sum(len(group["params"]) for group in groups),
        f"{_NAME} requires the explicit parameter state to match optimizer.param_groups ordering.",
    )
    before, snapshots = optimizer.state, [dict(group) for group in optimizer.param_groups]
    state: defaultdict[Any, Any] = defaultdict(dict)
    try:
        start = 0
        for live, group in zip(optimizer.param_groups, groups, strict=True):
            chosen = params[start : start + len(group["params"])]
            start += len(chosen)
            live.update(group)
            live["params"] = chosen
            for p, number in zip(chosen, group["params"], strict=True):
                state[p] = dict(swapin_optim_state["state"].get(number, {}))
        optimizer.state = state
        yield
    finally:
        for live, snapshot in zip(optimizer.param_groups, snapshots, strict=True):
            live.clear()
            live.update(snapshot)
        optimizer.state = before
