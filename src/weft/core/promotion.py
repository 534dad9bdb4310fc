"""The common type in which an op computes, by PyTorch's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core import dtype as dt
from weft.core import selection

if TYPE_CHECKING:
    from weft.core.dispatch import Op

ndarray, asarray = np.ndarray, np.asarray
F32, F64 = dt.F32, dt.F64


def back(out: Any, final: np.dtype) -> Any:
    """A result in the half type that its inputs were widened from."""
    # Comparisons and indices keep their own type; only the widened values go back.
    return selection.cast(out, final) if out.dtype == F32 else out


def promoted(op: Op, args: Any) -> tuple[Any, np.dtype | None]:
    """Arguments in the common type; for half types also the type to go back to."""
    if op.check is not None:
        op.check(args)
    chosen: Any = op.promote_args
    common, numbers = None, False
    for x in args if chosen is None else [args[i] for i in chosen if i < len(args)]:
        if x.__class__ is ndarray:
            if common is not None and x.dtype is not common:
                common = None
                break
            common = x.dtype
        elif x.__class__ is int or x.__class__ is float:
            numbers = True
        elif x is not None:
            common = None
            break
    if (common is F32 or common is F64) and not numbers and "f" not in op.refuses:
        return args, None
    if chosen is None:
        chosen = range(len(args))
    if common is not F32 and common is not F64:
        # Not all arrays of one float type, which numbers never widen: ask the full rules.
        common = dt.result_dtype(args[i] for i in chosen if i < len(args))
    if op.promote == "float" and dt.category(common) < dt.dtype.FLOAT:
        common = dt.get_default_dtype().np
    if common.kind in op.refuses or ("h" in op.refuses and common in dt.HALF):
        raise NotImplementedError(
            f"\"{op.name}_cpu\" not implemented for '{dt.TYPE_NAMES[dt.OF_NUMPY[common].name]}'"
        )
    final = None
    if common in dt.HALF and not op.narrow:
        common, final = F32, common
    args = list(args)
    for i in chosen:
        if i < len(args) and args[i] is not None:
            x = args[i]
            if x.__class__ is not ndarray:
                if i and common.kind == "f" and selection.is_special(op, x, final is dt.F16):
                    continue
                args[i] = _number(asarray(x), common, final, i in op.wide, np.astype)
            elif x.dtype is not (common if x.ndim or final is None else final):
                if x.ndim:
                    args[i] = selection.cast(x, common)
                else:
                    args[i] = _number(x, common, final, i in op.wide)
            elif final is not None:
                args[i] = selection.cast(x, common)
    return args, final


def _number(
    x: Any, common: np.dtype, final: np.dtype | None, wide: bool, cast: Any = selection.cast
) -> Any:
    """A number for arrays of a common type: with half types in float32's precision or in theirs."""
    if wide:
        return cast(x, F32 if common in dt.HALF else common)
    return cast(x, common) if final is None else cast(cast(x, final), common)
