"""The printed form of tensors, character for character as PyTorch prints them."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from weft.core.meta import MetaArray

__all__ = [
    "format_scalar",
    "format_tensor",
    "get_printoptions",
    "printoptions",
    "set_printoptions",
]


@dataclass(frozen=True)
class _PrintOptions:
    """The settings that shape the printed form."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: float = 80
    sci_mode: bool | None = None


_PROFILES = {
    "default": _PrintOptions(),
    "short": _PrintOptions(precision=2, edgeitems=2),
    "full": _PrintOptions(threshold=math.inf),
}

_options = _PROFILES["default"]


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: float | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Change how tensors print; options left as None keep their value, except sci_mode."""
    global _options
    # As in PyTorch, an unknown profile is passed over in silence.
    base = _options if profile is None else _PROFILES.get(profile, _options)
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    # None is a choice of its own for sci_mode ("decide by the values"), so it is always set.
    _options = replace(base, sci_mode=sci_mode, **changes)


def get_printoptions() -> dict[str, Any]:
    """Return the current options as a dictionary."""
    return asdict(_options)


@contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """Set print options for the length of a `with` block."""
    global _options
    saved = _options
    try:
        set_printoptions(**kwargs)
        yield
    finally:
        _options = saved


def format_tensor(
    array: np.ndarray,
    *,
    dtype_name: str,
    default_dtype_name: str = "float32",
    requires_grad: bool = False,
    grad_fn_name: str | None = None,
    prefix: str = "tensor(",
    suffixes: Sequence[str] = (),
    device: str = "",
) -> str:
    """Return the printed form of a tensor; extra `suffixes` come last in the brackets."""
    indent = len(prefix)
    notes = []
    if array.__class__ is MetaArray:
        body = "..."
        notes += ["device='meta'", f"size={array.shape}"]
    elif array.size == 0:
        body = "[]"
        if array.ndim != 1:
            notes.append(f"size={array.shape}")
    else:
        body = _format_body(array, dtype_name, indent)
        # Without edge items the values may be hidden altogether, so the shape is spelt out.
        if _options.edgeitems == 0:
            notes.append(f"size={array.shape}")

    if device and device not in ("cpu", "meta"):
        notes.insert(0, f"device='{device}'")
    empty = array.size == 0 or array.__class__ is MetaArray
    if not _is_implied(dtype_name, default_dtype_name, empty=empty):
        notes.append(f"dtype=torch.{dtype_name}")
    if grad_fn_name is not None:
        notes.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        notes.append("requires_grad=True")
    return _append_notes(prefix + body, [*notes, *suffixes], indent)


def format_scalar(value: Any, spec: str = "") -> str:
    """Format a 0-d array or scalar the way `format` treats the Python number it holds."""
    item = np.asarray(value).item()
    # The item of an ml_dtypes array is a scalar of that type, which Python cannot format.
    if not isinstance(item, (bool, int, float, complex)):
        item = float(item)
    return format(item, spec)


def _is_implied(dtype_name: str, default_dtype_name: str, empty: bool) -> bool:
    """Tell whether a reader knows the dtype from the values alone."""
    if dtype_name == default_dtype_name:
        return True
    if empty:
        return False
    default_complex = "complex128" if default_dtype_name == "float64" else "complex64"
    return dtype_name in ("int64", "bool", default_complex)


def _append_notes(text: str, notes: Sequence[str], indent: int) -> str:
    """Add the notes and the closing bracket, on new lines where a note would not fit."""
    parts = [text]
    # PyTorch holds back two columns here, but none after a break; the output depends on it.
    used = len(text) - (text.rfind("\n") + 1) + 2
    for note in notes:
        grown = used + len(note) + 2
        if grown > _options.linewidth:
            parts.append(",\n" + " " * indent + note)
            used = indent + len(note)
        else:
            parts.append(", " + note)
            used = grown
    return "".join(parts) + ")"


def _format_body(array: np.ndarray, dtype_name: str, indent: int) -> str:
    """Lay out the values, leaving out the middle of long axes of large arrays."""
    summarise = array.size > _options.threshold
    if summarise and array.ndim > 0 and _options.edgeitems == 0:
        return "[...]"
    cuts = [summarise and size > 2 * _options.edgeitems for size in array.shape]
    if any(cuts):
        array = _keep_edges(array, cuts)
    texts, width = _format_values(array.ravel(), dtype_name)
    cells = np.array(texts, dtype=object).reshape(array.shape).tolist()
    return _lay_out(cells, cuts, indent, width)


def _keep_edges(array: np.ndarray, cuts: Sequence[bool]) -> np.ndarray:
    """Return the first and last few entries of each axis that is cut."""
    edge = _options.edgeitems
    kept = [
        [*range(edge), *range(size - edge, size)] if cut else range(size)
        for size, cut in zip(array.shape, cuts, strict=True)
    ]
    return array[np.ix_(*kept)]


def _lay_out(cells: Any, cuts: Sequence[bool], indent: int, width: int) -> str:
    """Join nested lists of texts with brackets, commas and line breaks."""
    if not cuts:
        return cells
    margin = " " * (indent + 1)
    if len(cuts) == 1:
        row = list(cells)
        if cuts[0]:
            row.insert(_options.edgeitems, " ...")
        per_line = max(1, math.floor((_options.linewidth - indent) / (width + 2)))
        lines = [", ".join(row[at : at + per_line]) for at in range(0, len(row), per_line)]
        return "[" + (",\n" + margin).join(lines) + "]"
    blocks = [_lay_out(cell, cuts[1:], indent + 1, width) for cell in cells]
    if cuts[0]:
        blocks.insert(_options.edgeitems, "...")
    return "[" + ("," + "\n" * (len(cuts) - 1) + margin).join(blocks) + "]"


def _format_values(values: np.ndarray, dtype_name: str) -> tuple[list[str], int]:
    """Return the aligned texts of a flat array and the width that line breaking counts with."""
    if dtype_name.startswith("complex"):
        return _format_complex(values)
    if dtype_name == "bool" or dtype_name.startswith(("int", "uint")):
        kind = bool if dtype_name == "bool" else int
        texts = [str(kind(value)) for value in values.tolist()]
        return _align(texts, max(map(len, texts)))
    texts, width = _format_reals(values)
    return _align(texts, width)


def _align(texts: list[str], width: int) -> tuple[list[str], int]:
    """Pad the texts on the left to the width."""
    return [text.rjust(width) for text in texts], width


def _format_complex(values: np.ndarray) -> tuple[list[str], int]:
    """Return the texts of complex numbers, each part in a style of its own."""
    real_texts, real_width = _align(*_format_reals(np.real(values)))
    imag_texts, imag_width = _format_reals(np.imag(values))
    texts = [
        real + ("" if imag.startswith("-") else "+") + imag + "j"
        for real, imag in zip(real_texts, imag_texts, strict=True)
    ]
    return texts, real_width + imag_width + 1


def _format_reals(values: np.ndarray) -> tuple[list[str], int]:
    """Return the unpadded texts of real numbers and the width to pad them to."""
    # A type without a zero prints its least number, whose bits are zero, as one.
    zero = float(np.zeros((), values.dtype))
    # Signalling nan values would warn when cast.
    with np.errstate(invalid="ignore"):
        values = values.astype(np.float64)
    decisive = np.isfinite(values) & (values != zero)
    sizes = np.abs(values[decisive])
    if sizes.size == 0:
        # PyTorch takes a width of one here although "0." needs two, so long lines of
        # zeros run past the line width.
        return _write_reals(values, whole=True, scientific=False), 1
    whole = bool(np.all(sizes == np.floor(sizes)))
    scientific = _options.sci_mode
    if scientific is None:
        scientific = _needs_exponent(float(sizes.min()), float(sizes.max()))
    texts = _write_reals(values, whole, scientific)
    # Zeros, infinities and nan have no say in the width, as in PyTorch.
    width = max(len(texts[at]) for at in np.flatnonzero(decisive).tolist())
    return texts, width


def _needs_exponent(smallest: float, largest: float) -> bool:
    """Tell whether the values are too far apart, too large or too small for plain decimals."""
    return largest / smallest > 1000 or largest > 1e8 or smallest < 1e-4


def _write_reals(values: np.ndarray, whole: bool, scientific: bool) -> list[str]:
    """Write each number in the chosen style."""
    numbers = values.tolist()
    if scientific:
        return [f"{number:.{_options.precision}e}" for number in numbers]
    if whole:
        return [f"{number:.0f}." if math.isfinite(number) else f"{number}" for number in numbers]
    return [f"{number:.{_options.precision}f}" for number in numbers]
