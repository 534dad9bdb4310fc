"""Single behaviours that PyTorch's documentation and its unit tests describe."""

from __future__ import annotations

import pytest

import weft
from weft.testing import make_tensor


def raises(text: str, function, *args, kind: type[Exception] = RuntimeError, **kwargs) -> None:
    """Calling the function raises an error with these words in it."""
    with pytest.raises(kind) as caught:
        function(*args, **kwargs)
    assert text in str(caught.value)


# --- joining ---------------------------------------------------------------------------


def test_joining_tensors_that_do_not_fit_names_the_dimension_and_the_tensor():
    words = "Sizes of tensors must match except in dimension 1. Expected size 2 but got size 3 for "
    raises(
        words + "tensor number 2 in the list.",
        weft.cat,
        [weft.zeros(2, 3), weft.zeros(0), weft.zeros(3, 2)],
        1,
    )
    raises(words + "tensor number 1", weft.hstack, [weft.zeros(2, 3), weft.zeros(3, 3)])
    rank = "Tensors must have same number of dimensions: got 2 and 3"
    raises(rank, weft.cat, [weft.zeros(2, 3), weft.zeros(2, 3, 4)], -1)
    raises("torch.cat(): expected a non-empty list of Tensors", weft.cat, [], kind=ValueError)


def test_an_error_inside_cat_that_is_not_about_sizes_stays_what_it_is():
    raises("zero-dimensional tensor (at position 0)", weft.cat, [weft.zeros(()), weft.zeros(2)])
    with pytest.raises(IndexError):
        weft.cat([weft.zeros(2), weft.zeros(2)], 3)


# --- dtypes that do not fit ------------------------------------------------------------


def test_subtracting_masks_says_what_to_use_instead():
    mask, numbers = weft.ones(2, dtype=weft.bool), weft.ones(2, dtype=weft.int8)
    start = "Subtraction, the `-` operator, with "
    two = start + "two bool tensors is not supported. Use the `^` or `logical_xor()` operator "
    one = start + "a bool tensor is not supported. If you are trying to invert a mask, use the "
    raises(two + "instead.", weft.sub, mask, mask)
    raises(two + "instead.", lambda: mask - True)
    raises(one + "`~` or `logical_not()` operator instead.", lambda: mask - numbers)


def test_a_boolean_alpha_needs_a_boolean_result():
    numbers = weft.ones(2, dtype=weft.int8)
    words = "Boolean alpha only supported for Boolean results."
    raises(words, weft.add, numbers, numbers, alpha=True)


@pytest.mark.parametrize(
    ("dtype", "exponent", "has", "requires"),
    [
        ("int64", 2, "Long", "Double"),
        ("float32", 2.0, "Float", "Double"),
        ("float64", 2j, "Double", "ComplexDouble"),
    ],
)
def test_float_power_in_place_names_the_dtype_that_it_requires(dtype, exponent, has, requires):
    base = weft.ones(2, dtype=getattr(weft, dtype))
    words = f"the base given to float_power_ has dtype {has} but the operation's result requires "
    raises(words + f"dtype {requires}", base.float_power_, exponent)
    assert base.eq(1).all()


def test_heaviside_refuses_complex_results_as_such():
    x = weft.ones(2)
    words = "heaviside is not yet implemented for complex tensors."
    raises(words, weft.heaviside, x, x, out=weft.empty(2, dtype=weft.complex64))
    raises("tensors with different dtypes.", weft.heaviside, x, x.double())


@pytest.mark.parametrize("function", [weft.polar, weft.complex])
def test_parts_of_complex_numbers_are_of_one_floating_dtype(function):
    x = weft.ones(2)
    both = "Expected both inputs to be Half, Float or Double tensors but got Bool and Bool"
    raises(both, function, x.bool(), x.bool())
    second = "Expected object of scalar type Float but got scalar type Double for second argument"
    raises(second, function, x, x.double())


@pytest.mark.parametrize(
    ("function", "dtypes", "words"),
    [
        ("mode", ("float32", "int8"), "expected scalar type 'Long' but got 'Char' for indices"),
        ("mode", ("int8", "int64"), "expected scalar type 'Float' but got 'Char' for values"),
        ("frexp", ("float64", "int32"), "expects mantissa to have dtype float but got double"),
        ("frexp", ("float32", "float64"), "expects exponent to have int dtype but got double"),
    ],
)
def test_the_message_names_which_of_several_outputs_is_wrong(function, dtypes, words):
    out = tuple(weft.empty(0, dtype=getattr(weft, d)) for d in dtypes)
    raises(words, getattr(weft, function), weft.ones(3), out=out)


def test_histogram_names_which_of_its_tensors_is_wrong():
    x = weft.ones(3)
    out = (weft.empty(0), weft.empty(0, dtype=weft.float64))
    words = "input tensor and bin_edges tensor should have the same dtype, but got input float"
    raises(words, weft.histogram, x, 4, out=out)
    words = "got input with dtype float and bins for dimension 0 with dtype double"
    raises(words, weft.histogram, x, x.double())
    nan = weft.tensor([1.0, float("nan")])
    raises("dimension 0's range [nan, nan] is not finite", weft.histogram, nan, 4)
    raises("torch.histc: range of [nan, nan] is not finite", weft.histc, nan, 4)


def test_settings_refuse_what_is_not_their_type():
    words = "argument 'mode' (position 1) must be bool, not int"
    raises(words, weft.use_deterministic_algorithms, 1, kind=TypeError)
    raises("setWarnOnlyOnce expects a bool, but got int", weft.set_warn_always, 1)
    level = weft.set_deterministic_debug_mode
    raises("debug_mode must be str or int", level, 1.5, kind=TypeError)
    raises("expected one of `default`, `warn`, `error`, but got x", level, "x")
    raises("expected 0, 1, or 2, but got 5", level, 5)


# --- make_tensor -----------------------------------------------------------------------


def test_make_tensor_of_one_value_warns_and_gives_it():
    for dtype, value in ((weft.float32, 3.5), (weft.complex64, 3.5 + 3.5j)):
        with pytest.warns(FutureWarning, match="low==high"):
            x = make_tensor(3, dtype=dtype, device="cpu", low=3.5, high=3.5)
        assert x.tolist() == [value] * 3
    raises(
        "`low` must be less than `high`",
        make_tensor, 3, dtype=weft.int64, device="cpu", low=3, high=3, kind=ValueError,
    )  # fmt: skip


def test_make_tensor_keeps_to_what_the_dtype_holds():
    raises(
        "but torch.bool only supports [0, 2)",
        make_tensor, 3, dtype=weft.bool, device="cpu", low=2, high=4, kind=ValueError,
    )  # fmt: skip
    everything = {"low": -float("inf"), "high": float("inf")}
    x = make_tensor(2000, dtype=weft.int8, device="cpu", **everything)
    assert (int(x.min()), int(x.max())) == (-128, 127)
    y = make_tensor(50, dtype=weft.float32, device="cpu", **everything)
    assert y.isfinite().all() and y.min() < 0 < y.max()
    assert make_tensor(50, dtype=weft.int64, device="cpu", low=0.5, high=2.5).min() == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int64", "uint8", "bool"])
@pytest.mark.parametrize(
    "options",
    [
        {"noncontiguous": True},
        {"high": float("inf")},
        {"low": 0.5, "high": 2.5},
        {"exclude_zero": True},
    ],
)
def test_make_tensor_draws_as_pytorch_does(dtype, options):
    torch = pytest.importorskip("torch")
    made = []
    for lib in (torch, weft):
        lib.manual_seed(3)
        made.append(
            lib.testing.make_tensor(3, 5, dtype=getattr(lib, dtype), device="cpu", **options)
        )
    assert made[0].tolist() == made[1].tolist()
    assert made[0].stride() == made[1].stride()
