"""A convolutional network that reads real handwritten digits (8x8 pixels, from scikit-learn)."""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

STEPS, GOAL = 500, 0.97


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,437 digits to train on and 360 to test with; the division is always the same."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    data = TensorDataset(x, torch.tensor(labels))
    return random_split(data, [len(data) - 360, 360], torch.Generator().manual_seed(0))


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(32 * 4 * 4, 10),
    )


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    train, test = digits()
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=STEPS)
    loader, step = DataLoader(train, batch_size=64, shuffle=True, drop_last=True), 0
    while step < steps:
        for x, y in loader:
            step += 1
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % max(1, steps // 10) == 0:
                print(f"step {step} loss {loss.item():.6g}")
            if step == steps:
                break

    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(test, 120))
    accuracy = right / len(test)
    print(f"result: {accuracy:.1%} of the test digits right (goal {GOAL:.0%})")
    if steps >= STEPS and accuracy < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
