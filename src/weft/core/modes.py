"""Thread-local state: recording, hooks, forward-mode levels, the module path."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable
from typing import Any

# The one number that every op reads. Only PLAIN and OFF may take the fast path through
# dispatch; anything unusual (dual numbers, saved-tensor hooks, a recorder) means SPECIAL.
OFF, PLAIN, SPECIAL = 0, 1, 2


# One entry for each inference mode and each recorder that is on, in any thread: while there is
# none, code that creates a tensor need not check.
INFERRING: list[None] = []


class State:
    """The switches of one thread."""

    __slots__ = (
        *("anomaly", "anomaly_check_nan", "autocast", "backward", "batches"),
        *("calls", "carriers", "dual_ceiling", "dual_level", "forward_grad"),
        *(
            "grad",
            "inference",
            "mode",
            "multithreading",
            "recorders",
            "saved_hooks",
            "scope",
            "unusual",
            "view_replay",
        ),
    )

    def __init__(self) -> None:
        self.mode = PLAIN
        self.grad = True
        self.inference = False
        self.anomaly = False
        self.anomaly_check_nan = True
        self.dual_level = -1
        self.dual_ceiling: int | None = None  # tangents of this level and above are not seen
        self.forward_grad = True  # whether ops move tangents
        self.saved_hooks: tuple[Any, ...] = ()
        self.recorders: tuple[Any, ...] = ()
        # Casts the inputs of an op to the precision it is to run in; placed by weft.amp.
        self.autocast: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]] | None = None
        self.unusual = False  # whether a mode is active that compiled regions don't support
        self.scope = ""
        self.calls = 0  # of modules that no other module called
        self.backward: Any = None  # the pass that is running
        self.multithreading = True
        self.view_replay = False  # what a stale view's node is called: see ``viewing``
        # The sizes of the batches that vmap is running, and what random ops may do in each; the
        # first is level 1 of ``core.batching``.
        self.batches: tuple[tuple[int, str], ...] = ()
        # The tensors with a tangent, by level and identity.
        self.carriers: dict[int, dict[int, Any]] = {}

    def update(self) -> None:
        """Recompute ``mode`` after one of the switches moved."""
        rare = self.saved_hooks or self.anomaly or self.batches or self.dual_level >= 0
        self.unusual = bool(rare) or self.inference or len(self.recorders) > 1
        if rare or self.recorders or self.autocast:
            self.mode = SPECIAL
        else:
            self.mode = PLAIN if self.grad and not self.inference else OFF


class _Modes(threading.local):
    """``MODES.now`` is this thread's state; reading it once is all that an op can afford."""

    def __init__(self) -> None:
        self.now = State()


MODES = _Modes()


def is_grad_enabled() -> bool:
    """Whether ops are being recorded for backward in this thread."""
    return MODES.now.grad


def is_inference_mode_enabled() -> bool:
    """Whether inference mode is on in this thread."""
    return MODES.now.inference


class _Switch:
    """A context manager that also works as a decorator, also on generators."""

    def _enter(self) -> None:
        raise NotImplementedError

    def _exit(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        self._enter()
        return self

    def __exit__(self, *exc: object) -> None:
        self._exit()

    def _again(self) -> _Switch:
        return type(self)()

    def __call__(self, function: Callable) -> Callable:
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You "
                "should only decorate functions or methods. To preserve the current behavior of "
                "class decoration, you can directly decorate the `__init__` method and nothing "
                "else.",
                FutureWarning,
                stacklevel=2,
            )
            function.__init__ = self(function.__init__)
            return function
        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return wrapped

    def _wrap_generator(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            send, value = generator.send, None
            while True:
                # The switch is off while the consumer runs, on while the generator runs.
                with self._again():
                    try:
                        item = send(value)
                    except StopIteration as stop:
                        return stop.value
                try:
                    value = yield item
                    send = generator.send
                except GeneratorExit:
                    with self._again():
                        generator.close()
                    raise
                except BaseException as error:
                    send, value = generator.throw, error

        return wrapped


class set_grad_enabled(_Switch):
    """Switch recording on or off, at once or for a block.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.set_grad_enabled(False):
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __init__(self, mode: bool) -> None:
        self.enabled = bool(mode)
        self.previous = MODES.now.grad
        MODES.now.grad = self.enabled
        MODES.now.update()

    def _again(self) -> _Switch:
        return set_grad_enabled(self.enabled)

    def _enter(self) -> None:
        MODES.now.grad = self.enabled
        MODES.now.update()

    def _exit(self) -> None:
        MODES.now.grad = self.previous
        MODES.now.update()

    def __call__(self, function: Callable) -> Callable:
        # Used as a decorator, the switch must not have acted when the decorator was built.
        self._exit()
        return super().__call__(function)


class _GradSwitch(_Switch):
    enabled = True

    def __new__(cls, function: Callable | None = None) -> Any:
        if function is not None:
            return cls()(function)
        return super().__new__(cls)

    def __enter__(self) -> Any:
        now = MODES.now
        self.previous, now.grad = now.grad, self.enabled
        if now.mode is not SPECIAL:  # which it stays, whether ops are recorded or not
            now.update()
        return self

    def __exit__(self, *exc: object) -> None:
        now = MODES.now
        now.grad = self.previous
        if now.mode is not SPECIAL:
            now.update()


class no_grad(_GradSwitch):
    """Don't record ops in this block: nothing made in it needs a gradient.

    >>> import weft
    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    enabled = False


class enable_grad(_GradSwitch):
    """Record ops in this block, also inside ``no_grad``."""


class set_multithreading_enabled(_Switch):
    """Accepted as in PyTorch: a backward pass here runs in the thread that called it anyway."""

    def __init__(self, mode: bool) -> None:
        self.previous = MODES.now.multithreading
        self.enabled = MODES.now.multithreading = bool(mode)

    def _enter(self) -> None:
        MODES.now.multithreading = self.enabled

    def _exit(self) -> None:
        MODES.now.multithreading = self.previous

    def _again(self) -> _Switch:
        return set_multithreading_enabled(self.enabled)


def is_multithreading_enabled() -> bool:
    """The setting of ``set_multithreading_enabled``."""
    return MODES.now.multithreading


class force_original_view_tracking(_Switch):
    """Name a view's node by its own view op after a change in place; at once or for a block."""

    def __init__(self, mode: bool) -> None:
        self.previous = MODES.now.view_replay
        self.enabled = MODES.now.view_replay = bool(mode)

    def _enter(self) -> None:
        MODES.now.view_replay = self.enabled

    def _exit(self) -> None:
        MODES.now.view_replay = self.previous

    def _again(self) -> _Switch:
        return force_original_view_tracking(self.enabled)


def is_view_replay_enabled() -> bool:
    """The setting of ``force_original_view_tracking``."""
    return MODES.now.view_replay


class inference_mode(_Switch):
    """Like ``no_grad``; what is made inside can't be saved for backward, or changed, outside.

    >>> model = nn.Linear(2, 1)
    >>> with torch.inference_mode():
    ...     y = model(torch.ones(1, 2))
    >>> y.requires_grad, y.is_inference()
    (False, True)
    """

    def __new__(cls, mode: Any = True) -> Any:
        if callable(mode):
            return cls()(mode)
        return super().__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        self.enabled = mode

    def _again(self) -> _Switch:
        return inference_mode(self.enabled)

    def _enter(self) -> None:
        self.previous = MODES.now.grad, MODES.now.inference
        INFERRING.append(None)
        MODES.now.inference = self.enabled
        MODES.now.grad = not self.enabled
        MODES.now.update()

    def _exit(self) -> None:
        INFERRING.pop()
        MODES.now.grad, MODES.now.inference = self.previous
        MODES.now.update()
