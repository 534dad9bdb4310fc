"""PyTorch's own op table as a test of weft.

For each entry of ``op_db`` the sample inputs that PyTorch tests itself with are run through both
systems; outputs, dtypes, gradients, methods and in-place methods must agree.

    python -m opdb add linalg.svd 'fft.*'     # some ops, by name, name.variant or pattern
    python -m opdb --all -j 2 --json out.json # all of them
    python -m opdb --all --from linalg.svd    # the rest of a run that was cut off
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import itertools
import json
import math
import os
import signal
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import weft

# Under some hypervisors processors announce AMX and then refuse it: torch's oneDNN dies of it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo.core import OpInfo

torch.set_num_threads(1)

SPARSE, CUDA = "sparse tensors only", "compiled on CUDA only"
BACKWARD = "a backward kernel of PyTorch's own, not a function for users"
PRIVATE = "a private function of PyTorch's internals"
OUT_OF_SCOPE = {
    "sparse.sampled_addmm": SPARSE,
    "sparse.mm": SPARSE,
    "to_sparse": SPARSE,
    "jiterator_unary": CUDA,
    "jiterator_binary": CUDA,
    "jiterator_4inputs_with_extra_args": CUDA,
    "jiterator_binary_return_by_ref": CUDA,
    "jiterator_2inputs_2outputs": CUDA,
    "torch.ops.aten._flash_attention_forward": CUDA,
    "torch.ops.aten._efficient_attention_forward": CUDA,
    "torch.ops.aten._safe_softmax.default": PRIVATE,
    "_softmax_backward_data": BACKWARD,
    "max_pool2d_with_indices_backward": BACKWARD,
    "native_dropout_backward": BACKWARD,
    "_native_batch_norm_legit": PRIVATE,
    "_batch_norm_with_update": PRIVATE,
    "_upsample_bilinear2d_aa": PRIVATE,
    "_unsafe_masked_index": PRIVATE,
    "_unsafe_masked_index_put_accumulate": PRIVATE,
    "_chunk_cat": PRIVATE,
    "_segment_reduce": PRIVATE,
    "torch._scaled_mm": PRIVATE,
    "torch._scaled_mm_v2": PRIVATE,
    "nn.functional.batch_norm.without_cudnn": CUDA,
    "slice": "torch.ops.aten.slice; __getitem__ is the public way to it",
    "chalf": "complex numbers of half precision, which NumPy lacks",
}

# (relative, absolute); the absolute one grows with the largest value of the result.
TOLERANCE = {
    "float64": (1e-7, 1e-9),
    "complex128": (1e-7, 1e-9),
    "float32": (1e-4, 1e-5),
    "complex64": (1e-4, 1e-5),
    "float16": (4e-3, 2e-3),
    "bfloat16": (2e-2, 1e-2),
    "float8_e4m3fn": (1e-1, 1e-1),
    "float8_e5m2": (2e-1, 2e-1),
}
LARGEST_SCALE = 1e3
# Factors for ops whose numerics differ by more than rounding.
BESSEL = 100.0  # PyTorch's are off by 1e-6 in double precision, by quadrature of their integral
LOOSE: dict[str, float] = {
    "special.bessel_j0": BESSEL,
    "special.bessel_j1": BESSEL,
    "special.bessel_y0": BESSEL,
    "special.bessel_y1": BESSEL,
    # Large logits in bfloat16: a rounding before the softmax is a tenth of the result.
    "nn.functional.multi_head_attention_forward": 10.0,
}

# Ops whose gradient in PyTorch is no model to follow.
WRONG_GRADIENT = {
    "as_strided_scatter": "PyTorch's gradient is 1 where the input is overwritten, 0 elsewhere",
}

# Results with no promised values: only shape and dtype count.
UNSPECIFIED = {
    *("empty", "empty_like", "empty_permuted", "empty_strided"),
    *("new_empty", "new_empty_strided", "resize_", "resize_as_"),
}

# How weft's own errors for names that it lacks begin.
ABSENT = "weft does not have"

DTYPES = ("float32", "float64", "int64", "bool", "complex128", "bfloat16", "float16")
GRADIENT_DTYPES = ("float64", "complex128")
VARIANT_DTYPE = "float32"


@dataclass(frozen=True)
class Settings:
    """How much to run."""

    samples: int = 20
    dtypes: tuple[str, ...] = DTYPES
    gradients: bool = True
    variants: bool = True
    second_order: bool = False
    reference: bool = False
    seconds: float = 40.0
    verbose: bool = False


# What the deep tests and the command line run.
FULL = Settings()
# What the test suite runs by default: every op, few samples.
QUICK = Settings(samples=4, dtypes=("float32", "float64"), seconds=20.0)


@dataclass
class Result:
    """What became of one op."""

    name: str
    status: str = "pass"
    messages: dict[str, str] = field(default_factory=dict)
    torch_raises: int = 0
    samples: int = 0
    seconds: float = 0.0


class Mismatch(AssertionError):
    """weft's answer is not PyTorch's."""


class Unsupported(Exception):
    """A sample uses something that has no counterpart here, such as complex32."""


class Absent(AttributeError):
    """weft has no function of that name."""


class Slow(BaseException):
    """Over the time limit; no subclass of Exception, so that nothing catches it on the way."""


# --- from torch to weft ----------------------------------------------------------------


def full_name(op: Any) -> str:
    """``name`` or ``name.variant``."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def numpy_dtype(d: torch.dtype) -> np.dtype:
    """The NumPy type of a torch dtype."""
    name = str(d).removeprefix("torch.")
    if name not in weft.core.dtype.BY_NAME:
        raise Unsupported(f"dtype {name}")
    return weft.core.dtype.BY_NAME[name].np


def resolved(t: torch.Tensor) -> torch.Tensor:
    """The tensor with its values really in memory, not conjugated, negated or zero by a flag."""
    t = t.detach().resolve_conj().resolve_neg()
    return t.clone() if t._is_zerotensor() else t


def array_of(t: torch.Tensor) -> np.ndarray:
    """A tensor's values as an array of the same strides, on memory of its own."""
    if t.layout != torch.strided or t.is_quantized:
        raise Unsupported(f"layout {t.layout}")
    t = resolved(t)
    d = numpy_dtype(t.dtype)
    if t.numel() == 0:
        return np.empty(tuple(t.shape), d)
    raw = torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage()).numpy()
    flat = np.empty(raw.size // d.itemsize, d)
    flat.view(np.uint8)[:] = raw[: flat.nbytes]
    if t.is_contiguous() and flat.size == t.numel():
        return flat.reshape(tuple(t.shape))
    strides = tuple(s * d.itemsize for s in t.stride())
    return np.ndarray(tuple(t.shape), d, flat, t.storage_offset() * d.itemsize, strides)


def copy_of(t: torch.Tensor) -> torch.Tensor:
    """A leaf with the same values and strides, on memory of its own."""
    source = resolved(t)
    fresh = torch.empty(0, dtype=t.dtype)
    fresh.set_(source.untyped_storage().clone(), source.storage_offset(), t.shape, source.stride())
    return fresh.requires_grad_(t.requires_grad)


def walk(value: Any, change: Callable[[Any], Any]) -> Any:
    """Rebuild nested containers with their leaves changed."""
    if isinstance(value, torch.Size):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(walk(v, change) for v in value))
    if isinstance(value, tuple) and type(value) is not tuple:
        return type(value)([walk(v, change) for v in value])
    if isinstance(value, (list, tuple)):
        return type(value)(walk(v, change) for v in value)
    if isinstance(value, dict):
        return {k: walk(v, change) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(walk(v, change) for v in (value.start, value.stop, value.step)))
    return change(value)


def fresh(value: Any) -> Any:
    """A sample with tensors copied, so that a run in place does no harm."""
    return walk(value, lambda v: copy_of(v) if isinstance(v, torch.Tensor) else v)


def to_weft(value: Any) -> Any:
    """A sample's counterpart in weft."""
    return walk(value, _leaf_to_weft)


def _leaf_to_weft(v: Any) -> Any:
    if isinstance(v, torch.Tensor):
        made = weft.core.tensor.wrap(array_of(v))
        return made.requires_grad_(True) if v.requires_grad else made
    if isinstance(v, torch.dtype):
        numpy_dtype(v)
        return getattr(weft, str(v).removeprefix("torch."))
    if isinstance(v, torch.device):
        return weft.device(str(v))
    if isinstance(v, torch.Size):
        return weft.Size(v)
    if isinstance(v, torch.memory_format):
        return getattr(weft, str(v).removeprefix("torch."))
    if isinstance(v, torch.layout):
        if v is not torch.strided:
            raise Unsupported(f"layout {v}")
        return weft.strided
    if isinstance(v, torch.Generator):
        return weft.Generator().manual_seed(v.initial_seed())
    if isinstance(v, torch.nn.PairwiseDistance):
        return weft.nn.PairwiseDistance(v.norm, v.eps, v.keepdim)
    if isinstance(v, OpInfo):
        return v
    if callable(v):
        return translate(v)
    return v


# --- functions -------------------------------------------------------------------------


def look_up(root: Any, path: str) -> Any:
    """The object at a dotted path."""
    return functools.reduce(getattr, path.split("."), root)


def seeded(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """As the op table does for random functions: run from a fixed seed."""
    weft.manual_seed(42)
    return function(*args, **kwargs)


def counterpart(op: Any) -> Callable:
    """weft's function for an entry of the table."""
    f = op.op
    if (getattr(f, "__module__", None) or "").startswith("torch.testing"):
        return translate(f)
    try:
        if isinstance(f, types.MethodDescriptorType) or op.name.startswith("__"):
            return getattr(weft.Tensor, op.name)
        return look_up(weft, op.name)
    except AttributeError:
        raise Absent(f"{ABSENT} {op.name}") from None


def translate(f: Any) -> Any:
    """A function of PyTorch's tests with ``torch`` replaced by ``weft`` wherever it occurs."""
    if isinstance(f, functools.partial):
        return functools.partial(translate(f.func), *to_weft(f.args), **to_weft(f.keywords))
    module = getattr(f, "__module__", None) or ""
    if getattr(f, "__name__", None) == "wrapper_set_seed":
        return seeded
    if isinstance(f, types.FunctionType) and module.startswith("torch.testing"):
        return _rebuilt(f)
    if f is torch.Tensor:
        return weft.Tensor
    if isinstance(f, types.MethodDescriptorType | types.WrapperDescriptorType):
        return getattr(weft.Tensor, f.__name__)
    if isinstance(f, types.FunctionType) and f.__qualname__.startswith("Tensor."):
        return getattr(weft.Tensor, f.__name__)
    if module.startswith("torch"):
        for place in ("", "nn.functional", "linalg", "special", "fft"):
            with suppress(AttributeError):
                return getattr(look_up(weft, place) if place else weft, f.__name__)
        raise Absent(f"{ABSENT} {module}.{f.__name__}")
    return f


def _rebuilt(f: types.FunctionType) -> types.FunctionType:
    names: dict[str, Any] = dict(f.__globals__)
    names.update(torch=weft, F=weft.nn.functional)
    for name in f.__code__.co_names:
        used = f.__globals__.get(name)
        if isinstance(used, types.FunctionType) and used is not f:
            names[name] = translate(used)
    cells = tuple(types.CellType(to_weft(c.cell_contents)) for c in f.__closure__ or ())
    made = types.FunctionType(f.__code__, names, f.__name__, to_weft(f.__defaults__), cells)
    made.__kwdefaults__ = to_weft(f.__kwdefaults__)
    return made


# --- comparing -------------------------------------------------------------------------


def compare(actual: Any, expected: Any, where: str, factor: float, values: bool = True) -> None:
    """Raise Mismatch unless weft's value is PyTorch's in structure, dtype, shape and values."""
    if isinstance(expected, torch.Tensor):
        if not isinstance(actual, weft.Tensor):
            raise Mismatch(f"{where}: expected a tensor, got {type(actual).__name__}")
        compare_arrays(actual._a, array_of(expected), where, factor, values)
    elif isinstance(expected, torch.dtype | torch.device | torch.Size | torch.memory_format):
        if str(actual) != str(expected):
            raise Mismatch(f"{where}: {actual} where torch has {expected}")
    elif isinstance(expected, (tuple, list)):
        if not isinstance(actual, (tuple, list)) or len(actual) != len(expected):
            shown = f"{len(actual)} values" if isinstance(actual, (tuple, list)) else type(actual)
            raise Mismatch(f"{where}: {shown} where torch has {len(expected)} values")
        if hasattr(expected, "_fields") or type(expected).__module__ == "torch.return_types":
            check_fields(actual, expected, where)
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            compare(a, e, f"{where}[{i}]", factor, values)
    elif isinstance(expected, dict):
        if set(actual) != set(expected):
            raise Mismatch(f"{where}: keys {sorted(actual)} where torch has {sorted(expected)}")
        for k, e in expected.items():
            compare(actual[k], e, f"{where}[{k!r}]", factor, values)
    elif isinstance(expected, bool | int | float | complex):
        if type(actual) is not type(expected):
            raise Mismatch(f"{where}: {actual!r} where torch has {expected!r}")
        compare_arrays(np.asarray(actual), np.asarray(expected), where, factor, values)
    elif expected is None and actual is not None:
        raise Mismatch(f"{where}: {type(actual).__name__} where torch has None")


def check_fields(actual: Any, expected: Any, where: str) -> None:
    """Named results have the same names."""
    for name in dir(expected):
        known = not name.startswith("_") and name not in ("count", "index")
        if known and not name.startswith("n_") and not hasattr(actual, name):
            raise Mismatch(f"{where}: the result has no field {name!r}")


def compare_arrays(
    actual: np.ndarray, expected: np.ndarray, where: str, factor: float, values: bool
) -> None:
    """Raise Mismatch unless dtype, shape and values agree."""
    if actual.dtype != expected.dtype:
        raise Mismatch(f"{where}: dtype {actual.dtype} where torch has {expected.dtype}")
    if actual.shape != expected.shape:
        raise Mismatch(f"{where}: shape {actual.shape} where torch has {expected.shape}")
    if not values or np.array_equal(actual, expected):
        return
    wrong, tolerance = differing(actual, expected, factor)
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise Mismatch(
            f"{where}: {int(wrong.sum())} of {wrong.size} values differ; at {first} "
            f"{actual[first]!s} where torch has {expected[first]!s} (tolerance {tolerance})"
        )


def differing(a: np.ndarray, e: np.ndarray, factor: float) -> tuple[np.ndarray, str]:
    """Which elements are not close, and the tolerance used, in words."""
    if e.dtype.name not in TOLERANCE:
        return np.asarray(a != e), "none"
    relative, absolute = (factor * t for t in TOLERANCE[e.dtype.name])
    wide = np.complex128 if e.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, e = a.astype(wide), e.astype(wide)
        size = np.abs(e)
        absolute *= min(max(size[np.isfinite(size)].max(initial=0.0), 1.0), LARGEST_SCALE)
        # The difference is NaN, and so not close, where either is NaN or both are infinite.
        close = (np.abs(a - e) <= absolute + relative * size) & np.isfinite(size) | (a == e)
        if wide is np.complex128:
            # Which part of a complex number is infinite or NaN is nobody's promise.
            close |= ~np.isfinite(a) & ~np.isfinite(e)
        else:
            close |= np.isnan(a) & np.isnan(e)
    return np.asarray(~close), f"{relative:g} relative, {absolute:g} absolute"


# Factorisations are unique only up to signs, phases or a basis: compare what is unique.
def _adjoint(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2).conj()


def _svd_parts(u: np.ndarray, s: np.ndarray, vh: np.ndarray) -> list[np.ndarray]:
    k = s.shape[-1]
    whole = (u[..., :k] * s[..., None, :]) @ vh[..., :k, :] if u.size and vh.size else s
    return [s, whole, _adjoint(u) @ u, vh @ _adjoint(vh)]


def _eigh_parts(w: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    return [w, (v * w[..., None, :]) @ _adjoint(v), _adjoint(v) @ v]


def _eig_parts(w: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    whole = (v * w[..., None, :]) @ np.linalg.inv(v)
    return [_sorted(w), whole, np.linalg.norm(v, axis=-2)]


def _sorted(w: np.ndarray) -> np.ndarray:
    order = np.lexsort((np.round(w.imag, 5), np.round(w.real, 5)), axis=-1)
    return np.take_along_axis(w, order, -1)


UNIQUE_PARTS: dict[str, Callable[..., list[np.ndarray]]] = {
    "linalg.svd": _svd_parts,
    "svd": lambda u, s, v: _svd_parts(u, s, _adjoint(v)),
    "svd_lowrank": lambda u, s, v: _svd_parts(u, s, _adjoint(v)),
    "pca_lowrank": lambda u, s, v: _svd_parts(u, s, _adjoint(v)),
    "linalg.eigh": _eigh_parts,
    "linalg.eig": _eig_parts,
    "linalg.eigvals": lambda w: [_sorted(w)],
}


# Where equal values stand is free in these: name -> position of dim among the arguments.
TIES = {"sort": 1, "argsort": 1, "mode": 1, "median": 1, "nanmedian": 1, "topk": 2, "kthvalue": 2}


def compare_picks(op: Any, actual: Any, expected: Any, sample: Any, where: str) -> None:
    """Indices into the input need only point at the values that torch's indices point at."""
    compare(actual, expected, where, 1.0, values=False)
    args, kwargs = parts_of(sample)
    place = TIES[op.name]
    dim = kwargs.get("dim", args[place] if len(args) > place else -1)
    source = np.atleast_1d(array_of(args[0]))

    def picked(indices: np.ndarray) -> np.ndarray:
        whole = indices.reshape(1) if not indices.ndim else indices
        if whole.ndim < source.ndim:
            whole = np.expand_dims(whole, dim)
        return np.take_along_axis(source, whole, dim).reshape(indices.shape)

    if isinstance(expected, torch.Tensor):
        compare_arrays(picked(actual._a), picked(array_of(expected)), where, 1.0, True)
        return
    compare(actual[0], expected[0], f"{where}[0]", 1.0)
    values = picked(actual[1]._a)
    compare_arrays(values, array_of(expected[0]), f"{where}[1], where its indices point", 1.0, True)


def compare_outputs(op: Any, actual: Any, expected: Any, sample: Any, where: str) -> None:
    """Compare an op's results, by their unique parts where the op has freedom."""
    indices = op.name == "argsort" or isinstance(expected, tuple)
    if op.name in TIES and indices and not sample.kwargs.get("stable"):
        compare_picks(op, actual, expected, sample, where)
        return
    factor = LOOSE.get(full_name(op), LOOSE.get(op.name, 1.0))
    parts = UNIQUE_PARTS.get(op.name)
    compare(actual, expected, where, factor, op.name not in UNSPECIFIED and parts is None)
    if parts is None:
        return
    ours = parts(*(t._a for t in tensors_in(actual)))
    theirs = parts(*(array_of(t) for t in tensors_in(expected)))
    for i, (a, e) in enumerate(zip(ours, theirs, strict=True)):
        compare_arrays(a, e, f"{where} (part {i} that is unique)", 100 * factor, True)


# --- running ---------------------------------------------------------------------------


def both_seeds() -> None:
    """Start both generators from the same seed."""
    torch.default_generator.manual_seed(7)
    weft.manual_seed(7)


def samples_of(op: Any, dtype: str, settings: Settings, requires_grad: bool = False) -> list[Any]:
    """Sample inputs, spread evenly over what the table has."""
    torch.manual_seed(0)
    make = op.reference_inputs if settings.reference else op.sample_inputs
    count = settings.samples
    made = make("cpu", getattr(torch, dtype), requires_grad=requires_grad)
    found = list(itertools.islice(made, 40 * count))
    if len(found) <= count:
        return found
    return [found[i * len(found) // count] for i in range(count)]


def parts_of(sample: Any) -> tuple[list[Any], dict[str, Any]]:
    """A sample as positional and keyword arguments."""
    return [sample.input, *sample.args], dict(sample.kwargs)


def run_sample(op: Any, ours: Callable, theirs: Callable, what: str, sample: Any) -> bool:
    """Compare results and arguments after the call; False when PyTorch itself refuses."""
    args, kwargs = fresh(parts_of(sample))
    w_args, w_kwargs = to_weft((args, kwargs))
    both_seeds()
    try:
        expected = theirs(*args, **kwargs)
    except Exception:
        return False
    for t in tensors_in(expected):
        numpy_dtype(t.dtype)
    both_seeds()
    actual = ours(*w_args, **w_kwargs)
    if what.startswith("in-place") and expected is args[0] and actual is not w_args[0]:
        raise Mismatch("in-place result: not the tensor itself, as torch's is")
    if not op.name.startswith("unsafe"):  # whose results nobody may change
        compare_memory((w_args, w_kwargs), actual, (args, kwargs), expected, what)
    try:
        compare_outputs(op, actual, expected, sample, f"{what}result")
        if op.name not in UNSPECIFIED:
            compare(w_args, args, f"{what}arguments after the call", 1.0)
    except Mismatch:
        if not any(t.dtype in HALF for t in tensors_in(expected)):
            raise
        compare_outputs(op, actual, widened(theirs, sample, expected), sample, f"{what}result")
    return True


def compare_memory(w_given: Any, actual: Any, given: Any, expected: Any, what: str) -> None:
    """A result is a view of an argument where torch's is, and nowhere else."""
    results, arguments = tensors_in(expected), tensors_in(given)
    w_results, w_arguments = tensors_in(actual), tensors_in(w_given)
    if (len(results), len(arguments)) != (len(w_results), len(w_arguments)):
        return  # told elsewhere
    for (i, r), (j, a) in itertools.product(enumerate(results), enumerate(arguments)):
        if not r.numel() or not a.numel() or r._is_zerotensor() or a._is_zerotensor():
            continue
        theirs = r.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()
        r, a = w_results[i], w_arguments[j]
        ours = r.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()
        if ours != theirs:
            says = "shares memory" if ours else "shares no memory"
            raise Mismatch(f"{what}result {i}: {says} with argument {j}, unlike torch's")


HALF = (torch.float16, torch.bfloat16)


def widened(function: Callable, sample: Any, like: Any) -> Any:
    """PyTorch's result by way of float32: some of its kernels round at every step in half types."""
    args, kwargs = walk(
        fresh(parts_of(sample)),
        lambda v: v.float() if isinstance(v, torch.Tensor) and v.dtype in HALF else v,
    )
    both_seeds()
    precise = iter(tensors_in(function(*args, **kwargs)))
    return walk(like, lambda v: next(precise).to(v.dtype) if isinstance(v, torch.Tensor) else v)


def run_gradient(op: Any, ours: Callable, order: int, sample: Any) -> bool:
    """Compare vector-Jacobian products of an order, for fixed random cotangents."""
    wrapper = gradient_wrapper(op)
    args, kwargs = fresh(parts_of(sample))
    w_args, w_kwargs = to_weft((args, kwargs))
    leaves, w_leaves = tensors_in((args, kwargs)), tensors_in((w_args, w_kwargs))
    chosen = [i for i, t in enumerate(leaves) if t.requires_grad]
    both_seeds()
    try:
        outputs = tensors_in(sample.output_process_fn_grad(wrapper(op.op, *args, **kwargs)))
        expected = derivatives(torch, outputs, [leaves[i] for i in chosen], order)
    except Exception:
        return False
    both_seeds()
    result = translate(wrapper)(ours, *w_args, **w_kwargs)
    w_outputs = tensors_in(translate(sample.output_process_fn_grad)(result))
    if len(w_outputs) != len(outputs):
        raise Mismatch(f"gradient: {len(w_outputs)} outputs where torch has {len(outputs)}")
    for i, (w, t) in enumerate(zip(w_outputs, outputs, strict=True)):
        if w.requires_grad != t.requires_grad:
            raise Mismatch(f"output {i}: requires_grad is {w.requires_grad}, unlike torch's")
    actual = derivatives(weft, w_outputs, [w_leaves[i] for i in chosen], order)
    factor = 10**order * LOOSE.get(full_name(op), LOOSE.get(op.name, 1.0))
    for i, a, e in zip(chosen, actual, expected, strict=True):
        a = weft.core.tensor.wrap(np.zeros_like(w_leaves[i]._a)) if a is None else a
        e = torch.zeros_like(leaves[i]) if e is None else e
        compare(a, e, f"gradient of tensor {i} of the arguments", factor)
    return True


def derivatives(library: Any, outputs: list[Any], inputs: list[Any], order: int) -> list[Any]:
    """The gradient of the outputs, or the gradient of the gradient; None where there is none."""
    for level in range(order):
        chosen = [(i, t) for i, t in enumerate(outputs) if t is not None and t.requires_grad]
        if not chosen:
            return [None] * len(inputs)
        weights = [cotangent(library, t, (level, i)) for i, t in chosen]
        outputs = library.autograd.grad(
            [t for _, t in chosen],
            inputs,
            weights,
            allow_unused=True,
            create_graph=level + 1 < order,
        )
    return list(outputs)


def gradient_wrapper(op: Any) -> Callable:
    """The op table's own way to keep inputs in the op's domain, such as symmetric matrices."""
    wrapper = op.gradcheck_wrapper
    if "masked" in getattr(wrapper, "__name__", "") or isinstance(wrapper, functools.partial):
        return lambda f, *args, **kwargs: f(*args, **kwargs)
    return wrapper


def cotangent(library: Any, like: Any, seed: tuple[int, int]) -> Any:
    """Fixed random weights in the shape and dtype of an output, none of them near zero."""
    rng, shape = np.random.default_rng(seed), tuple(like.shape)
    values = rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)
    if like.is_complex():
        values = values + 1j * rng.uniform(-1.0, 1.0, shape)
    if library is torch:
        return torch.as_tensor(values).to(like.dtype)
    return weft.core.tensor.wrap(np.asarray(values).astype(like.dtype.np))


def tensors_in(value: Any) -> list[Any]:
    """The tensors of a nested value, in order."""
    if isinstance(value, torch.Tensor | weft.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_in(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors_in(v)]
    return []


@dataclass
class Run:
    """One kind of comparison of an op: its samples, and what to do with each."""

    label: str
    samples: Callable[[], list[Any]]
    step: Callable[[Any], bool]


def runs(op: Any, settings: Settings) -> Iterator[Run]:
    """What there is to compare for an op."""
    supported, backward = (
        {str(d).removeprefix("torch.") for d in found("cpu")}
        for found in (op.supported_dtypes, op.supported_backward_dtypes)
    )
    ours = counterpart(op)
    # An op for integers or complex numbers alone is run with what it takes.
    usual = [d for d in settings.dtypes if d in supported]
    for dtype in usual or [d for d in DTYPES if d in supported]:
        step = functools.partial(run_sample, op, ours, op.op, "")
        yield Run(dtype, functools.partial(samples_of, op, dtype, settings), step)
        comparable = dtype in GRADIENT_DTYPES and op.name not in WRONG_GRADIENT
        if settings.gradients and comparable and dtype in backward:
            samples = functools.partial(samples_of, op, dtype, settings, requires_grad=True)
            if op.supports_autograd:
                yield Run(
                    f"{dtype} gradient", samples, functools.partial(run_gradient, op, ours, 1)
                )
            if settings.second_order and op.supports_gradgrad:
                step = functools.partial(run_gradient, op, ours, 2)
                yield Run(f"{dtype} second order", samples, step)
    if settings.variants and VARIANT_DTYPE in supported & set(settings.dtypes):
        samples = functools.partial(samples_of, op, VARIANT_DTYPE, settings)
        if op.method_variant is not None:
            method = variant(op.method_variant)
            step = functools.partial(run_sample, op, method, op.method_variant, "method's ")
            yield Run("method", lambda: [s for s in samples() if has_self(s)], step)
        if op.inplace_variant is not None:
            method = variant(op.inplace_variant)
            step = functools.partial(run_sample, op, method, op.inplace_variant, "in-place ")
            fitting = lambda: [s for s in samples() if has_self(s) and not s.broadcasts_input]
            yield Run("in place", fitting, step)


def variant(theirs: Callable) -> Callable:
    """weft's method, looked up when it is called, so that its absence is one sample's failure."""
    return lambda *args, **kwargs: translate(theirs)(*args, **kwargs)


def has_self(sample: Any) -> bool:
    """Whether a sample can be used with a method."""
    return isinstance(sample.input, torch.Tensor)


def check(op: Any, settings: Settings) -> Result:
    """Run one op; never raises for what the op does."""
    result = Result(full_name(op))
    reason = OUT_OF_SCOPE.get(op.name) or OUT_OF_SCOPE.get(full_name(op))
    if reason:
        result.status, result.messages = "out of scope", {"reason": reason}
        return result
    start = time.perf_counter()
    try:
        with time_limit(settings.seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare_all(op, settings, result)
    except Slow:
        result.messages["time"] = f"took more than {settings.seconds:g} s"
    except Absent as e:
        result.messages["name"] = str(e)
    if not result.samples and not result.messages:
        result.messages["samples"] = "nothing to compare: PyTorch itself raises on every sample"
    if result.messages:
        absent = all(ABSENT in m for m in result.messages.values())
        result.status = "missing" if absent and not result.samples else "fail"
    result.seconds = time.perf_counter() - start
    return result


def compare_all(op: Any, settings: Settings, result: Result) -> None:
    """Run everything there is for an op, noting the first failure of each kind."""
    for run in runs(op, settings):
        for number, sample in enumerate(run.samples()):
            message = failure(run.step, sample, result, settings.verbose)
            if message:
                where = f"  [sample {number}: {described(parts_of(sample))}]"
                result.messages[run.label] = message + where
                break
        if ABSENT in result.messages.get(run.label, "") and not result.samples:
            return


def failure(step: Callable, sample: Any, result: Result, verbose: bool) -> str:
    """Run one sample: the message of its failure, or nothing."""
    try:
        if step(sample):
            result.samples += 1
        else:
            result.torch_raises += 1
    except Unsupported:
        result.torch_raises += 1
    except Exception as e:
        if verbose:
            traceback.print_exc(file=sys.stdout)
        text = str(e).strip().split("\n  at ")[0]
        plain = isinstance(e, Mismatch) or ABSENT in text
        return text if plain else f"{type(e).__name__}: {text}"
    return ""


def described(value: Any) -> str:
    """A sample in short: dtypes and shapes for tensors, all else as it is."""
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        return f"{name}{list(value.shape)}" + ("" if value.is_contiguous() else " strided")
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(described(v) for v in value) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}={described(v)}" for k, v in value.items()) + "}"
    return repr(value)[:80]


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise Slow in the block when it takes too long, by the process's own clock."""

    def stop(*_: Any) -> None:
        raise Slow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# --- command line ----------------------------------------------------------------------

BY_NAME: dict[str, Any] = {full_name(op): op for op in op_db}


def selected(patterns: list[str]) -> list[str]:
    """The entries whose name, name with variant, or either by pattern, was asked for."""
    found = []
    for name, op in BY_NAME.items():
        if any(fnmatch.fnmatchcase(n, p) for p in patterns for n in (name, op.name)):
            found.append(name)
    return found


def check_by_name(name: str, settings: Settings) -> Result:
    """``check`` for another process."""
    return check(BY_NAME[name], settings)


def check_all(names: list[str], settings: Settings, jobs: int) -> Iterator[Result]:
    """Results in the order of the names."""
    if jobs == 1:
        yield from (check_by_name(name, settings) for name in names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        yield from pool.map(check_by_name, names, itertools.repeat(settings))


def report(result: Result, quiet: bool) -> None:
    """Print one op's row, and why it failed."""
    if quiet and result.status in ("pass", "out of scope"):
        return
    print(f"{result.status:13}{result.name:45}{result.samples:5} samples{result.seconds:7.1f} s")
    if result.status != "pass":
        for label, message in result.messages.items():
            print(f"    {label}: {message[:400]}")
    sys.stdout.flush()


def totals(results: list[Result]) -> str:
    """Counts by status, and the pass rate over the ops in scope."""
    count = {s: sum(r.status == s for r in results) for s in ("pass", "fail", "missing")}
    scope = sum(count.values())
    rate = 100 * count["pass"] / scope if scope else math.nan
    left = len(results) - scope
    return (
        f"{count['pass']} pass, {count['fail']} fail, {count['missing']} missing, "
        f"{left} out of scope; pass rate {rate:.1f}% of {scope} in scope"
    )


KNOWN_HEADER = '''"""Ops of PyTorch's table that weft does not pass yet, with the first reason.

Written by ``python -m opdb --all --write-known``; an op here that passes fails its test.
"""
'''
KNOWN_LISTS = {
    "KNOWN_FAILURES": "# With few samples of float32 and float64, as the test suite runs them.",
    "DEEP_FAILURES": "# Only with more samples and all dtypes.",
}


def write_known(quick: list[Result], full: list[Result]) -> None:
    """Write the lists of known failures next to this file."""
    failing = {r.name for r in quick if r.status in ("fail", "missing")}
    lists = (quick, [r for r in full if r.name not in failing])
    text = KNOWN_HEADER
    for (name, comment), results in zip(KNOWN_LISTS.items(), lists, strict=True):
        rows = [known_row(r) for r in results if r.status in ("fail", "missing")]
        text += f"\n{comment}\n{name}: dict[str, str] = {{\n{''.join(sorted(rows))}}}\n"
    Path(__file__).with_name("opdb_known.py").write_text(text)


def known_row(result: Result) -> str:
    """One op's line in the list of known failures."""
    label, message = next(iter(result.messages.items()))
    reason = "missing" if result.status == "missing" else f"{label}: {message}"
    room = 100 - len(f'    "{result.name}": "",')
    reason = " ".join(reason.replace('"', "'").replace("\\", "/").split())
    reason = reason if len(reason) <= room else reason[: room - 3] + "..."
    return f'    "{result.name}": "{reason}",\n'


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="opdb", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="name, name.variant, or a pattern")
    parser.add_argument("--all", action="store_true", help="every op of the table")
    parser.add_argument("--from", dest="first", help="with --all: go on from this op")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first failing op")
    parser.add_argument("--verbose", action="store_true", help="tracebacks, and ops that pass")
    parser.add_argument("--quick", action="store_true", help="only what the test suite runs")
    parser.add_argument("--second-order", action="store_true", help="gradients of gradients too")
    parser.add_argument("--reference", action="store_true", help="the table's larger set of inputs")
    parser.add_argument("--samples", type=int, help="samples for each op and dtype")
    parser.add_argument("--dtypes", help="comma-separated names, such as float32,int64")
    parser.add_argument("--seconds", type=float, help="time limit for one op")
    parser.add_argument("--write-known", action="store_true", help="rewrite opdb_known.py")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="processes")
    return parser.parse_args()


def settings_from(args: argparse.Namespace) -> Settings:
    """The settings that the command line asks for."""
    given = {
        "samples": args.samples,
        "dtypes": args.dtypes and tuple(args.dtypes.split(",")),
        "seconds": args.seconds,
        "second_order": args.second_order,
        "reference": args.reference,
        "verbose": args.verbose,
    }
    chosen = {name: value for name, value in given.items() if value}
    return replace(QUICK if args.quick else FULL, **chosen)


def main() -> int:
    """Run the ops asked for; the exit code says whether all in scope passed."""
    args = arguments()
    names = list(BY_NAME) if args.all or args.write_known else selected(args.names)
    if args.first in names:
        names = names[names.index(args.first) :]
    elif args.first or not names:
        print("no op of that name; give names or --all", file=sys.stderr)
        return 2
    results = []
    for result in check_all(names, settings_from(args), args.jobs):
        results.append(result)
        report(result, quiet=args.all and not args.verbose)
        if args.fail_fast and result.status in ("fail", "missing"):
            break
    print(totals(results))
    if args.json:
        args.json.write_text(json.dumps([vars(r) for r in results], indent=1))
    if args.write_known:
        write_known(list(check_all(names, QUICK, args.jobs)), results)
    return int(any(r.status in ("fail", "missing") for r in results))


if __name__ == "__main__":
    sys.exit(main())
