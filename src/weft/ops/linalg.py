"""Linear algebra: factorisations, solvers, norms, matrix functions."""
