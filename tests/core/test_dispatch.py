"""Every path through dispatch gives the same: values, types, memory order, versions, graph, errors.

Which path a call takes depends on its operands and on what ran before. The tests here take the
paths of Python's code and those of native code (``any_code``), on small and on large arrays.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from side_by_side import needs_torch, torch
from weft.core import selection
from weft.core.dispatch import REGISTRY

LARGE = selection.LARGE


def identity(x: Any) -> Any:
    return x


@pytest.fixture(params=["python", "native", "special"])
def any_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """Python's code alone, or native code where there is, or Python's code for special modes."""
    weft.backends.native.set("native" if request.param == "native" else "numpy")
    with contextlib.ExitStack() as modes:
        if request.param == "special":
            modes.enter_context(weft.autograd.graph.saved_tensors_hooks(identity, identity))
        yield
    weft.backends.native.set("native")


# ------------------------------------------------------------------ ops as objects


def test_an_op_is_one_of_a_kind() -> None:
    op = REGISTRY["exp"]
    assert copy.deepcopy(op) is op and copy.deepcopy([op])[0] is op
    assert repr(op) == "<op exp>"


def test_other_operands_than_a_ufunc_has_are_refused() -> None:
    # NumPy would take one more array for the place of the result, and ``where`` for a mask.
    x, y = np.ones(3), np.zeros(3)
    for args, attrs in (((x, y), {}), ((x,), {"where": False}), ((x,), {"out": y}), ((), {})):
        with pytest.raises(TypeError, match="exp: expected 1 operands, got"):
            REGISTRY["exp"](*args, **attrs)
    with pytest.raises(TypeError, match="mul: expected 2 operands, got 1"):
        REGISTRY["mul"](weft.ones(3))
    assert not y.any()


def test_results_of_scalars_are_arrays_of_their_type() -> None:
    for x in (np.float32(2.0), np.float64(2.0)):
        y = REGISTRY["mul"](x, np.ones((), x.dtype))
        assert np.asarray(y).dtype == x.dtype


@needs_torch
@pytest.mark.parametrize("lib", [weft, torch], ids=["weft", "torch"])
def test_names_of_nodes_without_a_number(lib: Any) -> None:
    x = lib.ones(3, requires_grad=True)
    assert lib.zeros(3).copy_(x).grad_fn.name().endswith("CopyBackwards")
    y = lib.zeros(3)
    y[:2].copy_(x[:2])
    assert y.grad_fn.name().endswith("CopySlices") and x.exp().grad_fn.name() == "ExpBackward0"
    assert type((x + x).grad_fn).__name__ == "AddBackward0"


# ------------------------------------------------------------------ large arrays as small ones


PAIRS = list(itertools.combinations_with_replacement(
    ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64"), 2
))  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "maximum": lambda a, b: weft.maximum(a, b),
    "lerp": lambda a, b: weft.lerp(a, b, 0.3) if a.dtype == b.dtype and a.dtype.is_floating_point
    else a * b,
}  # fmt: skip


def repeated(x: Any, size: int) -> Any:
    return x.repeat(size // x.numel())


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("one, other", PAIRS)
def test_large_operands_of_two_types_give_what_small_ones_give(
    name: str, one: str, other: str
) -> None:
    a = weft.tensor([0.0, 1.0, 3.0, 5.0]).to(getattr(weft, one))
    b = weft.tensor([1.0, 1.0, 2.0, 7.0]).to(getattr(weft, other))
    for x, y in ((a, b), (b, a)):
        small = BINARY[name](x, y)
        large = BINARY[name](repeated(x, LARGE), repeated(y, LARGE))
        assert large.dtype is small.dtype
        assert weft.equal(large, repeated(small, LARGE))


NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, n: x + n,
    "subtract from": lambda x, n: n - x,
    "mul": lambda x, n: x * n,
    "divide": lambda x, n: n / x,
    "pow": lambda x, n: x**n,
    "power": lambda x, n: n**x,
    "lerp": lambda x, n: weft.lerp(x, -x, n),
    "clamp": lambda x, n: x.clamp(max=n),
    "floor": lambda x, n: weft.div(x, n, rounding_mode="floor"),
    "trunc": lambda x, n: weft.div(x * 90, n, rounding_mode="trunc"),
    "greater": lambda x, n: x > n,
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_number_beside_a_large_operand_counts_as_beside_a_small_one(
    name: str, dtype: str
) -> None:
    x = weft.tensor([0.1, 1.0, 2.7, 500.0]).to(getattr(weft, dtype))
    for number in (0.1, 2.0, 3, 1.003):
        small = NUMBERS[name](x, number)
        large = NUMBERS[name](repeated(x, LARGE), number)
        assert large.dtype is small.dtype
        tolerance = 2e-6 if dtype in ("float32", "float64") else 0.0
        assert weft.allclose(large, repeated(small, LARGE), rtol=tolerance, atol=0.0)


# ------------------------------------------------------------------ memory order


@needs_torch
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 2, 4, 5)])
def test_channels_stay_innermost(any_code: None, shape: tuple[int, ...]) -> None:
    def strides(lib: Any) -> Any:
        order = lib.channels_last if len(shape) == 4 else lib.channels_last_3d
        x = lib.arange(float(np.prod(shape))).reshape(shape).contiguous(memory_format=order)
        found = [x.softmax(1), lib.cat([x, x], 1), x.roll(1, 2), lib.stack([x, x])]
        found.append(lib.nn.functional.batch_norm(x, None, None, training=True))
        return [y.stride() for y in found], [y.is_contiguous() for y in found]

    assert strides(weft) == strides(torch)


@needs_torch
def test_the_first_input_of_a_pool_decides(any_code: None) -> None:
    def strides(lib: Any) -> Any:
        x = lib.arange(96.0).reshape(2, 3, 4, 4)
        y, i = lib.nn.functional.max_pool2d(x, 2, return_indices=True)
        last = lib.channels_last
        pairs = ((y, i.contiguous(memory_format=last)), (y.contiguous(memory_format=last), i))
        return [lib.nn.functional.max_unpool2d(*pair, 2).stride() for pair in pairs]

    assert strides(weft) == strides(torch)


@needs_torch
def test_results_of_permuted_operands_beside_a_meta_tensor(any_code: None) -> None:
    def strides(lib: Any) -> Any:
        elsewhere = lib.ones(2, device="meta")  # while there is one dispatch looks for others
        x = lib.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
        found = (x + x, x * 2, x.exp(), x.sum(0), lib.where(x > 2, x, -x), x.cumsum(0))
        assert elsewhere.device.type == "meta"
        return [y.stride() for y in found]

    assert strides(weft) == strides(torch)


def test_elementwise_ops_keep_the_order_of_their_operand(any_code: None) -> None:
    """Whatever order their references work in."""
    x = (weft.arange(24.0).reshape(2, 3, 4) / 25 + 0.01).permute(2, 0, 1)
    gaps = weft.ones(6, 4, 3).permute(1, 0, 2)[:, ::2]
    tried = 0
    for op in REGISTRY.values():
        plain = op.layout_rule == "operands" and op.names == ("x",) and op.samples
        if plain and not attributes_of(op):
            tried += 1
            assert op(x).stride() == x.stride(), op.name
            assert op(gaps).stride() == weft.exp(gaps).stride(), op.name
    assert tried > 20


def test_results_in_rows_of_a_reference_that_works_backwards(any_code: None) -> None:
    x = weft.ones(3, 2, requires_grad=True)
    assert REGISTRY["cumsum"](x, dim=0, reverse=True).is_contiguous()
    (g,) = weft.autograd.grad(x.cumsum(0).sum(), x, create_graph=True)
    assert g.is_contiguous() and g.view(6).tolist() == [3.0, 3.0, 2.0, 2.0, 1.0, 1.0]


def attributes_of(op: Any) -> Any:
    """The attributes in an op's first sample."""
    return next(iter(op.samples(Real()))).attrs


class Real:
    """Makes operands of samples of which only the attributes are looked at."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: np.ones(3)


# ------------------------------------------------------------------ versions, views and recording


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "a function of one input": lambda x: x.softmax(0),
    "elementwise": lambda x: x.exp(),
    "two inputs": lambda x: x * x,
    "many inputs": lambda x: weft.cat([x, x]),
    "several results": lambda x: x.sort()[0],
    "another type": lambda x: x.to(weft.float64),
    "integers": lambda x: x.argmax(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_of_version_zero_and_count_from_there(any_code: None, name: str) -> None:
    y = FUNCTIONS[name](weft.ones(4))
    assert y._version == 0 and y._base is None and y.grad is None and y.is_leaf
    y.zero_()
    assert y._version == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_in_inference_mode(any_code: None, name: str) -> None:
    with weft.inference_mode():
        assert FUNCTIONS[name](weft.ones(4)).is_inference()
    assert not FUNCTIONS[name](weft.ones(4)).is_inference()


VIEWS: dict[str, Callable[[Any], Any]] = {
    "a view": lambda x: x.unsqueeze(0),
    "a part": lambda x: x[1:],
    "several views": lambda x: x.split(2)[1],
}
GRADIENTS = {name: f for name, f in FUNCTIONS.items() if name != "integers"} | VIEWS


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("recorded", [False, True])
def test_a_view_whose_base_was_changed(any_code: None, name: str, recorded: bool) -> None:
    weight = weft.full((3,), 2.0, requires_grad=True)
    base = weight * 1.0 if recorded else weft.ones(3)
    view = base[:]
    base.mul_(weight)  # what the view knew of the graph is out of date
    y = GRADIENTS[name](view)
    assert y.requires_grad
    scale = weft.arange(float(y.numel())).reshape(y.shape) + 1
    direct = GRADIENTS[name](weight * weight if recorded else weight * 1.0)
    (expected,) = weft.autograd.grad((direct * scale).sum(), weight)
    (found,) = weft.autograd.grad((y * scale).sum(), weight)
    assert weft.allclose(found, expected)


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_view_made_in_no_grad_follows_its_base(any_code: None, name: str) -> None:
    base = weft.ones(3, requires_grad=True)
    with weft.no_grad():
        view = base[:]
    assert view.requires_grad and GRADIENTS[name](view).requires_grad
    base.requires_grad_(False)
    assert not view.requires_grad and not GRADIENTS[name](view).requires_grad


OPERANDS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "exp": lambda lib, v, w: v.exp(),
    "a number": lambda lib, v, w: v * 2,
    "mul": lambda lib, v, w: v * w,
    "mul from the right": lambda lib, v, w: w * v,
    "itself twice": lambda lib, v, w: v * v,
    "add": lambda lib, v, w: v + w,
    "addcmul": lambda lib, v, w: lib.addcmul(v, w, v),
    "where": lambda lib, v, w: lib.where(w > 0, v, w),
    "lerp": lambda lib, v, w: lib.lerp(w, v, w),
    "cat": lambda lib, v, w: lib.cat([v, w]),
    "cat alone": lambda lib, v, w: lib.cat([v, v]),
    "sort": lambda lib, v, w: v.sort()[0],
    "a part": lambda lib, v, w: v[1:],
}


@needs_torch
@pytest.mark.parametrize("name", OPERANDS)
def test_operands_that_are_views_made_in_no_grad(any_code: None, name: str) -> None:
    def seen(lib: Any) -> Any:
        base, w = lib.ones(3, requires_grad=True), lib.full((3,), 2.0, requires_grad=True)
        with lib.no_grad():
            view = base[:]
        y = OPERANDS[name](lib, view, w)
        edges = [edge is None for edge, _ in y.grad_fn.next_functions] if y.grad_fn else None
        outcomes = []
        for _ in range(2):
            try:
                y.sum().backward()
                outcomes.append("done")
            except RuntimeError as error:
                outcomes.append("second time" in str(error))
        grads = [None if x.grad is None else x.grad.tolist() for x in (base, w)]
        return y.requires_grad, edges, outcomes, grads

    assert seen(weft) == seen(torch)


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "out": lambda lib, v: lib.add(lib.ones(3), 1, out=v),
    "normal_": lambda lib, v: v.normal_(),
    "uniform_": lambda lib, v: v.uniform_(),
    "random_": lambda lib, v: v.random_(),
    "fill_": lambda lib, v: v.fill_(1.0),
    "zero_": lambda lib, v: v.zero_(),
    "an item": lambda lib, v: v.__setitem__(0, 1.0),
    "mul_": lambda lib, v: v.mul_(2),
}


@needs_torch
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("grad", [True, False])
def test_changing_a_view_made_in_no_grad(any_code: None, name: str, grad: bool) -> None:
    def outcome(lib: Any) -> Any:
        base = lib.ones(3, requires_grad=grad)
        with lib.no_grad():
            view = base[:]
        try:
            CHANGES[name](lib, view)
        except RuntimeError:
            return "error"
        return view._version, base.requires_grad

    assert outcome(weft) == outcome(torch)


@pytest.mark.parametrize("name", ["a view", "a part"])
def test_a_view_of_a_view_made_in_no_grad_may_not_be_changed(any_code: None, name: str) -> None:
    base = weft.ones(3, requires_grad=True) * 1.0
    view = base[:]
    with weft.no_grad():
        inner = VIEWS[name](view)
    VIEWS[name](view).mul_(2)
    with pytest.raises(RuntimeError, match="no_grad"):
        inner.mul_(2)


def test_views_note_the_line_of_the_user(any_code: None) -> None:
    x = weft.ones(2, 3, requires_grad=True)

    def inner() -> list[Any]:
        return [x.unsqueeze(0), x[1:], x.t(), x.view(3, 2), x.softmax(1)]  # the line

    for _ in range(selection.OFTEN):
        found = inner()
    assert all("# the line" in y.grad_fn.source for y in found)


@pytest.mark.parametrize("counts", [(2, 3, 4, 1, 5), (5, 1, 4, 3, 2)])
def test_each_number_of_inputs_has_its_own_plan(any_code: None, counts: tuple[int, ...]) -> None:
    REGISTRY["cat"].plans.clear()
    for count, dtype in itertools.product(counts, (weft.complex64, weft.float32)):
        parts = [weft.ones(2, dtype=dtype, requires_grad=True) for _ in range(count)]
        weft.cat(parts).sum().abs().backward()
        for part in parts:
            assert part.grad is not None and (part.grad == 1).all()


# ------------------------------------------------------------------ errors


FAILING: dict[str, Callable[[Any], Any]] = {
    "one input": lambda x: x.softmax(7),
    "a view": lambda x: x.reshape(7, 9),
    "two inputs": lambda x: x @ weft.ones(5, 5),
    "several results": lambda x: x.sort(5),
    "many inputs": lambda x: weft.cat([x, weft.ones(2, 9)]),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_failed_call_names_the_line_and_leaves_warnings_as_they_were(
    any_code: None, name: str
) -> None:
    before = np.geterr()
    for grad in (False, True):
        with pytest.raises((RuntimeError, IndexError)) as caught:
            FAILING[name](weft.ones(2, 3, requires_grad=grad))
        assert "test_dispatch.py" in str(caught.value)
    assert np.geterr() == before
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.log(np.zeros(1))


def test_ops_are_silent_and_numpy_is_not(any_code: None) -> None:
    x = weft.tensor([0.0, -1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x.log()[0] == -float("inf") and (x / 0).isnan()[0]
        assert weft.tensor([float("inf"), 1.0]).softmax(0).isnan().all()
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.log(np.zeros(1))
