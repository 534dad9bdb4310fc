"""Random numbers that follow PyTorch's stream: one seed, the same values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from weft.core import batching, errors, foreign, making
from weft.core import device as dev
from weft.core import dtype as dt
from weft.core.batching import BatchedArray, BatchedCall
from weft.core.devices import copy_of, drawn_from, host, model_like, put_like, taken, write_into
from weft.core.dispatch import edge_of
from weft.core.gate import announce
from weft.core.generator import ArrayGenerator
from weft.core.inference import check_change, fresh_cell
from weft.core.inplace import apply_inplace, bump, check_overlap, check_writable, written_over
from weft.core.meta import MetaArray, lacks_values
from weft.core.meta import empty as meta_empty
from weft.core.modes import MODES, SPECIAL
from weft.core.tensor import Tensor, beside, wrap
from weft.operators import api, shape_rules
from weft.operators.build import Sample, general, is_number, zero
from weft.operators.casting import TYPE_NAMES
from weft.operators.creation import CPU, build, finish, like_array, number_type, sizes, source_for
from weft.operators.outputs import C_NAMES, put_into


class Generator(ArrayGenerator):
    """A source of random numbers with a state of its own.

    >>> import weft
    >>> g = weft.Generator().manual_seed(0)
    >>> weft.rand(2, generator=g)
    tensor([0.4963, 0.7682])
    """

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__(dev.present(device))
        self._tell(True)

    def _tell(self, new: bool = False) -> None:
        for recorder in MODES.now.recorders:
            recorder.seeded(self, new)

    def manual_seed(self, seed: int) -> Self:
        """Set the seed; a negative seed counts back from 2**64."""
        super().manual_seed(seed)
        self._tell()
        return self

    def seed(self) -> int:
        """Seed from the system's entropy and return the seed."""
        self._tell()
        return super().seed()

    def get_state(self) -> Tensor:  # type: ignore[override]
        """The state as a tensor of bytes, in PyTorch's layout."""
        return wrap(super().get_state())

    def set_state(self, new_state: Any) -> Generator:
        """Take over a state that ``get_state`` gave, here or in PyTorch."""
        if not isinstance(new_state, Tensor):
            raise TypeError(
                f"expected a torch.ByteTensor, but got {type(new_state).__name__}\n"
                f"  at {errors.here()}"
            )
        super().set_state(host(new_state))
        self._tell()
        return self

    def clone_state(self) -> Generator:
        """A new generator in the same state."""
        return Generator().set_state(self.get_state())

    graphsafe_get_state = clone_state

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Take over another generator's state."""
        return self.set_state(state.get_state())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (host(self.get_state()),)


def _restore(state: np.ndarray) -> Generator:
    return Generator().set_state(wrap(state))


default_generator = Generator()
api.FUNCTIONS["Generator"] = Generator
api.FUNCTIONS["default_generator"] = default_generator  # type: ignore[assignment]


def source(generator: Any) -> ArrayGenerator:
    """The generator to draw from: the one given, or the default one."""
    if generator is None:
        generator = default_generator
    elif not isinstance(generator, ArrayGenerator):
        raise TypeError(
            f"argument 'generator' must be torch.Generator, not {type(generator).__name__}\n"
            f"  at {errors.here()}"
        )
    now = MODES.now
    if now.mode is SPECIAL:
        for recorder in now.recorders:
            generator = recorder.source(generator)
        if now.batches:
            generator = batching.source(generator)
    return generator


# --- the default generator's state -----------------------------------------------------


@api.top
def manual_seed(seed: Any) -> Generator:
    """Seed the default generator; the same seed gives the same numbers as in PyTorch.

    >>> _ = torch.manual_seed(0)
    >>> torch.rand(2)
    tensor([0.4963, 0.7682])
    >>> _ = torch.manual_seed(0)
    >>> torch.rand(2)
    tensor([0.4963, 0.7682])
    """
    default_generator.manual_seed(int(seed))
    return default_generator


@api.top
def seed() -> int:
    """Seed the default generator from the system's entropy, and return the seed."""
    return default_generator.seed()


@api.top
def initial_seed() -> int:
    """The last seed of the default generator."""
    return default_generator.initial_seed()


@api.top
def get_rng_state() -> Tensor:
    """The default generator's state as a tensor of bytes."""
    return default_generator.get_state()


@api.top
def set_rng_state(new_state: Tensor) -> None:
    """Put the default generator into a state."""
    default_generator.set_state(new_state)


# --- drawing into memory ---------------------------------------------------------------

Draw = Callable[[ArrayGenerator, Any, np.dtype, Any], np.ndarray]


def in_memory_order(array: np.ndarray) -> np.ndarray:
    """The same memory with its dimensions in the order in which PyTorch walks through it."""
    strides = array.strides
    order = sorted(range(array.ndim), key=lambda i: (-abs(strides[i]), i))
    return array.transpose(order)


def drawn_like(array: np.ndarray, draw: Callable[[tuple[int, ...]], np.ndarray]) -> np.ndarray:
    """Values for an array's elements, drawn in memory order; a meta array draws none."""
    if array.__class__ is MetaArray:
        return array.copy("K")
    # What is drawn for a batch can't be put into an example; the memory of all has another order.
    if array.flags.c_contiguous or array.__class__ is BatchedArray:
        return draw(array.shape)
    values = model_like(array)
    ordered = in_memory_order(values)
    ordered[...] = draw(ordered.shape)
    return values


def _refuse(kernel: str, d: np.dtype) -> None:
    raise NotImplementedError(
        f"\"{kernel}\" not implemented for '{TYPE_NAMES[dt.OF_NUMPY[d].name]}'; convert the tensor "
        f"to a floating dtype first\n  at {errors.here()}"
    )


def _floats_only(d: np.dtype, kernel: str, complex_too: bool = False) -> None:
    if d.kind in "iub" or (d.kind == "c" and not complex_too):
        _refuse(kernel, d)


def fill(self: Tensor, name: str, values: np.ndarray) -> Tensor:
    """Overwrite a tensor with random values; its old value gets a gradient of zero."""
    if written_over(self, values):
        bump(self, name)
        return self
    now = MODES.now
    told = now.mode is SPECIAL and (
        now.unusual or not all(recorder.overlooks(self) for recorder in now.recorders)
    )
    if told or (now.grad and edge_of(self) is not None):
        return apply_inplace(FILLS[name], (self,), {"values": values})
    if MODES.now.grad and self._base is not None:
        check_writable(self, False, name)
    check_change(self, f"{name}_")
    announce(self._a, self)
    write_into(self._a, values)
    bump(self, name)
    return self


def _fill_op(name: str) -> Any:
    return general(
        name,
        lambda x, values: values,
        zero,
        jvp=(zero,),
        samples=lambda m: [Sample((m.real(2, 3),), {"values": m.real(2, 3)})],
        shape=shape_rules.drawn,
    )


FILLS = {
    name: _fill_op(name)
    for name in (
        *("uniform", "normal", "random", "bernoulli", "exponential", "geometric", "cauchy"),
        "log_normal",
    )
}


def _prepared(self: Tensor, name: str) -> np.ndarray:
    check_overlap(self, name)
    if MODES.now.grad and edge_of(self) is not None:
        check_writable(self, True, name)  # before the generator moves
    return self._a


@api.method
def uniform_(
    self: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Any = None, **named: float
) -> Tensor:
    """Fill with values from [from, to).

    >>> _ = torch.manual_seed(0)
    >>> torch.empty(3).uniform_(-1, 1)
    tensor([-0.0075,  0.5364, -0.8230])
    """
    if to == 1.0 and from_ == 0.0 and not named:
        g = default_generator if generator is None else generator
        if g.__class__ is Generator:
            if g.take_floats(making.overwrite, self, "uniform") is not None:
                return self
    low, a = float(named.get("from", from_)), _prepared(self, "uniform")
    _floats_only(a.dtype, "check_uniform_bounds", complex_too=True)
    high, draw = float(to), source(generator).uniform
    if low != 0.0 or high != 1.0:
        _check_uniform(low, high, self.dtype.to_real())
    return fill(self, "uniform", drawn_like(a, lambda s: draw(s, a.dtype, low, high)))


def _check_uniform(low: float, high: float, d: dt.dtype) -> None:
    largest = dt.finfo(d).max
    for name, value in (("from", low), ("to", high)):
        if not abs(value) <= largest:
            raise RuntimeError(
                f"{name} is out of bounds for {C_NAMES[d.name]}: {value}\n  at {errors.here()}"
            )
    if high - low > largest:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{TYPE_NAMES[d.name]}>::max(), but "
            f"found to={high} and from={low} which result in to-from to exceed the limit\n"
            f"  at {errors.here()}"
        )


@api.method
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with normally distributed values.

    >>> _ = torch.manual_seed(0)
    >>> torch.empty(3).normal_(mean=10.0, std=0.1)
    tensor([10.1541,  9.9707,  9.7821])
    """
    if std == 1.0 and mean == 0.0:
        g = default_generator if generator is None else generator
        if g.__class__ is Generator:
            if g.take_normals(making.overwrite, self, "normal") is not None:
                return self
    a = _prepared(self, "normal")
    _floats_only(a.dtype, "normal_kernel_cpu", complex_too=True)
    draw, dense = source(generator).normal, a.flags.c_contiguous
    values = drawn_like(a, lambda s: draw(s, a.dtype, float(mean), float(std), dense))
    return fill(self, "normal", values)


@api.method
def random_(self: Tensor, *bounds: Any, generator: Any = None, **named: Any) -> Tensor:
    """Fill with whole numbers: ``random_()``, ``random_(to)`` or ``random_(from, to)``."""
    if len(bounds) == 1:
        bounds = (0, bounds[0])
    low, high = (*bounds, None, None)[:2]
    low, high = named.get("from", low), named.get("to", high)
    a, draw = _prepared(self, "random"), source(generator).random
    if self.dtype.is_complex:
        raise RuntimeError(
            "check_random_bounds handles only integral, floating-point and boolean types, not "
            f"{self.dtype!r}\n  at {errors.here()}"
        )
    for bound in (low, high):
        if bound is not None and not -(2**63) <= bound < 2**63:
            raise ValueError(f"Overflow when unpacking long long: {bound}\n  at {errors.here()}")
    if a.dtype.kind not in "iub":
        _check_whole_floats(low, high, self.dtype)
    return fill(self, "random", drawn_like(a, lambda s: draw(s, a.dtype, low, high)))


def _check_whole_floats(low: int | None, high: int | None, d: dt.dtype) -> None:
    """Floating types hold only some of the whole numbers beyond their precision."""
    info = dt.finfo(d)
    digits = 1 - round(math.log2(info.eps))
    for name, value in (("from", low), ("to - 1", None if high is None else high - 1)):
        if value is None:
            continue
        if abs(value) > info.max:
            raise RuntimeError(
                f"{name} is out of bounds for {C_NAMES[d.name]}: {value}\n  at {errors.here()}"
            )
        if abs(value) > 2**digits:
            errors.warn(
                f"{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision "
                f"limitations {C_NAMES[d.name]} can support discrete uniform distribution only "
                "within this range. This warning will become an error in version 1.7 release, "
                "please fix the code in advance"
            )


@api.method
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fill with 0 and 1, where 1 has the probability ``p`` (a number or a tensor)."""
    a, draw = _prepared(self, "bernoulli"), source(generator).bernoulli
    if isinstance(p, Tensor):
        if not p.is_floating_point():
            raise RuntimeError(
                f"bernoulli_ expects p to be of a floating dtype, not {p.dtype!r}\n"
                f"  at {errors.here()}"
            )
        return fill(self, "bernoulli", _bernoulli_of(_spread(p, a.shape), a, draw))
    return fill(self, "bernoulli", drawn_like(a, lambda s: draw(float(p), s, a.dtype)))


def _spread(p: Tensor, shape: tuple[int, ...]) -> np.ndarray:
    return np.empty(shape) if lacks_values(p) else np.broadcast_to(taken(p), shape)


def _bernoulli_of(p: np.ndarray, like: np.ndarray, draw: Callable) -> np.ndarray:
    if like.__class__ is MetaArray:
        return like.copy("K")
    values = model_like(like)
    order = sorted(range(like.ndim), key=lambda i: (-abs(like.strides[i]), i))
    values.transpose(order)[...] = draw(p.transpose(order), None, like.dtype)
    return values


def _by_rate(name: str, settings: tuple[tuple[str, Any], ...], kernel: str | None) -> None:
    """A method that fills by a law with one or two numbers."""

    def change(self: Tensor, *args: Any, generator: Any = None, **named: Any) -> Tensor:
        given = dict(zip((k for k, _ in settings), args, strict=False))
        values = [float(named.get(k, given.get(k, default))) for k, default in settings]
        a = _prepared(self, name)
        if kernel is not None:
            if a.dtype.kind in "iub" and kernel.endswith("distribution"):
                raise RuntimeError(
                    f"{kernel} is a continuous probability distribution. dtype must be a "
                    f"floating point but you specified {self.dtype!r}\n  at {errors.here()}"
                )
            _floats_only(a.dtype, kernel)
        method = getattr(source(generator), name)
        if name == "geometric":
            draw = lambda s: method(s, *values, a.dtype)
        else:
            draw = lambda s: method(s, a.dtype, *values)
        return fill(self, name, drawn_like(a, draw))

    change.__name__ = change.__qualname__ = name + "_"
    change.__doc__ = f"Fill with draws from the {name.replace('_', '-')} law."
    api.method(change)


_by_rate("exponential", (("lambd", 1.0),), "Exponential distribution")
_by_rate("geometric", (("p", float("nan")),), None)
_by_rate("cauchy", (("median", 0.0), ("sigma", 1.0)), "Cauchy distribution")
_by_rate("log_normal", (("mean", 1.0), ("std", 2.0)), "log_normal_cpu")

# --- new tensors -----------------------------------------------------------------------


@api.top
def rand(
    *args: Any, size: Any = None, generator: Any = None, out: Any = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    names: Any = None,
) -> Tensor:  # fmt: skip
    """Values from [0, 1).

    >>> _ = torch.manual_seed(0)
    >>> torch.rand(2, 2)
    tensor([[0.4963, 0.7682],
            [0.0885, 0.1320]])
    """
    if size is out is dtype is device is None and not requires_grad and dev._default is CPU:
        g = default_generator if generator is None else generator
        if g.__class__ is Generator:
            short = g.take_floats(making.create, args, dt._default.np)
            if short is not None:
                return short
    d = number_type(dtype, out)
    _floats_only(d, "check_uniform_bounds", complex_too=True)
    shape = _shape(args if size is None else (size,), "rand")
    made = finish(build(source(generator).uniform, shape, d, device), device, requires_grad)
    return made if out is None else api.into(out, made, "rand")


@api.top
def randn(
    *args: Any, size: Any = None, generator: Any = None, out: Any = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    names: Any = None,
) -> Tensor:  # fmt: skip
    """Values of the standard normal law.

    >>> _ = torch.manual_seed(0)
    >>> torch.randn(2, 3)
    tensor([[ 1.5410, -0.2934, -2.1788],
            [ 0.5684, -1.0845, -1.3986]])
    """
    if size is out is dtype is device is None and not requires_grad and dev._default is CPU:
        g = default_generator if generator is None else generator
        if g.__class__ is Generator:
            short = g.take_normals(making.create, args, dt._default.np)
            if short is not None:
                return short
    d = number_type(dtype, out)
    _floats_only(d, "normal_kernel_cpu", complex_too=True)
    shape = _shape(args if size is None else (size,), "randn")
    made = finish(build(source(generator).normal, shape, d, device), device, requires_grad)
    return made if out is None else api.into(out, made, "randn")


def _shape(given: tuple[Any, ...], name: str) -> tuple[int, ...]:
    shape = sizes(given, name)
    if shape and min(shape) < 0:
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}\n"
            f"  at {errors.here()}"
        )
    return shape


def _whole_bounds(args: tuple[Any, ...], named: dict[str, Any], name: str) -> tuple[Any, ...]:
    """low, high and what follows, from ``(high, ...)`` or ``(low, high, ...)``."""
    numbers = []
    rest = list(args)
    while rest and not isinstance(rest[0], (tuple, list)):
        numbers.append(int(rest.pop(0)))
    low = named.pop("low", None)
    high = named.pop("high", None)
    if high is None:
        if not numbers:
            raise TypeError(f"{name}() needs an upper bound: (high, ...)\n  at {errors.here()}")
        high = numbers.pop()
    if numbers:
        low = numbers.pop(0)
    return 0 if low is None else int(low), int(high), rest


def _few_whole(args: tuple[Any, ...], generator: Any) -> Tensor | None:
    """A few whole numbers from words that are ready; None for all that is not plain."""
    g = default_generator if generator is None else generator
    low, high, size = args if len(args) == 3 else (0, *args) if len(args) == 2 else (0, 0, 0)
    if not isinstance(size, (tuple, list)) or g.__class__ is not Generator:
        return None
    if low.__class__ is not int or high.__class__ is not int:
        return None
    return g.take_whole(making.create, (size,), dt.I64, low, high)


@api.top
def randint(
    *args: Any, generator: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False, **named: Any,
) -> Tensor:  # fmt: skip
    """Whole numbers from [low, high): ``randint(high, size)`` or ``randint(low, high, size)``.

    >>> _ = torch.manual_seed(0)
    >>> torch.randint(10, (4,))
    tensor([4, 9, 3, 0])
    >>> torch.randint(-3, 3, (2, 2)).shape
    torch.Size([2, 2])
    """
    if out is dtype is device is None and not (named or requires_grad) and dev._default is CPU:
        short = _few_whole(args, generator)
        if short is not None:
            return short
    size = named.pop("size", None)
    low, high, rest = _whole_bounds(args, named, "randint")
    if named or (size is None and not rest):
        raise TypeError(f"randint() takes (high, size) or (low, high, size)\n  at {errors.here()}")
    shape = _shape((rest[0] if size is None else size,), "randint")
    d = dt.I64 if dtype is None and out is None else number_type(dtype, out)
    draw = source(generator).randint
    array = build(lambda shape, d: draw(shape, low, high, d), shape, d, device)
    made = finish(array, device, requires_grad)
    return made if out is None else api.into(out, made, "randint")


LONGEST = {"float16": 2**11 + 1, "float32": 2**24 + 1, "float64": 2**53 + 1}


def _check_permutation(n: int, d: dt.dtype) -> None:
    """Every number of a permutation must have its own value in the dtype."""
    if d.np == dt.BOOL:
        raise NotImplementedError(f"\"randperm\" not implemented for 'Bool'\n  at {errors.here()}")
    if n > LONGEST.get(d.name, n):
        shown = {2**24 + 1: "2^24+1", 2**53 + 1: "2^53+1"}.get(LONGEST[d.name], "2049")
        raise RuntimeError(
            f"n cannot be greater than {shown} for {TYPE_NAMES[d.name]} type, but got {n}\n"
            f"  at {errors.here()}"
        )
    if d.np.kind in "iu" and n - 1 > np.iinfo(d.np).max:
        raise RuntimeError(
            f"value cannot be converted to type {d.name}_t without overflow: {n} is too large for "
            f"the result's dtype\n  at {errors.here()}"
        )


@api.top
def randperm(
    n: int, *, generator: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The numbers 0 .. n-1 in random order.

    >>> _ = torch.manual_seed(0)
    >>> torch.randperm(5)
    tensor([4, 0, 1, 3, 2])
    """
    d = dt.I64 if dtype is None and out is None else number_type(dtype, out)
    _check_permutation(int(n), dt.of_numpy(d))
    draw = source(generator).randperm
    made = finish(build(lambda _, d: draw(int(n), d), (int(n),), d, device), device, requires_grad)
    return made if out is None else api.into(out, made, "randperm")


def _like(name: str, draw: Callable, doc: str) -> None:
    def create(
        input: Tensor, *args: Any, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, memory_format: Any = None, generator: Any = None,
        pin_memory: bool = False, **named: Any,
    ) -> Tensor:  # fmt: skip
        like, d = source_for(input, device, None if dtype is None else dt.as_numpy(dtype))
        made = wrap(like_array(like, d, memory_format))
        if MODES.now.batches:
            made = batching.room_for_draws(made)
        draw(made, args, named, generator)
        made._vc = fresh_cell()
        return made.requires_grad_() if requires_grad else made

    create.__name__ = create.__qualname__ = name
    create.__doc__ = inspect.cleandoc(doc)
    api.top(create)


def _place(made: Tensor, name: str, values: np.ndarray) -> None:
    if MODES.now.batches:
        fill(made, name, values)
    else:
        write_into(made._a, values)


def _randint_into(made: Tensor, args: Any, named: Any, generator: Any) -> None:
    low, high, _ = _whole_bounds(args, named, "randint_like")
    a = made._a
    draw = source(generator).randint
    _place(made, "random", drawn_like(a, lambda s: draw(s, low, high, a.dtype)))


def _rand_into(made: Tensor, args: Any, named: Any, generator: Any) -> None:
    a = made._a
    _floats_only(a.dtype, "check_uniform_bounds", complex_too=True)
    draw = source(generator).uniform
    _place(made, "uniform", drawn_like(a, lambda s: draw(s, a.dtype)))


_like(
    "rand_like",
    _rand_into,
    """Values from [0, 1) in another tensor's shape and dtype.

    >>> _ = torch.manual_seed(0)
    >>> torch.rand_like(torch.zeros(3))
    tensor([0.4963, 0.7682, 0.0885])
    """,
)
_like(
    "randn_like",
    lambda made, args, named, generator: normal_(made, generator=generator),
    """Values of the standard normal law in another tensor's shape and dtype.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.zeros(2, 2, dtype=torch.float64)
    >>> torch.randn_like(x).dtype
    torch.float64
    """,
)
_like("randint_like", _randint_into, "Whole numbers in another tensor's shape and dtype.")

# --- laws with tensors as parameters ---------------------------------------------------


def _drawn_batch(b: BatchedCall) -> Any:
    """Random values, drawn for each example or once for all of them."""
    values = b.attrs["values"]
    if isinstance(values, BatchedArray):
        return b.run(*b.leads(), values=values.physical._a)
    return b.run(*b.leads(), values=np.broadcast_to(values, (b.size, *values.shape)).copy())


def _name_of_normal(mean: Any, std: Any) -> str:
    """PyTorch's name: ``normal_`` is the first of its kind."""
    return f"NormalBackward{1 if is_number(std) else 2 if is_number(mean) else 3}"


normal_op = general(
    "normal_of",
    lambda mean, std, values: values,
    zero,
    zero,
    names=("mean", "std"),
    jvp=(zero, zero),
    grad_name="NormalBackward",
    variant=lambda attrs, inputs: _name_of_normal(*inputs),
    samples=lambda m: [Sample((m.real(2, 3), m.real(3)), {"values": m.real(2, 3)})],
    shape=shape_rules.drawn,
    batch=_drawn_batch,
)
normal_op.edges = ("mean?", "std?")


@api.top
def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, out: Any = None,
    dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Normal values with means and deviations as tensors, or as numbers with a size.

    >>> _ = torch.manual_seed(0)
    >>> torch.normal(mean=torch.tensor([0.0, 100.0]), std=torch.tensor([1.0, 0.1]))
    tensor([ 1.5410, 99.9707])
    """
    if out is not None:
        given = {"size": size, "generator": generator, "dtype": dtype}
        if size is not None:
            given["dtype"] = dt.of_numpy(number_type(dtype, out))
        return put_into(out, normal, (mean, std), "normal" if size is None else "randn", **given)
    foreign.refuse(mean, std)
    if size is not None and (isinstance(mean, Tensor) or isinstance(std, Tensor)):
        raise TypeError(
            "normal() received an invalid combination of arguments: a size goes with numbers as "
            f"mean and std, not with tensors\n  at {errors.here()}"
        )
    g = source(generator)
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if not isinstance(size, (tuple, list)):
            raise TypeError(
                "normal(): with numbers as mean and std, a size (a tuple of ints) is needed\n"
                f"  at {errors.here()}"
            )
        d = number_type(dtype)
        _floats_only(d, "normal_kernel_cpu", complex_too=True)
        shape = _shape((size,), "normal")
        make = lambda shape, d: g.normal(shape, d, float(mean), float(std))
        return finish(
            build(make, shape, d, CPU if device is None else device), device or CPU, requires_grad
        )
    arrays = [
        v if not isinstance(v, Tensor) else v._a if lacks_values(v) else drawn_from(v)
        for v in (mean, std)
    ]
    for array in arrays:
        if isinstance(array, np.ndarray):
            _floats_only(array.dtype, "normal_kernel_cpu", complex_too=array is arrays[0])
    try:
        shape = np.broadcast_shapes(*(a.shape for a in arrays if isinstance(a, np.ndarray)))
    except ValueError as error:
        raise errors.explain(error, "normal", arrays, {}) from None
    if MetaArray in map(type, arrays):
        values: Any = meta_empty(shape, dt.result_dtype(arrays))
    else:
        values = g.normal_tensor(*arrays)
    tensors = [v for v in (mean, std) if isinstance(v, Tensor)]
    if MODES.now.dual_level >= 0 or any(edge_of(v) is not None for v in tensors):
        return normal_op(mean, std, values=values)
    return wrap(put_like(tensors[0]._a, values))


def _sampled(name: str, count: int) -> Any:
    """An op that stands for a draw: its parameters get gradients of zero."""
    return general(
        f"{name}_of",
        (lambda x, values: values) if count == 1 else (lambda a, b, values: values),
        *(zero,) * count,
        names=("x",) if count == 1 else ("a", "b"),
        jvp=(zero,) * count,
        grad_name=f"{name.capitalize()}Backward",
        samples=lambda m: [Sample((m.real(2, 3),) * count, {"values": m.real(2, 3)})],
        shape=shape_rules.drawn,
        batch=_drawn_batch,
    )


bernoulli_op, poisson_op = _sampled("bernoulli", 1), _sampled("poisson", 1)
binomial_op = _sampled("binomial", 2)


@api.both(out=True)
def bernoulli(input: Tensor, p: float | None = None, *, generator: Any = None) -> Tensor:
    """0 or 1 for each element, which is the probability of 1 (unless ``p`` is given)."""
    x = input._a
    draw = source(generator).bernoulli
    if x.__class__ is MetaArray:
        values: Any = copy_of(x)
    elif p is not None:
        values = draw(float(p), x.shape, x.dtype)
    else:
        _floats_only(x.dtype, "bernoulli_tensor_cpu_p_")
        values = draw(drawn_from(input), None, x.dtype)
    return bernoulli_op(input, values=values)


@api.top
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """A Poisson count for each rate."""
    _floats_only(input._a.dtype, "poisson_cpu")
    draw = source(generator).poisson
    values = copy_of(input._a) if input.is_meta else draw(drawn_from(input))
    return poisson_op(input, values=values)


@api.top
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """The number of successes in ``count`` trials of probability ``prob``."""
    for name, value in (("count", count), ("prob", prob)):
        if not value.is_floating_point():
            raise ValueError(
                f"binomial only supports floating-point dtypes for {name}, got: {value.dtype!r}\n"
                f"  at {errors.here()}"
            )
    if count.is_meta or prob.is_meta:
        values: Any = meta_empty(np.broadcast_shapes(count.shape, prob.shape), count.dtype.np)
    else:
        values = source(generator).binomial(drawn_from(count), drawn_from(prob))
    return binomial_op(count, prob, values=values)


@api.both(out=True)
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """Indices drawn in proportion to weights, from one row or from each row.

    >>> _ = torch.manual_seed(0)
    >>> torch.multinomial(torch.tensor([0.0, 3.0, 1.0]), num_samples=6, replacement=True)
    tensor([2, 1, 1, 2, 1, 2])
    """
    if not input.is_floating_point():
        raise RuntimeError(
            "multinomial only supports floating-point dtypes for input, got: "
            f"{input.dtype!r}\n  at {errors.here()}"
        )
    if input.is_meta:
        return wrap(meta_empty((*input.shape[:-1], int(num_samples)), dt.I64))
    drawn = source(generator).multinomial(drawn_from(input), int(num_samples), bool(replacement))
    return beside(input, drawn)
