"""Weights from PyTorch's files to safetensors and back, without losing anything silently."""

from __future__ import annotations

import contextlib
import json
import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from weft import serialization
from weft.core.devices import host
from weft.core.errors import in_bytes
from weft.core.tensor import Tensor
from weft.io import safetensors

_TORCH = (".pt", ".pth", ".bin", ".ckpt")
_SAFE = ".safetensors"
_VERSIONS = "state_dict_metadata"  # where the versions of modules are kept in safetensors
_OURS = ("format", _VERSIONS)


class ConversionError(RuntimeError):
    """Says what would be lost, and the way out."""


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    key: str | None = None,
    force: bool = False,
    copy_shared: bool = False,
    drop_metadata: bool = False,
) -> str:
    """Convert a file; what was done, in words."""
    source, target = os.fspath(source), os.fspath(target)
    to_safe = _check_target(source, target, force)
    from_safe = _is_safetensors(source)
    if from_safe == to_safe:
        kind = "safetensors" if to_safe else "PyTorch"
        raise ConversionError(f"{source} is a {kind} file already")
    if to_safe:
        with _naming(source):
            content = serialization.load(source, map_location="cpu", weights_only=True)
        state = _part(content, key)
        tensors, metadata = _for_safetensors(state, copy_shared)
        safetensors.save_safetensors(tensors, target, metadata)
    else:
        if key is not None:
            raise ConversionError("--key is for checkpoints; a safetensors file has no parts")
        tensors = _from_safetensors(source, drop_metadata)
        serialization.save(tensors, target)
    count = in_bytes(os.path.getsize(target))
    return f"{target}: {len(tensors):,} tensors, {count}" + _tied(len(tensors), tensors)


@contextlib.contextmanager
def _naming(source: str) -> Iterator[None]:
    """Errors of a file that can't be read name it."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ConversionError(f"{source}: {error}") from error


def _tied(count: int, tensors: dict[str, Tensor]) -> str:
    alone = len({t.data_ptr() for t in tensors.values() if t.numel()})
    empty = sum(not t.numel() for t in tensors.values())
    shared = count - alone - empty
    return f", {shared} of them tied to others" if shared else ""


def _check_target(source: str, target: str, force: bool) -> bool:
    """Whether safetensors are to be written; refuses before anything is read."""
    suffix = os.path.splitext(target)[1].lower()
    if suffix != _SAFE and suffix not in _TORCH:
        raise ConversionError(
            f"{target}: the name must end in {_SAFE} or in one of {', '.join(_TORCH)}, which says "
            "what to write"
        )
    if not os.path.exists(source):
        raise FileNotFoundError(2, "No such file or directory", source)
    if os.path.isdir(source):
        raise IsADirectoryError(21, "Is a folder, not a file", source)
    if os.path.isdir(target):
        raise IsADirectoryError(21, "Is a folder, not a file", target)
    if os.path.exists(target):
        if os.path.samefile(source, target):
            raise ConversionError(f"{target} is the file to be read")
        if not force:
            raise ConversionError(f"{target} is there already; --force replaces it")
    return suffix == _SAFE


def _is_safetensors(path: str) -> bool:
    with open(path, "rb") as file:
        start = file.read(9)
    return len(start) == 9 and start[8:] == b"{" and start[:2] != b"PK"


# ------------------------------------------------------------------ to safetensors


def _part(content: Any, key: str | None) -> dict[str, Any]:
    if key is not None:
        if not isinstance(content, dict) or key not in content:
            there = ", ".join(map(str, content)) if isinstance(content, dict) else "no names at all"
            raise ConversionError(f"the checkpoint has no part {key!r}; it has {there:.200}")
        content = content[key]
    if isinstance(content, Tensor):
        raise ConversionError("it holds a single tensor without a name, which safetensors need")
    if not isinstance(content, dict):
        raise ConversionError(f"it holds a {type(content).__name__}, not tensors by name")
    others = [name for name, value in content.items() if not isinstance(value, Tensor)]
    if others:
        parts = [n for n in others if isinstance(content[n], dict) and _all_tensors(content[n])]
        way = f"; --key {parts[0]} converts that part alone" if parts else ""
        shown = ", ".join(f"{n} ({type(content[n]).__name__})" for n in others[:5])
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        raise ConversionError(
            f"safetensors hold tensors alone, so {shown}{more} would be lost{way}"
        )
    wrong = [name for name in content if not isinstance(name, str)]
    if wrong:
        raise ConversionError(f"safetensors have strings as names, not {wrong[0]!r}")
    return content


def _all_tensors(value: dict[Any, Any]) -> bool:
    return bool(value) and all(isinstance(v, Tensor) for v in value.values())


def _for_safetensors(
    state: dict[str, Tensor], copy_shared: bool
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors to write, each memory once, and the metadata that says what else there was."""
    metadata = {"format": "pt"}
    versions = getattr(state, "_metadata", None)
    if versions is not None:
        metadata[_VERSIONS] = json.dumps(versions)
    owners: dict[int, str] = {}  # by storage
    tensors: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name in metadata:
            raise ConversionError(f"a tensor named {name!r} would be taken for metadata")
        place = tensor.untyped_storage().data_ptr() if tensor.numel() else 0
        owner = owners.setdefault(place, name) if place else name
        if owner == name:
            tensors[name] = tensor
        elif _same(tensor, state[owner]):
            metadata[name] = owner  # as the safetensors package notes it
        elif copy_shared or not _overlap(tensor, state[owner]):
            tensors[name] = tensor.clone()
        else:
            raise ConversionError(
                f"{owner!r} and {name!r} share a part of their memory, which safetensors can't "
                "express; --copy-shared gives each a copy of its own"
            )
    return tensors, metadata


def _same(a: Tensor, b: Tensor) -> bool:
    return (
        a.data_ptr() == b.data_ptr()
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.stride() == b.stride()
    )


def _overlap(a: Tensor, b: Tensor) -> bool:
    import numpy as np

    return bool(np.may_share_memory(host(a.detach()), host(b.detach())))


# ------------------------------------------------------------------ from safetensors


def _from_safetensors(source: str, drop_metadata: bool) -> dict[str, Tensor]:
    with _naming(source):
        metadata = safetensors.safetensors_metadata(source)
    if "weft_graph" in metadata:
        raise ConversionError(f"{source} is a graph; weft graph show prints it")
    with _naming(source):
        tensors: dict[str, Tensor] = OrderedDict(safetensors.load_safetensors(source))
    ties = {n: o for n, o in metadata.items() if n not in (*tensors, *_OURS) and o in tensors}
    lost = [name for name in metadata if name not in _OURS and name not in ties]
    if lost and not drop_metadata:
        shown = ", ".join(sorted(lost)[:5])
        raise ConversionError(
            f"a .pt file has no place for the metadata {shown}; --drop-metadata leaves it out"
        )
    for name, owner in ties.items():
        tensors[name] = tensors[owner]
    try:
        versions = json.loads(metadata.get(_VERSIONS, "null"))
    except (ValueError, RecursionError):
        versions = None
    if isinstance(versions, dict):
        tensors._metadata = OrderedDict(versions)
    return tensors
