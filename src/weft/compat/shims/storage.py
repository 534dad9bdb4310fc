"""The memory behind tensors."""

from __future__ import annotations

from weft.core import dtype as dt
from weft.core.storage import STORAGE_NAMES, TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]


def _dtype_to_storage_type_map() -> dict[dt.dtype, str]:
    """The names of the legacy storage classes by dtype."""
    return {dt.BY_NAME[name]: storage for name, storage in STORAGE_NAMES.items()}


def _storage_type_to_dtype_map() -> dict[str, dt.dtype]:
    """The dtypes by the names of the legacy storage classes."""
    return {storage: dtype for dtype, storage in _dtype_to_storage_type_map().items()}
