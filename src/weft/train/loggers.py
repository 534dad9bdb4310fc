"""Where the numbers of a training go: files, TensorBoard, Weights & Biases, MLflow.

A logger is any object with the methods of :class:`Logger`; ``Trainer(loggers=["csv", ...])`` makes
those that weft knows by name, in the trainer's folder.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from weft.core import errors
from weft.io.atomic import replacing

__all__ = [
    "CSVLogger", "JSONLogger", "Logger", "Loggers", "MLflowLogger", "TensorBoardLogger",
    "WandbLogger",
]  # fmt: skip


@runtime_checkable
class Logger(Protocol):
    """What a trainer asks of a logger."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep these numbers of a step."""

    def resume_at(self, step: int) -> None:
        """The training resumes after this step: discard what was logged for later ones."""

    def close(self) -> None:
        """The training has ended or stopped; it may be resumed later."""


class _Appended:
    """A text file that grows by whole lines, each written by one call to the system."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, line: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        number = os.open(self.path, flags, 0o666)
        try:
            content = line.encode()
            if os.write(number, content) != len(content):
                raise OSError(28, "No space left on device", str(self.path))
        finally:
            os.close(number)

    def lines(self) -> list[str]:
        """The whole lines; a line that a killed process left unfinished is not one."""
        if not self.path.exists():
            return []
        text = self.path.read_text(encoding="utf-8", errors="replace")
        return [line + "\n" for line in text.split("\n")[:-1]]

    def replace(self, lines: Sequence[str]) -> None:
        with replacing(self.path) as file:
            file.write("".join(lines).encode())


class JSONLogger:
    """One JSON object in each line, with ``step`` and ``time``: ``metrics.jsonl``.

    Numbers that JSON lacks are the strings ``NaN``, ``Infinity`` and ``-Infinity``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = _Appended(path)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append a line."""
        row = {"step": step, "time": time.time(), **{k: _in_json(v) for k, v in metrics.items()}}
        self._file.append(json.dumps(row) + "\n")

    def resume_at(self, step: int) -> None:
        """Drop the lines of later steps."""
        lines = self._file.lines()
        kept = [line for line in lines if _step_of(line) <= step]
        if lines:
            self._file.replace(kept)

    def close(self) -> None:
        """Nothing is open."""


def _in_json(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


class CSVLogger:
    """A table with a column for each metric: ``metrics.csv``; a new metric adds a column."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = _Appended(path)
        self._columns: list[str] | None = None

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append a row."""
        if self._columns is None:
            rows = list(csv.reader(self._file.lines()))
            self._columns = rows[0] if rows else []
        new = [name for name in ("step", "time", *metrics) if name not in self._columns]
        if new:
            self._widen(new)
        row = {"step": step, "time": f"{time.time():.3f}", **metrics}
        self._file.append(_line([row.get(name, "") for name in self._columns]))

    def _widen(self, new: list[str]) -> None:
        assert self._columns is not None
        rows = list(csv.reader(self._file.lines()))[1:]
        self._columns = [*self._columns, *new]
        self._file.path.parent.mkdir(parents=True, exist_ok=True)
        wide = [row + [""] * (len(self._columns) - len(row)) for row in rows]
        self._file.replace([_line(row) for row in (self._columns, *wide)])

    def resume_at(self, step: int) -> None:
        """Drop the rows of later steps."""
        rows = list(csv.reader(self._file.lines()))
        if rows and "step" in rows[0]:
            at = rows[0].index("step")
            fits = lambda row: len(row) == len(rows[0]) and _whole(row[at]) <= step
            kept = [row for row in rows[1:] if fits(row)]
            self._file.replace([_line(row) for row in (rows[0], *kept)])
        self._columns = None

    def close(self) -> None:
        """Nothing is open."""


def _whole(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf  # of a line that was cut


def _line(cells: Sequence[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


class TensorBoardLogger:
    """Event files for TensorBoard and for ``weft watch``; ``writer`` takes pictures and more."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder
        self._writer: Any = None
        self._purge: int | None = None

    @property
    def writer(self) -> Any:
        """The ``SummaryWriter``, made when it is first needed."""
        if self._writer is None:
            from weft.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(self.folder, purge_step=self._purge)
        return self._writer

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log scalars."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def resume_at(self, step: int) -> None:
        """Make readers drop later steps."""
        self.close()
        self._purge = step + 1

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(
            f"the {name} logger needs the package {name}, which is not installed: "
            f"pip install 'weft[{extra}]'"
        ) from None


class WandbLogger:
    """Weights & Biases; ``mode="offline"`` needs no account and no network."""

    def __init__(self, project: str = "weft", mode: str | None = None, **options: Any) -> None:
        self._wandb = _package("wandb", "wandb")
        self.options = {"project": project, "mode": mode, **options}
        self._run: Any = None

    @property
    def run(self) -> Any:
        """The run, begun when it is first needed."""
        if self._run is None:
            self._run = self._wandb.init(**self.options)
        return self._run

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log numbers."""
        self.run.log(dict(metrics), step=step)

    def resume_at(self, step: int) -> None:
        """Steps only grow there, so later ones stay; the run records where it was resumed."""
        self.run.config.update({"resumed_at": step}, allow_val_change=True)

    def close(self) -> None:
        """Finish the run."""
        if self._run is not None:
            self._run.finish()
            self._run = None


class MLflowLogger:
    """MLflow, by its tracking address or folder."""

    def __init__(
        self, experiment: str = "weft", tracking_uri: str | None = None, **options: Any
    ) -> None:
        self._mlflow = _package("mlflow", "mlflow")
        self.experiment, self.tracking_uri, self.options = experiment, tracking_uri, options
        self._run: Any = None

    @property
    def run(self) -> Any:
        """The run, begun when it is first needed."""
        if self._run is None:
            self.client = self._mlflow.MlflowClient(self.tracking_uri)
            found = self.client.get_experiment_by_name(self.experiment)
            where = found.experiment_id if found else self.client.create_experiment(self.experiment)
            self._run = self.client.create_run(where, **self.options)
        return self._run

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log numbers."""
        run = self.run.info.run_id
        for name, value in metrics.items():
            self.client.log_metric(run, name, float(value), step=step)

    def resume_at(self, step: int) -> None:
        """Later steps stay; the run records where it was resumed."""
        self.client.set_tag(self.run.info.run_id, "resumed_at", str(step))

    def close(self) -> None:
        """End the run."""
        if self._run is not None:
            self.client.set_terminated(self._run.info.run_id)
            self._run = None


_NAMES = ("csv", "jsonl", "tensorboard", "wandb", "mlflow")


class Loggers:
    """All loggers of a training. One that fails is dropped; the training continues."""

    def __init__(self, given: Sequence[Any], folder: str | os.PathLike[str] | None) -> None:
        if isinstance(given, (str, Mapping)):
            given = [given]
        self.all: list[Any] = [_made(one, folder) for one in given]

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Give numbers to all of them."""
        for logger in [*self.all]:
            try:
                logger.log(metrics, step)
            except OSError as error:
                self.all.remove(logger)
                errors.warn(
                    f"{type(logger).__name__} can't write ({error.strerror or error}) and is "
                    "dropped; the training continues without it"
                )

    def resume_at(self, step: int) -> None:
        """The training resumes after a step."""
        for logger in self.all:
            logger.resume_at(step)

    def __enter__(self) -> Loggers:
        return self

    def __exit__(self, *exc: object) -> None:
        for logger in self.all:
            logger.close()


def _made(one: Any, folder: str | os.PathLike[str] | None) -> Any:
    if isinstance(one, Logger):
        return one
    if one not in _NAMES:
        raise ValueError(
            f"a logger is one of {', '.join(_NAMES)}, or an object with log(), resume_at() and "
            f"close(), not {one!r}\n  at {errors.here()}"
        )
    if one == "wandb":
        return WandbLogger()
    if one == "mlflow":
        return MLflowLogger()
    if folder is None:
        raise ValueError(
            f"the logger {one!r} writes to the trainer's folder: give folder=..."
            f"\n  at {errors.here()}"
        )
    place = Path(folder)
    if one == "csv":
        return CSVLogger(place / "metrics.csv")
    return JSONLogger(place / "metrics.jsonl") if one == "jsonl" else TensorBoardLogger(place)
