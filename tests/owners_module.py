"""A module of a program, with a variable that keeps tensors."""

cache: list = []
