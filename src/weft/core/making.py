"""Tensors and nodes made by compiled code, once native code is loaded: see ``codegen.records``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core import selection
from weft.core.frames import caller, last_caller
from weft.core.modes import INFERRING, PLAIN, SPECIAL, State
from weft.core.node import NOWHERE, GraphNode, Node, Output, next_sequence
from weft.core.plan import Plan
from weft.core.tensor import Parameter, Tensor
from weft.native.codegen.records import Classes, Records, Unsupported
from weft.native.once import once

if TYPE_CHECKING:
    from weft.core.dispatch import Op


@once
def records() -> Records | None:
    """The compiled functions, or None where objects are not what they know."""
    classes = Classes(
        tensor=Tensor,
        parameter=Parameter,
        node=Node,
        graph_node=GraphNode,
        output=Output,
        state=State,
        plan=Plan,
        plain=PLAIN,
        special=SPECIAL,
        nowhere=NOWHERE,
        last_caller=last_caller,
        caller=caller,
        inferring=INFERRING,
        enabled=selection._enabled,
        counter=next_sequence.__self__,  # type: ignore[attr-defined]
    )
    try:
        return Records(classes)
    except Unsupported:
        return None


class Maker:
    """Stands for the compiled end of an op's calls until native code is loaded."""

    __slots__ = ("op",)

    def __init__(self, op: Op) -> None:
        self.op = op

    def __call__(self, *args: Any) -> None:
        if selection._begun:
            self.op.made = made(self.op)


def made(op: Op) -> Any:
    """The compiled end of an op's calls, or None where there is none."""
    found = records()
    if found is None:
        return None
    facts = [op.differentiable, op.variadic]
    if op.multiple and (len(op.outputs) > 1 or op.constant_outputs):
        facts += [k not in op.constant_outputs for k in range(len(op.outputs))]
    return found.finish(op, op.plans, op.view, op.multiple, bytes(facts))
