"""Copies of images with padding, cut into the phases of a stride: what convolutions read."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from weft.native import threads
from weft.native.loops.spread import spread, spread_last, spread_small
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain

Array = np.ndarray
Ints = tuple[int, ...]
I64 = np.dtype(np.int64)
GRAIN = 1 << 15  # elements to copy that are worth a thread
TABLES = 16  # of different strides, that are kept
SMALL = 26  # places in a line, up to which elements are copied one by one


@dataclass
class PaddedSource:
    """How the source is copied: padding before it, and its phases in each dimension."""

    channels: int
    size: Ints  # of the array
    before: Ints
    stride: Ints
    phases: tuple[Ints, ...]  # those that a tap meets
    held: Ints  # places of a phase
    steps: Ints = field(init=False)  # of a sample, a channel, and in three dimensions
    tables: dict[Ints, Array] = field(init=False, default_factory=dict)  # by strides
    indices: dict[Ints, Array] = field(init=False, default_factory=dict)  # by those of places

    def __post_init__(self) -> None:
        plane = prod(self.held)
        channel = plane * prod(map(len, self.phases))
        lines = (self.held[1] * self.held[2], self.held[2], 1)
        self.steps = (channel * self.channels, channel, *lines)
        self.which = np.array([p for axis in self.phases for p in axis], I64)
        self.spans = np.array([self._span(phase) for phase in self.phases[2]], I64)
        self.places = self._places(plane)

    def _span(self, phase: int) -> Ints:
        """Of a phase of the last dimension: the places inside the array, and the first there."""
        by, first = self.stride[2], phase - self.before[2]
        start = min(max(0, -(first // by)), self.held[2])
        stop = min(max(start, -((first - self.size[2]) // by)), self.held[2])
        return start, stop, first + start * by if stop > start else 0

    def _places(self, plane: int) -> Array:
        """Where the elements of a line go in a copy with the channels innermost, or -1."""
        places = np.full(self.size[2], -1, I64)
        for k, (start, stop, first) in enumerate(self.spans):
            at = first + np.arange(stop - start) * self.stride[2]
            places[at] = (k * plane + np.arange(start, stop)) * self.channels
        return places

    def offset(self, position: Ints) -> int:
        """Where the first place finds a position of the padded array."""
        phase = at = 0
        for i, where in enumerate(position):
            place, rest = divmod(where, self.stride[i])
            phase = phase * len(self.phases[i]) + self.phases[i].index(rest)
            at = at * self.held[i] + place
        return phase * prod(self.held) + at

    def is_plain(self) -> bool:
        """Whether a plain array is what the copy would be."""
        return self.held == self.size and not any(self.before) and set(self.stride) == {1}

    def table(self, x: Array) -> Array:
        """The numbers that the copying loops take."""
        # In elements: arrays of other types may have the same strides in bytes.
        key = tuple(s // x.itemsize for s in x.strides)
        found = self.tables.get(key)
        if found is None:
            steps = list(key)
            steps[2:2] = [0] * (5 - x.ndim)
            numbers = [self.channels, *steps]
            for i in range(3):
                numbers += [self.size[i], self.before[i], self.stride[i]]
                numbers += [len(self.phases[i]), self.held[i]]
            found = np.array(numbers, I64)
            if len(self.tables) < TABLES:
                self.tables[key] = found
        return found

    def elements(self, info: Array) -> Array:
        """The index in the array of each element of a plane's copy, or -1."""
        key = tuple(int(n) for n in info[3:6])
        found = self.indices.get(key)
        if found is None:
            at = np.zeros((1,) * 6, I64)
            inside = np.ones((1,) * 6, bool)
            for i, phases in enumerate(self.phases):
                where = np.add.outer(phases, np.arange(self.held[i]) * self.stride[i])
                where -= self.before[i]
                shape = [1] * 6
                shape[i], shape[3 + i] = where.shape
                inside = inside & ((where >= 0) & (where < self.size[i])).reshape(shape)
                at = at + (where * key[i]).reshape(shape)
            found = np.where(inside, at, -1).ravel().astype(np.int32)
            if len(self.indices) < TABLES:
                self.indices[key] = found
        return found

    def copied(self, x: Array, beyond: int, last: bool = False) -> Array:
        """The copy, with zeros beyond its end, and with the channels innermost if wanted."""
        kind = FLOATS[x.dtype]
        if not x.flags.aligned or any(s % x.itemsize for s in x.strides):
            x = plain(x)
        info = self.table(x)
        size = len(x) * self.steps[0]
        to = buffers.empty(size + beyond, x.dtype)
        buffers.move(to[size:], 0.0)
        if not last and x.flags.c_contiguous and self.is_plain():
            buffers.move(to[:size], x.reshape(-1))
            return to
        pieces = len(x) * (self._lines() if last else self.channels)
        count = threads.how_many(pieces, max(1, GRAIN * pieces // max(size, 1)))
        if last:
            apart = int(info[2] == 1)
            transposed = int(info[5] == 1 and not apart)
            code = spread_last.get(kind, apart=apart, transposed=transposed)
            code(x, to, self.which, self.spans, info, self.places, pieces, count)
        elif self.held[2] <= SMALL:
            numbers = (self.steps[1], self.channels, info[1], info[2])
            spread_small.get(kind)(x, to, self.elements(info), *numbers, pieces, count)
        else:
            code = spread.get(kind, by=_known(self.stride[2]), apart=int(info[5] == 1))
            code(x, to, self.which, self.spans, info, pieces, count)
        return to

    def _lines(self) -> int:
        """The lines of a sample's copy, of which all phases of the last dimension are one."""
        return prod(map(len, self.phases[:2])) * self.held[0] * self.held[1]


def _known(stride: int) -> int:
    """A stride that is worth code of its own, or 0."""
    return stride if stride in (1, 2, 4) else 0
