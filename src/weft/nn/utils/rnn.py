"""Sequences of different lengths: padded, packed, and back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from weft.core import dtype as dt
from weft.core import errors
from weft.core.tensor import Tensor
from weft.operators import api


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """Sequences without padding: the first elements of all, then the second ones, and so on."""

    def __new__(
        cls,
        data: Any,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:  # PyTorch also takes a pair
            data, batch_sizes = data
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _changed(self, data: Tensor) -> PackedSequence:
        if data is self.data:
            return self
        return type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences with data of another dtype."""
        return self._changed(self.data.to(*args, **kwargs))

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The sequences on the CPU, where they are."""
        return self

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Always an error: there is no such device here."""
        return self._changed(self.data.cuda(*args, **kwargs))

    def double(self) -> PackedSequence:
        """Data as float64."""
        return self.to(dtype=dt.float64)

    def float(self) -> PackedSequence:
        """Data as float32."""
        return self.to(dtype=dt.float32)

    def half(self) -> PackedSequence:
        """Data as float16."""
        return self.to(dtype=dt.float16)

    def long(self) -> PackedSequence:
        """Data as int64."""
        return self.to(dtype=dt.int64)

    def int(self) -> PackedSequence:
        """Data as int32."""
        return self.to(dtype=dt.int32)

    def short(self) -> PackedSequence:
        """Data as int16."""
        return self.to(dtype=dt.int16)

    def char(self) -> PackedSequence:
        """Data as int8."""
        return self.to(dtype=dt.int8)

    def byte(self) -> PackedSequence:
        """Data as uint8."""
        return self.to(dtype=dt.uint8)

    def pin_memory(self) -> PackedSequence:
        """The sequences themselves: there is nothing to pin."""
        return self

    def is_pinned(self) -> bool:
        """Whether the memory is pinned."""
        return False

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return False


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The order that undoes an order."""
    return None if permutation is None else permutation.argsort()


def _lengths_to_sizes(lengths: list[int]) -> list[int]:
    """How many sequences have a first element, a second one, and so on."""
    sizes = []
    running = len(lengths)
    for t in range(lengths[0] if lengths else 0):
        while lengths[running - 1] <= t:
            running -= 1
        sizes.append(running)
    return sizes


def _places(sizes: list[int], batch: int) -> Tensor:
    """Where each packed element stands in (steps, batch), flattened."""
    return _tensor([t * batch + b for t, size in enumerate(sizes) for b in range(size)])


def _tensor(values: Any) -> Tensor:
    return api.FUNCTIONS["tensor"](values, dtype=dt.int64)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Take the padding out of a batch of sequences.

    >>> batch = torch.tensor([[[1.0], [2.0], [3.0]], [[4.0], [0.0], [0.0]]])
    >>> packed = nn.utils.rnn.pack_padded_sequence(batch, lengths=[3, 1], batch_first=True)
    >>> packed.data.flatten(), packed.batch_sizes
    (tensor([1., 4., 2., 3.]), tensor([2, 1, 1]))
    """
    lengths = lengths.to(dt.int64) if isinstance(lengths, Tensor) else _tensor(lengths)
    order = None
    if not enforce_sorted:
        lengths, order = lengths.sort(descending=True)
        input = input.index_select(0 if batch_first else 1, order)
    if batch_first:
        input = input.transpose(0, 1)
    if not input._a.size:
        raise RuntimeError(
            f"Cannot pack empty tensors: the input is of size {list(input.shape)}\n"
            f"  at {errors.here()}"
        )
    known = lengths.tolist()
    batch = input.shape[1]
    if len(known) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(known)} "
            f"(batch_size={batch})"
        )
    if any(n <= 0 for n in known):
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if any(a < b for a, b in itertools.pairwise(known)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    if known and known[0] > input.shape[0]:
        raise RuntimeError(
            f"Expected all `lengths` to be at most the number of steps, {input.shape[0]}, but got "
            f"{known[0]}"
        )
    sizes = _lengths_to_sizes(known)
    flat = input.reshape((-1, *input.shape[2:]))
    data = flat.index_select(0, _places(sizes, batch))
    return PackedSequence(data, _tensor(sizes), order, None)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """A batch of sequences with padding, and their lengths."""
    sizes = sequence.batch_sizes.tolist()
    if not sizes:
        raise RuntimeError(
            "pad_packed_sequence: batch_sizes can not be empty; a packed sequence has at least one "
            f"step\n  at {errors.here()}"
        )
    steps = len(sizes)
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in "
                f"input, but got total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    batch = sizes[0]
    features = sequence.data.shape[1:]
    flat = sequence.data.new_full((steps * batch, *features), padding_value)
    padded = flat.index_copy(0, _places(sizes, batch), sequence.data)
    padded = padded.reshape((steps, batch, *features))
    lengths = _tensor([sum(size > b for size in sizes) for b in range(batch)])
    if batch_first:
        padded = padded.transpose(0, 1)
    back = sequence.unsorted_indices
    if back is not None:
        return padded.index_select(0 if batch_first else 1, back), lengths[back]
    return padded, lengths


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences of different lengths as one batch with padding.

    >>> rows = [torch.tensor([1, 2, 3]), torch.tensor([4])]
    >>> nn.utils.rnn.pad_sequence(rows, batch_first=True)
    tensor([[1, 2, 3],
            [4, 0, 0]])
    """
    if not isinstance(sequences, (Iterable, Tensor)):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    parts = list(sequences)
    if not parts:
        raise RuntimeError("received an empty list of sequences")
    longest = max(p.shape[0] for p in parts)
    padded = []
    for part in parts:
        gap = longest - part.shape[0]
        fill = part.new_full((gap, *part.shape[1:]), padding_value)
        pieces = [fill, part] if padding_side == "left" else [part, fill]
        padded.append(api.FUNCTIONS["cat"](pieces) if gap else part)
    return api.FUNCTIONS["stack"](padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded batch, each by itself."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [s[:n] for s, n in zip(padded_sequences, lengths.tolist(), strict=True)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences of different lengths, packed."""
    lengths = _tensor([s.shape[0] for s in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed batch, each by itself."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def bind(optional: Any, fn: Callable[[Any], Any]) -> Any:
    """The function's result, or None for None."""
    return None if optional is None else fn(optional)
