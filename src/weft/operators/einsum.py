"""Einstein summation, by permutations, sums and matrix products."""

from __future__ import annotations

import functools
import math
import operator
import string
from collections.abc import Callable
from typing import Any, NamedTuple

from weft.core import errors
from weft.core.tensor import Tensor
from weft.operators import api
from weft.operators.matmul import bmm_pair, mm_pair
from weft.operators.views import permute_op, reshape_op

# Labels are numbers: letters first, then the dimensions that an ellipsis stands for.
LETTERS = {letter: k for k, letter in enumerate(string.ascii_uppercase + string.ascii_lowercase)}
ELLIPSIS = -1


def _refuse(message: str) -> RuntimeError:
    return RuntimeError(f"einsum(): {message}\n  at {errors.here()}")


def _labels(text: str, what: str) -> tuple[int, ...]:
    """The labels of one operand of an equation."""
    found: list[int] = []
    text = text.replace(" ", "")
    k = 0
    while k < len(text):
        if text[k] == ".":
            if text[k : k + 3] != "..." or ELLIPSIS in found:
                raise _refuse(
                    f"found '.' {what} that is not part of any ellipsis; write '...' once"
                )
            found.append(ELLIPSIS)
            k += 3
            continue
        if text[k] not in LETTERS:
            raise _refuse(
                f"invalid subscript given at index {k} in the equation string, subscripts must be "
                "in [a-zA-Z]"
            )
        found.append(LETTERS[text[k]])
        k += 1
    return tuple(found)


@functools.lru_cache(maxsize=512)
def _parse(equation: str) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...] | None]:
    left, arrow, right = equation.partition("->")
    inputs = tuple(_labels(part, f"for operand {k}") for k, part in enumerate(left.split(",")))
    return inputs, _labels(right, "in the output") if arrow else None


def _resolve(
    inputs: tuple[tuple[int, ...], ...], output: tuple[int, ...] | None, ranks: tuple[int, ...]
) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Every dimension by its own label: ellipses spelled out, the output made explicit."""
    widths = []
    for k, (labels, rank) in enumerate(zip(inputs, ranks, strict=True)):
        named = sum(label != ELLIPSIS for label in labels)
        if named > rank or (named != rank and ELLIPSIS not in labels):
            raise _refuse(
                f"the number of subscripts in the equation ({named}) does not match the number "
                f"of dimensions ({rank}) for operand {k}"
                + ("" if ELLIPSIS in labels else " and no ellipsis was given")
            )
        widths.append(rank - named)
    widest = max((w for w, i in zip(widths, inputs, strict=True) if ELLIPSIS in i), default=0)
    spelled = [_spell(labels, width, widest) for labels, width in zip(inputs, widths, strict=True)]
    if output is None:
        counts: dict[int, int] = {}
        for labels in spelled:
            for label in labels:
                counts[label] = counts.get(label, 0) + 1
        dots = tuple(_dot_label(widest, d) for d in range(widest))
        letters = sorted(label for label, n in counts.items() if n == 1 and label < 100)
        return spelled, (*dots, *letters)
    final = _spell(output, widest, widest)
    for label in final:
        if final.count(label) > 1:
            raise _refuse(f"output subscript {_name(label)} appears more than once in the output")
        if not any(label in labels for labels in spelled):
            raise _refuse(
                f"output subscript {_name(label)} does not appear in the equation for any input "
                "operand"
            )
    return spelled, final


def _dot_label(widest: int, place: int) -> int:
    # Ellipses line up at their right ends.
    return 1000 + place - widest


def _spell(labels: tuple[int, ...], width: int, widest: int) -> tuple[int, ...]:
    out: list[int] = []
    for label in labels:
        if label == ELLIPSIS:
            out += [_dot_label(widest, d) for d in range(widest - width, widest)]
        else:
            out.append(label)
    return tuple(out)


def _name(label: int) -> str:
    names = {k: letter for letter, k in LETTERS.items()}
    return names.get(label, str(label))


@api.top
def einsum(*args: Any) -> Tensor:
    """Products of tensors, summed over the labels that the output lacks.

    >>> import weft
    >>> weft.einsum("ij,kj->ik", weft.ones(2, 3), weft.ones(1, 3))
    tensor([[3.],
            [3.]])
    """
    operands, inputs, output = _arguments(args)
    program = _compile(inputs, output, tuple(x._a.shape for x in operands))
    values = list(operands)
    for function, slots in program:
        values.append(function(*[values[k] for k in slots]))
    return values[-1]


def _arguments(args: Any) -> tuple[Any, tuple[tuple[int, ...], ...], tuple[int, ...] | None]:
    if not args:
        raise _refuse("must specify the equation string and at least one operand")
    if isinstance(args[0], str):
        operands = args[1:]
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = operands[0]
        if not operands:
            raise _refuse("must provide at least one operand")
        return operands, *_parse(args[0])
    output = None
    if any(not isinstance(x, Tensor) for x in args[::2][: len(args) // 2]):
        raise TypeError(
            "einsum(): argument 'equation' (position 1) must be str, not "
            f"{type(args[0]).__name__}\n  at {errors.here()}"
        )
    if len(args) % 2:
        args, output = args[:-1], _sublist(args[-1])
    return args[::2], tuple(_sublist(labels) for labels in args[1::2]), output


def _sublist(labels: Any) -> tuple[int, ...]:
    found = []
    for label in labels:
        number = ELLIPSIS if label is Ellipsis else operator.index(label)
        if label is not Ellipsis and not 0 <= number < 52:
            raise _refuse(f"not within the valid range [0, 52): subscript {label}")
        found.append(number)
    return tuple(found)


# --- the program: what to do with the operands, worked out once for their shapes --------


class Operand(NamedTuple):
    """An operand or a step's result, as the program knows it."""

    slot: int
    shape: tuple[int, ...]
    labels: tuple[int, ...]


class Contraction:
    """Steps in the order of execution, each with the slots that it reads."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.steps: list[tuple[Callable, tuple[int, ...]]] = []

    def add(
        self, function: Callable, inputs: tuple[Operand, ...], shape: Any, labels: Any
    ) -> Operand:
        """One more step; its result goes into a slot of its own."""
        self.steps.append((function, tuple(x.slot for x in inputs)))
        self.count += 1
        return Operand(self.count - 1, tuple(shape), tuple(labels))

    def diagonals(self, x: Operand) -> Operand:
        """Each label once: repeated ones become diagonals."""
        while len(set(x.labels)) != len(x.labels):
            twice = next(label for label in x.labels if x.labels.count(label) > 1)
            first = x.labels.index(twice)
            second = x.labels.index(twice, first + 1)
            kept = [d for d in range(len(x.labels)) if d not in (first, second)]
            x = self.add(
                functools.partial(_diagonal, first=first, second=second),
                (x,),
                [*(x.shape[d] for d in kept), x.shape[first]],
                [*(x.labels[d] for d in kept), twice],
            )
        return x

    def sum_out(self, x: Operand, dims: list[int], copies: bool = False) -> Operand:
        """Without some dimensions; with ``copies`` never as a view."""
        if not dims:
            return x
        kept = [d for d in range(len(x.shape)) if d not in dims]
        shape = tuple(x.shape[d] for d in kept)
        function = functools.partial(_summed, dims=tuple(dims))
        if not copies and all(x.shape[d] == 1 for d in dims):
            function = functools.partial(reshape_op, shape=shape)
        return self.add(function, (x,), shape, [x.labels[d] for d in kept])

    def ordered(self, x: Operand, labels: list[int], shape: tuple[int, ...]) -> Operand:
        """Dimensions in another order, then merged or split; without unnecessary steps."""
        order = tuple(x.labels.index(label) for label in labels)
        if order != tuple(range(len(order))):
            moved = functools.partial(permute_op, dims=order)
            x = self.add(moved, (x,), [x.shape[d] for d in order], labels)
        if x.shape != shape:
            x = self.add(functools.partial(reshape_op, shape=shape), (x,), shape, ())
        return x

    def own_only(self, x: Operand, other: Operand, wanted: set[int]) -> Operand:
        """Without what this operand can settle by itself.

        A dimension of length one that is longer in the other operand only repeats; a label
        that nobody else has and the result does not want can be summed at once.
        """
        sizes = dict(zip(other.labels, other.shape, strict=True))
        dims = []
        for d, label in enumerate(x.labels):
            if label in sizes:
                if x.shape[d] == 1 and sizes[label] != 1:
                    dims.append(d)
            elif label not in wanted:
                dims.append(d)
        return self.sum_out(x, dims)

    def pair(self, a: Operand, b: Operand, wanted: set[int]) -> Operand:
        """Two operands joined by one matrix product."""
        a, b = self.own_only(a, b, wanted), self.own_only(b, a, wanted)
        # A dimension that one operand has summed out may not be needed in the other either.
        a, b = self.own_only(a, b, wanted), self.own_only(b, a, wanted)
        batch = [label for label in a.labels if label in b.labels and label in wanted]
        inner = [label for label in a.labels if label in b.labels and label not in wanted]
        left = [label for label in a.labels if label not in b.labels]
        right = [label for label in b.labels if label not in a.labels]
        sizes = dict(zip((*a.labels, *b.labels), (*a.shape, *b.shape), strict=True))

        def lengths(labels: list[int]) -> tuple[int, ...]:
            return tuple(sizes[label] for label in labels)

        labels = [*batch, *left, *right]
        if not inner:  # nothing to sum: a plain product that broadcasts
            spread = (*lengths(batch), *lengths(left), *(1 for _ in right))
            gap = (*lengths(batch), *(1 for _ in left), *lengths(right))
            a = self.ordered(a, [*batch, *left], spread)
            b = self.ordered(b, [*batch, *right], gap)
            return self.add(operator.mul, (a, b), lengths(labels), labels)
        function, many = (bmm_pair, (math.prod(lengths(batch)),)) if batch else (mm_pair, ())
        rows, depth, columns = (math.prod(lengths(some)) for some in (left, inner, right))
        a = self.ordered(a, [*batch, *left, *inner], (*many, rows, depth))
        b = self.ordered(b, [*batch, *inner, *right], (*many, depth, columns))
        product = self.add(function, (a, b), (*many, rows, columns), ())
        if product.shape != lengths(labels):
            split = functools.partial(reshape_op, shape=lengths(labels))
            product = self.add(split, (product,), lengths(labels), labels)
        return product._replace(labels=tuple(labels))


def _diagonal(x: Tensor, first: int, second: int) -> Tensor:
    return x.diagonal(0, first, second)


def _summed(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return x.sum(dims, dtype=x.dtype)


def _same(x: Tensor) -> Tensor:
    return x


@functools.lru_cache(maxsize=512)
def _compile(
    inputs: tuple[tuple[int, ...], ...],
    output: tuple[int, ...] | None,
    shapes: tuple[tuple[int, ...], ...],
) -> list[tuple[Callable, tuple[int, ...]]]:
    if len(shapes) != len(inputs):
        more = "more" if len(shapes) > len(inputs) else "fewer"
        raise _refuse(f"{more} operands were provided than specified in the equation")
    labels, final = _resolve(inputs, output, tuple(len(shape) for shape in shapes))
    sizes = _sizes(shapes, labels)
    program = Contraction(len(shapes))
    parts = [
        program.diagonals(Operand(k, shape, own))
        for k, (shape, own) in enumerate(zip(shapes, labels, strict=True))
    ]
    for i, j in _path([part.labels for part in parts], final, sizes):
        first, second = parts[i], parts[j]
        parts = [part for k, part in enumerate(parts) if k not in (i, j)]
        wanted = set(final).union(*(part.labels for part in parts))
        parts.append(program.pair(first, second, wanted))
    x = parts[0]
    summed = [d for d, label in enumerate(x.labels) if label not in final]
    x = program.sum_out(x, summed, copies=len(shapes) == 1)
    program.ordered(x, [*final], tuple(x.shape[x.labels.index(label)] for label in final))
    if not program.steps:
        program.add(_same, (x,), x.shape, x.labels)
    return program.steps


def _sizes(shapes: tuple[tuple[int, ...], ...], labels: list[tuple[int, ...]]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for k, (shape, own) in enumerate(zip(shapes, labels, strict=True)):
        for d, (label, size) in enumerate(zip(own, shape, strict=True)):
            first = shape[own.index(label)]
            if size != first:
                raise _refuse(
                    f"subscript {_name(label)} is repeated for operand {k} but the sizes don't "
                    f"match, {size} != {first}"
                )
            known = sizes.get(label, 1)
            if known != 1 and size not in (1, known):
                raise _refuse(
                    f"subscript {_name(label)} has size {size} for operand {k} (dim {d}) which "
                    f"does not broadcast with previously seen size {known}"
                )
            sizes[label] = known if size == 1 else size
    return sizes


def _path(parts: list[tuple[int, ...]], final: tuple[int, ...], sizes: dict[int, int]) -> Any:
    """Which two operands to join at each step: those whose product is smallest."""
    if len(parts) == 2:
        return [(0, 1)]
    steps, left = [], [frozenset(own) for own in parts]

    def size(labels: frozenset[int]) -> int:
        return math.prod(sizes[label] for label in labels)

    while len(left) > 1:
        best = None
        for i in range(len(left)):
            for j in range(i + 1, len(left)):
                rest = frozenset(final).union(*(s for k, s in enumerate(left) if k not in (i, j)))
                both = left[i] | left[j]
                gain = size(both & rest) - size(left[i]) - size(left[j])
                cost = (gain, size(both), i, j)
                if best is None or cost < best[0]:
                    best = (cost, i, j, both & rest)
        assert best is not None
        _, i, j, kept = best
        steps.append((i, j))
        left = [s for k, s in enumerate(left) if k not in (i, j)] + [kept]
    return steps
