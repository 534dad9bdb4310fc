"""Tensors as text, under the private names that libraries use for their own classes."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor

_WIDTH = 80


def _str(self: Tensor, *, tensor_contents: Any = None) -> str:
    """A tensor as text."""
    return Tensor.__repr__(self)


def _tensor_str(self: Tensor, indent: int) -> str:
    """The values of a tensor alone, as they stand inside its text."""
    text = Tensor.__repr__(self.detach())
    body = text[len("tensor(") : -1]
    depth = 0
    for i, letter in enumerate(body):
        depth += (letter == "[") - (letter == "]")
        if not depth and (letter == "," or i + 1 == len(body)):
            body = body[:i] if letter == "," else body
            break
    return body.replace("\n" + " " * len("tensor("), "\n" + " " * indent)


def _str_intern(inp: Tensor, *, tensor_contents: Any = None) -> str:
    """A tensor as text."""
    return Tensor.__repr__(inp)


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """The text of a tensor with notes behind its values, on a new line where it gets too long."""
    text = tensor_str
    width = len(tensor_str) - tensor_str.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or width + len(suffix) + 2 > _WIDTH:
            text += ",\n" + " " * indent + suffix
            width, force_newline = indent + len(suffix), False
        else:
            text += ", " + suffix
            width += len(suffix) + 2
    return text + ")"
