"""Every op on a batch, at once, against the same op on one example after the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import weft
from weft.core.dispatch import REGISTRY
from weft.core.tensor import Tensor, wrap
from weft.operators.build import Make

SAMPLED = sorted(name for name, op in REGISTRY.items() if op.samples is not None)
SIZES = (3, 1, 0)
# The shapes of their results depend on values, so that examples may not fit together.
RAGGED = frozenset(("masked_select", "masked_place"))
# Ops that run once for each example, and why there is no rule.
LOOPED = {
    "the shape of the result depends on values": """
        masked_select masked_place nonzero unique_dim unique_consecutive bincount nms""",
    "memory goes to another device as it is": """
        to_device""",
    "values are put or taken by their place in one example's memory": """
        as_strided_backward take_flat put_flat take masked_scatter""",
    "the routine behind it works on one example": """
        histc histogram searchsorted isin nonzero_static hash_tensor has_zero linalg_lstsq
        linalg_ldl_factor_ex linalg_ldl_solve linalg_matrix_rank median nanmedian block_diag
        cdist pad_by pad_by_backward ctc_loss ctc_loss_backward
        embedding_bag embedding_bag_backward embedding_bag_per_sample_weights_backward""",
    "a batch is one of its own dimensions, with statistics or states of its own": """
        native_batch_norm batch_norm_fixed running_step lstm_layer gru_layer rnn_layer
        fractional_max_pool grid_sampler_backward grid_sampler_tangent
        roi_align roi_align_backward roi_pool roi_pool_backward roi_pool_gather""",
    "drawn by the generator of the batch: see core.batching.BatchedGenerator": """
        uniform normal random bernoulli exponential geometric cauchy log_normal
        _standard_gamma _standard_gamma_grad _sample_dirichlet _dirichlet_grad""",
    "written in place: see core.batching.change_batched": "copy fill copy_slices",
    "slices of one example replaced; rare": """
        select_scatter slice_scatter diagonal_scatter index_fill to_meta""",
}


def examples(name: str) -> Any:
    """The samples of an op as tensors, each with as many variations as a batch needs."""
    made = [list(REGISTRY[name].samples(Make(seed))) for seed in range(max(SIZES))]  # type: ignore[misc]
    for column in zip(*made, strict=True):
        first = column[0]
        if "values" in first.attrs:
            continue
        yield first.attrs, [list(sample.args) for sample in column]


def batches(places: list[int]) -> Any:
    """Which operands have the batch: each alone, and all of them."""
    chosen = [(k,) for k in places]
    if len(places) > 1:
        chosen.append(tuple(places))
    return chosen


def is_operand(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def outs_of(op: Any, out: Any) -> list[Tensor]:
    return list(out) if op.multiple else [out]


def test_every_op_has_a_rule_or_a_reason() -> None:
    without = {n for n, op in REGISTRY.items() if not op.batch and op.shape != "elementwise"}
    assert without == {name for names in LOOPED.values() for name in names.split()}


@pytest.mark.parametrize("name", [name for name in SAMPLED if name not in RAGGED])
def test_a_batch_is_a_loop(name: str) -> None:
    op = REGISTRY[name]
    for attrs, rows in examples(name):
        places = [k for k, x in enumerate(rows[0]) if is_operand(x)]
        for chosen, size in itertools.product(batches(places), SIZES):
            compare(op, attrs, rows[:size] if size else rows[:1], chosen, size)


def compare(op: Any, attrs: Any, rows: Any, chosen: Any, size: int) -> None:
    first = [wrap(x.copy()) if is_operand(x) else x for x in rows[0]]

    def one(*values: Any) -> Any:
        args = list(first)
        for k, value in zip(chosen, values, strict=True):
            args[k] = value
        return op(*args, **attrs)

    columns = [
        wrap(np.stack([row[k] for row in rows])[: size or 0].astype(rows[0][k].dtype))
        for k in chosen
    ]
    expected = [outs_of(op, one(*(wrap(row[k].copy()) for k in chosen))) for row in rows]
    found = outs_of(op, weft.func.vmap(one)(*columns))
    # The batch may be any dimension of an operand, so that its examples lie apart in memory.
    moved = [column.movedim(0, -1).contiguous() for column in columns]
    last = outs_of(op, weft.func.vmap(one, in_dims=-1)(*moved))
    assert len(found) == len(last) == len(expected[0])
    for k, y in itertools.chain(enumerate(found), enumerate(last)):
        wanted = np.stack([e[k].detach().resolve_conj().numpy() for e in expected])[: size or 0]
        assert y.shape == wanted.shape, (op, chosen, attrs)
        assert y.numpy().dtype == wanted.dtype, (op, chosen, attrs)
        np.testing.assert_allclose(
            y.numpy(),
            wanted,
            rtol=1e-9,
            atol=1e-12,
            equal_nan=True,
            err_msg=f"{op} {chosen} {attrs}",
        )
