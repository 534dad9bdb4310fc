"""Ops as work."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compiler.ir import Work, WorkNode, attrs_key
from weft.core import planning, quiet
from weft.core.dispatch import Op

UNASKED = object()  # placeholder for a work's key until it is requested


class OpWork(Work):
    """An op with attributes; results have the layout that dispatch gives them."""

    def __init__(self, op: Op, attrs: dict[str, Any]) -> None:
        self.op, self.attrs, self.name = op, attrs, op.name
        self._key: Any = UNASKED

    def native(self, *args: Any) -> Any:
        out = planning.forward(self.op, args, self.attrs)
        return tuple(out) if self.op.multiple else (out,)

    def python(self, *args: Any) -> Any:
        token = quiet.enter()
        try:
            out = self.op.compute(args, self.attrs)
            outs = tuple(map(np.asanyarray, out)) if self.op.multiple else (np.asanyarray(out),)
            if self.op.layout is not None:
                outs = tuple(self.op.layout(o, args) for o in outs)
            return outs
        finally:
            quiet.leave(token)

    def key(self) -> Any:
        if self._key is UNASKED:
            attrs = attrs_key(self.attrs)
            self._key = None if attrs is None else (self.op, attrs)
        return self._key


def op_of(node: WorkNode) -> Op | None:
    """The op that a node runs; None if it is not an op."""
    return node.work.op if isinstance(node.work, OpWork) else None
