"""The version, without loading weft."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """The version of the installed weft, or that of a checkout."""
    try:
        return importlib.metadata.version("weft")
    except importlib.metadata.PackageNotFoundError:
        from weft.version import weft

        return str(weft)
