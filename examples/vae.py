"""A variational autoencoder of small pictures with a bright bar or two."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def bars(count: int, size: int = 8) -> torch.Tensor:
    rows = (torch.rand(count, size, 1) < 1 / size).float()
    columns = (torch.rand(count, 1, size) < 1 / size).float()
    return torch.clamp(rows + columns, max=1.0).view(count, 1, size, size)


class VAE(nn.Module):
    def __init__(self, latent: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 4, stride=2, padding=1),
            nn.ELU(),
            nn.Flatten(),
            nn.Linear(8 * 4 * 4, 32),
            nn.ELU(),
        )
        self.mean, self.log_var = nn.Linear(32, latent), nn.Linear(32, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, 8 * 4 * 4),
            nn.ELU(),
            nn.Unflatten(1, (8, 4, 4)),
            nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = self.encoder(x)
        mean, log_var = self.mean(hidden), self.log_var(hidden)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        return self.decoder(z), mean, log_var


def main(steps: int) -> None:
    torch.manual_seed(0)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        x = bars(64)
        again, mean, log_var = model(x)
        reconstruction = F.binary_cross_entropy(again, x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())
        loss = (reconstruction + divergence) / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    model.eval()
    with torch.no_grad():
        image = model.decoder(torch.randn(1, 8))[0, 0]
    print("\n".join("".join(" .:#"[int(v * 3.99)] for v in row) for row in image.tolist()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
