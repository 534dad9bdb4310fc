"""What the numbers are computed with."""

from __future__ import annotations


def show() -> str:
    """A text with the versions of Python, NumPy and weft, and the BLAS in use."""
    import platform

    import numpy as np

    from weft.version import weft as own_version

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return (
        f"weft {own_version}\n  - Python {platform.python_version()}\n  - NumPy {np.__version__}\n"
        f"  - BLAS {blas.get('name')} {blas.get('version')}\n  - CUDA not used\n"
    )


def parallel_info() -> str:
    """A text about threads."""
    from weft.core.settings import get_num_interop_threads, get_num_threads

    return f"BLAS threads: {get_num_threads()}\nthreads between ops: {get_num_interop_threads()}\n"
