"""Which functions autocast runs in which precision: PyTorch's lists for the CPU.

Functions are named as users call them, with the namespace in front. Ops are named for calls that
reach them by another way, such as a layer that calls the op itself.
"""

from __future__ import annotations

LOWER, FLOAT32, WIDEST, ALONE = "lower", "float32", "widest", "alone"

_LOWER = [
    "bmm",
    "mm",
    "matmul",
    "baddbmm",
    "addmm",
    "_addmm_activation",
    "addbmm",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
    "_convolution",
    "prelu",
    "linalg.vecdot",
    "linalg.matmul",
    "nn.functional.linear",
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_tbc",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d",
    "nn.functional.prelu",
    "nn.functional.scaled_dot_product_attention",
]

_FLOAT32 = [
    "polar",
    "prod",
    "quantile",
    "nanquantile",
    "stft",
    "cdist",
    "trace",
    "view_as_complex",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "inverse",
    "lu_solve",
    "orgqr",
    "ormqr",
    "pinverse",
    "geqrf",
    "qr",
    "svd",
    "triangular_solve",
    "grid_sampler",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "ctc_loss",
    "hinge_embedding_loss",
    "kl_div",
    "margin_ranking_loss",
    "poisson_nll_loss",
    "triplet_margin_loss",
    "fft.fft",
    "fft.ifft",
    "fft.fft2",
    "fft.ifft2",
    "fft.fftn",
    "fft.ifftn",
    "fft.rfft",
    "fft.irfft",
    "fft.rfft2",
    "fft.irfft2",
    "fft.rfftn",
    "fft.irfftn",
    "fft.hfft",
    "fft.ihfft",
    "linalg.cond",
    "linalg.matrix_rank",
    "linalg.solve",
    "linalg.cholesky",
    "linalg.svdvals",
    "linalg.eigvals",
    "linalg.eigvalsh",
    "linalg.inv",
    "linalg.householder_product",
    "linalg.tensorinv",
    "linalg.tensorsolve",
    "linalg.qr",
    "linalg.cholesky_ex",
    "linalg.svd",
    "linalg.eig",
    "linalg.eigh",
    "linalg.lstsq",
    "linalg.inv_ex",
] + [
    f"nn.functional.{name}"
    for name in [
        "avg_pool3d",
        "max_pool3d",
        "max_unpool2d",
        "max_unpool3d",
        "adaptive_avg_pool3d",
        "adaptive_max_pool3d",
        "fractional_max_pool2d",
        "fractional_max_pool3d",
        "grid_sample",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "mse_loss",
        "cosine_embedding_loss",
        "nll_loss",
        "hinge_embedding_loss",
        "poisson_nll_loss",
        "smooth_l1_loss",
        "cross_entropy",
        "l1_loss",
        "huber_loss",
        "margin_ranking_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
        "multi_margin_loss",
        "ctc_loss",
        "kl_div",
        "multilabel_margin_loss",
    ]
]

_WIDEST = ["cat", "concat", "concatenate", "stack", "index_copy"]

# Not listed in PyTorch, but made of listed ops here.
_ALONE = ["bilinear", "nn.functional.bilinear", "nn.functional.multilabel_soft_margin_loss"]

FUNCTIONS: dict[str, str] = {
    **dict.fromkeys(_LOWER, LOWER),
    **dict.fromkeys(_FLOAT32, FLOAT32),
    **dict.fromkeys(_WIDEST, WIDEST),
    **dict.fromkeys(_ALONE, ALONE),
}
# Operators that are methods and no functions.
METHODS: dict[str, str] = {"__matmul__": LOWER, "__rmatmul__": LOWER}

OPS: dict[str, str] = {
    **dict.fromkeys(
        (
            *("mm", "bmm", "linear", "linear_with_bias", "convolution", "conv_transpose"),
            *("prelu", "lstm_layer"),
        ),
        LOWER,
    ),
    **dict.fromkeys(
        (
            *("prod", "cdist", "view_as_complex", "geqrf", "grid_sampler", "binary_cross_entropy"),
            *("binary_cross_entropy_with_logits", "mse_loss", "nll_loss", "smooth_l1_loss"),
            *("huber_loss", "ctc_loss", "fft_c2c", "fft_c2r", "fft_r2c", "max_unpool"),
            *("linalg_cholesky_ex", "linalg_eig", "linalg_eigh", "linalg_eigvals"),
            *("linalg_eigvalsh", "linalg_inv_ex", "linalg_lstsq", "linalg_qr", "linalg_svd"),
            *("linalg_svdvals", "linalg_matrix_rank", "linalg_solve_ex"),
        ),
        FLOAT32,
    ),
    **dict.fromkeys(("cat", "stack", "index_copy"), WIDEST),
}

# Padding is listed by its kind and by how many dimensions are padded.
PADS = {("reflect", 1), ("reflect", 2), ("replicate", 1), ("replicate", 2), ("replicate", 3)}
