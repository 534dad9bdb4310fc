"""Training with everything around it: progress, evaluation, checkpoints, resuming, logs.

>>> import weft
>>> from weft.train import Trainer
>>> x = weft.linspace(-1, 1, 32).unsqueeze(1)
>>> data = weft.utils.data.DataLoader(weft.utils.data.TensorDataset(x, 3 * x), batch_size=8)
>>> model = weft.nn.Linear(1, 1)
>>> optimizer = weft.optim.SGD(model.parameters(), lr=0.5)
>>> trainer = Trainer(model, weft.nn.functional.mse_loss, optimizer, progress=False)
>>> history = trainer.fit(data, epochs=30)
>>> history[-1]["loss"] < 1e-3
True
"""

from __future__ import annotations

from weft.train.callbacks import Callback, EarlyStopping, LayerStats, WeightAverage
from weft.train.finders import LearningRates, find_batch_size, find_lr
from weft.train.guard import NonFiniteError
from weft.train.loggers import (
    CSVLogger,
    JSONLogger,
    Logger,
    MLflowLogger,
    TensorBoardLogger,
    WandbLogger,
)
from weft.train.seeding import seed_everything
from weft.train.trainer import Trainer

__all__ = [
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "JSONLogger",
    "LayerStats",
    "LearningRates",
    "Logger",
    "MLflowLogger",
    "NonFiniteError",
    "TensorBoardLogger",
    "Trainer",
    "WandbLogger",
    "WeightAverage",
    "find_batch_size",
    "find_lr",
    "seed_everything",
]
