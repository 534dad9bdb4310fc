"""pytorch-forecasting: N-BEATS and a temporal fusion transformer on made series."""

import logging
import warnings

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from pytorch_forecasting import NBeats, TemporalFusionTransformer, TimeSeriesDataSet
from pytorch_forecasting.metrics import MAE, QuantileLoss

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pl.seed_everything(0, verbose=False)
steps = np.arange(40)
frame = pd.concat(
    pd.DataFrame({"t": steps, "g": str(i), "y": np.sin(steps / (3 + i)) + i}) for i in range(2)
).reset_index(drop=True)
common = {
    "time_idx": "t",
    "target": "y",
    "group_ids": ["g"],
    "max_encoder_length": 8,
    "max_prediction_length": 4,
}
for kind, more in ((NBeats, {"widths": [8, 8], "loss": MAE()}), (TemporalFusionTransformer, {})):
    pl.seed_everything(0, verbose=False)
    data = TimeSeriesDataSet(frame, time_varying_unknown_reals=["y"], **common)
    if kind is TemporalFusionTransformer:
        more = {"hidden_size": 4, "attention_head_size": 1, "loss": QuantileLoss(), "dropout": 0.0}
    net = kind.from_dataset(data, learning_rate=1e-2, **more)
    net.train()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    loader = iter(data.to_dataloader(train=False, batch_size=16, num_workers=0))
    for _ in range(3):
        x, y = next(loader)
        loss = net.loss(net(x)["prediction"], y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(kind.__name__, loss.item())
