"""Which native kernel serves which op, from which size on.

The sizes are where the native code overtook NumPy when measured; see ``core/selection.py`` for the
rules.
"""

from __future__ import annotations

from typing import Any

from weft.core.dispatch import REGISTRY
from weft.core.selection import NEVER, offer, offer_small

# Elementwise ops with functions that NumPy rounds otherwise: from which size on.
FUNCTIONS = {
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log1p", "log2", "tanh"), 1024),
    **dict.fromkeys(("erf", "atan", "pow", "hypot", "logaddexp"), 1024),
    "erfinv": 64,
    # NumPy needs several passes for these.
    **dict.fromkeys(("sigmoid", "silu", "glu", "gelu", "gelu_tanh", "elu", "mish"), 64),
    **dict.fromkeys(("gelu_slope", "gelu_tanh_slope"), 64),
    **dict.fromkeys(("softplus", "log_sigmoid", "binary_cross_entropy_with_logits"), 64),
}
# Exact ones that NumPy does in several passes, or slowly.
CLUMSY = ("relu", "leaky_relu", "keep", "hardtanh", "maximum", "minimum")
CLUMSY_LIMIT = 4096

# NumPy is as fast at these: there are loops for programs, which would have to call it.
ONLY_PLANNED = ("sinh", "cosh", "asin", "acos", "asinh", "acosh", "atanh")

# op -> size from which it pays, forward kernel, backward kernels by rule (below weft.native)
KERNELS: dict[str, tuple[Any, ...]] = {
    "mm": (4096, "gemm.products:mm"),
    "bmm": (4096, "gemm.products:bmm"),
    "linear": (4096, "gemm.products:linear"),
    "linear_with_bias": (4096, "gemm.products:linear_with_bias"),
    "convolution": (1024, "conv.convolutions:convolution"),
    "conv_transpose": (1024, "conv.convolutions:transposed"),
    "conv_weight": (1024, "conv.convolutions:weight_grad"),
    # reductions
    "sum": (2, "loops.reduce:sum_over"),
    "mean": (2, "loops.reduce:mean_over"),
    "prod": (8192, "loops.reduce:product_over"),
    "amax": (2, "loops.reduce:amax"),
    "amin": (2, "loops.reduce:amin"),
    "max": (2, "loops.reduce:max_of_all"),
    "min": (2, "loops.reduce:min_of_all"),
    "max_dim": (2, "loops.reduce:max_dim"),
    "min_dim": (2, "loops.reduce:min_dim"),
    "argmax": (2, "loops.reduce:argmax"),
    "argmin": (2, "loops.reduce:argmin"),
    "any": (2, "loops.reduce:any_over"),
    "all": (2, "loops.reduce:all_over"),
    "var": (8192, "loops.reduce:var"),
    "std": (8192, "loops.reduce:std"),
    "linalg_vector_norm": (8192, "loops.reduce:vector_norm"),
    "sin": (4096, "loops.circles:sin", "loops.circles:sin_back"),
    "cos": (4096, "loops.circles:cos", "loops.circles:cos_back"),
    # softmax, norms, losses
    "softmax": (64, "loops.softmax:softmax"),
    "log_softmax": (64, "loops.softmax:log_softmax"),
    "softmax_backward_data": (64, "loops.softmax:softmax_back"),
    "log_softmax_backward_data": (64, "loops.softmax:log_softmax_back"),
    "scaled_dot_product_attention": (
        *(4096, "layers.attention:attention"),
        "layers.attention:attention_back",
    ),
    "scaled_softmax": (64, "loops.softmax:scaled_softmax"),
    "scaled_softmax_backward": (64, "loops.softmax:scaled_softmax_back"),
    "logsumexp": (4096, "loops.softmax:logsumexp"),
    "native_layer_norm": (
        *(64, "loops.normalize:layer_norm"),
        "loops.normalize:layer_norm_back",
    ),
    "fused_rms_norm": (64, "loops.normalize:rms_norm", "loops.normalize:rms_norm_back"),
    "native_batch_norm": (
        *(512, "loops.batchnorm:batch_norm"),
        "loops.batchnorm:batch_norm_back",
    ),
    "batch_norm_fixed": (
        *(2048, "loops.batchnorm:batch_norm_fixed"),
        "loops.batchnorm:batch_norm_fixed_back",
    ),
    "nll_loss": (64, "loops.losses:nll_loss"),
    "nll_loss_backward": (64, "loops.losses:nll_loss_back"),
    "mse_loss": (
        *(8192, "loops.losses:mse_loss"),
        *("loops.losses:mse_loss_back_a", "loops.losses:mse_loss_back_b"),
    ),
    "smooth_l1_loss": (
        *(8192, "loops.losses:smooth_l1_loss"),
        *("loops.losses:smooth_l1_loss_back_a", "loops.losses:smooth_l1_loss_back_b"),
    ),
    "huber_loss": (
        *(8192, "loops.losses:huber_loss"),
        *("loops.losses:huber_loss_back_a", "loops.losses:huber_loss_back_b"),
    ),
    # windows
    "max_pool_with_indices": (1024, "loops.pooling:max_pool"),
    "adaptive_max_pool": (1024, "loops.pooling:adaptive_max_pool"),
    "plane_scatter": (1024, "loops.pooling:plane_scatter"),
    "plane_gather": (1024, "loops.pooling:plane_gather"),
    "avg_pool": (1024, "loops.pooling:avg_pool"),
    "avg_pool_backward": (1024, "loops.pooling:avg_pool_back"),
    "adaptive_avg_pool": (1024, "loops.pooling:adaptive_avg_pool"),
    "adaptive_avg_pool_backward": (1024, "loops.pooling:adaptive_avg_pool_back"),
    # indices
    "embedding": (2, "loops.indexing:embedding"),
    "embedding_dense_backward": (512, "loops.indexing:embedding_back"),
    "index_select": (2, "loops.indexing:index_select"),
    "index_add": (4096, "loops.indexing:index_add"),
    "index_copy": (4096, "loops.indexing:index_copy"),
    "index_fill": (4096, "loops.indexing:index_fill"),
    "index": (4096, "loops.indexing:index"),
    "index_backward": (4096, "loops.indexing:index_back"),
    "index_put": (4096, "loops.indexing:index_put"),
    "gather": (2, "loops.indexing:gather"),
    "gather_backward": (64, "loops.indexing:gather_back"),
    "scatter": (512, "loops.indexing:scatter"),
    "scatter_add": (64, "loops.indexing:scatter_add"),
    "scatter_reduce": (512, "loops.indexing:scatter_reduce"),
    "one_hot": (64, "loops.indexing:one_hot"),
    "take_along": (4096, "loops.indexing:take_along"),
    "put_along": (4096, "loops.indexing:put_along"),
    # recurrent layers
    "lstm_layer": (2048, "layers.recurrent:lstm", "layers.recurrent:lstm_rule"),
    "gru_layer": (2048, "layers.recurrent:gru", "layers.recurrent:gru_rule"),
    "rnn_layer": (2048, "layers.recurrent:rnn", "layers.recurrent:rnn_rule"),
    # movement
    "reshape": (65536, "loops.movement:reshape"),
    "clone": (32768, "loops.movement:clone"),
    "cat": (16384, "loops.movement:cat"),
    "stack": (16384, "loops.movement:stack"),
    "to_copy": (16384, "loops.movement:to_copy"),
    "where": (4096, "loops.movement:where"),
    "masked_fill": (16384, "loops.movement:masked_fill"),
    "tril": (16384, "loops.movement:tril"),
    "triu": (16384, "loops.movement:triu"),
    "constant_pad_nd": (16384, "loops.movement:pad"),
    "kthvalue": (1024, "loops.ranks:kthvalue"),
    "median_dim": (1024, "loops.ranks:median"),
    "nanmedian_dim": (1024, "loops.ranks:nanmedian"),
    "pad_by": (1024, "loops.folds:pad_by"),
    "pad_by_backward": (1024, "loops.folds:pad_by_back"),
    "cumsum": (2, "loops.scans:cumsum"),
    "cumprod": (2, "loops.scans:cumprod"),
    "cummax": (2, "loops.scans:cummax"),
    "cummin": (2, "loops.scans:cummin"),
    "topk": (2, "loops.scans:topk"),
    "nms": (64, "loops.regions:nms"),
    "roi_align": (512, "loops.regions:roi_align"),
    "roi_align_backward": (512, "loops.regions:roi_align_back"),
    "roi_pool": (512, "loops.regions:roi_pool"),
    "roi_pool_backward": (512, "loops.regions:roi_pool_back"),
    "upsample": (2048, "loops.resampling:upsample"),
    "upsample_backward": (2048, "loops.resampling:upsample_back"),
}


# The same for arrays below those sizes, with NumPy's bits.
SMALL: dict[str, tuple[str, ...]] = {
    "native_layer_norm": (
        "loops.normalize:layer_norm_small",
        "loops.normalize:layer_norm_small_back",
    ),
    "native_batch_norm": (
        "loops.batchnorm:batch_norm_small",
        "loops.batchnorm:batch_norm_small_back",
    ),
    "softmax": ("loops.softmax:softmax_small",),
    "log_softmax": ("loops.softmax:log_softmax_small",),
    "var": ("loops.scans:var_small",),
    "std": ("loops.scans:std_small",),
    "nll_loss": ("loops.losses:nll_loss_small",),
    "nll_loss_backward": ("loops.losses:nll_loss_small_back",),
    "index_add": ("loops.indexing:index_add_small",),
    "index_backward": ("loops.indexing:index_back_small",),
    "gather_backward": ("loops.indexing:gather_back_small",),
    "scatter_add": ("loops.indexing:scatter_add_small",),
}

# Kernels that give the same bits as NumPy, so that they may wait until they are worth loading.
EXACT = (
    *("max_pool_with_indices", "adaptive_max_pool", "plane_scatter", "plane_gather", "embedding"),
    *("index_select", "index_copy", "index_fill", "index", "index_put", "gather"),
    *(
        "scatter",
        "one_hot",
        "take_along",
        "put_along",
        "reshape",
        "clone",
        "cat",
        "stack",
        "to_copy",
        "where",
        "masked_fill",
    ),
    *(
        "tril",
        "triu",
        "constant_pad_nd",
        "amax",
        "amin",
        "max",
        "min",
        "max_dim",
        "min_dim",
        "argmax",
        "argmin",
    ),
    *("cumsum", "cumprod", "cummax", "cummin", "topk", "pad_by", "median_dim", "nanmedian_dim"),
    *("any", "all", "sum", "mean"),  # large sums differ, but for those nothing waits
)


def register() -> None:
    """Offer the kernels to their ops."""
    for name, kernels in KERNELS.items():
        offer(REGISTRY[name], name in EXACT, *kernels)
    for name, small in SMALL.items():
        offer_small(REGISTRY[name], *small)
    for name, limit in FUNCTIONS.items():
        REGISTRY[name].limit, REGISTRY[name].exact = limit, 0
    for name in ONLY_PLANNED:
        REGISTRY[name].limit = NEVER
    for name in CLUMSY:
        REGISTRY[name].limit = CLUMSY_LIMIT
