"""Actor and critic (A2C): learn from every few steps, with a critic that foresees the rest.

Sixteen poles are balanced side by side. After 16 steps each, the actor is moved by how much better
things went than the critic expected (generalised advantage), and the critic by how wrong it was.
"""

import argparse

import cartpole
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

STEPS, GOAL = 500, 195
WORLDS, LENGTH, GAMMA, TRUST = 16, 16, 0.99, 0.95
REWARD = 1 - GAMMA  # for a step, so that a pole that never falls is worth 1


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(states).log_softmax(-1), self.critic(states).squeeze(-1)


class Worlds:
    """Several poles at once; one that falls, or has stood for 200 steps, begins anew."""

    def __init__(self, seed: int) -> None:
        self.worlds = [cartpole.make() for _ in range(WORLDS)]
        self.states = [w.reset(seed=100 * seed + k)[0] for k, w in enumerate(self.worlds)]

    def observe(self) -> torch.Tensor:
        return torch.from_numpy(np.stack(self.states))

    def step(self, actions: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The states behind the actions, which of them are falls, and which end an episode."""
        results = [w.step(a) for w, a in zip(self.worlds, actions, strict=True)]
        after = torch.from_numpy(np.stack([r[0] for r in results]))
        fallen = torch.tensor([float(r[2]) for r in results])
        over = torch.tensor([float(r[2] or r[3]) for r in results])
        for k, (state, _, fell, late, _) in enumerate(results):
            self.states[k] = self.worlds[k].reset()[0] if fell or late else state
        return after, fallen, over


def advantages(values, later, fallen, over) -> torch.Tensor:
    """How much better each action was than expected, with what followed counted less and less."""
    surprise = REWARD + GAMMA * later * (1 - fallen) - values
    found, total = [], torch.zeros(WORLDS)
    for step in reversed(range(LENGTH)):
        total = surprise[step] + GAMMA * TRUST * (1 - over[step]) * total
        found.append(total)
    return torch.stack(found[::-1])


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    worlds, model = Worlds(seed), ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=STEPS)
    for step in range(1, steps + 1):
        seen = []
        with torch.no_grad():
            for _ in range(LENGTH):
                states = worlds.observe()
                actions = torch.multinomial(model(states)[0].exp(), 1)
                seen.append((states, actions, *worlds.step(actions.squeeze(1).tolist())))
        states, actions, after, fallen, over = (
            torch.stack(part) for part in zip(*seen, strict=True)
        )
        log_probabilities, values = model(states)
        with torch.no_grad():
            advantage = advantages(values, model(after)[1], fallen, over)
        goals = values.detach() + advantage
        advantage = (advantage - advantage.mean()) / advantage.std()
        actor_loss = -(log_probabilities.gather(2, actions).squeeze(2) * advantage).mean()
        critic_loss = F.mse_loss(values, goals)
        entropy = -(log_probabilities.exp() * log_probabilities).sum(-1).mean()
        loss = actor_loss + critic_loss - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")

    @torch.no_grad()
    def choose(state) -> int:
        return int(model(torch.from_numpy(state))[0].argmax())

    length = cartpole.mean_length(choose, 2 if steps < STEPS else 50, seed=5000)
    print(f"result: {length:.1f} of 200 steps upright (goal {GOAL})")
    if steps >= STEPS and length < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
