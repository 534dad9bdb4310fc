"""``torch.nn.parallel`` on several devices that are all the CPU: parts one after another."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import weft
from weft.core import errors
from weft.core.tensor import Tensor
from weft.nn.module import Module


class Backend(str):
    """The name of a way for processes to talk, in lower case; weft has none of them."""

    UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE = (
        *("undefined", "gloo", "nccl", "xccl", "ucc"),
        *("mpi", "fake"),
    )
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name: str, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: there is one process."""
        raise RuntimeError(
            f"torch.distributed.Backend.register_backend({name!r}): weft trains in one process "
            "(torch.distributed.is_available() is False). Run the program in one process"
            f"\n  at {errors.here()}"
        )


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Tensors in as many parts as there are devices; other things go to each."""
    return _scatter(inputs, len(target_gpus), dim)


def _scatter(value: Any, count: int, dim: int) -> list[Any]:
    if isinstance(value, Tensor):
        return list(value.chunk(count, dim))
    if isinstance(value, (tuple, list, dict)) and len(value):
        members = value.values() if isinstance(value, dict) else value
        rows = zip(*(_scatter(member, count, dim) for member in members), strict=False)
        if isinstance(value, dict):
            return [type(value)(zip(value, row, strict=True)) for row in rows]
        return [type(value)(*row) if is_namedtuple(value) else type(value)(row) for row in rows]
    return [value] * count


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Positional and keyword arguments in parts, as many of the one as of the other."""
    parts = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(parts), len(named))
    parts += [()] * (count - len(parts))
    named += [{}] * (count - len(named))
    return tuple(parts), tuple(named)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """The parts of results as one."""
    first = outputs[0]
    if isinstance(first, Tensor):
        whole = [t.reshape(1) if t.ndim == 0 else t for t in outputs]
        return weft.cat(whole, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((k, gather([o[k] for o in outputs], target_device, dim)) for k in first)
    joined = [gather(column, target_device, dim) for column in zip(*outputs, strict=True)]
    return type(first)(*joined) if is_namedtuple(first) else type(first)(joined)


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """A copy of a module for each device, whose parameters are the module's own."""
    shared = {id(p): p.detach() if detach else p for p in network.parameters()}
    return [copy.deepcopy(network, dict(shared)) for _ in devices]


def get_a_var(obj: Any) -> Tensor | None:
    """Some tensor in nested containers."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, dict):
        obj = list(obj.values())
    if isinstance(obj, (list, tuple)):
        return next((t for t in map(get_a_var, obj) if t is not None), None)
    return None


def parallel_apply(
    modules: Sequence[Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Any = None,
) -> list[Any]:
    """What each module gives for its inputs."""
    named = kwargs_tup or [{}] * len(inputs)
    results = []
    for module, given, options in zip(modules, inputs, named, strict=True):
        arguments = given if isinstance(given, (list, tuple)) else (given,)
        results.append(module(*arguments, **options))
    return results


def _require_initialized(func: Callable) -> Callable:
    """A decorator of functions that call other processes: they raise."""

    @functools.wraps(func)
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "RPC has not been initialized. Call torch.distributed.rpc.init_rpc first; weft trains "
            f"in one process, so there are no others to call\n  at {errors.here()}"
        )

    return refuse
