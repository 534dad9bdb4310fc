"""Every function of torch's op table with something that is no tensor in the place of a tensor.

    python -m foreign_arguments [pattern]

A sample of the table gives a call that works. In it each tensor in turn is replaced by a list, a
NumPy array, a string and None; where torch raises TypeError, so must weft.
"""

from __future__ import annotations

import fnmatch
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import opdb
from opdb import torch

FOREIGN = {
    "list": lambda t: t.tolist() if t.dim() else [t.item()],
    "array": lambda t: opdb.array_of(t.detach()).copy(),
    "str": lambda t: "tensor",
    "None": lambda t: None,
}


# What weft takes all the same, or has another error for: None where it may also be left out, what
# Python's == needs.
TAKEN = {
    *(("eq", "None"), ("ne", "None"), ("max.binary", "None"), ("min.binary", "None")),
    *(("trapz", "None"), ("trapezoid", "None"), ("cumulative_trapezoid", "None")),
    *(("copysign", "None"), ("masked.median", "array")),
    *(("max.binary", "array"), ("min.binary", "array")),  # without dimensions: a dim
}


def sample_of(op: Any) -> Any:
    """The first sample whose first argument is a tensor of several elements, or None."""
    # The table seeds before every sample and looks for a test among the callers: both are slow.
    seed = mock.patch("torch.manual_seed", torch.default_generator.manual_seed)
    with seed, mock.patch("torch.testing._internal.common_utils.extract_test_fn", lambda: None):
        return _sample_of(op)


def _sample_of(op: Any) -> Any:
    for dtype in ("float32", "int64", "complex64", "bool"):
        if getattr(torch, dtype) in op.supported_dtypes("cpu"):
            made = op.sample_inputs("cpu", getattr(torch, dtype))
            first = None
            for _ in range(4):
                sample = next(made, None)
                if sample is None:
                    break
                first = first or sample
                if isinstance(sample.input, torch.Tensor) and 1 < sample.input.numel() < 200:
                    return sample
            return first
    return None


def outcome(function: Any, args: list[Any], kwargs: dict[str, Any]) -> BaseException | None:
    try:
        function(*args, **kwargs)
    except Exception as error:
        return error
    return None


def places(args: list[Any], kwargs: dict[str, Any]) -> Iterator[Any]:
    """Where the tensors of a call are: an index or a name."""
    for place, value in (*enumerate(args), *kwargs.items()):
        if isinstance(value, torch.Tensor):
            yield place


def replaced(args: list[Any], kwargs: dict[str, Any], place: Any, value: Any) -> tuple[Any, Any]:
    args, kwargs = list(args), dict(kwargs)
    (args if isinstance(place, int) else kwargs)[place] = value
    return args, kwargs


def differences(op: Any) -> Iterator[str]:
    """Calls of an op with a foreign argument of which torch alone says TypeError."""
    sample = sample_of(op)
    if sample is None:
        return
    args, kwargs = opdb.parts_of(sample)
    ours, name = opdb.counterpart(op), opdb.full_name(op)
    for place in places(args, kwargs):
        given = args[place] if isinstance(place, int) else kwargs[place]
        for kind, make in FOREIGN.items():
            value = make(given)
            expected = outcome(op.op, *replaced(opdb.fresh(args), opdb.fresh(kwargs), place, value))
            if not isinstance(expected, TypeError):
                continue
            found = outcome(ours, *replaced(opdb.to_weft(args), opdb.to_weft(kwargs), place, value))
            # An array is as good as a tensor to many functions of weft, which PyTorch refuses.
            taken = (found is None and kind == "array") or (name, kind) in TAKEN
            if not isinstance(found, TypeError) and not taken:
                yield f"{name}, {kind} as {place!r}: {found!r} for {expected!r}"


def ops() -> Iterator[Any]:
    for op in opdb.op_db:
        if op.name not in opdb.OUT_OF_SCOPE and opdb.full_name(op) not in opdb.OUT_OF_SCOPE:
            yield op


def main() -> int:
    pattern = sys.argv[1] if len(sys.argv) > 1 else "*"
    kinds = Counter[str]()
    for op in ops():
        if not fnmatch.fnmatch(opdb.full_name(op), pattern):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for text in differences(op):
                print(text.replace("\n", " ")[:300])
                kinds[text.partition(": ")[2].partition("(")[0]] += 1
    print(dict(kinds))
    return int(bool(kinds))


if __name__ == "__main__":
    sys.exit(main())
