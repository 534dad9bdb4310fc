"""Several processes that train together: not there, and it says so.

``is_available()`` is False, so programs that ask take their way for one process. What they would
call otherwise is here by name, so that such programs can be read, and raises when it is called.
"""

from __future__ import annotations

import enum
import os
from datetime import timedelta
from typing import Any, NoReturn

from weft.core import errors

default_pg_timeout = timedelta(minutes=30)


def is_available() -> bool:
    """Whether processes can train together: they can't.

    >>> if torch.distributed.is_available() and torch.distributed.is_initialized():
    ...     rank = torch.distributed.get_rank()
    ... else:
    ...     rank = 0
    >>> rank
    0
    """
    return False


def is_initialized() -> bool:
    """Whether there is a process group: there is none.

    >>> torch.distributed.is_available() and torch.distributed.is_initialized()
    False
    """
    return False


is_gloo_available = is_mpi_available = is_nccl_available = is_available
is_ucc_available = is_xccl_available = is_available


def is_backend_available(backend: str) -> bool:
    """Whether there is such a way for processes to talk: there is none."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether this process was started by ``torchrun``."""
    return "TORCHELASTIC_RUN_ID" in os.environ


class ReduceOp(enum.Enum):
    """How values of several processes become one."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]


class GroupMember:
    """The group of all processes, of which there is none."""

    WORLD: Any = None
    NON_GROUP_MEMBER: Any = object()


group = GroupMember


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"torch.distributed.{name} needs several processes that talk to one another, which weft "
        "does not have (torch.distributed.is_available() is False). Run the program in one "
        f"process, without this call\n  at {errors.here()}"
    )


# What is_available() guards in programs. Each can be imported and named, and raises when called.
REFUSED = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "destroy_process_group",
    "gather", "gather_object", "get_backend", "get_global_rank", "get_node_local_rank", "get_rank",
    "get_world_size", "init_device_mesh", "init_process_group", "irecv", "isend",
    "monitored_barrier", "new_group", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter", "scatter_object_list", "send",
)  # fmt: skip


def _refusing(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        _refuse(name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Raises: there is one process."
    function.unavailable = True  # type: ignore[attr-defined]
    return function


globals().update({name: _refusing(name) for name in REFUSED})


class ProcessGroup:
    """Processes that talk to one another; there are none."""

    unavailable = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("ProcessGroup")
