"""A name of a class stands for one thing, but where PyTorch's packages share it."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "src" / "weft"

# Names that several classes may have, by the reason.
PERMITTED = {
    "torchvision has them in transforms and in transforms.v2": (
        *("AugMix", "AutoAugment", "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype"),
        *("ElasticTransform", "FiveCrop", "GaussianBlur", "Grayscale", "Lambda"),
        *("LinearTransformation", "Normalize", "PILToTensor", "Pad", "RandAugment"),
        *("RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast"),
        *("RandomChoice", "RandomCrop", "RandomEqualize", "RandomErasing", "RandomGrayscale"),
        *("RandomHorizontalFlip", "RandomInvert", "RandomOrder", "RandomPerspective"),
        *("RandomPosterize", "RandomResizedCrop", "RandomRotation", "RandomSolarize"),
        *("RandomVerticalFlip", "Resize", "TenCrop", "ToPILImage", "ToTensor"),
        "TrivialAugmentWide",
    ),
    "torchvision has them in several models": ("InceptionAux", "InvertedResidual"),
    "torch.cpu.amp, torch.cuda.amp and torch.amp": ("GradScaler", "autocast"),
    "torch, torch.cuda and torch.xpu": ("Event", "Stream", "device"),
    "torch.nn, torch.nn.utils.prune and torchvision.transforms.v2": ("Identity",),
    "torch.nn and torchtext.transforms": ("Sequential",),
    "torch.nn and torch.fx": ("Transformer",),
    "torch.distributions and torchvision.transforms.v2": ("Transform",),
    "torch.jit and torch.fx.proxy": ("Attribute",),
    "torch.utils.data and torchtext.data": ("Dataset",),
    "torch.profiler and torch.autograd.profiler": ("profile",),
    "torch.fx, torch.autograd.graph and weft.graph, whose public names they are": (
        *("Graph", "Node"),
    ),
}


def test_a_name_stands_for_one_class() -> None:
    homes = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path.relative_to(ROOT).as_posix())
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    permitted = {name for names in PERMITTED.values() for name in names}
    assert {n: places for n, places in shared.items() if n not in permitted} == {}
    assert permitted - set(shared) == set()
