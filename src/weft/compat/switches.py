"""Settings of parts of PyTorch that weft does not have, for programs that set them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any


class Switches(SimpleNamespace):
    """Settings that can be read and set, and that nothing reads."""

    @contextlib.contextmanager
    def patch(self, arg1: Any = None, arg2: Any = None, **kwargs: Any) -> Iterator[None]:
        """Set some for a block or a function: by name, as a dict, or as keywords."""
        changes = {**({arg1: arg2} if isinstance(arg1, str) else arg1 or {}), **kwargs}
        before = dict(vars(self))
        vars(self).update(changes)
        try:
            yield
        finally:
            vars(self).clear()
            vars(self).update(before)
