"""``weft doctor``: what weft found on this machine, what is missing, and what that costs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

# Packages that parts of weft can use: what for, and how to get them.
OPTIONAL = {
    "sklearn": ("holds the digits of weft demo", "pip install 'weft[demo]'"),
    "PIL": ("reads and writes images for weft.vision and weft.viz", "pip install 'weft[vision]'"),
    "tqdm": ("draws the progress bar of Trainer", "pip install 'weft[train]'"),
    "tensorboard": ("shows logs of trainings", "pip install tensorboard"),
}
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow"}
# What of a processor matters to the kernels, in the words of Linux.
_FEATURES = ("sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512_vnni", "avx512_bf16",
             "amx_tile", "neon", "asimd", "sve")  # fmt: skip


def lines() -> list[str]:
    """The report, a line for each finding."""
    return [*_platform(), "", *_native(), "", *_packages()]


def _platform() -> Iterator[str]:
    from weft.version import weft as own

    yield f"weft {own}, Python {platform.python_version()}, NumPy {np.__version__}"
    yield f"{platform.system()} {platform.release()} on {platform.machine()}"
    model, features = _processor()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield f"{model or 'processor'}: {usable} of {os.cpu_count()} processors usable" + (
        f"; {', '.join(features)}" if features else ""
    )
    memory = _memory()
    if memory:
        yield f"{memory / (1 << 30):.1f} GiB of memory"


def _processor() -> tuple[str, list[str]]:
    """The processor's name and features, where Linux tells them."""
    model = ""
    flags: set[str] = set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == "model name" and not model:
                    model = value.strip()
                elif name.strip() in ("flags", "Features") and not flags:
                    flags = set(value.split())
    except OSError:
        model = platform.processor()
    return model, [feature for feature in _FEATURES if feature in flags]


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def _native() -> Iterator[str]:
    from weft import _cpu
    from weft.backends import native
    from weft.native.codegen import cache
    from weft.native.memory import pool

    for name, works, what in native.describe():
        yield _line(works, name, what)
    if _cpu.word():
        late = " (not NumPy's own code, which was loaded before)" if _cpu.LATE else ""
        yield _line(True, "processor", f"kept to {_cpu.word()} by WEFT_CPU{late}")
    kept = pool.pool()
    limit = f"keeps up to {kept.stats()['limit_bytes'] >> 20} MB" if kept else "off"
    yield _line(kept is not None, "memory pool", limit)
    files, size = cache.size()
    place = cache.place()
    told = (
        f"{place.folder}: {files} files, {size / (1 << 20):.1f} of at most {cache.limit() >> 20} MB"
    )
    if place.refused:
        told += f" ({place.refused}); every run recompiles its kernels"
    yield _line(not place.refused, "kernel cache", told)
    yield _line(native.get() == "native", "in use", f"{native.get()} kernels")


def _packages() -> Iterator[str]:
    from weft.compat import distribution

    for name in ("scipy", "ml_dtypes", *OPTIONAL):
        found = importlib.util.find_spec(name) is not None
        purpose, way = OPTIONAL.get(name, ("weft needs it", f"pip install {name}"))
        shown = _DISTRIBUTIONS.get(name, name)
        what = _version(shown) if found else f"{purpose}: {way}"
        yield _line(found, shown, what)
    active = distribution.active()
    without = " (weft torch install lets libraries import weft as torch)"
    hint = without if active.kind == "none" else ""
    yield _line(active.kind not in ("none", "partial"), "torch", f"{active}{hint}")


def _version(name: str) -> str:
    """The version of a package that can be imported; not all of those were put there by pip."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "of an unknown version"


def _line(works: bool, name: str, what: str) -> str:
    return f"{'ok     ' if works else 'missing'}  {name:<13} {what}"


# ------------------------------------------------------------------ the speed check


def measure(seconds: float = 2.0) -> Iterator[str]:
    """How fast the machine is at what trainings do, measured for about so long in all."""
    import weft

    a, b = weft.randn(768, 768), weft.randn(768, 768)
    large, small = weft.randn(4_000_000), weft.randn(4, 4)
    image, kernel = weft.randn(16, 32, 32, 32), weft.randn(32, 32, 3, 3)
    weights = weft.randn(64, 64, requires_grad=True)
    given = weft.randn(32, 64)

    def train() -> None:
        (given @ weights).relu().sum().backward()

    checks: list[tuple[str, Callable[[], object], float, str]] = [
        ("matrix product", lambda: a @ b, 2 * 768**3 / 1e9, "GFLOP/s (float32, 768x768)"),
        ("convolution", lambda: weft.nn.functional.conv2d(image, kernel, padding=1),
         2 * 16 * 32 * 32 * 32 * 32 * 9 / 1e9, "GFLOP/s (3x3, 32 channels of 32x32)"),
        ("memory", lambda: large + large, 3 * 4 * large.numel() / 1e9, "GB/s (adding 16 MB)"),
        ("small op", lambda: small + small, 0.0, "us for a sum of 4x4"),
        ("small step", train, 0.0, "us for a 64x64 layer, forward and backward"),
    ]  # fmt: skip
    for name, work, amount, unit in checks:
        best = _best(work, seconds / len(checks))
        yield f"  {name:<14}  {amount / best if amount else best * 1e6:8.1f} {unit}"


def _best(work: Callable[[], object], seconds: float) -> float:
    """The shortest time of one call, over some rounds that fill the time."""
    clock = time.perf_counter
    work()  # compiles what has to be compiled
    start = clock()
    work()
    repeats = max(int(seconds / 8 / max(clock() - start, 1e-7)), 1)
    best, end = float("inf"), clock() + seconds
    while clock() < end:
        start = clock()
        for _ in range(repeats):
            work()
        best = min(best, (clock() - start) / repeats)
    return best


def main(speed: bool = True) -> int:
    """Print the report; the exit code says whether native kernels work."""
    from weft.backends import native

    print("\n".join(lines()), flush=True)
    if speed:
        print("\nspeed of the kernels in use (other programs slow them down)")
        for line in measure():
            print(line, flush=True)
    return 0 if all(works for _, works, _ in native.describe()) else 1


if __name__ == "__main__":
    sys.exit(main())
