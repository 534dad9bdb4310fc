"""``torch.hub.tqdm``: the bar of the package tqdm, or one that shows nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

try:
    from tqdm import tqdm
except ImportError:

    class tqdm:  # type: ignore[no-redef]
        """Takes what a bar takes and shows nothing."""

        def __init__(self, iterable: Any = None, **options: Any) -> None:
            self.iterable = iterable

        def __iter__(self) -> Iterator[Any]:
            return iter(self.iterable)

        def update(self, n: float = 1) -> None:
            """Accepted."""

        def close(self) -> None:
            """Accepted."""

        def __enter__(self) -> tqdm:
            return self

        def __exit__(self, *error: Any) -> None:
            self.close()
