"""fastai: a Learner fits one cycle with metrics."""

import torch
from fastai.callback.schedule import *  # noqa: F403
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.losses import CrossEntropyLossFlat
from fastai.metrics import accuracy
from fastai.torch_core import set_seed
from torch import nn

set_seed(0)
x, y = torch.randn(40, 5), torch.randint(3, (40,))
rows = [(x[i], y[i]) for i in range(40)]
loaders = DataLoaders(DataLoader(rows, bs=8), DataLoader(rows, bs=8))
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3))
learner = Learner(loaders, model, loss_func=CrossEntropyLossFlat(), metrics=accuracy)
with learner.no_bar(), learner.no_logging():
    learner.fit_one_cycle(2, 1e-2)
for row in learner.recorder.values:
    print("losses", *row)
