"""Checkpointing: keep only the inputs of a part of a model, and run it again in backward."""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from weft.amp import autocast_mode as amp
from weft.autograd import engine
from weft.autograd.function import Function, SavedVariable
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


class _CheckpointSettings:
    early_stop: bool | None = None  # what a context says, over what a call says


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether a second run ends as soon as it has made what backward needs."""
    previous, _CheckpointSettings.early_stop = _CheckpointSettings.early_stop, enable
    try:
        yield
    finally:
        _CheckpointSettings.early_stop = previous


class GraphExecGroup:
    """A block whose backward passes share second runs, over parts of the graph that don't overlap.

    >>> import weft
    >>> from weft.utils.checkpoint import GraphExecGroup, checkpoint
    >>> x = weft.ones(2, requires_grad=True)
    >>> y = checkpoint(lambda x: (x.sin(), x.cos()), x, use_reentrant=False)
    >>> with GraphExecGroup():
    ...     y[0].sum().backward()
    ...     y[1].sum().backward()
    """

    _current = threading.local()

    def __enter__(self) -> GraphExecGroup:
        present = self._get_current_group()
        if present is not None:
            raise RuntimeError(
                f"GraphExecGroup contexts cannot be nested. Already inside group {present}"
            )
        self._current.group = self
        return self

    def __exit__(self, *exc: object) -> None:
        self._current.group = None

    @classmethod
    def _get_current_group(cls) -> GraphExecGroup | None:
        return getattr(cls._current, "group", None)


def _generator() -> Any:
    from weft.operators import random

    return getattr(random, "default_generator", None)


class _Around:
    """What was around the first run, for the second: random numbers, casts, rules of the graph."""

    def __init__(self, keep: bool) -> None:
        self.casts = (
            amp.is_autocast_enabled("cpu"),
            amp.get_autocast_dtype("cpu"),
            amp.is_autocast_cache_enabled(),
        )
        self.generator = _generator() if keep else None
        self.state = None if self.generator is None else self.generator.get_state()
        self.edits = [repeat for r in MODES.now.recorders if (repeat := r.repeats()) is not None]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for repeat in reversed(self.edits):
                stack.enter_context(repeat())
            enabled, dtype, cache = self.casts
            stack.enter_context(amp.autocast("cpu", dtype, enabled, cache))
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
    early = early_stop if _CheckpointSettings.early_stop is None else _CheckpointSettings.early_stop
    record = _Record(function, args, kwargs, _Around(preserve), again)
    record.check, record.early_stop = determinism_check == "default", early
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
        if MODES.now.backward is not None and MODES.now.backward.targets is not None:
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or "
                "passing an `inputs` parameter to .backward(). To resolve this error, you can "
                "either set use_reentrant=False, or call .backward() without passing the `inputs` "
                "argument."
            )
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
        return None, None, *(a._grad if isinstance(a, Tensor) else None for a in args)


# --- by hooks on saved tensors ---------------------------------------------------------


class _Place:
    """Stands in the graph for a value that will be made again."""

    __slots__ = ("__weakref__", "dtype", "index", "shape", "values")

    def __init__(self, index: int, tensor: Tensor) -> None:
        self.index, self.shape, self.dtype = index, tuple(tensor.shape), tensor.dtype
        # What second runs made of it, by the pass they ran for; None once it was given away.
        self.values: weakref.WeakKeyDictionary[Any, Tensor | None] = weakref.WeakKeyDictionary()


class _Enough(Exception):
    """Ends a second run that has made all that is needed."""


class _Once:
    """Stands for a pass where none is running."""


class _Record:
    """One checkpointed run."""

    check = early_stop = True

    def __init__(
        self, function: Callable, args: Any, kwargs: Any, around: _Around, again: Any
    ) -> None:
        self.function, self.kwargs = function, kwargs
        # Saved like any value, so hooks around the call hold them: those of another checkpoint too.
        self.args = [SavedVariable(a, None) if isinstance(a, Tensor) else a for a in args]
        self.around, self.again = around, again
        # The graph holds the places; a value whose place is gone need not be kept.
        self.places: list[weakref.ref[_Place]] = []
        self.finished = False
        self.ran_for: weakref.WeakSet[Any] = weakref.WeakSet()

    def pack(self, tensor: Tensor) -> _Place:
        place = _Place(len(self.places), tensor)
        self.places.append(weakref.ref(place))
        return place

    def unpack(self, place: _Place) -> Tensor:
        # A pass runs the part once, and frees each value with its last user.
        key: Any = GraphExecGroup._get_current_group() or MODES.now.backward or _Once()
        if key not in self.ran_for:
            self.run_again(key)
            self.ran_for.add(key)
        value = place.values.get(key)
        if value is None:
            overlap = ""
            if GraphExecGroup._get_current_group() is not None:
                overlap = (
                    "Performing two backward calls that overlap (i.e. require the same saved "
                    "activation in order to compute gradients) is not allowed while under the "
                    "torch.utils.checkpoint.GraphExecGroup context. "
                )
            raise CheckpointError(
                "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already "
                f"unpacked once. {overlap}If you are calling ctx.saved_tensors in backward, make "
                "sure to do so only once."
            )
        place.values[key] = None
        return value

    def run_again(self, key: Any) -> None:
        wanted, made, wrong = len(self.places), 0, []
        for i, a in enumerate(self.args):
            if isinstance(a, SavedVariable) and a.is_overwritten():
                raise RuntimeError(_overwritten(i, a))

        def keep(tensor: Tensor) -> Tensor:
            nonlocal made
            index, made = made, made + 1
            tensor = tensor.detach() if tensor.requires_grad else tensor
            if index >= wanted:
                return tensor
            place = self.places[index]()
            if place is not None:
                place.values[key] = tensor
                if self.check and (place.shape, place.dtype) != (tuple(tensor.shape), tensor.dtype):
                    wrong.append(_different_kind(place, tensor))
            if self.early_stop and made == wanted:
                raise _Enough
            return tensor

        hooks = saved_tensors_hooks(keep, lambda tensor: tensor)
        args = [a.unpack(None) if isinstance(a, SavedVariable) else a for a in self.args]
        args = [_apart(a) for a in args]
        kwargs = {name: _apart(a) for name, a in self.kwargs.items()}
        with self.around.again(), set_grad_enabled(True), hooks, self.again:
            with contextlib.suppress(_Enough):
                self.function(*args, **kwargs)
        if made < wanted or (made > wanted and self.check and self.finished):
            raise CheckpointError(_different_number(wanted, made))
        if wrong:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have "
                "different metadata than during the forward pass.\n" + "\n".join(wrong)
            )


def _overwritten(i: int, saved: SavedVariable) -> str:
    x = saved.tensor
    return (
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: argument {i} of a checkpointed function, [{x.type()} {list(x.shape)}], is at "
        f"version {x._version}; expected version {saved.version} instead. Running the function "
        "again would see other values: clone() the argument before changing it, or change it after "
        "backward"
    )


def _different_kind(place: _Place, made: Tensor) -> str:
    return (
        f"tensor at position {place.index}:\n"
        f"saved metadata: shape {list(place.shape)}, {place.dtype!r}\n"
        f"recomputed metadata: shape {list(made.shape)}, {made.dtype!r}"
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
    *("CheckpointError", "GraphExecGroup", "checkpoint", "checkpoint_sequential"),
    "noop_context_fn",
    *("set_checkpoint_debug_enabled", "set_checkpoint_early_stop"),
]
