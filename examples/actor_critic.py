"""Actor and critic: learn to keep a ball in the middle of a tilting beam."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

LENGTH, GAMMA = 30, 0.97


class Beam:
    """Many beams at once; each tilts left or right, and its ball rolls."""

    def __init__(self, count: int) -> None:
        self.position = 0.5 * torch.randn(count)
        self.speed = torch.zeros(count)

    def observe(self) -> torch.Tensor:
        return torch.stack((self.position, self.speed), dim=-1)

    def step(self, action: torch.Tensor) -> torch.Tensor:
        """Tilt by the action (0 or 1); the reward is for being near the middle."""
        self.speed = (
            0.95 * self.speed + 0.1 * (2.0 * action - 1) + 0.02 * torch.randn_like(self.speed)
        )
        self.position = self.position + 0.3 * self.speed
        return 1 - self.position.abs().clamp(max=2.0)


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
        self.actor = nn.Linear(32, 2)
        self.critic = nn.Linear(32, 1)

    def forward(self, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(state)
        return F.log_softmax(self.actor(hidden), dim=-1), self.critic(hidden).squeeze(-1)


def main(steps: int) -> None:
    torch.manual_seed(0)
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        beam = Beam(16)
        chosen, values, entropies, rewards = [], [], [], []
        for _ in range(LENGTH):
            log_probabilities, value = model(beam.observe())
            action = torch.multinomial(log_probabilities.detach().exp(), 1)
            chosen.append(log_probabilities.gather(1, action).squeeze(1))
            values.append(value)
            entropies.append(-(log_probabilities.exp() * log_probabilities).sum(-1))
            rewards.append(beam.step(action.squeeze(1)))

        returns, following = [], torch.zeros(16)
        for reward in reversed(rewards):
            following = reward + GAMMA * following
            returns.insert(0, following)
        returns, values = torch.stack(returns) / 10, torch.stack(values)
        advantage = (returns - values).detach()
        actor_loss = -(torch.stack(chosen) * advantage).mean()
        critic_loss = F.mse_loss(values, returns)
        loss = actor_loss + 0.5 * critic_loss - 0.01 * torch.stack(entropies).mean()

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    print(f"reward of the last run {torch.stack(rewards).mean().item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    main(parser.parse_args().steps)
