"""What PyTorch calls the values that nodes keep for backward: ``grad_fn._saved_self``.

Most names follow from the derivative rules: a first operand that a rule names is ``self``, a second
one ``other``, a single result ``result``, a shape ``self_sym_sizes``; attributes keep their names.
The table holds the nodes of which that is not true, by type, or by op where two ops make nodes of
one type. Each entry lists all the names that PyTorch shows:

* ``dim``: the derived name, or the attribute, operand or result of that name;
* ``weight=w``: the attribute, operand or result that the op block calls ``w``;
* ``weight=w!``: the same, given where no rule keeps it too, as long as the tensor lives;
* ``other=b@``: the same, a number as a tensor;
* ``alpha=1``: always this; ``start=slice_start()``: computed by the function in ``COMPUTED``;
* ``x_sym_sizes``, ``x_sym_strides``, ``x_sym_numel``, ``x_sym_argsize_minus_1``: of what ``x`` is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.devices import host
from weft.core.node import OpNode
from weft.core.saved import COMPUTED, NAMES, find_saved, needs_gradient, shape_of_input
from weft.core.tensor import wrap

_POOL = "kernel_size=kernel padding stride ceil_mode self=x!"
_UPSAMPLE = "output_size=size self_sym_sizes=x"
_NORM = "dim keepdim ord result=y self=x"
_ALONG = "dim keepdim indices self_sym_sizes"

NAMES |= {
    "AdaptiveAvgPool2DBackward0": "self=x!",
    "AdaptiveAvgPool3DBackward0": "self=x!",
    "AdaptiveMaxPool2DBackward0": "result1=indices self=x!",
    "AdaptiveMaxPool3DBackward0": "result1=indices self=x!",
    "AddBackward0": "alpha=1",
    "AddBackward1": "",
    "AddcdivBackward0": "tensor1=b tensor2=c value",
    "AddcmulBackward0": "tensor1=b tensor2=c value",
    "AminmaxBackward0": "dim keepdim max=high min=low self=x",
    "AsStridedBackward0": "size storage_offset stride",
    "AvgPool2DBackward0": f"{_POOL} count_include_pad divisor_override",
    "AvgPool3DBackward0": f"{_POOL} count_include_pad divisor_override",
    "BernoulliBackward0": "",
    "BinaryCrossEntropyBackward0": "reduction=0 self=a target=b weight=None",
    "BinaryCrossEntropyWithLogitsBackward0": (
        "reduction=0 self=a target=b weight=None pos_weight=None"
    ),
    "BlockDiagBackward0": "",
    "BmmBackward0": "mat2=b self=a",
    "CatBackward0": "dim",
    "CdistBackward0": "p=2.0 result=y x1=a x2=b",
    "ClampBackward0": "max=high min=low self=x",
    "ClampBackward1": "max=high min=low self=x",
    "CloneBackward0": "",
    "Col2ImBackward0": "dilation kernel_size=kernel padding stride",
    "ComplexBackward0": "imag=b! real=a!",
    "ConstantPadNdBackward0": "pad=flat_pads()",
    "ConvolutionBackward0": (
        "bias_sym_sizes_opt=bias_sizes() dilation groups input=x! output_padding=no_padding() "
        "padding stride transposed=False weight=w!"
    ),
    "conv_transpose": (
        "bias_sym_sizes_opt=bias_sizes() dilation groups input=x! output_padding=output_padding() "
        "padding stride transposed=True weight=w!"
    ),
    "ConvolutionBackwardBackward0": (
        "dilation grad_output=g_in! groups input=x! output_padding=no_padding() padding stride "
        "transposed=False weight=None"
    ),
    "CtcLossBackward0": (
        "blank input_lengths=lengths(inputs) log_probs=x result0=y result1=alpha "
        "target_lengths=lengths(labels) targets zero_infinity"
    ),
    "CummaxBackward0": "dim indices self=x!",
    "CumminBackward0": "dim indices self=x!",
    "CumsumBackward0": "dim",
    "DiagEmbedBackward0": "dim1 dim2 offset",
    "DiagonalScatterBackward0": "dim1=of_view(dim1) dim2=of_view(dim2) offset=of_view(offset)",
    "DivBackward0": "other=b@ self=a@",
    "DivBackward1": "other=b",
    "DivBackward2": "other=b! rounding_mode=rounding() self=a!",
    "DotBackward0": "self=a tensor=b",
    "EluBackward0": "alpha input_scale=whole(input_scale) scale=whole(scale) self=x",
    "EmbeddingBackward0": (
        "indices padding_idx scale_grad_by_freq=by_freq sparse=False weight_sym_argsize_0"
    ),
    "EmbeddingBagBackward0": (
        "indices mode=bag_mode() offsets=offsets! padding_idx=bag_padding() "
        "per_sample_weights=psw result1=bag result2=sizes result3=largest "
        "scale_grad_by_freq=by_freq sparse=False weight weight_sym_argsize_0"
    ),
    "EmbeddingDenseBackwardBackward0": "indices padding_idx",
    "ErfinvBackward0": "self=x!",
    "ExpandBackward0": "self_sym_sizes=x",
    "FftC2CBackward0": "dim forward normalization=norm",
    "FftC2RBackward0": "dim normalization=norm",
    "FftR2CBackward0": "dim normalization=norm onesided self=x!",
    "FillBackward0": "",
    "FractionalMaxPool2DBackward0": "kernel_size=kernel output_size=size result1=indices self=x!",
    "FractionalMaxPool3DBackward0": "kernel_size=kernel output_size=size result1=indices self=x!",
    "FrexpBackward0": "exponent",
    "FusedRmsNormBackward0": "input=x normalized_shape=last_dims() result1=rstd weight",
    "GatherBackward0": "dim index self=x! sparse_grad=False",
    "gelu": "approximate='none' self=x",
    "gelu_tanh": "approximate='tanh' self=x",
    "GridSampler2DBackward0": (
        "align_corners grid input=x interpolation_mode=grid_mode() padding_mode=grid_padding()"
    ),
    "GridSampler3DBackward0": (
        "align_corners grid input=x interpolation_mode=grid_mode() padding_mode=grid_padding()"
    ),
    "HardtanhBackward0": "max_val=high min_val=low self=x",
    "hardtanh_result": "max_val=high min_val=low self=y",
    "HuberLossBackward0": "delta=real(width) reduction=reduction() self=a target=b",
    "Im2ColBackward0": (
        "dilation kernel_size=kernel padding stride self_sym_argsize_minus_1=x "
        "self_sym_argsize_minus_2=x"
    ),
    "IndexAddBackward0": "alpha dim index source=source! source_dim=source_rank()",
    "IndexBackward0": "indices=indices() self_sym_sizes",
    "IndexCopyBackward0": "dim index source=source! source_dim=source_rank()",
    "IndexPutBackward0": "accumulate indices=indices()",
    "KthvalueBackward0": _ALONG,
    "LerpBackward0": "weight",
    "LerpBackward1": "end=b self=a weight",
    "LinalgCholeskyExBackward0": "L=y upper",
    # weft keeps no LU decomposition: its rules solve.
    "LinalgDetBackward0": "A=x LU=None pivots=None result=y",
    "LinalgEigBackward0": "eigenvalues=values eigenvectors=vectors",
    "LinalgEighBackward0": "eigenvalues=values eigenvectors=vectors",
    "LinalgInvExBackward0": "inverse=y",
    "LinalgLstsqBackward0": "b self=a solution=y",
    "LinalgLuFactorExBackward0": "LU=y pivot=True pivots",
    "LinalgPinvBackward0": "result=y self=x",
    "LinalgQrBackward0": "Q=q R=r mode",
    "LinalgSlogdetBackward0": "A=x LU=None pivots=None sign",
    "LinalgSolveExBackward0": "A=a LU=None left=True pivots=None result=y",
    "LinalgSolveTriangularBackward0": "left=True result=y self=a unitriangular upper",
    "LinalgSvdBackward0": "S=s S_sym_argsize_minus_1=s U=u Vh=vh full_matrices",
    "LinalgVectorNormBackward0": _NORM,
    "linalg_vector_norm": _NORM.replace("ord", "ord=p"),
    "LogSigmoidBackward0": "buffer=None self=x",
    "MaskedFillBackward0": "mask",
    "MaskedSelectBackward0": "mask self=x!",
    "MaxPool2DWithIndicesBackward0": f"{_POOL} dilation result1=indices",
    "MaxPool3DWithIndicesBackward0": f"{_POOL} dilation result1=indices",
    "MaxUnpool2DBackward0": "indices",
    "MaxUnpool3DBackward0": "indices",
    "MeanBackward0": "self_sym_numel self_sym_sizes",
    "MeanBackward1": "dim keepdim self_sym_numel self_sym_sizes",
    "MmBackward0": (
        "mat2=b mat2_sym_sizes=b mat2_sym_strides=b self=a self_sym_sizes=a self_sym_strides=a"
    ),
    "linear": (
        "mat2=transposed(weight) mat2_sym_sizes=transposed_sizes() "
        "mat2_sym_strides=transposed_strides() self=x self_sym_sizes=x self_sym_strides=x"
    ),
    "linear_with_bias": (
        "alpha=1 beta=1 mat1=x mat1_sym_sizes=x mat1_sym_strides=x mat2=transposed(weight) "
        "mat2_sym_sizes=transposed_sizes() mat2_sym_strides=transposed_strides()"
    ),
    "MseLossBackward0": "reduction=reduction() self=a target=b",
    "MulBackward0": "other=b@ self=a@",
    "dropout": "other=noise self=x",
    "MvBackward0": "self=a vec=b",
    "NanToNumBackward0": "self=x",
    "native_batch_norm": (
        "eps input=x result1=mean result2=inverse_deviation() running_mean=None running_var=None "
        "training=True weight"
    ),
    "batch_norm_fixed": (
        "eps input=x result1=empty() result2=empty() running_mean=mean running_var=var "
        "training=False weight"
    ),
    "NativeLayerNormBackward0": (
        "bias=bias! input=x normalized_shape=last_dims() result1=mean result2=rstd weight"
    ),
    "NllLossBackward0": (
        "ignore_index reduction=reduction() self=x! target total_weight=total_weight() weight"
    ),
    "PowBackward0": "exponent=b self=a",
    "PowBackward1": "exponent=b result=y self=a",
    "PowBackward2": "exponent=b result=y self=a",
    "square": "exponent=2 self=x",
    "PreluKernelBackward0": "self=a weight=b",
    "ProdBackward0": "result=y self=x",
    "ProdBackward1": "dim=only(dim) keepdim result=y self=x",
    "RoundBackward0": "",
    "RoundBackward1": "",
    "RsubBackward1": "alpha=1",
    "ScatterAddBackward0": "dim index",
    "ScatterBackward0": "dim index",
    "SelectBackward0": "dim index self_sym_sizes",
    "SelectScatterBackward0": "dim=of_view(dim) index=of_view(index)",
    "SliceScatterBackward0": (
        "dim=last_slice(dim) end=last_slice(end) start=last_slice(start) step=last_slice(step)"
    ),
    "slice SelectBackward0": "dim=last_slice(dim) index=last_slice(index) self_sym_sizes=before()",
    "slice SliceBackward0": (
        "dim=last_slice(dim) end=last_slice(end) self_sym_sizes=before() "
        "start=last_slice(start) step=last_slice(step)"
    ),
    "slice UnsqueezeBackward0": "dim=last_slice(dim)",
    "SmoothL1LossBackward0": "beta=real(width) reduction=reduction() self=a target=b",
    "SortBackward0": "dim indices self_sym_sizes",
    "SpecialLogNdtrBackward0": "result=None self=x",
    "SplitBackward0": "dim self_sym_sizes=x split_size=split_size()",
    "SplitBackward0_copy": "dim self_sym_sizes=x split_size=split_size()",
    "UnsafeSplitBackward0": "dim self_sym_sizes=x split_size=split_size()",
    "NormalBackward1": "mean_sym_sizes=mean",
    "NormalBackward2": "std_sym_sizes=std",
    "NormalBackward3": "mean_sym_sizes=mean std_sym_sizes=std",
    "SqueezeBackward0": "self_sym_sizes",
    "SqueezeBackward1": "dim=only(dims) self_sym_sizes",
    "SqueezeBackward2": "dim=dims self_sym_sizes",
    "StdMeanBackward0": "correction dim keepdim result0=y self=x",
    "SubBackward0": "alpha=1",
    "add_scaled": "alpha=whole(alpha)",
    "sub_scaled": "alpha=whole(alpha)",
    "SumBackward0": "self_sym_sizes",
    "SumBackward1": "dim keepdim self_sym_sizes",
    "TakeBackward0": "index self=x!",
    "ThresholdBackward0": "self=x threshold",
    "ToCopyBackward0": "",
    "TopkBackward0": "dim indices self_sym_sizes",
    "UnfoldBackward0": "dimension=dim self_sym_sizes size step",
    "UnfoldBackwardBackward0": "dim size step",
    "UnsqueezeBackward0": "dim",
    "UpsampleLinear1DBackward0": f"{_UPSAMPLE} align_corners scales=scale(0)",
    "UpsampleNearest1DBackward0": f"{_UPSAMPLE} scales=scale(0)",
    "UpsampleNearestExact1DBackward0": f"{_UPSAMPLE} scales=scale(0)",
    "UpsampleBilinear2DBackward0": f"{_UPSAMPLE} align_corners scales_h=scale(0) scales_w=scale(1)",
    "UpsampleBicubic2DBackward0": f"{_UPSAMPLE} align_corners scales_h=scale(0) scales_w=scale(1)",
    "UpsampleNearest2DBackward0": f"{_UPSAMPLE} scales_h=scale(0) scales_w=scale(1)",
    "UpsampleNearestExact2DBackward0": f"{_UPSAMPLE} scales_h=scale(0) scales_w=scale(1)",
    "UpsampleTrilinear3DBackward0": (
        f"{_UPSAMPLE} align_corners scales_d=scale(0) scales_h=scale(1) scales_w=scale(2)"
    ),
    "UpsampleNearest3DBackward0": (
        f"{_UPSAMPLE} scales_d=scale(0) scales_h=scale(1) scales_w=scale(2)"
    ),
    "UpsampleNearestExact3DBackward0": (
        f"{_UPSAMPLE} scales_d=scale(0) scales_h=scale(1) scales_w=scale(2)"
    ),
    "ViewBackward0": "self_sym_sizes=x",
}

# --- values that are put together --------------------------------------------------------


def computed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let the table call a function of a node and a word by its name."""
    COMPUTED[function.__name__.strip("_")] = function
    return function


@computed
def _bias_sizes(node: OpNode, _: str) -> tuple[int, ...]:
    return (0,) if node.inputs[2] is None else (node.shape[1],)


@computed
def _no_padding(node: OpNode, _: str) -> tuple[int, ...]:
    return (0,) * len(node.attrs["stride"])


@computed
def _output_padding(node: OpNode, _: str) -> tuple[int, ...]:
    """By how much the result of a transposed convolution is larger than it has to be."""
    at = node.attrs
    sizes, kernel = shape_of_input(node, "x"), shape_of_input(node, "w")
    assert sizes is not None and kernel is not None
    settings = zip(at["stride"], at["padding"], at["dilation"], kernel[2:], sizes[2:], strict=True)
    least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for s, p, d, k, n in settings]
    return tuple(size - n for size, n in zip(at["shape"][2:], least, strict=True))


@computed
def _flat_pads(node: OpNode, _: str) -> tuple[int, ...]:
    pads = list(node.attrs["pads"])
    while pads and pads[0] == (0, 0):
        del pads[0]
    return tuple(n for pair in reversed(pads) for n in pair)


@computed
def _of_view(node: OpNode, name: str) -> Any:
    """A setting of the view that a scatter op writes through."""
    return node.attrs["chain"][2][name]


def _last_place(node: OpNode) -> tuple[int, Any, tuple[int, ...]]:
    """The last of the views that PyTorch makes for an index: dimension, place, sizes before."""
    index = node.attrs["index"] if "index" in node.attrs else _of_view(node, "index")
    sizes = list(shape_of_input(node, "x") or ())
    dim, found = 0, (0, slice(None), tuple(sizes))
    for number, place in enumerate(index):
        if place is Ellipsis:
            dim = len(sizes) - sum(p is not None for p in index[number + 1 :])
            continue
        if not isinstance(place, slice) or place != slice(None):
            found = dim, place, tuple(sizes)
        if place is None:
            sizes.insert(dim, 1)
        elif isinstance(place, slice):
            sizes[dim] = len(range(*place.indices(sizes[dim])))
        else:
            del sizes[dim]
            continue
        dim += 1
    return found


@computed
def _last_slice(node: OpNode, name: str) -> Any:
    dim, place, _ = _last_place(node)
    if name in ("dim", "index"):
        return dim if name == "dim" else place
    otherwise = {"start": 0, "end": (1 << 63) - 1, "step": 1}
    found = getattr(place, {"end": "stop"}.get(name, name))
    return otherwise[name] if found is None else found


@computed
def _before(node: OpNode, _: str) -> tuple[int, ...]:
    return _last_place(node)[2]


@computed
def _indices(node: OpNode, _: str) -> tuple[Any, ...]:
    """Tensors by the dimension that they index, with None where a slice stands."""
    where, rest = node.attrs["where"], find_saved(node, "rest")
    found: list[Any] = [None] * (max(where, default=-1) + 1)
    for dim, index in zip(where, rest, strict=True):
        found[dim] = wrap(index) if isinstance(index, np.ndarray) else index
    return tuple(found)


@computed
def _inverse_deviation(node: OpNode, _: str) -> Any:
    """PyTorch keeps one over the standard deviation; weft keeps the variance."""
    return wrap(1 / np.sqrt(host(find_saved(node, "var")) + node.attrs["eps"]))


@computed
def _empty(node: OpNode, _: str) -> Any:
    return wrap(np.empty(0, np.float32))


@computed
def _total_weight(node: OpNode, _: str) -> Any:
    """The weight of the targets that count."""
    target, weight = host(find_saved(node, "target")), find_saved(node, "weight")
    counts = target[target != node.attrs["ignore_index"]]
    total = counts.size if weight is None else host(weight)[counts].sum()
    return wrap(np.asarray(total, node.dtype))


@computed
def _transposed(node: OpNode, own: str) -> Any:
    """PyTorch multiplies by the transposed weight, and keeps that."""
    found = find_saved(node, own)
    return found.t() if found is not None and found.ndim == 2 else found


@computed
def _transposed_sizes(node: OpNode, _: str) -> Any:
    sizes = shape_of_input(node, "weight")
    return None if sizes is None else sizes[::-1]


@computed
def _transposed_strides(node: OpNode, _: str) -> Any:
    found = find_saved(node, "weight!") if needs_gradient(node, "weight") else None
    return () if found is None else found.stride()[::-1]


@computed
def _last_dims(node: OpNode, _: str) -> tuple[int, ...]:
    sizes = shape_of_input(node, "x") or ()
    return sizes[len(sizes) - node.attrs["rank"] :]


@computed
def _split_size(node: OpNode, _: str) -> int:
    return node.attrs["sizes"][0]


@computed
def _only(node: OpNode, name: str) -> Any:
    """The one dimension that was named, if it was squeezed."""
    return (*node.attrs[name], None)[0]


@computed
def _source_rank(node: OpNode, _: str) -> int:
    return len(shape_of_input(node, "source") or ())


@computed
def _scale(node: OpNode, number: str) -> float | None:
    scales = node.attrs["scales"]
    return None if scales is None else scales[int(number)]


@computed
def _whole(node: OpNode, name: str) -> Any:
    """A factor, as the whole number that PyTorch has by default."""
    factor = find_saved(node, name)
    return int(factor) if isinstance(factor, float) and factor.is_integer() else factor


@computed
def _real(node: OpNode, name: str) -> float:
    return float(node.attrs[name])


@computed
def _lengths(node: OpNode, own: str) -> tuple[int, ...]:
    return tuple(find_saved(node, own).tolist())


@computed
def _rounding(node: OpNode, _: str) -> str:
    return "floor" if node.op.name == "div_floor" else "trunc"


def _choice(name: str, attribute: str, *choices: str) -> None:
    """Let the table give the number of a choice, as PyTorch does."""
    COMPUTED[name] = lambda node, _: choices.index(node.attrs[attribute])


_choice("reduction", "reduction", "none", "mean", "sum")
_choice("bag_mode", "mode", "sum", "mean", "max")
_choice("grid_mode", "mode", "bilinear", "nearest", "bicubic")
_choice("grid_padding", "padding_mode", "zeros", "border", "reflection")
COMPUTED["bag_padding"] = lambda node, _: (
    -1 if node.attrs["padding_idx"] is None else node.attrs["padding_idx"]
)
