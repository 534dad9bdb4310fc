"""Random numbers on NumPy arrays, in the same stream as PyTorch's CPU generator.

Every method takes words from one MT19937 engine in the order PyTorch's CPU kernels do, so a
seed gives the same numbers here and there. Arrays are filled in C order; the caller that fills
a tensor with permuted strides has to place the values in memory order, as PyTorch does.

PyTorch has other kernels of bernoulli_(p) and exponential_ on a vendor library; its plain kernels
are followed here, which PyTorch 2.13 was seen to use on Intel and AMD processors alike.
"""

from __future__ import annotations

import math
import operator
import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from weft.core import selection
from weft.native.once import LOCK, lazy
from weft.references.random import (
    box_muller_32,
    box_muller_64,
    multiply_add,
    remainder32,
    shuffle,
    shuffle_small,
)

if TYPE_CHECKING:  # loading numpy.typing takes as long as loading all of this package
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    Array = NDArray[Any]
    Shape = int | Sequence[int]

_F16 = np.dtype(np.float16)
_F32 = np.dtype(np.float32)
_F64 = np.dtype(np.float64)
_I64 = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)

_DEFAULT_SEED = 67280421310721
_BLOCK = 624  # words per twist of the engine
_FEW = 128  # normals up to which working ahead pays
_CHUNK = 32768  # values per round of bulk work, so that the scratch arrays stay in cache
_MANY = _CHUNK // 2  # words from which native code makes them
# Constants of the hot paths are arrays of no dimension: NumPy takes them faster than scalars.
_MASK24 = np.array((1 << 24) - 1, np.uint32)
_MASK21 = np.array((1 << 21) - 1, np.uint32)
_SCALE24 = np.array(2.0**-24, np.float32)
_SCALE53 = np.array(2.0**-53)
_ZERO = np.array(0.0, np.float32)
_TWO32 = np.array(2.0**32)
_TWO_PI = 2.0 * math.pi
_INT64_MIN = -(1 << 63)
_NOT_READY: tuple[Any, int, Array] = (None, 0, np.empty(0, np.float32))

# Byte layout of PyTorch's saved generator state: 5056 bytes, 64-bit slots for 32-bit words.
_STATE = np.dtype(
    {
        "names": [
            "seed", "left", "seeded", "next", "key",
            "double_sample", "has_double", "float_sample", "has_float",
        ],
        "formats": ["<u8", "<i4", "<i4", "<u8", ("<u8", (_BLOCK,)), "<f8", "<i4", "<f4", "u1"],
        "offsets": [0, 8, 12, 16, 24, 5024, 5040, 5048, 5052],
        "itemsize": 5056,
    }
)  # fmt: skip


# Generators whose engines a fork waits for: NumPy's lock on one would be held forever in a child
# that was forked while another thread drew.
_LIVE: weakref.WeakSet[ArrayGenerator] = weakref.WeakSet()
_waiting: list[Any] = []  # locks that the thread that forks has taken


def _before_fork() -> None:
    LOCK.acquire()
    _waiting.append(LOCK)
    for generator in _LIVE:
        lock = getattr(vars(generator).get("_engine"), "lock", None)
        if lock is not None:
            lock.acquire()
            _waiting.append(lock)


def _after_fork() -> None:
    while _waiting:
        _waiting.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )


class ArrayGenerator:
    """A source of random arrays that follows PyTorch's CPU generator word for word."""

    def __init__(self, device: Any = "cpu") -> None:
        """Start from PyTorch's default seed."""
        self.device = device
        # The engine is always at the end of a block; its tempered words are in _buffer.
        self._buffer: Array = np.zeros(_BLOCK, np.uint32)
        self._pos = _BLOCK
        # Normals worked out ahead, by position modulo 16: (buffer, first position, values).
        self._ready: dict[int, tuple[Any, int, Array]] = {}
        self._ready_floats: tuple[Any, Array] = None, self._buffer  # of which buffer, and values
        self._initial_seed = _DEFAULT_SEED
        self._next_normal: float | None = None
        self._next_float_normal: float | None = None
        self._reseed(_DEFAULT_SEED)
        with LOCK:
            _LIVE.add(self)

    # ---------------------------------------------------------------- seed and state

    @lazy
    def _engine(self) -> Any:
        # Made when first needed: loading numpy.random would slow down the import of everything.
        return _seeded_engine(self._initial_seed)

    def _reseed(self, seed: int) -> None:
        self._initial_seed = seed
        self.__dict__.pop("_engine", None)
        self._native = False  # whether native code has taken over the engine
        self._pos = _BLOCK
        self._next_normal = None
        self._next_float_normal = None

    def manual_seed(self, seed: int) -> Self:
        """Set the seed; a negative seed counts back from 2**64."""
        try:
            value = operator.index(seed)
        except TypeError:
            kind = type(seed).__name__
            raise RuntimeError(f"manual_seed expected a long, but got {kind}") from None
        if not _INT64_MIN <= value < 1 << 64:
            raise ValueError("Overflow when unpacking long long")
        self._reseed(value % (1 << 64))
        return self

    def seed(self) -> int:
        """Seed from the system's entropy and return the seed."""
        value = int.from_bytes(os.urandom(8), "little") & ((1 << 53) - 1)
        self._reseed(value)
        return value

    def initial_seed(self) -> int:
        """Return the last seed that was set."""
        return self._initial_seed

    def get_state(self) -> Array:
        """Return the state as 5056 bytes in PyTorch's layout."""
        record = np.zeros(1, _STATE)
        key = self._engine.state["state"]["key"]
        pos = self._pos
        if pos == _BLOCK and np.array_equal(
            key, _seeded_engine(self._initial_seed).state["state"]["key"]
        ):
            pos = 0  # PyTorch writes "next" as 0, not 624, until the first draw
        record["seed"] = self._initial_seed
        record["left"] = _BLOCK + 1 - pos if pos else 1
        record["seeded"] = 1
        record["next"] = pos
        record["key"] = key
        if self._next_normal is not None:
            record["has_double"] = 1
            record["double_sample"] = self._next_normal
        if self._next_float_normal is not None:
            record["has_float"] = 1
            record["float_sample"] = self._next_float_normal
        return record.view(np.uint8)

    def set_state(self, state: ArrayLike) -> Self:
        """Take over a state of 5056 bytes, from here or from PyTorch."""
        data = np.asarray(state)
        if data.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if data.size != _STATE.itemsize:
            raise RuntimeError(
                f"Expected a CPUGeneratorImplState of size {_STATE.itemsize} but found the "
                f"input RNG state size to be {data.size}"
            )
        record = np.ascontiguousarray(data).reshape(-1).view(_STATE)[0]
        left, start = int(record["left"]), int(record["next"])
        if not (record["seeded"] and 0 < left <= _BLOCK and start <= _BLOCK):
            raise RuntimeError("Invalid mt19937 state")
        # left == 1 means that the next draw begins with a twist, wherever "next" points.
        pos = _BLOCK if left == 1 else start
        self._engine, self._native = _seeded_engine(0), False
        self._engine.state = {
            "bit_generator": "MT19937",
            "state": {"key": record["key"].astype(np.uint32), "pos": pos},
        }
        buffer = np.zeros(_BLOCK, np.uint32)
        buffer[pos:] = self._engine.random_raw(_BLOCK - pos)
        self._buffer, self._pos = buffer, pos
        self._initial_seed = int(record["seed"])
        self._next_normal = float(record["double_sample"]) if record["has_double"] else None
        self._next_float_normal = float(record["float_sample"]) if record["has_float"] else None
        return self

    def clone_state(self) -> ArrayGenerator:
        """Return a new generator in the same state."""
        return ArrayGenerator(self.device).set_state(self.get_state())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy through the saved state."""
        return _restore, (self.device, self.get_state())

    # ---------------------------------------------------------------- raw draws

    def _words(self, n: int) -> Array:
        """Return the next n 32-bit words; the array may be a view, so do not write to it."""
        pos = self._pos
        end = pos + n
        if end <= _BLOCK:
            self._pos = end
            return self._buffer[pos:end]
        if n > _CHUNK:
            return self._in_chunks(self._words, n, np.dtype(np.uint32), _CHUNK)
        held = _BLOCK - pos
        need = n - held
        extra = -need % _BLOCK
        self._go_native(need)
        raw = self._engine.random_raw(need + extra)
        out = np.empty(n, np.uint32)
        out[:held] = self._buffer[pos:]
        out[held:] = raw[:need]
        self._buffer = raw[-_BLOCK:].astype(np.uint32)
        self._pos = _BLOCK - extra
        return out

    def _go_native(self, need: int) -> None:
        """Let native code make the words from now on, if so many are worth it or it is in use."""
        if self._native or not (selection.ready() if need >= _MANY else selection.pays()):
            return
        self._engine = _native_engine(self._engine.state["state"]["key"])
        self._native = True

    def _refill(self) -> int:
        """Start a new block of words; the caller takes some of them immediately."""
        self._go_native(_BLOCK)
        self._buffer = self._engine.random_raw(_BLOCK).astype(np.uint32, copy=False)
        self._pos = 0
        return 0

    def _in_chunks(
        self, draw: Callable[[int], Array], n: int, dtype: np.dtype[Any], size: int
    ) -> Array:
        out = np.empty(n, dtype)
        for start in range(0, n, size):
            part = out[start : start + size]
            part[...] = draw(part.size)
        return out

    def _words64(self, n: int) -> Array:
        """Return n 64-bit words; the first 32-bit word of each pair is the high half."""
        words = self._words(2 * n)
        out = words[0::2].astype(np.uint64)
        out <<= np.uint64(32)
        out |= words[1::2].astype(np.uint64)
        return out

    def _floats(self, n: int) -> Array:
        """Return n float32 values in [0, 1) of 24 bits."""
        pos = self._pos
        if pos == _BLOCK and 0 < n <= _FEW:
            pos = self._refill()
        end = pos + n
        if n <= _FEW and end <= _BLOCK:
            # All words that are buffered, made floats at once, serve the requests that follow.
            buffer, ready = self._ready_floats
            if buffer is not self._buffer:
                buffer, ready = self._buffer, _unit_floats(self._buffer)
                self._ready_floats = buffer, ready
            self._pos = end
            return ready[pos:end].copy()
        if n > _CHUNK:
            return self._in_chunks(self._floats, n, _F32, _CHUNK)
        return _unit_floats(self._words(n))

    def take_floats(self, put: Callable, a: Any, b: Any) -> Any:
        """What ``put(a, b, row, first, block)`` makes of values in [0, 1) that are ready.

        ``put`` is a function of ``codegen.writes``: it takes a few from ``first`` on, in whole
        blocks, or returns None. If none are ready, the next draw in Python makes some.
        """
        buffer, row = self._ready_floats
        if buffer is not self._buffer:
            return None
        made = put(a, b, row, self._pos, 1)
        if made is not None:
            self._pos += made if made.__class__ is int else made._a.size
        return made

    def take_normals(self, put: Callable, a: Any, b: Any) -> Any:
        """The same with standard normals."""
        pos = self._pos
        buffer, start, row = self._ready.get(pos % 16, _NOT_READY)
        if buffer is not self._buffer:
            return None
        made = put(a, b, row, pos - start, 16)
        if made is not None:
            self._pos = pos + (made if made.__class__ is int else made._a.size)
        return made

    def take_whole(self, create: Callable, size: Any, dtype: Any, low: int, high: int) -> Any:
        """The same with integers from [low, high)."""
        made = create(size, dtype, self._buffer, self._pos, high - low, low)
        if made is not None:
            self._pos += made._a.size
        return made

    def _doubles(self, n: int) -> Array:
        """Return n float64 values in [0, 1) of 53 bits."""
        if n > _CHUNK // 2:
            return self._in_chunks(self._doubles, n, _F64, _CHUNK // 2)
        words = self._words(2 * n)
        out = (words[0::2] & _MASK21).astype(_F64)
        out *= _TWO32
        out += words[1::2].astype(_F64)
        out *= _SCALE53
        return out

    def _double(self) -> float:
        """Return one float64 value in [0, 1) as a Python float."""
        high, low = self._words(2).tolist()
        return (((high & 0x1FFFFF) << 32) | low) * 2.0**-53

    # ---------------------------------------------------------------- uniform

    def uniform(
        self, shape: Shape, dtype: DTypeLike = _F32, low: float = 0.0, high: float = 1.0
    ) -> Array:
        """Draw from [low, high), as torch.rand and Tensor.uniform_ do."""
        dtype = dtype if dtype is _F32 else np.dtype(dtype)
        n = _count(shape)
        if low == 0.0 and high == 1.0:
            if dtype is _F32 or dtype == _F32:
                return self._floats(n).reshape(shape)
            if dtype == _F64:
                return self._doubles(n).reshape(shape)
        elif low > high:
            raise RuntimeError(
                "uniform_ expects to return a [from, to) range, "
                f"but found from={low:g} > to={high:g}"
            )
        if dtype.kind == "c":
            return _as_complex(self.uniform(_pairs_shape(shape), _real_of(dtype), low, high), dtype)
        if dtype == _F64:
            out = multiply_add(self._doubles(n), high - low, low)
        else:
            start, stop = np.float32(low), np.float32(high)
            out = multiply_add(self._floats(n), stop - start, start).astype(dtype, copy=False)
        # Rounding can reach the open end; PyTorch folds it back to the start.
        out[out == dtype.type(high)] = dtype.type(low)  # type: ignore[call-overload]
        return out.reshape(shape)

    # ---------------------------------------------------------------- normal

    def normal(
        self,
        shape: Shape,
        dtype: DTypeLike = _F32,
        mean: float = 0.0,
        std: float = 1.0,
        contiguous: bool = True,
    ) -> Array:
        """Draw normals, as torch.randn and Tensor.normal_ do."""
        dtype = dtype if dtype is _F32 else np.dtype(dtype)
        if not std >= 0.0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
        if dtype.kind == "c":
            real = self.normal(
                _pairs_shape(shape), _real_of(dtype), mean, std / math.sqrt(2.0), contiguous
            )
            return _as_complex(real, dtype)
        n = _count(shape)
        if n >= 16 and contiguous:
            return self._block_normals(n, dtype, mean, std).reshape(shape)
        return _narrow(multiply_add(self._serial_normals(n), std, mean), dtype).reshape(shape)

    def normal_tensor(self, mean: ArrayLike, std: ArrayLike) -> Array:
        """Draw normals with an array as mean or std or both, as torch.normal does."""
        mean_array, std_array = isinstance(mean, np.ndarray), isinstance(std, np.ndarray)
        if std_array and np.any(np.less(std, 0)):
            raise RuntimeError("normal expects all elements of std >= 0.0")
        if not mean_array and not std_array:
            return self.normal((), _F32, float(mean), float(std))  # type: ignore[arg-type]
        dtype = np.asarray(mean if mean_array else std).dtype
        if not std_array:
            out = self.normal(np.shape(mean), dtype, 0.0, float(std))  # type: ignore[arg-type]
            return np.asarray(out + mean).astype(dtype, copy=False)
        shape = np.broadcast_shapes(np.shape(mean), np.shape(std))
        out = self.normal(shape, dtype)
        scaled = np.asarray(out * std).astype(dtype, copy=False)
        shift = mean if mean_array else dtype.type(mean)
        return np.asarray(scaled + shift).astype(dtype, copy=False)

    def _block_normals(self, n: int, dtype: np.dtype[Any], mean: float, std: float) -> Array:
        """Box-Muller in blocks of 16: the first 8 give the radius, the last 8 the angle."""
        wide = dtype is not _F32 and dtype == _F64
        ragged = n % 16
        if n <= _FEW and dtype is _F32 and std == 1.0 and not mean and not ragged:
            return self._few_units(n) + _ZERO  # as by multiply_add: a zero loses its sign
        out = np.empty(n, _F64 if wide else _F32)
        # The last 16 elements of a ragged end are redrawn. Only the full-precision kernels first
        # draw, and then discard, the old values.
        dropped = ragged if wide or dtype == _F32 else 0
        if not wide and (selection.ready() if n >= _MANY else selection.pays()):
            scaled = (1.0, 0.0) if std == 1.0 and not mean else (_single(std), _single(mean))
            if ragged:
                _native_normals(self._words(n - ragged), out[: n - ragged], *scaled)
                _native_normals(self._words(16 + dropped)[-16:], out[-16:], *scaled)
            else:
                _native_normals(self._words(n), out, *scaled)
            return out if dtype is _F32 else out.astype(dtype, copy=False)
        if n <= _FEW and not wide:
            out[: n - ragged] = self._few_units(n - ragged)
            if ragged:
                self._words(dropped)
                out[n - 16 :] = self._few_units(16)
        else:
            self._fill_units(out, ragged, dropped)
        if wide:
            return multiply_add(out, std, mean)
        return multiply_add(out, np.float32(std), np.float32(mean)).astype(dtype, copy=False)

    def _fill_units(self, out: Array, ragged: int, dropped: int) -> None:
        """Fill with standard normals."""
        wide = out.dtype == _F64
        body = out.size - ragged
        draw, box = (self._doubles, box_muller_64) if wide else (self._floats, box_muller_32)
        for start in range(0, body, _CHUNK):
            stop = min(start + _CHUNK, body)
            values = draw(stop - start)
            if ragged and stop == body:
                both = box(np.concatenate((values, draw(16 + dropped)[-16:])))
                out[start:stop] = both[:-16]
                out[-16:] = both[-16:]
            else:
                out[start:stop] = box(values)

    def _few_units(self, n: int) -> Array:
        """Return float32 standard normals in whole blocks of 16.

        A handful costs nearly as much as a few hundred, so all blocks that the buffered words
        hold are worked out at once, and kept for the requests that follow.
        """
        pos = self._refill() if self._pos == _BLOCK else self._pos
        if pos + n > _BLOCK:
            return _units(self._words(n))
        self._pos = pos + n
        buffer, start, ready = self._ready.get(pos % 16, _NOT_READY)
        if buffer is not self._buffer or pos < start:
            start = pos
            words = self._buffer[pos : _BLOCK - (_BLOCK - pos) % 16]
            ready = _units(words)
            self._ready[pos % 16] = self._buffer, pos, ready
        return ready[pos - start : pos - start + n]

    def _serial_normals(self, n: int) -> Array:
        """Return n float64 normals, one by one with the second of each pair kept for later."""
        if n < 16:
            return self._few_normals(n)
        out = np.empty(n, _F64)
        first = 0
        if self._next_normal is not None:
            out[0] = self._next_normal
            self._next_normal = None
            first = 1
        u = self._doubles((n - first + 1) // 2 * 2)
        radius = np.sqrt(-2.0 * np.log1p(-u[1::2]))
        theta = _TWO_PI * u[0::2]
        second = radius * np.sin(theta)
        out[first::2] = radius * np.cos(theta)
        room = (n - first) // 2
        out[first + 1 :: 2] = second[:room]
        if room < second.size:
            self._next_normal = float(second[-1])
        return out

    def _few_normals(self, n: int) -> Array:
        """The same for a few values, where Python's numbers are faster than arrays."""
        out = []
        if self._next_normal is not None and n:
            out.append(self._next_normal)
            self._next_normal = None
        words = self._words((n - len(out) + 1) // 2 * 4).tolist()
        for k in range(0, len(words), 4):
            theta = _TWO_PI * (((words[k] & 0x1FFFFF) << 32 | words[k + 1]) * 2.0**-53)
            u = ((words[k + 2] & 0x1FFFFF) << 32 | words[k + 3]) * 2.0**-53
            radius = math.sqrt(-2.0 * math.log1p(-u))
            out.append(radius * math.cos(theta))
            out.append(radius * math.sin(theta))
        if len(out) > n:
            self._next_normal = out.pop()
        return np.array(out, _F64)

    def _normal(self) -> float:
        """Return one float64 normal as a Python float."""
        if self._next_normal is not None:
            value, self._next_normal = self._next_normal, None
            return value
        theta = _TWO_PI * self._double()
        radius = math.sqrt(-2.0 * math.log1p(-self._double()))
        self._next_normal = radius * math.sin(theta)
        return radius * math.cos(theta)

    def log_normal(
        self, shape: Shape, dtype: DTypeLike = _F32, mean: float = 1.0, std: float = 2.0
    ) -> Array:
        """Draw exp of a normal, as Tensor.log_normal_ does."""
        if not std > 0.0:
            raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
        values = multiply_add(self._serial_normals(_count(shape)), std, mean)
        return _narrow(np.exp(values), np.dtype(dtype)).reshape(shape)

    # ---------------------------------------------------------------- integers

    def randint(self, shape: Shape, low: int, high: int, dtype: DTypeLike = _I64) -> Array:
        """Draw whole numbers from [low, high), as torch.randint and random_(low, high) do."""
        dtype = np.dtype(dtype)
        if dtype.kind == "c":
            raise RuntimeError(
                "check_random_bounds handles only integral, floating-point and boolean types, "
                f"not {dtype}"
            )
        if low >= high:
            raise RuntimeError(
                f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
            )
        if _is_float(dtype):
            low, high = _round_low(low, dtype), _round_high(high, dtype)
            if low >= high:
                raise RuntimeError(
                    "random_ expects 'from' casted to dtype to be less than 'to' casted to "
                    f"dtype, but got from={low} >= to={high}"
                )
        if dtype != _I64 or not _INT64_MIN <= low <= high - 1 < -_INT64_MIN:
            _check_bound(low, "from", dtype)
            _check_bound(high - 1, "to - 1", dtype)
        return self._integers(_count(shape), high - low, low, dtype).reshape(shape)

    def random(
        self,
        shape: Shape,
        dtype: DTypeLike = _I64,
        low: int | None = None,
        high: int | None = None,
    ) -> Array:
        """Fill as Tensor.random_ does: without bounds, from low upward, or in [low, high)."""
        dtype = np.dtype(dtype)
        if high is not None:
            return self.randint(shape, 0 if low is None else low, high, dtype)
        n = _count(shape)
        if low is None:
            return self._unbounded(n, dtype).reshape(shape)
        if low == _INT64_MIN:
            return _cast_integers(self._words64(n).view(np.int64), dtype).reshape(shape)
        if _is_float(dtype):
            low, last = _round_low(low, dtype), 1 << _digits(dtype)
        else:
            last = 1 if dtype == _BOOL else int(np.iinfo(dtype).max)
        _check_bound(low, "from", dtype)
        return self._integers(n, last - low + 1, low, dtype).reshape(shape)

    def _integers(self, n: int, span: int, base: int, dtype: np.dtype[Any]) -> Array:
        """Return base + word % span; a wide span takes 64-bit words to keep the skew small."""
        if span >= 1 << 28:
            values = self._words64(n)
            if span < 1 << 64:
                values %= np.uint64(span)
            values += np.uint64(base % (1 << 64))
            return _cast_integers(values.view(np.int64), dtype)
        out = remainder32(self._words(n), span).astype(np.int64)
        if base:
            out += base
        return _cast_integers(out, dtype)

    def _unbounded(self, n: int, dtype: np.dtype[Any]) -> Array:
        """Return n numbers over the non-negative range of dtype."""
        if dtype == _F64 or dtype in (_I64, np.dtype(np.uint64)):
            top = (1 << 53) + 1 if dtype == _F64 else 1 << 63
            values = self._words64(n)
            values %= np.uint64(top)
            return _cast_integers(values.view(np.int64), dtype)
        if _is_float(dtype):
            top = (1 << _digits(dtype)) + 1
        else:
            top = 2 if dtype == _BOOL else int(np.iinfo(dtype).max) + 1
        return _cast_integers(remainder32(self._words(n), top).astype(np.int64), dtype)

    def randperm(self, n: int, dtype: DTypeLike = _I64) -> Array:
        """Draw a permutation of 0 .. n-1, as torch.randperm does."""
        if n < 0:
            raise RuntimeError(f"n must be non-negative, got {n}")
        if n < 2:
            return np.arange(n, dtype=_I64).astype(dtype, copy=False)
        left = np.arange(n, 1, -1, dtype=np.int64)
        if n < ((1 << 32) - 1) // 20:
            picks = (self._words(n - 1) % left.astype(np.uint32)).astype(np.int64)
        else:
            picks = (self._words64(n - 1) % left.astype(np.uint64)).astype(np.int64)
        picks += np.arange(n - 1)
        if n >= _MANY and selection.ready():
            out = _native_shuffled(picks)
        else:
            out = shuffle_small(picks) if n < 400 else shuffle(picks)
        return out.astype(dtype, copy=False)

    # ---------------------------------------------------------------- by inversion of uniforms

    def bernoulli(
        self,
        p: float | Array,
        shape: Shape | None = None,
        dtype: DTypeLike = _F32,
        one: float = 1.0,
    ) -> Array:
        """Draw 0 or 1: a number p as bernoulli_(p) and dropout do, an array as torch.bernoulli.

        With a number p, ``one`` may be used instead of 1.
        """
        if isinstance(p, np.ndarray):
            target = p.shape if shape is None else shape
            if not np.all((p >= 0) & (p <= 1)):
                raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
            wide = p.dtype == _F64
            draws = self._doubles(_count(target)) if wide else self._floats(_count(target))
            level = p if wide else p.astype(_F32, copy=False)
            return (draws.reshape(target) < level).astype(dtype, copy=False)
        if not 0 <= p <= 1:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
        target = () if shape is None else shape
        n, dtype = _count(target), np.dtype(dtype)
        if n >= _MANY and dtype in (_F32, _F64) and selection.ready():
            return self._bernoulli_in_bulk(p, n, dtype, one).reshape(target)
        out = (self._doubles(n) < p).astype(dtype, copy=False)
        if one != 1.0:
            out *= np.asarray(one, dtype)
        return out.reshape(target)

    def _bernoulli_in_bulk(self, p: float, n: int, dtype: np.dtype[Any], one: float) -> Array:
        out = np.empty(n, dtype)
        for start in range(0, n, _CHUNK // 2):
            part = out[start : start + _CHUNK // 2]
            _native_bernoulli(self._words(2 * part.size), p, part, one)
        return out

    def exponential(self, shape: Shape, dtype: DTypeLike = _F32, lambd: float = 1.0) -> Array:
        """Draw from the exponential law of rate lambd, as Tensor.exponential_ does."""
        if not lambd > 0.0:
            raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
        out = self._doubles(_count(shape))
        np.negative(out, out=out)
        np.log1p(out, out=out)
        out *= -1.0 / lambd
        return _narrow(out, np.dtype(dtype)).reshape(shape)

    def geometric(self, shape: Shape, p: float, dtype: DTypeLike = _F32) -> Array:
        """Draw the number of trials up to the first success, as Tensor.geometric_ does."""
        if not 0 < p < 1:
            raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
        dtype = np.dtype(dtype)
        with np.errstate(divide="ignore"):
            out = np.ceil(np.log(self._doubles(_count(shape))) / math.log1p(-p))
        return _narrow(out, dtype).reshape(shape)

    def cauchy(
        self, shape: Shape, dtype: DTypeLike = _F32, median: float = 0.0, sigma: float = 1.0
    ) -> Array:
        """Draw from the Cauchy law, as Tensor.cauchy_ does."""
        if not sigma > 0.0:
            raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
        slope = np.tan(math.pi * (self._doubles(_count(shape)) - 0.5))
        return _narrow(multiply_add(slope, sigma, median), np.dtype(dtype)).reshape(shape)

    # ---------------------------------------------------------------- categories

    def multinomial(self, weights: Array, num_samples: int, replacement: bool = False) -> Array:
        """Draw category indices for one row of weights or for each row, as torch.multinomial."""
        if weights.ndim not in (1, 2):
            raise RuntimeError("prob_dist must be 1 or 2 dim")
        if num_samples <= 0:
            raise RuntimeError("cannot sample n_sample <= 0 samples")
        if not replacement and num_samples > weights.shape[-1]:
            raise RuntimeError(
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
            )
        if weights.ndim == 2 and weights.shape[0] == 0:
            return np.empty((0, num_samples), np.int64)
        if not np.all((weights >= 0) & (weights < math.inf)):
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if np.any(weights.astype(_F64).sum(axis=-1) == 0):
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        if replacement and num_samples > 1:
            return self._with_replacement(weights, num_samples)
        # The largest of w / Exp(1) is a draw in proportion to w; the top k are k draws in a row.
        with np.errstate(divide="ignore"):
            race = weights / self.exponential(weights.shape, weights.dtype)
        if num_samples == 1:
            return np.argmax(race, axis=-1, keepdims=True)
        order = np.argsort(-race.astype(_F64), axis=-1, kind="stable")
        return np.ascontiguousarray(order[..., :num_samples])

    def _with_replacement(self, weights: Array, num_samples: int) -> Array:
        """Look uniform draws up in each row's running sum."""
        rows = np.atleast_2d(weights)
        if rows.dtype not in (_F32, _F64):
            rows = rows.astype(_F32)
        out = np.empty((rows.shape[0], num_samples), np.int64)
        for i, row in enumerate(rows):
            steps = np.cumsum(row, dtype=row.dtype)
            steps /= steps[-1].copy()
            steps[-1] = 1
            out[i] = np.searchsorted(steps.astype(_F64), self._doubles(num_samples), side="left")
        return out if weights.ndim == 2 else out[0]

    # ---------------------------------------------------------------- by rejection

    def poisson(self, rates: Array) -> Array:
        """Draw Poisson counts for each rate, as torch.poisson does."""
        if np.any(rates < 0):
            raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
        return _map_scalars(self._poisson, rates.dtype, rates)

    def _poisson(self, rate: float) -> float:
        rate = float(rate)
        if rate == 0:
            return 0.0
        if rate >= 10:
            return self._poisson_large(rate)
        # Knuth: multiply uniforms until the product falls below exp(-rate).
        floor, product, count = math.exp(-rate), 1.0, 0
        while True:
            product *= self._double()
            if product <= floor:
                return float(count)
            count += 1

    def _poisson_large(self, rate: float) -> float:
        """Transformed rejection of Hormann (1993), for rates from 10."""
        log_rate = math.log(rate)
        b = 0.931 + 2.53 * math.sqrt(rate)
        a = -0.059 + 0.02483 * b
        inv_alpha = 1.1239 + 1.1328 / (b - 3.4)
        v_r = 0.9277 - 3.6224 / (b - 2)
        while True:
            u = self._double() - 0.5
            v = self._double()
            us = 0.5 - abs(u)
            k = _floor((2 * a / us + b) * u + rate + 0.43) if us else _INT64_MIN
            if us >= 0.07 and v <= v_r:
                return float(k)
            if k < 0 or (us < 0.013 and v > us):
                continue
            ratio = _log(v) + math.log(inv_alpha) - math.log(a / (us * us) + b)
            if ratio <= -rate + k * log_rate - math.lgamma(k + 1.0):
                return float(k)

    def binomial(self, count: Array, prob: Array) -> Array:
        """Draw the number of successes in count trials, as torch.binomial does."""
        return _map_scalars(self._binomial, count.dtype, count, prob)

    def _binomial(self, count: Any, prob: Any) -> Any:
        # count and prob keep their own precision here, as PyTorch's template does.
        if count <= 0 or prob <= 0:
            return 0.0
        if prob >= 1:
            return count
        if prob <= 0.5:
            sample = self._binomial_large if count * prob >= 10 else self._binomial_small
            return sample(count, prob)
        if prob > 0.5:
            other = type(prob)(1.0 - float(prob))
            sample = self._binomial_large if count * other >= 10 else self._binomial_small
            return count - type(count)(sample(count, other))
        return math.nan

    def _binomial_small(self, count: Any, prob: Any) -> float:
        """Add up geometric waiting times until they pass count."""
        log_q = float(np.log1p(-prob))
        total, successes = 0.0, 0
        while True:
            u = self._double()
            total += float(math.ceil(math.log(u) / log_q)) if u else math.inf
            if total > count:
                return float(successes)
            successes += 1

    def _binomial_large(self, count: Any, prob: Any) -> float:
        """Transformed rejection of Hormann (BTRS), for count * prob from 10."""
        one = type(count)(1)
        n = float(count)
        spread = float(np.sqrt(count * prob * (one - prob)))
        b = 1.15 + 2.53 * spread
        a = -0.0873 + 0.0248 * b + 0.01 * float(prob)
        c = float(count * prob) + 0.5
        v_r = 0.92 - 4.2 / b
        odds = float(prob / (one - prob))
        alpha = (2.83 + 5.1 / b) * spread
        mode = float(np.floor((count + one) * prob))
        n_plus_1 = float(count + one)
        at_mode = (mode + 0.5) * math.log((mode + 1) / (odds * (n - mode + 1)))
        tails = _stirling_tail(mode) + _stirling_tail(n - mode)
        while True:
            u = self._double() - 0.5
            v = self._double()
            us = 0.5 - abs(u)
            k = float(_floor((2 * a / us + b) * u + c)) if us else -1.0
            if k < 0 or k > n:
                continue
            if us >= 0.07 and v <= v_r:
                return k
            rest = float(count - type(count)(k) + one)
            bound = (
                at_mode
                + n_plus_1 * math.log((n - mode + 1) / rest)
                + (k + 0.5) * math.log(odds * rest / (k + 1))
                + tails
                - _stirling_tail(k)
                - _stirling_tail(n - k)
            )
            if _log(v * alpha / (a / (us * us) + b)) <= bound:
                return k

    def standard_gamma(self, alpha: Array) -> Array:
        """Draw Gamma(alpha, 1) for each alpha, as torch._standard_gamma does."""
        tiny = np.finfo(_F32 if alpha.dtype == _F32 else _F64).tiny
        out = _map_scalars(self._gamma, alpha.dtype, alpha)
        return np.maximum(out, out.dtype.type(tiny))

    def _gamma(self, alpha: Any) -> float:
        """Rejection of Marsaglia and Tsang (2000)."""
        scale = 1.0
        one = type(alpha)(1)
        if alpha < 1:
            if alpha == 0:
                return 0.0
            scale = math.pow(1.0 - self._double(), float(one / alpha))
            alpha = alpha + one
        # PyTorch writes these constants in single precision, also for float64.
        d = float(alpha - type(alpha)(np.float32(1.0) / np.float32(3.0)))
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self._normal()
            y = 1.0 + c * x
            if y <= 0:
                continue
            v = y * y * y
            u = 1.0 - self._double()
            xx = x * x
            if u < 1.0 - _SQUEEZE * xx * xx:
                return scale * d * v
            if math.log(u) < 0.5 * xx + d * (1.0 - v + math.log(v)):
                return scale * d * v

    def dirichlet(self, alpha: Array) -> Array:
        """Draw points of the simplex along the last axis, as torch._sample_dirichlet does."""
        dtype = alpha.dtype
        gammas = self.standard_gamma(alpha.astype(_F64))
        out = (gammas / gammas.sum(axis=-1, keepdims=True)).astype(dtype)
        info = np.finfo(_F32 if dtype == _F32 else _F64)
        return np.clip(out, dtype.type(info.tiny), np.nextafter(dtype.type(1), dtype.type(0)))


_SQUEEZE = float(np.float32(0.0331))


_native_engine = selection.resolve("loops.twister:Engine")
_native_bernoulli = selection.resolve("loops.twister:bernoulli")
_native_shuffled = selection.resolve("loops.twister:shuffled")
_native_normals = selection.resolve("loops.twister:box_muller")


def _unit_floats(words: Array) -> Array:
    """Words as float32 values in [0, 1) of 24 bits."""
    out = (words & _MASK24).astype(_F32)
    out *= _SCALE24
    return out


def _units(words: Array) -> Array:
    """Words, whole blocks of sixteen, as float32 standard normals."""
    if not selection.pays():
        return box_muller_32(_unit_floats(words))
    out = np.empty(words.size, _F32)
    _native_normals(words, out, 1.0, -0.0)  # which leaves a zero its sign
    return out


def _restore(device: Any, state: Array) -> ArrayGenerator:
    return ArrayGenerator(device).set_state(state)


def _seeded_engine(seed: int) -> Any:
    with LOCK:  # the first use imports numpy.random
        engine = np.random.MT19937(0)
    engine._legacy_seeding(seed & 0xFFFFFFFF)
    return engine


# -------------------------------------------------------------------- shapes and dtypes


def _single(value: float) -> float:
    """A number as float32 has it."""
    return float(np.float32(value))


def _count(shape: Shape) -> int:
    return shape if isinstance(shape, int) else math.prod(shape)


def _pairs_shape(shape: Shape) -> tuple[int, ...]:
    return (shape, 2) if isinstance(shape, int) else (*shape, 2)


def _real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return _F32 if dtype.itemsize == 8 else _F64


def _as_complex(pairs: Array, dtype: np.dtype[Any]) -> Array:
    return pairs.view(dtype)[..., 0]


def _narrow(values: Array, dtype: np.dtype[Any]) -> Array:
    """Cast float64 to dtype; half types go through float32, as in PyTorch."""
    if dtype.itemsize < 4 and _is_float(dtype):
        return values.astype(_F32).astype(dtype)
    return values.astype(dtype, copy=False)


def _is_float(dtype: np.dtype[Any]) -> bool:
    # bfloat16 comes from an extension and has its own kind letter.
    return dtype.kind not in "biuc"


def _digits(dtype: np.dtype[Any]) -> int:
    """Bits of the significand, the hidden one included."""
    return {_F16: 11, _F32: 24, _F64: 53}.get(dtype, 8)


def _cast_integers(values: Array, dtype: np.dtype[Any]) -> Array:
    if dtype == _I64:
        return values
    if dtype.itemsize < 4 and _is_float(dtype):
        return values.astype(_F32).astype(dtype)
    return values.astype(dtype)


def _to_int_through(value: int, dtype: np.dtype[Any]) -> int:
    near = np.float32(value) if dtype != _F64 else np.float64(value)
    return int(dtype.type(near))


def _round_low(low: int, dtype: np.dtype[Any]) -> int:
    """Move low up to a number from which rounding to dtype cannot fall below it."""
    near = _to_int_through(low + 1, dtype)
    if near < low:
        low = near + (1 << (abs(low + 1).bit_length() - _digits(dtype)))
    return low


def _round_high(high: int, dtype: np.dtype[Any]) -> int:
    """Move high down to a number below which rounding to dtype cannot reach it."""
    near = _to_int_through(high - 1, dtype)
    if near >= high:
        high = near - (1 << (abs(high - 1).bit_length() - _digits(dtype)))
    return high


def _check_bound(value: int, name: str, dtype: np.dtype[Any]) -> None:
    if _is_float(dtype):
        top = float(np.finfo(dtype).max) if dtype in (_F16, _F32, _F64) else 3.3e38
        inside = -top <= value <= top
    elif dtype == _BOOL:
        inside = value in (0, 1)
    else:
        info = np.iinfo(dtype)
        inside = int(info.min) <= value <= int(info.max)
    if not inside:
        raise RuntimeError(f"{name} is out of bounds for {dtype.name}")


# -------------------------------------------------------------------- rejection helpers

# log(k!) minus Stirling's formula for k = 0 .. 9.
_STIRLING = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
    0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
    0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _stirling_tail(k: float) -> float:
    if k < 10:
        return _STIRLING[int(k)]
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


def _floor(x: float) -> int:
    """Round down; NaN and values out of range become the least int64, as in C."""
    return math.floor(x) if abs(x) < 2.0**63 else _INT64_MIN


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _map_scalars(sample: Callable[..., Any], dtype: np.dtype[Any], *params: Array) -> Array:
    """Call sample for each element in C order; float64 as Python floats, others as float32."""
    arrays = np.broadcast_arrays(*params)
    shape = arrays[0].shape
    if dtype == _F64:
        columns = [a.astype(_F64).ravel().tolist() for a in arrays]
    else:
        columns = [list(a.astype(_F32).ravel()) for a in arrays]
    out = np.empty(len(columns[0]), _F64)
    for i, values in enumerate(zip(*columns, strict=True)):
        out[i] = sample(*values)
    return _narrow(out, dtype).reshape(shape)
