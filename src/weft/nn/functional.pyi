# Made by tools/stubs.py (`make stubs`) from the functions themselves: do not edit.
import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, overload

import numpy as np

from weft import return_types as _return_types
from weft.core.tensor import Tensor
from weft.core.device import device as _device
from weft.core.dtype import dtype as _dtype
from weft.core.size import Size as _Size
from weft.core.storage import TypedStorage as _TypedStorage
from weft.core.storage import UntypedStorage as _UntypedStorage
from weft.operators.casting import memory_format as _memory_format
from weft.operators.random import Generator as _Generator

# Methods and dtypes have these names too.
_bool = builtins.bool
_bytes = builtins.bytes
_complex = builtins.complex
_float = builtins.float
_int = builtins.int
_str = builtins.str
_type = builtins.type
_Operand = Tensor | _complex | np.generic | np.ndarray
_Device = _device | _str | _int
_Dtype = _dtype | _type
_Ints = SupportsIndex | Sequence[SupportsIndex]

from weft.nn import grad as grad
def adaptive_avg_pool1d(input: Tensor, output_size: SupportsIndex | Sequence[Any]) -> Tensor:
    """The means of as many even windows as asked for."""
def adaptive_avg_pool2d(input: Tensor, output_size: SupportsIndex | Sequence[Any]) -> Tensor:
    """The means of as many even windows as asked for."""
def adaptive_avg_pool3d(input: Tensor, output_size: SupportsIndex | Sequence[Any]) -> Tensor:
    """The means of as many even windows as asked for."""
@overload
def adaptive_max_pool1d(input: Tensor, output_size: SupportsIndex | Sequence[Any]) -> Tensor:
    """The largest values of as many even windows as asked for."""
@overload
def adaptive_max_pool1d(input: Tensor, output_size: SupportsIndex | Sequence[Any], *, return_indices: _bool) -> Any:
    """The largest values of as many even windows as asked for."""
def adaptive_max_pool1d_with_indices(input: Tensor, output_size: _Ints, return_indices: _bool = True) -> tuple[Tensor, ...]:
    """The largest values of as many even windows as asked for, and their places."""
@overload
def adaptive_max_pool2d(input: Tensor, output_size: SupportsIndex | Sequence[Any]) -> Tensor:
    """The largest values of as many even windows as asked for."""
@overload
def adaptive_max_pool2d(input: Tensor, output_size: SupportsIndex | Sequence[Any], *, return_indices: _bool) -> Any:
    """The largest values of as many even windows as asked for."""
def adaptive_max_pool2d_with_indices(input: Tensor, output_size: _Ints, return_indices: _bool = True) -> tuple[Tensor, ...]:
    """The largest values of as many even windows as asked for, and their places."""
@overload
def adaptive_max_pool3d(input: Tensor, output_size: SupportsIndex | Sequence[Any]) -> Tensor:
    """The largest values of as many even windows as asked for."""
@overload
def adaptive_max_pool3d(input: Tensor, output_size: SupportsIndex | Sequence[Any], *, return_indices: _bool) -> Any:
    """The largest values of as many even windows as asked for."""
def adaptive_max_pool3d_with_indices(input: Tensor, output_size: _Ints, return_indices: _bool = True) -> tuple[Tensor, ...]:
    """The largest values of as many even windows as asked for, and their places."""
def affine_grid(theta: Tensor, size: _Ints, align_corners: _bool | None = None) -> Tensor:
    """The grid for ``grid_sample`` that an affine map makes of a regular one."""
def alpha_dropout(input: Tensor, p: _float = 0.5, training: _bool = False, inplace: _bool = False) -> Tensor:
    """Dropout that keeps the mean and variance of selu's outputs."""
def avg_pool1d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, ceil_mode: _bool = False, count_include_pad: _bool = True, divisor_override: _int | None = None) -> Tensor:
    """The mean of each window."""
def avg_pool2d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, ceil_mode: _bool = False, count_include_pad: _bool = True, divisor_override: _int | None = None) -> Tensor:
    """The mean of each window."""
def avg_pool3d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, ceil_mode: _bool = False, count_include_pad: _bool = True, divisor_override: _int | None = None) -> Tensor:
    """The mean of each window."""
def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None, bias: Tensor | None = None, training: _bool = False, momentum: _float = 0.1, eps: _float = 1e-05) -> Tensor:
    """Normalise each channel by the batch's statistics or by the running ones."""
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input1 @ weight[k] @ input2 + bias[k]`` for each output ``k``."""
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """The loss of probabilities against targets between 0 and 1."""
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean', pos_weight: Tensor | None = None) -> Tensor:
    """The loss of scores, through a sigmoid, against targets between 0 and 1."""
def celu(input: Tensor, alpha: _float = 1.0, inplace: _bool = False) -> Tensor:
    """``x`` where it is positive, else ``alpha * (exp(x / alpha) - 1)``."""
def celu_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The function celu in place."""
def channel_shuffle(input: Tensor, groups: _int) -> Tensor:
    """Channels of several groups dealt out in turn."""
def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, dilation: _Ints | None = 1, groups: _int = 1) -> Tensor:
    """Convolve sequences (N, C, L) with (O, C / groups, K)."""
def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, dilation: _Ints | None = 1, groups: _int = 1) -> Tensor:
    """Convolve images (N, C, H, W) with (O, C / groups, K, K)."""
def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, dilation: _Ints | None = 1, groups: _int = 1) -> Tensor:
    """Convolve volumes (N, C, D, H, W) with (O, C / groups, K, K, K)."""
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: _int = 0) -> Tensor:
    """Convolve sequences laid out as (time, batch, channel)."""
def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, output_padding: Any = 0, groups: _int = 1, dilation: _Ints | None = 1) -> Tensor:
    """Apply the transpose of a convolution of sequences."""
def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, output_padding: Any = 0, groups: _int = 1, dilation: _Ints | None = 1) -> Tensor:
    """Apply the transpose of a convolution of images."""
def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, output_padding: Any = 0, groups: _int = 1, dilation: _Ints | None = 1) -> Tensor:
    """Apply the transpose of a convolution of volumes."""
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: _float = 0, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """One minus the cosine where the target is 1, the cosine above a margin where it is -1."""
def cosine_similarity(x1: Tensor, x2: Tensor, dim: _int = 1, eps: _float = 1e-08) -> Tensor:
    """The cosine of the angle between two vectors along a dimension."""
def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: _bool | None = None, ignore_index: _int = -100, reduce: _bool | None = None, reduction: _str = 'mean', label_smoothing: _float = 0.0) -> Tensor:
    """The loss of scores against class numbers, or against probabilities of classes."""
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: _int = 0, reduction: _str = 'mean', zero_infinity: _bool = False) -> Tensor:
    """The loss of writing target sequences somewhere within longer input sequences."""
def dropout(input: Tensor, p: _float = 0.5, training: _bool = True, inplace: _bool = False) -> Tensor:
    """Zero random elements in training and scale the others."""
def dropout1d(input: Tensor, p: _float = 0.5, training: _bool = True, inplace: _bool = False) -> Tensor:
    """Dropout of whole channels of sequences."""
def dropout2d(input: Tensor, p: _float = 0.5, training: _bool = True, inplace: _bool = False) -> Tensor:
    """Dropout of whole channels of images."""
def dropout3d(input: Tensor, p: _float = 0.5, training: _bool = True, inplace: _bool = False) -> Tensor:
    """Dropout of whole channels of volumes."""
def elu(input: Tensor, alpha: _float = 1.0, inplace: _bool = False) -> Tensor:
    """``x`` where it is positive, else ``alpha * (exp(x) - 1)``."""
def elu_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The function elu in place."""
def embedding(input: Tensor, weight: Tensor, padding_idx: _int | None = None, max_norm: _float | None = None, norm_type: _float = 2.0, scale_grad_by_freq: _bool = False, sparse: _bool = False) -> Tensor:
    """The rows of ``weight`` that ``input`` names."""
def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: _float | None = None, norm_type: _float = 2, scale_grad_by_freq: _bool = False, mode: _str = 'mean', sparse: _bool = False, per_sample_weights: Tensor | None = None, include_last_offset: _bool = False, padding_idx: _int | None = None) -> Tensor:
    """The sum, mean or largest value of the rows in each bag of numbers."""
def feature_alpha_dropout(input: Tensor, p: _float = 0.5, training: _bool = False, inplace: _bool = False) -> Tensor:
    """Alpha dropout of whole channels."""
def fold(input: Tensor, output_size: _Ints, kernel_size: _Ints, dilation: _Ints | None = 1, padding: Any = 0, stride: _Ints | None = 1) -> Tensor:
    """Sum columns of windows back into images."""
@overload
def fractional_max_pool2d(input: Tensor, kernel_size: _Ints, output_size: _Ints | None = None, output_ratio: Any = None, _random_samples: Tensor | None = None) -> Tensor:
    """The largest values of windows at random places."""
@overload
def fractional_max_pool2d(input: Tensor, kernel_size: _Ints, output_size: _Ints | None = None, output_ratio: Any = None, *, return_indices: _bool, _random_samples: Tensor | None = None) -> Any:
    """The largest values of windows at random places."""
def fractional_max_pool2d_with_indices(input: Tensor, kernel_size: _Ints, output_size: _Ints | None = None, output_ratio: Any = None, return_indices: _bool = True, _random_samples: Tensor | None = None) -> tuple[Tensor, ...]:
    """The largest values of windows at random places, and their places."""
@overload
def fractional_max_pool3d(input: Tensor, kernel_size: _Ints, output_size: _Ints | None = None, output_ratio: Any = None, _random_samples: Tensor | None = None) -> Tensor:
    """The largest values of windows at random places."""
@overload
def fractional_max_pool3d(input: Tensor, kernel_size: _Ints, output_size: _Ints | None = None, output_ratio: Any = None, *, return_indices: _bool, _random_samples: Tensor | None = None) -> Any:
    """The largest values of windows at random places."""
def fractional_max_pool3d_with_indices(input: Tensor, kernel_size: _Ints, output_size: _Ints | None = None, output_ratio: Any = None, return_indices: _bool = True, _random_samples: Tensor | None = None) -> tuple[Tensor, ...]:
    """The largest values of windows at random places, and their places."""
def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | _float, full: _bool = False, eps: _float = 1e-06, reduction: _str = 'mean') -> Tensor:
    """The negative log likelihood of normal values of a given variance."""
def gelu(input: Tensor, approximate: _str = 'none', *, out: Tensor | None = None) -> Tensor:
    """``x`` times the normal distribution at x, or a fast form of it by ``tanh``."""
@overload
def glu(input: Tensor, dim: _int = -1, *, out: Tensor | None = None) -> Tensor:
    """The first half along a dimension, gated by the sigmoid of the second."""
@overload
def glu(input: Tensor, *, axis: _int, out: Tensor | None = None) -> Tensor:
    """The first half along a dimension, gated by the sigmoid of the second."""
def grid_sample(input: Tensor, grid: Tensor, mode: _str = 'bilinear', padding_mode: _str = 'zeros', align_corners: _bool | None = None) -> Tensor:
    """Read images at the points of a grid, whose coordinates run from -1 to 1."""
def group_norm(input: Tensor, num_groups: _int, weight: Tensor | None = None, bias: Tensor | None = None, eps: _float = 1e-05) -> Tensor:
    """Normalise groups of channels of each sample."""
def gumbel_softmax(logits: Tensor, tau: _float = 1, hard: _bool = False, eps: _float = 1e-10, dim: _int = -1) -> Tensor:
    """A random, differentiable choice along a dimension; ``hard`` makes it one-hot."""
def hardshrink(input: Tensor, lambd: _float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """0 within ``lambd`` of 0, else the input."""
def hardsigmoid(input: Tensor, inplace: _bool = False) -> Tensor:
    """``relu6(x + 3) / 6``: a sigmoid of straight lines."""
def hardswish(input: Tensor, inplace: _bool = False) -> Tensor:
    """``x * relu6(x + 3) / 6``."""
def hardtanh(input: Tensor, min_val: _float = -1.0, max_val: _float = 1.0, inplace: _bool = False) -> Tensor:
    """The input kept between two values."""
def hardtanh_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The function hardtanh in place."""
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: _float = 1.0, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """The input where the target is 1, what is missing to the margin where it is -1."""
def huber_loss(input: Tensor, target: Tensor, reduction: _str = 'mean', delta: _float = 1.0, weight: Tensor | None = None) -> Tensor:
    """Squared differences up to ``delta``, ``delta`` times absolute ones above."""
def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: _bool = True, momentum: _float = 0.1, eps: _float = 1e-05) -> Tensor:
    """Normalise each channel of each sample."""
def interpolate(input: Tensor, size: _Ints | None = None, scale_factor: Any = None, mode: _str = 'nearest', align_corners: _bool | None = None, recompute_scale_factor: _bool | None = None, antialias: _bool = False) -> Tensor:
    """Resize the spatial dimensions of (N, C, ...) to a size or by a factor."""
def kl_div(input: Tensor, target: Tensor, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean', log_target: _bool = False) -> Tensor:
    """The divergence of log probabilities from target probabilities."""
def l1_loss(input: Tensor, target: Tensor, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean', weight: Tensor | None = None) -> Tensor:
    """The absolute differences, averaged by default."""
def layer_norm(input: Tensor, normalized_shape: _Ints, weight: Tensor | None = None, bias: Tensor | None = None, eps: _float = 1e-05) -> Tensor:
    """Shift and scale the last dimensions to mean zero and variance one."""
def leaky_relu(input: Tensor, negative_slope: _float = 0.01, inplace: _bool = False) -> Tensor:
    """``x`` where it is positive, else ``negative_slope * x``."""
def leaky_relu_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The function leaky_relu in place."""
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias`` for any number of leading dimensions."""
def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None, reduction: _str = 'mean', ignore_index: _int | None = None, label_smoothing: _float = 0.0, options: Any = None) -> Tensor:
    """Cross entropy of the scores that a linear layer makes of the input."""
def local_response_norm(input: Tensor, size: _int, alpha: _float = 0.0001, beta: _float = 0.75, k: _float = 1.0) -> Tensor:
    """Divide each channel by a power of the mean square of its neighbours."""
def log_softmax(input: Tensor, dim: _int | None = None, _stacklevel: _int = 3, dtype: _Dtype | None = None) -> Tensor:
    """The logarithm of softmax, computed without overflow."""
def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the sigmoid."""
def lp_pool1d(input: Tensor, norm_type: _float, kernel_size: _Ints, stride: _Ints | None = None, ceil_mode: _bool = False) -> Tensor:
    """The p-norm of each window."""
def lp_pool2d(input: Tensor, norm_type: _float, kernel_size: _Ints, stride: _Ints | None = None, ceil_mode: _bool = False) -> Tensor:
    """The p-norm of each window."""
def lp_pool3d(input: Tensor, norm_type: _float, kernel_size: _Ints, stride: _Ints | None = None, ceil_mode: _bool = False) -> Tensor:
    """The p-norm of each window."""
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: _float = 0, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """What the one input lacks to exceed the other, as the target's sign says, by a margin."""
@overload
def max_pool1d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False) -> Tensor:
    """The largest value of each window; with its place if asked."""
@overload
def max_pool1d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False, *, return_indices: _bool) -> Any:
    """The largest value of each window; with its place if asked."""
def max_pool1d_with_indices(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False, return_indices: _bool = True) -> tuple[Tensor, ...]:
    """The largest value of each window and its place."""
@overload
def max_pool2d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False) -> Tensor:
    """The largest value of each window; with its place if asked."""
@overload
def max_pool2d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False, *, return_indices: _bool) -> Any:
    """The largest value of each window; with its place if asked."""
def max_pool2d_with_indices(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False, return_indices: _bool = True) -> tuple[Tensor, ...]:
    """The largest value of each window and its place."""
@overload
def max_pool3d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False) -> Tensor:
    """The largest value of each window; with its place if asked."""
@overload
def max_pool3d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False, *, return_indices: _bool) -> Any:
    """The largest value of each window; with its place if asked."""
def max_pool3d_with_indices(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False, return_indices: _bool = True) -> tuple[Tensor, ...]:
    """The largest value of each window and its place."""
def max_unpool1d(input: Tensor, indices: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, output_size: _Ints | None = None) -> Tensor:
    """Put the values of a max pooling back to their places, among zeros."""
def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, output_size: _Ints | None = None) -> Tensor:
    """Put the values of a max pooling back to their places, among zeros."""
def max_unpool3d(input: Tensor, indices: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, output_size: _Ints | None = None) -> Tensor:
    """Put the values of a max pooling back to their places, among zeros."""
def mish(input: Tensor, inplace: _bool = False) -> Tensor:
    """``x * tanh(softplus(x))``."""
def mse_loss(input: Tensor, target: Tensor, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean', weight: Tensor | None = None) -> Tensor:
    """The squared differences, averaged by default."""
def multi_head_attention_forward(query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: _int, num_heads: _int, in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: _bool, dropout_p: _float, out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: _bool = True, key_padding_mask: Tensor | None = None, need_weights: _bool = True, attn_mask: Tensor | None = None, use_separate_proj_weight: _bool = False, q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None, static_k: Tensor | None = None, static_v: Tensor | None = None, average_attn_weights: _bool = True, is_causal: _bool = False) -> tuple[Tensor, Tensor | None]:
    """Attention in several heads between two linear layers, over (length, batch, features)."""
def multi_margin_loss(input: Tensor, target: Tensor, p: _int = 1, margin: _float = 1.0, weight: Tensor | None = None, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """What each class lacks to stay below the right one by a margin."""
def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """What each wrong class lacks to stay below each right one by a margin of one."""
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """The logistic loss of each class, averaged over the classes."""
def native_channel_shuffle(input: Tensor, groups: _int) -> Tensor:
    """Channels of several groups dealt out in turn."""
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: _bool | None = None, ignore_index: _int = -100, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """The negated log probabilities of the right classes, averaged by default."""
def normalize(input: Tensor, p: _float = 2.0, dim: _Ints | None = 1, eps: _float = 1e-12, out: Tensor | None = None) -> Tensor:
    """Divide by the p-norm along a dimension."""
def one_hot(tensor: Tensor, num_classes: _int = -1) -> Tensor:
    """For each index a vector of zeros with a one at its place."""
def pad(input: Tensor, pad: Any, mode: _str = 'constant', value: _Operand | None = None) -> Tensor:
    """Room around a tensor, last dimension first, filled with a value or its own elements."""
def pairwise_distance(x1: Tensor, x2: Tensor, p: _float = 2.0, eps: _float = 1e-06, keepdim: _bool = False) -> Tensor:
    """The p-norm of the differences of the vectors in the last dimension."""
def pdist(input: Tensor, p: _float = 2.0) -> Tensor:
    """The p-norm distances between all pairs of rows, each pair once."""
def pixel_shuffle(input: Tensor, upscale_factor: _int) -> Tensor:
    """Channels rearranged into a finer grid of pixels."""
def pixel_unshuffle(input: Tensor, downscale_factor: _int) -> Tensor:
    """A grid of pixels rearranged into channels of a coarser one."""
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: _bool = True, full: _bool = False, size_average: _bool | None = None, eps: _float = 1e-08, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """The negative log likelihood of Poisson counts."""
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``x`` where it is positive, else ``weight * x``, with a weight for each channel or one."""
def relu(input: Tensor, inplace: _bool = False) -> Tensor:
    """``x`` where it is positive, else zero."""
def relu6(input: Tensor, inplace: _bool = False) -> Tensor:
    """The input kept between 0 and 6."""
def relu_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: ``x`` where it is positive, else zero."""
def rms_norm(input: Tensor, normalized_shape: _Ints, weight: Tensor | None = None, eps: _float | None = None) -> Tensor:
    """Divide by the root of the mean square over the last dimensions."""
def rrelu(input: Tensor, lower: _float = 0.125, upper: _float = 0.3333333333333333, training: _bool = False, inplace: _bool = False) -> Tensor:
    """A leaky rectifier whose slopes are drawn at random in training."""
def rrelu_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The function rrelu in place."""
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: _float = 0.0, is_causal: _bool = False, scale: _float | None = None, enable_gqa: _bool = False) -> Tensor:
    """Means of values, weighted by the softmax of the products of queries and keys."""
def selu(input: Tensor, inplace: _bool = False) -> Tensor:
    """The exponential unit whose constants keep mean and variance of layers."""
def selu_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The function selu in place."""
def sigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``1 / (1 + exp(-x))``: any number brought between 0 and 1."""
def silu(input: Tensor, inplace: _bool = False) -> Tensor:
    """``x`` times its sigmoid."""
def smooth_l1_loss(input: Tensor, target: Tensor, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean', beta: _float = 1.0) -> Tensor:
    """Squared differences below ``beta``, absolute ones above, averaged by default."""
def soft_margin_loss(input: Tensor, target: Tensor, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """The logistic loss of targets 1 and -1."""
def softmax(input: Tensor, dim: _int | None = None, _stacklevel: _int = 3, dtype: _Dtype | None = None) -> Tensor:
    """Exponentials along a dimension, scaled to sum to one."""
def softmin(input: Tensor, dim: _int | None = None, _stacklevel: _int = 3, dtype: _Dtype | None = None) -> Tensor:
    """Softmax of the negated input."""
def softplus(input: Tensor, beta: _float = 1.0, threshold: _float = 20.0, *, out: Tensor | None = None) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; x itself where ``beta * x`` is above the threshold."""
def softshrink(input: Tensor, lambd: _float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """The input moved towards 0 by ``lambd``, and 0 within that distance."""
def softsign(input: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
def tanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic tangent: any number brought between -1 and 1."""
def tanhshrink(input: Tensor) -> Tensor:
    """``x - tanh(x)``."""
def threshold(input: Tensor, threshold: _float, value: _float, inplace: _bool = False) -> Tensor:
    """The input where it is above a threshold, else a value."""
def threshold_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The function threshold in place."""
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: _float = 1.0, p: _float = 2, eps: _float = 1e-06, swap: _bool = False, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """What the negative lacks to be farther from the anchor than the positive, by a margin."""
def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: _float = 1.0, swap: _bool = False, reduction: _str = 'mean') -> Tensor:
    """The triplet loss with a distance of one's own."""
def unfold(input: Tensor, kernel_size: _Ints, dilation: _Ints | None = 1, padding: Any = 0, stride: _Ints | None = 1) -> Tensor:
    """The windows of images as columns: (N, C * window, windows)."""
def upsample(input: Tensor, size: _Ints | None = None, scale_factor: Any = None, mode: _str = 'nearest', align_corners: _bool | None = None) -> Tensor:
    """The old name of ``interpolate``."""
def upsample_bilinear(input: Tensor, size: _Ints | None = None, scale_factor: Any = None) -> Tensor:
    """Resize images bilinearly, corners on corners."""
def upsample_nearest(input: Tensor, size: _Ints | None = None, scale_factor: Any = None) -> Tensor:
    """Resize by repeating the nearest value."""
