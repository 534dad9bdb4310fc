"""Imports every file of op blocks, so that all ops are registered."""

from __future__ import annotations

import importlib

# In order of dependence; a block may only use ops of files before its own at import time.
FILES = (
    *("arithmetic", "views", "strided", "pointwise", "casting", "pairwise", "indexing"),
    *("reductions", "matmul", "einsum"),
    *("creation", "ranges", "memory", "windows", "special"),
    *("arranging", "padding", "gather", "slices"),
    *("cumulative", "statistics", "sorting", "searching", "factorizations", "spectral", "linalg"),
    *("norms", "fft", "stft"),
    *("random", "samplers", "activations", "softmax", "normalization", "dropout"),
    *("convolution", "pooling", "resampling", "embedding", "losses", "entropy", "attention"),
    *("recurrent", "questions", "regions", "saved_names"),
)


def everything() -> None:
    """Register all ops."""
    for name in FILES:
        importlib.import_module(f"weft.operators.{name}")
    importlib.import_module("weft.operators.native").register()
