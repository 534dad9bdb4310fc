"""A recursive network: works out nested expressions, each by a graph of its own shape.

An expression such as ``max(3, flip(min(7, 2)))``, where flip is nine minus its part, is a tree. The
network computes a vector for a digit by a table and one for an operation from those of its parts,
whatever the tree looks like; it learns from the value of the whole alone, and is tested on larger
trees than it has seen.
"""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn

STEPS, GOAL = 600, 0.95
OPS = {"max": max, "min": min, "flip": lambda a: 9 - a}

Tree = int | list  # a digit, or the name of an operation and the trees that it is applied to


def grow(leaves: int) -> Tree:
    if random.random() < 0.15:
        return ["flip", grow(leaves)]
    if leaves == 1:
        return random.randrange(10)
    left = random.randint(1, leaves - 1)
    return [random.choice(("max", "min")), grow(left), grow(leaves - left)]


def value(tree: Tree) -> int:
    return tree if isinstance(tree, int) else OPS[tree[0]](*map(value, tree[1:]))


class TreeNetwork(nn.Module):
    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.digits = nn.Embedding(10, size)
        self.ops = nn.ModuleDict()
        for name, parts in (("max", 2), ("min", 2), ("flip", 1)):
            layers = nn.Linear(parts * size, 64), nn.ReLU(), nn.Linear(64, size)
            self.ops[name] = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(size)
        self.out = nn.Linear(size, 10)

    def encode(self, tree: Tree, digits: list[torch.Tensor]) -> torch.Tensor:
        if isinstance(tree, int):
            return digits[tree]
        op, *parts = tree
        return self.norm(self.ops[op](torch.cat([self.encode(part, digits) for part in parts])))

    def forward(self, trees: list[Tree]) -> torch.Tensor:
        digits = self.norm(self.digits.weight).unbind()
        return self.out(torch.stack([self.encode(tree, digits) for tree in trees]))


def main(steps: int, seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    model = TreeNetwork()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(1, steps + 1):
        trees = [grow(random.randint(2, 5)) for _ in range(32)]
        loss = F.cross_entropy(model(trees), torch.tensor([value(tree) for tree in trees]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")

    random.seed(1000)
    trees = [grow(8) for _ in range(20 if steps < STEPS else 400)]
    with torch.no_grad():
        right = (model(trees).argmax(1) == torch.tensor([value(t) for t in trees])).float().mean()
    print(f"result: {right.item():.1%} of expressions of eight digits right (goal {GOAL:.0%})")
    if steps >= STEPS and right < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
