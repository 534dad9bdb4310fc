"""Every op, one block each."""
