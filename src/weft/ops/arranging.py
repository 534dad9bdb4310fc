"""Rearranging elements: flips, rolls, repeats, padding, triangles, grids."""
