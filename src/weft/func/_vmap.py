"""``vmap``: a function of one example as a function of many."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.meta import filled
from weft.core.modes import MODES
from weft.core.tensor import Tensor, wrap
from weft.ops import api
from weft.utils._pytree import TreeSpec, broadcast_prefix, tree_flatten, tree_unflatten


def vmap(
    func: Callable,
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable:
    """A function that maps ``func`` over a dimension of its arguments.

    >>> import weft
    >>> weft.vmap(weft.dot)(weft.ones(3, 2), weft.ones(3, 2))
    tensor([2., 2., 2.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        name = getattr(func, "__name__", type(func).__name__)
        leaves, spec = tree_flatten(args)
        dims = _in_dims(in_dims, leaves, spec, name)
        size = _batch_size(dims, leaves)
        draws = _Draws(randomness)
        rows: list[list[Any]] = []
        form: TreeSpec | None = None
        now = MODES.now
        around = now.repeats
        try:
            for i in range(max(size, 1)):
                # An empty batch is run once on zeros, to learn the shapes of the results.
                values = [_slice(x, d, i, size) for x, d in zip(leaves, dims, strict=True)]
                now.repeats = around + max(size - i - 1, 0)
                draws.before()
                out, form = tree_flatten(func(*tree_unflatten(values, spec), **kwargs))
                draws.after()
                rows.append(out)
        finally:
            now.repeats = around
        assert form is not None
        return _gather(rows, form, out_dims, size, name)

    return wrapped


def _in_dims(in_dims: Any, leaves: list[Any], spec: TreeSpec, name: str) -> list[int | None]:
    where = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{where}: expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}."
        )
    if not leaves:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
            "trying to vmap over a function with no inputs. The latter is unsupported."
        )
    found = broadcast_prefix(list(in_dims) if isinstance(in_dims, list) else in_dims, spec)
    if found is None:
        raise ValueError(
            f"{where}: in_dims is not compatible with the structure of `inputs`. in_dims has "
            f"structure {tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    dims: list[int | None] = []
    for x, d in zip(leaves, found, strict=True):
        if d is None:
            dims.append(None)
            continue
        if not isinstance(d, int):
            raise ValueError(
                f"{where}: Got in_dim={d} for an input but in_dim must be either an integer "
                "dimension or None."
            )
        if not isinstance(x, Tensor):
            raise ValueError(
                f"{where}: Got in_dim={d} for an input but the input is of type {type(x)}. We "
                "cannot vmap over non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -x.ndim <= d < x.ndim:
            raise ValueError(
                f"{where}: Got in_dim={d} for some input, but that input is a Tensor of "
                f"dimensionality {x.ndim} so expected in_dim to satisfy -{x.ndim} <= in_dim < "
                f"{x.ndim}."
            )
        dims.append(d % x.ndim)
    return dims


def _batch_size(dims: list[int | None], leaves: list[Any]) -> int:
    sizes = [x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over; all in_dims are None")
    if len(set(sizes)) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0]


def _slice(x: Any, dim: int | None, i: int, size: int) -> Any:
    if dim is None:
        return x
    if not size:
        shape = x._a.shape[:dim] + x._a.shape[dim + 1 :]
        return wrap(filled(np.zeros, shape, x._a.dtype))
    return x.select(dim, i)


class _Draws:
    """What random ops inside the function may do."""

    def __init__(self, randomness: str) -> None:
        self.randomness = randomness
        self.generator = None if randomness == "different" else _generator()
        self.state = None if self.generator is None else self.generator.get_state()
        self.checked = False

    def before(self) -> None:
        if self.randomness == "same" and self.generator is not None:
            self.generator.set_state(self.state)

    def after(self) -> None:
        if self.randomness != "error" or self.generator is None or self.checked:
            return
        self.checked = True
        if not np.array_equal(np.asarray(self.generator.get_state()), np.asarray(self.state)):
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use "
                "the 'same' or 'different' randomness flags on vmap or perform the randomness "
                "operation out of vmap"
            )


def _generator() -> Any:
    from weft.ops import random

    return getattr(random, "default_generator", None)


def _gather(rows: list[list[Any]], form: TreeSpec, out_dims: Any, size: int, name: str) -> Any:
    where = f"vmap({name}, ..., out_dims={out_dims})(<inputs>)"
    dims = broadcast_prefix(out_dims, form)
    if dims is None and isinstance(out_dims, tuple) and len(out_dims) == 1 and form.is_leaf():
        dims = list(out_dims)
    if dims is None:
        raise ValueError(
            f"{where}: out_dims is not compatible with the structure of `outputs`. out_dims has "
            f"structure {tree_flatten(out_dims)[1]} but outputs has structure {form}."
        )
    found = []
    for k, dim in enumerate(dims):
        column = [row[k] for row in rows]
        if dim is None:
            found.append(column[0])
            continue
        for x in column:
            if not isinstance(x, Tensor):
                raise ValueError(
                    f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(x)}. "
                    "Did you mean to set out_dims= to None for output?"
                )
        stacked = api.FUNCTIONS["stack"](column, dim)
        found.append(stacked if size else stacked.narrow(dim, 0, 0))
    return tree_unflatten(found, form)
