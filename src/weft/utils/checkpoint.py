"""Checkpointing: keep only the inputs of a part of a model, and run it again in backward."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from weft.autograd import engine
from weft.autograd.function import Function
from weft.autograd.graph import saved_tensors_hooks
from weft.core.modes import MODES, enable_grad, set_grad_enabled
from weft.core.tensor import Tensor


class CheckpointError(RuntimeError):
    """Raised when running a part again did not do what it did at first."""


DefaultDeviceType = "cpu"


def noop_context_fn() -> tuple[Any, Any]:
    """Two contexts that do nothing: for the first run and for the second."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def set_checkpoint_debug_enabled(enabled: bool | None) -> Any:
    """Accepted for compatibility; errors always say what they know."""
    return contextlib.nullcontext()


def set_checkpoint_early_stop(enable: bool) -> Any:
    """Accepted for compatibility; the second run always goes to its end."""
    return contextlib.nullcontext()


def _generator() -> Any:
    from weft.ops import random

    return getattr(random, "default_generator", None)


class _Around:
    """What was around the first run, for the second: random numbers, and rules of the graph."""

    def __init__(self, keep: bool) -> None:
        self.generator = _generator() if keep else None
        self.state = None if self.generator is None else self.generator.get_state()
        self.edits = [repeat for r in MODES.now.recorders if (repeat := r.repeats()) is not None]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for repeat in reversed(self.edits):
                stack.enter_context(repeat())
            if self.generator is not None:
                stack.callback(self.generator.set_state, self.generator.get_state())
                self.generator.set_state(self.state)
            yield


def checkpoint(
    function: Callable,
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Call ``function``, keeping nothing of its inside for backward but a way to run it again.

    >>> import weft
    >>> from weft.utils.checkpoint import checkpoint
    >>> x = weft.ones(2, requires_grad=True)
    >>> checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False).sum().backward()
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. "
            "use_reentrant=False is recommended.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        if MODES.now.grad and not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            warnings.warn(
                "None of the inputs have requires_grad=True. Gradients will be None",
                stacklevel=2,
            )
        return _Reentrant.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(
            "determinism_check must be one of ['default', 'none'] but got " + determinism_check
        )
    if not MODES.now.grad:
        return function(*args, **kwargs)
    first, again = context_fn()
    record = _Record(function, args, kwargs, preserve, again, determinism_check == "default")
    with saved_tensors_hooks(record.pack, record.unpack), first:
        out = function(*args, **kwargs)
    record.finished = True
    return out


# --- by a Function: backward inside backward -------------------------------------------


class _Reentrant(Function):
    @staticmethod
    def forward(ctx: Any, function: Callable, preserve: bool, *args: Any) -> Any:
        ctx.function, ctx.around = function, _Around(preserve)
        ctx.constants = [None if isinstance(a, Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        args = list(ctx.constants)
        for i, saved in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = saved.detach()
            if saved.requires_grad:
                args[i].requires_grad_()
        with ctx.around.again(), enable_grad():
            out = ctx.function(*args)
        outs = out if isinstance(out, tuple) else (out,)
        pairs = [
            (o, g)
            for o, g in zip(outs, grads, strict=True)
            if isinstance(o, Tensor) and o.requires_grad
        ]
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        engine.backward([o for o, _ in pairs], [g for _, g in pairs])
        return None, None, *(a.grad if isinstance(a, Tensor) else None for a in args)


# --- by hooks on saved tensors ---------------------------------------------------------


class _Place:
    """Stands in the graph for a value that will be made again."""

    __slots__ = ("dtype", "index", "shape")

    def __init__(self, index: int, tensor: Tensor) -> None:
        self.index, self.shape, self.dtype = index, tuple(tensor.shape), tensor.dtype


class _Record:
    """One checkpointed run."""

    def __init__(
        self, function: Callable, args: Any, kwargs: Any, preserve: bool, again: Any, check: bool
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.around, self.again, self.check = _Around(preserve), again, check
        self.places: list[_Place] = []
        self.values: dict[int, Tensor] = {}
        self.count = 0
        self.finished = False

    def pack(self, tensor: Tensor) -> _Place:
        place = _Place(self.count, tensor)
        self.count += 1
        self.places.append(place)
        return place

    def unpack(self, place: _Place) -> Tensor:
        if place.index not in self.values:
            self.run_again()
        # Given away: the last user frees it, and another backward runs the part once more.
        return self.values.pop(place.index)

    def run_again(self) -> None:
        if not self.finished:
            raise CheckpointError(
                "torch.utils.checkpoint: trying to backward inside the part that is being "
                "checkpointed; call backward after it has returned"
            )
        made: list[Tensor] = []

        def keep(tensor: Tensor) -> int:
            made.append(tensor.detach())
            return len(made) - 1

        hooks = saved_tensors_hooks(keep, lambda index: made[index])
        args = tuple(_apart(a) for a in self.args)
        kwargs = {name: _apart(a) for name, a in self.kwargs.items()}
        with self.around.again(), set_grad_enabled(True), hooks, self.again:
            self.function(*args, **kwargs)
        if self.check:
            self._compare(made)
        if len(made) < len(self.places):
            raise CheckpointError(_different_number(len(self.places), len(made)))
        self.values = dict(enumerate(made[: len(self.places)]))

    def _compare(self, made: list[Tensor]) -> None:
        if len(made) != len(self.places):
            raise CheckpointError(_different_number(len(self.places), len(made)))
        wrong = [
            f"tensor at position {p.index}:\nsaved metadata: shape {list(p.shape)}, {p.dtype!r}\n"
            f"recomputed metadata: shape {list(t.shape)}, {t.dtype!r}"
            for p, t in zip(self.places, made, strict=True)
            if p.shape != tuple(t.shape) or p.dtype != t.dtype
        ]
        if wrong:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have "
                "different metadata than during the forward pass.\n" + "\n".join(wrong)
            )


def _apart(x: Any) -> Any:
    """An input for the second run: the same values, with a graph of its own."""
    if not isinstance(x, Tensor) or not x.requires_grad:
        return x
    return x.detach().requires_grad_()


def _different_number(saved: int, made: int) -> str:
    return (
        "torch.utils.checkpoint: A different number of tensors was saved during the original "
        "forward and recomputation.\n"
        f"Number of tensors saved during forward: {saved}\n"
        f"Number of tensors saved during recomputation: {made}"
    )


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Checkpoint a chain of modules in segments; the last one runs as usual."""
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be "
            "passed explicitly. use_reentrant=False is recommended.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(len(steps) // segments, 1)
    ends = [(k + 1) * size - 1 for k in range(segments - 1) if (k + 1) * size < len(steps)]
    start = 0
    for end in ends:
        input = checkpoint(
            _chain(steps[start : end + 1]), input,
            use_reentrant=use_reentrant, preserve_rng_state=preserve,
        )  # fmt: skip
        start = end + 1
    return _chain(steps[start:])(input)


def _chain(steps: list[Callable]) -> Callable:
    def run(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    return run


__all__ = [
    *("CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn"),
    *("set_checkpoint_debug_enabled", "set_checkpoint_early_stop"),
]
