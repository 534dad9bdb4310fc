"""Event files read back: numbers and pictures, as far as the files are whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft.utils.tensorboard import _records as records
from weft.utils.tensorboard import _wire as wire

__all__ = ["LoggedEvent", "event_files", "events_in", "read"]

_MARK = "tfevents"
_FLOAT, _DOUBLE = 1, 2


class LoggedEvent(NamedTuple):
    """One logged value: ``kind`` is ``scalar``, ``image``, ``start`` (of a session), or another."""

    kind: str
    tag: str
    step: int
    wall_time: float
    value: Any


def event_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The event files of a folder, oldest first; not those of the folders in it."""
    return sorted(p for p in Path(folder).glob(f"*{_MARK}*") if p.is_file())


def read(folder: str | os.PathLike[str]) -> Iterator[LoggedEvent]:
    """All values in the event files of a folder."""
    for path in event_files(folder):
        for event, _ in events_in(path):
            yield event


def events_in(path: str | os.PathLike[str], start: int = 0) -> Iterator[tuple[LoggedEvent, int]]:
    """The values in a file from a place on, each with the place where its record ends."""
    for content, end in records.read(path, start):
        try:
            found = list(_events(content))
        except ValueError:
            continue  # a record that is whole, and is not an event
        for event in found:
            yield event, end


def _events(content: bytes) -> Iterator[LoggedEvent]:
    step, when, summaries, starts = 0, 0.0, [], False
    for number, value in wire.fields(content):
        if number == 1 and isinstance(value, float):
            when = value
        elif number == 2 and isinstance(value, int):
            step = wire.signed(value)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
        elif number == 7:
            starts = True
    if starts:
        yield LoggedEvent("start", "", step, when, None)
    for part in summaries:
        for number, value in wire.fields(part):
            if number == 1 and isinstance(value, bytes):
                yield _value(dict(wire.fields(value)), step, when)


def _value(parts: dict[int, Any], step: int, when: float) -> LoggedEvent:
    tag = parts.get(1, b"")
    tag = tag.decode("utf-8", "replace") if isinstance(tag, bytes) else ""
    if isinstance(parts.get(2), float):
        return LoggedEvent("scalar", tag, step, when, parts[2])
    if isinstance(parts.get(4), bytes):
        image = dict(wire.fields(parts[4]))
        return LoggedEvent("image", tag, step, when, image.get(4, b""))
    plugin = _plugin_of(parts.get(9))
    if plugin == "scalars" and isinstance(parts.get(8), bytes):
        number = _first_number(dict(wire.fields(parts[8])))
        if number is not None:
            return LoggedEvent("scalar", tag, step, when, number)
    kinds = {5: "histogram", 6: "audio"}
    return LoggedEvent(
        plugin or next((kinds[k] for k in kinds if k in parts), ""), tag, step, when, None
    )


def _plugin_of(metadata: Any) -> str:
    if not isinstance(metadata, bytes):
        return ""
    plugin = dict(wire.fields(metadata)).get(1)
    name = dict(wire.fields(plugin)).get(1, b"") if isinstance(plugin, bytes) else b""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else ""


def _first_number(tensor: dict[int, Any]) -> float | None:
    dtype = {_FLOAT: "<f4", _DOUBLE: "<f8"}.get(tensor.get(1, 0))
    if dtype is None:
        return None
    for field in (4, 5, 6):
        found = tensor.get(field)
        if isinstance(found, float):
            return found
        if isinstance(found, bytes) and len(found) >= np.dtype(dtype).itemsize:
            return float(np.frombuffer(found, dtype, 1)[0])
    return None
