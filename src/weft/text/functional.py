"""Functions on lists of tokens or numbers, or on batches of such lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.nn.utils.rnn import pad_sequence

__all__ = ["add_token", "str_to_int", "to_tensor", "truncate"]


def _depth(values: Any, kind: type | tuple[type, ...]) -> int:
    """1 for a list of such values, 2 for a list of lists; TypeError for anything else."""
    if isinstance(values, list):
        if all(isinstance(v, kind) for v in values):
            return 1
        if all(isinstance(v, list) and all(isinstance(w, kind) for w in v) for v in values):
            return 2
    raise TypeError(f"Input type not supported: {type(values)}; lists, and lists of lists, are")


def on_each(function: Callable[[Any], Any], values: Any, kind: Any = (int, str)) -> Any:
    """A function of a list, on a list or on each list of a batch."""
    if _depth(values, kind) == 1:
        return function(values)
    return [function(row) for row in values]


def to_tensor(
    input: Any, padding_value: int | None = None, dtype: weft.dtype = weft.long
) -> Tensor:
    """A tensor of numbers; a batch is padded to its longest list if there is a padding value.

    >>> to_tensor([[1, 2], [3]], padding_value=0)
    tensor([[1, 2],
            [3, 0]])
    """
    if _depth(input, int) == 1:
        return weft.tensor(input, dtype=weft.long)
    if padding_value is None:
        return weft.tensor(input, dtype=dtype)
    rows = [weft.tensor(row, dtype=dtype) for row in input]
    return pad_sequence(rows, batch_first=True, padding_value=float(padding_value))


def truncate(input: Any, max_seq_len: int) -> Any:
    """The first tokens of each list."""
    return on_each(lambda row: row[:max_seq_len], input)


def add_token(input: Any, token_id: int | str, begin: bool = True) -> Any:
    """Each list with a token in front or at its end.

    >>> add_token([[5], [6, 7]], 0)
    [[0, 5], [0, 6, 7]]
    """
    put = lambda row: [token_id, *row] if begin else [*row, token_id]
    return on_each(put, input, type(token_id))


def str_to_int(input: Any) -> Any:
    """Numbers from their spelling."""
    return on_each(lambda row: [int(token) for token in row], input, str)
