"""The printed form of tensors, against literal strings and against PyTorch itself."""

import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core import printing
from weft.core.printing import format_scalar, format_tensor

NAN, INF = math.nan, math.inf

NUMPY_DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "complex64": np.dtype(np.complex64),
    "complex128": np.dtype(np.complex128),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
# PyTorch does not read these NumPy dtypes, so their bits travel as integers.
BIT_CARRIERS = {"bfloat16": np.int16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}
FLOATING = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return pytest.importorskip("torch")


@contextmanager
def same_options(torch: ModuleType, **kwargs: Any) -> Iterator[None]:
    """Set the same options here and in PyTorch for a while."""
    with torch._tensor_str.printoptions(**kwargs), printing.printoptions(**kwargs):
        yield


def show(array: np.ndarray, dtype_name: str | None = None, **kwargs: Any) -> str:
    return format_tensor(array, dtype_name=dtype_name or array.dtype.name, **kwargs)


def to_torch(torch: ModuleType, array: np.ndarray, dtype_name: str) -> Any:
    if dtype_name not in BIT_CARRIERS:
        return torch.from_numpy(array)
    bits = torch.from_numpy(array.view(BIT_CARRIERS[dtype_name]))
    return bits.view(getattr(torch, dtype_name))


def check(torch: ModuleType, array: np.ndarray, **kwargs: Any) -> None:
    dtype_name = array.dtype.name
    expected = repr(to_torch(torch, array, dtype_name))
    assert format_tensor(array, dtype_name=dtype_name, **kwargs) == expected


def cast(values: Any, dtype_name: str) -> np.ndarray:
    """Cast without complaint about values the dtype cannot hold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(np.asarray(values).astype(NUMPY_DTYPES[dtype_name]))


# Literal strings, which need no PyTorch.


def test_literal_matrix_with_suffixes() -> None:
    text = show(np.array([[1.0, 2.0], [3.0, 4.0]]), grad_fn_name="MulBackward0")
    assert text == (
        "tensor([[1., 2.],\n        [3., 4.]], dtype=torch.float64, grad_fn=<MulBackward0>)"
    )


@pytest.mark.parametrize(
    ("values", "dtype_name", "expected"),
    [
        (1.5, "float32", "tensor(1.5000)"),
        (3, "int64", "tensor(3)"),
        (True, "bool", "tensor(True)"),
        ([True, False], "bool", "tensor([ True, False])"),
        ([1, -20], "int32", "tensor([  1, -20], dtype=torch.int32)"),
        ([0.1, 3.3], "bfloat16", "tensor([0.1001, 3.2969], dtype=torch.bfloat16)"),
        ([1.5, -INF, NAN], "float32", "tensor([1.5000,   -inf,    nan])"),
        ([NAN, 1e9], "float32", "tensor([       nan, 1.0000e+09])"),
        ([-0.0, 0.0], "float32", "tensor([-0., 0.])"),
        ([1.0, 1000.0], "float32", "tensor([   1., 1000.])"),
        ([1.0, 1001.0], "float32", "tensor([1.0000e+00, 1.0010e+03])"),
        ([1 + 2j, -3 - 4j], "complex64", "tensor([ 1.+2.j, -3.-4.j])"),
        ([], "float32", "tensor([])"),
        ([], "int64", "tensor([], dtype=torch.int64)"),
    ],
)
def test_literal_values(values: Any, dtype_name: str, expected: str) -> None:
    assert show(cast(values, dtype_name), dtype_name) == expected


def test_literal_empty_shape() -> None:
    assert show(np.zeros((0, 3), np.float32)) == "tensor([], size=(0, 3))"


def test_literal_summary() -> None:
    assert show(np.zeros(1001, np.float32)) == "tensor([0., 0., 0.,  ..., 0., 0., 0.])"


def test_literal_requires_grad() -> None:
    assert show(np.float32(1.5), requires_grad=True) == "tensor(1.5000, requires_grad=True)"


def test_prefix_sets_the_indent_and_suffixes_come_last() -> None:
    text = show(np.ones((2, 1), np.float32), prefix="Mine(", suffixes=["a=1", "b=2"])
    assert text == "Mine([[1.],\n      [1.]], a=1, b=2)"


def test_format_scalar() -> None:
    assert format_scalar(np.array(1.234, np.float32), ".2f") == "1.23"
    assert format_scalar(np.array(3), ">4") == "   3"
    assert format_scalar(np.array(True)) == "True"
    assert format_scalar(np.array(1 + 2j, np.complex64)) == "(1+2j)"
    assert format_scalar(np.array(0.1, ml_dtypes.bfloat16), ".4f") == "0.1001"
    with pytest.raises(ValueError, match="Unknown format code"):
        format_scalar(np.array(1.5), "d")


def test_options_profiles_and_context() -> None:
    default = printing.get_printoptions()
    with printing.printoptions(profile="short", linewidth=50):
        assert printing.get_printoptions() == {
            "precision": 2,
            "threshold": 1000,
            "edgeitems": 2,
            "linewidth": 50,
            "sci_mode": None,
        }
        with printing.printoptions(profile="full", sci_mode=True):
            assert printing.get_printoptions()["threshold"] == INF
            printing.set_printoptions(precision=7)
            assert printing.get_printoptions()["sci_mode"] is None
        assert printing.get_printoptions()["precision"] == 2
    assert printing.get_printoptions() == default


def test_options_are_restored_after_an_error() -> None:
    default = printing.get_printoptions()
    with pytest.raises(RuntimeError), printing.printoptions(precision=1):
        raise RuntimeError
    with pytest.raises(TypeError), printing.printoptions(colour="red"):
        pass
    assert printing.get_printoptions() == default


def test_large_arrays_are_not_formatted_in_full() -> None:
    # A trillion entries that share one number: only a summary can ever finish.
    text = show(np.broadcast_to(np.float32(1.5), (10**6, 10**6)))
    assert text.count("1.5000") == 36


def test_signalling_nan_prints_without_warnings() -> None:
    array = np.array([0x7F800001], np.uint32).view(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert show(array) == "tensor([nan])"


# Comparisons with PyTorch.

HAND_MADE = [
    [1.0, NAN],
    [1.0, INF, -INF],
    [NAN],
    [-INF, 0.0],
    [123456.0, NAN, -INF],
    [-0.0, 0.0, 1.5],
    [1e-4, 1.0],
    [1e-4],
    [np.nextafter(1e-4, 0)],
    [9e-5, -1.0],
    [1e-3, 1.0],
    [1e-3, 1.001],
    [1e-3, np.nextafter(1.0, 2)],
    [1.0, 1000.0],
    [1.0, 1001.0],
    [1e8],
    [1e8 + 8],
    [1.5, 1e8],
    [99999999.5],
    [-1e9, 0.0],
    [1e-10, 1e10],
    [1e-40, 1.0],
    [5e-324, 1.7e308],
    [0.5, 1.5, 2.5],
    [9.99999, 0.99999],
]


@pytest.mark.parametrize("sci_mode", [None, True, False])
@pytest.mark.parametrize("dtype_name", FLOATING)
def test_hand_made_floats(torch: ModuleType, dtype_name: str, sci_mode: bool | None) -> None:
    with same_options(torch, sci_mode=sci_mode):
        for values in HAND_MADE:
            array = cast(values, dtype_name)
            check(torch, array)
            check(torch, array[:1].reshape(()))
            check(torch, array.reshape(1, -1, 1))


def test_hand_made_complex(torch: ModuleType) -> None:
    parts = [0.0, -0.0, 1.0, -2.5, 1e9, 1e-9, NAN, INF, -INF]
    for real in parts:
        for imag in parts:
            check(torch, np.array([complex(real, imag), 1 + 1j, 2]))
            check(torch, np.array(complex(real, imag), np.complex64))


@pytest.mark.parametrize("dtype_name", list(NUMPY_DTYPES))
def test_shapes(torch: ModuleType, dtype_name: str) -> None:
    shapes = [(), (0,), (1,), (0, 3), (2, 0, 3), (1, 1), (3, 40), (2, 3, 4), (2, 1, 2, 3)]
    shapes += [(1, 1, 1, 1, 2), (1001,), (1000,), (40, 40), (11, 10, 10), (1, 1001), (1001, 1)]
    for shape in shapes:
        size = math.prod(shape)
        check(torch, cast(np.arange(size).reshape(shape) % 120, dtype_name))
        check(torch, cast(np.zeros(shape), dtype_name))


def test_integer_limits(torch: ModuleType) -> None:
    for dtype in NUMPY_DTYPES.values():
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            check(torch, np.array([limits.min, 1, limits.max], dtype))


def test_strided_views(torch: ModuleType) -> None:
    base = np.random.default_rng(1).standard_normal((60, 50))
    for array in (base.T, base[::2, ::3], base[:, 0], np.broadcast_to(base[0].copy(), (30, 50))):
        expected = repr(torch.from_numpy(np.array(array)))
        assert show(array) == expected


@pytest.mark.parametrize("default", ["float16", "bfloat16", "float32", "float64"])
def test_dtype_is_shown_by_default_dtype(torch: ModuleType, default: str) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, default))
    try:
        for dtype_name in NUMPY_DTYPES:
            for shape in [(), (1,), (0,), (2, 0)]:
                check(torch, cast(np.ones(shape), dtype_name), default_dtype_name=default)
    finally:
        torch.set_default_dtype(before)


def test_suffix_wrapping(torch: ModuleType) -> None:
    for length in [0, 1, 3, 20]:
        array = np.arange(float(length))
        leaf = torch.from_numpy(array).requires_grad_()
        result = leaf * 1
        for linewidth in range(1, 120):
            with same_options(torch, linewidth=linewidth):
                assert show(array, requires_grad=True) == repr(leaf)
                text = show(array, requires_grad=True, grad_fn_name="MulBackward0")
                assert text == repr(result)


def test_subclass_prefix(torch: ModuleType) -> None:
    class LongerName(torch.Tensor):
        pass

    array = np.arange(60, dtype=np.float32).reshape(2, 30)
    expected = repr(torch.from_numpy(array).as_subclass(LongerName))
    assert show(array, prefix="LongerName(") == expected


def test_options_follow_pytorch(torch: ModuleType) -> None:
    calls: list[dict[str, Any]] = [
        {"profile": "short"},
        {"profile": "full", "precision": 6},
        {"profile": "unknown", "edgeitems": 5},
        {"profile": "FULL"},
        {"sci_mode": True},
        {"linewidth": 100, "threshold": 3},
        {"profile": "default"},
    ]
    with same_options(torch):
        for kwargs in calls:
            torch.set_printoptions(**kwargs)
            printing.set_printoptions(**kwargs)
            assert printing.get_printoptions() == torch._tensor_str.get_printoptions()


def test_format_scalar_follows_pytorch(torch: ModuleType) -> None:
    for dtype_name in NUMPY_DTYPES:
        array = cast(1.1, dtype_name)
        for spec in ["", ".3f", ">12", "+.2e"]:
            expected = format(to_torch(torch, array, dtype_name), spec)
            assert format_scalar(array, spec) == expected


# Arrays and options made by Hypothesis.

SHAPES = st.one_of(
    st.just(()),
    st.tuples(st.integers(0, 50)),
    st.tuples(st.integers(0, 8), st.integers(0, 40)),
    st.lists(st.integers(1, 5), min_size=3, max_size=4).map(tuple),
)

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "precision": st.integers(0, 9),
        "threshold": st.integers(0, 40),
        "edgeitems": st.integers(0, 4),
        "linewidth": st.integers(1, 130),
        "profile": st.sampled_from(["default", "short", "full"]),
        "sci_mode": st.sampled_from([None, True, False]),
    },
)


@st.composite
def real_values(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """Draw numbers of mixed magnitude, with some special values among them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    low, high = sorted((draw(st.integers(-10, 10)), draw(st.integers(-10, 10))))
    values = rng.standard_normal(shape) * 10.0 ** rng.uniform(low, high, shape)
    if draw(st.booleans()):
        values = np.round(values)
    if draw(st.booleans()):
        values = np.abs(values)
    specials = draw(st.lists(st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1e8, 1e-4]), max_size=3))
    if specials:
        chosen = rng.random(shape) < draw(st.sampled_from([0.1, 0.5, 1.0]))
        values = np.where(chosen, rng.choice(specials, shape), values)
    return np.asarray(values)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Draw an array of any supported dtype."""
    shape = draw(SHAPES)
    dtype_name = draw(st.sampled_from(list(NUMPY_DTYPES)))
    values = draw(real_values(shape))
    if dtype_name.startswith("complex"):
        pairs = np.empty(shape, np.complex128)
        pairs.real, pairs.imag = values, draw(real_values(shape))
        return cast(pairs, dtype_name)
    return cast(values, dtype_name)


@settings(max_examples=300, deadline=None, database=None)
@given(array=arrays())
def test_any_array(torch: ModuleType, array: np.ndarray) -> None:
    check(torch, array)


@settings(max_examples=300, deadline=None, database=None)
@given(array=arrays(), options=OPTIONS)
def test_any_array_with_any_options(
    torch: ModuleType, array: np.ndarray, options: dict[str, Any]
) -> None:
    with same_options(torch, **options):
        check(torch, array)


@settings(max_examples=200, deadline=None, database=None)
@given(values=st.lists(st.floats(), min_size=1, max_size=12), single=st.booleans())
def test_any_floats(torch: ModuleType, values: list[float], single: bool) -> None:
    check(torch, cast(values, "float32" if single else "float64"))


@settings(max_examples=100, deadline=None, database=None)
@given(array=arrays(), options=OPTIONS, with_function=st.booleans())
def test_any_array_with_gradient(
    torch: ModuleType, array: np.ndarray, options: dict[str, Any], with_function: bool
) -> None:
    if array.dtype.name not in FLOATING:
        array = cast(array.astype(np.float32), "float32")
    tensor = to_torch(torch, array, array.dtype.name).requires_grad_()
    name = None
    if with_function:
        tensor = tensor.clone()
        name = "CloneBackward0"
    with same_options(torch, **options):
        text = show(array, requires_grad=True, grad_fn_name=name)
        assert text == repr(tensor)


def test_no_line_is_wider_than_needed() -> None:
    text = show(np.linspace(0.001, 0.999, 200))
    assert all(len(line) <= 80 for line in text.split("\n"))
    assert len(re.findall(r"0\.\d{4}", text)) == 200
