"""Switches of PyTorch's compiler, for programs that set them; nothing reads them."""

from __future__ import annotations

from weft.compat.switches import Switches

config = Switches(
    fx_graph_cache=True,
    coordinate_descent_tuning=False,
    max_autotune=False,
    freezing=False,
    epilogue_fusion=True,
    cpp_wrapper=False,
    triton=Switches(cudagraphs=False, unique_kernel_names=True),
    cpp=Switches(threads=-1, simdlen=None, weight_prepack=True),
    trace=Switches(enabled=False),
)
