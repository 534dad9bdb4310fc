"""Products of matrices and vectors, and what is built from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors, selection
from weft.core.batching import BatchedCall, each
from weft.core.devices import ones_like
from weft.core.dispatch import NO_ATTRS, REGISTRY, Op, apply
from weft.core.pending import model_of, reads_metadata
from weft.core.short import fast_binary
from weft.core.tensor import Tensor, beside, wrap
from weft.operators import api, batch_rules, shape_rules
from weft.operators.arithmetic import conj_op, where_op
from weft.operators.build import Sample, general, is_number, linear
from weft.operators.casting import TYPE_NAMES
from weft.operators.views import reshape_op, stack_op, transpose_op, unsqueeze_op

F32, F64 = dt.F32, dt.F64

# --- helpers for rules: they take arrays and tensors -----------------------------------


def is_complex(x: Any) -> bool:
    """Whether an array or a tensor has complex elements."""
    array = x if x.__class__ is np.ndarray else x._a if isinstance(x, Tensor) else x
    return array.dtype.kind == "c"


reads_metadata(is_complex)


def transposed(x: Any) -> Any:
    """The last two dimensions exchanged, without copying."""
    if x.__class__ is np.ndarray:
        return x.swapaxes(-2, -1)
    rank = len(x.shape)
    return transpose_op(x, dim0=rank - 2, dim1=rank - 1)


def conjugate(x: Any) -> Any:
    """The complex conjugate; real values as they are."""
    return conj_op(x) if is_complex(x) else x


def adjoint(x: Any) -> Any:
    """The conjugate transpose of the last two dimensions, on arrays and tensors."""
    return conjugate(transposed(x))


def rows(x: Any) -> Any:
    """A value as one matrix: all dimensions but the last merged."""
    shape = x.shape
    if len(shape) == 2:
        return x
    if x.__class__ is np.ndarray:
        return x.reshape(math.prod(shape[:-1]), shape[-1])
    return reshape_op(x, shape=(math.prod(shape[:-1]), shape[-1]))


def column(x: Any) -> Any:
    """Vectors in the last dimension as matrices of one column."""
    return unsqueeze_op(x, dim=len(x.shape))


def row(x: Any) -> Any:
    """Vectors in the last dimension as matrices of one row."""
    return unsqueeze_op(x, dim=len(x.shape) - 1)


# --- the kernels -----------------------------------------------------------------------

_C_NAMES = {
    "float32": "float",
    "float64": "double",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "int64": "long int",
    "int32": "int",
    "int16": "short int",
    "int8": "signed char",
    "uint8": "unsigned char",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
}


def c_name(d: np.dtype) -> str:
    """The name by which PyTorch's matrix products call a type in their errors."""
    name = dt.OF_NUMPY[d].name
    return _C_NAMES.get(name, name)


def type_name(x: Tensor) -> str:
    """The name of a tensor's type in PyTorch's other errors: ``Float``, ``Long``."""
    return TYPE_NAMES[x.dtype.name]


def _widened(product: Any, op: Op | None, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A product of types that need care: half ones are summed in float32, as the op does."""
    if a.dtype != b.dtype:
        raise RuntimeError(
            "expected m1 and m2 to have the same dtype, but got: "
            f"{c_name(a.dtype)} != {c_name(b.dtype)}; convert one with .to()"
        )
    if a.dtype in dt.HALF:
        wide = selection.cast(a, F32), selection.cast(b, F32)
        return selection.cast(op.compute(wide, NO_ATTRS) if op else product(*wide), a.dtype)
    if a.dtype.kind == "b":
        raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Bool'; convert with .long()")
    return product(a, b)


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if len(shape) > 1 else str(shape[0])


def _mm_kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # dot() beats matmul() on small matrices, and copies layouts that BLAS does not support.
    if a.shape[-1] != b.shape[0]:
        left = (math.prod(a.shape[:-1]), a.shape[-1])
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({_times(left)} and {_times(b.shape)})"
        )
    if a.ndim > 2:
        return rows(a).dot(b).reshape(*a.shape[:-1], b.shape[1])
    return a.dot(b)


def _mm(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    d = a.dtype
    if (d is F32 or d is F64) and b.dtype is d:
        return _mm_kernel(a, b)
    return _widened(_mm_kernel, mm_op, a, b)


def _mm_batch(b: BatchedCall) -> Any:
    """Of matrices; the gradients of linear maps of one vector multiply by vectors as well."""
    (x, y), ranks = b.args, [t._a.ndim for t in b.logical]
    if not b.on[1] and ranks[1] == 2:
        return b.run(x, y)  # rows of one product, whatever the rank
    if ranks == [1, 2]:
        return bmm_op(*b.leads()).squeeze(1)
    if ranks == [2, 1]:
        return _mv_batch(b)
    return bmm_op(*b.leads()) if ranks == [2, 2] else each(b)


# Any rank on the left: its leading dimensions are so many rows of one product.
mm_op: Op = linear(
    "mm",
    _mm,
    lambda g, b: mm_op(g, adjoint(b)),
    lambda g, a: mm_op(adjoint(rows(a)), rows(g)),
    names=("a", "b"),
    samples=lambda m: [
        Sample((m.real(2, 3), m.real(3, 4))),
        Sample((m.real(2, 2, 3), m.real(3, 2))),
        Sample((m.real(3), m.real(3, 2))),
        Sample((m.real(2, 0), m.real(0, 4))),
    ],
    shape=shape_rules.matmul,
    batch=_mm_batch,
)


def _bmm_kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.matmul(a, b)


def _bmm(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    d = a.dtype
    if (d is F32 or d is F64) and b.dtype is d:
        return np.matmul(a, b)
    return _widened(_bmm_kernel, bmm_op, a, b)


# Batches of matrices; batch dimensions broadcast.
bmm_op: Op = linear(
    "bmm",
    _bmm,
    lambda g, b: bmm_op(g, adjoint(b)),
    lambda g, a: bmm_op(adjoint(a), g),
    names=("a", "b"),
    samples=lambda m: [
        Sample((m.real(2, 2, 3), m.real(2, 3, 2))),
        Sample((m.real(2, 3), m.real(2, 1, 3, 2))),
        Sample((m.real(0, 2, 3), m.real(0, 3, 2))),
    ],
    shape=shape_rules.batched_matmul,
    batch=batch_rules.leading,
)


def _mv_kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.shape[-1] != b.shape[0]:
        raise RuntimeError(
            f"size mismatch, got input ({a.shape[0]}), mat ({_times(a.shape)}), vec ({b.shape[0]})"
        )
    return rows(a).dot(b).reshape(a.shape[:-1])


def _mv_batch(b: BatchedCall) -> Any:
    x, y = b.args
    if [t._a.ndim for t in b.logical] != [2, 1]:
        return each(b)
    if not b.on[0]:
        return mm_op(y, x.transpose(0, 1))
    if not b.on[1]:
        return b.unfold(b.run(b.fold(x), y), x._a.shape[1])
    return bmm_op(x, y.unsqueeze(2)).squeeze(2)


mv_op: Op = linear(
    "mv",
    lambda a, b: _widened(_mv_kernel, None, a, b),
    lambda g, b: column(g) * conjugate(b),
    lambda g, a: mv_op(adjoint(rows(a)), reshape_op(g, shape=(math.prod(g.shape),))),
    names=("a", "b"),
    samples=lambda m: [
        Sample((m.real(2, 3), m.real(3))),
        Sample((m.real(2, 2, 3), m.real(3))),
        Sample((m.real(2, 0), m.real(0))),
    ],
    shape=shape_rules.matmul,
    batch=_mv_batch,
)


def _dot_kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.dot(a, b)


def _dot_batch(b: BatchedCall) -> Any:
    if [t._a.ndim for t in b.logical] != [1, 1]:
        return each(b)
    x, y = b.leads()
    return bmm_op(x.unsqueeze(1), y.unsqueeze(2)).reshape(b.size)


dot_op = linear(
    "dot",
    lambda a, b: _widened(_dot_kernel, None, a, b),
    lambda g, b: g * conjugate(b),
    lambda g, a: g * conjugate(a),
    names=("a", "b"),
    samples=lambda m: [Sample((m.real(3), m.real(3))), Sample((m.real(0), m.real(0)))],
    shape=shape_rules.matmul,
    batch=_dot_batch,
)


def _linear_kernel(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    if x.shape[-1] != weight.shape[1]:
        left = (math.prod(x.shape[:-1]), x.shape[-1])
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({_times(left)} and "
            f"{_times(weight.shape[::-1])}): the layer takes {weight.shape[1]} features, and the "
            f"input's last dimension has {x.shape[-1]}"
        )
    if x.ndim > 2:
        return rows(x).dot(weight.T).reshape(*x.shape[:-1], weight.shape[0])
    return x.dot(weight.T)


def _linear(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    d = x.dtype
    if (d is F32 or d is F64) and weight.dtype is d:
        return _linear_kernel(x, weight)
    return _widened(_linear_kernel, linear_op, x, weight)


def _same_types(x: np.ndarray, weight: np.ndarray) -> None:
    """Refuse an input of another type than the weights."""
    if x.dtype != weight.dtype:
        first, second = (TYPE_NAMES[dt.OF_NUMPY[a.dtype].name] for a in (x, weight))
        kind, own = (dt.OF_NUMPY[a.dtype].name for a in (x, weight))
        other = "" if x.dtype.kind in "iub" else f", or the module with .to(torch.{kind})"
        raise RuntimeError(
            f"mat1 and mat2 must have the same dtype, but got {first} and {second}: convert the "
            f"input with .to(torch.{own}){other}"
        )


def _linear_with_bias(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    if bias.dtype != x.dtype:
        _same_types(x, weight)
        if x.ndim > 2 and not x.flags.c_contiguous and bias.dtype.kind != "c":
            # What PyTorch can't flatten it multiplies first and then adds to in place.
            return REGISTRY["add"].compute((_linear(x, weight), bias), {}).astype(x.dtype)
        raise RuntimeError(
            "self and mat2 must have the same dtype, but got "
            f"{TYPE_NAMES[dt.OF_NUMPY[bias.dtype].name]} and "
            f"{TYPE_NAMES[dt.OF_NUMPY[x.dtype].name]}"
        )
    y = _linear(x, weight)
    row = REGISTRY["add"].entry_with_row
    total = None if row is None else row(y, bias)  # the same bits, sooner
    if total is None:
        y += bias
        return y
    return total


def _product(a: Any, b: Any) -> Any:
    """``a @ b`` in a rule: what ``mm`` gives, with less to ask about small arrays."""
    if a.__class__ is np.ndarray is b.__class__ and a.dtype.kind == "f" and a.ndim:
        if a.size < mm_op.limit and b.size < mm_op.limit:
            return _mm(a, b)
    return mm_op(a, b)


def _weight_rule(g: Any, x: Any) -> Any:
    if g.__class__ is np.ndarray and g.ndim == 1 and g.dtype.kind == "f":
        return _product(g[:, None], x[None])
    return _product(transposed(rows(g)), conjugate(rows(x)))


def _bias_rule(g: Any) -> Any:
    return g if len(g.shape) < 3 else rows(g)


def _linear_batch(b: BatchedCall) -> Any:
    """With weights of their own the examples are matrices of one batched product."""
    if not any(b.on[1:]):
        return b.run(*b.args)
    x, weight = b.lead(0), b.lead(1)
    shape = x._a.shape
    rows = x.reshape(shape[0], math.prod(shape[1:-1]), shape[-1])
    y = bmm_op(rows, weight.transpose(1, 2))
    if len(b.args) > 2 and b.args[2] is not None:
        y = y + b.lead(2).unsqueeze(1)
    return y.reshape(*shape[:-1], y._a.shape[-1])


# Its weight is transposed compared with mm's, so that no transposed view needs a node.
linear_op = linear(
    "linear",
    _linear,
    lambda g, weight: mm_op(g, conjugate(weight)),
    _weight_rule,
    names=("x", "weight"),
    grad_name="MmBackward",
    samples=lambda m: [
        Sample((m.real(2, 3), m.real(4, 3))),
        Sample((m.real(2, 2, 3), m.real(2, 3))),
        Sample((m.real(3), m.real(2, 3))),
    ],
    shape=shape_rules.affine,
    batch=_linear_batch,
)
linear_op.edges = ("x", "weight.t")
linear_with_bias_op = general(
    "linear_with_bias",
    _linear_with_bias,
    lambda g, weight: _product(g, conjugate(weight)),
    _weight_rule,
    _bias_rule,
    names=("x", "weight", "bias"),
    grad_name="AddmmBackward",
    jvp=(
        lambda t, weight: linear_op(t, weight),
        lambda t, x: linear_op(x, t),
        lambda t: t,
    ),
    samples=lambda m: [
        Sample((m.real(2, 3), m.real(4, 3), m.real(4))),
        Sample((m.real(2, 2, 3), m.real(2, 3), m.real(2))),
        Sample((m.real(3), m.real(2, 3), m.real(2))),
        Sample((m.real(0, 3), m.real(2, 3), m.real(2))),
    ],
    shape=shape_rules.affine_with_bias,
    batch=_linear_batch,
)
linear_with_bias_op.edges = ("bias", "x", "weight.t")
mm_op.own_rank = linear_op.own_rank = linear_with_bias_op.own_rank = 2
mv_op.own_rank, bmm_op.own_rank = 1, 3

# --- products of two -------------------------------------------------------------------

mm_pair, bmm_pair, _linear_pair = fast_binary(mm_op), fast_binary(bmm_op), fast_binary(linear_op)


def _refuse(message: str) -> RuntimeError:
    return RuntimeError(f"{message}\n  at {errors.here()}")


@api.both(out=True)
def mm(input: Tensor, mat2: Tensor, out_dtype: Any = None) -> Tensor:
    """The product of two matrices.

    >>> a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> torch.mm(a, torch.eye(2) * 2)
    tensor([[2., 4.],
            [6., 8.]])
    """
    if input._a.ndim != 2:
        raise _refuse("mm: self must be a matrix; use matmul() for other ranks")
    if mat2._a.ndim != 2:
        raise _refuse("mm: mat2 must be a matrix; use matmul() for other ranks")
    if out_dtype is not None:
        input, mat2 = input.to(out_dtype), mat2.to(out_dtype)
    return mm_pair(input, mat2)


@api.both(out=True)
def bmm(input: Tensor, mat2: Tensor, out_dtype: Any = None) -> Tensor:
    """The products of the matrices in two batches.

    >>> torch.bmm(torch.zeros(8, 2, 3), torch.zeros(8, 3, 4)).shape
    torch.Size([8, 2, 4])
    """
    a = input._a
    b = mat2._a
    if a.ndim != 3 or b.ndim != 3:
        which = "batch1" if a.ndim != 3 else "batch2"
        raise _refuse(f"bmm: {which} must be a 3D tensor; use matmul() for other ranks")
    if b.shape[:2] != (a.shape[0], a.shape[2]):
        raise _refuse(
            f"bmm: Expected size for first two dimensions of batch2 tensor to be: "
            f"[{a.shape[0]}, {a.shape[2]}] but got: [{b.shape[0]}, {b.shape[1]}]."
        )
    if out_dtype is not None:
        input, mat2 = input.to(out_dtype), mat2.to(out_dtype)
    return bmm_pair(input, mat2)


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product with PyTorch's rules for vectors and batches.

    >>> a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> torch.matmul(a, torch.tensor([1.0, 10.0]))
    tensor([21., 43.])
    >>> torch.matmul(torch.zeros(5, 2, 3), torch.zeros(3, 4)).shape
    torch.Size([5, 2, 4])
    """
    a, b = input._a.ndim, other._a.ndim
    if b == 2 and a:
        return mm_pair(input, other)
    if a > 1 and b > 2:
        _check_batches(input._a.shape, other._a.shape)
        return bmm_pair(input, other)
    if b == 1 and a:
        return dot(input, other) if a == 1 else mv_op(input, other)
    if a == 1 and b:
        product = matmul(row(input), other)
        return reshape_op(product, shape=(*product._a.shape[:-2], product._a.shape[-1]))
    raise _refuse(
        f"matmul: both arguments need to be at least 1D, but they are {a}D and {b}D; use * "
        "to multiply by a scalar"
    )


def _check_batches(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    if a[-1] != b[-2]:
        raise _refuse(
            f"matmul: Expected size for first two dimensions of batch2 tensor to be: "
            f"[{math.prod(a[:-2])}, {a[-1]}] but got: [{math.prod(b[:-2])}, {b[-2]}]; the shapes "
            f"are {list(a)} and {list(b)}"
        )
    rank = max(len(a), len(b)) - 2
    for k in range(1, rank + 1):
        m = a[-2 - k] if k + 2 <= len(a) else 1
        n = b[-2 - k] if k + 2 <= len(b) else 1
        if m != n and m != 1 and n != 1:
            raise _refuse(
                f"matmul: The size of tensor a ({m}) must match the size of tensor b ({n}) at "
                f"non-singleton dimension {rank - k}; the shapes are {list(a)} and {list(b)}"
            )


def _matmul_operator(self: Tensor, other: Any) -> Any:
    try:
        if self._a.ndim == 2 and other._a.ndim == 2:
            return mm_pair(self, other)
    except AttributeError:
        return NotImplemented
    return matmul(self, other) if isinstance(other, Tensor) else NotImplemented


def _reverse_matmul(self: Tensor, other: Any) -> Any:
    return matmul(other, self) if isinstance(other, Tensor) else NotImplemented


def _inplace_matmul(self: Tensor, other: Any) -> Any:
    return api.change_by(self, "matmul", matmul, (other,), {})


api.both(matmul, out=True)
api.under("linalg", matmul, out=True)
Tensor.__matmul__ = _matmul_operator
Tensor.__rmatmul__ = _reverse_matmul
Tensor.__imatmul__ = _inplace_matmul


@api.both(out=True)
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    if input._a.ndim != 2 or vec._a.ndim != 1:
        raise _refuse(
            f"mv: vector + matrix @ vector expected, got {vec._a.ndim}, {input._a.ndim}, "
            f"{vec._a.ndim}"
        )
    return mv_op(input, vec)


def _check_vectors(name: str, a: Tensor, b: Tensor) -> None:
    if a.ndim != 1 or b.ndim != 1:
        raise _refuse(f"{name}: 1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if a.dtype is not b.dtype:
        raise _refuse(
            f"{name}: expected both vectors to have same dtype, but found "
            f"{TYPE_NAMES[a.dtype.name]} and {TYPE_NAMES[b.dtype.name]}"
        )
    n, m = a.numel(), b.numel()
    if n != m:
        raise _refuse(
            f"{name}: inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the "
            f"same number of elements, but got {n} and {m} elements respectively"
        )


@api.both(out=True)
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors' elements."""
    api.need_tensors("dot", input=input, tensor=tensor)
    _check_vectors("dot", input, tensor)
    return dot_op(input, tensor)


@api.both(out=True)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The dot product with the first vector conjugated."""
    api.need_tensors("vdot", input=input, other=other)
    _check_vectors("vdot", input, other)
    return dot_op(conjugate(input), other)


@api.both(out=True)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The dot products of all vectors in the last dimensions."""
    a, b = input.shape, other.shape
    if not a or not b:
        return input * other
    if a[-1] != b[-1]:
        raise _refuse(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(a)} and {list(b)}"
        )
    return tensordot(input, other, dims=([-1], [-1]))


@api.both(out=True)
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The product of each element of one vector with each of another."""
    api.need_tensors("outer", input=input, vec2=vec2)
    for name, x in (("self", input), ("vec2", vec2)):
        if x._a.ndim != 1:
            raise _refuse(f"outer: Expected 1-D argument {name}, but got {x._a.ndim}-D")
    return column(input) * vec2


api.alias("outer", "ger")

# --- a product added to something ------------------------------------------------------


def _added(name: str, input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """``beta * input + alpha * product``; a zero beta ignores even NaN in the input."""
    shape = product._a.shape
    if input._a.dtype != product._a.dtype:
        raise _refuse(
            f"{name}: self and mat2 must have the same dtype, but got {type_name(input)} and "
            f"{type_name(product)}"
        )
    if input._a.dtype.kind in "iu":
        beta, alpha = int(beta), int(alpha)
    if input._a.shape != shape:
        input = input.expand(shape)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product + where_op(np.False_, input, 0)
    scaled = input if beta == 1 else input * beta
    # The first summand decides the memory order: a product's is row-major.
    return scaled + product if name == "addr" else product + scaled


def _beta_first(name: str, *args: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The arguments of the deprecated ``f(beta, input, alpha, a, b)``, ``alpha`` optional.

    As a method it is ``input.f(beta, alpha, a, b)``.
    """
    tensors = [x for x in args if isinstance(x, Tensor)]
    factors = [x for x in args if is_number(x)]
    form = "".join("t" if isinstance(x, Tensor) else "n" if is_number(x) else "?" for x in args)
    if form not in ("nttt", "ntntt", "tntt", "tnntt"):
        raise TypeError(
            f"{name}() takes 3 positional arguments but {len(args)} were given\n"
            f"  at {errors.here()}"
        )
    errors.warn_once(
        f"This overload of {name} is deprecated:\n\t{name}(Number beta, Tensor input, Number "
        f"alpha, Tensor, Tensor)\nConsider using one of the following signatures instead:\n"
        f"\t{name}(Tensor input, Tensor, Tensor, *, Number beta = 1, Number alpha = 1)"
    )
    first, second, third = tensors
    return first, second, third, factors[0], factors[1] if len(factors) > 1 else 1


@api.both(out=True)
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *last: Any, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``."""
    if last:
        input, mat1, mat2, beta, alpha = _beta_first("addmm", input, mat1, mat2, *last)
    for name, x in (("mat1", mat1), ("mat2", mat2)):
        if x._a.ndim != 2:
            raise _refuse(f"addmm: {name} must be a matrix, got {x._a.ndim}-D tensor")
    return _added("addmm", input, mm_pair(mat1, mat2), beta, alpha)


@api.both(out=True)
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *last: Any, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * (mat @ vec)``."""
    if last:
        input, mat, vec, beta, alpha = _beta_first("addmv", input, mat, vec, *last)
    return _added("addmv", input, mv(mat, vec), beta, alpha)


@api.both(out=True)
def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *last: Any, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)``, in the common type."""
    if last:
        input, vec1, vec2, beta, alpha = _beta_first("addr", input, vec1, vec2, *last)
    if vec1._a.ndim == vec2._a.ndim == 1:
        # Products too are of the common type.
        wide = dt.OF_NUMPY[dt.result_dtype(model_of(x) for x in (input, vec1, vec2))]
        vec1, vec2 = vec1.to(wide), vec2.to(wide)
    product = outer(vec1, vec2)
    common = dt.promote(input._a.dtype, product._a.dtype)
    if common == np.bool_:
        kept = input if beta else where_op(np.False_, input, False)
        kept = kept.expand(product._a.shape)
        return kept | product if alpha else kept.clone()
    d = dt.OF_NUMPY[common]
    return _added("addr", input.to(d), product.to(d), beta, alpha)


@api.both(out=True)
def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *last: Any,
    beta: Any = 1,
    alpha: Any = 1,
    out_dtype: Any = None,
) -> Tensor:
    """``beta * input + alpha * (batch1 @ batch2)``, matrix by matrix."""
    if last:
        input, batch1, batch2, beta, alpha = _beta_first("baddbmm", input, batch1, batch2, *last)
    return _added("baddbmm", input, bmm(batch1, batch2, out_dtype), beta, alpha)


@api.both(out=True)
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *last: Any, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * (sum of batch1 @ batch2 over the batch)``."""
    if last:
        input, batch1, batch2, beta, alpha = _beta_first("addbmm", input, batch1, batch2, *last)
    a, b = batch1._a.shape, batch2._a.shape
    if len(a) != 3 or len(b) != 3 or a[0] != b[0] or a[2] != b[1]:
        bmm(batch1, batch2)  # raises, with the reason
    # One long product instead of many: the batch is part of the summed dimension.
    left = batch1.permute(1, 0, 2).reshape(a[1], a[0] * a[2])
    return _added("addbmm", input, mm_pair(left, batch2.reshape(b[0] * b[1], b[2])), beta, alpha)


for _function in (addmm, addmv, addr, baddbmm, addbmm):
    api.inplace(_function.__name__ + "_", _function)

# --- layers of networks ----------------------------------------------------------------


@api.under("nn.functional", name="linear")
def linear_layer(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias`` for any number of leading dimensions."""
    if weight._a.ndim != 2 or not input._a.ndim:
        product = matmul(input, weight.t())
        return product if bias is None else product + bias
    if bias is None:
        return _linear_pair(input, weight)
    if bias._a.ndim > 1:
        product = _linear_pair(input, weight)
        # As of a row for each sample: any that does not make the product larger.
        lead = bias._a.shape[: max(bias._a.ndim - product._a.ndim, 0)]
        if any(n != 1 for n in lead):
            raise _refuse(
                f"linear: a bias of shape {list(bias._a.shape)} does not fit a product of shape "
                f"{list(product._a.shape)}"
            )
        return product + bias.reshape(bias._a.shape[len(lead) :])
    return apply(linear_with_bias_op, (input, weight, bias), NO_ATTRS)


@api.top
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input1 @ weight[k] @ input2 + bias[k]`` for each output ``k``."""
    lead = input1._a.shape[:-1]
    count, first, second = weight._a.shape
    if lead != input2._a.shape[:-1]:
        raise _refuse(
            "bilinear(): input dimensions do not match: got "
            f"{list(input1._a.shape)} and {list(input2._a.shape)}"
        )
    if input1._a.shape[-1] != first or input2._a.shape[-1] != second:
        raise _refuse(
            f"bilinear(): input sizes {input1._a.shape[-1]} and {input2._a.shape[-1]} do not "
            f"match weight size {list(weight._a.shape)}"
        )
    if bias is not None:
        if bias._a.dtype != weight._a.dtype:
            raise _refuse(
                "bilinear(): all tensors must have the same dtype, got weight: "
                f"{type_name(weight)}, bias: {type_name(bias)}"
            )
        if bias._a.shape != (count,):
            raise _refuse(
                f"bilinear(): bias size does not match weight size: got {list(bias._a.shape)} but "
                f"expected [{count}]"
            )
    left, right = rows(input1), rows(input2)
    side = weight.permute(1, 0, 2).reshape(first, count * second)
    halfway = mm_pair(left, side).reshape(left._a.shape[0], count, second)
    out = bmm_pair(halfway, column(right)).reshape(*lead, count)
    return out if bias is None else out + bias


api.under("nn.functional", bilinear)

# --- contractions ----------------------------------------------------------------------


@api.top(out=True)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Products summed over several dimensions of two tensors at once."""
    left, right = _tensordot_dims(a, b, dims)
    a_shape, b_shape = a._a.shape, b._a.shape
    for p, q in zip(left, right, strict=True):
        if a_shape[p] == b_shape[q]:
            continue
        if a_shape[p] == 1:
            b = b.sum(q, keepdim=True)
        elif b_shape[q] == 1:
            a = a.sum(p, keepdim=True)
        else:
            raise _refuse(
                "tensordot: contracted dimensions need to match, but first has size "
                f"{a_shape[p]} in dim {p} and second has size {b_shape[q]} in dim {q}"
            )
    kept_a = [i for i in range(a._a.ndim) if i not in left]
    kept_b = [i for i in range(b._a.ndim) if i not in right]
    inner_size = math.prod(a._a.shape[p] for p in left)
    rows_of = [a._a.shape[i] for i in kept_a]
    columns = [b._a.shape[i] for i in kept_b]
    first = ordered(a, (*kept_a, *left), (math.prod(rows_of), inner_size))
    second = ordered(b, (*right, *kept_b), (inner_size, math.prod(columns)))
    return reshape_op(mm_pair(first, second), shape=(*rows_of, *columns))


def _tensordot_dims(a: Tensor, b: Tensor, dims: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, (tuple, list)) and len(dims) == 1 and isinstance(dims[0], int):
        dims = dims[0]
    if isinstance(dims, (int, np.integer)):
        count = int(dims)
        if count < 0 or count > min(a._a.ndim, b._a.ndim):
            raise _refuse(f"tensordot expects dims >= 0 and <= both ranks, but got dims={count}")
        return tuple(range(a._a.ndim - count, a._a.ndim)), tuple(range(count))
    left, right = dims
    left = (left,) if isinstance(left, int) else tuple(int(d) for d in left)
    right = (right,) if isinstance(right, int) else tuple(int(d) for d in right)
    if len(left) != len(right):
        raise _refuse(
            "tensordot: both dimension lists should have same length, got "
            f"{len(left)} and {len(right)}"
        )
    return api.dims(left, a._a.ndim), api.dims(right, b._a.ndim)


def ordered(x: Tensor, order: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """Dimensions in another order, then merged into a shape; without unnecessary steps."""
    if order != tuple(range(len(order))):
        x = x.permute(order)
    return x if x._a.shape == shape else reshape_op(x, shape=shape)


@api.both(out=True)
@api.no_view
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product."""
    a, b = input._a.shape, other._a.shape
    rank = max(len(a), len(b))
    a = (1,) * (rank - len(a)) + a
    b = (1,) * (rank - len(b)) + b
    left = reshape_op(input, shape=tuple(s for n in a for s in (n, 1)))
    right = reshape_op(other, shape=tuple(s for n in b for s in (1, n)))
    merged = tuple(m * n for m, n in zip(a, b, strict=True))
    return reshape_op(left * right, shape=merged)


@api.both(out=True)
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    if input._a.ndim != 2:
        raise _refuse(f"trace: expected a matrix, but got tensor with dim {input._a.ndim}")
    return input.diagonal().sum()


@api.under("linalg", out=True)
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The dot products of vectors along a dimension, the first ones conjugated."""
    if x._a.dtype != y._a.dtype:
        raise _refuse(
            f"linalg.vecdot: Expected x and y to have the same dtype, but got {type_name(x)} and "
            f"{type_name(y)}"
        )
    return (conjugate(x) * y).sum(dim)


def _cross(name: str, input: Tensor, other: Tensor, dim: int) -> Tensor:
    a, b = input._a.shape, other._a.shape
    if len(a) != len(b):
        raise _refuse(f"{name}: inputs must have the same number of dimensions.")
    d = api.wrap_dim(dim, len(a))
    if a[d] != 3 or b[d] != 3:
        raise _refuse(f"{name}: inputs dimension {dim} must have length 3. Got {a[d]} and {b[d]}")
    if input._a.dtype != other._a.dtype:
        raise _refuse(f"expected scalar type {type_name(input)} but found {type_name(other)}")
    a1, a2, a3 = input.unbind(d)
    b1, b2, b3 = other.unbind(d)
    return stack_op(a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, a1 * b2 - a2 * b1, dim=d)


@api.under("linalg", name="cross", out=True)
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross products of three-vectors along a dimension."""
    return _cross("linalg.cross", input, other, dim)


@api.both(out=True)
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross products along a dimension: by default the first that has length three."""
    if dim is None:
        lengths = input._a.shape
        if 3 not in lengths:
            raise _refuse("cross: no dimension of size 3 in input")
        dim = lengths.index(3)
    return _cross("linalg.cross", input, other, dim)


# --- chains and powers -----------------------------------------------------------------


def _cheapest(sizes: list[int]) -> Any:
    """The order of multiplications with the fewest steps, as nested pairs of positions."""
    count = len(sizes) - 1
    cost = [[0] * count for _ in range(count)]
    plan: list[list[Any]] = [[i if i == j else None for j in range(count)] for i in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            best, at = min(
                (cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
            cost[i][j], plan[i][j] = best, (plan[i][at], plan[at + 1][j])
    return plan[0][count - 1]


@api.under("linalg", out=True)
def multi_dot(tensors: Any) -> Tensor:
    """The product of several matrices, multiplied in the cheapest order."""
    parts = list(tensors)
    if len(parts) < 2:
        raise _refuse(f"multi_dot(): expected at least 2 tensors but got {len(parts)}")
    first, last = parts[0], parts[-1]
    for k, part in enumerate(parts):
        if part._a.ndim != 2 and not (part._a.ndim == 1 and k in (0, len(parts) - 1)):
            raise _refuse(
                f"multi_dot(): tensor {k} must be 2D (1D for the first and the last) but got "
                f"{part._a.ndim}D"
            )
    if first._a.ndim == 1:
        parts[0] = row(first)
    if last._a.ndim == 1:
        parts[-1] = column(last)

    def multiply(plan: Any) -> Tensor:
        return parts[plan] if isinstance(plan, int) else mm(multiply(plan[0]), multiply(plan[1]))

    sizes = [parts[0]._a.shape[0], *(p._a.shape[1] for p in parts)]
    product = multiply(_cheapest(sizes))
    shape = product._a.shape
    kept = shape[first._a.ndim == 1 : 1 if last._a.ndim == 1 else 2]
    return product if kept == shape else reshape_op(product, shape=kept)


@api.top(out=True)
def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of several matrices, multiplied in the cheapest order."""
    return multi_dot(matrices) if len(matrices) > 1 else matrices[0].clone()


@api.both(out=True)
def matrix_power(input: Tensor, n: int) -> Tensor:
    """A square matrix multiplied ``n`` times; the inverse if ``n`` is negative."""
    shape = input._a.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise _refuse(
            "linalg.matrix_power: A must be batches of square matrices, but they are "
            f"{' by '.join(map(str, shape[-2:]))} matrices"
        )
    if n == 0:
        eye = np.broadcast_to(np.eye(shape[-1], dtype=input.dtype.np), shape)
        return where_op(np.True_, beside(input, eye), input)
    if n < 0:
        from weft.operators.linalg import inv

        return matrix_power(inv(input), -n)
    result, square = None, input
    while n:
        if n & 1:
            result = square if result is None else matmul(result, square)
        n >>= 1
        if n:
            square = matmul(square, square)
    assert result is not None
    return result.clone() if result is input else result


api.under("linalg", matrix_power)


def powers(x: Tensor, count: int, increasing: bool = True) -> Tensor:
    """The powers 0, 1, … of each element in a new last dimension."""
    order = np.arange(count) if increasing else np.arange(count)[::-1].copy()
    if x._a.dtype.kind in "iub":
        x = x.to(dt.int64)
    elif x._a.dtype.kind == "c":
        order = order.astype(x._a.dtype)
    return column(x) ** beside(x, order)


@api.top
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The matrix of a vector's powers, by default from the highest."""
    if x._a.ndim != 1:
        raise _refuse("vander: x must be a one-dimensional tensor.")
    count = x._a.shape[0] if N is None else N
    if count < 0:
        raise _refuse("vander: N must be non-negative.")
    return powers(x, count, increasing)


@api.under("linalg", name="vander")
def linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The matrix of a vector's powers from the lowest, for each vector of a batch."""
    if not x._a.ndim:
        x = x.reshape(1)
    if x._a.dtype == np.bool_ or x._a.dtype in dt.HALF:
        raise _refuse(
            "linalg.vander supports floating point, complex, and integer tensors, but got "
            f"{type_name(x)}"
        )
    count = x._a.shape[-1] if N is None else N
    if count <= 1:
        raise _refuse("linalg.vander: N must be greater than 1.")
    if count == 2:  # linear: of a product of one factor PyTorch, too, has a constant gradient
        return stack_op(wrap(ones_like(x._a)), x, dim=x._a.ndim)
    return powers(x, count)
