"""Deep Q-learning (DQN): keep a pole upright from a memory of what happened.

Double Q-learning with a replay memory and a slowly following target network. It ends when ten
episodes in a row are played to their end, and is then judged by fresh ones.
"""

import argparse
import copy
import random

import cartpole
import torch
from torch import nn

STEPS, GOAL = 8000, 195
GAMMA, BATCH, WARM_UP = 0.99, 64, 500


class Memory:
    """The last transitions, as tensors from which random ones are taken."""

    def __init__(self, size: int = 20_000) -> None:
        self.states, self.following = torch.zeros(size, 4), torch.zeros(size, 4)
        self.actions = torch.zeros(size, dtype=torch.long)
        self.fallen = torch.zeros(size)
        self.count = 0

    def add(self, state, action, following, fallen) -> None:
        at = self.count % len(self.states)
        self.states[at], self.following[at] = torch.tensor(state), torch.tensor(following)
        self.actions[at], self.fallen[at] = action, float(fallen)
        self.count += 1

    def sample(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        at = torch.randint(min(self.count, len(self.states)), (BATCH,))
        return self.states[at], self.actions[at], self.following[at], self.fallen[at]


def learn(q: nn.Module, target: nn.Module, optimizer, memory: Memory) -> torch.Tensor:
    states, actions, following, fallen = memory.sample()
    value = q(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = q(following).argmax(1, keepdim=True)
        later = target(following).gather(1, best).squeeze(1)
        goal = 1.0 + GAMMA * later * (1 - fallen)
    loss = nn.functional.smooth_l1_loss(value, goal)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(q.parameters(), 10.0)
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), q.parameters(), strict=True):
            slow.lerp_(fast, 0.01)
    return loss


def main(steps: int, seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    world, memory = cartpole.make(), Memory()
    q = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    target = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)

    @torch.no_grad()
    def choose(state) -> int:
        return int(q(torch.tensor(state)).argmax())

    state, _ = world.reset(seed=seed)
    for step in range(1 - WARM_UP, steps + 1):
        for _ in range(2):
            explore = random.random() < max(0.05, 1 - step / 2000)
            action = random.randrange(2) if explore else choose(state)
            following, _, fallen, late, _ = world.step(action)
            memory.add(state, action, following, fallen)
            state = world.reset()[0] if fallen or late else following
        if step < 1:
            continue
        loss = learn(q, target, optimizer, memory)
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
        if step % 500 == 0 and cartpole.mean_length(choose, 10, seed=1000) == cartpole.LIMIT:
            print(f"solved after {step} updates")
            break

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
