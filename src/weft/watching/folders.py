"""Runs in log folders, read as they grow: event files, ``metrics.jsonl``, ``metrics.csv``.

Files are data from somewhere: they are parsed, never run, and what can't be parsed is passed over.
"""

from __future__ import annotations

import csv
import json
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.utils.tensorboard.reader import event_files, events_in
from weft.watching.series import Series

__all__ = ["Folders"]

LOOK_EVERY = 1.0  # seconds between looks at the disk
MOST_RUNS = 50
MOST_FOLDERS = 5000
MOST_AT_ONCE = 16 << 20  # bytes of a table in one look
_TABLES = ("metrics.jsonl", "metrics.csv")
_BEYOND = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class _File:
    """How far a file was read, and which file that was."""

    def __init__(self, path: Path) -> None:
        self.path, self.at, self.size, self.inode = path, 0, 0, -1
        self.columns: list[str] = []

    def changed(self) -> bool | None:
        """Whether there is more in it; None if it is another file than it was."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        if self.inode not in (-1, found.st_ino) or found.st_size < self.size:
            return None
        before, self.size, self.inode = self.size, found.st_size, found.st_ino
        return found.st_size > before


class _LogFolder:
    """One folder with logs."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.files: dict[Path, _File] = {}
        self.series = Series(name)

    def look(self) -> bool:
        """Read what is new; whether there was anything."""
        paths = event_files(self.folder)
        if not paths:  # a training may log in several forms at once: one of them is enough
            paths = [p for p in (self.folder / name for name in _TABLES) if p.is_file()][:1]
        for path in paths:
            self.files.setdefault(path, _File(path))
        states = {path: file.changed() for path, file in self.files.items()}
        if None in states.values():  # rewritten, as when a training is resumed
            self.files = {path: _File(path) for path in paths}
            self.series = Series(self.name)
            states = {path: file.changed() for path, file in self.files.items()}
        news = [self.files[path] for path, more in states.items() if more]
        for file in news:
            try:
                self._read(file)
            except OSError:
                continue
        return bool(news)

    def _read(self, file: _File) -> None:
        if file.path.name == "metrics.jsonl":
            self._read_json(file)
        elif file.path.name == "metrics.csv":
            self._read_table(file)
        else:
            for event, end in events_in(file.path, file.at):
                file.at = end
                if event.kind == "scalar":
                    self.series.add(event.tag, event.step, event.value, event.wall_time)
                elif event.kind == "image" and isinstance(event.value, bytes):
                    self.series.add_image(event.tag, event.step, event.value)
                elif event.kind == "start":
                    self.series.drop_from(event.step)

    def _read_json(self, file: _File) -> None:
        for line in _new_lines(file):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                self._add(row)

    def _read_table(self, file: _File) -> None:
        for line in _new_lines(file):
            cells = next(csv.reader([line]), [])
            if not file.columns:
                file.columns = cells
            else:
                self._add(dict(zip(file.columns, cells, strict=False)))

    def _add(self, row: dict[str, Any]) -> None:
        step, when = _number(row.get("step")), _number(row.get("time")) or 0.0
        if step is None or not math.isfinite(step):
            return
        for tag, value in row.items():
            found = _number(value)
            if tag not in ("step", "time") and found is not None:
                self.series.add(str(tag), step, found, when)


def _new_lines(file: _File) -> Iterator[str]:
    """The whole lines since the last look."""
    with open(file.path, "rb") as opened:
        opened.seek(file.at)
        data = opened.read(MOST_AT_ONCE)
    whole = data[: data.rfind(b"\n") + 1]
    if len(data) == MOST_AT_ONCE:
        whole = whole or data  # no line is as long as that
        file.size = file.at + len(whole)  # the next look goes on there
    file.at += len(whole)
    yield from whole.decode("utf-8", "replace").splitlines()


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        value = _BEYOND.get(value, value)
    if isinstance(value, bool) or value in ("", None):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


class Folders:
    """A source for the page: all runs below some folders, compared."""

    def __init__(self, *folders: str | os.PathLike[str], title: str = "") -> None:
        self.folders = [Path(folder) for folder in folders]
        self.title = title or "Training"
        self.note = ""
        self._runs: dict[Path, _LogFolder] = {}
        self._version = 0
        self._looked = -math.inf
        self._lock = threading.Lock()

    def version(self) -> int:
        """Grows when a file does; the disk is looked at once a second at most."""
        with self._lock:
            if time.monotonic() - self._looked >= LOOK_EVERY:
                self._look()
                self._looked = time.monotonic()
            return self._version

    def document(self) -> dict[str, Any]:
        """All runs as the page draws them."""
        self.version()
        with self._lock:
            runs = [run.series.document() for run in self._runs.values()]
        found = [run for run in runs if run["series"] or run["images"]]
        training = {"runs": found, "note": self.note if found else self._nothing()}
        return {"weft_graph": 1, "title": self.title, "steps": [], "training": training}

    def edit(self, request: dict[str, Any]) -> dict[str, Any]:
        """Files can't be edited from the page."""
        return {"error": "these are logs, and no running program"}

    def _nothing(self) -> str:
        names = ", ".join(str(folder) for folder in self.folders)
        return f"No logs below {names} yet: event files, metrics.jsonl or metrics.csv."

    def _look(self) -> None:
        news = False
        for folder, name in self._found():
            if folder not in self._runs:
                if len(self._runs) >= MOST_RUNS:
                    self.note = f"Only {MOST_RUNS} runs are shown."
                    break
                self._runs[folder] = _LogFolder(folder, name)
            news |= self._runs[folder].look()
        if news or not self._version:
            self._version += 1

    def _found(self) -> Iterator[tuple[Path, str]]:
        """The folders with logs, and what they are called: the path below the folder given."""
        seen = 0
        for top in self.folders:
            for place, folders, files in os.walk(top):
                folders.sort()
                seen += 1
                if seen > MOST_FOLDERS:
                    return
                if any("tfevents" in f or f in _TABLES for f in files):
                    path = Path(place)
                    below = path.relative_to(top).as_posix()
                    name = path.name if below == "." else below
                    many = len(self.folders) > 1 and below != "."
                    yield path, f"{top.name}/{name}" if many else name
