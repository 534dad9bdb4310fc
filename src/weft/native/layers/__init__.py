"""Whole layers in one call: attention and recurrent layers."""
