"""Native loops take the arguments of the ops that they stand for, on the ops' own samples."""

import numpy as np
import pytest

import weft  # noqa: F401  (loads the ops)
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit
from weft.native.loops import batchnorm, indexing, movement, pooling, resampling
from weft.operators.build import Make

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))

FORWARD = {
    "native_batch_norm": batchnorm.batch_norm,
    "batch_norm_fixed": batchnorm.batch_norm_fixed,
    "max_pool_with_indices": pooling.max_pool,
    "adaptive_max_pool": pooling.adaptive_max_pool,
    "plane_scatter": pooling.plane_scatter,
    "plane_gather": pooling.plane_gather,
    "avg_pool": pooling.avg_pool,
    "avg_pool_backward": pooling.avg_pool_back,
    "adaptive_avg_pool": pooling.adaptive_avg_pool,
    "adaptive_avg_pool_backward": pooling.adaptive_avg_pool_back,
    "embedding": indexing.embedding,
    "embedding_dense_backward": indexing.embedding_back,
    "index_select": indexing.index_select,
    "index_add": indexing.index_add,
    "index_copy": indexing.index_copy,
    "index": indexing.index,
    "index_backward": indexing.index_back,
    "index_put": indexing.index_put,
    "gather": indexing.gather,
    "gather_backward": indexing.gather_back,
    "scatter": indexing.scatter,
    "scatter_add": indexing.scatter_add,
    "take_along": indexing.take_along,
    "put_along": indexing.put_along,
    "clone": movement.clone,
    "cat": movement.cat,
    "stack": movement.stack,
    "to_copy": movement.to_copy,
    "where": movement.where,
    "masked_fill": movement.masked_fill,
    "tril": movement.tril,
    "triu": movement.triu,
    "constant_pad_nd": movement.pad,
    "upsample": resampling.upsample,
    "upsample_backward": resampling.upsample_back,
}
BACKWARD = {
    "native_batch_norm": batchnorm.batch_norm_back,
    "batch_norm_fixed": batchnorm.batch_norm_fixed_back,
}
# Ops whose samples are of a kind that is left to the reference, all of them.
LEFT = {"adaptive_max_pool", "to_copy", "cat", "stack", "where"}


@pytest.fixture(autouse=True)
def all_sizes(monkeypatch):
    for module in (batchnorm, indexing, movement, pooling, resampling):
        for name in ("SMALL", "SMALL_ROWS", "SMALL_SUM", "SMALL_CHOICE"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, 0)


def equal(found, wanted):
    found = found if isinstance(found, tuple) else (found,)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name):
    op, taken = REGISTRY[name], 0
    for sample in op.samples(Make()):
        found = FORWARD[name](*sample.args, **sample.attrs)
        if found is not None:
            taken += 1
            equal(found, op.reference(*sample.args, **sample.attrs))
    assert taken or name in LEFT


@pytest.mark.parametrize("name", BACKWARD)
def test_backward(name):
    op, rng = REGISTRY[name], np.random.default_rng(0)
    for sample in op.samples(Make()):
        outputs = op.reference(*sample.args, **sample.attrs)
        values = dict(zip(op.names, sample.args, strict=True))
        g = rng.standard_normal(np.shape(outputs[0] if op.multiple else outputs))
        if op.multiple:
            values |= dict(zip(op.outputs, outputs, strict=True))
            g = (g, *(rng.standard_normal(o.shape) for o in outputs[1:]))
        del values["bias"]
        values.pop("y", None)
        needs = (True,) * len(op.names)
        found = BACKWARD[name](g, **values, needs=needs, **sample.attrs)
        equal(found, op.joint(g, **values, needs=needs, **sample.attrs))
