"""Ops as work."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compiler.ir import Work
from weft.core import planning, quiet
from weft.core.dispatch import Op


class OpWork(Work):
    """An op under attributes, laid out as dispatch does it."""

    def __init__(self, op: Op, attrs: dict[str, Any]) -> None:
        self.op, self.attrs, self.name = op, attrs, op.name

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
        try:
            found = (self.op.name, tuple(sorted(self.attrs.items(), key=lambda item: item[0])))
            hash(found)
        except TypeError:
            return None
        return found
