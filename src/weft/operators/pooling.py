"""Pooling: the largest or the mean value of windows."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from weft.core.devices import host
from weft.core.dispatch import Op
from weft.core.shapes import ShapeDtype
from weft.core.tensor import Tensor
from weft.operators import api, batch_rules, shape_rules
from weft.operators.arguments import generator, ints, need_float, refuse
from weft.operators.build import Sample, general, linear
from weft.operators.reductions import mean
from weft.references import pooling as kernels

Ints = tuple[int, ...]

# --- the largest value of each window --------------------------------------------------

# Places are flat places in their own plane; scatter and gather are each other's transposes.
plane_scatter_op = linear(
    "plane_scatter",
    lambda x, indices, shape: kernels.max_pool_scatter(x, indices, shape),
    lambda g, indices: plane_gather_op(g, indices),
    names=("x", "indices"),
    promote="same",
    promote_args=(0,),
    grad_name="MaxPoolWithIndicesBackwardBackward",
    samples=lambda m: [
        Sample((m.real(1, 2, 3), np.array([[[0, 4, 4], [1, 2, 3]]])), {"shape": (1, 2, 5)})
    ],
    shape=shape_rules.shape_attribute,
    batch=batch_rules.images,
)
plane_gather_op: Op = linear(
    "plane_gather",
    lambda x, indices: kernels.gather_plane(x, indices),
    lambda g, indices, x_shape: plane_scatter_op(g, indices, shape=x_shape),
    names=("x", "indices"),
    grad_name="GatherBackward",
    samples=lambda m: [Sample((m.real(1, 2, 5), np.array([[[0, 4, 4], [1, 2, 3]]])))],
    shape=lambda x, indices: ShapeDtype(indices.shape, x.dtype),
    batch=batch_rules.images,
)


def _max_rule(g: Any, indices: Any, x_shape: Ints) -> Any:
    return plane_scatter_op(g[0], indices, shape=x_shape)


def _max_tangent(t: Any, indices: Any) -> Any:
    # The second output is an index, which does not move.
    return plane_gather_op(t, indices), None


def _by_rank(name: str) -> Callable[[dict[str, Any], Any], str]:
    """PyTorch's name of a pooling node: one for planes, another for volumes."""

    def chosen(attrs: dict[str, Any], inputs: Any) -> str:
        rank = len(attrs["size"] if "size" in attrs else attrs["kernel"])
        return name.format(max(rank, 2))

    return chosen


def _max_op(
    name: str,
    reference: Any,
    grad_name: str,
    samples: Any,
    rule: Any = _max_rule,
    layout: str = "image",
    *,
    shape: Any,
    batch: Any = None,
) -> Any:
    """An op of two outputs, the largest values and their places."""
    return general(
        name,
        reference,
        rule,
        jvp=(_max_tangent,),
        outputs=("y", "indices"),
        constant_outputs=(1,),
        promote="same",
        promote_args=(0,),
        variant=_by_rank(grad_name),
        samples=samples,
        names=("x",),
        layout=layout,
        shape=shape,
        batch=batch,
        ties=True,
    )


def _max_pool(
    x: np.ndarray, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[np.ndarray, np.ndarray]:
    return kernels.max_pool(x, kernel, stride, padding, dilation, ceil_mode)


def _window(kernel: Ints, stride: Ints, padding: Ints, **more: Any) -> dict[str, Any]:
    return {"kernel": kernel, "stride": stride, "padding": padding, **more}


max_pool_op = _max_op(
    "max_pool_with_indices",
    _max_pool,
    "MaxPool{}DWithIndicesBackward0",
    lambda m: [
        Sample((m.real(2, 2, 6),), _window((3,), (2,), (1,), dilation=(1,), ceil_mode=True)),
        Sample(
            (m.real(1, 2, 5, 4),),
            _window((2, 2), (1, 2), (0, 1), dilation=(2, 1), ceil_mode=False),
        ),
    ],
    shape=lambda x, kernel, stride, padding, dilation, ceil_mode: shape_rules.with_indices(
        shape_rules.pooled(x, kernel, stride, padding, ceil_mode, dilation), x
    ),
    batch=batch_rules.images,
)


def _check_not_empty(g: Any, name: str) -> None:
    """PyTorch gives empty results, but takes no gradients of them."""
    if 0 in g.shape[2:]:
        refuse(
            f"{name}_backward(): Expected grad_output to have non-zero size for non-batch "
            f"dimensions, but grad_output has sizes {list(g.shape)}"
        )


def _adaptive_max_rule(g: Any, indices: Any, x_shape: Ints) -> Any:
    _check_not_empty(g[0], "adaptive_max_pool")
    return plane_scatter_op(g[0], indices, shape=x_shape)


def _adaptive_avg_rule(g: Any, x_shape: Ints) -> Any:
    _check_not_empty(g, "adaptive_avg_pool")
    return adaptive_avg_pool_back_op(g, shape=x_shape)


adaptive_max_pool_op = _max_op(
    "adaptive_max_pool",
    lambda x, size: kernels.adaptive_max_pool(x, size),
    "AdaptiveMaxPool{}DBackward0",
    lambda m: [Sample((m.real(1, 2, 5, 4),), {"size": (2, 3)})],
    _adaptive_max_rule,
    layout="image 2d",
    shape=lambda x, size: shape_rules.with_indices(shape_rules.resized(x, size), x),
    batch=batch_rules.images,
)
fractional_max_pool_op = _max_op(
    "fractional_max_pool",
    lambda x, kernel, size, samples: kernels.fractional_max_pool(x, kernel, size, samples),
    "FractionalMaxPool{}DBackward0",
    lambda m: [
        Sample(
            (m.real(1, 2, 6, 5),),
            {"kernel": (2, 2), "size": (3, 2), "samples": np.full((1, 2, 2), 0.3)},
        )
    ],
    layout="rows",
    shape=lambda x, size: shape_rules.with_indices(shape_rules.resized(x, size), x),
)
max_unpool_op = linear(
    "max_unpool",
    lambda x, indices, size: kernels.max_unpool(x, indices, size),
    lambda g, indices: plane_gather_op(g, indices),
    names=("x", "indices"),
    layout="image 2d",
    variant=_by_rank("MaxUnpool{}DBackward0"),
    samples=lambda m: [Sample((m.real(1, 2, 2), np.array([[[0, 4], [1, 3]]])), {"size": (5,)})],
    shape=shape_rules.resized,
    batch=batch_rules.images,
)

# --- the mean of each window -----------------------------------------------------------


def _avg_pool(
    x: np.ndarray,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> np.ndarray:
    return kernels.avg_pool(
        x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _avg_pool_back(
    x: np.ndarray,
    shape: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> np.ndarray:
    return kernels.avg_pool_grad(
        x, shape, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


_MEAN = {"ceil_mode": True, "count_include_pad": False, "divisor_override": None}

avg_pool_op = linear(
    "avg_pool",
    _avg_pool,
    lambda g, x_shape, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override: (
        avg_pool_back_op(
            g,
            shape=x_shape,
            kernel=kernel,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            divisor_override=divisor_override,
        )
    ),
    promote="same",
    layout="image 2d",
    variant=_by_rank("AvgPool{}DBackward0"),
    single_use=True,
    samples=lambda m: [
        Sample((m.real(2, 2, 6),), _window((3,), (2,), (1,), **_MEAN)),
        Sample((m.real(1, 2, 4, 3),), _window((2, 2), (1, 2), (0, 1), **_MEAN)),
    ],
    shape=shape_rules.pooled,
    batch=batch_rules.images,
    ties=True,
)
avg_pool_back_op: Op = linear(
    "avg_pool_backward",
    _avg_pool_back,
    lambda g, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override: avg_pool_op(
        g,
        kernel=kernel,
        stride=stride,
        padding=padding,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        divisor_override=divisor_override,
    ),
    promote="same",
    samples=lambda m: [
        Sample((m.real(2, 2, 4),), _window((3,), (2,), (1,), shape=(2, 2, 6), **_MEAN))
    ],
    shape=shape_rules.shape_attribute,
    batch=batch_rules.images,
)
adaptive_avg_pool_op = linear(
    "adaptive_avg_pool",
    lambda x, size: kernels.adaptive_avg_pool(x, size),
    _adaptive_avg_rule,
    promote="same",
    variant=_by_rank("AdaptiveAvgPool{}DBackward0"),
    single_use=True,
    samples=lambda m: [
        Sample((m.real(1, 2, 5, 4),), {"size": (2, 2)}),
        Sample((m.real(1, 1, 3),), {"size": (5,)}),
    ],
    layout="image 2d",
    shape=shape_rules.resized,
    batch=batch_rules.images,
    ties=True,
)
adaptive_avg_pool_back_op: Op = linear(
    "adaptive_avg_pool_backward",
    lambda x, shape: kernels.adaptive_avg_pool_grad(x, shape),
    lambda g, x_shape: adaptive_avg_pool_op(g, size=tuple(x_shape[2:])),
    promote="same",
    samples=lambda m: [Sample((m.real(1, 2, 2, 2),), {"shape": (1, 2, 5, 4)})],
    shape=shape_rules.shape_attribute,
    batch=batch_rules.images,
)

# --- arguments -------------------------------------------------------------------------


def _planes(input: Tensor, count: int, name: str) -> tuple[Tensor, bool]:
    """The input with a batch dimension, and whether it came with one."""
    rank = input.ndim
    if rank not in (count + 1, count + 2) or 0 in input._a.shape[1 if rank == count + 2 else 0 :]:
        refuse(
            f"{name}: Expected {count + 1}D or {count + 2}D (batch mode) tensor with optional 0 "
            f"dim batch size for input, but got: {list(input._a.shape)}"
        )
    # Without a batch there is no order of channels to keep.
    return (input, True) if rank == count + 2 else (input.contiguous().unsqueeze(0), False)


def _adaptive_planes(input: Tensor, output_size: Any, count: int, name: str) -> tuple[Tensor, bool]:
    """As ``_planes``; the first dimension may be empty, and for flat means the channels."""
    shape, rank = list(input._a.shape), input.ndim
    if rank not in (count + 1, count + 2):
        if count > 1 and rank <= count and not isinstance(output_size, (int, np.integer)):
            message = f"{name}: Input dimension should be at least {count + 1}, not {rank}"
            refuse(message, ValueError)
        refuse(f"{name}(): Expected {count + 1}D or {count + 2}D tensor, but got: {shape}")
    for d in range(1 if "max" in name or count == 3 else rank - count, rank):
        if not shape[d]:
            refuse(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but "
                f"input has sizes {shape} with dimension {d} being empty"
            )
    return (input, True) if rank == count + 2 else (input.contiguous().unsqueeze(0), False)


def _unbatched(batched: bool, *results: Tensor) -> tuple[Tensor, ...]:
    if batched:
        return results
    found = tuple(r.squeeze(0) for r in results)
    for r in found:
        if r.ndim > 2:  # to its users it is not a view, but for rows, where it is one in PyTorch
            r._base = r._view = None
    return found


def _window_arguments(
    count: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1
) -> tuple[Ints, Ints, Ints, Ints]:
    kernel = ints(kernel_size, count, "kernel_size")
    given = stride is not None and stride != () and stride != []
    stride = ints(stride, count, "stride") if given else kernel
    padding, dilation = ints(padding, count, "padding"), ints(dilation, count, "dilation")
    for name, values in (("kernel size", kernel), ("stride", stride), ("dilation", dilation)):
        if min(values) <= 0:
            refuse(f"{name} should be greater than zero, but got {list(values)}")
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if p < 0:
            refuse(f"pad must be non-negative, but got pad: {p}")
        if p > (d * (k - 1) + 1) // 2:
            refuse(
                f"pad should be at most half of effective kernel size, but got pad={p}, "
                f"kernel_size={k} and dilation={d}"
            )
    return kernel, stride, padding, dilation


def _max(
    count: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> tuple[Tensor, ...]:
    kernel, stride, padding, dilation = _window_arguments(
        count, kernel_size, stride, padding, dilation
    )
    x, batched = _planes(input, count, f"max_pool{count}d")
    y, indices = max_pool_op(
        x, kernel=kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode
    )
    return _unbatched(batched, y, indices)


MAX_POOL_DOC = """The largest value of each window; with its place if asked.

>>> x = torch.arange(16.0).view(1, 1, 4, 4)
>>> F.max_pool2d(x, 2)
tensor([[[[ 5.,  7.],
          [13., 15.]]]])
"""


def _offer_max_pool(count: int) -> None:
    name = f"max_pool{count}d"

    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        both = _max(count, input, kernel_size, stride, padding, dilation, ceil_mode)
        return both if return_indices else both[0]

    def with_indices(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = True,
    ) -> tuple[Tensor, ...]:
        """The largest value of each window and its place."""
        return _max(count, input, kernel_size, stride, padding, dilation, ceil_mode)

    pool.__doc__ = MAX_POOL_DOC
    for function, public in ((pool, name), (with_indices, f"{name}_with_indices")):
        function.__name__ = function.__qualname__ = public
        api.under("nn.functional", function)
        if function is pool or count == 1:
            api.top(function)


def _offer_avg_pool(count: int) -> None:
    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        """The mean of each window."""
        kernel, stride, padding, _ = _window_arguments(count, kernel_size, stride, padding)
        if divisor_override is not None and not isinstance(divisor_override, (int, np.integer)):
            refuse(
                f"avg_pool{count}d(): argument 'divisor_override' must be int, not "
                f"{type(divisor_override).__name__}",
                TypeError,
            )
        if divisor_override == 0:
            refuse("divisor must be not zero")
        x, batched = _planes(input, count, f"avg_pool{count}d")
        sizes = x._a.shape[2:]
        if count == 3 and any(n < k for n, k in zip(sizes, kernel, strict=True)):
            # Unlike planes, volumes have to hold a whole window, whatever the padding.
            refuse(f"input image {sizes} smaller than kernel size {kernel}")
        y = avg_pool_op(
            x,
            kernel=kernel,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            divisor_override=divisor_override,
        )
        return _unbatched(batched, y)[0]

    pool.__name__ = pool.__qualname__ = f"avg_pool{count}d"
    api.under("nn.functional", pool)
    if count == 1:
        api.top(pool)


def _adaptive_size(input: Tensor, output_size: Any, count: int) -> Ints:
    """The wanted size, where None stands for the input's own."""
    own = input._a.shape[-count:]
    if output_size is None or isinstance(output_size, (int, np.integer)):
        output_size = (output_size,) * count
    given = tuple(output_size)
    if len(given) != count:
        refuse(f"adaptive pooling: output_size must be {count} numbers, got {list(given)}")
    size = tuple(n if wanted is None else int(wanted) for n, wanted in zip(own, given, strict=True))
    if min(size) < 0:
        refuse(
            f"adaptive pooling: elements of output_size must be greater than or equal to 0 but "
            f"received {size}"
        )
    return size


def _offer_adaptive(count: int) -> None:
    def average(input: Tensor, output_size: Any) -> Tensor:
        """The means of as many even windows as asked for."""
        need_float(input, f"adaptive_avg_pool{count}d")
        x, batched = _adaptive_planes(input, output_size, count, f"adaptive_avg_pool{count}d")
        size = _adaptive_size(input, output_size, count)
        if set(size) == {1}:
            y = mean(x, tuple(range(-count, 0)), keepdim=True)  # as in PyTorch
        else:
            y = adaptive_avg_pool_op(x, size=size)
        return _unbatched(batched, y)[0]

    def largest_with_indices(
        input: Tensor, output_size: Any, return_indices: bool = True
    ) -> tuple[Tensor, ...]:
        """The largest values of as many even windows as asked for, and their places."""
        need_float(input, f"adaptive_max_pool{count}d")
        x, batched = _adaptive_planes(input, output_size, count, f"adaptive_max_pool{count}d")
        pair = adaptive_max_pool_op(x, size=_adaptive_size(input, output_size, count))
        return _unbatched(batched, *pair)

    def largest(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        """The largest values of as many even windows as asked for."""
        both = largest_with_indices(input, output_size)
        return both if return_indices else both[0]

    for function, name in (
        (average, f"adaptive_avg_pool{count}d"),
        (largest, f"adaptive_max_pool{count}d"),
        (largest_with_indices, f"adaptive_max_pool{count}d_with_indices"),
    ):
        function.__name__ = function.__qualname__ = name
        api.under("nn.functional", function)
    if count == 1:
        api.top(average)
        api.top(largest_with_indices, name="adaptive_max_pool1d")


def _unpooled_size(
    input: Tensor, count: int, kernel: Ints, stride: Ints, padding: Ints, output_size: Any
) -> Ints:
    spatial = input._a.shape[-count:]
    usual = tuple(
        (n - 1) * s + k - 2 * p for n, k, s, p in zip(spatial, kernel, stride, padding, strict=True)
    )
    if output_size is None:
        return usual
    wanted = tuple(int(n) for n in output_size)
    if len(wanted) == count + 2:
        wanted = wanted[2:]
    if len(wanted) != count:
        refuse(
            f"output_size should be a sequence containing {count} or {count + 2} elements, but it "
            f"has a length of '{len(wanted)}'",
            ValueError,
        )
    for n, default, s in zip(wanted, usual, stride, strict=True):
        if not default - s < n < default + s:
            refuse(
                f'invalid output_size "{list(wanted)}" (each must lie within a stride of '
                f"{list(usual)})",
                ValueError,
            )
    return wanted


def _offer_unpool(count: int) -> None:
    def unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
    ) -> Tensor:
        """Put the values of a max pooling back to their places, among zeros."""
        need_float(input, f"max_unpool{count}d")
        kernel = ints(kernel_size, count, "kernel_size")
        steps = kernel if stride is None else ints(stride, count, "stride")
        pad = ints(padding, count, "padding")
        if indices._a.dtype != np.int64:
            refuse(f"elements in indices should be type int64 but got: {indices.dtype!r}")
        if indices._a.shape != input._a.shape:
            refuse(
                f"Expected shape of indices to be same as that of the input tensor "
                f"({list(input._a.shape)}) but got indices tensor with shape: "
                f"{list(indices._a.shape)}"
            )
        size = _unpooled_size(input, count, kernel, steps, pad, output_size)
        x, batched = _planes(input, count, f"max_unpool{count}d")
        y = max_unpool_op(x, indices if batched else indices.unsqueeze(0), size=size)
        return _unbatched(batched, y)[0]

    unpool.__name__ = unpool.__qualname__ = f"max_unpool{count}d"
    api.under("nn.functional", unpool)


def _offer_lp_pool(count: int) -> None:
    average = api.NAMESPACES["nn.functional"][f"avg_pool{count}d"]

    def pool(
        input: Tensor,
        norm_type: float,
        kernel_size: Any,
        stride: Any = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        """The p-norm of each window."""
        size = prod(ints(kernel_size, count, "kernel_size"))
        mean = average(input**norm_type, kernel_size, stride, 0, ceil_mode)
        # A sum below zero, which odd powers allow, gives zero.
        return (mean.sign() * mean.abs().relu() * size).relu() ** (1.0 / norm_type)

    pool.__name__ = pool.__qualname__ = f"lp_pool{count}d"
    api.under("nn.functional", pool)


def _exact_ints(value: Any, count: int, what: str, name: str) -> Ints:
    """One number for all dimensions, or one for each: here a list of one is none."""
    if not isinstance(value, (int, np.integer)) and len(tuple(value)) != count:
        numbers = "Ints" if count == 2 else "three Ints"
        refuse(f"{name}: {what} must either be a single Int or tuple of {numbers}, got {value}")
    return ints(value, count, what)


def _check_samples(samples: Tensor, input: Tensor, planes: Ints, count: int) -> None:
    if samples._a.dtype != input._a.dtype:
        refuse("Expect _random_samples to have the same dtype as input")
    if samples.ndim != 3:
        refuse(f"Expect _random_samples to have 3 dimensions, got {samples.ndim}")
    given = samples._a.shape
    if given[0] < planes[0]:
        refuse("Expect _random_samples.size(0) no less then input batch size.")
    if given[1] != planes[1]:
        refuse("Expect _random_samples.size(1) equals to input channel size.")
    if given[2] != count:
        refuse(f"Expect _random_samples.size(2) equals to {count} got {given[2]}.")


def _fractional(
    count: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any
) -> tuple[Tensor, ...]:
    name = f"fractional_max_pool{count}d"
    if output_size is None and output_ratio is None:
        refuse(f"{name} requires specifying either an output_size or an output_ratio", ValueError)
    need_float(input, name)
    kernel = _exact_ints(kernel_size, count, "kernel_size", name)
    spatial = input._a.shape[-count:]
    if output_size is None:
        ratio = (output_ratio,) * count if isinstance(output_ratio, float) else output_ratio
        if len(ratio) != count:
            refuse(
                f"{name} requires output_ratio to either be a single Int or tuple of Ints.",
                ValueError,
            )
        output_size = tuple(int(n * r) for n, r in zip(spatial, ratio, strict=True))
    size = _exact_ints(output_size, count, "output_size", name)
    x, batched = _planes(input, count, name)
    axes = ("time", "height", "width")[3 - count :]
    for axis, n, k, wanted in zip(axes, spatial, kernel, size, strict=True):
        if wanted + k - 1 > n or k < 1:
            refuse(
                f"{name}(): pool {axis} {k} too large relative to input {axis} {n} for an output "
                f"of {wanted}"
                if k > 0
                else f"{name}(): kernel_size should be greater than zero, but got {kernel}"
            )
    planes = x._a.shape[:2]
    if samples is not None:
        _check_samples(samples, input, planes, count)
    if samples is None:
        drawn = generator().uniform((*planes, count), input._a.dtype)
    else:
        drawn = host(samples)[: planes[0]]
    pair = fractional_max_pool_op(x, kernel=kernel, size=size, samples=drawn)
    return _unbatched(batched, *pair)


def _offer_fractional(count: int) -> None:
    def with_indices(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = True,
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The largest values of windows at random places, and their places."""
        return _fractional(count, input, kernel_size, output_size, output_ratio, _random_samples)

    def pool(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        """The largest values of windows at random places."""
        both = with_indices(input, kernel_size, output_size, output_ratio, True, _random_samples)
        return both if return_indices else both[0]

    name = f"fractional_max_pool{count}d"
    for function, public in ((pool, name), (with_indices, f"{name}_with_indices")):
        function.__name__ = function.__qualname__ = public
        api.under("nn.functional", function)


for _count in (1, 2, 3):
    _offer_max_pool(_count)
    _offer_avg_pool(_count)
    _offer_adaptive(_count)
    _offer_unpool(_count)
    _offer_lp_pool(_count)
    if _count > 1:
        _offer_fractional(_count)
