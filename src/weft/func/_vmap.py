"""``vmap``: a function of one example as a function of many."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.core import batching
from weft.core.tensor import Tensor
from weft.operators import api
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
        parts: list[list[Any]] = []
        step = chunk_size or max(size, 1)
        for start in range(0, max(size, 1), step):
            count = min(step, size - start)
            chunk = [
                x if d is None or count == size else x.narrow(d, start, count)
                for x, d in zip(leaves, dims, strict=True)
            ]
            found, form = _run(func, spec, kwargs, randomness, chunk, dims, count)
            parts.append(found)
        found = parts[0] if len(parts) == 1 else _joined(parts)
        return _gathered(found, form, out_dims, size, name)

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


def _run(
    func: Callable, spec: TreeSpec, kwargs: Any, randomness: str, leaves: Any, dims: Any, size: int
) -> tuple[list[Any], TreeSpec]:
    """The function on all examples at once: results with the batch in front, and their form.

    What the function gives without a batch is paired with False.
    """
    level = batching.enter(size, randomness)
    try:
        values = [
            x if d is None else batching.batched(x.movedim(d, 0) if d else x, level)
            for x, d in zip(leaves, dims, strict=True)
        ]
        out, form = tree_flatten(func(*tree_unflatten(values, spec), **kwargs))
        found = [(batching.taken_out(x, level), batching.has_level(x, level)) for x in out]
    finally:
        batching.leave()
    return found, form


def _gathered(found: list[Any], form: TreeSpec, out_dims: Any, size: int, name: str) -> Any:
    """The results with their batches where they are wanted."""
    where = f"vmap({name}, ..., out_dims={out_dims})(<inputs>)"
    dims = broadcast_prefix(out_dims, form)
    if dims is None and isinstance(out_dims, tuple) and len(out_dims) == 1 and form.is_leaf():
        dims = list(out_dims)
    if dims is None:
        raise ValueError(
            f"{where}: out_dims is not compatible with the structure of `outputs`. out_dims has "
            f"structure {tree_flatten(out_dims)[1]} but outputs has structure {form}."
        )
    results = []
    for (x, has_batch), dim in zip(found, dims, strict=True):
        if dim is None:
            if has_batch:
                raise ValueError(
                    f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is "
                    "None: its results differ from example to example"
                )
            results.append(x)
            continue
        if not isinstance(x, Tensor):
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(x)}. "
                "Did you mean to set out_dims= to None for output?"
            )
        if not has_batch:
            x = batching.repeated(x, size)
        results.append(x.movedim(0, dim) if dim else x)
    return tree_unflatten(results, form)


def _joined(parts: list[list[Any]]) -> list[Any]:
    """The results of chunks as those of the whole batch."""
    cat = api.FUNCTIONS["cat"]
    return [
        (cat([x for x, _ in column]), True) if column[0][1] else column[0]
        for column in zip(*parts, strict=True)
    ]
