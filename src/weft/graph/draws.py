"""Random draws as nodes: a function of a generator's state, which a replay can draw again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.generator import ArrayGenerator

# The methods of a generator that a graph may call.
DRAWS = frozenset(
    (
        *("uniform", "normal", "normal_tensor", "log_normal", "randint", "random", "randperm"),
        *("bernoulli", "exponential", "geometric", "cauchy", "multinomial", "poisson", "binomial"),
        *("standard_gamma", "dirichlet"),
    )
)


class Draw:
    """A draw from a generator: from its present state, or as it was when it was recorded."""

    multiple = view = False
    names: tuple[str, ...] = ()

    def __init__(self, name: str, generator: ArrayGenerator, state: np.ndarray) -> None:
        self.name, self.generator, self.state = name, generator, state

    def run(self, args: list[Any], settings: dict[str, Any], live: bool) -> np.ndarray:
        """The numbers; ``live`` moves the generator on, as the program did."""
        generator: ArrayGenerator = self.generator
        if not live:
            generator = ArrayGenerator()
            generator.set_state(self.state)
        drawn: Any = getattr(ArrayGenerator, self.name)(generator, *args, **settings)
        return drawn


class Heard:
    """A generator as functions get it while something records: its draws are told."""

    def __init__(self, generator: Any, tell: Callable[..., None]) -> None:
        self.generator, self.tell = generator, tell

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.generator, name)
        if name not in DRAWS:
            return method

        def draw(*args: Any, **settings: Any) -> Any:
            state = ArrayGenerator.get_state(self.generator)
            start = time.perf_counter()
            drawn = method(*args, **settings)
            spent = time.perf_counter() - start
            self.tell(Draw(name, self.generator, np.asarray(state)), args, settings, drawn, spent)
            return drawn

        return draw
