"""How the latest values of a running program were made: what patterns look back at."""

from __future__ import annotations

import weakref
from typing import Any

from weft.core.dispatch import Op
from weft.core.inference import entry
from weft.core.tensor import Tensor


class Made:
    """How a value was made."""

    def __init__(self, t: Tensor, call: tuple[Any, ...], cells: list[Any]) -> None:
        self.array, self.call = weakref.ref(t._a), call
        self.cells, self.version = cells, sum(entry(cell, 0) for cell in cells)

    def overwritten(self) -> bool:
        """Whether what the op read or gave was written to since."""
        return sum(entry(cell, 0) for cell in self.cells) != self.version


# By the number of an array: how many ops ago it was made, and how.
History = dict[int, tuple[int, Made]]


class Past:
    """Values that the program still holds, each with what was made before it.

    No more is kept alive than patterns can reach: an input that is known here is held under
    another name, so that it is forgotten by itself as soon as the program drops it.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Tensor], Made, History]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()

    def add(
        self, op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor], reach: int
    ) -> None:
        """Note what an op gave; patterns look back over ``reach`` ops at most."""
        before: History = {}
        inputs = []
        for x in args:
            found = self.of(x)
            inputs.append(x.alias_of() if found else x)
            for key, (far, made) in found.items():
                if far < reach:
                    before.setdefault(key, (far + 1, made))
        cells = [x._vc for x in (*results, *inputs) if isinstance(x, Tensor)]
        forget = self._held.pop
        for k, t in enumerate(results):
            key = id(t._a)
            held = weakref.ref(t, lambda _, key=key: forget(key, None))
            self._held[key] = held, Made(t, (op, tuple(inputs), attrs, k), cells), before

    def of(self, value: Any) -> History:
        """How a value was made, if that is known, and what was made before it."""
        held = self._held.get(id(value._a)) if isinstance(value, Tensor) else None
        if held is None or held[1].array() is not value._a:
            return {}
        return {id(value._a): (0, held[1]), **held[2]}


class Look:
    """One look back, from value to value: ``look(value)`` gives (op, args, attrs, index)."""

    def __init__(self, past: Past, start: Any, call: tuple[Any, ...]) -> None:
        self.past, self.start, self.call = past, start, call
        self.seen: History = {}

    def __call__(self, value: Any) -> tuple[Any, ...] | None:
        if value is self.start:
            return self.call
        if not isinstance(value, Tensor):
            return None
        self.seen.update(self.past.of(value))
        made = self.seen.get(id(value._a), (0, None))[1]
        if made is None or made.array() is not value._a or made.overwritten():
            return None
        return made.call
