"""``torch.Size``: a tuple of ints that prints as ``torch.Size``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


class Size(tuple):
    """The shape of a tensor.

    >>> torch.Size([2, 3]).numel()
    6
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[int] = ()) -> Size:
        items = tuple(sizes)
        for i, item in enumerate(items):
            if not isinstance(item, int):
                if not hasattr(item, "__index__"):
                    kind = type(item).__name__
                    raise TypeError(
                        f"torch.Size() takes an iterable of 'int' (item {i} is '{kind}')"
                    )
                items = (*items[:i], item.__index__(), *items[i + 1 :])
        return super().__new__(cls, items)

    def numel(self) -> int:
        """How many elements a tensor of this shape has."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(index, slice) else found

    def __add__(self, other: Any) -> Size:
        if not isinstance(other, tuple):
            if hasattr(other, "__radd__") and not isinstance(other, (int, float)):
                return NotImplemented
            raise TypeError(
                f"can only concatenate tuple (not {type(other).__name__}) to torch.Size"
            )
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: Any) -> Size:
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, other: Any) -> Size:
        if not hasattr(other, "__index__"):
            return NotImplemented
        return Size(tuple.__mul__(self, other))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[Any, ...]:
        return (Size, (tuple(self),))
