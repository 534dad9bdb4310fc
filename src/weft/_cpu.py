"""``WEFT_CPU``: which instructions of the processor are used.

The words are ``native`` (all, the default), ``avx512``, ``avx2``, ``avx``, ``sse4`` and
``baseline``. What weft compiles keeps to them, and so do oneDNN, NumPy and its BLAS, which take
such wishes from the environment as they are loaded. So this is the first thing that weft imports;
where NumPy was imported before, ``weft run --cpu avx2 script.py`` is the way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from typing import NamedTuple


class Level(NamedTuple):
    """What one word means to LLVM, oneDNN and OpenBLAS, and what of NumPy's is switched off."""

    llvm: str
    onednn: str
    openblas: str
    numpy: str
    numpy_before: str  # the names of versions before 2.4


_TOP = "AVX512_ICL AVX512_SPR"
_WIDE = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
LEVELS = {
    "avx512": Level("x86-64-v4", "AVX512_CORE", "SkylakeX", "", ""),
    "avx2": Level("x86-64-v3", "AVX2", "Haswell", f"X86_V4 {_TOP}", _WIDE),
    "avx": Level("x86-64-v2", "AVX", "Sandybridge", f"X86_V3 X86_V4 {_TOP}", f"FMA3 AVX2 {_WIDE}"),
    "sse4": Level(
        "x86-64-v2", "SSE41", "Nehalem", f"X86_V3 X86_V4 {_TOP}", f"AVX F16C FMA3 AVX2 {_WIDE}"
    ),
    "baseline": Level(
        "x86-64", "SSE41", "Prescott", f"X86_V3 X86_V4 {_TOP}", f"AVX F16C FMA3 AVX2 {_WIDE}"
    ),
}
# Features of LLVM that begin like this are for a higher level than the word; oneDNN and NumPy need
# SSE4.1 and more in any case.
_AVX512 = ("avx512", "avx10", "amx", "evex512")
_AVX2 = ("avx2", "fma", "avxvnni", "avxifma", "avxneconvert", "vaes", "vpclmulqdq", "xop")
_AVX = ("avx", "f16c", "sha512", "sm3", "sm4", "gfni")
_SSE4 = ("sse4", "ssse3", "sse3", "pclmul", "aes", "sha", "popcnt", "bmi", "lzcnt", "movbe")
BEYOND = {
    "avx512": ("amx",),
    "avx2": _AVX512,
    "avx": _AVX512 + _AVX2,
    "sse4": _AVX512 + _AVX2 + _AVX,
    "baseline": _AVX512 + _AVX2 + _AVX + _SSE4,
}


def word(environment: MutableMapping[str, str] = os.environ) -> str:
    """The level that is asked for, or nothing for all that there is."""
    given = environment.get("WEFT_CPU", "").lower()
    if given in ("", "native"):
        return ""
    if given not in LEVELS:
        raise ValueError(f"WEFT_CPU is one of native, {', '.join(LEVELS)}; not {given!r}")
    return given


def tell_others(environment: MutableMapping[str, str] = os.environ) -> None:
    """Pass the wish on to the libraries; what the user told them stays."""
    level = word(environment)
    if not level:
        return
    wish = LEVELS[level]
    environment.setdefault("ONEDNN_MAX_CPU_ISA", wish.onednn)
    environment.setdefault("OPENBLAS_CORETYPE", wish.openblas)
    off = wish.numpy if _numpy() >= (2, 4) else wish.numpy_before
    if off:
        environment.setdefault("NPY_DISABLE_CPU_FEATURES", off)


def _numpy() -> tuple[int, int]:
    """NumPy's version, without importing it."""
    from importlib import metadata

    try:
        major, minor = metadata.version("numpy").split(".")[:2]
        return int(major), int(minor)
    except (metadata.PackageNotFoundError, ValueError):
        return 2, 4


def keep_to(level: str, cpu: str, features: str) -> tuple[str, str]:
    """A processor's name and features for LLVM, without what is beyond a level."""
    if not level:
        return cpu, features
    beyond, kept, cut = BEYOND[level], [], False
    for feature in features.split(","):
        if feature[1:].startswith(beyond):
            cut = cut or feature.startswith("+")
            kept.append(f"-{feature[1:]}")
        else:
            kept.append(feature)
    # The processor's own name would bring everything back.
    return (LEVELS[level].llvm if cut else cpu), ",".join(kept)


LATE = "numpy" in sys.modules  # then its part of the wish comes too late
tell_others()
