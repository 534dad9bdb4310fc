"""Resizing images and reading them at free points."""

from __future__ import annotations

import warnings
from math import prod
from typing import Any

import numpy as np

from weft.core.dispatch import Op
from weft.core.tensor import Tensor
from weft.operators import api, batch_rules, shape_rules
from weft.operators.arguments import need_float, refuse
from weft.operators.build import Sample, general, linear
from weft.references import resampling as kernels

Ints = tuple[int, ...]
_MODES = {
    "nearest": (3, 4, 5),
    "nearest-exact": (3, 4, 5),
    "area": (3, 4, 5),
    "linear": (3,),
    "bilinear": (4,),
    "bicubic": (4,),
    "lanczos": (4,),
    "trilinear": (5,),
}


def _attrs(mode: str, **more: Any) -> dict[str, Any]:
    return {"mode": mode, "align_corners": False, "scales": None, "antialias": False, **more}


def _upsample_name(mode: str, size: Any, antialias: bool, **rest: Any) -> str:
    camel = "".join(word.capitalize() for word in mode.split("-"))
    return f"Upsample{camel}{len(size)}D{'Aa' if antialias else ''}Backward0"


interpolate_op = linear(
    "upsample",
    lambda x, size, mode, align_corners, scales, antialias: kernels.interpolate(
        x, size, mode, align_corners, scales, antialias
    ),
    lambda g, x_shape, mode, align_corners, scales, antialias: interpolate_back_op(
        g,
        shape=x_shape,
        mode=mode,
        align_corners=align_corners,
        scales=scales,
        antialias=antialias,
    ),
    promote="same",
    layout="image",
    variant=lambda attrs, inputs: _upsample_name(**attrs),
    samples=lambda m: [
        Sample((m.real(1, 2, 3),), _attrs("linear", size=(5,))),
        Sample((m.real(1, 1, 3, 4),), _attrs("bilinear", size=(2, 6), align_corners=True)),
        Sample((m.real(1, 1, 4, 4),), _attrs("bicubic", size=(3, 3), antialias=True)),
        Sample((m.real(1, 1, 2, 3),), _attrs("nearest", size=(4, 2))),
    ],
    shape=shape_rules.resized,
    batch=batch_rules.images,
    # That is adaptive pooling in PyTorch, or a mean.
    ties=lambda attrs: attrs["mode"] == "area" and set(attrs["size"]) != {1},
)
interpolate_back_op: Op = linear(
    "upsample_backward",
    lambda x, shape, mode, align_corners, scales, antialias: kernels.interpolate_grad(
        x, shape, mode, align_corners, scales, antialias
    ),
    lambda g, x_shape, mode, align_corners, scales, antialias: interpolate_op(
        g,
        size=tuple(x_shape[2:]),
        mode=mode,
        align_corners=align_corners,
        scales=scales,
        antialias=antialias,
    ),
    promote="same",
    layout="image",
    samples=lambda m: [Sample((m.real(1, 2, 5),), _attrs("linear", shape=(1, 2, 3)))],
    shape=shape_rules.shape_attribute,
    batch=batch_rules.images,
)


def _is_whole(value: Any) -> bool:
    array = getattr(value, "_a", None)
    return hasattr(value, "__index__") if array is None else array.dtype.kind in "iu"


def _sizes(input: Tensor, size: Any, scale_factor: Any) -> tuple[Ints, Any]:
    """The size of the result, and the factors if they were given."""
    spatial = input._a.shape[2:]
    count = len(spatial)
    if size is not None and scale_factor is not None:
        refuse("only one of size or scale_factor should be defined", ValueError)
    if size is None and scale_factor is None:
        refuse("either size or scale_factor should be defined", ValueError)
    name, given = ("output size", size) if size is not None else ("scale_factor", scale_factor)
    values = tuple(given) if isinstance(given, (tuple, list)) else (given,) * count
    if len(values) != count:
        refuse(
            f"Input and {name} must have the same number of spatial dimensions, but got input "
            f"with spatial dimensions of {list(spatial)} and {name} of {given}. Please provide "
            "input tensor in (N, C, d1, d2, ...,dK) format and "
            f"{name} in (d1, d2, ...,dK) format",
            ValueError,
        )
    if size is not None:
        if not all(_is_whole(n) for n in values):
            refuse(
                "expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, "
                f"int, int], but got size with types {[type(n) for n in values]}",
                TypeError,
            )
        return tuple(int(n) for n in values), None
    factors = tuple(float(f) for f in values)
    return tuple(int(np.floor(n * f)) for n, f in zip(spatial, factors, strict=True)), factors


def _check_mode(input: Tensor, mode: str, align_corners: bool | None, antialias: bool) -> None:
    if align_corners is not None and mode in ("nearest", "area", "nearest-exact"):
        refuse(
            "align_corners option can only be set with the interpolating modes: linear | "
            "bilinear | bicubic | trilinear",
            ValueError,
        )
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and input.ndim == 4):
        refuse(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires "
            "a 4-D tensor as input",
            ValueError,
        )
    if mode == "lanczos" and align_corners:
        refuse("Lanczos mode does not support align_corners=True", ValueError)
    if mode == "lanczos" and not antialias:
        refuse("Lanczos mode requires antialias=True", ValueError)
    if input.ndim not in (3, 4, 5) or mode not in _MODES:
        refuse(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for the "
            "modes: nearest | linear | bilinear | bicubic | trilinear | lanczos | area | "
            "nearest-exact "
            f"(got {mode})",
            NotImplementedError,
        )
    if input.ndim not in _MODES[mode]:
        refuse(
            f"Got {input.ndim}D input, but {mode} mode needs {_MODES[mode][0]}D input",
            NotImplementedError,
        )


@api.under("nn.functional")
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the spatial dimensions of (N, C, ...) to a size or by a factor.

    >>> x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> F.interpolate(x, scale_factor=2)
    tensor([[[[1., 1., 2., 2.],
              [1., 1., 2., 2.],
              [3., 3., 4., 4.],
              [3., 3., 4., 4.]]]])
    >>> F.interpolate(x, size=(2, 3), mode="bilinear", align_corners=True)
    tensor([[[[1.0000, 1.5000, 2.0000],
              [3.0000, 3.5000, 4.0000]]]])
    """
    _check_mode(input, mode, align_corners, antialias)
    if recompute_scale_factor and size is not None:
        refuse("recompute_scale_factor is not meaningful with an explicit size.", ValueError)
    wanted, factors = _sizes(input, size, scale_factor)
    if min(wanted) < (0 if mode == "area" else 1) or 0 in input._a.shape[1:]:
        refuse(
            "Input and output sizes should be greater than 0, but got input "
            f"{list(input._a.shape[2:])} output {list(wanted)}"
        )
    if input._a.dtype != np.uint8:
        need_float(input, f"upsample_{mode}")
    return interpolate_op(
        input,
        size=wanted,
        mode=mode,
        align_corners=bool(align_corners),
        scales=None if recompute_scale_factor else factors,
        antialias=antialias,
    )


def _deprecated(name: str) -> None:
    warnings.warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=3,
    )


@api.under("nn.functional")
def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The old name of ``interpolate``."""
    _deprecated("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


@api.under("nn.functional")
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Resize by repeating the nearest value."""
    _deprecated("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


@api.under("nn.functional")
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Resize images bilinearly, corners on corners."""
    _deprecated("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


# --- sampling at free points -----------------------------------------------------------


def _grid_rule(
    g: Any, x: Any, grid: Any, needs: Any, mode: str, padding_mode: str, align_corners: bool
) -> tuple[Any, ...]:
    gx, ggrid = grid_sample_back_op(
        g, x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners
    )
    return gx if needs[0] else None, ggrid if needs[1] else None


def _grid_again(
    g: Any, x: Any, grid: Any, needs: Any, mode: str, padding_mode: str, align_corners: bool
) -> tuple[Any, ...]:
    if needs[1] or needs[2]:
        raise NotImplementedError(
            "second derivatives of grid_sample by its input or its grid are not implemented"
        )
    how = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    return grid_sample_op(g[0], grid, **how) + grid_tangent_op(x, grid, g[1], **how), None, None


# Without samples: PyTorch has no second derivative here either, which those tests would take.
def _sampled_shape(x: Any, grid: Any) -> Any:
    return (*x.shape[:2], *grid.shape[1:-1])


grid_sample_op: Op = general(
    "grid_sampler",
    lambda x, grid, mode, padding_mode, align_corners: kernels.grid_sample(
        x, grid, mode, padding_mode, align_corners
    ),
    joint=_grid_rule,
    names=("x", "grid"),
    jvp=(
        lambda t, grid, mode, padding_mode, align_corners: grid_sample_op(
            t, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners
        ),
        lambda t, x, grid, mode, padding_mode, align_corners: grid_tangent_op(
            x, grid, t, mode=mode, padding_mode=padding_mode, align_corners=align_corners
        ),
    ),
    promote="same",
    grad_name="GridSampler2DBackward",
    samples=None,
    shape=_sampled_shape,
    batch=batch_rules.images,
)
grid_sample_back_op = general(
    "grid_sampler_backward",
    lambda g_in, x, grid, mode, padding_mode, align_corners: kernels.grid_sample_grad(
        g_in, x, grid, mode, padding_mode, align_corners
    ),
    joint=_grid_again,
    names=("g_in", "x", "grid"),
    promote="same",
    outputs=("gx", "ggrid"),
    samples=None,
    shape=lambda x, grid: [x.of(x.dtype), grid.of(x.dtype)],
)
grid_tangent_op: Op = linear(
    "grid_sampler_tangent",
    lambda x, grid, moved, mode, padding_mode, align_corners: kernels.grid_sample_tangent(
        x, grid, moved, mode, padding_mode, align_corners
    ),
    None,
    None,
    lambda g, x, grid, mode, padding_mode, align_corners: grid_sample_back_op(
        g, x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners
    )[1],
    promote="same",
    names=("x", "grid", "moved"),
    samples=lambda m: [
        Sample(
            (m.real(1, 2, 3, 3), m.real(1, 2, 2, 2, low=-0.6, high=0.6), m.real(1, 2, 2, 2)),
            {"mode": "bilinear", "padding_mode": "zeros", "align_corners": False},
        )
    ],
    shape=_sampled_shape,
)

_SAMPLE_MODES = ("bilinear", "nearest", "bicubic")
_PADDING_MODES = ("zeros", "border", "reflection")


def _corner_warning() -> None:
    warnings.warn(
        "Default grid_sample and affine_grid behavior has changed to align_corners=False since "
        "1.3.0. Please specify align_corners=True if the old behavior is desired. See the "
        "documentation of grid_sample for details.",
        stacklevel=3,
    )


def _check_grid(input: Tensor, grid: Tensor, mode: str) -> None:
    shape, points = list(input._a.shape), list(grid._a.shape)
    if shape[0] != points[0]:
        refuse(
            "grid_sampler(): expected grid and input to have same batch size, but got input with "
            f"sizes {shape} and grid with sizes {points}"
        )
    if input.ndim not in (4, 5) or input.ndim != grid.ndim:
        refuse(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got input with sizes {shape} and grid with sizes {points}"
        )
    if points[-1] != len(shape) - 2:
        refuse(
            f"grid_sampler(): expected grid to have size {len(shape) - 2} in last dimension, but "
            f"got grid with sizes {points}"
        )
    if 0 in shape[2:]:
        refuse(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
            f"sizes {shape}"
        )
    if mode == "bicubic" and input.ndim == 5:
        refuse("grid_sampler(): bicubic interpolation only supports 4D input")
    if input._a.dtype != grid._a.dtype:
        refuse(
            f"grid_sampler(): expected input and grid to have same dtype, but input has "
            f"{input.dtype!r} and grid has {grid.dtype!r}"
        )


@api.under("nn.functional")
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Read images at the points of a grid, whose coordinates run from -1 to 1."""
    if mode not in _SAMPLE_MODES:
        refuse(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'",
            ValueError,
        )
    if padding_mode not in _PADDING_MODES:
        refuse(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'",
            ValueError,
        )
    if align_corners is None:
        _corner_warning()
    need_float(input, "grid_sampler")
    _check_grid(input, grid, mode)
    return grid_sample_op(
        input, grid, mode=mode, padding_mode=padding_mode, align_corners=bool(align_corners)
    )


def _grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``grid_sample`` with its modes as numbers."""
    return grid_sample(
        input,
        grid,
        _SAMPLE_MODES[interpolation_mode],
        _PADDING_MODES[padding_mode],
        align_corners,
    )


for _name in ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"):
    api.top(_grid_sampler, name=_name)

affine_grid_op = linear(
    "affine_grid_generator",
    lambda theta, size, align_corners: kernels.affine_grid(theta, size, align_corners),
    lambda g, size, align_corners: affine_grid_back_op(g, size=size, align_corners=align_corners),
    names=("theta",),
    promote="same",
    samples=lambda m: [
        Sample((m.real(2, 2, 3),), {"size": (2, 1, 2, 3), "align_corners": False}),
        Sample((m.real(1, 3, 4),), {"size": (1, 1, 2, 2, 2), "align_corners": True}),
    ],
    shape=lambda size: (size[0], *size[2:], len(size) - 2),
    batch=batch_rules.images,
)
affine_grid_back_op: Op = linear(
    "affine_grid_generator_backward",
    lambda x, size, align_corners: kernels.affine_grid_grad(x, size, align_corners),
    lambda g, size, align_corners: affine_grid_op(g, size=size, align_corners=align_corners),
    promote="same",
    samples=lambda m: [
        Sample((m.real(2, 2, 3, 2),), {"size": (2, 1, 2, 3), "align_corners": False})
    ],
    shape=lambda size: (size[0], len(size) - 2, len(size) - 1),
    batch=batch_rules.images,
)


@api.under("nn.functional")
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """The grid for ``grid_sample`` that an affine map makes of a regular one."""
    if align_corners is None:
        _corner_warning()
    if theta._a.dtype.kind in "iub":
        refuse(f"Expected theta to have floating point type, but got {theta.dtype!r}", ValueError)
    shape = api.shape_argument((size,))
    count = len(shape) - 2
    if count not in (2, 3):
        refuse(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {shape}.",
            NotImplementedError,
        )
    if theta.ndim != 3 or theta._a.shape[1:] != (count, count + 1):
        refuse(
            f"Expected a batch of {count}D affine matrices of shape Nx{count}x{count + 1} for "
            f"size {shape}. Got {theta.shape!r}.",
            ValueError,
        )
    if prod(shape[2:]) <= 0 or min(shape) < 0:
        refuse(f"Expected non-zero, positive output size. Got {shape}", ValueError)
    if theta._a.shape[0] != shape[0]:
        refuse(
            f"Expected size for first two dimensions of batch2 tensor to be: [{shape[0]}, "
            f"{count + 1}] but got: [{theta._a.shape[0]}, {count + 1}]."
        )
    return affine_grid_op(theta, size=shape, align_corners=bool(align_corners))


@api.top
def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """``affine_grid`` by its older name."""
    return affine_grid(theta, size, align_corners)
