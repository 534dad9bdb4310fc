"""``torch.compile``: repeating segments of a program run as single native calls.

A compiled function runs as Python, every time. The first call is eager, and its ops are recorded as
a trace. In later calls an op that matches the trace is not computed but returns a pending tensor;
when a value is read, or the function returns, all pending ops run as one native call. If the
program takes a different path, the pending ops run eagerly, the program continues eagerly, and the
new path is recorded.

So no decision made in Python is frozen: globals, attributes, branches, schedulers, ``print`` and
exceptions act in every call. ``docs/compile.md`` says more.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from weft.compiler import choices, shown, whole_calls
from weft.compiler.automatic import auto
from weft.compiler.choices import (
    get_default_backend,
    keep_portable_guards_unsafe,
    keep_tensor_guards_unsafe,
    list_backends,
    load_cache_artifacts,
    nested_compile_region,
    save_cache_artifacts,
    set_default_backend,
    set_enable_guard_collectives,
    skip_all_guards_unsafe,
    skip_guard_on_all_nn_modules_unsafe,
    skip_guard_on_globals_unsafe,
    skip_guard_on_inbuilt_nn_modules_unsafe,
    substitute_in_graph,
    wrap_numpy,
)
from weft.compiler.following import Region
from weft.compiler.resizing import BRANCHES
from weft.compiler.segment import TraceMemory
from weft.compiler.static import Static
from weft.compiler.trace import walk
from weft.core import errors, selection
from weft.core.modes import MODES
from weft.graph.spec import listening
from weft.nn.module import Module

__all__ = [
    "allow_in_graph", "assume_constant_result", "auto", "compile", "cudagraph_mark_step_begin",
    "disable", "get_default_backend", "is_compiling", "is_dynamo_compiling", "is_exporting",
    "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "list_backends",
    "load_cache_artifacts", "nested_compile_region", "region", "reset", "save_cache_artifacts",
    "set_default_backend", "set_enable_guard_collectives", "set_stance", "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe", "substitute_in_graph", "synchronize", "wrap_numpy",
]  # fmt: skip

STANCES = ("default", "eager_then_compile", "aot_eager_then_compile", "force_eager",
           "eager_on_recompile", "fail_on_recompile")  # fmt: skip

_stance = ["default"]
_compiled: weakref.WeakSet[Compiled] = weakref.WeakSet()
_regions: dict[str, TraceMemory] = {}


def compile(
    model: Callable | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
    static: bool = False,
) -> Any:
    """A function or module whose repeating segments run as native calls, with the same results.

    ``fullgraph=True`` raises where a call takes a different path than the first one.
    ``static=True`` is a promise: see ``weft.compiler.static``. The other settings are accepted and
    have no effect, except for the eager backends.

    >>> @torch.compile
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, backend=backend, mode=mode, options=options,
            disable=disable, static=static,
        )  # fmt: skip
    backend = get_default_backend() if backend is None else backend
    choices.check(backend, mode, options)
    if not callable(model):
        raise TypeError(
            f"torch.compile takes a function or a module, not {type(model).__name__}\n"
            f"  at {errors.here()}"
        )
    if disable:
        return model
    if static:
        return Static(model)
    eager = not isinstance(backend, str) or backend in choices.EAGER
    if isinstance(model, Module):
        return OptimizedModule(model, fullgraph, eager)
    return Compiled(model, fullgraph, eager)


class Compiled:
    """A compiled function."""

    def __init__(self, function: Callable, fullgraph: bool = False, eager: bool = False) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function, self.fullgraph, self.eager = function, fullgraph, eager
        self.forget()
        _compiled.add(self)

    def forget(self) -> None:
        """Start over, as if it had never been called."""
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        self.learned = TraceMemory(name, self.fullgraph)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        now = MODES.now
        learned = self.learned
        # Inside another region it is part of that region; two threads would share one trace.
        if (
            self.eager
            or now.recorders
            or now.unusual
            or _stance[0] == "force_eager"
            or not selection.enabled()
            or (learned.resting and learned.runs_eagerly_now())
            or not learned.lock.acquire(blocking=False)
        ):
            return self.function(*args, **kwargs)
        learned.calls += 1
        if learned.spare:
            followed = learned.spare.pop()
            followed.begin(_stance[0])
        else:
            whole_calls.compile_ahead()
            followed = Region(learned, _stance[0])
        try:
            followed.enter(now)
            out = self.function(*args, **kwargs)
            followed.finish()
            followed.leave(now)
            learned.spare.append(followed)
            return out
        except BaseException:
            try:
                followed.abandon()
            finally:
                followed.drop(now)
            raise
        finally:
            learned.lock.release()

    def explain(self) -> str:
        """A report of what was learned, what runs natively, what does not, and why."""
        return explained(self.learned)

    def __weft_graph__(self) -> Any:
        """What runs, for ``weft.graph.of``."""
        return shown.graph_of(self.learned, self.function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:  # a decorated function: its name refers to this object
            return name
        return Compiled, (self.function, self.fullgraph, self.eager)

    def __repr__(self) -> str:
        return f"<compiled {self.function!r}>"


class OptimizedModule(Module):
    """The result of ``torch.compile(module)``: the module as ``_orig_mod``, called as a region."""

    def __init__(self, module: Module, fullgraph: bool = False, eager: bool = False) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["_compiled"] = Compiled(module, fullgraph, eager)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooked:  # its own hooks; the module's hooks and global ones run inside
            return self._call_with_hooks(args, kwargs)
        return self._compiled(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module as a region."""
        return self._compiled(*args, **kwargs)

    @property
    def training(self) -> bool:  # type: ignore[override]
        """Whether the module is in training mode."""
        return self._orig_mod.training

    @training.setter
    def training(self, mode: bool) -> None:
        self._orig_mod.training = mode

    def explain(self) -> str:
        """A report of what was learned, what runs natively, what does not, and why."""
        return self._compiled.explain()

    def __weft_graph__(self) -> Any:
        """What runs, for ``weft.graph.of``."""
        return self._compiled.__weft_graph__()

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self.__dict__["_modules"]["_orig_mod"]
        return getattr(self._orig_mod, name)

    def _keeps(self, name: str) -> bool:
        """Whether an attribute belongs to the wrapper; all others belong to the module."""
        own = self.__dict__
        registered = "_orig_mod" in own.get("_modules", ())
        return name == "_orig_mod" or not registered or name in own or hasattr(type(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._keeps(name):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if self._keeps(name):
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        compiled = self._compiled
        return OptimizedModule, (self._orig_mod, compiled.fullgraph, compiled.eager)

    def __deepcopy__(self, memo: Any) -> OptimizedModule:
        import copy

        compiled = self._compiled
        twin = copy.deepcopy(self._orig_mod, memo)
        return OptimizedModule(twin, compiled.fullgraph, compiled.eager)


@contextlib.contextmanager
def _following(learned: TraceMemory) -> Iterator[None]:
    """A block whose ops are compared with the learned trace; nothing pending outlives it."""
    learned.calls += 1
    whole_calls.compile_ahead()
    followed = Region(learned, _stance[0])
    with followed:
        try:
            yield
        except BaseException:
            followed.abandon()
            raise
        followed.finish()


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    """A block that is compiled like a function; blocks with the same name share their traces.

    >>> x = torch.ones(3)
    >>> for _ in range(3):
    ...     with torch.compiler.region("double"):
    ...         y = x * 2
    >>> y
    tensor([2., 2., 2.])
    """
    learned = _regions.setdefault(name, TraceMemory(name))
    now = MODES.now
    stands_aside = now.recorders or now.unusual or _stance[0] == "force_eager"
    stands_aside = stands_aside or not selection.enabled() or learned.runs_eagerly_now()
    if stands_aside or not learned.lock.acquire(blocking=False):
        yield
        return
    try:
        with _following(learned):
            yield
    finally:
        learned.lock.release()


def synchronize() -> None:
    """Compute whatever this thread has pending in a compiled region."""
    for recorder in MODES.now.recorders:
        if isinstance(recorder, Region):
            recorder.cut("synchronize() was called")


def explain(compiled: Any) -> str:
    """A report of what a compiled function or module, or a named region, has learned and runs."""
    if isinstance(compiled, str):
        return explained(_regions[compiled])
    return compiled.explain()


def programs(learned: TraceMemory) -> list[Any]:
    """The programs that a region has compiled from its traces."""
    points = (point for root in learned.roots.values() for point in walk(root))
    return [p for point in points for p in point.plans.values() if p]


def explained(learned: TraceMemory) -> str:
    """The report on a region, as text."""
    plans = programs(learned)
    counts = f"{learned.calls} calls, {learned.tokens} ops learned"
    paths = f"{learned.diverged} divergences, {len(plans)} programs"
    lines = [f"{learned.name}: {counts}, {paths}"]
    if learned.resized:
        lines.append(f"  known paths were taken {learned.resized} times at a new size")
    if learned.evicted:
        kept = f"since at most {BRANCHES} are kept at one branch point"
        lines.append(f"  {learned.evicted} paths were evicted, {kept}")
    if learned.eager_calls:
        why = "since the paths learned before them did not recur"
        lines.append(f"  {learned.eager_calls} calls ran eagerly, {why}")
    for title, table in (
        ("pending values computed:", learned.reasons),
        ("run eagerly:", learned.refused),
        ("new path learned at:", learned.divergences),
    ):
        lines += [f"  {title} {why} ({n} times)" for why, n in table.items()]
    for k, plan in enumerate(plans):
        lines.append(f"  program {k}: {len(plan.path)} ops from {plan.begins_at()}")
        lines += [f"    {line}" for line in plan.explain()]
    return "\n".join(lines)


def disable(
    fn: Callable | None = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """A function that runs eagerly wherever it is called from; also as a decorator."""
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, (Module, type)):
        return fn

    @functools.wraps(fn)
    def eagerly(*args: Any, **kwargs: Any) -> Any:
        synchronize()
        inside = any(isinstance(r, Region) for r in MODES.now.recorders)
        if not inside:
            return fn(*args, **kwargs)
        with listening(*(r for r in MODES.now.recorders if not isinstance(r, Region))):
            return fn(*args, **kwargs)

    return eagerly


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


assume_constant_result = allow_in_graph


def is_compiling() -> bool:
    """Whether this code is being traced by a compiler that would not run it again: never."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset() -> None:
    """Forget all that was learned."""
    for compiled in tuple(_compiled):
        compiled.forget()
    _regions.clear()


def cudagraph_mark_step_begin() -> None:
    """For programs that mark their steps; it has no effect."""


class set_stance:
    """Say when to compile, from now on or for a block: ``force_eager`` runs everything as it is.

    ``fail_on_recompile`` raises where a function takes a new path, ``eager_on_recompile`` runs a
    new path eagerly without recording it.
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: Any = None,
    ) -> None:
        if stance not in STANCES:
            raise RuntimeError(
                f"invalid stance {stance!r}; must be one of {STANCES}\n  at {errors.here()}"
            )
        self.stance, self.before = stance, _stance[0]
        _stance[0] = stance

    def __enter__(self) -> None:
        _stance[0] = self.stance

    def __exit__(self, *exc: object) -> None:
        _stance[0] = self.before

    def __call__(self, function: Callable) -> Callable:
        _stance[0] = self.before

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance):
                return function(*args, **kwargs)

        return wrapped
