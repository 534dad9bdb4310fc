"""Batches from samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.tensor import Tensor
from weft.operators.creation import as_tensor, tensor
from weft.operators.views import stack

_Map = dict[Any, Callable]
_UNKNOWN = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)


def _is_namedtuple(data: Any) -> bool:
    return isinstance(data, tuple) and hasattr(data, "_fields")


def _mapping_like(sample: Any, items: dict[Any, Any]) -> Any:
    """A mapping of the sample's own class with other values, or a dict if that can't be."""
    try:
        if isinstance(sample, MutableMapping):
            clone = copy.copy(sample)
            clone.update(items)
            return clone
        return type(sample)(items)
    except TypeError:
        return items


def _sequence_like(sample: Any, items: list[Any]) -> Any:
    """A sequence of the sample's own class with other items, or a list if that can't be."""
    try:
        if isinstance(sample, MutableSequence):
            clone = copy.copy(sample)
            for i, item in enumerate(items):
                clone[i] = item
            return clone
        return type(sample)(items)
    except TypeError:
        return items


def _no_array_type(array: np.ndarray) -> bool:
    return array.dtype.kind in "SUO"


def default_convert(data: Any) -> Any:
    """Turn the arrays in a sample into tensors and leave all else."""
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        if _no_array_type(np.asarray(data)):
            return data
        return as_tensor(data)
    if isinstance(data, Mapping):
        return _mapping_like(data, {k: default_convert(v) for k, v in data.items()})
    if _is_namedtuple(data):
        return type(data)(*map(default_convert, data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _sequence_like(data, [default_convert(d) for d in data])
    return data


def collate(batch: Sequence[Any], *, collate_fn_map: _Map | None = None) -> Any:
    """Make one thing of a list of samples by their type.

    ``collate_fn_map`` has a function for each type, called as ``f(batch, collate_fn_map=...)``;
    a type that is not in it is looked for by ``isinstance`` in the order of the map.
    """
    sample = batch[0]
    if collate_fn_map is not None:
        function = collate_fn_map.get(type(sample)) or next(
            (f for kind, f in collate_fn_map.items() if isinstance(sample, kind)), None
        )
        if function is not None:
            return function(batch, collate_fn_map=collate_fn_map)
    again = lambda column: collate(column, collate_fn_map=collate_fn_map)
    if isinstance(sample, Mapping):
        return _mapping_like(sample, {key: again([d[key] for d in batch]) for key in sample})
    if _is_namedtuple(sample):
        return type(sample)(*map(again, zip(*batch, strict=False)))
    if isinstance(sample, Sequence):
        if any(len(s) != len(sample) for s in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [again(column) for column in zip(*batch, strict=True)]
        return columns if isinstance(sample, tuple) else _sequence_like(sample, columns)
    raise TypeError(_UNKNOWN.format(type(sample)))


def collate_tensor_fn(batch: Sequence[Any], *, collate_fn_map: _Map | None = None) -> Any:
    """Stack tensors."""
    return stack(list(batch), 0)


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: _Map | None = None) -> Any:
    """Stack arrays as tensors."""
    if _no_array_type(batch[0]):
        raise TypeError(_UNKNOWN.format(batch[0].dtype))
    return collate([as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Sequence[Any], *, collate_fn_map: _Map | None = None) -> Any:
    """A tensor of NumPy numbers."""
    return as_tensor(np.asarray(batch))


def collate_float_fn(batch: Sequence[Any], *, collate_fn_map: _Map | None = None) -> Any:
    """A tensor of floats, in Python's precision."""
    return tensor(batch, dtype=dt.float64)


def collate_int_fn(batch: Sequence[Any], *, collate_fn_map: _Map | None = None) -> Any:
    """A tensor of ints or bools."""
    return tensor(batch)


def collate_str_fn(batch: Sequence[Any], *, collate_fn_map: _Map | None = None) -> Any:
    """Text stays as it is."""
    return batch


default_collate_fn_map: _Map = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack samples into a batch: numbers and arrays become tensors, containers stay."""
    return collate(batch, collate_fn_map=default_collate_fn_map)
