"""Einstein summation, by permutations, sums and matrix products."""

from __future__ import annotations

import functools
import math
import string
from typing import Any

from weft.core import errors
from weft.core.tensor import Tensor
from weft.ops import api
from weft.ops.matmul import bmm_op, mm_op, ordered

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


@functools.lru_cache(maxsize=512)
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
    if len(operands) != len(inputs):
        more = "more" if len(operands) > len(inputs) else "fewer"
        raise _refuse(f"{more} operands were provided than specified in the equation")
    ranks = tuple(x._a.ndim for x in operands)
    labels, final = _resolve(tuple(inputs), output, ranks)
    sizes = _sizes(operands, labels)
    parts = [_diagonals(x, own) for x, own in zip(operands, labels, strict=True)]
    for i, j in _path(parts, final, sizes):
        first, second = parts[i], parts[j]
        parts = [part for k, part in enumerate(parts) if k not in (i, j)]
        wanted = set(final).union(*(own for _, own in parts))
        parts.append(_pair(first, second, wanted))
    x, own = parts[0]
    return _finish(x, own, final)


def _arguments(args: Any) -> tuple[list[Tensor], list[tuple[int, ...]], tuple[int, ...] | None]:
    if not args:
        raise _refuse("must specify the equation string and at least one operand")
    if isinstance(args[0], str):
        operands = args[1:]
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = operands[0]
        if not operands:
            raise _refuse("must provide at least one operand")
        inputs, output = _parse(args[0])
        return list(operands), inputs, output
    output = None
    if len(args) % 2:
        args, output = args[:-1], _sublist(args[-1])
    return list(args[::2]), [_sublist(s) for s in args[1::2]], output


def _sublist(labels: Any) -> tuple[int, ...]:
    found = []
    for label in labels:
        if label is not Ellipsis and not 0 <= int(label) < 52:
            raise _refuse(f"not within the valid range [0, 52): subscript {label}")
        found.append(ELLIPSIS if label is Ellipsis else int(label))
    return tuple(found)


def _sizes(operands: list[Tensor], labels: list[tuple[int, ...]]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for k, (x, own) in enumerate(zip(operands, labels, strict=True)):
        for d, (label, size) in enumerate(zip(own, x._a.shape, strict=True)):
            known = sizes.get(label, 1)
            if known != 1 and size not in (1, known):
                raise _refuse(
                    f"subscript {_name(label)} has size {size} for operand {k} (dim {d}) which "
                    f"does not broadcast with previously seen size {known}"
                )
            if own.count(label) > 1 and size != x._a.shape[own.index(label)]:
                raise _refuse(
                    f"subscript {_name(label)} is repeated for operand {k} but the sizes don't "
                    f"match, {size} != {x._a.shape[own.index(label)]}"
                )
            sizes[label] = max(known, size) if 0 not in (known, size) else 0
    return sizes


def _diagonals(x: Tensor, labels: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """An operand with each label once: repeated ones become diagonals."""
    while len(set(labels)) != len(labels):
        label = next(label for label in labels if labels.count(label) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        x = x.diagonal(0, first, second)
        labels = (*(label for k, label in enumerate(labels) if k not in (first, second)), label)
    return x, labels


def _path(parts: list[Any], final: tuple[int, ...], sizes: dict[int, int]) -> Any:
    """Which two operands to join at each step; from left to right unless more than two."""
    count = len(parts)
    if count < 2:
        return []
    if count == 2:
        return [(0, 1)]
    steps, left = [], [frozenset(own) for _, own in parts]
    while len(left) > 1:
        best = None
        for i in range(len(left)):
            for j in range(i + 1, len(left)):
                rest = frozenset(final).union(*(s for k, s in enumerate(left) if k not in (i, j)))
                both = left[i] | left[j]
                size = math.prod(sizes[label] for label in both & rest)
                gain = size - sum(math.prod(sizes[label] for label in left[k]) for k in (i, j))
                cost = (gain, math.prod(sizes[label] for label in both), i, j)
                if best is None or cost < best[0]:
                    best = (cost, i, j, both & rest)
        assert best is not None
        _, i, j, kept = best
        steps.append((i, j))
        left = [s for k, s in enumerate(left) if k not in (i, j)] + [kept]
    return steps


def _sum_out(x: Tensor, labels: tuple[int, ...], dims: list[int]) -> tuple[Tensor, tuple[int, ...]]:
    if not dims:
        return x, labels
    kept = tuple(label for d, label in enumerate(labels) if d not in dims)
    if all(x._a.shape[d] == 1 for d in dims):
        return x.reshape([n for d, n in enumerate(x._a.shape) if d not in dims]), kept
    return x.sum(dims, dtype=x.dtype), kept


Part = tuple[Tensor, tuple[int, ...]]


def _own_only(part: Part, other: Part, wanted: set[int]) -> Part:
    """Without what this operand can settle by itself.

    A dimension of length one that is longer in the other operand only repeats; a label that
    nobody else has and the result does not want can be summed at once.
    """
    x, labels = part
    sizes = dict(zip(other[1], other[0]._a.shape, strict=True))
    dims = []
    for d, label in enumerate(labels):
        if label in sizes:
            if x._a.shape[d] == 1 and sizes[label] != 1:
                dims.append(d)
        elif label not in wanted:
            dims.append(d)
    return _sum_out(x, labels, dims)


def _pair(first: Part, second: Part, wanted: set[int]) -> Part:
    """Two operands joined by one matrix product."""
    first, second = _own_only(first, second, wanted), _own_only(second, first, wanted)
    # What one operand dropped, nobody may want any more in the other.
    first, second = _own_only(first, second, wanted), _own_only(second, first, wanted)
    (a, in_a), (b, in_b) = first, second
    batch = [label for label in in_a if label in in_b and label in wanted]
    inner = [label for label in in_a if label in in_b and label not in wanted]
    left = [label for label in in_a if label not in in_b]
    right = [label for label in in_b if label not in in_a]
    sizes = {**dict(zip(in_a, a._a.shape, strict=True)), **dict(zip(in_b, b._a.shape, strict=True))}

    def lengths(labels: list[int]) -> tuple[int, ...]:
        return tuple(sizes[label] for label in labels)

    def size(labels: list[int]) -> int:
        return math.prod(lengths(labels))

    a_order = tuple(in_a.index(label) for label in (*batch, *left, *inner))
    b_order = tuple(in_b.index(label) for label in (*batch, *inner, *right))
    labels = (*batch, *left, *right)
    if not inner:  # nothing to sum: a plain product that broadcasts
        spread = (*lengths(batch), *lengths(left), *(1 for _ in right))
        gap = (*lengths(batch), *(1 for _ in left), *lengths(right))
        return ordered(a, a_order, spread) * ordered(b, b_order, gap), labels
    op, many = (bmm_op, (size(batch),)) if batch else (mm_op, ())
    product = op(
        ordered(a, a_order, (*many, size(left), size(inner))),
        ordered(b, b_order, (*many, size(inner), size(right))),
    )
    return ordered(product, tuple(range(product._a.ndim)), lengths([*labels])), labels


def _finish(x: Tensor, labels: tuple[int, ...], final: tuple[int, ...]) -> Tensor:
    x, labels = _sum_out(x, labels, [d for d, label in enumerate(labels) if label not in final])
    order = tuple(labels.index(label) for label in final)
    return x if order == tuple(range(len(order))) else x.permute(order)
