"""REINFORCE: make the actions of good episodes more likely, with nothing else to go by.

Each update plays eight episodes side by side and weighs every action by the reward that followed
it, against the mean of all.
"""

import argparse

import cartpole
import numpy as np
import torch
from torch import nn

STEPS, GOAL = 120, 195
GAMMA, WORLDS = 0.99, 8


@torch.no_grad()
def play(policy: nn.Module, worlds: list) -> list[tuple[list, list]]:
    """One episode in each world: its states and actions."""
    states = {k: world.reset()[0] for k, world in enumerate(worlds)}
    episodes: list[tuple[list, list]] = [([], []) for _ in worlds]
    while states:
        logits = policy(torch.from_numpy(np.stack(list(states.values()))))
        actions = torch.multinomial(logits.softmax(1), 1).squeeze(1).tolist()
        for (k, state), action in zip(list(states.items()), actions, strict=True):
            episodes[k][0].append(state)
            episodes[k][1].append(action)
            states[k], _, fallen, late, _ = worlds[k].step(action)
            if fallen or late:
                del states[k]
    return episodes


def returns(length: int) -> torch.Tensor:
    """The rewards from each step of an episode on: one for every step, discounted."""
    left = torch.arange(length, 0, -1, dtype=torch.float32)
    return (1 - GAMMA**left) / (1 - GAMMA)


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    worlds = [cartpole.make() for _ in range(WORLDS)]
    for k, world in enumerate(worlds):
        world.reset(seed=100 * seed + k)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        episodes = play(policy, worlds)
        states = torch.from_numpy(np.concatenate([s for s, _ in episodes]))
        actions = torch.tensor([a for _, actions in episodes for a in actions])
        weights = torch.cat([returns(len(actions)) for _, actions in episodes])
        weights = (weights - weights.mean()) / weights.std()
        chosen = policy(states).log_softmax(1).gather(1, actions.unsqueeze(1))
        loss = -(chosen.squeeze(1) * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
            print(f"  episodes of {len(actions) / WORLDS:.0f} steps")

    @torch.no_grad()
    def choose(state) -> int:
        return int(policy(torch.from_numpy(state)).argmax())

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
