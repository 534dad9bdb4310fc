"""``torch.nn.attention.flex_attention`` beside PyTorch's."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from agreement import torch
from weft.nn.attention import flex_attention as flex

theirs = importlib.import_module("torch.nn.attention.flex_attention")
# PyTorch wants it compiled, and the sums asked for by another name.
pytestmark = pytest.mark.filterwarnings("ignore")
PAIRS = ((weft, flex), (torch, theirs))

# Each is evaluated with one library's tensors.
SCORES = {
    "none": "None",
    "distance": "lambda s, b, h, i, j: s + (i - j) * 0.1",
    "slope of a head": "lambda s, b, h, i, j: s + slopes[h] * (j - i)",
    "causal": "lambda s, b, h, i, j: T.where(i >= j, s, -float('inf'))",
    "capped": "lambda s, b, h, i, j: 3 * T.tanh(s / 3)",
    "rows of a table": "lambda s, b, h, i, j: s + (table[i] * table[j]).sum()",
    "batch": "lambda s, b, h, i, j: s * (b + 1)",
}
MASKS = {
    "causal": "lambda b, h, i, j: i >= j",
    "window": "lambda b, h, i, j: (i - j).abs() < 3",
    "documents": "lambda b, h, i, j: document[i] == document[j]",
    "first row empty": "lambda b, h, i, j: i > j",
    "both": "f.and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: h != j)",
    "either": "f.or_masks(lambda b, h, i, j: i == j, lambda b, h, i, j: h == j)",
    "neither": "f.and_masks()",
    "batch": "lambda b, h, i, j: (b + i) >= j",
    "all": "f.noop_mask",
}
_DRAW = np.random.default_rng(0)
_ARRAYS = {
    "q": _DRAW.normal(size=(2, 4, 17, 8)), "k": _DRAW.normal(size=(2, 4, 17, 8)),
    "v": _DRAW.normal(size=(2, 4, 17, 8)), "slopes": _DRAW.normal(size=4),
    "table": _DRAW.normal(size=(17, 3)),
}  # fmt: skip


def _names(T: Any, f: Any) -> dict[str, Any]:
    made = {name: T.tensor(a) for name, a in _ARRAYS.items()}
    return {**made, "document": T.tensor([0] * 5 + [1] * 12), "T": T, "f": f}


def _same(ours: Any, other: Any) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), other.detach().numpy(), 1e-9, 1e-9)


@pytest.mark.parametrize("code", SCORES.values(), ids=SCORES)
def test_scores_are_changed(code: str) -> None:
    found = []
    for T, f in PAIRS:
        n = _names(T, f)
        found += f.flex_attention(n["q"], n["k"], n["v"], eval(code, n), return_lse=True)
    _same(found[0], found[2])
    _same(found[1], found[3])


@pytest.mark.parametrize("code", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("size", [4, (8, 2)])
def test_masks_by_blocks(code: str, size: Any) -> None:
    found = []
    for T, f in PAIRS:
        n = _names(T, f)
        mask = f.create_block_mask(eval(code, n), 2, 4, 17, 17, device="cpu", BLOCK_SIZE=size)
        result = f.flex_attention(n["q"], n["k"], n["v"], block_mask=mask)
        held = [t.tolist() for t in mask.as_tuple() if isinstance(t, T.Tensor)]
        about = mask.shape, mask.sparsity(), mask.numel(), mask.BLOCK_SIZE, mask.seq_lengths
        found.append((result, held, about, mask.to_dense().tolist(), len(mask.as_tuple())))
    _same(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]


def test_grouped_heads_scale_and_other_outputs() -> None:
    found = []
    for T, f in PAIRS:
        n = _names(T, f)
        mask = f.create_block_mask(eval(MASKS["causal"], n), None, None, 17, 17, device="cpu")
        assert mask.shape == (1, 1, 17, 17) and mask[0].shape == (1, 1, 17, 17)
        key, value = n["k"][:, :2].contiguous(), n["v"][:, :2].contiguous()
        result, more = f.flex_attention(
            n["q"], key, value, None, mask, 0.3, True, return_aux=f.AuxRequest(lse=True)
        )
        assert more.max_scores is None
        found += [result, more.lse]
    _same(found[0], found[2])
    _same(found[1], found[3])


def _refusals(T: Any, f: Any) -> list[tuple[str, Callable]]:
    n = _names(T, f)
    q, k, v = n["q"], n["k"], n["v"]
    short = f.create_block_mask(f.noop_mask, None, None, 16, 16, device="cpu")
    sliced = f.create_block_mask(f.noop_mask, None, None, 17, 17, device="cpu")[0]
    return [
        ("same number of heads", lambda: f.flex_attention(q, k[:, :2], v[:, :2])),
        ("4D tensors", lambda: f.flex_attention(q[0], k, v)),
        ("block_mask was created for", lambda: f.flex_attention(q, k, v, block_mask=short)),
        ("sliced BlockMask", lambda: f.flex_attention(q, k, v, block_mask=sliced)),
        ("callable mask_mods", lambda: f.and_masks(3)),
    ]


@pytest.mark.parametrize("place", range(5))
def test_what_does_not_fit_is_refused(place: int) -> None:
    for T, f in PAIRS:
        text, call = _refusals(T, f)[place]
        with pytest.raises((ValueError, NotImplementedError, RuntimeError), match=text):
            call()


def test_masks_as_tensors() -> None:
    def made(T: Any, f: Any) -> Any:
        n = _names(T, f)
        by_score = f.create_mask(eval(SCORES["causal"], n), None, None, 3, 3, device="cpu")
        return by_score.tolist(), f.create_mask(eval(MASKS["batch"], n), 2, 1, 3, 4, "cpu").tolist()

    assert made(*PAIRS[0]) == made(*PAIRS[1])


def test_gradients_are_those_of_plain_attention() -> None:
    q, k, v = (weft.tensor(_ARRAYS[n], requires_grad=True) for n in "qkv")
    mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 17, 17)
    plain = weft.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    ours = flex.flex_attention(q, k, v, block_mask=mask)
    expected = weft.autograd.grad(plain.pow(2).sum(), (q, k, v))
    for a, b in zip(weft.autograd.grad(ours.pow(2).sum(), (q, k, v)), expected, strict=True):
        _same(a, b)


def test_gradients_reach_what_a_function_holds() -> None:
    q = weft.tensor(_ARRAYS["q"][:1, :1, :3])
    slope = weft.tensor([0.5], dtype=weft.float64, requires_grad=True)

    def attended(slope: Any) -> Any:
        return flex.flex_attention(q, q, q, lambda s, b, h, i, j: s + slope[h] * (i - j))

    assert weft.autograd.gradcheck(attended, (slope,))


def test_queries_that_see_nothing_give_zeros_and_no_gradient() -> None:
    q = weft.tensor(_ARRAYS["q"], requires_grad=True)
    mask = flex.create_block_mask(lambda b, h, i, j: i > j, None, None, 17, 17)
    result, total = flex.flex_attention(q, q, q, block_mask=mask, return_lse=True)
    assert (result[:, :, 0] == 0).all() and (total[:, :, 0] == -math.inf).all()
    result.sum().backward()
    assert q.grad.isfinite().all()
