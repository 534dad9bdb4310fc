"""Code generation: from loops and traced functions to machine code that Python can call."""
