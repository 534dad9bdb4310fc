"""The types of results with several named parts, such as ``(values, indices)``."""

from __future__ import annotations

from weft.operators.along import RESULT_TYPES as _RESULT_TYPES

globals().update(_RESULT_TYPES)
