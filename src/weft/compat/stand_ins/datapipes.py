"""Datapipes: datasets in a chain, each with the others' steps as its methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from weft.utils.data.dataset import Dataset, IterableDataset

StreamWrapper = Any


class _WithSteps:
    """Steps that were registered by name are methods: ``pipe.batch(4)``."""

    functions: dict[str, Callable]

    def __getattr__(self, name: str) -> Any:
        step = type(self).functions.get(name)
        if step is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(step, self)

    @classmethod
    def register_function(cls, function_name: str, function: Callable) -> None:
        """Let a function of a pipe be a method of all pipes."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Callable, enable_df_api_tracing: bool = False
    ) -> None:
        """Let a class of pipes be a method of all pipes."""
        if function_name in cls.functions:
            raise Exception(
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )
        cls.functions[function_name] = cls_to_register

    def __repr__(self) -> str:
        return type(self).__qualname__


class IterDataPipe(_WithSteps, IterableDataset):
    """A pipe that is read from its beginning."""

    functions: dict[str, Callable] = {}


class MapDataPipe(_WithSteps, Dataset):
    """A pipe whose samples have keys."""

    functions: dict[str, Callable] = {}


class DFIterDataPipe(IterDataPipe):
    """A pipe of data frames."""


class functional_datapipe:
    """A decorator: a class of pipes under the name of a method of all pipes."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls: Any) -> Any:
        """Register the class."""
        kind = IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe
        if not issubclass(cls, kind):
            raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")
        kind.register_datapipe_as_function(self.name, cls)
        return cls


def _as_it_is(source: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator that changes nothing, with arguments or without."""
    return source if callable(source) and not args and not kwargs else lambda found: found


guaranteed_datapipes_determinism = non_deterministic = _as_it_is
argument_validation = runtime_validation = _as_it_is


class IterableWrapper(IterDataPipe):
    """A pipe over something that can be iterated."""

    def __init__(self, iterable: Any, deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        import copy

        yield from copy.deepcopy(self.iterable) if self.deepcopy else self.iterable

    def __len__(self) -> int:
        return len(self.iterable)


@functional_datapipe("map")
class Mapper(IterDataPipe):
    """A function of each sample."""

    def __init__(self, datapipe: Any, fn: Callable) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __iter__(self) -> Iterator[Any]:
        yield from map(self.fn, self.datapipe)

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("filter")
class Filter(IterDataPipe):
    """The samples that satisfy a condition."""

    def __init__(self, datapipe: Any, filter_fn: Callable) -> None:
        self.datapipe, self.filter_fn = datapipe, filter_fn

    def __iter__(self) -> Iterator[Any]:
        yield from filter(self.filter_fn, self.datapipe)


@functional_datapipe("batch")
class Batcher(IterDataPipe):
    """Samples in lists of a size."""

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False) -> None:
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        batch: list[Any] = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch
