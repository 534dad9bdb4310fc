"""Imports every file of op blocks, so that all ops are registered."""

from __future__ import annotations

import importlib

# In order of dependence; a block may only use ops of files before its own at import time.
FILES = (
    *("arithmetic", "pointwise", "views", "casting", "indexing", "reductions", "matmul"),
    *("creation", "special", "arranging", "gather", "cumulative", "sorting", "linalg", "fft"),
    *("random", "activations", "normalization", "convolution", "pooling", "resampling"),
    *("embedding", "losses"),
)


def everything() -> None:
    """Register all ops."""
    for name in FILES:
        importlib.import_module(f"weft.ops.{name}")
