"""optuna: a search with pruning over the width and rate of a network."""

import optuna
import torch
from torch import nn

optuna.logging.set_verbosity(optuna.logging.ERROR)


def objective(trial):
    torch.manual_seed(0)
    width, rate = (
        trial.suggest_int("width", 4, 16),
        trial.suggest_float("rate", 1e-3, 1e-1, log=True),
    )
    net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    x = torch.randn(16, 4)
    for step in range(5):
        loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trial.report(loss.item(), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss.item()


study = optuna.create_study(
    sampler=optuna.samplers.TPESampler(seed=0), pruner=optuna.pruners.MedianPruner(3)
)
study.optimize(objective, n_trials=8)
print("best", study.best_value, study.best_params["width"], *(t.state.name for t in study.trials))
