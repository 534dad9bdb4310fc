"""Files: archives, pickles that run no code, and writes that never leave half a file."""
