"""Function transforms: derivatives and batches of functions."""

from __future__ import annotations

from weft.func._modules import (
    functional_call,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from weft.func._reverse import (
    debug_unwrap,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
)
from weft.func._vmap import vmap

__all__ = [
    "debug_unwrap",
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]
