"""Special functions: gamma, error, Bessel and their kin."""
