"""L-BFGS, with an optional line search for the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from weft.core import errors
from weft.core.modes import enable_grad, no_grad
from weft.core.tensor import Tensor
from weft.operators.strided import view_as_real
from weft.operators.views import cat
from weft.optim.elementwise import zeros_like
from weft.optim.optimizer import Optimizer, ParamsT, check_lr, number

__all__ = ["LBFGS"]


class LineSearchPoint(NamedTuple):
    """A step length, with the loss, the gradient and the slope along the direction there."""

    t: float
    loss: float
    grad: Any
    slope: float


def _cubic_minimum(a: LineSearchPoint, b: LineSearchPoint, low: float, high: float) -> float:
    """Where the cubic through two points and their slopes has its minimum, within bounds."""
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    d2 = math.sqrt(square)
    if a.t > b.t:
        a, b = b, a
    span = b.slope - a.slope + 2 * d2
    best = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / span) if span else math.nan
    return min(max(best, low), high)


def strong_wolfe(
    evaluate: Callable[[float], LineSearchPoint],
    t: float,
    start: LineSearchPoint,
    longest: float,
    max_evaluations: int,
    *,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance: float = 1e-9,
) -> tuple[LineSearchPoint, int]:
    """A point that satisfies the strong Wolfe conditions, and how many were tried for it."""

    def too_high(point: LineSearchPoint) -> bool:
        return point.loss > start.loss + c1 * point.t * start.slope

    def flat(point: LineSearchPoint) -> bool:
        return abs(point.slope) <= -c2 * start.slope

    # First find an interval that holds such a point, by ever longer steps.
    previous, point = start, evaluate(t)
    tried, rounds = 1, 0
    while rounds < max_evaluations:
        if too_high(point) or (rounds > 1 and point.loss >= previous.loss):
            break
        if flat(point):
            return point, tried
        if point.slope >= 0:
            break
        nearest, farthest = point.t + 0.01 * (point.t - previous.t), point.t * 10
        t = _cubic_minimum(previous, point, nearest, farthest)
        previous, point = point, evaluate(t)
        tried, rounds = tried + 1, rounds + 1
    else:
        previous = start
    # Then narrow it down, with the better end first.
    low, high = (previous, point) if previous.loss <= point.loss else (point, previous)
    stuck = False
    while rounds < max_evaluations:
        left, right = min(low.t, high.t), max(low.t, high.t)
        if (right - left) * longest < tolerance:
            break
        t = _cubic_minimum(low, high, left, right)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:
            if stuck or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = evaluate(t)
        tried, rounds = tried + 1, rounds + 1
        if too_high(point) or point.loss >= low.loss:
            high = point
            if high.loss < low.loss:
                low, high = high, low
            continue
        done = flat(point)
        if not done and point.slope * (high.t - low.t) >= 0:
            high = low
        low = point
        if done:
            break
    return low, tried


class LBFGS(Optimizer):
    """A quasi-Newton method that remembers a few steps; ``step`` needs a closure."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_lr(lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError(
                "LBFGS doesn't support per-parameter options (parameter groups)\n"
                f"  at {errors.here()}"
            )

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    def _flat_grad(self) -> Tensor:
        pieces = []
        for p in self._params:
            piece = (zeros_like(p) if p.grad is None else p.grad).reshape(-1)
            pieces.append(view_as_real(piece).reshape(-1) if piece.is_complex() else piece)
        return cat(pieces)

    def _move(self, t: float, direction: Tensor) -> None:
        """Add a multiple of a flat vector to the parameters."""
        start = 0
        for p in self._params:
            target = view_as_real(p) if p.is_complex() else p
            count = target.numel()
            target.add_(direction[start : start + count].reshape(target.shape), alpha=t)
            start += count

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Take up to ``max_iter`` steps; the closure recomputes loss and gradients."""
        with no_grad():
            return self._step(enable_grad()(closure))

    def _step(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        lr, tolerance = number(group["lr"]), group["tolerance_change"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = closure()
        loss, evaluations = float(number(first_loss)), 1
        state["func_evals"] += 1
        grad = self._flat_grad()
        if _largest(grad) <= group["tolerance_grad"]:
            return first_loss
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(state, grad, group["history_size"])
            before = state["prev_loss"] = loss
            t = lr
            state["t"] = group["lr"]
            if state["n_iter"] == 1:
                share = min(1.0, 1.0 / grad.abs().sum().item())
                t, state["t"] = t * share, state["t"] * share
            slope = grad.dot(direction).item()
            if slope > -tolerance:
                break
            last = iteration == group["max_iter"]
            start = LineSearchPoint(0.0, loss, grad, slope)
            room = group["max_eval"] - evaluations
            t, loss, grad, used = self._advance(closure, start, t, direction, room, last)
            if group["line_search_fn"] is not None:
                state["t"] = t
            evaluations += used
            state["func_evals"] += used
            if last or evaluations >= group["max_eval"]:
                break
            if _largest(grad) <= group["tolerance_grad"]:
                break
            if _largest(direction * t) <= tolerance or abs(loss - before) < tolerance:
                break
        return first_loss

    def _direction(self, state: dict[str, Any], grad: Tensor, history_size: int) -> Tensor:
        """The direction to search, from the gradient and the remembered steps."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            direction = -grad
        else:
            self._remember(state, grad, history_size)
            dirs, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
            weights = state.setdefault("al", [None] * history_size)
            direction = -grad
            for i in reversed(range(len(dirs))):
                weights[i] = steps[i].dot(direction) * ro[i]
                direction.add_(dirs[i], alpha=-number(weights[i]))
            direction = direction * state["H_diag"]
            for i in range(len(dirs)):
                back = dirs[i].dot(direction) * ro[i]
                direction.add_(steps[i], alpha=number(weights[i] - back))
        state["d"] = direction
        if state.get("prev_flat_grad") is None:
            state["prev_flat_grad"] = grad.clone()
        else:
            state["prev_flat_grad"].copy_(grad)
        return direction

    @staticmethod
    def _remember(state: dict[str, Any], grad: Tensor, history_size: int) -> None:
        """Take the last step into the memory, if the curvature along it was positive."""
        change = grad - state["prev_flat_grad"]
        step = state["d"] * number(state["t"])
        curvature = change.dot(step)
        if not curvature > 1e-10:
            return
        if len(state["old_dirs"]) == history_size:
            for name in ("old_dirs", "old_stps", "ro"):
                state[name].pop(0)
        state["old_dirs"].append(change)
        state["old_stps"].append(step)
        state["ro"].append(1.0 / curvature)
        state["H_diag"] = curvature / change.dot(change)

    def _advance(
        self,
        closure: Callable[[], Any],
        start: LineSearchPoint,
        t: float,
        direction: Tensor,
        room: int,
        last: bool,
    ) -> tuple[float, float, Any, int]:
        """Go along the direction: how far, the loss and gradient there, and evaluations used."""
        search = self.param_groups[0]["line_search_fn"]
        if search is None:
            self._move(t, direction)
            if last:
                return t, start.loss, start.grad, 0  # the contents are not used
            loss = float(number(closure()))
            return t, loss, self._flat_grad(), 1
        if search != "strong_wolfe":
            raise RuntimeError(f"only 'strong_wolfe' is supported\n  at {errors.here()}")
        home = [p.clone() for p in self._params]

        def evaluate(t: float) -> LineSearchPoint:
            self._move(t, direction)
            loss = float(number(closure()))
            grad = self._flat_grad()
            for p, value in zip(self._params, home, strict=True):
                p.copy_(value)
            return LineSearchPoint(t, loss, grad, grad.dot(direction).item())

        found, used = strong_wolfe(evaluate, t, start, _largest(direction), room)
        self._move(found.t, direction)
        return found.t, found.loss, found.grad, used


def _largest(x: Tensor) -> float:
    return x.abs().max().item()
