"""Distillation: a small student learns digits from a teacher's answers, with few labels of its own.

The teacher, a convolutional network, has seen all labels. Two students of equal size and start know
100 labels; one of them also sees what the teacher answers for the other 1,337 pictures, softened
by a temperature. The test digits are new to all three.
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

STEPS, GOAL, LABELLED, HEAT = 600, 0.94, 100, 3.0


def digits():
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return x[order[360:]], y[order[360:]], x[order[:360]], y[order[:360]]


def teacher_network() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inner, outer in ((1, 16), (16, 32)):  # batch norm has a bias of its own
        conv = nn.Conv2d(inner, outer, 3, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10))


def train(model: nn.Module, loss_of, count: int, steps: int, shown: bool = False) -> None:
    """Train on random ones out of so many pictures, with a loss of their places."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        loss = loss_of(torch.randint(count, (64,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if shown and step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    x, y, test_x, test_y = digits()
    teacher = teacher_network()
    train(teacher, lambda at: F.cross_entropy(teacher(x[at]), y[at]), len(x), min(steps, 300))
    print(f"teacher {accuracy(teacher, test_x, test_y):.1%}")
    with torch.no_grad():
        answers = torch.softmax(teacher(x) / HEAT, dim=1)

    alone = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    student = copy.deepcopy(alone)
    train(alone, lambda at: F.cross_entropy(alone(x[at]), y[at]), LABELLED, steps)

    def distilled(at: torch.Tensor) -> torch.Tensor:
        logits, known = student(x[at]), at % LABELLED  # as many with labels as without
        soft = F.cross_entropy(logits / HEAT, answers[at])
        return HEAT**2 * soft + 0.1 * F.cross_entropy(student(x[known]), y[known])

    train(student, distilled, len(x), steps, shown=True)
    print(f"student by itself {accuracy(alone, test_x, test_y):.1%}")
    result = accuracy(student, test_x, test_y)
    print(f"result: {result:.1%} of test digits right by the taught student (goal {GOAL:.0%})")
    if steps >= STEPS and result < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
