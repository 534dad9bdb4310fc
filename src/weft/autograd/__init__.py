"""Automatic differentiation."""

from weft.autograd.engine import backward, grad

__all__ = ["backward", "grad"]
