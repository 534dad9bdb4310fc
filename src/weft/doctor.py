"""``weft doctor``: what weft found on this machine, what is missing, and what that costs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys

import numpy as np

# Packages that parts of weft can use, and what for.
OPTIONAL = {
    "tensorboard": "logs for TensorBoard",
    "mpi4py": "training on many machines",
}


def lines() -> list[str]:
    """The report, a line for each finding."""
    from weft import _cpu
    from weft.backends import native
    from weft.compat import distribution
    from weft.native import cache, pool
    from weft.version import weft as own

    report = [
        f"weft {own}, Python {platform.python_version()}, NumPy {np.__version__}",
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "",
    ]
    for name, works, what in native.describe():
        report.append(_line(works, name, what))
    if _cpu.word():
        late = " (not NumPy's own code, which was loaded before)" if _cpu.LATE else ""
        report.append(_line(True, "processor", f"kept to {_cpu.word()} by WEFT_CPU{late}"))
    kept = pool.pool()
    limit = f"keeps up to {kept.stats()['limit_bytes'] >> 20} MB" if kept else "off"
    report.append(_line(kept is not None, "memory pool", limit))
    files, size = cache.size()
    kept_code = cache.place()
    report.append(
        _line(
            not kept_code.refused,
            "kernel cache",
            f"{kept_code.folder}: {files} files, {size / (1 << 20):.1f} of at most "
            f"{cache.limit() >> 20} MB" + (f" ({kept_code.refused})" if kept_code.refused else ""),
        )
    )
    report.append(_line(native.get() == "native", "in use", f"{native.get()} kernels"))
    report.append("")
    for name in ("scipy", "ml_dtypes", *OPTIONAL):
        found = importlib.util.find_spec(name) is not None
        what = importlib.metadata.version(name) if found else OPTIONAL.get(name, "needed")
        report.append(_line(found, name, what))
    active = distribution.active()
    without = " (weft torch install lets libraries import weft as torch)"
    hint = without if active.kind == "none" else ""
    report.append(_line(active.kind not in ("none", "partial"), "torch", f"{active}{hint}"))
    return report


def _line(works: bool, name: str, what: str) -> str:
    return f"{'ok     ' if works else 'missing'}  {name:<13} {what}"


def main() -> int:
    """Print the report; the exit code says whether native kernels work."""
    from weft.backends import native

    print("\n".join(lines()))
    return 0 if all(works for _, works, _ in native.describe()) else 1


if __name__ == "__main__":
    sys.exit(main())
