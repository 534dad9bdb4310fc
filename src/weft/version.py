"""What this is, and what it was built with: no CUDA, no ROCm, no XPU.

``__version__`` says which PyTorch a program may take this for; ``weft`` is the version of weft.
"""

from __future__ import annotations

weft = "0.1.0"
__version__ = f"2.13.0+weft.{weft}"
debug = False
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "unknown"
