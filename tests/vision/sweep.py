"""weft.vision beside torchvision, on random inputs: every pixel, box, gradient and draw.

    python tests/vision/sweep.py [--seeds 20] [transforms samples ops utils datasets models ...]

Needs torch and torchvision in the environment. Prints how many cases of each part agree, and the
first that don't. `test_vision_sweep.py` runs it as a deep test where torchvision is installed.
"""

from __future__ import annotations

import argparse
import gzip
import inspect
import pathlib
import pickle
import random
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import vision_numbers as table

Case = tuple[str, Callable[[Any, Any], Any], float]  # its name, what it computes, the tolerance


def plain(value: Any) -> Any:
    """Nested results as arrays, numbers and text."""
    if hasattr(value, "detach"):
        return value.detach().numpy()
    if hasattr(value, "mode") and hasattr(value, "size"):  # a Pillow image
        return np.asarray(value)
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


def differs(a: Any, b: Any, close: float) -> str | None:
    """What is different, or None; ``close`` is by the largest value."""
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return f"keys {list(a)} and {list(b)}"
        return next((f"{k}: {d}" for k in a if (d := differs(a[k], b[k], close))), None)
    if isinstance(a, list):
        if not isinstance(b, list) or len(a) != len(b):
            return f"{a!r:.60} and {b!r:.60}"
        pairs = enumerate(zip(a, b, strict=True))
        return next((f"[{i}] {d}" for i, (x, y) in pairs if (d := differs(x, y, close))), None)
    if isinstance(a, (np.ndarray, np.generic)):
        b = np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{a.shape} and {b.dtype}{b.shape}"
        if a.dtype.kind not in "fc":
            wrong = np.abs(a.astype(np.float64) - b.astype(np.float64))
            # Bytes are rounded from floats: a few may be one off.
            if a.dtype == np.uint8 and close and wrong.size:
                return (
                    None
                    if wrong.max() <= 1 and (wrong > 0).mean() <= 0.005
                    else f"{int((wrong > 0).sum())} of {wrong.size} bytes, by {wrong.max():g}"
                )
            return f"{int((wrong > 0).sum())} of {wrong.size} values" if wrong.any() else None
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return "finite in other places"
        a, b = np.nan_to_num(a), np.nan_to_num(b)
        gap = np.abs(a - b).max(initial=0) / max(1.0, np.abs(a).max(initial=0))
        return f"off by {gap:.2e}" if gap > close else None
    return None if a == b else f"{a!r:.80} and {b!r:.80}"


def told(case: Case, lib: Any, vision: Any) -> Any:
    """What a case gives, or the kind of error that it ends in."""
    lib.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return plain(case[1](lib, vision))
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
        return f"{type(error).__name__}"


# --- transforms ------------------------------------------------------------------------------


def scope(lib: Any, module: Any) -> dict[str, Any]:
    return {"X": module, "M": module.InterpolationMode, "L": lib}


def random_image(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    h, w = rng.integers(17, 70, 2)
    y, x = np.mgrid[:h, :w]
    smooth = 127 + 100 * np.sin(x / rng.uniform(2, 9) + y / rng.uniform(2, 9))
    noise = rng.integers(0, 60, (h, w, 3))
    return (smooth[..., None] + noise).clip(0, 255).astype(np.uint8)


def transforms(seeds: range) -> Iterator[Case]:
    for version, specs in (
        ("v1", table.SPECS + table.ONLY_V1),
        ("v2", table.SPECS + table.ONLY_V2),
    ):
        for spec in specs:
            for seed in seeds:
                for kind in table.KINDS:

                    def run(
                        lib: Any, vision: Any, spec=spec, seed=seed, kind=kind, version=version
                    ) -> Any:
                        module = vision.transforms if version == "v1" else vision.transforms.v2
                        lib.manual_seed(seed)
                        random.seed(seed)
                        array = random_image(seed) if "Linear" not in spec else table.image(0)
                        given = table.given(lib, kind, array)
                        done = eval(f"X.{spec}", scope(lib, module))(given)
                        return [done, float(lib.rand(1)), random.random()]

                    close = {"pillow": 0.0, "bytes": 1e-5, "floats": 2e-5}[kind]
                    # What goes by way of float tensors rounds as bytes do.
                    if kind == "pillow" and spec.startswith(("Elastic", "AugMix")):
                        close = 1e-5
                    yield f"{version} {spec} {kind} seed {seed}", run, close


def samples(seeds: range) -> Iterator[Case]:
    for spec in table.SPECS + table.ONLY_V2:
        for seed in seeds:

            def run(lib: Any, vision: Any, spec=spec, seed=seed) -> Any:
                array = random_image(seed)
                h, w = array.shape[:2]
                rng = np.random.default_rng(seed + 1000)
                corners = np.sort(rng.random((4, 2, 2)), axis=1) * (w, h)
                form = ("XYXY", "XYWH", "CXCYWH")[seed % 3]
                kinds, f = vision.tv_tensors, vision.transforms.v2.functional
                boxes = kinds.BoundingBoxes(
                    lib.from_numpy(corners.reshape(4, 4).astype(np.float32)),
                    format="XYXY",
                    canvas_size=(h, w),
                )
                given = {
                    "image": kinds.Image(table.given(lib, "bytes", array)),
                    "boxes": f.convert_bounding_box_format(boxes, new_format=form),
                    "mask": kinds.Mask(lib.from_numpy((array[:, :, 0] > 127).astype(np.uint8))),
                    "points": kinds.KeyPoints(
                        lib.from_numpy((rng.random((5, 2)) * (w, h)).astype(np.float32)),
                        canvas_size=(h, w),
                    ),
                    "label": lib.arange(4),
                }
                lib.manual_seed(seed)
                random.seed(seed)
                done = eval(f"X.{spec}", scope(lib, vision.transforms.v2))(given)
                size = done["boxes"].canvas_size
                bare = {k: v.as_subclass(lib.Tensor) for k, v in done.items()}
                return [bare, list(size), str(done["boxes"].format), float(lib.rand(1))]

            yield f"sample {spec} seed {seed}", run, 2e-5


# What each geometric function is called with, after the input and what says where that lies.
GEOMETRY: dict[str, dict[str, Any]] = {
    "affine": {"angle": 10.0, "translate": [2.0, 3.0], "scale": 1.1, "shear": [3.0, 4.0]},
    "center_crop": {"output_size": [10, 12]},
    "crop": {"top": 2, "left": 3, "height": 10, "width": 12},
    "elastic": {"displacement": None},
    "horizontal_flip": {},
    "pad": {"padding": [1, 2, 3, 4]},
    "perspective": {
        "startpoints": [[0, 0], [29, 0], [29, 19], [0, 19]],
        "endpoints": [[1, 1], [27, 2], [28, 18], [2, 17]],
    },
    "resize": {"size": [14, 17]},
    "resized_crop": {"top": 2, "left": 3, "height": 10, "width": 12, "size": [7, 9]},
    "rotate": {"angle": 17.0},
    "vertical_flip": {},
}
PIXELS: dict[str, tuple[Any, ...]] = {
    "adjust_brightness": (1.3,), "adjust_contrast": (1.3,), "adjust_gamma": (0.7,),
    "adjust_hue": (0.1,), "adjust_saturation": (1.5,), "adjust_sharpness": (1.4,),
    "autocontrast": (), "equalize": (), "five_crop": ([6, 7],), "gaussian_blur": ([3, 5],),
    "gaussian_noise": (), "get_dimensions": (), "get_num_channels": (), "grayscale_to_rgb": (),
    "invert": (), "normalize": ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]),
    "permute_channels": ([2, 0, 1],), "posterize": (3,), "rgb_to_grayscale": (),
    "solarize": (0.4,), "ten_crop": ([6, 7],), "to_dtype": (),
}  # fmt: skip


def kernels(seeds: range) -> Iterator[Case]:
    """The functions of v2 for plain tensors of one kind: ``resize_image`` and so on."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        image = rng.random((3, 20, 30), dtype=np.float32)
        inputs = {
            "image": image,
            "video": np.stack([image, image[::-1]]),
            "mask": rng.integers(0, 4, (20, 30)),
            "bounding_boxes": some_boxes(rng, 4, 20).astype(np.float32),
            "keypoints": (rng.random((5, 2)) * 20).astype(np.float32),
        }
        moved = (rng.random((1, 20, 30, 2), dtype=np.float32) - 0.5) * 0.2
        for name, settings in GEOMETRY.items():
            for kind, array in inputs.items():

                def run(
                    L: Any, V: Any, name=name, kind=kind, array=array, settings=settings, to=moved
                ) -> Any:
                    function = getattr(V.transforms.v2.functional, f"{name}_{kind}")
                    takes = inspect.signature(function).parameters
                    where = {"canvas_size": (20, 30)} if "canvas_size" in takes else {}
                    if "format" in takes:
                        where["format"] = V.tv_tensors.BoundingBoxFormat.XYXY
                    if name == "elastic":
                        settings = {"displacement": L.from_numpy(to.copy())}
                    return function(L.from_numpy(array.copy()), **where, **settings)

                yield f"{name}_{kind} seed {seed}", run, 2e-5
        for name, given in PIXELS.items():
            for kind in ("image", "video"):
                if name in ("grayscale_to_rgb", "rgb_to_grayscale") and kind == "video":
                    continue  # torchvision has no such names

                def run_pixels(
                    L: Any, V: Any, name=name, kind=kind, array=inputs[kind], given=given, s=seed
                ) -> Any:
                    L.manual_seed(s)
                    function = getattr(V.transforms.v2.functional, f"{name}_{kind}")
                    return function(L.from_numpy(array.copy()), *given)

                yield f"{name}_{kind} seed {seed}", run_pixels, 2e-5


# --- ops -------------------------------------------------------------------------------------


def some_boxes(rng: np.random.Generator, count: int, side: float = 40.0) -> np.ndarray:
    return np.sort(rng.random((count, 2, 2)) * side, axis=1).reshape(count, 4)


def with_gradients(lib: Any, function: Callable[..., Any], *arrays: np.ndarray) -> list[Any]:
    """A result and the gradients of a weighted sum of it."""
    given = [lib.from_numpy(a.copy()).requires_grad_() for a in arrays]
    out = function(*given)
    weights = np.cos(np.arange(out.numel(), dtype=np.float64)).reshape(tuple(out.shape))
    (out * lib.from_numpy(weights).to(out.dtype)).sum().backward()
    return [out, *(x.grad for x in given)]


LOSSES = ("generalized_box_iou_loss", "distance_box_iou_loss", "complete_box_iou_loss")
PAIRS = ("box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou")


def _ops_of(seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    dtype = np.float32 if seed % 2 else np.float64
    close = 2e-5 if seed % 2 else 1e-10
    count = int(rng.integers(1, 60))
    b, c = (some_boxes(rng, count).astype(dtype) for _ in range(2))
    s = rng.random(count).astype(dtype)
    s[rng.random(count) < 0.3] = 0.5  # ties
    kinds = rng.integers(0, 3, count)
    limit = float(rng.random())
    x = rng.standard_normal((2, 4, 11, 9)).astype(dtype)
    rois = np.concatenate([rng.integers(0, 2, (count, 1)), b - 5], 1).astype(dtype)
    size = tuple(int(n) for n in rng.integers(1, 5, 2))
    shared = rng.standard_normal((2, 3 * size[0] * size[1], 11, 9)).astype(dtype)
    scale, ratio, aligned = (
        float(rng.uniform(0.2, 1.2)),
        int(rng.integers(-1, 4)),
        seed % 3 == 0,
    )
    logits = rng.standard_normal((count, 5)).astype(dtype) * 4
    wanted = (rng.random((count, 5)) > 0.5).astype(dtype)
    groups = int(rng.integers(1, 3))
    image = rng.standard_normal((2, 4, 8, 7)).astype(dtype)
    weight = rng.standard_normal((6, 4 // groups, 3, 3)).astype(dtype)
    offset = rng.standard_normal((2, 2 * groups * 9, 8, 7)).astype(dtype)
    gate = rng.random((2, groups * 9, 8, 7)).astype(dtype)
    masks = rng.random((3, 12, 15)) > 0.9
    masks[:, 3, 4] = True

    def t(lib: Any, a: np.ndarray) -> Any:
        return lib.from_numpy(a.copy())

    rows: list[tuple[str, Callable[[Any, Any], Any]]] = [
        ("nms", lambda L, V: V.ops.nms(t(L, b), t(L, s), limit)),
        ("batched_nms", lambda L, V: V.ops.batched_nms(t(L, b), t(L, s), t(L, kinds), limit)),
        ("box_area", lambda L, V: V.ops.box_area(t(L, b))),
        ("clip", lambda L, V: V.ops.clip_boxes_to_image(t(L, b), (20, 25))),
        ("small", lambda L, V: V.ops.remove_small_boxes(t(L, b), 6.0)),
        ("masks_to_boxes", lambda L, V: V.ops.masks_to_boxes(t(L, masks))),
        (
            "roi_align",
            lambda L, V: with_gradients(
                L, lambda x: V.ops.roi_align(x, t(L, rois), size, scale, ratio, aligned), x
            ),
        ),
        (
            "roi_pool",
            lambda L, V: with_gradients(
                L, lambda x: V.ops.roi_pool(x, t(L, rois), size, scale), x
            ),
        ),
        (
            "ps_roi_align",
            lambda L, V: with_gradients(
                L, lambda x: V.ops.ps_roi_align(x, t(L, rois), size, scale, ratio), shared
            ),
        ),
        # Values alone: torchvision's gradient at the border fails its own gradcheck.
        ("ps_roi_pool", lambda L, V: V.ops.ps_roi_pool(t(L, shared), t(L, rois), size, scale)),
        (
            "focal",
            lambda L, V: with_gradients(
                L, lambda x: V.ops.sigmoid_focal_loss(x, t(L, wanted), 0.3, 1.7, "mean"), logits
            ),
        ),
        (
            "deform_conv2d",
            lambda L, V: with_gradients(
                L,
                lambda x, o, w, m: V.ops.deform_conv2d(x, o, w, None, 1, 1, 1, m),
                image, offset, weight, gate,
            ),
        ),
        ("stochastic_depth", lambda L, V: V.ops.stochastic_depth(t(L, x), 0.4, "row")),
        ("drop_block2d", lambda L, V: V.ops.drop_block2d(t(L, x), 0.3, 3)),
    ]  # fmt: skip
    for name in PAIRS:
        rows.append((name, lambda L, V, n=name: getattr(V.ops, n)(t(L, b), t(L, c))))
    for name in LOSSES:
        rows.append(
            (
                name,
                lambda L, V, n=name: with_gradients(
                    L, lambda p: getattr(V.ops, n)(p, t(L, c), reduction="mean"), b
                ),
            )
        )
    for form in ("xywh", "cxcywh"):
        rows.append(
            (
                f"convert {form}",
                lambda L, V, f=form: V.ops.box_convert(
                    V.ops.box_convert(t(L, b), "xyxy", f), f, "xyxy"
                ),
            )
        )
    for name, run in rows:
        yield f"{name} seed {seed}", run, close


def ops(seeds: range) -> Iterator[Case]:
    for seed in seeds:
        yield from _ops_of(seed)


# --- utils -----------------------------------------------------------------------------------


def _utils_of(seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    batch = rng.standard_normal((int(rng.integers(1, 9)), int(rng.choice([1, 3])), 7, 6))
    batch = batch.astype(np.float32)
    picture = rng.integers(0, 256, (3, 40, 50)).astype(np.uint8)
    boxes = some_boxes(rng, 3, 38).astype(np.float32)
    masks = rng.random((2, 40, 50)) > 0.5
    points = (rng.random((2, 4, 2)) * 38).astype(np.float32)
    flow = rng.standard_normal((2, 9, 8)).astype(np.float32)
    grid = {"nrow": int(rng.integers(1, 5)), "padding": int(rng.integers(0, 4))}
    grid |= {"normalize": bool(seed % 2), "scale_each": bool(seed % 3 == 0), "pad_value": 0.3}
    width, fill = int(rng.integers(1, 4)), bool(seed % 2)

    def saved(L: Any, V: Any, a: np.ndarray) -> Any:
        from PIL import Image

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "image.png"
            V.utils.save_image(L.from_numpy(a.copy()), path, **grid)
            return np.asarray(Image.open(path))

    rows: list[tuple[str, Callable[[Any, Any], Any]]] = [
        ("make_grid", lambda L, V: V.utils.make_grid(L.from_numpy(batch.copy()), **grid)),
        ("save_image", lambda L, V: saved(L, V, batch)),
        (
            "draw_bounding_boxes",
            lambda L, V: V.utils.draw_bounding_boxes(
                L.from_numpy(picture.copy()), L.from_numpy(boxes.copy()),
                ["a", "bc", "d"], ["red", "#00ff00", (0, 0, 255)], fill=fill, width=width,
            ),
        ),
        (
            "draw_segmentation_masks",
            lambda L, V: V.utils.draw_segmentation_masks(
                L.from_numpy(picture.copy()), L.from_numpy(masks.copy()), 0.4, ["red", "blue"]
            ),
        ),
        (
            "draw_keypoints",
            lambda L, V: V.utils.draw_keypoints(
                L.from_numpy(picture.copy()), L.from_numpy(points.copy()), [(0, 1), (1, 2)],
                "yellow", width, width,
            ),
        ),
        ("flow_to_image", lambda L, V: V.utils.flow_to_image(L.from_numpy(flow.copy()))),
    ]  # fmt: skip
    for name, run in rows:
        close = 0.0 if name.startswith(("draw", "flow")) else 1e-6
        yield f"{name} seed {seed}", run, close


def utils(seeds: range) -> Iterator[Case]:
    for seed in seeds:
        yield from _utils_of(seed)


# --- datasets --------------------------------------------------------------------------------


def _idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def _write_data(root: pathlib.Path, rng: np.random.Generator) -> None:
    from PIL import Image

    for name in ("MNIST", "FashionMNIST", "KMNIST"):
        raw = root / name / "raw"
        raw.mkdir(parents=True)
        for part, count in (("train", 12), ("t10k", 5)):
            images = rng.integers(0, 256, (count, 28, 28)).astype(np.uint8)
            labels = rng.integers(0, 10, count).astype(np.uint8)
            (raw / f"{part}-images-idx3-ubyte").write_bytes(_idx(images))
            (raw / f"{part}-labels-idx1-ubyte").write_bytes(_idx(labels))
            with gzip.open(raw / f"{part}-images-idx3-ubyte.gz", "wb") as file:
                file.write(_idx(images))
    for kind in ("cat", "dog", "emu"):
        (root / "folder" / kind).mkdir(parents=True)
        for i in range(3):
            array = rng.integers(0, 256, (9, 8, 3)).astype(np.uint8)
            Image.fromarray(array).save(root / "folder" / kind / f"{i}.png")
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        entry = {
            "data": rng.integers(0, 256, (4, 3072)).astype(np.uint8),
            "labels": rng.integers(0, 10, 4).tolist(),
        }
        (folder / name).write_bytes(pickle.dumps(entry, protocol=2))
    names = {"label_names": list("abcdefghij")}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))
    from scipy.io import savemat

    labels = rng.integers(1, 11, (6, 1)).astype(np.uint8)
    images = rng.integers(0, 256, (32, 32, 3, 6)).astype(np.uint8)
    savemat(root / "train_32x32.mat", {"X": images, "y": labels})


def _all(data: Any) -> list[Any]:
    return [repr(data).replace("weft.vision", "torchvision"), [data[i] for i in range(len(data))]]


def _unchecked(kind: type) -> type:
    """torchvision's CIFAR and SVHN refuse other files than the published ones; this does not."""
    return type(kind.__name__, (kind,), {"_check_integrity": lambda self: True})


def datasets(seeds: range) -> Iterator[Case]:
    for seed in seeds:
        folder = tempfile.mkdtemp(prefix="weft-vision-")
        root = pathlib.Path(folder)
        _write_data(root, np.random.default_rng(seed))

        def cifar(V: Any, train: bool, root=root) -> Any:
            kind = _unchecked(V.datasets.CIFAR10)
            kind._load_meta = lambda self: None  # torchvision's checks the published file
            data = kind(root, train=train)
            return [[data[i] for i in range(len(data))], data.targets, data.data]

        def svhn(V: Any, root=root) -> Any:
            import unittest.mock

            name = f"{V.datasets.SVHN.__module__}.check_integrity"
            with unittest.mock.patch(name, lambda *a, **k: True, create=True):
                return _all(V.datasets.SVHN(root, split="train"))[1]

        rows: list[tuple[str, Callable[[Any, Any], Any]]] = [
            (f"{name} {train}", lambda L, V, n=name, t=train, r=root: _all(
                getattr(V.datasets, n)(r, train=t, transform=V.transforms.ToTensor())))
            for name in ("MNIST", "FashionMNIST", "KMNIST") for train in (True, False)
        ]  # fmt: skip
        rows += [
            ("CIFAR10 train", lambda L, V, c=cifar: c(V, True)),
            ("CIFAR10 test", lambda L, V, c=cifar: c(V, False)),
            ("SVHN", lambda L, V, s=svhn: s(V)),
            ("ImageFolder", lambda L, V, r=root: _all(V.datasets.ImageFolder(r / "folder"))),
            (
                "FakeData",
                lambda L, V, s=seed: [
                    V.datasets.FakeData(5, (3, 9, 8), 7, V.transforms.ToTensor(), None, s)[i]
                    for i in range(5)
                ],
            ),
        ]
        for name, run in rows:
            yield f"{name} seed {seed}", run, 0.0


# --- models ----------------------------------------------------------------------------------


def _trained_once(lib: Any, vision: Any, name: str, side: int) -> Any:
    """The result and the gradient of a model in float64, without dropping anything."""
    net = table.built(lib, vision.models, name).double()
    for part in net.modules():
        if type(part).__name__ in ("Dropout", "StochasticDepth"):
            part.p = 0.0
        if type(part).__name__ == "_DenseLayer":
            part.drop_rate = 0.0
    rng = np.random.default_rng(0)
    x = lib.from_numpy(rng.standard_normal((2, 3, side, side))).requires_grad_()
    out = net(x)
    parts = (
        list(out.values()) if isinstance(out, dict) else out if isinstance(out, tuple) else [out]
    )
    total = sum((p * p).mean() for p in parts)
    total.backward()
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    norm = sum(float((g * g).sum()) for g in grads) ** 0.5
    return [parts[0], x.grad / x.grad.abs().max(), np.float64(norm), len(grads)]


# The auxiliary classifier of inception_v3 needs its full size.
SIDES = {"inception_v3": 299, "swin": 64, "vit": 224, "convnext": 64}


def models(seeds: range) -> Iterator[Case]:
    from weft.vision import models as ours

    one_stage = ("rcnn", "retinanet", "ssd", "fcos")
    for name in ours.list_models():
        if name in (*table.TOO_LARGE, "lenet", "unet"):
            continue
        if any(part in name for part in one_stage) or name.startswith(("vit", "regnet_y_32gf")):
            continue
        side = next((s for start, s in SIDES.items() if name.startswith(start)), 64)
        yield name, lambda L, V, n=name, s=side: _trained_once(L, V, n, s), 1e-7


# --- detectors -------------------------------------------------------------------------------

DETECTORS = (
    "fasterrcnn_mobilenet_v3_large_fpn", "ssdlite320_mobilenet_v3_large", "fcos_resnet50_fpn",
    "retinanet_resnet50_fpn", "retinanet_resnet50_fpn_v2", "maskrcnn_resnet50_fpn",
    "keypointrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2", "ssd300_vgg16",
)  # fmt: skip


def detector_inputs(lib: Any, name: str, seed: int, noise: float = 0.0) -> tuple[Any, Any]:
    """Two pictures of float64 with their boxes, masks and keypoints."""
    rng, shake = np.random.default_rng(seed), np.random.default_rng(99)
    pictures = [rng.random(shape) for shape in ((3, 80, 100), (3, 90, 70))]
    boxes = [[[5.0, 5, 40, 45], [20, 10, 55, 50]], [[3.0, 4, 30, 30]]]
    targets = []
    for picture, corners, labels in zip(pictures, boxes, ([1, 1], [1]), strict=True):
        target = {
            "boxes": lib.tensor(corners, dtype=lib.float64),
            "labels": lib.tensor(labels),
        }
        if "mask" in name:
            masks = rng.random((len(labels), *picture.shape[1:])) > 0.5
            target["masks"] = lib.from_numpy(masks.astype(np.uint8))
        if "keypoint" in name:
            points = rng.random((len(labels), 5, 3)) * 60
            target["keypoints"] = lib.from_numpy(points.astype(np.float32))
        targets.append(target)
    shaken = [p * (1 + noise * shake.standard_normal(p.shape)) for p in pictures]
    return [lib.from_numpy(p) for p in shaken], targets


def detector(lib: Any, vision: Any, name: str, **options: Any) -> Any:
    options |= {"num_keypoints": 5} if "keypoint" in name else {"num_classes": 4}
    if "ssd" not in name:
        options |= {"min_size": 96, "max_size": 128}
    if "rcnn" in name:  # fewer boxes, for time
        options |= {"rpn_post_nms_top_n_train": 200, "box_batch_size_per_image": 48}
        options |= {"box_detections_per_img": 5, "rpn_post_nms_top_n_test": 50}
    return table.built(lib, vision.models, name, **options).double()


def detected(lib: Any, net: Any, name: str, seed: int, noise: float = 0.0) -> list[Any]:
    """Losses, and the gradients of all parameters."""
    images, targets = detector_inputs(lib, name, seed, noise)
    lib.manual_seed(seed + 1)
    net.zero_grad()
    losses = net(images, targets)
    sum(losses.values()).backward()
    grads = {k: p.grad.clone() for k, p in net.named_parameters() if p.grad is not None}
    return [{k: float(v.detach()) for k, v in losses.items()}, grads]


def _whole(lib: Any, vision: Any, name: str, seed: int) -> Any:
    net = detector(lib, vision, name)
    losses, grads = detected(lib, net, name, seed)
    norm = sum(float((g * g).sum()) for g in grads.values()) ** 0.5
    if name.startswith("ssdlite"):  # or nearly all scores are equal, and their order is chance
        for part in net.head.parameters():
            part.data.mul_(30)
    # By the norm of all: a bias before a batch norm has no gradient but rounding.
    shares = {k: g / norm for k, g in grads.items()}
    net.eval()
    with lib.no_grad():
        found = net(detector_inputs(lib, name, seed)[0])
    return [[np.float64(v) for v in losses.values()], shares, found]


def detectors(seeds: range) -> Iterator[Case]:
    for name in DETECTORS:
        for seed in seeds:
            yield f"{name} seed {seed}", lambda L, V, n=name, s=seed: _whole(L, V, n, s), 3e-7


PARTS = {
    part.__name__: part
    for part in (transforms, samples, kernels, ops, utils, datasets, models, detectors)
}


def run(part: str, seeds: range, say: Callable[[str], None] = print) -> tuple[int, int]:
    """How many cases of a part agree, of how many."""
    import torch
    import torchvision
    import torchvision.transforms.v2

    import weft
    from weft import vision

    torch.set_num_threads(1)
    right = total = 0
    for case in PARTS[part](seeds):
        ours, theirs = told(case, weft, vision), told(case, torch, torchvision)
        wrong = differs(theirs, ours, case[2])
        if part in ("models", "detectors") and isinstance(theirs, str):
            wrong = f"torchvision raises {theirs}: nothing was compared"
        total, right = total + 1, right + (wrong is None)
        if wrong:
            say(f"  {case[0]}: torchvision and weft: {wrong}")
    return right, total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    for part in options.parts:
        count = 1 if part in ("models", "detectors") else options.seeds
        right, total = run(part, range(count))
        print(f"{part}: {right} of {total}", flush=True)


if __name__ == "__main__":
    main()
