"""A transformer encoder that finds out whether brackets are balanced."""

import argparse
import itertools
import math
import random

import torch
from torch import nn

PAD, OPEN, CLOSE = 0, 1, 2
LONGEST = 16
STEPS, GOAL = 1200, 0.98


def balanced(row: list[int]) -> bool:
    depths = list(itertools.accumulate(1 if bracket == OPEN else -1 for bracket in row))
    return depths[-1] == 0 and min(depths) >= 0


def brackets() -> tuple[list[int], int]:
    """A row of brackets, and 1 if every one has its partner."""
    half = random.randint(2, LONGEST // 2)
    row, depth = [], 0
    for left in range(2 * half, 0, -1):
        opens = depth == 0 or (depth < left and random.random() < 0.5)
        row.append(OPEN if opens else CLOSE)
        depth += 1 if opens else -1
    if random.random() < 0.5:
        return row, 1
    while balanced(row):  # as many of each remain, so counting them is not enough
        a, b = random.sample(range(len(row)), 2)
        row[a], row[b] = row[b], row[a]
    return row, 0


def batch(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows, labels = zip(*(brackets() for _ in range(count)), strict=True)
    padded = torch.tensor([row + [PAD] * (LONGEST - len(row)) for row in rows])
    return padded, torch.tensor(labels, dtype=torch.float)


class PositionalEncoding(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        position = torch.arange(LONGEST).unsqueeze(1)
        speed = torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size))
        table = torch.zeros(LONGEST, size)
        table[:, 0::2] = torch.sin(position * speed)
        table[:, 1::2] = torch.cos(position * speed)
        self.register_buffer("table", table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table[: x.size(1)]


class Balanced(nn.Module):
    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, size, padding_idx=PAD)
        self.position = PositionalEncoding(size)
        layer = nn.TransformerEncoderLayer(size, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.out = nn.Linear(size, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        padding = rows == PAD
        x = self.encoder(self.position(self.embed(rows)), src_key_padding_mask=padding)
        x = x.masked_fill(padding.unsqueeze(-1), 0.0).sum(1) / (~padding).sum(1, keepdim=True)
        return self.out(x).squeeze(-1)


def main(steps: int, seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    model = Balanced()
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    # Up in twenty steps, then slowly down to nothing.
    rate = lambda step: min((step + 1) / 20, 1 - min(step, STEPS) / (STEPS + 1))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    for step in range(1, steps + 1):
        rows, labels = batch(64)
        loss = criterion(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")

    model.eval()
    rows, labels = batch(2000)
    with torch.no_grad():
        correct = ((model(rows) > 0) == (labels > 0)).float().mean().item()
    print(f"result: {correct:.1%} of new rows right (goal {GOAL:.0%})")
    if steps >= STEPS and correct < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
