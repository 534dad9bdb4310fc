"""PyTorch's first ``vmap``, which its checks of gradients still use: no random numbers in it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.func import vmap


def _vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, allow_none_pass_through: bool = False
) -> Callable:
    """A function of batches out of a function of samples."""
    batched = vmap(func, in_dims, out_dims)

    @functools.wraps(func)
    def call(*args: Any) -> Any:
        try:
            return batched(*args)
        except RuntimeError as error:
            if "randomness error mode" not in str(error):
                raise
            raise RuntimeError(
                "vmap: We do not yet support calling random operations inside of vmap. Please "
                f"perform random operations outside of vmap as a workaround ({error})"
            ) from error

    return call


__all__ = ["_vmap", "vmap"]
