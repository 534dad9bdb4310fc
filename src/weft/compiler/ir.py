"""The compiler's IR: values, and the work that computes values from values.

A record of a graph (``graph.spec.Spec``) says what ran; a ``WorkNode`` says what has to run, and
the kinds of its results. A node of the graph may become several of these (the terms of a gradient
are added by ops, a derivative rule is expanded into its ops) or none (if it only renames a value).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.graph.spec import Spec

ndarray = np.ndarray


class CannotLower(Exception):
    """A graph with something that programs don't support; the message says what."""


class Value:
    """An array that a program reads or computes, with known shape and dtype.

    ``constant`` is the array of a value that is the same in every run.
    """

    __slots__ = ("constant", "dtype", "leaf", "shape")

    def __init__(
        self, shape: Any, dtype: Any, leaf: int | None = None, constant: ndarray | None = None
    ) -> None:
        self.shape: tuple[int, ...] = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.leaf, self.constant = leaf, constant

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class Number(Value):
    """A Python number that is passed to every run; ``index`` says which.

    To kernels it is a zero-dimensional array, with the dtype of the other arrays.
    """

    __slots__ = ("index",)

    def __init__(self, index: int, dtype: Any) -> None:
        super().__init__((), dtype)
        self.index = index


class Work:
    """The work of a node: plans are made from ``native``; ``python`` runs if there is no plan."""

    name = ""
    pure = True  # whether it is pure: equal inputs give equal results, without side effects
    members: Sequence[WorkNode] = ()  # its nodes, if it fuses several into one loop

    def native(self, *args: Any) -> Any:
        """The results by kernels alone; it may raise ``Unplannable``."""
        from weft.native.memory.buffers import Unplannable

        raise Unplannable("it has no kernel")

    def python(self, *args: Any) -> Any:
        """The results, by any means."""
        raise NotImplementedError

    def key(self) -> Any:
        """A key that is equal for equal work; None if unknown."""
        return None

    def parts(self) -> Sequence[WorkNode]:
        """The nodes that run instead if it can't be planned, one after another."""
        return ()


def constant_key(x: Any) -> Any:
    """A key that is equal for constants that are the same operand.

    By type and text: 1, 1.0 and True are equal but not the same operand; so are 0.0 and -0.0.
    """
    return x.__class__, x, repr(x)


def attrs_key(attrs: dict[str, Any]) -> Any:
    """A key for attributes; None if they can't be compared."""
    if not attrs:
        return ()
    found = tuple((name, constant_key(attrs[name])) for name in sorted(attrs))
    try:
        hash(found)
    except TypeError:
        return None
    return found


class FunctionWork(Work):
    """A Python function of arrays, which runs between two native calls."""

    def __init__(self, name: str, function: Callable, pure: bool = True) -> None:
        self.name, self.function, self.pure = name, function, pure

    def python(self, *args: Any) -> Any:
        return self.function(*args)


class WorkNode:
    """One piece of work: the values that it reads and computes."""

    __slots__ = ("_reads", "args", "results", "spec", "work")

    def __init__(self, work: Work, args: Iterable[Any], results: Iterable[Value], spec: Spec):
        self.work, self.args, self.results = work, tuple(args), tuple(results)
        self.spec = spec  # where it comes from
        self._reads = tuple([x for x in self.args if isinstance(x, Value)])

    def inputs(self) -> tuple[Value, ...]:
        """The values that it reads."""
        return self._reads

    def key(self, number: Mapping[Value, Any] | None = None) -> Any:
        """A key that is equal for nodes that do the same to values of equal numbers, or to the same
        values; None if unknown.
        """
        own = self.work.key()
        if own is None:
            return None
        args = []
        for x in self.args:
            if isinstance(x, Value):
                args.append(x if number is None else number[x])
                continue
            try:
                hash(x)
            except TypeError:
                return None
            args.append(constant_key(x))
        return own, tuple(args)

    def __repr__(self) -> str:
        return f"{self.work.name}{self.args} -> {self.results}"


def links(nodes: Iterable[WorkNode]) -> tuple[dict[Value, WorkNode], dict[Value, list[WorkNode]]]:
    """By value: the node that computes it, and those that read it."""
    maker: dict[Value, WorkNode] = {}
    readers: dict[Value, list[WorkNode]] = {}
    for node in nodes:
        maker.update(dict.fromkeys(node.results, node))
        for x in dict.fromkeys(node.inputs()):
            readers.setdefault(x, []).append(node)
    return maker, readers
