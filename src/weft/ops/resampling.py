"""Interpolation and grid sampling."""
