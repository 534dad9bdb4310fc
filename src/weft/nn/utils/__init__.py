"""Tools for modules and their parameters."""
