"""Detection: a small RetinaNet finds discs and squares in made pictures.

    python examples/detection_shapes.py

After 400 steps it finds more than 95% of the shapes (right class, overlap and score above 0.5), and
less than 5% of what it reports is something else. Two things make that reliable: a feature map that
is as fine as the shapes lie apart (a quarter of the resolution), and group norm in the heads.
"""

from __future__ import annotations

import argparse
import functools

import weft as torch
from weft import nn
from weft.vision.models.detection import AnchorGenerator, RetinaNet
from weft.vision.models.detection.retinanet import RetinaNetHead
from weft.vision.ops import box_iou

SIDE, STEPS, GOAL = 64, 400, 0.95


def picture(generator: torch.Generator) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """A noisy picture of one to three shapes, and their boxes and classes."""
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    image = 0.1 * torch.randn(3, SIDE, SIDE, generator=generator)
    count = int(torch.randint(1, 4, (1,), generator=generator))
    boxes, labels = [], []
    for _ in range(count):
        y, x = torch.randint(12, SIDE - 12, (2,), generator=generator).tolist()
        half = int(torch.randint(6, 12, (1,), generator=generator))
        box = torch.tensor([x - half, y - half, x + half, y + half], dtype=torch.float32)
        if boxes and (box_iou(box[None], torch.stack(boxes)) > 0.05).any():
            continue
        label = int(torch.randint(0, 2, (1,), generator=generator))
        if label == 0:
            inside = (rows - y) ** 2 + (columns - x) ** 2 < half**2
        else:
            inside = ((rows - y).abs() < half) & ((columns - x).abs() < half)
        image[label, inside] += 1.0
        boxes.append(box)
        labels.append(label)
    return image, {"boxes": torch.stack(boxes), "labels": torch.tensor(labels)}


def network() -> RetinaNet:
    """A RetinaNet on features of 32 channels, with anchors of three sizes."""
    layers: list[nn.Module] = []
    for inner, outer, stride in ((3, 16, 2), (16, 24, 2), (24, 32, 1)):
        layers += [nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(outer), nn.ReLU()]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = 32
    head = RetinaNetHead(32, 3, 2, norm_layer=functools.partial(nn.GroupNorm, 8))
    anchors = AnchorGenerator(((12, 17, 22),), ((1.0,),))
    norm = {"image_mean": [0.0] * 3, "image_std": [1.0] * 3}
    return RetinaNet(backbone, 2, SIDE, SIDE, anchor_generator=anchors, head=head, **norm)


def found_and_right(net: RetinaNet, count: int = 100) -> tuple[float, float]:
    """The share of shapes that were found, and the share of reports that were shapes."""
    generator = torch.Generator().manual_seed(1000)
    found = shapes = reports = 0
    net.eval()
    with torch.no_grad():
        for _ in range(count):
            image, target = picture(generator)
            detected = net([image])[0]
            sure = detected["scores"] > 0.5
            overlaps = box_iou(target["boxes"], detected["boxes"][sure])
            same = target["labels"][:, None] == detected["labels"][sure]
            found += int(((overlaps > 0.5) & same).any(dim=1).sum())
            shapes, reports = shapes + len(target["boxes"]), reports + int(sure.sum())
    net.train()
    return found / shapes, found / max(reports, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    steps = options.steps
    torch.manual_seed(options.seed)
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-3, total_steps=max(STEPS, steps)
    )
    generator = torch.Generator().manual_seed(1 + options.seed)
    for step in range(1, steps + 1):
        pairs = [picture(generator) for _ in range(8)]
        losses = net([image for image, _ in pairs], [target for _, target in pairs])
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    found, right = found_and_right(net)
    print(
        f"result: {found:.1%} of new shapes found, {right:.1%} of reports right (goal {GOAL:.0%})"
    )
    if steps >= STEPS and min(found, right) < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    main()
