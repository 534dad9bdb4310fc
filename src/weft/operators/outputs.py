"""What ``out=`` does, for every function that takes it: check, resize, write.

The rules are PyTorch's, and so are the exceptions, which are listed by public name. All checks
come before the first byte is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.devices import address_of
from weft.core.dispatch import edge_of
from weft.core.dual import tangents_of
from weft.core.inference import check_change
from weft.core.inplace import check_overlap, is_dense, write
from weft.core.modes import MODES
from weft.core.pending import make_views, same_memory
from weft.core.short import PUT_INTO
from weft.core.tensor import Tensor, strided, wrap
from weft.native.memory.layout import dense_steps


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


C_NAMES = {
    "float32": "float",
    "float64": "double",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short int",
    "int32": "int",
    "int64": "long int",
}

# Functions whose result is not converted: what they say about ``out`` of another dtype. In the
# messages ``want`` and ``got`` are names such as Float, ``c_want`` and ``c_got`` such as float.
EXACT_MESSAGES = {
    "Expected out tensor to have dtype {c_want}, but got {c_got} instead": """
        addmm addmv alias_copy aminmax argmax argmin as_strided_copy baddbmm bmm cross diag
        diagonal_copy expand_copy gather index_add index_copy index_reduce index_select isin
        linalg.cholesky linalg.cholesky_ex linalg.cross linalg.det linalg.eigh linalg.eigvalsh
        linalg.inv linalg.inv_ex linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve
        linalg.lu linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve linalg.matmul
        linalg.matrix_power matrix_power linalg.qr linalg.slogdet linalg.solve linalg.solve_ex
        linalg.svd linalg.svdvals linalg.vector_norm log_softmax lu_solve lu_unpack matmul
        max.dim min.dim mm msort nn.functional.avg_pool2d nn.functional.avg_pool3d
        nn.functional.linear norm permute_copy qr renorm scatter scatter_add scatter_reduce
        slice_scatter softmax sort split_with_sizes_copy split_copy squeeze_copy svd t_copy
        take_along_dim topk transpose_copy triangular_solve tril triu unbind_copy unfold_copy
        unsqueeze_copy view_copy det slogdet inverse view_as_real_copy view_as_complex_copy
        detach_copy select_copy slice_copy""",
    "Found dtype {got} but expected {want}": """
        abs absolute ceil conj_physical floor frac neg negative nn.functional.gelu hardshrink
        nn.functional.softplus nn.functional.softshrink round sgn sign trunc fix bitwise_not""",
    "Expected object of scalar type {want} but got scalar type {got} for argument 'out'": """
        complex polar""",
    "expected scalar type {want} but found {got}": """
        linalg.solve_triangular native_batch_norm log_sigmoid""",
    "expected scalar_type {want} but found {got}": "cummax cummin logcumsumexp",
    "{name}: Expected out tensor to have scalar type {want} but got scalar type {got}": """
        nonzero nonzero_static""",
    "{name} expected out tensor dtype {want} but got: {got}": "linalg.matrix_norm linalg.norm",
    "{name}: Expected out of dtype {want} but found {got}": "linalg.vecdot",
    "Expected the dtype for input and out to match, but got {want} for input's dtype and {got} "
    "for out's dtype": "amax amin",
    "expected scalar type '{want}' but got '{got}' for {part} output": "mode",
    "the output given to {name} has dtype {got} but the operation's result requires dtype "
    "{want}": "float_power",
    "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or "
    "Long(int64) depending on whether out_int32 flag is True, but got {got}": """
        bucketize searchsorted""",
    "Expected out type to be {want} but got {got}": "where",
    "Expected self.dtype() == output.dtype() to be true: {name} gives {want}, and out is {got}": """
        narrow_copy""",
    "{name} does not support non-boolean outputs; out is {got}": "isneginf isposinf signbit",
    "{name}(): expected out tensor to have dtype {c_want} but got {c_got}": "linalg.multi_dot",
    "{name} expects {want} tensor out, got: {got}": "multinomial",
    "{name}: dtype of out: {got} should be same as input: {want}": "nan_to_num",
    "{name}(): output values must be of same type as input, {want}, not {got}": "kthvalue",
    "{name}() out tensor must be same dtype as the input tensor, {want}, not {got}": """
        quantile nanquantile""",
    "result dtype {got} does not match input dtype {want}": "dot vdot",
    "self and mat2 must have the same dtype, but got {got} and {want}": "addbmm",
    "{name}(): self and out expected to have the same dtype, but got self.dtype = {want} and "
    "out.dtype = {got}": "take",
    "{name}(): self and result must have the same scalar type, not {want} and {got}": """
        masked_select""",
    "{name}: Expected the output tensor to have dtype {want}, but got an output tensor with "
    "dtype {got}": "tensordot",
    "torch.{name}() expects {part} but got {c_got}": "frexp",
    "torch.histogram: input tensor and {part} tensor should have the same dtype, but got input "
    "{c_want} and {part} {c_got}": "histc histogram",
    "torch.{name}: Expected input and result to have the same dtype, but input has dtype {want} "
    "and result has dtype {got}": "ormqr",
    "addmv input tensors must have the same dtype, but got {got}, {want}, and {want}": "mv",
    "{name} is not yet implemented for tensors with different dtypes. They are {want} and "
    "{got}": "heaviside",
    "Expected result to be of dtype uint64, but got {got}": "hash_tensor",
}
# What the message above calls each of several results.
PARTS = {
    "frexp": ("mantissa to have dtype {c_want}", "exponent to have int dtype"),
    "histc": ("hist",),
    "histogram": ("hist", "bin_edges"),
    "mode": ("values", "indices"),
}
EXACT = {name: text for text, names in EXACT_MESSAGES.items() for name in names.split()}

# These convert, but not to a lower kind, and say so in their own words.
SAFELY = _names(
    """cholesky cholesky_inverse cholesky_solve geqrf linalg.cond linalg.eig linalg.eigvals
    linalg.householder_product orgqr linalg.lstsq linalg.matrix_rank linalg.pinv
    linalg.tensorinv linalg.tensorsolve"""
)
# Comparisons write 0 and 1 into anything.
ANYTHING = _names(
    """eq ge gt le lt ne equal greater greater_equal less less_equal not_equal logical_and
    logical_not logical_or logical_xor lu"""
)
# PyTorch computes these in the dtype of ``out``, and its kernels lack some dtypes.
UNSUPPORTED = {
    "bernoulli": ("c", "bernoulli_tensor_cpu_self_"),
    "cumprod": ("b", "cumprod_out_cpu"),
    "cumsum": ("b", "cumsum_out_cpu"),
    "nanmean": ("biuc", "nansum_cpu"),
    "nansum": ("biuc", "nansum_cpu"),
    "normal": ("biu", "normal_kernel_cpu"),
}

# Reductions that PyTorch computes in the dtype of ``out``.
IN_DTYPE_OF_OUT = _names("cumsum cumprod sum prod nansum nanmean")
# Reductions whose ``dtype`` argument, if given, must be that of ``out``.
ONE_DTYPE = IN_DTYPE_OF_OUT | {"mean"}
# New tensors: resized without a warning, whatever the overlap within them.
CREATED = _names("empty eye full ones zeros rand randint randn randperm")
# These count their elements, and say so when the output has another number of them.
RANGES = _names("arange fftfreq rfftfreq")
SPACED = _names("arange linspace logspace range")
QUIETLY = CREATED | SPACED | _names("addbmm bernoulli lu multinomial narrow_copy")
# These fill ``out`` however its elements share memory.
SELF_OVERLAPPING = _names(
    """all amax amin any argmax argmin nansum bmm cummax cummin empty eye full hash_tensor histc
    histogram linalg.matrix_power matrix_power linalg.matrix_rank linalg.multi_dot mv norm ones tril
    triu zeros"""
)
# These compute a result apart, so ``out`` may overlap their inputs' memory.
OVERLAPPING = _names(
    """alias_copy cholesky cholesky_inverse cholesky_solve cummax cummin geqrf linalg.cholesky
    linalg.cholesky_ex linalg.eigh linalg.householder_product orgqr linalg.inv linalg.inv_ex
    inverse linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve linalg.lu
    linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve linalg.matrix_power matrix_power
    linalg.pinv linalg.qr linalg.solve linalg.solve_ex log_softmax lu lu_solve lu_unpack
    mvlgamma native_batch_norm nn.functional.avg_pool2d log_sigmoid ormqr qr slice_scatter
    softmax special_ndtr triangular_solve tril triu mm bmm matmul mv"""
)
# The products of these are computed by BLAS, which is not checked; what they add is.
ADDING = _names("addmm baddbmm addbmm addmv addr")
# These read elements after others were written: not even the same tensor may be in and out.
JOINING = _names("cat stack hstack vstack dstack column_stack")
CHANGED_COPIES = _names("index_add index_copy")  # the first input may be overwritten
DISTINCT = (
    _names("cross linalg.cross gather index_select take take_along_dim masked_select kthvalue")
    | JOINING
    | CHANGED_COPIES
)
# In place, these write element by element while they read their indices and values.
SCATTERING = _names(
    "index_add index_copy index_fill index_reduce put scatter scatter_add scatter_reduce"
)
# What these write is part of the graph, as a copy.
RECORDED = _names(
    """alias_copy as_strided_copy conj_physical diag diagonal_copy expand_copy fft.ifft
    fft.ihfft floor_divide linalg.cond linalg.eigvals linalg.ldl_factor linalg.ldl_factor_ex
    linalg.ldl_solve linalg.matrix_norm linalg.norm linalg.tensorinv linalg.tensorsolve
    log_softmax lu nanquantile permute_copy quantile slice_scatter softmax special_ndtr
    split_copy split_with_sizes_copy squeeze_copy t_copy tensordot transpose_copy
    unbind_copy unfold_copy unsqueeze_copy view_copy"""
)


def put_into(out: Any, function: Callable, args: Any, name: str, **kwargs: Any) -> Any:
    """Call a function for the sake of its ``out`` argument."""
    return into(out, function(*args, **kwargs), name, (args, kwargs))


PUT_INTO.append(put_into)


def into(out: Any, result: Any, name: str, inputs: Any = ()) -> Any:
    """Put a result, or several, where ``out=`` says; ``inputs`` are what it was made of."""
    several = isinstance(result, (tuple, list))
    if several != isinstance(out, (tuple, list)):
        wanted = f"tuple of {len(result)} Tensors" if several else "Tensor"
        raise TypeError(
            f"{name}(): argument 'out' must be {wanted}, not {type(out).__name__}\n"
            f"  at {errors.here()}"
        )
    targets, values = (list(out), list(result)) if several else ([out], [result])
    if several and name in ("max", "min"):
        name += ".dim"
    if len(targets) != len(values):
        raise TypeError(
            f"{name}(): argument 'out' must be tuple of {len(values)} Tensors, not of "
            f"{len(targets)}\n  at {errors.here()}"
        )
    for i, (target, value) in enumerate(zip(targets, values, strict=True)):
        _check(target, value, name, i)
    for target in targets:
        check_change(target, f"{name}(out=...)")
        _check_memory(target, name, inputs)
    for target, value in zip(targets, values, strict=True):
        _put(target, value, name)
    return out


def _check(target: Any, value: Tensor, name: str, index: int) -> None:
    if not isinstance(target, Tensor):
        raise TypeError(
            f"{name}(): argument 'out' must be Tensor, not {type(target).__name__}\n"
            f"  at {errors.here()}"
        )
    if MODES.now.dual_level >= 0 and (tangents_of(target) or tangents_of(value)):
        raise NotImplementedError(
            f"Trying to use forward AD with {name}_out that does not support it because it is an "
            f"out= function; call it without out=\n  at {errors.here()}"
        )
    if MODES.now.grad:
        recorded = value._node is not None and name not in RECORDED
        if recorded or edge_of(target) is not None:
            raise RuntimeError(
                f"{name}(): functions with out=... arguments don't support automatic "
                "differentiation, but one of the arguments requires grad. Leave out=, or call it "
                f"in torch.no_grad()\n  at {errors.here()}"
            )
    if target._a.dtype is not value._a.dtype and target._a.dtype != value._a.dtype:
        _check_dtype(target.dtype, value.dtype, name, index)


def _check_dtype(got: dt.dtype, want: dt.dtype, name: str, index: int) -> None:
    names = {
        "name": name,
        "part": PARTS[name][index] if name in PARTS else "",
        "want": dt.TYPE_NAMES[want.name],
        "got": dt.TYPE_NAMES[got.name],
        "c_want": C_NAMES.get(want.name, want.name),
        "c_got": C_NAMES.get(got.name, got.name),
    }
    problem = ""
    kind: type[Exception] = RuntimeError
    if name == "heaviside" and got.is_complex:
        problem = "heaviside is not yet implemented for complex tensors."
    elif name in EXACT:
        problem = EXACT[name].format(**names)
    elif name in SAFELY:
        if not dt.can_cast(want, got):
            problem = "Expected result to be safely castable from {want} dtype, but got result with dtype {got}"  # noqa: E501
    elif name in ("all", "any"):
        if got is not dt.uint8:
            problem = "{name} only supports bool tensor for result, got: {got}"
    elif name.startswith("fft."):
        problem = _fft_problem(got, want)
    elif name in UNSUPPORTED:
        check_supported(got, name)
    elif name in JOINING and not dt.can_cast(want, got):
        kind = TypeError
        problem = "torch.cat(): input types can't be cast to the desired output type {got}"
    elif name not in ANYTHING and not dt.can_cast(want, got):
        problem = "result type {want} can't be cast to the desired output type {got}"
    if problem:
        raise kind(
            f"{name}(): {problem.format(**names).removesuffix('.')}. Make out with "
            f"dtype={want!r}\n"
            f"  at {errors.here()}"
        )


def check_one_dtype(got: dt.dtype, want: dt.dtype, name: str) -> None:
    """Refuse a reduction whose ``dtype`` argument and ``out`` disagree."""
    if got is want or name not in ONE_DTYPE:
        return
    if name in ("nansum", "nanmean"):
        problem = (
            f"nansum: provided dtype must match dtype of result. Got {dt.TYPE_NAMES[got.name]} "
            f"and {dt.TYPE_NAMES[want.name]}"
        )
    else:
        problem = (
            f"Expected out tensor to have dtype {C_NAMES.get(want.name, want.name)}, but got "
            f"{C_NAMES.get(got.name, got.name)} instead"
        )
    raise RuntimeError(
        f"{name}(): {problem}. Leave dtype, or make out with dtype={want!r}\n  at {errors.here()}"
    )


def check_supported(got: dt.dtype, name: str) -> None:
    """Refuse an ``out`` of a dtype in which PyTorch does not compute a function."""
    kinds, kernel = UNSUPPORTED.get(name, ("", ""))
    if got.np.kind in kinds:
        raise NotImplementedError(
            f"\"{kernel}\" not implemented for '{dt.TYPE_NAMES[got.name]}': {name}() computes in "
            f"the dtype of out\n  at {errors.here()}"
        )


def _fft_problem(got: dt.dtype, want: dt.dtype) -> str:
    if want.is_complex != got.is_complex or not (got.is_complex or got.is_floating_point):
        wanted = "complex" if want.is_complex else "floating point"
        return f"{{name}} expects a {wanted} output tensor, but got {{got}}"
    return ""


def _check_memory(target: Tensor, name: str, inputs: Any) -> None:
    if name not in SELF_OVERLAPPING:
        check_overlap(target, name)
    if name in OVERLAPPING:
        return
    read = list(tensors_in(inputs))
    make_views(target, *read)
    for i, x in enumerate(read[:1] if name in ADDING else read):
        if x._vc is target._vc:
            distinct = name in DISTINCT and (i > 0 or name not in CHANGED_COPIES)
            check_shared(target._a, x._a, name, distinct)


# Behind so many arguments comes a value that is read before anything is written.
READ_ONCE = {"masked_fill": 1, "index_fill": 2}


def check_arguments(target: Tensor, args: Any, name: str) -> None:
    """What an in-place method writes must not be what it still has to read."""
    if name in OVERLAPPING or name in ADDING:
        return
    for x in args[: READ_ONCE.get(name)]:
        if isinstance(x, Tensor) and same_memory(x, target):
            check_shared(target._a, x._a, name + "_", name in SCATTERING)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors among arguments or results, also in tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from tensors_in(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from tensors_in(v)


def warn_expanded(target: Tensor, name: str) -> bool:
    """Whether elements of a tensor share memory, with PyTorch's warning if they do."""
    array = target._a
    if (
        not array.size
        or 0 not in array.strides
        or not any(n > 1 and s == 0 for n, s in zip(array.shape, array.strides, strict=True))
    ):
        return False
    example = "tensor[indices] = tensor" if name == "index_put" else "tensor[mask] = scalar"
    errors.warn(
        f"Use of {name}_ on expanded tensors is deprecated. Please clone() the tensor before "
        f"performing this operation. This also applies to advanced indexing e.g. {example}"
    )
    return True


def check_shared(written: np.ndarray, read: np.ndarray, name: str, at_all: bool = False) -> None:
    """Refuse to write to memory that is read, unless it is all of it in the same order."""
    if not (written.size and read.size) or (read.size > written.size and not at_all):
        return  # what is larger than the result is reduced, which reads all before it writes
    if not (is_dense(written) and is_dense(read)):
        return
    start, begin = map(address_of, (written, read))
    if start == begin and written.nbytes == read.nbytes and written.strides == read.strides:
        if not at_all:
            return
    if start < begin + read.nbytes and begin < start + written.nbytes:
        raise RuntimeError(
            f"{name}(): unsupported operation: some elements of the input tensor and the "
            "written-to tensor refer to a single memory location. Please clone() the tensor "
            f"before performing the operation.\n  at {errors.here()}"
        )


def _put(target: Tensor, value: Tensor, name: str) -> None:
    shape = value._a.shape
    if target._a.shape != shape and not (name in SPACED and target._a.size == value._a.size):
        if target._a.size and name in RANGES:
            errors.warn(
                f"The number of elements in the out tensor of shape {list(target._a.shape)} is "
                f"{target._a.size} which does not match the computed number of elements "
                f"{value._a.size}. Note that this may occur as a result of rounding error. The "
                f"out tensor will be resized to a tensor of shape ({value._a.size},)."
            )
        elif target._a.size and name not in QUIETLY:
            errors.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(target._a.shape)}, which does not match the required output shape "
                f"{list(shape)}. This behavior is deprecated, and in a future PyTorch release "
                "outputs will not be resized unless they have zero elements. You can explicitly "
                "reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0)."
            )
        # Together with the write it is one change, so the version of a stand-in counts for the
        # target.
        resized = target if target.requires_grad else wrap(target._a)
        target._a = resized.resize_(shape)._a  # type: ignore[attr-defined]
        if target._a.strides != value._a.strides and target._a.size:
            # The order of the result's dimensions, without gaps.
            steps = dense_steps(value._a)
            target._a = strided(target._a, shape, tuple(s * target._a.itemsize for s in steps))
    if value._node is not None and MODES.now.grad:
        target.copy_(value)  # type: ignore[attr-defined]
        return
    if value._a.shape != target._a.shape:
        value = value.detach().reshape(target._a.shape)  # type: ignore[attr-defined]
    if not dt.can_cast(value.dtype, target.dtype):
        value = value.detach().to(target.dtype)  # type: ignore[attr-defined]
    write(target, value._a, name)
