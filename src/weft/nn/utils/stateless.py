"""The old place of ``torch.func.functional_call``."""

from __future__ import annotations

import warnings
from typing import Any


def functional_call(
    module: Any,
    parameters_and_buffers: dict[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other tensors instead of its own."""
    from weft.func import functional_call as call

    warnings.warn(
        "This API is deprecated as of PyTorch 2.0: use torch.func.functional_call instead.",
        FutureWarning,
        stacklevel=2,
    )
    return call(
        *(module, parameters_and_buffers, args, kwargs), tie_weights=tie_weights, strict=strict
    )
