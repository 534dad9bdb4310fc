"""Modules that only programs written for PyTorch ask for.

The folder is part of ``weft.__path__``, so that they are ``weft.cuda``, ``weft._dynamo`` and so on.
"""
