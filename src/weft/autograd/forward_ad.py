"""Forward-mode differentiation: tensors that carry a tangent along."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.core import errors
from weft.core.dual import (
    forget_tangents,
    in_layout,
    set_tangent,
    tangents_of,
    without_tangent,
)
from weft.core.modes import MODES, _Switch
from weft.core.tensor import Tensor


class UnpackedDualTensor(NamedTuple):
    """A dual tensor taken apart; ``tangent`` is None for an ordinary tensor."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Open a level of forward mode and return its number."""
    if MODES.now.dual_level >= 0:
        raise RuntimeError(
            "Nested forward mode AD is not supported at the moment: a level is open already. "
            f"Use torch.func.jvp for derivatives of derivatives\n  at {errors.here()}"
        )
    MODES.now.dual_level += 1
    MODES.now.update()
    return MODES.now.dual_level


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the innermost level; tangents made at it are forgotten."""
    now = MODES.now
    if level is None:
        level = now.dual_level
    if level != now.dual_level:
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This "
            "is not supported."
        )
    if level < 0:
        raise RuntimeError("exit_dual_level: no forward AD level is open; enter one first")
    forget_tangents(level)
    now.dual_level -= 1
    now.update()


class dual_level(_Switch):
    """A block within which dual tensors can be made and used.

    >>> import weft
    >>> import weft.autograd.forward_ad as fwAD
    >>> x, v = weft.tensor([3.0]), weft.tensor([1.0])
    >>> with fwAD.dual_level():
    ...     fwAD.unpack_dual(fwAD.make_dual(x, v) ** 2).tangent
    tensor([6.])
    """

    def __enter__(self) -> int:
        self.level = enter_dual_level()
        return self.level

    def _exit(self) -> None:
        exit_dual_level(level=self.level)


def _is_fwd_grad_enabled() -> bool:
    """Whether ops propagate tangents in this thread."""
    return MODES.now.forward_grad


def set_fwd_grad_enabled(mode: bool) -> None:
    """Set whether ops propagate tangents."""
    MODES.now.forward_grad = bool(mode)


class _set_fwd_grad_enabled(_Switch):
    """Set whether ops propagate tangents, for a block."""

    def __init__(self, mode: bool) -> None:
        self.previous = MODES.now.forward_grad
        self.enabled = mode
        set_fwd_grad_enabled(mode)

    def _again(self) -> _Switch:
        return _set_fwd_grad_enabled(self.enabled)

    def _enter(self) -> None:
        set_fwd_grad_enabled(self.enabled)

    def _exit(self) -> None:
        set_fwd_grad_enabled(self.previous)


def _level(level: int | None, name: str) -> int:
    level = MODES.now.dual_level if level is None else level
    if level < 0:
        raise RuntimeError(
            f"Trying to {name} a dual Tensor for forward AD but no level exists, make sure to "
            f"enter_dual_level() first.\n  at {errors.here()}"
        )
    return level


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of ``tensor`` that carries ``tangent``."""
    level = _level(level, "create")
    for x, what in ((tensor, "primal"), (tangent, "tangent")):
        if not isinstance(x, Tensor):
            raise TypeError(f"make_dual: {what} must be a Tensor, not {type(x).__name__}")
        if x._a.dtype.kind not in "fcV":
            raise ValueError(
                f"Expected {what} to be floating point or complex, but got: {x.dtype!r}"
            )
    if tensor._a.shape != tangent._a.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(tensor.shape)} while the "
            f"given forward gradient is of size {list(tangent.shape)}."
        )
    if level in (tangents_of(tangent) or {}):
        raise RuntimeError(
            "Setting a forward grad that itself has a forward gradient at the same level "
            f"{level} is not supported. Take it apart with unpack_dual()\n  at {errors.here()}"
        )
    if level in (tangents_of(tensor) or {}):
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the "
            f"same level {level} is not supported. Take it apart with unpack_dual()\n"
            f"  at {errors.here()}"
        )
    dual = tensor.view_as(tensor)
    set_tangent(dual, level, in_layout(tangent, tensor._a))
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The primal and the tangent of a dual tensor."""
    level = MODES.now.dual_level if level is None else level
    tangent = (tangents_of(tensor) or {}).get(level) if level >= 0 else None
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(without_tangent(tensor, level), tangent)


def __getattr__(name: str) -> Any:
    # PyTorch has this as a variable of the module; here the levels belong to a thread.
    if name == "_current_level":
        return MODES.now.dual_level
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    *("UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level"),
    *("make_dual", "unpack_dual"),
]
