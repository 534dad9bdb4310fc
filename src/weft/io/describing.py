"""What is in a file: checkpoints, safetensors, graphs, ONNX. Nothing in it is run."""

from __future__ import annotations

import json
import math
import mmap
import os
import pickle
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from weft.core import dtype as dt
from weft.core.errors import in_bytes
from weft.core.tensor import Tensor
from weft.io import onnx_reading, safetensors
from weft.io.archive import RandomAccessFile

_DEEPEST = 6  # levels of a checkpoint that are looked into
_LONGEST = 60  # characters of a value that are shown


class Unreadable(RuntimeError):
    """The file is of no kind that is known here, or damaged."""


@dataclass
class FileEntry:
    """A tensor or a value in a file."""

    name: str
    kind: str  # a dtype, or the type of a value
    shape: list[Any] | None = None
    value: str = ""
    nbytes: int = 0

    def line(self, width: int, kinds: int) -> str:
        """One line of the table."""
        shape = "" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"
        return f"  {self.name:<{width}}  {self.kind:<{kinds}}  {shape or self.value}".rstrip()


@dataclass
class Description:
    """What was found in a file."""

    path: str
    format: str
    size: int
    facts: dict[str, str] = field(default_factory=dict)
    entries: list[FileEntry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return {
            "path": self.path, "format": self.format, "size": self.size, "facts": self.facts,
            "notes": self.notes,
            "entries": [
                {"name": e.name, "kind": e.kind}
                | ({} if e.shape is None else {"shape": e.shape, "bytes": e.nbytes})
                | ({"value": e.value} if e.value else {})
                for e in self.entries
            ],
        }  # fmt: skip

    def lines(self, limit: int | None = None) -> list[str]:
        """For people; at most so many entries."""
        made = [_printable(f"{self.path}: {self.format}, {in_bytes(self.size)}")]
        width = max((len(name) for name in self.facts), default=0)
        made += [_printable(f"  {name:<{width}}  {what}") for name, what in self.facts.items()]
        shown = self.entries if limit is None else self.entries[:limit]
        if shown:
            made.append("")
            name_width = min(max(len(e.name) for e in shown), 72)
            kinds = max(len(e.kind) for e in shown)
            made += [_printable(e.line(name_width, kinds)) for e in shown]
        if len(shown) < len(self.entries):
            made.append(f"  ... and {len(self.entries) - len(shown)} more (--all shows them)")
        return made + [_printable(f"note: {note}") for note in self.notes]


def _printable(text: str) -> str:
    """A file's own words, without what could steer a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def describe(path: str | os.PathLike[str]) -> Description:
    """A report on the contents of a file, whose kind is recognised by its content."""
    name = os.fspath(path)
    if os.path.isdir(name):
        raise IsADirectoryError(21, "Is a folder, not a file", name)
    with open(name, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(16)
        if not start:
            raise Unreadable(f"{name}: the file is empty")
        file.seek(0)
        return _by_content(name, file, size, start)


def _by_content(name: str, file: BinaryIO, size: int, start: bytes) -> Description:
    from weft.io.loading import _MAGIC_START

    if start[:2] == b"PK" or start[: len(_MAGIC_START)] == _MAGIC_START:
        return _checkpoint(name, file, size, zipped=start[:2] == b"PK")
    if len(start) > 8 and start[8:9] == b"{":
        return _safetensors(name, file, size)
    if start[:1] == b"\x08":
        return _onnx(name, file, size)
    if start[:1] == b"\x80":
        raise Unreadable(
            f"{name}: a bare pickle, which is not read because it could run code; torch.save "
            "writes files that can be looked into"
        )
    raise Unreadable(
        f"{name}: not a checkpoint, safetensors, graph or ONNX file (it begins with {start[:8]!r})"
    )


# ------------------------------------------------------------------ safetensors and graphs


def _safetensors(name: str, file: BinaryIO, size: int) -> Description:
    try:
        header, begin = safetensors._read_header(RandomAccessFile(file))
        metadata = header.pop("__metadata__", {})
        places = safetensors._checked(header, size - begin)
    except safetensors.SafetensorError as error:
        raise Unreadable(f"{name}: {error}") from None
    entries = [
        FileEntry(key, kind.name, shape, nbytes=end - start)
        for key, (kind, shape, start, end) in places.items()
    ]
    if "weft_graph" in metadata:
        return _graph(name, size, metadata["weft_graph"], entries)
    found = Description(name, "safetensors", size, _counted(entries), entries)
    for key, value in metadata.items():
        found.facts[f"metadata {key}"] = _short(value)
    return found


def _graph(name: str, size: int, text: str, entries: list[FileEntry]) -> Description:
    try:
        document = json.loads(text)
        nodes = document["nodes"]
        kinds = Counter(str(node["kind"]) for node in nodes)
        ops = Counter(str(node["op"]) for node in nodes if node.get("kind") == "forward")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unreadable(f"{name}: a graph file whose description is damaged") from None
    facts = {
        "nodes": f"{len(nodes)} ({', '.join(f'{n} {kind}' for kind, n in kinds.most_common())})",
        "ops": _most(ops),
        "values": _counted(entries)["tensors"],
    }
    leaves = [
        FileEntry(str(node.get("name", "?")), str(node["kind"])) for node in nodes
        if node["kind"] in ("input", "parameter", "constant")
    ]  # fmt: skip
    found = Description(name, "weft graph", size, facts, leaves)
    found.notes.append(f"weft graph show {name} prints the whole table")
    return found


def _counted(entries: list[FileEntry]) -> dict[str, str]:
    tensors = [e for e in entries if e.shape is not None]
    count = sum(math.prod(e.shape or ()) for e in tensors)
    kinds = Counter(e.kind for e in tensors)
    facts = {"tensors": f"{len(tensors):,} with {count:,} elements"}
    if tensors:
        facts["tensors"] += f", {in_bytes(sum(e.nbytes for e in tensors))}"
        facts["types"] = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    return facts


def _most(counts: Counter[str], limit: int = 8) -> str:
    shown = ", ".join(f"{n} {name}" for name, n in counts.most_common(limit))
    return shown + (f", and {len(counts) - limit} others" if len(counts) > limit else "")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


# ------------------------------------------------------------------ checkpoints


def _checkpoint(name: str, file: BinaryIO, size: int, zipped: bool) -> Description:
    from weft import serialization

    kind = "checkpoint (torch.save)" if zipped else "checkpoint (torch.save, before version 1.6)"
    found = Description(name, kind, size)
    file.seek(0)
    try:
        with serialization.skip_data():
            content = serialization.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        return _foreign(name, file, found, error)
    except (RuntimeError, EOFError, ValueError) as error:
        raise Unreadable(f"{name}: {str(error).partition(chr(10))[0]}") from None
    seen: dict[int, str] = {}
    _walk("", content, found, seen, 0)
    found.facts = {"content": _type_of(content), **_counted(found.entries)}
    return found


def _foreign(
    name: str, file: BinaryIO, found: Description, error: pickle.UnpicklingError
) -> Description:
    """A pickle that refers to more than data; the names can be listed without running it."""
    from weft import serialization

    file.seek(0)
    try:
        asked = serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception:
        asked = []
    if not asked:
        raise Unreadable(f"{name}: {str(error).partition(chr(10))[0]}") from None
    found.facts["content"] = "objects of classes that are not plain data"
    found.entries = [FileEntry(each, "class or function") for each in sorted(set(asked))]
    found.notes.append(
        "loading it would run code of the classes above; only load it if you trust where it is from"
    )
    return found


def _type_of(value: Any) -> str:
    if isinstance(value, Tensor):
        return "a tensor"
    if isinstance(value, dict):
        return f"{type(value).__name__} with {len(value)} keys"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


def _walk(name: str, value: Any, found: Description, seen: dict[int, str], depth: int) -> None:
    if isinstance(value, Tensor):
        entry = FileEntry(name or "(the tensor)", value.dtype.name, list(value.shape))
        entry.nbytes = value.numel() * value.element_size()
        place = value.data_ptr()
        if value.numel():
            first = seen.setdefault(place, entry.name)
            if first != entry.name:
                found.notes.append(f"{entry.name} shares memory with {first}")
        found.entries.append(entry)
        return
    inside: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, (list, tuple)):
        inside = list(enumerate(value))
    plain = not any(isinstance(v, (Tensor, dict, list, tuple)) for _, v in inside)
    if not inside or depth >= _DEEPEST or (plain and name and len(inside) > 4):
        found.entries.append(
            FileEntry(name or "(the value)", type(value).__name__, value=_short(value))
        )
        return
    for key, each in inside:
        _walk(f"{name}.{key}" if name else str(key), each, found, seen, depth + 1)


# ------------------------------------------------------------------ ONNX


def _onnx(name: str, file: BinaryIO, size: int) -> Description:
    # The mapping is closed when the last piece of it is gone, which an error may still hold.
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        model = onnx_reading.read(memoryview(mapped))
    except onnx_reading.NotOnnx as error:
        raise Unreadable(f"{name}: not a valid ONNX model: {error}") from None
    entries = [FileEntry(w.name, w.dtype, w.shape, nbytes=_nbytes(w)) for w in model.weights]
    facts = {"ONNX IR version": str(model.ir_version)}
    opsets = ", ".join(
        f"{domain or 'ai.onnx'} {version}" for domain, version in model.opsets.items()
    )
    for key, what in (("opset", opsets), ("producer", model.producer), ("graph", model.graph)):
        if what:
            facts[key] = what
    facts["nodes"] = f"{model.nodes} ({_most(model.ops)})" if model.nodes else "0"
    for key, tensors in (("inputs", model.inputs), ("outputs", model.outputs)):
        facts[key] = ", ".join(
            f"{t.name}: {t.dtype}[{', '.join(map(str, t.shape))}]" for t in tensors
        )
    facts |= {f"metadata {key}": _short(value) for key, value in model.metadata.items()}
    found = Description(name, "ONNX model", size, facts | _counted(entries), entries)
    outside = sum(w.external for w in model.weights)
    if outside:
        found.notes.append(f"the values of {outside} tensors are in other files")
    return found


def _nbytes(tensor: onnx_reading.OnnxTensor) -> int:
    """The bytes of a tensor's values, as far as its type says."""
    known = dt.BY_NAME.get(tensor.dtype)
    bits = known.itemsize * 8 if known else 4 if tensor.dtype.endswith(("int4", "_e2m1")) else 0
    return math.prod(tensor.shape) * bits // 8
