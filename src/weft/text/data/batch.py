"""A batch: the columns of several examples as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.core.tensor import Tensor


class Batch:
    """The tensors of a batch as attributes; unpacking gives the inputs and the targets."""

    batch_size: int
    dataset: Any
    fields: Any
    input_fields: list[str]
    target_fields: list[str]

    def __init__(self, data: Any = None, dataset: Any = None, device: Any = None) -> None:
        if data is None:
            return
        self.batch_size = len(data)
        self.dataset = dataset
        self.fields = dataset.fields.keys()
        used = {name: field for name, field in dataset.fields.items() if field is not None}
        self.input_fields = [name for name, field in used.items() if not field.is_target]
        self.target_fields = [name for name, field in used.items() if field.is_target]
        for name, field in used.items():
            setattr(self, name, field.process([getattr(x, name) for x in data], device=device))

    @classmethod
    def fromvars(cls, dataset: Any, batch_size: int, train: Any = None, **kwargs: Any) -> Batch:
        """A batch of tensors that are there already."""
        made = cls()
        made.batch_size, made.dataset, made.fields = batch_size, dataset, dataset.fields.keys()
        for name, value in kwargs.items():
            setattr(made, name, value)
        return made

    def __len__(self) -> int:
        return self.batch_size

    def _values(self, names: list[str]) -> Any:
        if len(names) <= 1:
            return getattr(self, names[0]) if names else None
        return tuple(getattr(self, name) for name in names)

    def __iter__(self) -> Iterator[Any]:
        yield self._values(self.input_fields)
        yield self._values(self.target_fields)

    def __repr__(self) -> str:
        if not self.__dict__:
            return "Empty Batch"
        shown = [f"\t[.{n}]:{_short(getattr(self, n))}" for n in self.fields if hasattr(self, n)]
        return "\n".join([f"\n[Batch of size {self.batch_size}]", *shown])


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"[{value.type()} of size {'x'.join(map(str, value.shape))}]"
    if isinstance(value, tuple):
        return str(tuple(map(_short, value)))
    return str(value)
