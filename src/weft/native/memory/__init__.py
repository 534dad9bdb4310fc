"""The memory pool of arrays, and memory layouts."""
