"""Deep Q-learning in a small windy grid: reach the corner, mind the gusts."""

import argparse
import copy
import random
from collections import deque
from typing import NamedTuple

import torch
from torch import nn

SIZE, GAMMA, BATCH = 5, 0.95, 32
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))


class Transition(NamedTuple):
    state: torch.Tensor
    action: int
    reward: float
    following: torch.Tensor
    done: bool


class Grid:
    """A walker starts at (0, 0); the goal is the opposite corner."""

    def reset(self) -> torch.Tensor:
        self.place, self.time = (0, 0), 0
        return self.observe()

    def observe(self) -> torch.Tensor:
        state = torch.zeros(2, SIZE)
        state[0, self.place[0]] = state[1, self.place[1]] = 1.0
        return state.flatten()

    def step(self, action: int) -> tuple[torch.Tensor, float, bool]:
        move = random.choice(MOVES) if random.random() < 0.1 else MOVES[action]
        row, column = self.place[0] + move[0], self.place[1] + move[1]
        self.place = min(max(row, 0), SIZE - 1), min(max(column, 0), SIZE - 1)
        self.time += 1
        arrived = self.place == (SIZE - 1, SIZE - 1)
        return self.observe(), 1.0 if arrived else -0.02, arrived or self.time >= 40


def learn(q, target, optimizer, memory) -> torch.Tensor:
    batch = Transition(*zip(*random.sample(memory, BATCH), strict=True))
    states, following = torch.stack(batch.state), torch.stack(batch.following)
    actions = torch.tensor(batch.action).unsqueeze(1)
    rewards, done = torch.tensor(batch.reward), torch.tensor(batch.done)
    value = q(states).gather(1, actions).squeeze(1)
    with torch.no_grad():
        best = target(following).max(1).values
        goal = rewards + GAMMA * torch.where(done, torch.zeros_like(best), best)
    loss = nn.functional.smooth_l1_loss(value, goal)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(q.parameters(), 1.0)
    optimizer.step()
    return loss


def main(steps: int) -> None:
    random.seed(0)
    torch.manual_seed(0)
    world, memory = Grid(), deque(maxlen=2000)
    q = nn.Sequential(nn.Linear(2 * SIZE, 48), nn.ReLU(), nn.Linear(48, len(MOVES)))
    target = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), lr=2e-3, amsgrad=True)
    state, arrivals = world.reset(), 0
    for step in range(1 - BATCH, steps + 1):
        explore = random.random() < max(0.1, 1 - step / 300)
        with torch.no_grad():
            action = random.randrange(len(MOVES)) if explore else q(state).argmax().item()
        following, reward, done = world.step(action)
        memory.append(Transition(state, action, reward, following, done and reward > 0))
        state = world.reset() if done else following
        arrivals += done and reward > 0
        if step < 1:
            continue
        loss = learn(q, target, optimizer, memory)
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), q.parameters(), strict=True):
                slow.lerp_(fast, 0.02)
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    print(f"reached the corner {arrivals} times")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    main(parser.parse_args().steps)
