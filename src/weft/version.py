"""What this is, and what it was built with: no CUDA, no ROCm, no XPU."""

from __future__ import annotations

__version__ = "0.1.0"
debug = False
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version = "unknown"
