"""An autoencoder: eight numbers for each handwritten digit, better than the best linear code.

The best linear code of eight numbers is that of the eight principal components (PCA), so that is
what the network has to beat, on digits that neither has seen.
"""

import argparse
import itertools

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

STEPS, GOAL, CODE = 3000, 0.7, 8


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images[order[360:]], images[order[:360]]


def network(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inner, outer in itertools.pairwise(sizes):
        layers += [nn.Linear(inner, outer), nn.ELU()]
    return nn.Sequential(*layers[:-1])


def pca_error(train: torch.Tensor, test: torch.Tensor) -> float:
    mean = train.mean(0)
    directions = torch.linalg.svd(train - mean, full_matrices=False)[2][:CODE]
    return F.mse_loss((test - mean) @ directions.T @ directions + mean, test).item()


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    train, test = digits()
    encoder, decoder = network(64, 128, 64, CODE), network(CODE, 64, 128, 64)
    model = nn.Sequential(encoder, decoder, nn.Sigmoid())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(1, steps + 1):
        x = train[torch.randint(len(train), (64,))]
        loss = F.mse_loss(model(x + 0.1 * torch.randn_like(x)), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")

    with torch.no_grad():
        ours, linear = F.mse_loss(model(test), test).item(), pca_error(train, test)
    print(f"squared error on test digits: {ours:.4f}, principal components {linear:.4f}")
    print(f"result: {ours / linear:.2f} of the error of PCA (goal below {GOAL})")
    if steps >= STEPS and ours / linear >= GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
