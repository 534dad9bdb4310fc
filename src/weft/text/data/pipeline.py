"""Functions on tokens, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Pipeline:
    """A function applied to a token or to each of a list, with others before and after it.

    >>> Pipeline(str.strip).add_after(str.upper)([" a", "b "])
    ['A', 'B']
    """

    def __init__(self, convert_token: Callable[..., Any] | None = None) -> None:
        if convert_token is not None and not callable(convert_token):
            raise ValueError(f"a Pipeline is made of a function or None, not {convert_token!r}")
        self.convert_token = self.identity if convert_token is None else convert_token
        self.pipes: list[Pipeline] = [self]

    def __call__(self, x: Any, *args: Any) -> Any:
        for pipe in self.pipes:
            x = pipe.call(x, *args)
        return x

    def call(self, x: Any, *args: Any) -> Any:
        """Apply this function alone."""
        if isinstance(x, list):
            return [self.convert_token(token, *args) for token in x]
        return self.convert_token(x, *args)

    def add_before(self, pipeline: Pipeline | Callable[..., Any]) -> Pipeline:
        """Let another run first."""
        self.pipes = [*_pipeline(pipeline).pipes, *self.pipes]
        return self

    def add_after(self, pipeline: Pipeline | Callable[..., Any]) -> Pipeline:
        """Let another run behind."""
        self.pipes = [*self.pipes, *_pipeline(pipeline).pipes]
        return self

    @staticmethod
    def identity(x: Any) -> Any:
        """The same."""
        return x


def _pipeline(found: Pipeline | Callable[..., Any]) -> Pipeline:
    return found if isinstance(found, Pipeline) else Pipeline(found)
