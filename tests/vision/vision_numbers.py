"""Numbers of torchvision that weft.vision is compared with, and how they are made.

``python tests/vision/vision_numbers.py`` in an environment with torchvision writes
``numbers.json``; the tests compute the same from weft. Both sides run the functions below.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import random
import warnings
from typing import Any

import numpy as np

PATH = pathlib.Path(__file__).with_name("numbers.json")


def numbers() -> dict[str, Any]:
    return json.loads(PATH.read_text())


# --- models ----------------------------------------------------------------------------------

# Models whose initial values are checked in every run; the others in the long one.
DRAWN = [
    "squeezenet1_1", "shufflenet_v2_x0_5", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small",
    "resnet18", "regnet_y_400mf", "regnet_x_400mf", "efficientnet_b0", "densenet121", "googlenet",
    "lraspp_mobilenet_v3_large",
]  # fmt: skip
# Models that are run, with the side of their input.
RUN = {
    "alexnet": 64, "squeezenet1_1": 64, "shufflenet_v2_x0_5": 64, "mnasnet0_5": 64,
    "mobilenet_v2": 64, "mobilenet_v3_small": 64, "resnet18": 64, "resnext50_32x4d": 48,
    "regnet_y_400mf": 64, "efficientnet_b0": 64, "densenet121": 64, "googlenet": 64,
    "inception_v3": 80, "swin_t": 64, "swin_v2_t": 64, "convnext_tiny": 64,
}  # fmt: skip
SEGMENT = ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large")
TOO_LARGE = ("regnet_y_128gf", "vit_h_14")


def built(torch: Any, models: Any, name: str, seed: int = 0, **kwargs: Any) -> Any:
    import inspect

    options = dict(kwargs)
    if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
        options["weights_backbone"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        return models.get_model(name, weights=None, **options)


def structure(net: Any) -> list[Any]:
    """The number of tensors and parameters, and a hash of their names and shapes."""
    state = net.state_dict()
    text = "\n".join(f"{name} {tuple(value.shape)}" for name, value in state.items())
    count = sum(p.numel() for p in net.parameters())
    return [len(state), count, hashlib.sha256(text.encode()).hexdigest()[:16]]


def values(net: Any) -> list[float]:
    """The sum of all initial parameters, and of their absolute values."""
    total = absolute = 0.0
    for parameter in net.parameters():
        array = parameter.detach().numpy().astype(np.float64)
        total, absolute = total + array.sum(), absolute + np.abs(array).sum()
    return [float(total), float(absolute)]


def picture(torch: Any, side: int, count: int = 1) -> Any:
    size = count * 3 * side * side
    wave = np.sin(np.arange(size) * 0.37) + np.cos(np.arange(size) * 0.011)
    return torch.from_numpy(wave.reshape(count, 3, side, side).astype(np.float32))


def result(torch: Any, net: Any, side: int) -> list[float]:
    """Some numbers of what a model gives for a picture."""
    net.eval()
    with torch.no_grad():
        y = net(picture(torch, side))
    y = y["out"] if isinstance(y, dict) else y
    flat = y.numpy().astype(np.float64).reshape(-1)
    return [float(v) for v in (flat.mean(), flat.std(), *flat[:3])]


def small_vit(torch: Any, models: Any) -> Any:
    torch.manual_seed(3)
    net = models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=7, representation_size=16)
    torch.nn.init.normal_(net.heads.head.weight, std=0.1)
    return net


def trained(torch: Any, models: Any, seed: int = 0) -> list[float]:
    """Losses of a small detector in training, and what it then finds."""
    net = built(
        torch, models, "fasterrcnn_mobilenet_v3_large_fpn", num_classes=4, min_size=96, max_size=128
    )
    rng = np.random.default_rng(1)
    images = [
        torch.from_numpy(rng.random(s).astype(np.float32)) for s in ((3, 80, 100), (3, 90, 70))
    ]
    boxes = [[[5.0, 5, 40, 45], [20, 10, 55, 50]], [[3.0, 4, 30, 30]]]
    labels = [[1, 2], [3]]
    targets = [
        {"boxes": torch.tensor(b), "labels": torch.tensor(n)}
        for b, n in zip(boxes, labels, strict=True)
    ]
    torch.manual_seed(seed + 1)
    losses = net(images, targets)
    return [float(losses[name].detach()) for name in sorted(losses)]


def tiny_detector(torch: Any, detection: Any, kind: str) -> Any:
    """A detector of some kind on a backbone of two layers."""
    torch.manual_seed(4)
    wide = 32
    backbone = torch.nn.Sequential(
        torch.nn.Conv2d(3, wide, 3, stride=4, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(wide, wide, 3, stride=2, padding=1), torch.nn.ReLU(),
    )  # fmt: skip
    backbone.out_channels = wide
    anchors = detection.anchor_utils.AnchorGenerator
    sizes: dict[str, Any] = {"min_size": 64, "max_size": 96}
    if kind == "fcos":
        return detection.fcos.FCOS(
            backbone, 4, anchor_generator=anchors(((8,),), ((1.0,),)), score_thresh=0.05, **sizes
        )
    pool = detection.faster_rcnn.MultiScaleRoIAlign
    options = {
        "rpn_anchor_generator": anchors(((16, 32),), ((0.5, 1.0),)),
        "box_roi_pool": pool(["0"], 3, 2), "rpn_post_nms_top_n_train": 20,
        "box_batch_size_per_image": 8, "rpn_post_nms_top_n_test": 6, "box_score_thresh": 0.0,
        "box_detections_per_img": 3, **sizes,
    }  # fmt: skip
    if kind == "mask":
        head = detection.mask_rcnn.MaskRCNNHeads(wide, (256,), 1)
        return detection.MaskRCNN(
            backbone, 4, mask_roi_pool=pool(["0"], 6, 2), mask_head=head, **options
        )
    head = detection.keypoint_rcnn.KeypointRCNNHeads(wide, (512,))
    return detection.KeypointRCNN(
        backbone, 4, keypoint_roi_pool=pool(["0"], 6, 2), keypoint_head=head, num_keypoints=5,
        **options,
    )  # fmt: skip


def tiny_results(torch: Any, detection: Any, kind: str) -> list[list[float]]:
    """Losses, sums of gradients, and what is found in an image, in float64."""
    net = tiny_detector(torch, detection, kind).double()
    rng = np.random.default_rng(2)
    images, targets = [], []
    for size, boxes in (((3, 50, 61), [[5.0, 5, 40, 45], [20, 3, 55, 30]]), ((3, 64, 44), [])):
        images.append(torch.from_numpy(rng.random(size)))
        count = len(boxes)
        target = {
            "boxes": torch.tensor(boxes, dtype=torch.float64).reshape(count, 4),
            "labels": torch.arange(count) + 1,
        }
        masks, points = rng.random((count, *size[1:])) > 0.4, rng.random((count, 5, 3)) * 50
        if kind == "mask":
            target["masks"] = torch.from_numpy(masks.astype(np.uint8))
        if kind == "keypoint":
            target["keypoints"] = torch.from_numpy(points.astype(np.float32))
        targets.append(target)
    torch.manual_seed(5)
    losses = net(images, targets)
    sum(losses.values()).backward()
    grads = [float(p.grad.abs().sum()) for p in net.parameters() if p.grad is not None]
    net.eval()
    with torch.no_grad():
        found = net(images)
    seen = [number for one in found for key in sorted(one) for number in summed(one[key])]
    return [[float(losses[name].detach()) for name in sorted(losses)], grads, seen]


TINY = ("mask", "keypoint", "fcos")


# --- transforms ------------------------------------------------------------------------------

SPECS = [
    "RandomCrop(16)", "RandomCrop((30, 20), padding=4)", "RandomResizedCrop(24)",
    "RandomCrop(50, pad_if_needed=True, padding_mode='reflect')",
    "RandomResizedCrop((20, 30), scale=(.3, .6), interpolation=M.NEAREST)",
    "RandomHorizontalFlip()", "RandomVerticalFlip()", "RandomRotation(30)",
    "RandomRotation((10, 80), expand=True, fill=7)",
    "RandomRotation(45, interpolation=M.BILINEAR, center=(3, 5), fill=(9, 8, 7))",
    "RandomAffine(15, (.1, .2), (.8, 1.3), (5, 10, 3, 8), interpolation=M.BILINEAR, fill=100)",
    "RandomPerspective(p=1.)", "RandomPerspective(.3, p=.7, interpolation=M.NEAREST, fill=50)",
    "ColorJitter(.4, .4, .4, .2)", "Grayscale()", "RandomGrayscale(.6)",
    "GaussianBlur((3, 7), (.5, 3.))", "Pad((1, 2, 3, 4), padding_mode='edge')",
    "Pad((5, 2, 0, 1), padding_mode='symmetric')", "CenterCrop((60, 30))",
    "RandomInvert()", "RandomPosterize(3)", "RandomAdjustSharpness(2.)", "RandomAutocontrast()",
    "RandomEqualize()", "ElasticTransform(80., 4.)", "Resize(20)", "Resize(17, max_size=25)",
    "Resize(30, interpolation=M.BICUBIC)", "Resize((15, 40), interpolation=M.NEAREST)",
    "RandomApply([X.ColorJitter(.3), X.RandomCrop(10)], .5)", "AutoAugment()",
    "AutoAugment(X.AutoAugmentPolicy.CIFAR10, fill=5)", "RandAugment()",
    "AutoAugment(X.AutoAugmentPolicy.SVHN)", "AugMix()",
]  # fmt: skip
ONLY_V1 = [
    "RandomErasing(1.)", "RandomErasing(.5, value='random')",
    "RandomChoice([X.RandomCrop(10), X.CenterCrop(10)])",
    "RandomOrder([X.RandomHorizontalFlip(), X.RandomRotation(30), X.ColorJitter(.5)])",
    "LinearTransformation(L.eye(6240) * 2, L.ones(6240))",
]  # fmt: skip
ONLY_V2 = [
    "RandomZoomOut(fill=3, p=.8)", "RandomPhotometricDistort(p=.6)", "ScaleJitter((40, 40))",
    "RandomShortestSize([20, 30, 40])", "RandomResize(20, 40)", "GaussianNoise()",
    "ToDtype(L.float32, scale=True)", "RandomIoUCrop()",
]  # fmt: skip
KINDS = ("pillow", "bytes", "floats")
SEEDS = (0, 1, 2)


def image(seed: int) -> np.ndarray:
    h, w = ((40, 52), (33, 33), (21, 60))[seed % 3]
    y, x = np.mgrid[:h, :w]
    waves = [
        127 + 100 * np.sin(x / (5 + i) + y / (7 - i)) + (x * y * (i + 3)) % 29 for i in range(3)
    ]
    return np.stack(waves, -1).clip(0, 255).astype(np.uint8)


def given(lib: Any, kind: str, array: np.ndarray) -> Any:
    if kind == "pillow":
        from PIL import Image

        return Image.fromarray(array)
    planes = array.transpose(2, 0, 1)
    if kind == "bytes":
        return lib.from_numpy(planes.copy())
    return lib.from_numpy((planes / 255).astype(np.float32))


def summed(value: Any) -> list[float]:
    """The shape of an image, its mean, and a mean that knows where pixels are."""
    array = value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)
    if hasattr(value, "mode") and array.ndim == 3:
        array = array.transpose(2, 0, 1)
    flat = array.astype(np.float64).reshape(-1)
    ramp = np.linspace(0, 1, flat.size) ** 2
    return [*map(float, array.shape), float(flat.mean()), float((flat * ramp).mean())]


def transformed(lib: Any, module: Any, spec: str, kind: str, seed: int) -> list[float] | str:
    """Numbers of a transformed image, and the next of the random stream."""
    lib.manual_seed(seed)
    random.seed(seed)
    scope = {"X": module, "M": module.InterpolationMode, "L": lib}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = eval(f"X.{spec}", scope)(given(lib, kind, image(seed)))
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return "refused"
    return [*summed(done), float(lib.rand(1))]


def sample(lib: Any, tv_tensors: Any, module: Any, spec: str, seed: int) -> list[float] | str:
    """The same for an image with boxes, a mask and points."""
    array = image(seed)
    h, w = array.shape[:2]
    form = ("XYXY", "XYWH", "CXCYWH")[seed % 3]
    boxes = np.array([[3, 4, 20, 18], [10, 2, 15, 20], [1, 1, 30, 19]], np.float32)
    lib.manual_seed(seed)
    given_sample = {
        "image": tv_tensors.Image(given(lib, "bytes", array)),
        "boxes": tv_tensors.BoundingBoxes(lib.from_numpy(boxes), format=form, canvas_size=(h, w)),
        "mask": tv_tensors.Mask(lib.from_numpy((array[:, :, 0] > 127).astype(np.uint8))),
        "points": tv_tensors.KeyPoints(lib.from_numpy(boxes[:, :2].copy()), canvas_size=(h, w)),
        "label": lib.arange(3),
    }
    scope = {"X": module, "M": module.InterpolationMode, "L": lib}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = eval(f"X.{spec}", scope)(given_sample)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return "refused"
    plain = [done[k].as_subclass(lib.Tensor) for k in ("image", "boxes", "mask", "points")]
    parts = [number for value in plain for number in summed(value)]
    return [*parts, *map(float, done["boxes"].canvas_size), float(lib.rand(1))]


def rounded(found: Any) -> Any:
    if isinstance(found, list):
        return [rounded(x) for x in found]
    return float(f"{found:.8g}") if isinstance(found, float) else found


def main() -> None:
    import torch
    import torchvision
    from torchvision import models, transforms, tv_tensors
    from torchvision.transforms import v2

    made: dict[str, Any] = {
        "source": ", ".join(
            f"{m.__name__} {m.__version__.partition('+')[0]}" for m in (torchvision, torch)
        ),
        "models": {}, "values": {}, "results": {}, "v1": {}, "v2": {}, "samples": {},
    }  # fmt: skip
    from weft.vision import models as ours

    known = set(models.list_models())
    for name in [n for n in ours.list_models() if n in known and n not in TOO_LARGE]:
        net = built(torch, models, name)
        made["models"][name], made["values"][name] = structure(net), values(net)
        print(name, flush=True)
    for name, side in RUN.items():
        made["results"][name] = result(torch, built(torch, models, name), side)
    for name in SEGMENT:
        made["results"][name] = result(torch, built(torch, models, name), 64)
    made["results"]["small_vit"] = result(torch, small_vit(torch, models), 32)
    made["losses"] = trained(torch, models)
    made["tiny"] = {kind: tiny_results(torch, models.detection, kind) for kind in TINY}
    for spec in SPECS + ONLY_V1:
        made["v1"][spec] = [
            [transformed(torch, transforms, spec, k, s) for s in SEEDS] for k in KINDS
        ]
    for spec in SPECS + ONLY_V2:
        made["v2"][spec] = [[transformed(torch, v2, spec, k, s) for s in SEEDS] for k in KINDS]
        made["samples"][spec] = [sample(torch, tv_tensors, v2, spec, s) for s in SEEDS]
    lines = []
    for key, value in made.items():
        if isinstance(value, dict):
            rows = ",\n".join(
                f"  {json.dumps(k)}: {json.dumps(rounded(v))}" for k, v in value.items()
            )
            lines.append(f"{json.dumps(key)}: {{\n{rows}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(rounded(value))}")
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
