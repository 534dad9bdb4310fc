"""What programs ask of PyTorch's graph capture; nothing is captured, so little is left to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import weft.compiler as compiler
from weft.compat.switches import Switches
from weft.compiler import (
    OptimizedModule,
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
    set_stance,
    substitute_in_graph,
)

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "explain",
    "graph_break", "is_compiling", "list_backends", "mark_dynamic", "mark_static",
    "maybe_mark_dynamic", "optimize", "reset", "run", "set_stance", "substitute_in_graph",
]  # fmt: skip

# Programs set switches here, such as suppress_errors; nothing reads them.
config = Switches(
    suppress_errors=False,
    verbose=False,
    disable=False,
    cache_size_limit=8,
    recompile_limit=8,
    accumulated_cache_size_limit=256,
    accumulated_recompile_limit=256,
    capture_scalar_outputs=False,
    capture_dynamic_output_shape_ops=False,
    automatic_dynamic_shapes=True,
    assume_static_by_default=True,
    error_on_recompile=False,
    optimize_ddp=True,
    compiled_autograd=False,
)


@dataclass
class ExplainOutput:
    """What ``explain`` found: programs are what PyTorch calls graphs."""

    graph_count: int
    graph_break_count: int
    op_count: int
    break_reasons: list[Any]
    text: str
    graphs: list[Any] = field(default_factory=list)

    def __str__(self) -> str:
        counts = (
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
        )
        reasons = (
            f"  Break Reason {k}:\n    Reason: {one.reason}"
            for k, one in enumerate(self.break_reasons, 1)
        )
        return "\n".join((*counts, "Break Reasons:", *reasons, "", self.text))


def explain(f: Callable, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """A function that calls ``f`` four times, compiled, and says what was found.

    Where a segment ends early is known once it was followed, so one call is not enough.

    >>> found = torch._dynamo.explain(lambda x: x.sin() + 1)(torch.ones(2))
    >>> found.graph_count, found.graph_break_count, found.op_count
    (1, 0, 2)
    """

    def calls(*args: Any, **kwargs: Any) -> ExplainOutput:
        compiled = compiler.Compiled(f)
        for _ in range(4):
            compiled(*args, **kwargs)
        found = compiler.programs(compiled.learned)
        ends = "the region ended"
        reasons = {**compiled.learned.reasons, **compiled.learned.refused}
        return ExplainOutput(
            graph_count=len(found),
            graph_break_count=max(0, len(found) - 1),
            op_count=sum(len(plan.path) for plan in found),
            break_reasons=[SimpleNamespace(reason=r, user_stack=[]) for r in reasons if r != ends],
            text=compiled.explain(),
        )

    return calls(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else calls


def optimize(backend: Any = "inductor", *, nopython: bool = False, **kwargs: Any) -> Callable:
    """``torch.compile`` as a decorator, under its older name."""
    return lambda f: compiler.compile(f, backend=backend, fullgraph=nopython)


def run(fn: Callable | None = None) -> Any:
    """The function itself, which continues with what it has learned."""
    return run if fn is None else fn


def graph_break(msg: str = "") -> None:
    """For programs that mark where a graph ends."""


def mark_dynamic(t: Any, index: Any, **bounds: Any) -> None:
    """For programs that mark a size as changing; every size may change here."""


mark_static = maybe_mark_dynamic = mark_static_address = mark_dynamic
