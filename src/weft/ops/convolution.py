"""Convolutions, folds and unfolds."""
