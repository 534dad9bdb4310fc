"""Small private functions of PyTorch's that libraries import."""

from __future__ import annotations

import builtins
import contextlib
import functools
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeAlias

import weft
from weft.core import errors
from weft.core.tensor import Tensor
from weft.nn._arguments import ntuple
from weft.utils.data._utils.worker import Failure

# ------------------------------------------------------------------ types

Number: TypeAlias = int | float | bool
_bool, _int, _float, _complex = builtins.bool, builtins.int, builtins.float, builtins.complex
Device: TypeAlias = weft.device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | Any
MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | weft.device | str | dict[str, str] | None
StorageLike: TypeAlias = Any
DeviceObjType = weft.device
Collate: TypeAlias = Callable[..., Any]
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"
np_str_obj_array_pattern = re.compile(r"[SaUO]")


# ------------------------------------------------------------------ torch itself


def _assert(condition: Any, message: str) -> None:
    """An assertion that tracing keeps in PyTorch."""
    assert condition, message


def _assert_async(condition: Tensor, message: str = "") -> None:
    """Refuse a tensor of one element that is zero."""
    if not bool(condition):
        said = message or "Expected Tensor with single nonzero value, but got zero"
        raise RuntimeError(f"{said}\n  at {errors.here()}")


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The shape of a tensor as a tensor."""
    return weft.tensor(list(input.shape), dtype=weft.int64)


def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any
) -> Tensor:
    """The gradient of a softmax with respect to its input, from its result."""
    inner = grad_output * output
    return (inner - output * inner.sum(dim, keepdim=True)).to(input_dtype)


def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: Any) -> Any:
    """Call ``body_fn`` on its own results while ``cond_fn`` says so; each pass is recorded."""
    carried = tuple(carried_inputs)
    while cond_fn(*carried):
        result = body_fn(*carried)
        carried = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return carried


def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """The product of two float8 matrices times their scales, summed in float32."""
    result = (input.float() * scale_a) @ (mat2.float() * scale_b)
    result = result if bias is None else result + bias.float()
    result = result if scale_result is None else result * scale_result
    return result.to(input.dtype if out_dtype is None else out_dtype)


def _convert_indices_from_coo_to_csr(
    input: Tensor, size: int, *, out_int32: bool = False
) -> Tensor:
    """Where each row begins, from the sorted row numbers of entries."""
    dtype = weft.int32 if out_int32 else weft.int64
    return weft.searchsorted(input, weft.arange(size + 1, dtype=input.dtype)).to(dtype)


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """The row and the column of each entry, from where the rows begin."""
    dtype = weft.int32 if out_int32 else weft.int64
    rows = weft.arange(len(crow_indices) - 1).repeat_interleave(crow_indices.diff().long())
    pair = (col_indices, rows) if transpose else (rows, col_indices)
    return weft.stack([part.to(dtype) for part in pair])


def get_device_module(device: Any = None) -> Any:
    """The module of a kind of device, such as ``torch.cuda``."""
    kind = weft.get_default_device().type if device is None else weft.device(device).type
    return getattr(weft, kind)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int | None:
    """The number of a device; the CPU is -1 where it is allowed."""
    if isinstance(device, int):
        return device
    named = weft.device(device) if device is not None else None
    if named is not None and named.type == "cpu" and not allow_cpu:
        raise ValueError(f"Expected a non cpu device, but got: {device}\n  at {errors.here()}")
    if named is None or named.index is None:
        if not optional and not allow_cpu:
            raise ValueError(
                f"Expected a torch.device with a specified index or an integer, but got: {device}"
                f"\n  at {errors.here()}"
            )
        return -1
    return named.index


def _element_size(dtype: weft.dtype) -> int:
    """Bytes of one element."""
    return dtype.itemsize


def _flatten_dense_tensors(tensors: Any) -> Tensor:
    """All elements of some tensors, one after the other."""
    return weft.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Any) -> tuple[Tensor, ...]:
    """Views of a flat tensor in the shapes of others."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view_as(t) for part, t in zip(parts, tensors, strict=True))


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:
    """Products of groups of rows of ``mat_a`` with a matrix of ``mat_b`` each.

    ``offs`` says where each group ends: in the rows of a 2d ``mat_a``, the columns of a 2d
    ``mat_b``, or the shared dimension of two 2d matrices.
    """
    if bias is not None:
        raise RuntimeError(f"grouped_mm: Bias not supported yet\n  at {errors.here()}")
    if mat_a.ndim == 3 and mat_b.ndim == 3:
        result = mat_a @ mat_b
    elif offs is None:
        raise RuntimeError(f"grouped_mm: Have to provide offsets for 2d\n  at {errors.here()}")
    else:
        ends = offs.tolist()
        parts = list(zip([0, *ends[:-1]], ends, strict=True))
        if mat_a.ndim == 2 and mat_b.ndim == 3:
            rows = [mat_a[i:j] @ mat_b[g] for g, (i, j) in enumerate(parts)]
            rows.append(mat_a.new_zeros(mat_a.shape[0] - ends[-1], mat_b.shape[-1]))
            result = weft.cat(rows)
        elif mat_a.ndim == 3:
            columns = [mat_a[g] @ mat_b[:, i:j] for g, (i, j) in enumerate(parts)]
            columns.append(mat_a.new_zeros(mat_a.shape[1], mat_b.shape[-1] - ends[-1]))
            result = weft.cat(columns, dim=-1)
        else:
            result = weft.stack([mat_a[:, i:j] @ mat_b[i:j] for i, j in parts])
    return result if out_dtype is None else result.to(out_dtype)


# ------------------------------------------------------------------ TorchScript


def _overload(func: Callable) -> Callable:
    """Mark a function as one of several signatures; Python takes the last one as it is."""
    return func


_overload_method = _copy_to_script_wrapper = _script_if_tracing = _overload


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Callable, if_false: Callable, *more: Any
) -> Callable:
    """A function that is one of two, by the value of an argument."""

    @functools.wraps(if_false)
    def choose(*args: Any, **kwargs: Any) -> Any:
        given = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return (if_true if given else if_false)(*args, **kwargs)

    return choose


class Attribute:
    """A value with a type for TorchScript."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type


# ------------------------------------------------------------------ modules


def _list_with_default(out_size: Any, defaults: list[int]) -> Any:
    """A size in which None stands for the default."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [
        d if v is None else v for v, d in zip(out_size, defaults[-len(out_size) :], strict=True)
    ]


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """The elements from last to first, each n times."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _ntuple(n: int, name: str = "parse") -> Callable:
    """A function that repeats a number n times, and leaves several as they are."""
    parse = ntuple(n)
    parse.__name__ = name
    return parse


def _get_activation_fn(activation: str) -> Callable:
    """The function of a name."""
    functions = {"relu": weft.nn.functional.relu, "gelu": weft.nn.functional.gelu}
    if activation not in functions:
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return functions[activation]


def _get_clones(module: Any, N: int) -> Any:
    """A list of deep copies of a module."""
    import copy

    return weft.nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def _get_seq_len(src: Tensor, batch_first: bool) -> int | None:
    """The length of sequences."""
    return src.shape[0] if src.ndim == 2 else src.shape[1 if batch_first else 0]


def _generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
    """The mask that hides later positions."""
    return weft.nn.Transformer.generate_square_subsequent_mask(sz, device, dtype)


def _no_grad_uniform_(tensor: Tensor, a: float, b: float, generator: Any = None) -> Tensor:
    """Fill with draws of the uniform distribution."""
    return weft.nn.init.uniform_(tensor, a, b, generator)


def _no_grad_normal_(tensor: Tensor, mean: float, std: float, generator: Any = None) -> Tensor:
    """Fill with draws of the normal distribution."""
    return weft.nn.init.normal_(tensor, mean, std, generator)


def _no_grad_trunc_normal_(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any = None
) -> Tensor:
    """Fill with draws of the truncated normal distribution."""
    return weft.nn.init.trunc_normal_(tensor, mean, std, a, b, generator)


def _no_grad_fill_(tensor: Tensor, val: float) -> Tensor:
    """Fill with a value."""
    return weft.nn.init.constant_(tensor, val)


def _no_grad_zero_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return weft.nn.init.zeros_(tensor)


# ------------------------------------------------------------------ distributions


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    """Draws of the standard normal distribution."""
    return weft.normal(weft.zeros(shape, dtype=dtype), weft.ones(shape, dtype=dtype))


def _clipped_sigmoid(x: Tensor) -> Tensor:
    """A sigmoid kept off 0 and 1."""
    limits = weft.finfo(x.dtype)
    return weft.clamp(weft.sigmoid(x), min=limits.tiny, max=1.0 - limits.eps)


# ------------------------------------------------------------------ optimizers


def _use_grad_for_differentiable(func: Callable) -> Callable:
    """Run a step without recording, unless the optimizer is differentiable."""

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with weft.set_grad_enabled(bool(self.defaults.get("differentiable", False))):
            return func(self, *args, **kwargs)

    return step


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Whether a step should be fused, and whether by lists of tensors: neither on the CPU."""
    return False, False


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Devices whose work can be captured as a graph of kernels."""
    return ["cuda", "xpu", "hpu"]


def _get_scalar_dtype(is_fused: bool | None = None) -> Any:
    """The dtype of step counts."""
    if is_fused:
        return weft.float32
    return weft.float64 if weft.get_default_dtype() == weft.float64 else weft.float32


def _get_value(x: Any) -> Any:
    """The number in a tensor."""
    return x.item() if isinstance(x, Tensor) else x


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Put real views into lists instead of complex tensors."""
    for i, p in enumerate(params):
        if weft.is_complex(p):
            for part in (params, *state_and_grads):
                part[i] = weft.view_as_real(part[i])


def _disable_dynamo_if_unsupported(single_tensor_fn: Any = None) -> Callable:
    """A decorator that changes nothing."""
    return lambda func: func


_group_tensors_by_device_and_dtype = weft.optim.Optimizer._group_tensors_by_device_and_dtype


# ------------------------------------------------------------------ the rest


def _get_torch_home() -> str:
    """The folder of downloaded models and weights."""
    return os.path.dirname(weft.hub.get_dir())


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The random states of the devices other than the CPU that tensors are on: none."""
    return [], []


def set_device_states(devices: list[int], states: list[Tensor], **kwargs: Any) -> None:
    """Put those states back."""


def format_time(time_us: float | None = None, time_ms: Any = None, time_s: Any = None) -> str:
    """A time with a unit that suits it."""
    if time_us is None:
        time_us = time_s * 1e6 if time_s is not None else time_ms * 1e3
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time_us >= size:
            return f"{time_us / size:.3f}{unit}"
    return f"{time_us:.3f}us"


def _default_schedule_fn(_: int) -> Any:
    """A profiler's plan without phases: every step is recorded."""
    return weft.profiler.ProfilerAction.RECORD


@contextlib.contextmanager
def __allow_nonbracketed_mutation() -> Iterator[None]:
    """A block in which switches of backends may be set; they always may."""
    yield


def alert_not_deterministic(caller: str) -> None:
    """Refuse or warn where only deterministic algorithms are wanted."""
    if weft.are_deterministic_algorithms_enabled():
        import warnings

        text = f"{caller} does not have a deterministic implementation"
        if not weft.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(f"{text}\n  at {errors.here()}")
        warnings.warn(text, stacklevel=3)


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """The settings behind the compiler's modes; here they have none."""
    modes = ("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
    options: dict[str, Any] = {name: {} for name in modes}
    return options[mode] if mode else options


def is_dynamo_supported() -> bool:
    """Whether PyTorch's graph capture works: it does not."""
    return False


def assume_constant_result(fn: Callable) -> Callable:
    """A mark for graph capture."""
    return fn


def mark_static_address(t: Any, guard: bool = True) -> None:
    """A mark for graph capture."""


def _keep(*kinds: Any, **options: Any) -> Callable:
    """A decorator that returns its argument: for exporters, which weft does not have."""
    return lambda function: function


class _Broadcasting:
    """In annotations: a list, or one number for all of its members."""

    def __getitem__(self, kind: Any) -> None:
        """Says nothing that Python checks."""


_BROADCASTING = _Broadcasting()


_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -float("inf"), "amin": float("inf")}


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Reduce the rows of a tensor in runs, whose lengths or whose ends are given."""
    if lengths is None:
        if offsets is None:
            raise RuntimeError(f"Either lengths or offsets must be defined.\n  at {errors.here()}")
        lengths = offsets.diff()
    if axis != 0 or lengths.ndim != 1:
        raise NotImplementedError(
            f"segment_reduce: weft reduces runs of rows (axis 0, lengths of one dimension), not of "
            f"axis {axis} with lengths of shape {tuple(lengths.shape)}\n  at {errors.here()}"
        )
    start = _START[reduce] if initial is None else initial
    shape = (len(lengths), *data.shape[1:])
    run = weft.arange(len(lengths)).repeat_interleave(lengths)
    run = run.reshape(-1, *[1] * (data.ndim - 1)).expand(data.shape)
    kind = "sum" if reduce == "mean" else reduce
    result = data.new_full(shape, start).scatter_reduce(0, run, data, kind)
    if reduce != "mean":
        return result
    counts = lengths.reshape(-1, *[1] * (data.ndim - 1)).to(data.dtype)
    return result / (counts if initial is None else counts.clamp(min=1))


class ExceptionWrapper:
    """An exception on its way from another thread or process."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        error = sys.exc_info()[1] if exc_info is None else exc_info[1]
        assert error is not None
        self.exc_type, self.where = type(error), where
        self.exc_msg = "".join(traceback.format_exception(error))
        self._failure = Failure(error, where)

    def reraise(self) -> NoReturn:
        """Raise it again, with its traceback in the message."""
        self._failure.reraise()
        raise AssertionError("not reached")
