"""A variational autoencoder of small pictures with some bright bars.

Sixteen bars, each there one time in eight, take 6.03 nats to tell, so no model can have a lower
loss (the negative evidence bound) than that on average. Codes that are normally distributed, as
here, take more, since a bar is there or not: with one number for each bar the best is about 10.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

STEPS, GOAL = 3000, 11.0


def bars(count: int, size: int = 8) -> torch.Tensor:
    rows = (torch.rand(count, size, 1) < 1 / size).float()
    columns = (torch.rand(count, 1, size) < 1 / size).float()
    return torch.clamp(rows + columns, max=1.0).view(count, 1, size, size)


class VAE(nn.Module):
    def __init__(self, latent: int = 16) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 128), nn.ELU(), nn.Linear(128, 128), nn.ELU()
        )
        self.mean, self.log_var = nn.Linear(128, latent), nn.Linear(128, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, 128), nn.ELU(), nn.Linear(128, 64), nn.Unflatten(1, (1, 8, 8))
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = self.encoder(x)
        mean, log_var = self.mean(hidden), self.log_var(hidden)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        return self.decoder(z), mean, log_var


def loss_of(x, again, mean, log_var) -> torch.Tensor:
    reconstruction = F.binary_cross_entropy_with_logits(again, x, reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())
    return (reconstruction + divergence) / len(x)


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(1, steps + 1):
        x = bars(128)
        again, mean, log_var = model(x)
        loss = loss_of(x, again, mean, log_var)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    model.eval()
    with torch.no_grad():
        image = model.decoder(torch.randn(1, 16)).sigmoid()[0, 0]
        x = bars(4000)
        result = loss_of(x, *model(x)).item()
    print("\n".join("".join(" .:#"[int(v * 3.99)] for v in row) for row in image.tolist()))
    print(f"result: {result:.2f} nats for a picture, near 10 at best (goal below {GOAL})")
    if steps >= STEPS and result >= GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
