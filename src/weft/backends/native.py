"""The native kernels of weft: whether there are any, what they run on, and a switch."""

from __future__ import annotations

from weft.core import selection as _selection
from weft.native import onednn as _onednn
from weft.native import threads as _threads
from weft.native.codegen import jit as _jit
from weft.native.conv import convolutions as _convolutions

NATIVE, NUMPY = "native", "numpy"


def is_available() -> bool:
    """Whether kernels can be compiled here."""
    return _jit.why_not() is None


def get() -> str:
    """Which kernels large arrays go to: ``"native"`` or ``"numpy"``."""
    return NATIVE if _selection.enabled() and is_available() else NUMPY


def set(kind: str) -> None:
    """Choose ``"native"`` or, to compare, ``"numpy"``; ``WEFT_KERNELS`` sets it from outside."""
    if kind not in (NATIVE, NUMPY):
        raise ValueError(f"kernels are 'native' or 'numpy', not {kind!r}")
    _selection.enable(kind == NATIVE)


def winograd() -> bool:
    """Whether Winograd convolutions are used: see ``set_winograd``."""
    return _convolutions.winograd_allowed()


def set_winograd(on: bool) -> None:
    """Use Winograd convolutions for many channels, which is the default, or direct ones alone.

    Rounding errors are then of the size that the largest values near a window give, instead of
    those inside it; that matters where neighbours differ by many orders of magnitude.
    """
    _convolutions.allow_winograd(on)


def describe() -> list[tuple[str, bool, str]]:
    """The parts of the native side: name, whether it works, and what to know of it."""
    compiler = _jit.why_not()
    found = []
    if compiler is None:
        engine = _jit.engine()
        found.append(("LLVM kernels", True, f"LLVM {engine.version} for {engine.cpu}"))
    else:
        cost = "large elementwise work, reductions and norms run on NumPy, in one thread"
        found.append(("LLVM kernels", False, f"{compiler}; {cost}"))
    if _onednn.available():
        found.append(("oneDNN", True, f"version {_onednn.version()}"))
    else:
        other = "NumPy" if compiler else "compiled loops"
        cost = f"convolutions and matrix products run on {other}, some of them slower"
        found.append(("oneDNN", False, f"{_onednn.why_not()} Without it {cost}."))
    if _threads.available():
        found.append(("threads", True, f"{_threads.count()} of OpenMP"))
    else:
        found.append(("threads", False, "no libgomp: kernels run in one thread"))
    return found
