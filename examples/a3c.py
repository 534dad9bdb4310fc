"""A3C: several processes balance poles of their own and train one network in shared memory.

No process waits for another: each copies the weights, plays up to 100 steps, and adds its gradients
to the shared network with an optimizer of its own. So with several workers no two runs are alike;
``--workers 1`` is repeatable.
"""

import argparse
import contextlib
import copy
import queue

import cartpole
import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

STEPS, GOAL = 800, 195
LENGTH, GAMMA, TRUST = 100, 0.99, 0.95
REWARD = 1 - GAMMA  # for a step, so that a pole that never falls is worth 1


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(states).log_softmax(-1), self.critic(states).squeeze(-1)


def loss_of(model: ActorCritic, states, actions, fallen: bool) -> torch.Tensor:
    """The loss of a run of steps; its last state has no action, and may be a fall."""
    log_probabilities, values = model(torch.from_numpy(np.stack(states)))
    known = values.detach().tolist()
    known[-1] = 0.0 if fallen else known[-1]
    advantage, total = [0.0] * len(actions), 0.0
    for k in reversed(range(len(actions))):
        total = REWARD + GAMMA * known[k + 1] - known[k] + GAMMA * TRUST * total
        advantage[k] = total
    better = torch.tensor(advantage)
    goals = values[:-1].detach() + better
    chosen = log_probabilities[:-1].gather(1, torch.tensor(actions).unsqueeze(1)).squeeze(1)
    entropy = -(log_probabilities.exp() * log_probabilities).sum(-1).mean()
    return -(chosen * better).mean() + F.mse_loss(values[:-1], goals) - 0.001 * entropy


def work(shared: ActorCritic, done, losses, steps: int, seed: int) -> None:
    """What one process does, until all together have made so many updates."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    local, world = copy.deepcopy(shared), cartpole.make()
    optimizer = torch.optim.Adam(shared.parameters(), lr=3e-3)
    state, _ = world.reset(seed=seed)
    while True:
        with done.get_lock():
            if done.value >= steps:
                return
            done.value += 1
            step = done.value
        local.load_state_dict(shared.state_dict())
        states, actions, fallen, late = [state], [], False, False
        while len(actions) < LENGTH and not (fallen or late):
            with torch.no_grad():
                probabilities = local(torch.from_numpy(state))[0].exp()
            actions.append(int(torch.multinomial(probabilities, 1)))
            state, _, fallen, late, _ = world.step(actions[-1])
            states.append(state)
        loss = loss_of(local, states, actions, fallen)
        local.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(local.parameters(), 0.5)
        for here, there in zip(local.parameters(), shared.parameters(), strict=True):
            there.grad = here.grad
        optimizer.step()
        if fallen or late:
            state, _ = world.reset()
        if step % max(1, steps // 10) == 0:
            losses.put((step, loss.item()))


def main(steps: int, seed: int, workers: int) -> None:
    torch.manual_seed(seed)
    context = mp.get_context("fork")
    shared = ActorCritic().share_memory()
    done, losses = context.Value("i", 0), context.Queue()
    processes = [
        context.Process(target=work, args=(shared, done, losses, steps, 10 * seed + k))
        for k in range(workers)
    ]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes) or not losses.empty():
        with contextlib.suppress(queue.Empty):
            print("step {} loss {:.6g}".format(*losses.get(timeout=0.1)))
    if any(process.exitcode for process in processes):
        raise SystemExit("a worker has failed")

    @torch.no_grad()
    def choose(state) -> int:
        return int(shared(torch.from_numpy(state))[0].argmax())

    length = cartpole.mean_length(choose, 2 if steps < STEPS else 50, seed=5000)
    print(f"result: {length:.1f} of 200 steps upright (goal {GOAL})")
    if steps >= STEPS and length < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    main(options.steps, options.seed, options.workers)
