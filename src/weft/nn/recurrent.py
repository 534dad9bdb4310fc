"""Recurrent layers: RNN, LSTM, GRU, and their cells."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from weft.core.tensor import Tensor
from weft.nn import init
from weft.nn._arguments import parameter
from weft.nn.module import Module
from weft.nn.utils.rnn import PackedSequence
from weft.operators.recurrent import GATES, run_cell, run_layers


class RNNBase(Module):
    """What all recurrent layers share: weights, checks, layers and directions."""

    __constants__ = [
        *("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout"),
        *("bidirectional", "proj_size"),
    ]

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        for name, flag in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
            if not isinstance(size, int):
                raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
            if size <= 0:
                raise ValueError(f"{name} must be greater than zero")
        _check_sizes(mode, hidden_size, num_layers, dropout, proj_size)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for direction in range(self._directions()):
                self._add_weights(layer, direction, device, dtype)
        self.reset_parameters()

    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _add_weights(self, layer: int, direction: int, device: Any, dtype: Any) -> None:
        rows = GATES[self.mode] * self.hidden_size
        out = self.proj_size or self.hidden_size
        features = self.input_size if layer == 0 else out * self._directions()
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, features),
            "weight_hh": (rows, out),
        }
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        suffix = f"_l{layer}" + ("_reverse" if direction else "")
        self._all_weights.append([name + suffix for name in shapes])
        for name, shape in shapes.items():
            setattr(self, name + suffix, parameter(shape, device, dtype))

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    def __getstate__(self) -> dict[str, Any]:
        # PyTorch keeps these in the module, and reads them from a pickle of one.
        kept = {
            "_flat_weights_names": self._flat_weights_names,
            "_flat_weights": self._flat_weights,
        }
        return {**super().__getstate__(), **kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        names = ("_flat_weights_names", "_flat_weights", "_flat_weight_refs")
        super().__setstate__({k: v for k, v in state.items() if k not in names})

    @property
    def all_weights(self) -> list[list[Any]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing to do: weights need not be adjacent in memory here."""

    def reset_parameters(self) -> None:
        """Draw the starting values."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.batch_first is not False:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            text += f", bidirectional={self.bidirectional}"
        return text

    # --- checks ---

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Refuse inputs of another rank, size or dtype."""
        weight = getattr(self, self._all_weights[0][0])
        if input.dtype != weight.dtype:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: "
                f"model.to({input.dtype})"
            )
        rank = 2 if batch_sizes is not None else 3
        if input.ndim != rank:
            raise RuntimeError(f"input must have {rank} dimensions, got {input.ndim}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {input.size(-1)}"
            )
        if batch_sizes is None and input.size(1 if self.batch_first else 0) == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The shape that the state must have for this input."""
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.size(0) if self.batch_first else input.size(1)
        return self.num_layers * self._directions(), batch, self.proj_size or self.hidden_size

    def check_hidden_size(
        self,
        hx: Tensor,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """Refuse a state of another shape."""
        if tuple(hx.size()) != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Refuse inputs and states that don't fit."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The state in another order of the batch."""
        return hx if permutation is None else hx.index_select(1, permutation)

    # --- running ---

    def _prepare(self, input: Any) -> tuple[Tensor, Any, Any, Any, bool]:
        """Data, batch sizes, both orders of the batch, and whether there is a batch at all."""
        if isinstance(input, PackedSequence):
            return (*input, True)
        if input.ndim not in (2, 3):
            got = "instead" if self.mode == "LSTM" else "tensor instead"
            raise ValueError(
                f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.ndim}D {got}"
            )
        if input.ndim == 2:
            return input.unsqueeze(0 if self.batch_first else 1), None, None, None, False
        return input, None, None, None, True

    def _zeros(self, input: Tensor, batch_sizes: Any, features: int) -> Tensor:
        lead = self.get_expected_hidden_size(input, batch_sizes)
        return input.new_zeros((lead[0], lead[1], features))

    def _run(
        self, input: Tensor, batch_sizes: Tensor | None, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All layers and directions; the state is (h,) or (h, c) for all of them."""
        sizes = None if batch_sizes is None else batch_sizes.tolist()
        output, *final = run_layers(
            *(self.mode, input, sizes, state, self._flat_weights, self.bias, self.num_layers),
            *(self.dropout, self.training, self.bidirectional, self.batch_first),
        )
        return output, tuple(final)


def _check_sizes(
    mode: str, hidden_size: int, num_layers: int, dropout: Any, proj_size: int
) -> None:
    number = isinstance(dropout, (int, float)) and not isinstance(dropout, bool)
    if not number or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an "
            "element being zeroed"
        )
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
            f"expects num_layers greater than 1, but got dropout={dropout} and "
            f"num_layers={num_layers}",
            stacklevel=4,
        )
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if mode not in GATES:
        raise ValueError("Unrecognized RNN mode: " + mode)


class _OneState(RNNBase):
    """RNN and GRU: the state is one tensor."""

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """The last layer's states at all steps, and all layers' states after the last step."""
        data, batch_sizes, order, back, batched = self._prepare(input)
        if hx is None:
            hx = self._zeros(data, batch_sizes, self.hidden_size)
        else:
            wanted = 3 if batched else 2
            if hx.ndim != wanted:
                kind = "batched 3-D" if batched else "unbatched 2-D"
                raise RuntimeError(
                    f"For {kind} input, hx should also be {wanted}-D but got {hx.ndim}-D tensor"
                )
            hx = self.permute_hidden(hx if batched else hx.unsqueeze(1), order)
        self.check_forward_args(data, hx, batch_sizes)
        output, (hidden,) = self._run(data, batch_sizes, (hx,))
        if batch_sizes is not None:
            packed = PackedSequence(output, batch_sizes, order, back)
            return packed, self.permute_hidden(hidden, back)
        if not batched:
            return output.squeeze(0 if self.batch_first else 1), hidden.squeeze(1)
        return output, hidden


class RNN(_OneState):
    """The plain recurrent network: ``h' = tanh(W x + b + R h + c)``.

    >>> layer = nn.RNN(input_size=8, hidden_size=16)
    >>> output, h = layer(torch.zeros(10, 4, 8))
    >>> output.shape, h.shape
    (torch.Size([10, 4, 16]), torch.Size([1, 4, 16]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        if nonlinearity not in modes:
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(modes[nonlinearity], *args, **kwargs)
        self.nonlinearity = nonlinearity


class GRU(_OneState):
    """The gated recurrent unit.

    >>> layer = nn.GRU(input_size=8, hidden_size=16, batch_first=True)
    >>> output, h = layer(torch.zeros(4, 10, 8))
    >>> output.shape, h.shape
    (torch.Size([4, 10, 16]), torch.Size([1, 4, 16]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory.

    >>> layer = nn.LSTM(input_size=8, hidden_size=16, num_layers=2, batch_first=True)
    >>> output, (h, c) = layer(torch.zeros(4, 10, 8))
    >>> output.shape, h.shape
    (torch.Size([4, 10, 16]), torch.Size([2, 4, 16]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The shape that the cell state must have for this input."""
        layers, batch, _ = self.get_expected_hidden_size(input, batch_sizes)
        return layers, batch, self.hidden_size

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Refuse inputs and states that don't fit."""
        self.check_input(input, batch_sizes)
        h, c = (
            self.get_expected_hidden_size(input, batch_sizes),
            self.get_expected_cell_size(input, batch_sizes),
        )
        self.check_hidden_size(hidden[0], h, "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], c, "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The states in another order of the batch."""
        return tuple(super(LSTM, self).permute_hidden(s, permutation) for s in hx)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        """The last layer's outputs at all steps, and all layers' states after the last step."""
        data, batch_sizes, order, back, batched = self._prepare(input)
        if hx is None:
            hx = (
                self._zeros(data, batch_sizes, self.proj_size or self.hidden_size),
                self._zeros(data, batch_sizes, self.hidden_size),
            )
        else:
            wanted = 3 if batched else 2
            if hx[0].ndim != wanted or hx[1].ndim != wanted:
                kind = "batched 3-D" if batched else "unbatched 2-D"
                raise RuntimeError(
                    f"For {kind} input, hx and cx should also be {wanted}-D but got "
                    f"({hx[0].ndim}-D, {hx[1].ndim}-D) tensors"
                )
            if not batched:
                hx = (hx[0].unsqueeze(1), hx[1].unsqueeze(1))
            hx = self.permute_hidden(hx, order)
        self.check_forward_args(data, hx, batch_sizes)
        output, hidden = self._run(data, batch_sizes, tuple(hx))
        if batch_sizes is not None:
            packed = PackedSequence(output, batch_sizes, order, back)
            return packed, self.permute_hidden(hidden, back)
        if not batched:
            squeezed = output.squeeze(0 if self.batch_first else 1)
            return squeezed, (hidden[0].squeeze(1), hidden[1].squeeze(1))
        return output, (hidden[0], hidden[1])


# --- cells -----------------------------------------------------------------------------


class RNNCellBase(Module):
    """What all cells share: weights and checks."""

    __constants__ = ["input_size", "hidden_size", "bias"]
    weight_ih: Tensor
    weight_hh: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = parameter((rows, input_size), device, dtype)
        self.weight_hh = parameter((rows, hidden_size), device, dtype)
        for name in ("bias_ih", "bias_hh"):
            made = parameter((rows,), device, dtype) if bias else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the starting values."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.__dict__.get("nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _check(self, input: Tensor, states: Sequence[Tensor]) -> None:
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {input.shape[-1]} expected "
                f"{self.input_size}"
            )
        for i, state in enumerate(states):
            if state.ndim not in (1, 2):
                place = "" if len(states) == 1 else f"[{i}]"
                raise ValueError(
                    f"{name}: Expected hx{place} to be 1D or 2D, got {state.ndim}D instead"
                )
            if input.ndim == 2 and state.shape[0] != input.shape[0]:
                raise RuntimeError(
                    f"Input batch size {input.shape[0]} doesn't match hidden{i} batch size "
                    f"{state.shape[0]}"
                )
            if state.shape[-1] != self.hidden_size:
                raise RuntimeError(
                    f"hidden{i} has inconsistent hidden_size: got {state.shape[-1]}, expected "
                    f"{self.hidden_size}"
                )

    def _run(self, mode: str, input: Tensor, states: tuple[Tensor, ...] | None) -> Any:
        """One step; without a batch the dimension is added and taken off again."""
        self._check(input, states or ())
        batched = input.ndim == 2
        rows = input if batched else input.unsqueeze(0)
        if states is None:
            count = 2 if mode == "LSTM" else 1
            states = (rows.new_zeros((rows.shape[0], self.hidden_size)),) * count
        else:
            states = tuple(s if s.ndim == 2 else s.unsqueeze(0) for s in states)
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        found = run_cell(mode, rows, states, *weights)
        return found if batched else tuple(s.squeeze(0) for s in found)


class RNNCell(RNNCellBase):
    """One step of a plain recurrent network."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        mode = f"RNN_{self.nonlinearity.upper()}"
        return self._run(mode, input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of an LSTM."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        """The next hidden state and cell state."""
        return self._run("LSTM", input, None if hx is None else tuple(hx))


class GRUCell(RNNCellBase):
    """One step of a GRU."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        return self._run("GRU", input, None if hx is None else (hx,))[0]
