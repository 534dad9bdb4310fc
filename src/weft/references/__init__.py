"""NumPy reference kernels: arrays in, arrays out."""
