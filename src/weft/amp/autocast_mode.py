"""Blocks in which each op runs in the precision that suits it.

A listed function casts its tensors before it runs, and what it calls is then left alone, as in
PyTorch. The casts are ops like others: gradients flow through them. Public functions are given
their casts when autocast is first switched on; programs that never use it are not slowed down.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import weft
from weft.amp.lists import ALONE, FLOAT32, FUNCTIONS, LOWER, METHODS, OPS, PADS
from weft.core import errors, overrides
from weft.core.dispatch import Op
from weft.core.modes import MODES
from weft.core.node import AccumulateGrad
from weft.core.tensor import Tensor
from weft.operators import api

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

_DEVICES = ("cpu", "cuda", "xpu", "mps", "hpu", "ipu", "xla", "mtia", "maia", "privateuseone")
_DEFAULTS = {"cpu": weft.bfloat16, "ipu": weft.float16, "xla": weft.bfloat16}


class _Casts:
    """The settings of one thread, and the casts that follow from them."""

    def __init__(self) -> None:
        self.enabled: dict[str, bool] = {}
        self.dtypes: dict[str, Any] = {}
        self.cache_enabled = True
        self.nesting = 0
        # Weights that were cast in this block, by identity: the original is held so that its
        # identity can't be taken by another tensor.
        self.cache: dict[int, tuple[Tensor, Tensor]] = {}

    def __bool__(self) -> bool:
        return True

    def apply(self) -> None:
        """Bring the thread's mode in line with the settings."""
        MODES.now.autocast = self if self.enabled.get("cpu") else None
        MODES.now.update()

    def __call__(self, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs of an op, cast as its list says."""
        policy = OPS.get(op.name)
        return args if policy is None else self.cast(policy, args)

    def cast(self, policy: str, values: Any) -> Any:
        """Values with their tensors cast; containers are looked into."""
        if policy is ALONE:
            return values
        if policy is LOWER:
            return _map(values, self._lowered)
        if policy is FLOAT32 or _holds_float32(values):
            return _map(values, _as_float32)
        return _map(values, self._lowered)

    def _lowered(self, x: Tensor) -> Tensor:
        target = self.dtypes.get("cpu", weft.bfloat16)
        if not _is_eligible(x) or x.dtype == target:
            return x
        keep = self.cache_enabled and x.dtype == weft.float32 and _is_weight(x)
        if not keep:
            return x.to(target)
        found = self.cache.get(id(x))
        if found is None:
            found = self.cache[id(x)] = (x, x.to(target))
        return found[1]


def _is_eligible(x: Tensor) -> bool:
    return x.is_floating_point() and x._a.dtype != np.float64


def _is_weight(x: Tensor) -> bool:
    # The cast of a weight made in no_grad has no history: it can't serve where one is wanted.
    return isinstance(x._node, AccumulateGrad) and x._base is None and MODES.now.grad


def _as_float32(x: Tensor) -> Tensor:
    return x.to(weft.float32) if _is_eligible(x) and x.dtype != weft.float32 else x


def _holds_float32(values: Any) -> bool:
    if isinstance(values, Tensor):
        return values.dtype in (weft.float32, weft.float64)
    if isinstance(values, Mapping):
        return any(_holds_float32(v) for v in values.values())
    return isinstance(values, (list, tuple)) and any(_holds_float32(v) for v in values)


def _map(values: Any, cast: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(values, Tensor):
        return cast(values)
    if isinstance(values, (list, tuple)) and not hasattr(values, "_fields"):
        if any(isinstance(v, (Tensor, list, tuple)) for v in values):
            return type(values)([_map(v, cast) for v in values])
    elif isinstance(values, dict):
        return {k: _map(v, cast) for k, v in values.items()}
    return values


# --- public functions ------------------------------------------------------------------


def _casting(*args: Any, **kwargs: Any) -> Any:
    # A template: its code becomes that of public functions (overrides.exchange).
    held: Any = "held"
    function, policy, modes = held
    now = modes.now
    casts = now.autocast
    if casts is None:
        return function(*args, **kwargs)
    if kwargs.get("out") is None:  # with ``out`` nothing is cast
        chosen = policy(args, kwargs) if callable(policy) else policy
        if chosen is None:
            return function(*args, **kwargs)
        args, kwargs = casts.cast(chosen, (args, kwargs))
    now.autocast = None
    now.update()
    try:
        return function(*args, **kwargs)
    finally:
        now.autocast = casts
        now.update()


def _pad_policy(args: Any, kwargs: Any) -> str | None:
    pad = kwargs.get("pad", args[1] if len(args) > 1 else ())
    mode = kwargs.get("mode", args[2] if len(args) > 2 else "constant")
    return FLOAT32 if (mode, len(pad) // 2) in PADS else None


@functools.cache
def _install() -> None:
    """Give the listed public functions and methods their casts."""
    chosen: dict[Any, Any] = {}
    for path, policy in (*FUNCTIONS.items(), ("nn.functional.pad", _pad_policy)):
        home, _, name = path.rpartition(".")
        table = api.NAMESPACES.get(home, {}) if home else api.FUNCTIONS
        if name in table:
            chosen.setdefault(table[name], policy)
        if not home and name in Tensor.__dict__:
            chosen.setdefault(Tensor.__dict__[name], policy)
    for name, policy in METHODS.items():
        if name in Tensor.__dict__:
            chosen[Tensor.__dict__[name]] = policy
    for function, policy in chosen.items():
        # As in PyTorch types with a say are asked first, and see what the program passed.
        overrides.exchange(overrides.REDIRECTED.get(function, function), _casting, policy, MODES)


# --- settings --------------------------------------------------------------------------


class _Local:
    """Each thread's settings hang on its modes' thread-local object."""

    @property
    def now(self) -> _Casts:
        found = MODES.__dict__.get("casts")
        if found is None:
            found = MODES.casts = _Casts()
        return found


_LOCAL = _Local()


def _known(device_type: str) -> str:
    kind = str(device_type).split(":")[0]
    if kind not in _DEVICES:
        raise RuntimeError(
            f"Expected one of {', '.join(_DEVICES)} device type at start of device string: "
            f"{device_type}\n  at {errors.here()}"
        )
    return kind


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows a kind of device."""
    return _known(device_type) in ("cpu", "cuda", "xpu", "mps", "hpu", "ipu", "xla", "mtia", "maia")


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on; without a device that of CUDA is meant, as in PyTorch."""
    return _LOCAL.now.enabled.get(_known(device_type), False)


def set_autocast_enabled(device_type: Any, enabled: Any = None) -> None:
    """Switch autocast on or off in this thread."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    casts = _LOCAL.now
    casts.enabled[_known(device_type)] = bool(enabled)
    if casts.enabled.get("cpu"):
        _install()
    casts.apply()


def get_autocast_dtype(device_type: str) -> Any:
    """The dtype that autocast lowers to on a device."""
    kind = _known(device_type)
    return _LOCAL.now.dtypes.get(kind, _DEFAULTS.get(kind, weft.float16))


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Choose the dtype that autocast lowers to on a device."""
    _LOCAL.now.dtypes[_known(device_type)] = dtype


def is_autocast_cache_enabled() -> bool:
    """Whether casts of weights are kept until the outermost block ends."""
    return _LOCAL.now.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Say whether casts of weights are kept."""
    _LOCAL.now.cache_enabled = bool(enabled)


def clear_autocast_cache() -> None:
    """Forget the casts of weights."""
    _LOCAL.now.cache.clear()


def autocast_increment_nesting() -> int:
    """Note that a block was entered; gives the depth."""
    _LOCAL.now.nesting += 1
    return _LOCAL.now.nesting


def autocast_decrement_nesting() -> int:
    """Note that a block was left; gives the depth."""
    _LOCAL.now.nesting -= 1
    return _LOCAL.now.nesting


def _older(device: str, short: str) -> dict[str, Callable]:
    """The functions of before there was a device argument."""
    return {
        f"is_autocast_{short}enabled": lambda: is_autocast_enabled(device),
        f"set_autocast_{short}enabled": lambda enabled: set_autocast_enabled(device, enabled),
        f"get_autocast_{short}dtype": lambda: get_autocast_dtype(device),
        f"set_autocast_{short}dtype": lambda dtype: set_autocast_dtype(device, dtype),
    }


_OLDER = {**_older("cpu", "cpu_"), **_older("xla", "xla_"), **_older("ipu", "ipu_")}
_OLDER |= {k: v for k, v in _older("cuda", "gpu_").items() if "dtype" in k}
globals().update(_OLDER)

# What stands in the main namespace; ``weft.__getattr__`` looks here.
TOP = (
    *("autocast", "autocast_decrement_nesting", "autocast_increment_nesting"),
    *("clear_autocast_cache", "get_autocast_dtype", "is_autocast_cache_enabled"),
    *("is_autocast_enabled", "set_autocast_cache_enabled", "set_autocast_dtype"),
    "set_autocast_enabled",
    *_OLDER,
)


# --- the block -------------------------------------------------------------------------


class autocast:
    """A ``with`` block or decorator in which ops choose their precision.

    >>> import weft
    >>> with weft.autocast("cpu", dtype=weft.bfloat16):
    ...     y = weft.ones(2, 2) @ weft.ones(2, 2)
    >>> y.dtype
    torch.bfloat16
    """

    def __init__(
        self,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(
                f"Expected `device_type` of type `str`, got: `{type(device_type)}`\n"
                f"  at {errors.here()}"
            )
        self.device = _known(device_type)
        self.fast_dtype = get_autocast_dtype(self.device) if dtype is None else dtype
        cached = is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        self._cache_enabled = cached
        self._enabled = enabled and self._can_run()

    def _can_run(self) -> bool:
        if self.device == "cpu":
            if self.fast_dtype in (weft.bfloat16, weft.float16):
                return True
            problem = (
                "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                "CPU Autocast only supports dtypes of torch.bfloat16, torch.float16 currently."
            )
        elif self.device == "cuda":
            problem = "CUDA is not available or torch_xla is imported. Disabling autocast."
        else:
            problem = (
                f"User provided device_type of '{self.device}', but it is not available. Disabling"
            )
        warnings.warn(problem, UserWarning, stacklevel=3)
        return False

    def __enter__(self) -> autocast:
        casts = _LOCAL.now
        self._previous = (
            is_autocast_enabled(self.device),
            get_autocast_dtype(self.device),
            casts.cache_enabled,
        )
        autocast_increment_nesting()
        set_autocast_dtype(self.device, self.fast_dtype)
        set_autocast_enabled(self.device, self._enabled)
        casts.cache_enabled = self._cache_enabled
        return self

    def __exit__(self, *exc: object) -> None:
        if autocast_decrement_nesting() == 0:
            clear_autocast_cache()
        enabled, dtype, cached = self._previous
        set_autocast_dtype(self.device, dtype)
        set_autocast_enabled(self.device, enabled)
        _LOCAL.now.cache_enabled = cached

    def __call__(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def within(*args: Any, **kwargs: Any) -> Any:
            # A block of its own for each call, so that calls may nest.
            block = object.__new__(type(self))
            block.__dict__.update(self.__dict__)
            with block:
                return func(*args, **kwargs)

        return within


# --- functions with a backward of their own --------------------------------------------


def _device_argument(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise ValueError(
            f"Expected `device_type` of type `str`, got: `{type(device_type)}`\n"
            f"  at {errors.here()}"
        )
    return device_type


def _cast(value: Any, dtype: Any) -> Any:
    return _map(value, lambda x: x.to(dtype) if _is_eligible(x) else x)


def custom_fwd(
    fwd: Callable | None = None, *, device_type: str, cast_inputs: Any = None
) -> Callable:
    """Decorator for ``forward`` of a Function that is to know of autocast.

    With ``cast_inputs`` the tensors are cast to that dtype and autocast is off inside.
    """
    device = _device_argument(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        on = is_autocast_enabled(device)
        ctx._dtype = get_autocast_dtype(device)
        ctx._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(ctx, *args, **kwargs)
        with autocast(device, enabled=False):
            return fwd(ctx, *_cast(args, cast_inputs), **_cast(kwargs, cast_inputs))

    return forward


def custom_bwd(bwd: Callable | None = None, *, device_type: str) -> Callable:
    """Decorator for ``backward`` of a Function: it runs under the autocast of its forward."""
    device = _device_argument(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)

    return backward
