"""The settings of PyTorch's compiler, and their meaning here."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.tensor import Tensor
from weft.operators.creation import as_tensor
from weft.utils._pytree import tree_map

# Names that programs pass as ``backend=``; all but the eager ones mean weft's own compiler.
BACKENDS = ("inductor", "cudagraphs", "onnxrt", "openxla", "tvm")
EAGER = ("eager", "aot_eager", "eager_noexcept", "aot_eager_decomp_partition")
MODES = (
    *("default", "lite", "reduce-overhead"),
    *("max-autotune-no-cudagraphs", "max-autotune"),
)

_default: list[str | Callable] = ["inductor"]
_collective = [False]


def check(backend: str | Callable, mode: str | None, options: dict[str, Any] | None) -> None:
    """Raise where PyTorch does; warn if a backend is not going to be called."""
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same "
            f"time.\n  at {errors.here()}"
        )
    if not isinstance(backend, str):
        warnings.warn(
            "torch.compile: weft does not support custom backends. The function runs eagerly"
            f" and {getattr(backend, '__name__', backend)} is not called; weft.graph.record() and"
            " torch.fx.symbolic_trace() give the graph of what it computes",
            stacklevel=3,
        )
    elif backend not in (*BACKENDS, *EAGER):
        raise RuntimeError(
            f"unknown backend {backend!r}; must be one of {', '.join((*BACKENDS, *EAGER))}\n"
            f"  at {errors.here()}"
        )
    elif backend == "inductor" and mode is not None and mode not in MODES:
        raise RuntimeError(
            f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}\n  at {errors.here()}"
        )


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names that ``compile`` accepts as ``backend``."""
    return sorted(BACKENDS if "debug" in (exclude_tags or ()) else (*BACKENDS, *EAGER))


def get_default_backend() -> str | Callable:
    """The default backend of ``compile``."""
    return _default[0]


def set_default_backend(backend: str | Callable | None) -> None:
    """Set the default backend of ``compile``; None restores the original one."""
    if backend is not None:
        check(backend, None, None)
    _default[0] = "inductor" if backend is None else backend


def set_enable_guard_collectives(enabled: bool) -> bool:
    """The previous setting; it has no effect."""
    before, _collective[0] = _collective[0], enabled
    return before


def substitute_in_graph(
    original_fn: Callable,
    *,
    can_constant_fold_through: bool = False,
    skip_signature_check: bool = False,
) -> Callable[[Callable], Callable]:
    """A decorator that returns the function itself: the original one is followed like any other."""
    return lambda traceable_fn: traceable_fn


def nested_compile_region(
    fn: Callable | None = None,
    *,
    options: Any = None,
    max_reuse_entries: int = 8,
    reuse_hash_fn: Any = None,
) -> Any:
    """The function itself: what repeats in a region is planned once anyway."""
    return (lambda fn: fn) if fn is None else fn


def wrap_numpy(fn: Callable) -> Callable:
    """A function of NumPy arrays as one of tensors; its results have no ``grad_fn``.

    >>> torch.compiler.wrap_numpy(lambda a: a.sum(0))(torch.ones(2, 3))
    tensor([2., 2., 2.])
    """

    def given(x: Any) -> Any:
        return x.numpy() if isinstance(x, Tensor) else x

    def taken(x: Any) -> Any:
        return as_tensor(x) if isinstance(x, np.ndarray) else x

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(given, (args, kwargs))
        return tree_map(taken, fn(*args, **kwargs))

    return wrapped


def save_cache_artifacts() -> None:
    """Nothing: compiled code is cached on disk, and never loaded from bytes that a program
    passes.
    """


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """Nothing is loaded: code from elsewhere is not run."""


def _keeps_all(guard_entries: Any) -> list[bool]:
    """True for each guard: weft has no such guards."""
    return [True for _ in guard_entries]


def keep_tensor_guards_unsafe(guard_entries: Any, keep_parameters: bool = False) -> list[bool]:
    """True for each guard: weft has no such guards."""
    return _keeps_all(guard_entries)


keep_portable_guards_unsafe = skip_all_guards_unsafe = skip_guard_on_globals_unsafe = _keeps_all
skip_guard_on_inbuilt_nn_modules_unsafe = skip_guard_on_all_nn_modules_unsafe = _keeps_all
