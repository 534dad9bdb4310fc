"""Transforms: torchvision's numbers for seeds, on Pillow images, bytes and floats."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import vision_numbers as table

import weft
from weft.vision import transforms

pytest.importorskip("PIL", reason="Pillow is the extra 'vision'")
from weft.vision import tv_tensors
from weft.vision.transforms import v2
from weft.vision.transforms.v2 import functional as F2

NUMBERS = table.numbers()
# Bytes are rounded from floats, so that a few pixels differ by one.
CLOSE = {"pillow": 0.02, "bytes": 0.03, "floats": 3e-4}


def _check(found: Any, expected: Any, kind: str, what: str) -> None:
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected, what
        return
    assert found[-1] == pytest.approx(expected[-1], abs=1e-7), f"{what}: another random stream"
    assert found == pytest.approx(expected, abs=CLOSE[kind]), what


@pytest.mark.parametrize("spec", table.SPECS + table.ONLY_V1)
def test_v1_gives_torchvisions_images_for_seeds(spec: str) -> None:
    for i, kind in enumerate(table.KINDS):
        for j, seed in enumerate(table.SEEDS):
            found = table.transformed(weft, transforms, spec, kind, seed)
            _check(found, NUMBERS["v1"][spec][i][j], kind, f"{spec} {kind} seed {seed}")


@pytest.mark.parametrize("spec", table.SPECS + table.ONLY_V2)
def test_v2_gives_torchvisions_images_for_seeds(spec: str) -> None:
    for i, kind in enumerate(table.KINDS):
        for j, seed in enumerate(table.SEEDS):
            found = table.transformed(weft, v2, spec, kind, seed)
            _check(found, NUMBERS["v2"][spec][i][j], kind, f"{spec} {kind} seed {seed}")


@pytest.mark.parametrize("spec", table.SPECS + table.ONLY_V2)
def test_v2_moves_boxes_masks_and_points_with_their_image(spec: str) -> None:
    for j, seed in enumerate(table.SEEDS):
        found = table.sample(weft, tv_tensors, v2, spec, seed)
        _check(found, NUMBERS["samples"][spec][j], "bytes", f"{spec} seed {seed}")


# --- conversions -----------------------------------------------------------------------------


def test_pillow_images_come_back_as_they_were() -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for mode, shape in (("L", (4, 5)), ("RGB", (4, 5, 3)), ("RGBA", (4, 5, 4)), ("LA", (4, 5, 2))):
        array = rng.integers(0, 256, shape).astype(np.uint8)
        image = Image.fromarray(array)
        assert image.mode == mode
        back = transforms.ToPILImage()(transforms.PILToTensor()(image))
        assert back.mode == mode and np.array_equal(np.asarray(back), array)
        again = transforms.ToPILImage()(transforms.ToTensor()(image))
        assert np.array_equal(np.asarray(again), array)
    whole = Image.fromarray(rng.integers(0, 1000, (3, 4)).astype(np.int32))
    assert transforms.ToTensor()(whole).dtype == weft.int32
    assert transforms.functional.to_pil_image(np.zeros((2, 3), np.float32)).mode == "F"
    with pytest.raises(ValueError, match="2/3 dimensional"):
        transforms.ToPILImage()(weft.zeros(1, 2, 3, 4))
    with pytest.raises(TypeError, match="PIL Image or ndarray"):
        transforms.ToTensor()([[1.0]])


def test_types_are_scaled_to_their_ranges() -> None:
    convert = transforms.functional.convert_image_dtype
    bytes_ = weft.tensor([[[0, 1, 128, 255]]], dtype=weft.uint8)
    assert convert(bytes_, weft.float32).max() == 1.0
    assert convert(convert(bytes_, weft.float32), weft.uint8).tolist() == bytes_.tolist()
    assert convert(bytes_, weft.int16).max() == 255 * 128
    assert F2.to_dtype(bytes_, weft.int16, scale=True).max() == 255 << 7
    assert F2.to_dtype(bytes_, weft.float32).max() == 255.0
    with pytest.raises(RuntimeError, match="cannot be performed safely"):
        convert(weft.rand(1, 2, 2), weft.int32)


def test_normalize_says_what_it_needs() -> None:
    step = transforms.Normalize((0.5,), (0.5,))
    assert step(weft.ones(1, 2, 2)).tolist() == [[[1.0, 1.0], [1.0, 1.0]]]
    with pytest.raises(TypeError, match="float tensor"):
        step(weft.ones(1, 2, 2, dtype=weft.uint8))
    with pytest.raises(ValueError, match="division by zero"):
        transforms.Normalize((0.5,), (0.0,))(weft.ones(1, 2, 2))
    x = weft.ones(1, 2, 2)
    transforms.Normalize(0.5, 0.5, inplace=True)(x)
    assert x.sum() == 4


def test_images_of_odd_shapes() -> None:
    one = weft.ones(3, 1, 1, dtype=weft.uint8)
    assert transforms.Resize((4, 6))(one).shape == (3, 4, 6)
    assert transforms.CenterCrop(3)(one).sum() == 3
    assert transforms.functional.crop(one, -2, -3, 4, 5).shape == (3, 4, 5)
    assert transforms.functional.crop(one, 5, 5, 2, 2).sum() == 0
    batch = weft.zeros(2, 5, 3, 8, 6)
    assert transforms.Resize(3)(batch).shape == (2, 5, 3, 4, 3)
    assert transforms.RandomRotation(10)(batch).shape == batch.shape
    turned = weft.arange(12.0).reshape(1, 3, 4).transpose(1, 2)
    assert transforms.functional.hflip(turned)[0, 0].tolist() == [8.0, 4.0, 0.0]
    with pytest.raises(ValueError, match="larger than input image"):
        transforms.RandomCrop(9)(weft.zeros(3, 8, 20))
    with pytest.raises(TypeError, match="Unexpected type"):
        transforms.Resize(3)("a path")


def test_transforms_of_tensors_are_differentiable() -> None:
    x = weft.rand(1, 3, 8, 8, dtype=weft.float64, requires_grad=True)
    steps = [
        transforms.Resize(5), transforms.ColorJitter(0.3, 0.3, 0.3), transforms.GaussianBlur(3),
        transforms.RandomAffine(20, interpolation=transforms.InterpolationMode.BILINEAR),
        transforms.Normalize([0.5] * 3, [0.2] * 3),
    ]  # fmt: skip
    for step in steps:
        x.grad = None
        step(x).sum().backward()
        assert x.grad is not None and weft.isfinite(x.grad).all()


# --- samples ---------------------------------------------------------------------------------


def _sample() -> dict[str, Any]:
    return {
        "image": tv_tensors.Image(weft.zeros(3, 20, 30, dtype=weft.uint8)),
        "boxes": tv_tensors.BoundingBoxes(
            [[1, 2, 9, 12], [5, 5, 5, 9], [20, 1, 40, 8]], format="XYXY", canvas_size=(20, 30)
        ),
        "labels": weft.tensor([3, 4, 5]),
    }


def test_an_op_gives_a_plain_tensor_and_a_copy_keeps_its_class() -> None:
    boxes = _sample()["boxes"]
    assert type(boxes + 1) is weft.Tensor and type(boxes[0]) is weft.Tensor
    for kept in (boxes.clone(), boxes.to(weft.float64), boxes.detach()):
        assert type(kept) is tv_tensors.BoundingBoxes and kept.canvas_size == (20, 30)
    with tv_tensors.set_return_type("TVTensor"):
        assert type(boxes + 1) is tv_tensors.BoundingBoxes
    assert type(boxes + 1) is weft.Tensor
    wrapped = tv_tensors.wrap(boxes + 1, like=boxes, canvas_size=(9, 9))
    assert wrapped.canvas_size == (9, 9) and wrapped.format is boxes.format
    assert "canvas_size=(20, 30)" in repr(boxes)
    with pytest.raises(ValueError, match="1D or 2D"):
        tv_tensors.BoundingBoxes(weft.zeros(1, 1, 4), format="XYXY", canvas_size=(1, 1))


def test_boxes_that_are_not_valid_go_with_their_labels() -> None:
    done = v2.SanitizeBoundingBoxes()(_sample())
    assert done["boxes"].shape == (1, 4) and done["labels"].tolist() == [3]
    done = v2.Compose([v2.ClampBoundingBoxes(), v2.SanitizeBoundingBoxes()])(_sample())
    assert done["boxes"].tolist() == [[1, 2, 9, 12], [20, 1, 30, 8]]
    assert done["labels"].tolist() == [3, 5]


def test_only_one_plain_tensor_of_a_sample_is_an_image() -> None:
    pair = weft.arange(4.0).reshape(1, 2, 2), weft.arange(2.0)
    image, label = v2.RandomHorizontalFlip(1.0)(*pair)
    assert image.tolist() == [[[1.0, 0.0], [3.0, 2.0]]] and label is pair[1]
    sample = {"plain": weft.arange(4.0).reshape(1, 2, 2), "image": tv_tensors.Image(pair[0])}
    assert v2.RandomHorizontalFlip(1.0)(sample)["plain"] is sample["plain"]


def test_mixtures_of_a_batch_mix_their_labels() -> None:
    weft.manual_seed(0)
    x, y = weft.rand(4, 3, 8, 8), weft.tensor([0, 1, 2, 1])
    for kind in (v2.MixUp, v2.CutMix):
        mixed, labels = kind(num_classes=3)(x, y)
        assert mixed.shape == x.shape and labels.shape == (4, 3)
        assert labels.sum(dim=1).tolist() == pytest.approx([1.0] * 4)
        with pytest.raises(ValueError, match="num_classes must be passed"):
            kind()(x, y)


def test_transforms_of_ones_own_see_every_part() -> None:
    class Shift(v2.Transform):
        def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
            return {"by": int(weft.randint(1, 2, ()))}

        def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
            if isinstance(inpt, tv_tensors.BoundingBoxes):
                return tv_tensors.wrap(inpt + params["by"], like=inpt)
            return inpt

    done = Shift()(_sample())
    assert done["boxes"][0].tolist() == [2, 3, 10, 13] and done["image"].shape == (3, 20, 30)

    class Depth(tv_tensors.TVTensor):
        pass

    @F2.register_kernel(F2.horizontal_flip, Depth)
    def flip_depth(inpt: Any) -> Any:
        return tv_tensors.wrap(inpt.flip(-1), like=inpt)

    flipped = v2.RandomHorizontalFlip(1.0)({"d": weft.arange(3.0).as_subclass(Depth)})["d"]
    assert type(flipped) is Depth and flipped.tolist() == [2.0, 1.0, 0.0]


def test_plain_programs_define_no_subclass_of_tensor() -> None:
    code = (
        "import weft.vision, sys; assert 'weft.vision.tv_tensors' not in sys.modules; "
        "weft.vision.tv_tensors; assert 'weft.vision.tv_tensors' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_without_pillow_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['PIL'] = None\n"
        "import numpy as np, weft\n"
        "from weft.vision import transforms, models\n"
        "assert transforms.Resize(3)(weft.zeros(1, 6, 6)).shape == (1, 3, 3)\n"
        "try:\n    transforms.ToPILImage()(np.zeros((2, 2), np.uint8))\n"
        "except ModuleNotFoundError as error:\n    assert 'weft[vision]' in str(error)\n"
        "else:\n    raise SystemExit(1)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_functions_of_one_kind_do_what_the_common_ones_do() -> None:
    """``sweep.py kernels`` compares them with torchvision."""
    image, mask = weft.rand(3, 20, 30), weft.randint(0, 4, (20, 30))
    boxes, points = weft.tensor([[1.0, 2, 9, 12]]), weft.tensor([[3.0, 4.0]])
    assert weft.equal(F2.resize_image(image, [7, 9]), F2.resize(image, [7, 9]))
    assert set(F2.rotate_mask(mask, 20.0).unique().tolist()) <= {0, 1, 2, 3}
    assert weft.equal(F2.crop_mask(mask, 1, 2, 5, 6), mask[1:6, 2:8])
    wrapped = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(20, 30))
    for name, more in (("affine", (10.0, [1, 2], 1.1, [3, 4])), ("horizontal_flip", ())):
        moved = getattr(F2, f"{name}_bounding_boxes")(boxes, "XYXY", (20, 30), *more)
        assert type(moved) is weft.Tensor
        assert weft.equal(moved, getattr(F2, name)(wrapped, *more).as_subclass(weft.Tensor))
    half, canvas = F2.resize_bounding_boxes(boxes, (20, 30), [10, 15])
    assert half.tolist() == [[0.5, 1.0, 4.5, 6.0]] and canvas == (10, 15)
    moved, canvas = F2.crop_keypoints(points, 1, 2, 5, 6)
    assert moved.tolist() == [[1.0, 3.0]] and canvas == (5, 6)
    assert F2.vertical_flip_keypoints(points, (20, 30)).tolist() == [[3.0, 15.0]]
