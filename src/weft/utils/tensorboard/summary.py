"""What event files say: summaries of numbers, pictures, sound, text, curves and settings.

Each function gives a ``Summary`` message as bytes, for ``FileWriter.add_summary``.
"""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.devices import host
from weft.core.tensor import Tensor
from weft.utils.tensorboard import _pictures as pictures
from weft.utils.tensorboard import _wire as wire
from weft.utils.tensorboard._pictures import as_array

__all__ = [
    "audio", "compute_curve", "custom_scalars", "histogram", "histogram_raw", "hparams", "image",
    "image_boxes", "mesh", "pr_curve", "pr_curve_raw", "scalar", "tensor_proto", "text", "video",
]  # fmt: skip

_FLOAT, _DOUBLE, _STRING = 1, 2, 7
_DTYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "complex64": 8,
    "int64": 9, "bool": 10, "bfloat16": 14, "uint16": 17, "complex128": 18, "float16": 19,
    "uint32": 22, "uint64": 23,
}  # fmt: skip
_MOST_THRESHOLDS = 127


def _value(tag: str, *fields: bytes) -> bytes:
    return wire.message(1, wire.data(1, tag), *fields)


def _plugin(name: str, content: bytes = b"") -> bytes:
    return wire.message(9, wire.message(1, wire.data(1, name), wire.data(2, content)))


def shape_proto(shape: Sequence[int]) -> bytes:
    """The fields of a shape."""
    return b"".join(wire.message(2, wire.integer(1, n)) for n in shape)


def _tensor(dtype: int, shape: Sequence[int] | None, values: bytes) -> bytes:
    shaped = b"" if shape is None else wire.message(2, shape_proto(shape))
    return wire.message(8, wire.integer(1, dtype), shaped, values)


def _floats(array: np.ndarray) -> bytes:
    return _tensor(_FLOAT, array.shape, wire.array(5, array, "<f4"))


# --- numbers -----------------------------------------------------------------------------


def scalar(
    name: str,
    tensor: Any,
    collections: Any = None,
    new_style: bool = False,
    double_precision: bool = False,
) -> bytes:
    """One number."""
    found = as_array(tensor).squeeze()
    if found.ndim:
        raise AssertionError(
            f"Tensor should contain one element (0 dimensions). {name!r} was given size: "
            f"{found.size} and {found.ndim} dimensions\n  at {errors.here()}"
        )
    value = float(found)
    if not new_style:
        return _value(name, wire.single(2, value, always=True))
    numbers = wire.array(6, [value], "<f8") if double_precision else wire.array(5, [value], "<f4")
    stored = _tensor(_DOUBLE if double_precision else _FLOAT, None, numbers)
    return _value(name, stored, _plugin("scalars"))


def tensor_proto(tag: str, tensor: Tensor) -> bytes:
    """A whole tensor with its dtype and shape."""
    array = host(tensor) if isinstance(tensor, Tensor) else np.asarray(tensor)
    code = _DTYPES.get(array.dtype.name)
    if code is None:
        raise ValueError(f"{tag} has unsupported tensor dtype {array.dtype}\n  at {errors.here()}")
    if array.nbytes >= 1 << 31:
        raise ValueError(
            "tensor is bigger than protocol buffer's hard limit of 2GB in size: "
            f"{tag!r} has {errors.in_bytes(array.nbytes)}\n  at {errors.here()}"
        )
    content = np.ascontiguousarray(array).tobytes()
    if not array.ndim and not array.size:
        content = b""
    return _value(tag, _tensor(code, array.shape, wire.data(4, content)), _plugin("tensor"))


def histogram_raw(
    name: str, min: float, max: float, num: float, sum: float, sum_squares: float,
    bucket_limits: Any, bucket_counts: Any,
) -> bytes:  # fmt: skip
    """A histogram that was counted already."""
    heads = (min, max, num, sum, sum_squares)
    fields = [wire.double(k, float(v)) for k, v in enumerate(heads, 1)]
    limits = wire.array(6, as_array(bucket_limits) if isinstance(bucket_limits, Tensor)
                        else bucket_limits, "<f8")  # fmt: skip
    counts = wire.array(7, as_array(bucket_counts) if isinstance(bucket_counts, Tensor)
                        else bucket_counts, "<f8")  # fmt: skip
    return _value(name, wire.message(5, *fields, limits, counts))


def histogram(name: str, values: Any, bins: Any, max_bins: int | None = None) -> bytes:
    """How values are distributed."""
    flat = as_array(values).astype(np.float64).ravel()
    if not flat.size:
        raise ValueError(f"The input has no element: {name!r} is empty\n  at {errors.here()}")
    with np.errstate(all="ignore"):
        counts, limits = np.histogram(flat, bins=bins)
        if max_bins is not None and len(counts) > max_bins:
            counts, limits = _coarser(counts, limits, len(counts) // max_bins)
        counts, limits = _without_empty_ends(name, counts, limits)
        return histogram_raw(
            name, flat.min(), flat.max(), flat.size, flat.sum(), flat.dot(flat), limits, counts
        )


def _coarser(counts: np.ndarray, limits: np.ndarray, factor: int) -> tuple[Any, Any]:
    """Every so many buckets as one."""
    padded = np.pad(counts, (0, -len(counts) % factor))
    return padded.reshape(-1, factor).sum(1), np.append(limits[:-1:factor], limits[-1])


def _without_empty_ends(name: str, counts: np.ndarray, limits: np.ndarray) -> tuple[Any, Any]:
    """From the empty bucket before the first count to the last count.

    A bucket is known by its upper limit, so the one before says where the first one begins.
    """
    used = np.flatnonzero(counts)
    if not used.size:
        raise ValueError(
            f"no value of {name!r} is in any bucket: all are NaN, or outside of bins"
            f"\n  at {errors.here()}"
        )
    first, last = int(used[0]), int(used[-1])
    before = counts[first - 1 : first] if first else np.zeros(1, counts.dtype)
    return np.concatenate([before, counts[first : last + 1]]), limits[first : last + 2]


# --- pictures and sound ------------------------------------------------------------------


def _picture(tag: str, pixels: np.ndarray, encoded: bytes) -> bytes:
    height, width, channels = pixels.shape
    size = wire.integer(1, height) + wire.integer(2, width) + wire.integer(3, channels)
    return _value(tag, wire.message(4, size, wire.data(4, encoded)))


def image(tag: str, tensor: Any, rescale: float = 1, dataformats: str = "NCHW") -> bytes:
    """A picture, or a grid of pictures."""
    pixels = pictures.as_bytes(pictures.as_hwc(as_array(tensor), dataformats))
    if rescale == 1:
        return _picture(tag, pixels, pictures.png(np.ascontiguousarray(pixels)))
    scaled = pictures.with_boxes(pixels, np.zeros((0, 4)), None, rescale)
    return _picture(tag, pixels, pictures.png(scaled))


def image_boxes(
    tag: str,
    tensor_image: Any,
    tensor_boxes: Any,
    rescale: float = 1,
    dataformats: str = "CHW",
    labels: Sequence[str] | None = None,
) -> bytes:
    """A picture with boxes on it."""
    pixels = pictures.as_bytes(pictures.as_hwc(as_array(tensor_image), dataformats))
    boxes = as_array(tensor_boxes)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(f"boxes are (N, 4), not shape {boxes.shape}\n  at {errors.here()}")
    drawn = pictures.with_boxes(pixels, boxes, None if labels is None else [*labels], rescale)
    return _picture(tag, pixels, pictures.png(drawn))


def video(tag: str, tensor: Any, fps: float = 4) -> bytes:
    """Moving pictures."""
    frames = pictures.video_frames(as_array(tensor))
    if not len(frames) or not fps > 0:
        raise ValueError(
            f"a video has frames and fps > 0; {tag!r} has {len(frames)} frames, fps={fps!r}"
            f"\n  at {errors.here()}"
        )
    return _picture(tag, frames[0], pictures.animated_png(frames, fps))


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> bytes:
    """Sound between -1 and 1, in one channel."""
    array = as_array(tensor).squeeze()
    if array.ndim != 1 or not array.size:
        raise AssertionError(
            f"input tensor should be 1 dimensional: {tag!r} has shape {array.shape}"
            f"\n  at {errors.here()}"
        )
    samples = np.nan_to_num(array.astype(np.float64) if array.dtype.kind in "iub" else array)
    if np.abs(samples).max() > 1:
        errors.warn(f"audio amplitude out of range, auto clipped: {tag!r}")
        samples = samples.clip(-1, 1)
    samples = (samples * np.iinfo(np.int16).max).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes(samples.tobytes())
    return _value(
        tag,
        wire.message(
            6,
            wire.single(1, float(sample_rate)),
            wire.integer(2, 1),
            wire.integer(3, samples.shape[-1]),
            wire.data(4, file.getvalue()),
            wire.data(5, "audio/wav"),
        ),
    )


# --- text, charts, curves, meshes --------------------------------------------------------


def text(tag: str, text: str) -> bytes:
    """Text, which TensorBoard reads as Markdown."""
    stored = _tensor(_STRING, (1,), wire.data(8, text, always=True))
    return _value(f"{tag}/text_summary", stored, _plugin("text"))


def custom_scalars(layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> bytes:
    """Which scalars stand together in which chart."""
    categories = b"".join(
        wire.message(
            2,
            wire.data(1, title),
            *(wire.message(2, wire.data(1, name), _chart(name, *chart[:2]))
              for name, chart in charts.items()),
        )
        for title, charts in layout.items()
    )  # fmt: skip
    stored = _tensor(_STRING, (), wire.data(8, categories, always=True))
    return _value("custom_scalars__config__", stored, _plugin("custom_scalars"))


def _chart(name: str, kind: str, tags: Sequence[str]) -> bytes:
    if kind != "Margin":
        return wire.message(2, *(wire.data(1, tag) for tag in tags))
    if len(tags) != 3:
        raise AssertionError(
            f"a margin chart takes three tags (value, lower, upper); {name!r} has {len(tags)}"
            f"\n  at {errors.here()}"
        )
    series = (wire.data(k, tag) for k, tag in enumerate(tags, 1))
    return wire.message(3, wire.message(1, *series))


def pr_curve_raw(
    tag: str, tp: Any, fp: Any, tn: Any, fn: Any, precision: Any, recall: Any,
    num_thresholds: int = _MOST_THRESHOLDS, weights: Any = None,
) -> bytes:  # fmt: skip
    """A curve of precision over recall that was computed already."""
    parts = [as_array(x) if isinstance(x, Tensor) else x for x in (tp, fp, tn, fn)]
    parts += [as_array(x) if isinstance(x, Tensor) else x for x in (precision, recall)]
    return _curve(tag, np.stack(parts), min(num_thresholds, _MOST_THRESHOLDS))


def pr_curve(
    tag: str,
    labels: Any,
    predictions: Any,
    num_thresholds: int = _MOST_THRESHOLDS,
    weights: Any = None,
) -> bytes:
    """Precision over recall, of labels and the probabilities predicted for them."""
    count = min(num_thresholds, _MOST_THRESHOLDS)
    found = compute_curve(as_array(labels), as_array(predictions), count, weights)
    return _curve(tag, found, count)


def compute_curve(
    labels: np.ndarray, predictions: np.ndarray, num_thresholds: int, weights: Any = None
) -> np.ndarray:
    """True and false positives and negatives, precision and recall, for each threshold."""
    by_weight = 1.0 if weights is None else as_array(weights)
    places = np.floor(predictions * (num_thresholds - 1)).astype(np.int32)
    positive = labels.astype(np.float64)

    def at_least(amounts: np.ndarray) -> np.ndarray:
        counts, _ = np.histogram(
            places, num_thresholds, (0, num_thresholds - 1), weights=amounts * by_weight
        )
        return np.cumsum(counts[::-1])[::-1]

    tp, fp = at_least(positive), at_least(1.0 - positive)
    tn, fn = fp[0] - fp, tp[0] - tp
    least = 1e-7  # nothing is divided by zero
    return np.stack(
        [tp, fp, tn, fn, tp / np.maximum(least, tp + fp), tp / np.maximum(least, tp + fn)]
    )


def _curve(tag: str, data: np.ndarray, count: int) -> bytes:
    return _value(tag, _floats(data), _plugin("pr_curves", wire.integer(2, count)))


def mesh(
    tag: str,
    vertices: Any,
    colors: Any = None,
    faces: Any = None,
    config_dict: Mapping[str, Any] | None = None,
    display_name: str | None = None,
    description: str | None = None,
) -> bytes:
    """Points in space, with their colours and the triangles between them."""
    config = "{}" if config_dict is None else json.dumps(config_dict, sort_keys=True)
    kinds = {"VERTEX": (1, vertices), "FACE": (2, faces), "COLOR": (3, colors)}
    given = {name: (k, as_array(x)) for name, (k, x) in kinds.items() if x is not None}
    components = sum(1 << k for k, _ in given.values())
    values = []
    for name, (k, array) in given.items():
        if array.ndim != 3:
            raise ValueError(
                f"Tensor shape should be of shape BxNx3, but got {array.shape} for {name.lower()}"
                f"\n  at {errors.here()}"
            )
        content = (
            wire.data(2, tag) + wire.integer(3, k) + wire.data(5, config)
            + wire.integers(6, array.shape) + wire.integer(7, components)
        )  # fmt: skip
        plugin = wire.message(1, wire.data(1, "mesh"), wire.data(2, content))
        words = wire.data(2, display_name or "") + wire.data(3, description or "")
        values.append(_value(f"{tag}_{name}", _floats(array), wire.message(9, plugin, words)))
    return b"".join(values)


# --- settings ----------------------------------------------------------------------------


def hparams(
    hparam_dict: dict[str, Any],
    metric_dict: dict[str, Any],
    hparam_domain_discrete: dict[str, list[Any]] | None = None,
) -> tuple[bytes, bytes, bytes]:
    """The settings of a run: three summaries, of the experiment, the beginning and the end."""
    for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(given, dict):
            raise TypeError(
                f"parameter: {name} should be a dictionary, nothing logged.\n  at {errors.here()}"
            )
    domains = _domains(hparam_dict, hparam_domain_discrete)
    infos, starts = [], []
    for name, value in hparam_dict.items():
        if value is None:
            continue
        kind, stored = _setting(name, value)
        choices = [wire.message(1, _setting(name, d)[1]) for d in domains.get(name, ())]
        domain = wire.message(5, *choices) if name in domains else b""
        infos.append(wire.message(4, wire.data(1, name), wire.integer(4, kind), domain))
        starts.append(wire.message(1, wire.data(1, name), wire.message(2, stored)))
    metrics = [wire.message(5, wire.message(1, wire.data(2, name))) for name in metric_dict]
    success = wire.integer(1, 1)
    return (
        _session("experiment", wire.message(2, *infos, *metrics)),
        _session("session_start_info", wire.message(3, *starts)),
        _session("session_end_info", wire.message(4, success)),
    )


def _domains(values: dict[str, Any], given: Any) -> dict[str, list[Any]]:
    found = given or {}
    if not isinstance(found, dict):
        raise TypeError(
            "parameter: hparam_domain_discrete should be a dictionary, nothing logged."
            f"\n  at {errors.here()}"
        )
    for name, choices in found.items():
        kind = type(values.get(name))
        if name not in values or not isinstance(choices, list) or not all(
            isinstance(c, kind) for c in choices
        ):  # fmt: skip
            raise TypeError(
                f"parameter: hparam_domain_discrete[{name}] should be a list of same type as "
                f"hparam_dict[{name}].\n  at {errors.here()}"
            )
    return found


def _setting(name: str, value: Any) -> tuple[int, bytes]:
    """The type of a setting, and its value; a bool is a number there, as in PyTorch."""
    text_type, number_type = 1, 3
    if isinstance(value, str):
        return text_type, wire.data(3, value, always=True)
    if isinstance(value, (Tensor, np.generic, np.ndarray)):
        found = as_array(value) if isinstance(value, Tensor) else np.asarray(value)
        value = found.reshape(-1)[0].item() if found.size == 1 else None
    if isinstance(value, (int, float)):
        return number_type, wire.double(2, float(value), always=True)
    raise ValueError(
        f"value should be one of int, float, str, bool, or a tensor of one element: {name!r}"
        f"\n  at {errors.here()}"
    )


def _session(name: str, content: bytes) -> bytes:
    return _value(f"_hparams_/{name}", _plugin("hparams", content))
