"""Dropout of whole residual branches and of blocks of pixels."""

from __future__ import annotations

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """Zero the whole input ("batch") or samples of it ("row") with probability p."""
    if p < 0.0 or p > 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0.0:
        return input
    survival = 1.0 - p
    rows = input.shape[0] if mode == "row" else 1
    size = [rows] + [1] * (input.ndim - 1)
    noise = weft.empty(size, dtype=input.dtype).bernoulli_(survival)
    if survival > 0.0:
        noise.div_(survival)
    return input * noise


class StochasticDepth(nn.Module):
    """``stochastic_depth`` as a module."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Tensor) -> Tensor:
        """The input, or zeros in training."""
        return stochastic_depth(input, self.p, self.mode, self.training)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p}, mode={self.mode})"


def _drop_block(
    input: Tensor, p: float, block_size: int, inplace: bool, eps: float, training: bool, rank: int
) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}.")
    if input.ndim != rank + 2:
        shape = "NCHW" if rank == 2 else "NCDHW"
        raise ValueError(f"drop_block{rank}d: input should be {shape}, got {input.ndim} dimensions")
    if not training or p == 0.0:
        return input
    spatial = list(input.shape[2:])
    block = min(block_size, *spatial)
    places, whole = 1.0, 1.0
    for n in spatial:
        places, whole = places * (n - block + 1), whole * n
    gamma = (p * whole) / ((block**rank) * places)
    size = [*input.shape[:2], *(n - block + 1 for n in spatial)]
    noise = weft.empty(size, dtype=input.dtype).bernoulli_(gamma)
    noise = F.pad(noise, [block // 2] * (2 * rank), value=0)
    pool = F.max_pool2d if rank == 2 else F.max_pool3d
    noise = 1 - pool(noise, stride=1, kernel_size=block, padding=block // 2)
    scale = noise.numel() / (eps + noise.sum())
    if inplace:
        return input.mul_(noise).mul_(scale)
    return input * noise * scale


def drop_block2d(
    input: Tensor,
    p: float,
    block_size: int,
    inplace: bool = False,
    eps: float = 1e-06,
    training: bool = True,
) -> Tensor:
    """Zero square blocks of (N, C, H, W) and scale up the rest."""
    return _drop_block(input, p, block_size, inplace, eps, training, 2)


def drop_block3d(
    input: Tensor,
    p: float,
    block_size: int,
    inplace: bool = False,
    eps: float = 1e-06,
    training: bool = True,
) -> Tensor:
    """Zero cubes of (N, C, D, H, W) and scale up the rest."""
    return _drop_block(input, p, block_size, inplace, eps, training, 3)


class DropBlock2d(nn.Module):
    """``drop_block2d`` as a module."""

    rank = 2

    def __init__(
        self, p: float, block_size: int, inplace: bool = False, eps: float = 1e-06
    ) -> None:
        super().__init__()
        self.p, self.block_size, self.inplace, self.eps = p, block_size, inplace, eps

    def forward(self, input: Tensor) -> Tensor:
        """The input without blocks in training."""
        options = (self.inplace, self.eps, self.training, self.rank)
        return _drop_block(input, self.p, self.block_size, *options)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(p={self.p}, block_size={self.block_size}, "
            f"inplace={self.inplace})"
        )


class DropBlock3d(DropBlock2d):
    """``drop_block3d`` as a module."""

    rank = 3
