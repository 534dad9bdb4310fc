"""Anomaly mode: remember where each op was called, and stop at the first NaN in backward."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.core.devices import DeviceArray, host
from weft.core.meta import lacks_values
from weft.core.modes import MODES, _Switch
from weft.core.node import FREED, GraphNode, OpNode, Output
from weft.core.tensor import Tensor
from weft.operators import api

# Says where a NaN of a backward pass came from; ``weft.graph.faults`` puts it here.
EXPLAIN: list[Callable[[OpNode, list[np.ndarray], list[tuple[OpNode, list[np.ndarray]]]], str]] = []

_MOST = 100  # nodes that made an infinity, of which a pass takes note


class set_detect_anomaly(_Switch):
    """Switch anomaly mode on or off, at once or for a block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        now = MODES.now
        self.previous = now.anomaly, now.anomaly_check_nan
        self.chosen = mode, check_nan
        self._enter()

    def _enter(self) -> None:
        MODES.now.anomaly, MODES.now.anomaly_check_nan = self.chosen
        MODES.now.update()

    def _exit(self) -> None:
        MODES.now.anomaly, MODES.now.anomaly_check_nan = self.previous
        MODES.now.update()


class detect_anomaly(_Switch):
    """A block in which backward names the op that produced a NaN, and its line."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )

    def _enter(self) -> None:
        now = MODES.now
        self.previous = now.anomaly, now.anomaly_check_nan
        now.anomaly, now.anomaly_check_nan = True, self.check_nan
        now.update()

    def _exit(self) -> None:
        MODES.now.anomaly, MODES.now.anomaly_check_nan = self.previous
        MODES.now.update()

    def _again(self) -> detect_anomaly:
        return self


@api.top
def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on in this thread."""
    return MODES.now.anomaly


@api.top
def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode stops at NaN."""
    return MODES.now.anomaly_check_nan


def badness(values: Iterable[Any]) -> str:
    """``NaN`` or ``infinity`` if arrays or tensors have some, else nothing."""
    found = ""
    for value in values:
        if not isinstance(value, (Tensor, DeviceArray, np.ndarray, np.generic)):
            continue
        if lacks_values(value):
            continue
        array = host(value)
        if array.dtype.kind not in "fcV":
            continue
        if array.dtype.kind == "V":
            array = array.astype(np.float32)
        if not np.isfinite(array).all():
            if np.isnan(array).any():
                return "NaN"
            found = "infinity"
    return found


class AnomalyChecker:
    """Checks the results of every node of a backward pass, and stops at the first NaN."""

    def __init__(self) -> None:
        self.infinite: list[tuple[OpNode, list[np.ndarray]]] = []  # who made one, and of what
        self.used: list[OpNode] = []  # nodes whose saved values may go when the pass is over

    def look(self, node: OpNode, g: Any, results: Any, keep: bool) -> None:
        """Check what a node made of its gradient; an error says where a NaN came from."""
        if node.plan.holds and not keep:
            self.used.append(node)
        what = badness(results)
        if not what or not MODES.now.anomaly_check_nan:
            return
        given = g if isinstance(g, (list, tuple)) else (g,)
        incoming = [np.asarray(host(x)) for x in given if x is not None]
        if what == "NaN":
            which = [i for i, x in zip(node.plan.targets, results, strict=True)
                     if badness((x,)) == "NaN"]  # fmt: skip
            raise RuntimeError(_told(node, which[0], incoming, self.infinite))
        if not badness(incoming) and len(self.infinite) < _MOST:
            self.infinite.append((node, [np.array(x) for x in incoming]))

    def release(self) -> None:
        """The pass is over: free what its nodes had saved."""
        for node in self.used:
            node.saved = FREED
        self.used = []


def warn_of_error(node: GraphNode) -> None:
    """Say which forward call a failing node belongs to, before its error goes on its way."""
    node = node.node if isinstance(node, Output) else node
    start, cause = f"Error detected in {node.name()}.", "caused the error"
    at: Any = node
    while at is not None:
        extras = at.extras
        if extras is not None and extras.trace:
            message = f"{start} Traceback of forward call that {cause}:\n{extras.trace}"
        else:
            message = f"{start} No forward pass information available. Enable detect anomaly "
            message += "during forward pass for more information."
        try:
            warnings.warn(message, stacklevel=5)
        except Warning:
            print(message, file=sys.stderr)  # the error itself must not be lost to a warning
        # A node that was made in a backward pass: in the backward of which node.
        at = None if extras is None else extras.parent
        at = at.node if isinstance(at, Output) else at
        if at is not None:
            start = f"\n\nPrevious calculation was induced by {at.name()}."
            cause = "induced the previous calculation"


def note_place(error: Exception) -> None:
    """Add to an error of a backward pass which call of the forward pass it belongs to."""
    trace, node = error.__traceback__, None
    while trace is not None:
        name = trace.tb_frame.f_code.co_qualname
        if name == "_Run.arrive":
            return  # a hook of a leaf, which no op made
        if name == "_Run.run":
            if node is not None:
                break  # a backward pass inside this one, which has spoken for itself
            node = trace.tb_frame.f_locals.get("node")
        trace = trace.tb_next
    node = node.node if isinstance(node, Output) else node
    if isinstance(node, OpNode) and str(node.source) not in str(error):
        error.add_note(f"  in the backward of {node.op.name}, recorded at {node.source}")


def _told(node: OpNode, i: int, incoming: list[np.ndarray], infinite: list[Any]) -> str:
    importlib.import_module("weft.graph.faults")  # a layer above, needed only now
    lines = [
        f"Function '{node.name()}' returned nan values in its {i}th output.",
        f"  {node.op.name}, recorded at {node.source}",
        *(explain(node, incoming, infinite) for explain in EXPLAIN),
    ]
    trace = node.extras.trace if node.extras is not None else None
    if trace:
        lines.append(f"{node.op.name} was recorded here:\n{trace}")
    return "\n".join(lines)
