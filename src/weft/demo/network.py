"""The network, how it is trained, and how well it does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import weft
import weft.nn.functional as F
from weft import Tensor, nn
from weft.demo.digits import Digits

BATCH = 64


class Network(nn.Module):
    """Two convolutions find strokes, two linear layers read the digit from them."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(0.25),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


@dataclass
class History:
    """What was measured, by epoch."""

    loss: list[float] = field(default_factory=list)
    test_loss: list[float] = field(default_factory=list)
    train_accuracy: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    marks: dict[float, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class TrainingProgress:
    """How far the training is."""

    epoch: int
    batch: int
    batches: int
    loss: float


def train_epoch(
    net: nn.Module, optimizer: weft.optim.Optimizer, data: Digits,
    tell: Callable[[TrainingProgress], None], history: History,
) -> None:  # fmt: skip
    """One pass over the data; ``tell`` hears of every step."""
    net.train()
    started = time.perf_counter()
    total, right = 0.0, 0
    batches = data.batches(BATCH)
    for k, batch in enumerate(batches, 1):
        images, labels = data.images[batch], data.labels[batch]
        optimizer.zero_grad()
        scores = net(images)
        loss = F.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
        right += int((scores.argmax(1) == labels).sum())
        tell(TrainingProgress(len(history.loss) + 1, k, len(batches), loss.item()))
    history.loss.append(total / len(data))
    history.train_accuracy.append(right / len(data))
    history.seconds += time.perf_counter() - started


@weft.no_grad()
def evaluate(net: nn.Module, data: Digits, history: History | None = None) -> float:
    """The share of digits that the network reads correctly."""
    net.eval()
    scores = net(data.images)
    accuracy = float((scores.argmax(1) == data.labels).float().mean())
    if history is not None:
        history.accuracy.append(accuracy)
        history.test_loss.append(F.cross_entropy(scores, data.labels).item())
    return accuracy


@weft.no_grad()
def confusion(net: nn.Module, data: Digits) -> tuple[Tensor, Tensor]:
    """How often each digit was read as each other one, and what was read."""
    net.eval()
    read = net(data.images).argmax(1)
    counts = weft.zeros(10, 10, dtype=weft.int64)
    counts.index_put_((data.labels, read), weft.ones(len(data), dtype=weft.int64), accumulate=True)
    return counts, read


def saliency(net: nn.Module, images: Tensor) -> Tensor:
    """How much each pixel moves the score of the digit that the network reads."""
    net.eval()
    images = images.clone().requires_grad_()
    best = net(images).max(dim=1).values
    (grad,) = weft.autograd.grad(best.sum(), images)
    found = grad.abs().squeeze(1)
    return found / found.amax(dim=(1, 2), keepdim=True).clamp(min=1e-12)
