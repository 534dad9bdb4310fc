"""Whether new memory gets a value where deterministic algorithms are asked for.

>>> import weft
>>> weft.utils.deterministic.fill_uninitialized_memory
True
"""

from __future__ import annotations

import sys
import types

from weft.core import settings


class _Deterministic(types.ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether ``empty`` and its like fill memory, so that programs that read it repeat."""
        return settings.fills_memory()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        settings.fill_memory(mode)


sys.modules[__name__].__class__ = _Deterministic
