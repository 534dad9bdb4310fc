"""oneDNN (once MKL-DNN): weft uses it for float32 convolutions and matrix products."""

from __future__ import annotations

from weft.native import onednn as _onednn


def is_available() -> bool:
    """Whether it could be loaded."""
    return _onednn.available()


enabled = True
deterministic = False
allow_tf32 = False
