"""Attention whose scores a function of one's own changes or masks, place by place.

Scores are computed as a whole matrix and the function is mapped over all of it by ``vmap``; a block
mask says which blocks a kernel could leave out, and here which scores count.

>>> import weft as torch
>>> q = torch.ones(1, 2, 4, 8)
>>> causal = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 4, 4, BLOCK_SIZE=2)
>>> flex_attention(q, q, q, block_mask=causal).shape
torch.Size([1, 2, 4, 8])
>>> causal.sparsity()
25.0
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import weft
from weft.core import errors
from weft.core.tensor import Tensor

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask",
    "create_mask", "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip

_DEFAULT_SPARSE_BLOCK_SIZE = 128
_score_mod_signature = _mask_mod_signature = Callable[..., Tensor]


class FlexKernelOptions(TypedDict, total=False):
    """Options of PyTorch's GPU kernels; accepted and not used."""

    BACKEND: Any


class AuxRequest(NamedTuple):
    """What else ``flex_attention`` is to give."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What else ``flex_attention`` gave, where it was asked for."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


# ------------------------------------------------------------------ masks


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Tensor:
    """A mask that leaves everything in."""
    return batch.new_ones((), dtype=weft.bool)


def _combined(masks: tuple[Callable, ...], both: Callable, start: bool) -> Callable:
    if not all(callable(m) for m in masks):
        raise RuntimeError(
            f"All inputs should be callable mask_mods: {masks}\n  at {errors.here()}"
        )

    def combined(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_full((), start, dtype=weft.bool)
        for mask in masks:
            result = both(result, mask(b, h, q_idx, kv_idx))
        return result

    return combined


def and_masks(*mask_mods: Callable) -> Callable:
    """A mask of the places that all masks leave in."""
    return _combined(mask_mods, lambda a, b: a & b, True)


def or_masks(*mask_mods: Callable) -> Callable:
    """A mask of the places that any of the masks leaves in."""
    return _combined(mask_mods, lambda a, b: a | b, False)


def _mapped(function: Callable, with_score: bool) -> Callable:
    """A function of single places, for tensors of shape (batch, heads, queries, keys)."""
    first = (0,) if with_score else ()
    for place in range(3, -1, -1):
        dims = [None] * 4
        dims[place] = 0  # type: ignore[call-overload]
        function = weft.func.vmap(function, in_dims=(*first, *dims))
    return function


def _places(*sizes: int) -> list[Tensor]:
    return [weft.arange(n, dtype=weft.int32) for n in sizes]


def create_mask(
    mod_fn: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> Tensor:
    """The mask of all places as a tensor; of a function of scores, those it does not put out.

    >>> create_mask(lambda b, h, q, kv: q >= kv, None, None, 2, 2)
    tensor([[[[ True, False],
              [ True,  True]]]])
    """
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    kinds = inspect.signature(mod_fn).parameters.values()
    count = sum(p.kind is not p.KEYWORD_ONLY and p.default is p.empty for p in kinds)
    if count == 5:
        return ~_mapped(mod_fn, True)(weft.zeros(sizes), *_places(*sizes)).isneginf()
    return _mapped(mod_fn, False)(*_places(*sizes)).expand(sizes)


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of each row are set, and the columns, those that are set first."""
    numbers = blocks.to(weft.int32)
    columns = weft.argsort(numbers, dim=-1, descending=True, stable=True)
    return numbers.sum(-1, dtype=weft.int32), columns.to(weft.int32).contiguous()


def _dense(count: Tensor, columns: Tensor) -> Tensor:
    """The reverse of ``_ordered``."""
    there = weft.arange(columns.shape[-1]) < count.unsqueeze(-1)
    return weft.zeros(columns.shape, dtype=weft.int32).scatter(
        -1, columns.long(), there.to(weft.int32)
    )


class BlockMask:
    """Which blocks of scores count: none of a block, all of it, or what the mask says."""

    def __init__(
        self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None, full_kv_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int], mask_mod: Callable,
    ) -> None:  # fmt: skip
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = self._by_columns(kv_num_blocks, kv_indices)
        self.full_q_num_blocks, self.full_q_indices = self._by_columns(
            full_kv_num_blocks, full_kv_indices
        )

    @staticmethod
    def _by_columns(count: Tensor | None, columns: Tensor | None) -> Any:
        if count is None or columns is None:
            return None, None
        return _ordered(_dense(count, columns).transpose(-2, -1))

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None, BLOCK_SIZE: int | tuple[int, int] = 128,
        mask_mod: Callable | None = None, seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True, **more: Any,
    ) -> BlockMask:  # fmt: skip
        """A mask by the numbers and columns of its blocks, row by row."""
        if kv_indices.ndim < 2:
            raise RuntimeError(f"BlockMask must have at least 2 dimensions\n  at {errors.here()}")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise ValueError(
                "full_kv_num_blocks and full_kv_indices must be both provided or omitted\n"
                f"  at {errors.here()}"
            )
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        rows, columns = kv_indices.shape[-2:]
        lengths = seq_lengths or (rows * size[0], columns * size[1])
        return cls(
            lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, size,
            mask_mod or noop_mask,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch, heads, queries and keys."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """The number of scores."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """The percentage of scores in blocks of which none counts."""
        blocks = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum())
        return (1 - blocks * math.prod(self.BLOCK_SIZE) / self.numel()) * 100

    def to_dense(self) -> Tensor:
        """One number for each block, 1 where something of it counts."""
        found = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return found
        return found | _dense(self.full_kv_num_blocks, self.full_kv_indices)

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """All that makes up the mask."""
        parts = (
            self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices,
            self.q_num_blocks, self.q_indices, self.full_q_num_blocks, self.full_q_indices,
            *(None,) * 4,  # an order of writes, for GPUs
        )  # fmt: skip
        if flatten:
            return (*self.seq_lengths, *parts, *self.BLOCK_SIZE, self.mask_mod)
        return (self.seq_lengths, *parts, self.BLOCK_SIZE, self.mask_mod)

    def to(self, device: Any) -> BlockMask:
        """The same mask: everything is on the CPU."""
        weft.device(device)
        return self

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some batches, heads or rows of blocks; its places can't be mapped again."""
        index = index if isinstance(index, tuple) else (index,)
        index = tuple(slice(i, i + 1) if isinstance(i, int) and i >= 0 else i for i in index)
        index = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in index)
        full = self.full_kv_num_blocks, self.full_kv_indices
        counts, columns = (None if t is None else t[index] for t in full)
        kept = self.kv_num_blocks[index], self.kv_indices[index], counts, columns
        return BlockMask(self.seq_lengths, *kept, self.BLOCK_SIZE, _sliced)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def _sliced(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    raise RuntimeError(
        "Cannot use mask_mod from a sliced BlockMask. When you slice a BlockMask using [], the "
        "original mask_mod function cannot be automatically adjusted for the new indices. Please "
        "set the mask_mod attribute to a mask for them, e.g. block_mask.mask_mod = mask_mod\n"
        f"  at {errors.here()}"
    )


def create_block_mask(
    mask_mod: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE, _compile: bool = False,
    **more: Any,
) -> BlockMask:  # fmt: skip
    """The block mask of a function that says whether a query sees a key."""
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    with weft.no_grad():
        mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN)
        if mask.dtype is not weft.bool:
            raise AssertionError(f"expected a mask of bool, got {mask.dtype}\n  at {errors.here()}")
        beyond = (0, -KV_LEN % size[1], 0, -Q_LEN % size[0])
        mask = weft.nn.functional.pad(mask.to(weft.int32), beyond)
        batch, heads, rows, columns = mask.shape
        split = mask.reshape(batch, heads, rows // size[0], size[0], columns // size[1], size[1])
        sums = split.sum((3, 5))
        full = sums == math.prod(size)
        partial = (sums > 0) & ~full
    return BlockMask((Q_LEN, KV_LEN), *_ordered(partial), *_ordered(full), size, mask_mod)  # type: ignore[arg-type]


# ------------------------------------------------------------------ attention


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: Any = None, *, return_aux: AuxRequest | None = None,
) -> Any:  # fmt: skip
    """Attention with ``score_mod(score, batch, head, query, key)`` instead of each score.

    Queries that see nothing give zeros. Gradients reach what the function holds, too.
    """
    _check(query, key, value, enable_gqa, block_mask)
    if return_lse and return_aux is not None:
        raise ValueError(
            f"Cannot specify both return_lse and return_aux. Use return_aux=AuxRequest(lse=True)\n"
            f"  at {errors.here()}"
        )
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (t.repeat_interleave(groups, 1) for t in (key, value))
    precise = query.dtype if query.dtype is weft.float64 else weft.float32
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query @ key.transpose(-2, -1)).to(precise) * factor
    places = _places(*scores.shape)
    if score_mod is not None:
        scores = _mapped(score_mod, True)(scores, *places).to(precise)
    if block_mask is not None:
        seen = _mapped(block_mask.mask_mod, False)(*places)
        scores = weft.where(seen, scores, -math.inf)
    total = scores.logsumexp(-1)
    # Without this a row of which nothing counts would be NaN.
    weights = (scores - total.masked_fill(total == -math.inf, 0.0).unsqueeze(-1)).exp()
    result = weights.to(query.dtype) @ value
    if return_lse:
        return result, total
    if return_aux is None:
        return result
    most = scores.amax(-1) if return_aux.max_scores else None
    return result, AuxOutput(total if return_aux.lse else None, most)


def _check(query: Tensor, key: Tensor, value: Tensor, grouped: bool, mask: Any) -> None:
    def refuse(kind: type[Exception], what: str) -> None:
        raise kind(f"{what}\n  at {errors.here()}")

    if not query.ndim == key.ndim == value.ndim == 4:
        refuse(NotImplementedError, "NYI: query, key, and value must be 4D tensors")
    if not query.dtype == key.dtype == value.dtype:
        refuse(
            ValueError,
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead.",
        )
    if query.shape[-1] != key.shape[-1]:
        refuse(
            ValueError,
            "Expect query and key/value to have the same embedding dimension but got "
            f"E={query.shape[-1]} and E={key.shape[-1]}.",
        )
    heads, others = query.shape[1], key.shape[1]
    if heads != others and not grouped:
        refuse(
            ValueError,
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and "
            f"Hkv={others}. Try setting enable_gqa=True for GQA.",
        )
    if heads % others:
        refuse(
            ValueError,
            "Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={heads} and Hkv={others}.",
        )
    if mask is not None and mask.seq_lengths != (query.shape[2], key.shape[2]):
        refuse(
            ValueError,
            f"block_mask was created for block_mask.shape={mask.shape} but got "
            f"q_len={query.shape[2]} and kv_len={key.shape[2]}. As the block mask was created for "
            "other lengths, you must create another one",
        )
