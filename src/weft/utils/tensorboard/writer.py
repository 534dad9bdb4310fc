"""``SummaryWriter``: writes what TensorBoard shows, with nothing but NumPy."""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import datetime
from typing import Any

from weft.core import errors
from weft.utils.tensorboard import _pictures as pictures
from weft.utils.tensorboard import _wire as wire
from weft.utils.tensorboard import summary
from weft.utils.tensorboard._projector import Projector
from weft.utils.tensorboard._records import EventFile

__all__ = ["FileWriter", "SummaryWriter"]

_START = 1  # a session log with this status makes readers drop what came after its step


def _default_bins() -> list[float]:
    """Bucket limits that grow by a tenth each, on both sides of zero."""
    limits, limit = [], 1e-12
    while limit < 1e20:
        limits.append(limit)
        limit *= 1.1
    return [-x for x in reversed(limits)] + [0] + limits


_DEFAULT_BINS = _default_bins()


class FileWriter:
    """Writes events to one file in a folder. Threads may share it.

    An event is in the file when the call returns; nothing waits in a queue, so ``max_queue`` has
    no effect. Every ``flush_secs`` seconds the system is asked to put the file on the disk.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        self.event_writer = EventFile(os.fspath(log_dir), flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return self.event_writer.folder

    def add_event(self, event: Any, step: int | None = None, walltime: float | None = None) -> None:
        """Write an event: the fields of an ``Event`` as bytes, or such a protocol buffer."""
        content = event if isinstance(event, bytes) else event.SerializeToString()
        # Of a field that is there twice the last one counts.
        content += wire.double(1, time.time() if walltime is None else float(walltime))
        if step is not None:
            content += wire.integer(2, _whole(step), always=True)
        self.event_writer.write(content)

    def add_summary(
        self, summary: Any, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Write a summary: bytes from this package's functions, or a protocol buffer."""
        content = summary if isinstance(summary, bytes) else summary.SerializeToString()
        self.add_event(wire.message(5, content), global_step, walltime)

    def add_graph(self, graph_profile: tuple[bytes, bytes], walltime: float | None = None) -> None:
        """Write a graph and the times of its nodes."""
        graph, times = graph_profile
        self.add_event(wire.data(4, graph), None, walltime)
        tagged = wire.data(1, "step1") + wire.data(2, times)
        self.add_event(wire.message(8, tagged), None, walltime)

    def flush(self) -> None:
        """Put the file on the disk."""
        self.event_writer.flush()

    def close(self) -> None:
        """Flush and close."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Go on in a new file after ``close``."""
        self.event_writer.reopen()


def _whole(step: Any) -> int:
    try:
        return int(step)
    except (TypeError, ValueError):
        raise TypeError(
            f"global_step is a whole number, not {step!r}\n  at {errors.here()}"
        ) from None


class SummaryWriter:
    """Logs a training for TensorBoard: PyTorch's class, without its dependencies.

    A killed process leaves a readable file with everything that was logged. Threads may share a
    writer, and several writers a folder.

    >>> import tempfile, weft
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with SummaryWriter(folder) as writer:
    ...         for step in range(3):
    ...             writer.add_scalar("loss", 1 / (step + 1), step)
    ...     [(e.tag, e.step, e.value) for e in weft.utils.tensorboard.read(folder)][-1]
    ('loss', 2, 0.3333333432674408)
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self.purge_step, self.max_queue = purge_step, max_queue
        self.flush_secs, self.filename_suffix = flush_secs, filename_suffix
        self.default_bins = _DEFAULT_BINS
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._lock = threading.RLock()
        self._projector = Projector(self.log_dir)
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        with self._lock:
            if self.file_writer is None or self.all_writers is None:
                self.file_writer = self._new(self.log_dir)
                self.all_writers = {self.log_dir: self.file_writer}
                if self.purge_step is not None:
                    version = wire.data(3, "brain.Event:2")
                    self.file_writer.add_event(version, self.purge_step)
                    started = wire.message(7, wire.integer(1, _START))
                    self.file_writer.add_event(started, self.purge_step)
                    self.purge_step = None
            return self.file_writer

    def _new(self, folder: str) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def _add(self, content: bytes, step: Any = None, walltime: float | None = None) -> None:
        self._get_file_writer().add_summary(content, step, walltime)

    def get_logdir(self) -> str:
        """The folder in which the files are."""
        return self.log_dir

    # --- numbers ---

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None,
        walltime: float | None = None, new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """Log one number."""
        found = summary.scalar(
            tag, scalar_value, new_style=new_style, double_precision=double_precision
        )
        self._add(found, global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Log several numbers that stand in one chart, each in a run of its own."""
        walltime = time.time() if walltime is None else walltime
        self._get_file_writer()
        for tag, value in tag_scalar_dict.items():
            content = summary.scalar(main_tag, value)
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            with self._lock:
                assert self.all_writers is not None
                if folder not in self.all_writers:
                    self.all_writers[folder] = self._new(folder)
                writer = self.all_writers[folder]
            writer.add_summary(content, global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Log a whole tensor."""
        self._add(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = "tensorflow",
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """Log how values are distributed; ``bins`` as in ``numpy.histogram``, or ``tensorflow``."""
        if isinstance(bins, str) and bins == "tensorflow":
            bins = self.default_bins
        self._add(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self, tag: str, min: float, max: float, num: float, sum: float, sum_squares: float,
        bucket_limits: Any, bucket_counts: Any, global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Log a histogram that was counted already."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError(
                f"len(bucket_limits) != len(bucket_counts): {len(bucket_limits)} upper limits and "
                f"{len(bucket_counts)} counts\n  at {errors.here()}"
            )
        found = summary.histogram_raw(
            tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts
        )
        self._add(found, global_step, walltime)

    # --- pictures and sound ---

    def add_image(
        self, tag: str, img_tensor: Any, global_step: int | None = None,
        walltime: float | None = None, dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """Log a picture: uint8 from 0 to 255, anything else from 0 to 1."""
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None,
        walltime: float | None = None, dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Log several pictures as one grid."""
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_image_with_boxes(
        self, tag: str, img_tensor: Any, box_tensor: Any, global_step: int | None = None,
        walltime: float | None = None, rescale: float = 1, dataformats: str = "CHW",
        labels: Any = None,
    ) -> None:  # fmt: skip
        """Log a picture with boxes (left, top, right, bottom) and their labels."""
        if labels is not None:
            labels = [labels] if isinstance(labels, str) else labels
            labels = labels if len(labels) == box_tensor.shape[0] else None
        found = summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, labels)
        self._add(found, global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Log a figure of Matplotlib, or a list of them."""
        layout = "NCHW" if isinstance(figure, (list, tuple)) else "CHW"
        pixels = pictures.figure_pixels(figure, close)
        self.add_image(tag, pixels, global_step, walltime, dataformats=layout)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: int | None = None, fps: float = 4,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Log videos (N, T, C, H, W) side by side, as an animated PNG."""
        self._add(summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: int | None = None, sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Log sound between -1 and 1."""
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    # --- text, charts, curves, meshes ---

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Log text, which TensorBoard reads as Markdown."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: int | None = None,
        num_thresholds: int = 127, weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Log precision over recall, of 0/1 labels and predicted probabilities."""
        found = summary.pr_curve(tag, labels, predictions, num_thresholds, weights)
        self._add(found, global_step, walltime)

    def add_pr_curve_raw(
        self, tag: str, true_positive_counts: Any, false_positive_counts: Any,
        true_negative_counts: Any, false_negative_counts: Any, precision: Any, recall: Any,
        global_step: int | None = None, num_thresholds: int = 127, weights: Any = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Log a curve of precision over recall that was computed already."""
        found = summary.pr_curve_raw(
            tag, true_positive_counts, false_positive_counts, true_negative_counts,
            false_negative_counts, precision, recall, num_thresholds, weights,
        )  # fmt: skip
        self._add(found, global_step, walltime)

    def add_custom_scalars_multilinechart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Put several scalars into one chart."""
        self._add(summary.custom_scalars({category: {title: ["Multiline", tags]}}))

    def add_custom_scalars_marginchart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Show a scalar with its lower and upper bound: three tags."""
        self._add(summary.custom_scalars({category: {title: ["Margin", tags]}}))

    def add_custom_scalars(self, layout: dict[str, dict[str, Any]]) -> None:
        """Say which charts there are: ``{category: {title: ["Multiline" | "Margin", tags]}}``."""
        self._add(summary.custom_scalars(layout))

    def add_mesh(
        self, tag: str, vertices: Any, colors: Any = None, faces: Any = None,
        config_dict: dict[str, Any] | None = None, global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Log points in space (B, N, 3), with colours and faces."""
        found = summary.mesh(tag, vertices, colors, faces, config_dict)
        self._add(found, global_step, walltime)

    # --- what belongs to the run as a whole ---

    def add_hparams(
        self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None, run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:  # fmt: skip
        """Log the settings of a run with the results that they gave."""
        parts = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        with SummaryWriter(folder) as writer:
            for part in parts:
                writer._add(part, global_step)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:  # fmt: skip
        """Run a model once, in evaluation mode, and log the graph of what it did."""
        from weft.utils.tensorboard._graph import graph_of

        self._get_file_writer().add_graph(graph_of(model, input_to_model, verbose))

    def add_onnx_graph(self, prototxt: Any) -> None:
        """Refused: weft does not read ONNX files."""
        raise NotImplementedError(
            "add_onnx_graph: weft does not read ONNX files. add_graph(model, inputs) logs the "
            f"graph of a model that runs here\n  at {errors.here()}"
        )

    def add_embedding(
        self, mat: Any, metadata: Any = None, label_img: Any = None,
        global_step: int | None = None, tag: str = "default", metadata_header: Any = None,
    ) -> None:  # fmt: skip
        """Log points (one in each row of ``mat``) for the projector, with labels and pictures."""
        with self._lock:
            self._get_file_writer()
            self._projector.add(mat, metadata, label_img, global_step or 0, tag, metadata_header)

    # --- the files ---

    def flush(self) -> None:
        """Put everything on the disk."""
        with self._lock:
            for writer in (self.all_writers or {}).values():
                writer.flush()

    def close(self) -> None:
        """Close the files; another call of ``add_...`` opens new ones."""
        with self._lock:
            writers, self.file_writer, self.all_writers = self.all_writers or {}, None, None
            for writer in writers.values():
                writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
