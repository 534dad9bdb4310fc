"""Boxes, regions and layers: against plain computation, finite differences and each other."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.autograd import gradcheck
from weft.native.loops import regions as loops
from weft.references import regions as reference
from weft.vision import ops


def boxes(count: int, seed: int = 0, side: float = 50.0, dtype: type = np.float32) -> np.ndarray:
    rng = np.random.default_rng(seed)
    corners = np.sort(rng.random((count, 2, 2)) * side, axis=1)
    return corners.reshape(count, 4).astype(dtype)


def kept_by_hand(b: np.ndarray, s: np.ndarray, limit: float) -> list[int]:
    """Suppression box by box, as it is defined."""
    order, kept = sorted(range(len(s)), key=lambda i: -s[i]), []
    for i in order:
        for j in kept:
            w = min(b[i, 2], b[j, 2]) - max(b[i, 0], b[j, 0])
            h = min(b[i, 3], b[j, 3]) - max(b[i, 1], b[j, 1])
            shared = max(w, 0) * max(h, 0)
            areas = sum((b[k, 2] - b[k, 0]) * (b[k, 3] - b[k, 1]) for k in (i, j))
            if shared / (areas - shared) > limit:
                break
        else:
            kept.append(i)
    return kept


@pytest.mark.parametrize("count", [1, 7, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nms_keeps_what_no_better_box_overlaps(count: int, dtype: type) -> None:
    b = boxes(count, 1, 30.0, dtype)
    s = np.random.default_rng(2).random(count).astype(dtype)
    for limit in (0.1, 0.5, 0.8):
        expected = kept_by_hand(b, s, limit)
        assert ops.nms(weft.from_numpy(b), weft.from_numpy(s), limit).tolist() == expected
        assert reference.nms(b, s, limit).tolist() == expected
        if count > 1:
            native = loops.nms(b, s, limit)
            assert native is not None and native.tolist() == expected


def test_nms_of_equal_scores_and_odd_boxes() -> None:
    b = weft.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2], [5, 5, 5, 5], [5, 5, 5, 5]])
    assert ops.nms(b, weft.ones(4), 0.5).tolist() == [0, 2, 3]  # 0/0 suppresses nothing
    assert ops.nms(weft.zeros(0, 4), weft.zeros(0), 0.5).shape == (0,)
    many = weft.cat([b] * 30)
    assert ops.nms(many, weft.full((120,), float("nan")), 0.5)[0] == 0
    with pytest.raises(RuntimeError, match=r"\(N, 4\)"):
        ops.nms(weft.zeros(3, 5), weft.zeros(3), 0.5)
    # Equality with the threshold is no suppression, whatever the threshold is in float32.
    half = weft.tensor([[0.0, 0, 1, 1], [0.0, 0, 1, 0.5]])
    assert len(ops.nms(half, weft.tensor([0.9, 0.8]), 0.5)) == 2


def test_batched_nms_is_nms_within_categories() -> None:
    for count in (50, 1500):  # by moving boxes apart, and category by category
        b, s = weft.from_numpy(boxes(count, 3)), weft.rand(count)
        kinds = weft.arange(count) % 3
        expected = []
        for k in range(3):
            places = weft.where(kinds == k)[0]
            expected += places[ops.nms(b[places], s[places], 0.4)].tolist()
        found = ops.batched_nms(b, s, kinds, 0.4)
        assert sorted(found.tolist()) == sorted(expected)
        assert s[found].tolist() == sorted(s[found].tolist(), reverse=True)


ROIS = np.array(
    [[0, 1.0, 2.0, 9.0, 7.5], [1, -3, -2, 4, 30], [1, 5, 5, 5.2, 5.1], [0, 20, 1, 40, 9]]
)


@pytest.mark.parametrize("ratio", [2, -1])
@pytest.mark.parametrize("aligned", [False, True])
def test_native_roi_align_is_its_reference(ratio: int, aligned: bool) -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        x, rois = rng.standard_normal((2, 3, 11, 13)).astype(dtype), ROIS.astype(dtype)
        how = ((4, 3), 0.8, ratio, aligned)
        close = {"rtol": 1e-5, "atol": 1e-5}
        expected = reference.roi_align(x, rois, *how)
        np.testing.assert_allclose(loops.roi_align(x, rois, *how), expected, **close)
        g = rng.standard_normal(expected.shape).astype(dtype)
        back = reference.roi_align_grad(g, rois, x.shape, *how)
        np.testing.assert_allclose(loops.roi_align_back(g, rois, x.shape, *how), back, **close)
        pooled = reference.roi_pool(x, rois, (4, 3), 0.8)
        for found, wanted in zip(loops.roi_pool(x, rois, (4, 3), 0.8), pooled, strict=True):
            np.testing.assert_array_equal(found, wanted)
        put = reference.roi_pool_grad(g, pooled[1], rois, x.shape)
        np.testing.assert_allclose(loops.roi_pool_back(g, pooled[1], rois, x.shape), put, **close)


def test_roi_align_of_a_ramp_is_its_middle() -> None:
    ramp = weft.arange(20.0).expand(1, 1, 10, 20)
    found = ops.roi_align(ramp, [weft.tensor([[4.0, 2.0, 8.0, 6.0]])], 2, aligned=True)
    assert found.flatten().tolist() == pytest.approx([4.5, 6.5, 4.5, 6.5])
    # What is not finite stays where it is.
    x = weft.zeros(1, 1, 8, 8)
    x[..., 0, 0] = float("nan")
    assert weft.isfinite(ops.roi_align(x, [weft.tensor([[3.0, 3, 7, 7]])], 2)).all()
    assert weft.isfinite(ops.roi_align(x, [weft.tensor([[50.0, 50, 60, 60]])], 2)).all()


def test_regions_are_differentiable() -> None:
    rois = weft.tensor(ROIS)
    x = weft.randn(2, 2, 6, 7, dtype=weft.float64, requires_grad=True)
    assert gradcheck(lambda x: ops.roi_align(x, rois, (2, 2), 0.5, 2), (x,))
    assert gradcheck(lambda x: ops.roi_pool(x, rois, (2, 2), 0.5), (x,))


def test_regions_refuse_what_does_not_fit() -> None:
    x = weft.zeros(2, 1, 4, 4)
    with pytest.raises(RuntimeError, match="counts images from 0"):
        ops.roi_align(x, weft.tensor([[2.0, 0, 0, 1, 1]]), 2)
    with pytest.raises(ValueError, match=r"\(K, 5\)"):
        ops.roi_align(x, weft.zeros(3, 4), 2)
    with pytest.raises(ValueError, match="3 lists of boxes for 2 images"):
        ops.roi_pool(x, [weft.zeros(1, 4)] * 3, 2)
    assert ops.roi_align(x, weft.zeros(0, 5), 2).shape == (0, 1, 2, 2)


def test_levels_of_a_pyramid_by_size() -> None:
    pool = ops.MultiScaleRoIAlign(["a", "b"], 2, 2)
    maps = {"a": weft.zeros(1, 3, 64, 64), "b": weft.ones(1, 3, 32, 32), "c": weft.ones(1, 3, 1, 1)}
    sizes = weft.tensor([[0.0, 0, 20, 20], [0, 0, 250, 250]])
    found = pool(maps, [sizes], [(256, 256)])
    assert pool.scales == [0.25, 0.125]
    assert found.mean(dim=(1, 2, 3)).tolist() == [0.0, 1.0]


def test_overlaps_of_known_boxes() -> None:
    a = weft.tensor([[0.0, 0, 2, 2], [0, 0, 4, 4]])
    b = weft.tensor([[1.0, 1, 3, 3], [10, 10, 12, 12]])
    assert ops.box_iou(a, b)[:, 0].tolist() == pytest.approx([1 / 7, 0.25])
    assert ops.generalized_box_iou(a, b)[0].tolist() == pytest.approx([1 / 7 - 2 / 9, 8 / 144 - 1])
    assert ops.distance_box_iou(a, b)[0, 1].item() == pytest.approx(-200 / 288)
    assert ops.complete_box_iou(a, a).diagonal().tolist() == pytest.approx([1.0, 1.0])
    assert ops.box_area(a.to(weft.uint8)).tolist() == [4, 16]
    for loss in (
        ops.generalized_box_iou_loss,
        ops.distance_box_iou_loss,
        ops.complete_box_iou_loss,
    ):
        assert loss(a, a, reduction="sum").item() == pytest.approx(0.0, abs=1e-5)
        x = weft.tensor([[0.0, 0, 2, 3]], dtype=weft.float64, requires_grad=True)
        y = weft.tensor([[0.5, 1, 3, 2.5]], dtype=weft.float64)
        if loss is not ops.complete_box_iou_loss:  # whose weight is held fixed
            assert gradcheck(lambda x, loss=loss, y=y: loss(x, y, reduction="mean"), (x,))


def test_formats_of_boxes_and_back() -> None:
    b = weft.from_numpy(boxes(5).astype(np.float64))
    for other in ("xywh", "cxcywh"):
        back = ops.box_convert(ops.box_convert(b, "xyxy", other), other, "xyxy")
        assert weft.allclose(back, b)
    turned = weft.tensor([[10.0, 12, 4, 2, 30]], dtype=weft.float64)
    for other in ("xywhr", "xyxyxyxy"):
        back = ops.box_convert(ops.box_convert(turned, "cxcywhr", other), other, "cxcywhr")
        assert weft.allclose(back, turned)
    with pytest.raises(ValueError, match="unsupported formats"):
        ops.box_convert(b, "xyxy", "nothing")
    clipped = ops.clip_boxes_to_image(weft.tensor([[-5.0, 2, 99, 99]]), (20, 30))
    assert clipped.tolist() == [[0.0, 2.0, 30.0, 20.0]]
    mask = weft.zeros(2, 5, 6, dtype=weft.bool)
    mask[0, 1:3, 2:5] = True
    assert ops.masks_to_boxes(mask).tolist() == [[2.0, 1.0, 4.0, 2.0], [0.0, 0.0, 0.0, 0.0]]


def test_a_deformable_convolution_without_offsets_is_a_convolution() -> None:
    weft.manual_seed(0)
    layer = ops.DeformConv2d(4, 6, 3, stride=2, padding=1, groups=2)
    x = weft.randn(2, 4, 7, 9)
    plain = weft.nn.functional.conv2d(x, layer.weight, layer.bias, 2, 1, groups=2)
    offset = weft.zeros(2, 18, 4, 5)
    assert weft.allclose(layer(x, offset), plain, atol=1e-5)
    halves = layer(x, offset, weft.full((2, 9, 4, 5), 0.5))
    bias = layer.bias.view(1, -1, 1, 1)
    assert weft.allclose(halves - bias, (plain - bias) / 2, atol=1e-5)
    moved = offset.clone()
    moved[:, 1::2] = 1.0  # every tap one pixel to the right
    shifted = weft.nn.functional.pad(x, (0, 1))[..., 1:]
    expected = weft.nn.functional.conv2d(shifted, layer.weight, layer.bias, 2, 1, groups=2)
    assert weft.allclose(layer(x, moved)[..., 1:], expected[..., 1:], atol=1e-5)
    with pytest.raises(RuntimeError, match="offset should"):
        layer(x, weft.zeros(2, 18, 3, 3))


def test_dropout_of_branches_and_blocks() -> None:
    x = weft.ones(64, 2, 8, 8)
    layer = ops.StochasticDepth(0.5, "row")
    weft.manual_seed(0)
    rows = layer(x).flatten(1)
    assert set(rows[:, 0].tolist()) == {0.0, 2.0} and (rows == rows[:, :1]).all()
    assert layer.eval()(x) is x
    dropped = ops.drop_block2d(x, 0.3, 3)
    zeros = (dropped == 0).float().mean()
    assert 0.1 < zeros < 0.6 and dropped.mean().item() == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(ValueError, match="between 0 and 1"):
        ops.stochastic_depth(x, 1.5, "row")


def test_frozen_normalisation_has_no_parameters() -> None:
    layer = ops.FrozenBatchNorm2d(3)
    plain = weft.nn.BatchNorm2d(3).eval()
    plain.running_mean.fill_(0.5)
    plain.running_var.fill_(2.0)
    layer.load_state_dict(plain.state_dict())  # num_batches_tracked is left out
    x = weft.randn(2, 3, 4, 4)
    assert not list(layer.parameters())
    assert weft.allclose(layer(x), plain(x), atol=1e-6)


def test_position_sensitive_bins_read_their_own_channels() -> None:
    """Bin (i, j) of channel c is read from channel (c * rows + i) * columns + j."""
    weft.manual_seed(0)
    x = weft.randn(2, 12, 9, 8, dtype=weft.float64)
    boxes = [weft.tensor([[0.0, 1, 6, 5]]), weft.tensor([[2.0, 2, 7, 8], [-3, 0, 20, 4]])]
    boxes = [part.double() for part in boxes]
    found = ops.ps_roi_align(x, boxes, (3, 2), 0.9, 2)
    plain = ops.roi_align(x, boxes, (3, 2), 0.9, 2, aligned=True)
    assert found.shape == (3, 2, 3, 2)
    for channel in range(2):
        for i in range(3):
            for j in range(2):
                own = plain[:, (channel * 3 + i) * 2 + j, i, j]
                assert weft.equal(found[:, channel, i, j], own)
    for function in (ops.ps_roi_align, ops.ps_roi_pool):
        x = x.detach()[:, :6, :5, :4].clone().requires_grad_()
        assert gradcheck(lambda x, f=function: f(x, boxes, (3, 2), 0.5), (x,))
    with pytest.raises(ValueError, match="multiple of 4; the input has 6"):
        ops.ps_roi_align(x, boxes, 2)
    layer = ops.PSRoIAlign(2, 0.5, -1)
    assert repr(layer) == "PSRoIAlign(output_size=2, spatial_scale=0.5, sampling_ratio=-1)"
    assert ops.PSRoIPool(1, 1.0)(x, boxes).shape == (3, 6, 1, 1)


def test_position_sensitive_pooling_is_a_mean() -> None:
    x = weft.arange(64.0).reshape(1, 1, 8, 8).repeat(1, 4, 1, 1)
    found = ops.ps_roi_pool(x, [weft.tensor([[1.0, 2.0, 5.0, 6.0]])], 2)
    wanted = [[x[0, 0, 2 + 2 * i : 4 + 2 * i, 1 + 2 * j : 3 + 2 * j].mean() for j in (0, 1)]
              for i in (0, 1)]  # fmt: skip
    assert weft.allclose(found[0, 0], weft.tensor(wanted))
    outside = ops.ps_roi_pool(x, [weft.tensor([[20.0, 20.0, 30.0, 30.0]])], 2)
    assert outside.abs().sum() == 0
