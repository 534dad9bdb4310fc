"""Methods of PyTorch's tensors that weft does not have: reading one raises an error with the
reason.
"""

from __future__ import annotations

from typing import Any

from weft.core.tensor import LATE, Tensor

# By the reason, as in ``weft.compat.table``; the last ones are just not implemented.
METHODS: dict[str, str] = {
    "sparse": """to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc
        sparse_mask sparse_resize_ sparse_resize_and_clear_ _nnz coalesce
        is_coalesced indices crow_indices col_indices ccol_indices row_indices smm sspaddmm""",
    "quantization": """int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points
        q_scale q_zero_point qscheme""",
    "nested": "to_padded_tensor",
    "subclasses": "_make_wrapper_subclass",
    "cuda": "record_stream ipu xpu mtia",
    "": """chalf eig lstsq reinforce resize_as_sparse_ slice_inverse solve symeig to_mkldnn
        values""",
}


class AbsentMethod:
    """Raises an AttributeError that says what to use instead, so that ``hasattr`` is False."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Any, owner: Any) -> Any:
        return LATE.missing(f"Tensor.{self.name}")


def install() -> None:
    """Put these names on the class: without them Python would say only that there is none."""
    LATE.absent = frozenset(name for names in METHODS.values() for name in names.split())
    for name in LATE.absent:
        setattr(Tensor, name, AbsentMethod(name))
