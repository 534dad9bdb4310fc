"""A multilayer perceptron that reads seven-segment digits, shifted and noisy."""

import argparse
import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

STEPS, GOAL = 1600, 0.98

# Which segments are lit: top, upper left, upper right, middle, lower left, lower right, bottom.
SEGMENTS = (
    *("1110111", "0010010", "1011101", "1011011", "0111010"),
    *("1101011", "1101111", "1010010", "1111111", "1111011"),
)
PLACES = (
    *((0, slice(1, 4)), (slice(1, 3), 0), (slice(1, 3), 4), (3, slice(1, 4))),
    *((slice(4, 6), 0), (slice(4, 6), 4), (6, slice(1, 4))),
)


def draw(digit: int) -> torch.Tensor:
    image = torch.zeros(7, 5)
    for lit, place in zip(SEGMENTS[digit], PLACES, strict=True):
        if lit == "1":
            image[place] = 1.0
    return image


def digits(count: int) -> TensorDataset:
    labels = torch.randint(10, (count,))
    images = torch.zeros(count, 8, 8)
    for image, label in zip(images, labels, strict=True):
        row, column = torch.randint(0, 2, (1,)).item(), torch.randint(0, 4, (1,)).item()
        image[row : row + 7, column : column + 5] = draw(label.item())
    return TensorDataset(images + 0.2 * torch.randn_like(images), labels)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    train, test = random_split(digits(7000), [6000, 1000])
    loader = DataLoader(train, batch_size=50, shuffle=True)
    model = Network()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, (x, y) in enumerate(itertools.islice(batches, steps), 1):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")

    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(test, 100))
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
