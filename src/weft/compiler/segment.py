"""The state of a region between two computations: the pending ops and their inputs."""

from __future__ import annotations

import struct
import sys
import threading
from typing import Any

import numpy as np

from weft.compiler.arena import Memory
from weft.compiler.trace import RESULT, Point, Root, Token
from weft.core.node import AccumulateGrad
from weft.core.tensor import Tensor
from weft.graph.listen import Listener

ndarray = np.ndarray
getrefcount = sys.getrefcount
PATIENCE = 16  # consecutive calls whose learned paths never recur before some run eagerly
TRIAL = 4  # calls that are learned after these
LONGEST_REST = 256  # calls
LOOK = 64  # calls that are pending when memory is first looked at
ROOM = struct.pack("q", LOOK)
MOST_BYTES = 1 << 28  # that pending ops may keep alive on their own


class TraceMemory:
    """What a compiled function has learned: the tree of its traces, and counts for ``explain``."""

    def __init__(self, name: str, fullgraph: bool = False) -> None:
        self.name, self.fullgraph = name, fullgraph
        # By the default dtype, which decides how integers are promoted with floats.
        self.roots: dict[Any, Point] = {}
        self.calls = self.diverged = self.compiled = self.tokens = 0
        self.resized = self.evicted = 0  # paths at new sizes, and paths that were evicted
        self.leaf_bytes = 0  # for leaves, greater than any number within one segment
        self.runs = 0  # of all programs
        self.most = 0  # calls that were pending at once
        self.unrepeated = 0  # paths at new sizes that never recurred
        # Consecutive calls whose learned paths never recurred, the last of them, calls that will
        # not be learned for that reason, and those that were not.
        self.wasted = self.last_wasted = self.resting = self.eager_calls = 0
        # A point where new sizes are not expected to recur, as of so many runs.
        self.unlikely: tuple[Point, int] | None = None
        self.reasons: dict[str, int] = {}  # why values were computed before the region's end
        self.refused: dict[str, int] = {}  # what could not be compiled
        self.divergences: dict[str, int] = {}  # what was called instead of the expected op
        self.lock = threading.RLock()
        self.memory = Memory()  # of its programs
        self.spare: list[Any] = []  # finished regions, for reuse

    def begin(self, default: Any) -> Point:
        """Where the traces under a default dtype begin."""
        return self.roots.setdefault(default, Point())

    def note_waste(self) -> None:
        """A path was evicted that never recurred: after many of them, let calls run eagerly."""
        if self.last_wasted == self.calls:
            return
        if self.calls - self.last_wasted > 1:
            self.wasted = 0
        self.wasted, self.last_wasted = self.wasted + 1, self.calls
        if self.wasted >= PATIENCE and self.wasted % TRIAL == 0:
            self.resting = min(2 ** (self.wasted // TRIAL), LONGEST_REST)

    def runs_eagerly_now(self) -> bool:
        """Whether the present call is one that runs eagerly because learning did not pay."""
        if not self.resting:
            return False
        self.resting -= 1
        self.eager_calls += 1
        return True

    def note(self, table: dict[str, int], why: str) -> None:
        table[why] = table.get(why, 0) + 1


class Segment(Listener):
    """What a region has followed since it last computed something."""

    # Compiled code reads these: see ``native_matching``.
    __slots__ = (
        *("arrays", "at", "bumped", "busy", "default", "handles", "hidden", "leaves", "learning"),
        *("met", "nodes", "numbers", "path", "reach", "room"),
    )
    learned: TraceMemory
    stance: str
    longest: int  # calls that may be pending
    longest_room: bytes  # the same for compiled code
    busy: bool  # while pending ops are being computed
    reach: int  # how many calls may be pending before memory is looked at
    room: bytes  # the same for compiled code
    interruptions: list[BaseException]  # raised by signal handlers while values were computed

    def clear(self) -> None:
        """Reset the state that few segments have."""
        # Leaves with pending in-place changes, and one entry for each such change.
        self.hidden: dict[int, tuple[Tensor, int]] = {}
        self.bumped: list[tuple[Tensor, bool]] = []  # with whether it records what changed it
        self.apart: set[int] = set()  # results that do not count as views: see ``sets_apart``
        self.candidates: list[Any] = []  # calls that may be confirmed as a whole from now on
        self.ids: dict[int, tuple[int, Any]] = {}  # while learning: the slot of each tensor
        self.updated: set[int] = set()  # while learning: parameters that were modified in place

    def start(self, point: Point) -> None:
        self.at = point
        self.path: list[Token] = []
        self.handles: list[Any] = []  # results by number
        self.leaves: list[Tensor] = []
        self.met: set[int] = set()  # the identities of the leaves
        self.arrays: list[ndarray] = []  # of the leaves, as they were when they were met
        self.nodes: list[Any] = []
        self.numbers: list[float] = []
        if self.hidden or self.bumped or self.apart or self.ids or self.updated or self.candidates:
            self.clear()
        self.learning = False
        # If all known leaves together are small, held memory need not be measured.
        few = self.learned.leaf_bytes <= MOST_BYTES
        self.reach, self.room = (self.longest, self.longest_room) if few else (LOOK, ROOM)
        self.going_back = None  # the pass being learned, which belongs to this segment

    def look_often(self) -> None:
        """Check memory periodically: ops being learned may keep any amount alive."""
        self.reach, self.room = LOOK, ROOM

    def is_full(self) -> bool:
        """Whether too much memory is pending; if not, the next check comes after more calls."""
        count = len(self.path)
        if count >= self.longest or self.held_bytes() > MOST_BYTES:
            return True
        self.reach = min(count + max(LOOK, count // 4), self.longest)
        self.room = struct.pack("q", self.reach)
        return False

    def held_bytes(self) -> int:
        """The memory of leaves, and while learning of results, that has no other references."""
        held = 0
        for t in self.leaves:
            held += t._a.nbytes if getrefcount(t) == ONLY_HERE and id(t) not in self.hidden else 0
        for t in self.handles if self.learning else ():
            held += t._a.nbytes if getrefcount(t) == ONLY_HERE and t is not None else 0
        return held

    def cut(self, why: str) -> None:
        """Something happens that a trace can't contain: everything before it is computed first."""
        raise NotImplementedError

    def refuses(self, op: Any) -> bool:
        """Whether an op can't be deferred."""
        raise NotImplementedError

    @property
    def settled(self) -> bool:
        """Whether a path from here on was learned, so that a different one is new."""
        return bool(self.at.next) or self.at.resume is not None or bool(self.path)

    def show_hidden(self, uncounted: list[tuple[Tensor, bool]] = []) -> None:
        """Restore the arrays of leaves with pending changes."""
        for tensor, number in self.hidden.values():
            tensor._a = self.arrays[number]
            if hasattr(tensor, "_stamp"):  # else a signal has interrupted this
                del tensor._stamp
        for (
            tensor,
            noted,
        ) in uncounted:  # the version is incremented again when the change is executed
            cell = tensor._vc
            cell[0] -= 1
            if noted and len(cell) > 1:
                cell.pop()
        self.hidden, self.bumped = {}, []


def _count_of_item() -> int:
    for item in [object()]:
        return getrefcount(item)
    return 0


ONLY_HERE = _count_of_item()  # the count of an item of one list, in a loop over it


def is_view(token: Token, k: int) -> bool:
    """Whether a result of a call shares the memory of something else."""
    return token.roots[k] != Root(RESULT, token.first + k)


def takes_gradient(tensor: Tensor) -> bool:
    """Whether a gradient that reaches a leaf goes to its ``.grad`` and triggers nothing else."""
    node = tensor._node
    return (
        node.__class__ is AccumulateGrad
        and node.extras is None
        and not node.post_accumulate
        and (tensor._x is None or "grad_dtype" not in tensor._x)
    )
