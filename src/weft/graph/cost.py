"""The arithmetic cost of a node, estimated from its shapes."""

from __future__ import annotations

import math
from typing import Any

from weft.core.dispatch import Op
from weft.graph.spec import LEAVES, Ref, Spec

_PRODUCTS = {"mm", "bmm", "mv", "dot", "linear", "linear_with_bias"}
_CONVOLUTIONS = {"convolution", "conv_transpose", "conv_weight"}
# Ops whose work follows their input, not their result.
_REDUCTIONS = {
    "sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "var", "std",
    "norm", "logsumexp", "nll_loss", "mse_loss", "linalg_vector_norm", "any", "all",
}  # fmt: skip


_NORMS = {"native_layer_norm", "native_batch_norm", "fused_rms_norm", "batch_norm_fixed"}
_SOFTMAX = {"softmax", "log_softmax"}
# Ops whose work follows from more than the size of their result.
_SHAPED = _PRODUCTS | _CONVOLUTIONS | _REDUCTIONS | _NORMS | _SOFTMAX


def flops(spec: Spec, specs: dict[int, Spec]) -> int:
    """Operations of a node; a multiply-add counts as two."""
    if spec.kind in LEAVES or getattr(spec.op, "view", False):
        return 0
    if spec.kind == "backward" and not isinstance(spec.op, Op):
        return _backward(spec, specs)
    if spec.kind == "optimizer":
        return 10 * _size(spec.kinds()[0][0])
    if spec.op_name not in _SHAPED and spec.args and not spec.several:
        return _size(spec.shape) if any(x.__class__ is Ref for x in spec.args) else 0
    shapes = [specs[x.node].kind_of(x.index)[0] for x in spec.args if x.__class__ is Ref]
    return forward_flops(spec.op_name, spec.kinds()[0][0], [s for s in shapes if s is not None])


def _backward(spec: Spec, specs: dict[int, Spec]) -> int:
    """A gradient costs as much as its op for each input that gets one."""
    partner = None if spec.forward is None else specs.get(spec.forward)
    if partner is None or partner.kind in LEAVES:
        return sum(_size(shape) for shape, _ in spec.kinds())
    return flops(partner, specs) * len(spec.kinds())


def forward_flops(name: str, out: Any, shapes: list[Any]) -> int:
    """Operations of a forward op, by its name and the shapes of its result and its inputs."""
    if out is None or not shapes:
        return 0
    if name in _PRODUCTS:
        return 2 * _size(out) * (shapes[0][-1] if shapes[0] else 1)
    if name in _CONVOLUTIONS and len(shapes) > 1:
        weight = shapes[1]
        if name == "conv_transpose":
            return 2 * _size(shapes[0]) * math.prod(weight[1:])
        return 2 * _size(out) * math.prod(weight[1:])
    if name in _REDUCTIONS:
        return _size(shapes[0])
    if name in _SOFTMAX:
        return 5 * _size(out)
    if name in _NORMS:
        return 8 * _size(out)
    return _size(out)


def _size(shape: Any) -> int:
    return 0 if shape is None else math.prod(shape)
