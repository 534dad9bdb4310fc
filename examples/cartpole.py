"""CartPole, the world of the reinforcement learning examples: keep a pole upright on a cart.

``make()`` gives Gymnasium's CartPole-v1 where Gymnasium is installed (``pip install gymnasium``),
else the class below: the same equations, the same random starts, the same interface. An episode
ends when the pole leans over 12 degrees, when the cart is 2.4 units off, or after 200 steps.
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np

LIMIT = 200


class CartPole:
    """A cart of mass 1 with a pole of mass 0.1 and half length 0.5, pushed with a force of 10."""

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)
        self.state = tuple(self.random.uniform(-0.05, 0.05, 4).tolist())
        self.time = 0
        return np.array(self.state, dtype=np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Push right (1) or left (0) for a fiftieth of a second."""
        x, speed, angle, turning = self.state
        cos, sin = math.cos(angle), math.sin(angle)
        push = ((10.0 if action == 1 else -10.0) + 0.05 * turning**2 * sin) / 1.1
        bend = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pull = push - 0.05 * bend * cos / 1.1
        x, speed = x + 0.02 * speed, speed + 0.02 * pull
        angle, turning = angle + 0.02 * turning, turning + 0.02 * bend
        self.state, self.time = (x, speed, angle, turning), self.time + 1
        fallen = abs(x) > 2.4 or abs(angle) > 12 * 2 * math.pi / 360
        return np.array(self.state, np.float32), 1.0, fallen, self.time >= LIMIT, {}


def make() -> Any:
    """One CartPole of at most 200 steps."""
    if importlib.util.find_spec("gymnasium") is None:
        return CartPole()
    import gymnasium

    return gymnasium.make("CartPole-v1", max_episode_steps=LIMIT, disable_env_checker=True)


def mean_length(choose: Any, episodes: int, seed: int) -> float:
    """How long the pole stays up on average, if ``choose`` picks the action for a state."""
    world, steps = make(), 0
    for episode in range(episodes):
        state, over = world.reset(seed=seed + episode)[0], False
        while not over:
            state, _, fallen, late, _ = world.step(choose(state))
            over, steps = fallen or late, steps + 1
    return steps / episodes
