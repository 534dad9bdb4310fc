"""Apple's GPU is not used."""

from __future__ import annotations


def is_available() -> bool:
    """Whether an MPS device can be used: never.

    >>> torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    device(type='cpu')
    """
    return False


def is_built() -> bool:
    """Whether MPS was compiled in: no."""
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    """Whether MPS features of macOS 13 are there: no."""
    return False
