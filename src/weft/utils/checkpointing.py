"""Checkpoints of a whole training, which resume it bit by bit as if it had never stopped.

>>> import os, tempfile, weft as torch
>>> from weft.utils.checkpointing import load_checkpoint, save_checkpoint
>>> model = torch.nn.Linear(2, 1)
>>> optimizer = torch.optim.Adam(model.parameters())
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "last.pt")
...     save_checkpoint(path, model=model, optimizer=optimizer, epoch=3)
...     load_checkpoint(path, model=model, optimizer=optimizer)
{'epoch': 3}
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from typing import Any

import numpy as np

from weft import serialization
from weft.core import errors
from weft.core.device import device
from weft.core.dtype import dtype
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.utils._random_state import random_state, set_random_state

__all__ = ["load_checkpoint", "save_checkpoint"]

_MARK = "weft_checkpoint"
_VERSION = 1
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, Size, dtype, device)
_CONTAINERS = (list, tuple, set, dict, OrderedDict, Counter)


def save_checkpoint(path: str | os.PathLike[str], /, **parts: Any) -> None:
    """Save models, optimizers, schedulers, loaders, plain values and the random states.

    What has a ``state_dict`` is saved by it, anything else as it is. The file takes the place of
    an older one as a whole, also when the process is killed meanwhile; ``torch.load`` reads it.
    """
    states = {n: p.state_dict() for n, p in parts.items() if _has_state(p)}
    values = {n: p for n, p in parts.items() if n not in states}
    saved = {_MARK: _VERSION, "states": states, "values": values, "random": random_state()}
    serialization.save({name: _plain(part, name) for name, part in saved.items()}, path)


def load_checkpoint(
    path: str | os.PathLike[str], /, *, restore_random: bool = True, **parts: Any
) -> dict[str, Any]:
    """Put the parts into their saved states, and return the plain values that were saved.

    Name the parts as they were named for saving. A loader resumes in the middle of its epoch. No
    code from the file is run.
    """
    saved = serialization.load(path)
    if not isinstance(saved, dict) or saved.get(_MARK) != _VERSION:
        raise ValueError(
            f"{os.fspath(path)!r} is not a file that save_checkpoint wrote; torch.load gives what "
            f"is in it\n  at {errors.here()}"
        )
    states = saved["states"]
    missing = [name for name in parts if name not in states]
    if missing:
        raise KeyError(
            f"the checkpoint has no state for {', '.join(missing)}; it has "
            f"{', '.join(states) or 'none'}\n  at {errors.here()}"
        )
    for name, part in parts.items():
        part.load_state_dict(states[name])
    if restore_random:
        set_random_state(saved["random"])
    return saved["values"]


def _has_state(part: Any) -> bool:
    return callable(getattr(part, "state_dict", None))


def _plain(value: Any, place: str) -> Any:
    """The value, if a reader that runs no code can bring it back; else an error says where."""
    if isinstance(value, np.generic):
        return value.item()
    kind = type(value)
    if isinstance(value, Tensor) or kind in _PLAIN:
        return value
    if kind not in _CONTAINERS:
        raise TypeError(
            f"{place} is a {kind.__module__}.{kind.__qualname__}, which a checkpoint can't hold: "
            "give numbers, text, tensors, containers of those, or objects with a state_dict\n"
            f"  at {errors.here()}"
        )
    if issubclass(kind, dict):
        found = {k: _plain(v, f"{place}[{k!r}]") for k, v in value.items()}
        return found if kind is dict else kind(found)
    return kind(_plain(v, f"{place}[{i}]") for i, v in enumerate(value))
