"""Gather and scatter: reading and writing by index along a dimension."""
