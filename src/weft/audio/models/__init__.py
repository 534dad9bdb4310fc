"""Decoders of speech models."""

from weft.audio.models import decoder

__all__ = ["decoder"]
