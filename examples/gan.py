"""A generative adversarial network: points that look as if they came from a ring of eight spots."""

import argparse
import itertools
import math

import torch
from torch import nn

LATENT = 8


def real_points(count: int) -> torch.Tensor:
    angle = torch.randint(8, (count,)) * (math.pi / 4)
    centre = torch.stack((torch.cos(angle), torch.sin(angle)), dim=1)
    return centre + 0.05 * torch.randn(count, 2)


def network(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(inputs, outputs), nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def main(steps: int) -> None:
    torch.manual_seed(0)
    generator, discriminator = network(LATENT, 64, 64, 2), network(2, 64, 64, 1)
    settings = {"lr": 1e-3, "betas": (0.5, 0.999)}
    generator_optimizer = torch.optim.Adam(generator.parameters(), **settings)
    discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), **settings)
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)

    for step in range(1, steps + 1):
        fake = generator(torch.randn(64, LATENT))
        told_real = criterion(discriminator(real_points(64)), ones)
        told_fake = criterion(discriminator(fake.detach()), zeros)
        discriminator_loss = told_real + told_fake
        discriminator_optimizer.zero_grad()
        discriminator_loss.backward()
        discriminator_optimizer.step()

        generator_loss = criterion(discriminator(fake), ones)
        generator_optimizer.zero_grad()
        generator_loss.backward()
        generator_optimizer.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {(discriminator_loss + generator_loss).item():.6g}")

    with torch.no_grad():
        radius = generator(torch.randn(500, LATENT)).norm(dim=1)
    print(f"distance from the centre: {radius.mean():.3f} with spread {radius.std():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    main(parser.parse_args().steps)
