"""Memory that is watched for writes which nobody announced to ``core.gate``."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

import weft
from weft.core import gate
from weft.core.storage import memory_of

SKIPPED = (str, bytes, int, float, complex, bool, type, type(None), type(np), np.ndarray)


def tensors_in(*roots: Any) -> Iterator[weft.Tensor]:
    """All tensors that can be reached through containers, modules, optimizers and tensors."""
    seen: dict[int, Any] = {}
    waiting = list(roots)
    while waiting:
        value = waiting.pop()
        if isinstance(value, SKIPPED) or id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, weft.Tensor):
            yield value
            waiting += (value._grad, value._base)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, (list, tuple, set)):
            waiting += value
        if not callable(value) or isinstance(value, weft.nn.Module):
            waiting.append(getattr(value, "__dict__", None))


class Watch:
    """Compares memory with what it was, and with what was announced."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, np.ndarray]] = {}
        self.announced: list[Any] = []  # owners of memory

    def __enter__(self) -> Watch:
        gate.LISTENERS.append(self.heard)
        return self

    def __exit__(self, *exc: object) -> None:
        gate.LISTENERS.remove(self.heard)

    def heard(self, array: Any, target: Any) -> None:
        self.announced.append(gate.owner_of(array))

    def look(self, *roots: Any) -> str | None:
        """What has changed unannounced since the last look, of what these can reach."""
        found, now = None, {}
        for tensor in tensors_in(*roots):
            owner = gate.owner_of(tensor._a)
            if tensor.is_meta or id(owner) in now or not owner.size:
                continue
            held = memory_of(owner)
            reference, before = self.known.get(id(owner), (lambda: None, held))
            # Two storages can be on the same memory, where NumPy has had it in between.
            told = any(np.may_share_memory(owner, other) for other in self.announced)
            if reference() is owner and not told:
                if before.tobytes() != held.tobytes():
                    found = found or f"memory of a tensor of shape {list(tensor.shape)} has changed"
            now[id(owner)] = weakref.ref(owner), held.copy()
        self.known = now
        self.announced.clear()
        return found
