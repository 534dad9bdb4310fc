"""Making a module without drawing its starting values."""

from __future__ import annotations

from typing import Any

from weft.operators import api


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Any:
    """A module whose values are not set; the random numbers of others stay what they were."""
    state = api.FUNCTIONS["get_rng_state"]()
    try:
        return module_cls(*args, **kwargs)
    finally:
        api.FUNCTIONS["set_rng_state"](state)
