"""A generative adversarial network: points that look as if they came from a ring of eight spots.

A penalty on the discriminator's slope at real points (R1, by double backward) keeps the generator
from forgetting spots, and what is tested is the running average of its weights.
"""

import argparse
import itertools
import math

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

LATENT = 2
STEPS, GOAL, BATCH, PENALTY = 3000, 0.9, 128, 0.1


def real_points(count: int) -> torch.Tensor:
    angle = torch.randint(8, (count,)) * (math.pi / 4)
    centre = torch.stack((torch.cos(angle), torch.sin(angle)), dim=1)
    return centre + 0.05 * torch.randn(count, 2)


def network(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(inputs, outputs), nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    generator, discriminator = network(LATENT, 96, 96, 96, 2), network(2, 96, 96, 96, 1)
    average = AveragedModel(generator, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    settings = {"lr": 3e-3, "betas": (0.5, 0.99)}
    generator_optimizer = torch.optim.Adam(generator.parameters(), **settings)
    discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), **settings)
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    fade = lambda step: 1 - min(step, STEPS) / (STEPS + 1)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, fade)
        for optimizer in (generator_optimizer, discriminator_optimizer)
    ]

    for step in range(1, steps + 1):
        fake = generator(torch.randn(BATCH, LATENT))
        real = real_points(BATCH).requires_grad_()
        scores = discriminator(real)
        (slope,) = torch.autograd.grad(scores.sum(), real, create_graph=True)
        told_fake = criterion(discriminator(fake.detach()), zeros)
        discriminator_loss = criterion(scores, ones) + told_fake
        discriminator_loss = discriminator_loss + PENALTY / 2 * slope.square().sum(1).mean()
        discriminator_optimizer.zero_grad()
        discriminator_loss.backward()
        discriminator_optimizer.step()

        generator_loss = criterion(discriminator(fake), ones)
        generator_optimizer.zero_grad()
        generator_loss.backward()
        generator_optimizer.step()
        average.update_parameters(generator)
        for schedule in schedules:
            schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {(discriminator_loss + generator_loss).item():.6g}")

    with torch.no_grad():
        points = average(torch.randn(2000, LATENT))
    angles = torch.arange(8) * (math.pi / 4)
    centres = torch.stack((torch.cos(angles), torch.sin(angles)), dim=1)
    distance, nearest = torch.cdist(points, centres).min(1)
    near = distance < 0.2  # four times the spread of real points
    counts = torch.bincount(nearest[near], minlength=8)
    print(f"made points at each spot: {counts.tolist()}")
    share = near.float().mean().item() * (counts.min() >= 100).item()
    print(f"result: {share:.1%} of made points at a spot, each spot made (goal {GOAL:.0%})")
    if steps >= STEPS and share < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
