"""Inference tensors: those created in ``inference_mode``, whose versions are not tracked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core import errors
from weft.core.modes import MODES

if TYPE_CHECKING:
    from weft.core.tensor import Tensor


class Untracked(list):
    """The version cell of an inference tensor, shared like any other by what shares its memory.

    Saving a tensor for backward reads its version, so raising there prevents saving, and costs
    other tensors nothing. Changes are still counted, for recorders of graphs: see ``version_of``.
    """

    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
            "inference mode in computation tracked by autograd. To work around this, you can make "
            "a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` "
            f"instead of `torch.inference_mode()`.\n  at {errors.here()}"
        )


# An entry of a version cell, also of an untracked one.
entry = list.__getitem__


def fresh_cell() -> list[Any]:
    """The version cell of a tensor that is being made."""
    now = MODES.now
    cell = Untracked((0,)) if now.inference else [0]
    for recorder in now.recorders:
        recorder.born(cell)
    return cell


def is_inference(x: Tensor) -> bool:
    """Whether a tensor was made in inference mode."""
    return x._vc.__class__ is Untracked


def version_of(x: Tensor) -> int:
    """How often a tensor's memory has been changed, even if autograd may not read that."""
    return entry(x._vc, 0)


def changeable(x: Tensor) -> bool:
    """Whether inference mode allows changing a tensor in place."""
    return x._vc.__class__ is list or MODES.now.inference


def check_change(x: Tensor, name: str) -> None:
    """Refuse to change an inference tensor outside inference mode."""
    if not changeable(x):
        raise RuntimeError(
            f"{name}: Inplace update to inference tensor outside InferenceMode is not allowed. You "
            "can make a clone to get a normal tensor before doing inplace update.\n"
            f"  at {errors.here()}"
        )
