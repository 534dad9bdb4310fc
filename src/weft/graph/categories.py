"""What sort of thing an op does: the categories that pictures and tables colour and group by.

The one table of them. An op belongs to the category of the file that its block stands in, since
blocks stand together by what they do; the few whose file says too little are named one by one.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from weft.core.dispatch import REGISTRY, Op
from weft.graph.spec import BACKWARD, LEAVES, OPTIMIZER, Spec


class Category(NamedTuple):
    """How a category looks: a hue in degrees, and how strong a colour it gets, from 0 to 1."""

    hue: int
    strength: float = 1.0

    @property
    def main(self) -> bool:
        """Whether a module is named after it, rather than after the glue between."""
        return self.strength > 0.5


# In the order in which legends list them.
CATEGORIES = {
    "convolution": Category(217),
    "linear": Category(252),
    "attention": Category(292),
    "recurrent": Category(325),
    "embedding": Category(190),
    "norm": Category(145),
    "activation": Category(8),
    "pooling": Category(170),
    "loss": Category(40),
    "elementwise": Category(230, 0.18),
    "reduction": Category(75, 0.45),
    "shape": Category(30, 0.3),
    "indexing": Category(105, 0.4),
    "random": Category(55, 0.5),
    "linear algebra": Category(270, 0.6),
    "function": Category(0, 0.0),
}

# By the last part of the module's name: ``weft.operators.views`` and ``weft.references.recurrent``.
_FILES = {
    "activations": "activation",
    "along": "indexing",
    "arithmetic": "elementwise",
    "arranging": "shape",
    "attention": "attention",
    "casting": "elementwise",
    "convolution": "convolution",
    "cumulative": "reduction",
    "dropout": "random",
    "embedding": "embedding",
    "entropy": "loss",
    "factorizations": "linear algebra",
    "fft": "linear algebra",
    "gather": "indexing",
    "indexing": "indexing",
    "linalg": "linear algebra",
    "losses": "loss",
    "matmul": "linear",
    "normalization": "norm",
    "norms": "reduction",
    "padding": "shape",
    "pairwise": "elementwise",
    "pointwise": "elementwise",
    "pooling": "pooling",
    "random": "random",
    "recurrent": "recurrent",
    "reductions": "reduction",
    "regions": "pooling",
    "resampling": "pooling",
    "samplers": "random",
    "searching": "indexing",
    "slices": "indexing",
    "softmax": "activation",
    "sorting": "reduction",
    "special": "elementwise",
    "spectral": "linear algebra",
    "statistics": "reduction",
    "strided": "shape",
    "views": "shape",
}
_NAMES = {
    **dict.fromkeys(("sigmoid", "tanh"), "activation"),
    **dict.fromkeys(("scaled_softmax", "scaled_softmax_backward"), "attention"),
    "cdist": "linear algebra",
    "masked_fill": "elementwise",
    "one_hot": "indexing",
}


@functools.cache
def of_op(name: str) -> str:
    """The category of a registered op, by its name; ``function`` for what is not an op.

    >>> of_op("native_layer_norm"), of_op("permute")
    ('norm', 'shape')
    """
    op = REGISTRY.get(name)
    if op is None:
        return "function"
    found = _NAMES.get(name)
    if found is None:
        # A reference that is NumPy's own function has no file here: those are elementwise.
        file = str(getattr(op.reference, "__module__", None) or "numpy").rpartition(".")[2]
        found = "elementwise" if file == "numpy" else _FILES.get(file, "function")
    return found


def category(spec: Spec, specs: dict[int, Spec]) -> str:
    """The category of a node: a gradient has its forward node's, a leaf has none."""
    if spec.kind in LEAVES or spec.kind == OPTIMIZER:
        return ""
    if spec.kind == BACKWARD and not isinstance(spec.op, Op):
        partner: Any = specs.get(spec.forward) if spec.forward is not None else None
        return "" if partner is None or partner.kind in LEAVES else of_op(partner.op_name)
    return of_op(spec.op_name)
