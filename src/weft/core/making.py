"""Tensors and nodes constructed by compiled code, once it is loaded: see ``codegen.records``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core import overrides, quiet, selection
from weft.core.devices import DEVICES
from weft.core.frames import OWN_FILES, caller, last_caller
from weft.core.gate import LISTENERS
from weft.core.modes import INFERRING, MODES, PLAIN, SPECIAL, State
from weft.core.node import NOWHERE, OpNode, Output, next_sequence
from weft.core.plan import Plan
from weft.core.size import Size
from weft.core.tensor import Parameter, Tensor
from weft.native.codegen.records import (
    BOOLEAN,
    FLOATING,
    INTEGRAL,
    Classes,
    Facts,
    Records,
    Unsupported,
)
from weft.native.once import once

if TYPE_CHECKING:
    from weft.core.dispatch import Op


@once
def records() -> Records | None:
    """The compiled functions, or None for unsupported object layouts."""
    classes = Classes(
        tensor=Tensor,
        parameter=Parameter,
        node=OpNode,
        output=Output,
        state=State,
        plan=Plan,
        plain=PLAIN,
        special=SPECIAL,
        nowhere=NOWHERE,
        last_caller=last_caller,
        caller=caller,
        own_files=OWN_FILES,
        inferring=INFERRING,
        enabled=selection._enabled,
        counter=next_sequence.__self__,  # type: ignore[attr-defined]
        modes=MODES,
        forward=selection.forward,
        warnings=quiet.VARIABLE,
        silent=quiet.SILENT,
    )
    if quiet.VARIABLE is None:
        return None  # pragma: no cover - another NumPy's internals
    try:
        found = Records(classes)
    except Unsupported:
        return None
    read_attributes()
    return found


def _until_it_pays(*args: Any) -> None:
    """Placeholder for the functions below, which are compiled when they pay."""
    global overwrite, create
    if selection.pays() and not MODES.now.recorders:
        overwrite, create = _short_functions()


# Compiled functions that overwrite and make small tensors; both return None for what they decline.
overwrite: Callable[..., int | None] = _until_it_pays
create: Callable[..., Tensor | None] = _until_it_pays


@once
def _short_functions() -> tuple[Callable, Callable]:
    from weft.core.inplace import tick
    from weft.native.codegen import writes

    found = records()
    if found is not None:
        try:
            ticks = tick.__self__  # type: ignore[attr-defined]
            return writes.functions(found, Size, LISTENERS, DEVICES, ticks)
        except Unsupported:
            pass
    return _declining, _declining


def _declining(*args: Any) -> None:
    """Replaces them where there are none."""


PROPERTIES: dict[str, property] = {}  # properties of ``Tensor`` that compiled code has replaced


def read_attributes() -> None:
    """Replace the most read properties of plain tensors by compiled code."""
    if overrides.ON or PROPERTIES:
        return
    from weft.native.codegen import attributes

    known = attributes.Known(Tensor, Parameter, Size, dt.OF_NUMPY, dev.CPU)
    own = {name: vars(Tensor)[name] for name in attributes.NAMES}
    compiled = attributes.getters(known, {name: p.fget for name, p in own.items()})
    PROPERTIES.update(own)
    for name, p in own.items():
        setattr(Tensor, name, property(compiled[name], p.fset, p.fdel, p.__doc__))


def restore_properties() -> None:
    """Restore the Python properties, which subclasses and modes can override."""
    for name, p in PROPERTIES.items():
        setattr(Tensor, name, p)
    overrides.NAMES.clear()


overrides.SWITCH.append(restore_properties)


class Maker:
    """Placeholder for an op's compiled functions until they pay (``selection.pays``).

    With ``counts`` it is called once in every call, whether native code is loaded or not. Compiled
    functions decline while there are listeners, so then none are compiled: the first calls of a
    compiled function would wait for code that its later calls do not use.
    """

    __slots__ = ("counts", "op")

    def __init__(self, op: Op, counts: bool) -> None:
        self.op, self.counts = op, counts

    def __call__(self, *args: Any) -> None:
        uses = self.counts or selection._begun
        if uses and selection.pays() and not MODES.now.recorders:
            self.op.made, self.op.call = functions(self.op)


def functions(op: Op) -> tuple[Any, Any]:
    """The compiled second half of an op's calls, and the compiled whole call; None where not
    available.
    """
    found = records()
    if found is None:
        return None, None
    outputs: tuple[bool, ...] = ()
    if op.multiple and (len(op.outputs) > 1 or op.constant_outputs):
        outputs = tuple(k not in op.constant_outputs for k in range(len(op.outputs)))
    facts = Facts(
        differentiable=op.differentiable,
        variadic=op.variadic,
        promotes=op.promote is not None,
        promoted=op.promote_args,
        kinds=_kinds(op),
        numbers=2 if op.bare_numbers else int(op.numbers and op.traced),
        loud=2 if op.view else int(op.traced),
        keeps_rows=not op.images,
        nones=op.arity is None,  # NumPy's own functions take it for an object
        halves=op.halves and not op.multiple,
        outputs=outputs,
    )
    given = op, facts, op.plans, op.view, op.multiple
    made = found.function(*given)
    if op.check is not None or not facts.kinds or (op.multiple and op.images):
        return made, None
    return made, found.function(*given, (op.reference, op.layout))


def _kinds(op: Op) -> int:
    """The dtypes of inputs that need no promotion."""
    kept = op.promote not in (None, "float")  # integers are not made into floats
    return (
        FLOATING * ("f" not in op.refuses)
        + INTEGRAL * (kept and "i" not in op.refuses)
        + BOOLEAN * (kept and "b" not in op.refuses)
    )
