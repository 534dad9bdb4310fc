"""Random index expressions, read and written, against PyTorch; and what bad ones raise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")

# Both systems warn of old ways to index; what they return is what matters here.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

quick = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)

# --- random expressions ----------------------------------------------------------------


class Index:
    """An index array, given to each system as a tensor, a list or a NumPy array."""

    def __init__(self, array: np.ndarray, form: str) -> None:
        self.array, self.form = array, form

    def __repr__(self) -> str:
        return f"{self.form}({self.array.tolist()!r}, {self.array.dtype})"

    def within(self, system: Any) -> Any:
        if self.form == "list" and self.array.ndim == 1 and self.array.size:
            return self.array.tolist()
        if self.form == "array":
            return self.array
        return system.tensor(self.array)


def for_system(key: Any, system: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(for_system(part, system) for part in key)
    return key.within(system) if isinstance(key, Index) else key


@st.composite
def slices(draw: Any, size: int) -> slice:
    end = st.none() | st.integers(-size - 2, size + 2)
    return slice(draw(end), draw(end), draw(st.none() | st.integers(1, 3)))


@st.composite
def index_arrays(draw: Any, size: int, shape: tuple[int, ...]) -> Index:
    count = int(np.prod(shape, dtype=int))
    if not size:
        shape, count = (0,), 0
    values = draw(
        st.lists(st.integers(-size, max(size - 1, -size)), min_size=count, max_size=count)
    )
    dtype = draw(st.sampled_from((np.int64, np.int64, np.int32)))
    form = draw(st.sampled_from(("tensor", "tensor", "list", "array")))
    return Index(np.array(values, dtype).reshape(shape), form)


@st.composite
def masks(draw: Any, shape: tuple[int, ...], types: tuple[Any, ...] = (bool,)) -> Index:
    count = int(np.prod(shape, dtype=int))
    values = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    dtype = draw(st.sampled_from(types))
    return Index(np.array(values, dtype).reshape(shape), "tensor")


@st.composite
def keys(draw: Any, shape: tuple[int, ...], mask_types: tuple[Any, ...] = (bool,)) -> Any:
    """A key that is valid for a shape."""
    rank, parts = len(shape), []
    common = draw(st.sampled_from(((2,), (1,), (3,), (2, 2), (), (1, 2))))
    dots = draw(st.integers(0, rank)) if draw(st.booleans()) else None
    dim = 0
    while dim < rank:
        if dots is not None and dim >= dots:
            skip = draw(st.integers(0, rank - dim))
            parts.append(Ellipsis)
            dots, dim = None, dim + skip
            if dim >= rank:
                break
        kinds = ["slice", "slice", "int", "none", "index", "index", "mask", "stop"]
        kind = draw(st.sampled_from(kinds))
        if kind == "stop":
            # Without an Ellipsis a key may end early; with one the rest must be named.
            if Ellipsis in [p for p in parts if not isinstance(p, Index)]:
                continue
            break
        if kind == "none":
            parts.append(None)
            if len(parts) > 7:
                break
            continue
        if kind == "int":
            if not shape[dim]:
                continue
            parts.append(draw(st.integers(-shape[dim], shape[dim] - 1)))
        elif kind == "slice":
            parts.append(draw(slices(shape[dim])))
        elif kind == "index":
            width = draw(st.sampled_from((common, common, (1,))))
            parts.append(draw(index_arrays(shape[dim], width)))
        else:
            span = draw(st.integers(0, min(2, rank - dim)))
            parts.append(draw(masks(shape[dim : dim + span], mask_types)))
            dim += span - 1
        dim += 1
    if len(parts) == 1 and draw(st.booleans()):
        return parts[0]
    return tuple(parts)


@st.composite
def sources(draw: Any) -> tuple[np.ndarray, tuple[int, ...] | None, int]:
    """Values, an order of dimensions and a step: the last two make the layout unusual."""
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4, 4, 0)), max_size=4)))
    order = draw(st.none() | st.permutations(range(len(shape))))
    step = draw(st.sampled_from((1, 1, 2)))
    count = int(np.prod(shape, dtype=int))
    return np.arange(count, dtype=np.float64).reshape(shape) + 1.0, order, step


def lay_out(x: Any, order: Any, step: int, system: Any) -> Any:
    """The same values in a tensor whose memory is permuted and has gaps."""
    if order is not None:
        x = x.permute(tuple(order)).contiguous().permute(tuple(int(i) for i in np.argsort(order)))
    if step > 1 and x.ndim:
        wide = system.zeros(*x.shape[:-1], x.shape[-1] * step, dtype=x.dtype)
        wide[..., ::step] = x
        x = wide[..., ::step]
    return x


def made(source: Any, system: Any) -> Any:
    values, order, step = source
    return lay_out(system.tensor(values), order, step, system)


def outcome(function: Any) -> Any:
    """A result as an array, or the class of the error."""
    try:
        return function()
    except Exception as error:
        return type(error).__name__


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, str) or isinstance(ours, str):
        assert isinstance(ours, str) and ours == theirs, f"{ours} where torch has {theirs}"
        return
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype) == str(theirs.dtype)
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


@quick
@given(st.data())
def test_getitem(data: Any) -> None:
    source = data.draw(sources())
    key = data.draw(keys(source[0].shape, (bool, bool, np.uint8)))
    read = [outcome(lambda s=s: made(source, s)[for_system(key, s)]) for s in (weft, torch)]
    same(*read)


@quick
@given(st.data())
def test_getitem_shares_memory_when_torch_does(data: Any) -> None:
    source = data.draw(sources())
    key = data.draw(keys(source[0].shape))
    seen = []
    for system in (weft, torch):
        x = made(source, system)
        try:
            part = x[for_system(key, system)]
        except Exception as error:
            seen.append(type(error).__name__)
            continue
        if part.numel():
            part.zero_()
        seen.append(x)
    same(*seen)


@quick
@given(st.data())
def test_gradient_of_getitem(data: Any) -> None:
    source = data.draw(sources())
    key = data.draw(keys(source[0].shape))
    grads = []
    for system in (weft, torch):
        leaf = system.tensor(source[0], requires_grad=True)
        x = lay_out(leaf * 2.0, source[1], source[2], system)
        try:
            part = x[for_system(key, system)]
        except Exception as error:
            grads.append(type(error).__name__)
            continue
        weights = system.tensor(np.arange(part.numel(), dtype=np.float64).reshape(part.shape) + 1)
        (part * part * weights).sum().backward()
        grads.append(leaf.grad)
    same(*grads)


@st.composite
def values_for(draw: Any, shape: tuple[int, ...]) -> Any:
    """A number, or an array that broadcasts into the shape."""
    if draw(st.booleans()):
        return draw(st.sampled_from((7, -2.5, True)))
    kept = draw(st.integers(0, len(shape)))
    tail = tuple(n if draw(st.booleans()) else 1 for n in shape[len(shape) - kept :])
    lead = (1,) * draw(st.sampled_from((0, 0, 0, 1, 2)))
    full = lead + tail
    return -np.arange(np.prod(full, dtype=int), dtype=np.float64).reshape(full) - 1.0


@quick
@given(st.data())
def test_setitem(data: Any) -> None:
    source = data.draw(sources())
    key = data.draw(keys(source[0].shape))
    try:
        shape = tuple(made(source, torch)[for_system(key, torch)].shape)
    except Exception:
        shape = ()
    value = data.draw(values_for(shape))
    changed = []
    for system in (weft, torch):
        x = made(source, system)
        try:
            x[for_system(key, system)] = (
                system.tensor(value) if isinstance(value, np.ndarray) else value
            )
        except Exception as error:
            changed.append(type(error).__name__)
            continue
        changed.append(x)
    # With repeated positions and different values PyTorch leaves open which one wins.
    if not repeated(key):
        same(*changed)
    else:
        assert isinstance(changed[0], str) == isinstance(changed[1], str)


def repeated(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return any(
        isinstance(p, Index) and p.array.dtype.kind == "i" and p.array.size > 1 for p in parts
    )


@quick
@given(st.data())
def test_gradients_of_setitem(data: Any) -> None:
    source = data.draw(sources())
    key = data.draw(keys(source[0].shape))
    try:
        shape = tuple(made(source, torch)[for_system(key, torch)].shape)
    except Exception:
        return
    value = data.draw(values_for(shape))
    if repeated(key):
        return
    grads = []
    for system in (weft, torch):
        leaf = system.tensor(source[0], requires_grad=True)
        x = lay_out(leaf * 1.5, source[1], source[2], system)
        put = value
        if isinstance(value, np.ndarray):
            put = system.tensor(value, requires_grad=True)
        x[for_system(key, system)] = put * 2.0 if isinstance(value, np.ndarray) else put
        (x * x).sum().backward()
        grads.append((leaf.grad, put.grad if isinstance(value, np.ndarray) else leaf.grad))
    same(grads[0][0], grads[1][0])
    same(grads[0][1], grads[1][1])


def test_repeated_positions_add_up_in_the_gradient() -> None:
    x = weft.arange(4.0).requires_grad_()
    x[weft.tensor([1, 1, 3, -3])].sum().backward()
    assert x.grad.tolist() == [0.0, 3.0, 0.0, 1.0]


def test_adding_at_repeated_rows_of_a_large_tensor() -> None:
    rng = np.random.default_rng(0)
    rows, values = rng.integers(0, 50, 5000), rng.normal(size=(5000, 7))
    ours = weft.zeros(50, 7, dtype=weft.float64)
    ours.index_put_((weft.tensor(rows),), weft.tensor(values), accumulate=True)
    theirs = torch.zeros(50, 7, dtype=torch.float64)
    theirs.index_put_((torch.tensor(rows),), torch.tensor(values), accumulate=True)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-12)


def test_in_place_arithmetic_on_indexed_elements() -> None:
    x = weft.zeros(3)
    x[weft.tensor([0, 2])] += weft.tensor([1.0, 2.0])
    x[1] -= 5
    x[x < 0] *= 2
    assert x.tolist() == [1.0, -10.0, 2.0]


# --- errors ----------------------------------------------------------------------------

WRONG = """
x[5]
x[-3]
x[:, 3]
x[0, 0, 0]
x[0.5]
x['a']
x[{1}]
x[b'a']
x[::-1]
x[::0]
x[1.0:2]
x[10**30]
s[0]
s[:]
s[L([0])]
x[L([5])]
x[L([-3])]
x[L([0.0])]
x[L([0], dtype=t.int8)]
x[L([True, False, True])]
x[L([0, 1, 1]), L([0, 1])]
x[(0, L([9]))]
set(x, 5, 1)
set(x, L([5]), 1)
set(x, 0, [1.0, 2.0, 3.0])
set(x, 0, np.zeros(3))
set(x, 0, 'a')
set(x, 0, None)
set(x, 0, L([1.0, 2.0]))
set(x, 0, t.ones(2, 1, 3))
set(x, 0, 1j)
set(x, 0, 1e300)
set(x, L([0]), 1j)
set(x, L([0]), L([1.0], dtype=t.float64))
set(x, L([0]), L([7]))
set(x, x > 2, L([7.0, 8.0]))
set(u, 0, 300)
set(u, 0, -300)
set(u, u > 1, 300)
set(i, 0, float('nan'))
set(i, 0, 1e30)
set(x.requires_grad_(), 0, 1)
set(x.requires_grad_(), L([0]), 1)
set(x[0].expand(2, 3), slice(None), 1)
set(x, (0, slice(None, None, -1)), 1)
x.index_put_([0], L(5.0))
x.index_put_(L([0]), L(5.0))
x.index_put_((L([0]),), 5.0)
x.index_put_((L([0]),), L([1.0], dtype=t.float64))
x.index_put_([L([0]), L([0]), L([0])], L(5.0))
t.gather(x, 0, L([[5, 0, 0]]))
t.gather(x, 0, L([[-1, 0, 0]]))
t.gather(x, 0, L([0]))
t.gather(x, 0, L([[0.0]]))
t.gather(x, 0, L([[0, 0, 0, 0]]))
t.gather(x, 5, L([[0]]))
t.scatter(x, 0, L([[5, 0, 0]]), x)
t.scatter(x, 0, L([[1, 0, 0]]), x.double())
t.scatter(x, 0, L([[1, 0, 0]] * 3), x)
t.scatter(x, 0, L([0]), x)
x.scatter(0, L([[0, 0, 0]]), 2.0, reduce='foo')
x.scatter_reduce(0, L([[0]]), x, 'foo')
x.scatter_reduce(0, L([[0, 0, 0]]), x.double(), 'sum')
x.scatter_add(0, L([[0, 0, 0]]), x[:, :2])
x.index_select(0, L([5]))
x.index_select(0, L([-1]))
x.index_select(0, L([[0]]))
x.index_select(0, L([0.0]))
s.index_select(0, L([0, 0]))
x.index_add(0, L([5]), x[:1])
x.index_add(0, L([0, 1, 1]), x)
x.index_add(0, L([0]), x[:1].double())
x.index_add(0, L([0]), x[:1, :2])
x.index_add(0, L([[0]]), x[:1])
x.index_copy(0, L([5]), x[:1])
x.index_copy(0, L([0]), x[:1].double())
x.index_fill(0, L([5]), 9.0)
x.index_fill(0, L([0]), L([9.0]))
x.index_reduce(0, L([0]), x[:1], 'sum')
x.take(L([7]))
x.take(L([0], dtype=t.int32))
x.put(L([7]), L([9.0]))
x.put(L([0, 1]), L([9.0]))
x.put(L([0]), L([9]))
x.masked_fill(x, 1)
x.masked_fill(x > 2, L([1.0]))
x.masked_fill(x > 2, 1j)
x[0].masked_fill_(x > 2, 0)
x.masked_select(x)
x.masked_select(L([True, False, True, True]))
x.masked_scatter(x > 2, L([1.0]))
x.masked_scatter(x > 2, L([1, 2, 3]))
t.take_along_dim(x, L([0]), 0)
t.take_along_dim(x, L([[0], [0], [0]]), 1)
x.fill_(L([1.0]))
x.fill_(1j)
x.copy_(L([1.0, 2.0]))
"""


@pytest.mark.parametrize("code", [line for line in WRONG.splitlines() if line])
def test_error_classes(code: str) -> None:
    raised = []
    for system in (weft, torch):
        x = system.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
        before = x.detach().clone()
        scope = {
            "x": x,
            "t": system,
            "L": system.tensor,
            "np": np,
            "s": system.tensor(3.0),
            "u": x.to(system.uint8),
            "i": x.long(),
            "set": lambda x, k, v: x.__setitem__(k, v),
        }
        raised.append(outcome(lambda code=code, scope=scope: eval(code, scope)))
        assert bool((x == before).all()), "a failed call changed its tensor"
    assert isinstance(raised[1], str), "PyTorch does not refuse this"
    assert raised[0] == raised[1], f"{raised[0]} where torch has {raised[1]}"


# --- numbers into tensors --------------------------------------------------------------


@pytest.mark.parametrize("target", ["int64", "int32", "int16", "int8", "uint8", "bool", "float16"])
def test_casts_of_unusual_floats(target: str) -> None:
    values = [float("nan"), float("inf"), -float("inf"), 1e30, 3e9, -1.5, 300.7, -0.0, 0.5]
    ours = weft.tensor(values).to(getattr(weft, target))
    theirs = torch.tensor(values).to(getattr(torch, target))
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("target", ["uint8", "int8", "int64", "bool", "float16", "float32"])
@pytest.mark.parametrize("value", [0, 1, -1, 255, 3.7, float("inf"), True, 2 + 0j])
def test_numbers_assigned(target: str, value: Any) -> None:
    got = []
    for system in (weft, torch):
        x = system.zeros(2, dtype=getattr(system, target))

        def put(x: Any = x) -> Any:
            x[0] = value
            return x

        got.append(outcome(put))
    same(*got)


MASK = np.array([True, False, True])
MASKS: list[Any] = [
    Index(MASK, "tensor"),
    Index(MASK, "array"),
    (slice(None), Index(np.array([True, True, False, False]), "tensor")),
    (Index(MASK, "tensor"), 0),
    (None, Index(MASK, "tensor")),
    (Index(MASK, "tensor"), Index(np.array([0, 1]), "tensor")),
    (Index(MASK, "tensor"), Index(np.array([True, False, True, False]), "tensor")),
    Index(np.array([0, 1]), "tensor"),
]


@pytest.mark.parametrize("key", MASKS, ids=repr)
@pytest.mark.parametrize("source", ["int64", "float64", "bool", "complex64"])
@pytest.mark.parametrize("target", ["float32", "int32", "bool", "complex64"])
def test_a_single_value_of_another_dtype(target: str, source: str, key: Any) -> None:
    """One mask takes it, like masked_fill; other indices want the dtype of the target."""
    for shape in ((), (1,), (1, 1)):
        results = []
        for system in (torch, weft):
            x = system.zeros(3, 4, dtype=getattr(system, target))
            value = system.full(shape, 3, dtype=getattr(system, source))
            try:
                x[for_system(key, system)] = value
            except (RuntimeError, IndexError) as error:
                results.append(type(error))
            else:
                results.append(x.tolist())
        assert results[0] == results[1]


def test_values_from_the_tensor_itself() -> None:
    for system in (weft, torch):
        x = system.arange(6.0)
        x[1:] = x[:-1].clone()
        x[system.tensor([0, 1, 2])] = x[3:].clone()
        assert x.tolist() == [2.0, 3.0, 4.0, 2.0, 3.0, 4.0]


def test_versions_count_writes_by_index() -> None:
    for system in (weft, torch):
        x = system.zeros(3)
        x[0] = 1
        x[system.tensor([1])] = 2
        x.index_fill_(0, system.tensor([2]), 3.0)
        x.masked_fill_(x > 2, 4.0)
        assert x._version == 4
        assert x.tolist() == [1.0, 2.0, 4.0]
