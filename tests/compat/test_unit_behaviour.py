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


# --- shapes and indices ----------------------------------------------------------------


def test_an_index_that_does_not_fit_is_told_in_terms_of_tensors():
    x = weft.zeros(2, 3)
    two, three = weft.tensor([0, 1]), weft.tensor([0, 1, 2])
    bounds = "index 5 is out of bounds for dimension 1 with size 3"
    raises(bounds, lambda: x[:, 5], kind=IndexError)
    raises("too many indices for tensor of dimension 2", lambda: x[0, 0, 0], kind=IndexError)
    words = "shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]"
    raises(words, lambda: x[two, three], kind=IndexError)
    raises(words, x.index_put_, (two, three), weft.ones(7), kind=IndexError)
    raises("for dimension with size 0", lambda: weft.empty(10, 0)[:, [1, 2]], kind=IndexError)
    words = "shape mismatch: value tensor of shape [7] cannot be broadcast to indexing result of "
    raises(words + "shape [1, 3]", x.index_put_, (weft.tensor([1]),), weft.ones(7))
    raises("The size of tensor a (3) must match", lambda: x + weft.zeros(4))
    assert x.eq(0).all()


def test_swapaxes_takes_numpy_names():
    x = weft.arange(6).view(2, 3)
    assert weft.swapaxes(x, axis0=0, axis1=1).tolist() == x.T.tolist()
    assert x.swapaxes(axis0=0, axis1=-1).data_ptr() == x.data_ptr()
    assert weft.swapdims(x, dim0=0, dim1=1).shape == (3, 2)
    y = x.clone()
    assert y.swapaxes_(0, 1) is y and y.shape == (3, 2)


def test_movedim_names_the_argument_that_repeats_a_dim():
    x = weft.zeros(2, 3)
    raises("movedim: repeated dim in `source` ([0, 0])", weft.movedim, x, (0, -2), (0, 1))
    raises("movedim: repeated dim in `destination` ([0, 0])", weft.movedim, x, (0, 1), (0, 0))
    words = "source ([0, 1] dims) should contain the same number of dims as destination ([0] dims)"
    raises(words, weft.movedim, x, (0, 1), (0,))
    assert weft.movedim(weft.zeros(2, 3, 4), (0, 1), (-1, 0)).shape == (3, 4, 2)


def test_unflatten_says_what_does_not_multiply_up():
    x = weft.zeros(2, 3)
    words = "Provided sizes [3, 2] don't multiply up to the size of dim 0 (2) in the input tensor"
    raises(words, x.unflatten, 0, (3, 2))
    raises("argument 'dim' must be int, not str", x.unflatten, "A", (2, 1), kind=TypeError)
    assert x.unflatten(1, (-1, 1)).shape == (2, 3, 1)


def test_broadcast_shapes_refuses_what_is_no_shape():
    words = "Input shapes should be of type ints, a tuple of ints, or a list of ints, got 1.1"
    raises(words, weft.broadcast_shapes, (2,), 1.1)
    raises("negative length", weft.broadcast_shapes, (-1, 1), kind=ValueError)
    assert weft.broadcast_shapes((2, 1), 3, [1]) == (2, 3)


def test_tensor_split_says_what_its_argument_lacks():
    x = weft.zeros(4)
    raises("but got a tensor with 0 dims", weft.tensor_split, weft.tensor(1), 2)
    raises("one-dimensional tensor, but got a tensor with 2 dims", x.tensor_split, weft.ones(1, 1))
    raises("to have dtype of long, but got Float", x.tensor_split, weft.ones(1))


def test_diff_refuses_borders_of_another_shape():
    x = weft.zeros(2, 3)
    words = "diff expects prepend or append to be the same dimension as input"
    raises(words, weft.diff, x, prepend=weft.zeros(2))
    words = "input.size(0) = 2, but got tensor.size(0) = 3"
    raises(words, weft.diff, x, append=weft.zeros(3, 1))
    assert weft.diff(x, prepend=weft.ones(2, 2)).shape == (2, 4)


def test_bincount_has_no_kernel_for_floats():
    words = "\"bincount_cpu\" not implemented for 'Float'"
    raises(words, weft.bincount, weft.ones(2), kind=NotImplementedError)
    raises("1-d non-negative integral inputs.", weft.bincount, weft.tensor([-1]))


def test_data_can_not_be_deleted():
    x = weft.ones(2)
    with pytest.raises(RuntimeError, match="Delete tensor instead"):
        del x.data
    raises("<class 'str'>.", lambda: "a" in x)


# --- derivatives -----------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
@pytest.mark.parametrize("function", [weft.scatter_reduce, weft.index_reduce])
def test_second_derivative_of_a_scattered_product_with_zeros(function, zeros):
    values = [0.0] * zeros + [2.0, 3.0, 5.0][zeros:]
    source = weft.tensor(values, dtype=weft.float64, requires_grad=True)
    start = weft.tensor([7.0, 1.0], dtype=weft.float64, requires_grad=True)
    index = weft.tensor([0, 0, 0])
    product = function(start, 0, index, source, "prod")[0]
    grads = weft.autograd.grad(product, (start, source), create_graph=True)
    first, second = weft.tensor([2.0, 3.0]), weft.tensor([1.0, 5.0, 11.0])
    total = (grads[0] * first).sum() + (grads[1] * second).sum()
    plain = start[0] * source[0] * source[1] * source[2]
    wanted = weft.autograd.grad(plain, (start, source), create_graph=True)
    same = (wanted[0] * first).sum() + (wanted[1] * second).sum()
    assert grads[1].tolist() == wanted[1].tolist()
    for a, b in zip(
        weft.autograd.grad(total, (start, source)),
        weft.autograd.grad(same, (start, source)),
        strict=True,
    ):
        assert a.tolist() == pytest.approx(b.tolist())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.unique(),
        lambda x: weft.unique(x, dim=0, return_inverse=True, return_counts=True),
        lambda x: weft.unique_consecutive(x, return_counts=True),
        lambda x: weft.heaviside(x, x.detach()),
        lambda x: weft.heaviside(x.detach(), x),
        lambda x: weft.geqrf(x[:4].view(2, 2)),
        lambda x: weft.linalg.ldl_factor(x[:4].view(2, 2)),
    ],
)
def test_what_has_no_derivative_refuses_backward_instead_of_cutting_the_graph(function):
    x = weft.tensor([1.0, 2.0, 2.0, 5.0], requires_grad=True)
    found = function(x)
    first, *rest = found if isinstance(found, tuple) else (found,)
    assert first.requires_grad
    assert not any(r.requires_grad for r in rest if not r.is_floating_point())
    with pytest.raises(NotImplementedError, match=r"the derivative for .* is not implemented"):
        first.sum().backward()
    with weft.no_grad():
        assert weft.equal(function(x)[0], found[0])


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
