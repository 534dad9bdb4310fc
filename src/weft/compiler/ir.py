"""What the compiler works on: values, and the work that makes values of values.

A record of a graph (``graph.spec.Spec``) says what ran; a ``WorkNode`` here says what has to run,
and of what kind its results are. A node of the graph may become several of these (the terms of a
gradient are added by ops, a derivative rule is opened into the ops it is written in) or none (what
only gives another name to a value).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.graph.spec import Spec

ndarray = np.ndarray


class CannotLower(Exception):
    """A graph with something in it that a program can't do; the message says what."""


class Value:
    """An array that a program reads or makes; of which shape and dtype are known.

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
    """A Python number that is given anew for every run; ``index`` says which.

    To kernels it is an array without dimensions, in the type of the arrays beside it.
    """

    __slots__ = ("index",)

    def __init__(self, index: int, dtype: Any) -> None:
        super().__init__((), dtype)
        self.index = index


class Work:
    """What a node does: ``native`` is what a plan is made of, ``python`` runs where none can be."""

    name = ""
    pure = True  # whether equal inputs give equal results, and nothing else happens
    members: Sequence[WorkNode] = ()  # the nodes in it, if it is several in one loop

    def native(self, *args: Any) -> Any:
        """The results by kernels alone; it may raise ``Unplannable``."""
        from weft.native.memory.buffers import Unplannable

        raise Unplannable("it has no kernel")

    def python(self, *args: Any) -> Any:
        """The results, by any means."""
        raise NotImplementedError

    def key(self) -> Any:
        """What is equal for works that do the same; None if that is not known."""
        return None

    def parts(self) -> Sequence[WorkNode]:
        """What runs in its place if it can't be planned, one after another."""
        return ()


def constant_key(x: Any) -> Any:
    """What is equal for constants that are the same operand.

    By type and text: 1, 1.0 and True are equal but not the same operand; so are 0.0 and -0.0.
    """
    return x.__class__, x, repr(x)


def attrs_key(attrs: dict[str, Any]) -> Any:
    """What is equal for equal attributes; None if they can't be compared."""
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
    """One piece of work: what it reads, and the values it makes."""

    __slots__ = ("_reads", "args", "results", "spec", "work")

    def __init__(self, work: Work, args: Iterable[Any], results: Iterable[Value], spec: Spec):
        self.work, self.args, self.results = work, tuple(args), tuple(results)
        self.spec = spec  # where it comes from
        self._reads = tuple([x for x in self.args if isinstance(x, Value)])

    def inputs(self) -> tuple[Value, ...]:
        """The values that it reads."""
        return self._reads

    def key(self, number: Mapping[Value, Any] | None = None) -> Any:
        """What is equal for nodes that do the same to values of equal numbers, or to the same
        values; None if that is not known.
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
    """By value: the node that makes it, and those that read it."""
    maker: dict[Value, WorkNode] = {}
    readers: dict[Value, list[WorkNode]] = {}
    for node in nodes:
        maker.update(dict.fromkeys(node.results, node))
        for x in dict.fromkeys(node.inputs()):
            readers.setdefault(x, []).append(node)
    return maker, readers
