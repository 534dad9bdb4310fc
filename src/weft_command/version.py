"""The version, without loading weft."""

from __future__ import annotations

import importlib.util
import os
import runpy


def version() -> str:
    """The version of weft, from the one file that says it."""
    found = importlib.util.find_spec("weft")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("weft is not installed beside its command", name="weft")
    return str(runpy.run_path(os.path.join(os.path.dirname(found.origin), "version.py"))["weft"])
